package udat_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/fabric/faultfabric"
	"github.com/godat/godat/udat/internal/rule"
)

// poster is one of the four kinds of post. It transfers the first n bytes of a list of segments.
type poster struct {
	name   string
	recv   bool
	remote bool
	need   udat.MemPriv
	flags  udat.CompletionFlags // besides unsignalled
	post   func(e, peer *end, iov []udat.LMRTriplet, cookie udat.Cookie, flags udat.CompletionFlags) error
	rules  []string // those of the errors, of the flags
	flag   []string
}

const suppressFence = udat.CompletionSuppress | udat.CompletionBarrierFence

// flagsArg returns the argument of the C call that has the flags.
func (p poster) flagsArg() udat.Subtype {
	if p.remote {
		return udat.SubArg6
	}
	return udat.SubArg5
}

var posters = []poster{
	{
		name: "send", need: udat.PrivLocalRead, flags: suppressFence | udat.CompletionSolicitedWait,
		post: func(e, _ *end, iov []udat.LMRTriplet, cookie udat.Cookie, flags udat.CompletionFlags) error {
			return e.ep.PostSend(iov, cookie, flags)
		},
		rules: []string{"EP-SEND-06", "EP-SEND-07"}, flag: []string{"EP-SEND-04", "EP-SEND-05", "F-01"},
	},
	{
		name: "recv", recv: true, need: udat.PrivLocalWrite,
		post: func(e, _ *end, iov []udat.LMRTriplet, cookie udat.Cookie, flags udat.CompletionFlags) error {
			return e.ep.PostRecv(iov, cookie, flags)
		},
		flag: []string{"EP-RECV-09", "F-03"},
	},
	{
		name: "read", remote: true, need: udat.PrivLocalWrite, flags: suppressFence,
		post: func(e, peer *end, iov []udat.LMRTriplet, cookie udat.Cookie, flags udat.CompletionFlags) error {
			return e.ep.PostRDMARead(iov, cookie, peer.mem.RMRTriplet(0, min(length(iov), endMemory)), flags)
		},
		rules: []string{"EP-READ-05", "EP-READ-07"}, flag: []string{"EP-READ-03", "F-01"},
	},
	{
		name: "write", remote: true, need: udat.PrivLocalRead, flags: suppressFence,
		post: func(e, peer *end, iov []udat.LMRTriplet, cookie udat.Cookie, flags udat.CompletionFlags) error {
			return e.ep.PostRDMAWrite(iov, cookie, peer.mem.RMRTriplet(0, min(length(iov), endMemory)), flags)
		},
		rules: []string{"EP-WRITE-04", "EP-WRITE-06"}, flag: []string{"EP-WRITE-03", "F-02"},
	},
}

func length(iov []udat.LMRTriplet) int {
	n := uint64(0)
	for _, s := range iov {
		n += s.SegmentLength
	}
	return int(n)
}

// TestPostRefused makes every post with every kind of invalid memory.
func TestPostRefused(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		readIOV := min(2, udat.DeviceAttr(open(t, dev)).MaxReadSGE)
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{
			MaxRDMAReadIn: 4, MaxRequestIOV: 3, MaxRecvIOV: 3, MaxRDMAReadIOV: readIOV, MaxRDMAWriteIOV: 2, MaxMessageSize: 2000,
			MaxRDMASize: 2000,
		}})
		otherPZ, err := a.ia.CreatePZ()
		assert.NilError(t, err)
		foreign, err := a.ia.AllocLMR(otherPZ, 4096, udat.PrivAll)
		assert.NilError(t, err)
		gone := a.lmr(4096, udat.PrivAll)
		assert.NilError(t, gone.Free())
		whole := a.mem.Triplet(0, 64)
		for _, p := range posters {
			reader, writer := a.lmr(4096, udat.PrivLocalRead), a.lmr(4096,
				udat.PrivLocalWrite|udat.PrivRemoteRead|udat.PrivRemoteWrite)
			lacking, sub := writer, udat.SubPrivilegesRead
			zone := udat.SubProtectionRead
			if p.need == udat.PrivLocalWrite {
				lacking, sub, zone = reader, udat.SubPrivilegesWrite, udat.SubProtectionWrite
			}
			limit := 3
			switch {
			case p.remote && p.need == udat.PrivLocalWrite:
				limit = readIOV
			case p.remote:
				limit = 2
			}
			for _, bad := range []struct {
				name string
				iov  []udat.LMRTriplet
				want udat.ReturnType
				sub  udat.Subtype
			}{
				{"begins before", []udat.LMRTriplet{{LMR: a.mem, VirtualAddress: whole.VirtualAddress - 1, SegmentLength: 8}},
					udat.InvalidParameter, udat.SubArg3},
				{"ends after", []udat.LMRTriplet{a.mem.Triplet(endMemory-8, 9)}, udat.InvalidParameter, udat.SubArg3},
				{"begins at the end", []udat.LMRTriplet{a.mem.Triplet(endMemory, 1)}, udat.InvalidParameter, udat.SubArg3},
				{"wraps", []udat.LMRTriplet{{LMR: a.mem, VirtualAddress: whole.VirtualAddress + 8,
					SegmentLength: math.MaxUint64 - 7}}, udat.InvalidParameter, udat.SubArg3},
				{"second segment outside", []udat.LMRTriplet{whole, a.mem.Triplet(endMemory-1, 2)}, udat.InvalidParameter,
					udat.SubArg3},
				{"other zone", []udat.LMRTriplet{foreign.Triplet(0, 8)}, udat.ProtectionViolation, zone},
				{"privilege", []udat.LMRTriplet{lacking.Triplet(0, 8)}, udat.PrivilegesViolation, sub},
				{"freed region", []udat.LMRTriplet{gone.Triplet(0, 8)}, udat.PrivilegesViolation, udat.SubNone},
				{"no region", []udat.LMRTriplet{{SegmentLength: 8}}, udat.PrivilegesViolation, udat.SubNone},
				{"too long", []udat.LMRTriplet{a.mem.Triplet(0, 1500), a.mem.Triplet(0, 501)}, udat.InvalidParameter, udat.SubArg2},
				{"too many segments", make([]udat.LMRTriplet, limit+1), udat.InvalidParameter, udat.SubArg2},
			} {
				if len(bad.iov) > limit && bad.name != "too many segments" {
					continue
				}
				err := p.post(a, b, bad.iov, 1, 0)
				assert.ErrorIs(t, err, udat.WithSubtype(bad.want, bad.sub), "%s %s", p.name, bad.name)
			}
			if p.remote {
				refused(t, p.post(a, b, nil, 1, 0), udat.InvalidParameter)
			}
			assert.NilError(t, reader.Free())
			assert.NilError(t, writer.Free())
			rule.Proves(t, p.rules...)
		}
		s, recvIdle, requestIdle, err := a.ep.GetStatus()
		assert.NilError(t, err)
		assert.Assert(t, s == udat.EPConnected && recvIdle && requestIdle, "what was refused was not posted")
		rule.Proves(t, "POST-07", "POST-08", "POST-09", "POST-12", "POST-13", "EP-READ-09", "GAP-36", "GAP-63")

		// The error of a freed handle comes before all others.
		assert.NilError(t, a.ep.Free())
		for _, p := range posters {
			refused(t, p.post(a, b, []udat.LMRTriplet{whole}, 1, 0), udat.InvalidHandle, udat.SubHandleEP)
			refused(t, p.post(&end{}, b, []udat.LMRTriplet{whole}, 1, 0), udat.InvalidHandle, udat.SubHandleEP)
		}
		rule.Proves(t, "POST-11", "GEN-01", "GEN-02")
	})
}

// everyFlag contains every combination of the low six flags, and every other bit with and without a
// flag that most posts accept.
var everyFlag = func() (list []udat.CompletionFlags) {
	for flags := range udat.CompletionFlags(64) {
		list = append(list, flags)
	}
	for bit := 6; bit < 32; bit++ {
		list = append(list, 1<<bit, 1<<bit|udat.CompletionSuppress)
	}
	return list
}()

// TestPostFlags makes every post, and every bind, with every combination of flags.
func TestPostFlags(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		for _, unsignalled := range []bool{false, true} {
			attr := udat.EPAttr{MaxRDMAReadIn: 4}
			allowed := udat.CompletionFlags(0)
			if unsignalled {
				attr.RequestCompletionFlags, attr.RecvCompletionFlags = udat.CompletionUnsignalled, udat.CompletionUnsignalled
				allowed = udat.CompletionUnsignalled
			}
			a, b := pair(t, dev, setup{attr: &attr, qlen: 512})
			for _, p := range posters {
				for _, flags := range everyFlag {
					name := fmt.Sprintf("%s, flags 0x%x, endpoint unsignalled %v", p.name, uint32(flags), unsignalled)
					if !p.recv && !p.remote {
						assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 0, 0))
					}
					err := p.post(a, b, a.iov(0, 8), udat.Cookie(flags), flags)
					if flags&^(p.flags|allowed) != 0 {
						assert.ErrorIs(t, err, udat.WithSubtype(udat.InvalidParameter, p.flagsArg()), name)
						if !p.recv && !p.remote {
							assert.NilError(t, a.ep.PostSend(a.iov(0, 8), 0, 0)) // for the receive
							completion(t, b.recv, 0)
							completion(t, a.request, 0)
						}
						continue
					}
					assert.NilError(t, err, name)
					from := a.request
					switch {
					case p.recv:
						from = a.recv
						assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 0, 0))
						completion(t, b.request, 0)
					case !p.remote:
						completion(t, b.recv, 0)
					}
					if flags&udat.CompletionSuppress == 0 {
						completionNow(t, from, udat.Cookie(flags))
					}
				}
				if !p.recv {
					eventually(t, func() bool { _, _, idle, _ := a.ep.GetStatus(); return idle }, "%s: work is left", p.name)
					empty(t, a.request)
				}
				rule.Proves(t, p.flag...)
			}
			if udat.DeviceAttr(a.ia).MaxMW == 0 {
				continue
			}
			r := a.window(t)
			for _, flags := range everyFlag {
				_, err := r.Bind(a.mem.Triplet(0, 8), bothRights, a.ep, udat.Cookie(flags), flags)
				if flags&^(suppressFence|allowed) != 0 {
					assert.ErrorIs(t, err, udat.ErrInvalidParameter, "bind, flags 0x%x", uint32(flags))
					continue
				}
				assert.NilError(t, err, "bind, flags 0x%x", uint32(flags))
				if flags&udat.CompletionSuppress == 0 {
					assert.Equal(t, completionNow(t, a.request, udat.Cookie(flags)).Number, udat.EventRMRBindCompletion)
				}
			}
			eventually(t, func() bool { _, _, idle, _ := a.ep.GetStatus(); return idle }, "binds are left")
			empty(t, a.request)
			rule.Proves(t, "RMR-BIND-07")
		}
		rule.Proves(t, "F-04", "F-06", "EVD-29")
	})
}

// completionNow polls for a completion, because the completion may wake no waiter.
func completionNow(t *testing.T, evd *udat.EVD, cookie udat.Cookie) udat.Event {
	t.Helper()
	var ev udat.Event
	eventually(t, func() (ok bool) {
		var err error
		ev, err = evd.Dequeue()
		return err == nil
	}, "no completion")
	assert.Equal(t, ev.Status, udat.DTOSuccess, "%s", describe(ev))
	assert.Equal(t, ev.Cookie, cookie, "%s", describe(ev))
	return ev
}

// TestPostLimit fills the queues: one more post is refused, and there is room again once something
// has completed.
func TestPostLimit(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 5
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: limit, MaxRecvDTOs: limit}})
		needAcknowledged(t, a)
		for i := range limit {
			assert.NilError(t, a.ep.PostSend(a.iov(0, 8), udat.Cookie(i), 0)) // the peer has no receive
		}
		for _, p := range posters {
			if !p.recv {
				refused(t, p.post(a, b, a.iov(0, 8), 9, 0), udat.InsufficientResources, udat.SubResourceCredits)
			}
		}
		for i := range limit {
			assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), udat.Cookie(i), 0))
		}
		refused(t, a.ep.PostRecv(a.iov(0, 8), 9, 0), udat.InsufficientResources, udat.SubResourceCredits)
		assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 0, 0))
		completion(t, b.recv, 0)
		completion(t, a.request, 0)
		assert.NilError(t, a.ep.PostSend(a.iov(0, 8), limit, 0))
		refused(t, a.ep.PostSend(a.iov(0, 8), 9, 0), udat.InsufficientResources)
		assert.NilError(t, b.ep.PostSend(b.iov(0, 8), 0, 0))
		completion(t, a.recv, 0)
		assert.NilError(t, a.ep.PostRecv(a.iov(0, 8), limit, 0))
		rule.Proves(t, "POST-10", "EP-SEND-07", "EP-READ-07", "EP-WRITE-06")

		// GetStatus, which posts a request to learn whether suppressed work is done, takes no slot
		// of the Consumer.
		for range limit {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 0, 0))
		}
		for i := range limit {
			completion(t, a.request, udat.Cookie(i+1))
			completion(t, b.recv, 0)
		}
		for i := range limit {
			assert.NilError(t, a.ep.PostSend(nil, udat.Cookie(i), udat.CompletionSuppress), "post %d", i)
			_, _, idle, err := a.ep.GetStatus()
			assert.NilError(t, err)
			assert.Assert(t, !idle)
		}
		refused(t, a.ep.PostSend(nil, 9, 0), udat.InsufficientResources)
		for range limit {
			assert.NilError(t, b.ep.PostRecv(b.iov(0, 8), 0, 0))
			completion(t, b.recv, 0)
		}
		eventually(t, func() bool { _, _, idle, _ := a.ep.GetStatus(); return idle }, "suppressed work is left")
		empty(t, a.request)
		rule.Proves(t, "EP-STATUS-02", "EP-STATUS-03", "GAP-60")
	})
}

// TestPostLimitUnseen: a request keeps its slot until the library has seen its completion. The test
// hides completions, so that the queue of any device can be filled.
func TestPostLimitUnseen(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		const limit = 5
		var script faultfabric.Script
		a, b := pair(t, dev, setup{script: &script, attr: &udat.EPAttr{MaxRDMAReadIn: 4, MaxRequestDTOs: limit}})
		for range 3 {
			hidden := script.On(faultfabric.Poll, udat.CompletionQueue(a.request)).Drop()
			for i := range limit {
				assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, 8), udat.Cookie(i), b.mem.RMRTriplet(0, 8), 0))
			}
			for _, p := range posters {
				if !p.recv {
					refused(t, p.post(a, b, a.iov(0, 8), 9, 0), udat.InsufficientResources, udat.SubResourceCredits)
				}
			}
			hidden.Stop()
			for i := range limit {
				completion(t, a.request, udat.Cookie(i))
			}
			empty(t, a.request)
		}
		rule.Proves(t, "POST-10", "EP-SEND-07", "EP-READ-07", "EP-WRITE-06")
	})
}

// TestPostBatch posts more operations than the queue can hold, and stops at an invalid one.
func TestPostBatch(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRequestDTOs: 100, MaxRecvDTOs: 100}, qlen: 256})
		recvs, ops := make([]udat.Recv, 120), make([]udat.Op, 120)
		for i := range recvs {
			recvs[i] = udat.Recv{IOV: b.iov(i*8, 8), Cookie: udat.Cookie(i)}
			ops[i] = udat.Op{Kind: udat.OpSend, IOV: a.iov(i*8, 8), Cookie: udat.Cookie(i)}
		}
		want := a.put(0, 800, 5)
		n, err := b.ep.PostRecvBatch(recvs)
		assert.Equal(t, n, 100)
		refused(t, err, udat.InsufficientResources)
		ops[70].Flags = udat.CompletionUnsignalled
		n, err = a.ep.PostBatch(ops)
		assert.Equal(t, n, 70)
		refused(t, err, udat.InvalidParameter)
		ops[70].Flags = 0
		n, err = a.ep.PostBatch(ops[70:100])
		assert.Equal(t, n, 30)
		assert.NilError(t, err)
		for i := range 100 {
			completion(t, b.recv, udat.Cookie(i))
			completion(t, a.request, udat.Cookie(i))
		}
		sameBytes(t, b.get(0, 800), want)
		n, err = a.ep.PostBatch([]udat.Op{{Kind: udat.OpCmpSwap + 1}})
		assert.Equal(t, n, 0)
		refused(t, err, udat.InvalidParameter)
		n, err = a.ep.PostBatch(nil)
		assert.Equal(t, n, 0)
		assert.NilError(t, err)
	})
}

// TestPostsDoNotAllocate counts the allocations of the posts.
func TestPostsDoNotAllocate(t *testing.T) {
	if raceEnabled || udat.CheckingLocks {
		t.Skip("the race detector allocates, and so does the checker of locks")
	}
	if os.Getenv(tlsEnv) != "" {
		t.Skip("package tls allocates for each record")
	}
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{qlen: 1024})
		iov := []udat.LMRTriplet{a.mem.Triplet(0, 8), a.mem.Triplet(64, 8)}
		into := []udat.LMRTriplet{b.mem.Triplet(0, 16)}
		remote, part := b.mem.RMRTriplet(0, 16), b.mem.RMRTriplet(0, 8)
		ops := []udat.Op{{Kind: udat.OpRDMAWrite, IOV: iov, Remote: remote},
			{Kind: udat.OpRDMARead, IOV: iov[:1], Remote: part}}
		sends, recvs, events := make([]udat.Op, 8), make([]udat.Recv, 8), make([]udat.Event, 8)
		for i := range sends {
			sends[i], recvs[i] = udat.Op{Kind: udat.OpSend, IOV: iov}, udat.Recv{IOV: into}
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		take := func(evd *udat.EVD) {
			for {
				if _, err := evd.Dequeue(); err == nil {
					return
				}
			}
		}
		takeAll := func(evd *udat.EVD) {
			for got := 0; got < len(events); {
				n, _ := evd.DequeueBatch(events[got:])
				got += n
			}
		}
		for name, f := range map[string]func(){
			"recv and send": func() {
				must(b.ep.PostRecv(into, 1, 0))
				must(a.ep.PostSend(iov, 1, 0))
				take(b.recv)
				take(a.request)
			},
			"read":  func() { must(a.ep.PostRDMARead(iov[:1], 1, part, 0)); take(a.request) },
			"write": func() { must(a.ep.PostRDMAWrite(iov, 1, remote, 0)); take(a.request) },
			"batch": func() { _, err := a.ep.PostBatch(ops); must(err); take(a.request); take(a.request) },
			"batches": func() {
				_, err := b.ep.PostRecvBatch(recvs)
				must(err)
				_, err = a.ep.PostBatch(sends)
				must(err)
				takeAll(b.recv)
				takeAll(a.request)
			},
			"wait": func() {
				must(a.ep.PostRDMAWrite(iov, 1, remote, 0))
				for {
					if _, _, err := a.request.Wait(0, 1); err == nil {
						return
					}
				}
			},
			"query": func() { a.ep.RecvQuery() },
		} {
			for range 20 { // let the EVD's ring and other buffers grow to their final size
				f()
			}
			got := testing.AllocsPerRun(100, f)
			assert.Assert(t, got < 1, "%s: %v allocations", name, got)
		}
		rule.Proves(t, "POST-06", "GEN-09", "EP-RECV-13", "EP-READ-08", "GAP-93")
	})
}

// TestOtherPostsDoNotAllocate counts the allocations of posts that make no event, and of posts that
// are flushed at once.
func TestOtherPostsDoNotAllocate(t *testing.T) {
	if raceEnabled || udat.CheckingLocks {
		t.Skip("the race detector allocates, and so does the checker of locks")
	}
	if os.Getenv(tlsEnv) != "" {
		t.Skip("package tls allocates for each record")
	}
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{attr: &udat.EPAttr{MaxRDMAReadIn: 4}})
		local, remote := a.iov(0, 8), b.mem.RMRTriplet(0, 8)
		count := func(what string, evd *udat.EVD, posts ...func() error) {
			t.Helper()
			round := func() {
				for _, post := range posts {
					if err := post(); err != nil {
						t.Fatal(what, err)
					}
				}
				for _, err := evd.Dequeue(); err != nil; _, err = evd.Dequeue() {
				}
			}
			for range 40 {
				round()
			}
			const rounds = 100
			total := testing.AllocsPerRun(1, func() {
				for range rounds {
					round()
				}
			})
			// one in each round would be a post's; a few are of the background, where rounds take long
			assert.Check(t, total < rounds/2, "%s: %v allocations in %d rounds", what, total, rounds)
		}
		const silent = udat.CompletionSuppress | udat.CompletionBarrierFence
		write := func() error { return a.ep.PostRDMAWrite(local, 1, remote, 0) }
		count("suppressed", a.request, func() error { return a.ep.PostRDMAWrite(local, 1, remote, silent) },
			func() error { return a.ep.PostRDMARead(local, 1, remote, silent) }, write)
		rule.Proves(t, "POST-06", "GEN-09", "EP-READ-08")
		if dev != "mem0" {
			return // for each post a software device is moved to ERR again, which allocates
		}
		part(t, a, b, udat.CloseAbrupt)
		count("flushed send", a.request, func() error { return a.ep.PostSend(local, 1, 0) })
		count("flushed read", a.request, func() error { return a.ep.PostRDMARead(local, 1, remote, 0) })
		count("flushed receive", a.recv, func() error { return a.ep.PostRecv(local, 1, 0) })
		rule.Proves(t, "EP-RECV-13")
	})
}

// TestReceivesOutsideConnection: receives that are posted before the endpoint connects allocate
// nothing after the first.
func TestReceivesOutsideConnection(t *testing.T) {
	if udat.CheckingLocks {
		t.Skip("the checker of locks allocates")
	}
	onEach(t, func(t *testing.T, dev string) {
		e := newEnd(t, dev, setup{attr: &udat.EPAttr{MaxRecvDTOs: 200, MaxRecvIOV: 3}, qlen: 256})
		iov := []udat.LMRTriplet{e.mem.Triplet(0, 8), e.mem.Triplet(16, 8), e.mem.Triplet(32, 8)}
		posted := 0
		allocs := testing.AllocsPerRun(100, func() {
			if err := e.ep.PostRecv(iov[:1+posted%3], 1, 0); err != nil {
				t.Error(err)
			}
			posted++
		})
		assert.Equal(t, allocs, 0.0)
		rule.Proves(t, "EP-RECV-13", "POST-06")
	})
}
