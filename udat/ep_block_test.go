package udat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestPostsDoNotBlock posts in virtual time, which passes only while all goroutines wait, so that a
// post that waits takes time. The peer receives nothing, and the queues are full in the end.
func TestPostsDoNotBlock(t *testing.T) {
	t.Run("mem0", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const limit = 8
			a, posts := heldUp(t, "mem0", limit)
			r, s := a.window(t), a.shared(t, udat.SRQAttr{MaxRecvDTOs: limit})
			posts["batch of sends"] = func() error {
				_, err := a.ep.PostBatch([]udat.Op{{Kind: udat.OpSend, IOV: a.iov(0, 8)}})
				return err
			}
			posts["bind"] = func() error { _, err := r.Bind(a.mem.Triplet(0, 8), bothRights, a.ep, 1, 0); return err }
			posts["shared"] = func() error { return s.PostRecv(a.iov(0, 8), 1) }
			full := map[string]bool{}
			for range 2 * limit {
				for name, post := range posts {
					start := time.Now()
					err := post()
					assert.Equal(t, time.Since(start), time.Duration(0), "%s: %v", name, err)
					if errorsIs(err, udat.ErrInsufficientResources) {
						full[name] = true
						continue
					}
					assert.NilError(t, err, name)
				}
			}
			assert.Equal(t, len(full), len(posts), "%v", full)
			assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
			rule.Proves(t, "GEN-09", "POST-06", "SRQ-POST-04", "EP-RECV-13", "EP-READ-08")
		})
	})
}

// heldUp returns a connected end and posts of each kind; the peer receives nothing.
func heldUp(t *testing.T, dev string, limit int) (*end, map[string]func() error) {
	t.Helper()
	a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: limit, MaxRecvDTOs: limit}})
	remote := b.mem.RMRTriplet(0, 8)
	posts := map[string]func() error{
		"send":  func() error { return a.ep.PostSend(a.iov(0, 8), 1, 0) },
		"large": func() error { return a.ep.PostSend(a.iov(0, 4096), 1, udat.CompletionSuppress) },
		"read":  func() error { return a.ep.PostRDMARead(a.iov(0, 8), 1, remote, udat.CompletionBarrierFence) },
		"write": func() error { return a.ep.PostRDMAWrite(a.iov(0, 8), 1, remote, 0) },
		"batch": func() error {
			_, err := a.ep.PostBatch([]udat.Op{{Kind: udat.OpRDMAWrite, IOV: a.iov(0, 8), Remote: remote}})
			return err
		},
		"recv": func() error { return a.ep.PostRecv(a.iov(0, 8), 1, 0) },
		"recv batch": func() error {
			_, err := a.ep.PostRecvBatch([]udat.Recv{{IOV: a.iov(0, 8)}})
			return err
		},
	}
	if acknowledged(a) {
		assert.NilError(t, a.ep.PostSend(nil, 0, 0)) // blocks all later requests: the peer has no receive
	} else {
		delete(posts, "send") // iWARP breaks the connection of a peer without a receive
		delete(posts, "large")
	}
	return a, posts
}

// TestPostsReturn is the same on a device in real time: no post waits for the peer, which receives
// nothing, or for room in a full queue.
func TestPostsReturn(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 8
		a, posts := heldUp(t, dev, limit)
		full := make(map[string]bool)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 2 * limit {
				for name, post := range posts {
					if err := post(); errorsIs(err, udat.ErrInsufficientResources) {
						full[name] = true
					} else if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		}()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("a post waits")
		}
		assert.Assert(t, full["recv"] && full["recv batch"])
		if acknowledged(a) {
			assert.Equal(t, len(full), len(posts), "%v", full)
		}
		assert.NilError(t, a.ep.Disconnect(udat.CloseAbrupt))
		rule.Proves(t, "GEN-09", "POST-06", "EP-RECV-13", "EP-READ-08")
	})
}

// TestPostsInUpcall posts in a wait agent, which must not block: a receive, a read and an answer
// for each message, for more rounds than the queues have slots.
func TestPostsInUpcall(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const rounds, limit = 20, 4
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: limit, MaxRecvDTOs: limit}})
		upcalls := make(chan error, rounds)
		var cno *udat.CNO
		var answer udat.WaitAgent
		answer = func(evd *udat.EVD) {
			_, err := evd.Dequeue()
			if err == nil {
				err = cno.ModifyAgent(answer)
			}
			if err == nil {
				err = b.ep.PostRecv(b.iov(0, 8), 2, 0)
			}
			if err == nil {
				err = b.ep.PostRDMARead(b.iov(64, 64), 4, a.mem.RMRTriplet(64, 64), udat.CompletionSuppress)
			}
			if err == nil {
				err = b.ep.PostSend(b.iov(128, 64), 3, udat.CompletionSuppress|udat.CompletionBarrierFence)
			}
			upcalls <- err
		}
		cno = newCNO(t, b.ia, answer)
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 2, 0))
		assert.NilError(t, b.recv.ModifyCNO(cno))
		for i := range udat.Cookie(rounds) {
			want := a.put(64, 64, byte(i))
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 64), i, 0))
			assert.NilError(t, a.ep.PostSend(a.iov(8, 8), i, 0))
			completion(t, a.request, i)
			assert.NilError(t, one(t, upcalls))
			completion(t, a.recv, i) // the answer waits for the read
			sameBytes(t, b.get(64, 64), want)
		}
		rule.Proves(t, "GEN-09", "CNO-05", "CNO-06")
	})
}
