package soft

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

// ledger holds the posted requests of one queue, oldest first. The device may complete the requests
// in any order. The method settle records each completion, and take returns the completions in the
// order in which the requests were posted.
type ledger struct {
	entries    []ledgerEntry // a ring, its length a power of two
	head, tail uint32
	limit      uint32
}

type ledgerEntry struct {
	wc       fabric.WC
	signaled bool // a success must be reported
	done     bool
}

func newLedger(limit uint32) *ledger {
	size := uint32(1)
	for size < limit {
		size *= 2
	}
	return &ledger{entries: make([]ledgerEntry, size), limit: limit}
}

func (l *ledger) at(i uint32) *ledgerEntry { return &l.entries[i&uint32(len(l.entries)-1)] }
func (l *ledger) room() int                { return int(l.limit - (l.tail - l.head)) }

func (l *ledger) add(id uint64, num uint32, signaled bool) {
	*l.at(l.tail) = ledgerEntry{wc: fabric.WC{ID: id, QPNum: num, Status: fabric.StatusFlush}, signaled: signaled}
	l.tail++
}

// settle records a completion of the device.
func (l *ledger) settle(wc *fabric.WC) {
	for i := l.head; i != l.tail; i++ {
		if e := l.at(i); e.wc.ID == wc.ID && !e.done {
			e.wc, e.done = *wc, true
			return
		}
	}
}

// take removes requests from the ledger, oldest first, and appends their completions to out. If the
// parameter all is false, take stops at the first request that is not done. If it is true, take
// removes all requests, and reports those that are not done as flushed.
func (l *ledger) take(out []fabric.WC, all bool) []fabric.WC {
	for ; l.head != l.tail; l.head++ {
		e := l.at(l.head)
		if !e.done && !all {
			break
		}
		if e.signaled || e.wc.Status != fabric.StatusSuccess {
			out = append(out, e.wc)
		}
	}
	return out
}

// account holds the ledgers of a queue pair's two queues.
type account struct {
	num      uint32
	scq, rcq *tally

	mu     sync.Mutex
	send   *ledger
	recv   *ledger // nil with a shared receive queue
	failed bool    // the queue pair is in error: nothing is posted to the device any more
	closed bool    // the queue pair is destroyed
	wrs    []fabric.SendWR
	recvs  []fabric.RecvWR
	sges   []fabric.SGE
}

var errAccountClosed = fmt.Errorf("%w: the queue pair", fabric.ErrClosed)

var errLedgerFull = fmt.Errorf("%w: as much is outstanding as the queue holds", fabric.ErrQueueFull)

func (a *account) postSend(v *cverbs.QP, wrs []fabric.SendWR, sges []fabric.SGE) (n int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, errAccountClosed
	}
	if n = min(len(wrs), a.send.room()); n < len(wrs) {
		err = errLedgerFull
	}
	for i := range wrs[:n] {
		if bad := checkSegments(i, wrs[i].FirstSGE, wrs[i].NumSGE, sges); bad != nil {
			n, err = i, bad
			break
		}
	}
	a.wrs, a.sges = a.wrs[:0], a.sges[:0]
	for _, w := range wrs[:n] {
		a.send.add(w.ID, a.num, w.Flags&fabric.Signaled != 0)
		a.wrs = append(a.wrs, a.runnable(w, sges))
	}
	if a.failed {
		a.scq.kick()
		return n, err
	}
	k, failure := v.PostSend(a.wrs, a.sges)
	if refused(failure) {
		a.send.tail -= uint32(n - k)
		return k, errmap.WrapPost(failure)
	}
	return n, err // any other failure: the connection has just ended, and the ledger flushes the rest
}

func (a *account) postRecv(v *cverbs.QP, wrs []fabric.RecvWR, sges []fabric.SGE) (n int, err error) {
	if a.recv == nil {
		return 0, errmap.Invalid("the queue pair takes its receives from a shared queue")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return 0, errAccountClosed
	}
	if n = min(len(wrs), a.recv.room()); n < len(wrs) {
		err = errLedgerFull
	}
	if i, bad := checkRecvs(wrs[:n], sges); bad != nil {
		n, err = i, bad
	}
	for _, w := range wrs[:n] {
		a.recv.add(w.ID, a.num, true)
	}
	if a.failed {
		a.rcq.kick()
		return n, err
	}
	a.recvs, a.sges = withSegments(a.recvs[:0], a.sges[:0], wrs[:n], sges)
	k, failure := v.PostRecv(a.recvs, a.sges)
	if refused(failure) {
		a.recv.tail -= uint32(n - k)
		return k, errmap.WrapPost(failure)
	}
	return n, err
}

// checkRecvs returns an error if a receive has segments outside sges, and the index of the first
// such receive.
func checkRecvs(wrs []fabric.RecvWR, sges []fabric.SGE) (int, error) {
	for i := range wrs {
		if err := checkSegments(i, wrs[i].FirstSGE, wrs[i].NumSGE, sges); err != nil {
			return i, err
		}
	}
	return len(wrs), nil
}

func checkSegments(i int, first, n uint32, sges []fabric.SGE) error {
	if uint64(first)+uint64(n) <= uint64(len(sges)) {
		return nil
	}
	return errmap.Invalid("request %d: segments %d to %d are not among the %d given", i, first, uint64(first)+uint64(n),
		len(sges))
}

// close makes later posts fail.
func (a *account) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.scq.remove(a)
	a.rcq.remove(a)
}

// A call of refused reports whether an error means that the device has not accepted the request.
func refused(err error) bool {
	return errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EINVAL) || errors.Is(err, cverbs.ErrClosed)
}

// runnable returns a request in a form that the device can execute. It appends the segments of that
// request to a.sges.
func (a *account) runnable(w fabric.SendWR, sges []fabric.SGE) fabric.SendWR {
	first := uint32(len(a.sges))
	a.sges = appendFull(a.sges, sges[w.FirstSGE:w.FirstSGE+w.NumSGE])
	if w.Opcode == fabric.OpRead {
		w.Flags &^= fabric.Fence // reads are executed one after the other anyway
		if len(a.sges) == int(first) {
			a.sges = append(a.sges, fabric.SGE{})
		}
	}
	w.FirstSGE, w.NumSGE = first, uint32(len(a.sges))-first
	if w.NumSGE == 0 {
		w.Flags &^= fabric.Inline
	}
	w.Flags |= fabric.Signaled
	return w
}

// appendFull appends the nonempty segments of sges to out.
func appendFull(out, sges []fabric.SGE) []fabric.SGE {
	for _, s := range sges {
		if s.Length > 0 {
			out = append(out, s)
		}
	}
	return out
}

// withSegments appends copies of some receives (the parameter from) to wrs, and their segments to
// out. A receive without bytes gets one empty segment.
func withSegments(wrs []fabric.RecvWR, out []fabric.SGE, from []fabric.RecvWR, sges []fabric.SGE) ([]fabric.RecvWR,
	[]fabric.SGE) {
	for _, w := range from {
		first := uint32(len(out))
		out = appendFull(out, sges[w.FirstSGE:w.FirstSGE+w.NumSGE])
		if len(out) == int(first) {
			out = append(out, fabric.SGE{})
		}
		wrs = append(wrs, fabric.RecvWR{ID: w.ID, FirstSGE: first, NumSGE: uint32(len(out)) - first})
	}
	return wrs, out
}

// fail makes the account record later requests in the ledgers only, and not pass them to the
// device. Then it calls toError, which moves the queue pair to ERR, so that the device flushes the
// requests that it has.
func (a *account) fail(toError func() error) error {
	a.mu.Lock()
	a.failed = true
	a.mu.Unlock()
	if err := toError(); err != nil {
		return err
	}
	a.scq.ended(a)
	if a.rcq != a.scq {
		a.rcq.ended(a)
	}
	return nil
}

// tally holds the accounts of the queue pairs that use a completion queue.
type tally struct {
	ch    *cverbs.CompChannel
	armed atomic.Bool
	fired atomic.Bool // Wait must report a notification that the device does not make

	mu       sync.Mutex // acquired before an account's lock
	accounts map[uint32]*account
	over     []*account // the accounts of queue pairs that the device has flushed
	raw      [32]fabric.WC
	out      []fabric.WC
	taken    int // completions of out that poll has returned
}

func newTally(ch *cverbs.CompChannel) *tally {
	return &tally{ch: ch, accounts: map[uint32]*account{}}
}

func (t *tally) add(a *account) {
	t.mu.Lock()
	t.accounts[a.num] = a
	t.mu.Unlock()
}

// remove forgets the account of a queue pair that has been destroyed. The device may have given the
// number to another queue pair by now.
func (t *tally) remove(a *account) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.accounts[a.num] == a {
		delete(t.accounts, a.num)
	}
	for i := range t.over {
		if t.over[i] == a {
			t.over = append(t.over[:i], t.over[i+1:]...)
			return
		}
	}
}

// A call of ended records that the device has finished flushing a queue pair.
func (t *tally) ended(a *account) {
	t.mu.Lock()
	if t.accounts[a.num] == a {
		t.over = append(t.over, a)
	}
	t.mu.Unlock()
	t.kick()
}

// If the queue is armed, kick notifies its waiter, as the device would.
func (t *tally) kick() {
	if t.armed.Swap(false) {
		t.fired.Store(true)
		t.ch.Wake()
	}
}

// poll polls the device and returns completions in posting order.
func (t *tally) poll(v *cverbs.CQ, wcs []fabric.WC) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var err error
	for len(t.out)-t.taken < len(wcs) {
		var n int
		n, err = v.Poll(t.raw[:])
		for i := range t.raw[:n] {
			t.settle(&t.raw[i])
		}
		if n < len(t.raw) { // the device has no more completions of the queue pairs in over
			for _, a := range t.over {
				t.flush(a)
			}
			break
		}
	}
	n := copy(wcs, t.out[t.taken:])
	if t.taken += n; t.taken == len(t.out) {
		t.out, t.taken = t.out[:0], 0
	}
	return n, errmap.Wrap(err)
}

func (t *tally) settle(wc *fabric.WC) {
	a := t.accounts[wc.QPNum]
	if a == nil { // of a destroyed queue pair; the completion may be that of a shared queue's receive
		t.out = append(t.out, *wc)
		return
	}
	a.mu.Lock()
	l := a.send
	if wc.Opcode >= fabric.OpWCRecv {
		l = a.recv
	}
	if l != nil {
		l.settle(wc)
		t.out = l.take(t.out, false)
	} else {
		t.out = append(t.out, *wc) // from a shared receive queue
	}
	a.mu.Unlock()
}

// flush completes all remaining requests of an account.
func (t *tally) flush(a *account) {
	a.mu.Lock()
	if a.scq == t {
		t.out = a.send.take(t.out, true)
	}
	if a.rcq == t && a.recv != nil {
		t.out = a.recv.take(t.out, true)
	}
	a.mu.Unlock()
}
