package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/internal/perf/counters"
	"github.com/godat/godat/internal/perf/result"
)

// host returns a doctor whose root contains files and folders as the kernel would show them. The
// names of folders end in /.
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
	k := systemKernel()
	k.rdma = func() (rdmaState, error) { return rdmaState{}, nil }
	k.pfc = func(string) ([]int, error) { return nil, os.ErrNotExist }
	none := func(string) (map[string]uint64, error) { return nil, os.ErrNotExist }
	return &doctor{root: root, kernel: k, source: counters.Source{Root: root, Driver: none}}
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
		"no RDMA": {[]string{"sys/class/"}, []string{"FAIL the kernel has no RDMA", "modprobe rdma_rxe",
			"datperf server --device tcp"}, Fail},
		"no /sys": {nil, []string{"note /sys is not mounted"}, Note},
		"no connection manager": {
			[]string{"sys/class/infiniband/rxe0/", "sys/class/infiniband_verbs/"},
			[]string{"ok kernel module ib_uverbs",
				"FAIL kernel module rdma_ucm is not loaded: programs connect through it -> modprobe rdma_ucm"}, Fail,
		},
		"all there": {
			[]string{"sys/class/infiniband/rxe0/", "sys/class/infiniband_verbs/", "sys/class/misc/rdma_cm/"},
			[]string{"ok kernel module rdma_ucm is there"}, Fail, // its file is not
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := host(t, c.files...)
			d.modules()
			for _, want := range c.want {
				assert.Assert(t, strings.Contains(d.text(), want), d.text())
			}
			assert.Equal(t, Worst(d.findings), c.worst)
		})
	}
}

func TestDeviceFiles(t *testing.T) {
	const class = "sys/class/infiniband_verbs/"
	files := []string{"sys/class/infiniband/rxe0/", "sys/class/infiniband/rxe1/", class + "uverbs0/ibdev=rxe0",
		class + "uverbs0/dev=231:192", class + "uverbs1/ibdev=rxe1", class + "uverbs1/dev=231:193", "sys/class/misc/rdma_cm/"}
	numbers := func(d *doctor) {
		d.kernel.number = func(path string) (uint32, uint32, error) {
			if _, err := os.Stat(path); err != nil {
				return 0, 0, err
			}
			return 231, 192, nil
		}
	}
	d := host(t, append(files, "dev/infiniband/uverbs0=")...)
	numbers(d)
	d.modules()
	d.contains(t, "FAIL rxe1 cannot be used: its device file "+d.root+"/dev/infiniband/uverbs1 is not there -> "+
		"udev makes it, or mknod",
		"ok "+d.root+"/dev/infiniband/uverbs0 can be opened", "rdma_cm is not there -> modprobe rdma_ucm")
	assert.DeepEqual(t, d.unusable, []string{"rxe1"})

	d = host(t, append(files, "dev/infiniband/uverbs0=", "dev/infiniband/uverbs1=", "dev/infiniband/rdma_cm=")...)
	numbers(d)
	d.modules()
	d.contains(t, "FAIL rxe1 cannot be used: "+d.root+"/dev/infiniband/uverbs1 is the file of another device, "+
		"231:192 instead of 231:193")

	d = host(t, append(files[:1:1], class+"uverbs0/ibdev=rxe0", "sys/class/misc/rdma_cm/", "dev/infiniband/uverbs0=",
		"dev/infiniband/rdma_cm=")...)
	numbers(d)
	d.modules()
	assert.Equal(t, Worst(d.findings), OK, d.text())
}

func TestNamespaces(t *testing.T) {
	const ports, file = "sys/class/infiniband/rxe0/ports/1/", "sys/class/infiniband_verbs/uverbs0/ibdev=rxe0"
	for name, c := range map[string]struct {
		files []string
		state rdmaState
		want  string // empty: nothing found
	}{
		"no device": {[]string{"sys/class/infiniband/"}, rdmaState{}, "FAIL the kernel has RDMA, but no device"},
		"no device either": {[]string{"sys/class/infiniband/"}, rdmaState{exclusive: true}, "FAIL the kernel has " +
			"RDMA, but no device"},
		"another namespace": {[]string{"sys/class/infiniband/", file}, rdmaState{exclusive: true}, "FAIL the host's 1 " +
			"RDMA devices belong to other"},
		"another netdev's": {[]string{ports + "gid_attrs/ndevs/0=eth0"},
			rdmaState{devices: map[string]rdmaDevice{"rxe0": {}}}, "FAIL rxe0 port 1: its network device eth0 is in " +
				"another network namespace"},
		"here": {[]string{ports + "gid_attrs/ndevs/0=eth0"},
			rdmaState{devices: map[string]rdmaDevice{"rxe0": {netdevs: map[int]string{1: "eth0"}}}}, ""},
		"InfiniBand": {[]string{ports + "gid_attrs/ndevs/"}, rdmaState{devices: map[string]rdmaDevice{"rxe0": {}}}, ""},
		"no RDMA":    {nil, rdmaState{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := host(t, c.files...)
			d.kernel.rdma = func() (rdmaState, error) { return c.state, nil }
			d.namespaces()
			d.contains(t, c.want)
			assert.Equal(t, d.text() == "", c.want == "", d.text())
		})
	}
}

func TestLibraries(t *testing.T) {
	d := host(t, "sys/class/infiniband/mlx5_0/", "sys/class/infiniband/rxe0/", "sys/class/infiniband/rxe1/")
	d.rdma.devices = map[string]rdmaDevice{"mlx5_0": {driver: 1}}
	d.unusable = []string{"rxe1"}
	d.libraries([]cverbs.DeviceInfo{{Name: "rxe0"}})
	d.contains(t, "FAIL mlx5_0: the kernel has it, libibverbs does not: its provider library libmlx5-rdmav*.so is missing")
	assert.Equal(t, len(d.findings), 1)
}

// arpApart needs both settings, each for all devices or for the device.
func TestARPApart(t *testing.T) {
	const conf = "proc/sys/net/ipv4/conf/"
	d := host(t, conf+"all/arp_ignore=1", conf+"eth0/arp_announce=2", conf+"eth1/arp_ignore=8")
	assert.Assert(t, d.arpApart("eth0") && !d.arpApart("eth1"))
}

func TestHost(t *testing.T) {
	d := host(t, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor=powersave",
		"sys/devices/system/clocksource/clocksource0/current_clocksource=refined-jiffies")
	d.host()
	assert.Assert(t, strings.Contains(d.text(), "governor is powersave -> for measurements"), d.text())
	assert.Assert(t, strings.Contains(d.text(), "clock source is refined-jiffies"), d.text())
	assert.Equal(t, Worst(d.findings), Note)
}

func TestLoopback(t *testing.T) {
	d := host(t)
	d.loopback([]net.Interface{{Name: "lo", Flags: net.FlagLoopback}, {Name: "eth0"}})
	d.contains(t, "note lo is down: programs on this host cannot reach one another by TCP, nor can the device tcp reach "+
		"itself -> ip link set lo up")
	assert.Equal(t, len(d.findings), 1)
	d.findings = nil
	d.loopback([]net.Interface{{Name: "lo", Flags: net.FlagLoopback | net.FlagUp}})
	assert.Equal(t, len(d.findings), 0)
}

// contains fails the test if a finding is missing. Each finding is given as level, text and advice.
func (d *doctor) contains(t *testing.T, wants ...string) {
	t.Helper()
	for _, want := range wants {
		assert.Assert(t, strings.Contains(d.text(), want), "%q is not in:\n%s", want, d.text())
	}
}

func TestLink(t *testing.T) {
	const dev = "sys/class/infiniband/mlx5_0/"
	d := host(t, dev+"ports/1/rate=100 Gb/sec (4X EDR)", dev+"device/current_link_speed=8.0 GT/s PCIe",
		dev+"device/current_link_width=8", dev+"device/max_link_speed=16.0 GT/s PCIe", dev+"device/max_link_width=8",
		dev+"device/numa_node=1", dev+"device/local_cpulist=16-31", dev+"ports/1/counters/symbol_error=3",
		dev+"ports/1/hw_counters/packet_seq_err=0", dev+"ports/1/hw_counters/np_cnp_sent=7",
		"sys/class/net/eth0/ecn/roce_np/enable/3=1", "sys/class/net/eth0/ecn/roce_np/enable/4=0",
		"sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos=106")
	d.source.Driver = func(string) (map[string]uint64, error) {
		return map[string]uint64{"rx_prio3_pause": 12, "tx_prio3_pause": 0, "rx_bytes": 1}, nil
	}
	d.kernel.pfc = func(string) ([]int, error) { return []int{3}, nil }
	d.link("mlx5_0", 1, "eth0")
	d.contains(t, "ok mlx5_0 port 1: link 100 Gb/sec (4X EDR)", "note mlx5_0: PCIe 8 GT/s x8, 63 Gb/s", "16 GT/s x8 -> ",
		"NUMA node 1, near processors 16-31", "note mlx5_0 port 1 has counted errors or repeated packets: symbol_error 3 ->",
		"np_cnp_sent 7, ethtool_rx_prio3_pause 12 ->", "type of service is 106", "ECN (roce_np) is on for priorities 3",
		"PFC is on for priorities 3")
	assert.Assert(t, !strings.Contains(d.text(), "packet_seq_err"), d.text())

	d = host(t, dev+"ports/1/rate=100 Gb/sec (4X EDR)", dev+"device/current_link_speed=5.0 GT/s PCIe",
		dev+"device/current_link_width=8", dev+"device/max_link_speed=5.0 GT/s PCIe", dev+"device/max_link_width=8",
		dev+"ports/1/counters/symbol_error=0")
	d.link("mlx5_0", 1, "")
	d.contains(t, "note mlx5_0: PCIe 5 GT/s x8, 32 Gb/s before PCIe's own headers: less than the port's 100 Gb/s",
		"ok mlx5_0 port 1 has counted no errors")
}

// TestLinkOfPort: the findings of a port are its own, not those of the other port.
func TestLinkOfPort(t *testing.T) {
	var files []string
	for _, p := range []string{"1", "2"} {
		dir := "sys/class/infiniband/mlx5_0/ports/" + p
		files = append(files, dir+"/rate="+p+"00 Gb/sec", dir+"/counters/symbol_error="+p+"7",
			dir+"/hw_counters/np_cnp_sent="+p+"8", "sys/kernel/config/rdma_cm/mlx5_0/ports/"+p+"/default_roce_tos="+p+"9")
	}
	for num, other := range map[uint8]string{1: "2", 2: "1"} {
		d := host(t, files...)
		d.link("mlx5_0", num, "")
		for _, want := range []string{"00 Gb/sec", "symbol_error %s7", "np_cnp_sent %s8", "type of service is %s9"} {
			if !strings.Contains(want, "%s") {
				want = "link %s" + want
			}
			assert.Assert(t, strings.Contains(d.text(), fmt.Sprintf(want, fmt.Sprint(num))), d.text())
			assert.Assert(t, !strings.Contains(d.text(), fmt.Sprintf(want, other)), d.text())
		}
	}
}

func TestWay(t *testing.T) {
	client := result.Facts{MTU: 1024, GIDType: "RoCE v2", Version: "1"}
	server := result.Facts{MTU: 4096, GIDType: "RoCE v1"}
	d := &doctor{findings: Between(&client, &server)}
	d.contains(t, "note the client's MTU is 1024, the server's 4096",
		"FAIL the client's GID is RoCE v2, the server's RoCE v1",
		"note the client is datperf 1")
	assert.Equal(t, len(Between(&client, &client)), 1)

	mem, tcp, verbs := result.Facts{Device: "mem0", Fabric: "mem"}, result.Facts{Device: "tcp:a", Fabric: "tcp"},
		result.Facts{Device: "v0", Fabric: "verbs"}
	for _, c := range []struct {
		client, server *result.Facts
		advice         string
	}{{&mem, &tcp, "use --device tcp here too"}, {&tcp, &verbs, "start the server with --device tcp too"},
		{&mem, &verbs, "use verbs devices at both ends, or use the device tcp"}} {
		d = &doctor{findings: Between(c.client, c.server)}
		d.contains(t, "fabric: they cannot reach each other -> "+c.advice)
		assert.Equal(t, len(d.findings), 1) // not that the way is right
	}

	cases := []result.Case{{Test: "send", Size: Small}, {Test: "send", Size: Large}}
	ran := result.Run{Case: cases[0], Client: &result.End{Initiated: &result.Stream{},
		Counters: result.Counters{"packet_seq_err": 2, "port_xmit_data": 5}}, Server: &result.End{}}
	d.findings = Tried("verbs", cases, []result.Run{ran}, errors.New("timed out"))
	d.contains(t, "ok send of 64B over the way arrives",
		"note packets were lost or repeated meanwhile: packet_seq_err 2 ->",
		"FAIL messages of 64KiB do not arrive: timed out -> packets are lost on the way")
	ran.Client.Counters = nil
	d.findings = Tried("verbs", cases, []result.Run{ran}, errors.New("timed out"))
	d.contains(t, "FAIL messages of 64KiB do not arrive: timed out -> smaller messages passed")
	d.findings = Tried("verbs", cases, nil, errors.New("timed out"))
	d.contains(t, "FAIL messages of 64B do not arrive: timed out -> firewalls")
	d.findings = Tried(Software, cases, nil, errors.New("timed out")) // names nothing that TCP does not have
	d.contains(t, "FAIL messages of 64B do not arrive: timed out -> packet filters")
	assert.Assert(t, !strings.Contains(d.findings[0].Advice, "RoCE"))
}

// Each reason why a host is not reached has advice of its own.
func TestUnreached(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("no server: %w", err) }
	for _, c := range []struct {
		err          error
		host, advice string
	}{
		{wrapped(&net.DNSError{Err: "no such host", Name: "nobody"}), "nobody", "getent hosts nobody"},
		{wrapped(syscall.ECONNREFUSED), "127.0.0.1", "127.0.0.1 is an address of this host"},
		{wrapped(syscall.ECONNREFUSED), "192.0.2.1", "start a server there"},
		{wrapped(syscall.ENETUNREACH), "192.0.2.1", "ip route get 192.0.2.1"},
		{wrapped(syscall.EHOSTUNREACH), "192.0.2.1", "ip route get 192.0.2.1"},
		{wrapped(syscall.EINVAL), "192.0.2.1", "ip route get 192.0.2.1"},
		{wrapped(os.ErrDeadlineExceeded), "192.0.2.1", "a packet filter drops TCP port 18516"},
		{errors.New("tls: wrong secret"), "192.0.2.1", ""},
	} {
		f := Unreached(c.err, c.host, "18516")
		assert.Equal(t, f.Level, Fail)
		assert.Assert(t, strings.Contains(f.Advice, c.advice) && (f.Advice == "") == (c.advice == ""), "%v: %s", c.err,
			f.Advice)
	}
}

func TestVerdict(t *testing.T) {
	assert.Equal(t, Verdict([]Finding{{OK, "a", ""}}), "ready")
	assert.Equal(t, Verdict([]Finding{{OK, "a", ""}, {Note, "b", "c"}}), "ready; notes above: 1")
	assert.Equal(t, Verdict([]Finding{{Note, "b", "c"}, {Fail, "d", "e"}, {Fail, "f", "g"}}), "mend first: d: e")
	assert.Equal(t, Level(-1).String()+Level(9).String(), "okFAIL") // of a peer
}
