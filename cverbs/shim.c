//go:build linux && cgo

#include "shim.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

_Static_assert(sizeof(struct cv_send_wr) == 72, "SendWR");
_Static_assert(offsetof(struct cv_send_wr, rkey) == 32, "SendWR.RKey");
_Static_assert(offsetof(struct cv_send_wr, opcode) == 40, "SendWR.Opcode");
_Static_assert(offsetof(struct cv_send_wr, first_sge) == 48, "SendWR.FirstSGE");
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

// The longest chain handed to the driver at once; longer batches go in several chains, in one crossing.
enum { CHAIN = 128 };

static int positive(int rc) // drivers return errno, -errno, or -1 with errno set
{
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

static int rc_of(int rc) // librdmacm: 0, or -1 with errno set
{
	return rc ? (errno ? errno : EIO) : 0;
}

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

static int sge_check(uint32_t first, uint32_t num, uint32_t nsg, uint32_t max)
{
	if (num == 0)
		return 0;
	if (first > nsg || num > nsg - first)
		return CV_BAD_RANGE;
	return num > max ? CV_TOO_MANY : 0;
}

// Some drivers queue first and look at the state later: a refused request would be sent after all. iWARP queue pairs are moved by
// the connection manager without the library's knowledge, so there the driver has the word.
static int too_early(const struct ibv_qp *qp, enum ibv_qp_state from)
{
	return qp->state < from && qp->context->device->transport_type != IBV_TRANSPORT_IWARP;
}

static int convert_send(struct ibv_qp *qp, const struct cv_send_wr *w, struct ibv_send_wr *o, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	int rc = sge_check(w->first_sge, w->num_sge, nsg, max_sge);

	if (rc)
		return rc;
	o->wr_id = w->id;
	o->sg_list = w->num_sge ? sg + w->first_sge : NULL;
	o->num_sge = (int)w->num_sge;
	o->opcode = w->opcode;
	o->send_flags = w->flags;
	o->imm_data = 0;
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

struct cv_posted cv_post_send(uintptr_t handle, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	struct ibv_qp *qp = (struct ibv_qp *)handle;
	struct ibv_send_wr chain[CHAIN], *bad;
	struct cv_posted p = { 0, 0 };
	int ud = qp->qp_type == IBV_QPT_UD;

	if (too_early(qp, IBV_QPS_RTS)) {
		p.rc = CV_BAD_STATE;
		return p;
	}
	if (ud)
		pthread_rwlock_rdlock(&ahs.lock);
	while (p.n < n && !p.rc) {
		uint32_t k, m = n - p.n < CHAIN ? n - p.n : CHAIN;
		int refused = 0, rc;

		for (k = 0; k < m; k++) {
			refused = convert_send(qp, &wr[p.n + k], &chain[k], sg, nsg, max_sge);
			if (refused)
				break;
			chain[k].next = &chain[k + 1];
		}
		if (k) {
			chain[k - 1].next = NULL;
			bad = NULL;
			rc = ibv_post_send(qp, chain, &bad);
			if (rc) {
				p.rc = positive(rc);
				p.n += bad >= chain && bad < chain + k ? (uint32_t)(bad - chain) : 0;
				break;
			}
			p.n += k;
		}
		p.rc = refused;
	}
	if (ud)
		pthread_rwlock_unlock(&ahs.lock);
	return p;
}

static struct cv_posted post_recv(struct ibv_qp *qp, struct ibv_srq *srq, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
				  uint32_t nsg, uint32_t max_sge)
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
			if (rc) {
				p.rc = positive(rc);
				p.n += bad >= chain && bad < chain + k ? (uint32_t)(bad - chain) : 0;
				break;
			}
			p.n += k;
		}
		p.rc = refused;
	}
	return p;
}

struct cv_posted cv_post_recv(uintptr_t handle, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	struct ibv_qp *qp = (struct ibv_qp *)handle;

	if (too_early(qp, IBV_QPS_INIT))
		return (struct cv_posted){ 0, CV_BAD_STATE };
	return post_recv(qp, NULL, wr, n, sg, nsg, max_sge);
}

struct cv_posted cv_post_srq_recv(uintptr_t srq, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg, uint32_t nsg, uint32_t max_sge)
{
	return post_recv(NULL, (struct ibv_srq *)srq, wr, n, sg, nsg, max_sge);
}

int cv_poll_cq(uintptr_t cq, struct ibv_wc *wc, uint32_t n, int rxe)
{
	int i, k = ibv_poll_cq((struct ibv_cq *)cq, (int)n, wc);

	if (k < 0)
		return -positive(k);
	for (i = 0; i < k; i++) {
		struct ibv_wc *w = &wc[i];

		if (w->status != IBV_WC_SUCCESS) {
			w->byte_len = w->src_qp = w->wc_flags = w->imm_data = 0;
			continue;
		}
		if (rxe && w->wc_flags & IBV_WC_IP_CSUM_OK)
			w->wc_flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
		if (!(w->wc_flags & IBV_WC_WITH_INV))
			w->imm_data = w->wc_flags & IBV_WC_WITH_IMM ? ntohl(w->imm_data) : 0;
	}
	return k;
}

int cv_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return positive(ibv_req_notify_cq(cq, solicited_only));
}

int cv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr, uint64_t addr, uint64_t length,
	       uint32_t access, uint32_t *rkey)
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

// ---- what the headers have only as inline functions or macros

int cv_moderate_cq(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE, .moderate = { .cq_count = count, .cq_period = period } };

	return positive(ibv_modify_cq(cq, &attr));
}

struct ibv_cq *cv_create_cq(struct ibv_context *ctx, int depth, uintptr_t handle, struct ibv_comp_channel *ch, int vector)
{
	return ibv_create_cq(ctx, depth, (void *)handle, ch, vector);
}

void cv_set_qp_handle(struct ibv_qp_init_attr *attr, uintptr_t handle)
{
	attr->qp_context = (void *)handle;
}

void cv_set_srq_handle(struct ibv_srq_init_attr *attr, uintptr_t handle)
{
	attr->srq_context = (void *)handle;
}

struct ibv_mr *cv_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t length, uint32_t access)
{
	return ibv_reg_mr(pd, (void *)addr, length, access);
}

int cv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	memset(attr, 0, sizeof(*attr));
	return positive(ibv_query_port(ctx, port, attr));
}

int cv_query_device(struct ibv_context *ctx, struct ibv_device_attr_ex *attr)
{
	memset(attr, 0, sizeof(*attr));
	return positive(ibv_query_device_ex(ctx, NULL, attr));
}

int cv_is_rxe(struct ibv_context *ctx)
{
	struct ibv_device_attr attr;

	return ibv_query_device(ctx, &attr) == 0 && attr.vendor_id == 0xffffff;
}

struct ibv_mw *cv_alloc_mw(struct ibv_pd *pd, uint32_t type)
{
	return ibv_alloc_mw(pd, type);
}

int cv_dealloc_mw(struct ibv_mw *mw)
{
	return positive(ibv_dealloc_mw(mw));
}

// ---- events: taken, copied and acknowledged in one call, so that no destroy ever waits for an acknowledgement

int cv_drain_cq_events(struct ibv_comp_channel *ch, uint64_t *handles, int max)
{
	struct ibv_cq *cq, *last = NULL;
	unsigned int same = 0;
	void *context;
	int n = 0, err = 0;

	while (n < max) {
		if (ibv_get_cq_event(ch, &cq, &context)) {
			err = errno ? errno : EIO;
			break;
		}
		handles[n++] = (uintptr_t)context;
		if (cq != last && same) {
			ibv_ack_cq_events(last, same);
			same = 0;
		}
		last = cq;
		same++;
	}
	if (same)
		ibv_ack_cq_events(last, same);
	return n || !err ? n : -err;
}

int cv_get_async_event(struct ibv_context *ctx, struct cv_async *out)
{
	struct ibv_async_event ev;

	memset(out, 0, sizeof(*out));
	if (ibv_get_async_event(ctx, &ev))
		return errno ? errno : EIO;
	out->type = ev.event_type;
	switch (ev.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->cq = (uintptr_t)ev.element.cq->cq_context;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->qp = (uintptr_t)ev.element.qp->qp_context;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->srq = (uintptr_t)ev.element.srq->srq_context;
		break;
	case IBV_EVENT_WQ_FATAL:
	case IBV_EVENT_DEVICE_FATAL:
		break;
	default:
		out->port = (uint32_t)ev.element.port_num;
	}
	ibv_ack_async_event(&ev);
	return 0;
}

// ---- connection manager

static void to_sockaddr(const struct cv_addr *a, struct sockaddr_storage *ss)
{
	memset(ss, 0, sizeof(*ss));
	if (a->family == 4) {
		struct sockaddr_in *s = (struct sockaddr_in *)ss;

		s->sin_family = AF_INET;
		s->sin_port = htons(a->port);
		memcpy(&s->sin_addr, a->ip, 4);
	} else if (a->family == 6) {
		struct sockaddr_in6 *s = (struct sockaddr_in6 *)ss;

		s->sin6_family = AF_INET6;
		s->sin6_port = htons(a->port);
		s->sin6_scope_id = a->scope;
		memcpy(&s->sin6_addr, a->ip, 16);
	}
}

static void from_sockaddr(const struct sockaddr *sa, struct cv_addr *a)
{
	memset(a, 0, sizeof(*a));
	if (sa->sa_family == AF_INET) {
		const struct sockaddr_in *s = (const struct sockaddr_in *)sa;

		a->family = 4;
		a->port = ntohs(s->sin_port);
		memcpy(a->ip, &s->sin_addr, 4);
	} else if (sa->sa_family == AF_INET6) {
		const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)sa;

		a->family = 6;
		a->port = ntohs(s->sin6_port);
		a->scope = s->sin6_scope_id;
		memcpy(a->ip, &s->sin6_addr, 16);
	}
}

struct rdma_cm_id *cv_cm_create_id(struct rdma_event_channel *ch, uintptr_t handle, uint32_t ps)
{
	struct rdma_cm_id *id;

	return rdma_create_id(ch, &id, (void *)handle, ps) ? NULL : id;
}

struct rdma_cm_id *cv_cm_id_of(uintptr_t id)
{
	return (struct rdma_cm_id *)id;
}

void cv_cm_set_handle(struct rdma_cm_id *id, uintptr_t handle)
{
	id->context = (void *)handle;
}

int cv_get_cm_event(struct rdma_event_channel *ch, struct cv_cm_event *out)
{
	struct rdma_cm_event *ev;
	const void *data;

	if (rdma_get_cm_event(ch, &ev))
		return errno ? errno : EIO;
	memset(out, 0, offsetof(struct cv_cm_event, private_data));
	out->type = ev->event;
	out->status = ev->status;
	out->id = (uintptr_t)ev->id->context;
	if (ev->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		out->new_id = (uintptr_t)ev->id;
		out->listen_id = (uintptr_t)ev->listen_id->context;
	}
	if (ev->id->qp_type == IBV_QPT_UD) {
		data = ev->param.ud.private_data;
		out->private_len = ev->param.ud.private_data_len;
		out->conn.qp_num = ev->param.ud.qp_num;
		out->qkey = ev->param.ud.qkey;
		out->ah = ev->param.ud.ah_attr;
	} else {
		data = ev->param.conn.private_data;
		out->private_len = ev->param.conn.private_data_len;
		out->conn.responder_resources = ev->param.conn.responder_resources;
		out->conn.initiator_depth = ev->param.conn.initiator_depth;
		out->conn.flow_control = ev->param.conn.flow_control;
		out->conn.retry_count = ev->param.conn.retry_count;
		out->conn.rnr_retry_count = ev->param.conn.rnr_retry_count;
		out->conn.srq = ev->param.conn.srq;
		out->conn.qp_num = ev->param.conn.qp_num;
	}
	if (data && out->private_len)
		memcpy(out->private_data, data, out->private_len);
	else
		out->private_len = 0;
	rdma_ack_cm_event(ev);
	return 0;
}

int cv_cm_bind_addr(struct rdma_cm_id *id, const struct cv_addr *a)
{
	struct sockaddr_storage ss;

	to_sockaddr(a, &ss);
	return rc_of(rdma_bind_addr(id, (struct sockaddr *)&ss));
}

int cv_cm_resolve_addr(struct rdma_cm_id *id, const struct cv_addr *src, const struct cv_addr *dst, int timeout_ms)
{
	struct sockaddr_storage s, d;

	to_sockaddr(src, &s);
	to_sockaddr(dst, &d);
	return rc_of(rdma_resolve_addr(id, src->family ? (struct sockaddr *)&s : NULL, (struct sockaddr *)&d, timeout_ms));
}

void cv_cm_addrs(struct rdma_cm_id *id, struct cv_addr *local, struct cv_addr *remote)
{
	from_sockaddr(rdma_get_local_addr(id), local);
	from_sockaddr(rdma_get_peer_addr(id), remote);
}

static struct rdma_conn_param conn_param(const struct cv_conn *c, const uint8_t *data, uint32_t len)
{
	return (struct rdma_conn_param){
		.private_data = len ? data : NULL,
		.private_data_len = (uint8_t)len,
		.responder_resources = c->responder_resources,
		.initiator_depth = c->initiator_depth,
		.flow_control = c->flow_control,
		.retry_count = c->retry_count,
		.rnr_retry_count = c->rnr_retry_count,
		.srq = c->srq,
		.qp_num = c->qp_num,
	};
}

int cv_cm_connect(struct rdma_cm_id *id, const struct cv_conn *c, const uint8_t *data, uint32_t len)
{
	struct rdma_conn_param p = conn_param(c, data, len);

	return rc_of(rdma_connect(id, &p));
}

int cv_cm_accept(struct rdma_cm_id *id, const struct cv_conn *c, const uint8_t *data, uint32_t len)
{
	struct rdma_conn_param p = conn_param(c, data, len);

	return rc_of(rdma_accept(id, &p));
}

int cv_cm_reject(struct rdma_cm_id *id, const uint8_t *data, uint32_t len)
{
	return rc_of(rdma_reject(id, len ? data : NULL, (uint8_t)len));
}

int cv_cm_set_option(struct rdma_cm_id *id, int name, int value, int size)
{
	uint8_t byte = (uint8_t)value;

	return rc_of(rdma_set_option(id, RDMA_OPTION_ID, name, size == 1 ? (void *)&byte : (void *)&value, (size_t)size));
}

int cv_cm_resolve_route(struct rdma_cm_id *id, int timeout_ms) { return rc_of(rdma_resolve_route(id, timeout_ms)); }
int cv_cm_listen(struct rdma_cm_id *id, int backlog) { return rc_of(rdma_listen(id, backlog)); }
int cv_cm_establish(struct rdma_cm_id *id) { return rc_of(rdma_establish(id)); }
int cv_cm_notify(struct rdma_cm_id *id, uint32_t event) { return rc_of(rdma_notify(id, event)); }
int cv_cm_disconnect(struct rdma_cm_id *id) { return rc_of(rdma_disconnect(id)); }
int cv_cm_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) { return rc_of(rdma_init_qp_attr(id, attr, mask)); }
int cv_cm_migrate(struct rdma_cm_id *id, struct rdma_event_channel *ch) { return rc_of(rdma_migrate_id(id, ch)); }
