package softnic

import "sync"

// Dispatcher runs queued functions one at a time, in order: in the calls of Attend, or if there is
// none, in a goroutine. Its queue needs no limit, because an object of the device has only a few
// events in its life.
type Dispatcher struct {
	mu      sync.Mutex
	queue   []event
	attends int       // calls of Attend that will run what is queued; after stop one more
	running bool      // a goroutine runs what is queued
	idle    sync.Cond // signals that none does
	quit    chan struct{}
}

type event struct {
	message bool // run handles a message of another device, which may wait for the answer
	run     func()
}

func (q *Dispatcher) start() { q.quit, q.idle.L = make(chan struct{}), &q.mu }

// Attend calls f, and then runs the functions that were queued meanwhile. The caller holds no lock,
// and f does not wait.
func (q *Dispatcher) Attend(f func()) {
	q.mu.Lock()
	q.attends++
	q.mu.Unlock()
	f()
	q.mu.Lock()
	q.attends--
	run := q.claim()
	q.mu.Unlock()
	if run {
		q.loop()
	}
}

// claim reports whether the caller must call loop; mu is held.
func (q *Dispatcher) claim() bool {
	if q.running || q.attends > 0 || len(q.queue) == 0 {
		return false
	}
	q.running = true
	return true
}

// stop waits until the function that is running has returned. No other runs afterwards.
func (q *Dispatcher) stop() {
	close(q.quit)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.attends++; q.running; {
		q.idle.Wait()
	}
}

// turnAway empties the queue after stop. It runs the functions that AddMessage has queued, which
// reject the messages because the device is closed. It drops all other functions.
func (q *Dispatcher) turnAway() {
	q.mu.Lock()
	queue := q.queue
	q.queue = nil
	q.mu.Unlock()
	for _, e := range queue {
		if e.message {
			e.run()
		}
	}
}

// Add queues the function f. The dispatcher calls f after all functions that were queued earlier.
func (q *Dispatcher) Add(f func()) { q.put(event{run: f}) }

// AddMessage is like Add, for a function that handles a message of another device.
func (q *Dispatcher) AddMessage(f func()) { q.put(event{run: f, message: true}) }

func (q *Dispatcher) put(e event) {
	q.mu.Lock()
	q.queue = append(q.queue, e)
	run := q.claim()
	q.mu.Unlock()
	if run {
		go q.loop()
	}
}

// loop runs what is queued, until stop.
func (q *Dispatcher) loop() {
	for e, ok := q.next(); ok; e, ok = q.next() {
		e.run()
	}
}

func (q *Dispatcher) next() (e event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 || q.quits() {
		q.running = false
		q.idle.Broadcast()
		return e, false
	}
	e, q.queue[0] = q.queue[0], e
	if q.queue = q.queue[1:]; len(q.queue) == 0 {
		q.queue = nil
	}
	return e, true
}

// quits reports whether stop has been called.
func (q *Dispatcher) quits() bool {
	select {
	case <-q.quit:
		return true
	default:
		return false
	}
}

// Ring wakes the goroutine that waits for the bell; it never blocks.
func Ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
