package main

import (
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

// scenario is one row of the page: what is done to a pair of ends under traffic, and what must
// follow.
type scenario struct {
	group   string
	name    string
	promise string
	act     func(*round) error // the scenario's function; it returns when it has done what makes the connections end
	tests   bool               // the row needs the programs of the flag -tests
	kills   bool               // the peer's process ends
	alone   bool               // the row has no links: it consists of the function act, which returns within the bound
	noReads bool               // no connection carries RDMA reads
	via     string             // address by which a host opens its device, with %d for its number; empty: by name
	before  string             // command of both hosts, before they open their devices
	after   string             // command of both hosts, after they have closed their devices
	ends    []udat.EventNumber // the events that may end a link at this end
	within  time.Duration      // from the cause to the last event
	rounds  map[string][2]int  // by kind of fabric: rounds without and with -long; no entry: it does not run
	why     map[string]string  // by kind of fabric: why the row does not run there
}

// leaveOut removes kinds of fabric from the row. Each entry has a kind and the reason, such as
// "siw: no windows".
func (s *scenario) leaveOut(notOn []string) {
	for _, entry := range notOn {
		kind, why, _ := strings.Cut(entry, ": ")
		s.why[kind] = why
		delete(s.rounds, kind)
	}
}

// exceptOn is leaveOut in a form that returns the row.
func (s scenario) exceptOn(notOn ...string) scenario {
	s.leaveOut(notOn)
	return s
}

var (
	disconnected = []udat.EventNumber{udat.EventConnectionDisconnected}
	broken       = []udat.EventNumber{udat.EventConnectionBroken}
	ended        = []udat.EventNumber{udat.EventConnectionDisconnected, udat.EventConnectionBroken}
)

const (
	leaves = "each connection ends with one event; what completed has arrived, once, in order, unchanged; " +
		"all else posted is flushed"
	unharmed = "no event; nothing lost, doubled, reordered or changed"
	soon     = 30 * time.Second
)

// scenarios are the rows of the page.
var scenarios = slices.Concat(peerGroup, wireGroup, deviceGroup, hostileGroup, strangerGroup, limitsGroup, longReadRows,
	callersGroup, verbsGroup, datperfGroup, streamRows, streamAskRows, streamCallerRows, streamHostileRows,
	streamLimitRows, longRows, soakGroup, hostsGroup)

var peerGroup = []scenario{
	{group: "peer", name: "graceful disconnect at a random moment, by each end",
		promise: "everything posted before arrives; both ends see DISCONNECTED",
		act:     (*round).leave, ends: disconnected, within: soon,
		rounds: map[string][2]int{"mem": {300, 10000}, "tcp": {100, 2000}, "rxe": {10, 200}, "siw": {4, 50},
			"cable": {4, 50}, "tcphosts": {4, 50}}},
	{group: "peer", name: "abrupt disconnect at a random moment, by each end",
		promise: leaves,
		act: func(r *round) error {
			if err := r.mayEnd(); err != nil {
				return err
			}
			return r.disconnect(r.n%2 == 0, udat.CloseAbrupt)
		},
		ends: ended, within: soon,
		rounds: map[string][2]int{"mem": {300, 10000}, "tcp": {100, 2000}, "rxe": {10, 200}, "siw": {4, 50},
			"cable": {4, 50}, "tcphosts": {4, 50}}},
	{group: "peer", name: "SIGKILL", promise: leaves, kills: true,
		act: func(r *round) error {
			if err := r.mayEnd(); err != nil {
				return err
			}
			return r.p.signal("KILL")
		},
		ends: ended, within: soon,
		rounds: map[string][2]int{"mem": {300, 10000}, "tcp": {100, 2000}, "rxe": {8, 200}, "siw": {4, 50}}},
	{group: "peer", name: "exit with all objects alive", promise: leaves, kills: true,
		act: func(r *round) error {
			if err := r.mayEnd(); err != nil {
				return err
			}
			return r.p.exit()
		},
		ends: ended, within: soon,
		rounds: map[string][2]int{"mem": {300, 10000}, "tcp": {100, 2000}, "rxe": {8, 200}, "siw": {4, 50}}},
	{group: "peer", name: "SIGSTOP, then SIGCONT",
		promise: "no event while the peer stands still; the traffic goes on where it stood",
		act: func(r *round) error {
			if err := r.p.signal("STOP"); err != nil {
				return err
			}
			time.Sleep(r.stopped())
			if err := r.p.signal("CONT"); err != nil {
				return err
			}
			if err := r.traffic(100); err != nil {
				return err
			}
			return r.leave()
		},
		ends: disconnected, within: soon,
		rounds: map[string][2]int{"mem": {20, 200}, "tcp": {4, 20}, "rxe": {2, 10}, "siw": {2, 4}}},
	{group: "peer", name: "SIGKILL of a stopped peer", promise: leaves, kills: true,
		act: func(r *round) error {
			if err := r.p.signal("STOP"); err != nil {
				return err
			}
			time.Sleep(time.Duration(r.random.IntN(300)) * time.Millisecond)
			r.e.mayEnd.Store(true)
			r.began = time.Now()
			return r.p.signal("KILL")
		},
		ends: ended, within: soon,
		rounds: map[string][2]int{"mem": {20, 1000}, "tcp": {20, 1000}, "rxe": {5, 200}, "siw": {2, 50}}},
}
