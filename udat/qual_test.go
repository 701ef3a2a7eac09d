package udat_test

import (
	"errors"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestLargeQualifiers: the query of a service point, and the events of its requests, have the
// qualifier with which it was made, not the port, even if the qualifier is no port number. This is
// true for every kind of service point, and for a request that is handed off.
func TestLargeQualifiers(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		b := newEnd(t, dev, setup{})
		// at makes a service point on the first free qualifier, from first on.
		at := func(first udat.ConnQual, create func(udat.ConnQual) error) udat.ConnQual {
			t.Helper()
			for qual := first; ; qual-- {
				err := create(qual)
				if err == nil {
					return qual
				}
				if !errors.Is(err, udat.ErrConnQualInUse) {
					t.Fatal(err)
				}
			}
		}
		for _, first := range []udat.ConnQual{40_000, 65_535, 65_536 + 20_000, 1<<32 + 5, 1<<64 - 1} {
			for _, flags := range []udat.PSPFlags{udat.PSPConsumer, udat.PSPProvider} {
				var psp *udat.PSP
				qual := at(first, func(q udat.ConnQual) (err error) { psp, err = b.ia.CreatePSP(q, b.cr, flags); return err })
				p, err := psp.Query()
				assert.NilError(t, err)
				assert.Equal(t, p, udat.PSPParam{IA: b.ia, ConnQual: qual, EVD: b.cr, Flags: flags})
				assert.Equal(t, psp.Qual(), qual)
				a := newEnd(t, dev, setup{})
				a.call(b, qual, "")
				ev := expect(t, b.cr, udat.EventConnectionRequest)
				assert.Equal(t, ev.ConnQual(), qual)
				assert.Equal(t, ev.Object, udat.Handle(psp))
				rule.Proves(t, "PSP-CREATE-07", "PSP-QUERY-01", "GAP-40")

				var rsp *udat.RSP
				other := at(first-100, func(q udat.ConnQual) (err error) { rsp, err = b.ia.CreateRSP(q, b.ep, b.cr); return err })
				r, err := rsp.Query()
				assert.NilError(t, err)
				assert.Equal(t, r, udat.RSPParam{IA: b.ia, ConnQual: other, EVD: b.cr, EP: b.ep})
				assert.Equal(t, rsp.Qual(), other)
				assert.NilError(t, ev.CR.Handoff(other))
				ev = expect(t, b.cr, udat.EventConnectionRequest)
				assert.Equal(t, ev.ConnQual(), other)
				assert.Assert(t, ev.Object == nil, "the service point is gone: its qualifier and its endpoint say which it was")
				cp, err := ev.CR.Query()
				assert.NilError(t, err)
				assert.Equal(t, cp.LocalEP, b.ep)
				rule.Proves(t, "RSP-QUERY-01", "RSP-CREATE-04", "CR-HANDOFF-01")
				assert.NilError(t, ev.CR.Handoff(qual))
				ev = expect(t, b.cr, udat.EventConnectionRequest)
				assert.Equal(t, ev.ConnQual(), qual)
				assert.NilError(t, ev.CR.Reject(nil))
				expect(t, a.conn, udat.EventConnectionPeerRejected)

				// The event of a connect to the reserved service point itself.
				reserved := at(first-100, func(q udat.ConnQual) (err error) { _, err = b.ia.CreateRSP(q, b.ep, b.cr); return err })
				a.callAgain(b, reserved, "")
				ev = expect(t, b.cr, udat.EventConnectionRequest)
				assert.Equal(t, ev.ConnQual(), reserved)
				assert.NilError(t, ev.CR.Reject(nil))
				expect(t, a.conn, udat.EventConnectionPeerRejected)
				assert.NilError(t, psp.Free())
				rule.Proves(t, "RSP-CREATE-04", "GAP-40")
			}
		}
	})
}
