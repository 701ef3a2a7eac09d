package udat

import "time"

// Moderation: a program that takes its events by the hundred, with one threshold wait after the other, is woken once for
// each hundred where the device can hold its notifications back. Telling it costs a command, so that it is told only where
// the same threshold comes again and again, and that it is over as soon as anything else is wanted.

const (
	moderateAfter  = 8                // calls in a row that block for the same threshold, before the device is told
	moderatePeriod = spinDefault      // how long a completion is held back at the most: one may be an error, or the last
	moderateOver   = time.Microsecond // of notifications that stand for one completion
)

// moderation is what a dispatcher knows of the thresholds waited for, and what it has told the device.
type moderation struct {
	threshold, row int // of the latest calls that blocked
	told           int // completions that a notification stands for
	refused        bool
}

// note counts a call that is about to block for threshold events.
func (m *moderation) note(threshold int) {
	if m.threshold != threshold {
		m.threshold, m.row = threshold, 0
	}
	m.row = min(m.row+1, moderateAfter)
}

// moderate tells the device for how many completions it is to notify from now on; e.mu is held. Other events count for a threshold
// too, and completions that make none do not: the period bounds what either costs.
func (e *EVD) moderate() {
	m, want := &e.moderation, 1
	switch {
	case e.mustFollow():
	case !e.waiter || e.cq == nil:
		return // the next call may want the same
	case m.row == moderateAfter:
		want = max(min(m.threshold, e.obj.ia.device.Attr().MaxModeration), 1)
	}
	if want == m.told || m.refused {
		return
	}
	period := moderatePeriod
	if want == 1 {
		period = moderateOver
	}
	if m.refused = e.cq.Moderate(want, period) != nil; !m.refused {
		m.told = want
	}
}
