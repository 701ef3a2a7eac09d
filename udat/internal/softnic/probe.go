package softnic

import "github.com/godat/godat/udat/internal/fabric"

// The functions in this file are for tests of a transport.

// NIC returns the faults of the device. They do not include the faults of its transport.
func (d *Device) NIC() *Faults { return &d.Faults }

// Number sets the next queue pair number.
func (a *Adapter) Number(qpn uint32) {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	a.nextQPN = qpn
}

// Numbers returns how many queue pair numbers are in use.
func (a *Adapter) Numbers() int {
	a.Mu.Lock()
	defer a.Mu.Unlock()
	return len(a.qpns)
}

// Connections returns the number of connections and unanswered connection requests together.
func (d *Device) Connections() int {
	d.HW.Mu.Lock()
	defer d.HW.Mu.Unlock()
	return len(d.conns) + len(d.requests)
}

// Pin pins the memory of a key, as a transfer does, until unpin is called. The result unpin is nil
// if the key is invalid.
func (a *Adapter) Pin(key uint32) (unpin func()) {
	if s := a.keys.enter(key); s != nil {
		return s.leave
	}
	return nil
}

// StartAt makes the queue count as if n requests had been posted and completed.
func (s *SendQueue) StartAt(n uint64) {
	s.head.Store(n)
	s.tail.Store(n)
}

// SRQ returns the shared receive queue of the queue pair, or nil if it has none.
func (q *QP) SRQ() fabric.SRQ {
	if q.srq == nil {
		return nil
	}
	return q.srq
}
