package main

import (
	"errors"
	"strings"

	"github.com/godat/godat/cverbs"
)

const remote = cverbs.AccessRemoteWrite | cverbs.AccessRemoteRead

// queuePair is one end of a connection on the loop device.
type queuePair struct {
	qp *cverbs.QP
	cq *cverbs.CQ
	mr *cverbs.MR

	send [1]cverbs.SendWR
	recv [1]cverbs.RecvWR
	sges [1]cverbs.SGE
	wcs  [1]cverbs.WC
}

// ofCverbs returns the operation with this name: "post", "poll", "receive", "exchange" or "turn".
// These use ordinary queues. With the prefix "domain", such as "domain post", the queues are in a
// thread domain. With the prefix "extended", the queue pair is an extended one. "post", "poll" and
// "receive" can have these prefixes.
func ofCverbs(name string, n int) (o operation, err error) {
	v, err := openVerbs()
	if err != nil {
		return o, err
	}
	if name == "exchange" || strings.HasPrefix(name, "turn") {
		return v.exchanges(name, n)
	}
	kind, plain, ok := strings.Cut(name, " ")
	if !ok {
		kind, plain = "", name
	}
	a, b, err := v.pair(kind, nil)
	if err != nil {
		return o, err
	}
	switch plain {
	case "post":
		return operation{do: a.posts, settle: a.pollEach}, nil
	case "poll":
		return operation{prepare: a.posts, do: a.pollEach}, nil
	case "receive":
		return operation{do: a.receives, settle: func(n int) {
			b.posts(n)
			a.pollEach(n)
			b.pollEach(n)
		}}, nil
	}
	return o, errUnknown("cverbs", name)
}

func (e *queuePair) posts(n int) {
	for range n {
		_, err := e.qp.PostSend(e.send[:], e.sges[:])
		check(err)
	}
}

func (e *queuePair) receives(n int) {
	for range n {
		_, err := e.qp.PostRecv(e.recv[:], e.sges[:])
		check(err)
	}
}

// pollEach polls for n completions, one at a time.
func (e *queuePair) pollEach(n int) {
	for n > 0 {
		got, err := e.cq.Poll(e.wcs[:])
		check(err)
		if got > 0 && e.wcs[0].Status != cverbs.WCSuccess {
			check(errors.New(e.wcs[0].Status.String()))
		}
		n -= got
	}
}

// verbs is the open loop device.
type verbs struct {
	ctx  *cverbs.Context
	zone *cverbs.PD
	gid  cverbs.GIDEntry
}

func openVerbs() (v verbs, err error) {
	if v.ctx, err = cverbs.OpenDevice("loop0"); err != nil {
		return v, err
	}
	if v.gid, _, err = v.ctx.BestGID(1); err != nil {
		return v, err
	}
	v.zone, err = v.ctx.AllocPD()
	return v, err
}

// pair returns two connected ends. End a writes into b's memory, and end b sends. Both use cq, or
// each has its own completion queue if cq is nil. The parameter kind is "", "domain" or "extended",
// as in ofCverbs.
func (v verbs) pair(kind string, cq *cverbs.CQ) (a, b *queuePair, err error) {
	var ends [2]*queuePair
	for i := range ends {
		e, domain := &queuePair{cq: cq}, v.zone
		init := cverbs.QPInit{Cap: cverbs.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1}}
		if kind == "extended" {
			init.SendOps = cverbs.WithRDMAWrite | cverbs.WithSend
		}
		switch {
		case cq != nil:
		case kind == "domain":
			var td *cverbs.TD
			if td, err = v.ctx.AllocTD(); err != nil {
				return nil, nil, err
			}
			if domain, err = v.zone.AllocParentDomain(td); err != nil {
				return nil, nil, err
			}
			e.cq, err = v.ctx.CreateCQEx(cverbs.CQInit{Depth: 2 * depth, Domain: domain})
		default:
			e.cq, err = v.ctx.CreateCQ(2*depth, nil, 0)
		}
		if err != nil {
			return nil, nil, err
		}
		init.SendCQ, init.RecvCQ = e.cq, e.cq
		if e.mr, err = v.zone.RegMR(make([]byte, size), cverbs.AccessLocalWrite|remote); err != nil {
			return nil, nil, err
		}
		if e.qp, err = domain.CreateQP(init); err != nil {
			return nil, nil, err
		}
		if err := e.qp.ToInit(1, remote); err != nil {
			return nil, nil, err
		}
		e.sges[0] = cverbs.SGE{Addr: e.mr.Addr(), Length: size, LKey: e.mr.LKey()}
		e.recv[0] = cverbs.RecvWR{NumSGE: 1}
		ends[i] = e
	}
	for i, e := range ends {
		attr := cverbs.QPAttr{
			DestQPNum: ends[1-i].qp.Num(), PathMTU: cverbs.MTU4096, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
			MaxRDAtomic: 4, MaxDestRDAtomic: 4,
			AH: cverbs.AHAttr{Port: 1, IsGlobal: true, DGID: v.gid.GID, SGIDIndex: uint8(v.gid.Index), HopLimit: 64},
		}
		if err := errors.Join(e.qp.ToRTR(attr), e.qp.ToRTS(attr)); err != nil {
			return nil, nil, err
		}
	}
	a, b = ends[0], ends[1]
	a.send[0] = cverbs.SendWR{Opcode: cverbs.OpRDMAWrite, Flags: cverbs.SendSignaled, NumSGE: 1,
		RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	b.send[0] = cverbs.SendWR{Opcode: cverbs.OpSend, Flags: cverbs.SendSignaled, NumSGE: 1}
	return a, b, nil
}

// exchanges returns an operation that does a receive, a Send and their completions on each of n
// connections, all on one completion queue. The operation "exchange" makes a call for each post.
// The operation "turn" makes one call of [cverbs.Turn] for all posts.
func (v verbs) exchanges(name string, n int) (o operation, err error) {
	cq, err := v.ctx.CreateCQ(4*n, nil, 0)
	if err != nil {
		return o, err
	}
	type connection struct{ a, b *queuePair }
	all := make([]connection, n)
	for i := range all {
		if all[i].a, all[i].b, err = v.pair("", cq); err != nil {
			return o, err
		}
	}
	var wcs [burst]cverbs.WC
	took := func(n int, err error) int {
		check(err)
		for i := range wcs[:n] {
			if wcs[i].Status != cverbs.WCSuccess {
				check(errors.New(wcs[i].Status.String()))
			}
		}
		return n
	}
	take := func(n int) {
		for n > 0 {
			n -= took(cq.Poll(wcs[:]))
		}
	}
	if name == "exchange" {
		return operation{do: func(n int) {
			for i := range all {
				all[i].a.receives(1)
				all[i].b.posts(1)
			}
			take(2 * n)
		}}, nil
	}
	var turn cverbs.Turn
	return operation{do: func(n int) {
		for i := range all {
			a, b := all[i].a, all[i].b
			turn.PostRecv(a.qp, a.recv[:], a.sges[:])
			turn.PostSend(b.qp, b.send[:], b.sges[:])
		}
		got := took(turn.Run(cq, wcs[:], 1))
		if turn.Refused() > 0 {
			check(errors.New("a post was refused"))
		}
		take(2*n - got)
	}}, nil
}
