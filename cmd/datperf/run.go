package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

type runPlan func(cl *engine.Client, plan engine.Plan, args []string) (*result.Document, error)

// measure adds to c what the commands client and local have in common: the flags, and the function
// that runs the plan. The two commands differ only in the argument run, a function that connects
// the ends.
func (a *app) measure(c *cobra.Command, run runPlan) *cobra.Command {
	var p planFlags
	var out outputs
	software := "mem0 or tcp"
	if c.Name() == "client" {
		software = "tcp"
	}
	device := deviceFlag(c,
		"verbs `device`, or its IP address, or "+software+
			" (default: the one that reaches the server, or the first active one)")
	gid := gidFlag(c.Flags(), "")
	numa := numaFlag(c)
	var over tlsFlags
	over.register(c.Flags())
	p.register(c)
	out.register(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		out.intervals = c.Flags().Changed("interval") || p.forever
		if err := checkKnobs(c.Flags()); err != nil {
			return err
		}
		anywhere, err := anyNode(*numa)
		if err != nil {
			return err
		}
		plan, err := p.plan()
		if err != nil {
			return err
		}
		host := ""
		if c.Name() == "client" && !strings.Contains(args[0], ",") {
			host, _, _ = engine.SplitAddress(args[0], 1)
		}
		config, err := over.config(host)
		if err != nil {
			return err
		}
		cl := engine.Client{Setup: engine.Setup{Device: *device, GID: gid, TLS: config, AnyNode: anywhere}}
		return a.runPlan(cl, plan, &out, args, run)
	}
	return c
}

func (a *app) runPlan(cl engine.Client, plan engine.Plan, out *outputs, args []string, run runPlan) (err error) {
	people, files, err := out.begin(a, plan.Cases)
	if err != nil {
		return err
	}
	written := false
	defer func() {
		if !written {
			files.drop()
		}
	}()
	show := newDisplay(people, a.stderr, out, plan.Cases, plan.Repeats)
	if out.ndjson != "" {
		events, e := openSink(form{flag: "ndjson", file: out.ndjson}, a.stdout)
		if e != nil {
			return e
		}
		show.stream = report.NewStream(events)
		defer func() {
			lost := show.stream.Err()
			if events.begun && events.file != nil {
				lost = errors.Join(lost, events.file.Close())
			} else {
				events.drop()
			}
			if lost != nil {
				err = joinErrors(err, fmt.Errorf("--ndjson: %w", lost))
			}
		}()
	}
	cl.Finish, cl.Version, cl.Watcher = a.finish.now, buildVersion(), show.watcher()
	begin := cl.Watcher.Begin
	cl.Watcher.Begin = func(client, server *result.Facts) { // until then there is nothing to keep
		a.finish.gently.Store(true)
		begin(client, server)
	}
	doc, err := run(&cl, plan, args)
	show.close()
	if doc != nil {
		if plan.Repeats > 1 {
			doc.Summary = result.Summarize(doc.Runs)
		}
		doc.Command, doc.Title, doc.Labels = append([]string{"datperf"}, a.args...), out.title, out.labels
		if show.stream != nil && a.finish.gently.Load() {
			show.stream.End(doc)
		}
	}
	if doc == nil || err != nil && len(doc.Runs) == 0 && (doc.Incomplete == nil || len(doc.Incomplete.Intervals) == 0) {
		if errors.Is(err, engine.ErrFinished) { // during the first run's setup
			return errInterrupted
		}
		return err
	}
	written = true
	if err := errors.Join(err, files.write(doc)); err != nil {
		return err
	}
	return out.judge(doc.Runs, a.stderr)
}

// errInterrupted is the error of a command that a signal has cancelled. The peer receives this
// error too.
var errInterrupted = errors.New("interrupted")
