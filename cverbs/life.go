//go:build linux && cgo

package cverbs

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// kind is an object's type, for errors and leak counts.
type kind uint8

const (
	kindContext kind = iota
	kindPD
	kindTD
	kindMR
	kindMW
	kindCompChannel
	kindCQ
	kindSRQ
	kindQP
	kindAH
	kindEventChannel
	kindCMID
	kindDM
	kindXRCD
	kindWQ
	kindIndTable
	kindFlow
	kindCounters
	numKinds
)

var kindNames = [numKinds]string{"Context", "PD", "TD", "MR", "MW", "CompChannel", "CQ", "SRQ", "QP", "AH",
	"EventChannel", "CMID", "DM", "XRCD", "WQ", "IndTable", "Flow", "Counters"}

var live [numKinds]atomic.Int64

// Live returns the number of open objects by kind ("QP", "MR", ...), for leak checks in tests.
// Contexts that librdmacm owns are not counted.
//
// Extension.
func Live() map[string]int {
	m := map[string]int{}
	for k := range live {
		if n := live[k].Load(); n != 0 {
			m[kindNames[k]] = int(n)
		}
	}
	return m
}

// The map traced contains the open objects that were opened while TraceLive was on. The value of an
// object is the stack trace of its opening.
var (
	tracing atomic.Bool
	traced  sync.Map // *life to string
)

// TraceLive turns the recording of stacks on or off. When it is on, the opening of each object
// records a stack trace for LiveStacks.
//
// Extension.
func TraceLive(on bool) { tracing.Store(on) }

// LiveStacks returns a text for every object that was opened while TraceLive was on and is still
// open: the object's kind, and the stack trace of its opening.
//
// Extension.
func LiveStacks() []string {
	var all []string
	traced.Range(func(l, stack any) bool {
		all = append(all, kindNames[l.(*life).kind]+" opened by\n"+stack.(string))
		return true
	})
	return all
}

// life decides when a C object may be destroyed. It counts the calls in flight on the object, and
// the children of the object, which are the objects that use it.
//
// A call runs between enter and leave, which cost one atomic addition each. An object references
// its parents from the call of begin to the end of close. A referenced parent cannot be closed. The
// zero value is closed. Data path calls use a gate instead of enter and leave.
type life struct {
	state   atomic.Int64  // openBit while open, plus the number of calls in flight
	idle    chan struct{} // gets a value when the last call leaves a closed object
	kind    kind
	closes  sync.Mutex // held by one close at a time, until it returns
	mu      sync.Mutex // guards kids, and makes hold and close exclude each other
	kids    [numKinds]int32
	parents []*life
}

const openBit = 1 << 62

// orZero replaces a nil receiver by a closed object.
func orZero[T any](p *T) *T {
	if p == nil {
		return new(T)
	}
	return p
}

// enter reports whether the object is open. If it is, the caller must call leave.
func (l *life) enter() bool {
	if l.state.Add(1) < openBit {
		l.leave()
		return false
	}
	return true
}

func (l *life) leave() {
	if l.state.Add(-1) == 0 && l.idle != nil {
		select {
		case l.idle <- struct{}{}:
		default:
		}
	}
}

// begin references the parents of an object that is about to be created. If begin succeeds, the
// caller must call open or abort.
func (l *life) begin(k kind, parents ...*life) error {
	l.kind, l.idle = k, make(chan struct{}, 1)
	for i, p := range parents {
		if err := p.hold(k); err != nil {
			for _, q := range parents[:i] {
				q.drop(k)
			}
			return err
		}
	}
	l.parents = parents
	return nil
}

func (l *life) open() {
	live[l.kind].Add(1)
	if tracing.Load() {
		buf := make([]byte, 8<<10)
		traced.Store(l, string(buf[:runtime.Stack(buf, false)]))
	}
	l.state.Add(openBit)
}

func (l *life) abort() {
	for _, p := range l.parents {
		p.drop(l.kind)
	}
}

// made begins owner, whose life is l, and calls create for its C object. It stores that object in c
// and opens owner. If create returns nil with an errno, it aborts owner.
func made[O, T any](owner *O, l *life, k kind, verb string, c **T, create func() (*T, error), parents ...*life) (*O,
	error) {
	if err := l.begin(k, parents...); err != nil {
		return nil, err
	}
	v, err := create()
	if v == nil {
		l.abort()
		return nil, &Error{Verb: verb, Errno: errnoOf(err)}
	}
	*c = v
	l.open()
	return owner, nil
}

func (l *life) hold(k kind) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() < openBit {
		return fmt.Errorf("%w: the %s", ErrClosed, kindNames[l.kind])
	}
	l.kids[k]++
	return nil
}

func (l *life) drop(k kind) {
	l.mu.Lock()
	l.kids[k]--
	l.mu.Unlock()
}

// children counts the objects of a kind that reference this one.
func (l *life) children(k kind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return int(l.kids[k])
}

// swapParent replaces a parent by another one. The caller has already called to.hold.
func (l *life) swapParent(from, to *life) {
	for i, p := range l.parents {
		if p == from {
			l.parents[i] = to
		}
	}
	from.drop(l.kind)
}

// close returns ErrInUse while children reference the object. Otherwise it makes new calls fail,
// calls the callback interrupt (unless nil) to end blocked waits, waits until all calls have left,
// and calls the callback destroy. If destroy fails and interrupt is nil, the object is open again.
// Another close that has waited for this one then tries to destroy the object, too.
func (l *life) close(interrupt func(), destroy func() error) error {
	l.closes.Lock()
	defer l.closes.Unlock()
	l.mu.Lock()
	if l.state.Load() < openBit {
		l.mu.Unlock()
		return ErrClosed
	}
	if err := l.usedBy(); err != nil {
		l.mu.Unlock()
		return err
	}
	calls := l.state.Add(-openBit)
	l.mu.Unlock()

	if calls != 0 || interrupt != nil {
		if interrupt != nil {
			interrupt()
		}
		for l.state.Load() != 0 {
			<-l.idle
		}
	}
	err := destroy()
	if err != nil && interrupt == nil {
		l.state.Add(openBit)
		return err
	}
	live[l.kind].Add(-1)
	traced.Delete(l)
	for _, p := range l.parents {
		p.drop(l.kind)
	}
	return err
}

// usedBy returns an error that names the children, or nil if there are none. The caller holds l.mu.
func (l *life) usedBy() error {
	var users []string
	for k, n := range l.kids {
		if n > 0 {
			users = append(users, fmt.Sprintf("%d %s", n, kindNames[k]))
		}
	}
	if users == nil {
		return nil
	}
	return fmt.Errorf("cverbs: close %s: %w by %s", kindNames[l.kind], ErrInUse, strings.Join(users, ", "))
}

// serial is part of a queue. If the field on is true, the driver does not lock the queue, and the
// race detector finds calls that the program does not serialize. Without the race detector, the
// method use does nothing.
type serial struct {
	on   bool
	uses int
}

func (s *serial) use() {
	if raceEnabled && s.on {
		s.uses++
	}
}

// handles maps handles to objects. A handle is the integer that C stores as the context of an
// object. A handle is never reused.
type handles[T any] struct {
	mu   sync.RWMutex
	next uintptr
	m    map[uintptr]*T
}

func (h *handles[T]) add(p *T) uintptr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.m == nil {
		h.m = map[uintptr]*T{}
	}
	h.next++
	h.m[h.next] = p
	return h.next
}

func (h *handles[T]) get(n uintptr) *T {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.m[n]
}

func (h *handles[T]) remove(n uintptr) {
	h.mu.Lock()
	delete(h.m, n)
	h.mu.Unlock()
}

// byHandle finds objects by the handles in events from C.
var byHandle struct {
	cqs  handles[CQ]
	srqs handles[SRQ]
	qps  handles[QP]
	ids  handles[CMID]
	wqs  handles[WQ]
}
