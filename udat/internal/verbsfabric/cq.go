package verbsfabric

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/godat/godat/cverbs"
	"github.com/godat/godat/udat/internal/fabric"
	"github.com/godat/godat/udat/internal/verbsfabric/errmap"
)

// cq is a completion queue with its own completion channel.
type cq struct {
	dev *device
	v   *cverbs.CQ
	ch  *cverbs.CompChannel
	as  fabric.CQ // the queue as its owner knows it: itself, or its decorator
}

// Own returns q, even if it is called on a decorator of q.
func (q *cq) Own() any { return q }

func (q *cq) Verbs() *cverbs.CQ            { return q.v }
func (q *cq) Channel() *cverbs.CompChannel { return q.ch }

// Decorate makes asynchronous events refer to the decorator, which embeds the queue.
func (q *cq) Decorate(decorator fabric.CQ) {
	q.dev.mu.Lock()
	q.as = decorator
	q.dev.mu.Unlock()
}

// If the device cannot resize completion queues, CreateCQ makes them larger than requested, so that
// more queue pairs can use them later. It multiplies the depth by fixedFactor, and makes at least
// fixedMinimum entries.
const (
	fixedFactor  = 4
	fixedMinimum = 4096
)

func (d *device) CreateCQ(depth int) (fabric.CQ, error) {
	if err := d.checkDepth(depth); err != nil {
		return nil, err
	}
	resizes, err := d.resizes()
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	ch, err := d.ctx.CreateCompChannel()
	if err != nil {
		return nil, errmap.Wrap(err)
	}
	if !resizes {
		depth = min(max(fixedFactor*depth, fixedMinimum), d.attrs.MaxCQE)
	}
	// The queues use the device's interrupt vectors in turn.
	vector := int(d.nextVector.Add(1)-1) % max(d.ctx.NumCompVectors(), 1)
	v, err := d.ctx.CreateCQ(depth, ch, vector)
	if err != nil {
		return nil, errmap.Wrap(errors.Join(err, ch.Close()))
	}
	q := &cq{dev: d, v: v, ch: ch}
	q.as = q
	remember(d, &d.cqs, v, q)
	return q, nil
}

func (d *device) checkDepth(depth int) error {
	if depth < 1 || depth > d.attrs.MaxCQE {
		return errmap.Invalid("depth is %d, a completion queue of this device has 1 to %d entries", depth, d.attrs.MaxCQE)
	}
	return nil
}

func (q *cq) Poll(wcs []fabric.WC, polls int) (int, error) {
	n, err := q.v.PollSpin(wcs, max(polls, 1))
	if err != nil {
		return n, errmap.Wrap(err)
	}
	return n, nil
}

// Arm requests one notification. A device without solicited arming notifies for every completion.
func (q *cq) Arm(solicitedOnly bool) error {
	return errmap.Wrap(q.v.Arm(solicitedOnly && q.dev.attrs.SolicitedArm))
}

func (q *cq) Wait(deadline time.Time) (bool, error) {
	n, err := q.ch.Wait(deadline)
	if err == os.ErrDeadlineExceeded {
		return false, err
	}
	return n > 0, errmap.Wrap(err)
}

func (q *cq) Wake() { q.ch.Wake() }

// Resize can grow the queue. It never shrinks the queue, because not every device can.
func (q *cq) Resize(depth int) error {
	if err := q.dev.checkDepth(depth); err != nil {
		return err
	}
	if depth <= q.v.Depth() {
		return nil
	}
	err := errmap.Wrap(q.v.Resize(depth))
	if errors.Is(err, fabric.ErrInvalid) || errors.Is(err, syscall.EPERM) { // some drivers refuse like this
		return fmt.Errorf("%w: %w", fabric.ErrNotSupported, err)
	}
	return err
}

// A call of resizes reports whether the device can resize a completion queue. The first call finds
// out by resizing a queue, d.probe; any error means that it cannot.
func (d *device) resizes() (bool, error) {
	d.probing.Lock()
	defer d.probing.Unlock()
	if d.probe == nil {
		v, err := d.ctx.CreateCQ(1, nil, 0)
		if err != nil {
			return false, err
		}
		d.probe, d.canResize = v, v.Resize(2*v.Depth()) == nil
	}
	return d.canResize, d.closeProbe()
}

func (q *cq) Depth() int { return q.v.Depth() }

// Close returns ErrInUse while queue pairs use the queue. It makes a pending Wait return ErrClosed.
func (q *cq) Close() error {
	if err := q.v.Close(); err != nil {
		return errmap.Wrap(err)
	}
	forget(q.dev, q.dev.cqs, q.v)
	err := q.ch.Close()
	return errmap.Wrap(err)
}
