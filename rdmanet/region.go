package rdmanet

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/godat/godat/udat"
)

// Access is the set of operations that the peer may perform on a Region.
type Access uint8

// Accesses, to be combined with |. If the Access is 0, the memory is only the local buffer of this
// end's own operations.
const (
	PeerReads Access = 1 << iota
	PeerWrites
	PeerAtomics // FetchAdd and CompareSwap; errors.ErrUnsupported on a device without atomics

	accesses = PeerReads | PeerWrites | PeerAtomics
)

// rights returns the privileges with which to register memory for the access.
func (a Access) rights(adapter *adapter) (udat.MemPriv, error) {
	if a&^accesses != 0 {
		return 0, fmt.Errorf("access %#x: only PeerReads, PeerWrites and PeerAtomics are known: %w", a, syscall.EINVAL)
	}
	priv := privatePriv
	if a&PeerReads != 0 {
		priv |= udat.PrivRemoteRead
	}
	if a&PeerWrites != 0 {
		priv |= udat.PrivRemoteWrite
	}
	if a&PeerAtomics != 0 {
		priv |= udat.PrivRemoteAtomic
		return priv, adapter.checkAtomics()
	}
	return priv, nil
}

// Region is memory that is registered for one connection. The peer may access it by RDMA as its
// Access allows. At this end ReadRemote, WriteRemote and WriteRegion use it as their local buffer,
// without a copy. All methods are safe for concurrent use. Calls and batches that begin after
// [Region.Close], and a second Close, return net.ErrClosed.
type Region struct {
	c   *Conn
	lmr *udat.LMR
	buf []byte

	// Guarded by Conn.mu.
	closed bool
	uses   int // number of calls and operations of this end that use it
}

// NewRegion registers buf, which must not be empty, for this connection. The caller remains the
// owner of buf. The memory is locked until [Region.Close], or until the connection has ended after
// [Conn.Close]. If the peer may write to the memory, it may do so at any time: copy data before
// checking it.
//
// If buf is mapped memory, it must stay mapped as long as it is locked, and it must be writable if
// the peer may write. On the devices mem0 and "tcp", code of this process accesses the memory for
// the peer. If the memory is not mapped, an operation of the peer therefore ends the process.
func (c *Conn) NewRegion(buf []byte, access Access) (*Region, error) {
	if err := c.enter("register"); err != nil {
		return nil, err
	}
	defer c.mu.Unlock()
	priv, err := access.rights(c.pool.adapter)
	if err != nil {
		return nil, c.opError("register", err)
	}
	c.pin()
	defer c.unpin()
	r := &Region{c: c, buf: buf}
	err = c.unlocked(func() (err error) { r.lmr, err = c.pool.adapter.register(c.pz, buf, priv); return })
	if err != nil {
		return nil, c.opError("register", err)
	}
	if c.regions == nil {
		c.regions = make(map[*Region]struct{})
	}
	c.regions[r] = struct{}{}
	return r, nil
}

// Bytes returns the memory.
func (r *Region) Bytes() []byte { return r.buf }

// Remote returns the Remote that identifies the memory to the peer. The program sends it to the
// peer in a message. It is valid until the Region is closed.
func (r *Region) Remote() Remote {
	return Remote{r.lmr.RMRTriplet(0, len(r.buf))}
}

// Close ends the registration. While calls and batches of this end use the region, Close does not
// wait for them, and the registration ends after them. Later operations of the peer on the region
// break the connection.
func (r *Region) Close() error {
	c := r.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.closed:
		return c.opError("close", errClosedRegion)
	case c.released:
		return c.opError("close", net.ErrClosed)
	}
	r.closed = true
	if r.uses > 0 {
		return nil
	}
	delete(c.regions, r)
	return c.unlocked(r.lmr.Free)
}

// check returns an error unless r is a region of the connection c and its memory contains the n
// bytes that begin at the offset off.
func (r *Region) check(c *Conn, off int, n uint64) error {
	switch {
	case r == nil || r.c != c:
		return errForeignRegion
	case off < 0 || off > len(r.buf) || n > uint64(len(r.buf)-off):
		return fmt.Errorf("%d bytes from %d on of a region of %d: %w", int64(n), off, len(r.buf), syscall.EINVAL)
	}
	return nil
}

// use records that an operation of this end uses the region. The operation must later call the
// method done. c.mu is held.
func (r *Region) use() error {
	if r.closed {
		return errClosedRegion
	}
	r.uses++
	r.c.pin()
	return nil
}

func (r *Region) done() {
	if r.uses--; r.closed && r.uses == 0 {
		delete(r.c.regions, r)
		r.c.freeLater(r.lmr)
	}
	r.c.unpin()
}

var (
	errForeignRegion = fmt.Errorf("the region is not one of this connection: %w", syscall.EINVAL)
	errClosedRegion  = closedRegion{}
)

// closedRegion wraps net.ErrClosed and has a text of its own, because the text of net.ErrClosed is
// about a network connection.
type closedRegion struct{}

func (closedRegion) Error() string { return "the region is closed" }

func (closedRegion) Unwrap() error { return net.ErrClosed }

// settleTime is how long a call waits, after its deadline or after Close, for the device to
// complete operations that use the call's memory. After that it breaks the connection, because the
// peer's device does not answer.
const settleTime = 2 * time.Second

// settle waits until the device has completed all requests before number seq, or the connection is
// dead; mu is held.
func (c *Conn) settle(seq uint64) error {
	var late error // why the caller's time is over
	for c.out.done < seq {
		if c.state == stateDead {
			return cmp.Or(late, c.err)
		}
		if late == nil {
			if late = c.useError(); late == nil && c.writeEnd.passed {
				late = os.ErrDeadlineExceeded
			}
			if late != nil {
				defer c.afterFunc(settleTime, func() { c.fail(errDeadPeer) })()
			}
		}
		c.wait(&c.writable)
	}
	return nil
}

// useError returns the reason why the connection cannot be used, or nil if it can be used. mu is
// held.
func (c *Conn) useError() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.state == stateDead:
		return c.err
	}
	return nil
}

// WriteRegion writes the n bytes of a region that begin at the offset off to the stream, without a
// copy. It returns when the device has sent the bytes, so that the caller may change them. It is
// faster than Write for pieces of 64 KiB and more. If the peer's device has not received the bytes
// 2 seconds after the write deadline, the connection is broken.
func (c *Conn) WriteRegion(r *Region, off, n int) (total int, err error) {
	if err := r.check(c, off, uint64(n)); err != nil { // also if c is nil; a negative n is too large as uint64
		return 0, c.opError("write", err)
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := r.use(); err != nil {
		return 0, c.opError("write", err)
	}
	defer r.done()
	out := &c.out
	out.lent++
	defer func() { out.lent-- }()
	last := uint64(0)
	for total < n {
		if err := c.writeError(); err != nil {
			out.silent = requests // the next message gets a completion, which shows that these writes are done
			c.owe(kindCredit)
			c.push()
			c.settle(last)
			return total, c.opError("write", err)
		}
		var k uint64
		if out.posted == out.appended { // earlier writes go first
			k = c.mayWrite(uint64(n-total), uint64(n-total))
		}
		if k == 0 {
			c.wait(&c.writable)
			continue
		}
		if !c.write(r.lmr.Triplet(off+total, int(k)), total+int(k) == n) {
			return total, c.opError("write", c.err)
		}
		last = out.requests
		total += int(k)
	}
	return total, c.opError("write", c.settle(last))
}
