package engine

import (
	"fmt"

	"github.com/godat/godat/internal/perf/counters"
	"github.com/godat/godat/internal/perf/result"
)

// portCounters locates the kernel's counters of an end's port and network device. The zero value
// has no counters.
type portCounters struct{ folder, netdev string }

// countersAt locates the counters of the chosen device. It reads the kernel's GID table, so the
// caller does it once for all runs.
func countersAt(chosen *choice) portCounters {
	if chosen.Fabric != fabricVerbs {
		return portCounters{}
	}
	device, number := chosen.verbsPort()
	folder := fmt.Sprintf("sys/class/infiniband/%s/ports/%d", device, number)
	return portCounters{folder, counters.System().NetDevice(folder)}
}

// read returns the kernel's counters; nil if p is zero.
func (p portCounters) read() result.Counters {
	if p.folder == "" {
		return nil
	}
	return counters.System().Read(p.folder, p.netdev)
}
