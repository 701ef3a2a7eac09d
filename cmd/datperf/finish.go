package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// finisher ends a command on a signal: Ctrl-C, SIGTERM (from systemd, Kubernetes or timeout), or
// SIGHUP (from a terminal that closes). The field gently is true once a plan has begun. Then the
// first signal ends the measurement and keeps the results so far, and the second signal cancels the
// command. If gently is false, the first signal cancels the command. The command must then return
// within harshTime, unless the field orderly is true. Once the command is cancelled, the next
// signal ends the process.
type finisher struct {
	signals chan os.Signal
	gently  atomic.Bool
	orderly atomic.Bool   // the command may take longer than harshTime to end, for example to notify clients
	now     chan struct{} // closed when the measurement must end and keep the results so far
}

const (
	// gentleTime is how long a measurement may take to end after SIGTERM or SIGHUP. After this time
	// the current run is dropped, and the results of earlier runs are kept. Whoever sends these
	// signals often sends SIGKILL after 30 s.
	gentleTime = 10 * time.Second
	// harshTime is how long a command may take to return after it was cancelled. After this time
	// the process ends, because a command that waits for a file, or that computes, does not notice
	// that it was cancelled.
	harshTime = time.Second
	// If SIGTERM or SIGHUP comes again within echoTime, it counts as the same signal. GNU timeout
	// sends its signal twice: to the process, and then to the process's group.
	echoTime = time.Second
)

// newFinisher starts to handle signals. The function cancel cancels the command, and the function
// exit ends the process. The argument patience is how long a measurement may take to end after
// SIGTERM or SIGHUP. After that time the command is cancelled.
func newFinisher(cancel, exit func(), patience time.Duration) *finisher {
	f := &finisher{signals: make(chan os.Signal, 2), now: make(chan struct{})}
	signal.Notify(f.signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(f.signals, syscall.SIGHUP)
	}
	go f.handle(cancel, exit, patience)
	return f
}

func (f *finisher) handle(cancel, exit func(), patience time.Duration) {
	var last os.Signal
	var at time.Time
	var late, harsh <-chan time.Time
	ending, cancelled := false, false
	for {
		select {
		case <-late:
			cancel()
			cancelled = true
		case <-harsh:
			exit()
		case s, ok := <-f.signals:
			switch {
			case !ok:
				return
			case s == last && s != os.Interrupt && time.Since(at) < echoTime:
				continue
			case cancelled:
				exit()
			case f.gently.Load() && !ending:
				ending = true
				close(f.now)
				if s != os.Interrupt {
					late = time.After(patience)
				}
			default:
				cancelled = true
				cancel()
				if !f.gently.Load() && !f.orderly.Load() {
					harsh = time.After(harshTime)
				}
			}
			last, at = s, time.Now()
		}
	}
}

func (f *finisher) stop() {
	signal.Stop(f.signals)
	close(f.signals)
}
