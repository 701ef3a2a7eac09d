//go:build linux && cgo

// Posts to extended queue pairs, with the functions ibv_wr_*. All requests of a chain are posted
// between one ibv_wr_start and one ibv_wr_complete.

#include "datapath.h"
#include "gate.h"
#include <arpa/inet.h>
#include <string.h>

enum {
	MAX_GATHERED = 1024, // bytes
};

static void extend(struct ibv_qp_init_attr_ex *x, struct ibv_pd *pd, const struct ibv_qp_init_attr *attr,
	struct cv_qp_more *more)
{
	memset(x, 0, sizeof(*x));
	memcpy(x, attr, sizeof(*attr)); // both structs begin with the same fields
	x->comp_mask = IBV_QP_INIT_ATTR_PD;
	x->pd = pd;
	if (more->ops) {
		x->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		x->send_ops_flags = more->ops;
	}
	if (more->flags) {
		x->comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
		x->create_flags = more->flags;
		x->source_qpn = more->source_qpn;
	}
	if (more->tso) {
		x->comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		x->max_tso_header = more->tso;
	}
	if (more->table) {
		x->comp_mask |= IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
		x->rwq_ind_tbl = more->table;
		x->rx_hash_conf = (struct ibv_rx_hash_conf){ more->hash_function, more->key_len, more->key,
			more->hash_fields };
	}
}

struct ibv_qp *cv_create_qp_ex(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct cv_qp_more *more)
{
	struct ibv_qp_init_attr_ex x;
	struct ibv_qp *qp;

	extend(&x, pd, attr, more);
	qp = ibv_create_qp_ex(pd->context, &x);
	attr->cap = x.cap;
	return qp;
}

int cv_cm_create_qp_ex(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
	struct cv_qp_more *more)
{
	struct ibv_qp_init_attr_ex x;
	int rc;

	extend(&x, pd, attr, more);
	rc = rdma_create_qp_ex(id, &x);
	attr->cap = x.cap;
	return rc;
}

struct ibv_qp *cv_create_xrc_qp(struct ibv_xrcd *xrcd, uintptr_t handle)
{
	struct ibv_qp_init_attr_ex x = { .qp_context = (void *)handle, .qp_type = IBV_QPT_XRC_RECV,
		.comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd };

	return ibv_create_qp_ex(xrcd->context, &x);
}

struct ibv_qp *cv_open_xrc_qp(struct ibv_xrcd *xrcd, uint32_t num, uintptr_t handle)
{
	struct ibv_qp_open_attr attr = { .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
		IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE, .qp_num = num, .xrcd = xrcd,
		.qp_context = (void *)handle, .qp_type = IBV_QPT_XRC_RECV };

	return ibv_open_qp(xrcd->context, &attr);
}

// Copies the data of all segments to buffer, which has MAX_GATHERED bytes. If buffer is NULL,
// gather copies nothing. Returns the length of the data, or MAX_GATHERED + 1 if the data is longer
// than MAX_GATHERED.
static uint32_t gather(char *buffer, const struct ibv_sge *sg, uint32_t n)
{
	uint32_t used = 0;

	for (; n; n--, sg++) {
		const uint32_t length = sg->length; // read once, because other threads may change it

		if (length > MAX_GATHERED - used)
			return MAX_GATHERED + 1;
		if (buffer)
			memcpy(buffer + used, (const void *)(uintptr_t)sg->addr, length);
		used += length;
	}
	return used;
}

// Returns 0 if a request can be posted, else an error code.
static int check(const struct ibv_qp *qp, const struct cv_send_wr *w, const struct ibv_sge *sg, uint32_t nsg,
	uint32_t max_sge, uint64_t ops)
{
	const uint64_t with = w->opcode <= IBV_WR_TSO ? 1u << w->opcode :
		w->opcode == IBV_WR_ATOMIC_WRITE ? IBV_QP_EX_WITH_ATOMIC_WRITE : 0;
	const int is_inline = (w->flags & IBV_SEND_INLINE) != 0;
	int refused = sge_check(w->first_sge, w->num_sge, nsg, is_inline ? CV_MAX_BUFFERS : max_sge);

	if (refused)
		return refused;
	if (!(with & ops) || w->opcode == IBV_WR_BIND_MW)
		return CV_BAD_OPCODE;
	if (is_inline && ops & CV_GATHER && gather(NULL, sg + w->first_sge, w->num_sge) > MAX_GATHERED)
		return EINVAL;
	if (w->opcode == IBV_WR_TSO && (!w->num_sge || sg[w->first_sge].length > UINT16_MAX))
		return CV_BAD_HEADER;
	if (qp->qp_type == IBV_QPT_UD) {
		struct ibv_ah *ah = cv_ah_of(w->ah);

		if (!ah || ah->context != qp->context)
			return CV_BAD_AH;
	}
	return 0;
}

static void set_inline(struct ibv_qp_ex *x, const struct ibv_sge *sg, uint32_t n, uint64_t ops)
{
	struct ibv_data_buf buffers[CV_MAX_BUFFERS];
	char all[MAX_GATHERED];
	uint32_t i;

	if (n == 1) {
		x->wr_set_inline_data(x, (void *)(uintptr_t)sg->addr, sg->length);
	} else if (ops & CV_GATHER) {
		i = gather(all, sg, n);
		x->wr_set_inline_data(x, all, i > MAX_GATHERED ? 0 : i);
	} else {
		for (i = 0; i < n; i++)
			buffers[i] = (struct ibv_data_buf){ (void *)(uintptr_t)sg[i].addr, sg[i].length };
		x->wr_set_inline_data_list(x, n, buffers);
	}
}

static void add(struct ibv_qp_ex *x, const struct cv_send_wr *w, struct ibv_sge *sg, uint64_t ops)
{
	uint32_t n = w->num_sge;

	sg += w->first_sge;
	x->wr_id = w->id;
	x->wr_flags = w->flags; // rxe needs IBV_SEND_INLINE too
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
		x->wr_rdma_write(x, w->rkey, w->remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		x->wr_rdma_write_imm(x, w->rkey, w->remote_addr, htonl(w->imm));
		break;
	case IBV_WR_SEND:
		x->wr_send(x);
		break;
	case IBV_WR_SEND_WITH_IMM:
		x->wr_send_imm(x, htonl(w->imm));
		break;
	case IBV_WR_SEND_WITH_INV:
		x->wr_send_inv(x, w->rkey);
		break;
	case IBV_WR_RDMA_READ:
		x->wr_rdma_read(x, w->rkey, w->remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		x->wr_atomic_cmp_swp(x, w->rkey, w->remote_addr, w->compare_add, w->swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		x->wr_atomic_fetch_add(x, w->rkey, w->remote_addr, w->compare_add);
		break;
	case IBV_WR_TSO:
		x->wr_send_tso(x, (void *)(uintptr_t)sg->addr, (uint16_t)sg->length, (uint16_t)w->imm);
		sg++;
		n--;
		break;
	case IBV_WR_ATOMIC_WRITE:
		x->wr_atomic_write(x, w->rkey, w->remote_addr, &w->swap);
		return;
	case IBV_WR_LOCAL_INV:
		x->wr_local_inv(x, w->rkey);
		return;
	}
	if (x->qp_base.qp_type == IBV_QPT_UD)
		x->wr_set_ud_addr(x, cv_ah_of(w->ah), w->remote_qpn, w->remote_qkey);
	if (x->qp_base.qp_type == IBV_QPT_XRC_SEND)
		x->wr_set_xrc_srqn(x, w->remote_qpn);
	if (w->flags & IBV_SEND_INLINE)
		set_inline(x, sg, n, ops);
	else if (n == 1)
		x->wr_set_sge(x, sg->lkey, sg->addr, sg->length);
	else
		x->wr_set_sge_list(x, n, sg);
}

// Ends a chain. Returns 0 or an errno. For a full queue rxe returns ENOSPC. This becomes ENOMEM,
// the errno of ibv_post_send.
static int complete(struct ibv_qp_ex *x)
{
	int rc = positive(x->wr_complete(x));

	return rc == ENOSPC ? ENOMEM : rc;
}

int cv_bind_mw_ex(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags,
	const struct ibv_mw_bind_info *info, uint32_t rkey)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);

	x->wr_start(x);
	x->wr_id = id;
	x->wr_flags = flags;
	x->wr_bind_mw(x, mw, rkey, info);
	return complete(x);
}

struct cv_posted cv_post_send_ex(const uintptr_t *gate, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge, uint64_t ops)
{
	struct ibv_qp *qp = cv_enter(gate);
	struct ibv_qp_ex *x;
	struct cv_posted p = { 0, 0 };

	if (!qp)
		return (struct cv_posted){ 0, CV_CLOSED };
	if (too_early(qp, IBV_QPS_RTS)) {
		cv_leave();
		return (struct cv_posted){ 0, CV_BAD_STATE };
	}
	x = ibv_qp_to_qp_ex(qp);
	pthread_rwlock_rdlock(&cv_ahs);
	while (p.n < n && !p.rc) {
		uint32_t i, k, m = n - p.n < CHAIN ? n - p.n : CHAIN;
		int refused = 0, rc;

		for (k = 0; k < m && !(refused = check(qp, &wr[p.n + k], sg, nsg, max_sge, ops)); k++)
			;
		if (k) {
			x->wr_start(x);
			for (i = 0; i < k; i++)
				add(x, &wr[p.n + i], sg, ops);
			rc = complete(x);
			if (rc) {
				p.rc = rc;
				break;
			}
			p.n += k;
		}
		p.rc = refused;
	}
	pthread_rwlock_unlock(&cv_ahs);
	cv_leave();
	return p;
}
