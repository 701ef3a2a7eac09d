package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// The ends of what is polled are bound to a processor each, as users of perftest do: threads of one
// end that wander to the processor of the other cost both of them the entries of its translation
// buffers.
const (
	serverEnd = iota
	clientEnd
)

// pin binds a command to the processor of its end, where there are two.
func (b *bench) pin(end int, argv []string) []string {
	if b.cpus == nil {
		return argv
	}
	return append([]string{"taskset", "-c", strconv.Itoa(b.cpus[end])}, argv...)
}

// polling is pin for what may also wait.
func (b *bench) polling(end int, poll string, argv []string) []string {
	if poll == result.Busy {
		return b.pin(end, argv)
	}
	return argv
}

// processors gives two processors near a device, nil if there are not as many.
func processors(device string) []int {
	near := "/sys/class/infiniband/" + device + "/device/local_cpulist"
	for _, file := range []string{near, "/sys/devices/system/cpu/online"} {
		list, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if cpus, err := parseCPUs(strings.TrimSpace(string(list))); err == nil && len(cpus) >= 2 {
			return cpus[:2]
		}
	}
	return nil
}

// parseCPUs reads a list of processors as the kernel writes it: 0-3,8.
func parseCPUs(list string) (cpus []int, err error) {
	for r := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(r, "-")
		if !isRange {
			to = from
		}
		a, errA := strconv.Atoi(from)
		z, errZ := strconv.Atoi(to)
		if errA != nil || errZ != nil || z < a {
			return nil, fmt.Errorf("%q is no list of processors", list)
		}
		for ; a <= z; a++ {
			cpus = append(cpus, a)
		}
	}
	return cpus, nil
}
