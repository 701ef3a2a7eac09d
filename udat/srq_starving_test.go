package udat_test

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestSRQStarving: two senders compete for few receives. All of their messages arrive, and no post
// of a receive takes long.
func TestSRQStarving(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const messages, window = 5000, 4
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 2, udat.EPAttr{})
		needAcknowledged(t, a1)
		ended := make(chan string, 3)
		for _, a := range []*end{a1, a2} {
			go func() {
				for n := range messages + window {
					if n >= window {
						if ev, _, err := a.request.Wait(patience, 1); err != nil || ev.Status != udat.DTOSuccess {
							ended <- "a Send does not complete"
							return
						}
					}
					if n < messages && a.ep.PostSend(a.iov(0, 8), 1, 0) != nil {
						ended <- "a Send is refused"
						return
					}
				}
				ended <- ""
			}()
		}
		go func() {
			taken := func() bool {
				_, err := b1.recv.Dequeue()
				if err != nil {
					_, err = b2.recv.Dequeue()
				}
				return err == nil
			}
			for n := range 2*messages + 2 {
				for until := time.Now().Add(patience); n >= 2 && !taken(); {
					if time.Now().After(until) {
						ended <- "a receive does not complete"
						return
					}
				}
				if n < 2*messages && s.PostRecv(b1.iov(0, 8), 1) != nil {
					ended <- "a receive is refused"
					return
				}
			}
			ended <- ""
		}()
		for range cap(ended) {
			select {
			case problem := <-ended:
				assert.Equal(t, problem, "")
			case <-time.After(10 * patience):
				t.Fatal("a call does not return")
			}
		}
	})
}
