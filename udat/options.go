package udat

import (
	"crypto/tls"
	"log/slog"
	"slices"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

// Option is a setting of Open.
type Option func(*openOptions) error

type openOptions struct {
	asyncQLen int // 0: the default
	asyncEVD  *EVD
	noAsync   bool
	fabric    fabric.Options
	wrap      func(fabric.Fabric) fabric.Fabric // wraps each fabric, for tests; nil: the fabrics are used as they are
	settings
}

// apply sets the options, in their order.
func (o *openOptions) apply(op string, opts []Option) error {
	for i, opt := range opts {
		if opt == nil {
			return fail(op, InvalidParameter, SubArg2, "option %d is nil", i+1)
		}
		if err := opt(o); err != nil {
			return err
		}
	}
	return nil
}

// WithForeignConnectEVDs lets the adapter's endpoints use a connect dispatcher of another adapter,
// if that dispatcher has no streams of completions. After the dispatcher is freed, the connection
// events of these endpoints are dropped.
//
// Extension. OpenFabrics DAPL allows this, and its program dapltest uses such a dispatcher.
func WithForeignConnectEVDs() Option {
	return func(o *openOptions) error {
		o.foreignConnect = true
		return nil
	}
}

// WithAsyncQLen sets the least length of the asynchronous event dispatcher that Open makes, in
// events; the default is 64, or the limit of the device if that is less.
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

// WithAsyncEVD sends the adapter's asynchronous events to an existing dispatcher of another
// adapter. Close does not destroy that dispatcher. If the other adapter is closed abruptly, this
// adapter behaves as if it had been opened with [WithoutAsyncEVD].
//
// Extension. It is an argument of dat_ia_open.
func WithAsyncEVD(evd *EVD) Option {
	return func(o *openOptions) error {
		if err := evd.object().check("ia_open", HandleEVD); err != nil {
			return asRole(err, SubHandleEVDAsync)
		}
		if evd.flags&EVDAsync == 0 {
			return fail("ia_open", InvalidHandle, SubHandleEVDAsync, "the dispatcher takes no asynchronous events: streams %v",
				evd.flags)
		}
		o.asyncEVD = evd
		return nil
	}
}

// WithoutAsyncEVD opens the adapter without a dispatcher for asynchronous events
// (DAT_EVD_ASYNC_EXISTS). The adapter's asynchronous events go to the asynchronous dispatchers of
// all other adapters of the same device in this process. If there is no such dispatcher, the events
// are lost.
//
// Extension. It is an argument of dat_ia_open.
func WithoutAsyncEVD() Option {
	return func(o *openOptions) error { o.noAsync = true; return nil }
}

// WithRNRRetry sets how often a Send is retried while the receiver has no receive posted. If n is
// from 0 to 6, it is retried n times. If n is 7, which is the default, it is retried without limit.
// When the retries are used up, the Send fails with DTOErrReceiverNotReady, and the connection
// breaks.
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

// WithRetry sets how often a request is sent again if the peer does not acknowledge it: n times,
// with n from 0 to 7. The default is 7. On soft-RoCE the default is 6, because soft-RoCE retries
// without limit if n is 7.
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

// PathOptions select the path of an adapter's connections. Nil fields keep the connection manager's
// choice. Both ends must use the same MTU and the same version of RoCE, which the GID selects.
type PathOptions struct {
	TOS          *int // IP type of service, 0 to 255, with the DSCP in the upper six bits; on InfiniBand the traffic class
	ServiceLevel *int // 0 to 15; on RoCE the VLAN priority of the packets that this end sends
	GIDIndex     *int // entry of the port's GID table, 0 to 255; the adapter then has only the address of this entry
	AckTimeout   *int // 1 to 31: a request is sent again after 4.096 us << AckTimeout; 0: never; devices round up
	MTU          *int // in bytes: 256, 512, 1024, 2048 or 4096, at most the MTU of the port
}

// WithPath sets the path of the adapter's connections. If the MTUs of the two ends differ, a
// message that is longer than the smaller one fails, and the connection breaks. On mem0 Open
// returns ErrModelNotSupported, as it does for an MTU on iWARP, and on tcp for all but the type of
// service.
//
// Extension.
func WithPath(p PathOptions) Option {
	return func(o *openOptions) error {
		to := &o.fabric.Path
		for _, s := range []struct {
			what  string
			value *int
			most  int
			to    **uint8
		}{
			{"type of service", p.TOS, 255, &to.TOS},
			{"service level", p.ServiceLevel, 15, &to.SL},
			{"GID index", p.GIDIndex, 255, &to.GIDIndex},
			{"acknowledgement timeout", p.AckTimeout, 31, &to.AckTimeout},
		} {
			switch {
			case s.value == nil:
			case *s.value < 0 || *s.value > s.most:
				return fail("ia_open", InvalidParameter, SubArg2, "%s is %d, must be from 0 to %d", s.what, *s.value, s.most)
			default:
				*s.to = new(uint8(*s.value))
			}
		}
		if p.MTU == nil {
			return nil
		}
		if to.MTU = *p.MTU; !slices.Contains([]int{256, 512, 1024, 2048, 4096}, to.MTU) {
			return fail("ia_open", InvalidParameter, SubArg2, "path MTU is %d, must be 256, 512, 1024, 2048 or 4096", to.MTU)
		}
		return nil
	}
}

// WithChecksums sets whether this end of a connection requests a checksum (CRC32c) of each message.
// It is for the device tcp; on other devices Open returns ErrModelNotSupported. Both ends use
// checksums if either end requests them. By default a connection between hosts has checksums, and a
// connection within one host has none, because no network can change its bytes.
//
// Extension.
func WithChecksums(on bool) Option {
	return func(o *openOptions) error {
		o.fabric.Checksums = &on
		return nil
	}
}

// WithBufferMemory sets how many bytes of memory the device tcp may use for connections with data
// that waits for the peer: parts of messages, and what the peer does not read. When they are used
// up, the connection that has waited longest is broken. The default is 256 MiB, the least 1 MiB. On
// other devices Open returns ErrModelNotSupported.
//
// Extension.
func WithBufferMemory(bytes int) Option {
	return func(o *openOptions) error {
		if bytes < 1<<20 {
			return fail("ia_open", InvalidParameter, SubArg2, "buffer memory is %d bytes, must be at least 1 MiB", bytes)
		}
		o.fabric.BufferMemory = bytes
		return nil
	}
}

// WithVirtualAddresses makes the target address of an RMRTriplet that of the memory on every
// device, for programs that compute it from a pointer, as C programs do. It tells each peer where
// this process has its memory. Without it the devices tcp and mem0 use other addresses.
//
// Extension.
func WithVirtualAddresses() Option {
	return func(o *openOptions) error {
		o.fabric.HideAddresses = false
		return nil
	}
}

// WithTLS encrypts and authenticates every connection of the adapter with TLS, from its first byte
// to its last: Sends, RDMA and the messages of the connection. It is for the device tcp; on other
// devices Open returns ErrModelNotSupported. The configuration is used as that of [tls.Client] for
// EP.Connect and of [tls.Server] for service points, and must not be changed afterwards. If its
// ServerName is empty, Connect wants a certificate for the peer's IP address. To admit only peers
// with a certificate, set ClientAuth to tls.RequireAndVerifyClientCert. A peer without TLS gets no
// connection. The peer's certificates are in CRParam and EPParam.
//
// Extension.
func WithTLS(config *tls.Config) Option {
	return func(o *openOptions) error {
		if config == nil {
			return fail("ia_open", InvalidParameter, SubArg2, "WithTLS needs a configuration, not nil")
		}
		o.fabric.TLS = config
		return nil
	}
}

// WithSpin sets the longest time for which a blocked EVD.Wait polls before it parks. It can be up
// to a second; the default is 50 microseconds, and 0 disables polling. Each dispatcher measures
// whether polling makes its waits shorter. If it does not, only some of the waits poll: at first 1
// in 5, and later as few as 1 in 33. At most half of the processors poll at once, but one call may
// always poll. A call polls in bursts of 16 polls; each burst is one call into C. Calls do not poll
// on dispatchers of SOLICITED_WAIT streams, because only the device knows which completion was
// solicited.
//
// Extension.
func WithSpin(d time.Duration) Option {
	return func(o *openOptions) error {
		if d < 0 || d > spinMost {
			return fail("ia_open", InvalidParameter, SubArg2, "spin time is %v, must be from 0 to %v", d, spinMost)
		}
		o.spin = d
		return nil
	}
}

// WithKeepAlive sets the interval of the keep-alive, from a second to an hour. The default is 10
// seconds, and 0 disables the keep-alive. If nothing is in flight on a connection and nothing has
// arrived for an interval, the adapter sends a zero-length RDMA write. The peer's device
// acknowledges the write, and neither end gets an event. If the peer's device does not answer, the
// connection is broken within 5 intervals, or sooner if this end's device gives up the write;
// [Event.Err] has the reason. The package comment lists the exceptions. A peer that is slow or
// stopped, or has no receives posted, keeps its connection, because its device still answers. A
// connection to a host that has restarted breaks. On tcp the peer's kernel answers: TCP's own
// keep-alive has the interval. But elsewhere than on Linux the peer's process has to answer.
//
// Extension.
func WithKeepAlive(d time.Duration) Option {
	return func(o *openOptions) error {
		if d != 0 && (d < keepAliveMin || d > keepAliveMax) {
			return fail("ia_open", InvalidParameter, SubArg2, "keep-alive interval is %v, must be 0 or from %v to %v", d,
				keepAliveMin, keepAliveMax)
		}
		o.keepAlive = d
		return nil
	}
}

// The interval of the keep-alive.
const (
	keepAliveDefault = 10 * time.Second
	keepAliveMin     = time.Second
	keepAliveMax     = time.Hour
)

// WithLogger sets the logger for attempts to connect. An attempt that has had no answer for 2
// seconds is logged once, with what it waits for; so is that service points listen on all addresses
// of the host without TLS. Without this option, or if log is nil, nothing is logged. The logger
// does not replace the event with the outcome of the attempt; see [Event.Err].
//
// Extension.
func WithLogger(log *slog.Logger) Option {
	return func(o *openOptions) error { o.log = log; return nil }
}

// The version of uDAPL that every adapter of this library implements.
const (
	providerMajor = 1
	providerMinor = 2
)
