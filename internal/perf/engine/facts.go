package engine

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/counters"
	"github.com/godat/godat/internal/perf/doctor"
	"github.com/godat/godat/internal/perf/result"
)

// noAtomics is the value of Facts.Atomics for a device without atomics.
const noAtomics = "none"

// gatherFacts returns the facts of this end. Unknown facts are zero.
func gatherFacts(chosen choice, version string, cpu *int) result.Facts {
	f := result.Facts{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), GoVersion: runtime.Version(),
		GOMAXPROCS: runtime.GOMAXPROCS(0), GODEBUG: os.Getenv("GODEBUG"), Version: version,
		Fabric: chosen.Fabric, Device: chosen.Name, Chosen: chosen.why, Address: chosen.Addr, Detail: chosen.Detail,
		TLS:    chosen.tls != nil,
		Kernel: firstLine("/proc/sys/kernel/osrelease"), CPU: cpuModel(),
		Governor: firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
	}
	f.Host, _ = os.Hostname()
	f.MemlockBytes, _ = doctor.MemlockLimit()
	step := clockStep()
	f.ClockStep = result.Seconds(step)
	if text, coarse := clockWarning(step); coarse {
		f.Warnings = append(f.Warnings, text)
	}
	if chosen.Fabric == fabricVerbs {
		deviceFacts(&f, &chosen)
		device, _ := chosen.verbsPort()
		if node := firstLine(filepath.Join("/sys/class/infiniband", device, "device/numa_node")); node != "-1" {
			f.NUMANode = node
		}
		f.Libibverbs = libraryVersion("libibverbs.so.") // deviceFacts has opened the device, which loads the library
	}
	f.Link = linkSpeed(&chosen)
	switch {
	case cpu != nil:
	case chosen.near != nil:
		f.BoundNode = f.NUMANode
	case chosen.far:
		f.Warnings = append(f.Warnings, fmt.Sprintf("%s is on NUMA node %s, of whose processors this process may use none",
			f.Device, f.NUMANode))
	}
	if cpu != nil {
		f.PinnedCPU = strconv.Itoa(*cpu)
		if near := nodeOfCPU(*cpu); f.NUMANode != "" && near != "" && near != f.NUMANode {
			f.Warnings = append(f.Warnings,
				fmt.Sprintf("processor %d is on NUMA node %s, %s on node %s: memory and interrupts cross between them", *cpu, near,
					f.Device, f.NUMANode))
		}
	}
	return f
}

func deviceFacts(f *result.Facts, chosen *choice) {
	device, port := chosen.verbsPort()
	ctx, err := cverbs.OpenDevice(device)
	if err != nil {
		f.Warnings = append(f.Warnings, err.Error())
		return
	}
	defer ctx.Close()
	if d, err := ctx.QueryDevice(); err == nil {
		f.Firmware, f.MaxReadDepth, f.MaxQueueDepth = d.FirmwareVersion, min(d.MaxQPRDAtom, d.MaxQPInitRDAtom, 255), d.MaxQPWR
		f.Atomics = map[cverbs.AtomicCap]string{cverbs.AtomicNone: noAtomics, cverbs.AtomicHCA: "within the device",
			cverbs.AtomicGlob: "global"}[d.AtomicCap]
	}
	if p, err := ctx.QueryPort(port); err == nil {
		f.LinkLayer, f.PortState = p.LinkLayer.String(), p.State.String()
		f.MTU, f.MaxMessage = p.ActiveMTU.Bytes(), int(p.MaxMsgSize)
	}
	if index, ok := chosen.gid.Get(); ok {
		table, _ := ctx.GIDTable()
		for _, g := range table {
			if g.Port == port && g.Index == index {
				f.GID, f.GIDIndex, f.GIDType, f.GIDReason = g.GID.String(), g.Index, g.Type.String(), "it was given"
			}
		}
	} else if g, why, err := ctx.BestGID(port); err == nil {
		f.GID, f.GIDIndex, f.GIDType, f.GIDReason = g.GID.String(), g.Index, g.Type.String(), why
	}
}

// linkSpeed returns the speed of a verbs port, or of the network interface that has the device's
// address. It returns "" if the kernel does not know it.
func linkSpeed(chosen *choice) string {
	if chosen.Fabric == fabricVerbs {
		device, port := chosen.verbsPort()
		return firstLine(fmt.Sprintf("/sys/class/infiniband/%s/ports/%d/rate", device, port))
	}
	if chosen.Fabric == fabricMem {
		return ""
	}
	own, _, _ := strings.Cut(chosen.Addr, "%")
	all, _ := net.Interfaces()
	for _, i := range all {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if ip, _, _ := strings.Cut(a.String(), "/"); ip != own {
				continue
			}
			if mbit, err := strconv.Atoi(firstLine(filepath.Join("/sys/class/net", i.Name, "speed"))); err == nil && mbit > 0 {
				return fmt.Sprintf("%g Gb/s (%s)", float64(mbit)/1e3, i.Name)
			}
			return i.Name
		}
	}
	return ""
}

func firstLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

func cpuModel() string {
	return lookUp("/proc/cpuinfo", func(line string) (string, bool) {
		key, value, _ := strings.Cut(line, ":")
		key = strings.TrimSpace(key)
		return strings.TrimSpace(value), key == "model name" || key == "Model"
	})
}

// libraryVersion returns the version in the file name of a loaded shared library: the text after
// prefix.
func libraryVersion(prefix string) string {
	return lookUp("/proc/self/maps", func(line string) (string, bool) {
		if i := strings.IndexByte(line, '/'); i >= 0 {
			return strings.CutPrefix(filepath.Base(line[i:]), prefix)
		}
		return "", false
	})
}

// lookUp calls the function fits for each line of a file, until a line fits. It returns the value
// from that line, or "" if no line fits.
func lookUp(name string, fits func(line string) (string, bool)) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if v, ok := fits(lines.Text()); ok {
			return v
		}
	}
	return ""
}

// portCounters says where the kernel has the counters of an end's port and network device. The zero
// value means that there are no counters.
type portCounters struct{ folder, netdev string }

// countersAt finds the counters of the chosen device. It reads the kernel's GID table, so the
// caller calls it once for all runs.
func countersAt(chosen *choice) portCounters {
	if chosen.Fabric != fabricVerbs {
		return portCounters{}
	}
	device, number := chosen.verbsPort()
	folder := fmt.Sprintf("sys/class/infiniband/%s/ports/%d", device, number)
	return portCounters{folder, counters.System().NetDevice(folder)}
}

// read returns the values of the counters, or nil if p is the zero value.
func (p portCounters) read() result.Counters {
	if p.folder == "" {
		return nil
	}
	return counters.System().Read(p.folder, p.netdev)
}
