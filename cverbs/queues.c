//go:build linux && cgo

// Receive queues that are not part of a queue pair: shared receive queues of extended reliable
// connections, and receive queues in tables (receive side scaling).

#include "shim.h"

struct ibv_srq *cv_create_xrc_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_xrcd *xrcd,
	struct ibv_cq *cq)
{
	struct ibv_srq_init_attr_ex x = { .srq_context = attr->srq_context, .attr = attr->attr,
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
		.srq_type = IBV_SRQT_XRC, .pd = pd, .xrcd = xrcd, .cq = cq };
	struct ibv_srq *srq = ibv_create_srq_ex(pd->context, &x);

	attr->attr = x.attr;
	return srq;
}

struct ibv_wq *cv_create_wq(struct ibv_pd *pd, struct ibv_cq *cq, uintptr_t handle, uint32_t *max_wr,
	uint32_t *max_sge, uint32_t flags)
{
	struct ibv_wq_init_attr attr = { .wq_context = (void *)handle, .wq_type = IBV_WQT_RQ, .max_wr = *max_wr,
		.max_sge = *max_sge, .pd = pd, .cq = cq, .comp_mask = flags ? IBV_WQ_INIT_ATTR_FLAGS : 0,
		.create_flags = flags };
	struct ibv_wq *wq = ibv_create_wq(pd->context, &attr);

	if (wq) { // the library leaves this to its caller
		wq->wq_context = (void *)handle;
		wq->events_completed = 0;
		pthread_mutex_init(&wq->mutex, NULL);
		pthread_cond_init(&wq->cond, NULL);
	}
	*max_wr = attr.max_wr;
	*max_sge = attr.max_sge;
	return wq;
}

struct ibv_rwq_ind_table *cv_create_ind_table(struct ibv_context *ctx, uint32_t log_size, struct ibv_wq **queues)
{
	struct ibv_rwq_ind_table_init_attr attr = { .log_ind_tbl_size = log_size, .ind_tbl = queues };

	return ibv_create_rwq_ind_table(ctx, &attr);
}
