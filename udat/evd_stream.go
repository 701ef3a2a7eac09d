package udat

// streams are the completion streams that feed a dispatcher. They all carry the same completion flags.
type streams struct {
	n     int
	flags CompletionFlags
}

// consumerControlled says that the Consumer chooses which completions notify, so that waiters may not count.
func (s streams) consumerControlled() bool {
	return s.n > 0 && s.flags&(CompletionUnsignalled|CompletionSolicitedWait) != 0
}

// solicitedOnly says that the device itself tells notification events from others.
func (s streams) solicitedOnly() bool { return s.n > 0 && s.flags == CompletionSolicitedWait }

// config is that part of the dispatcher's state word.
func (s streams) config() EVDState {
	switch {
	case s.solicitedOnly():
		return EVDConfigSolicited
	case s.n > 0 && s.flags == CompletionEVDThreshold:
		return EVDConfigThreshold
	}
	return EVDConfigNotify
}

// configSubtype is what INVALID_STATE says of it.
func (s streams) configSubtype() Subtype {
	if s.solicitedOnly() {
		return SubStateEVDConfigSolicited
	}
	return SubStateEVDConfigNotify
}

// attach adds a completion stream with its flags and the number of completions that it may have outstanding.
func (e *EVD) attach(op string, flags CompletionFlags, outstanding int, q *workQueue) error {
	e.mu.Lock()
	defer e.unlockLater()
	if !e.discard {
		if e.streams.n > 0 && e.streams.flags != flags {
			return fail(op, InvalidParameter, attrArgument(op), "completion flags %v differ from %v of the other streams on the dispatcher", flags, e.streams.flags)
		}
		if flags&(CompletionUnsignalled|CompletionSolicitedWait) != 0 && e.flags&^(EVDDTO|EVDRMRBind) != 0 {
			return fail(op, InvalidParameter, attrArgument(op), "completion flags %v on a dispatcher that takes other streams too (%v): use CompletionEVDThreshold", flags, e.flags)
		}
	}
	if err := e.fit(op, e.capacity+outstanding); err != nil {
		return err
	}
	e.capacity += outstanding
	e.sources.add(q)
	if e.streams.n++; e.streams.n == 1 {
		e.streams.flags, e.armed = flags, false
		e.watch()
	}
	return nil
}

// detach ends a completion stream: nothing more of it is queued. Completions of it that are on the completion queue
// are dropped now, since their places are no longer counted.
func (e *EVD) detach(outstanding int, q *workQueue) {
	e.mu.Lock()
	defer e.unlockLater()
	e.capacity -= outstanding
	e.sources.remove(q)
	q.dropHeld()
	e.drain()
	if e.streams.n--; e.streams.n == 0 {
		e.watch()
	}
}

// sourceTable finds the queue that a completion is of by the upper half of its work request id: an index, and a
// generation that tells a queue from those that had the index before it.
type sourceTable struct {
	queues []*workQueue
	free   []uint32
	gen    uint32
}

// The upper half of a work request id: 20 bits of index, 11 of generation, and the bit that is set in those of shared
// receive queues (srqID).
const (
	sourceIndexBits = 20
	sourceIndexMask = 1<<sourceIndexBits - 1
	sourceGenMask   = 1<<11 - 1
)

func (t *sourceTable) add(q *workQueue) {
	var index uint32
	if n := len(t.free); n > 0 {
		index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		index = uint32(len(t.queues))
		t.queues = append(t.queues, nil)
	}
	t.gen = (t.gen + 1) & sourceGenMask
	q.id = uint64(t.gen<<sourceIndexBits|index) << 32
	t.queues[index] = q
}

func (t *sourceTable) remove(q *workQueue) {
	index := uint32(q.id>>32) & sourceIndexMask
	t.queues[index] = nil
	t.free = append(t.free, index)
}

// find gives the queue of a work request id, nil if it is gone.
func (t *sourceTable) find(id uint64) *workQueue {
	index := uint32(id>>32) & sourceIndexMask
	if int(index) >= len(t.queues) {
		return nil
	}
	if q := t.queues[index]; q != nil && q.id == id&^0xffffffff {
		return q
	}
	return nil
}
