package engine

import (
	"fmt"

	"github.com/godat/godat/internal/perf/counters"
	"github.com/godat/godat/internal/perf/result"
)

// portCounters says where the kernel has the counters of an end's port and network device. The zero
// value means that there are no counters.
type portCounters struct{ folder, netdev string }

// countersAt finds the counters of the chosen device. It reads the kernel's GID table, so the
// caller calls it once for all runs.
func countersAt(chosen *choice) portCounters {
	if chosen.Fabric != fabricVerbs {
		return portCounters{}
	}
	device, number := chosen.verbsPort()
	folder := fmt.Sprintf("sys/class/infiniband/%s/ports/%d", device, number)
	return portCounters{folder, counters.System().NetDevice(folder)}
}

// read returns the values of the counters, or nil if p is the zero value.
func (p portCounters) read() result.Counters {
	if p.folder == "" {
		return nil
	}
	return counters.System().Read(p.folder, p.netdev)
}
