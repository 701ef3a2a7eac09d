package udat_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/rule"
)

// TestRDMASegments reads and writes with local memory of many shapes.
func TestRDMASegments(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestIOV: 4}})
		cookie := udat.Cookie(0)
		for _, shape := range [][]int{{0}, {1}, {100}, {30, 70}, {1, 0, 99}, {25, 25, 25, 25}, {0, 0, 1, 0}, {3, 200, 5},
			{4096, 1}} {
			n := total(shape)
			readable := len(shape) <= udat.DeviceAttr(a.ia).MaxReadSGE
			for _, remote := range []int{n, n + 1, n + 1000} {
				cookie++
				want := a.put(0, n+1, byte(cookie))[:n]
				fill(b.get(0, n+2000), 0xEE)
				assert.NilError(t, a.ep.PostRDMAWrite(a.consecutive(shape), cookie, b.mem.RMRTriplet(8, remote), 0))
				ev := completion(t, a.request, cookie)
				assert.Equal(t, ev.Length, uint64(n))
				if !acknowledged(a) { // the data may not have arrived yet; a read comes after it
					assert.NilError(t, a.ep.PostRDMARead(a.iov(endMemory-1, 1), cookie, b.mem.RMRTriplet(0, 1), 0))
					completion(t, a.request, cookie)
				}
				sameBytes(t, b.get(8, n), want)
				for _, x := range append(b.get(0, 8), b.get(8+n, 1000)...) {
					assert.Equal(t, x, byte(0xEE), "more was written")
				}
			}
			for _, remote := range []int{n, n - 1, n / 2, 0} {
				if remote < 0 || !readable {
					continue
				}
				cookie++
				want := b.put(0, 5+remote, byte(cookie))[5:]
				fill(a.get(0, len(shape)*spreadStep), 0xEE)
				assert.NilError(t, a.ep.PostRDMARead(a.spread(shape), cookie, b.mem.RMRTriplet(5, remote), 0))
				ev := completion(t, a.request, cookie)
				assert.Equal(t, ev.Length, uint64(remote))
				a.checkSpread(shape, want)
			}
			if n > 0 {
				refused(t, a.ep.PostRDMAWrite(a.consecutive(shape), cookie, b.mem.RMRTriplet(0, n-1), 0), udat.LengthError)
			}
			if readable {
				refused(t, a.ep.PostRDMARead(a.spread(shape), cookie, b.mem.RMRTriplet(0, n+1), 0), udat.LengthError)
			}
		}
		assert.Equal(t, state(t, a.ep), udat.EPConnected)
		for _, evd := range []*udat.EVD{a.request, b.recv, b.request} {
			empty(t, evd)
		}
		rule.Proves(t, "EP-READ-01", "EP-READ-02", "EP-WRITE-01", "EP-WRITE-02", "EP-WRITE-05", "GAP-62", "GAP-64",
			"GAP-68", "C-08")
	})
}

// TestWriteThenSend: the data of a write has arrived when a later Send is received.
func TestWriteThenSend(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		for i := range 50 {
			assert.NilError(t, b.ep.PostRecv(nil, 0, 0))
			want := a.put(0, 20000, byte(i))
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 20000), 1, b.mem.RMRTriplet(0, 20000), udat.CompletionSuppress))
			assert.NilError(t, a.ep.PostSend(nil, 2, 0))
			completion(t, b.recv, 0)
			sameBytes(t, b.get(0, 20000), want)
			completion(t, a.request, 2)
		}
		empty(t, b.recv)
		rule.Proves(t, "EP-WRITE-05", "POST-15")
	})
}

// remoteFault is a fault of the memory at the other end.
type remoteFault struct {
	name string
	make func(t *testing.T, b *end, write bool) udat.RMRTriplet
}

var remoteFaults = []remoteFault{
	{"no such context", func(t *testing.T, b *end, _ bool) udat.RMRTriplet {
		r := b.mem.RMRTriplet(0, 64)
		r.RMRContext ^= 0x5a5a00
		return r
	}},
	{"lacks the privilege", func(t *testing.T, b *end, write bool) udat.RMRTriplet {
		if write {
			return b.lmr(4096, udat.PrivLocalRead|udat.PrivLocalWrite|udat.PrivRemoteRead).RMRTriplet(0, 64)
		}
		return b.lmr(4096, udat.PrivLocalRead|udat.PrivLocalWrite|udat.PrivRemoteWrite).RMRTriplet(0, 64)
	}},
	{"begins before the region", func(t *testing.T, b *end, _ bool) udat.RMRTriplet {
		r := b.mem.RMRTriplet(0, 64)
		r.TargetAddress--
		return r
	}},
	{"ends after the region", func(t *testing.T, b *end, _ bool) udat.RMRTriplet {
		return b.mem.RMRTriplet(endMemory-63,
			64)
	}},
	{"other zone", func(t *testing.T, b *end, _ bool) udat.RMRTriplet {
		pz, err := b.ia.CreatePZ()
		assert.NilError(t, err)
		l, err := b.ia.AllocLMR(pz, 4096, udat.PrivAll)
		assert.NilError(t, err)
		return l.RMRTriplet(0, 64)
	}},
	{"freed region", func(t *testing.T, b *end, _ bool) udat.RMRTriplet {
		l := b.lmr(4096, udat.PrivAll)
		r := l.RMRTriplet(0, 64)
		assert.NilError(t, l.Free())
		return r
	}},
}

// targetOfFault dequeues the event of the end that has refused a remote operation. If the fabric
// reports the refusal to that end, the connection is broken; otherwise the event may only be the
// peer's disconnect.
func targetOfFault(t *testing.T, b *end) {
	t.Helper()
	ev := next(t, b.conn)
	if b.ia.Device().Attr().TellsTarget || ev.Number != udat.EventConnectionDisconnected {
		assert.Equal(t, ev.Number, udat.EventConnectionBroken, describe(ev))
	}
	assert.Equal(t, state(t, b.ep), udat.EPDisconnected)
}

// TestRemoteFaults: the completion reports a fault at the other end, and the connection breaks.
func TestRemoteFaults(t *testing.T) {
	onEachOutside(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		for _, write := range []bool{false, true} {
			for _, f := range remoteFaults {
				t.Run(fmt.Sprintf("%s, write %v", f.name, write), func(t *testing.T) {
					remote := f.make(t, b, write)
					fill(a.get(0, 64), 0xEE)
					before := b.put(0, 1000, 1)
					assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 6, 0))
					assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), 7, 0))
					post := a.ep.PostRDMARead
					if write {
						post = a.ep.PostRDMAWrite
					}
					if !acknowledged(a) {
						if f.name == "lacks the privilege" {
							return // soft-iWARP does not check it: see docs/deviations.md
						}
						assert.NilError(t, post(a.iov(0, 64), 1, remote, 0))
						noAccess(t, a, b, 1)
						sameBytes(t, b.get(0, 1000), before)
						again(t, a, b)
						return
					}
					assert.NilError(t, post(a.iov(0, 64), 1, remote, udat.CompletionSuppress))
					assert.NilError(t, a.ep.PostSend(nil, 2, 0))
					ev := expect(t, a.request, udat.EventDTOCompletion)
					assert.Equal(t, ev.Status, udat.DTOErrRemoteAccess, describe(ev))
					assert.Equal(t, ev.Cookie, udat.Cookie(1))
					assert.Equal(t, ev.EP, a.ep)
					flushed(t, a.request, 2)
					flushed(t, a.recv, 7)
					expect(t, a.conn, udat.EventConnectionBroken)
					flushed(t, b.recv, 6)
					targetOfFault(t, b)
					sameBytes(t, b.get(0, 1000), before)
					for _, evd := range []*udat.EVD{a.recv, a.request, a.conn, b.recv, b.request, b.conn} {
						empty(t, evd)
					}
					assert.NilError(t, a.ep.Reset())
					assert.NilError(t, b.ep.Reset())
					connect(t, a, b)
				})
			}
		}
		rule.Proves(t, "EP-READ-05", "EP-WRITE-04", "POST-16", "EPST-34", "GAP-51", "OBJ-03")
		if acknowledged(a) {
			rule.Proves(t, "EPST-40", "F-04", "GAP-61", "LMR-FREE-03", "LMR-CREATE-05")
		}
	})
}

// TestReadDepth: reads beyond the connection's read depth wait, up to the length of the queue.
func TestReadDepth(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, depth := range []struct{ out, in int }{{1, 1}, {4, 1}, {1, 4}, {8, 2}} {
			a := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: 64, MaxRDMAReadOut: depth.out}})
			b := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: depth.in}})
			connect(t, a, b)
			want := b.put(0, 64*1000, 3)
			for i := range 64 {
				assert.NilError(t, a.ep.PostRDMARead(a.iov(i*1000, 1000), udat.Cookie(i), b.mem.RMRTriplet(i*1000, 1000), 0))
			}
			for i := range 64 {
				completion(t, a.request, udat.Cookie(i))
			}
			sameBytes(t, a.get(0, 64*1000), want)
			p, err := a.ep.Query() // the requested attribute stays, whatever the read depth of the connection is
			assert.NilError(t, err)
			assert.Equal(t, p.Attr.MaxRDMAReadOut, depth.out)
			p, err = b.ep.Query()
			assert.NilError(t, err)
			assert.Equal(t, p.Attr.MaxRDMAReadIn, depth.in)
		}
		rule.Proves(t, "EPST-45", "ATTR-01", "EP-READ-10", "EP-CONNECT-11", "GAP-67", "CR-ACCEPT-06")
	})
}

// TestReadDepthExceeded: if the peer's device refuses a read because too many are in flight, the
// connection breaks, and all later work is flushed. The Consumer cannot exceed the depth, because
// connecting lowers it to the peer's; therefore a fault makes the device refuse.
func TestReadDepthExceeded(t *testing.T) {
	onMem(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 1, MaxRDMAReadOut: 1}})
		assert.NilError(t, a.ep.PostRecv(nil, 9, 0))
		assert.NilError(t, b.ep.PostRecv(nil, 10, 0))
		want := b.put(0, 8, 7)
		before := a.put(8, 16, 0xEE)
		a.faults().FailOp(2, fabric.StatusRemoteInvReq)
		var reads []udat.Op
		for i := range 3 {
			reads = append(reads, udat.Op{Kind: udat.OpRDMARead, IOV: a.iov(8*i, 8), Cookie: udat.Cookie(i),
				Remote: b.mem.RMRTriplet(8*i, 8)})
		}
		_, err := a.ep.PostBatch(reads)
		assert.NilError(t, err)
		completion(t, a.request, 0)
		failed(t, a.request, 1, udat.DTOErrRemoteResponder)
		flushed(t, a.request, 2)
		flushed(t, a.recv, 9)
		broken(t, a)
		parted(t, b)
		flushed(t, b.recv, 10)
		sameBytes(t, a.get(0, 8), want)
		sameBytes(t, a.get(8, 16), before)
		rule.Proves(t, "EPST-34", "POST-16")
	})
}

// TestReadsBothWays: both ends post more reads than the read depth of the connection. On soft-iWARP
// they would wait for each other for ever: see docs/deviations.md.
func TestReadsBothWays(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const reads, size, rounds = 16, 4096, 20
		depth := 4
		if strings.HasPrefix(dev, "siw") {
			depth = reads
		}
		a, b := pair(t, dev, setup{qlen: 2 * reads, attr: &udat.EPAttr{
			MaxRDMAReadIn: depth, MaxRDMAReadOut: depth, MaxRequestDTOs: reads,
		}})
		done := make(chan error, 2)
		for _, e := range [][2]*end{{a, b}, {b, a}} {
			from, to := e[1].lmr(size, udat.PrivAll), e[0].lmr(size, udat.PrivAll)
			go func() {
				var err error
				for n := 0; n < reads*rounds && err == nil; n++ {
					if n >= reads {
						err = taken(e[0].request)
					}
					iov := []udat.LMRTriplet{to.Triplet(0, size)}
					err = errors.Join(err, e[0].ep.PostRDMARead(iov, 1, from.RMRTriplet(0, size), 0))
				}
				for n := 0; n < reads && err == nil; n++ {
					err = taken(e[0].request)
				}
				done <- err
			}()
		}
		assert.NilError(t, errors.Join(<-done, <-done))
	})
}

// taken waits for a completion, which must be a success.
func taken(evd *udat.EVD) error {
	ev, _, err := evd.Wait(patience, 1)
	if err == nil && ev.Status != udat.DTOSuccess {
		err = errors.New(describe(ev))
	}
	return err
}

// TestReadDepthZero: with read depth 0 a post of a read is refused at once, and all other
// operations work.
func TestReadDepthZero(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, none := range []struct{ a, b udat.EPAttr }{
			{udat.EPAttr{MaxRDMAReadIn: 4, MaxRDMAReadOut: udat.None}, udat.EPAttr{MaxRDMAReadIn: 4}},
			{udat.EPAttr{MaxRDMAReadIn: 4}, udat.EPAttr{MaxRDMAReadIn: udat.None}},
			{udat.EPAttr{MaxRDMAReadIn: 4}, udat.EPAttr{}}, // reads that are not granted are not served
		} {
			a, b := newEnd(t, dev, setup{attr: &none.a}), newEnd(t, dev, setup{attr: &none.b})
			assert.Equal(t, param(t, b.ep).Attr.MaxRDMAReadIn, max(none.b.MaxRDMAReadIn, 0))
			if none.b.MaxRDMAReadIn <= 0 && udat.DeviceAttr(a.ia).ReadSinkRemote {
				continue // iWARP need not tell the connector what the other end serves
			}
			connect(t, a, b)
			refused(t, a.ep.PostRDMARead(a.iov(0, 8), 1, b.mem.RMRTriplet(0, 8), 0), udat.InvalidParameter, udat.SubArg5)
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), 2, b.mem.RMRTriplet(0, 8), 0))
			completion(t, a.request, 2)
			assert.NilError(t, b.ep.PostRDMARead(b.iov(0, 8), 3, a.mem.RMRTriplet(0, 8), 0))
			completion(t, b.request, 3)
		}
		rule.Proves(t, "GAP-67", "ATTR-02")
	})
}

// TestRDMAFreedRegionInFlight: the local region is freed while the work waits behind a Send without
// a receive. soft-RoCE does not resend that Send if the work after it fails first; then the test
// starts again.
func TestRDMAFreedRegionInFlight(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, write := range []bool{false, true} {
			for attempt := 1; !freedInFlight(t, dev, write); attempt++ {
				assert.Assert(t, attempt < 10, "the Send before is never repeated")
			}
		}
		rule.Proves(t, "LMR-FREE-02", "POST-16")
	})
}

// freedInFlight frees the region of a waiting read or write. It reports whether the read or write
// waited until then, and the Send before it arrived afterwards.
func freedInFlight(t *testing.T, dev string, write bool) bool {
	a, b := pair(t, dev, setup{})
	needAcknowledged(t, a)
	gone := a.lmr(4096, udat.PrivAll)
	assert.NilError(t, a.ep.PostSend(nil, 1, 0))
	iov := []udat.LMRTriplet{gone.Triplet(0, 2000)}
	if write {
		assert.NilError(t, a.ep.PostRDMAWrite(iov, 2, b.mem.RMRTriplet(0, 2000), 0))
	} else {
		assert.NilError(t, a.ep.PostRDMARead(iov, 2, b.mem.RMRTriplet(0, 2000), 0))
	}
	assert.NilError(t, gone.Free())
	assert.NilError(t, b.ep.PostRecv(nil, 0, 0))
	if strings.HasPrefix(dev, "rxe") {
		if _, _, err := b.recv.Wait(5*time.Second, 1); err != nil {
			return false
		}
	} else {
		completion(t, b.recv, 0)
	}
	completion(t, a.request, 1)
	ev := expect(t, a.request, udat.EventDTOCompletion)
	assert.Equal(t, ev.Cookie, udat.Cookie(2))
	if ev.Status == udat.DTOSuccess && write && strings.HasPrefix(dev, "tcp") {
		return false // the peer was slow: the Send met its receive, and the data had left before Free
	}
	assert.Equal(t, ev.Status, udat.DTOErrLocalProtection, describe(ev))
	expect(t, a.conn, udat.EventConnectionBroken)
	return true
}
