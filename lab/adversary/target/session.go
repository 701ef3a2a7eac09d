//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/godat/godat/lab/adversary/pattern"
	"github.com/godat/godat/udat"
)

// target is the program under attack. It has one session after the other.
type target struct {
	ia            *udat.IA
	arena         *arena
	evd, requests *udat.EVD
	witness       *witness
	measured      time.Time
	number        uint64 // of the latest message
}

// post is a request or a receive in flight.
type post struct {
	kind       udat.DTOOperation
	slot, size int
	number     uint64 // of the message, if it sends one
	silent     bool   // success makes no completion
	sealed     bool
}

// session is one connection with the adversary.
type session struct {
	*target
	seed   uint64
	rnd    *rand.Rand
	ep     *udat.EP
	srq    *udat.SRQ
	rmr    *udat.RMR
	report chan *pattern.Report
	r      pattern.Report

	recvs, requests int // how many may be in flight
	posts           map[udat.Cookie]post
	cookie          udat.Cookie
	free            [3][]int // slots of sources, sinks, receives
	largest         int
	smallOf         int // one of so many requests is small
	receiveBias     int
	sinkBias        int // of 20 requests, so many are reads and atomics

	connected, over bool
	left            int // actions until the target disconnects
}

// Slots of session.free.
const (
	ofSources = iota
	ofSinks
	ofReceives
)

// noRequest is how long a request may be on its way when the adversary has gone.
const noRequest = 50 * time.Millisecond

// endLimit bounds the wait for the end of a session after the adversary has gone.
const endLimit = 30 * time.Second

func (t *target) begin(seed uint64) *session {
	s := &session{target: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 2)), report: make(chan *pattern.Report, 1),
		posts: map[udat.Cookie]post{}}
	pick := func(of ...int) int { return of[s.rnd.IntN(len(of))] }
	s.recvs, s.requests = pick(1, 2, 4, 16, 64), pick(1, 2, 4, 8, 8, 16, slots)
	s.largest = pick(64, 300, 3000, 20000, 60000, 60000, slotSize)
	s.smallOf = 3
	s.receiveBias = pick(1, 3, 10)
	s.sinkBias = pick(1, 6, 6, 12, 18)
	s.left = pick(20, 100, 400, 2000)
	in, out := pick(1, 2, 4, 16), pick(1, 1, 2, 2, 4, 16)
	switch pattern.ThemeOf(seed) {
	case pattern.Slow:
		s.requests, s.largest, s.smallOf, s.sinkBias, s.left = slots, slotSize, 10, pick(0, 6), 2000
	case pattern.Answers:
		s.requests, s.largest, s.sinkBias, out = pick(2, 4, 8), pick(64, 300, 3000), 12, pick(1, 2, 3)
	case pattern.Receives:
		s.receiveBias = 1
	}
	attr := &udat.EPAttr{MaxRecvDTOs: s.recvs, MaxRequestDTOs: s.requests, MaxRDMAReadIn: in, MaxRDMAReadOut: out}
	if s.rnd.IntN(4) == 0 {
		s.srq = must(t.ia.CreateSRQ(t.arena.pz, udat.SRQAttr{MaxRecvDTOs: s.recvs, MaxRecvIOV: 1}))
		attr.MaxRecvDTOs = 0
		s.ep = must(t.ia.CreateEPWithSRQ(t.arena.pz, t.evd, t.evd, t.evd, s.srq, attr))
	} else {
		s.ep = must(t.ia.CreateEP(t.arena.pz, t.evd, t.evd, t.evd, attr))
	}
	for kind := range s.free {
		for i := range slots {
			s.free[kind] = append(s.free[kind], i)
		}
	}
	for range s.rnd.IntN(s.recvs + 1) {
		s.postRecv()
	}
	return s
}

func (s *session) bad(format string, args ...any) {
	if len(s.r.Findings) < 20 {
		s.r.Findings = append(s.r.Findings, fmt.Sprintf(format, args...))
	}
}

func (s *session) unfilled(format string, args ...any) {
	if len(s.r.Unfilled) < 20 {
		s.r.Unfilled = append(s.r.Unfilled, fmt.Sprintf(format, args...))
	}
}

// run is the session's life. It connects to the port, or accepts if port is 0, posts and completes
// until the connection ends, and reports.
func (s *session) run(port int, ended chan struct{}) {
	connecting := port != 0
	if connecting {
		err := s.ep.Connect(netip.MustParseAddr("127.0.0.1"), udat.ConnQual(port), 20*time.Second, []byte("target"),
			udat.QoSBestEffort, 0)
		must(0, err)
	}
	var deadline time.Time
	for !s.over {
		select {
		case <-ended:
			if deadline.IsZero() {
				deadline = time.Now().Add(endLimit)
			}
			ended = nil
		default:
		}
		if !connecting && !deadline.IsZero() && time.Until(deadline) < endLimit-noRequest {
			break // no request has come
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			s.bad("%v after the adversary has gone the endpoint is %v, with %d posts in flight", endLimit, s.state(),
				len(s.posts))
			break
		}
		if !connecting && !s.connected && s.accept() == nil {
			connecting = true
		}
		s.act()
	}
	s.finish()
}

func (s *session) state() udat.EPState {
	st, _, _, err := s.ep.GetStatus()
	if err != nil {
		s.bad("GetStatus: %v", err)
	}
	return st
}

// accept accepts the connection request of this session, if it has come.
func (s *session) accept() error {
	ev, _, err := s.target.requests.Wait(time.Millisecond, 1)
	if err != nil {
		return err
	}
	q, err := ev.CR.Query()
	must(0, err)
	if seed, ok := pattern.SeedOf(q.PrivateData); ok && seed != s.seed {
		ev.CR.Reject(nil)
		return errOther
	}
	if s.rnd.IntN(30) == 0 {
		s.over = true
		return ev.CR.Reject([]byte("no"))
	}
	return ev.CR.Accept(s.ep, []byte("target")) // it fails if the peer has gone
}

var errOther = errors.New("a request of an earlier session")

// act does one thing of those that a program may do.
func (s *session) act() {
	if !s.connected {
		s.complete(time.Millisecond)
		return
	}
	if s.left--; s.left == 0 {
		flags := udat.CloseGraceful
		if s.rnd.IntN(2) == 0 {
			flags = udat.CloseAbrupt
		}
		s.ep.Disconnect(flags)
	}
	switch n := s.rnd.IntN(30); {
	case n < s.receiveBias:
		s.postRecv()
	case n < 20:
		s.postRequest()
	case n < 22:
		s.complete(0)
	default:
		s.complete(time.Duration(s.rnd.IntN(300)) * time.Microsecond)
	}
}

// complete takes completions; it waits for the first one.
func (s *session) complete(wait time.Duration) {
	for {
		ev, _, err := s.evd.Wait(wait, 1)
		if err != nil {
			if !timedOut(err) {
				s.bad("Wait: %v", err)
			}
			return
		}
		s.event(&ev)
		wait = 0
	}
}

func (s *session) event(ev *udat.Event) {
	if ev.EP != s.ep {
		s.bad("an event of another endpoint: %v", ev.Number)
		return
	}
	switch ev.Number {
	case udat.EventDTOCompletion, udat.EventRMRBindCompletion:
		s.completion(ev)
	case udat.EventConnectionEstablished:
		s.connected, s.r.Established = true, true
		s.bind()
	default:
		s.connected, s.over, s.r.End = false, true, ev.Number.String()
	}
}

// finish waits for the completions that are left, frees everything, and checks the memory.
func (s *session) finish() {
	end := time.Now().Add(endLimit)
	if s.r.End == "" {
		s.ep.Disconnect(udat.CloseAbrupt)
	}
	receives := 0
	for {
		s.complete(0)
		if receives = s.unanswered(); receives == 0 || s.srq != nil && s.onlyReceives() {
			break
		}
		if s.r.End == "" && s.state() == udat.EPUnconnected {
			break // never connected: receives stay posted
		}
		if time.Now().After(end) {
			s.bad("%d posts have no completion %v after the end of the connection (%s)", receives, endLimit, s.r.End)
			break
		}
		s.complete(time.Millisecond)
	}
	if s.rmr != nil {
		if err := s.rmr.Free(); err != nil {
			s.bad("RMR.Free: %v", err)
		}
	}
	if err := s.ep.Free(); err != nil {
		s.bad("EP.Free: %v", err)
	}
	s.late()
	if s.srq != nil {
		if err := s.srq.Free(); err != nil {
			s.bad("SRQ.Free: %v", err)
		}
	}
	s.r.Findings = append(s.r.Findings, s.arena.check()...)
	s.r.Findings = append(s.r.Findings, s.witness.check()...)
	s.report <- &s.r
}

// late takes what is left in the dispatcher after the endpoint has gone.
func (s *session) late() {
	for {
		ev, _, err := s.evd.Wait(0, 1)
		if err != nil {
			return
		}
		if ev.EP == s.ep && (ev.Number == udat.EventDTOCompletion || ev.Number == udat.EventRMRBindCompletion) {
			s.completion(&ev)
		}
	}
}

// unanswered returns how many posts still owe a completion.
func (s *session) unanswered() (n int) {
	for _, p := range s.posts {
		if !p.silent {
			n++
		}
	}
	return n
}

func (s *session) onlyReceives() bool {
	for _, p := range s.posts {
		if p.kind != udat.DTOReceive && !p.silent {
			return false
		}
	}
	return true
}
