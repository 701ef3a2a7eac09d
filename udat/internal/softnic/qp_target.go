package softnic

import (
	"encoding/binary"
	"unsafe"

	"github.com/godat/godat/udat/internal/fabric"
)

// Inbound is one request at its target. The transport sets the exported fields, and moves the
// payload between Begin and Finish, while it holds QP.In.
type Inbound struct {
	WR     *fabric.SendWR // the request as it was posted; its segments are not used
	Length uint64         // of the payload
	From   uint32         // the queue pair at the other end

	dst   pieces // the memory for the payload: a receive's, or what the request names; after an atomic: old
	rx    receive
	taken bool             // rx holds a receive that is not completed
	old   [atomicSize]byte // the value before an atomic
}

// NotReady means that there is no receive for the message yet. No completion has this status.
const NotReady fabric.Status = 1 << 16

// Place returns the memory at the target that the payload goes to, or comes from.
func (in *Inbound) Place() [][]byte { return in.dst.bufs }

// Release unpins the memory of Place.
func (in *Inbound) Release() { in.dst.release() }

// Begin checks a request, takes a receive if the request needs one, and pins the memory of Place.
// The caller must call in.Release. If there is no receive, Begin returns NotReady, and the next
// receive that is posted wakes the initiator (from). Any other result is the status of the request.
func (p *QP) Begin(in *Inbound, from Waker) fabric.Status {
	wr := in.WR
	need, size := fabric.RemoteWrite, in.Length
	switch op := wr.Opcode; {
	case op == fabric.OpSend, op == fabric.OpSendImm, op == fabric.OpSendInv:
		return p.beginSend(in, from)
	case Sinks(op) && p.readIn == 0:
		return p.refuse(fabric.StatusRemoteInvReq)
	case op == fabric.OpRead:
		need = fabric.RemoteRead
	case Sinks(op):
		need, size = fabric.RemoteAtomic, atomicSize
		if in.Length != atomicSize || wr.RemoteAddr%atomicSize != 0 {
			return p.refuse(fabric.StatusRemoteInvReq)
		}
	}
	if p.Reach(in, wr.RKey, wr.RemoteAddr, size, need) != Granted {
		return p.refuse(fabric.StatusRemoteAccess)
	}
	switch wr.Opcode {
	case fabric.OpWriteImm:
		return p.Receive(in, from)
	case fabric.OpCmpSwap, fabric.OpFetchAdd:
		p.Atomic(in)
	}
	return fabric.StatusSuccess
}

// Reach pins n bytes at addr, if the key that the peer has sent grants all rights in the parameter
// need. If n is 0, Reach does not check the key.
func (p *QP) Reach(in *Inbound, key uint32, addr, n uint64, need fabric.Access) Denial {
	if n == 0 {
		return Granted
	}
	return in.dst.add(&p.dev.HW.keys, p.pd, key, addr, n, need, true)
}

// refuse moves the target's queue pair to the error state. It reports AsyncQPFatal, because no
// completion at the target reports the error. refuse returns st.
func (p *QP) refuse(st fabric.Status) fabric.Status {
	p.Fatal(nil)
	return st
}

// beginSend takes the posted receive that the incoming send consumes, and pins the receive's
// memory.
func (p *QP) beginSend(in *Inbound, from Waker) fabric.Status {
	if st := p.Receive(in, from); st != fabric.StatusSuccess {
		return st
	}
	recv, reply := p.Room(in, 0, in.Length)
	if recv != fabric.StatusSuccess {
		p.Spoil(in, recv)
	}
	return reply
}

// Room pins n bytes of the message's receive, which begin at offset off. If the receive is too
// short, or its memory cannot be accessed, Room returns two error statuses. The first is for the
// completion of the receive, the second is for the initiator.
func (p *QP) Room(in *Inbound, off, n uint64) (recv, reply fabric.Status) {
	if off+n > total(in.rx.sges) {
		return fabric.StatusLocalLength, fabric.StatusRemoteInvReq
	}
	dom := p.pd
	if p.srq != nil {
		dom = p.srq.pd
	}
	if !in.dst.gather(&p.dev.HW.keys, dom, in.rx.sges, off, n, fabric.LocalWrite) {
		return fabric.StatusLocalProt, fabric.StatusRemoteOp
	}
	return fabric.StatusSuccess, fabric.StatusSuccess
}

// Spoil completes the message's receive with the error st, and so moves the queue pair to the error
// state.
func (p *QP) Spoil(in *Inbound, st fabric.Status) { p.arrived(in, fabric.WC{Status: st}) }

// Receive takes a receive for the message, unless the message has one already. If there is no
// receive, it returns NotReady, and the next receive that is posted wakes the initiator (from).
func (p *QP) Receive(in *Inbound, from Waker) fabric.Status {
	if in.taken {
		return fabric.StatusSuccess
	}
	if !p.popAhead(&in.rx) {
		ok, low := p.rq.pop(&in.rx, from)
		if !ok {
			return NotReady
		}
		p.tookFromSRQ(low)
	}
	p.takeAhead()
	in.taken = true
	if h := p.dev.Hook; h != nil {
		if st := h.Receive(); st != fabric.StatusSuccess {
			p.arrived(in, fabric.WC{Status: st})
			return fabric.StatusRemoteOp
		}
	}
	return fabric.StatusSuccess
}

// arrived completes the message's receive.
func (p *QP) arrived(in *Inbound, wc fabric.WC) {
	wc.ID, wc.QPNum, wc.SrcQP = in.rx.id, p.num, in.From
	if wc.Status != fabric.StatusSuccess {
		p.Fail()
	}
	in.taken = false
	p.hold(-1)
	p.recvCQ.push(&wc, in.WR.Flags&fabric.Solicited != 0)
}

// Finish ends a request whose payload has been moved. If the request has a receive, Finish
// completes the receive.
func (p *QP) Finish(in *Inbound) {
	if in.WR.Opcode == fabric.OpWrite || Sinks(in.WR.Opcode) {
		return // the target gets no completion
	}
	wc := fabric.WC{Opcode: fabric.OpWCRecv, ByteLen: uint32(in.Length)}
	switch in.WR.Opcode {
	case fabric.OpSendImm:
		wc.Flags, wc.Imm = fabric.WCWithImm, in.WR.Imm
	case fabric.OpSendInv:
		wc.Flags, wc.Imm = fabric.WCWithInv, in.WR.RKey
		if !p.dev.HW.keys.invalidate(in.WR.RKey, p.pd) {
			// The message counts as delivered: only the receiver's completion reports the error.
			wc = fabric.WC{Status: fabric.StatusRemoteInvReq}
		}
	case fabric.OpWriteImm:
		wc.Opcode, wc.Flags, wc.Imm = fabric.OpWCRecvWithImm, fabric.WCWithImm, in.WR.Imm
	}
	p.arrived(in, wc)
}

// Atomic executes an atomic on the word at Place. After that, Place returns the old value.
func (p *QP) Atomic(in *Inbound) {
	word := in.dst.bufs[0]
	p.dev.HW.Atomics.Lock()
	was := load(word)
	switch {
	case in.WR.Opcode == fabric.OpFetchAdd:
		store(word, was+in.WR.CompareAdd)
	case was == in.WR.CompareAdd:
		store(word, in.WR.Swap)
	}
	p.dev.HW.Atomics.Unlock()
	binary.NativeEndian.PutUint64(in.old[:], was)
	in.dst.bufs[0] = in.old[:]
}

// load reads the word at buf in host order. The race detector does not see the access.
//
//go:norace
func load(buf []byte) uint64 { return *(*uint64)(unsafe.Pointer(unsafe.SliceData(buf))) }

// store is the counterpart of load.
//
//go:norace
func store(buf []byte, v uint64) { *(*uint64)(unsafe.Pointer(unsafe.SliceData(buf))) = v }
