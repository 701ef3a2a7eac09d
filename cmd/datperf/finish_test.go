//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// signalled is a finisher, and a record of what it has done.
type signalled struct {
	*finisher
	t                 *testing.T
	cancelled, exited chan struct{}
}

func newSignalled(t *testing.T, gently bool, patience time.Duration) *signalled {
	s := &signalled{t: t, cancelled: make(chan struct{}, 9), exited: make(chan struct{}, 9)}
	s.finisher = newFinisher(func() { s.cancelled <- struct{}{} }, func() { s.exited <- struct{}{} }, patience)
	t.Cleanup(s.stop)
	s.gently.Store(gently)
	return s
}

func (s *signalled) send(sig os.Signal) {
	self, err := os.FindProcess(os.Getpid())
	assert.NilError(s.t, err)
	assert.NilError(s.t, self.Signal(sig))
}

func (s *signalled) comes(c <-chan struct{}) {
	s.t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		s.t.Fatal("it goes on")
	}
}

// A measurement that does not end after SIGTERM is cancelled, before whoever sent SIGTERM sends
// SIGKILL. The runs that are complete are written.
func TestTerminated(t *testing.T) {
	s := newSignalled(t, true, 100*time.Millisecond)
	s.send(syscall.SIGTERM)
	s.comes(s.now)
	s.comes(s.cancelled)
}

// A measurement ends on the first signal, and is cancelled on the second. On the third the process
// ends.
func TestSignals(t *testing.T) {
	s := newSignalled(t, true, time.Hour)
	s.send(os.Interrupt)
	s.comes(s.now)
	s.send(os.Interrupt)
	s.comes(s.cancelled)
	s.send(os.Interrupt)
	s.comes(s.exited)
}

// If the same signal comes twice at once, as from timeout, it counts once. Another signal counts.
func TestEcho(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(sig) { // under nohup
			continue
		}
		s := newSignalled(t, true, time.Hour)
		s.send(sig)
		s.comes(s.now)
		s.send(sig)
		time.Sleep(echoTime / 5)
		assert.Equal(t, len(s.cancelled), 0)
		s.send(os.Interrupt)
		s.comes(s.cancelled)
	}
}

// If a command does not notice that its context is cancelled, the process ends some time after the
// first signal, or on the second signal.
func TestDeaf(t *testing.T) {
	s := newSignalled(t, false, time.Hour)
	s.send(syscall.SIGTERM)
	s.comes(s.cancelled)
	s.comes(s.exited)
	s = newSignalled(t, false, time.Hour)
	s.orderly.Store(true)
	s.send(os.Interrupt)
	s.comes(s.cancelled)
	s.send(syscall.SIGTERM)
	s.comes(s.exited)
}
