package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Each end of a polled measurement is bound to one processor, as users of perftest bind theirs:
// threads that run on the other end's processor disturb both.
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

// processors returns two processors near a device, nil if there are fewer.
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
