package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
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
		Use: "mesh [ADDRESS...]", Short: "measure between several servers",
		Long: "Measure from each server to each other one, and print a matrix for each case. " +
			"The servers must have been started with --allow-mesh and the same secret. " +
			"An ADDRESS must be one by which the other hosts reach it too. " +
			"Pairs measure at the same time if they have no host in common. " +
			"A host that is not reached, or fails with 3 others one after the other, is named and left out. " +
			"Status 1 if a pair could not be measured, 3 if one misses a limit.",
		Example: `  openssl rand -hex 32 >secret                              the same file on each host
  datperf server --allow-mesh --secret secret               on each host
  datperf mesh --secret secret host1 host2 host3 -m lat,bw --html mesh.html
  datperf mesh --secret secret --hosts hosts.txt -t write -m bw -D 2 --min-bw 90
  datperf mesh --secret secret --hosts hosts.txt -t write -m bw -D 2 --pattern incast`,
	}
	var control controlFlags
	var p planFlags
	var out outputs
	control.register(c.Flags())
	m := &engine.Mesh{Dial: control.dial, Version: buildVersion()}
	hosts := c.Flags().String("hosts", "",
		"`file` with more addresses, one in a line, # before a comment; - is standard input")
	c.Flags().StringVar(&m.Pattern, "pattern", result.Pairs, "`what` measures at the same time: "+
		"pairs (of any two hosts), or incast (all others to one host)")
	c.Flags().IntVar(&m.AtOnce, "at-once", 0,
		"pattern pairs: measure up to this `number` of pairs at the same time (default half of the hosts)")
	c.Flags().DurationVar(&m.Timeout, "pair-timeout", 20*time.Second,
		"give a case of a pair up after its --duration and this `time`")
	c.Flags().DurationVar(&m.Wait, "wait", 0,
		"wait up to this `time` for servers that are not there yet (default not at all)")
	computed(c.Flags(), "at-once")
	_ = c.RegisterFlagCompletionFunc("pattern",
		cobra.FixedCompletions(result.Patterns, cobra.ShellCompDirectiveNoFileComp))
	p.register(c)
	out.registerMesh(c)
	for _, name := range []string{"repeat", "interval", "forever"} { // a mesh supports neither
		_ = c.Flags().MarkHidden(name)
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := checkKnobs(c.Flags()); err != nil {
			return err
		}
		if c.Flags().Changed("interval") {
			return usagef("--interval %v: a mesh prints no intervals", p.interval)
		}
		plan, err := p.plan()
		if err != nil {
			return err
		}
		if *hosts != "" {
			more, err := readHosts(*hosts)
			if err != nil {
				return fmt.Errorf("--hosts: %w", err)
			}
			args = append(args, more...)
		}
		if c.Flags().Changed("at-once") && m.AtOnce == 0 {
			return usagef("--at-once 0: must be from 1")
		}
		m.Plan, m.Hosts = plan, nil
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

// readHosts reads hosts from a file. The first word of each line is a host. It skips empty lines
// and comments.
func readHosts(file string) (hosts []string, err error) {
	in := os.Stdin
	if file != "-" {
		if in, err = os.Open(file); err != nil {
			return nil, err
		}
		defer in.Close()
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if words := strings.Fields(text); len(words) > 0 {
			hosts = append(hosts, words[0])
		}
		if len(hosts) > result.MaxMeshHosts {
			return nil, fmt.Errorf("%s has more than %d hosts", file, result.MaxMeshHosts)
		}
	}
	return hosts, lines.Err()
}

func (a *app) runMesh(m *engine.Mesh, out *outputs) error {
	people, files, err := out.begin(a, m.Plan.Cases)
	if err != nil {
		return err
	}
	a.finish.gently.Store(true)
	m.Finish = a.finish.now
	m.Watch = func(p engine.MeshProgress) {
		for i := range p.Lost {
			report.MeshLost(people, &p.Lost[i])
		}
		report.MeshStep(people, p.Step, p.Steps, p.Case, p.Pairs)
	}
	doc, err := m.Run(a.ctx)
	if doc == nil {
		files.drop()
		return err
	}
	doc.Command, doc.Title, doc.Labels = append([]string{"datperf"}, a.args...), out.title, out.labels
	report.Mesh(people, doc.Mesh)
	failed, all := doc.Mesh.Failed()
	if failed == all { // without any result, existing files keep their content
		files.drop()
	} else {
		err = errors.Join(err, files.write(doc))
	}
	if err != nil {
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
	if failed > 0 {
		return fmt.Errorf("%d of %d measurements failed", failed, all)
	}
	if missed {
		return errMissed
	}
	return nil
}
