package udat_test

import (
	"math"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
)

// TestAbsurdSizes: a size larger than the memory of the host is refused at once. The error names
// the limit, and nothing is changed.
func TestAbsurdSizes(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{})
		srq, srqErr := e.ia.CreateSRQ(e.pz, udat.SRQAttr{MaxRecvDTOs: 4, MaxRecvIOV: 1})
		calls := map[string]func(n int) error{
			"AllocLMR":  func(n int) error { _, err := e.ia.AllocLMR(e.pz, n, udat.PrivAll); return err },
			"CreateEVD": func(n int) error { _, err := e.ia.CreateEVD(n, udat.EVDDTO, nil); return err },
			"Resize":    func(n int) error { return e.recv.Resize(n) },
			"MaxRecvDTOs": func(n int) error {
				_, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, &udat.EPAttr{MaxRecvDTOs: n})
				return err
			},
			"MaxRequestDTOs": func(n int) error {
				_, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, &udat.EPAttr{MaxRequestDTOs: n})
				return err
			},
			"MaxRequestIOV": func(n int) error {
				_, err := e.ia.CreateEP(e.pz, e.recv, e.request, e.conn, &udat.EPAttr{MaxRequestIOV: n})
				return err
			},
			"SRQ": func(n int) error {
				_, err := e.ia.CreateSRQ(e.pz, udat.SRQAttr{MaxRecvDTOs: n, MaxRecvIOV: 1})
				return err
			},
			"SRQResize": func(n int) error { return srq.Resize(n) },
			"AsyncQLen": func(n int) error { _, err := udat.Open(dev, udat.WithAsyncQLen(n)); return err },
		}
		for name, call := range calls {
			if srqErr != nil && (name == "SRQ" || name == "SRQResize") {
				continue
			}
			for _, n := range []int{math.MaxInt, math.MaxInt - 4095, 1 << 46} {
				began := time.Now()
				err := call(n)
				assert.Assert(t, err != nil, "%s of %d", name, n)
				assert.Assert(t, time.Since(began) < patience, "%s of %d took %v", name, n, time.Since(began))
				t.Logf("%s: %v", name, err)
			}
		}
		if udat.DeviceAttr(e.ia).MaxMRSize > 1<<39 { // more than a host has
			_, err := e.ia.AllocLMR(e.pz, 1<<39, udat.PrivAll)
			assert.ErrorIs(t, err, udat.ErrInsufficientResources)
			assert.ErrorContains(t, err, "bytes of memory")
		}
	})
}
