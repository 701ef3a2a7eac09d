package udat

import (
	"context"
	"time"
)

// CreateCNO makes a notification object without dispatchers. agent, which may be nil, is called
// once, at the next trigger; ModifyAgent arms it again.
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

// CNOParam describes a notification object.
type CNOParam struct {
	IA    *IA
	Agent WaitAgent // nil: none, or called since it was set
}

// Query describes the object.
//
// Implements: dat_cno_query.
func (c *CNO) Query() (CNOParam, error) {
	const op = "cno_query"
	if err := c.object().check(op, HandleCNO); err != nil {
		return CNOParam{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return CNOParam{IA: c.obj.ia, Agent: c.agent}, nil
}

// Wait blocks until a dispatcher triggers the object, and returns that dispatcher. The dispatcher
// is a hint: its events may have been taken, and other dispatchers may have events too; but it has
// not been freed. A trigger that came before the call counts. When the last dispatcher is freed or
// the adapter is closed, Wait returns nil without an error. When timeout has passed the error is
// QueueEmpty; 0 polls and Infinite never expires. Any number of goroutines may wait; a trigger
// wakes one.
//
// Implements: dat_cno_wait.
func (c *CNO) Wait(timeout time.Duration) (*EVD, error) {
	if err := c.object().check(cnoWait, HandleCNO); err != nil {
		return nil, err
	}
	if timeout < 0 {
		return nil, fail(cnoWait, InvalidParameter, SubArg2, "timeout is %v, must not be negative", timeout)
	}
	if timeout == Infinite {
		return c.wait(nil, nil)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	return c.wait(timer.C, nil)
}

// WaitContext is [CNO.Wait] that ends with ctx instead of a timeout. A canceled ctx is
// InterruptedCall, a ctx past its deadline QueueEmpty, like a timeout; errors.Is also matches
// context.Canceled and context.DeadlineExceeded. A trigger that came before the call counts even if
// ctx has ended.
//
// Extension.
func (c *CNO) WaitContext(ctx context.Context) (*EVD, error) {
	if err := c.object().check(cnoWait, HandleCNO); err != nil {
		return nil, err
	}
	if ctx == nil {
		return nil, fail(cnoWait, InvalidParameter, SubArg2, "ctx is nil")
	}
	evd, err := c.wait(nil, ctx.Done())
	if err == errCNOInterrupted {
		return nil, contextError(cnoWait, QueueEmpty, ctx.Err())
	}
	return evd, err
}

const cnoWait = "cno_wait"

var (
	errCNOTimeout     = &Error{Op: cnoWait, Type: QueueEmpty}
	errCNOInterrupted = &Error{Op: cnoWait, Type: InterruptedCall}
)

// wait blocks until a trigger or the end of the object. The error is errCNOTimeout or
// errCNOInterrupted if one of the channels comes first.
func (c *CNO) wait(expired <-chan time.Time, interrupt <-chan struct{}) (*EVD, error) {
	select {
	case evd := <-c.triggered:
		if evd = c.hint(evd); evd != nil {
			return evd, nil
		}
	default:
	}
	gone, err := c.enter()
	if err != nil {
		return nil, err
	}
	defer c.exit()
	for {
		select {
		case evd := <-c.triggered:
			if evd = c.hint(evd); evd != nil {
				return evd, nil
			}
		case <-gone:
			return nil, nil
		case <-expired:
			return nil, errCNOTimeout
		case <-interrupt:
			return nil, errCNOInterrupted
		}
	}
}

// hint returns the dispatcher of a trigger. If it has been freed since, triggers of others may have
// coalesced with its own: then it returns one of the object's that has events, nil if none has.
func (c *CNO) hint(evd *EVD) *EVD {
	if evd.obj.alive() {
		return evd
	}
	list := c.obj.ia.dispatchers()
	if async := c.obj.ia.asyncEVD; async != nil {
		list = append(list, async)
	}
	for _, e := range list {
		e.mu.Lock()
		has := e.cno == c && e.ring.n > 0
		e.mu.Unlock()
		if has {
			return e
		}
	}
	return nil
}

// enter counts a waiter and returns the channel that releases it.
func (c *CNO) enter() (gone <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Free reads the count, ends the object, then releases waiters: a waiter that Free has not counted
	// is refused or released.
	if err := c.object().check(cnoWait, HandleCNO); err != nil {
		return nil, err
	}
	c.waiters++
	return c.gone, nil
}

func (c *CNO) exit() {
	c.mu.Lock()
	c.waiters--
	c.mu.Unlock()
}

// Triggered returns the channel of triggers that Wait reads, for use in a select. The channel may
// name a dispatcher that has been freed since, and receives nothing when the last one is freed or
// the adapter is closed.
//
// Extension.
func (c *CNO) Triggered() <-chan *EVD {
	if !c.object().alive() {
		return nil
	}
	return c.triggered
}

// Free destroys the object; InvalidState while a dispatcher refers to it or a call is blocked in
// Wait.
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
	if err := c.obj.release(op, HandleCNO, SubStateCNOInUse, "event dispatchers"); err != nil {
		return err
	}
	c.releaseWaiters()
	return nil
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

// abandon releases all waiters, and calls the agent without a dispatcher.
func (c *CNO) abandon() {
	c.releaseWaiters()
	c.callAgent(nil)
}

func (c *CNO) releaseWaiters() {
	c.mu.Lock()
	close(c.gone)
	c.gone = make(chan struct{})
	c.mu.Unlock()
}

// attach counts a dispatcher that will trigger the object; ia.mu is held. A nil object is none.
func (c *CNO) attach(op string, ia *IA) error {
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
	return nil
}

// detach removes a dispatcher; freed means that the dispatcher is being freed.
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
