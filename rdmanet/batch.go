package rdmanet

import (
	"cmp"
	"context"
	"fmt"
	"syscall"

	"github.com/godat/godat/udat"
)

// WriteRemote writes bytes of a region to the peer's memory. The length of the Remote is the number
// of bytes, and the parameter off is the offset of the first byte in the region. WriteRemote
// returns when the peer's device has acknowledged the bytes. On iWARP it returns when the local TCP
// stack has the bytes. A later Write or message reaches the peer after the bytes, and can announce
// them. If ctx ends, the rules of [Batch.Start] apply. Use a [Batch] for several operations.
func (c *Conn) WriteRemote(ctx context.Context, to Remote, from *Region, off int) error {
	b := c.NewBatch()
	b.Write(to, from, off)
	return c.opError("write", b.do(ctx))
}

// ReadRemote reads bytes of the peer's memory into a region. The length of the Remote is the number
// of bytes, and the parameter off is the offset of the first byte in the region. ReadRemote returns
// when the bytes have arrived. The peer's program is not notified, and may change its memory at the
// same time. If ctx ends, the rules of [Batch.Start] apply. Use a [Batch] for several operations.
func (c *Conn) ReadRemote(ctx context.Context, to *Region, off int, from Remote) error {
	b := c.NewBatch()
	b.Read(to, off, from)
	return c.opError("read", b.do(ctx))
}

// FetchAdd adds a number to a 64-bit word of the peer's memory, which remote identifies. It returns
// the word's old value. The operation is atomic with respect to the other atomics of the peer's
// device. The word is in the byte order of the peer's processor. The word must be at an address
// that is a multiple of 8, in a region with PeerAtomics, and the length of remote must be 8. On a
// device without atomics the error is errors.ErrUnsupported.
func (c *Conn) FetchAdd(ctx context.Context, remote Remote, add uint64) (old uint64, err error) {
	b := c.NewBatch()
	b.FetchAdd(remote, add, &old)
	err = b.do(ctx)
	return old, c.opError("fetch and add", err)
}

// CompareSwap stores the value swap in the word that remote identifies, if the word equals the
// value compare. It returns the word's old value in both cases. The rules of [Conn.FetchAdd] apply.
func (c *Conn) CompareSwap(ctx context.Context, remote Remote, compare, swap uint64) (old uint64, err error) {
	b := c.NewBatch()
	b.CompareSwap(remote, compare, swap, &old)
	err = b.do(ctx)
	return old, c.opError("compare and swap", err)
}

// Batch is a list of operations on the peer's memory that are posted together, with one doorbell
// for up to 26 of them. The operations are in flight at the same time. A read or an atomic may be
// executed after a write that follows it in the list, so no operation may depend on the result of
// another. Use [Conn.NewBatch] to create a Batch. A Batch is not safe for concurrent use. A
// connection may have any number of batches in flight.
type Batch struct {
	c   *Conn
	ops []remoteOp
	err error // error of the first invalid operation
}

// remoteOp is an operation of a batch.
type remoteOp struct {
	kind      udat.OpKind
	remote    udat.RMRTriplet
	region    *Region // nil for an atomic
	at        int
	add, swap uint64 // CompareAdd and Swap of udat.Op
	old       *uint64
}

// NewBatch returns an empty batch.
func (c *Conn) NewBatch() *Batch {
	b := &Batch{c: c}
	if !c.ok() {
		b.err = syscall.EINVAL
	}
	return b
}

// Len returns the number of operations. A read or write of more bytes than one operation of the
// device may have, 8 MiB on soft-RoCE, is split, and each part counts.
func (b *Batch) Len() int { return len(b.ops) }

// Read adds a read to the batch, like [Conn.ReadRemote].
func (b *Batch) Read(to *Region, off int, from Remote) { b.transfer(udat.OpRDMARead, from, to, off) }

// Write adds a write to the batch, like [Conn.WriteRemote].
func (b *Batch) Write(to Remote, from *Region, off int) { b.transfer(udat.OpRDMAWrite, to, from, off) }

// FetchAdd adds an atomic to the batch, like [Conn.FetchAdd]. *old is valid when [Pending.Wait] or
// [Batch.Do] has returned nil.
func (b *Batch) FetchAdd(remote Remote, add uint64, old *uint64) {
	b.atomic(remoteOp{kind: udat.OpFetchAdd, remote: remote.t, add: add, old: old})
}

// CompareSwap adds an atomic to the batch, like [Conn.CompareSwap]. *old is valid when
// [Pending.Wait] or [Batch.Do] has returned nil.
func (b *Batch) CompareSwap(remote Remote, compare, swap uint64, old *uint64) {
	b.atomic(remoteOp{kind: udat.OpCmpSwap, remote: remote.t, add: compare, swap: swap, old: old})
}

func (b *Batch) transfer(kind udat.OpKind, remote Remote, r *Region, at int) {
	if b.err != nil {
		return
	}
	if err := r.check(b.c, at, remote.Len()); err != nil {
		b.err = err
		return
	}
	most := b.c.pool.adapter.maxRDMA
	for off := uint64(0); off < remote.Len(); off += most {
		part, _ := remote.Slice(off, min(remote.Len()-off, most))
		b.ops = append(b.ops, remoteOp{kind: kind, remote: part.t, region: r, at: at + int(off)})
	}
}

func (b *Batch) atomic(o remoteOp) {
	switch {
	case b.err != nil:
	case o.remote.SegmentLength != 8 || o.remote.TargetAddress%8 != 0:
		b.err = fmt.Errorf("an atomic of %d bytes at %#x, must be 8 at a multiple of 8: %w", o.remote.SegmentLength,
			o.remote.TargetAddress, syscall.EINVAL)
	case o.old == nil:
		b.err = fmt.Errorf("an atomic without a place for the old value: %w", syscall.EINVAL)
	default:
		b.err = b.c.pool.adapter.checkAtomics()
		b.ops = append(b.ops, o)
	}
}

// Do posts the operations and waits for them: it is [Batch.Start] followed by [Pending.Wait].
func (b *Batch) Do(ctx context.Context) error { return b.c.opError("batch", b.do(ctx)) }

func (b *Batch) do(ctx context.Context) error {
	p, err := b.start(ctx)
	if err != nil {
		return err
	}
	return p.wait()
}

// Start posts the operations and returns while they are in flight. The batch is then empty and may
// be used again. Start blocks while the connection has no room for more requests. A later Write or
// message reaches the peer after the bytes of the batch's writes.
//
// The device may access the memory until [Pending.Wait] has returned. If Wait is not called, it may
// do so until the connection has ended. Operations in flight cannot be taken back: when ctx ends or
// the connection is closed, they get 2 more seconds. If all end well by then, Wait returns nil.
// Otherwise the connection is broken. The deadlines of the connection do not apply. If Start
// returns an error, no operation is in flight any more. After an invalid operation none has been
// posted. If ctx or the connection ends while Start posts, some may have been executed.
func (b *Batch) Start(ctx context.Context) (*Pending, error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, b.c.opError("batch", err)
	}
	return p, nil
}

func (b *Batch) start(ctx context.Context) (*Pending, error) {
	ops, err := b.ops, b.err
	b.ops, b.err = nil, nil
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.useError(); err != nil {
		return nil, err
	}
	for i, o := range ops {
		if o.region == nil { // an atomic
			continue
		}
		if err := o.region.use(); err != nil {
			letGo(ops[:i])
			return nil, err
		}
	}
	p := &Pending{c: c, ops: ops}
	return p, p.start(ctx, p.post)
}

func letGo(ops []remoteOp) {
	for _, o := range ops {
		if o.region != nil {
			o.region.done()
		}
	}
}

// Pending is a started batch, whose operations are in flight. All methods are safe for concurrent
// use.
type Pending struct {
	c *Conn

	// Guarded by Conn.mu.
	ops     []remoteOp
	last    uint64 // value of outgoing.requests after the last post
	over    bool
	err     error       // error of the operations
	expired error       // set when the caller's time is over: the reason
	stop    func() bool // stops watching the context; nil: there is nothing to watch
	breaks  func() bool // stops the timer that breaks the connection; nil: no timer is set
}

// Wait waits until all operations have ended. The device no longer accesses the memory then. If
// Wait returns nil, all operations have succeeded. If it returns an error, the connection is
// broken, and any of the operations may have failed, because devices do not report which. Later
// calls return the same.
func (p *Pending) Wait() error { return p.c.opError("batch", p.wait()) }

func (p *Pending) wait() error {
	c := p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pin()
	defer c.unpin()
	p.await()
	return p.err
}

// start posts operations with the callback post. If it returns an error, no operation is in flight.
// mu is held.
func (p *Pending) start(ctx context.Context, post func() error) error {
	c := p.c
	c.pin() // for the duration of this call
	defer c.unpin()
	c.pin() // until the operations have ended
	p.watch(ctx)
	err := post()
	c.out.pending = append(c.out.pending, p)
	c.finish()
	if err != nil {
		p.await()
	}
	return err
}

// await waits until the operations have ended; mu is held.
func (p *Pending) await() {
	for !p.over {
		if err := p.c.useError(); err != nil {
			p.expire(err)
		}
		p.c.wait(&p.c.writable)
	}
}

// watch arranges a call of the method expire for the time when ctx ends; mu is held.
func (p *Pending) watch(ctx context.Context) {
	if ctx.Done() == nil {
		return
	}
	p.stop = context.AfterFunc(ctx, func() {
		p.c.mu.Lock()
		defer p.c.mu.Unlock()
		p.expire(ctx.Err())
	})
}

// expire records that the caller's time is over. It breaks the connection if the operations do not
// end within settleTime. mu is held.
func (p *Pending) expire(err error) {
	if p.over || p.expired != nil {
		return
	}
	p.expired = err
	p.breaks = p.c.afterFunc(settleTime, func() {
		if !p.over {
			p.c.fail(errDeadPeer)
		}
	})
	p.c.wake(&p.c.writable) // wakes post if it waits for room
}

// keptRequests is the number of places in the request queue that a batch leaves free for the
// stream. The stream needs 3 places to make progress.
const keptRequests = 5

// room waits until there is room for requests, and returns for how many. mu is held.
func (p *Pending) room() (int, error) {
	for {
		if err := cmp.Or(p.c.useError(), p.expired); err != nil {
			return 0, err
		}
		if n := p.c.freeRequests() - keptRequests; n > 0 {
			return n, nil
		}
		p.c.wait(&p.c.writable)
	}
}

// post posts all operations. It waits while there is no room for more requests. If it returns an
// error, operations may be in flight, and the caller must wait for them. mu is held.
func (p *Pending) post() error {
	c := p.c
	out := &c.out
	ops := make([]udat.Op, min(len(p.ops), requests-keptRequests))
	iov := make([][1]udat.LMRTriplet, len(ops))
	for left := p.ops; len(left) > 0; {
		n, err := p.room()
		if err != nil {
			return err
		}
		n = min(n, len(left))
		for i, o := range left[:n] {
			if o.region == nil {
				iov[i][0] = c.own.Triplet(sendPlace(out.requests), wordSize)
				out.words = append(out.words, word{out.requests, o.old})
			} else {
				iov[i][0] = o.region.lmr.Triplet(o.at, int(o.remote.SegmentLength))
			}
			ops[i] = udat.Op{
				Kind: o.kind, IOV: iov[i][:], Remote: o.remote, CompareAdd: o.add, Swap: o.swap,
				Cookie: udat.Cookie(out.requests), Flags: c.flags(i == n-1),
			}
			c.count()
		}
		if _, err := c.ep.PostBatch(ops[:n]); err != nil {
			c.fail(fmt.Errorf("%w: %w", syscall.ECONNRESET, err))
			return c.err
		}
		left, p.last = left[n:], out.requests
	}
	return nil
}

func (p *Pending) lastPosted() uint64 { return p.last }

// end marks the operations as ended and releases their regions; mu is held. The caller wakes the
// calls that wait.
func (p *Pending) end(err error) {
	if err != nil && p.expired != nil {
		err = fmt.Errorf("%w, and its operations have not ended: %w", p.expired, err)
	}
	p.over, p.err = true, err
	if p.stop != nil {
		p.stop()
	}
	if p.breaks != nil {
		p.breaks()
	}
	letGo(p.ops)
	p.ops = nil
	p.c.unpin()
}
