package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/godat/godat/udat"
)

// Zone is a protection zone that connections share, with memory that is registered once for all of
// them: see [ListenConfig].Zone. A peer reaches that memory by a [Grant] alone, which a memory
// window of the device carries out: a device without windows has no zones. All methods are safe for
// concurrent use.
//
// The device checks the key in a [Remote], not who uses it: any peer of a connection in the zone
// that knows or guesses the key, of 32 bits, can do what the grant allows until it is revoked, and
// so with the regions and buffers of the zone's other connections. Peers that may not harm each
// other need zones of their own, or none: connections outside have a zone each.
type Zone struct {
	adapter *adapter
	path    Path
	pz      *udat.PZ
	exact   bool // a window opens its part only

	// Guarded by adapter.mu.
	users  int // connections and memories, and one until Close
	closed bool
}

// NewZone makes a zone on a device: a name or an address, as in [Dialer].Device, not empty. path is
// that of all its connections. A device without memory windows is errors.ErrUnsupported.
func NewZone(device string, path Path) (*Zone, error) {
	a, err := openAdapter(device, path)
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

// in puts the connections of the settings in a zone, unless z is nil, and returns their device. The
// program's device and path must then be those of the zone, or nothing.
func (c *config) in(z *Zone, device string, path Path) (string, error) {
	c.zone, c.path = z, path
	if z == nil {
		return device, nil
	}
	if z.adapter == nil {
		return "", errors.New("rdmanet: Zone is not of NewZone")
	}
	name := z.adapter.key.name
	if device != "" && device != name || path != (Path{}) && path.key(name) != z.adapter.key {
		return "", fmt.Errorf("rdmanet: with a Zone Device and Path are its own, here on %s, and must be left out: %w",
			name, syscall.EINVAL)
	}
	c.path = z.path
	return name, nil
}

// enter counts one more user; leave ends that.
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

// Close ends the zone once its connections and its memory are closed. Until then they stay as they
// are; there are no new ones.
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
	users  int // grants, and one until Close
	closed bool
}

// Register registers buf, which must not be empty. The memory stays the caller's and is locked
// until [Memory.Close].
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

// Bytes is the memory.
func (m *Memory) Bytes() []byte { return m.buf }

// Close ends the registration once all grants are revoked or their connections are closed. Until
// then the grants stay as they are; there are no new ones.
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

// takeBack ends a grant: it frees its window, unless that is nil.
func (m *Memory) takeBack(window *udat.RMR) (err error) {
	if window != nil {
		err = window.Free()
	}
	m.leave()
	return err
}
