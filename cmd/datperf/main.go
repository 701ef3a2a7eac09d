// Command datperf measures an RDMA fabric: latency, bandwidth and message rate of sends, RDMA reads
// and writes and atomics, through package udat or straight through package cverbs.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"
)

// Exit statuses.
const (
	statusOK     = 0
	statusFailed = 1 // the command failed
	statusUsage  = 2 // wrong use: nothing was done
	statusMissed = 3 // it worked, but a limit or threshold was missed
)

// app is one invocation.
type app struct {
	ctx            context.Context
	finish         *finisher
	args           []string
	stdout, stderr io.Writer
}

func main() {
	spareP()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// spareP gives a process with one processor a second P of Go's scheduler. Without it a goroutine
// loses the only one in each call into C of more than 20 us: see docs/waiting.md.
func spareP() {
	if runtime.GOMAXPROCS(0) == 1 && os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2)
	}
}

func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finish := newFinisher(cancel, gentleTime)
	defer finish.stop()
	a := &app{ctx: ctx, finish: finish, args: args, stdout: stdout, stderr: stderr}
	err := a.commands().Execute()
	var bad *usageError
	switch {
	case err == nil:
		return statusOK
	case errors.Is(err, errMissed):
		return statusMissed
	case errors.As(err, &bad):
		fmt.Fprintf(stderr, "datperf: %v\n", err)
		return statusUsage
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "datperf: interrupted")
		return statusFailed
	}
	fmt.Fprintf(stderr, "datperf: %v\n", err)
	return statusFailed
}

// finisher ends a measurement on a signal: Ctrl-C, SIGTERM (systemd, Kubernetes, timeout), or
// SIGHUP of a closing terminal. A measurement that registered for it ends with the results so far;
// else the program stops at once.
type finisher struct {
	signals chan os.Signal
	gently  atomic.Bool
	now     chan struct{} // closed: end, keep results so far
}

// gentleTime is how long a measurement may take to end after SIGTERM or SIGHUP; their sender
// follows with SIGKILL, often after 30 s. Then the current run is dropped and earlier runs are
// kept.
const gentleTime = 10 * time.Second

func newFinisher(cancel func(), patience time.Duration) *finisher {
	f := &finisher{signals: make(chan os.Signal, 2), now: make(chan struct{})}
	signal.Notify(f.signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(f.signals, syscall.SIGHUP)
	}
	go func() {
		for s := range f.signals {
			if !f.gently.CompareAndSwap(true, false) {
				cancel()
				continue
			}
			close(f.now)
			if s != os.Interrupt {
				time.AfterFunc(patience, cancel)
			}
		}
	}()
	return f
}

func (f *finisher) stop() {
	signal.Stop(f.signals)
	close(f.signals)
}

// usageError is a mistake on the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// errMissed is the error of a run that worked but missed a limit. The limit has been printed.
var errMissed = errors.New("a limit was missed")

// buildVersion is the module's version, or the commit that it was built from.
func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	version, dirty := "devel", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			version = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return version + dirty
}
