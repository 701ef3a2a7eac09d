package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// wide returns a cookie that needs all 64 bits, different for each n.
func wide(n int) udat.Cookie { return 0xfedcba98_76543210 + udat.Cookie(n)<<32 + udat.Cookie(n) }

// TestWideCookies posts each kind of work with a cookie of 64 bits, which must come back whole from
// a success and from a flush.
func TestWideCookies(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		remote := b.mem.RMRTriplet(0, 8)
		posts := map[string]func(udat.Cookie) error{
			"send":  func(c udat.Cookie) error { return a.ep.PostSend(a.iov(0, 8), c, 0) },
			"read":  func(c udat.Cookie) error { return a.ep.PostRDMARead(a.iov(0, 8), c, remote, 0) },
			"write": func(c udat.Cookie) error { return a.ep.PostRDMAWrite(a.iov(0, 8), c, remote, 0) },
			"batch": func(c udat.Cookie) error {
				_, err := a.ep.PostBatch([]udat.Op{{Kind: udat.OpRDMARead, IOV: a.iov(0, 8), Cookie: c, Remote: remote}})
				return err
			},
		}
		if udat.DeviceAttr(a.ia).MaxMW > 0 {
			r := a.window(t)
			posts["bind"] = func(c udat.Cookie) error {
				_, err := r.Bind(a.mem.Triplet(0, 8), bothRights, a.ep, c, 0)
				return err
			}
		}
		n := 0
		post := func(name string, status udat.DTOStatus, check *udat.EVD, f func(udat.Cookie) error) {
			t.Helper()
			n++
			assert.NilError(t, f(wide(n)), name)
			ev := next(t, check)
			assert.Assert(t, ev.Status == status && ev.Cookie == wide(n) && ev.EP == a.ep, "%s: %s", name, describe(ev))
		}
		for name, f := range posts {
			if name == "send" {
				assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), wide(-1), 0))
			}
			post(name, udat.DTOSuccess, a.request, f)
		}
		completion(t, b.recv, wide(-1))
		_, err := b.ep.PostRecvBatch([]udat.Recv{{IOV: b.iov(0, 8), Cookie: wide(-2)}})
		assert.NilError(t, err)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 0, 0))
		completion(t, a.request, 0)
		completion(t, b.recv, wide(-2))
		part(t, a, b, udat.CloseAbrupt)
		posts["recv"] = func(c udat.Cookie) error { return a.ep.PostRecv(a.iov(0, 8), c, 0) }
		for name, f := range posts {
			evd := a.request
			if name == "recv" {
				evd = a.recv
			}
			post(name, udat.DTOErrFlushed, evd, f)
		}
		rule.Proves(t, "POST-03")
	})
}

// TestSRQWideCookies is TestWideCookies for shared receives.
func TestSRQWideCookies(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a1, a2, b1, b2, s := twoWithSRQ(t, dev, 4, udat.EPAttr{})
		for i, ends := range [][2]*end{{a1, b1}, {a2, b2}} {
			assert.NilError(t, s.PostRecv(b1.iov(0, 8), wide(i)))
			assert.NilError(t, ends[0].ep.PostSend(ends[0].iov(0, 8), wide(10+i), 0))
			completion(t, ends[0].request, wide(10+i))
			assert.Equal(t, completion(t, ends[1].recv, wide(i)).EP, ends[1].ep)
		}
		rule.Proves(t, "SRQ-POST-03", "POST-03")
	})
}
