package udat_test

import (
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestEverySegmentIsChecked puts a segment that is wrong in each place of a list, for each way to
// post, singly and behind a good operation of a batch.
func TestEverySegmentIsChecked(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const most = 3
		limits := udat.DeviceAttr(open(t, dev))
		reads := min(most, limits.MaxReadSGE)
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestIOV: most, MaxRecvIOV: most, MaxRDMAWriteIOV: most,
			MaxRDMAReadIOV: reads}})
		zone, err := a.ia.CreatePZ()
		assert.NilError(t, err)
		foreign, err := a.ia.AllocLMR(zone, 4096, udat.PrivAll)
		assert.NilError(t, err)
		gone := a.lmr(4096, udat.PrivAll)
		assert.NilError(t, gone.Free())
		readable := a.lmr(4096, udat.PrivLocalRead)
		writable := a.lmr(4096, udat.PrivLocalWrite|udat.PrivRemoteRead|udat.PrivRemoteWrite)
		type way struct {
			name string
			most int
			need udat.MemPriv
			post func(iov []udat.LMRTriplet) error
		}
		remote := b.mem.RMRTriplet(0, 8*most)
		ways := []way{{"recv", most, udat.PrivLocalWrite, func(iov []udat.LMRTriplet) error {
			return a.ep.PostRecv(iov, 1,
				0)
		}},
			{"recv batch", most, udat.PrivLocalWrite, func(iov []udat.LMRTriplet) error {
				_, err := a.ep.PostRecvBatch([]udat.Recv{{IOV: iov}})
				return err
			}}}
		for kind := udat.OpSend; kind <= udat.OpRDMARead; kind++ {
			w := way{name: "batch", most: most, need: udat.PrivLocalRead}
			switch {
			case kind == udat.OpSendInvalidate, (kind == udat.OpSendImmediate || kind == udat.OpRDMAWriteImmediate) &&
				!limits.WriteImmediate:
				continue
			case kind == udat.OpRDMARead:
				w.most, w.need = reads, udat.PrivLocalWrite
			}
			good := udat.Op{Kind: udat.OpRDMAWrite, IOV: a.iov(0, 8), Remote: remote, Flags: udat.CompletionSuppress}
			for before := range 2 {
				w.post = func(iov []udat.LMRTriplet) error {
					bad := udat.Op{Kind: kind, IOV: iov, Remote: b.mem.RMRTriplet(0, length(iov))}
					n, err := a.ep.PostBatch([]udat.Op{good, bad}[1-before:])
					for errorsIs(err, udat.ErrInsufficientResources) {
						n, err = a.ep.PostBatch([]udat.Op{good, bad}[1-before:])
					}
					assert.Equal(t, n, before, "%v", err)
					return err
				}
				ways = append(ways, w)
			}
		}
		var s *udat.SRQ
		if limits.MaxSRQ > 0 {
			s = a.shared(t, udat.SRQAttr{MaxRecvDTOs: 2, MaxRecvIOV: most})
			ways = append(ways, way{"shared", most, udat.PrivLocalWrite,
				func(iov []udat.LMRTriplet) error { return s.PostRecv(iov, 1) }})
		}
		for _, w := range ways {
			lacking, lacks, protection := writable, udat.SubPrivilegesRead, udat.SubProtectionRead
			if w.need == udat.PrivLocalWrite {
				lacking, lacks, protection = readable, udat.SubPrivilegesWrite, udat.SubProtectionWrite
			}
			for _, bad := range []struct {
				name    string
				segment udat.LMRTriplet
				want    *udat.Error
			}{
				{"freed", gone.Triplet(0, 8), udat.WithSubtype(udat.PrivilegesViolation, udat.SubNone)},
				{"no region", udat.LMRTriplet{SegmentLength: 8}, udat.WithSubtype(udat.PrivilegesViolation, udat.SubNone)},
				{"privilege", lacking.Triplet(0, 8), udat.WithSubtype(udat.PrivilegesViolation, lacks)},
				{"zone", foreign.Triplet(0, 8), udat.WithSubtype(udat.ProtectionViolation, protection)},
				{"outside", a.mem.Triplet(endMemory-4, 8), udat.WithSubtype(udat.InvalidParameter, udat.SubArg3)},
				{"before", a.mem.Triplet(-4, 8), udat.WithSubtype(udat.InvalidParameter, udat.SubArg3)},
			} {
				for at := range w.most {
					for _, fill := range []udat.LMRTriplet{a.mem.Triplet(0, 8), {}} { // the others: good, or empty
						iov := make([]udat.LMRTriplet, w.most)
						for i := range iov {
							iov[i] = fill
						}
						iov[at] = bad.segment
						assert.ErrorIs(t, w.post(iov), bad.want, "%s, need 0x%x, segment %d: %s", w.name, uint32(w.need), at, bad.name)
					}
				}
			}
		}
		eventually(t, func() bool { _, _, idle, err := a.ep.GetStatus(); return err == nil && idle }, "work is left")
		_, recvIdle, _, err := a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, recvIdle)
		empty(t, a.request)
		if s != nil {
			assert.Equal(t, count(t, s).OutstandingDTOCount, 0)
			rule.Proves(t, "SRQ-POST-11")
		}
		rule.Proves(t, "POST-07", "POST-08", "POST-09", "EP-SEND-06", "EP-RECV-10", "EP-READ-05", "EP-WRITE-04")
	})
}
