//go:build dat2

package main

// #include "shim.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"syscall"
	"time"
	"unsafe"

	"github.com/godat/godat/udat"
)

//export godat_evd_create
func godat_evd_create(h C.DAT_IA_HANDLE, qlen C.DAT_COUNT, cno C.DAT_CNO_HANDLE, flags C.DAT_EVD_FLAGS,
	out *C.DAT_EVD_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	notify, ok := optional[*udat.CNO](cno)
	if !ok {
		return badHandle(udat.SubHandleCNO)
	}
	streams := udat.EVDFlags(flags) &^ C.DAT_IB_EVD_EXTENSION_FLAG
	made, ret := create(e.ia, (*C.DAT_HANDLE)(out), 5, func() (*udat.EVD, error) {
		return opened.CreateEVD(int(qlen), streams, notify)
	})
	if made != nil {
		made.rawPoll = streams&(udat.EVDDTO|udat.EVDRMRBind) != 0
		made.extension = flags & C.DAT_IB_EVD_EXTENSION_FLAG
	}
	return ret
}

//export godat_evd_query
func godat_evd_query(h C.DAT_EVD_HANDLE, mask C.DAT_EVD_PARAM_MASK, out *C.DAT_EVD_PARAM) C.DAT_RETURN {
	p, e, ret := query(h, udat.SubNone, mask&^C.DAT_EVD_FIELD_ALL == 0, out != nil, (*udat.EVD).Query)
	if ret != C.DAT_SUCCESS {
		return ret
	}
	*out = C.DAT_EVD_PARAM{ia_handle: handleOf(p.IA), evd_qlen: count(p.QLen), evd_state: C.DAT_EVD_STATE(p.State),
		cno_handle: handleOf(p.CNO), evd_flags: C.DAT_EVD_FLAGS(p.Streams) | e.extension}
	return C.DAT_SUCCESS
}

//export godat_evd_modify_cno
func godat_evd_modify_cno(h C.DAT_EVD_HANDLE, cno C.DAT_CNO_HANDLE) C.DAT_RETURN {
	evd, e := find[*udat.EVD](h)
	notify, ok := optional[*udat.CNO](cno)
	switch {
	case e == nil:
		return badHandle(udat.SubHandle1)
	case !ok:
		return badHandle(udat.SubHandleCNO)
	}
	return code(evd.ModifyCNO(notify))
}

func onEVD(h C.DAT_EVD_HANDLE, call func(*udat.EVD) error) C.DAT_RETURN {
	return callOn(h, udat.SubHandle1, call)
}

//export godat_evd_enable
func godat_evd_enable(h C.DAT_EVD_HANDLE) C.DAT_RETURN { return onEVD(h, (*udat.EVD).Enable) }

//export godat_evd_disable
func godat_evd_disable(h C.DAT_EVD_HANDLE) C.DAT_RETURN { return onEVD(h, (*udat.EVD).Disable) }

//export godat_evd_set_unwaitable
func godat_evd_set_unwaitable(h C.DAT_EVD_HANDLE) C.DAT_RETURN {
	return onEVD(h, (*udat.EVD).SetUnwaitable)
}

//export godat_evd_clear_unwaitable
func godat_evd_clear_unwaitable(h C.DAT_EVD_HANDLE) C.DAT_RETURN {
	return onEVD(h, (*udat.EVD).ClearUnwaitable)
}

//export godat_evd_resize
func godat_evd_resize(h C.DAT_EVD_HANDLE, qlen C.DAT_COUNT) C.DAT_RETURN {
	return onEVD(h, func(evd *udat.EVD) error { return evd.Resize(int(qlen)) })
}

//export godat_evd_post_se
func godat_evd_post_se(h C.DAT_EVD_HANDLE, pointer C.uintptr_t) C.DAT_RETURN {
	return onEVD(h, func(evd *udat.EVD) error {
		return evd.PostSE(udat.Event{Number: udat.EventSoftware, Software: uint64(pointer)})
	})
}

//export godat_evd_free
func godat_evd_free(h C.DAT_EVD_HANDLE) C.DAT_RETURN { return free[*udat.EVD](h, udat.SubHandle1) }

//export godat_evd_dequeue
func godat_evd_dequeue(h C.DAT_EVD_HANDLE, out *C.godat_event) C.DAT_RETURN {
	evd, e := find[*udat.EVD](h)
	if e == nil {
		return badHandle(udat.SubHandle1)
	}
	if e.untaken.Load() != nil && e.takeUntaken(out) {
		return C.DAT_SUCCESS
	}
	ev, err := evd.Dequeue()
	if err != nil {
		return e.dequeueCode(err)
	}
	e.put(out, &ev)
	return C.DAT_SUCCESS
}

// takeUntaken delivers an event that was dequeued for a thread which was then cancelled. It writes
// the event to out. It returns false if there is no such event.
func (e *entry) takeUntaken(out *C.godat_event) bool {
	w := e.untaken.Swap(nil)
	if w != nil {
		e.put(out, &w.event)
	}
	return w != nil
}

// dequeueCode converts the error of a dequeue to a DAT_RETURN. If a dispatcher of completions is
// empty, C DAPL returns QUEUE_EMPTY without the bit of the error class, and programs compare it
// with == DAT_QUEUE_EMPTY.
func (e *entry) dequeueCode(err error) C.DAT_RETURN {
	if ret := code(err); !e.rawPoll || ret != C.DAT_CLASS_ERROR|C.DAT_QUEUE_EMPTY {
		return ret
	}
	return C.DAT_QUEUE_EMPTY
}

var extensions = map[udat.DTOOperation]C.int32_t{
	udat.DTORDMAWriteImm:    C.DAT_IB_RDMA_WRITE_IMMED,
	udat.DTOReceiveWriteImm: C.DAT_IB_RDMA_WRITE_IMMED_DATA,
	udat.DTOReceiveImm:      C.DAT_IB_RECV_IMMED_DATA,
	udat.DTOFetchAdd:        C.DAT_IB_FETCH_AND_ADD,
	udat.DTOCmpSwap:         C.DAT_IB_CMP_AND_SWAP,
}

// eventOfStream masks the bits of an event number that distinguish the events of one event stream.
const eventOfStream = 0xFFF

// put writes an event of the dispatcher e.
func (e *entry) put(out *C.godat_event, ev *udat.Event) {
	*out = C.godat_event{number: C.DAT_EVENT_NUMBER(ev.Number), evd: C.DAT_HANDLE(e.c), cookie: C.uint64_t(ev.Cookie),
		status: C.uint32_t(ev.Status), extension: -1}
	switch {
	case ev.Number == udat.EventDTOCompletion:
		out.object = handleOf(ev.EP)
		out.length = C.uint32_t(ev.Length)
		out.operation = C.uint32_t(ev.Operation)
		out.rmr_context = C.uint32_t(ev.RMRContext)
		if ev.Operation > udat.DTOBind {
			if extension, ok := extensions[ev.Operation]; ok {
				out.extension, out.immediate = extension, C.uint32_t(ev.Immediate)
			}
		}
	case ev.Number == udat.EventRMRBindCompletion:
		out.object = handleOf(ev.RMR)
	case ev.Number == udat.EventConnectionRequest:
		out.object = e.ia.requestPoint(ev, e)
		out.qual = C.DAT_CONN_QUAL(ev.ConnQual())
		if cr := e.ia.newHandle(ev.CR); cr != nil {
			out.cr = C.DAT_HANDLE(cr.c)
			putAddr(&cr.c.local, ev.LocalAddr(), 0)
			out.address = unsafe.Pointer(&cr.c.local)
		}
	case ev.Number&^eventOfStream == udat.EventConnectionEstablished&^eventOfStream:
		out.object = handleOf(ev.EP)
		if c := (*C.godat_handle)(out.object); c != nil {
			out.private_data = unsafe.Pointer(&c.private_data)
			out.private_size = putPrivate(c, ev.PrivateData())
		}
	case ev.Number == udat.EventSoftware:
		pointer, _ := ev.Software.(uint64)
		out.cookie = C.uint64_t(pointer)
	default:
		out.object, out.reason = handleOf(ev.Object), C.DAT_COUNT(ev.Reason)
	}
}

// putPrivate copies a peer's private data to the memory of a handle. The memory may have those of
// another peer: they are cleared, because programs read a struct without regard to the size.
func putPrivate(c *C.godat_handle, data []byte) C.DAT_COUNT {
	to := unsafe.Slice((*byte)(&c.private_data[0]), C.GODAT_PRIVATE)
	n := copy(to, data)
	clear(to[n:])
	return C.DAT_COUNT(n)
}

// inGo is how long a wait blocks in Go, where it wakes fastest. Then its thread blocks in C, where
// a signal can end the wait.
const inGo = 10 * time.Millisecond

// split divides a DAT timeout into the time in Go (first) and the time in C (rest).
func split(timeout C.DAT_TIMEOUT) (first, rest time.Duration) {
	if timeout == ^C.DAT_TIMEOUT(0) {
		return inGo, udat.Infinite
	}
	d := time.Duration(timeout) * time.Microsecond
	first = min(d, inGo)
	return first, d - first
}

// wait is a call that is blocked in C.
type wait struct {
	e      *entry
	fd     int
	cancel context.CancelFunc
	done   chan struct{}
	event  udat.Event // the event that a wait on an EVD has taken
	evd    *udat.EVD  // the EVD that a wait on a CNO returns
	more   int
	err    error
}

// block starts the part of a wait that blocks in C. It calls the callback run on a goroutine, and
// returns GODAT_PENDING. The context that the callback receives ends after the duration in the
// parameter rest, or when a signal cancels the wait. When the callback has returned, the goroutine
// signals out.fd.
func (e *entry) block(out *C.godat_wait, rest time.Duration, run func(context.Context, *wait)) C.DAT_RETURN {
	if out.fd = C.godat_eventfd(); out.fd < 0 {
		return failure(udat.InsufficientResources, udat.SubNone)
	}
	ctx, cancel := context.WithTimeout(context.Background(), rest) // Infinite is 292 years
	w := &wait{e: e, fd: int(out.fd), cancel: cancel, done: make(chan struct{})}
	out.id = C.uintptr_t(cgo.NewHandle(w))
	go func() {
		run(ctx, w)
		C.godat_signal(C.int(w.fd))
		close(w.done)
	}()
	return C.GODAT_PENDING
}

//export godat_wait_cancel
func godat_wait_cancel(id C.uintptr_t) { cgo.Handle(id).Value().(*wait).cancel() }

// endWait blocks until the goroutine of a wait has finished. It frees the resources of the wait,
// and returns the wait.
func endWait(id C.uintptr_t) *wait {
	w := cgo.Handle(id).Value().(*wait)
	<-w.done
	w.cancel()
	syscall.Close(w.fd)
	cgo.Handle(id).Delete()
	return w
}

// godat_wait_drop ends a wait whose thread was cancelled. If the wait has taken an event, the next
// dequeue or wait returns this event.
//
//export godat_wait_drop
func godat_wait_drop(id C.uintptr_t) {
	cgo.Handle(id).Value().(*wait).cancel()
	if w := endWait(id); w.err == nil {
		w.e.untaken.Store(w)
	}
}

//export godat_evd_wait
func godat_evd_wait(h C.DAT_EVD_HANDLE, timeout C.DAT_TIMEOUT, threshold C.DAT_COUNT, out *C.godat_event,
	more *C.DAT_COUNT, w *C.godat_wait) C.DAT_RETURN {
	evd, e := find[*udat.EVD](h)
	if e == nil {
		return badHandle(udat.SubHandle1)
	}
	if e.untaken.Load() != nil && e.takeUntaken(out) {
		return C.DAT_SUCCESS
	}
	first, rest := split(timeout)
	ev, n, err := evd.Wait(first, int(threshold))
	*more = count(n)
	if err == nil {
		e.put(out, &ev)
		return C.DAT_SUCCESS
	}
	if ret := code(err); rest == 0 || ret != C.DAT_CLASS_ERROR|C.DAT_TIMEOUT_EXPIRED {
		return ret
	}
	return e.block(w, rest, func(ctx context.Context, w *wait) {
		w.event, w.more, w.err = evd.WaitContext(ctx, int(threshold))
	})
}

//export godat_evd_wait_end
func godat_evd_wait_end(id C.uintptr_t, out *C.godat_event, more *C.DAT_COUNT) C.DAT_RETURN {
	w := endWait(id)
	*more = count(w.more)
	if w.err != nil {
		return code(w.err)
	}
	w.e.put(out, &w.event)
	return C.DAT_SUCCESS
}

// agent is a function of the program that a CNO calls, and the data that the CNO passes to the
// function.
type agent struct {
	call C.DAT_AGENT_FUNC
	data C.DAT_PVOID
}

func (a agent) wait() udat.WaitAgent {
	if a.call == nil {
		return nil
	}
	return func(evd *udat.EVD) { C.godat_agent(a.call, a.data, handleOf(evd)) }
}

//export godat_cno_create
func godat_cno_create(h C.DAT_IA_HANDLE, call C.DAT_AGENT_FUNC, data C.DAT_PVOID, out *C.DAT_CNO_HANDLE) C.DAT_RETURN {
	opened, e := find[*udat.IA](h)
	if e == nil {
		return badHandle(udat.SubHandleIA)
	}
	a := agent{call, data}
	made, ret := create(e.ia, (*C.DAT_HANDLE)(out), 3, func() (*udat.CNO, error) { return opened.CreateCNO(a.wait()) })
	if made != nil {
		made.agent = a
	}
	return ret
}

//export godat_cno_modify_agent
func godat_cno_modify_agent(h C.DAT_CNO_HANDLE, call C.DAT_AGENT_FUNC, data C.DAT_PVOID) C.DAT_RETURN {
	cno, e := find[*udat.CNO](h)
	if e == nil {
		return badHandle(udat.SubHandleCNO)
	}
	e.agent = agent{call, data}
	return code(cno.ModifyAgent(e.agent.wait()))
}

//export godat_cno_query
func godat_cno_query(h C.DAT_CNO_HANDLE, mask C.DAT_CNO_PARAM_MASK, ia *C.DAT_IA_HANDLE, call *C.DAT_AGENT_FUNC,
	data *C.DAT_PVOID) C.DAT_RETURN {
	cno, e := find[*udat.CNO](h)
	if e == nil {
		return badHandle(udat.SubHandleCNO)
	}
	if mask > C.DAT_CNO_FIELD_ALL {
		return badArgument(2)
	}
	p, err := cno.Query()
	if err != nil {
		return code(err)
	}
	if *ia = handleOf(p.IA); p.Agent != nil {
		*call, *data = e.agent.call, e.agent.data
	}
	return C.DAT_SUCCESS
}

//export godat_cno_free
func godat_cno_free(h C.DAT_CNO_HANDLE) C.DAT_RETURN { return free[*udat.CNO](h, udat.SubHandleCNO) }

//export godat_cno_wait
func godat_cno_wait(h C.DAT_CNO_HANDLE, timeout C.DAT_TIMEOUT, out *C.DAT_EVD_HANDLE, w *C.godat_wait) C.DAT_RETURN {
	cno, e := find[*udat.CNO](h)
	if e == nil {
		return badHandle(udat.SubHandleCNO)
	}
	if w := e.untaken.Swap(nil); w != nil {
		*out = handleOf(w.evd)
		return C.DAT_SUCCESS
	}
	first, rest := split(timeout)
	evd, err := cno.Wait(first)
	if err == nil {
		*out = handleOf(evd)
		return C.DAT_SUCCESS
	}
	if ret := code(err); rest == 0 || ret != C.DAT_CLASS_ERROR|C.DAT_QUEUE_EMPTY {
		return ret
	}
	return e.block(w, rest, func(ctx context.Context, w *wait) { w.evd, w.err = cno.WaitContext(ctx) })
}

//export godat_cno_wait_end
func godat_cno_wait_end(id C.uintptr_t, out *C.DAT_EVD_HANDLE) C.DAT_RETURN {
	w := endWait(id)
	if w.err != nil {
		return code(w.err)
	}
	*out = handleOf(w.evd)
	return C.DAT_SUCCESS
}
