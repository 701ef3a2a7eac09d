package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

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
			"every active device and over that of --device, or over tcp if there is none. With the ADDRESS of a datperf " +
			"server, check that host too, and the path between the two. With --device tcp, what only RDMA devices need is a " +
			"note. The last line says ready, or the first thing to mend.",
		Example: "  datperf doctor\n  datperf doctor HOST      after: datperf server, on HOST",
	}
	var control controlFlags
	control.register(c.Flags())
	device := deviceFlag(c, "`device` of this host to try, and to reach the server with (default: the one of the route)")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if _, err := control.check(); err != nil {
			return err
		}
		findings := examined(*device, doctor.Examine())
		var names []string
		for _, p := range udat.Providers() {
			if doctor.Usable(p) {
				names = append(names, p.Name)
			}
		}
		switch {
		case *device != "" && !slices.Contains(names, *device):
			names = append(names, *device)
		case len(names) == 0:
			names = []string{doctor.Software}
		}
		for _, name := range names {
			findings = append(findings, a.tryDevice(name))
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

// examined returns the findings about a host that is to use the given device. If the device is tcp,
// a failure becomes a note, because tcp needs no RDMA device. The command doctor exchanges messages
// over tcp, and these show whether tcp works.
func examined(device string, findings []doctor.Finding) []doctor.Finding {
	if name, _, _ := strings.Cut(device, ":"); name == doctor.Software {
		for i, f := range findings {
			findings[i].Level = min(f.Level, doctor.Note)
		}
	}
	return findings
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

// verified returns a plan of sends, RDMA writes and RDMA reads. Its cases compare every byte of the
// payload.
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
		_, err = engine.Local(a.ctx, &engine.Client{Setup: engine.Setup{Device: name, Version: buildVersion()}}, nil, plan)
	}
	if err != nil {
		advice := "see the findings above"
		if errors.Is(err, os.ErrPermission) {
			advice = "permissions of /dev/infiniband"
		}
		return doctor.Finding{Level: doctor.Fail, What: fmt.Sprintf("%s: sending to itself failed: %v", name, err),
			Advice: advice}
	}
	return doctor.Finding{Level: doctor.OK,
		What: name + ": sends, RDMA writes and RDMA reads to itself arrive intact"}
}

// tryWay makes the server examine its host, and exchanges messages with the server.
func (a *app) tryWay(device, address string, control *controlFlags) []doctor.Finding {
	plan, err := verified(fmt.Sprintf("%d,%d", doctor.Small, doctor.Large))
	if err != nil {
		return []doctor.Finding{{Level: doctor.Fail, What: err.Error()}}
	}
	conn, err := control.dial(a.ctx, address)
	if err != nil {
		host, port, _ := net.SplitHostPort(withPort(address, control.port))
		return a.way([]doctor.Finding{doctor.Unreached(err, host, port)})
	}
	before, err := engine.Examine(a.ctx, conn, buildVersion())
	if err != nil {
		advice := "" // a server that refuses says what to do
		if errors.Is(err, engine.ErrSilent) {
			advice = "see its log; if it runs, only small packets pass: a switch or tunnel on the way has a smaller MTU"
		}
		return a.way([]doctor.Finding{{Level: doctor.Fail, What: fmt.Sprintf("%s was not examined: %v", address, err),
			Advice: advice}})
	}
	before.Findings = examined(device, before.Findings)
	fmt.Fprintln(a.stdout)
	a.show("the server's host", before.Findings)
	for i := range before.Findings { // the verdict names the host
		before.Findings[i].What = "on " + address + ", " + before.Findings[i].What
	}
	own := map[string]int64{}
	for _, p := range udat.Providers() {
		own[p.Name] = received(p.Name)
	}
	if conn, err = control.dial(a.ctx, address); err != nil {
		return append(before.Findings, a.way([]doctor.Finding{{Level: doctor.Fail, What: err.Error()}})...)
	}
	cl := &engine.Client{Setup: engine.Setup{Device: device, Version: buildVersion()}}
	doc, err := cl.Run(a.ctx, conn, plan)
	if what, _ := doctor.Apart(&doc.Client, &doc.Server); what != "" && doc.Server.Device != "" {
		return append(before.Findings, a.way(doctor.Between(&doc.Client, &doc.Server))...)
	}
	way := doctor.Tried(doc.Client.Fabric, plan.Cases, doc.Runs, err)
	if doc.Server.Device != "" {
		way = append(doctor.Between(&doc.Client, &doc.Server), way...)
	}
	if err != nil && a.ctx.Err() == nil && doc.Client.Fabric != doctor.Software {
		way = append(way, a.whereLost(&doc.Client, &doc.Server, own[doc.Client.Device], before.Received, address, control)...)
	}
	return append(before.Findings, a.way(way)...)
}

func received(device string) int64 {
	if n, ok := doctor.Received(device); ok {
		return n
	}
	return -1
}

// whereLost finds out where messages of a run were lost. It sends a datagram, and asks both ends
// how many packets they have received since the run began. ownCount and serverCount are the numbers
// of packets that this host and the server had received when the run began, or -1 if unknown.
func (a *app) whereLost(client, server *result.Facts, ownCount, serverCount int64, address string,
	control *controlFlags) (found []doctor.Finding) {
	from, err1 := netip.ParseAddr(client.Address)
	to, err2 := netip.ParseAddr(server.Address)
	if err1 == nil && err2 == nil {
		found = doctor.Datagram(from, to)
	}
	since := func(now, before int64) int64 {
		if now < 0 || before < 0 {
			return -1
		}
		return now - before
	}
	conn, err := control.dial(a.ctx, address)
	if err != nil {
		return found
	}
	after, err := engine.Examine(a.ctx, conn, buildVersion())
	if err != nil {
		return found
	}
	return append(found, doctor.Arrived(since(after.Received, serverCount), since(received(client.Device), ownCount))...)
}

func (a *app) way(findings []doctor.Finding) []doctor.Finding {
	fmt.Fprintln(a.stdout)
	a.show("the way", findings)
	return findings
}
