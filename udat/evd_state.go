package udat

// EVDParam describes an event dispatcher.
type EVDParam struct {
	IA      *IA
	QLen    int // the number of events that it holds
	State   EVDState
	CNO     *CNO // nil: none
	Streams EVDFlags
}

// Query describes the dispatcher.
//
// Implements: dat_evd_query.
func (e *EVD) Query() (EVDParam, error) {
	const op = "evd_query"
	if err := e.object().check(op, HandleEVD); err != nil {
		return EVDParam{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.streams.config()
	if e.disabled {
		state |= EVDDisabled
	} else {
		state |= EVDEnabled
	}
	if e.unwaitable {
		state |= EVDUnwaitable
	} else {
		state |= EVDWaitable
	}
	return EVDParam{IA: e.obj.ia, QLen: e.qlen, State: state, CNO: e.cno, Streams: e.flags}, nil
}

// SetUnwaitable forbids Wait: a blocked one has returned InvalidState when this call returns, later ones fail at once.
// Events still arrive, can be dequeued, and trigger the notification object.
//
// Implements: dat_evd_set_unwaitable.
func (e *EVD) SetUnwaitable() error {
	return e.change("evd_set_unwaitable", func() {
		e.unwaitable = true
		e.evict()
		for e.waiter && e.evicted { // a call that blocks after ClearUnwaitable is not evicted
			e.left.Wait()
		}
	})
}

// evict ends the blocked call, if there is one, whatever becomes of the dispatcher's state until it looks.
func (e *EVD) evict() {
	if e.waiter {
		e.evicted = true
		e.wake()
	}
}

// ClearUnwaitable permits Wait again.
//
// Implements: dat_evd_clear_unwaitable.
func (e *EVD) ClearUnwaitable() error {
	return e.change("evd_clear_unwaitable", func() { e.unwaitable = false })
}

// Enable lets notification events trigger the notification object again. Events that came while the dispatcher was
// disabled do not trigger it: dequeue after enabling.
//
// Implements: dat_evd_enable.
func (e *EVD) Enable() error {
	return e.change("evd_enable", func() {
		if e.disabled {
			e.catchUp()
			e.disabled = false
			e.watch()
		}
	})
}

// Disable keeps events from triggering the notification object. They still queue, and waiters are not affected. One
// trigger that has already begun may still be seen.
//
// Implements: dat_evd_disable.
func (e *EVD) Disable() error {
	return e.change("evd_disable", func() {
		e.drain() // what has come before triggers
		e.disabled = true
		e.watch()
	})
}

func (e *EVD) change(op string, do func()) error {
	if err := e.object().check(op, HandleEVD); err != nil {
		return err
	}
	e.mu.Lock()
	do()
	e.unlock()
	return nil
}

// hasOverrun notes that the device has lost completions: nobody may wait for more.
func (e *EVD) hasOverrun() {
	e.mu.Lock()
	e.overrun = true
	e.evict()
	e.mu.Unlock()
}
