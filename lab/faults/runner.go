package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/godat/godat/udat"
)

// round is one run of a scenario. The scenario's function gets it as an argument.
type round struct {
	*runner
	row     *scenario
	n       int
	e       *end // this end
	p       *peer
	random  *rand.Rand
	began   time.Time    // when the cause of the end was given
	undo    func() error // reverts what the scenario's function did; called after the ends are closed
	initial struct {     // which end has begun a graceful disconnect
		here, there bool
	}
}

// mayEnd tells both ends that connections may end from now on, and records the time in r.began.
func (r *round) mayEnd() error {
	r.e.mayEnd.Store(true)
	if _, err := r.p.do(order{Do: "expect"}); err != nil {
		return err
	}
	r.began = time.Now()
	return nil
}

// traffic waits until this end has received n more messages.
func (r *round) traffic(n int) error { return r.slowTraffic(n, patience) }

func (r *round) slowTraffic(n int, limit time.Duration) error {
	target, until := r.e.taken()+uint64(n), time.Now().Add(limit)
	for r.e.taken() < target {
		if list := r.e.list(); len(list) > 0 {
			return fmt.Errorf("during traffic: %s", list[0])
		}
		if time.Now().After(until) {
			return fmt.Errorf("only %d of %d messages after %v", r.e.taken(), target, limit)
		}
		select {
		case <-r.e.allOff:
			return errors.New("all connections have ended")
		case <-time.After(200 * time.Microsecond):
		}
	}
	return nil
}

// goOn checks that the connections still carry messages, and then calls leave.
func (r *round) goOn() error {
	if err := r.traffic(50); err != nil {
		return fmt.Errorf("the connections: %w", err)
	}
	return r.leave()
}

// leave disconnects gracefully. In even rounds this end disconnects, in odd rounds the other end.
func (r *round) leave() error {
	if err := r.mayEnd(); err != nil {
		return err
	}
	return r.disconnect(r.n%2 == 0, udat.CloseGraceful)
}

func (r *round) disconnect(here bool, flags udat.CloseFlags) error {
	if flags == udat.CloseGraceful {
		r.initial.here, r.initial.there = here, !here
	}
	if here {
		r.e.disconnect(flags)
		return nil
	}
	_, err := r.p.do(order{Do: "disconnect", Flags: flags})
	return err
}

// runner runs scenarios on one fabric.
type runner struct {
	device  string
	kind    string // of the fabric: mem, loop, tcp, rxe, siw; tcphosts and cable for two hosts
	fabric  string // as the page names it
	at      string // the address of faults -host on the other host, if there are two hosts
	iwarp   bool
	long    bool
	short   bool // few of each thing, for a test of the lab
	retry   int  // the retries of all connections; -1: udat's default
	seed    uint64
	tests   string        // folder of test binaries
	skipped []string      // what the device lacks of the scenario
	soak    time.Duration // how long a soak lasts
	soaked  soaked        // the results of the latest soak
}

// stopped returns how long a peer is stopped.
func (r *runner) stopped() time.Duration {
	switch {
	case r.device == "mem0":
		return 100 * time.Millisecond
	case r.long:
		return 20 * time.Second
	}
	return 3 * time.Second
}

// result is the outcome of a scenario on one fabric.
type result struct {
	Group, Name, Promise, Fabric string
	Rounds                       int
	Worst                        time.Duration // from the cause to the last event
	Within                       time.Duration
	Messages                     uint64
	soaked
	Without  []string `json:",omitempty"` // what the device lacks of the scenario
	Problems []string
	Took     time.Duration
}

// run runs the rounds of a scenario.
func (r *runner) run(s *scenario, rounds int) result {
	res := result{Group: s.group, Name: s.name, Promise: s.promise, Fabric: r.fabric, Within: s.within}
	began := time.Now()
	process := process
	if s.alone { // the Go runtime keeps as many threads as there were blocked calls at once
		process = processWithoutThreads
	}
	kernelBase, processBase := kernel(r.device), process()
	var p *peer
	for n := range rounds {
		if (!s.alone || r.at != "") && (p == nil || p.gone) {
			var err error
			if p, err = newPeer(r.device, r.at); err != nil {
				res.Problems = append(res.Problems, err.Error())
				break
			}
		}
		if n == 0 && !s.kills {
			processBase = process() // with the pipes of the process that stays
		}
		run := r.round
		if s.alone {
			run = r.runAlone
		}
		problems, worst, messages := run(s, n, p)
		res.soaked, r.soaked = r.soaked, soaked{}
		res.Without, r.skipped = r.skipped, nil
		if s.kills {
			p.close()
			if left := kernelBase.settle(func() baseline { return kernel(r.device) }); left != "" {
				problems = append(problems, "left behind: "+left)
			}
		}
		if left := processBase.settle(process); left != "" {
			problems = append(problems, "left behind in this process: "+left)
		}
		res.Rounds++
		res.Worst = max(res.Worst, worst)
		res.Messages += messages
		if len(problems) > 0 {
			for _, text := range problems {
				res.Problems = append(res.Problems, fmt.Sprintf("round %d: %s", n, text))
			}
			p.close() // so that the failure does not affect the next round
		}
		if len(res.Problems) > 5 || s.alone && len(problems) > 0 { // a failed scenario may have left anything behind
			break
		}
	}
	if p != nil {
		p.close()
	}
	if left := kernelBase.settle(func() baseline { return kernel(r.device) }); left != "" {
		res.Problems = append(res.Problems, "left behind at the end: "+left)
	}
	res.Took = time.Since(began)
	return res
}

// runAlone runs a round without links. The result worst is the time from the fault until the
// scenario's function returns.
func (r *runner) runAlone(s *scenario, n int, p *peer) (problems []string, worst time.Duration, messages uint64) {
	here := &round{runner: r, row: s, n: n, p: p, random: rand.New(rand.NewPCG(r.seed, uint64(n))), began: time.Now()}
	ended := make(chan error, 1)
	go func() { ended <- s.act(here) }()
	select {
	case err := <-ended:
		worst = time.Since(here.began)
		if err != nil {
			problems = append(problems, err.Error())
		}
	case <-time.After(s.within):
		problems = append(problems, fmt.Sprintf("has not ended after %v", s.within))
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
	}
	if here.undo != nil {
		if err := here.undo(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems, worst, 0
}

// round runs one round. Every round begins with new connections. So it proves that the round before
// it has left nothing that prevents them.
func (r *runner) round(s *scenario, n int, p *peer) (problems []string, worst time.Duration, messages uint64) {
	failed := func(err error) ([]string, time.Duration, uint64) {
		return append(problems, err.Error()), worst, messages
	}
	active := n/2%2 == 0 // so that each end disconnects in both roles
	plan := setup{Device: r.device, Retry: r.retry, Active: active, NoReads: s.noReads}
	planThere := plan
	planThere.Active = !active
	if s.via != "" {
		plan.Device, planThere.Device = r.via(s, 1), r.via(s, 2)
	}
	here := &round{runner: r, row: s, n: n, p: p, random: rand.New(rand.NewPCG(r.seed, uint64(n)))}
	if s.before != "" {
		here.undo = func() error { return here.runEverywhere(s.after) }
	}
	defer func() {
		if here.undo != nil {
			if err := here.undo(); err != nil {
				problems = append(problems, err.Error())
			}
		}
	}()
	if s.before != "" {
		if err := here.runEverywhere(s.before); err != nil {
			return failed(err)
		}
	}
	e, err := openEnd("survivor", plan, &counts{})
	if err != nil {
		return failed(err)
	}
	here.e = e
	// A failed round must leave nothing behind either.
	defer func() {
		if len(problems) > 0 && !e.dead.Load() && len(e.links) > 0 {
			e.mayEnd.Store(true)
			e.dead.Store(true)
			e.ia.Close(udat.CloseAbrupt)
			e.finishLoop()
			if !p.gone {
				p.do(order{Do: "kill"}) // undo may delete the device of the other end too
			}
		}
	}()
	e.start()
	a, err := p.do(order{Do: "open", setup: planThere})
	if err != nil {
		return failed(err)
	}
	if active {
		err = e.connect(a.Addr, a.Qual)
	} else {
		_, err = p.do(order{Do: "connect", Addr: e.ia.Addr(), Qual: e.qual})
	}
	if err != nil {
		return failed(err)
	}
	stuck := func(what string) ([]string, time.Duration, uint64) { // reports the states of both ends
		there, _ := p.do(order{Do: "states"})
		e.problem("%s: %s; peer: %v", what, e.states(), there.Problems)
		return e.list(), worst, messages
	}
	if !within(e.allUp, patience) {
		return stuck(fmt.Sprintf("no connections after %v", patience))
	}
	if _, err := p.do(order{Do: "up"}); err != nil {
		return failed(err)
	}
	if err := here.traffic(here.random.IntN(200)); err != nil {
		time.Sleep(time.Second) // the events of this second explain more
		return stuck(err.Error())
	}
	if err := s.act(here); err != nil {
		return failed(err)
	}
	if !within(e.allOff, max(s.within, patience)) {
		return stuck(fmt.Sprintf("no event %v after %s", max(s.within, patience), s.name))
	}
	for _, l := range e.links {
		took := l.endedAt.Sub(here.began)
		worst = max(worst, took)
		// On iWARP this end may see the flush a second before the peer's disconnect. This end's
		// event then says that the connection is broken.
		late := r.iwarp && l.ended == udat.EventConnectionBroken && !here.initial.here
		if !slices.Contains(s.ends, l.ended) && !late {
			l.problem("ends with %v, must be one of %v", l.ended, s.ends)
		}
		if took > s.within {
			l.problem("%v comes after %v, must come within %v", l.ended, took, s.within)
		}
	}
	if !s.kills {
		a, err := p.do(order{Do: "finish"})
		if err != nil {
			return failed(err)
		}
		problems = append(problems, a.Problems...)
	}
	e.finish()
	problems = append(problems, e.list()...)
	e.dead.Store(true) // closed
	there, err := p.progress()
	if err != nil {
		return failed(err)
	}
	problems = append(problems, here.compare(there, !s.kills)...)
	return problems, worst, e.taken()
}

// via returns the device name by which a host opens its device in this scenario. The name contains
// the host's address.
func (r *runner) via(s *scenario, host int) string {
	if r.kind == "tcphosts" {
		return "tcp:" + fmt.Sprintf(s.via, host)
	}
	return fmt.Sprintf(s.via, host)
}

func (e *end) list() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.problems)
}

// compare compares what one end has sent with what the other has received. A completion means that
// the peer has the message, except on iWARP. So no message that completed may be lost.
func (r *round) compare(there *counts, finished bool) (problems []string) {
	if there == nil {
		return nil // nobody can ask a host that has vanished
	}
	for i, l := range r.e.links {
		h, t := &r.e.counts.values[i], &there.values[i]
		flow := func(from, to string, sent, completed, received uint64, all bool) {
			lost := !r.iwarp && l.kind != byRead && received < completed
			if received > sent || lost || all && !r.iwarp && l.kind != byRead && received != completed {
				problems = append(problems, fmt.Sprintf("link %d (%v): %s has sent %d messages, %d completed, %s has taken %d", i,
					l.kind, from, sent, completed, to, received))
			}
		}
		graceful := l.ended == udat.EventConnectionDisconnected
		flow("the peer", "the survivor", t[countSent].Load(), t[countCompleted].Load(), h[countReceived].Load(),
			r.initial.there && graceful)
		if finished {
			flow("the survivor", "the peer", h[countSent].Load(), h[countCompleted].Load(), t[countReceived].Load(),
				r.initial.here && graceful)
		}
	}
	return problems
}

// newRunner runs a first round and returns a runner. The runner counts the objects of the process
// after this round, because a process keeps some objects from its first round on.
func newRunner(device, at string, retry int, seed uint64) (*runner, []string) {
	r := &runner{device: device, at: at, retry: retry, seed: seed}
	r.fabric, _, _ = strings.Cut(device, ":") // the name of a tcp device may contain its address
	if at != "" {
		r.fabric += ", two hosts"
	}
	r.kind = kindOf(r.fabric)
	ia, err := udat.Open(device)
	if err != nil {
		return nil, []string{err.Error()}
	}
	r.iwarp = strings.HasPrefix(device, "siw")
	if err := ia.Close(udat.CloseGraceful); err != nil {
		return nil, []string{err.Error()}
	}
	return r, r.warm()
}

// warm runs a round for its side effects: libraries keep some objects from a device's first
// connection on.
func (r *runner) warm() []string {
	p, err := newPeer(r.device, r.at)
	if err != nil {
		return []string{err.Error()}
	}
	defer p.close()
	problems, _, _ := r.round(&scenarios[0], 0, p)
	return problems
}
