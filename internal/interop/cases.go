package main

import (
	"fmt"
	"strings"
	"time"
)

// What an end of a case is made of.
const (
	library  = "C"     // the program over the C library: libdaplofa, librdmacm
	provider = "godat" // the program over libdat2 and godat's provider
	goPeer   = "Go"    // a program of the folder peer, on package udat
)

// pair are the ends of a case.
type pair struct{ server, client string }

var (
	// The C programs among themselves come first: that says whose fault a failure is.
	withGo    = []pair{{library, library}, {goPeer, library}, {library, goPeer}}
	dat       = []pair{{library, library}, {provider, provider}, {provider, library}, {library, provider}}
	datWithGo = append(append([]pair{}, dat...), withGo[1:]...)
	alone     = []pair{{library, library}, {provider, provider}} // one process
)

const (
	ia   = "interop" // the adapter's name in dat.conf; dtest's server tells the client to open the same
	side = 15828     // the TCP port by which dtest, dtestx and dtestcm agree
)

// program is a case: two command lines, in which IA and ADDR are replaced. A program without a
// server is one process.
type program struct {
	name           string
	server, client string
	quit           string        // asks the server to end; else it ends with its client
	stays          bool          // the C server never ends: it is killed
	says           string        // by the server when it listens
	tcp, port      int           // of the server when it listens: TCP, rdma_cm
	passes         string        // both programs say so when they have passed
	clients        int           // at once, 0: 1
	v6             bool          // ADDR is an IPv6 address
	bound          time.Duration // 0: patience
	peer, switches string        // its Go counterpart, and what that has to know
	note           string        // why the C programs fail among themselves
	ends           []pair
}

// dtest is the program with the switches common and own, which name the case.
func dtest(common, own string, ends []pair) program {
	return dtests("dtest", common, own, "PASSED", ends)
}

func dtests(name, common, own, passes string, ends []pair) program {
	flags := strings.TrimSpace(common + " " + own)
	return program{name: strings.TrimSpace(name + " " + own), tcp: side, passes: passes, ends: ends, peer: name,
		switches: flags, server: name + " -P IA -s " + flags, client: name + " -P IA -h ADDR " + flags}
}

// dapltest is a test of the program, which the client asks the server for.
func dapltest(name, test string) program {
	kind, operands := test[:1], test[1:]
	return program{name: "dapltest " + kind + " " + name, says: "Service Point Ready", ends: datWithGo, peer: "dapltest",
		switches: "-T " + test, server: "dapltest -T S -D IA", client: "dapltest -T " + kind + " -s ADDR -D IA" + operands,
		quit: "dapltest -T Q -s ADDR -D IA"}
}

func feature(name, note string) program {
	return program{name: "dapltest F " + name, client: "dapltest -T F -D IA -f " + name, passes: "Result: PASS",
		ends: alone, note: note}
}

func limit(name string) program {
	return program{name: "dapltest L " + name, client: "dapltest -T L -D IA -m 20 -w 1 limit_" + name, ends: alone,
		passes: "ed: 20"}
}

// srq is dtestsrq with the switch that says whether it uses a shared receive queue itself.
func srq(own, note string, bound time.Duration) program {
	flags := fmt.Sprintf("-c 4 -B 3 -t 3 -b 256 %s", own)
	return program{name: "dtestsrq " + own, port: 45248, passes: "Test Complete", ends: datWithGo, peer: "dtestsrq",
		bound: bound, note: note, server: "dtestsrq -P IA " + flags, client: "dtestsrq -P IA -h ADDR " + flags}
}

// -t and -v of dtest only print: no row with Go. -u and -U of dtestx are datagrams, which neither
// the C library over rdma_cm nor godat has; its -p prints and its -q does not connect.
var cases = []program{
	dtest("-b 4096 -B 10", "", datWithGo),
	dtest("-b 4096 -B 10", "-w", datWithGo),
	dtest("-b 4096 -B 10", "-w -u", datWithGo),
	dtest("-b 4096", "-W -B 20", datWithGo),
	dtest("-b 4096", "-D -B 20", datWithGo),
	dtest("-b 64", "-W -a -B 10", datWithGo),
	dtest("-b 64", "-W -i 16 -B 10", datWithGo),
	dtest("-b 4096 -B 10", "-c", datWithGo),
	dtest("-b 4096 -B 10", "-p", datWithGo),
	dtest("-b 4096 -B 10", "-u", datWithGo),
	dtest("-b 4096 -B 10", "-S 2", datWithGo),
	dtest("-b 4096 -B 10", "-t", dat),
	dtest("-b 4096 -B 10", "-d 1", datWithGo),
	dtests("dtestx", "", "", "PASSED", datWithGo),
	dtests("dtestx", "", "-m", "PASSED", datWithGo),
	dtests("dtestx", "", "-b 4096", "PASSED", datWithGo),
	dtests("dtestcm", "-c 20 -b 5", "", "Test Complete", datWithGo),
	dtests("dtestcm", "-c 20 -b 5", "-m", "Test Complete", datWithGo),
	dtests("dtestcm", "-c 20 -b 5", "-w", "Test Complete", datWithGo),
	srq("-S 0", "", 0),
	srq("-S 1", "all messages arrive, then it waits for an event that soft-RoCE does not have, LAST_WQE_REACHED",
		40*time.Second),
	dapltest("SR", "T -i 10 -t 1 -w 1 client SR 4096 server SR 4096"),
	dapltest("SR -t 2 -w 2", "T -i 10 -t 2 -w 2 client SR 1024 2 server SR 1024"),
	dapltest("SR RW RR", "T -i 10 -t 2 -w 2 client SR 1024 2 server SR 1024 client RW 4096 server RR 512"),
	dapltest("SR RW RR -V", "T -i 10 -t 2 -w 2 -V client SR 1024 2 server SR 1024 client RW 4096 server RR 512"),
	dapltest("SR -P", "T -i 10 -t 1 -w 1 -P client SR 4096 server SR 4096"),
	dapltest("SR -r", "T -i 10 -t 1 -w 1 -r client SR 4096 server SR 4096"),
	dapltest("RW", "P -i 100 -p 8 RW 4096"),
	dapltest("RW -m p", "P -i 100 -p 8 -m p RW 4096"),
	dapltest("RR", "P -i 100 -p 4 RR 4096"),
	feature("hwconn", ""),
	feature("endpoint", ""),
	feature("pz", ""),
	feature("mem", "the C library registers a region of no bytes"),
	feature("connmgt", ""),
	limit("ia"),
	limit("pz"),
	limit("cno"),
	limit("evd"),
	limit("ep"),
	limit("rsp"),
	limit("psp"),
	limit("lmr"),
	{name: "rping -V", server: "rping -s -C 10 -V -a ADDR", client: "rping -c -C 10 -V -a ADDR", port: 7174,
		peer: "rping", ends: withGo},
	{name: "rping -V, IPv6", server: "rping -s -C 10 -V -a ADDR", client: "rping -c -C 10 -V -a ADDR", port: 7174,
		v6: true, peer: "rping", ends: withGo},
	{name: "rping -P", server: "rping -s -P -V -a ADDR", client: "rping -c -C 10 -V -a ADDR", port: 7174, stays: true,
		peer: "rping", ends: withGo},
	{name: "rping -P, 3 clients", server: "rping -s -P -V -a ADDR", client: "rping -c -C 10 -V -a ADDR", port: 7174,
		stays: true, clients: 3, peer: "rping", switches: "-clients 3", ends: withGo},
	{name: "ucmatose", server: "ucmatose -c 4 -C 4 -b ADDR", client: "ucmatose -c 4 -C 4 -s ADDR", port: 7471,
		peer: "ucmatose", ends: withGo},
	{name: "rdma_client", server: "rdma_server -s ADDR", client: "rdma_client -s ADDR", port: 7471, peer: "rdma",
		ends: withGo},
	{name: "rdma_xclient", server: "rdma_xserver -c r", client: "rdma_xclient -c r -s ADDR", port: 7471, peer: "rdmax",
		ends: withGo},
	{name: "cmtime", server: "cmtime -c 10 -b ADDR", client: "cmtime -c 10 -s ADDR", port: 7471, stays: true,
		peer: "cmtime", ends: withGo},
}
