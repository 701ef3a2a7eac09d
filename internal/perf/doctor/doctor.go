// Package doctor checks whether RDMA works on this host. If not, it finds out why, and what to do.
// Command datperf and package internal/perf/engine import this package.
package doctor

import (
	"fmt"
	"net"
	"runtime"
	"strings"

	"github.com/godat/godat/internal/perf/counters"
)

// Examine runs all checks. It opens devices but changes nothing.
func Examine() []Finding {
	d := &doctor{root: "/", kernel: systemKernel(), source: counters.System()}
	if runtime.GOOS != "linux" {
		d.find(Fail, "use Linux for real devices, "+useSoftware, "verbs exist on Linux only, this is %s", runtime.GOOS)
		return d.findings
	}
	d.modules()
	d.namespaces()
	d.devices()
	d.limits()
	d.host()
	netdevs, _ := net.Interfaces()
	d.loopback(netdevs)
	return d.findings
}

// Verdict returns one line. If there is a failure, the line contains the first failure and its
// advice. Otherwise the line is "ready", with the number of notes if there are any.
func Verdict(all []Finding) string {
	notes := 0
	for _, f := range all {
		if f.Level == Fail {
			return "mend first: " + f.What + strings.TrimSuffix(": "+f.Advice, ": ")
		}
		notes += int(f.Level)
	}
	if notes > 0 {
		return fmt.Sprintf("ready; notes above: %d", notes)
	}
	return "ready"
}
