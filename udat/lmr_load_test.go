package udat_test

import (
	"encoding/binary"
	"errors"
	"sync"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat"
	"github.com/godat/godat/udat/internal/rule"
)

// TestLoad polls a flag that a peer writes after its payload: when the flag has number n, the
// payload is payload n.
func TestLoad(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := pair(t, dev, setup{})
		const payload, rounds = 4096, 50
		for i := uint64(1); i <= rounds; i++ {
			for j := range payload {
				a.mem.Bytes()[j] = byte(i)
			}
			binary.NativeEndian.PutUint64(a.mem.Bytes()[payload:], i)
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(0, payload), 1, b.mem.RMRTriplet(0, payload), udat.CompletionDefault))
			assert.NilError(t, a.ep.PostRDMAWrite(a.iov(payload, 8), 2, b.mem.RMRTriplet(payload, 8), udat.CompletionDefault))
			var got uint64
			for until := time.Now().Add(patience); got != i; {
				assert.Assert(t, time.Now().Before(until), "flag is %d, want %d", got, i)
				var err error
				got, err = b.mem.LoadUint64(payload)
				assert.NilError(t, err)
			}
			if acknowledged(a) {
				assert.Equal(t, b.mem.Bytes()[0], byte(i))
				assert.Equal(t, b.mem.Bytes()[payload-1], byte(i))
			}
			for range 2 {
				expect(t, a.request, udat.EventDTOCompletion)
			}
		}
	})
}

// TestLoadArguments loads words of both sizes at valid and invalid offsets.
func TestLoadArguments(t *testing.T) {
	ia := open(t, "mem0")
	pz, err := ia.CreatePZ()
	assert.NilError(t, err)
	buf := make([]byte, 40)
	for i := range buf {
		buf[i] = byte(i)
	}
	l, err := ia.CreateLMR(pz, buf, udat.PrivLocalRead)
	assert.NilError(t, err)
	for off := -9; off <= len(buf)+9; off++ {
		if got, err := l.LoadUint32(off); off >= 0 && off <= len(buf)-4 && off%4 == 0 {
			assert.NilError(t, err)
			assert.Equal(t, got, binary.NativeEndian.Uint32(buf[off:]))
		} else {
			assert.ErrorIs(t, err, udat.ErrInvalidParameter, "4 bytes at %d", off)
		}
		if got, err := l.LoadUint64(off); off >= 0 && off <= len(buf)-8 && off%8 == 0 {
			assert.NilError(t, err)
			assert.Equal(t, got, binary.NativeEndian.Uint64(buf[off:]))
		} else {
			assert.ErrorIs(t, err, udat.ErrInvalidParameter, "8 bytes at %d", off)
		}
	}
	odd, err := ia.CreateLMR(pz, buf[1:], udat.PrivLocalRead)
	assert.NilError(t, err)
	_, err = odd.LoadUint32(0)
	assert.ErrorIs(t, err, udat.ErrInvalidParameter)
	_, err = odd.LoadUint64(7)
	assert.NilError(t, err)
}

// TestLoadBesideFree frees regions and closes adapters, which unmaps the memory, while other
// goroutines load from it.
func TestLoadBesideFree(t *testing.T) {
	withoutDevice(t)
	for i := range 100 {
		ia := open(t, "mem0")
		pz, err := ia.CreatePZ()
		assert.NilError(t, err)
		l, err := ia.AllocLMR(pz, 1<<16, udat.PrivAll)
		assert.NilError(t, err)
		var loaders sync.WaitGroup
		began := make(chan struct{}, 2)
		for range 2 {
			loaders.Go(func() {
				began <- struct{}{}
				for off := 0; ; off = (off + 8) % (1 << 16) {
					if _, err := l.LoadUint64(off); err != nil {
						assert.Check(t, errors.Is(err, udat.ErrInvalidHandle), "%v", err)
						return
					}
				}
			})
		}
		<-began
		<-began
		if i%2 == 0 {
			assert.NilError(t, l.Free())
		} else {
			assert.NilError(t, ia.Close(udat.CloseAbrupt))
		}
		loaders.Wait()
	}
}

// TestLMRByContext finds regions of two adapters by their contexts, until they are freed.
func TestLMRByContext(t *testing.T) {
	onEach(t, func(t *testing.T, dev string) {
		a, b := newEnd(t, dev, setup{}), newEnd(t, dev, setup{})
		second, err := a.ia.CreateLMRFromLMR(a.pz, a.mem, udat.PrivLocalRead)
		assert.NilError(t, err)
		for _, l := range []*udat.LMR{a.mem, second} {
			got, err := a.ia.LMRByContext(l.Context())
			assert.NilError(t, err)
			assert.Assert(t, got == l)
		}
		if got, err := b.ia.LMRByContext(a.mem.Context()); err == nil { // contexts are valid only for their own adapter
			assert.Assert(t, got == b.mem)
		}
		context := second.Context()
		assert.NilError(t, second.Free())
		_, err = a.ia.LMRByContext(context)
		assert.ErrorIs(t, err, udat.ErrInvalidParameter)
		_, err = a.ia.LMRByContext(a.mem.Context())
		assert.NilError(t, err)
		rule.Proves(t, "LMR-CREATE-03")
	})
}
