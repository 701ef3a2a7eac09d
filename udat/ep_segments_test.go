package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestLaterSegments: privilege and life of the region are looked at in every segment, of every kind of post.
func TestLaterSegments(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		connect(t, a, b)
		s := a.shared(t, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 3})
		none, err := a.ia.AllocLMR(a.pz, 10, udat.PrivRemoteRead)
		assert.NilError(t, err)
		gone, err := a.ia.AllocLMR(a.pz, 10, udat.PrivAll)
		assert.NilError(t, err)
		freed := gone.Triplet(0, 10)
		assert.NilError(t, gone.Free())
		for at := range 3 {
			for name, bad := range map[string]udat.LMRTriplet{"privilege": none.Triplet(0, 10), "freed": freed} {
				iov := []udat.LMRTriplet{a.mem.Triplet(0, 10), a.mem.Triplet(10, 10), a.mem.Triplet(20, 10)}
				iov[at] = bad
				assert.ErrorIs(t, a.ep.PostSend(iov, 1, 0), udat.ErrPrivilegesViolation, "%s %d", name, at)
				assert.ErrorIs(t, a.ep.PostRecv(iov, 1, 0), udat.ErrPrivilegesViolation, "%s %d", name, at)
				assert.ErrorIs(t, s.PostRecv(iov, 1), udat.ErrPrivilegesViolation, "%s %d", name, at)
			}
		}
		rule.Proves(t, "POST-09", "EP-SEND-06", "SRQ-POST-11")
	})
}
