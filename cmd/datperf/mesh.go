package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/report"
	"github.com/godat/godat/internal/perf/result"
)

func (a *app) mesh() *cobra.Command {
	c := &cobra.Command{
		Use: "mesh ADDRESS ADDRESS...", Short: "measure each pair of several servers",
		Long: "Measure from each server to each other one, one pair after the other, and print a matrix for each case. " +
			"The servers must have been started with --allow-mesh and the same secret. " +
			"An ADDRESS must be one by which the other hosts reach it too. " +
			"Status 1 if a pair could not be measured, 3 if one misses a limit.",
		Example: `  openssl rand -hex 32 >secret                              the same file on each host
  datperf server --allow-mesh --secret secret               on each host
  datperf mesh --secret secret host1 host2 host3 -m lat,bw --html mesh.html
  datperf mesh --secret secret host1 host2 host3 -t write -m bw -D 2 --min-bw 90`,
	}
	var control controlFlags
	var p planFlags
	var out outputs
	control.register(c.Flags())
	timeout := c.Flags().Duration("pair-timeout", time.Minute,
		"give a case of a pair up after its --duration and this `time`")
	p.register(c)
	out.registerMesh(c)
	for _, name := range []string{"repeat", "interval"} { // a mesh has none
		_ = c.Flags().MarkHidden(name)
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := checkKnobs(c.Flags()); err != nil {
			return err
		}
		plan, err := p.plan()
		if err != nil {
			return err
		}
		m := &engine.Mesh{Plan: plan, Timeout: *timeout, Dial: control.dial, Version: buildVersion()}
		for _, address := range args {
			m.Hosts = append(m.Hosts, withPort(address, control.port))
		}
		if err := m.Validate(); err != nil {
			return &usageError{err}
		}
		if secret, err := control.check(); err != nil {
			return err
		} else if secret == nil {
			return usagef("mesh needs --secret FILE: a server measures to others only for those who know its secret")
		}
		return a.runMesh(m, &out)
	}
	return c
}

// withPort adds the port to an address that has none.
func withPort(address string, port int) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(port))
}

func (a *app) runMesh(m *engine.Mesh, out *outputs) error {
	forProgram, err := out.check(m.Plan.Cases)
	if err != nil {
		return err
	}
	people := a.stdout
	if forProgram {
		people = a.stderr
	}
	files, err := out.open(a.stdout)
	if err != nil {
		return err
	}
	a.finish.gently.Store(true)
	m.Finish = a.finish.now
	m.Watch = func(n, of int, pair *result.Pair) { report.MeshPair(people, n, of, pair) }
	doc, err := m.Run(a.ctx)
	if doc == nil {
		files.drop()
		return err
	}
	doc.Command, doc.Title, doc.Labels = append([]string{"datperf"}, a.args...), out.title, out.labels
	report.Mesh(people, doc.Mesh)
	if err := errors.Join(err, files.write(doc)); err != nil {
		return err
	}
	missed := false
	for _, mx := range doc.Mesh.Matrices {
		for _, pair := range mx.Pairs {
			if pair.Run == nil {
				continue
			}
			for _, text := range out.limits.Missed([]result.Run{*pair.Run}) {
				fmt.Fprintf(a.stderr, "limit missed: %s -> %s, %s\n", pair.From, pair.To, text)
				missed = true
			}
		}
	}
	if failed, all := doc.Mesh.Failed(); failed > 0 {
		return fmt.Errorf("%d of %d measurements failed", failed, all)
	}
	if missed {
		return errMissed
	}
	return nil
}
