package main

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// baseline counts the resources that a process uses, and the verbs objects of all processes.
type baseline map[string]int

// threadSlack is the number of threads that the Go runtime may add for system calls that block.
const threadSlack = 10

var resource = regexp.MustCompile(`\b([a-z_]+) (\d+)`)

// process measures this process.
func process() baseline {
	b := processOf("self")
	b["goroutines"] = runtime.NumGoroutine()
	delete(b, "KiB resident") // the Go runtime keeps what it may use again
	delete(b, "KiB peak")
	return b
}

func processWithoutThreads() baseline {
	b := process()
	delete(b, "threads")
	return b
}

// processOf returns the resources that the process with this number uses.
func processOf(pid string) baseline {
	b := baseline{}
	if fds, err := os.ReadDir("/proc/" + pid + "/fd"); err == nil {
		b["descriptors"] = len(fds)
	}
	status, _ := os.ReadFile("/proc/" + pid + "/status")
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		switch {
		case err != nil:
		case name == "VmPin":
			b["KiB pinned"] = n
		case name == "VmRSS":
			b["KiB resident"] = n
		case name == "VmHWM":
			b["KiB peak"] = n
		case name == "Threads":
			b["threads"] = n
		}
	}
	return b
}

// kernel returns the numbers of verbs objects of all processes.
func kernel(device string) baseline {
	b := baseline{}
	out, _ := exec.Command("rdma", "resource", "show", device).Output()
	_, list, _ := strings.Cut(string(out), device)
	for _, m := range resource.FindAllStringSubmatch(list, -1) {
		b["kernel's "+m[1]], _ = strconv.Atoi(m[2])
	}
	return b
}

// The method more returns a text with those figures of current that exceed the baseline.
func (b baseline) more(current baseline) string {
	var list []string
	for name, n := range current {
		limit := b[name]
		if name == "threads" {
			limit += threadSlack
		}
		if n > limit {
			list = append(list, fmt.Sprintf("%d %s instead of %d", n, name, limit))
		}
	}
	return strings.Join(list, ", ")
}

// settle waits until nothing exceeds the baseline. If something still exceeds the baseline after 15
// seconds, settle returns a list of what does.
func (b baseline) settle(now func() baseline) (more string) {
	for until := time.Now().Add(15 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if more = b.more(now()); more == "" {
			return ""
		}
	}
	return more
}
