package rdmanet

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/godat/godat/internal/softroce"
	"github.com/godat/godat/udat"
)

// Path has the settings for the packets of a connection, and how long its blocked calls poll. A nil
// field stands for the host's default. Connections with different settings open the device
// separately and share no queues.
type Path struct {
	TOS          *int           // IP type of service: DSCP in the upper six bits; on InfiniBand the traffic class
	ServiceLevel *int           // 0 to 15; on RoCE the VLAN priority
	GIDIndex     *int           // entry of the port's GID table
	AckTimeout   *int           // 1 to 31: a packet is sent again after 4.096 us << AckTimeout; 0: never
	MTU          *int           // in bytes: 256, 512, 1024, 2048 or 4096
	Spin         *time.Duration // how long a blocked call polls before it parks: 0 to 1 s

	tls    *tls.Config // of the Dialer or ListenConfig; nil: no TLS
	server string      // the name that the peer's certificate must have, unless tls has one
}

// adapterKey identifies an adapter by a name or an address, and by the settings with which the
// device is opened. The value -1 stands for an unset setting of the path.
type adapterKey struct {
	name            string
	ints            [5]int
	spin, keepAlive time.Duration

	tls    *tls.Config
	server string
}

func (p Path) key(name string) adapterKey {
	k := adapterKey{name: name, spin: -1, tls: p.tls, server: p.server}
	for i, v := range []*int{p.TOS, p.ServiceLevel, p.GIDIndex, p.AckTimeout, p.MTU} {
		k.ints[i] = -1
		if v != nil {
			k.ints[i] = *v
		}
	}
	if p.Spin != nil {
		k.spin = *p.Spin
	}
	return k
}

// with returns the path with a configuration for TLS.
func (p Path) with(config *tls.Config) Path {
	p.tls = config
	return p
}

func (p Path) options() (opts []udat.Option) {
	path := udat.PathOptions{TOS: p.TOS, ServiceLevel: p.ServiceLevel, GIDIndex: p.GIDIndex, AckTimeout: p.AckTimeout,
		MTU: p.MTU}
	opts = append(opts, udat.WithPath(path))
	if p.Spin != nil {
		opts = append(opts, udat.WithSpin(*p.Spin))
	}
	if p.tls != nil {
		opts = append(opts, udat.WithTLS(named(p.tls, p.server)))
	}
	return opts
}

// named returns the configuration with a name for the peer's certificate, if it has none.
func named(config *tls.Config, server string) *tls.Config {
	if config.ServerName == "" {
		config = config.Clone()
		config.ServerName = server
	}
	return config
}

// adapter is an open device that dispatchers, listeners and zones share.
type adapter struct {
	*udat.IA
	key       adapterKey
	users     int          // guarded by adapters.mu
	unused    *time.Timer  // calls closeUnused
	dials     *dispatchers // dispatchers of dialed connections
	maxRDMA   uint64       // largest number of bytes of one RDMA operation
	soft      bool         // a device in software: creating and freeing objects blocks no thread
	immediate bool
	atomics   bool
	piece     uint64 // largest number of bytes of one write
	buffer    int    // default size of a ring
	reads     int    // reads that a peer of a connection may have in flight
	queue     int    // largest length of a queue of events

	mu   sync.Mutex
	gone error               // set when the device has failed
	told map[any]func(error) // functions registered with onFailure, by their keys; a Listener's key is its *udat.PSP
}

// adapters are the open devices of the process.
var adapters struct {
	mu   sync.Mutex
	open map[adapterKey]*adapter
}

// openAdapter returns the adapter of a device. It opens the device, or counts one more user if the
// device is already open. The caller must call the adapter's close.
func openAdapter(name string, path Path, keepAlive time.Duration) (*adapter, error) {
	adapters.mu.Lock()
	defer adapters.mu.Unlock()
	key := path.key(name)
	key.keepAlive = keepAlive
	if a := adapters.open[key]; a != nil {
		a.users++
		a.unused.Stop()
		return a, nil
	}
	ia, err := udat.Open(name, append(path.options(), udat.WithKeepAlive(keepAlive))...)
	if err != nil {
		return nil, err
	}
	async, attr, p, err := ia.Query()
	if err != nil {
		ia.Close(udat.CloseAbrupt)
		return nil, err
	}
	a := &adapter{IA: ia, key: key, users: 1, maxRDMA: attr.MaxRDMASize,
		atomics:   p.Specific(udat.AttrFetchAndAdd) == "TRUE",
		immediate: p.Specific(udat.AttrImmediateData) == "TRUE",
		piece:     min(largestWrite(attr.VendorName, attr.TransportAttr), attr.MaxRDMASize), buffer: defaultBuffer,
		reads: min(defaultReads, attr.MaxRDMAReadPerEPIn), queue: attr.MaxEVDQLen}
	if isTCP(name) {
		a.buffer, a.soft = tcpBuffer, true
	}
	a.dials = &dispatchers{adapter: a, keeps: a.soft}
	a.unused = time.AfterFunc(unusedTime, a.closeUnused)
	a.unused.Stop()
	if adapters.open == nil {
		adapters.open = make(map[adapterKey]*adapter)
	}
	adapters.open[key] = a
	go a.watch(async)
	return a, nil
}

// defaultReads is the number of reads that a peer may have in flight, if the device allows them.
const defaultReads = 4

// softPackets is the number of packets of the largest write on soft-RoCE.
const softPackets = 8

// largestWrite returns the largest number of bytes of one write. On soft-RoCE it is small, because
// a long write stalls on a network that loses packets, and then ends the connection. Within one
// write, the driver (Linux 6.1) retransmits at once only after the first loss. It waits 2 s after
// each later loss, and gives up after 7 losses.
func largestWrite(vendor string, transport []udat.NamedAttr) uint64 {
	if vendor != softroce.Name {
		return maxChunk
	}
	for _, a := range transport {
		if mtu, err := strconv.Atoi(a.Value); err == nil && a.Name == "PATH_MTU" {
			return softPackets * uint64(mtu)
		}
	}
	return maxChunk
}

// register registers memory of the program.
func (a *adapter) register(pz *udat.PZ, buf []byte, priv udat.MemPriv) (*udat.LMR, error) {
	l, err := a.CreateLMR(pz, buf, priv)
	if errors.Is(err, udat.ErrInvalidParameter) {
		err = withErrno(err, syscall.EINVAL)
	}
	return l, err
}

// checkAtomics returns an error if the device has no atomics.
func (a *adapter) checkAtomics() error {
	if !a.atomics {
		return fmt.Errorf("device %s has no atomics: %w", a.key.name, errors.ErrUnsupported)
	}
	return nil
}

// use adds 1 to the number of users. The new user must call close.
func (a *adapter) use() {
	adapters.mu.Lock()
	a.users++
	adapters.mu.Unlock()
}

func (a *adapter) close() {
	adapters.mu.Lock()
	defer adapters.mu.Unlock()
	switch a.users--; {
	case a.users > 0:
	case a.soft:
		a.unused.Reset(unusedTime)
	default:
		a.end()
	}
}

// unusedTime is how long the device tcp stays open without a user, because a program that dials
// often would open it each time.
const unusedTime = 100 * time.Millisecond

// closeUnused closes the device when the timer unused has fired.
func (a *adapter) closeUnused() {
	adapters.mu.Lock()
	defer adapters.mu.Unlock()
	if a.users == 0 {
		a.end()
	}
}

// end closes the device, once; adapters.mu is held.
func (a *adapter) end() {
	a.users = -1
	a.forget()
	a.dials.end()
	a.IA.Close(udat.CloseAbrupt)
}

// forget removes the adapter from adapters.open, so that openAdapter opens the device again.
// adapters.mu is held.
func (a *adapter) forget() {
	if adapters.open[a.key] == a {
		delete(adapters.open, a.key)
	}
}

var errDeviceGone = errors.New("the RDMA device has failed or has been removed")

// watch handles the adapter's asynchronous events until the adapter is closed.
func (a *adapter) watch(async *udat.EVD) {
	for {
		ev, _, err := async.Wait(udat.Infinite, 1)
		if err != nil {
			return
		}
		switch {
		case ev.Number == udat.EventAsyncIACatastrophic && ev.Reason == udat.ReasonIACatastrophic:
			a.fail(errors.Join(syscall.ENODEV, errDeviceGone))
		case ev.Number == udat.EventAsyncProviderInternalError:
			a.mu.Lock()
			if told := a.told[ev.Object]; told != nil { // of the Listener whose service point cannot accept
				go told(ev.Err())
			}
			a.mu.Unlock()
		}
	}
}

// fail handles the failure of the device. It calls the functions that are registered with
// onFailure.
func (a *adapter) fail(err error) {
	adapters.mu.Lock()
	a.forget()
	adapters.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gone = err
	for _, told := range a.told {
		go told(err)
	}
}

// onFailure registers the function notify under a key. The callback notify is called in a goroutine
// of its own when the device fails, or at once if the device has already failed. If notify is nil,
// onFailure removes the function of the key.
func (a *adapter) onFailure(key any, notify func(error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case notify == nil:
		delete(a.told, key)
	case a.gone != nil:
		go notify(a.gone)
	default:
		if a.told == nil {
			a.told = make(map[any]func(error))
		}
		a.told[key] = notify
	}
}
