package memfabric

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

type armed uint8

const (
	notArmed armed = iota
	armedSolicited
	armedAny
)

type cq struct {
	object
	dev     *Device
	bell    chan struct{}
	waiting atomic.Bool
	timer   *time.Timer // of the one waiter

	mu      sync.Mutex
	ring    []fabric.WC
	head, n int
	arm     armed
	fired   bool // a notification that Wait has not taken
	woken   bool
	overrun bool
	dead    bool
	empty   int // polls that found nothing since the last yield
	qps     map[*qp]struct{}
}

// CreateCQ makes a completion queue of exactly depth entries.
func (d *Device) CreateCQ(depth int) (fabric.CQ, error) {
	const op = "create CQ"
	if depth < 1 || depth > d.f.attr.MaxCQE {
		return nil, invalid(op, "depth %d is not in 1 to %d", depth, d.f.attr.MaxCQE)
	}
	if err := d.admit(op, CQs); err != nil {
		return nil, err
	}
	return &cq{
		dev:  d,
		bell: make(chan struct{}, 1),
		ring: make([]fabric.WC, depth),
		qps:  make(map[*qp]struct{}),
	}, nil
}

// emptyPolls is the number of polls without a completion after which Poll yields.
const emptyPolls = 64

// Poll takes completions. It polls once. Each 64th poll that finds none yields the processor,
// because the goroutine that makes them may need it. A yield costs microseconds in a thread of C, a
// poll about 50 ns.
func (c *cq) Poll(wcs []fabric.WC, _ int) (int, error) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return 0, failed("poll CQ", fabric.ErrClosed)
	}
	n := 0
	for n < len(wcs) && c.n > 0 {
		wcs[n] = c.ring[c.head]
		n++
		c.n--
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
	}
	if c.n == 0 {
		c.head = 0 // a queue that is kept short stays in the cache
	}
	yield := false
	if n == 0 {
		c.empty++
		if yield = c.empty == emptyPolls; yield {
			c.empty = 0
		}
	}
	c.mu.Unlock()
	if yield {
		runtime.Gosched()
	}
	return n, nil
}

// push adds a completion. If the queue is full, it fails the queue and its queue pairs.
func (c *cq) push(wc *fabric.WC, solicited bool) {
	c.mu.Lock()
	if c.overrun {
		c.mu.Unlock()
		return
	}
	if c.n == len(c.ring) {
		c.mu.Unlock()
		c.fail()
		return
	}
	i := c.head + c.n
	if i >= len(c.ring) {
		i -= len(c.ring)
	}
	c.ring[i] = *wc
	c.n++
	if c.arm == armedAny || c.arm == armedSolicited && (solicited || wc.Status != fabric.StatusSuccess) {
		c.arm = notArmed
		c.fired = true
		ring(c.bell)
	}
	c.mu.Unlock()
}

// fail puts the queue into the state after an overrun: it takes no more completions.
func (c *cq) fail() {
	c.mu.Lock()
	if c.overrun || c.dead {
		c.mu.Unlock()
		return
	}
	c.overrun = true
	qps := make([]*qp, 0, len(c.qps))
	for q := range c.qps {
		qps = append(qps, q)
	}
	c.mu.Unlock()
	c.dev.report(fabric.AsyncEvent{Kind: fabric.AsyncCQError, CQ: c})
	for _, q := range qps {
		q.fatal()
	}
}

func (c *cq) Arm(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return failed("arm CQ", fabric.ErrClosed)
	case solicitedOnly:
		c.arm = max(c.arm, armedSolicited)
	default:
		c.arm = armedAny
	}
	return nil
}

// take reports whether a Wait can return now, and its result.
func (c *cq) take() (done, fired bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return true, false, failed("wait on CQ", fabric.ErrClosed)
	case c.fired:
		c.fired = false
		return true, true, nil
	case c.woken:
		c.woken = false
		return true, false, nil
	}
	return false, false, nil
}

func (c *cq) Wait(deadline time.Time) (bool, error) {
	if !c.waiting.CompareAndSwap(false, true) {
		return false, failed("wait on CQ: another waiter is there", fabric.ErrInUse)
	}
	defer c.waiting.Store(false)
	if done, fired, err := c.take(); done {
		return fired, err
	}
	var expired <-chan time.Time // nil: never
	if !deadline.IsZero() {
		left := time.Until(deadline)
		if left <= 0 {
			return false, os.ErrDeadlineExceeded
		}
		if c.timer == nil {
			c.timer = time.NewTimer(left)
		} else {
			c.timer.Reset(left)
		}
		defer c.timer.Stop()
		expired = c.timer.C
	}
	for {
		select {
		case <-c.bell:
		case <-expired:
			return false, os.ErrDeadlineExceeded
		}
		if done, fired, err := c.take(); done {
			return fired, err
		}
	}
}

func (c *cq) Wake() {
	c.mu.Lock()
	c.woken = true
	c.mu.Unlock()
	ring(c.bell)
}

func (c *cq) Resize(depth int) error {
	const op = "resize CQ"
	if depth < 1 || depth > c.dev.f.attr.MaxCQE {
		return invalid(op, "depth %d is not in 1 to %d", depth, c.dev.f.attr.MaxCQE)
	}
	grown := make([]fabric.WC, depth)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return failed(op, fabric.ErrClosed)
	case depth < c.n:
		return invalid(op, "depth %d is below the %d completions queued", depth, c.n)
	}
	for i := range c.n {
		grown[i] = c.ring[(c.head+i)%len(c.ring)]
	}
	c.ring, c.head = grown, 0
	return nil
}

func (c *cq) Depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ring)
}

func (c *cq) Close() error {
	if err := c.dev.retire("destroy CQ", &c.object); err != nil {
		return err
	}
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	ring(c.bell)
	c.dev.release(CQs)
	return nil
}
