package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/godat/godat/internal/perf/counters"
	"github.com/godat/godat/udat"
)

// Level is the severity of a finding.
type Level int

// Levels.
const (
	OK   Level = iota
	Note       // works, could be better
	Fail       // does not work
)

func (l Level) String() string { return [...]string{"ok", "note", "FAIL"}[min(max(l, OK), Fail)] }

// Finding is the result of one check.
type Finding struct {
	Level  Level  `json:"level"`
	What   string `json:"what"`             // what was found
	Advice string `json:"advice,omitempty"` // what the user can do about it; "" if nothing
}

// doctor collects findings. The field root is the prefix of the paths in /sys, /proc and /dev.
// Tests set root, kernel and source.
type doctor struct {
	root     string
	kernel   kernel
	source   counters.Source
	findings []Finding

	rdma       rdmaState
	unusable   []string // devices that cannot be used; a finding says why
	registered bool     // registers has tried to register memory
}

func (d *doctor) find(l Level, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{l, fmt.Sprintf(format, args...), advice})
}

func (d *doctor) path(name string) string { return filepath.Join(d.root, name) }

func (d *doctor) line(name string) string {
	b, err := os.ReadFile(d.path(name))
	if err != nil {
		return ""
	}
	text, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(text)
}

func (d *doctor) exists(name string) bool {
	_, err := os.Stat(d.path(name))
	return err == nil
}

// relative removes the root from a path.
func (d *doctor) relative(path string) string {
	rel, _ := filepath.Rel(d.root, path)
	return rel
}

// Worst returns the highest level of the findings.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		worst = max(worst, f.Level)
	}
	return worst
}

// Software is the device that doctor suggests on a host without a usable device.
const Software = "tcp"

const useSoftware = "or use the device " + Software + ", RDMA over TCP, which needs none: datperf server --device " +
	Software + ", and datperf client HOST --device " + Software

// Usable reports whether p is a verbs device with an active port and an address. The command
// datperf doctor exchanges messages over each such device. If a host has no such device, the host
// is not ready, and datperf doctor tries the device Software.
func Usable(p udat.ProviderInfo) bool { return p.Fabric == "verbs" && p.Active && p.Addr != "" }
