//go:build dat2

// The C side of the provider: entry points for libdat2, the table of functions, and the layouts of
// events. Handles and all semantics are in Go. wait.c contains the calls that dequeue events or
// wait for them. All calls enter Go through enter.c.

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "_cgo_export.h"

// The memory of handles. It consists of pieces, each twice as large as the one before.

char *godat_handles[GODAT_PIECES];

static const godat_handle *at(DAT_HANDLE h)
{
	for (int i = 0; i < GODAT_PIECES; i++) {
		const char *piece = __atomic_load_n(&godat_handles[i], __ATOMIC_ACQUIRE);
		uintptr_t offset = (uintptr_t)h - (uintptr_t)piece;

		if (!piece)
			return NULL;
		if (offset < ((uintptr_t)GODAT_PIECE << i) * sizeof(godat_handle))
			return offset % sizeof(godat_handle) ? NULL : h;
	}
	return NULL;
}

static int valid(DAT_HANDLE h)
{
	const godat_handle *g = at(h);

	return g && __atomic_load_n(&g->kind, __ATOMIC_ACQUIRE);
}

godat_handle *godat_handles_more(int i)
{
	char *piece = calloc((size_t)GODAT_PIECE << i, sizeof(godat_handle));

	__atomic_store_n(&godat_handles[i], piece, __ATOMIC_RELEASE);
	return (godat_handle *)piece;
}

// Events.

void godat_layout(const godat_event *e, DAT_EVENT *out)
{
	DAT_EVENT_DATA *d = &out->event_data;
	DAT_IB_EXTENSION_EVENT_DATA *x = (void *)out->event_extension_data;

	out->event_number = e->number;
	out->evd_handle = e->evd;
	switch (e->number & ~0xfffu) {
	case DAT_DTO_COMPLETION_EVENT & ~0xfff:
		d->dto_completion_event_data.ep_handle = e->object;
		d->dto_completion_event_data.user_cookie.as_64 = e->cookie;
		d->dto_completion_event_data.status = e->status;
		d->dto_completion_event_data.transfered_length = e->length;
		d->dto_completion_event_data.operation = e->operation;
		d->dto_completion_event_data.rmr_context = e->rmr_context;
		if (e->extension < 0)
			break;
		out->event_number = (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT;
		x->type = e->extension;
		x->status = e->status ? DAT_IB_OP_ERR : DAT_OP_SUCCESS;
		x->val.immed.data = e->immediate;
		break;
	case DAT_RMR_BIND_COMPLETION_EVENT & ~0xfff:
		d->rmr_completion_event_data.rmr_handle = e->object;
		d->rmr_completion_event_data.user_cookie.as_64 = e->cookie;
		d->rmr_completion_event_data.status = e->status;
		break;
	case DAT_CONNECTION_REQUEST_EVENT & ~0xfff:
		d->cr_arrival_event_data.sp_handle.psp_handle = e->object;
		d->cr_arrival_event_data.local_ia_address_ptr = e->address;
		d->cr_arrival_event_data.conn_qual = e->qual;
		d->cr_arrival_event_data.cr_handle = e->cr;
		d->cr_arrival_event_data.truncate_flag = DAT_FALSE;
		break;
	case DAT_CONNECTION_EVENT_ESTABLISHED & ~0xfff:
		d->connect_event_data.ep_handle = e->object;
		d->connect_event_data.private_data_size = e->private_size;
		d->connect_event_data.private_data = e->private_data;
		break;
	case DAT_SOFTWARE_EVENT & ~0xfff:
		d->software_event_data.pointer = (void *)(uintptr_t)e->cookie;
		break;
	default:
		d->asynch_error_event_data.dat_handle = e->object;
		d->asynch_error_event_data.reason = e->reason;
	}
}

static DAT_RETURN evd_post_se(DAT_EVD_HANDLE evd, const DAT_EVENT *event)
{
	if (!event || event->event_number != DAT_SOFTWARE_EVENT)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG2;
	return godat_evd_post_se(evd, (uintptr_t)event->event_data.software_event_data.pointer);
}

static DAT_RETURN cno_create(DAT_IA_HANDLE ia, DAT_OS_WAIT_PROXY_AGENT agent, DAT_CNO_HANDLE *cno)
{
	return godat_cno_create(ia, agent.proxy_agent_func, agent.instance_data, cno);
}

static DAT_RETURN cno_modify_agent(DAT_CNO_HANDLE cno, DAT_OS_WAIT_PROXY_AGENT agent)
{
	return godat_cno_modify_agent(cno, agent.proxy_agent_func, agent.instance_data);
}

static DAT_RETURN cno_query(DAT_CNO_HANDLE cno, DAT_CNO_PARAM_MASK mask, DAT_CNO_PARAM *param)
{
	DAT_AGENT_FUNC func = NULL;
	DAT_PVOID data = NULL;
	DAT_RETURN ret;

	if (!param)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG3;
	ret = godat_cno_query(cno, mask, &param->ia_handle, &func, &data);
	if (ret != DAT_SUCCESS)
		return ret;
	param->proxy_type = func ? DAT_PROXY_TYPE_AGENT : DAT_PROXY_TYPE_NONE;
	param->proxy.agent.proxy_agent_func = func;
	param->proxy.agent.instance_data = data;
	return ret;
}

// Handles.

static DAT_RETURN set_consumer_context(DAT_HANDLE h, DAT_CONTEXT context)
{
	if (!valid(h))
		return DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE1;
	((godat_handle *)h)->context = context;
	return DAT_SUCCESS;
}

static DAT_RETURN get_consumer_context(DAT_HANDLE h, DAT_CONTEXT *context)
{
	if (!valid(h))
		return DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE1;
	if (!context)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG2;
	*context = ((godat_handle *)h)->context;
	return DAT_SUCCESS;
}

static DAT_RETURN get_handle_type(DAT_HANDLE h, DAT_HANDLE_TYPE *type)
{
	if (!valid(h))
		return DAT_CLASS_ERROR | DAT_INVALID_HANDLE | DAT_INVALID_HANDLE1;
	if (!type)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG2;
	*type = ((godat_handle *)h)->kind - 1;
	return DAT_SUCCESS;
}

// Posts.

static DAT_RETURN ep_post_send(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
			       DAT_COMPLETION_FLAGS flags)
{
	return godat_ep_post(ep, GODAT_SEND, n, iov, cookie.as_64, NULL, flags, 0, 0);
}

static DAT_RETURN ep_post_send_with_invalidate(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov,
					       DAT_DTO_COOKIE cookie, DAT_COMPLETION_FLAGS flags,
					       DAT_BOOLEAN invalidate, DAT_RMR_CONTEXT context)
{
	return godat_ep_post(ep, invalidate ? GODAT_SEND_INVALIDATE : GODAT_SEND, n, iov, cookie.as_64, NULL, flags,
			     context, 0);
}

static DAT_RETURN ep_post_recv(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
			       DAT_COMPLETION_FLAGS flags)
{
	return godat_ep_post_recv(ep, n, iov, cookie.as_64, flags);
}

static DAT_RETURN ep_post_rdma_read(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
				    const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
	return godat_ep_post(ep, GODAT_READ, n, iov, cookie.as_64, (void *)remote, flags, 0, 0);
}

static DAT_RETURN ep_post_rdma_write(DAT_EP_HANDLE ep, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie,
				     const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
	return godat_ep_post(ep, GODAT_WRITE, n, iov, cookie.as_64, (void *)remote, flags, 0, 0);
}

static DAT_RETURN ep_post_rdma_read_to_rmr(DAT_EP_HANDLE ep, const DAT_RMR_TRIPLET *local, DAT_DTO_COOKIE cookie,
					   const DAT_RMR_TRIPLET *remote, DAT_COMPLETION_FLAGS flags)
{
	return godat_ep_post_rdma_read_to_rmr(ep, (void *)local, cookie.as_64, (void *)remote, flags);
}

static DAT_RETURN srq_post_recv(DAT_SRQ_HANDLE srq, DAT_COUNT n, DAT_LMR_TRIPLET *iov, DAT_DTO_COOKIE cookie)
{
	return godat_srq_post_recv(srq, n, iov, cookie.as_64);
}

static DAT_RETURN rmr_bind(DAT_RMR_HANDLE rmr, DAT_LMR_HANDLE lmr, const DAT_LMR_TRIPLET *triplet,
			   DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_EP_HANDLE ep, DAT_RMR_COOKIE cookie,
			   DAT_COMPLETION_FLAGS flags, DAT_RMR_CONTEXT *context)
{
	return godat_rmr_bind(rmr, lmr, (void *)triplet, priv, va, ep, cookie.as_64, flags, context);
}

static DAT_RETURN extended_op(DAT_HANDLE h, DAT_EXTENDED_OP op, va_list args)
{
	DAT_UINT64 a = 0, b = 0;
	DAT_COUNT n = 1;
	DAT_LMR_TRIPLET *iov;
	DAT_RMR_TRIPLET *remote;
	DAT_DTO_COOKIE cookie;
	uint32_t kind;

	switch ((int)op) {
	case DAT_IB_FETCH_AND_ADD_OP:
		kind = GODAT_FETCH_ADD;
		a = va_arg(args, DAT_UINT64);
		break;
	case DAT_IB_CMP_AND_SWAP_OP:
		kind = GODAT_CMP_SWAP;
		a = va_arg(args, DAT_UINT64);
		b = va_arg(args, DAT_UINT64);
		break;
	case DAT_IB_RDMA_WRITE_IMMED_OP:
		kind = GODAT_WRITE_IMMEDIATE;
		n = va_arg(args, DAT_COUNT);
		break;
	default:
		return DAT_CLASS_ERROR | DAT_NOT_IMPLEMENTED;
	}
	iov = va_arg(args, DAT_LMR_TRIPLET *);
	cookie = va_arg(args, DAT_DTO_COOKIE);
	remote = va_arg(args, DAT_RMR_TRIPLET *);
	if (kind == GODAT_WRITE_IMMEDIATE)
		a = va_arg(args, DAT_UINT32);
	return godat_ep_post(h, kind, n, iov, cookie.as_64, remote, va_arg(args, int), a, b);
}

// Memory.

static DAT_RETURN lmr_create(DAT_IA_HANDLE ia, DAT_MEM_TYPE type, DAT_REGION_DESCRIPTION region, DAT_VLEN length,
			     DAT_PZ_HANDLE pz, DAT_MEM_PRIV_FLAGS priv, DAT_VA_TYPE va, DAT_LMR_HANDLE *lmr,
			     DAT_LMR_CONTEXT *lmr_context, DAT_RMR_CONTEXT *rmr_context, DAT_VLEN *size,
			     DAT_VADDR *address)
{
	void *id = type == DAT_MEM_TYPE_SHARED_VIRTUAL ? region.for_shared_memory.shared_memory_id : NULL;

	return godat_lmr_create(ia, type, region.for_va, id, length, pz, priv, va, lmr, lmr_context, rmr_context, size,
				address);
}

// Functions that this provider does not support.

static DAT_RETURN csp_create(DAT_IA_HANDLE ia, DAT_COMM *comm, DAT_IA_ADDRESS_PTR address, DAT_EVD_HANDLE evd,
			     DAT_CSP_HANDLE *csp)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static DAT_RETURN csp_query(DAT_CSP_HANDLE csp, DAT_CSP_PARAM_MASK mask, DAT_CSP_PARAM *param)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static DAT_RETURN csp_free(DAT_CSP_HANDLE csp) { return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED; }

static DAT_RETURN ep_common_connect(DAT_EP_HANDLE ep, DAT_IA_ADDRESS_PTR address, DAT_TIMEOUT timeout,
				    DAT_COUNT size, const DAT_PVOID data)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static DAT_RETURN rmr_create_for_ep(DAT_PZ_HANDLE pz, DAT_RMR_HANDLE *rmr)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static DAT_RETURN cno_fd_create(DAT_IA_HANDLE ia, DAT_FD *fd, DAT_CNO_HANDLE *cno)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static DAT_RETURN cno_trigger(DAT_CNO_HANDLE cno, DAT_EVD_HANDLE *evd)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static DAT_RETURN ia_ha_related(DAT_IA_HANDLE ia, const DAT_NAME_PTR name, DAT_BOOLEAN *related)
{
	return DAT_CLASS_ERROR | DAT_MODEL_NOT_SUPPORTED;
}

static const DAT_PROVIDER table = {
	.ia_query_func = godat_ia_query,
	.ia_close_func = godat_ia_close,
	.set_consumer_context_func = set_consumer_context,
	.get_consumer_context_func = get_consumer_context,
	.get_handle_type_func = get_handle_type,
	.cno_create_func = cno_create,
	.cno_modify_agent_func = cno_modify_agent,
	.cno_query_func = cno_query,
	.cno_free_func = godat_cno_free,
	.cno_wait_func = godat_c_cno_wait,
	.cr_query_func = godat_cr_query,
	.cr_accept_func = godat_cr_accept,
	.cr_reject_func = godat_cr_reject,
	.cr_handoff_func = godat_cr_handoff,
	.evd_create_func = godat_evd_create,
	.evd_query_func = godat_evd_query,
	.evd_modify_cno_func = godat_evd_modify_cno,
	.evd_enable_func = godat_evd_enable,
	.evd_disable_func = godat_evd_disable,
	.evd_wait_func = godat_c_evd_wait,
	.evd_resize_func = godat_evd_resize,
	.evd_post_se_func = evd_post_se,
	.evd_dequeue_func = godat_c_evd_dequeue,
	.evd_free_func = godat_evd_free,
	.ep_create_func = godat_ep_create,
	.ep_query_func = godat_ep_query,
	.ep_modify_func = godat_ep_modify,
	.ep_connect_func = godat_ep_connect,
	.ep_dup_connect_func = godat_ep_dup_connect,
	.ep_disconnect_func = godat_ep_disconnect,
	.ep_post_send_func = ep_post_send,
	.ep_post_recv_func = ep_post_recv,
	.ep_post_rdma_read_func = ep_post_rdma_read,
	.ep_post_rdma_write_func = ep_post_rdma_write,
	.ep_get_status_func = godat_ep_get_status,
	.ep_free_func = godat_ep_free,
	.lmr_create_func = lmr_create,
	.lmr_query_func = godat_lmr_query,
	.lmr_free_func = godat_lmr_free,
	.rmr_create_func = godat_rmr_create,
	.rmr_query_func = godat_rmr_query,
	.rmr_bind_func = rmr_bind,
	.rmr_free_func = godat_rmr_free,
	.psp_create_func = godat_psp_create,
	.psp_query_func = godat_psp_query,
	.psp_free_func = godat_psp_free,
	.rsp_create_func = godat_rsp_create,
	.rsp_query_func = godat_rsp_query,
	.rsp_free_func = godat_rsp_free,
	.pz_create_func = godat_pz_create,
	.pz_query_func = godat_pz_query,
	.pz_free_func = godat_pz_free,
	.psp_create_any_func = godat_psp_create_any,
	.ep_reset_func = godat_ep_reset,
	.evd_set_unwaitable_func = godat_evd_set_unwaitable,
	.evd_clear_unwaitable_func = godat_evd_clear_unwaitable,
	.lmr_sync_rdma_read_func = godat_lmr_sync_rdma_read,
	.lmr_sync_rdma_write_func = godat_lmr_sync_rdma_write,
	.ep_create_with_srq_func = godat_ep_create_with_srq,
	.ep_recv_query_func = godat_ep_recv_query,
	.ep_set_watermark_func = godat_ep_set_watermark,
	.srq_create_func = godat_srq_create,
	.srq_free_func = godat_srq_free,
	.srq_post_recv_func = srq_post_recv,
	.srq_query_func = godat_srq_query,
	.srq_resize_func = godat_srq_resize,
	.srq_set_lw_func = godat_srq_set_lw,
	.csp_create_func = csp_create,
	.csp_query_func = csp_query,
	.csp_free_func = csp_free,
	.ep_common_connect_func = ep_common_connect,
	.rmr_create_for_ep_func = rmr_create_for_ep,
	.ep_post_send_with_invalidate_func = ep_post_send_with_invalidate,
	.ep_post_rdma_read_to_rmr_func = ep_post_rdma_read_to_rmr,
	.cno_fd_create_func = cno_fd_create,
	.cno_trigger_func = cno_trigger,
	.ia_ha_related_func = ia_ha_related,
	.handle_extendedop_func = extended_op,
};

// Entry points. Each line of dat.conf has a table of its own. The table is never freed, because
// handles point to it. libdat2 finds the line of an adapter by its name and the attribute
// is_thread_safe.

static DAT_RETURN ia_open(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async, DAT_IA_HANDLE *ia)
{
	return godat_ia_open(name, DAT_FALSE, qlen, async, ia);
}

static DAT_RETURN ia_open_safe(const DAT_NAME_PTR name, DAT_COUNT qlen, DAT_EVD_HANDLE *async, DAT_IA_HANDLE *ia)
{
	return godat_ia_open(name, DAT_TRUE, qlen, async, ia);
}

static struct named {
	struct named *next;
	DAT_BOOLEAN safe;
	DAT_PROVIDER provider;
} *names;
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

const DAT_PROVIDER *godat_provider(const char *name, DAT_BOOLEAN safe)
{
	struct named *n;

	pthread_mutex_lock(&names_lock);
	for (n = names; n && (strcmp(n->provider.device_name, name) || n->safe != safe); n = n->next)
		;
	if (!n && (n = malloc(sizeof *n))) {
		n->safe = safe;
		n->provider = table;
		n->provider.device_name = strdup(name);
		n->provider.ia_open_func = safe ? ia_open_safe : ia_open;
		n->next = names;
		names = n;
	}
	pthread_mutex_unlock(&names_lock);
	return n ? &n->provider : NULL;
}

void dat_provider_init(const DAT_PROVIDER_INFO *info, const char *instance)
{
	const DAT_PROVIDER *p = godat_provider(info->ia_name, info->is_thread_safe);

	if (p && godat_name((char *)info->ia_name, info->is_thread_safe, (char *)instance))
		dat_registry_add_provider(p, info);
}

void dat_provider_fini(const DAT_PROVIDER_INFO *info)
{
	dat_registry_remove_provider(godat_provider(info->ia_name, info->is_thread_safe), info);
}
