//go:build linux && cgo

#include "shim.h"
#include "datapath.h"
#include "gate.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(struct cv_send_wr) == 72, "SendWR");
_Static_assert(offsetof(struct cv_send_wr, rkey) == 32, "SendWR.RKey");
_Static_assert(offsetof(struct cv_send_wr, num_sge) == 40, "SendWR.NumSGE");
_Static_assert(offsetof(struct cv_send_wr, imm) == 52, "SendWR.Imm");
_Static_assert(offsetof(struct cv_send_wr, ah) == 56, "SendWR.AH");
_Static_assert(offsetof(struct cv_send_wr, remote_qpn) == 64, "SendWR.RemoteQPN");
_Static_assert(sizeof(struct cv_recv_wr) == 16, "RecvWR");
_Static_assert(sizeof(struct ibv_wc) == 48, "WC");
_Static_assert(offsetof(struct ibv_wc, byte_len) == 20, "WC.ByteLen");
_Static_assert(offsetof(struct ibv_wc, imm_data) == 24 && offsetof(struct ibv_wc, invalidated_rkey) == 24, "WC.Imm");
_Static_assert(offsetof(struct ibv_wc, src_qp) == 32, "WC.SrcQP");
_Static_assert(offsetof(struct ibv_wc, wc_flags) == 36, "WC.Flags");
_Static_assert(offsetof(struct ibv_wc, slid) == 42 && offsetof(struct ibv_wc, dlid_path_bits) == 45, "WC.DLIDPathBits");
_Static_assert(sizeof(struct ibv_sge) == 16, "SGE");
_Static_assert(offsetof(struct ibv_sge, length) == 8 && offsetof(struct ibv_sge, lkey) == 12, "SGE");

// ---- address handles

pthread_rwlock_t cv_ahs = PTHREAD_RWLOCK_INITIALIZER;

static struct {
	uint32_t cap;
	struct {
		struct ibv_ah *ah;
		uint32_t gen;
	} *slot;
} ahs;

struct ibv_ah *cv_ah_of(uint64_t token)
{
	uint32_t i = (uint32_t)token - 1;

	if (i >= ahs.cap || ahs.slot[i].gen != (uint32_t)(token >> 32))
		return NULL;
	return ahs.slot[i].ah;
}

static uint64_t keep(struct ibv_ah *ah) // returns a token for ah, or 0 with errno set
{
	uint64_t token = 0;
	uint32_t i;

	if (!ah)
		return 0;
	pthread_rwlock_wrlock(&cv_ahs);
	for (i = 0; i < ahs.cap && ahs.slot[i].ah; i++)
		;
	if (i == ahs.cap) {
		uint32_t cap = ahs.cap ? 2 * ahs.cap : 16;
		void *p = realloc(ahs.slot, cap * sizeof(*ahs.slot));

		if (p) {
			ahs.slot = p;
			memset(ahs.slot + ahs.cap, 0, (cap - ahs.cap) * sizeof(*ahs.slot));
			ahs.cap = cap;
		}
	}
	if (i < ahs.cap) {
		ahs.slot[i].ah = ah;
		token = (uint64_t)++ahs.slot[i].gen << 32 | (i + 1);
	}
	pthread_rwlock_unlock(&cv_ahs);
	if (!token) {
		ibv_destroy_ah(ah);
		errno = ENOMEM;
	}
	return token;
}

uint64_t cv_ah_create(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return keep(ibv_create_ah(pd, attr));
}

uint64_t cv_ah_create_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	return keep(ibv_create_ah_from_wc(pd, wc, grh, port));
}

int cv_ah_destroy(uint64_t token)
{
	struct ibv_ah *ah;
	int rc;

	pthread_rwlock_wrlock(&cv_ahs);
	ah = cv_ah_of(token);
	rc = ah ? positive(ibv_destroy_ah(ah)) : EINVAL;
	if (!rc)
		ahs.slot[(uint32_t)token - 1].ah = NULL;
	pthread_rwlock_unlock(&cv_ahs);
	return rc;
}

// ---- data path

static uint32_t next_rkey(uint32_t rkey) { return (rkey & ~0xffu) | ((rkey + 1) & 0xff); }

// The number of segments, the opcode, the flags and the immediate data are adjacent in struct
// cv_send_wr, and in struct ibv_send_wr. They are copied together.
enum { TOGETHER = 16 };
_Static_assert(offsetof(struct ibv_send_wr, imm_data) + 4 - offsetof(struct ibv_send_wr, num_sge) == TOGETHER,
	"ibv_send_wr");
_Static_assert(offsetof(struct cv_send_wr, imm) + 4 - offsetof(struct cv_send_wr, num_sge) == TOGETHER, "SendWR");
_Static_assert(offsetof(struct ibv_send_wr, opcode) - offsetof(struct ibv_send_wr, num_sge) == 4, "ibv_send_wr");
_Static_assert(offsetof(struct ibv_send_wr, send_flags) - offsetof(struct ibv_send_wr, num_sge) == 8, "ibv_send_wr");

// Copies the remaining fields that the opcode uses. Returns 0, or an error code if the request is
// refused.
static int convert_rest(const struct ibv_qp *qp, const struct cv_send_wr *w, struct ibv_send_wr *o)
{
	if (qp->qp_type == IBV_QPT_XRC_SEND)
		o->qp_type.xrc.remote_srqn = w->remote_qpn;
	else if (qp->qp_type == IBV_QPT_UD && w->opcode != IBV_WR_SEND && w->opcode != IBV_WR_SEND_WITH_IMM)
		return CV_BAD_OPCODE; // rxe dereferences the address handle of every request, even if the request has none
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		o->imm_data = htonl(w->imm);
		/* fallthrough */
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		o->wr.rdma.remote_addr = w->remote_addr;
		o->wr.rdma.rkey = w->rkey;
		return 0;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		o->wr.atomic.remote_addr = w->remote_addr;
		o->wr.atomic.compare_add = w->compare_add;
		o->wr.atomic.swap = w->swap;
		o->wr.atomic.rkey = w->rkey;
		return 0;
	case IBV_WR_LOCAL_INV:
	case IBV_WR_SEND_WITH_INV:
		o->invalidate_rkey = w->rkey;
		return 0;
	case IBV_WR_SEND_WITH_IMM:
		o->imm_data = htonl(w->imm);
		/* fallthrough */
	case IBV_WR_SEND:
		if (qp->qp_type == IBV_QPT_UD) {
			struct ibv_ah *ah = cv_ah_of(w->ah);

			if (!ah || ah->context != qp->context)
				return CV_BAD_AH;
			o->wr.ud.ah = ah;
			o->wr.ud.remote_qpn = w->remote_qpn;
			o->wr.ud.remote_qkey = w->remote_qkey;
		}
		return 0;
	}
	return CV_BAD_OPCODE;
}

// Handles the result rc of posting a chain of k requests. Adds the number of accepted requests to
// p->n. Returns 1 if all were accepted. Otherwise it sets p->rc and returns 0. The parameter
// refused is the offset of the refused request in the chain, in bytes. The parameter size is the
// size of one request.
static inline int took(struct cv_posted *p, int rc, uint32_t k, uintptr_t refused, size_t size)
{
	if (!rc) {
		p->n += k;
		return 1;
	}
	p->rc = positive(rc);
	if (refused < k * size)
		p->n += refused / size;
	return 0;
}

// Converts a request. Returns 0, or an error code if the request is refused.
static inline int convert_send(const struct ibv_qp *qp, const struct cv_send_wr *w, struct ibv_sge *sg, uint32_t nsg,
	uint32_t max_sge, struct ibv_send_wr *o)
{
	int refused;

	o->wr_id = w->id;
	o->sg_list = sg + w->first_sge;
	if (__builtin_expect(w->num_sge != 1 || w->first_sge >= nsg || !max_sge, 0)) {
		refused = sge_check(w->first_sge, w->num_sge, nsg, max_sge);
		if (refused)
			return refused;
		if (w->num_sge == 0)
			o->sg_list = NULL;
	}
	memcpy((char *)o + offsetof(struct ibv_send_wr, num_sge), (const char *)w + offsetof(struct cv_send_wr, num_sge),
		TOGETHER);
	if (w->opcode == IBV_WR_SEND && qp->qp_type == IBV_QPT_RC) // such a request uses no other field
		return 0;
	return convert_rest(qp, w, o);
}

static struct cv_posted post_send_chain(struct ibv_qp *qp, const struct cv_send_wr *w,
	uint32_t n, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	struct ibv_send_wr chain[CHAIN] __attribute__((aligned(64))), *bad;
	struct cv_posted p = { 0, 0 };

	while (p.n < n && !p.rc) {
		uint32_t k, m = n - p.n < CHAIN ? n - p.n : CHAIN;
		struct ibv_send_wr *o = chain;
		int refused = 0, rc;

		for (k = 0; k < m; k++, w++, o++) {
			o->next = o + 1;
			refused = convert_send(qp, w, sg, nsg, max_sge, o);
			if (refused)
				break;
		}
		if (k) {
			chain[k - 1].next = NULL;
			bad = NULL;
			rc = qp->context->ops.post_send(qp, chain, &bad);
			if (!took(&p, rc, k, (uintptr_t)bad - (uintptr_t)chain, sizeof(*chain)))
				break;
		}
		p.rc = refused;
	}
	return p;
}

// Posts one request, which is the most frequent case. One request needs much less of the stack than
// a chain.
static inline struct cv_posted post_one_send(struct ibv_qp *qp, const struct cv_send_wr *w, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_send_wr o, *bad;
	int rc = convert_send(qp, w, sg, nsg, max_sge, &o);

	if (!rc) {
		o.next = NULL;
		rc = positive(qp->context->ops.post_send(qp, &o, &bad));
	}
	return (struct cv_posted){ !rc, rc };
}

struct cv_posted cv_post_send(const uintptr_t *gate, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_qp *qp = cv_enter(gate);
	struct cv_posted p;

	if (!qp)
		return (struct cv_posted){ 0, CV_CLOSED };
	if (too_early(qp, IBV_QPS_RTS)) {
		p = (struct cv_posted){ 0, CV_BAD_STATE };
	} else if (__builtin_expect(qp->qp_type == IBV_QPT_UD, 0)) {
		pthread_rwlock_rdlock(&cv_ahs);
		p = post_send_chain(qp, wr, n, sg, nsg, max_sge);
		pthread_rwlock_unlock(&cv_ahs);
	} else if (n == 1) {
		p = post_one_send(qp, wr, sg, nsg, max_sge);
	} else {
		p = post_send_chain(qp, wr, n, sg, nsg, max_sge);
	}
	cv_leave();
	return p;
}

// Posts a chain to qp, srq or wq. Two of the three are NULL.
static inline int post_recvs(struct ibv_qp *qp, struct ibv_srq *srq, struct ibv_wq *wq, struct ibv_recv_wr *chain,
	struct ibv_recv_wr **bad)
{
	*bad = NULL;
	return qp ? qp->context->ops.post_recv(qp, chain, bad) :
		srq ? srq->context->ops.post_srq_recv(srq, chain, bad) : wq->post_recv(wq, chain, bad);
}

static inline int convert_recv(const struct cv_recv_wr *w, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge,
	struct ibv_recv_wr *o)
{
	o->wr_id = w->id;
	o->sg_list = w->num_sge ? sg + w->first_sge : NULL;
	o->num_sge = (int)w->num_sge;
	return sge_check(w->first_sge, w->num_sge, nsg, max_sge);
}

static struct cv_posted post_recv_chain(struct ibv_qp *qp, struct ibv_srq *srq,
	struct ibv_wq *wq, const struct cv_recv_wr *w, uint32_t n, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	struct ibv_recv_wr chain[CHAIN], *bad;
	struct cv_posted p = { 0, 0 };

	while (p.n < n && !p.rc) {
		uint32_t k, m = n - p.n < CHAIN ? n - p.n : CHAIN;
		int refused = 0, rc;

		for (k = 0; k < m; k++, w++) {
			refused = convert_recv(w, sg, nsg, max_sge, &chain[k]);
			if (refused)
				break;
			chain[k].next = &chain[k + 1];
		}
		if (k) {
			chain[k - 1].next = NULL;
			rc = post_recvs(qp, srq, wq, chain, &bad);
			if (!took(&p, rc, k, (uintptr_t)bad - (uintptr_t)chain, sizeof(*chain)))
				break;
		}
		p.rc = refused;
	}
	return p;
}

// Posts receives and leaves the gate. The caller has entered the gate.
static inline struct cv_posted post_recv(struct ibv_qp *qp, struct ibv_srq *srq, struct ibv_wq *wq,
	const struct cv_recv_wr *w, uint32_t n, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	struct cv_posted p;

	if (n == 1) {
		struct ibv_recv_wr o, *bad;
		int rc = convert_recv(w, sg, nsg, max_sge, &o);

		if (!rc) {
			o.next = NULL;
			rc = positive(post_recvs(qp, srq, wq, &o, &bad));
		}
		p = (struct cv_posted){ !rc, rc };
	} else {
		p = post_recv_chain(qp, srq, wq, w, n, sg, nsg, max_sge);
	}
	cv_leave();
	return p;
}

struct cv_posted cv_post_recv(const uintptr_t *gate, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_qp *qp = cv_enter(gate);

	if (!qp)
		return (struct cv_posted){ 0, CV_CLOSED };
	if (too_early(qp, IBV_QPS_INIT)) {
		cv_leave();
		return (struct cv_posted){ 0, CV_BAD_STATE };
	}
	return post_recv(qp, NULL, NULL, wr, n, sg, nsg, max_sge);
}

struct cv_posted cv_post_srq_recv(const uintptr_t *gate, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_srq *srq = cv_enter(gate);

	if (!srq)
		return (struct cv_posted){ 0, CV_CLOSED };
	return post_recv(NULL, srq, NULL, wr, n, sg, nsg, max_sge);
}

struct cv_posted cv_post_wq_recv(const uintptr_t *gate, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_wq *wq = cv_enter(gate);

	if (!wq)
		return (struct cv_posted){ 0, CV_CLOSED };
	if (wq->state == IBV_WQS_RESET) {
		cv_leave();
		return (struct cv_posted){ 0, CV_BAD_STATE };
	}
	return post_recv(NULL, NULL, wq, wr, n, sg, nsg, max_sge);
}

// Go interrupts a goroutine that has run for 10 ms without a yield. But with each yield Go also
// wakes another thread, which finds nothing to do. So a thread yields at most once in YIELD_EVERY.
static const uint64_t YIELD_EVERY = 2000000; // ns

int cv_yield_due(void)
{
	struct timespec t;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
	if (now - cv_me->yielded < YIELD_EVERY)
		return 0;
	cv_me->yielded = now;
	return CV_YIELD;
}

int cv_poll_cq(const uintptr_t *gate, struct ibv_wc *wc, uint32_t n, uint32_t polls, uint32_t how)
{
	struct ibv_cq *cq;
	int i, k, yield;

	if (__builtin_expect(how & CV_EXTENDED, 0))
		return cv_poll_cq_ex(gate, wc, sizeof(*wc), n, polls, how);
	cq = cv_enter(gate);
	if (!cq)
		return CV_CLOSED;
	yield = yield_after(polls);
	do
		k = cq->context->ops.poll_cq(cq, (int)n, wc);
	while (!k && --polls);
	cv_leave();
	if (k < 0)
		return -positive(k);
	for (i = 0; i < k; i++) {
		struct ibv_wc *w = &wc[i];

		if (__builtin_expect(!(w->status | w->wc_flags), 1)) {
			w->imm_data = 0;
			continue;
		}
		if (w->status != IBV_WC_SUCCESS) {
			w->byte_len = w->src_qp = w->wc_flags = w->imm_data = 0;
			continue;
		}
		w->wc_flags = true_flags(w->wc_flags, how);
		if (!(w->wc_flags & IBV_WC_WITH_INV))
			w->imm_data = w->wc_flags & IBV_WC_WITH_IMM ? ntohl(w->imm_data) : 0;
	}
	return k | yield;
}

int cv_req_notify_cq(const uintptr_t *gate, int solicited_only)
{
	struct ibv_cq *cq = cv_enter(gate);
	int rc;

	if (!cq)
		return CV_CLOSED;
	rc = positive(cq->context->ops.req_notify_cq(cq, solicited_only));
	cv_leave();
	return rc;
}

int cv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr, uint64_t addr,
	uint64_t length, uint32_t access, int extended, uint32_t *rkey)
{
	struct ibv_mw_bind_info info = { .mr = mr, .addr = addr, .length = length, .mw_access_flags = access };
	int rc;

	if (too_early(qp, IBV_QPS_RTS))
		return CV_BAD_STATE;
	if (mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = { .wr_id = id, .send_flags = flags, .bind_info = info };

		rc = positive(mw->context->ops.bind_mw(qp, mw, &bind));
	} else if (extended) {
		uint32_t next = next_rkey(mw->rkey);

		rc = cv_bind_mw_ex(qp, mw, id, flags, &info, next);
		if (!rc)
			mw->rkey = next;
	} else {
		struct ibv_send_wr wr, *bad;

		memset(&wr, 0, sizeof(wr));
		wr.wr_id = id;
		wr.opcode = IBV_WR_BIND_MW;
		wr.send_flags = flags;
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = next_rkey(mw->rkey);
		wr.bind_mw.bind_info = info;
		rc = positive(qp->context->ops.post_send(qp, &wr, &bad));
		if (!rc)
			mw->rkey = wr.bind_mw.rkey;
	}
	*rkey = mw->rkey;
	return rc;
}

