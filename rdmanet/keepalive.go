package rdmanet

import "time"

// keepAlive detects a dead peer; Conn.mu guards it.
type keepAlive struct {
	timer  *time.Timer // calls probe; nil: no probes
	sign   bool        // a message has come since the last check
	missed int
	asked  time.Time // when the unanswered probe was sent; zero: there is none

	roundTrip time.Duration // round-trip time of the last answered probe
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

// answered handles the answer to a probe.
func (k *keepAlive) answered() {
	if !k.asked.IsZero() {
		k.roundTrip = time.Since(k.asked)
		k.asked = time.Time{}
	}
}
