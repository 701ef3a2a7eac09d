//go:build linux && cgo && nulldev

package verbsfabric

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// NullFabric is a fabric with one device, "null0", over the null device of package cverbs. Work
// takes the same path as on a real device; everything else is minimal. It exists only with the
// build tag nulldev.
type NullFabric struct{}

func (NullFabric) Name() string                          { return "null" }
func (NullFabric) Devices() ([]fabric.DeviceInfo, error) { return nil, nil }

func (NullFabric) Open(name string, _ fabric.Options, _ func(fabric.AsyncEvent)) (fabric.Device, error) {
	if name != "null0" {
		return nil, fabric.ErrNoDevice
	}
	return &nullDevice{&device{}}, nil
}

type nullDevice struct{ d *device }

func (n *nullDevice) Attr() fabric.Attr {
	return fabric.Attr{
		Info:  fabric.DeviceInfo{Name: "null0", Fabric: "null", Addr: netip.MustParseAddr("127.0.0.1")},
		MaxQP: 4096, MaxQPWR: 1024, MaxSGE: 16, MaxReadSGE: 16, MaxCQ: 4096, MaxCQE: 1024, MaxMR: 4096, MaxMRSize: 1 << 30,
		MaxPD: 4096, MaxReadIn: 16, MaxReadOut: 16, MaxMessage: 1 << 30, MaxConnData: maxConnData, PageSize: 4096,
	}
}

func (n *nullDevice) AllocPD() (fabric.PD, error) { return nullPD{}, nil }
func (n *nullDevice) Close() error                { return nil }

func (n *nullDevice) CreateCQ(int) (fabric.CQ, error) {
	return &nullCQ{cq: cq{dev: n.d, v: cverbs.NullCQ()}, wake: make(chan struct{}, 1)}, nil
}

func (n *nullDevice) CreateQP(init fabric.QPInit) (fabric.QP, error) {
	q := &nullQP{qp{dev: n.d, v: cverbs.NullQP(init.SendCQ.(*nullCQ).v, init.RecvCQ.(*nullCQ).v)}}
	q.canSend.Store(true)
	return q, nil
}

func (n *nullDevice) Listen(uint16, func(fabric.Request)) (fabric.Listener, error) {
	return nil, fabric.ErrNotSupported
}

// Connect is established at once.
func (n *nullDevice) Connect(_ fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	go on(fabric.ConnEvent{Kind: fabric.EventEstablished})
	return nullConn{p.Remote}, nil
}

type nullConn struct{ remote netip.AddrPort }

func (c nullConn) LocalAddr() netip.AddrPort   { return c.remote }
func (c nullConn) RemoteAddr() netip.AddrPort  { return c.remote }
func (c nullConn) ReadDepths() (in, out uint8) { return 16, 16 }
func (c nullConn) Disconnect() error           { return nil }
func (c nullConn) Close() error                { return nil }
func (c nullConn) Awaits() string              { return "" }

// nullQP and nullCQ post and poll as qp and cq do.
type nullQP struct{ qp }

func (q *nullQP) SetError() error { return nil }
func (q *nullQP) Close() error    { return cverbs.NullCloseQP(q.v) }

type nullCQ struct {
	cq
	wake chan struct{}
}

func (q *nullCQ) Arm(bool) error   { return nil }
func (q *nullCQ) Resize(int) error { return nil }
func (q *nullCQ) Close() error     { return cverbs.NullCloseCQ(q.v) }

func (q *nullCQ) Wait(time.Time) (bool, error) { <-q.wake; return false, nil }

func (q *nullCQ) Wake() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

type nullPD struct{}

func (nullPD) RegMR([]byte, fabric.Access) (fabric.MR, error) { return nullMR(lastKey.Add(1)), nil }
func (nullPD) AllocMW() (fabric.MW, error)                    { return nil, fabric.ErrNotSupported }
func (nullPD) CreateSRQ(int, int) (fabric.SRQ, error)         { return nil, fabric.ErrNotSupported }
func (nullPD) Close() error                                   { return nil }

var lastKey atomic.Uint32

type nullMR uint32

func (m nullMR) LKey() uint32 { return uint32(m) }
func (m nullMR) RKey() uint32 { return uint32(m) }
func (m nullMR) Close() error { return nil }
