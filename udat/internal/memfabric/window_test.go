package memfabric

import (
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/softnic/nicfault"
)

func (e *end) window() fabric.MW {
	e.t.Helper()
	w, err := e.pd.AllocMW()
	assert.NilError(e.t, err)
	closeAfter(e.t, w)
	return w
}

// bind posts a signalled binding of n bytes at off.
func (e *end) bind(id uint64, w fabric.MW, off, n int, access fabric.Access) fabric.SGE {
	e.t.Helper()
	at := e.at(off, n)
	key, err := e.qp.Bind(w, fabric.BindWR{
		ID: id, Flags: fabric.Signaled, MR: e.mr, Addr: at.Addr, Length: uint64(n), Access: access,
	})
	assert.NilError(e.t, err)
	assert.Equal(e.t, w.RKey(), key)
	at.LKey = key
	return at
}

func TestWindowGrantsItsRangeAndRightsOnly(t *testing.T) {
	for _, c := range []struct {
		name   string
		op     fabric.Opcode
		off, n int
		want   fabric.Status
	}{
		{"all of it", fabric.OpWrite, 0, 64, fabric.StatusSuccess},
		{"its end", fabric.OpWrite, 56, 8, fabric.StatusSuccess},
		{"beyond its end, inside the region", fabric.OpWrite, 57, 8, fabric.StatusRemoteAccess},
		{"before its start, inside the region", fabric.OpWrite, -1, 1, fabric.StatusRemoteAccess},
		{"another right", fabric.OpRead, 0, 8, fabric.StatusRemoteAccess},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := pair(t, endOptions{})
				w := b.window()
				assert.Equal(t, w.RKey(), uint32(0))
				at := b.bind(1, w, 1000, 64, fabric.RemoteWrite)
				assert.Equal(t, b.completion(1, fabric.StatusSuccess).Opcode, fabric.OpWCBind)
				at.Addr += uint64(c.off)
				a.remote(2, c.op, at, a.at(0, c.n))
				a.completion(2, c.want)
			})
		})
	}
}

func TestRebindAndUnbindEndTheOldKey(t *testing.T) {
	for _, n := range []int{8, 0} {
		bubble(t, func(t *testing.T) {
			a, b := pair(t, endOptions{})
			w := b.window()
			old := b.bind(1, w, 0, 8, fabric.RemoteWrite)
			b.completion(1, fabric.StatusSuccess)
			assert.ErrorIs(t, b.mr.Close(), fabric.ErrInUse)
			fresh := b.bind(2, w, 0, n, fabric.RemoteWrite)
			b.completion(2, fabric.StatusSuccess)
			assert.Assert(t, fresh.LKey != old.LKey)
			if n > 0 {
				a.remote(3, fabric.OpWrite, fresh, a.at(0, 8))
				a.completion(3, fabric.StatusSuccess)
			} else {
				assert.NilError(t, b.mr.Close())
			}
			a.remote(4, fabric.OpWrite, old, a.at(0, 8))
			a.completion(4, fabric.StatusRemoteAccess)
		})
	}
}

func TestBindRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		bind func(*end) (fabric.MW, fabric.BindWR)
	}{
		{"range", func(e *end) (fabric.MW, fabric.BindWR) {
			return e.window(), fabric.BindWR{MR: e.mr, Addr: e.at(4090, 0).Addr, Length: 7, Access: fabric.RemoteRead}
		}},
		{"region without the right to be bound", func(e *end) (fabric.MW, fabric.BindWR) {
			m, s := e.region(e.pd, 8, fabric.RemoteRead|fabric.RemoteWrite)
			return e.window(), fabric.BindWR{MR: m, Addr: s.Addr, Length: 8, Access: fabric.RemoteRead}
		}},
		{"write without local write", func(e *end) (fabric.MW, fabric.BindWR) {
			m, s := e.region(e.pd, 8, fabric.WindowBind)
			return e.window(), fabric.BindWR{MR: m, Addr: s.Addr, Length: 8, Access: fabric.RemoteWrite}
		}},
		{"domain of the region", func(e *end) (fabric.MW, fabric.BindWR) {
			m, s := e.region(e.domain(), 8, allAccess)
			return e.window(), fabric.BindWR{MR: m, Addr: s.Addr, Length: 8, Access: fabric.RemoteRead}
		}},
		{"domain of the window", func(e *end) (fabric.MW, fabric.BindWR) {
			w, err := e.domain().AllocMW()
			assert.NilError(e.t, err)
			closeAfter(e.t, w)
			return w, fabric.BindWR{MR: e.mr, Addr: e.at(0, 0).Addr, Length: 8, Access: fabric.RemoteRead}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := pair(t, endOptions{})
				w, wr := c.bind(b)
				wr.ID = 1
				_, err := b.qp.Bind(w, wr)
				assert.NilError(t, err)
				b.completion(1, fabric.StatusMWBind)
				assert.Equal(t, w.RKey(), uint32(0))
				b.send(2)
				b.completion(2, fabric.StatusFlush)
				a.quiet()
			})
		})
	}
}

func TestFlushedBindChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		w := b.window()
		at := b.bind(1, w, 0, 8, fabric.RemoteWrite)
		b.completion(1, fabric.StatusSuccess)
		assert.NilError(t, b.qp.SetError())
		_, err := b.qp.Bind(w, fabric.BindWR{ID: 2})
		assert.NilError(t, err)
		b.completion(2, fabric.StatusFlush)
		assert.Equal(t, w.RKey(), at.LKey)
		a.quiet()
	})
}

func TestSendWithInvalidate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		at := b.bind(1, b.window(), 0, 8, fabric.RemoteWrite)
		b.completion(1, fabric.StatusSuccess)
		b.recv(2)
		a.post(fabric.SendWR{ID: 3, Opcode: fabric.OpSendInv, Flags: fabric.Signaled, RKey: at.LKey})
		wc := b.completion(2, fabric.StatusSuccess)
		assert.Equal(t, wc.Flags, fabric.WCWithInv)
		assert.Equal(t, wc.Imm, at.LKey)
		a.completion(3, fabric.StatusSuccess)
		a.remote(4, fabric.OpWrite, at, a.at(0, 8))
		a.completion(4, fabric.StatusRemoteAccess)
	})
	// The key of a region cannot be invalidated.
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		b.recv(2)
		a.post(fabric.SendWR{ID: 3, Opcode: fabric.OpSendInv, Flags: fabric.Signaled, RKey: b.mr.RKey()})
		b.completion(2, fabric.StatusRemoteInvReq)
		a.completion(3, fabric.StatusSuccess)
	})
}

func TestInvalidateStaysInItsDomain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		at := b.bind(1, b.window(), 0, 8, fabric.RemoteWrite)
		b.completion(1, fabric.StatusSuccess)
		b.init.PD = b.domain()
		b.renew()
		a.renew()
		join(t, a, b)
		b.recv(2)
		a.post(fabric.SendWR{Opcode: fabric.OpSendInv, RKey: at.LKey})
		b.completion(2, fabric.StatusRemoteInvReq)
	})
}

func TestBindThatIsNeverExecuted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		_, b := pair(t, endOptions{})
		w := b.window()
		nicfault.Of(b.dev).Delay(time.Hour)
		b.bind(1, w, 0, 8, fabric.RemoteWrite)
		assert.NilError(t, b.qp.Close())
		assert.Equal(t, w.RKey(), uint32(0))
	})
}

func TestLocalInvalidate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		at := b.bind(1, b.window(), 0, 8, fabric.RemoteWrite)
		b.post(fabric.SendWR{ID: 2, Opcode: fabric.OpLocalInv, Flags: fabric.Signaled, RKey: at.LKey})
		b.completion(1, fabric.StatusSuccess)
		assert.Equal(t, b.completion(2, fabric.StatusSuccess).Opcode, fabric.OpWCLocalInv)
		b.post(fabric.SendWR{ID: 3, Opcode: fabric.OpLocalInv, Flags: fabric.Signaled, RKey: at.LKey})
		b.completion(3, fabric.StatusLocalQPOp)
		a.quiet()
	})
}

func TestWindowIsNotALocalKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		at := a.bind(1, a.window(), 0, 8, fabric.RemoteRead)
		a.completion(1, fabric.StatusSuccess)
		a.remote(2, fabric.OpWrite, b.at(0, 0), at)
		a.completion(2, fabric.StatusLocalProt)
	})
}

func TestFreedWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := pair(t, endOptions{})
		w := b.window()
		at := b.bind(1, w, 0, 8, fabric.RemoteWrite)
		b.completion(1, fabric.StatusSuccess)
		assert.NilError(t, w.Close())
		assert.ErrorIs(t, w.Close(), fabric.ErrClosed)
		_, err := b.qp.Bind(w, fabric.BindWR{ID: 2})
		assert.ErrorIs(t, err, fabric.ErrClosed)
		a.remote(3, fabric.OpWrite, at, a.at(0, 8))
		a.completion(3, fabric.StatusRemoteAccess)
		assert.NilError(t, b.mr.Close(), "it is no longer bound")
	})
}
