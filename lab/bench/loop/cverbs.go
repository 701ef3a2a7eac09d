package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/godat/godat/cverbs"
)

// end is a queue pair and the objects that it uses.
type end struct {
	qp     *cverbs.QP
	cq     *cverbs.CQ
	ch     *cverbs.CompChannel
	mr     *cverbs.MR
	peer   *end
	size   uint32
	sent   uint32
	events bool
	*scratch
}

// scratch contains the arguments of one post or poll. In C they are on the stack.
type scratch struct {
	sendWR  [1]cverbs.SendWR
	sendSGE [1]cverbs.SGE
	recvWR  [1]cverbs.RecvWR
	recvSGE [1]cverbs.SGE
	wcs     [most]cverbs.WC
}

const remote = cverbs.AccessRemoteWrite | cverbs.AccessRemoteRead

var (
	verbs *cverbs.Context
	zone  *cverbs.PD
)

func openDevice() (err error) {
	if verbs, err = cverbs.OpenDevice("loop0"); err != nil {
		return err
	}
	zone, err = verbs.AllocPD()
	return err
}

// openEnd creates an end. If owner is not nil, the new end uses the completion queue and the memory
// of owner.
func openEnd(owner *end, depth, cqe int, events bool) (e *end, err error) {
	e = &end{events: events}
	if owner != nil {
		e.cq, e.ch, e.mr, e.scratch = owner.cq, owner.ch, owner.mr, owner.scratch
	} else {
		e.scratch = new(scratch)
		if events {
			if e.ch, err = verbs.CreateCompChannel(); err != nil {
				return nil, err
			}
		}
		if e.cq, err = verbs.CreateCQ(cqe, e.ch, 0); err != nil {
			return nil, err
		}
		e.mr, err = zone.RegMR(make([]byte, (recvs+1)*maxSize), cverbs.AccessLocalWrite|remote)
		if err != nil {
			return nil, err
		}
	}
	e.qp, err = zone.CreateQP(cverbs.QPInit{SendCQ: e.cq, RecvCQ: e.cq, Cap: cverbs.QPCap{
		MaxSendWR: uint32(depth), MaxRecvWR: recvs, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: inline,
	}})
	if err != nil {
		return nil, err
	}
	return e, e.qp.ToInit(1, remote)
}

func openPair(owner, peerOwner *end, depth, cqe int, events bool) (a, b *end, err error) {
	if a, err = openEnd(owner, depth, cqe, events); err != nil {
		return nil, nil, err
	}
	if b, err = openEnd(peerOwner, depth, cqe, events); err != nil {
		return nil, nil, err
	}
	gid, _, err := verbs.BestGID(1)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range [][2]*end{{a, b}, {b, a}} {
		attr := cverbs.QPAttr{
			DestQPNum: p[1].qp.Num(), PathMTU: cverbs.MTU4096, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
			MaxRDAtomic: 4, MaxDestRDAtomic: 4,
			AH: cverbs.AHAttr{Port: 1, IsGlobal: true, DGID: gid.GID, SGIDIndex: uint8(gid.Index), HopLimit: 64},
		}
		if err := errors.Join(p[0].qp.ToRTR(attr), p[0].qp.ToRTS(attr)); err != nil {
			return nil, nil, err
		}
		p[0].peer = p[1]
	}
	return a, b, nil
}

func runCverbs(w work) (run, error) {
	if err := openDevice(); err != nil {
		return run{}, err
	}
	switch w.Kind {
	case kindPing:
		return pingCverbs(w)
	case kindRate:
		return rateCverbs(w)
	case kindBatch:
		return batchCverbs(w)
	default:
		return manyCverbs(w)
	}
}

func (e *end) postReceive(slot uint64) error {
	e.recvSGE[0] = cverbs.SGE{Addr: e.mr.Addr() + (slot+1)*maxSize, Length: e.size, LKey: e.mr.LKey()}
	e.recvWR[0] = cverbs.RecvWR{ID: slot, NumSGE: 1}
	_, err := e.qp.PostRecv(e.recvWR[:], e.recvSGE[:])
	return err
}

func (e *end) postMessage() error {
	e.sendSGE[0] = cverbs.SGE{Addr: e.mr.Addr(), Length: e.size, LKey: e.mr.LKey()}
	w := &e.sendWR[0]
	w.NumSGE, w.Opcode, w.Flags = 1, cverbs.OpSend, 0
	if e.size <= inline {
		w.Flags = cverbs.SendInline
	}
	if e.sent++; e.sent%signal == 0 {
		w.Flags |= cverbs.SendSignaled
	}
	_, err := e.qp.PostSend(e.sendWR[:], e.sendSGE[:])
	return err
}

// message looks for a received message among the first n completions, and returns its slot.
func (e *end) message(n int) (slot uint64, found bool, err error) {
	for i := range e.wcs[:n] {
		wc := &e.wcs[i]
		if wc.Status != cverbs.WCSuccess {
			return 0, false, fmt.Errorf("%v: %v", wc.Opcode, wc.Status)
		}
		if wc.Opcode&cverbs.WCRecv != 0 {
			slot, found = wc.ID, true
		}
	}
	return slot, found, nil
}

func (e *end) awaitMessage() (uint64, error) {
	for {
		var n int
		var err error
		if e.events {
			n, err = e.cq.Poll(e.wcs[:])
		} else {
			n, err = e.cq.PollSpin(e.wcs[:], spins)
		}
		if err != nil {
			return 0, err
		}
		if slot, found, err := e.message(n); found || err != nil {
			return slot, err
		}
		if !e.events || n > 0 {
			continue
		}
		if err := e.cq.Arm(false); err != nil {
			return 0, err
		}
		if n, err = e.cq.Poll(e.wcs[:]); err != nil { // finds what came before the queue was armed
			return 0, err
		}
		if slot, found, err := e.message(n); found || err != nil {
			return slot, err
		}
		if _, err := e.ch.Wait(time.Time{}); err != nil {
			return 0, err
		}
	}
}

func pingCverbs(w work) (run, error) {
	a, b, err := openPair(nil, nil, 2*signal+1, 64, w.Events)
	if err != nil {
		return run{}, err
	}
	a.size, b.size = uint32(w.Size), uint32(w.Size)
	return pingPong(w, a, b)
}

func (e *end) postWrite(id uint64, size int, signalled bool) error {
	e.write(&e.sendWR[0], &e.sendSGE[0], id, size, signalled)
	_, err := e.qp.PostSend(e.sendWR[:], e.sendSGE[:])
	return err
}

// write fills in w and sge for an RDMA write.
func (e *end) write(w *cverbs.SendWR, sge *cverbs.SGE, id uint64, size int, signalled bool) {
	*sge = cverbs.SGE{Addr: e.mr.Addr(), Length: uint32(size), LKey: e.mr.LKey()}
	w.ID, w.NumSGE, w.Opcode, w.Flags = id, 1, cverbs.OpRDMAWrite, 0
	w.RemoteAddr, w.RKey = e.peer.mr.Addr()+maxSize, e.peer.mr.RKey()
	if size <= inline {
		w.Flags = cverbs.SendInline
	}
	if signalled {
		w.Flags |= cverbs.SendSignaled
	}
}

func (e *end) reap() (int, error) {
	n, err := e.cq.Poll(e.wcs[:])
	if err != nil {
		return 0, err
	}
	return n, e.succeeded(n)
}

// succeeded returns an error if any of the first n completions has failed.
func (e *end) succeeded(n int) error {
	for i := range e.wcs[:n] {
		if e.wcs[i].Status != cverbs.WCSuccess {
			return fmt.Errorf("%v: %v", e.wcs[i].Opcode, e.wcs[i].Status)
		}
	}
	return nil
}

func rateCverbs(w work) (run, error) {
	a, _, err := openPair(nil, nil, depth, 64, false)
	if err != nil {
		return run{}, err
	}
	c := newClock(w)
	posted, done := uint64(0), uint64(0)
	for posted%clocked != 0 || !c.over(posted) {
		for posted-done == depth {
			n, err := a.reap()
			if err != nil {
				return run{}, err
			}
			done += uint64(n) * moderate
		}
		posted++
		if err := a.postWrite(posted, w.Size, posted%moderate == 0); err != nil {
			return run{}, err
		}
	}
	return c.end(), nil
}

func batchCverbs(w work) (run, error) {
	a, b, err := openPair(nil, nil, depth, depth, false)
	if err != nil {
		return run{}, err
	}
	requests := make([]request, w.Batch)
	sges := make([]cverbs.SGE, w.Batch)
	wrs := make([]cverbs.SendWR, w.Batch)
	wcs := make([]cverbs.WC, w.Batch)
	cookie, expected, bytes := uint64(0), uint64(0), uint64(0)
	c := newClock(w)
	size, from, to, lkey, rkey := uint32(w.Size), a.mr.Addr(), b.mr.Addr(), a.mr.LKey(), b.mr.RKey()
	for rounds := 0; rounds%64 != 0 || !c.over(expected); rounds++ {
		for i := range wrs {
			requests[i] = request{cookie: cookie, length: size, opcode: uint32(cverbs.OpRDMAWrite)}
			cookie++
			sges[i] = cverbs.SGE{Addr: from + uint64(i)*uint64(size), Length: size, LKey: lkey}
			wr := &wrs[i]
			wr.ID, wr.Opcode, wr.FirstSGE, wr.NumSGE = uint64(i), cverbs.OpRDMAWrite, uint32(i), 1
			wr.Flags = cverbs.SendSignaled | cverbs.SendInline
			wr.RemoteAddr, wr.RKey = to+uint64(i)*uint64(size), rkey
		}
		if _, err := a.qp.PostSend(wrs, sges); err != nil {
			return run{}, err
		}
		for got := 0; got < w.Batch; {
			k, err := a.cq.Poll(wcs)
			if err != nil {
				return run{}, err
			}
			for i := range wcs[:k] {
				r := &requests[wcs[i].ID]
				if wcs[i].Status != cverbs.WCSuccess || r.cookie != expected {
					return run{}, fmt.Errorf("completion %d: %v", expected, wcs[i].Status)
				}
				expected++
				bytes += uint64(r.length)
			}
			got += k
		}
	}
	if bytes != expected*uint64(size) {
		return run{}, fmt.Errorf("%d bytes in %d writes of %d", bytes, expected, size)
	}
	return c.end(), nil
}

// manyCverbs posts and polls in turn, as a program with many connections does. When a poll has
// returned completions, it makes the next posts and the next poll in one call.
func manyCverbs(w work) (run, error) {
	each := (window + w.Ends - 1) / w.Ends
	ends := make([]*end, w.Ends)
	var first, firstPeer *end
	for i := range ends {
		a, b, err := openPair(first, firstPeer, each, 2*w.Ends*(each+1), false)
		if err != nil {
			return run{}, err
		}
		if i == 0 {
			first, firstPeer = a, b
		}
		ends[i] = a
	}
	pending := make([]int, w.Ends)
	var turn cverbs.Turn
	var wrs [window]cverbs.SendWR // requests of one turn
	var sges [window]cverbs.SGE
	queued := 0
	c := newClock(w)
	posted, done, next := uint64(0), uint64(0), 0
	for posted%clocked != 0 || !c.over(posted) {
		for posted-done == window {
			n, err := turn.Run(first.cq, first.wcs[:], 1)
			if err == nil && turn.Refused() > 0 {
				_, err = turn.Posted(0)
				err = fmt.Errorf("%d posts refused: %w", turn.Refused(), err)
			}
			if err == nil {
				err = first.succeeded(n)
			}
			if err != nil {
				return run{}, err
			}
			queued = 0
			for i := range first.wcs[:n] {
				pending[first.wcs[i].ID]--
			}
			done += uint64(n)
		}
		for pending[next] == each {
			if next++; next == w.Ends {
				next = 0
			}
		}
		e := ends[next]
		e.write(&wrs[queued], &sges[queued], uint64(next), w.Size, true)
		turn.PostSend(e.qp, wrs[queued:queued+1], sges[queued:queued+1])
		queued++
		pending[next]++
		posted++
		if next++; next == w.Ends {
			next = 0
		}
	}
	return c.end(), nil
}
