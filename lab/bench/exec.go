package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/lab/process"
)

// pairTime is how long a program, or a pair of client and server, may run.
const pairTime = 20 * time.Second

// show returns a command as a person would type it, without the folders of the programs.
func show(argv []string) string {
	line := slices.Clone(argv)
	for i := range line {
		// Absolute paths are those of programs and libraries of this run. taskset or env may precede
		// them.
		if name, file, isVar := strings.Cut(line[i], "="); isVar && filepath.IsAbs(file) {
			line[i] = name + "=" + filepath.Base(file)
		} else if filepath.IsAbs(line[i]) {
			line[i] = filepath.Base(line[i])
		}
	}
	return strings.Join(line, " ")
}

// loop0 is the name of the loop device.
const loop0 = "loop0"

// onLoop returns the command that runs argv on the loop device. The argument wire is the value of
// GODAT_LOOP_WIRE; if it is empty, messages take no time.
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
