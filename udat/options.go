package udat

import (
	"log/slog"
	"slices"
	"time"

	"github.com/godat/godat/udat/internal/fabric"
)

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

// WithVersion opens only an adapter of this DAT version and thread safety. The major version must
// be 1, the minor version at most 2, and threadSafe true; else Open returns ProviderNotFound with a
// subtype that names the mismatch.
//
// Extension. These are the arguments that dat_ia_open passes to dat_ia_openv.
func WithVersion(major, minor int, threadSafe bool) Option {
	return func(o *openOptions) error {
		o.match = func() error {
			const op = "ia_open"
			switch {
			case major != providerMajor:
				return fail(op, ProviderNotFound, SubMajorNotFound, "major version %d is asked for, must be %d", major,
					providerMajor)
			case minor > providerMinor:
				return fail(op, ProviderNotFound, SubMinorNotFound, "minor version %d is asked for, must be at most %d", minor,
					providerMinor)
			case !threadSafe:
				return fail(op, ProviderNotFound, SubThreadSafetyNotFound,
					"an adapter that is not thread safe is asked for, all are")
			}
			return nil
		}
		return nil
	}
}

// WithForeignConnectEVDs lets endpoints send their connection events to a dispatcher of another
// adapter, which takes no completions. Once that dispatcher is gone, the events are dropped.
//
// Extension. OpenFabrics DAPL allows it, and its dapltest does it.
func WithForeignConnectEVDs() Option {
	return func(o *openOptions) error {
		o.foreignConnect = true
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

// WithAsyncEVD sends the adapter's asynchronous events to an existing dispatcher, of another
// adapter. Close does not destroy it. If its owner is closed abruptly meanwhile, the adapter goes
// on as one that was opened with [WithoutAsyncEVD].
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
// (DAT_EVD_ASYNC_EXISTS). Its events go to those of all other adapters of the device in this
// process; if there are none, the events are lost.
//
// Extension. It is an argument of dat_ia_open.
func WithoutAsyncEVD() Option {
	return func(o *openOptions) error { o.noAsync = true; return nil }
}

// WithRNRRetry sets how often a Send is retried while its receiver has posted no receive: 0 to 6,
// or 7, the default, without end. With less than 7 such a Send fails with DTOErrReceiverNotReady
// and breaks the connection.
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

// WithRetry sets how often a request is sent again that the peer does not acknowledge: 0 to 7. The
// default is 7, and 6 on soft-RoCE, for which 7 is for ever.
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

// WithTOS sets the IP type of service of the adapter's connections, 0 to 255: DSCP in the upper six
// bits. On InfiniBand it is the traffic class. Without it the connection manager's default counts.
//
// Extension.
func WithTOS(tos int) Option {
	return pathOption("type of service", tos, 255, func(p *fabric.PathOptions) **uint8 { return &p.TOS })
}

// WithServiceLevel sets the service level of the adapter's connections, 0 to 15; on RoCE it is the
// VLAN priority. Both ends must have the same.
//
// Extension.
func WithServiceLevel(sl int) Option {
	return pathOption("service level", sl, 15, func(p *fabric.PathOptions) **uint8 { return &p.SL })
}

// WithGIDIndex sets the entry of the port's GID table that the adapter's connections use. The
// adapter then has that entry's address only. On RoCE the entry also decides between version 1 and
// 2, which must be the same at both ends.
//
// Extension.
func WithGIDIndex(index int) Option {
	return pathOption("GID index", index, 255, func(p *fabric.PathOptions) **uint8 { return &p.GIDIndex })
}

// WithAckTimeout sets how long a request waits for its acknowledgement until it is sent again:
// 4.096 us << code, code from 1 to 31, or 0 without end. Devices round up.
//
// Extension.
func WithAckTimeout(code int) Option {
	return pathOption("acknowledgement timeout", code, 31, func(p *fabric.PathOptions) **uint8 { return &p.AckTimeout })
}

func pathOption(what string, n, most int, field func(*fabric.PathOptions) **uint8) Option {
	return func(o *openOptions) error {
		if n < 0 || n > most {
			return fail("ia_open", InvalidParameter, SubArg2, "%s is %d, must be from 0 to %d", what, n, most)
		}
		value := uint8(n)
		*field(&o.fabric.Path) = &value
		return nil
	}
}

// WithMTU sets the path MTU of the adapter's connections in bytes: 256, 512, 1024, 2048 or 4096, at
// most the port's. Both ends must have the same.
//
// Extension.
func WithMTU(bytes int) Option {
	return func(o *openOptions) error {
		if !slices.Contains([]int{256, 512, 1024, 2048, 4096}, bytes) {
			return fail("ia_open", InvalidParameter, SubArg2, "path MTU is %d, must be 256, 512, 1024, 2048 or 4096", bytes)
		}
		o.fabric.Path.MTU = bytes
		return nil
	}
}

// WithChecksums says whether an adapter of the device tcp asks for a checksum (CRC32c) of each
// message on its connections. Without it they have checksums between hosts, and none within a host,
// whose bytes no network changes. Both ends use checksums if one of them asks. On other devices
// Open fails with ErrModelNotSupported.
//
// Extension.
func WithChecksums(on bool) Option {
	return func(o *openOptions) error {
		o.fabric.Checksums = &on
		return nil
	}
}

// WithSpin sets how long a blocked EVD.Wait polls before it parks: at most d, from 0, which
// disables it, to a second; the default is 50 microseconds. It is adaptive: once a dispatcher has
// found that its calls wait no longer without spinning, they spin in 1 wait of 33. At most half of
// the processors spin at once, and one call in any case. Polls come in bursts of 16, each burst
// within one crossing into C. Dispatchers of SOLICITED_WAIT streams do not spin: only the device
// knows which completion was solicited.
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

// WithKeepAlive sets the interval of the keep-alive, from a second to an hour; the default is 10
// seconds, and 0 switches it off. A connection on which nothing is in flight and nothing arrives
// for an interval sends a zero-length RDMA write, which the peer's device answers and which makes
// no event. A connection whose peer does not answer is broken within 4 intervals, or as soon as the
// device gives up, with the reason in [Event.Err]; the package comment has the cases. A peer that
// is slow, stopped or without receives has not vanished: its device answers. One whose host has
// started anew has.
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

// WithLogger logs attempts to connect that have had no answer for 2 seconds, with what they wait
// for. Without the option, or with nil, nothing is logged. The outcome comes as an event in any
// case; see [Event.Err].
//
// Extension.
func WithLogger(log *slog.Logger) Option {
	return func(o *openOptions) error { o.log = log; return nil }
}

// The version of uDAPL that every adapter here has.
const (
	providerMajor = 1
	providerMinor = 2
)
