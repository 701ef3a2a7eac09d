package engine

import (
	"errors"
	"fmt"
	"time"
)

// Each end sends a sign of life every aliveEvery. If an end receives no message from its peer for
// silentTime, it warns. After goneTime without a message it closes the control connection. TCP
// alone does not detect a frozen process, and takes minutes to detect a vanished host.
const (
	aliveEvery = 2 * time.Second
	silentTime = 8 * time.Second
	goneTime   = 30 * time.Second
)

// ErrSilent is the error if a peer was connected, but sends nothing.
var ErrSilent = errors.New("it is frozen, or its host or the network is gone")

// live starts a goroutine that sends signs of life and watches for those of the peer. If the peer
// is silent, the goroutine calls warn once, unless warn is nil. If the connection is a pipe, there
// is no such goroutine, because both ends are in one process.
func (k *control) live(warn func(text string)) {
	if k.conn.RemoteAddr().Network() == "pipe" {
		return
	}
	k.heard.Store(int64(time.Since(k.begun)))
	go func() {
		tick := time.NewTicker(aliveEvery / 2)
		defer tick.Stop()
		for sent := time.Now(); ; {
			select {
			case <-k.done:
				return
			case <-k.gone:
				return
			case <-tick.C:
			}
			silent := time.Since(k.begun) - time.Duration(k.heard.Load())
			if silent > silentTime && warn != nil {
				warn(fmt.Sprintf("nothing was heard from the %s at %v for %v: it is frozen, or its host or the network is gone; "+
					"giving up after %v", k.peer, k.conn.RemoteAddr(), silent.Round(time.Second), goneTime))
				warn = nil
			}
			if silent > goneTime {
				err := fmt.Errorf("nothing was heard from the %s for %v: %w", k.peer, goneTime, ErrSilent)
				k.silent.Store(&err)
				k.conn.Close()
				return
			}
			if time.Since(sent) >= aliveEvery {
				sent = time.Now()
				k.sendFor(message{Kind: msgAlive}, aliveEvery)
			}
		}
	}()
}

// errFlood reports that a peer sent signs of life too often.
var errFlood = errors.New("more signs of life than a living peer sends")

// alive counts a sign of life of the peer, and returns errFlood if there were too many.
func (k *control) alive() error {
	const tolerance = 100
	k.signs++
	if k.signs > tolerance+int(time.Since(k.begun)/(aliveEvery/4)) {
		return errFlood
	}
	return nil
}
