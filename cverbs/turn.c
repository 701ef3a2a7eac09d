//go:build linux && cgo

#include "shim.h"

_Static_assert(sizeof(struct cv_turn_post) == 56, "turnPost");
_Static_assert(offsetof(struct cv_turn_post, done) == 48, "turnPost.done");

struct cv_turned cv_turn(struct cv_turn_post *p, uint32_t n, const uintptr_t *cq, struct ibv_wc *wc, uint32_t nwc,
	uint32_t polls, uint32_t how)
{
	struct cv_turned t = { 0, 0 };

	for (; n; n--, p++) {
		const uintptr_t *gate = (const uintptr_t *)p->gate;
		struct ibv_sge *sg = (struct ibv_sge *)p->sg;

		switch (p->kind) {
		case CV_TURN_SEND:
			p->done = p->ops ?
				cv_post_send_ex(gate, (const struct cv_send_wr *)p->wr, p->n, sg, p->nsg, p->max_sge, p->ops) :
				cv_post_send(gate, (const struct cv_send_wr *)p->wr, p->n, sg, p->nsg, p->max_sge);
			break;
		case CV_TURN_RECV:
			p->done = cv_post_recv(gate, (const struct cv_recv_wr *)p->wr, p->n, sg, p->nsg, p->max_sge);
			break;
		case CV_TURN_SRQ_RECV:
			p->done = cv_post_srq_recv(gate, (const struct cv_recv_wr *)p->wr, p->n, sg, p->nsg, p->max_sge);
			break;
		}
		t.refused += p->done.rc != 0;
	}
	if (nwc)
		t.got = cv_poll_cq(cq, wc, nwc, polls, how);
	return t;
}
