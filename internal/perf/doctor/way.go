package doctor

import (
	"fmt"
	"strings"

	"github.com/godat/godat/internal/perf/result"
)

// Apart compares the fabric of the client's device with that of the server's device. If they
// differ, it returns a description and advice. If they are the same, it returns "".
func Apart(client, server *result.Facts) (what, advice string) {
	switch {
	case client.Fabric == server.Fabric:
		return "", ""
	case server.Fabric == Software:
		advice = "use --device " + Software + " here too"
	case client.Fabric == Software:
		advice = "start the server with --device " + Software + " too"
	default:
		advice = "use verbs devices at both ends, " + useSoftware
	}
	return fmt.Sprintf("the client's device %s is on the %s fabric, the server's %s on the %s fabric: they cannot reach "+
		"each other", client.Device, client.Fabric, server.Device, server.Fabric), advice
}

// Between compares the devices, settings and versions of the two ends.
func Between(client, server *result.Facts) []Finding {
	d := &doctor{}
	if what, advice := Apart(client, server); what != "" {
		d.find(Fail, advice, "%s", what)
		return d.findings
	}
	d.find(OK, "", "the way: %s %s at %s to %s %s at %s", client.Host, client.Device, client.Address, server.Host,
		server.Device, server.Address)
	if client.LinkLayer != server.LinkLayer {
		d.find(Fail, "choose other devices: --device",
			"the client's port is %s, the server's %s: they cannot reach each other",
			client.LinkLayer, server.LinkLayer)
	}
	if client.GIDType != server.GIDType {
		d.find(Fail, "the same kind of address at both ends; RoCE v2 takes that of IP",
			"the client's GID is %s, the server's %s", client.GIDType, server.GIDType)
	}
	if client.MTU != server.MTU {
		d.find(Note, "the same MTU for both network devices and the switches between them",
			"the client's MTU is %d, the server's %d: the smaller is used", client.MTU, server.MTU)
	}
	if client.Version != server.Version {
		d.find(Note, "install the same version", "the client is datperf %s, the server %s", client.Version, server.Version)
	}
	return d.findings
}

// Sizes of the test messages, in bytes. Small fits in one packet on any path; Large needs many full
// packets.
const (
	Small = 64
	Large = 64 << 10
)

// Tried returns findings about the runs of a plan between the two ends. The parameter fabric is the
// fabric that both ends use. The parameter err is the error of the plan, or nil if all runs
// succeeded.
func Tried(fabric string, cases []result.Case, runs []result.Run, err error) []Finding {
	d := &doctor{}
	for i := range runs {
		d.ran(&runs[i])
	}
	if err != nil && len(runs) < len(cases) {
		size := cases[len(runs)].Size
		advice := "firewalls at both ends: RoCE v2 needs UDP port 4791 open; ping from device to device; GIDs of one network"
		if fabric == Software {
			advice = "packet filters at both ends and between them: each run takes another TCP port of the server, one of " +
				"those in net.ipv4.ip_local_port_range"
		}
		switch {
		case repeated(runs):
			advice = "packets are lost on the way, see the note above: cable, switch buffers, PFC or ECN"
		case size > Small:
			advice = "smaller messages passed: a switch or tunnel on the way has a smaller MTU; set ip link MTU 1500 at both " +
				"ends, or raise that of the way"
		}
		d.find(Fail, advice, "messages of %s do not arrive: %v", result.Bytes(size), err)
		return d.findings
	}
	return d.findings
}

// repeated reports whether packets were lost or repeated in the runs. Packets that are too large
// for the way are lost all, so that the runs with smaller ones repeat none.
func repeated(runs []result.Run) bool {
	for _, r := range runs {
		if len(r.Client.Counters.Errors().List())+len(r.Server.Counters.Errors().List()) > 0 {
			return true
		}
	}
	return false
}

func (d *doctor) ran(run *result.Run) {
	d.find(OK, "", "%s of %s over the way arrives intact, median latency %s", run.Case.Test,
		result.Bytes(run.Case.Size), result.Nanos(run.Total().Latency.At(50)))
	for _, end := range []*result.End{run.Client, run.Server} {
		if lost := end.Counters.Errors().List(); len(lost) > 0 {
			d.find(Note, "cable, switch buffers, PFC or ECN", "packets were lost or repeated meanwhile: %s",
				strings.Join(lost, ", "))
		}
	}
}
