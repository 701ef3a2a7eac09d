package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// finisher ends a measurement on a signal: Ctrl-C, SIGTERM (systemd, Kubernetes, timeout), or
// SIGHUP of a closing terminal. On the first signal a measurement that has set gently ends with the
// results so far. Without such a measurement, and on a second signal, the program stops at once.
type finisher struct {
	signals chan os.Signal
	gently  atomic.Bool
	now     chan struct{} // closed: end, keep results so far
}

// gentleTime is how long a measurement may take to end after SIGTERM or SIGHUP. After this time the
// current run is dropped and the earlier runs are kept. The senders of these signals often send
// SIGKILL after 30 s.
const gentleTime = 10 * time.Second

func newFinisher(cancel func(), patience time.Duration) *finisher {
	f := &finisher{signals: make(chan os.Signal, 2), now: make(chan struct{})}
	signal.Notify(f.signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
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
