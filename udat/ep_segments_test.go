package udat_test

import (
	"slices"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestEverySegmentIsChecked puts an invalid segment at each position of a list, for each kind of
// post, alone and after a valid operation in a batch.
func TestEverySegmentIsChecked(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const most = 3
		limits := udat.DeviceAttr(open(t, dev))
		reads := min(most, limits.MaxReadSGE)
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestIOV: most, MaxRecvIOV: most,
			MaxRDMAWriteIOV: most, MaxRDMAReadIOV: reads}})
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
					for _, fill := range []udat.LMRTriplet{a.mem.Triplet(0, 8), {}} { // the other segments: valid, or empty
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
		rule.Proves(t, "POST-07", "POST-08", "POST-09", "EP-SEND-06", "EP-READ-05", "EP-WRITE-04")
	})
}

// TestOverlappingSegments sends and writes segments that overlap or are equal: all of them arrive,
// in order.
func TestOverlappingSegments(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		data := a.put(0, 64, 9)
		iov := []udat.LMRTriplet{a.mem.Triplet(0, 16), a.mem.Triplet(8, 16), a.mem.Triplet(0, 16), a.mem.Triplet(4, 2)}
		want := slices.Concat(data[:16], data[8:24], data[:16], data[4:6])
		for i := range udat.Cookie(3) {
			clear(b.get(0, 512))
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 128), i, 0))
			assert.NilError(t, a.ep.PostRDMAWrite(iov, i, b.mem.RMRTriplet(256, len(want)), 0))
			assert.NilError(t, a.ep.PostSend(iov, i, 0))
			completion(t, a.request, i)
			completion(t, a.request, i)
			assert.Equal(t, completion(t, b.recv, i).Length, uint64(len(want)))
			sameBytes(t, b.get(0, len(want)), want)
			sameBytes(t, b.get(256, len(want)), want)
		}
		rule.Proves(t, "EP-SEND-01", "EP-WRITE-01")
	})
}

// TestRecvErrors posts a receive with each invalid buffer, at each position, in every state of the
// endpoint: the error is that of the buffer in every state.
func TestRecvErrors(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const most, limit = 3, 4
		for _, s := range canBe(t, dev) {
			e, _ := inState(t, dev, s, setup{attr: &udat.EPAttr{MaxRecvIOV: most, MaxRecvDTOs: limit}})
			zone, err := e.ia.CreatePZ()
			assert.NilError(t, err)
			foreign, err := e.ia.AllocLMR(zone, 64, udat.PrivAll)
			assert.NilError(t, err)
			gone := e.lmr(64, udat.PrivAll)
			assert.NilError(t, gone.Free())
			readable, writable := e.lmr(64, udat.PrivAll&^udat.PrivLocalWrite), e.lmr(64, udat.PrivLocalWrite)
			for at := range most {
				for _, bad := range []struct {
					segment udat.LMRTriplet
					want    *udat.Error
				}{
					{gone.Triplet(0, 8), udat.ErrPrivilegesViolation},
					{readable.Triplet(0, 8), udat.WithSubtype(udat.PrivilegesViolation, udat.SubPrivilegesWrite)},
					{foreign.Triplet(0, 8), udat.WithSubtype(udat.ProtectionViolation, udat.SubProtectionWrite)},
					{writable.Triplet(60, 8), udat.WithSubtype(udat.InvalidParameter, udat.SubArg3)},
				} {
					iov := []udat.LMRTriplet{writable.Triplet(0, 8), writable.Triplet(8, 8), writable.Triplet(16, 8)}
					iov[at] = bad.segment
					assert.ErrorIs(t, e.ep.PostRecv(iov, 1, 0), bad.want, "%v, segment %d", s, at)
					assert.ErrorIs(t, e.ep.PostRecv(iov[at:at+1], 1, 0), bad.want, "%v, alone", s)
				}
			}
			good := []udat.LMRTriplet{writable.Triplet(0, 8), writable.Triplet(8, 8), writable.Triplet(16, 8)}
			switch s {
			case udat.EPDisconnected: // there a receive is flushed at once
				for i := range udat.Cookie(2 * limit) {
					assert.NilError(t, e.ep.PostRecv(good, i, 0))
					flushed(t, e.recv, i)
				}
			case udat.EPTentativeConnection: // the provider's endpoint has another limit
				assert.NilError(t, e.ep.PostRecv(good, 1, 0))
			default:
				for i := range udat.Cookie(limit) {
					assert.NilError(t, e.ep.PostRecv(good, i, 0))
				}
				refused(t, e.ep.PostRecv(good, 9, 0), udat.InsufficientResources, udat.SubResourceCredits)
			}
		}
		e := newEnd(t, dev, setup{})
		assert.NilError(t, e.ep.Free())
		for _, ep := range []*udat.EP{nil, e.ep, {}} {
			refused(t, ep.PostRecv(nil, 1, 0), udat.InvalidHandle, udat.SubHandleEP)
		}
		rule.Proves(t, "EP-RECV-10", "EP-RECV-11", "EPST-50")
	})
}
