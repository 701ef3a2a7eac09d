package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cut interrupts the network between the two hosts for the time d, beginning after a second.
func (r *round) cut(d time.Duration) error {
	return r.runEverywhere(fmt.Sprintf("(sleep 1; tc qdisc replace dev eth0 root netem loss 100%%; sleep %d; "+
		"tc qdisc del dev eth0 root) >/dev/null 2>&1 </dev/null &", int(d.Seconds())))
}

func partitionRow(d time.Duration) scenario {
	return scenario{group: "two hosts", name: fmt.Sprintf("partition of %v", d), ends: disconnected, within: soon,
		promise: "no event; the traffic goes on where it stood",
		rounds:  map[string][2]int{"cable": {1, 5}, "tcphosts": {1, 5}},
		act: outlived(10*time.Minute, func(r *round) error {
			if err := r.cut(d); err != nil {
				return err
			}
			time.Sleep(d + 2*time.Second)
			return nil
		})}
}

// longPartition interrupts the network for longer than the keep-alive's bound.
func longPartition(r *round) error {
	if err := r.mayEnd(); err != nil {
		return err
	}
	return r.cut(time.Minute)
}

// vanish switches the other host off, for longer than the keep-alive's bound of 40 seconds.
func vanish(r *round) error {
	return r.sysrq(`touch "$GODAT_OUT/away"; sync; (sleep 1; echo o >/proc/sysrq-trigger)`)
}

// restart resets the other host, which must be back within the keep-alive's bound.
func restart(r *round) error {
	if err := r.sysrq("(sleep 1; echo b >/proc/sysrq-trigger)"); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	conn, err := dial(r.at)
	if err != nil {
		return err
	}
	conn.Close()
	if took := time.Since(r.began); took > 35*time.Second {
		return fmt.Errorf("the other host is back after %v only: nobody could take it for the one before", took)
	}
	return nil
}

// sysrq ends the other host with a command that its shell runs.
func (r *round) sysrq(command string) error {
	r.e.mayEnd.Store(true)
	r.began = time.Now()
	_, err := r.p.do(order{Do: "shell", Shell: command + " >/dev/null 2>&1 </dev/null &"})
	return err
}

const (
	hostNumber = "ip -o addr show dev eth0 | grep -q 10.98.0.1/ && n=1 || n=2; "
	// The GID table gets an entry for each address, in the order of the addresses. 0a63 is 10.99.
	vlanUp = hostNumber + "modprobe 8021q && ip link add link eth0 name vlan9 type vlan id 9 && ip link set vlan9 up && " +
		"ip addr add fd99::$n/64 dev vlan9 nodad && ip addr add 10.99.0.$n/24 dev vlan9 && " +
		"until " + vlanGID + "; do sleep 0.1; done"
	vlanDown = "ip link delete vlan9; while " + vlanGID + "; do sleep 0.1; done"
	vlanGID  = "grep -q ffff:0a63 /sys/class/infiniband/rxe0/ports/1/gids/*"
)

// networkRow returns a row in which each host opens its device by an address. The parameter via is
// the address, with %d for the number of the host.
func networkRow(name, via string) scenario {
	s := scenario{group: "two hosts", name: "connections by " + name, act: overNetwork, via: via,
		promise: "both ends have the addresses; " + unharmed, ends: disconnected, within: soon,
		rounds: map[string][2]int{"cable": {2, 20}, "tcphosts": {2, 20}}}
	if strings.Contains(name, "VLAN") {
		s.before, s.after = vlanUp, vlanDown
	}
	return s
}

// overNetwork checks that the connections use the addresses by which the hosts have opened their
// devices.
func overNetwork(r *round) error {
	other, err := netip.ParseAddr(fmt.Sprintf(r.row.via, 2))
	if err != nil {
		return err
	}
	for _, l := range r.e.links {
		if remote := l.ep.RemoteAddr().Addr(); remote != other {
			return fmt.Errorf("%s is connected to %v, must be to %v", l.name(), remote, other)
		}
	}
	err = countVLAN(r.row.via, func() error { return r.traffic(vlanPackets) })
	if err != nil {
		return err
	}
	return r.leave()
}

// vlanPackets is the number of packets that a VLAN must carry while its addresses are used.
const vlanPackets = 500

// countVLAN runs f, which uses the given address. If the address is in the VLAN, the VLAN must
// carry at least vlanPackets packets meanwhile.
func countVLAN(via string, f func() error) error {
	if !strings.Contains(via, "99") {
		return f()
	}
	carried := func() (int, error) {
		b, err := os.ReadFile("/sys/class/net/vlan9/statistics/rx_packets")
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(string(bytes.TrimSpace(b)))
	}
	before, err := carried()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := carried()
	if err == nil && after-before < vlanPackets {
		err = fmt.Errorf("the VLAN has carried %d packets, must carry %d", after-before, vlanPackets)
	}
	return err
}

// datperfBetween measures with a datperf server on the other host. It connects to each address of
// that host.
func datperfBetween(r *round) error {
	datperf := filepath.Join(r.tests, "datperf")
	device, work := "", "-l all -n 50"
	if r.kind == "tcphosts" {
		device, work = " --device tcp", "-l udat -n 1000" // no verbs, and TCP makes larger packets
	}
	server := datperf + " server" + device + " >/tmp/datperf 2>&1 </dev/null & echo $! >/tmp/datperf.pid"
	if err := r.runThere(server); err != nil {
		return err
	}
	client := "for try in 1 2 3 4 5; do sleep 1; " + datperf + " client %s" + device + " -t send,write,read -m bw " +
		work + " -s 4K --poll event --verify >/tmp/client 2>&1 && exit; done; cat /tmp/client; false"
	for _, via := range []string{"10.98.0.2", "fd98::2", "10.99.0.2", "fd99::2"} {
		err := countVLAN(via, func() error { return r.runHere(fmt.Sprintf(client, via)) })
		if err != nil {
			return errors.Join(err, r.runThere("cat /tmp/datperf; false"))
		}
	}
	if err := r.runThere("kill -TERM $(cat /tmp/datperf.pid)"); err != nil {
		return err
	}
	return r.goOn()
}

var hostsGroup = []scenario{
	networkRow("IPv4", "10.98.0.%d"),
	networkRow("IPv6", "fd98::%d"),
	networkRow("link-local IPv6", "fe80::5eff:fe98:10%d%%eth0"),
	networkRow("IPv4 in a VLAN", "10.99.0.%d"),
	networkRow("IPv6 in a VLAN", "fd99::%d"),
	{group: "two hosts", name: "datperf between the hosts, by IPv4, IPv6, and both in a VLAN", act: datperfBetween,
		tests: true, via: "10.98.0.%d", before: vlanUp, after: vlanDown,
		promise: "it measures with verified data; other connections go on", ends: disconnected, within: soon,
		rounds: map[string][2]int{"cable": {1, 5}, "tcphosts": {1, 5}}},
	partitionRow(time.Second), partitionRow(10 * time.Second),
	{group: "two hosts", name: "partition of 60s, longer than the keep-alive's bound", act: longPartition,
		promise: "BROKEN at each end; " + leaves,
		ends:    broken, within: 2 * time.Minute, rounds: map[string][2]int{"cable": {1, 5}, "tcphosts": {1, 5}}},
	{group: "two hosts", name: "the other host starts anew within the keep-alive's bound", act: restart, kills: true,
		promise: "the new host does not answer for the one before: BROKEN; what completed had arrived; " +
			"all else posted is flushed",
		ends: broken, within: 2 * time.Minute, rounds: map[string][2]int{"cable": {1, 5}}},
	{group: "two hosts", name: "the same, over TCP", act: restart, kills: true,
		promise: "the new host refuses what was for the one before; " + leaves,
		ends:    ended, within: 2 * time.Minute, rounds: map[string][2]int{"tcphosts": {1, 5}}},
	{group: "two hosts", name: "the other host is switched off", act: vanish, kills: true,
		promise: "BROKEN; what completed had arrived; all else posted is flushed",
		ends:    broken, within: 2 * time.Minute, rounds: map[string][2]int{"cable": {1, 5}, "tcphosts": {1, 5}}},
}
