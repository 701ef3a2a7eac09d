package main

import (
	"os"
	"os/exec"
	"strings"

	"github.com/godat/godat/internal/perf/engine"
)

// labels describes where the figures come from; guest is the machine in the machine.
func labels(guest bool) map[string]string {
	facts := engine.Machine()
	if guest {
		return facts
	}
	for _, p := range []string{"libibverbs1", "perftest", "rdmacm-utils", "dapl2-utils", "qemu-system-x86"} {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", p).Output()
		if v := strings.TrimSpace(string(out)); err == nil && v != "" {
			facts[p] = v
		}
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		facts["commit"] = strings.TrimSpace(string(out))
	}
	return facts
}

// loadAverage returns that of the last one, five and fifteen minutes.
func loadAverage() string {
	data, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(data)); len(f) > 2 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}
