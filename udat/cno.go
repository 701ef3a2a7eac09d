package udat

import (
	"sync"
	"time"
)

// CNO is a notification object: something to wait on that several event dispatchers of one adapter can trigger.
type CNO struct {
	obj       object
	triggered chan *EVD // a latch of one: triggers that nobody has taken coalesce

	mu      sync.Mutex
	agent   WaitAgent
	waiters int
	gone    chan struct{} // closed, and made anew, when the last dispatcher leaves
}

// WaitAgent is an OS wait proxy agent: a function that one trigger of a notification object calls, in a goroutine of
// its own, with the dispatcher that has events, or nil when the last dispatcher or the adapter goes away.
type WaitAgent func(*EVD)

func (c *CNO) object() *object {
	if c == nil {
		return nil
	}
	return &c.obj
}

// CreateCNO makes a notification object without dispatchers. agent, which may be nil, is called at the next trigger,
// once: ModifyAgent arms it again.
//
// Implements: dat_cno_create.
func (ia *IA) CreateCNO(agent WaitAgent) (*CNO, error) {
	const op = "cno_create"
	if err := ia.object().check(op, HandleIA); err != nil {
		return nil, err
	}
	c := &CNO{triggered: make(chan *EVD, 1), agent: agent, gone: make(chan struct{})}
	if err := ia.adopt(op, &c.obj, c, HandleCNO, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// ModifyAgent replaces the agent; nil is none.
//
// Implements: dat_cno_modify_agent.
func (c *CNO) ModifyAgent(agent WaitAgent) error {
	if err := c.object().check("cno_modify_agent", HandleCNO); err != nil {
		return err
	}
	c.mu.Lock()
	c.agent = agent
	c.mu.Unlock()
	return nil
}

// Wait blocks until a dispatcher triggers the object, and gives that dispatcher: a hint only, since its events may
// already be taken and others may have events too. A trigger that came before the call counts. The result is nil,
// without an error, when the last dispatcher has been freed or the adapter closed. When timeout passes the error is
// QueueEmpty. Any number of goroutines may wait; a trigger wakes one.
//
// Implements: dat_cno_wait.
func (c *CNO) Wait(timeout time.Duration) (*EVD, error) {
	const op = "cno_wait"
	if err := c.object().check(op, HandleCNO); err != nil {
		return nil, err
	}
	if timeout < 0 {
		return nil, fail(op, InvalidParameter, SubArg2, "timeout is %v, must not be negative", timeout)
	}
	c.mu.Lock()
	c.waiters++
	gone := c.gone
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.waiters--
		c.mu.Unlock()
	}()
	select {
	case evd := <-c.triggered:
		return evd, nil
	default:
	}
	var expired <-chan time.Time
	if timeout != Infinite {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case evd := <-c.triggered:
		return evd, nil
	case <-gone:
		return nil, nil
	case <-expired:
		return nil, &Error{Op: op, Type: QueueEmpty}
	}
}

// Triggered is a channel that gives what Wait would, for use in a select.
//
// Extension.
func (c *CNO) Triggered() <-chan *EVD { return c.triggered }

// Free destroys the object; InvalidState while a dispatcher refers to it or a call is blocked in Wait.
//
// Implements: dat_cno_free.
func (c *CNO) Free() error {
	const op = "cno_free"
	if err := c.object().check(op, HandleCNO); err != nil {
		return err
	}
	c.mu.Lock()
	waiters := c.waiters
	c.mu.Unlock()
	if waiters > 0 {
		return fail(op, InvalidState, SubStateCNOInUse, "%d calls wait on it", waiters)
	}
	return c.obj.release(op, HandleCNO, SubStateCNOInUse, "event dispatchers")
}

func (c *CNO) destroy() { c.abandon() }

// trigger latches the dispatcher and calls the agent; the dispatcher's lock is held.
func (c *CNO) trigger(evd *EVD) {
	select {
	case c.triggered <- evd:
	default:
	}
	c.callAgent(evd)
}

func (c *CNO) callAgent(evd *EVD) {
	c.mu.Lock()
	agent := c.agent
	c.agent = nil
	c.mu.Unlock()
	if agent != nil {
		go agent(evd)
	}
}

// abandon releases all waiters and the agent without a dispatcher.
func (c *CNO) abandon() {
	c.mu.Lock()
	close(c.gone)
	c.gone = make(chan struct{})
	c.mu.Unlock()
	c.callAgent(nil)
}

// attach makes the object the dispatcher's; ia.mu is held. A nil object is none.
func (c *CNO) attach(op string, ia *IA, e *EVD) error {
	if c == nil {
		return nil
	}
	if err := c.obj.check(op, HandleCNO); err != nil {
		return err
	}
	if err := sameIA(op, ia, &c.obj); err != nil {
		return err
	}
	c.obj.refs++
	e.cno = c
	return nil
}

// detach ends a dispatcher's use of the object. freed says that the dispatcher is going away.
func (c *CNO) detach(freed bool) {
	if c == nil {
		return
	}
	ia := c.obj.ia
	ia.mu.Lock()
	c.obj.refs--
	last := c.obj.refs == 0
	ia.mu.Unlock()
	if last && freed {
		c.abandon()
	}
}

// ModifyCNO replaces the notification object that the dispatcher triggers; nil is none. One trigger of the old one
// that has already begun may still be seen.
//
// Implements: dat_evd_modify_cno.
func (e *EVD) ModifyCNO(cno *CNO) error {
	const op = "evd_modify_cno"
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	ia := e.obj.ia
	ia.mu.Lock()
	e.mu.Lock()
	old := e.cno
	err := cno.attach(op, ia, e)
	if err == nil {
		e.cno = cno
		e.watch()
	}
	e.mu.Unlock()
	ia.mu.Unlock()
	if err != nil {
		return err
	}
	old.detach(false)
	return nil
}

// watch starts the goroutine that follows the completion queue for the notification object, or tells a running one
// that something has changed; e.mu is held.
func (e *EVD) watch() {
	if e.watched {
		if e.following {
			e.cq.Wake()
		}
		e.left.Broadcast()
		return
	}
	if e.mustFollow() {
		e.watched = true
		go e.follow()
	}
}

func (e *EVD) mustFollow() bool {
	return e.cq != nil && e.cno != nil && !e.disabled && !e.dead
}

// follow keeps the completion queue armed while no direct waiter does, so that completions trigger the notification
// object.
func (e *EVD) follow() {
	e.mu.Lock()
	for e.mustFollow() {
		if e.waiter {
			e.left.Wait()
			continue
		}
		solicited := e.streams.solicitedOnly()
		if err := e.cq.Arm(solicited); err != nil {
			break
		}
		e.drain()
		e.flushFailures()
		if e.waiter || !e.mustFollow() {
			continue
		}
		e.following = true
		cq := e.cq
		e.mu.Unlock()
		fired, err := cq.Wait(time.Time{})
		e.mu.Lock()
		e.following = false
		e.left.Broadcast()
		if err != nil {
			break
		}
		if fired && solicited && e.cno != nil && !e.waiter && !e.disabled {
			e.cno.trigger(e)
		}
	}
	e.watched = false
	e.left.Broadcast()
	e.unlock()
}
