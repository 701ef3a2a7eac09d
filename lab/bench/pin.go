package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Each end of a polled measurement is bound to its own processor, as users of perftest bind its
// ends. A thread that ran on the other end's processor would disturb both ends.
const (
	serverEnd = iota
	clientEnd
)

// pin returns a command that runs argv on the processor of its end. If the machine has only one
// processor, it returns argv.
func (b *bench) pin(end int, argv []string) []string {
	if b.cpus == nil {
		return argv
	}
	return append([]string{"taskset", "-c", strconv.Itoa(b.cpus[end])}, argv...)
}

// processors returns two processors near a device, or nil if the machine has fewer than two.
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

// parseCPUs parses a list of processors in the kernel's form: 0-3,8.
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
