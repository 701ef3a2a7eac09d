package udat

import "time"

// Moderation: a program that takes its events by the hundred, with one threshold wait after the other, is woken once for
// each hundred where the device can hold its notifications back. Telling it costs a command, and what it holds back is late if fewer
// come. So it is told only where call after call needs as many and has them at once, and that it is over as soon as one does not.

const (
	moderateAfter  = 8           // calls in a row that need as many completions, before the device is told
	moderatePeriod = spinDefault // how long a completion is held back at the most: one may be an error, or the last
)

// moderation is what a dispatcher knows of the thresholds waited for, and what it has told the device.
type moderation struct {
	needed, row int // completions that the latest call needed, and how many before it needed as many, and had them within the period
	told        int // completions that a notification stands for; 0: each has its own
	refused     bool
}

// learn draws the lesson of a call that has blocked for needed completions since it began.
func (m *moderation) learn(needed int, came bool, began time.Time) {
	switch {
	case needed < 1: // they had come before it blocked
	case needed != m.needed || !came || needed > 1 && time.Since(began) > moderatePeriod:
		m.needed, m.row = needed, 0
	default:
		m.row = min(m.row+1, moderateAfter)
	}
}

// moderate tells the device for how many completions it is to notify from now on, where a call needs so many more; e.mu is held.
// Other events count for a threshold too, and completions that make none do not: the period bounds what either costs.
func (e *EVD) moderate(needed int) {
	m, want := &e.moderation, 0
	if needed > 1 && needed == m.needed && m.row == moderateAfter && !e.mustFollow() && e.cq != nil {
		want = min(needed, e.obj.ia.device.Attr().MaxModeration)
	}
	if want == m.told || m.refused {
		return
	}
	if m.refused = e.cq.Moderate(max(want, 1), moderatePeriod) != nil; !m.refused {
		m.told = want
	}
}
