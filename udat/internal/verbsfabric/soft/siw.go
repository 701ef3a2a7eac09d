package soft

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// Soft-iWARP (siw) provides less than verbs promise:
//
//   - it never flushes requests posted in the error state;
//   - a send may complete before an RDMA read that was posted earlier;
//   - it refuses a receive without segments;
//   - an empty segment in a send, a read without a segment, and a fenced read stop the queue for
//     good;
//   - it has no queue of length 0;
//   - it cannot create a queue whose memory starts at page 144 of the memory that the process maps
//     from the device, because the device's library mistakes that offset for an error.
//
// The types below decorate the objects of such a device. Every request is posted signalled and in a
// form that the device can execute. The ledger of each queue returns completions in posting order,
// and flushes the requests that the device never completes.

// siwDevice decorates a device of soft-iWARP.
type siwDevice struct {
	Device
	filler *cverbs.CQ
}

// fillerDepth is the depth of the filler, a completion queue that is never used and has 1 MiB of
// memory. In the memory that the process maps from the device, the filler covers page 144.
const fillerDepth = 32 << 10

// NewSIW decorates a device of soft-iWARP. It creates the filler before any other queue, so that
// the filler covers page 144 and no queue starts there.
func NewSIW(d Device) (fabric.Device, error) {
	filler, err := d.Context().CreateCQ(fillerDepth, nil, 0)
	if err != nil {
		return nil, errmap.Wrap(errors.Join(err, d.Close()))
	}
	return siwDevice{d, filler}, nil
}

// Close closes the device. If the device is in use, it stays open, but loses its filler.
func (d siwDevice) Close() error {
	d.filler.Close()
	return d.Device.Close()
}

func (d siwDevice) AllocPD() (fabric.PD, error) {
	p, err := d.Device.AllocPD()
	if err != nil {
		return nil, err
	}
	return siwPD{p.(domain)}, nil
}

// siwPD creates shared receive queues that accept receives without segments.
type siwPD struct{ domain }

func (p siwPD) CreateSRQ(depth, maxSGE int) (fabric.SRQ, error) {
	s, err := p.domain.CreateSRQ(depth, maxSGE)
	if err != nil {
		return nil, err
	}
	q := &siwSRQ{sharedQueue: s.(sharedQueue)}
	q.Decorate(q)
	return q, nil
}

// siwCQ returns the completions of its queue pairs in posting order.
type siwCQ struct {
	queue
	tally *tally
}

func (d siwDevice) CreateCQ(depth int) (fabric.CQ, error) {
	c, err := d.Device.CreateCQ(depth)
	if err != nil {
		return nil, err
	}
	q := &siwCQ{queue: c.(queue)}
	q.tally = newTally(q.Channel())
	q.Decorate(q)
	return q, nil
}

func (q *siwCQ) Poll(wcs []fabric.WC, polls int) (int, error) { return q.tally.poll(q.Verbs(), wcs) }

func (q *siwCQ) Arm(solicitedOnly bool) error {
	q.tally.armed.Store(true)
	return q.queue.Arm(solicitedOnly)
}

func (q *siwCQ) Wait(deadline time.Time) (bool, error) {
	fired, err := q.queue.Wait(deadline)
	if q.tally.fired.Swap(false) && (err == nil || err == os.ErrDeadlineExceeded) {
		return true, nil
	}
	return fired, err
}

// siwQP has a ledger for each of its queues.
type siwQP struct {
	queuePair
	account *account
}

func (d siwDevice) CreateQP(init fabric.QPInit) (fabric.QP, error) {
	scq, ok := init.SendCQ.(*siwCQ)
	if !ok {
		return nil, errmap.Invalid("SendCQ is not of this device")
	}
	rcq, ok := init.RecvCQ.(*siwCQ)
	if !ok {
		return nil, errmap.Invalid("RecvCQ is not of this device")
	}
	for _, n := range []*int{&init.MaxSend, &init.MaxRecv, &init.MaxSendSGE, &init.MaxRecvSGE} {
		if *n == 0 {
			*n = 1
		}
	}
	v, err := d.Device.CreateQP(init)
	if err != nil {
		return nil, err
	}
	q := &siwQP{queuePair: v.(queuePair)}
	a := &account{num: q.Num(), scq: scq.tally, rcq: rcq.tally, send: newLedger(uint32(init.MaxSend))}
	if init.SRQ == nil {
		a.recv = newLedger(uint32(init.MaxRecv))
	}
	scq.tally.add(a)
	rcq.tally.add(a)
	q.account = a
	q.ReplaceToError(func() error { return a.fail(q.Verbs().ToError) })
	q.Decorate(q)
	return q, nil
}

func (q *siwQP) PostSend(wrs []fabric.SendWR, sges []fabric.SGE) (int, error) {
	if err := q.CanSend(); err != nil {
		return 0, err
	}
	return q.account.postSend(q.Verbs(), wrs, sges)
}

func (q *siwQP) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	return q.account.postRecv(q.Verbs(), wrs, sges)
}

func (q *siwQP) Close() error {
	if err := q.queuePair.Close(); err != nil {
		return err
	}
	q.account.close()
	return nil
}

// siwSRQ adds one empty segment to receives without bytes.
type siwSRQ struct {
	sharedQueue

	mu   sync.Mutex // guards the scratch space below
	wrs  []fabric.RecvWR
	sges []fabric.SGE
}

func (s *siwSRQ) PostRecv(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	if _, err := checkRecvs(wrs, sges); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrs, s.sges = withSegments(s.wrs[:0], s.sges[:0], wrs, sges)
	return s.sharedQueue.PostRecv(s.wrs, s.sges)
}
