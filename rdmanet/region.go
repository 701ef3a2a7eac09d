package rdmanet

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/godat/godat/udat"
)

// Access is what the peer may do with a Region.
type Access uint8

// Accesses, to be combined with |. Without any, only this end uses the memory, as the near end of
// its own reads and writes.
const (
	PeerReads Access = 1 << iota
	PeerWrites
)

// Region is registered memory of a connection: the peer may be given it to read or to write, and
// this end reads the peer's into it and writes from it, without a copy. All methods are safe for
// concurrent use.
type Region struct {
	c   *Conn
	lmr *udat.LMR
	buf []byte
}

// NewRegion registers buf, which must not be empty, for this connection. The memory stays the
// caller's and is locked until [Region.Close] or the end of the connection by [Conn.Close]. What a
// peer may write changes at any time: copy it before checking it.
func (c *Conn) NewRegion(buf []byte, access Access) (*Region, error) {
	if access&^(PeerReads|PeerWrites) != 0 {
		return nil, c.opError("register", fmt.Errorf("access %#x: only PeerReads and PeerWrites are known: %w", access,
			syscall.EINVAL))
	}
	priv := udat.PrivLocalRead | udat.PrivLocalWrite
	if access&PeerReads != 0 {
		priv |= udat.PrivRemoteRead
	}
	if access&PeerWrites != 0 {
		priv |= udat.PrivRemoteWrite
	}
	c.wmu.Lock() // release waits for it
	defer c.wmu.Unlock()
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, c.opError("register", net.ErrClosed)
	}
	lmr, err := c.pool.adapter.CreateLMR(c.pz, buf, priv)
	if err != nil {
		return nil, c.opError("register", err)
	}
	r := &Region{c: c, lmr: lmr, buf: buf}
	if c.regions == nil {
		c.regions = make(map[*Region]struct{})
	}
	c.regions[r] = struct{}{}
	return r, nil
}

// Bytes is the memory.
func (r *Region) Bytes() []byte { return r.buf }

// Remote names the memory for the peer: send it in a message. It is valid until the Region is
// closed.
func (r *Region) Remote() Remote {
	return Remote{r.lmr.RMRTriplet(0, len(r.buf))}
}

// Close ends the registration. An operation of the peer that comes later breaks the connection.
func (r *Region) Close() error {
	r.c.wmu.Lock()
	defer r.c.wmu.Unlock()
	if _, there := r.c.regions[r]; !there {
		return r.c.opError("close", net.ErrClosed)
	}
	delete(r.c.regions, r)
	return r.lmr.Free()
}

// RemoteSize is the length of a Remote on the wire, in bytes.
const RemoteSize = udat.RMRTripletSize

// Remote names memory of the peer. Its wire form comes from the peer: the device checks each use of
// it, and one that the peer does not allow breaks the connection.
type Remote struct{ t udat.RMRTriplet }

// Len is the number of bytes.
func (r Remote) Len() uint64 { return r.t.SegmentLength }

// Slice names n of the bytes, from off on.
func (r Remote) Slice(off, n uint64) (Remote, error) {
	if off > r.Len() || n > r.Len()-off {
		return Remote{}, fmt.Errorf("rdmanet: bytes %d to %d of remote memory of %d: %w", off, off+n, r.Len(), syscall.EINVAL)
	}
	r.t.TargetAddress += off
	r.t.SegmentLength = n
	return r, nil
}

// MarshalBinary returns the wire form, RemoteSize bytes.
func (r Remote) MarshalBinary() ([]byte, error) { return r.t.MarshalBinary() }

// UnmarshalBinary reads the wire form, which must be RemoteSize bytes long.
func (r *Remote) UnmarshalBinary(b []byte) error { return r.t.UnmarshalBinary(b) }

// WriteRemote writes to the peer's memory what the region has from at on: as many bytes as to has.
// It returns when the peer's device has them; on iWARP, when TCP has them. A message or a Write
// that follows reaches the peer after the bytes: send one to say that they are there.
func (c *Conn) WriteRemote(to Remote, from *Region, at int) error {
	return c.opError("write", c.remoteOp(udat.OpRDMAWrite, to, from, at))
}

// ReadRemote reads the peer's memory into the region from at on: as many bytes as from has. It
// returns when they are there. The peer's program does not notice, and may change the memory
// meanwhile.
func (c *Conn) ReadRemote(to *Region, at int, from Remote) error {
	return c.opError("read", c.remoteOp(udat.OpRDMARead, from, to, at))
}

// maxRemote is the largest number of bytes of one RDMA operation here.
const maxRemote = 128 << 20

// remoteOp carries out an RDMA operation and waits for its completion. The memory belongs to the
// device meanwhile: deadlines end the wait for a free request only.
func (c *Conn) remoteOp(kind udat.OpKind, remote Remote, r *Region, at int) error {
	if r == nil || r.c != c {
		return errForeignRegion
	}
	if at < 0 || at > len(r.buf) || remote.Len() > uint64(len(r.buf)-at) {
		return fmt.Errorf("%d bytes from %d on of a region of %d: %w", remote.Len(), at, len(r.buf), syscall.EINVAL)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out, last := &c.out, uint64(0)
	for off := uint64(0); off < remote.Len(); {
		for c.state != stateOpen || c.freeRequests() < 3 {
			if err := c.useError(); err != nil {
				return err
			}
			c.wait(&c.writable)
		}
		if err := c.useError(); err != nil {
			return err
		}
		part, _ := remote.Slice(off, min(remote.Len()-off, maxRemote))
		iov := [1]udat.LMRTriplet{r.lmr.Triplet(at+int(off), int(part.Len()))}
		last = out.requests
		flags := c.flags(true)
		c.count()
		var err error
		if kind == udat.OpRDMARead {
			err = c.ep.PostRDMARead(iov[:], udat.Cookie(last), part.t, flags)
		} else {
			err = c.ep.PostRDMAWrite(iov[:], udat.Cookie(last), part.t, flags)
		}
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", syscall.ECONNRESET, err))
			return c.err
		}
		off += part.Len()
	}
	for remote.Len() > 0 && out.done <= last {
		if c.state == stateDead {
			return c.err
		}
		c.wait(&c.writable)
	}
	return nil
}

var errForeignRegion = errors.New("the region is not one of this connection")

// useError is why the connection cannot be used; nil if it can. mu is held.
func (c *Conn) useError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.state == stateDead:
		return c.err
	case c.writeEnd.passed:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// WriteRegion is Write of n bytes of a region, from at on, without a copy: the device sends them
// from where they are. It returns when they have left, so that they may be changed, and is for
// pieces of 64 KiB and more: Write is faster for less.
func (c *Conn) WriteRegion(r *Region, at, n int) (total int, err error) {
	if r == nil || r.c != c {
		return 0, c.opError("write", errForeignRegion)
	}
	if at < 0 || n < 0 || at > len(r.buf) || n > len(r.buf)-at {
		err := fmt.Errorf("%d bytes from %d on of a region of %d: %w", n, at, len(r.buf), syscall.EINVAL)
		return 0, c.opError("write", err)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := &c.out
	out.lent = true
	defer func() { out.lent = false }()
	for total < n {
		if err := c.writeError(); err != nil {
			return total, c.opError("write", err)
		}
		if c.writeEnd.passed {
			return total, c.opError("write", os.ErrDeadlineExceeded)
		}
		var k uint64
		if c.state == stateOpen && out.posted == out.appended { // what was written before goes first
			k = c.mayWrite(uint64(n-total), uint64(n-total))
		}
		if k == 0 {
			c.wait(&c.writable)
			continue
		}
		if !c.write(r.lmr.Triplet(at+total, int(k)), total+int(k) == n) {
			return total, c.opError("write", c.err)
		}
		total += int(k)
	}
	for last := out.requests; out.done < last; {
		if c.state == stateDead {
			return total, c.opError("write", c.err)
		}
		c.wait(&c.writable)
	}
	return total, nil
}
