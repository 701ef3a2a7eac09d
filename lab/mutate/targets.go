package main

// loop is the loop device, a verbs device in memory. The script loopScript runs a program with that
// device. tcp is RDMA over the loopback interface.
const (
	loop       = "loop0"
	loopScript = "lab/loopdev/loop.sh"
	tcp        = "tcp:127.0.0.1"
)

// place is a package whose tests run, and the device on which they run. Without a device they run
// on mem0.
type place struct{ dir, device string }

func (p place) String() string {
	if p.device == "" {
		return p.dir
	}
	return p.dir + " on " + p.device
}

// asGate returns the flags with which the gate builds the tests at this place: make test-race,
// test-loop and test-tcp.
func (p place) asGate() []string {
	switch {
	case p.device == "":
		return []string{"-race", "-tags", "lockcheck"}
	case p.device == loop && p.dir != "rdmanet":
		return []string{"-race"}
	}
	return nil
}

// target is a package that ships, whose files are mutated.
type target struct {
	dir    string  // path below the root
	tags   string  // build tags
	tests  []place // where its mutants are tested, in this order
	partly bool    // the tests' device lacks much, so only lines that the first of the tests run are mutated
}

var targets = []target{
	{dir: "udat", tests: []place{{dir: "udat"}}},
	{dir: "udat/internal/softnic",
		tests: []place{{dir: "udat/internal/softnic"}, {dir: "udat/internal/memfabric"}, {dir: "udat/internal/tcpfabric"},
			{dir: "udat"}}},
	{dir: "udat/internal/memfabric", tests: []place{{dir: "udat/internal/memfabric"}, {dir: "udat"}}},
	{dir: "udat/internal/tcpfabric", tests: []place{{dir: "udat/internal/tcpfabric"}, {"udat", tcp}}},
	{dir: "udat/internal/tcpfabric/iwarp",
		tests: []place{{dir: "udat/internal/tcpfabric/iwarp"}, {dir: "udat/internal/tcpfabric"}}},
	{dir: "udat/internal/verbsfabric", partly: true,
		tests: []place{{"udat/internal/verbsfabric", loop}, {"udat", loop}}},
	{dir: "udat/internal/verbsfabric/cm", partly: true,
		tests: []place{{"udat/internal/verbsfabric", loop}, {dir: "udat/internal/verbsfabric/cm"}, {"udat", loop}}},
	{dir: "udat/internal/verbsfabric/errmap", tests: []place{{dir: "udat/internal/verbsfabric/errmap"}}},
	{dir: "udat/internal/verbsfabric/soft", partly: true, tests: []place{{dir: "udat/internal/verbsfabric/soft"}}},
	{dir: "rdmanet", tests: []place{{dir: "rdmanet"}, {"rdmanet", loop}, {"rdmanet", tcp}}},
	{dir: "cverbs", partly: true, tests: []place{{"cverbs", loop}, {"udat/internal/verbsfabric", loop}}},
	{dir: "udat/internal/fabric/faultfabric", tests: []place{{dir: "udat/internal/fabric/faultfabric"}}},
	{dir: "internal/blocker", tests: []place{{dir: "internal/blocker"}}},
	{dir: "internal/hostmem", tests: []place{{dir: "internal/hostmem"}}},
	{dir: "internal/perf/result",
		tests: []place{{dir: "internal/perf/result"}, {dir: "internal/perf/report"}, {dir: "internal/perf/engine"}}},
	{dir: "internal/perf/counters", tests: []place{{dir: "internal/perf/counters"}}},
	{dir: "internal/perf/doctor", tests: []place{{dir: "internal/perf/doctor"}}},
	// The tests of libgodat build the library, and choose their devices themselves.
	{dir: "cmd/libgodat", tags: "dat2", tests: []place{{dir: "cmd/libgodat"}}},
}
