package softnic

import "sync"

// Dispatcher runs queued functions one at a time, in order, in one goroutine. Its queue needs no
// limit, because an object of the device has only a few events in its life.
type Dispatcher struct {
	mu    sync.Mutex
	queue []event
	bell  chan struct{}
	quit  chan struct{}
	done  chan struct{}
}

type event struct {
	message bool // run handles a message of another device, which may wait for the answer
	run     func()
}

func (q *Dispatcher) start() {
	q.bell = make(chan struct{}, 1)
	q.quit = make(chan struct{})
	q.done = make(chan struct{})
	go q.loop()
}

// stop ends the goroutine. It waits until the function that is running has returned.
func (q *Dispatcher) stop() {
	close(q.quit)
	<-q.done
}

// turnAway empties the queue after stop. It runs the functions that AddMessage has queued, which
// reject the messages because the device is closed. It drops all other functions.
func (q *Dispatcher) turnAway() {
	for e, ok := q.next(); ok; e, ok = q.next() {
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
	q.mu.Unlock()
	Ring(q.bell)
}

func (q *Dispatcher) next() (event, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		q.queue = nil
		return event{}, false
	}
	e := q.queue[0]
	q.queue[0] = event{}
	q.queue = q.queue[1:]
	return e, true
}

func (q *Dispatcher) loop() {
	defer close(q.done)
	for {
		select {
		case <-q.quit:
			return
		default:
		}
		e, ok := q.next()
		if !ok {
			select {
			case <-q.quit:
				return
			case <-q.bell:
			}
			continue
		}
		e.run()
	}
}

// Ring wakes the goroutine that waits for the bell; it never blocks.
func Ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
