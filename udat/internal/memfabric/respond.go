package memfabric

import (
	"encoding/binary"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

const atomicSize = 8

// answers tells whether messages between q and p arrive and p serves them.
func (p *qp) answers(q *qp) bool {
	return p.is(qpConnected) && !p.cut.Load() && !q.cut.Load() &&
		!p.dev.faults.silent() && !q.dev.faults.silent()
}

// respond serves one message of the peer q in q's engine, as the responder's hardware would: local is the memory
// at q's end. What it returns is the status at q's end.
func (p *qp) respond(q *qp, s *sendSlot, local [][]byte) fabric.Status {
	dst, n := &q.dev.engine.dst, s.length
	p.in.Lock()
	defer p.in.Unlock()
	if !p.answers(q) {
		return noAnswer
	}
	if c := p.awaited.Load(); c != nil {
		p.awaited.Store(nil)
		p.dev.events.add(0, c.ready)
	}
	if s.wr.Opcode == fabric.OpSend || s.wr.Opcode == fabric.OpSendImm || s.wr.Opcode == fabric.OpSendInv {
		return p.receive(q, s, local)
	}
	if sinks(s.wr.Opcode) && p.readIn == 0 {
		return p.refuse(fabric.StatusRemoteInvReq)
	}
	need, size := fabric.RemoteWrite, n
	switch s.wr.Opcode {
	case fabric.OpRead:
		need = fabric.RemoteRead
	case fabric.OpCmpSwap, fabric.OpFetchAdd:
		need, size = fabric.RemoteAtomic, atomicSize
		if n != atomicSize || s.wr.RemoteAddr%atomicSize != 0 {
			return p.refuse(fabric.StatusRemoteInvReq)
		}
	}
	var remote []byte
	if size > 0 {
		b := p.dev.f.keys.enter(s.wr.RKey)
		if b == nil {
			return p.refuse(fabric.StatusRemoteAccess)
		}
		defer b.leave()
		inside := false
		remote, inside = b.slice(s.wr.RemoteAddr, size)
		if !inside || b.pd != p.pd || b.access&need == 0 {
			return p.refuse(fabric.StatusRemoteAccess)
		}
	}
	defer dst.release()
	dst.bufs = append(dst.bufs, remote)
	switch s.wr.Opcode {
	case fabric.OpWrite:
		transfer(dst.bufs, local)
	case fabric.OpRead:
		transfer(local, dst.bufs)
	case fabric.OpWriteImm:
		return p.immediate(q, s, local)
	default:
		p.atomic(q, s, local, remote)
	}
	return fabric.StatusSuccess
}

// refuse breaks the responder's end of the connection as well, where no receive completion tells of it.
func (p *qp) refuse(st fabric.Status) fabric.Status {
	p.fatal()
	return st
}

// take takes a receive for a message of q.
func (p *qp) take(q *qp) bool {
	rx := &q.dev.engine.rx
	if !p.popAhead(rx) {
		ok, low := p.rq.pop(rx, q)
		if !ok {
			return false
		}
		p.tookFromSRQ(low)
	}
	p.takeAhead()
	return true
}

// arrived completes the receive taken.
func (p *qp) arrived(q *qp, s *sendSlot, wc fabric.WC) {
	wc.ID, wc.QPNum, wc.SrcQP = q.dev.engine.rx.id, p.num, q.num
	if wc.Status != fabric.StatusSuccess {
		p.fail()
	}
	p.hold(-1)
	p.recvCQ.push(&wc, s.wr.Flags&fabric.Solicited != 0)
}

// receive serves a send.
func (p *qp) receive(q *qp, s *sendSlot, local [][]byte) fabric.Status {
	e, n := &q.dev.engine, s.length
	if !p.take(q) {
		return notReady
	}
	if st, hit := p.dev.faults.recv.hit(); hit {
		p.arrived(q, s, fabric.WC{Status: st})
		return fabric.StatusRemoteOp
	}
	if n > total(e.rx.sges) {
		p.arrived(q, s, fabric.WC{Status: fabric.StatusLocalLength})
		return fabric.StatusRemoteInvReq
	}
	dom := p.pd
	if p.srq != nil {
		dom = p.srq.pd
	}
	if !e.dst.gather(&p.dev.f.keys, dom, e.rx.sges, n, fabric.LocalWrite) {
		e.dst.release()
		p.arrived(q, s, fabric.WC{Status: fabric.StatusLocalProt})
		return fabric.StatusRemoteOp
	}
	transfer(e.dst.bufs, local)
	e.dst.release()
	wc := fabric.WC{Opcode: fabric.OpWCRecv, ByteLen: uint32(n)}
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
	p.arrived(q, s, wc)
	return fabric.StatusSuccess
}

// immediate serves an RDMA write with immediate, whose data and key are in order.
func (p *qp) immediate(q *qp, s *sendSlot, local [][]byte) fabric.Status {
	if !p.take(q) {
		return notReady
	}
	if st, hit := p.dev.faults.recv.hit(); hit {
		p.arrived(q, s, fabric.WC{Status: st})
		return fabric.StatusRemoteOp
	}
	transfer(q.dev.engine.dst.bufs, local)
	p.arrived(q, s, fabric.WC{
		Opcode: fabric.OpWCRecvWithImm, ByteLen: uint32(s.length), Flags: fabric.WCWithImm, Imm: s.wr.Imm,
	})
	return fabric.StatusSuccess
}

// atomic serves an atomic: the old value goes to local memory.
func (p *qp) atomic(q *qp, s *sendSlot, local [][]byte, remote []byte) {
	p.dev.f.atomics.Lock()
	was := load(remote)
	switch {
	case s.wr.Opcode == fabric.OpFetchAdd:
		store(remote, was+s.wr.CompareAdd)
	case was == s.wr.CompareAdd:
		store(remote, s.wr.Swap)
	}
	p.dev.f.atomics.Unlock()
	e := &q.dev.engine
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
