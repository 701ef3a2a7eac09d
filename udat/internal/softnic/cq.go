package softnic

import (
	"maps"
	"os"
	"runtime"
	"slices"
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

type CQ struct {
	object
	dev     *Device
	bell    chan struct{}
	waiting atomic.Bool
	over    func() bool // the method value pending, stored because making one for each Wait would allocate
	timer   *time.Timer // of Wait; only one goroutine at a time waits

	mu      sync.Mutex
	ring    []fabric.WC // at most depth long; see grow and shrink
	head, n int
	depth   int
	peak    int // the greatest number of queued completions since the last shrink
	arm     armed
	fired   bool // a notification has come that no Wait has returned yet
	woken   bool
	overrun bool
	dead    bool
	empty   int // number of empty polls since the last yield
	qps     map[overrunner]struct{}

	idler atomic.Pointer[Idler]
}

// Idler is a transport that makes completions for a queue.
type Idler interface {
	// Idle is called when a poll has found no completion. It lets the transport make progress, and
	// reports whether there may be a completion now.
	Idle() bool
	// Sleep is called when a Wait is about to wait. Until the Wait calls Woke, the channel has a value
	// when Serve should be tried again; nil: Serve never serves.
	Sleep() (again <-chan struct{})
	Woke()
	// Serve waits for the transport's events, and handles those of all queues, until the function
	// over returns true, or the deadline has passed (zero: none). Kick makes it call over. It returns
	// false if another call serves.
	Serve(deadline time.Time, over func() bool) bool
	// Kick makes the call of Serve for this queue call over. It returns false if there is none.
	Kick() bool
	// Armed is called when the queue has been armed.
	Armed()
}

// Waiting reports whether a call of Wait is running.
func (c *CQ) Waiting() bool { return c.waiting.Load() }

// SetIdler sets the transport that a poll of an empty queue calls.
func (c *CQ) SetIdler(i Idler) { c.idler.Store(&i) }

// Idler returns the transport that SetIdler has set, or nil.
func (c *CQ) Idler() Idler {
	if i := c.idler.Load(); i != nil {
		return *i
	}
	return nil
}

// overrunner is a queue pair, as its completion queue sees it. An overrun of the completion queue
// fails the queue pair.
type overrunner interface {
	Fail() bool
	reportFatal(why error)
}

// CreateCQ makes a completion queue of exactly depth entries.
func (d *Device) CreateCQ(depth int) (fabric.CQ, error) {
	const op = "create CQ"
	if depth < 1 || depth > d.HW.Attr.MaxCQE {
		return nil, Invalid(op, "depth %d is not in 1 to %d", depth, d.HW.Attr.MaxCQE)
	}
	if err := d.admit(op, CQs); err != nil {
		return nil, err
	}
	return newCQ(d, depth), nil
}

func newCQ(d *Device, depth int) *CQ {
	c := &CQ{
		dev:   d,
		bell:  make(chan struct{}, 1),
		ring:  make([]fabric.WC, min(depth, leastRing)),
		depth: depth,
		qps:   make(map[overrunner]struct{}),
	}
	c.over = c.pending
	return c
}

// EmptyPolls is the number of polls without a completion after which Poll yields the processor.
const EmptyPolls = 64

// Poll moves completions to wcs. It does not repeat an empty poll. Each 64th empty poll yields the
// processor, because the goroutine that makes completions may need it. On a thread that C has
// created a yield costs microseconds; a poll costs about 50 ns.
func (c *CQ) Poll(wcs []fabric.WC, polls int) (int, error) {
	n, err := c.poll(wcs)
	if n > 0 || err != nil || len(wcs) == 0 || polls == 0 {
		return n, err
	}
	if i := c.idler.Load(); i != nil && (*i).Idle() {
		return c.poll(wcs)
	}
	return 0, nil
}

func (c *CQ) poll(wcs []fabric.WC) (int, error) {
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return 0, Failed("poll CQ", fabric.ErrClosed)
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
		c.head = 0 // a queue that is often emptied uses few entries, which stay in the cache
	}
	yield := false
	if n == 0 && c.n == 0 { // if wcs is empty, completions may be left
		c.empty++
		if yield = c.empty == EmptyPolls; yield {
			c.empty = 0
			c.shrink()
		}
	}
	c.mu.Unlock()
	if yield {
		runtime.Gosched()
	}
	return n, nil
}

// leastRing is the length of a new ring. The method shrink makes no ring shorter than keptRing,
// because the memory that this would free is worth less than the time to grow the ring again.
const leastRing, keptRing = 16, 512

// grow doubles the ring, up to the queue's depth. It returns false if the ring already has the
// depth of the queue. A new ring is short, because most queues are deep enough for all requests
// that could be in flight, but hold few completions.
func (c *CQ) grow() bool {
	if len(c.ring) == c.depth {
		return false
	}
	c.move(min(c.depth, 2*len(c.ring)))
	return true
}

// shrink shortens the ring after a burst. It is called when polls find no completion.
func (c *CQ) shrink() {
	if length := max(2*c.peak, keptRing); len(c.ring) > 2*length {
		c.move(length)
	}
	c.peak = 0
}

// move moves the completions to a ring of another length.
func (c *CQ) move(length int) {
	ring := make([]fabric.WC, length)
	for i := range c.n {
		ring[i] = c.ring[(c.head+i)%len(c.ring)]
	}
	c.ring, c.head = ring, 0
}

// push adds a completion. If the queue is full, it fails the queue and its queue pairs.
func (c *CQ) push(wc *fabric.WC, solicited bool) {
	c.mu.Lock()
	if c.overrun {
		c.mu.Unlock()
		return
	}
	if c.n == len(c.ring) && !c.grow() {
		c.mu.Unlock()
		c.Overrun()
		return
	}
	i := c.head + c.n
	if i >= len(c.ring) {
		i -= len(c.ring)
	}
	c.ring[i] = *wc
	c.n++
	c.peak = max(c.peak, c.n)
	if c.arm == armedAny || c.arm == armedSolicited && (solicited || wc.Status != fabric.StatusSuccess) {
		c.arm = notArmed
		c.fired = true
		c.notify()
	}
	c.mu.Unlock()
}

// notify makes a blocked Wait check again whether it can return.
func (c *CQ) notify() {
	if i := c.idler.Load(); i == nil || !(*i).Kick() {
		Ring(c.bell)
	}
}

// Overrun puts the queue into the state after an overrun: it accepts no more completions, and its
// queue pairs fail.
func (c *CQ) Overrun() {
	c.mu.Lock()
	if c.overrun || c.dead {
		c.mu.Unlock()
		return
	}
	c.overrun = true
	qps := slices.Collect(maps.Keys(c.qps))
	c.mu.Unlock()
	// All queue pairs fail before the first event is reported. Otherwise the handler of the first
	// event might fail the queue pairs, and their own events would be missing.
	qps = slices.DeleteFunc(qps, func(q overrunner) bool { return !q.Fail() })
	c.dev.Report(fabric.AsyncEvent{Kind: fabric.AsyncCQError, CQ: c})
	for _, q := range qps {
		q.reportFatal(nil)
	}
}

// Arm arms the queue, and then calls the method Armed of the transport.
func (c *CQ) Arm(solicitedOnly bool) error {
	if i := c.idler.Load(); i != nil {
		defer (*i).Armed()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return Failed("arm CQ", fabric.ErrClosed)
	case solicitedOnly:
		c.arm = max(c.arm, armedSolicited)
	default:
		c.arm = armedAny
	}
	return nil
}

// take reports whether a Wait can return now. If so, it also returns the results of that Wait, and
// clears the notification or wake-up that ends the Wait.
func (c *CQ) take() (done, fired bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return true, false, Failed("wait on CQ", fabric.ErrClosed)
	case c.fired:
		c.fired = false
		return true, true, nil
	case c.woken:
		c.woken = false
		return true, false, nil
	}
	return false, false, nil
}

// A call of pending reports whether take would return true.
func (c *CQ) pending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead || c.fired || c.woken
}

func (c *CQ) Wait(deadline time.Time) (bool, error) {
	if !c.waiting.CompareAndSwap(false, true) {
		return false, Failed("wait on CQ: another waiter is there", fabric.ErrInUse)
	}
	defer c.waiting.Store(false)
	if done, fired, err := c.take(); done {
		return fired, err
	}
	if !deadline.IsZero() && !time.Now().Before(deadline) {
		return false, os.ErrDeadlineExceeded
	}
	var again <-chan struct{}
	i := c.Idler()
	if i != nil {
		again = i.Sleep()
		defer i.Woke()
	}
	var expired <-chan time.Time // nil: never
	for {
		if again == nil || !i.Serve(deadline, c.over) {
			if expired == nil && !deadline.IsZero() {
				expired = c.expires(deadline)
			}
			select {
			case <-c.bell:
			case <-again:
			case <-expired:
				return false, os.ErrDeadlineExceeded
			}
		}
		if done, fired, err := c.take(); done {
			return fired, err
		}
		if !deadline.IsZero() && !time.Now().Before(deadline) {
			return false, os.ErrDeadlineExceeded
		}
	}
}

// expires returns a channel that has a value when the deadline has passed. Nothing stops its timer,
// which costs nothing while no Wait blocks on the channel. Reset takes back an old value.
func (c *CQ) expires(deadline time.Time) <-chan time.Time {
	left := time.Until(deadline)
	if c.timer == nil {
		c.timer = time.NewTimer(left)
	} else {
		c.timer.Reset(left)
	}
	return c.timer.C
}

func (c *CQ) Wake() {
	c.mu.Lock()
	c.woken = true
	c.mu.Unlock()
	c.notify()
}

func (c *CQ) Resize(depth int) error {
	const op = "resize CQ"
	if depth < 1 || depth > c.dev.HW.Attr.MaxCQE {
		return Invalid(op, "depth %d is not in 1 to %d", depth, c.dev.HW.Attr.MaxCQE)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.dead:
		return Failed(op, fabric.ErrClosed)
	case depth < c.n:
		return Invalid(op, "depth %d is below the %d completions queued", depth, c.n)
	}
	c.depth = depth
	if len(c.ring) > depth {
		c.move(depth)
	}
	return nil
}

func (c *CQ) Depth() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.depth
}

func (c *CQ) Close() error {
	if err := c.dev.retire("destroy CQ", &c.object); err != nil {
		return err
	}
	c.mu.Lock()
	c.dead = true
	c.mu.Unlock()
	c.notify()
	c.dev.release(CQs)
	return nil
}
