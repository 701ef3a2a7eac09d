package cverbs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
)

// patience bounds every wait of the tests: slow machines, software emulation and the race detector
// included.
const patience = 60 * time.Second

func soon() time.Time { return time.Now().Add(patience) }

// openDevice opens the device of GODAT_TEST_DEVICE, which must exist. If the variable is not set,
// it opens the first device, or skips the test if there is none. It checks that the test leaves no
// object open.
func openDevice(t testing.TB) *Context {
	t.Helper()
	name := os.Getenv("GODAT_TEST_DEVICE")
	if name == "" {
		all, err := Devices()
		if err != nil || len(all) == 0 {
			t.Skipf("no verbs device here (%v); ci/rxe-vm.sh has one", err)
		}
		name = all[0].Name
	}
	before := Live()
	TraceLive(true)
	ctx, err := OpenDevice(name)
	assert.NilError(t, err)
	t.Cleanup(func() {
		assert.Check(t, closeSoon(ctx))
		if !sameLive(before, Live()) {
			t.Errorf("objects left open: had %v, have %v\n%s", before, Live(), strings.Join(LiveStacks(), "\n"))
		}
	})
	return ctx
}

func sameLive(a, b map[string]int) bool {
	for k := range b {
		if a[k] != b[k] {
			return false
		}
	}
	return len(a) == len(b)
}

type closer interface{ Close() error }

// closeSoon calls Close, and returns an error if Close takes longer than patience.
func closeSoon(v closer) error {
	closed := make(chan error, 1)
	go func() { closed <- v.Close() }()
	select {
	case err := <-closed:
		return err
	case <-time.After(patience):
		return fmt.Errorf("it has not returned after %v", patience)
	}
}

// closing closes an object at the end of the test and returns it.
func closing[T closer](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		assert.NilError(t, err)
		t.Cleanup(func() {
			if err := closeSoon(v); err != nil && err != ErrClosed {
				t.Errorf("Close of %T: %v", v, err)
			}
		})
		return v
	}
}

// poll takes n completions, and fails the test after patience.
func poll(t testing.TB, cq *CQ, n int) []WC {
	t.Helper()
	got := make([]WC, 0, n)
	buf := make([]WC, n)
	for end := soon(); len(got) < n; {
		k, err := cq.Poll(buf[:n-len(got)])
		assert.NilError(t, err)
		got = append(got, buf[:k]...)
		if k == 0 {
			assert.Assert(t, time.Now().Before(end), "%d of %d completions: %+v", len(got), n, got)
			runtime.Gosched()
		}
	}
	return got
}

// end is one end of a connection with its memory.
type end struct {
	t        testing.TB
	ctx      *Context
	pd       *PD
	scq, rcq *CQ
	qp       *QP
	mr       *MR
	buf      []byte
}

const allAccess = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessMWBind

var defaultCap = QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}

// createCQ creates the queues of newEnd.
var createCQ = func(ctx *Context) (*CQ, error) { return ctx.CreateCQ(512, nil, 0) }

// newEnd creates a queue pair in INIT with a buffer of 64 KiB.
func newEnd(t testing.TB, ctx *Context, change ...func(*QPInit)) *end {
	t.Helper()
	e := &end{t: t, ctx: ctx, buf: make([]byte, 64<<10)}
	e.pd = closing[*PD](t)(ctx.AllocPD())
	e.scq = closing[*CQ](t)(createCQ(ctx))
	e.rcq = closing[*CQ](t)(createCQ(ctx))
	e.mr = closing[*MR](t)(e.pd.RegMR(e.buf, allAccess))
	init := QPInit{SendCQ: e.scq, RecvCQ: e.rcq, Cap: defaultCap, QKey: 0x11111111}
	for _, f := range change {
		f(&init)
	}
	e.qp = closing[*QP](t)(e.pd.CreateQP(init))
	assert.NilError(t, e.qp.ToInit(1, allAccess&^(AccessLocalWrite|AccessMWBind)))
	return e
}

// newPair creates two connected ends on one device.
func newPair(t testing.TB, ctx *Context, change ...func(*QPInit)) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, ctx, change...), newEnd(t, ctx, change...)
	join(t, a, b)
	return a, b
}

// join connects two ends. On iWARP it uses the connection manager, because iWARP has no other
// connections.
func join(t testing.TB, a, b *end) {
	t.Helper()
	if isIWARP(t, a.ctx) {
		meet(t, a.ctx, localAddr(t, a.ctx), a.qp, b.qp)
		return
	}
	a.connect(b)
	b.connect(a)
}

func isIWARP(t testing.TB, ctx *Context) bool {
	t.Helper()
	all, err := Devices()
	assert.NilError(t, err)
	for _, d := range all {
		if d.Name == ctx.Name() {
			return d.NodeType == NodeRNIC
		}
	}
	return false
}

// notOnLoop skips a test of a feature that the loop device lacks.
func notOnLoop(t testing.TB, ctx *Context) {
	t.Helper()
	if ctx.Name() == "loop0" {
		t.Skip("the loop device has no such thing")
	}
}

// openRoCE does what openDevice does, but skips the test on iWARP.
func openRoCE(t testing.TB) *Context {
	t.Helper()
	ctx := openDevice(t)
	if isIWARP(t, ctx) {
		t.Skip("iWARP has no such thing")
	}
	return ctx
}

func (e *end) connect(peer *end) {
	e.t.Helper()
	assert.NilError(e.t, e.qp.ToRTR(e.path(peer.qp.Num())))
	assert.NilError(e.t, e.qp.ToRTS(e.path(peer.qp.Num())))
}

// path returns the attributes for a connection to a queue pair on the same port.
func (e *end) path(peer uint32) QPAttr {
	e.t.Helper()
	gid, _, err := e.ctx.BestGID(1)
	assert.NilError(e.t, err)
	port, err := e.ctx.QueryPort(1)
	assert.NilError(e.t, err)
	return QPAttr{
		PathMTU: port.ActiveMTU, DestQPNum: peer, MaxDestRDAtomic: 4, MaxRDAtomic: 4, MinRNRTimer: 12, Timeout: 14,
		RetryCnt: 7, RNRRetry: 7,
		AH: AHAttr{Port: 1, IsGlobal: true, DGID: gid.GID, SGIDIndex: uint8(gid.Index), HopLimit: 64},
	}
}

// sge returns the segment of n bytes at off in the end's buffer.
func (e *end) sge(off, n int) SGE {
	return SGE{Addr: e.mr.Addr() + uint64(off), Length: uint32(n), LKey: e.mr.LKey()}
}

// send posts one send work request with one segment.
func (e *end) send(wr SendWR, sges ...SGE) {
	e.t.Helper()
	wr.Flags |= SendSignaled
	wr.NumSGE = uint32(len(sges))
	n, err := e.qp.PostSend([]SendWR{wr}, sges)
	assert.NilError(e.t, err)
	assert.Equal(e.t, n, 1)
}

func (e *end) recv(id uint64, sges ...SGE) {
	e.t.Helper()
	n, err := e.qp.PostRecv([]RecvWR{{ID: id, NumSGE: uint32(len(sges))}}, sges)
	assert.NilError(e.t, err)
	assert.Equal(e.t, n, 1)
}

// sent takes the completion of one request and checks that it succeeded.
func (e *end) sent() WC { return e.good(e.scq) }

// received takes the completion of one receive and checks that it succeeded.
func (e *end) received() WC { return e.good(e.rcq) }

func (e *end) good(cq *CQ) WC {
	e.t.Helper()
	wc := poll(e.t, cq, 1)[0]
	assert.Equal(e.t, wc.Status, WCSuccess, "%+v", wc)
	return wc
}

func fill(b []byte, seed byte) []byte {
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
	return b
}
