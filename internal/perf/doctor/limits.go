package doctor

import (
	"github.com/godat/godat/cverbs"
)

// memlockEnough is the memory that a measurement should be able to register, in bytes.
const memlockEnough = 64 << 20

const memlockAdvice = "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, memlock in " +
	"/etc/security/limits.conf, --ulimit memlock=-1 for a container; or grant CAP_IPC_LOCK"

func (d *doctor) limits() {
	limit, known := MemlockLimit()
	switch {
	case !known:
	case limit < 0:
		d.find(OK, "", "locked memory is not limited")
	case d.kernel.locks():
		d.find(OK, "", "the locked-memory limit is %d KiB, which does not bind a process with CAP_IPC_LOCK, as this one",
			limit>>10)
	case limit < memlockEnough:
		d.find(Fail, memlockAdvice, "the locked-memory limit is %d KiB, and this process has no CAP_IPC_LOCK (root of a "+
			"container often has none): registering more memory fails", limit>>10)
	default:
		d.find(OK, "", "the locked-memory limit is %d MiB", limit>>20)
	}
	if files, ok := filesLimit(); ok && files < 4096 {
		d.find(Note, "ulimit -n 65536, LimitNOFILE= in a systemd unit", "a process may open %d files: "+
			"each queue pair of a client takes up to 2", files)
	} else if ok {
		d.find(OK, "", "a process may open %d files", files)
	}
}

// registers tries to register memory if the process has a limit for locked memory.
func (d *doctor) registers(ctx *cverbs.Context) {
	if limit, known := MemlockLimit(); !known || limit < 0 || d.registered {
		return
	}
	d.registered = true
	err := func() error {
		pd, err := ctx.AllocPD()
		if err != nil {
			return err
		}
		defer pd.Close()
		mr, err := pd.RegMR(make([]byte, memlockEnough), cverbs.AccessLocalWrite)
		if err != nil {
			return err
		}
		return mr.Close()
	}()
	if err != nil {
		d.find(Fail, memlockAdvice, "%s: %d MiB of memory cannot be registered: %v", ctx.Name(), memlockEnough>>20, err)
	} else {
		d.find(OK, "", "%s: %d MiB of memory can be registered", ctx.Name(), memlockEnough>>20)
	}
}

// host reports settings of the host that make measurements less exact.
func (d *doctor) host() {
	if g := d.line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"); g != "" && g != "performance" {
		d.find(Note, "for measurements: cpupower frequency-set -g performance", "the CPU frequency governor is %s", g)
	}
	switch c := d.line("sys/devices/system/clocksource/clocksource0/current_clocksource"); c {
	case "", "tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page":
	default:
		d.find(Note, "latencies will not be exact; see /sys/devices/system/clocksource/clocksource0/available_clocksource",
			"the clock source is %s", c)
	}
}
