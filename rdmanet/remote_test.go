package rdmanet_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/rdmanet"
)

// region registers n bytes of a connection.
func region(t testing.TB, c *rdmanet.Conn, n int, access rdmanet.Access) *rdmanet.Region {
	t.Helper()
	r, err := c.NewRegion(make([]byte, n), access)
	assert.NilError(t, err)
	return r
}

// slice is part of remote memory.
func slice(t testing.TB, r rdmanet.Remote, off, n int) rdmanet.Remote {
	t.Helper()
	r, err := r.Slice(uint64(off), uint64(n))
	assert.NilError(t, err)
	return r
}

// TestBatch scatters 1,000 pieces over the peer's memory and gathers them again, several batches at
// a time, while the stream goes on.
func TestBatch(t *testing.T) {
	const pieces, size = 1000, 1000
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		go io.Copy(server, server)
		far := region(t, server, pieces*size, rdmanet.PeerReads|rdmanet.PeerWrites)
		near := region(t, client, pieces*size, 0)
		copy(near.Bytes(), pattern(pieces*size, 3))
		want := make([]byte, pieces*size)
		writes := client.NewBatch()
		for i := range pieces { // in the reverse order
			writes.Write(slice(t, far.Remote(), (pieces-1-i)*size, size), near, i*size)
			copy(want[(pieces-1-i)*size:], near.Bytes()[i*size:(i+1)*size])
		}
		assert.Equal(t, writes.Len(), pieces)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		p, err := writes.Start(ctx)
		assert.NilError(t, err)
		assert.Equal(t, writes.Len(), 0)
		echo(t, client, "while they are in flight")
		assert.NilError(t, p.Wait())
		assert.NilError(t, p.Wait()) // again
		assert.Assert(t, bytes.Equal(far.Bytes(), want))

		clear(near.Bytes())
		var all sync.WaitGroup
		for first := range 4 { // goroutines
			all.Go(func() {
				reads := client.NewBatch()
				for i := first; i < pieces; i += 4 {
					reads.Read(near, i*size, slice(t, far.Remote(), i*size, size))
				}
				if err := reads.Do(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		for range 10 {
			echo(t, client, "beside them")
		}
		all.Wait()
		assert.Assert(t, bytes.Equal(near.Bytes(), want))
		assert.NilError(t, client.NewBatch().Do(ctx)) // of nothing
	})
}

// TestBatchRegionClosed closes a region whose batch is in flight: the batch ends well.
func TestBatchRegionClosed(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far := region(t, server, 1<<20, rdmanet.PeerReads)
		copy(far.Bytes(), pattern(1<<20, 4))
		for range 20 {
			near := region(t, client, 1<<20, 0)
			b := client.NewBatch()
			for range 20 {
				b.Read(near, 0, far.Remote())
			}
			p, err := b.Start(t.Context())
			assert.NilError(t, err)
			assert.NilError(t, near.Close())
			assert.NilError(t, p.Wait())
			assert.Assert(t, bytes.Equal(near.Bytes(), far.Bytes()))
		}
	})
}

// TestBatchRefused has one invalid operation in each batch, after valid ones. No operation is
// executed, no region stays in use, and the connection goes on.
func TestBatchRefused(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far := region(t, server, 4096, rdmanet.PeerReads|rdmanet.PeerWrites)
		near, other, gone := region(t, client, 4096, 0), region(t, server, 4096, 0), region(t, client, 4096, 0)
		copy(near.Bytes(), "data")
		assert.NilError(t, gone.Close())
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		var old uint64
		wide, odd := slice(t, far.Remote(), 0, 16), slice(t, far.Remote(), 4, 8)
		for name, try := range map[string]struct {
			ctx  context.Context
			want error
			add  func(b *rdmanet.Batch)
		}{
			"closed region":    {t.Context(), net.ErrClosed, func(b *rdmanet.Batch) { b.Read(gone, 0, far.Remote()) }},
			"context":          {ended, context.Canceled, func(*rdmanet.Batch) {}},
			"foreign region":   {t.Context(), nil, func(b *rdmanet.Batch) { b.Write(far.Remote(), other, 0) }},
			"no region":        {t.Context(), nil, func(b *rdmanet.Batch) { b.Write(far.Remote(), nil, 0) }},
			"beyond the end":   {t.Context(), nil, func(b *rdmanet.Batch) { b.Write(far.Remote(), near, 1) }},
			"before the start": {t.Context(), nil, func(b *rdmanet.Batch) { b.Read(near, -1, far.Remote()) }},
			"atomic of 16":     {t.Context(), nil, func(b *rdmanet.Batch) { b.FetchAdd(wide, 1, &old) }},
			"atomic to nil":    {t.Context(), nil, func(b *rdmanet.Batch) { b.FetchAdd(slice(t, far.Remote(), 0, 8), 1, nil) }},
			"atomic at 4":      {t.Context(), nil, func(b *rdmanet.Batch) { b.CompareSwap(odd, 0, 1, &old) }},
		} {
			b := client.NewBatch()
			b.Write(far.Remote(), near, 0)
			try.add(b)
			b.Write(far.Remote(), near, 0)
			p, err := b.Start(try.ctx)
			assert.Assert(t, p == nil && err != nil, "%s", name)
			assert.Assert(t, try.want == nil || errors.Is(err, try.want), "%s: %v", name, err)
		}
		check := region(t, client, 4096, 0)
		assert.NilError(t, client.ReadRemote(t.Context(), check, 0, far.Remote()))
		assert.Assert(t, bytes.Equal(check.Bytes(), make([]byte, 4096)), "%q", check.Bytes()[:8])
		assert.NilError(t, near.Close()) // at once: not in use
		assert.ErrorIs(t, client.WriteRemote(t.Context(), far.Remote(), near, 0), net.ErrClosed)
	})
}

// TestBatchContext ends the context while a batch that is too long is being posted: Start returns
// its error, the device leaves the memory alone from then on, and the connection goes on.
func TestBatchContext(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far, near, other := region(t, server, 1<<20, rdmanet.PeerReads), region(t, client, 1<<20, 0), region(t, client, 8, 0)
		for i := range far.Bytes() {
			far.Bytes()[i] = 1
		}
		const tooLong = 50_000 // reads of 1 MiB each
		b := client.NewBatch()
		for range tooLong {
			b.Read(near, 0, far.Remote())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := b.Start(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		clear(near.Bytes())
		// Ends after all that the device still had.
		assert.NilError(t, client.ReadRemote(t.Context(), other, 0, slice(t, far.Remote(), 0, 8)))
		assert.Assert(t, bytes.Equal(near.Bytes(), make([]byte, 1<<20)))
		assert.NilError(t, client.ReadRemote(t.Context(), near, 0, far.Remote()))
		assert.Equal(t, near.Bytes()[1<<20-1], byte(1))
	})
}

// TestBatchBesideStream has more operations than the connection has room for, in one batch that is
// too long to end, and in many of one operation: the stream goes on meanwhile.
func TestBatchBesideStream(t *testing.T) {
	for name, load := range map[string]struct{ goroutines, ops int }{"one": {1, 100_000}, "many": {100, 1}} {
		onEach(t, func(t *testing.T, dev string) {
			client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
			go io.Copy(server, server)
			far, near := region(t, server, 1<<18, rdmanet.PeerReads), region(t, client, 1<<18, 0)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, load.goroutines)
			for range load.goroutines {
				go func() {
					for {
						b := client.NewBatch()
						for range load.ops {
							b.Read(near, 0, far.Remote())
						}
						if err := b.Do(ctx); err != nil {
							ended <- err
							return
						}
					}
				}()
			}
			assert.NilError(t, client.SetReadDeadline(time.Now().Add(patience)))
			for range 20 {
				echo(t, client, "beside them")
			}
			assert.Equal(t, len(ended), 0, name)
			cancel()
			for range load.goroutines {
				assert.ErrorIs(t, <-ended, context.Canceled, name)
			}
		})
	}
}

// TestBatchPeerRefuses writes to memory that the peer has not granted. Wait returns the reason, for
// each batch in flight, and the regions can be closed.
func TestBatchPeerRefuses(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		client, server := pair(t, dev, rdmanet.Dialer{}, rdmanet.ListenConfig{})
		far, near := region(t, server, 4096, rdmanet.PeerReads), region(t, client, 4096, 0)
		b := client.NewBatch()
		var pending []*rdmanet.Pending
		for range 3 {
			b.Write(far.Remote(), near, 0)
			p, err := b.Start(t.Context())
			if err != nil { // the device was faster
				break
			}
			pending = append(pending, p)
		}
		assert.Assert(t, len(pending) > 0)
		for _, p := range pending {
			assert.Assert(t, p.Wait() != nil)
		}
		assert.NilError(t, near.Close())
	})
}

// TestAtomics counts with several connections on one word, and takes a lock by compare and swap.
func TestAtomics(t *testing.T) {
	const conns, rounds = 4, 200
	onEach(t, func(t *testing.T, dev string) {
		l := listen(t, dev, rdmanet.ListenConfig{})
		client, server := join(t, dev, l, rdmanet.Dialer{})
		defer client.Close()
		defer server.Close()
		_, err := server.NewRegion(make([]byte, 8), rdmanet.PeerAtomics)
		if errors.Is(err, errors.ErrUnsupported) {
			assert.ErrorContains(t, err, dev)
			far := region(t, server, 8, rdmanet.PeerReads)
			_, err = client.FetchAdd(t.Context(), far.Remote(), 1)
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			assert.ErrorContains(t, err, dev)
			_, err = client.CompareSwap(t.Context(), far.Remote(), 1, 2)
			assert.ErrorIs(t, err, errors.ErrUnsupported)
			echoed := make([]byte, 1)
			go server.Write(echoed)
			_, err = client.Read(echoed) // the connection goes on
			assert.NilError(t, err)
			return
		}
		assert.NilError(t, err)
		var memory [16]byte // of all the connections
		var all sync.WaitGroup
		var mu sync.Mutex
		seen := map[uint64]bool{}
		for range conns {
			c, s := join(t, dev, l, rdmanet.Dialer{})
			defer c.Close()
			defer s.Close()
			r, err := s.NewRegion(memory[:], rdmanet.PeerAtomics|rdmanet.PeerReads)
			assert.NilError(t, err)
			counter, lock := slice(t, r.Remote(), 0, 8), slice(t, r.Remote(), 8, 8)
			all.Go(func() {
				for range rounds / 10 {
					var old [10]uint64
					b := c.NewBatch()
					for i := range old {
						b.FetchAdd(counter, 1<<32+1, &old[i])
					}
					if err := b.Do(t.Context()); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, v := range old {
						seen[v] = true
					}
					mu.Unlock()
				}
				for {
					old, err := c.CompareSwap(t.Context(), lock, 0, 1)
					if err != nil {
						t.Error(err)
						return
					}
					if old == 0 {
						break
					}
				}
				if old, err := c.CompareSwap(t.Context(), lock, 1, 0); old != 1 || err != nil {
					t.Errorf("the lock is %d, %v", old, err)
				}
			})
		}
		all.Wait()
		assert.Equal(t, len(seen), conns*rounds) // each value once
		for i := range uint64(conns * rounds) {
			assert.Assert(t, seen[i*(1<<32+1)], "%d", i)
		}
		_, err = client.FetchAdd(t.Context(), region(t, server, 8, rdmanet.PeerReads).Remote(), 1)
		assert.Assert(t, err != nil, "an atomic without the right")
	})
}
