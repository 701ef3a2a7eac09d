package memfabric

import (
	"reflect"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/godat/godat/udat/internal/fabric"
)

func TestOpenByNameOnly(t *testing.T) {
	f := New()
	for _, name := range []string{"", "127.0.0.1", "::1", "mem1", "MEM0", "rxe0"} {
		_, err := f.Open(name, options, nil)
		assert.ErrorIs(t, err, fabric.ErrNoDevice, "%q", name)
	}
	_, err := f.Open("mem0", fabric.Options{RNRRetry: 8}, nil)
	assert.ErrorIs(t, err, fabric.ErrInvalid)
	infos, err := f.Devices()
	assert.NilError(t, err)
	assert.Equal(t, len(infos), 1)
	assert.Equal(t, infos[0].Name, "mem0")
	assert.Assert(t, infos[0].Active)
}

// TestAttributes: mem0 has every ability that a device can have but a keep-alive, and none of the
// restrictions of iWARP.
func TestAttributes(t *testing.T) {
	d, _ := openDevice(t, New(), options)
	assert.Equal(t, d.Attr().MTU, 4096)
	a := reflect.ValueOf(d.Attr())
	for i := range a.NumField() {
		if name := a.Type().Field(i).Name; a.Field(i).Kind() == reflect.Bool {
			assert.Equal(t, a.Field(i).Bool(), name != "ReadSinkRemote" && name != "WatchesPeers", name)
		}
	}
}

// TestQueuePairKeepsItsParts: the domain and queues of a queue pair cannot be closed before the
// queue pair. A queue pair may have queues of length 0.
func TestQueuePairKeepsItsParts(t *testing.T) {
	d, _ := openDevice(t, New(), options)
	p, err := d.AllocPD()
	assert.NilError(t, err)
	closeAfter(t, p)
	send, err := d.CreateCQ(1)
	assert.NilError(t, err)
	closeAfter(t, send)
	recv, err := d.CreateCQ(1)
	assert.NilError(t, err)
	closeAfter(t, recv)
	s, err := p.CreateSRQ(1, 1)
	assert.NilError(t, err)
	for _, init := range []fabric.QPInit{{}, {SRQ: s}} {
		init.PD, init.SendCQ, init.RecvCQ = p, send, recv
		q, err := d.CreateQP(init)
		assert.NilError(t, err)
		for name, part := range map[string]closer{"PD": p, "send CQ": send, "receive CQ": recv} {
			assert.ErrorIs(t, part.Close(), fabric.ErrInUse, name)
		}
		if init.SRQ != nil {
			assert.ErrorIs(t, s.Close(), fabric.ErrInUse)
		}
		assert.ErrorContains(t, p.Close(), "2 objects use it", "the SRQ and the queue pair")
		assert.NilError(t, q.Close())
	}
	assert.NilError(t, s.Close())
	assert.ErrorIs(t, s.Resize(2), fabric.ErrClosed)
}

// TestQueuePairLimits: queues are as long as the attributes say, and no longer. Parts of another
// device are refused.
func TestQueuePairLimits(t *testing.T) {
	f := New()
	d, _ := openDevice(t, f, options)
	p, err := d.AllocPD()
	assert.NilError(t, err)
	closeAfter(t, p)
	c, err := d.CreateCQ(1)
	assert.NilError(t, err)
	closeAfter(t, c)
	other, _ := openDevice(t, f, options)
	otherPD, err := other.AllocPD()
	assert.NilError(t, err)
	closeAfter(t, otherPD)
	foreign, err := otherPD.CreateSRQ(1, 1)
	assert.NilError(t, err)
	closeAfter(t, foreign)
	most := d.Attr().MaxQPWR
	for _, of := range []struct {
		init fabric.QPInit
		want string
	}{
		{fabric.QPInit{MaxSend: most, MaxRecv: most}, ""},
		{fabric.QPInit{MaxSend: most + 1}, "MaxSend"},
		{fabric.QPInit{MaxRecv: most + 1}, "MaxRecv"},
		{fabric.QPInit{MaxRecv: -1}, "MaxRecv -1"},
		{fabric.QPInit{SRQ: foreign}, "the SRQ is not of this device"},
	} {
		of.init.PD, of.init.SendCQ, of.init.RecvCQ = p, c, c
		q, err := d.CreateQP(of.init)
		if of.want != "" {
			assert.ErrorIs(t, err, fabric.ErrInvalid)
			assert.ErrorContains(t, err, of.want)
			continue
		}
		assert.NilError(t, err)
		assert.NilError(t, q.Close())
	}
}

func TestCloseNamesWhatIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		d, err := f.Open("mem0", options, nil)
		assert.NilError(t, err)
		assert.DeepEqual(t, len(f.Openings()), 1)
		p, err := d.AllocPD()
		assert.NilError(t, err)
		m, err := p.RegMR(make([]byte, 1), 0)
		assert.NilError(t, err)
		assert.ErrorContains(t, p.Close(), "1 objects use it")
		err = d.Close()
		assert.ErrorIs(t, err, fabric.ErrInUse)
		assert.ErrorContains(t, err, "1 protection domain(s), 1 memory region(s)")
		assert.NilError(t, m.Close())
		assert.ErrorIs(t, m.Close(), fabric.ErrClosed)
		assert.NilError(t, p.Close())
		assert.ErrorIs(t, p.Close(), fabric.ErrClosed)
		_, err = p.RegMR(make([]byte, 1), 0)
		assert.ErrorIs(t, err, fabric.ErrClosed)
		assert.NilError(t, d.Close())
		select {
		case <-d.(*Device).ready.done:
		default:
			t.Error("Close leaves the engine running")
		}
		assert.ErrorIs(t, d.Close(), fabric.ErrClosed)
		_, err = d.AllocPD()
		assert.ErrorIs(t, err, fabric.ErrClosed)
		assert.Equal(t, len(f.Openings()), 0)
	})
}

func TestLimitsAndAbilities(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := New()
		limits := &f.Attr
		limits.MaxPD, limits.MaxMW, limits.MaxSRQ = 2, 0, 0
		limits.Atomics, limits.SendInvalidate, limits.WriteImmediate = false, false, false
		a, b := newEnd(t, f, endOptions{}), newEnd(t, f, endOptions{})
		join(t, a, b)
		p, err := a.dev.AllocPD()
		assert.NilError(t, err)
		_, err = a.dev.AllocPD()
		assert.ErrorIs(t, err, fabric.ErrResources)
		assert.ErrorContains(t, err, "the device has 2")
		assert.NilError(t, p.Close())
		_, err = a.pd.AllocMW()
		assert.ErrorIs(t, err, fabric.ErrNotSupported)
		_, err = a.pd.CreateSRQ(1, 1)
		assert.ErrorIs(t, err, fabric.ErrNotSupported)
		for _, op := range []fabric.Opcode{fabric.OpCmpSwap, fabric.OpFetchAdd, fabric.OpSendInv, fabric.OpLocalInv,
			fabric.OpWriteImm} {
			_, err = a.qp.PostSend([]fabric.SendWR{{Opcode: op}}, nil)
			assert.ErrorIs(t, err, fabric.ErrNotSupported)
		}
	})
}

func TestBadSizes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		e := newEnd(t, New(), endOptions{})
		for want, err := range map[string]error{
			"depth 0 is not in 1 to":       second(e.dev.CreateCQ(0)),
			"depth 1048577 is not in 1 to": second(e.dev.CreateCQ(1<<20 + 1)),
			"length 0":                     second(e.pd.RegMR(nil, 0)),
			"unknown access rights 0x20":   second(e.pd.RegMR(e.mem, 1<<5)),
			"maxSGE 33 is not in":          second(e.pd.CreateSRQ(1, 33)),
			"depth -1 is not in":           second(e.pd.CreateSRQ(-1, 1)),
			"no PD of this device":         second(e.dev.CreateQP(fabric.QPInit{})),
			"no send CQ of this device":    second(e.dev.CreateQP(fabric.QPInit{PD: e.pd})),
			"MaxSend 32769 is not in": second(e.dev.CreateQP(with(e.init,
				func(q *fabric.QPInit) { q.MaxSend = 1<<15 + 1 }))),
			"MaxRecvSGE -1 is not in":      second(e.dev.CreateQP(with(e.init, func(q *fabric.QPInit) { q.MaxRecvSGE = -1 }))),
			"MaxInline 257 is not in":      second(e.dev.CreateQP(with(e.init, func(q *fabric.QPInit) { q.MaxInline = 257 }))),
			"access rights 0x1 are not":    second(e.qp.Bind(e.window(), fabric.BindWR{Access: fabric.LocalWrite})),
			"no window of this device":     second(e.qp.Bind(nil, fabric.BindWR{})),
			"no MR of this device":         second(e.qp.Bind(e.window(), fabric.BindWR{Length: 1})),
			"flags 0x4 are not for a bind": second(e.qp.Bind(e.window(), fabric.BindWR{Flags: fabric.Solicited})),
			"read depths 17 and 0 are above": second(e.dev.Connect(e.qp, fabric.ConnectParams{Remote: addrPort(1), ReadIn: 17},
				e.on)),
		} {
			assert.ErrorIs(t, err, fabric.ErrInvalid)
			assert.ErrorContains(t, err, want)
		}
	})
}

func with(q fabric.QPInit, edit func(*fabric.QPInit)) fabric.QPInit { edit(&q); return q }
