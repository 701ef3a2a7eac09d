package memfabric

import (
	"encoding/binary"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

const atomicSize = 8

// answers reports whether messages between q and p arrive and p serves them.
func (p *qp) answers(q *qp) bool {
	return p.is(qpConnected) && !p.cut.Load() && !q.cut.Load() &&
		!p.dev.faults.silent() && !q.dev.faults.silent()
}

// respond serves one message of the peer q in q's engine, as the responder's hardware would. local
// is q's memory; the result is q's status.
func (p *qp) respond(e *engine, q *qp, s *sendSlot, local [][]byte) fabric.Status {
	p.in.Lock()
	defer p.in.Unlock()
	if !p.answers(q) {
		return noAnswer
	}
	if c := p.awaited.Load(); c != nil {
		p.awaited.Store(nil)
		p.dev.events.add(0, c.ready)
	}
	need, size := fabric.RemoteWrite, s.length
	switch op := s.wr.Opcode; {
	case op == fabric.OpSend, op == fabric.OpSendImm, op == fabric.OpSendInv:
		return p.receive(e, q, s, local)
	case sinks(op) && p.readIn == 0:
		return p.refuse(fabric.StatusRemoteInvReq)
	case op == fabric.OpRead:
		need = fabric.RemoteRead
	case sinks(op):
		need, size = fabric.RemoteAtomic, atomicSize
		if s.length != atomicSize || s.wr.RemoteAddr%atomicSize != 0 {
			return p.refuse(fabric.StatusRemoteInvReq)
		}
	}
	if size > 0 && !e.dst.add(&p.dev.f.keys, p.pd, s.wr.RKey, s.wr.RemoteAddr, size, need, true) {
		return p.refuse(fabric.StatusRemoteAccess)
	}
	switch s.wr.Opcode {
	case fabric.OpWrite:
		transfer(e.dst.bufs, local)
	case fabric.OpRead:
		transfer(local, e.dst.bufs)
	case fabric.OpWriteImm:
		return p.immediate(e, q, s, local)
	default:
		p.atomic(e, s, local)
	}
	return fabric.StatusSuccess
}

// refuse breaks the responder's end too, if no receive completion reports the failure.
func (p *qp) refuse(st fabric.Status) fabric.Status {
	p.fatal()
	return st
}

// take takes a receive for a message of q.
func (p *qp) take(e *engine, q *qp) bool {
	if !p.popAhead(&e.rx) {
		ok, low := p.rq.pop(&e.rx, q)
		if !ok {
			return false
		}
		p.tookFromSRQ(low)
	}
	p.takeAhead()
	return true
}

// arrived completes the receive taken.
func (p *qp) arrived(e *engine, q *qp, s *sendSlot, wc fabric.WC) {
	wc.ID, wc.QPNum, wc.SrcQP = e.rx.id, p.num, q.num
	if wc.Status != fabric.StatusSuccess {
		p.fail()
	}
	p.hold(-1)
	p.recvCQ.push(&wc, s.wr.Flags&fabric.Solicited != 0)
}

// receive serves a send.
func (p *qp) receive(e *engine, q *qp, s *sendSlot, local [][]byte) fabric.Status {
	if !p.take(e, q) {
		return notReady
	}
	if st, hit := p.dev.faults.recv.hit(); hit {
		p.arrived(e, q, s, fabric.WC{Status: st})
		return fabric.StatusRemoteOp
	}
	if s.length > total(e.rx.sges) {
		p.arrived(e, q, s, fabric.WC{Status: fabric.StatusLocalLength})
		return fabric.StatusRemoteInvReq
	}
	dom := p.pd
	if p.srq != nil {
		dom = p.srq.pd
	}
	if !e.dst.gather(&p.dev.f.keys, dom, e.rx.sges, s.length, fabric.LocalWrite) {
		p.arrived(e, q, s, fabric.WC{Status: fabric.StatusLocalProt})
		return fabric.StatusRemoteOp
	}
	transfer(e.dst.bufs, local)
	wc := fabric.WC{Opcode: fabric.OpWCRecv, ByteLen: uint32(s.length)}
	switch s.wr.Opcode {
	case fabric.OpSendImm:
		wc.Flags, wc.Imm = fabric.WCWithImm, s.wr.Imm
	case fabric.OpSendInv:
		wc.Flags, wc.Imm = fabric.WCWithInv, s.wr.RKey
		if !p.dev.f.keys.invalidate(s.wr.RKey, p.pd) {
			// The message has been acknowledged by then: only the receiver hears of it.
			wc = fabric.WC{Status: fabric.StatusRemoteInvReq}
		}
	}
	p.arrived(e, q, s, wc)
	return fabric.StatusSuccess
}

// immediate serves an RDMA write with immediate, whose data and key are in order.
func (p *qp) immediate(e *engine, q *qp, s *sendSlot, local [][]byte) fabric.Status {
	if !p.take(e, q) {
		return notReady
	}
	if st, hit := p.dev.faults.recv.hit(); hit {
		p.arrived(e, q, s, fabric.WC{Status: st})
		return fabric.StatusRemoteOp
	}
	transfer(e.dst.bufs, local)
	p.arrived(e, q, s, fabric.WC{
		Opcode: fabric.OpWCRecvWithImm, ByteLen: uint32(s.length), Flags: fabric.WCWithImm, Imm: s.wr.Imm,
	})
	return fabric.StatusSuccess
}

// atomic serves an atomic: the old value goes to local memory.
func (p *qp) atomic(e *engine, s *sendSlot, local [][]byte) {
	remote := e.dst.bufs[0]
	p.dev.f.atomics.Lock()
	was := load(remote)
	switch {
	case s.wr.Opcode == fabric.OpFetchAdd:
		store(remote, was+s.wr.CompareAdd)
	case was == s.wr.CompareAdd:
		store(remote, s.wr.Swap)
	}
	p.dev.f.atomics.Unlock()
	binary.NativeEndian.PutUint64(e.old[:], was)
	e.dst.bufs[0] = e.old[:]
	transfer(local, e.dst.bufs)
}

// load reads the word at buf, in host order and out of the race detector's sight.
//
//go:norace
func load(buf []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(buf))) }

// store is the counterpart of load.
//
//go:norace
func store(buf []byte, v uint64) { *(*uint64)(unsafe.Pointer(unsafe.SliceData(buf))) = v }
