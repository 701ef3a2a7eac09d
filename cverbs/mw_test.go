//go:build linux && cgo

package cverbs

import (
	"syscall"
	"testing"

	"gotest.tools/v3/assert"
)

// Bad arguments that BindMW itself refuses. The test needs no device with windows.
func TestMWBadInput(t *testing.T) {
	ctx := openRoCE(t)
	e, other := newEnd(t, ctx), newEnd(t, ctx)
	_, err := e.pd.AllocMW(3)
	assert.ErrorContains(t, err, "type 3")
	mw := &MW{pd: e.pd, typ: MWType2}
	assert.NilError(t, mw.life.begin(kindMW, &e.pd.life))
	mw.life.open()
	defer mw.life.close(nil, func() error { return nil })
	size := uint64(e.mr.Len())
	ok := BindWR{MR: e.mr, Addr: e.mr.Addr(), Length: 8, Access: AccessRemoteRead}
	const outside = "not inside the region"
	for _, c := range []struct {
		change func(*BindWR)
		want   string
	}{
		{func(w *BindWR) { w.Flags = SendInline }, "only FENCE and SIGNALED"},
		{func(w *BindWR) { w.MR = nil }, "MR is nil"},
		{func(w *BindWR) { w.Length = 0 }, "invalidated"},
		{func(w *BindWR) { w.Addr-- }, outside},
		{func(w *BindWR) { w.Addr = 0 }, outside},
		{func(w *BindWR) { w.Addr = 1<<64 - 1 }, outside},
		{func(w *BindWR) { w.Addr += size }, outside},
		{func(w *BindWR) { w.Addr += size + 1 }, outside},
		{func(w *BindWR) { w.Addr += size - 7 }, outside},
		{func(w *BindWR) { w.Length = size + 1 }, outside},
		{func(w *BindWR) { w.Length = 1<<32 + 8 }, outside},
		{func(w *BindWR) { w.Length = 1<<64 - 1 }, outside},
		{func(w *BindWR) { w.Addr += 16; w.Length = 1<<64 - 16 }, outside},  // wraps around to the start
		{func(w *BindWR) { w.Addr += 16; w.Length = -w.Addr }, outside},     // wraps around to 0
		{func(w *BindWR) { w.Addr += 16; w.Length = 16 - w.Addr }, outside}, // wraps around to 16
		{func(w *BindWR) { w.Addr--; w.Length = 1<<64 - 1 }, outside},       // begins before the region and wraps around
		{func(w *BindWR) { w.Addr += 1 << 32; w.Length = 8 }, outside},      // inside if truncated to 32 bits
		{func(w *BindWR) { w.MR = other.mr; w.Addr = other.mr.Addr() }, "different protection domains"},
		{func(w *BindWR) {}, "it needs RTS"},
		{func(w *BindWR) { w.Addr += size - 8 }, "it needs RTS"}, // the last 8 bytes are inside the region
		{func(w *BindWR) { w.Length = size }, "it needs RTS"},
	} {
		wr := ok
		c.change(&wr)
		_, err := e.qp.BindMW(mw, wr)
		assert.ErrorContains(t, err, c.want)
	}
	_, err = other.qp.BindMW(mw, ok)
	isErr(t, err, syscall.EPERM)
	_, err = e.qp.BindMW(nil, ok)
	assert.ErrorContains(t, err, "mw is nil")
}
