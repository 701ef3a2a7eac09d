//go:build linux && cgo

package cverbs

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// threadDomain creates a thread domain. It skips the test if the error says that the device has no
// thread domains.
func threadDomain(t testing.TB, ctx *Context) *TD {
	t.Helper()
	td, err := ctx.AllocTD()
	if errors.Is(err, ErrNotSupported) {
		assert.ErrorContains(t, err, "ibv_alloc_td")
		t.Skip(err)
	}
	return closing[*TD](t)(td, err)
}

// Closing a parent early returns an error that names the children. Arguments that do not fit
// together are refused.
func TestThreadDomainOrder(t *testing.T) {
	ctx, other := openDevice(t), openDevice(t)
	td, foreign := threadDomain(t, ctx), threadDomain(t, other)
	pd := closing[*PD](t)(ctx.AllocPD())
	parent := closing[*PD](t)(pd.AllocParentDomain(td))
	second := closing[*PD](t)(pd.AllocParentDomain(td))
	assert.Equal(t, parent.Context(), ctx)
	_, err := parent.AllocParentDomain(td)
	assert.ErrorContains(t, err, "a parent domain already")
	_, err = pd.AllocParentDomain(foreign)
	assert.ErrorContains(t, err, "the thread domain is of another device context")
	_, err = pd.AllocParentDomain(nil)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = other.CreateCQEx(CQInit{Depth: 8, Domain: parent})
	assert.ErrorContains(t, err, "Domain is of another device context")

	cq := closing[*CQ](t)(ctx.CreateCQEx(CQInit{Depth: 8, Domain: parent}))
	qp := closing[*QP](t)(parent.CreateQP(QPInit{SendCQ: cq, RecvCQ: cq, Cap: defaultCap}))
	mr := closing[*MR](t)(second.RegMR(make([]byte, 8), 0))
	for _, c := range []struct {
		v    closer
		want string
	}{
		{ctx, "close Context: in use by 1 PD, 1 TD, 1 CQ"},
		{td, "close TD: in use by 2 PD"},
		{pd, "close PD: in use by 2 PD"},
		{parent, "close PD: in use by 1 CQ, 1 QP"},
		{second, "close PD: in use by 1 MR"},
		{cq, "close CQ: in use by 1 QP"},
	} {
		err := c.v.Close()
		assert.ErrorIs(t, err, ErrInUse)
		assert.ErrorContains(t, err, c.want)
	}
	for _, v := range []closer{qp, cq, mr, parent, second, td, pd} {
		assert.NilError(t, v.Close())
		assert.Equal(t, v.Close(), ErrClosed, "%T", v)
	}
	_, err = pd.AllocParentDomain(td)
	assert.ErrorIs(t, err, ErrClosed)
	_, err = ctx.CreateCQEx(CQInit{Depth: 8, Domain: parent})
	assert.ErrorIs(t, err, ErrClosed)
}

// Objects of a parent domain work together with objects of the domain that it was created from, in
// both directions, and not with objects of another domain.
func TestParentDomainTogether(t *testing.T) {
	pd, other := &PD{}, &PD{}
	x, y, z := &PD{base: pd}, &PD{base: pd}, &PD{base: other}
	for _, c := range []struct {
		a, b *PD
		want bool
	}{{pd, pd, true}, {pd, x, true}, {x, pd, true}, {x, y, true}, {pd, other, false}, {x, z, false}, {x, other, false},
		{other, x, false}, {nil, x, false}, {x, nil, false}, {nil, nil, true}} {
		assert.Equal(t, c.a.same(c.b), c.want)
	}
}

// inDomains connects two ends. The queue pair and the queues of each end belong to a separate
// thread domain, the regions do not.
func inDomains(t testing.TB, ctx *Context) (a, b *end) {
	t.Helper()
	return inDomainsWith(t, ctx, func(parent *PD) (*CQ, error) {
		return ctx.CreateCQEx(CQInit{Depth: 512, Domain: parent})
	})
}

// inDomainsWith does what inDomains does, with completion queues that the caller creates.
func inDomainsWith(t testing.TB, ctx *Context, queue func(parent *PD) (*CQ, error)) (a, b *end) {
	t.Helper()
	var ends [2]*end
	for i := range ends {
		td := threadDomain(t, ctx)
		e := &end{t: t, ctx: ctx, buf: make([]byte, 64<<10)}
		e.pd = closing[*PD](t)(ctx.AllocPD())
		parent := closing[*PD](t)(e.pd.AllocParentDomain(td))
		e.scq = closing[*CQ](t)(queue(parent))
		e.rcq = closing[*CQ](t)(queue(parent))
		e.mr = closing[*MR](t)(e.pd.RegMR(e.buf, allAccess))
		e.qp = closing[*QP](t)(parent.CreateQP(QPInit{SendCQ: e.scq, RecvCQ: e.rcq, Cap: defaultCap}))
		assert.NilError(t, e.qp.ToInit(1, allAccess&^(AccessLocalWrite|AccessMWBind)))
		ends[i] = e
	}
	join(t, ends[0], ends[1])
	return ends[0], ends[1]
}

// Two threads, each with its own queue pair in its own thread domain, send to each other as fast as
// they can. Receives are posted late, so that each end also executes sends of the other end.
// Nothing is lost or comes out of order. Meanwhile regions are closed, which must wait for copies
// that are under way.
func TestThreadDomainStress(t *testing.T) {
	ctx := openDevice(t)
	a, b := inDomains(t, ctx)
	rounds := 20000
	if testing.Short() {
		rounds = 3000
	}
	stop := make(chan struct{})
	var regions, wg sync.WaitGroup
	regions.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond):
			}
			mr, err := a.pd.RegMR(make([]byte, 64), 0)
			if !assert.Check(t, err) || !assert.Check(t, mr.Close()) {
				return
			}
		}
	})
	run := func(e *end) error {
		const window = 16
		wcs := make([]WCEx, window)
		sent, received, posted, done := 0, 0, 0, 0
		for end := soon(); done < rounds || received < rounds; {
			if sent < rounds && sent-done < window {
				wr := SendWR{ID: uint64(sent), Opcode: OpSendWithImm, Imm: uint32(sent), Flags: SendSignaled, NumSGE: 1}
				if _, err := e.qp.PostSend([]SendWR{wr}, []SGE{e.sge(0, 64)}); err != nil {
					return err
				}
				sent++
			}
			n, err := e.scq.PollEx(wcs, 1)
			if err != nil {
				return err
			}
			for _, wc := range wcs[:n] {
				if wc.Status != WCSuccess || wc.ID != uint64(done) {
					return errors.New("a send failed, or is out of order: " + wc.Status.String())
				}
				done++
			}
			n, err = e.rcq.PollEx(wcs, 1)
			if err != nil {
				return err
			}
			for _, wc := range wcs[:n] {
				if wc.Status != WCSuccess || wc.Imm != uint32(received) || wc.ByteLen != 64 {
					return errors.New("a receive failed, or is out of order: " + wc.Status.String())
				}
				received++
			}
			if posted < rounds && posted == received {
				if _, err := e.qp.PostRecv([]RecvWR{{NumSGE: 1}}, []SGE{e.sge(1000, 64)}); err != nil {
					return err
				}
				posted++
			}
			if time.Now().After(end) {
				return errors.New("it hangs")
			}
		}
		return nil
	}
	for _, e := range []*end{a, b} {
		wg.Go(func() { assert.Check(t, run(e)) })
	}
	wg.Wait()
	close(stop)
	regions.Wait()
}

// The completions of a queue pair in a thread domain come in order, and no completion is lost,
// while other queue pairs with the same completion queue are created and destroyed, and the queue
// is resized.
func TestThreadDomainSharedQueue(t *testing.T) {
	ctx := openDevice(t)
	a, b := inDomainsWith(t, ctx, func(*PD) (*CQ, error) { return createCQ(ctx) })
	rounds := 20000
	if testing.Short() {
		rounds = 3000
	}
	const flushed = 3
	stop := make(chan struct{})
	others := 0
	var turns atomic.Int32 // turns of the other queue pairs, which may be slow on a busy machine
	var wg sync.WaitGroup
	wg.Go(func() {
		for size := 512; ; size ^= 1024 {
			select {
			case <-stop:
				return
			default:
			}
			q, err := a.pd.CreateQP(QPInit{SendCQ: a.scq, RecvCQ: a.rcq, Cap: defaultCap})
			if !assert.Check(t, err) {
				return
			}
			assert.Check(t, q.ToInit(1, 0))
			assert.Check(t, q.ToError())
			n, err := q.PostSend(make([]SendWR, flushed), nil)
			assert.Check(t, err)
			others += n
			turns.Add(1)
			assert.Check(t, a.scq.Resize(size))
			assert.Check(t, q.Close())
			time.Sleep(100 * time.Microsecond)
		}
	})
	wr := SendWR{Opcode: OpRDMAWrite, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Flags: SendSignaled, NumSGE: 1}
	wcs := make([]WC, 16)
	sent, done, foreign := 0, 0, 0
	for end := soon(); done < sent || sent < rounds || turns.Load() < 2; {
		if (sent < rounds || turns.Load() < 2) && sent-done < len(wcs) {
			wr.ID = uint64(sent)
			_, err := a.qp.PostSend([]SendWR{wr}, []SGE{a.sge(0, 8)})
			assert.NilError(t, err)
			sent++
		}
		n, err := a.scq.Poll(wcs)
		assert.NilError(t, err)
		for _, wc := range wcs[:n] {
			if wc.QPNum != a.qp.Num() {
				assert.Equal(t, wc.Status, WCWRFlushErr)
				foreign++
				continue
			}
			assert.Equal(t, wc.Status, WCSuccess)
			assert.Equal(t, wc.ID, uint64(done))
			done++
		}
		assert.Assert(t, time.Now().Before(end), "%d of %d completions", done, rounds)
	}
	close(stop)
	wg.Wait()
	for _, wc := range poll(t, a.scq, others-foreign) {
		assert.Equal(t, wc.Status, WCWRFlushErr)
	}
}

// While a queue pair in a thread domain posts, its peer or this process moves it to ERR. All posted
// requests are then flushed.
func TestThreadDomainError(t *testing.T) {
	ctx := openDevice(t)
	for range 30 {
		a, b := inDomains(t, ctx)
		const count = 40
		var wg sync.WaitGroup
		wg.Go(func() { assert.Check(t, b.qp.Close()) })
		for i := range count {
			a.send(SendWR{ID: uint64(i), Opcode: OpRDMAWrite, RKey: b.mr.RKey() + 1, RemoteAddr: b.mr.Addr()}, a.sge(0, 8))
		}
		wg.Wait()
		assert.NilError(t, a.qp.ToError())
		for i, wc := range pollEx(t, a.scq, count, 7) {
			assert.Equal(t, wc.ID, uint64(i))
			assert.Assert(t, wc.Status != WCSuccess)
		}
	}
}

// The race detector reports two posts to a queue pair of a thread domain if nothing orders them. It
// does not report them if a lock orders them.
func TestThreadDomainRace(t *testing.T) {
	const posts = "GODAT_TEST_POSTS"
	if how := os.Getenv(posts); how != "" {
		a, _ := inDomains(t, openDevice(t))
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if how == "ordered" {
					mu.Lock()
					defer mu.Unlock()
				}
				a.qp.PostRecv([]RecvWR{{}}, nil)
			})
		}
		wg.Wait()
		return
	}
	threadDomain(t, openDevice(t))
	if !raceEnabled {
		t.Skip("needs the race detector")
	}
	for _, how := range []string{"ordered", "unordered"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestThreadDomainRace$")
		cmd.Env = append(os.Environ(), posts+"="+how)
		out, err := cmd.CombinedOutput()
		raced := strings.Contains(string(out), "DATA RACE")
		assert.Equal(t, raced, how == "unordered", "%v\n%s", err, out)
		assert.Equal(t, err != nil, raced, "%s", out)
	}
}
