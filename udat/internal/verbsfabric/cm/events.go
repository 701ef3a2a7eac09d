package cm

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/godat/godat/cverbs"
)

// This file has the event goroutine, which reads rdma_cm's events.

// New returns a manager for a device, and starts its event goroutine.
func New(dev Device) (*Manager, error) {
	ch, err := cverbs.CreateEventChannel()
	if err != nil {
		return nil, err
	}
	m := &Manager{
		destroyer: newDestroyer(dev), port: dev.Port(), ch: ch,
		conns: map[handler]struct{}{}, requests: map[dropper]struct{}{}, retired: map[dropper]time.Time{},
	}
	var stop context.Context
	stop, m.stop = context.WithCancel(context.Background())
	m.done.Go(func() { m.read(stop) })
	return m, nil
}

// Post makes the event goroutine run f, after the functions that were posted before.
func (m *Manager) Post(f func()) {
	m.mu.Lock()
	m.posted = append(m.posted, f)
	m.mu.Unlock()
	m.ch.Wake()
}

// read is the body of the event goroutine.
func (m *Manager) read(stop context.Context) {
	wake := context.AfterFunc(stop, m.ch.Wake)
	defer wake()
	for stop.Err() == nil {
		ev, err := m.ch.Get(m.nextReap())
		switch {
		case err == nil:
			m.dispatch(ev)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			// The device is unusable without connection events, so it counts as removed. Posted functions
			// still run.
			m.Removed()
			time.Sleep(100 * time.Millisecond)
		}
		m.runPosted()
		m.reap(time.Now())
	}
}

func (m *Manager) runPosted() {
	for {
		m.mu.Lock()
		fs := m.posted
		m.posted = nil
		m.mu.Unlock()
		if len(fs) == 0 {
			return
		}
		for _, f := range fs {
			f()
		}
	}
}

func (m *Manager) dispatch(ev cverbs.CMEvent) {
	switch {
	case ev.ID == nil:
		return
	case ev.Type == cverbs.CMEventConnectRequest:
		if ev.ListenID != nil {
			if l, ok := ev.ListenID.Data().(arriver); ok {
				l.arrive(ev)
				return
			}
		}
		m.refuse(ev.ID, nil)
		return
	}
	if h, ok := ev.ID.Data().(handler); ok {
		h.Handle(ev)
	}
	if ev.Type == cverbs.CMEventDeviceRemoval {
		m.Removed()
	}
}

// refuse rejects a request that is given to no listener. Without private data the peer may try
// again, as the data of a full queue's reject is empty too.
func (m *Manager) refuse(id *cverbs.CMID, private []byte) {
	id.Reject(private)
	m.destroy(id)
}

// Removed ends all connections, because the device is gone. Only the first call has an effect. It
// must be called on the event goroutine.
func (m *Manager) Removed() {
	m.mu.Lock()
	first := !m.removed
	m.removed = true
	m.mu.Unlock()
	if !first {
		return
	}
	for _, c := range m.owned() {
		c.Handle(cverbs.CMEvent{Type: cverbs.CMEventDeviceRemoval})
	}
	m.dev.Gone()
}
