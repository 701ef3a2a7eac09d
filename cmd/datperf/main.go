// Command datperf measures an RDMA fabric: latency, bandwidth and message rate of sends, RDMA reads
// and writes and atomics, through package udat or straight through package cverbs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
)

func main() {
	spareP()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// spareP gives a process with one processor a second P of Go's scheduler. A goroutine loses its P
// in each call into C of more than 20 us, and would wait for the only one: see docs/waiting.md.
func spareP() {
	if runtime.GOMAXPROCS(0) == 1 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finish := newFinisher(cancel, func() { os.Exit(interrupted(stderr)) }, gentleTime)
	defer finish.stop()
	a := &app{ctx: ctx, finish: finish, args: args, stdout: &output{Writer: stdout}, stderr: stderr}
	err := a.commands().Execute()
	var bad *usageError
	var printed *statusError
	if lost := a.stdout.err; lost != nil {
		fmt.Fprintf(stderr, "datperf: standard output: %v\n", lost)
		if err == nil || errors.As(err, &printed) {
			return statusFailed
		}
	}
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &printed):
		return printed.status
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "datperf: %v\n", err)
		return statusUsage
	case ctx.Err() != nil:
		return interrupted(stderr)
	}
	fmt.Fprintf(stderr, "datperf: %v\n", err)
	return statusFailed
}

func interrupted(stderr io.Writer) int {
	fmt.Fprintln(stderr, "datperf: interrupted")
	return statusFailed
}
