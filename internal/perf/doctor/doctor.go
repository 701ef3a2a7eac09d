// Package doctor checks whether RDMA works on this host, why not, and what to do. Command datperf
// imports it.
package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/godat/godat/cverbs"
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
	Advice string `json:"advice,omitempty"` // what to do about it, where there is something
}

// doctor collects findings. root is the prefix of /sys, /proc and /dev paths, and command runs the
// system's programs; tests set them.
type doctor struct {
	root     string
	command  func(program string, args ...string) (string, error)
	findings []Finding
}

func (d *doctor) find(l Level, advice, format string, args ...any) {
	d.findings = append(d.findings, Finding{l, fmt.Sprintf(format, args...), advice})
}

// Examine runs all checks. It opens devices but changes nothing.
func Examine() []Finding {
	d := &doctor{root: "/", command: output}
	if runtime.GOOS != "linux" {
		d.find(Fail, "use Linux for real devices; mem0 works here", "verbs exist on Linux only, this is %s", runtime.GOOS)
		return d.findings
	}
	d.kernel()
	d.files()
	d.devices()
	d.limits()
	d.firewall()
	d.host()
	return d.findings
}

// Verdict returns one line: ready, or the first thing to mend.
func Verdict(all []Finding) string {
	notes := 0
	for _, f := range all {
		if f.Level == Fail {
			return "mend first: " + f.What + strings.TrimSuffix(": "+f.Advice, ": ")
		}
		notes += int(f.Level)
	}
	if notes > 0 {
		return fmt.Sprintf("ready; notes above: %d", notes)
	}
	return "ready"
}

// Worst returns the highest level of the findings.
func Worst(all []Finding) Level {
	worst := OK
	for _, f := range all {
		worst = max(worst, f.Level)
	}
	return worst
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

// modules are the kernel modules that userspace verbs need.
var modules = []struct{ name, sign, why string }{
	{"ib_uverbs", "sys/class/infiniband_verbs", "programs reach devices through it"},
	{"rdma_ucm", "sys/class/misc/rdma_cm", "programs connect through it"},
}

func (d *doctor) kernel() {
	if !d.exists("sys/class/infiniband") {
		d.find(Fail, "load the device's driver; without RDMA hardware: modprobe rdma_rxe, or ci/rxe-setup.sh; a kernel "+
			"without rdma_rxe can use ci/rxe-vm.sh",
			"the kernel has no RDMA: /sys/class/infiniband is not there")
		return
	}
	for _, m := range modules {
		if d.exists(m.sign) || d.exists("sys/module/"+m.name) {
			d.find(OK, "", "kernel module %s is there", m.name)
		} else {
			d.find(Fail, "modprobe "+m.name, "kernel module %s is not loaded: %s", m.name, m.why)
		}
	}
	entries, _ := os.ReadDir(d.path("sys/class/infiniband"))
	if len(entries) == 0 {
		d.find(Fail, "load the device's driver; without RDMA hardware make a soft-RoCE device: rdma link add rxe0 type "+
			"rxe netdev NETDEV, or ci/rxe-setup.sh",
			"the kernel has RDMA, but no device")
	}
}

// files checks the device files that verbs open.
func (d *doctor) files() {
	if !d.exists("sys/class/infiniband") {
		return
	}
	names, _ := filepath.Glob(d.path("dev/infiniband/uverbs*"))
	if len(names) == 0 {
		d.find(Fail, "modprobe ib_uverbs; in a container: --device /dev/infiniband", "there is no /dev/infiniband/uverbs*")
	}
	for _, name := range append(names, d.path("dev/infiniband/rdma_cm")) {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		switch {
		case err == nil:
			f.Close()
			d.find(OK, "", "%s can be opened", name)
		case os.IsNotExist(err):
			d.find(Fail, "modprobe rdma_ucm; in a container: --device /dev/infiniband", "%s is not there", name)
		case os.IsPermission(err):
			d.find(Fail, "run as a member of its group, or set its mode to 0666 by a udev rule (rdma-core brings one)",
				"%s may not be opened by this user: %v", name, err)
		default:
			d.find(Fail, "", "%v", err)
		}
	}
}

func (d *doctor) devices() {
	all, err := cverbs.Devices()
	if err != nil {
		d.find(Fail, "install rdma-core (libibverbs1, ibverbs-providers, librdmacm1) and build with cgo",
			"devices cannot be listed: %v", err)
		return
	}
	if why := udat.WhyNoDevices(); why != nil {
		d.find(Note, "", "%v", strings.ReplaceAll(why.Error(), "\n", "; "))
	}
	for _, dev := range all {
		d.device(dev)
	}
	for _, p := range udat.Providers() {
		level, advice := OK, ""
		switch {
		case p.Fabric == "verbs" && !p.Active:
			level, advice = Note, "bring the port up: cable, switch, or ip link set NETDEV up"
		case p.Fabric == "verbs" && p.Addr == "":
			level, advice = Note, "give its network device an IP address: the connection manager needs one"
		}
		d.find(level, advice, "name %q: %s", p.Name, p.Detail) // which is not opened here
	}
}

func (d *doctor) device(dev cverbs.DeviceInfo) {
	ctx, err := cverbs.OpenDevice(dev.Name)
	if err != nil {
		d.find(Fail, "see the device files above", "%s: %v", dev.Name, err)
		return
	}
	defer ctx.Close()
	attr, err := ctx.QueryDevice()
	if err != nil {
		d.find(Fail, "", "%s: %v", dev.Name, err)
		return
	}
	d.find(OK, "", "%s: %v, firmware %s, up to %d queue pairs of %d requests, %d reads at once", dev.Name, dev.NodeType,
		attr.FirmwareVersion, attr.MaxQP, attr.MaxQPWR, attr.MaxQPInitRDAtom)
	table, _ := ctx.GIDTable()
	for num := 1; num <= max(1, attr.PhysPortCnt); num++ {
		d.port(ctx, dev, uint8(num), table)
	}
}

func (d *doctor) port(ctx *cverbs.Context, dev cverbs.DeviceInfo, num uint8, table []cverbs.GIDEntry) {
	p, err := ctx.QueryPort(num)
	if err != nil {
		d.find(Fail, "", "%s port %d: %v", dev.Name, num, err)
		return
	}
	name := fmt.Sprintf("%s port %d", dev.Name, num)
	if p.State == cverbs.PortActive {
		d.find(OK, "", "%s is %v over %v, MTU %d of at most %d", name, p.State, p.LinkLayer, p.ActiveMTU.Bytes(),
			p.MaxMTU.Bytes())
	} else {
		advice := "ip link set NETDEV up"
		if p.LinkLayer == cverbs.LinkLayerInfiniBand {
			advice = "cable, and a subnet manager (opensm) on the fabric"
		}
		d.find(Fail, advice, "%s is %v: nothing can be sent", name, p.State)
	}
	best, why, err := ctx.BestGID(num)
	if err != nil {
		d.find(Fail, "give its network device an IP address", "%s: %v", name, err)
		return
	}
	for _, g := range table {
		if g.Port != num {
			continue
		}
		taken := ""
		if g.Index == best.Index {
			taken = ", taken: " + why
		}
		d.find(OK, "", "%s GID %d: %v %v %s%s", name, g.Index, g.GID, g.Type, g.NetDev, taken)
	}
	d.mtu(name, best.NetDev, p)
	d.link(dev.Name, num, best.NetDev)
}

// mtu reports a network device whose MTU limits the port's MTU: RoCE packets have about 60 bytes of
// headers.
func (d *doctor) mtu(name, netdev string, p cverbs.PortAttr) {
	var have int
	if _, err := fmt.Sscan(d.line("sys/class/net/"+netdev+"/mtu"), &have); err != nil ||
		p.LinkLayer != cverbs.LinkLayerEthernet {
		return
	}
	if p.ActiveMTU < p.MaxMTU && p.ActiveMTU < cverbs.MTU4096 {
		d.find(Note, fmt.Sprintf("ip link set %s mtu 4200, on both ends and the switches between them", netdev),
			"%s carries %d bytes per packet, because %s has MTU %d", name, p.ActiveMTU.Bytes(), netdev, have)
	}
}

// memlockEnough is the smallest adequate locked-memory limit of an ordinary user, in bytes.
const memlockEnough = 64 << 20

func (d *doctor) limits() {
	const advice = "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, " +
		"memlock in /etc/security/limits.conf, --ulimit memlock=-1 for a container; or grant CAP_IPC_LOCK"
	limit, known := MemlockLimit()
	switch {
	case !known:
	case limit < 0:
		d.find(OK, "", "locked memory is not limited")
	case os.Geteuid() == 0:
		d.find(OK, "", "the locked-memory limit is %d KiB, which does not bind root", limit>>10)
	case limit < memlockEnough:
		d.find(Fail, advice, "the locked-memory limit is %d KiB: registering more memory fails", limit>>10)
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

// host checks settings of the host that worsen measurements.
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
