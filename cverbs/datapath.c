//go:build linux && cgo

#include "shim.h"
#include "gate.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>

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

// The longest chain passed to the driver at once; a longer batch makes several chains in one
// crossing.
enum { CHAIN = 128 };

// ---- address handles

static struct {
	pthread_rwlock_t lock;
	uint32_t cap;
	struct {
		struct ibv_ah *ah;
		uint32_t gen;
	} *slot;
} ahs = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static struct ibv_ah *ah_of(uint64_t token) // caller holds the lock
{
	uint32_t i = (uint32_t)token - 1;

	if (i >= ahs.cap || ahs.slot[i].gen != (uint32_t)(token >> 32))
		return NULL;
	return ahs.slot[i].ah;
}

uint64_t cv_ah_create(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = ibv_create_ah(pd, attr);
	uint64_t token = 0;
	uint32_t i;

	if (!ah)
		return 0;
	pthread_rwlock_wrlock(&ahs.lock);
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
	pthread_rwlock_unlock(&ahs.lock);
	if (!token) {
		ibv_destroy_ah(ah);
		errno = ENOMEM;
	}
	return token;
}

int cv_ah_destroy(uint64_t token)
{
	struct ibv_ah *ah;
	int rc;

	pthread_rwlock_wrlock(&ahs.lock);
	ah = ah_of(token);
	rc = ah ? positive(ibv_destroy_ah(ah)) : EINVAL;
	if (!rc)
		ahs.slot[(uint32_t)token - 1].ah = NULL;
	pthread_rwlock_unlock(&ahs.lock);
	return rc;
}

// ---- data path

static inline int sge_check(uint32_t first, uint32_t num, uint32_t nsg, uint32_t max)
{
	if (__builtin_expect((uint64_t)first + num <= nsg && num <= max, 1) || num == 0)
		return 0;
	return (uint64_t)first + num > nsg ? CV_BAD_RANGE : CV_TOO_MANY;
}

// Some drivers queue first and check the state later: a refused request would be sent after all. On
// iWARP the connection manager moves queue pairs without libibverbs' knowledge, so there only the
// driver checks.
static int too_early(const struct ibv_qp *qp, enum ibv_qp_state from)
{
	return qp->state < from && qp->context->device->transport_type != IBV_TRANSPORT_IWARP;
}

// Segment count, opcode, flags and immediate data are adjacent in both structs and copied at once.
enum { TOGETHER = 16 };
_Static_assert(offsetof(struct ibv_send_wr, imm_data) + 4 - offsetof(struct ibv_send_wr, num_sge) == TOGETHER,
	"ibv_send_wr");
_Static_assert(offsetof(struct cv_send_wr, imm) + 4 - offsetof(struct cv_send_wr, num_sge) == TOGETHER, "SendWR");
_Static_assert(offsetof(struct ibv_send_wr, opcode) - offsetof(struct ibv_send_wr, num_sge) == 4, "ibv_send_wr");
_Static_assert(offsetof(struct ibv_send_wr, send_flags) - offsetof(struct ibv_send_wr, num_sge) == 8, "ibv_send_wr");

// Copies the other fields that the opcode uses.
static int convert_rest(const struct ibv_qp *qp, const struct cv_send_wr *w, struct ibv_send_wr *o)
{
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
			struct ibv_ah *ah = ah_of(w->ah);

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

// Adds the accepted requests of a chain of k to p, and returns whether all were. refused is the
// byte offset of the refused request in the chain.
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

struct cv_posted cv_post_send(const uintptr_t *gate, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_qp *qp = cv_enter(gate);
	struct ibv_send_wr chain[CHAIN] __attribute__((aligned(64))), *bad;
	struct cv_posted p = { 0, 0 };
	uint32_t one = max_sge ? nsg : 0; // a single segment must be below it
	int ud;

	if (!qp)
		return (struct cv_posted){ 0, CV_CLOSED };
	if (too_early(qp, IBV_QPS_RTS)) {
		cv_leave();
		return (struct cv_posted){ 0, CV_BAD_STATE };
	}
	ud = qp->qp_type == IBV_QPT_UD;
	if (ud)
		pthread_rwlock_rdlock(&ahs.lock);
	while (p.n < n && !p.rc) {
		uint32_t k, m = n - p.n < CHAIN ? n - p.n : CHAIN;
		const struct cv_send_wr *w = wr + p.n;
		struct ibv_send_wr *o = chain;
		int refused = 0, rc;

		for (k = 0; k < m; k++, w++, o++) {
			o->wr_id = w->id;
			o->next = o + 1;
			o->sg_list = sg + w->first_sge;
			if (__builtin_expect(w->num_sge != 1 || w->first_sge >= one, 0)) {
				refused = sge_check(w->first_sge, w->num_sge, nsg, max_sge);
				if (refused)
					break;
				if (w->num_sge == 0)
					o->sg_list = NULL;
			}
			memcpy((char *)o + offsetof(struct ibv_send_wr, num_sge), (const char *)w + offsetof(struct cv_send_wr, num_sge),
				TOGETHER);
			if (w->opcode == IBV_WR_SEND && !ud)
				continue;
			refused = convert_rest(qp, w, o);
			if (refused)
				break;
		}
		if (k) {
			chain[k - 1].next = NULL;
			bad = NULL;
			rc = ibv_post_send(qp, chain, &bad);
			if (!took(&p, rc, k, (uintptr_t)bad - (uintptr_t)chain, sizeof(*chain)))
				break;
		}
		p.rc = refused;
	}
	if (ud)
		pthread_rwlock_unlock(&ahs.lock);
	cv_leave();
	return p;
}

// The caller is inside the gate.
static struct cv_posted post_recv(struct ibv_qp *qp, struct ibv_srq *srq, const struct cv_recv_wr *wr, uint32_t n,
	struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	struct ibv_recv_wr chain[CHAIN], *bad;
	struct cv_posted p = { 0, 0 };

	while (p.n < n && !p.rc) {
		uint32_t k, m = n - p.n < CHAIN ? n - p.n : CHAIN;
		int refused = 0, rc;

		for (k = 0; k < m; k++) {
			const struct cv_recv_wr *w = &wr[p.n + k];

			refused = sge_check(w->first_sge, w->num_sge, nsg, max_sge);
			if (refused)
				break;
			chain[k].wr_id = w->id;
			chain[k].sg_list = w->num_sge ? sg + w->first_sge : NULL;
			chain[k].num_sge = (int)w->num_sge;
			chain[k].next = &chain[k + 1];
		}
		if (k) {
			chain[k - 1].next = NULL;
			bad = NULL;
			rc = qp ? ibv_post_recv(qp, chain, &bad) : ibv_post_srq_recv(srq, chain, &bad);
			if (!took(&p, rc, k, (uintptr_t)bad - (uintptr_t)chain, sizeof(*chain)))
				break;
		}
		p.rc = refused;
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
	return post_recv(qp, NULL, wr, n, sg, nsg, max_sge);
}

struct cv_posted cv_post_srq_recv(const uintptr_t *gate, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge)
{
	struct ibv_srq *srq = cv_enter(gate);

	if (!srq)
		return (struct cv_posted){ 0, CV_CLOSED };
	return post_recv(NULL, srq, wr, n, sg, nsg, max_sge);
}

int cv_poll_cq(const uintptr_t *gate, struct ibv_wc *wc, uint32_t n, uint32_t polls, int rxe)
{
	enum { YIELD_AFTER = 1 << 15 };
	struct ibv_cq *cq = cv_enter(gate);
	int i, k, yield = 0;

	if (!cq)
		return CV_CLOSED;
	if (polls > 1 && (cv_me->polled += polls) >= YIELD_AFTER) {
		cv_me->polled = 0;
		yield = CV_YIELD;
	}
	do
		k = ibv_poll_cq(cq, (int)n, wc);
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
		if (rxe && w->wc_flags & IBV_WC_IP_CSUM_OK)
			w->wc_flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
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
	rc = positive(ibv_req_notify_cq(cq, solicited_only));
	cv_leave();
	return rc;
}

int cv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr, uint64_t addr,
	uint64_t length, uint32_t access, uint32_t *rkey)
{
	struct ibv_mw_bind_info info = { .mr = mr, .addr = addr, .length = length, .mw_access_flags = access };
	int rc;

	if (too_early(qp, IBV_QPS_RTS))
		return CV_BAD_STATE;
	if (mw->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind bind = { .wr_id = id, .send_flags = flags, .bind_info = info };

		rc = positive(ibv_bind_mw(qp, mw, &bind));
	} else {
		struct ibv_send_wr wr, *bad;

		memset(&wr, 0, sizeof(wr));
		wr.wr_id = id;
		wr.opcode = IBV_WR_BIND_MW;
		wr.send_flags = flags;
		wr.bind_mw.mw = mw;
		wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
		wr.bind_mw.bind_info = info;
		rc = positive(ibv_post_send(qp, &wr, &bad));
		if (!rc)
			mw->rkey = wr.bind_mw.rkey;
	}
	*rkey = mw->rkey;
	return rc;
}

