//go:build linux && cgo && (!godat_direct || race)

package cverbs

// The data path's calls into C through cgo. With the build tag godat_direct, and without -race,
// call_direct.go replaces this file.

// #include "shim.h"
import "C"

func callPostSend(g *gate, wr *C.struct_cv_send_wr, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	return C.cv_post_send(g.c(), wr, n, sg, nsg, maxSGE)
}

func callPostRecv(g *gate, wr *C.struct_cv_recv_wr, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	return C.cv_post_recv(g.c(), wr, n, sg, nsg, maxSGE)
}

func callPostSRQRecv(g *gate, wr *C.struct_cv_recv_wr, n C.uint32_t, sg *C.struct_ibv_sge, nsg,
	maxSGE C.uint32_t) C.struct_cv_posted {
	return C.cv_post_srq_recv(g.c(), wr, n, sg, nsg, maxSGE)
}

func callPoll(g *gate, wc *C.struct_ibv_wc, n, polls, how C.uint32_t) C.int {
	return C.cv_poll_cq(g.c(), wc, n, polls, how)
}

func callTurn(p *C.struct_cv_turn_post, n C.uint32_t, g *gate, wc *C.struct_ibv_wc, nwc, polls,
	how C.uint32_t) C.struct_cv_turned {
	return C.cv_turn(p, n, g.c(), wc, nwc, polls, how)
}
