package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"

	"github.com/godat/godat/udat"
)

// Zone is a protection zone that connections share, with memory that is registered once for all of
// them: see [ListenConfig].Zone. A peer can access that memory only by a [Grant], which is a memory
// window of the device. So a device without memory windows supports no zones. All methods are safe
// for concurrent use.
//
// The device checks the 32-bit key in a [Remote], but not which peer uses it. Any peer that has a
// connection in the zone and knows or guesses the key can do what the grant allows, until the grant
// is revoked. In the same way it can access the regions and buffers of the other connections in the
// zone. Peers that must not be able to harm one another need different zones or no zone, because a
// connection without a Zone has a protection zone of its own.
type Zone struct {
	adapter *adapter
	path    Path
	pz      *udat.PZ
	exact   bool // a window covers only the part of the memory to which it is bound
	shared       // by connections and memories
}

// shared counts the users of a Zone or Memory. The last one, which may be Close, frees it.
type shared struct {
	mu     sync.Mutex
	what   string
	users  int // plus one until Close
	closed bool
	free   func()
}

// enter adds a user, who must call leave, or returns an error after Close.
func (s *shared) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("the %s: %w", s.what, net.ErrClosed)
	}
	s.users++
	return nil
}

func (s *shared) leave() {
	s.mu.Lock()
	s.users--
	last := s.users == 0
	s.mu.Unlock()
	if last {
		s.free()
	}
}

func (s *shared) close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return fmt.Errorf("rdmanet: %s: %w", s.what, net.ErrClosed)
	}
	s.leave()
	return nil
}

// NewZone creates a zone on a device. The device is a name or an address, as in [Dialer].Device,
// and must not be empty. The path settings apply to all connections of the zone. If the device has
// no memory windows, the error is errors.ErrUnsupported.
func NewZone(device string, path Path) (*Zone, error) {
	a, err := openAdapter(device, path, defaultKeepAlive)
	if err != nil {
		return nil, fmt.Errorf("rdmanet: zone: %w", err)
	}
	z := &Zone{adapter: a, path: path, shared: shared{what: "zone", users: 1}}
	z.free = func() { z.pz.Free(); a.close() }
	_, attr, provider, err := a.Query()
	z.exact = provider.Specific(udat.AttrRMRExactBounds) == "TRUE"
	if err == nil && attr.MaxRMRs == 0 {
		err = fmt.Errorf("device %s has no memory windows: %w", device, errors.ErrUnsupported)
	}
	if err == nil {
		z.pz, err = a.CreatePZ()
	}
	if err != nil {
		a.close()
		return nil, fmt.Errorf("rdmanet: zone: %w", err)
	}
	return z, nil
}

// useZone stores the zone z and its path in the settings, and returns the device to use. If z is
// not nil, the program's device and path must be unset or those of the zone.
func (c *config) useZone(z *Zone, device string, path Path) (string, error) {
	c.zone, c.path = z, path
	if z == nil {
		c.tcpAddrs = c.tcpAddrs || isTCP(device)
		return device, nil
	}
	if z.adapter == nil {
		return "", errors.New("rdmanet: Zone is not of NewZone")
	}
	name := z.adapter.key.name
	if device != "" && device != name || path != (Path{}) && path.key(name) != z.path.key(name) ||
		c.keepAlive != defaultKeepAlive {
		return "", fmt.Errorf("rdmanet: with a Zone Device, Path and KeepAlive are its own, here on %s, "+
			"and must be left out, and so must TLS: %w", name, syscall.EINVAL)
	}
	c.path, c.tcpAddrs = z.path, c.tcpAddrs || isTCP(name)
	return name, nil
}

// Close closes the zone. After that, no connection or Memory can be created in it, and a Listener
// in it ends at the next request. The existing connections and memories remain usable, and the
// zone's resources are freed when all of them are closed.
func (z *Zone) Close() error { return z.close() }

// Memory is registered memory of a Zone. No peer may use it without a [Grant]. All methods are safe
// for concurrent use.
type Memory struct {
	zone *Zone
	lmr  *udat.LMR
	buf  []byte
	shared
}

// Register registers buf, which must not be empty. The caller remains the owner of buf. The memory
// is locked until [Memory.Close] and until all grants have ended.
func (z *Zone) Register(buf []byte) (*Memory, error) {
	err := z.enter()
	if err == nil {
		var lmr *udat.LMR
		if lmr, err = z.adapter.register(z.pz, buf, privatePriv); err == nil {
			m := &Memory{zone: z, lmr: lmr, buf: buf, shared: shared{what: "memory", users: 1}}
			m.free = func() { lmr.Free(); z.leave() }
			return m, nil
		}
		z.leave()
	}
	return nil, fmt.Errorf("rdmanet: register: %w", err)
}

// Bytes returns the memory.
func (m *Memory) Bytes() []byte { return m.buf }

// Close closes the memory. After that, no new grants of it can be made. The existing grants remain
// valid, and the registration ends when all of them are revoked or their connections are closed.
func (m *Memory) Close() error { return m.close() }

// takeBack ends a grant. It frees the grant's window, unless window is nil.
func (m *Memory) takeBack(window *udat.RMR) (err error) {
	if window != nil {
		err = window.Free()
	}
	m.leave()
	return err
}
