package hostmem

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"
)

// TestLimit: Limit returns the least of the host's memory and the limits of the group and its
// parents.
func TestLimit(t *testing.T) {
	const group = "sys/fs/cgroup/a.slice/b.scope/memory.max"
	files := []struct {
		path, text string
		want       uint64
	}{
		{"proc/self/cgroup", "1:cpu:/\n0::/a.slice/b.scope\n", math.MaxUint64},
		{"proc/meminfo", "MemTotal: 0 kB\n", math.MaxUint64},
		{group, "9223372036854775808\n", 1 << 63},
		{"proc/meminfo", "MemTotal: 16777216 kB\n", 16 << 30},
		{"proc/meminfo", "MemFree: 1 kB\nMemTotal:       16384 kB\n", 16 << 20},
		{group, "max\n", 16 << 20},
		{"sys/fs/cgroup/a.slice/memory.max", "9000000\n", 9_000_000},
		{group, "8000000\n", 8_000_000},
		{"sys/fs/cgroup/memory/job/memory.limit_in_bytes", "7500000\n", 8_000_000}, // not this process's group yet
		{"proc/self/cgroup", "4:cpu,memory:/job/a\n3:memory_other:/x\n0::/a.slice/b.scope\n", 7_500_000},
		{"sys/fs/cgroup/memory/job/a/memory.limit_in_bytes", "7200000\n", 7_200_000},
		{"sys/fs/cgroup/memory/memory.limit_in_bytes", "7000000\n", 7_000_000},
		{group, "1\n", 1},
	}
	root := t.TempDir()
	assert.Equal(t, limit(root), uint64(math.MaxUint64))
	for _, f := range files {
		path := filepath.Join(root, f.path)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		assert.NilError(t, os.WriteFile(path, []byte(f.text), 0o644))
		assert.Equal(t, limit(root), f.want, f.path)
	}
	assert.Equal(t, Limit(), limit("/"))
}
