package softnic

import (
	"testing"
	"testing/synctest"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

// TestGate: a failed enter of a shut gate does not change the count, so that the wait for the users
// ends.
func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		assert.Assert(t, g.enter())
		done := make(chan struct{})
		go func() { g.shutAndWait(); close(done) }()
		synctest.Wait()
		for range 3 {
			assert.Assert(t, !g.enter())
		}
		g.leave()
		<-done
	})
}

func TestResourcesHaveNames(t *testing.T) {
	for r, name := range resourceNames {
		assert.Assert(t, name != "", "resource %d", r)
	}
}

// TestKeys: keys are random: each half of their bits takes many values, and none is used twice.
func TestKeys(t *testing.T) {
	var k keyTable
	k.byKey = make(map[uint32]*span)
	high, low := map[uint16]bool{}, map[uint16]bool{}
	const n = 2000
	for range n {
		key := k.reserve()
		high[uint16(key>>16)], low[uint16(key)] = true, true
	}
	assert.Equal(t, len(k.byKey), n)
	assert.Assert(t, len(high) > n*9/10 && len(low) > n*9/10, "%d and %d values", len(high), len(low))
}

// TestTurnAway: messages that come after the dispatcher has stopped are answered, in order. Events
// of this device are dropped.
func TestTurnAway(t *testing.T) {
	var q Dispatcher
	q.start()
	var ran []int
	q.Add(func() { <-q.quit }) // stop ends this one
	for n := range 3 {
		q.Add(func() { ran = append(ran, -n) })
		q.AddMessage(func() { ran = append(ran, n) })
	}
	q.stop()
	q.turnAway()
	assert.DeepEqual(t, ran, []int{0, 1, 2})
}

// TestCloseWaitsForTransfers: Close of a region or a window returns only after a running copy of
// its memory, because the owner may unmap the memory as soon as Close returns.
func TestCloseWaitsForTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hw Adapter
		hw.Init(Attr(fabric.DeviceInfo{}))
		var d Device
		assert.NilError(t, d.Open(&hw, nil, fabric.Options{}, nil))
		defer d.Stop()
		dom, err := d.AllocPD()
		assert.NilError(t, err)
		mem := make([]byte, 64)
		m, err := dom.RegMR(mem, fabric.RemoteWrite|fabric.WindowBind)
		assert.NilError(t, err)
		w, err := dom.AllocMW()
		assert.NilError(t, err)
		b := &binding{window: w.(*mw), region: m.(*mr), dom: dom.(*pd), key: 7,
			wr: fabric.BindWR{Addr: addrOf(mem), Length: 64, Access: fabric.RemoteWrite}}
		assert.Equal(t, b.apply(), fabric.StatusSuccess)
		for _, c := range []struct {
			name string
			key  uint32
			end  func() error
		}{{"window", b.key, w.Close}, {"region", m.RKey(), m.Close}} {
			transfer := hw.keys.enter(c.key)
			closed := make(chan error, 1)
			go func() { closed <- c.end() }()
			synctest.Wait()
			assert.Equal(t, len(closed), 0, "%s: closed during a transfer", c.name)
			assert.Assert(t, hw.keys.enter(c.key) == nil, "%s: the next transfer is refused", c.name)
			transfer.leave()
			assert.NilError(t, <-closed)
		}
	})
}

// TestQueuesRunOn: the counters of a send queue pass a multiple of 2^32 while every slot is in use.
func TestQueuesRunOn(t *testing.T) {
	var s SendQueue
	const start, depth = 1<<33 - 9, 3 // no power of two
	s.init(depth, 1)
	s.head.Store(start)
	s.tail.Store(start)
	for id := uint64(start); id < start+30; id += depth {
		for i := range uint64(depth) {
			assert.Assert(t, !s.full())
			s.next().WR.ID = id + i
			s.push()
		}
		assert.Assert(t, s.full())
		for i := range uint64(depth) {
			assert.Equal(t, s.First().WR.ID, id+i)
			assert.Equal(t, s.Slot(s.Head()+uint64(depth-1-int(i))).WR.ID, id+depth-1)
			assert.Equal(t, s.Slot(id+i), s.First())
			s.pop()
		}
	}
}

// TestAttend: what is queued during Attend runs in its caller's goroutine, in order, after f, as
// part of the call.
func TestAttend(t *testing.T) {
	var q Dispatcher
	q.start()
	defer q.stop()
	var ran []int
	q.Attend(func() {
		q.Add(func() { ran = append(ran, 1); q.Add(func() { ran = append(ran, 3) }) })
		q.Add(func() { ran = append(ran, 2) })
		ran = append(ran, 0)
	})
	assert.DeepEqual(t, ran, []int{0, 1, 2, 3})
}
