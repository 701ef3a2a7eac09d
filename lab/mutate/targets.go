package main

// loop is the verbs device in memory, which programs have that loopScript runs; tcp is RDMA over
// the loopback interface.
const (
	loop       = "loop0"
	loopScript = "lab/loopdev/loop.sh"
	tcp        = "tcp:127.0.0.1"
)

// place is a package whose tests run, and the device that they run on; "" is mem0 alone.
type place struct{ dir, device string }

// tags are the build tags of its tests.
func (p place) tags() string {
	if p.dir == "cverbs" {
		return "gateprobe"
	}
	return ""
}

func (p place) String() string {
	if p.device == "" {
		return p.dir
	}
	return p.dir + " on " + p.device
}

// target is a package that ships: its files are broken.
type target struct {
	dir    string  // below the root
	tags   string  // of its build
	tests  []place // that a mutant meets, in this order
	partly bool    // the device of the tests lacks much: only lines that the first of them run are broken
}

var targets = []target{
	{dir: "udat", tests: []place{{dir: "udat"}}},
	{dir: "udat/internal/softnic",
		tests: []place{{dir: "udat/internal/softnic"}, {dir: "udat/internal/memfabric"}, {dir: "udat/internal/tcpfabric"},
			{dir: "udat"}}},
	{dir: "udat/internal/memfabric", tests: []place{{dir: "udat/internal/memfabric"}, {dir: "udat"}}},
	{dir: "udat/internal/tcpfabric", tests: []place{{dir: "udat/internal/tcpfabric"}, {"udat", tcp}}},
	{dir: "udat/internal/tcpfabric/iwarp", tests: []place{{dir: "udat/internal/tcpfabric/iwarp"}}},
	{dir: "udat/internal/verbsfabric", partly: true,
		tests: []place{{"udat/internal/verbsfabric", loop}, {"udat", loop}}},
	{dir: "udat/internal/verbsfabric/cm", partly: true,
		tests: []place{{"udat/internal/verbsfabric", loop}, {dir: "udat/internal/verbsfabric/cm"}, {"udat", loop}}},
	{dir: "udat/internal/verbsfabric/errmap", tests: []place{{dir: "udat/internal/verbsfabric/errmap"}}},
	{dir: "udat/internal/verbsfabric/soft", partly: true, tests: []place{{dir: "udat/internal/verbsfabric/soft"}}},
	{dir: "rdmanet", tests: []place{{dir: "rdmanet"}, {"rdmanet", loop}}},
	{dir: "cverbs", partly: true, tests: []place{{"cverbs", loop}, {"udat/internal/verbsfabric", loop}}},
	{dir: "udat/internal/fabric/faultfabric", tests: []place{{dir: "udat/internal/fabric/faultfabric"}}},
	{dir: "internal/blocker", tests: []place{{dir: "internal/blocker"}}},
	{dir: "internal/hostmem", tests: []place{{dir: "internal/hostmem"}}},
	// Its tests build it, and name their devices.
	{dir: "cmd/libgodat", tags: "dat2", tests: []place{{dir: "cmd/libgodat"}}},
}
