package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// host makes a root with files and folders (whose names end in /) as the kernel would show them.
func host(t *testing.T, names ...string) *doctor {
	root := t.TempDir()
	for _, n := range names {
		name, text, _ := strings.Cut(n, "=")
		path := filepath.Join(root, name)
		assert.NilError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if strings.HasSuffix(name, "/") {
			assert.NilError(t, os.MkdirAll(path, 0o755))
		} else {
			assert.NilError(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		}
	}
	return &doctor{root: root}
}

func (d *doctor) text() string {
	var b strings.Builder
	for _, f := range d.findings {
		b.WriteString(f.Level.String() + " " + f.What + " -> " + f.Advice + "\n")
	}
	return b.String()
}

func TestKernel(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		want  []string
		worst Level
	}{
		"no RDMA": {nil, []string{"FAIL the kernel has no RDMA", "modprobe rdma_rxe"}, Fail},
		"no connection manager": {
			[]string{"sys/class/infiniband/rxe0/", "sys/class/infiniband_verbs/"},
			[]string{"ok kernel module ib_uverbs",
				"FAIL kernel module rdma_ucm is not loaded: programs connect through it -> modprobe rdma_ucm"}, Fail,
		},
		"no device": {
			[]string{"sys/class/infiniband/", "sys/class/infiniband_verbs/", "sys/module/rdma_ucm/"},
			[]string{"FAIL the kernel has RDMA, but no device", "rdma link add rxe0 type rxe"}, Fail,
		},
		"all there": {
			[]string{"sys/class/infiniband/rxe0/", "sys/class/infiniband_verbs/", "sys/class/misc/rdma_cm/"},
			[]string{"ok kernel module rdma_ucm is there"}, OK,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := host(t, c.files...)
			d.kernel()
			for _, want := range c.want {
				assert.Assert(t, strings.Contains(d.text(), want), d.text())
			}
			assert.Equal(t, Worst(d.findings), c.worst)
		})
	}
}

func TestDeviceFiles(t *testing.T) {
	d := host(t, "sys/class/infiniband/rxe0/")
	d.files()
	assert.Assert(t, strings.Contains(d.text(), "there is no /dev/infiniband/uverbs*"), d.text())
	assert.Assert(t, strings.Contains(d.text(), "rdma_cm is not there -> modprobe rdma_ucm"), d.text())

	d = host(t, "sys/class/infiniband/rxe0/", "dev/infiniband/uverbs0=", "dev/infiniband/rdma_cm=")
	d.files()
	assert.Equal(t, Worst(d.findings), OK, d.text())
}

func TestHost(t *testing.T) {
	d := host(t, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor=powersave",
		"sys/devices/system/clocksource/clocksource0/current_clocksource=refined-jiffies")
	d.host()
	assert.Assert(t, strings.Contains(d.text(), "governor is powersave -> for measurements"), d.text())
	assert.Assert(t, strings.Contains(d.text(), "clock source is refined-jiffies"), d.text())
	assert.Equal(t, Worst(d.findings), Note)
}
