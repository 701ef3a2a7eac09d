package udat

import (
	"context"
	"time"
)

// CreateCNO makes a notification object to which no dispatchers refer yet. The first trigger calls
// agent, unless agent is nil. Later triggers call no agent, unless ModifyAgent has set a new one.
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

// ModifyAgent replaces the agent. The next trigger calls the new agent, once. If agent is nil,
// later triggers call no agent.
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
	Agent WaitAgent // nil if no agent is set, or if a trigger has called it
}

// Query returns a description of the notification object.
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

// Wait blocks until a dispatcher triggers the object, and returns that dispatcher. If a trigger
// came before the call, and no other call has consumed it, Wait returns at once. The dispatcher is
// a hint: another call may have dequeued its events, and other dispatchers may have events too.
// Wait does not return a freed dispatcher.
//
// When timeout has passed, Wait returns QueueEmpty. If timeout is 0, Wait only polls; the timeout
// Infinite never expires. When the last dispatcher is freed or the adapter is closed, Wait returns
// nil without an error. Any number of goroutines may wait; a trigger wakes one of them.
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

// WaitContext is [CNO.Wait] with a context instead of a timeout. It returns InterruptedCall if ctx
// is canceled, and QueueEmpty if its deadline passes. errors.Is also matches these errors with
// context.Canceled and context.DeadlineExceeded. If a trigger came before the call, WaitContext
// returns its dispatcher even if ctx has ended.
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

// wait blocks until a trigger comes or abandon releases the waiters. It returns errCNOTimeout if
// timeoutC becomes ready first, and errCNOInterrupted if interruptC becomes ready first.
func (c *CNO) wait(timeoutC <-chan time.Time, interruptC <-chan struct{}) (*EVD, error) {
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
		case <-timeoutC:
			return nil, errCNOTimeout
		case <-interruptC:
			return nil, errCNOInterrupted
		}
	}
}

// hint returns the dispatcher that Wait returns after evd has triggered the object. That is evd
// itself, unless evd has been freed. In that case hint looks for another dispatcher of the object
// that has events, because c.triggered holds only one trigger, and the trigger of the other
// dispatcher may have been dropped. If no dispatcher has events, hint returns nil.
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

// enter counts a waiter. It returns a channel; closing this channel releases the waiter.
func (c *CNO) enter() (gone <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Free first reads c.waiters, then ends the object's life, then closes c.gone. If a call enters
	// after Free has read c.waiters, the check refuses the call, or the closing of c.gone releases it.
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

// Triggered returns the channel of triggers from which Wait receives, for use in a select. A
// dispatcher received from it may have been freed. The channel delivers nothing when the last
// dispatcher is freed or the adapter is closed.
//
// Extension.
func (c *CNO) Triggered() <-chan *EVD {
	if !c.object().alive() {
		return nil
	}
	return c.triggered
}

// Free destroys the object. It returns InvalidState while a dispatcher refers to the object or a
// call is blocked in Wait.
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

// trigger stores the dispatcher for a waiter and calls the agent; the dispatcher's lock is held.
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

// abandon releases all waiters, and calls the agent with nil.
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

// attach counts a dispatcher that will trigger the object; ia.mu is held. It does nothing if c is
// nil.
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

// detach undoes attach. The parameter freed is true if the dispatcher is being freed. If a
// dispatcher that is being freed was the last one of the object, detach abandons the object.
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
