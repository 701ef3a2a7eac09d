package udat

import (
	"net/netip"
	"slices"

	"github.com/godat/godat/udat/internal/fabric"
)

// Open opens an adapter. The parameter name is the name of an adapter that Providers lists ("rxe0",
// "mem0"), a name that RegisterProvider has added, or a local IP address. If name is an adapter's
// name, the adapter listens on all addresses of the device, including those of VLANs, and connects
// from the address whose interface leads to the peer. If name is an address, the adapter uses that
// address and at most one other: an address of the other IP family on the same interface.
//
// For an unknown name Open returns ProviderNotFound; it never falls back to another fabric. The
// adapter has an asynchronous event dispatcher of its own unless an option says otherwise; see
// [IA.AsyncEVD].
//
// Implements: dat_ia_open.
func Open(name string, opts ...Option) (*IA, error) {
	registered := registry.open(name)
	ia, err := openIA(name, registered, opts)
	if err != nil {
		registry.close(registered)
		return nil, err
	}
	return ia, nil
}

func openIA(name string, registered *registeredName, opts []Option) (*IA, error) {
	o := openOptions{
		fabric: fabric.Options{RNRRetry: 7, Retry: fabric.DefaultRetry, HideAddresses: true},
		settings: settings{spin: spinDefault, processors: processors, pollEvery: pollInterval, acceptWait: acceptWait,
			keepAlive: keepAliveDefault},
	}
	device := name
	if registered != nil {
		device = registered.device
		opts = slices.Concat(registered.opts, opts)
	}
	if err := o.apply("ia_open", opts); err != nil {
		return nil, err
	}
	o.fabric.KeepAlive = o.keepAlive
	o.exposed = device == "tcp" && o.fabric.TLS == nil
	return o.open(name, device, registered)
}

func (o *openOptions) open(name, deviceName string, registered *registeredName) (*IA, error) {
	ia := &IA{
		name: name, unname: func() { registry.close(registered) }, settings: o.settings, flusher: newFlusher(),
		posting: make(map[*EP]struct{}), unconfirmed: make(map[*connection]*EP), opened: make(chan struct{}),
	}
	for k := range ia.objects {
		ia.objects[k] = make(map[*object]Handle)
	}
	ia.obj.kind, ia.obj.ia = HandleIA, ia
	ia.poller.init(o.pollEvery, (*EVD).pollOnce)
	device, err := o.openDevice(deviceName, ia.asyncEvent)
	if err == nil {
		ia.device, ia.has = device, device.Attr()
		ia.obj.live.Store(true)
		if err = ia.openAsync(o); err != nil {
			ia.obj.live.Store(false)
		}
	}
	if err == nil {
		adapters.Store(ia, nil)
	}
	close(ia.opened)
	if err != nil {
		if device != nil {
			device.Close()
		}
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
		limit := ia.device.Attr().MaxCQE
		if o.asyncQLen == 0 {
			o.asyncQLen = min(64, limit)
		}
		if o.asyncQLen > limit {
			return fail("ia_open", InsufficientResources, SubResourceTEVD, "asynchronous queue length is %d, the limit is %d",
				o.asyncQLen, limit)
		}
		var err error
		if evd, err = ia.newEVD("ia_open", o.asyncQLen, EVDAsync, nil); err != nil {
			return err
		}
		ia.mu.Lock()
		evd.obj.refs++ // a reference for the adapter itself
		delete(ia.objects[HandleEVD], &evd.obj)
		ia.mu.Unlock()
		ia.ownAsync = true
	}
	ia.asyncEVD = evd
	return nil
}

// openDevice opens the device that has this name or this local address.
func (o *openOptions) openDevice(name string, async func(fabric.AsyncEvent)) (fabric.Device, error) {
	const op = "ia_open"
	if name == "" {
		return nil, fail(op, InvalidParameter, SubArg1, "the name is empty")
	}
	device, err := o.openFabric(name, async)
	switch {
	case err == nil:
		return device, nil
	case err != fabric.ErrNoDevice:
		return nil, failAs(op, err, SubResourceDevice)
	}
	return nil, fail(op, ProviderNotFound, SubNameNotRegistered,
		"no adapter is named %q, and none has it as its address; %s", name, whatThereIs())
}

// Name returns the name or address that Open was called with. It remains valid after Close.
//
// Extension.
func (ia *IA) Name() string {
	if ia == nil {
		return ""
	}
	return ia.name
}

// Addr returns the first of the adapter's addresses, to which peers can connect. It remains valid
// after Close.
//
// Extension.
func (ia *IA) Addr() netip.Addr {
	if ia == nil || ia.device == nil {
		return netip.Addr{}
	}
	return ia.device.Attr().Info.Addr
}

// AsyncEVD returns the dispatcher of asynchronous events. It is nil if the adapter was opened
// without one or is closed, or if the dispatcher belonged to another adapter that has been closed.
//
// Extension. It is the OUT argument of dat_ia_open.
func (ia *IA) AsyncEVD() *EVD {
	if !ia.object().alive() || !ia.asyncEVD.object().alive() {
		return nil
	}
	return ia.asyncEVD
}

// Close closes the adapter. CloseGraceful requires that the Consumer has freed all objects that it
// made, and that no other adapter uses the asynchronous dispatcher that Open made. Otherwise Close
// changes nothing and returns InvalidState. CloseAbrupt destroys all objects: connections end, a
// call that is blocked in [EVD.Wait] returns Abort, and a call that is blocked in [CNO.Wait]
// returns nil.
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
	adapters.Delete(ia)
	ia.destroyAll()
	ia.poller.close()
	ia.flusher.close()
	ia.unname()
	if err := closeUnused(ia.device.Close); err != nil {
		return failAs(op, err, SubResourceDevice)
	}
	return nil
}

// destroyOrder is the order in which an abrupt close destroys objects.
var destroyOrder = [...]HandleType{HandlePSP, HandleRSP, HandleCR, HandleEP, HandleRMR, HandleLMR, HandleSRQ,
	HandleEVD, HandleCNO, HandlePZ}

func (ia *IA) destroyAll() {
	// First end the blocked calls of Wait, so that they return Abort and not the completions of the
	// work that the endpoints flush.
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
		destroyEach(doomed)
		if kind == HandleEVD && sink != nil {
			sink.destroy()
		}
	}
	switch evd := ia.asyncEVD; {
	case ia.ownAsync:
		evd.obj.live.Store(false)
		evd.destroy()
	case evd != nil:
		evd.obj.unuse()
	}
}

// leftovers lists the objects that the Consumer has not freed, and the asynchronous dispatcher if
// other adapters use it; ia.mu is held.
func (ia *IA) leftovers() string {
	text := ""
	if ia.ownAsync && ia.asyncEVD.obj.refs > 1 {
		text = "the asynchronous dispatcher, which other adapters use"
	}
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
