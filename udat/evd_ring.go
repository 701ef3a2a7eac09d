package udat

// eventRing is a first-in first-out queue of events. It allocates only to grow, and when trim makes
// it shorter.
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
	if atLeast > len(r.buf) {
		r.move(atLeast)
	}
}

// trim gives back memory where four times as many events fit as there may be.
func (r *eventRing) trim(most int) {
	if most = max(most, r.n); len(r.buf) > 4*most {
		r.move(most)
	}
}

// move moves the events to a buffer for atLeast events.
func (r *eventRing) move(atLeast int) {
	buf := newEventRing(atLeast).buf
	for i := range r.n {
		buf[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
	}
	r.buf, r.head = buf, 0
}
