package main

import (
	"fmt"
	"time"
)

// disturb returns the function of a scenario: it runs a command on one of the two hosts. After the
// time d it runs the command undo on the same host. In even rounds it runs both commands on this
// host.
func disturb(command, undo string, d time.Duration) func(*round) error {
	return func(r *round) error {
		if err := r.mayEnd(); err != nil {
			return err
		}
		on := r.runHere
		if r.n%2 == 1 {
			on = r.runThere
		}
		const over = "/tmp/undone"
		err := on(fmt.Sprintf("rm -f %s; (sleep 1; %s; sleep %d; %s; touch %s) >/dev/null 2>&1 </dev/null &", over, command,
			int(d.Seconds()), undo, over))
		if err != nil {
			return err
		}
		time.Sleep(time.Until(r.began.Add(d + time.Second))) // meanwhile the other host may be unreachable
		return on("until [ -e " + over + " ]; do sleep 0.1; done")
	}
}

// lossRow returns a row in which one of two hosts loses its link or its address.
func lossRow(name, command, undo string, d time.Duration, rounds, long int) scenario {
	return scenario{group: "link and device", name: name, act: disturb(command, undo, d),
		promise: leaves, ends: ended, within: 2 * time.Minute,
		rounds: map[string][2]int{"cable": {rounds, long}}}
}

// overTCP returns the same row for the fabric tcp. On tcp the connections go on, because TCP
// retransmits.
func overTCP(s scenario) scenario {
	s.name += ", over TCP"
	s.act, s.promise, s.ends = outlived(s.within, s.act), unharmed, disconnected
	s.rounds = map[string][2]int{"tcphosts": s.rounds["cable"]}
	return s
}

// onTCP returns a row for two hosts that also runs between two hosts on tcp, with the same numbers
// of rounds.
func onTCP(s scenario) scenario {
	s.rounds["tcphosts"] = s.rounds["cable"]
	return s
}

// outlived returns the function of a scenario. The function calls act. After act has returned, the
// traffic must go on within the time limit.
func outlived(limit time.Duration, act func(*round) error) func(*round) error {
	return func(r *round) error {
		if err := act(r); err != nil {
			return err
		}
		if err := r.slowTraffic(100, limit); err != nil {
			return err
		}
		return r.leave()
	}
}

// routesRow returns a row in which one of two hosts loses its routes of an IP version. Connections
// over IPv4 go on: soft-RoCE keeps the route that a queue pair has found.
func routesRow(version, via string) scenario {
	s := lossRow("IPv"+version+" routes deleted for 3 s, at each end", fmt.Sprintf(routesGone, version),
		fmt.Sprintf(routesBack, version), 3*time.Second, 2, 10)
	s.via = via
	if version == "4" {
		s.act, s.promise, s.ends = outlived(s.within, s.act), unharmed, disconnected
	}
	return s
}

const (
	// A link that goes down loses its IPv6 addresses, so they are saved before.
	linkDown    = addrSaved + "ip link set eth0 down"
	linkUp      = "ip link set eth0 up; " + addrBack
	addrRemoved = addrSaved + "ip addr flush dev eth0"
	addrSaved   = "ip -o addr show dev eth0 | awk '{print $4}' >/tmp/addr; "
	addrBack    = "for a in $(grep : /tmp/addr); do ip addr add $a dev eth0 nodad; done; " +
		"for a in $(grep -v : /tmp/addr); do ip addr add $a dev eth0; done"

	routesGone = "ip -%s route show dev eth0 >/tmp/routes; ip -%[1]s route flush dev eth0"
	routesBack = "while read r; do ip -%s route add $r dev eth0; done </tmp/routes"

	// The host remembers the small MTU of a path for 10 minutes, unless the route locks another MTU.
	otherHost = "ip addr show dev eth0 | grep -q 10.98.0.1/ && other=10.98.0.2 || other=10.98.0.1; "
	mtuSmall  = "ip route del $other; ip link set eth0 mtu 700"
	mtuBack   = "ip link set eth0 mtu 1500; ip route add $other dev eth0 mtu lock 1500"
)

var deviceGroup = []scenario{
	lossRow("link down for 1 s, at each end", linkDown, linkUp, time.Second, 2, 10),
	lossRow("link down for 3 s", linkDown, linkUp, 3*time.Second, 1, 10),
	overTCP(lossRow("link down for 3 s, at each end", linkDown, linkUp, 3*time.Second, 2, 10)),
	onTCP(lossRow("link down for longer than the keep-alive's bound", linkDown, linkUp, 90*time.Second, 1, 4)),
	lossRow("addresses removed for 3 s, at each end", addrRemoved, addrBack, 3*time.Second, 2, 10),
	overTCP(lossRow("addresses removed for 3 s, at each end", addrRemoved, addrBack, 3*time.Second, 2, 10)),
	onTCP(routesRow("4", "10.98.0.%d")), routesRow("6", "fd98::%d"), overTCP(routesRow("6", "fd98::%d")),
	// No RDMA reads: soft-RoCE reports a read as done although it could not send the answer.
	{group: "link and device", name: "MTU of 700 bytes, too small for the packets, for 10 s, without RDMA reads",
		act:     outlived(2*time.Minute, disturb(otherHost+mtuSmall, otherHost+mtuBack, 10*time.Second)),
		noReads: true, promise: unharmed, ends: disconnected, within: 2 * time.Minute,
		rounds: map[string][2]int{"cable": {2, 8}, "tcphosts": {2, 8}}},
}
