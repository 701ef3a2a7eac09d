package verbsfabric

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
)

// lingerTime is how long the fabric keeps a disconnected connection's id for a silent peer.
const lingerTime = 5 * time.Second

// device is one open port.
type device struct {
	port
	ctx    *cverbs.Context
	ch     *cverbs.EventChannel
	opts   fabric.Options
	attrs  fabric.Attr
	access cverbs.AccessFlags // of every queue pair; the regions and windows decide
	async  func(fabric.AsyncEvent)

	nextVector atomic.Uint32
	resizeOnce sync.Once
	canResize  bool // completion queues

	stop context.CancelFunc // ends the goroutines
	done sync.WaitGroup

	calls      sync.WaitGroup           // on connection ids, which may take long
	destroying chan struct{}            // has an element for each id that is being destroyed
	destroy    func(*cverbs.CMID) error // tests replace it

	pingOnce sync.Once
	pinged   listener // for pings of peers
	pingMu   sync.Mutex
	pingers  map[path]*pinger

	mu       sync.Mutex // a leaf: no other lock is taken under it
	closed   bool
	removed  bool
	cmUsers  int // listeners and connections that their owners have not closed
	cqs      map[*cverbs.CQ]*cq
	qps      map[*cverbs.QP]*qp
	srqs     map[*cverbs.SRQ]*srq
	posted   []func()            // for the event goroutine, in order
	conns    map[*conn]struct{}  // that their owner has not closed
	requests map[*conn]struct{}  // that nobody has answered
	retired  map[*conn]time.Time // closed connections whose peer has not answered yet, and until when
	reapAt   time.Time           // no later than the first deadline of retired; zero for none
}

func open(p port, opts fabric.Options, async func(fabric.AsyncEvent)) (*device, error) {
	ctx, err := cverbs.OpenDevice(p.device)
	if err != nil {
		return nil, wrap(err)
	}
	ch, err := cverbs.CreateEventChannel()
	if err != nil {
		return nil, wrap(errors.Join(err, ctx.Close()))
	}
	var routes *os.File
	if p.dev.VendorID == vendorRXE {
		if routes, err = openRoutes(); err != nil {
			return nil, wrap(errors.Join(err, ch.Close(), ctx.Close()))
		}
	}
	d := &device{
		port:     p,
		ctx:      ctx,
		ch:       ch,
		opts:     opts,
		attrs:    p.fabricAttr(opts.RNRRetry, os.Getpagesize()),
		access:   cverbs.AccessRemoteRead | cverbs.AccessRemoteWrite,
		async:    async,
		cqs:      map[*cverbs.CQ]*cq{},
		qps:      map[*cverbs.QP]*qp{},
		srqs:     map[*cverbs.SRQ]*srq{},
		conns:    map[*conn]struct{}{},
		requests: map[*conn]struct{}{},
		retired:  map[*conn]time.Time{},
		pingers:  map[path]*pinger{},

		destroying: make(chan struct{}, destroyAtOnce),
		destroy:    (*cverbs.CMID).Close,
	}
	if d.attrs.Atomics {
		d.access |= cverbs.AccessRemoteAtomic
	}
	var stop context.Context
	stop, d.stop = context.WithCancel(context.Background())
	d.done.Go(func() { d.readCM(stop) })
	d.done.Go(func() { d.readAsync(stop) })
	if routes != nil {
		d.done.Go(func() { d.watchRoutes(stop, routes) })
	}
	return d, nil
}

func (d *device) base() *device { return d }

func (d *device) Attr() fabric.Attr { return d.attrs }

// Close closes the device. Lingering connections are destroyed at once, unanswered requests are
// rejected.
func (d *device) Close() error {
	d.mu.Lock()
	switch {
	case d.closed:
		d.mu.Unlock()
		return fabric.ErrClosed
	case d.cmUsers > 0:
		err := fmt.Errorf("%w: device %s still has %d listeners and connections", fabric.ErrInUse, d.info.Name, d.cmUsers)
		d.mu.Unlock()
		return err
	}
	d.closed = true
	d.mu.Unlock()

	err := d.ctx.Close()
	if errors.Is(err, cverbs.ErrInUse) {
		d.mu.Lock()
		d.closed = false
		d.mu.Unlock()
		return wrap(err)
	}
	d.stop()
	d.done.Wait()
	err = errors.Join(err, d.pinged.closeIDs())
	d.mu.Lock() // a request may be rejected meanwhile
	left := slices.AppendSeq(slices.Collect(maps.Keys(d.requests)), maps.Keys(d.retired))
	d.mu.Unlock()
	closed := make(chan error, 1)
	go func() {
		for _, c := range left {
			c.drop()
		}
		d.calls.Wait()
		closed <- d.ch.Close()
	}()
	return wrap(errors.Join(atMost(closeTime, closed), err))
}

// reserve counts a listener or connection that is about to be made, or refuses it. cverbs counts
// all other objects.
func (d *device) reserve() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fabric.ErrClosed
	}
	d.cmUsers++
	return nil
}

// release is the reverse of reserve.
func (d *device) release() {
	d.mu.Lock()
	d.cmUsers--
	d.mu.Unlock()
}

// post runs f on the event goroutine, after what was posted before.
func (d *device) post(f func()) {
	d.mu.Lock()
	d.posted = append(d.posted, f)
	d.mu.Unlock()
	d.ch.Wake()
}

// readCM is the event goroutine: it calls every handler of the device.
func (d *device) readCM(stop context.Context) {
	wake := context.AfterFunc(stop, d.ch.Wake)
	defer wake()
	for stop.Err() == nil {
		ev, err := d.ch.Get(d.nextReap())
		switch {
		case err == nil:
			d.dispatch(ev)
		case !errors.Is(err, os.ErrDeadlineExceeded):
			// Without connection events the device is unusable; posted functions still run.
			d.deviceFatal()
			time.Sleep(100 * time.Millisecond)
		}
		d.runPosted()
		d.reap(time.Now())
	}
}

func (d *device) runPosted() {
	for {
		d.mu.Lock()
		fs := d.posted
		d.posted = nil
		d.mu.Unlock()
		if len(fs) == 0 {
			return
		}
		for _, f := range fs {
			f()
		}
	}
}

func (d *device) dispatch(ev cverbs.CMEvent) {
	if ev.ID == nil {
		return
	}
	if ev.Type == cverbs.CMEventConnectRequest {
		d.arrive(ev)
		return
	}
	switch v := ev.ID.Data().(type) {
	case *conn:
		v.handle(ev)
	case *listener:
		v.handle(ev)
	case *ping:
		v.handle(ev)
	}
	if ev.Type == cverbs.CMEventDeviceRemoval {
		d.deviceFatal()
	}
}

// readAsync reads the asynchronous events and hands them to the event goroutine.
func (d *device) readAsync(stop context.Context) {
	for {
		ev, err := d.ctx.AsyncEventContext(stop)
		if err != nil {
			if !d.isClosed() {
				d.post(d.deviceFatal)
			}
			return
		}
		d.post(func() { d.asyncEvent(ev) })
	}
}

func (d *device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// asyncKinds are the events that the owner of an object hears of.
var asyncKinds = map[cverbs.AsyncEventType]fabric.AsyncKind{
	cverbs.AsyncCQErr:   fabric.AsyncCQError,
	cverbs.AsyncQPFatal: fabric.AsyncQPFatal, cverbs.AsyncQPReqErr: fabric.AsyncQPFatal,
	cverbs.AsyncQPAccessErr: fabric.AsyncQPFatal, cverbs.AsyncQPLastWQEReached: fabric.AsyncQPLastWQE,
	cverbs.AsyncSRQErr: fabric.AsyncSRQError, cverbs.AsyncSRQLimitReached: fabric.AsyncSRQLimit,
}

func (d *device) asyncEvent(ev cverbs.AsyncEvent) {
	switch ev.Type {
	case cverbs.AsyncDeviceFatal:
		d.deviceFatal()
	case cverbs.AsyncPortErr:
		if ev.Port == d.num {
			d.breakConns(func(*conn) bool { return true })
			d.tell(fabric.AsyncEvent{Kind: fabric.AsyncPortError})
		}
	case cverbs.AsyncPortActive:
		if ev.Port == d.num {
			d.tell(fabric.AsyncEvent{Kind: fabric.AsyncPortActive})
		}
	case cverbs.AsyncGIDChange:
		d.breakConns(func(c *conn) bool { return d.noRoute(c.id) })
	default: // of no use to an owner; a connection that suffers has failed completions
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
			if c := qp.conn.Load(); c != nil {
				c.commEst()
			}
		}
	}
	var known bool
	about.Kind, known = asyncKinds[ev.Type]
	if known && (about.CQ != nil || about.QP != nil || about.SRQ != nil) {
		d.tell(about)
	}
}

// deviceFatal reports once that the device is gone. It runs on the event goroutine.
func (d *device) deviceFatal() {
	d.mu.Lock()
	first := !d.removed
	d.removed = true
	conns := slices.Collect(maps.Keys(d.conns))
	d.mu.Unlock()
	if !first {
		return
	}
	for _, c := range conns {
		c.handle(cverbs.CMEvent{Type: cverbs.CMEventDeviceRemoval})
	}
	d.tell(fabric.AsyncEvent{Kind: fabric.AsyncDeviceFatal})
}

func (d *device) tell(ev fabric.AsyncEvent) {
	if d.async != nil {
		d.async(ev)
	}
}

// retire keeps a closed connection until its peer has answered the disconnect, or lingerTime has
// passed.
func (d *device) retire(c *conn) {
	until := time.Now().Add(lingerTime)
	d.mu.Lock()
	d.retired[c] = until
	first := d.reapAt.IsZero()
	if first {
		d.reapAt = until
	}
	d.mu.Unlock()
	if first {
		d.ch.Wake()
	}
}

func (d *device) unretire(c *conn) {
	d.mu.Lock()
	delete(d.retired, c)
	d.mu.Unlock()
}

func (d *device) nextReap() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reapAt
}

// reap destroys the retired connections whose time has passed.
func (d *device) reap(now time.Time) {
	d.mu.Lock()
	if d.reapAt.IsZero() || now.Before(d.reapAt) {
		d.mu.Unlock()
		return
	}
	var over []*conn
	d.reapAt = time.Time{}
	for c, until := range d.retired {
		if !now.Before(until) {
			over = append(over, c)
			delete(d.retired, c)
		} else if d.reapAt.IsZero() || until.Before(d.reapAt) {
			d.reapAt = until
		}
	}
	d.mu.Unlock()
	for _, c := range over {
		c.drop()
	}
}
