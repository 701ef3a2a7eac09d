package main

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/godat/godat/internal/hostmem"
)

// machine returns facts about the machine, and the versions of the packages that godat is compared
// with.
func machine() map[string]string {
	kernel, _, _ := strings.Cut(afterColon("/proc/sys/kernel/osrelease", ""), "-") // without the distribution's suffix
	memory := "unknown"
	if n := hostmem.Limit(); n < math.MaxUint64 {
		memory = fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
	facts := map[string]string{
		"processors": fmt.Sprintf("%d, %s", runtime.NumCPU(), afterColon("/proc/cpuinfo", "model name")),
		"kernel":     kernel, "Go": runtime.Version(), "memory": memory,
	}
	for _, p := range []string{"libibverbs1", "perftest", "rdmacm-utils", "dapl2-utils", "libfabric-bin"} {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", p).Output()
		if v := strings.TrimSpace(string(out)); err == nil && v != "" {
			facts[p] = v
		}
	}
	if data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control"); err == nil {
		facts["TCP's congestion control"] = strings.TrimSpace(string(data))
	}
	return facts
}

// afterColon returns what comes after the colon in the first line of a file that begins with the
// key, or the whole first line if the key is empty.
func afterColon(file, key string) string {
	data, _ := os.ReadFile(file)
	for line := range strings.Lines(string(data)) {
		if value, found := strings.CutPrefix(line, key); found {
			return strings.TrimLeft(strings.TrimSpace(value), ": \t")
		}
	}
	return ""
}

// commit returns the commit of the tree, followed by -dirty if files have been changed. Files that
// bench itself writes do not count as changed.
func commit() string {
	head, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	c := strings.TrimSpace(string(head))
	changed, err := exec.Command("git", "status", "--porcelain", "--untracked-files=no", "--", ":/",
		":(exclude,top)docs/performance*").Output()
	if err != nil || len(changed) > 0 {
		c += "-dirty"
	}
	return c
}

// loadAverage returns the load averages of the last one, five and fifteen minutes.
func loadAverage() string {
	data, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(data)); len(f) > 2 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}
