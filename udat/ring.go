package udat

// eventRing is a first-in first-out queue of events. It allocates only to grow.
type eventRing struct {
	buf  []Event // a power of two long
	head int
	n    int
}

func newEventRing(atLeast int) eventRing {
	size := 8
	for size < atLeast {
		size *= 2
	}
	return eventRing{buf: make([]Event, size)}
}

// push appends an empty event and returns it, to be filled in.
func (r *eventRing) push() *Event {
	if r.n == len(r.buf) {
		r.reserve(r.n + 1)
	}
	ev := &r.buf[(r.head+r.n)&(len(r.buf)-1)]
	r.n++
	return ev
}

// pop takes the first event; there must be one.
func (r *eventRing) pop(to *Event) {
	slot := &r.buf[r.head]
	*to = *slot
	*slot = Event{}
	r.head = (r.head + 1) & (len(r.buf) - 1)
	if r.n--; r.n == 0 {
		r.head = 0 // the slots that are used again are in the cache
	}
}

// reserve makes room for atLeast events in all.
func (r *eventRing) reserve(atLeast int) {
	if atLeast <= len(r.buf) {
		return
	}
	bigger := newEventRing(atLeast).buf
	n := copy(bigger, r.buf[r.head:])
	copy(bigger[n:], r.buf[:r.head])
	r.buf, r.head = bigger, 0
}
