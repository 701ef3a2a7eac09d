package rdmanet

import "time"

// keepAlive finds a peer that is dead; Conn.mu guards it.
type keepAlive struct {
	timer  *time.Timer // nil: none
	sign   bool        // a message has come since the last check
	missed int
	asked  time.Time // when a probe was sent whose answer has not come; zero: none

	roundTrip time.Duration // of the last probe that was answered
}

func (k *keepAlive) start(interval time.Duration, probe func()) {
	if interval > 0 {
		k.timer = time.AfterFunc(interval, probe)
	}
}

func (k *keepAlive) stop() {
	if k.timer != nil {
		k.timer.Stop()
	}
}

func (k *keepAlive) heard() { k.sign = true }

// answered takes the answer to a probe.
func (k *keepAlive) answered() {
	if !k.asked.IsZero() {
		k.roundTrip = time.Since(k.asked)
		k.asked = time.Time{}
	}
}
