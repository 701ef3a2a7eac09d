package udat

// eventRing is a first-in first-out queue of events. It allocates memory only when it grows and
// when trim makes it shorter.
type eventRing struct {
	buf  []Event // its length is a power of two
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

// push appends an empty event and returns it; the caller fills it in.
func (r *eventRing) push() *Event {
	if r.n == len(r.buf) {
		r.reserve(r.n + 1)
	}
	ev := &r.buf[(r.head+r.n)&(len(r.buf)-1)]
	r.n++
	return ev
}

// pop removes the first event and stores it in *to. The ring must not be empty.
func (r *eventRing) pop(to *Event) {
	slot := &r.buf[r.head]
	*to = *slot
	*slot = Event{}
	r.head = (r.head + 1) & (len(r.buf) - 1)
	if r.n--; r.n == 0 {
		r.head = 0 // the first slots are used again while they are in the cache
	}
}

// filter removes the events for which stays returns false.
func (r *eventRing) filter(stays func(*Event) bool) {
	n := r.n
	r.n = 0
	for i := range n {
		ev := &r.buf[(r.head+i)&(len(r.buf)-1)]
		if stays(ev) {
			to := &r.buf[(r.head+r.n)&(len(r.buf)-1)]
			*to = *ev
			r.n++
			if to == ev {
				continue
			}
		}
		*ev = Event{}
	}
}

// reserve makes room for atLeast events in total.
func (r *eventRing) reserve(atLeast int) {
	if atLeast > len(r.buf) {
		r.move(atLeast)
	}
}

// trim shortens the buffer if it has room for more than 4*most events.
func (r *eventRing) trim(most int) {
	if most = max(most, r.n); len(r.buf) > 4*most {
		r.move(most)
	}
}

// move moves the events to a new buffer for at least atLeast events.
func (r *eventRing) move(atLeast int) {
	buf := newEventRing(atLeast).buf
	for i := range r.n {
		buf[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
	}
	r.buf, r.head = buf, 0
}
