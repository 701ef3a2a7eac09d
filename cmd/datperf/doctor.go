package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/godat/godat/internal/perf/doctor"
	"github.com/godat/godat/internal/perf/engine"
	"github.com/godat/godat/internal/perf/result"
	"github.com/godat/godat/udat"
)

func (a *app) doctor() *cobra.Command {
	c := &cobra.Command{
		Use: "doctor [ADDRESS]", Short: "find out why RDMA does or does not work on this host, or to a server",
		Long: "Check everything that RDMA needs on this host, say what is wrong and what to do, and exchange messages over " +
			"every active device. With the ADDRESS of a datperf server, check that host too, and the path between the two. " +
			"The last line says ready, or the first thing to mend.",
		Example: "  datperf doctor\n  datperf doctor HOST      after: datperf server, on HOST",
	}
	var control controlFlags
	control.register(c.Flags())
	device := deviceFlag(c, "`device` of this host to reach the server with (default: the one of the route)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if _, err := control.check(); err != nil {
			return err
		}
		findings := doctor.Examine()
		for _, p := range udat.Providers() {
			if p.Active {
				findings = append(findings, a.tryDevice(p.Name))
			}
		}
		a.show("this host", findings)
		if len(args) > 0 {
			findings = append(findings, a.tryWay(*device, args[0], &control)...)
		}
		fmt.Fprintf(a.stdout, "\n%s\n", doctor.Verdict(findings))
		if doctor.Worst(findings) == doctor.Fail {
			return errors.New("not everything works, see FAIL above")
		}
		return nil
	}
	return c
}

// show prints findings under a title.
func (a *app) show(title string, findings []doctor.Finding) {
	fmt.Fprintf(a.stdout, "%s:\n", title)
	for _, x := range findings {
		fmt.Fprintf(a.stdout, "%-4s %s\n", x.Level, x.What)
		if x.Advice != "" {
			fmt.Fprintf(a.stdout, "     what to do: %s\n", x.Advice)
		}
	}
}

// verified is a plan of verified sends, RDMA writes and reads of the sizes.
func verified(sizes string) (engine.Plan, error) {
	var p planFlags
	p.register(&cobra.Command{})
	p.base.Iters, p.base.Verify, p.sizes = 100, true, sizes
	p.tests = []string{result.Send, result.Write, result.Read}
	return p.plan()
}

// tryDevice exchanges messages over a device, with both ends in this process.
func (a *app) tryDevice(name string) doctor.Finding {
	plan, err := verified("4K")
	if err == nil {
		_, err = engine.Local(a.ctx, &engine.Client{Device: name, Version: buildVersion()}, nil, plan)
	}
	if err != nil {
		advice := "see the findings above"
		if errors.Is(err, os.ErrPermission) {
			advice = "permissions of /dev/infiniband"
		}
		return doctor.Finding{Level: doctor.Fail, What: fmt.Sprintf("%s: sending through it and back failed: %v", name, err),
			Advice: advice}
	}
	return doctor.Finding{Level: doctor.OK,
		What: name + ": sends, RDMA writes and RDMA reads through it and back arrive intact"}
}

// tryWay has the server examine its host, and exchanges messages with it.
func (a *app) tryWay(device, address string, control *controlFlags) []doctor.Finding {
	plan, err := verified(fmt.Sprintf("%d,%d", doctor.Small, doctor.Large))
	if err != nil {
		return []doctor.Finding{{Level: doctor.Fail, What: err.Error()}}
	}
	conn, err := control.dial(a.ctx, address)
	if err != nil {
		return a.way([]doctor.Finding{{Level: doctor.Fail, What: err.Error(),
			Advice: fmt.Sprintf("start a server there; a firewall must let TCP port %d through", control.port)}})
	}
	var there []doctor.Finding
	cl := &engine.Client{Device: device, Version: buildVersion(), Examine: func(f []doctor.Finding) {
		there = f
		fmt.Fprintln(a.stdout)
		a.show("the server's host", f)
	}}
	doc, err := cl.Run(a.ctx, conn, plan)
	if there == nil {
		return a.way([]doctor.Finding{{Level: doctor.Fail, What: fmt.Sprintf("the server was not examined: %v", err)}})
	}
	way := doctor.Between(&doc.Client, &doc.Server)
	return append(there, a.way(append(way, doctor.Tried(plan.Cases, doc.Runs, err)...))...)
}

func (a *app) way(findings []doctor.Finding) []doctor.Finding {
	fmt.Fprintln(a.stdout)
	a.show("the way", findings)
	return findings
}
