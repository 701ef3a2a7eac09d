package fabrictest

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// Many connections are made, used and closed at the same time on one device.
func testConcurrent(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	const lanes, rounds = 4, 5
	together(lanes, func(int) {
		for range rounds {
			a, b := n.pair(settings{})
			exchange(a, b)
			exchange(b, a)
			a.conn.Close()
			b.conn.Close()
			a.qp.Close()
			b.qp.Close()
		}
	})
}

// Close, SetError and Disconnect may be called at any time, from any goroutine.
func testConcurrentClose(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	for range 5 {
		a, b := n.pair(settings{})
		var stop atomic.Bool
		refused := func(err error) bool {
			return err == nil || errors.Is(err, fabric.ErrClosed) || errors.Is(err, fabric.ErrQueueFull) ||
				errors.Is(err, fabric.ErrInUse)
		}
		check := func(err error) {
			if !refused(err) {
				t.Error(err)
			}
		}
		work := []func(){
			func() {
				for !stop.Load() {
					_, err := a.qp.PostSend([]fabric.SendWR{{Opcode: fabric.OpSend, Flags: fabric.Signaled, NumSGE: 1}},
						[]fabric.SGE{a.seg(0, 8)})
					check(err)
				}
			},
			func() {
				for !stop.Load() {
					_, err := b.qp.PostRecv([]fabric.RecvWR{{NumSGE: 1}}, []fabric.SGE{b.seg(0, 8)})
					check(err)
				}
			},
			func() {
				for wcs := make([]fabric.WC, 8); !stop.Load(); {
					_, err := a.scq.Poll(wcs, 1)
					check(err)
					_, err = b.rcq.Poll(wcs, 1)
					check(err)
				}
			},
			func() {
				for !stop.Load() {
					check(b.scq.Arm(false))
					if _, err := b.scq.Wait(soon(time.Millisecond)); !errors.Is(err, os.ErrDeadlineExceeded) {
						check(err)
					}
				}
			},
			func() {
				time.Sleep(20 * time.Millisecond)
				check(a.conn.Disconnect())
				check(a.qp.SetError())
				check(b.conn.Close())
				check(a.conn.Close())
				for _, c := range []closer{a.qp, b.qp, a.scq, a.rcq, b.scq, b.rcq} {
					check(c.Close())
				}
				stop.Store(true)
			},
		}
		together(len(work), func(i int) { work[i]() })
	}
}

// The data path allocates nothing.
func testNoAllocation(t *testing.T, cfg Config) {
	n := newNode(t, cfg, fabric.Options{})
	a, b := n.pair(settings{})
	send, recv := []fabric.SendWR{{ID: 1, Opcode: fabric.OpSend, Flags: fabric.Signaled,
		NumSGE: 1}}, []fabric.RecvWR{{ID: 1, NumSGE: 1}}
	ssegs, rsegs := []fabric.SGE{a.seg(0, 8)}, []fabric.SGE{b.seg(0, 8)}
	wcs := make([]fabric.WC, 4)
	deadline := soon(patience)
	drain := func(cq fabric.CQ) {
		for {
			if k, err := cq.Poll(wcs, 1); k > 0 || err != nil || time.Now().After(deadline) {
				return
			}
			runtime.Gosched()
		}
	}
	allocs := testing.AllocsPerRun(100, func() {
		b.qp.PostRecv(recv, rsegs)
		a.qp.PostSend(send, ssegs)
		drain(a.scq)
		drain(b.rcq)
		b.rcq.Arm(false)
	})
	assert.Equal(t, allocs, 0.0)
}

// Connections leave nothing behind.
func testLeaks(t *testing.T, cfg Config) {
	cycles := cfg.Cycles
	if testing.Short() || cycles == 0 {
		cycles = 20
	}
	dev, err := cfg.Open(fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry}, nil)
	assert.NilError(t, err)
	n := &node{t: t, dev: dev}
	n.pd, err = dev.AllocPD()
	assert.NilError(t, err)
	requests := make(chan fabric.Request, 1)
	l, err := dev.Listen(0, nil, func(r fabric.Request) { requests <- r })
	assert.NilError(t, err)
	s := &service{Listener: l, t: t, requests: requests}
	cq, err := dev.CreateCQ(16)
	assert.NilError(t, err)
	cycle := func(i int) {
		var ends [2]*end
		for k := range ends {
			qp, err := dev.CreateQP(fabric.QPInit{PD: n.pd, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1,
				MaxRecvSGE: 1})
			assert.NilError(t, err)
			ends[k] = &end{node: n, qp: qp, events: make(chan fabric.ConnEvent, 4)}
		}
		a, b := ends[0], ends[1]
		a.conn, err = dev.Connect(a.qp, fabric.ConnectParams{Remote: l.Addr()}, a.on)
		assert.NilError(t, err)
		b.conn, err = s.request().Accept(b.qp, fabric.AcceptParams{}, b.on)
		assert.NilError(t, err)
		a.event(fabric.EventEstablished)
		b.event(fabric.EventEstablished)
		if i%2 == 0 {
			assert.NilError(t, a.conn.Disconnect())
			b.event(fabric.EventDisconnected)
		}
		for _, c := range []closer{a.conn, b.conn, a.qp, b.qp} {
			assert.NilError(t, c.Close())
		}
	}
	cycle(0)
	before := count()
	for i := range cycles {
		cycle(i)
	}
	settled(t, before, patience)
	for _, c := range []closer{l, cq, n.pd, dev} {
		assert.NilError(t, c.Close())
	}
}

// resources are what a process can leak.
type resources struct{ goroutines, files int }

func count() resources {
	files, _ := os.ReadDir("/proc/self/fd")
	return resources{runtime.NumGoroutine(), len(files)}
}

// A call of settled waits until the process uses no more resources than the parameter before says.
func settled(t *testing.T, before resources, limit time.Duration) {
	t.Helper()
	deadline := soon(limit)
	for {
		now := count()
		if now.goroutines <= before.goroutines && now.files <= before.files {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("leak: %+v, was %+v", now, before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
