//go:build linux && cgo && godat_direct && !race

package cverbs

// With the build tag godat_direct, posts and polls call C through runtime.asmcgocall, which
// switches to the thread's system stack and costs 4 ns, while cgo costs 25 ns. The scheduler does
// not learn of the call. Until the call returns the scheduler can neither hand the processor to
// another goroutine nor stop the world. That time is short, because posts and polls do not block.
//
// The build tag exists because Go's promise of compatibility does not cover asmcgocall. With -race
// the package uses cgo, because the race detector takes cgo calls as synchronization.

// #include "shim.h"
//
// struct cv_post_args {
//	const uintptr_t *gate;
//	const void *wr;
//	struct ibv_sge *sg;
//	uint32_t n, nsg, max_sge;
//	struct cv_posted p;
// };
//
// struct cv_poll_args {
//	const uintptr_t *gate;
//	struct ibv_wc *wc;
//	uint32_t n, polls, how;
//	int got;
// };
//
// struct cv_turn_args {
//	struct cv_turn_post *p;
//	uint32_t n;
//	struct cv_poll_args poll;
//	struct cv_turned turned;
// };
//
// static void post_send(struct cv_post_args *a)
// {
//	a->p = cv_post_send(a->gate, a->wr, a->n, a->sg, a->nsg, a->max_sge);
// }
// static void post_recv(struct cv_post_args *a)
// {
//	a->p = cv_post_recv(a->gate, a->wr, a->n, a->sg, a->nsg, a->max_sge);
// }
// static void post_srq_recv(struct cv_post_args *a)
// {
//	a->p = cv_post_srq_recv(a->gate, a->wr, a->n, a->sg, a->nsg, a->max_sge);
// }
// static void poll_cq(struct cv_poll_args *a)
// {
//	a->got = cv_poll_cq(a->gate, a->wc, a->n, a->polls, a->how);
// }
// static void turn(struct cv_turn_args *a)
// {
//	struct cv_poll_args *q = &a->poll;
//
//	a->turned = cv_turn(a->p, a->n, q->gate, q->wc, q->n, q->polls, q->how);
// }
//
// static void *direct(int i)
// {
//	static void *all[] = { post_send, post_recv, post_srq_recv, poll_cq, turn };
//
//	return all[i];
// }
import "C"

import "unsafe"

//go:linkname asmcgocall runtime.asmcgocall
//go:noescape
func asmcgocall(fn, arg unsafe.Pointer) int32

var directPostSend, directPostRecv, directPostSRQRecv, directPoll = C.direct(0), C.direct(1), C.direct(2), C.direct(3)
var directTurn = C.direct(4)

func callPost(fn unsafe.Pointer, g *gate, wr unsafe.Pointer, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	a := C.struct_cv_post_args{gate: g.c(), wr: wr, n: n, sg: sg, nsg: nsg, max_sge: maxSGE}
	asmcgocall(fn, unsafe.Pointer(&a))
	return a.p
}

func callPostSend(g *gate, wr *C.struct_cv_send_wr, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	return callPost(directPostSend, g, unsafe.Pointer(wr), n, sg, nsg, maxSGE)
}

func callPostRecv(g *gate, wr *C.struct_cv_recv_wr, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	return callPost(directPostRecv, g, unsafe.Pointer(wr), n, sg, nsg, maxSGE)
}

func callPostSRQRecv(g *gate, wr *C.struct_cv_recv_wr, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	return callPost(directPostSRQRecv, g, unsafe.Pointer(wr), n, sg, nsg, maxSGE)
}

func callPoll(g *gate, wc *C.struct_ibv_wc, n, polls, how C.uint32_t) C.int {
	a := C.struct_cv_poll_args{gate: g.c(), wc: wc, n: n, polls: polls, how: how}
	asmcgocall(directPoll, unsafe.Pointer(&a))
	return a.got
}

func callTurn(p *C.struct_cv_turn_post, n C.uint32_t, g *gate, wc *C.struct_ibv_wc, nwc, polls,
	how C.uint32_t) C.struct_cv_turned {
	a := C.struct_cv_turn_args{p: p, n: n}
	a.poll = C.struct_cv_poll_args{gate: g.c(), wc: wc, n: nwc, polls: polls, how: how}
	asmcgocall(directTurn, unsafe.Pointer(&a))
	return a.turned
}
