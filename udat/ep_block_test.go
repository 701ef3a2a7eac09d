package udat_test

import (
	"testing"
	"testing/synctest"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestPostsDoNotBlock posts in virtual time, which stands still while anything runs and moves on
// when everything waits: a post that waits for anything takes time there. The peer takes nothing,
// and the queues are full in the end.
func TestPostsDoNotBlock(t *testing.T) {
	t.Run("mem0", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			const limit = 8
			attr := &udat.EPAttr{MaxRequestDTOs: limit, MaxRecvDTOs: limit}
			a, b := pair(t, "mem0", setup{attr: attr})
			r, s := a.window(t), a.shared(t, udat.SRQAttr{MaxRecvDTOs: limit})
			remote := b.mem.RMRTriplet(0, 8)
			posts := map[string]func() error{
				"send":  func() error { return a.ep.PostSend(a.iov(0, 8), 1, 0) },
				"large": func() error { return a.ep.PostSend(a.iov(0, 4096), 1, udat.CompletionSuppress) },
				"read":  func() error { return a.ep.PostRDMARead(a.iov(0, 8), 1, remote, udat.CompletionBarrierFence) },
				"write": func() error { return a.ep.PostRDMAWrite(a.iov(0, 8), 1, remote, 0) },
				"batch": func() error {
					_, err := a.ep.PostBatch([]udat.Op{{Kind: udat.OpSend, IOV: a.iov(0, 8)}})
					return err
				},
				"bind":   func() error { _, err := r.Bind(a.mem.Triplet(0, 8), bothRights, a.ep, 1, 0); return err },
				"recv":   func() error { return a.ep.PostRecv(a.iov(0, 8), 1, 0) },
				"shared": func() error { return s.PostRecv(a.iov(0, 8), 1) },
				"recv batch": func() error {
					_, err := a.ep.PostRecvBatch([]udat.Recv{{IOV: a.iov(0, 8)}})
					return err
				},
			}
			assert.NilError(t, a.ep.PostSend(nil, 0, 0)) // holds up all that follows: the peer has no receive
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
