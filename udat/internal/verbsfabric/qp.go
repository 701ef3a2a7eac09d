package verbsfabric

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// minRNRTimer is the code of the time that a sender waits after "receiver not ready" before it
// retries. 12 means 0.64 ms. rdma_cm would choose 655 ms, which is too long if the receiver posts
// its receive only a moment too late.
const minRNRTimer = 12

// qpPhase is the progress of a queue pair.
type qpPhase uint8

const (
	qpIdle      qpPhase = iota // INIT
	qpClaimed                  // INIT, and a connection attempt is under way
	qpConnected                // RTR or RTS
	qpError
	qpClosed
)

// qp is a reliable connected queue pair.
type qp struct {
	dev      *device
	v        *cverbs.QP
	canSend  atomic.Bool            // RTS or ERR
	failed   atomic.Bool            // the queue pair has been moved to ERR
	dataCame atomic.Pointer[func()] // the argument of Claim; nil: none
	lastWQE  atomic.Bool            // the device has reported that in ERR no receive of the SRQ is left to complete
	toError  func() error           // moves the queue pair to ERR
	as       fabric.QP              // the queue pair as its owner knows it: itself, or its decorator

	mu    sync.Mutex // held during changes of state; a connection's lock may be held already
	phase qpPhase
}

func (d *device) CreateQP(init fabric.QPInit) (fabric.QP, error) {
	domain, ok := own[*pd](init.PD)
	if !ok || domain.dev != d {
		return nil, errmap.Invalid("PD is not of this device")
	}
	scq, ok := own[*cq](init.SendCQ)
	if !ok || scq.dev != d {
		return nil, errmap.Invalid("SendCQ is not of this device")
	}
	rcq, ok := own[*cq](init.RecvCQ)
	if !ok || rcq.dev != d {
		return nil, errmap.Invalid("RecvCQ is not of this device")
	}
	vi := cverbs.QPInit{Type: cverbs.QPTypeRC, SendCQ: scq.v, RecvCQ: rcq.v}
	if init.SRQ != nil {
		s, ok := own[*srq](init.SRQ)
		if !ok || s.dev != d {
			return nil, errmap.Invalid("SRQ is not of this device")
		}
		vi.SRQ = s.v
	}
	for _, c := range []struct {
		name     string
		n, limit int
	}{
		{"MaxSend", init.MaxSend, d.attrs.MaxQPWR},
		{"MaxRecv", init.MaxRecv, d.attrs.MaxQPWR},
		{"MaxSendSGE", init.MaxSendSGE, d.attrs.MaxSGE},
		{"MaxRecvSGE", init.MaxRecvSGE, d.attrs.MaxSGE},
	} {
		if c.n < 0 || c.n > c.limit {
			return nil, errmap.Invalid("%s is %d, a queue pair of this device has 0 to %d", c.name, c.n, c.limit)
		}
	}
	if init.MaxInline < 0 {
		return nil, errmap.Invalid("MaxInline is %d", init.MaxInline)
	}
	vi.Cap = cverbs.QPCap{
		MaxSendWR: uint32(init.MaxSend), MaxRecvWR: uint32(init.MaxRecv),
		MaxSendSGE: uint32(init.MaxSendSGE), MaxRecvSGE: uint32(init.MaxRecvSGE),
		MaxInline: uint32(min(init.MaxInline, cverbs.DefaultMaxInline)),
	}
	v, err := createInline(domain.v, vi)
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	if err := v.ToInit(d.num, d.access); err != nil {
		return nil, errmap.Wrap(errors.Join(err, v.Close()))
	}
	q := &qp{dev: d, v: v, toError: v.ToError}
	q.as = q
	remember(d, &d.qps, v, q)
	return q, nil
}

// createInline creates a queue pair. It halves the inline size until the device accepts it, because
// no attribute reports the limit.
func createInline(pd *cverbs.PD, init cverbs.QPInit) (*cverbs.QP, error) {
	for {
		v, err := pd.CreateQP(init)
		if init.Cap.MaxInline == 0 || !errors.Is(err, syscall.EINVAL) {
			return v, err
		}
		init.Cap.MaxInline /= 2
	}
}

// Own returns q, even if it is called on a decorator of q.
func (q *qp) Own() any { return q }

func (q *qp) owner() *device    { return q.dev }
func (q *qp) Verbs() *cverbs.QP { return q.v }

// ReplaceToError sets the function that moves the queue pair to ERR.
func (q *qp) ReplaceToError(move func() error) { q.toError = move }

// Decorate makes asynchronous events refer to the decorator, which embeds the queue pair.
func (q *qp) Decorate(decorator fabric.QP) {
	q.dev.mu.Lock()
	q.as = decorator
	q.dev.mu.Unlock()
}

func (q *qp) Num() uint32    { return q.v.Num() }
func (q *qp) MaxInline() int { return int(q.v.Cap().MaxInline) }

func (q *qp) Path() (fabric.Path, error) {
	attr, err := q.v.Query()
	if err != nil {
		return fabric.Path{}, errmap.Wrap(err)
	}
	return attr.Path(), nil
}

func (q *qp) PostSend(wrs []fabric.SendWR, sges []fabric.SGE) (int, error) {
	if !q.canSend.Load() {
		if err := q.CanSend(); err != nil {
			return 0, err
		}
	}
	n, err := q.v.PostSend(wrs, sges)
	q.flushPosted()
	if err != nil {
		return n, errmap.WrapPost(err)
	}
	return n, nil
}

func (q *qp) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	n, err := q.v.PostRecv(wrs, sges)
	q.flushPosted()
	if err != nil {
		return n, errmap.WrapPost(err)
	}
	return n, nil
}

// flushPosted makes soft-RoCE flush what has been posted in ERR, by another move to ERR. Without
// this move some requests would never complete: the library of soft-RoCE posts receives without
// notifying the kernel's driver, and once the queue has wrapped around, the driver forgets all but
// the first request of a batch.
func (q *qp) flushPosted() {
	if q.failed.Load() {
		q.v.ToError()
	}
}

func (q *qp) Bind(w fabric.MW, wr fabric.BindWR) (uint32, error) {
	win, ok := w.(*mw)
	if !ok || win.pd.dev != q.dev {
		return 0, errmap.Invalid("the window is not of this device")
	}
	region, ok := wr.MR.(*mr)
	if !ok && wr.MR != nil || ok && region.dev != q.dev {
		return 0, errmap.Invalid("MR is not of this device")
	}
	if !ok && wr.Length > 0 {
		return 0, errmap.Invalid("MR is missing")
	}
	if err := q.CanSend(); err != nil {
		return 0, err
	}
	b := cverbs.BindWR{
		ID: wr.ID, Flags: wr.Flags, Addr: wr.Addr, Length: wr.Length, Access: wr.Access,
	}
	if ok {
		b.MR = region.v
	}
	if wr.Length == 0 { // drivers read a key even for an unbind, but the region may be missing or closed
		b.MR, b.Addr, b.Access = win.unbound, win.unbound.Addr(), 0
	}
	rkey, err := q.v.BindMW(win.v, b)
	q.flushPosted()
	if err != nil {
		return 0, errmap.WrapPost(err)
	}
	win.rkey.Store(rkey)
	return rkey, nil
}

// CanSend returns an error unless the queue pair is in RTS or ERR: in INIT some devices would
// accept a send and never execute it.
func (q *qp) CanSend() error {
	if q.canSend.Load() {
		return nil
	}
	if _, err := q.v.State(); errors.Is(err, cverbs.ErrClosed) {
		return errmap.Wrap(err)
	}
	return fmt.Errorf("%w: it is not connected", fabric.ErrQPState)
}

func (q *qp) SetError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.setError()
}

func (q *qp) setError() error {
	if q.phase == qpClosed {
		return fmt.Errorf("%w: the queue pair", fabric.ErrClosed)
	}
	q.failed.Store(true) // set before the move: a receive that is posted meanwhile is flushed by toError or by flushPosted
	if err := q.toError(); err != nil {
		return errmap.Wrap(err)
	}
	q.phase = qpError
	q.canSend.Store(true)
	return nil
}

// Close destroys the queue pair. A pending attempt to connect the queue pair then fails. A
// connection that is established can still be disconnected and closed, but can do nothing else.
func (q *qp) Close() error {
	if err := q.v.Close(); err != nil {
		return errmap.Wrap(err)
	}
	q.mu.Lock()
	q.phase = qpClosed
	q.mu.Unlock()
	forget(q.dev, q.dev.qps, q.v)
	return nil
}

// Claim reserves the queue pair for a connection attempt. dataCame is called when data comes before
// the connection is established.
func (q *qp) Claim(dataCame func()) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.phase {
	case qpIdle:
	case qpClosed:
		return fmt.Errorf("%w: the queue pair", fabric.ErrClosed)
	default:
		return fmt.Errorf("%w: it is connected, connecting or in error", fabric.ErrQPState)
	}
	q.phase = qpClaimed
	q.dataCame.Store(&dataCame)
	return nil
}

// Unclaim ends the claim of an attempt whose queue pair is still in INIT.
func (q *qp) Unclaim() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase == qpClaimed {
		q.phase = qpIdle
	}
	q.dataCame.Store(nil)
}

// Connect moves the queue pair through RTR to RTS with the path of id. It also reports whether the
// queue pair has left INIT, which may be so even after an error.
func (q *qp) Connect(id *cverbs.CMID, in, out uint8) (moved bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase != qpClaimed {
		return false, fmt.Errorf("%w: it was closed or moved to error", fabric.ErrQPState)
	}
	if q.dev.iwarp {
		return false, nil // the driver moves the queue pair, when the TCP connection is made
	}
	for _, state := range []cverbs.QPState{cverbs.QPStateInit, cverbs.QPStateRTR, cverbs.QPStateRTS} {
		attr, mask, err := id.InitQPAttr(state)
		if err != nil {
			return moved, err
		}
		attr.State = state
		mask |= cverbs.QPAttrState
		switch state {
		case cverbs.QPStateInit:
			attr.AccessFlags = q.dev.access
			mask |= cverbs.QPAttrAccessFlags
		case cverbs.QPStateRTR:
			attr.MaxDestRDAtomic = in
			attr.MinRNRTimer = minRNRTimer
		case cverbs.QPStateRTS:
			attr.MaxRDAtomic = out
			attr.RetryCnt = q.dev.opts.Retry
			attr.RNRRetry = q.dev.opts.RNRRetry
		}
		q.dev.opts.Path.Apply(&attr, mask)
		if err := q.v.Modify(attr, mask); err != nil {
			return moved, err
		}
		if state == cverbs.QPStateRTR {
			moved = true
			q.phase = qpConnected
		}
	}
	q.canSend.Store(true)
	return true, nil
}

// Connected is called when an iWARP driver has moved the queue pair to RTS. It records this.
func (q *qp) Connected() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.phase == qpClaimed {
		q.phase = qpConnected
		q.canSend.Store(true)
	}
}

// Taken returns -1, because verbs does not report the number. Once the device has reported that the
// last receive has completed, Taken returns 0.
func (q *qp) Taken() int {
	if q.lastWQE.Load() {
		return 0
	}
	return -1
}

// SetTakenLimits returns ErrNotSupported, because verbs has no such limits.
func (q *qp) SetTakenLimits(int, int) error {
	return fmt.Errorf("%w: limits of receives taken", fabric.ErrNotSupported)
}
