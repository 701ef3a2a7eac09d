package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// environment says what the figures come from; guest is the virtual machine's own part of it.
func environment(guest bool) []Fact {
	facts := []Fact{{"processors", fmt.Sprintf("%d, %s", runtime.NumCPU(), cpuModel())}, {"kernel", kernel()}}
	if guest {
		accel := "KVM"
		if strings.Contains(cpuModel(), "TCG") {
			accel = "software emulation (no KVM)"
		}
		return append(facts, Fact{"acceleration", accel})
	}
	facts = append(facts, Fact{"Go", runtime.Version()}, Fact{"memory", memory()})
	for _, p := range []string{"rdma-core", "libibverbs1", "perftest", "rdmacm-utils", "dapl2-utils", "qemu-system-x86"} {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", p).Output()
		if v := strings.TrimSpace(string(out)); err == nil && v != "" {
			facts = append(facts, Fact{p, v})
		}
	}
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		facts = append(facts, Fact{"commit", strings.TrimSpace(string(out))})
	}
	return facts
}

// kernel is the version without what its builder has called it.
func kernel() string {
	version, _, _ := strings.Cut(firstLine("/proc/sys/kernel/osrelease"), "-")
	return version
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

func memory() string {
	data, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(data)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			return fmt.Sprintf("%.1f GiB", float64(kib)/(1<<20))
		}
	}
	return "unknown"
}

func firstLine(name string) string {
	data, _ := os.ReadFile(name)
	line, _, _ := strings.Cut(string(data), "\n")
	return line
}

// loadAverage is that of the last one, five and fifteen minutes.
func loadAverage() string {
	if f := strings.Fields(firstLine("/proc/loadavg")); len(f) > 2 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}
