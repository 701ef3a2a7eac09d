package main

import "strings"

// explained lists the known differences from TCP: the package, the test (with its subtests), and
// the reason.
var explained = []struct{ pkg, test, why string }{
	{"net", "TestBuffers_WriteTo", "counts the system calls writev"},
	{"net/http", "TestLinuxSendfile", "takes the file descriptor of a net.TCPListener"},
	{"google.golang.org/grpc", "Test/DialWithTimeout",
		"leaves an accepted connection open and looks for goroutines: an open connection of rdmanet has some " +
			"(passes with a Close)"},
	{"google.golang.org/grpc/internal/transport", "Test/TCPUserTimeout", "reads an option of a TCP socket"},
	{"google.golang.org/grpc/internal/transport", "Test/HTTPConnectWithServerHello",
		"leaves a Listener open and looks for goroutines: an open Listener of rdmanet has some (passes with a Close)"},
	{"github.com/hashicorp/raft", "TestTCPTransport_BadAddr",
		"wants an unspecified address from a Listener on all addresses: that of rdmanet has the address of its device"},
	{"github.com/hashicorp/raft", "TestTCPTransport_EmptyAddr", "as TestTCPTransport_BadAddr"},
	{"github.com/hashicorp/raft", "TestNetworkTransport_AppendEntriesPipeline_CloseStreams",
		"a race of the test, 14 of 300 runs fail with TCP: it wants Accept to return within the time of ten writes " +
			"(200 of 200 pass with 20 ms between)"},
	{"github.com/hashicorp/raft", "TestNetworkTransport_CloseStreams",
		`waits 200 ms for the first request, and serves none after that ("i/o timeout"). On a machine with a load of 10, ` +
			`7 of 60 runs on loop0 at nice 12 fail so, 1 of 60 over TCP, and 0 of 120 on loop0 with a processor when they ` +
			`want it (chrt -f)`},
	{"github.com/tidwall/redcon", "TestServerTCP",
		"a race of the test: it closes its server half a second after the start; on a busy machine its dial came later"},
	{"github.com/hashicorp/yamux", "TestSendData_Large",
		"wants 250 MiB within 10 s, and each answer within 250 ms: soft-RoCE in the User Mode Linux takes 52 s beside a " +
			"load of 20 (passes with limits of 100 and 30 s)"},
	{"github.com/hashicorp/yamux", "TestHalfCloseSessionShutdown",
		"wants each write within 250 ms: fails over TCP too on a busy machine, 1 of 2 runs (5 of 5 pass with 30 s on rxe0)"},
	{"github.com/hashicorp/yamux", "TestReadDeadline_BlockedRead",
		"wants each write within 250 ms, and a deadline to be noticed within 100 ms (5 of 5 pass with 30 and 10 s on rxe0)"},
	{"github.com/hashicorp/yamux", "TestOpenStreamTimeout", "waits 125 ms: 8 of 40 runs fail with TCP on a busy machine"},
	{"github.com/hashicorp/yamux", "TestCloseBeforeAck",
		`wants each write within 250 ms ("connection write timeout"): beside a load of 4 to 18, 11 of 4,200 runs fail over ` +
			`TCP and 11 of 4,200 on mem0`},
	{"github.com/soheilhy/cmux", "TestTimeout", "a race of the test, 2 of 5 runs fail with TCP on a busy machine: " +
		"a Close must return before the peer, which reads what was written before, closes the listener"},
	{"github.com/valyala/fasthttp", "TestResponseVectoredWriteAllocations",
		"wants no allocation in the process while it writes: a goroutine of rdmanet that starts makes one"},
	{"github.com/valyala/fasthttp", "TestResponseVectoredWriteThroughPerIPConn", "wants writev of a net.TCPConn"},
}

// explanation returns the reason why a test differs from TCP, and the name under which explained
// lists the test. If there is no reason, it returns the test's own name and "".
func explanation(pkg, test string) (label, why string) {
	for _, e := range explained {
		if e.pkg == pkg && (e.test == test || strings.HasPrefix(test, e.test+"/")) {
			return e.test, e.why
		}
	}
	return test, ""
}
