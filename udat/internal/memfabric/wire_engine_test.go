package memfabric

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

// One goroutine serves all queue pairs of a device: a queue pair that waits must not delay another
// one.
func TestAWaitHoldsUpNoOtherQueuePair(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		first, firstPeer := a.qp, b.qp
		a.send(1, a.at(0, 8)) // meets no receive
		a.renew()
		b.renew()
		join(t, a, b)
		second := a.qp
		nicfault.Of(a.dev).Delay(time.Minute)
		a.remote(2, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		nicfault.Of(a.dev).Delay(0)
		a.renew()
		b.renew()
		join(t, a, b)
		start := time.Now()
		a.remote(3, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
		a.completion(3, fabric.StatusSuccess)
		assert.Equal(t, time.Since(start), time.Duration(0))
		_, err := firstPeer.PostRecv([]fabric.RecvWR{{ID: 4}}, nil)
		assert.NilError(t, err)
		a.qp = first
		a.completion(1, fabric.StatusRemoteInvReq) // the receive has no room
		assert.Equal(t, time.Since(start), time.Duration(0))
		a.qp = second
		a.completion(2, fabric.StatusSuccess)
		assert.Equal(t, time.Since(start), time.Minute)
	})
}

// gate has the engine of a stop at the next request of a new connection to b, until open is called.
func gate(t *testing.T, a, b *end) (post, open func()) {
	t.Helper()
	join(t, a, b)
	q, in := a.qp, &b.qp.(*softnic.QP).In
	a.renew()
	b.renew()
	return func() {
		in.Lock()
		wr := fabric.SendWR{Opcode: fabric.OpWrite, Flags: fabric.Signaled}
		_, err := q.PostSend([]fabric.SendWR{wr}, nil)
		assert.NilError(t, err)
	}, in.Unlock
}

// TestQueuePairsTakeTurns: one that has much to move lets the others have their turn, within a
// request too.
func TestQueuePairsTakeTurns(t *testing.T) {
	const parts = 4
	for _, c := range []struct {
		name     string
		op       fabric.Opcode
		n, bytes int
		order    []uint64 // of the completions: the gate's, those of the bulk, and that of another
	}{
		{"a write", fabric.OpWrite, 1, parts * turn, []uint64{0, 2, 1}},
		{"a read", fabric.OpRead, 1, parts * turn, []uint64{0, 2, 1}},
		{"a write of a byte more", fabric.OpWrite, 1, turn + 1, []uint64{0, 2, 1}},
		{"writes", fabric.OpWrite, parts, turn, []uint64{0, 1, 2, 1, 1, 1}},
		{"short writes", fabric.OpWrite, parts, turn / 2, []uint64{0, 1, 1, 2, 1, 1}},
		{"sends", fabric.OpSend, parts, turn, []uint64{0, 1, 2, 1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{bytes: parts * turn}), newEnd(t, f, endOptions{bytes: parts * turn})
			shut, open := gate(t, a, b)
			join(t, a, b)
			bulk := a.qp
			if c.op == fabric.OpSend {
				for range c.n {
					b.recv(3, b.at(0, c.bytes))
				}
			}
			a.renew()
			b.renew()
			join(t, a, b)
			fill(a.mem, 1)
			fill(b.mem, 2)
			shut()
			small := a.qp
			a.qp = bulk
			for range c.n {
				a.remote(1, c.op, b.at(0, 0), a.at(0, c.bytes))
			}
			a.qp = small
			a.remote(2, fabric.OpWrite, b.at(0, 0))
			open()
			var order []uint64
			for _, wc := range a.completions(len(c.order)) {
				assert.Equal(t, wc.Status, fabric.StatusSuccess)
				order = append(order, wc.ID)
			}
			assert.DeepEqual(t, order, c.order)
			assert.Assert(t, bytes.Equal(a.mem[:c.bytes], b.mem[:c.bytes]))
		})
	}
}

// TestALongWriteInPieces: a write or a read that takes several turns brings each byte to its place
// and no other, gathered or scattered.
func TestALongWriteInPieces(t *testing.T) {
	const room = 4 * turn
	f := New()
	a, b := newEnd(t, f, endOptions{bytes: room}), newEnd(t, f, endOptions{bytes: room})
	join(t, a, b)
	for _, op := range []fabric.Opcode{fabric.OpWrite, fabric.OpRead} {
		for _, n := range []int{turn - 1, turn, turn + 1, 2 * turn, 3*turn + 5} {
			local, remote := a.mem, b.mem
			fill(a.mem, 1)
			fill(b.mem, 2)
			segments := []fabric.SGE{a.at(n-3, 3), a.at(turn/2, n-turn/2-3), a.at(0, turn/2)}
			want := slices.Concat(local[n-3:n], local[turn/2:n-3], local[:turn/2])
			was := slices.Clone(remote)
			if op == fabric.OpRead {
				want, was = slices.Clone(remote[9:9+n]), slices.Clone(local)
			}
			a.remote(1, op, b.at(9, 0), segments...)
			a.completion(1, fabric.StatusSuccess)
			if op == fabric.OpWrite {
				assert.Assert(t, bytes.Equal(remote[9:9+n], want), "%d bytes", n)
				assert.Assert(t, bytes.Equal(remote[:9], was[:9]) && bytes.Equal(remote[9+n:], was[9+n:]), "%d bytes", n)
				continue
			}
			got := slices.Concat(local[n-3:n], local[turn/2:n-3], local[:turn/2])
			assert.Assert(t, bytes.Equal(got, want), "%d bytes", n)
			assert.Assert(t, bytes.Equal(local[n:], was[n:]), "%d bytes", n)
		}
	}
}

// TestALongWriteEndsWithItsTarget: after SetError nothing more of a write comes, and the write
// fails. The request counts as one.
func TestALongWriteEndsWithItsTarget(t *testing.T) {
	f := New()
	a, b := newEnd(t, f, endOptions{bytes: 3 * turn}), newEnd(t, f, endOptions{bytes: 3 * turn})
	first, open := gate(t, a, b)
	second, openSecond := gate(t, a, b)
	join(t, a, b)
	fill(a.mem, 1)
	was := slices.Clone(b.mem)
	nicfault.Of(a.dev).FailOp(4, fabric.StatusGeneral) // the fourth request is the one after the three
	first()
	a.remote(1, fabric.OpWrite, b.at(0, 0), a.at(0, 3*turn))
	second()
	open()
	a.completions(1)
	within(t, func() bool { return load(b.mem[turn-8:]) != 0 })
	assert.NilError(t, b.qp.SetError())
	openSecond()
	wcs := a.completions(2)
	assert.Equal(t, wcs[0].Status, fabric.StatusSuccess)
	assert.Equal(t, wcs[1].Status, fabric.StatusRetryExceeded)
	assert.Assert(t, bytes.Equal(b.mem[:turn], a.mem[:turn]))
	assert.Assert(t, bytes.Equal(b.mem[turn:], was[turn:]))
	a.renew()
	b.renew()
	a.events, b.events = make(chan fabric.ConnEvent, 16), make(chan fabric.ConnEvent, 16)
	join(t, a, b)
	a.remote(5, fabric.OpWrite, b.at(0, 0), a.at(0, 8))
	a.completion(5, fabric.StatusGeneral)
}

func within(t *testing.T, happens func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !happens(); time.Sleep(time.Millisecond) {
		assert.Assert(t, time.Now().Before(end))
	}
}

// Close waits only for the message that is being received, and not for what the queue pair itself
// waits for.
func TestCloseOfAQueuePairThatWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, _ := pair(t, endOptions{})
		a.send(1) // meets no receive
		nicfault.Of(a.dev).Delay(time.Hour)
		a.send(2)
		start := time.Now()
		assert.NilError(t, a.qp.Close())
		assert.Equal(t, time.Since(start), time.Duration(0))
		time.Sleep(2 * time.Hour)
		a.quiet() // a queue pair that is closed completes nothing
	})
}
