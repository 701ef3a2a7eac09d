// Package hostmem finds out how much memory this process may use. Packages udat and
// internal/perf/engine import this package. Limit may be called concurrently.
//
//	if size > hostmem.Limit() { ... }
package hostmem

import (
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Limit returns how much memory this process may use, in bytes: the least of the host's memory and
// the limits of the process's control group and of that group's parents. It returns math.MaxUint64
// if none of these is known.
func Limit() uint64 { return limit("/") }

// limit does what Limit does, with the files of /proc and /sys below root.
func limit(root string) uint64 {
	least := uint64(math.MaxUint64)
	consider := func(text string, unit uint64) {
		if n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64); err == nil && n > 0 {
			least = min(least, n*unit)
		}
	}
	read := func(file string) string {
		b, _ := os.ReadFile(filepath.Join(root, file))
		return string(b)
	}
	for line := range strings.Lines(read("proc/meminfo")) {
		if total, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			consider(strings.TrimSuffix(strings.TrimSpace(total), "kB"), 1<<10)
		}
	}
	for line := range strings.Lines(read("proc/self/cgroup")) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, group
		if len(fields) < 3 {
			continue
		}
		at, file := "sys/fs/cgroup", "/memory.max"           // version 2
		if strings.Contains(","+fields[1]+",", ",memory,") { // version 1
			at, file = "sys/fs/cgroup/memory", "/memory.limit_in_bytes"
		} else if fields[1] != "" {
			continue
		}
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			consider(read(at+dir+file), 1)
			if dir == "/" { // the root of the mount, which is the group itself in a container
				break
			}
		}
	}
	return least
}
