package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/lab/process"
)

// pairTime bounds a program, or both ends of one.
const pairTime = 20 * time.Second

// show is a command as a person would type it.
func show(argv []string) string {
	line := slices.Clone(argv)
	for i := range line {
		// A program of this run's; taskset may stand before it, and env with the library.
		if name, file, isVar := strings.Cut(line[i], "="); isVar && filepath.IsAbs(file) {
			line[i] = name + "=" + filepath.Base(file)
		} else if filepath.IsAbs(line[i]) {
			line[i] = filepath.Base(line[i])
		}
	}
	return strings.Join(line, " ")
}

// loop0 is the loop device.
const loop0 = "loop0"

// onLoop is a command on the loop device. wire: as GODAT_LOOP_WIRE has it; empty: it takes no time.
func onLoop(bin, wire string, argv []string) []string {
	env := []string{"env", "LD_PRELOAD=" + filepath.Join(bin, "libloop.so")}
	if wire != "" {
		env = append(env, "GODAT_LOOP_WIRE="+wire)
	}
	return append(env, argv...)
}

func (b *bench) run(limit time.Duration, argv ...string) (string, error) {
	p, err := process.Start(limit, nil, argv...)
	if err != nil {
		return "", err
	}
	return p.Wait()
}
