//go:build linux && cgo

#include "shim.h"
#include "sockaddr.h"
#include <string.h>

static int rc_of(int rc) // librdmacm returns 0, or -1 with errno set
{
	return rc ? (errno ? errno : EIO) : 0;
}

// ---- inline functions and macros of the headers

int cv_moderate_cq(struct ibv_cq *cq, uint16_t count, uint16_t period)
{
	struct ibv_modify_cq_attr attr = { .attr_mask = IBV_CQ_ATTR_MODERATE,
		.moderate = { .cq_count = count, .cq_period = period } };

	return positive(ibv_modify_cq(cq, &attr));
}

struct ibv_cq *cv_create_cq(struct ibv_context *ctx, int depth, uintptr_t handle, struct ibv_comp_channel *ch,
	int vector)
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
	return ibv_reg_mr_iova2(pd, (void *)addr, length, addr, access);
}

struct ibv_mr *cv_reg_mr_iova(struct ibv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, uint32_t access)
{
	return ibv_reg_mr_iova2(pd, (void *)addr, length, iova, access);
}

int cv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, size_t length, int access)
{
	return ibv_rereg_mr(mr, flags, pd, (void *)addr, length, access);
}

int cv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	struct verbs_context *v = cv_extended(ctx, offsetof(struct verbs_context, query_port));

	memset(attr, 0, sizeof(*attr));
	return positive(v ? v->query_port(ctx, port, attr, sizeof(*attr)) : ibv_query_port(ctx, port, (void *)attr));
}

int cv_query_device(struct ibv_context *ctx, struct ibv_device_attr_ex *attr)
{
	struct verbs_context *v = cv_extended(ctx, offsetof(struct verbs_context, query_device_ex));
	int rc = EOPNOTSUPP;

	memset(attr, 0, sizeof(*attr));
	if (v)
		rc = positive(v->query_device_ex(ctx, NULL, attr, sizeof(*attr)));
	return rc == EOPNOTSUPP || rc == ENOSYS ? positive(ibv_query_device(ctx, &attr->orig_attr)) : rc;
}

uint32_t cv_vendor(struct ibv_context *ctx)
{
	struct ibv_device_attr attr;

	return ibv_query_device(ctx, &attr) == 0 ? attr.vendor_id : 0;
}

int cv_dealloc_mw(struct ibv_mw *mw)
{
	return positive(mw->context->ops.dealloc_mw(mw));
}

// ---- events: acknowledged at once, so that no destroy waits for an acknowledgement

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
		out->wq = (uintptr_t)ev.element.wq->wq_context;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		break;
	default:
		out->port = (uint32_t)ev.element.port_num;
	}
	ibv_ack_async_event(&ev);
	return 0;
}

// ---- connection manager

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
		if (ev->event == RDMA_CM_EVENT_MULTICAST_JOIN || ev->event == RDMA_CM_EVENT_MULTICAST_ERROR) {
			out->join = (uintptr_t)data;
			data = NULL;
		}
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

	cv_to_sockaddr(a, &ss);
	return rc_of(rdma_bind_addr(id, (struct sockaddr *)&ss));
}

int cv_cm_resolve_addr(struct rdma_cm_id *id, const struct cv_addr *src, const struct cv_addr *dst, int timeout_ms)
{
	struct sockaddr_storage s, d;

	cv_to_sockaddr(src, &s);
	cv_to_sockaddr(dst, &d);
	return rc_of(rdma_resolve_addr(id, src->family ? (struct sockaddr *)&s : NULL, (struct sockaddr *)&d, timeout_ms));
}

void cv_cm_addrs(struct rdma_cm_id *id, struct cv_addr *local, struct cv_addr *remote)
{
	cv_from_sockaddr(&id->route.addr.src_addr, local);
	cv_from_sockaddr(&id->route.addr.dst_addr, remote);
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

int cv_cm_reject_ece(struct rdma_cm_id *id, const uint8_t *data, uint32_t len)
{
	return rc_of(rdma_reject_ece(id, len ? data : NULL, (uint8_t)len));
}

// Does what rdma_destroy_qp does, but keeps id->qp if the queue pair cannot be destroyed.
int cv_cm_destroy_qp(struct rdma_cm_id *id)
{
	int rc = positive(ibv_destroy_qp(id->qp));

	if (!rc)
		id->qp = NULL;
	return rc;
}

int cv_cm_join(struct rdma_cm_id *id, const struct cv_addr *group, uint32_t flags, uintptr_t handle)
{
	struct sockaddr_storage ss;
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = (struct sockaddr *)&ss,
	};

	cv_to_sockaddr(group, &ss);
	if (flags == RDMA_MC_JOIN_FLAG_FULLMEMBER)
		return rc_of(rdma_join_multicast(id, (struct sockaddr *)&ss, (void *)handle));
	return rc_of(rdma_join_multicast_ex(id, &attr, (void *)handle));
}

int cv_cm_leave(struct rdma_cm_id *id, const struct cv_addr *group)
{
	struct sockaddr_storage ss;

	cv_to_sockaddr(group, &ss);
	return rc_of(rdma_leave_multicast(id, (struct sockaddr *)&ss));
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
int cv_cm_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
	int *mask) { return rc_of(rdma_init_qp_attr(id, attr, mask)); }
int cv_cm_migrate(struct rdma_cm_id *id, struct rdma_event_channel *ch) { return rc_of(rdma_migrate_id(id, ch)); }
