package main

import (
	"fmt"
	"strings"
	"time"
)

// Kinds of ends of a case.
const (
	library  = "C"     // the program over the C library: libdaplofa, librdmacm
	provider = "godat" // the program over libdat2 and godat's provider
	goPeer   = "Go"    // a program of the folder peer, on package udat
	overTCP  = "tcp"   // like godat or Go, but on the tcp fabric of the same address
)

// pair contains the kinds of the two ends of a case.
type pair struct{ server, client string }

var (
	// Two C programs over the C library are the first pair of each list. If they fail, they are also
	// the cause of the other failures of the case.
	dat    = []pair{{library, library}, {provider, provider}, {provider, library}, {library, provider}}
	alone  = dat[:2] // for cases of one process
	withGo = []pair{{library, library}, {goPeer, library}, {library, goPeer}}
	// On soft-iWARP the other end of the C programs is a process on the tcp fabric.
	withTCP = []pair{{library, library}, {overTCP, library}, {library, overTCP}}
	// goWithTCP is for cases whose programs exist only in Go.
	goWithTCP = []pair{{goPeer, goPeer}, {overTCP, goPeer}, {goPeer, overTCP}, {overTCP, overTCP}}
)

// endsOn returns the ends of the case on a device.
func (c *program) endsOn(device string) []pair {
	switch {
	case !iwarp(device):
		return c.ends
	case c.server == "": // one process
		return nil
	case c.ends == nil:
		return goWithTCP
	}
	return withTCP
}

func iwarp(device string) bool { return strings.HasPrefix(device, "siw") }

const (
	ia   = "interop" // the adapter's name in dat.conf; dtest's server tells the client to open an adapter of the same name
	side = 15828     // the TCP port by which dtest, dtestx and dtestcm agree
)

// program is a case: two command lines, in which IA and ADDR are replaced. A case without a server
// is one process. A case whose field ends is nil exists only in Go, and runs on soft-iWARP.
type program struct {
	name           string
	server, client string
	quit           string        // asks the server to end; empty: the server ends with its client
	stays          bool          // the C server never ends: it is killed
	says           string        // what the server prints when it listens
	tcp, port      int           // ports on which the server listens: of TCP, of rdma_cm
	passes         string        // what both programs print when they have passed
	served         string        // unless empty, what the server prints instead of passes
	dapltest       bool          // the program prints what has failed, and exits with status 0
	harmless       []string      // parts of lines that look like a failure, but are none
	clients        int           // number of clients at the same time; 0: 1
	v6             bool          // ADDR is an IPv6 address
	bound          time.Duration // 0: patience
	peer, switches string        // the program's Go counterpart, and switches of its server
	note           string        // why the C programs fail among themselves
	unlike         string        // why an end on the tcp fabric and one on soft-iWARP fail
	ends           []pair
}

// dtest returns the case of the program dtest with the switches of both parameters. The variant is
// also a part of the case's name.
func dtest(common, variant string) program { return dtests("dtest", common, variant, "PASSED") }

func dtests(name, common, own, passes string) program {
	flags := strings.TrimSpace(common + " " + own)
	return program{name: strings.TrimSpace(name + " " + own), tcp: side, passes: passes, ends: dat,
		server: name + " -P IA -s " + flags, client: name + " -P IA -h ADDR " + flags}
}

// immediate marks a case in which each end uses immediate data if its own adapter supports that.
func immediate(c program) program {
	c.unlike = "each end uses immediate data if its own adapter has it, and only tcp has it"
	c.bound = 30 * time.Second
	return c
}

// dapltest returns a case of the program dapltest. The argument test begins with a letter for the
// kind of test. A test of kind T is made of transactions of many endpoints. A test of kind P
// repeats one operation many times. The client asks the server for the test.
func dapltest(name, test string) program {
	kind, operands := test[:1], test[1:]
	p := program{name: "dapltest " + kind + " " + name, says: "Service Point Ready", ends: dat, dapltest: true,
		server: "dapltest -T S -D IA", client: "dapltest -T " + kind + " -s ADDR -D IA" + operands,
		quit: "dapltest -T Q -s ADDR -D IA", passes: "Total WQE", served: "Server: Transaction Test Finished"}
	if kind == "P" {
		p.passes, p.served = "Operation Throughput", "Server: Finished performance test.  Exiting."
		p.note = sendsFirst
	}
	return p
}

// bandwidth returns the case of one of perftest's programs over the connection manager.
func bandwidth(name string) program {
	const flags = " -R -F -n 100 -s 4096"
	return program{name: name + " -R", server: name + flags, client: name + flags + " ADDR", port: 18515, peer: name,
		ends: withGo}
}

// credits marks a case whose client, on iWARP, waits for credits that the server must send in
// messages.
func credits(c program) program {
	c.unlike, c.bound = "on iWARP its client waits for credits before the last message, and the Go server gives none",
		30*time.Second
	return c
}

// noted returns a copy of the case with a note: the reason why the case fails between two C
// programs.
func (p program) noted(why string) program {
	p.note = why
	return p
}

func feature(name, note string) program {
	return program{name: "dapltest F " + name, client: "dapltest -T F -D IA -f " + name, passes: "Result: PASS",
		ends: alone, note: note, dapltest: true, harmless: []string{"getaddrinfo () failed"}} // no server runs
}

// limit returns a case that creates objects of a kind on several adapters, until a creation fails
// or the number of -m is reached.
func limit(name, passes, note string) program {
	return program{name: "dapltest L " + name, client: "dapltest -T L -D IA -m 20 -w 4 limit_" + name, ends: alone,
		passes: passes, note: note, dapltest: true, harmless: []string{"dat_ep_post_recv fails: DAT_INSUFFICIENT_RESOURCES"}}
}

// manners returns the case of a test of cmd/libgodat/testdata/host.c.
func manners(name, note string) program {
	return program{name: "host " + name, client: "host IA " + name, passes: "ok", ends: alone, note: note,
		bound: 60 * time.Second}
}

// srq returns the case of dtestsrq. The parameter variant is the switch that selects whether the
// program uses a shared receive queue.
func srq(variant, note string, bound time.Duration) program {
	flags := fmt.Sprintf("-c 4 -B 3 -t 3 -b 256 %s", variant)
	return program{name: "dtestsrq " + variant, port: 45248, passes: "Test Complete", ends: dat, bound: bound, note: note,
		server: "dtestsrq -P IA " + flags, client: "dtestsrq -P IA -h ADDR " + flags}
}

const (
	leftObjects = "in some runs, on soft-RoCE with objects that are not freed when the server closes the adapter"
	noQueue     = leftObjects + ";\n  on soft-iWARP it crashes, in dat_evd_create or a post, after a queue could not be " +
		"made:\n  the server in 8 of 8 runs C, C, and the client in 8 of 8 with a server on `tcp`"
	sendsFirst = "in some runs (2 of 58). The server sends first, which iWARP forbids: if the message is there\n" +
		"  when the client reads the answer to its request, soft-iWARP fails the connection, the server's\n" +
		"  operations fail (dapltest calls every status but a flush LengthError), the client does not end"
)

// cases lists all cases. Some switches of dtestx have no case: -u and -U need datagrams, which
// neither the C library over rdma_cm nor godat has. -p only prints, and -q does not connect.
var cases = []program{
	dtest("-b 4096 -B 10", ""),
	immediate(dtest("-b 4096 -B 10", "-w")),
	immediate(dtest("-b 4096 -B 10", "-w -u")),
	dtest("-b 4096", "-W -B 20"),
	dtest("-b 4096", "-D -B 20"),
	dtest("-b 64", "-W -a -B 10"),
	dtest("-b 64", "-W -i 16 -B 10"),
	dtest("-b 4096 -B 10", "-c"),
	dtest("-b 4096 -B 10", "-p"),
	dtest("-b 4096 -B 10", "-u"),
	dtest("-b 4096 -B 10", "-S 2"),
	dtest("-b 4096 -B 10", "-t"),
	dtest("-b 4096 -B 10", "-d 1"),
	dtests("dtestx", "", "", "PASSED"),
	dtests("dtestx", "", "-m", "PASSED"),
	dtests("dtestx", "", "-b 4096", "PASSED"),
	dtests("dtestcm", "-c 20 -b 5", "", "Test Complete"),
	dtests("dtestcm", "-c 20 -b 5", "-m", "Test Complete"),
	dtests("dtestcm", "-c 20 -b 5", "-w", "Test Complete"),
	srq("-S 0", "", 0),
	srq("-S 1", "on soft-RoCE it waits, after all messages, for an event that is missing there, LAST_WQE_REACHED",
		40*time.Second),
	dapltest("SR", "T -i 100 -t 1 -w 1 client SR 4096 server SR 4096"),
	dapltest("SR 1 byte", "T -i 100 -t 1 -w 1 -V client SR 1 server SR 1"),
	dapltest("SR 64 KiB", "T -i 100 -t 1 -w 1 -V client SR 65536 server SR 65536"),
	dapltest("SR 1 MiB", "T -i 20 -t 1 -w 1 -V client SR 1048576 server SR 1048576"),
	dapltest("SR -t 2 -w 2", "T -i 100 -t 2 -w 2 client SR 1024 2 server SR 1024"),
	dapltest("SR RW RR", "T -i 100 -t 2 -w 2 client SR 1024 2 server SR 1024 client RW 4096 server RR 512"),
	dapltest("SR RW RR -V", "T -i 100 -t 2 -w 2 -V client SR 1024 2 server SR 1024 client RW 4096 server RR 512"),
	dapltest("RW RR 1 byte", "T -i 100 -t 1 -w 1 -V client RW 1 server RR 1"),
	dapltest("RW RR 1 MiB", "T -i 20 -t 1 -w 1 -V client RW 1048576 server RR 1048576"),
	dapltest("32 threads", "T -i 20 -t 32 -w 1 -V client SR 1024 server SR 1024").noted(leftObjects),
	dapltest("128 endpoints", "T -i 20 -t 32 -w 4 -V client SR 1024 server RW 1024 client RR 256").noted(noQueue),
	dapltest("SR -P", "T -i 100 -t 1 -w 1 -P client SR 4096 server SR 4096"),
	dapltest("SR -r", "T -i 100 -t 1 -w 1 -r client SR 4096 server SR 4096"),
	dapltest("SR -r -t 4 -w 4", "T -i 20 -t 4 -w 4 -r client SR 4096 server SR 4096"),
	dapltest("RW", "P -i 100 -p 8 RW 4096"),
	dapltest("RW 1 byte", "P -i 100 -p 8 RW 1"),
	dapltest("RW 1 MiB", "P -i 20 -p 4 RW 1048576"),
	dapltest("RW -p 1", "P -i 100 -p 1 RW 4096"),
	dapltest("RW -p 64", "P -i 200 -p 64 RW 4096"),
	dapltest("RW -m p", "P -i 100 -p 8 -m p RW 4096"),
	dapltest("RR", "P -i 100 -p 4 RR 4096"),
	dapltest("RR 1 byte", "P -i 100 -p 4 RR 1"),
	dapltest("RR -p 1", "P -i 100 -p 1 RR 4096"),
	dapltest("RR -m p", "P -i 100 -p 4 -m p RR 4096"),
	dapltest("RR 1 MiB", "P -i 20 -p 4 RR 1048576"),
	feature("hwconn", ""),
	feature("endpoint", ""),
	feature("pz", ""),
	feature("mem", "the C library registers a region of no bytes"),
	feature("connmgt", ""),
	limit("ia", "IAs opened: 20", ""),
	limit("pz", "PZs created: 20", ""),
	limit("cno", "CNOs created: 20", ""),
	limit("evd", "EVDs created: 20", ""),
	limit("ep", "EPs created: 20", ""),
	limit("rsp", "RSPs created: 20", ""),
	limit("psp", "PSPs created: 20", ""),
	limit("lmr", "LMRs created: 20", ""),
	limit("rpost", "recv buffers posted per EP", ""),
	limit("size_lmr", "OK - stopping now", ""),
	manners("handler_after", ""),
	manners("handler_before", ""),
	manners("call_in_handler", ""),
	manners("signals_before", ""),
	manners("signals_after", ""),
	manners("sigwait", ""),
	manners("mask", ""),
	manners("interrupt", "a signal does not end a wait"),
	manners("small_stacks", ""),
	manners("coroutines", ""),
	manners("coroutine_cost", ""),
	manners("cancel", "a cancelled wait goes on for ever, without its thread"),
	manners("fork", "calls in the child hang"),
	manners("fork_first", ""),
	manners("exit_with_waiters", ""),
	manners("close_with_waiters", "closing the adapter does not end a wait"),
	manners("threads", ""),
	manners("profile", ""),
	manners("children", "calls in the child hang"),
	manners("short_threads", ""),
	manners("double_free", "it crashes"),
	manners("dlclose", ""),
	manners("few_files", "it crashes"),
	manners("address_space", ""),
	manners("locked_memory", ""),
	manners("environment", ""),
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
	credits(bandwidth("ib_send_bw")),
	bandwidth("ib_write_bw"),
	bandwidth("ib_read_bw"),
	{name: "setup", server: "server", client: "client", port: 7473, peer: "setup"},
	{name: "cmtime", server: "cmtime -c 10 -b ADDR", client: "cmtime -c 10 -s ADDR", port: 7471, stays: true,
		peer: "cmtime", ends: withGo},
}
