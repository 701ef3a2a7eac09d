package udat

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// IA is an open interface adapter: one port of an RDMA device, or the fabric inside this process. Each Open is an
// instance of its own, with its own objects.
type IA struct {
	obj        object
	name       string
	registered *provider // that it was opened by; nil for a device's own name
	device     fabric.Device
	settings

	asyncEVD atomic.Pointer[EVD] // set once, while Open runs; the device may report events before that
	ownAsync bool

	mu      ranked[rankIA] // the objects and what uses what
	closed  bool
	objects [handleKinds]map[*object]Handle
	posting map[*EP]struct{} // endpoints that can be posted to, those among them that are being freed

	activeEPs int  // endpoints that are connecting or connected
	polling   bool // the flusher polls the dispatchers because there are any
	flusher   *flusher

	windows windowTable
	regions sync.Map            // of each *LMR by its context
	sink    atomic.Pointer[EVD] // completions of endpoints that have no dispatcher for them
}

func (ia *IA) object() *object {
	if ia == nil {
		return nil
	}
	return &ia.obj
}

// Option is a setting of Open.
type Option func(*openOptions) error

type openOptions struct {
	asyncQLen int
	asyncEVD  *EVD
	noAsync   bool
	fabric    fabric.Options
	match     func() error                      // compares the version asked for; nil: any matches
	wrap      func(fabric.Fabric) fabric.Fabric // decorates the fabrics for tests; nil: as they are
	settings
}

// settings are those that the adapter keeps; none ever changes.
type settings struct {
	spin       time.Duration
	processors int           // that spinning counts on
	pollEvery  time.Duration // between two drains of the dispatchers that nobody waits on
	log        *slog.Logger  // nil: nobody reads
}

// WithVersion asks for an adapter of this DAT version and thread safety. The major version must be 1, the minor version
// at most 2, and threadSafe true; else Open returns ProviderNotFound, whose subtype names what does not match. Without
// the option any adapter matches.
//
// Extension. These are the arguments that dat_ia_open passes to dat_ia_openv.
func WithVersion(major, minor int, threadSafe bool) Option {
	return func(o *openOptions) error {
		o.match = func() error {
			const op = "ia_open"
			switch {
			case major != providerMajor:
				return fail(op, ProviderNotFound, SubMajorNotFound, "major version %d is asked for, must be %d", major, providerMajor)
			case minor > providerMinor:
				return fail(op, ProviderNotFound, SubMinorNotFound, "minor version %d is asked for, must be at most %d", minor, providerMinor)
			case !threadSafe:
				return fail(op, ProviderNotFound, SubThreadSafetyNotFound, "an adapter that is not thread safe is asked for, all are")
			}
			return nil
		}
		return nil
	}
}

// WithAsyncQLen makes the asynchronous event dispatcher at least n events long; the default is 64.
//
// Extension. It is an argument of dat_ia_open.
func WithAsyncQLen(n int) Option {
	return func(o *openOptions) error {
		if n < 1 {
			return fail("ia_open", InvalidParameter, SubArg2, "asynchronous queue length is %d, must be at least 1", n)
		}
		o.asyncQLen = n
		return nil
	}
}

// WithAsyncEVD sends the adapter's asynchronous events to an existing dispatcher, of this or another adapter, that
// takes them. It is not destroyed with this adapter.
//
// Extension. It is an argument of dat_ia_open.
func WithAsyncEVD(evd *EVD) Option {
	return func(o *openOptions) error {
		if err := evd.object().check("ia_open", HandleEVD); err != nil {
			return err
		}
		if evd.flags&EVDAsync == 0 {
			return fail("ia_open", InvalidHandle, SubHandleEVDAsync, "the dispatcher takes no asynchronous events: streams %v", evd.flags)
		}
		o.asyncEVD = evd
		return nil
	}
}

// WithoutAsyncEVD opens the adapter without a dispatcher for asynchronous events: somebody else handles them
// (DAT_EVD_ASYNC_EXISTS).
//
// Extension. It is an argument of dat_ia_open.
func WithoutAsyncEVD() Option {
	return func(o *openOptions) error { o.noAsync = true; return nil }
}

// WithRNRRetry sets how often a Send is tried again while its receiver has posted no receive: 0 to 6, or 7, the
// default, for ever. With less than 7 a Send to a receiver that is not ready ends in DTOErrReceiverNotReady and
// breaks the connection.
//
// Extension.
func WithRNRRetry(n int) Option {
	return func(o *openOptions) error {
		if n < 0 || n > 7 {
			return fail("ia_open", InvalidParameter, SubArg2, "receiver-not-ready retry is %d, must be from 0 to 7", n)
		}
		o.fabric.RNRRetry = uint8(n)
		return nil
	}
}

// WithRetry sets how often a request is sent again that the peer does not acknowledge: 0 to 7, the default.
//
// Extension.
func WithRetry(n int) Option {
	return func(o *openOptions) error {
		if n < 0 || n > 7 {
			return fail("ia_open", InvalidParameter, SubArg2, "retry is %d, must be from 0 to 7", n)
		}
		o.fabric.Retry = uint8(n)
		return nil
	}
}

// Open opens an adapter by its name, as Providers lists it ("rxe0", "mem0"), by a name that RegisterProvider has added,
// or by a local IP address. A name that no fabric knows is ProviderNotFound; a name never stands for another fabric than
// its own. The adapter has an asynchronous event dispatcher of its own unless an option says otherwise; see AsyncEVD.
//
// Implements: dat_ia_open.
func Open(name string, opts ...Option) (*IA, error) {
	registered := registry.open(name)
	ia, err := open(name, registered, opts)
	if err != nil {
		registry.close(registered)
		return nil, err
	}
	return ia, nil
}

func open(name string, registered *provider, opts []Option) (*IA, error) {
	o := openOptions{
		asyncQLen: 64, fabric: fabric.Options{RNRRetry: 7, Retry: 7},
		settings: settings{spin: spinDefault, processors: processors, pollEvery: pollInterval},
	}
	device := name
	if registered != nil {
		device = registered.device
		opts = slices.Concat(registered.opts, opts)
	}
	for _, opt := range opts {
		if err := opt(&o); err != nil {
			return nil, err
		}
	}
	return o.open(name, device, registered)
}

func (o *openOptions) open(name, deviceName string, registered *provider) (*IA, error) {
	ia := &IA{name: name, registered: registered, settings: o.settings, flusher: newFlusher(), posting: make(map[*EP]struct{})}
	for k := range ia.objects {
		ia.objects[k] = make(map[*object]Handle)
	}
	ia.obj.kind, ia.obj.ia = HandleIA, ia
	device, err := o.openDevice(deviceName, ia.asyncEvent)
	if err != nil {
		return nil, err
	}
	if o.match != nil {
		if err := o.match(); err != nil {
			device.Close()
			return nil, err
		}
	}
	// Asynchronous events may already come: they need ia.mu to find where to go.
	ia.mu.Lock()
	ia.device = device
	ia.obj.live.Store(true)
	ia.mu.Unlock()
	if err := ia.openAsync(o); err != nil {
		ia.obj.live.Store(false)
		device.Close()
		return nil, err
	}
	return ia, nil
}

func (ia *IA) openAsync(o *openOptions) error {
	evd := o.asyncEVD
	switch {
	case o.noAsync:
		return nil
	case evd != nil:
		if err := evd.object().use("ia_open", HandleEVD); err != nil {
			return err
		}
	default:
		if limit := ia.device.Attr().MaxCQE; o.asyncQLen > limit {
			return fail("ia_open", InsufficientResources, SubResourceTEVD, "asynchronous queue length is %d, the limit is %d", o.asyncQLen, limit)
		}
		var err error
		if evd, err = ia.newEVD("ia_open", o.asyncQLen, EVDAsync, nil); err != nil {
			return err
		}
		ia.mu.Lock()
		evd.obj.refs++ // the adapter feeds it
		delete(ia.objects[HandleEVD], &evd.obj)
		ia.mu.Unlock()
		ia.ownAsync = true
	}
	ia.asyncEVD.Store(evd)
	return nil
}

// openDevice asks every fabric for a device of the name, or for the one with that local address.
func (o *openOptions) openDevice(name string, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	const op = "ia_open"
	if name == "" {
		return nil, fail(op, InvalidParameter, SubArg1, "the name is empty")
	}
	var refusal error // of the first fabric that may have the device
	for _, f := range fabrics() {
		if o.wrap != nil {
			f = o.wrap(f)
		}
		device, err := f.Open(name, o.fabric, async)
		switch {
		case err == nil:
			return device, nil
		case refusal == nil && !errors.Is(err, fabric.ErrNoDevice):
			refusal = err
		}
	}
	if refusal != nil {
		return nil, failAs(op, refusal, SubResourceDevice)
	}
	return nil, fail(op, ProviderNotFound, SubNameNotRegistered, "no adapter is named %q, and none has it as its address; %s", name, whatThereIs())
}

// Name is the name or address that the adapter was opened by, also once it is closed.
//
// Extension.
func (ia *IA) Name() string {
	if ia == nil {
		return ""
	}
	return ia.name
}

// Addr is the adapter's address, that peers connect to, also once it is closed.
//
// Extension.
func (ia *IA) Addr() netip.Addr {
	if ia == nil || ia.device == nil {
		return netip.Addr{}
	}
	return ia.device.Attr().Info.Addr
}

// AsyncEVD is the dispatcher that asynchronous events go to; nil where the adapter was opened without, and once it is
// closed.
//
// Extension. It is the OUT argument of dat_ia_open.
func (ia *IA) AsyncEVD() *EVD {
	if !ia.object().alive() {
		return nil
	}
	return ia.asyncEVD.Load()
}

// Close closes the adapter. CloseGraceful is InvalidState, and changes nothing, while the Consumer has not freed all
// that it made. CloseAbrupt destroys everything: connections end, blocked waits return Abort, and those on
// notification objects return no dispatcher.
//
// Implements: dat_ia_close.
func (ia *IA) Close(flags CloseFlags) error {
	const op = "ia_close"
	if err := ia.object().check(op, HandleIA); err != nil {
		return err
	}
	if flags != CloseAbrupt && flags != CloseGraceful {
		return fail(op, InvalidParameter, SubArg2, "flags %d: must be CloseAbrupt or CloseGraceful", flags)
	}
	ia.mu.Lock()
	if flags == CloseGraceful {
		if left := ia.leftovers(); left != "" {
			ia.mu.Unlock()
			return fail(op, InvalidState, SubStateIAInUse, "not freed: %s", left)
		}
	}
	if ia.closed {
		ia.mu.Unlock()
		return badHandle(op, HandleIA, &ia.obj)
	}
	ia.closed = true
	ia.obj.live.Store(false)
	ia.mu.Unlock()
	ia.destroyAll()
	ia.flusher.close()
	registry.close(ia.registered)
	if err := closeUnused(ia.device.Close); err != nil {
		return failAs(op, err, SubResourceDevice)
	}
	return nil
}

// destroyOrder is the order in which an abrupt close destroys the objects.
var destroyOrder = [...]HandleType{HandlePSP, HandleRSP, HandleCR, HandleEP, HandleRMR, HandleLMR, HandleSRQ, HandleEVD, HandleCNO, HandlePZ}

func (ia *IA) destroyAll() {
	// Blocked waits end first: they shall return Abort, not what the end of the endpoints flushes.
	for _, e := range ia.dispatchers() {
		e.abort()
	}
	for _, kind := range destroyOrder {
		ia.mu.Lock()
		doomed := make([]Handle, 0, len(ia.objects[kind]))
		for o, h := range ia.objects[kind] {
			if o.live.CompareAndSwap(true, false) {
				doomed = append(doomed, h)
			}
		}
		clear(ia.objects[kind])
		sink := ia.sink.Load()
		ia.mu.Unlock()
		for _, h := range doomed {
			h.(interface{ destroy() }).destroy()
		}
		if kind == HandleEVD && sink != nil {
			sink.destroy()
		}
	}
	if ia.ownAsync {
		evd := ia.asyncEVD.Load()
		evd.obj.live.Store(false)
		evd.destroy()
	} else if evd := ia.asyncEVD.Load(); evd != nil {
		evd.obj.unuse()
	}
}

// leftovers names what the Consumer has not freed; ia.mu is held.
func (ia *IA) leftovers() string {
	text := ""
	for kind, set := range ia.objects {
		if len(set) == 0 {
			continue
		}
		if text != "" {
			text += ", "
		}
		text += countOf(len(set), HandleType(kind))
	}
	return text
}

// pollInterval is how often an adapter with active endpoints polls its dispatchers, so that the end of a connection is told
// even where nobody takes its completions.
const pollInterval = 100 * time.Millisecond

// activate counts an endpoint that begins to connect, and has the dispatchers polled while there are any.
func (ia *IA) activate() {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	ia.activeEPs++
	if !ia.polling {
		ia.polling = true
		ia.flusher.every(ia.pollEvery, ia.pollDispatchers)
	}
}

func (ia *IA) deactivate() {
	ia.mu.Lock()
	ia.activeEPs--
	ia.mu.Unlock()
}

// pollDispatchers drains the dispatchers that nobody waits on; it is done when no endpoint is active.
func (ia *IA) pollDispatchers() (done bool) {
	ia.mu.Lock()
	ia.polling = ia.activeEPs > 0
	done = !ia.polling
	ia.mu.Unlock()
	if !done {
		for _, e := range ia.dispatchers() {
			e.poll()
		}
	}
	return done
}

// dispatchers returns all dispatchers that completions can come to.
func (ia *IA) dispatchers() []*EVD {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	var list []*EVD
	for _, h := range ia.objects[HandleEVD] {
		list = append(list, h.(*EVD))
	}
	if sink := ia.sink.Load(); sink != nil {
		list = append(list, sink)
	}
	return list
}
