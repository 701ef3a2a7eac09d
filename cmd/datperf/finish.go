package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// finisher ends a measurement on a signal: Ctrl-C, SIGTERM (systemd, Kubernetes, timeout), or
// SIGHUP of a closing terminal. A measurement that registered for it ends with the results so far;
// else the program stops at once.
type finisher struct {
	signals chan os.Signal
	gently  atomic.Bool
	now     chan struct{} // closed: end, keep results so far
}

// gentleTime is how long a measurement may take to end after SIGTERM or SIGHUP; their sender
// follows with SIGKILL, often after 30 s. Then the current run is dropped and earlier runs are
// kept.
const gentleTime = 10 * time.Second

func newFinisher(cancel func(), patience time.Duration) *finisher {
	f := &finisher{signals: make(chan os.Signal, 2), now: make(chan struct{})}
	signal.Notify(f.signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(f.signals, syscall.SIGHUP)
	}
	go func() {
		for s := range f.signals {
			if !f.gently.CompareAndSwap(true, false) {
				cancel()
				continue
			}
			close(f.now)
			if s != os.Interrupt {
				time.AfterFunc(patience, cancel)
			}
		}
	}()
	return f
}

func (f *finisher) stop() {
	signal.Stop(f.signals)
	close(f.signals)
}
