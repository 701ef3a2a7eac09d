package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// cable connects two soft devices, rxea and rxeb, by a pair of network devices. Their packets pass
// the network stack, unlike the packets between other devices of one host. overCable runs doctor
// over the cable.
const (
	cable = `modprobe veth
		ip link add va mtu 9000 type veth peer name vb mtu 9000
		n=0
		for d in va vb; do
			ip link set $d up
			ip addr add 10.97.$n.1/24 dev $d
			echo 1 >/proc/sys/net/ipv4/conf/$d/accept_local
			n=1
		done
		ip route add 10.97.1.0/24 dev va metric 9; ip route add 10.97.0.0/24 dev vb metric 9
		ip neigh add 10.97.1.1 lladdr $(cat /sys/class/net/vb/address) dev va
		ip neigh add 10.97.0.1 lladdr $(cat /sys/class/net/va/address) dev vb
		rdma link add rxea type rxe netdev va; rdma link add rxeb type rxe netdev vb
		sleep 1
		`
	uncable   = "rdma link delete rxea; rdma link delete rxeb; ip link delete va"
	overCable = `datperf server --device rxeb --port 18990 >/dev/null & server=$!
		until ss -lnt | grep -q :18990; do sleep .2; done
		datperf doctor 10.97.1.1:18990 --device rxea; status=$?
		kill $server; wait $server; exit $status`
)

// misconfigurations lists wrong settings of a host, which the test makes in the virtual machine.
// The findings must name the cause of each.
var misconfigurations = map[string]struct {
	make, undo string // shell
	run        string // shell that runs doctor; empty: datperf doctor
	want       string // a part of a finding
	passes     bool   // a note: doctor still says ready
}{
	"no provider library": {
		run:  "unshare -m sh -c 'mount -t tmpfs none /usr/lib/x86_64-linux-gnu/libibverbs && datperf doctor'",
		want: "FAIL rxe0: the kernel has it, libibverbs does not: its provider library librxe-rdmav*.so is missing",
	},
	"one of two device files is missing": {
		make: "mv /dev/infiniband/uverbs1 /dev/uverbs1", undo: "mv /dev/uverbs1 /dev/infiniband/uverbs1",
		want: "FAIL rxe1 cannot be used: its device file /dev/infiniband/uverbs1 is not there",
	},
	"a device file of another device": {
		make: "cd /dev/infiniband; mv uverbs1 /dev/uverbs1; cp -a uverbs0 uverbs1",
		undo: "mv /dev/uverbs1 /dev/infiniband/uverbs1",
		want: "FAIL rxe1 cannot be used: /dev/infiniband/uverbs1 is the file of another device",
	},
	"no device files": {
		run:  "unshare -m sh -c 'mount -t tmpfs none /dev/infiniband && datperf doctor'",
		want: "FAIL rxe0 cannot be used: its device file /dev/infiniband/uverbs0 is not there",
	},
	"no file of rdma_cm": {
		make: "mv /dev/infiniband/rdma_cm /dev/rdma_cm", undo: "mv /dev/rdma_cm /dev/infiniband/rdma_cm",
		want: "FAIL /dev/infiniband/rdma_cm is not there",
	},
	"device files for root alone": {
		make: "chmod 600 /dev/infiniband/*", undo: "chmod 666 /dev/infiniband/*",
		run:  "setpriv --reuid=65534 --clear-groups datperf doctor",
		want: "FAIL /dev/infiniband/uverbs0 may not be opened by this user",
	},
	"two NICs in one subnet": {
		make: "ip addr add 10.98.0.77/24 dev eth1", undo: "ip addr del 10.98.0.77/24 dev eth1",
		want: "FAIL rxe0 port 1: eth0 and eth1 are in one subnet, 10.98.0.0/24",
	},
	"another network namespace": {
		run:  "unshare -n datperf doctor",
		want: "FAIL rxe0 port 1: its network device eth0 is in another network namespace",
	},
	"another network namespace, exclusive": {
		make: "rdma system set netns exclusive", undo: "rdma system set netns shared",
		// sysfs shows the network namespace in which it was mounted.
		run:  "unshare -nm sh -c 'mount -t sysfs none /sys && datperf doctor'",
		want: "FAIL the host's 2 RDMA devices belong to other network namespaces, this one has none",
	},
	"locked memory of a user": {
		run:  "ulimit -l 64; setpriv --reuid=65534 --clear-groups datperf doctor",
		want: "FAIL the locked-memory limit is 64 KiB, and this process has no CAP_IPC_LOCK",
	},
	"locked memory of root without IPC_LOCK": {
		run:  "ulimit -l 64; setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock datperf doctor",
		want: ": 64 MiB of memory cannot be registered",
	},
	"few open files": {
		run: "ulimit -n 512; datperf doctor", want: "note a process may open 512 files", passes: true,
	},
	"port down": {
		make: "ip link set eth0 down", undo: "ip link set eth0 up; ip addr add fd98::1/64 dev eth0 nodad; sleep 1",
		want: "FAIL rxe0 port 1 is DOWN: nothing can be sent",
	},
	"no IP address": {
		make: "ip addr flush dev eth0; ip addr flush dev eth1",
		undo: "for i in 0 1; do ip addr add 10.98.$i.1/24 dev eth$i; done; ip addr add fd98::1/64 dev eth0 nodad; " +
			"ip addr add fd98:1::1/64 dev eth1 nodad; sleep 1",
		want: "FAIL no verbs device can be used\n     what to do: give its network device an IP address",
	},
	"no RDMA device": {
		make: "rdma link delete rxe0; rdma link delete rxe1",
		undo: "rdma link add rxe0 type rxe netdev eth0; rdma link add rxe1 type rxe netdev eth1; sleep 1",
		want: "FAIL the kernel has RDMA, but no device",
	},
	"no rdma_ucm": {
		make: "rmmod rdma_ucm", undo: "modprobe rdma_ucm; sleep 1; chmod 666 /dev/infiniband/rdma_cm",
		want: "FAIL kernel module rdma_ucm is not loaded",
	},
	"no server": {
		run: "datperf doctor 10.98.1.1:18999", want: "FAIL no datperf server to be reached at 10.98.1.1, port 18999: " +
			"connection refused",
	},
	"packets lost on the way": {
		make: cable + "tc qdisc add dev va root netem loss 100%", undo: uncable, run: overCable,
		want: "FAIL no packet has arrived at the server's port meanwhile",
	},
	"answers lost on the way": {
		make: cable + "tc qdisc add dev vb root netem loss 100%", undo: uncable, run: overCable,
		want: "FAIL the answers are lost: the server's port has received",
	},
	"small packets only": {
		make: cable + "nft 'add table netdev x; add chain netdev x i { type filter hook ingress device vb priority 0; }; " +
			"add rule netdev x i meta length > 900 drop'",
		undo: "nft delete table netdev x; " + uncable, run: overCable,
		want: "smaller messages passed: a switch or tunnel on the way has a smaller MTU",
	},
}

// In the virtual machine, doctor names the cause of each misconfiguration. Without any, it says
// ready.
func TestMisconfigurations(t *testing.T) {
	if os.Getenv("GODAT_TEST_DEVICE") != "rxe0" || !has("10.98.1.1") {
		t.Skip("not in the virtual machine")
	}
	self, err := os.Executable()
	assert.NilError(t, err)
	bin := t.TempDir()
	assert.NilError(t, os.Chmod(bin, 0o755))
	assert.NilError(t, os.Symlink(self, bin+"/datperf"))
	for dir := bin; dir != "/"; dir = dir[:max(1, strings.LastIndexByte(dir, '/'))] {
		os.Chmod(dir, 0o755) // users other than root run it too
	}
	shell := func(text string) (string, error) {
		c := exec.Command("bash", "-c", text)
		c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GOCOVERDIR=/tmp")
		c.WaitDelay = 10 * time.Second
		out, err := c.CombinedOutput()
		return string(out), err
	}
	out, err := shell("datperf doctor")
	assert.NilError(t, err, out)
	assert.Assert(t, strings.Contains(out, "\nready"), out)
	for name, c := range misconfigurations {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && c.run == overCable {
				t.Skip("a minute each")
			}
			out, err := shell("set -e; " + c.make)
			assert.NilError(t, err, out)
			defer func() {
				out, err := shell("set -e; " + c.undo)
				assert.Check(t, err, out)
			}()
			run := c.run
			if run == "" {
				run = "datperf doctor"
			}
			out, err = shell(run)
			assert.Assert(t, strings.Contains(out, c.want), "%v: %q is not in:\n%s", err, c.want, out)
			assert.Equal(t, err == nil, c.passes, "%v\n%s", err, out)
			assert.Equal(t, strings.Contains(out, "\nready"), c.passes, out)
		})
	}
}
