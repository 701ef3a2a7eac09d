package softnic

import (
	"maps"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
)

// CreateQP creates a queue pair, in the state that verbs call INIT.
func (d *Device) CreateQP(p fabric.QPInit) (fabric.QP, error) {
	const op = "create QP"
	a := &d.HW.Attr
	dom, _ := p.PD.(*pd)
	send, _ := p.SendCQ.(*CQ)
	recv, _ := p.RecvCQ.(*CQ)
	shared, _ := p.SRQ.(*srq)
	switch {
	case dom == nil || dom.dev != d:
		return nil, Invalid(op, "no PD of this device")
	case send == nil || send.dev != d:
		return nil, Invalid(op, "no send CQ of this device")
	case recv == nil || recv.dev != d:
		return nil, Invalid(op, "no receive CQ of this device")
	case p.SRQ != nil && (shared == nil || shared.pd.dev != d):
		return nil, Invalid(op, "the SRQ is not of this device")
	case p.MaxSend < 0 || p.MaxSend > a.MaxQPWR:
		return nil, Invalid(op, "MaxSend %d is not in 0 to %d", p.MaxSend, a.MaxQPWR)
	case shared == nil && (p.MaxRecv < 0 || p.MaxRecv > a.MaxQPWR):
		return nil, Invalid(op, "MaxRecv %d is not in 0 to %d", p.MaxRecv, a.MaxQPWR)
	case p.MaxSendSGE < 0 || p.MaxSendSGE > a.MaxSGE:
		return nil, Invalid(op, "MaxSendSGE %d is not in 0 to %d", p.MaxSendSGE, a.MaxSGE)
	case shared == nil && (p.MaxRecvSGE < 0 || p.MaxRecvSGE > a.MaxSGE):
		return nil, Invalid(op, "MaxRecvSGE %d is not in 0 to %d", p.MaxRecvSGE, a.MaxSGE)
	case p.MaxInline < 0 || p.MaxInline > a.MaxInline:
		return nil, Invalid(op, "MaxInline %d is not in 0 to %d", p.MaxInline, a.MaxInline)
	}
	q := &QP{
		dev: d, pd: dom, sendCQ: send, recvCQ: recv, srq: shared,
		maxSendSGE: p.MaxSendSGE, maxInline: p.MaxInline,
		held: holding{soft: -1, hard: -1},
	}
	if shared != nil {
		q.rq = &shared.rq
	} else {
		q.rq = new(recvQueue)
		q.rq.init(p.MaxRecv, p.MaxRecvSGE)
	}
	q.sq.init(p.MaxSend, p.MaxSendSGE)
	q.link = d.link(q)
	if err := d.admit(op, QPs, q.parents()...); err != nil {
		return nil, err
	}
	hw := d.HW
	hw.Mu.Lock()
	q.num = hw.newQPN()
	d.qps[q] = struct{}{}
	hw.Mu.Unlock()
	for _, c := range []*CQ{send, recv} {
		c.mu.Lock()
		c.qps[q] = struct{}{}
		c.mu.Unlock()
	}
	return q, nil
}

// QPs lists the queue pairs.
func (d *Device) QPs() []*QP {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	return slices.Collect(maps.Keys(d.qps))
}

func (q *QP) parents() []*object {
	ps := []*object{&q.pd.object, &q.sendCQ.object, &q.recvCQ.object}
	if q.srq != nil {
		ps = append(ps, &q.srq.object)
	}
	return ps
}

// newQPN reserves an unused number and returns it. Numbers are assigned in one long cycle.
// Adapter.Mu is held.
func (a *Adapter) newQPN() uint32 {
	for {
		n := a.NextQPN
		if a.NextQPN++; a.NextQPN > MaxQPN {
			a.NextQPN = FirstQPN
		}
		if _, used := a.QPNs[n]; !used {
			a.QPNs[n] = struct{}{}
			return n
		}
	}
}

func (q *QP) Close() error {
	if err := q.dev.retire("destroy QP", &q.object); err != nil {
		return err
	}
	q.mu.Lock()
	q.left = make(chan struct{})
	q.state.Store(uint32(qpClosed))
	q.mu.Unlock()
	q.link.Failed()
	q.link.Wake()
	<-q.left
	for ; q.sq.Len() > 0; q.sq.pop() {
		if b := q.sq.First().bind; b != nil {
			b.cancel()
		}
	}
	q.awaitMessage()
	for _, c := range []*CQ{q.sendCQ, q.recvCQ} {
		c.mu.Lock()
		delete(c.qps, q)
		c.mu.Unlock()
	}
	hw := q.dev.HW
	hw.Mu.Lock()
	delete(hw.QPNs, q.num)
	delete(q.dev.qps, q)
	hw.Mu.Unlock()
	q.dev.release(QPs, q.parents()...)
	return nil
}
