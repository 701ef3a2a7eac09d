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
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
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
	stdout, stderr io.Writer
}

type command struct {
	name, args, about string
	run               func(a *app, args []string) error
}

var commands []command

func init() { // not a literal: help lists the commands
	commands = []command{
		{"server", "", "serve clients until interrupted", (*app).server},
		{"client", "ADDRESS", "measure against the server at ADDRESS", (*app).client},
		{"local", "", "measure with both ends in this process", (*app).local},
		{"quit", "ADDRESS", "make the server at ADDRESS take no more clients, and end", (*app).quit},
		{"report", "DOCUMENT", "write a JSON document as a page, tables, CSV or Markdown", (*app).report},
		{"compare", "OLD NEW", "compare two JSON documents", (*app).compare},
		{"perftest", "PROGRAM [HOST]", "take the flags of perftest's ib_send_lat and its like, and print their columns",
			(*app).perftest},
		{"limit", "", "find out how many objects of each kind the adapter gives", (*app).limit},
		{"doctor", "", "find out why RDMA does or does not work here", (*app).doctor},
		{"version", "", "print the version", (*app).version},
	}
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	finish := newFinisher(cancel, gentleTime)
	defer finish.stop()
	a := &app{ctx: ctx, finish: finish, stdout: stdout, stderr: stderr}
	err := a.dispatch(args)
	var bad *usageError
	switch {
	case err == nil, errors.Is(err, pflag.ErrHelp):
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

func (a *app) dispatch(args []string) error {
	if len(args) == 0 {
		a.usage(a.stderr)
		return usagef("no command given")
	}
	switch args[0] {
	case "help", "-h", "--help":
		a.usage(a.stdout)
		return nil
	}
	for _, c := range commands {
		if c.name == args[0] {
			return c.run(a, args[1:])
		}
	}
	return usagef("unknown command %q; datperf help lists them", args[0])
}

func (a *app) usage(w io.Writer) {
	fmt.Fprint(w, "datperf measures an RDMA fabric.\n\n")
	for _, c := range commands {
		fmt.Fprintf(w, "  datperf %-24s %s\n", c.name+" "+c.args, c.about)
	}
	fmt.Fprint(w, "\ndatperf COMMAND --help lists a command's flags.\n")
}

// flags returns a command's flag set, for parse.
func (a *app) flags(name, args, about string) *pflag.FlagSet {
	f := pflag.NewFlagSet("datperf "+name, pflag.ContinueOnError)
	f.SortFlags = false
	f.SetOutput(io.Discard)
	f.Usage = func() {
		fmt.Fprintf(a.stdout, "datperf %s [flags] %s\n\n%s\n\n%s", name, args, about, f.FlagUsages())
	}
	return f
}

// parse parses a command's flags and expects n arguments; a negative n allows any number.
func parse(f *pflag.FlagSet, args []string, n int, names string) error {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return err
		}
		return usagef("%w (%s --help lists the flags)", err, f.Name())
	}
	switch {
	case n < 0 || f.NArg() == n:
		return nil
	case n == 0:
		return usagef("%s takes no arguments, %q was given", f.Name(), f.Arg(0))
	}
	return usagef("%s needs %s; %d arguments were given", f.Name(), names, f.NArg())
}

func (a *app) version(args []string) error {
	if err := parse(a.flags("version", "", "Print the version."), args, 0, ""); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "datperf %s, protocol %d\n", buildVersion(), engine.Protocol)
	return nil
}

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
