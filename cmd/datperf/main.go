// Command datperf measures an RDMA fabric: the latency, bandwidth and message rate of sends, RDMA
// reads, RDMA writes and atomics. It measures through package udat, or directly through package
// cverbs.
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

// spareP adds a second P to Go's scheduler if the process has only one P. A goroutine loses its P
// during each call into C that takes more than 20 us. If there is only one P, the goroutine then
// has to wait until that P is free: see docs/waiting.md.
func spareP() {
	if runtime.GOMAXPROCS(0) == 1 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	finish := newFinisher(func() { cancel(errInterrupted) }, func() { os.Exit(interrupted(stderr)) }, gentleTime)
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
	fmt.Fprintf(stderr, "datperf: %v\n", errInterrupted)
	return statusFailed
}
