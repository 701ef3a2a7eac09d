package rdmanet

import (
	"errors"
	"fmt"
	"net"
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

	// Guarded by adapter.mu.
	users  int // number of connections and memories, plus one until Close
	closed bool
}

// NewZone creates a zone on a device. The device is a name or an address, as in [Dialer].Device,
// and must not be empty. The path settings apply to all connections of the zone. If the device has
// no memory windows, the error is errors.ErrUnsupported.
func NewZone(device string, path Path) (*Zone, error) {
	a, err := openAdapter(device, path, defaultKeepAlive)
	if err != nil {
		return nil, fmt.Errorf("rdmanet: zone: %w", err)
	}
	z := &Zone{adapter: a, path: path, users: 1}
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

// enter adds a user to the zone, or returns an error if the zone is closed. The method leave
// removes a user.
func (z *Zone) enter() error {
	z.adapter.mu.Lock()
	defer z.adapter.mu.Unlock()
	if z.closed {
		return fmt.Errorf("the zone: %w", net.ErrClosed)
	}
	z.users++
	return nil
}

func (z *Zone) leave() {
	z.adapter.mu.Lock()
	z.users--
	last := z.users == 0
	z.adapter.mu.Unlock()
	if last {
		z.pz.Free()
		z.adapter.close()
	}
}

// Close closes the zone. After that, no connection or Memory can be created in it, and a Listener
// in it ends at the next request. The existing connections and memories remain usable, and the
// zone's resources are freed when all of them are closed.
func (z *Zone) Close() error {
	z.adapter.mu.Lock()
	closed := z.closed
	z.closed = true
	z.adapter.mu.Unlock()
	if closed {
		return fmt.Errorf("rdmanet: zone: %w", net.ErrClosed)
	}
	z.leave()
	return nil
}

// Memory is registered memory of a Zone. No peer may use it without a [Grant]. All methods are safe
// for concurrent use.
type Memory struct {
	zone *Zone
	lmr  *udat.LMR
	buf  []byte

	// Guarded by adapter.mu.
	users  int // number of grants, plus one until Close
	closed bool
}

// Register registers buf, which must not be empty. The caller remains the owner of buf. The memory
// is locked until [Memory.Close] and until all grants have ended.
func (z *Zone) Register(buf []byte) (*Memory, error) {
	err := z.enter()
	if err == nil {
		var lmr *udat.LMR
		if lmr, err = z.adapter.CreateLMR(z.pz, buf, privatePriv); err == nil {
			return &Memory{zone: z, lmr: lmr, buf: buf, users: 1}, nil
		}
		z.leave()
	}
	return nil, fmt.Errorf("rdmanet: register: %w", err)
}

// Bytes returns the memory.
func (m *Memory) Bytes() []byte { return m.buf }

// Close closes the memory. After that, no new grants of it can be made. The existing grants remain
// valid, and the registration ends when all of them are revoked or their connections are closed.
func (m *Memory) Close() error {
	m.zone.adapter.mu.Lock()
	closed := m.closed
	m.closed = true
	m.zone.adapter.mu.Unlock()
	if closed {
		return fmt.Errorf("rdmanet: memory: %w", net.ErrClosed)
	}
	m.leave()
	return nil
}

func (m *Memory) enter() error {
	m.zone.adapter.mu.Lock()
	defer m.zone.adapter.mu.Unlock()
	if m.closed {
		return fmt.Errorf("the memory: %w", net.ErrClosed)
	}
	m.users++
	return nil
}

func (m *Memory) leave() {
	m.zone.adapter.mu.Lock()
	m.users--
	last := m.users == 0
	m.zone.adapter.mu.Unlock()
	if last {
		m.lmr.Free()
		m.zone.leave()
	}
}

// takeBack ends a grant. It frees the grant's window, unless window is nil.
func (m *Memory) takeBack(window *udat.RMR) (err error) {
	if window != nil {
		err = window.Free()
	}
	m.leave()
	return err
}
