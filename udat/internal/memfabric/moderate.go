package memfabric

import (
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

const (
	maxModeration = 1<<16 - 1
	maxPeriod     = maxModeration * time.Microsecond
)

// moderation is what a completion queue holds back of its notifications; the queue's lock is its own.
type moderation struct {
	count  int // completions that a notification stands for; 0 and 1 are each its own
	period time.Duration
	held   int // since the queue was armed
	timer  *time.Timer
}

// hold says whether the notification of a completion of c is held back, in which case it lapses in time.
func (m *moderation) hold(c *cq) bool {
	if m.held+1 >= m.count {
		return false
	}
	m.held++
	switch {
	case m.held > 1:
	case m.timer == nil:
		m.timer = time.AfterFunc(m.period, c.lapse)
	default:
		m.timer.Reset(m.period)
	}
	return true
}

func (m *moderation) release() {
	if m.held > 0 {
		m.held = 0
		m.timer.Stop()
	}
}

func (c *cq) Moderate(count int, period time.Duration) error {
	const op = "moderate CQ"
	switch {
	case count < 1 || count > maxModeration:
		return invalid(op, "count %d is not in 1 to %d", count, maxModeration)
	case period < 0 || period > maxPeriod:
		return invalid(op, "period %v is not in 0 to %v", period, maxPeriod)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return failed(op, fabric.ErrClosed)
	}
	c.mod.count, c.mod.period = count, period
	c.lapseLocked()
	return nil
}

// lapse notifies of what is held back.
func (c *cq) lapse() {
	c.mu.Lock()
	c.lapseLocked()
	c.mu.Unlock()
}

func (c *cq) lapseLocked() {
	if c.mod.held > 0 {
		c.fire()
	}
}
