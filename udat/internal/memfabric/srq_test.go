package memfabric

import (
	"runtime"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

func TestSRQServesSeveralQueuePairs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		b := newEnd(t, f, endOptions{srq: 8})
		a1, a2 := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		join(t, a1, b)
		first := b.qp
		b.renew()
		join(t, a2, b)
		_, err := b.qp.PostRecv([]fabric.RecvWR{{}}, nil)
		assert.ErrorContains(t, err, "SRQ")
		for id := range uint64(3) {
			b.recv(id, b.at(int(id)*8, 8))
		}
		assert.Equal(t, b.init.SRQ.Available(), 3)
		a1.send(11, a1.at(0, 8))
		wc := b.completions(1)[0]
		assert.Equal(t, wc.ID, uint64(0))
		assert.Equal(t, wc.QPNum, first.Num())
		a2.send(12, a2.at(0, 8))
		b.completion(1, fabric.StatusSuccess)
		assert.Equal(t, b.init.SRQ.Available(), 1)
		// A queue pair in error leaves the receives to the other queue pair.
		assert.NilError(t, first.SetError())
		assert.Equal(t, b.wantsAsync(fabric.AsyncQPLastWQE).QP, first)
		b.quiet()
		a2.send(13, a2.at(0, 8))
		b.completion(2, fabric.StatusSuccess)
		// Both senders wait for a receive of the empty queue; a post wakes the sender that can
		// continue.
		a2.send(14)
		b.quiet()
		b.recv(3)
		b.completion(3, fabric.StatusSuccess)
		assert.ErrorIs(t, b.init.SRQ.Close(), fabric.ErrInUse)
	})
}

func TestSRQLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{srq: 4})
		join(t, a, b)
		s := b.init.SRQ
		assert.ErrorContains(t, s.SetLimit(5), "limit 5")
		assert.NilError(t, s.SetLimit(0))
		for id := range uint64(4) {
			b.recv(id)
		}
		assert.NilError(t, s.SetLimit(3))
		a.send(11)
		b.completion(0, fabric.StatusSuccess)
		b.quiet() // 3 are left: not fewer
		a.send(12)
		b.completion(1, fabric.StatusSuccess)
		assert.Equal(t, b.wantsAsync(fabric.AsyncSRQLimit).SRQ, s)
		a.send(13)
		b.completion(2, fabric.StatusSuccess)
		b.quiet() // once for each arming
		assert.NilError(t, s.SetLimit(2))
		b.wantsAsync(fabric.AsyncSRQLimit) // fewer already
		b.quiet()
	})
}

func TestSRQResizeKeepsWhatIsQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{srq: 3})
		join(t, a, b)
		s := b.init.SRQ
		for id := range uint64(3) {
			b.recv(id, b.at(int(id), 1))
		}
		a.send(10, a.at(0, 1))
		b.completion(0, fabric.StatusSuccess)
		b.recv(3, b.at(3, 1)) // the ring has wrapped
		_, err := s.PostRecv([]fabric.RecvWR{{}}, nil)
		assert.ErrorIs(t, err, fabric.ErrQueueFull)
		assert.ErrorContains(t, s.Resize(2), "below the 3 receives queued")
		assert.NilError(t, s.Resize(5))
		assert.Equal(t, s.Depth(), 5)
		b.recv(4, b.at(4, 1))
		b.recv(5, b.at(5, 1))
		fill(a.mem, 1)
		for id := uint64(1); id <= 5; id++ {
			a.send(10, a.at(int(id), 1))
			b.completion(id, fabric.StatusSuccess)
			assert.Equal(t, b.mem[id], a.mem[id])
		}
	})
}

// A queue whose ring has wrapped keeps its receives, each with its own segments, however often it
// is resized and wherever the head is.
func TestSRQResizeGoneRound(t *testing.T) {
	for taken := range 9 { // where the ring's head is
		bubble(t, func(t *testing.T) {
			f := New()
			a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{srq: 4})
			join(t, a, b)
			fill(a.mem, 7)
			first, last := uint64(0), uint64(0)
			post := func() { // 0 to 3 segments of 8 bytes, at places that tell the receive
				var sges []fabric.SGE
				for i := range last % 4 {
					sges = append(sges, b.at(int(last*32+i*8), 8))
				}
				b.recv(last, sges...)
				last++
			}
			send := func() {
				n := int(first % 4 * 8)
				a.send(100, []fabric.SGE{a.at(0, n)}[:btoi(n > 0)]...)
				a.completion(100, fabric.StatusSuccess)
				wc := b.completion(first, fabric.StatusSuccess)
				assert.Equal(t, wc.ByteLen, uint32(n))
				at := int(first * 32)
				assert.DeepEqual(t, b.mem[at:at+n], a.mem[:n])
				first++
			}
			for range taken {
				post()
				send()
			}
			for _, depth := range []int{4, 9, 6, 5, 8, 4} {
				for b.init.SRQ.Available() < min(depth, 4) {
					post()
				}
				assert.NilError(t, b.init.SRQ.Resize(depth))
				for b.init.SRQ.Available() < depth {
					post()
				}
				for b.init.SRQ.Available() > 3 {
					send()
				}
			}
			for first < last {
				send()
			}
		})
	}
}

// TestSRQWaiterThatFails: if a sender fails while it waits for a receive of an empty queue, the
// next receive wakes another sender.
func TestSRQWaiterThatFails(t *testing.T) {
	for _, fails := range []int{0, 1} { // who waited first, and second
		bubble(t, func(t *testing.T) {
			f := New()
			b := newEnd(t, f, endOptions{srq: 4})
			var senders [2]*end
			for i := range senders {
				senders[i] = newEnd(t, f, endOptions{})
				b.renew()
				join(t, senders[i], b)
			}
			for round := range uint64(3) {
				for i, a := range senders {
					if round == 0 || i != fails {
						a.send(round)
						a.quiet()
					}
				}
				if round == 0 {
					assert.NilError(t, senders[fails].qp.SetError())
					senders[fails].completion(0, fabric.StatusFlush)
				}
				b.recv(10 + round)
				senders[1-fails].completion(round, fabric.StatusSuccess)
				assert.Equal(t, b.completions(1)[0].ID, 10+round)
			}
		})
	}
}

// After SetError has returned, the queue pair completes no more messages: udat then reports the end
// of the connection.
func TestSetErrorWaitsForTheMessageUnderWay(t *testing.T) {
	const size = 64 << 20 // the copy takes milliseconds
	f := New()
	a, b := newEnd(t, f, endOptions{bytes: size}), newEnd(t, f, endOptions{srq: 1, bytes: size})
	for range 8 {
		join(t, a, b)
		b.recv(1, b.at(0, size))
		a.send(2, a.at(0, size))
		for b.init.SRQ.Available() > 0 {
			runtime.Gosched()
		}
		assert.NilError(t, b.qp.SetError())
		assert.Equal(t, b.qp.Taken(), 0)
		var wcs [2]fabric.WC
		n, err := b.cq.Poll(wcs[:], 1)
		assert.NilError(t, err)
		assert.Equal(t, n, 1)
		assert.Equal(t, wcs[0].Status, fabric.StatusSuccess)
		a.completion(2, fabric.StatusSuccess)
		assert.Equal(t, b.wantsAsync(fabric.AsyncQPLastWQE).QP, b.qp)
		a.renew()
		b.renew()
		a.events, b.events = make(chan fabric.ConnEvent, 16), make(chan fabric.ConnEvent, 16)
	}
}
