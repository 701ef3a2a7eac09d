package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/pflag"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
)

// outputs are where a measurement's results go.
type outputs struct {
	json      string
	intervals bool // print each
}

func (a *app) client(args []string) error {
	f := a.flags("client", "ADDRESS", "Measure against the server at ADDRESS: a host name or IP address, and :PORT if it is not the usual one.")
	port := f.Int("port", engine.DefaultPort, "TCP port of the server's control connection")
	return a.measure(args, f, 1, func(cl *engine.Client, plan engine.Plan) (*result.Document, error) {
		if err := checkPort(*port); err != nil {
			return nil, err
		}
		if cl.Device == "mem0" {
			return nil, usagef("--device mem0: it is inside one process, no server can be reached by it; use datperf local")
		}
		conn, err := engine.Dial(a.ctx, f.Arg(0), *port)
		if err != nil {
			return nil, err
		}
		return cl.Run(a.ctx, conn, plan)
	})
}

func (a *app) local(args []string) error {
	f := a.flags("local", "", "Measure with both ends in this process: on mem0, the fabric inside the process, or through a verbs device and back.")
	return a.measure(args, f, 0, func(cl *engine.Client, plan engine.Plan) (*result.Document, error) {
		return engine.Local(a.ctx, cl, plan)
	})
}

// measure is what client and local have in common.
func (a *app) measure(args []string, f *pflag.FlagSet, nargs int, run func(*engine.Client, engine.Plan) (*result.Document, error)) error {
	var p planFlags
	var out outputs
	p.register(f)
	device := f.String("device", "", "verbs device, or its IP address, or mem0 (default: the one that reaches the server, or the first active one)")
	f.StringVar(&out.json, "json", "", "write everything as one JSON document to this file, - for standard output")
	if err := parse(f, args, nargs, "the server's ADDRESS"); err != nil {
		return err
	}
	out.intervals = f.Changed("interval")
	plan, err := p.plan()
	if err != nil {
		return err
	}
	people := a.stdout // what is for people, where standard output is for programs
	if out.json == "-" {
		people = a.stderr
	}
	show := newDisplay(people, a.stderr, out.intervals)
	cl := &engine.Client{Device: *device, Version: buildVersion(), Watcher: show.watcher()}
	doc, err := run(cl, plan)
	show.close()
	if doc == nil {
		return err
	}
	doc.Command = append([]string{f.Name()}, args...)
	if out.json != "" {
		err = errors.Join(err, writeTo(out.json, a.stdout, doc.Write))
	}
	return err
}

// writeTo writes a file, or to stdout for "-".
func writeTo(name string, stdout io.Writer, write func(io.Writer) error) error {
	if name == "-" {
		return write(stdout)
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
