package main

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/internal/process"
)

// show is a command as a person would type it.
func show(argv []string) string {
	line := slices.Clone(argv)
	for i := range line {
		if filepath.IsAbs(line[i]) { // a program of this run's; taskset may stand before it
			line[i] = filepath.Base(line[i])
		}
	}
	return strings.Join(line, " ")
}

func (b *bench) run(limit time.Duration, argv ...string) (string, error) {
	p, err := process.Start(limit, nil, argv...)
	if err != nil {
		return "", err
	}
	return p.Wait()
}
