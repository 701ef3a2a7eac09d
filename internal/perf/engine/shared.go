package engine

import (
	"math"
	"sync"
	"sync/atomic"
)

// The constant unknown stands for the number of expected operations until the peer announces that
// number.
const unknown = math.MaxInt64

// shared is the state that the loop shares with the goroutine that reads the control connection.
type shared struct {
	expect  atomic.Int64  // total number of operations that the peer initiates
	counts  []uint64      // number of those operations on each queue pair; valid after told is closed
	told    chan struct{} // closed when the peer has announced its numbers
	said    atomic.Bool   // this end has announced its number of operations
	finish  atomic.Bool   // end the run now and keep the results so far
	foreign bool          // the peer is a program of perftest, whose number of operations is known from the start
	once    sync.Once
	stopped atomic.Pointer[error]
	stop    chan struct{}
}

func newShared() *shared {
	s := &shared{told: make(chan struct{}), stop: make(chan struct{})}
	s.expect.Store(unknown)
	return s
}

func (s *shared) setExpect(counts []uint64) {
	s.once.Do(func() {
		s.counts = counts
		n := uint64(0)
		for _, c := range counts {
			n += c
		}
		s.expect.Store(int64(n))
		close(s.told)
	})
}

func (s *shared) isTold() bool { return closed(s.told) }

// closed reports whether a channel has been closed. It returns false for a nil channel.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// abort ends the loop with an error. Only the first call counts.
func (s *shared) abort(err error) {
	if s.stopped.CompareAndSwap(nil, &err) {
		close(s.stop)
	}
}

func (s *shared) err() error {
	if p := s.stopped.Load(); p != nil {
		return *p
	}
	return nil
}
