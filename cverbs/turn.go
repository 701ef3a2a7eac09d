//go:build linux && cgo

package cverbs

// #include "shim.h"
import "C"

import (
	"math"
	"runtime"
	"unsafe"
)

// Turn is a list of posts to any number of queues. One crossing into C runs all of them together
// with a poll. A Turn is for a loop over many connections with few operations on each. Without a
// Turn such a loop pays one crossing for each post. The zero value is empty. A Turn is not safe for
// concurrent use; the queues are.
//
//	var t cverbs.Turn
//	for {
//		n, err := t.Run(cq, wcs, polls)
//		... // err, and t.Refused
//		for _, wc := range wcs[:n] { // each may lead to posts
//			t.PostRecv(qp, recvs, sges)
//			t.PostSend(qp, sends, sges)
//		}
//	}
//
// Extension.
type Turn struct {
	posts []turnPost
	kept  []turnKept // one for each element of posts

	ran     bool
	refused int
}

// turnPost has the layout of C's struct cv_turn_post. It contains addresses of Go memory as
// integers. turnKept has pointers to the same memory, so that the memory is on the heap and stays
// reachable.
type turnPost struct {
	gate, wr, sg          uintptr
	ops                   SendOps
	n, nSGE, maxSGE, kind uint32
	done                  struct {
		n  uint32
		rc int32
	}
}

// turnKept has the pointers of one post: to its queue, its work requests and its segments. Either
// qp or srq is set, and either sends or recvs is set.
type turnKept struct {
	qp    *QP
	srq   *SRQ
	sends *SendWR
	recvs *RecvWR
	sges  *SGE
}

// PostSend adds a post to q; see [QP.PostSend]. The caller must not change either slice until Run
// has returned.
//
// Extension.
func (t *Turn) PostSend(q *QP, wrs []SendWR, sges []SGE) {
	q = orZero(q)
	w, s := unsafe.SliceData(wrs), unsafe.SliceData(sges)
	p, k := t.add()
	k.qp, k.sends, k.sges = q, w, s
	*p = turnPost{gate: uintptr(unsafe.Pointer(&q.gate)), wr: uintptr(unsafe.Pointer(w)), sg: uintptr(unsafe.Pointer(s)),
		n: turnLen(len(wrs)), nSGE: turnLen(len(sges)), maxSGE: q.cap.MaxSendSGE, kind: C.CV_TURN_SEND, ops: q.ops}
}

// PostRecv adds a post to q; see [QP.PostRecv], and PostSend for the slices.
//
// Extension.
func (t *Turn) PostRecv(q *QP, wrs []RecvWR, sges []SGE) {
	q = orZero(q)
	w, s := unsafe.SliceData(wrs), unsafe.SliceData(sges)
	p, k := t.add()
	k.qp, k.recvs, k.sges = q, w, s
	*p = turnPost{gate: uintptr(unsafe.Pointer(&q.gate)), wr: uintptr(unsafe.Pointer(w)), sg: uintptr(unsafe.Pointer(s)),
		n: turnLen(len(wrs)), nSGE: turnLen(len(sges)), maxSGE: q.cap.MaxRecvSGE, kind: C.CV_TURN_RECV}
}

// PostSRQRecv adds a post to a shared receive queue; see [SRQ.PostRecv]. The slices must remain
// unchanged as long as those of PostSend.
//
// Extension.
func (t *Turn) PostSRQRecv(q *SRQ, wrs []RecvWR, sges []SGE) {
	q = orZero(q)
	w, s := unsafe.SliceData(wrs), unsafe.SliceData(sges)
	p, k := t.add()
	k.srq, k.recvs, k.sges = q, w, s
	*p = turnPost{gate: uintptr(unsafe.Pointer(&q.gate)), wr: uintptr(unsafe.Pointer(w)), sg: uintptr(unsafe.Pointer(s)),
		n: turnLen(len(wrs)), nSGE: turnLen(len(sges)), maxSGE: q.maxSGE, kind: C.CV_TURN_SRQ_RECV}
}

func turnLen(n int) uint32 { return uint32(min(n, math.MaxInt32)) }

// add appends a post and its turnKept, and returns both for the caller to fill. If the turn has
// run, add first resets it.
func (t *Turn) add() (*turnPost, *turnKept) {
	if t.ran {
		t.Reset()
	}
	n := len(t.posts)
	if n == cap(t.posts) || n == cap(t.kept) {
		t.posts = append(make([]turnPost, 0, 2*n+16), t.posts...)
		t.kept = append(make([]turnKept, 0, cap(t.posts)), t.kept...)
	}
	t.posts, t.kept = t.posts[:n+1], t.kept[:n+1]
	return &t.posts[n], &t.kept[n]
}

// Reset removes all posts, their results, and the references to their slices. Adding the first post
// after Run also resets the turn.
//
// Extension.
func (t *Turn) Reset() {
	clear(t.kept)
	t.posts, t.kept, t.ran = t.posts[:0], t.kept[:0], false
	t.refused = 0
}

// Len returns the number of posts added.
//
// Extension.
func (t *Turn) Len() int { return len(t.posts) }

// Run runs all posts in the order in which they were added. A post that is refused does not stop
// the posts after it. Then Run polls cq as [CQ.PollSpin] does. If wc is empty, Run does not poll,
// and cq may be nil. A second Run without new posts only polls. n and err are the results of the
// poll. [Turn.Refused] and [Turn.Posted] return the results of the posts. Run does not allocate.
//
// Extension.
func (t *Turn) Run(cq *CQ, wc []WC, polls int) (n int, err error) {
	cq = orZero(cq)
	if polls < 1 || polls > MaxPolls {
		return 0, badArg("ibv_poll_cq", "polls %d is not in 1..%d", polls, MaxPolls)
	}
	posts := t.posts
	if t.ran {
		posts = nil
	}
	t.ran = true
	if raceEnabled {
		t.use(cq, len(posts), len(wc))
	}
	turned := callTurn((*C.struct_cv_turn_post)(unsafe.Pointer(unsafe.SliceData(posts))), C.uint32_t(len(posts)),
		&cq.gate, (*C.struct_ibv_wc)(unsafe.Pointer(unsafe.SliceData(wc))), C.uint32_t(min(len(wc), 1<<20)),
		C.uint32_t(polls), cq.how)
	runtime.KeepAlive(t)
	if len(posts) > 0 {
		t.refused = int(turned.refused)
	}
	return pollResult(int(turned.got))
}

// The method use tells the race detector which queues Run uses; see type serial.
func (t *Turn) use(cq *CQ, posts, polled int) {
	for _, k := range t.kept[:posts] {
		if k.qp != nil {
			k.qp.alone.use()
		} else {
			k.srq.alone.use()
		}
	}
	if polled > 0 {
		cq.alone.use()
	}
}

// Refused returns how many posts of the last Run were refused, in whole or in part. If none were
// refused, as is usual, Posted need not be called.
//
// Extension.
func (t *Turn) Refused() int { return t.refused }

// Posted returns the result of post i of the last Run, where 0 is the post that was added first.
// The result is what the post alone would have returned. For a refused post, Posted reads the
// requests, so do not change their slice before Posted returns. Errors: EINVAL if there is no post
// i, or before Run.
//
// Extension.
func (t *Turn) Posted(i int) (n int, err error) {
	if t.ran && uint(i) < uint(len(t.posts)) {
		if p := &t.posts[i]; p.done.rc == 0 && p.n > 0 {
			return int(p.done.n), nil
		}
	}
	return t.postedSlow(i)
}

// postedSlow does the work of Posted for a refused post, a post without requests, and an i out of
// range.
func (t *Turn) postedSlow(i int) (n int, err error) {
	posts := t.posts
	if !t.ran {
		posts = nil
	}
	if i < 0 || i >= len(posts) {
		return 0, badArg("ibv_post_send", "there is no result %d: the turn has run %d posts", i, len(posts))
	}
	p, k := &posts[i], &t.kept[i]
	done := C.struct_cv_posted{n: C.uint32_t(p.done.n), rc: C.int32_t(p.done.rc)}
	switch {
	case p.n == 0 && k.srq != nil:
		return 0, k.srq.gate.err()
	case p.n == 0:
		return 0, k.qp.gate.err()
	case p.kind == C.CV_TURN_SEND:
		err = k.qp.sendError(done, unsafe.Slice(k.sends, p.n), int(p.nSGE))
	case p.kind == C.CV_TURN_RECV:
		err = k.qp.recvError(done, unsafe.Slice(k.recvs, p.n), int(p.nSGE))
	default:
		err = k.srq.recvError(done, unsafe.Slice(k.recvs, p.n), int(p.nSGE))
	}
	return int(done.n), err
}
