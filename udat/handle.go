package udat

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/godat/godat/udat/internal/lockrank"
)

var handleText = [...]string{"CR", "EP", "EVD", "IA", "LMR", "PSP", "PZ", "RMR", "RSP", "CNO", "SRQ"}

// String returns DAT's abbreviation of the kind, for example "EP" for DAT_HANDLE_TYPE_EP.
func (t HandleType) String() string {
	if uint(t) < uint(len(handleText)) {
		return handleText[t]
	}
	return "handle type " + strconv.FormatUint(uint64(t), 10)
}

// handleSubtype maps each kind of handle to the subtype of its InvalidHandle.
var handleSubtype = [handleKinds]Subtype{
	HandleCR: SubHandleCR, HandleEP: SubHandleEP, HandleEVD: SubNone, HandleIA: SubHandleIA, HandleLMR: SubHandleLMR,
	HandlePSP: SubHandlePSP, HandlePZ: SubHandlePZ, HandleRMR: SubHandleRMR, HandleRSP: SubHandleRSP,
	HandleCNO: SubHandleCNO, HandleSRQ: SubHandleSRQ,
}

// alive reports whether the object has been made and has not been freed. It returns false for nil.
func (o *object) alive() bool { return o != nil && o.live.Load() }

// check returns InvalidHandle if the object is nil, a zero value, or freed.
func (o *object) check(op string, kind HandleType) error {
	if o.alive() {
		return nil
	}
	return badHandle(op, kind, o)
}

func badHandle(op string, kind HandleType, o *object) *Error {
	what := "is nil"
	switch {
	case o != nil && o.ia == nil:
		what = "is a zero value: only this package's calls make one"
	case o != nil:
		what = "has been freed"
	}
	return fail(op, InvalidHandle, handleSubtype[kind], "the %s %s", kind, what)
}

// asRole sets the subtype of err to role, if err is an InvalidHandle error without a subtype. DAT
// has one such subtype for each role that a dispatcher can play in a call.
func asRole(err error, role Subtype) error {
	var e *Error
	if errors.As(err, &e) && e.Type == InvalidHandle && e.Subtype == SubNone {
		e.Subtype = role
	}
	return err
}

func liveObject(h Handle) *object {
	if h == nil {
		return nil
	}
	if o := h.object(); o.alive() {
		return o
	}
	return nil
}

// SetConsumerContext attaches a 64-bit value to a handle and replaces the previous one. The library
// does not use the value.
//
// Implements: dat_set_consumer_context.
func SetConsumerContext(h Handle, context uint64) error {
	o := liveObject(h)
	if o == nil {
		return fail("set_consumer_context", InvalidHandle, SubHandle1, "the handle is nil, zero or has been freed")
	}
	o.context.Store(context)
	return nil
}

// GetConsumerContext returns the value that SetConsumerContext attached, or 0 if there is none. For
// a freed object it returns InvalidHandle and also the value, because events that are dequeued
// later may still refer to the object.
//
// Implements: dat_get_consumer_context.
func GetConsumerContext(h Handle) (context uint64, err error) {
	if liveObject(h) == nil {
		err = fail("get_consumer_context", InvalidHandle, SubHandle1, "the handle is nil, zero or has been freed")
	}
	if h != nil && h.object() != nil {
		context = h.object().context.Load()
	}
	return context, err
}

// GetHandleType returns the kind of the object.
//
// Implements: dat_get_handle_type.
func GetHandleType(h Handle) (HandleType, error) {
	o := liveObject(h)
	if o == nil {
		return 0, fail("get_handle_type", InvalidHandle, SubHandle1, "the handle is nil, zero or has been freed")
	}
	return o.kind, nil
}

// adopt makes o a live object of the adapter, unless the adapter is closed. If prepare is not nil,
// adopt first calls prepare under ia.mu and returns its error, if any.
func (ia *IA) adopt(op string, o *object, h Handle, kind HandleType, prepare func() error) error {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	if ia.closed {
		return badHandle(op, HandleIA, &ia.obj)
	}
	if prepare != nil {
		if err := prepare(); err != nil {
			return err
		}
	}
	o.kind, o.ia = kind, ia
	o.live.Store(true)
	ia.objects[kind][o] = h
	return nil
}

// release ends the life of an object that is being freed. It returns InvalidHandle if the object is
// not alive. If the object is in use, it returns InvalidState with the subtype inUse. The parameter
// users is the word for the object's users in the text of this error.
func (o *object) release(op string, kind HandleType, inUse Subtype, users string) error {
	return o.releaseIf(op, kind, inUse, users, nil)
}

// releaseIf is like release, with one more check. If lastCheck is not nil, releaseIf calls
// lastCheck after the other checks, under ia.mu, and returns its error.
func (o *object) releaseIf(op string, kind HandleType, inUse Subtype, users string, lastCheck func() error) error {
	if err := o.check(op, kind); err != nil {
		return err
	}
	o.ia.mu.Lock()
	defer o.ia.mu.Unlock()
	if o.refs > 0 {
		return fail(op, InvalidState, inUse, "%d %s use it", o.refs, users)
	}
	if !o.live.Load() {
		return badHandle(op, kind, o)
	}
	if lastCheck != nil {
		if err := lastCheck(); err != nil {
			return err
		}
	}
	o.live.Store(false)
	delete(o.ia.objects[kind], o)
	return nil
}

// destroyEach destroys objects whose handles have been released. It destroys up to 16 at once,
// because the kernel may take long to end a connection.
func destroyEach(doomed []Handle) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(16, len(doomed)) {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(doomed); i = next.Add(1) - 1 {
				doomed[i].(interface{ destroy() }).destroy()
			}
		})
	}
	group.Wait()
}

// dispatchers returns all dispatchers to which completions can come: the Consumer's dispatchers,
// and ia.sink if it exists.
func (ia *IA) dispatchers() []*EVD {
	ia.mu.Lock()
	defer ia.mu.Unlock()
	var list []*EVD
	for _, h := range ia.objects[HandleEVD] {
		list = append(list, h.(*EVD))
	}
	if sink := ia.sink.Load(); sink != nil {
		list = append(list, sink)
	}
	return list
}

// use adds a reference to a live object. It returns InvalidHandle if the object is not alive.
func (o *object) use(op string, kind HandleType) error {
	if o == nil || o.ia == nil {
		return badHandle(op, kind, o)
	}
	o.ia.mu.Lock()
	defer o.ia.mu.Unlock()
	if !o.live.Load() {
		return badHandle(op, kind, o)
	}
	o.refs++
	return nil
}

// unuse drops a reference.
func (o *object) unuse() {
	if o == nil {
		return
	}
	o.ia.mu.Lock()
	o.refs--
	o.ia.mu.Unlock()
}

// uses is a list of references. Its method take adds a reference, and its method drop releases all
// of them.
type uses []*object

func (u *uses) take(op string, o *object, kind HandleType) error {
	if err := o.use(op, kind); err != nil {
		return err
	}
	*u = append(*u, o)
	return nil
}

func (u uses) drop() {
	for _, o := range u {
		o.unuse()
	}
}

// sameIA returns InvalidHandle if the object belongs to another adapter.
func sameIA(op string, ia *IA, o *object) error {
	if o.ia == ia {
		return nil
	}
	return fail(op, InvalidHandle, handleSubtype[o.kind], "the %s belongs to another adapter", o.kind)
}

func countOf(n int, kind HandleType) string {
	s := strconv.Itoa(n) + " " + kind.String()
	if n > 1 {
		s += "s"
	}
	return s
}

// The ranks of the package's locks. A goroutine that holds a lock may acquire only locks of higher
// ranks. docs/locks.md has the same table, and says what each lock guards. Tests with the build tag
// lockcheck panic if a goroutine breaks this rule.
type (
	rankCR           struct{}
	rankServicePoint struct{}
	rankModifying    struct{}
	rankBinding      struct{}
	rankEP           struct{}
	rankIA           struct{}
	rankRequests     struct{}
	rankRecvs        struct{}
	rankEVD          struct{}
	rankSRQ          struct{}
	rankRMR          struct{}
	rankLMR          struct{}
	rankWindows      struct{}
	rankCNO          struct{}
	rankPoller       struct{}
	rankFlusher      struct{}
	rankRegistry     struct{}
)

func (rankCR) Rank() (int, string)           { return 10, "CR.mu" }
func (rankServicePoint) Rank() (int, string) { return 20, "PSP.mu, RSP.mu" }
func (rankModifying) Rank() (int, string)    { return 30, "EP.modifying" }
func (rankBinding) Rank() (int, string)      { return 40, "RMR.posting" }
func (rankEP) Rank() (int, string)           { return 50, "EP.mu" }
func (rankIA) Rank() (int, string)           { return 60, "IA.mu" }
func (rankRequests) Rank() (int, string)     { return 70, "requestQueue.mu" }
func (rankRecvs) Rank() (int, string)        { return 80, "recvQueue.mu" }
func (rankEVD) Rank() (int, string)          { return 90, "EVD.mu" }
func (rankSRQ) Rank() (int, string)          { return 100, "SRQ.mu" }
func (rankRMR) Rank() (int, string)          { return 110, "RMR.mu" }
func (rankLMR) Rank() (int, string)          { return 120, "LMR.mu" }
func (rankWindows) Rank() (int, string)      { return 130, "windowTable.mu" }
func (rankCNO) Rank() (int, string)          { return 140, "CNO.mu" }
func (rankPoller) Rank() (int, string)       { return 145, "poller.mu" }
func (rankFlusher) Rank() (int, string)      { return 150, "flusher.mu" }
func (rankRegistry) Rank() (int, string)     { return 160, "providerRegistry.mu" }

type ranked[R lockrank.Rank] = lockrank.Mutex[R]
