package verbsfabric

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/cm"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
	"github.com/godat/godat/udat/internal/verbsfabric/soft"
)

// device is one open port.
type device struct {
	port
	ctx    *cverbs.Context
	conns  *cm.Manager
	opts   fabric.Options
	attrs  fabric.Attr
	access cverbs.AccessFlags // the access rights of every queue pair; the rights of regions and windows are narrower
	async  func(fabric.AsyncEvent)
	link   *soft.Link // nil: not soft-RoCE

	nextVector atomic.Uint32

	probing   sync.Mutex
	probe     *cverbs.CQ // see resizes; guarded by probing
	canResize bool       // whether completion queues can be resized; guarded by probing

	stop context.CancelFunc // ends the goroutines
	done sync.WaitGroup

	mu   sync.Mutex // a leaf: no other lock is taken under it
	cqs  map[*cverbs.CQ]*cq
	qps  map[*cverbs.QP]*qp
	srqs map[*cverbs.SRQ]*srq
}

func open(p port, opts fabric.Options, async func(fabric.AsyncEvent)) (d *device, err error) {
	d = &device{
		port:   p,
		opts:   opts,
		attrs:  p.fabricAttr(opts.RNRRetry, os.Getpagesize()),
		access: cverbs.AccessRemoteRead | cverbs.AccessRemoteWrite,
		async:  async,
	}
	if d.attrs.Atomics {
		d.access |= cverbs.AccessRemoteAtomic
	}
	if d.ctx, err = cverbs.OpenDevice(p.device); err != nil {
		return nil, errmap.Wrap(err)
	}
	var routes soft.Routes
	if p.dev.VendorID == vendorRXE {
		d.link = &soft.Link{Device: p.device, Port: p.num,
			NetDev: func(a netip.Addr) string { return cmp.Or(p.netDev(a), p.gid.NetDev) }}
		if routes, err = soft.OpenRoutes(); err != nil {
			return nil, errmap.Wrap(errors.Join(err, d.ctx.Close()))
		}
	}
	if d.conns, err = cm.New(connDevice{d}); err != nil {
		if d.link != nil {
			routes.Close()
		}
		return nil, errmap.Wrap(errors.Join(err, d.ctx.Close()))
	}
	var stop context.Context
	stop, d.stop = context.WithCancel(context.Background())
	d.done.Go(func() { d.readAsync(stop) })
	if d.link != nil {
		d.done.Go(func() { routes.Watch(stop, d.conns.Post, d.routesLost) })
	}
	return d, nil
}

// remember records that the object o has the verbs object v. Asynchronous events name v.
func remember[V comparable, O any](d *device, objects *map[V]O, v V, o O) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *objects == nil {
		*objects = make(map[V]O)
	}
	(*objects)[v] = o
}

// closeProbe closes d.probe, unless it is closed already; probing is held.
func (d *device) closeProbe() error {
	if err := d.probe.Close(); err != cverbs.ErrClosed {
		return err
	}
	return nil
}

func forget[V comparable, O any](d *device, objects map[V]O, v V) {
	d.mu.Lock()
	delete(objects, v)
	d.mu.Unlock()
}

// A call of own returns o if o is an object of this package. If o is a decorator of such an object,
// it returns the object that o decorates. For any other object it returns false.
func own[T any](o any) (T, bool) {
	if o, ok := o.(interface{ Own() any }); ok {
		t, ok := o.Own().(T)
		return t, ok
	}
	var none T
	return none, false
}

// Own returns d, even if it is called on a decorator of d.
func (d *device) Own() any { return d }

func (d *device) Context() *cverbs.Context { return d.ctx }

func (d *device) Attr() fabric.Attr { return d.attrs }

// Close closes the device. It destroys at once the closed connections that still wait for the
// peer's answer, and rejects unanswered requests.
func (d *device) Close() error {
	if err := d.conns.Shut(); err != nil {
		return err
	}
	d.probing.Lock()
	err := d.closeProbe() // an earlier attempt may have failed
	d.probing.Unlock()
	err = errors.Join(err, d.ctx.Close())
	if errors.Is(err, cverbs.ErrInUse) {
		d.conns.Reopen()
		return errmap.Wrap(err)
	}
	d.stop()
	d.done.Wait()
	return errmap.Wrap(errors.Join(d.conns.Close(), err))
}

func (d *device) Listen(port uint16, accept fabric.Filter, on func(fabric.Request)) (fabric.Listener, error) {
	return d.conns.Listen(port, accept, on)
}

func (d *device) Connect(q fabric.QP, p fabric.ConnectParams, on func(fabric.ConnEvent)) (fabric.Conn, error) {
	return d.conns.Connect(q, p, on)
}

// breakConns calls isLost with the addresses of each established connection, and breaks the
// connections for which isLost returns true. It does nothing if the device is not soft-RoCE.
func (d *device) breakConns(isLost func(netip.Addr, netip.AddrPort) bool) {
	if d.link != nil {
		d.conns.Break(isLost)
	}
}

// routesLost breaks connections over IPv6 that have lost their route. Connections over IPv4 still
// work, because each queue pair of soft-RoCE keeps the route that it has found.
func (d *device) routesLost() {
	d.breakConns(func(local netip.Addr, remote netip.AddrPort) bool {
		return remote.Addr().Is6() && d.link.NoRoute(local, remote)
	})
}

// readAsync reads the asynchronous events and passes them to the event goroutine.
func (d *device) readAsync(stop context.Context) {
	for {
		ev, err := d.ctx.AsyncEventContext(stop)
		if err != nil {
			if !d.conns.IsShut() {
				d.conns.Post(d.conns.Removed)
			}
			return
		}
		d.conns.Post(func() { d.asyncEvent(ev) })
	}
}

// asyncKinds lists the verbs events that are reported to the owner of an object, each with the kind
// that the owner receives.
var asyncKinds = map[cverbs.AsyncEventType]fabric.AsyncKind{
	cverbs.AsyncCQErr:   fabric.AsyncCQError,
	cverbs.AsyncQPFatal: fabric.AsyncQPFatal, cverbs.AsyncQPReqErr: fabric.AsyncQPFatal,
	cverbs.AsyncQPAccessErr: fabric.AsyncQPFatal, cverbs.AsyncQPLastWQEReached: fabric.AsyncQPLastWQE,
	cverbs.AsyncSRQErr: fabric.AsyncSRQError, cverbs.AsyncSRQLimitReached: fabric.AsyncSRQLimit,
}

func (d *device) asyncEvent(ev cverbs.AsyncEvent) {
	switch ev.Type {
	case cverbs.AsyncDeviceFatal:
		d.conns.Removed()
	case cverbs.AsyncPortErr:
		if ev.Port == d.num {
			d.breakConns(func(netip.Addr, netip.AddrPort) bool { return true })
			d.tell(fabric.AsyncEvent{Kind: fabric.AsyncPortError})
		}
	case cverbs.AsyncPortActive:
		if ev.Port == d.num {
			d.tell(fabric.AsyncEvent{Kind: fabric.AsyncPortActive})
		}
	case cverbs.AsyncGIDChange:
		d.breakConns(d.noRoute)
	default: // objectEvent ignores unknown events: a connection that they affect has failed completions
		d.objectEvent(ev)
	}
}

// objectEvent reports an event of a queue or a queue pair, unless the object has been closed.
func (d *device) objectEvent(ev cverbs.AsyncEvent) {
	about := fabric.AsyncEvent{}
	d.mu.Lock()
	if q := d.cqs[ev.CQ]; q != nil {
		about.CQ = q.as
	}
	if s := d.srqs[ev.SRQ]; s != nil {
		about.SRQ = s.as
	}
	qp := d.qps[ev.QP]
	if qp != nil {
		about.QP = qp.as
	}
	d.mu.Unlock()
	if qp != nil {
		switch ev.Type {
		case cverbs.AsyncQPLastWQEReached:
			qp.lastWQE.Store(true)
		case cverbs.AsyncCommEst:
			if came := qp.dataCame.Load(); came != nil {
				(*came)()
			}
		}
	}
	var known bool
	about.Kind, known = asyncKinds[ev.Type]
	if known && (about.CQ != nil || about.QP != nil || about.SRQ != nil) {
		d.tell(about)
	}
}

func (d *device) tell(ev fabric.AsyncEvent) {
	if d.async != nil {
		d.async(ev)
	}
}

func (d *device) noRoute(local netip.Addr, remote netip.AddrPort) bool {
	return d.link != nil && d.link.NoRoute(local, remote)
}

// connDevice is the device as package cm sees it.
type connDevice struct{ *device }

func (d connDevice) Port() *cm.Port {
	return &cm.Port{Device: d.device.device, Num: d.num, IWARP: d.iwarp, Attr: d.attrs, Options: d.opts}
}

func (d connDevice) Addrs() []netip.Addr { return d.addrs }

func (d connDevice) SourceFor(dst netip.Addr) (netip.Addr, bool) { return d.sourceFor(dst) }

func (d connDevice) NoRoute(local netip.Addr, remote netip.AddrPort) bool {
	return d.noRoute(local, remote)
}

func (d connDevice) OwnQP(q fabric.QP) (cm.QP, error) {
	b, ok := own[connQP](q)
	if !ok || b.owner() != d.device {
		return nil, errmap.Invalid("the queue pair is not of this device")
	}
	return b, nil
}

// connQP is a queue pair of any device of this package.
type connQP interface {
	cm.QP
	owner() *device
}

func (d connDevice) Gone() { d.tell(fabric.AsyncEvent{Kind: fabric.AsyncDeviceFatal}) }
