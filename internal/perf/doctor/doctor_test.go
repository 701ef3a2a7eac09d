package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/internal/perf/result"
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

// contains fails the test if a finding is missing; a finding is its level, its text and its advice.
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
	d.command = func(program string, _ ...string) (string, error) {
		return map[string]string{"ethtool": "NIC statistics:\n  rx_prio3_pause: 12\n  tx_prio3_pause: 0\n  rx_bytes: 1\n",
			"dcb": "prio-pfc 0:off 3:on 4:off\n"}[program], nil
	}
	d.link("mlx5_0", 1, "eth0")
	d.contains(t, "ok mlx5_0 port 1: link 100 Gb/sec (4X EDR)", "note mlx5_0: PCIe 8 GT/s x8, 63 Gb/s", "16 GT/s x8 -> ",
		"NUMA node 1, near processors 16-31", "note mlx5_0 port 1 has counted errors or repeated packets: symbol_error 3 ->",
		"np_cnp_sent 7, rx_prio3_pause 12 ->", "type of service is 106", "ECN (roce_np) is on for priorities 3",
		"PFC is on for priorities 3")
	assert.Assert(t, !strings.Contains(d.text(), "packet_seq_err"), d.text())

	d = host(t, dev+"ports/1/rate=100 Gb/sec (4X EDR)", dev+"device/current_link_speed=5.0 GT/s PCIe",
		dev+"device/current_link_width=8", dev+"device/max_link_speed=5.0 GT/s PCIe", dev+"device/max_link_width=8",
		dev+"ports/1/counters/symbol_error=0")
	d.command = missing
	d.link("mlx5_0", 1, "")
	d.contains(t, "note mlx5_0: PCIe 5 GT/s x8, 32 Gb/s before PCIe's own headers: less than the port's 100 Gb/s",
		"ok mlx5_0 port 1 has counted no errors")
}

func missing(string, ...string) (string, error) { return "", os.ErrNotExist }

func TestFirewall(t *testing.T) {
	for rules, want := range map[string]string{
		"hook input; policy accept;":                                                 "ok no firewall rule",
		"hook input; policy drop;\ntcp dport 18516 accept":                           "no rule names udp",
		"hook input; policy drop;\nudp dport 4791 accept":                            "no rule names tcp port 18516",
		"policy accept; hook input\nudp dport 4791 accept\ntcp dport 18516\n reject": "",
	} {
		d := host(t)
		d.command = func(string, ...string) (string, error) { return rules, nil }
		d.firewall()
		d.contains(t, want)
		assert.Assert(t, want != "" || d.text() == "", d.text())
	}
	d := host(t)
	d.command = missing
	d.firewall()
	assert.Equal(t, d.text(), "")
}

func TestWay(t *testing.T) {
	client := result.Facts{MTU: 1024, GIDType: "RoCE v2", Version: "1"}
	server := result.Facts{MTU: 4096, GIDType: "RoCE v1"}
	d := &doctor{findings: Between(&client, &server)}
	d.contains(t, "note the client's MTU is 1024, the server's 4096",
		"FAIL the client's GID is RoCE v2, the server's RoCE v1",
		"note the client is datperf 1")
	assert.Equal(t, len(Between(&client, &client)), 1)

	cases := []result.Case{{Test: "send", Size: Small}, {Test: "send", Size: Large}}
	ran := result.Run{Case: cases[0], Client: &result.End{Initiated: &result.Stream{},
		Counters: result.Counters{"packet_seq_err": 2, "port_xmit_data": 5}}, Server: &result.End{}}
	d.findings = Tried(cases, []result.Run{ran}, errors.New("timed out"))
	d.contains(t, "ok send of 64B over the way arrives",
		"note packets were lost or repeated meanwhile: packet_seq_err 2 ->",
		"FAIL messages of 64KiB do not arrive: timed out -> smaller messages passed")
	d.findings = Tried(cases, nil, errors.New("timed out"))
	d.contains(t, "FAIL messages of 64B do not arrive: timed out -> firewalls")
}

func TestVerdict(t *testing.T) {
	assert.Equal(t, Verdict([]Finding{{OK, "a", ""}}), "ready")
	assert.Equal(t, Verdict([]Finding{{OK, "a", ""}, {Note, "b", "c"}}), "ready; notes above: 1")
	assert.Equal(t, Verdict([]Finding{{Note, "b", "c"}, {Fail, "d", "e"}, {Fail, "f", "g"}}), "mend first: d: e")
	assert.Equal(t, Level(-1).String()+Level(9).String(), "okFAIL") // of a peer
}
