package main

import (
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// finisher ends a command on a signal: Ctrl-C, SIGTERM (systemd, Kubernetes, timeout), or SIGHUP of
// a closing terminal. On the first signal a measurement that has set gently ends with the results
// so far, and on the second it is cancelled. A command without such a measurement is cancelled on
// the first, and has harshTime to return unless it has set orderly. Once a command is cancelled,
// the next signal ends the process.
type finisher struct {
	signals chan os.Signal
	gently  atomic.Bool
	orderly atomic.Bool   // the command takes its time to end, for example to notify clients
	now     chan struct{} // closed: end, keep results so far
}

const (
	// gentleTime is how long a measurement may take to end after SIGTERM or SIGHUP. After this time
	// the current run is dropped and the earlier runs are kept. The senders of these signals often
	// send SIGKILL after 30 s.
	gentleTime = 10 * time.Second
	// harshTime is how long a command may take to return after it was cancelled. One that waits for a
	// file or computes does not see that it was.
	harshTime = time.Second
	// echoTime is how long SIGTERM and SIGHUP count as the same signal as the one before: timeout of
	// GNU sends its signal to the process and then to its group.
	echoTime = time.Second
)

// newFinisher starts to handle signals. exit ends the process. After patience, a measurement is
// cancelled that does not end on SIGTERM or SIGHUP.
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
