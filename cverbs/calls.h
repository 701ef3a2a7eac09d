// The functions of libibverbs and librdmacm that this package calls. library.c loads the libraries.
#ifndef GODAT_CVERBS_CALLS_H
#define GODAT_CVERBS_CALLS_H

#include "abi.h"
#include <errno.h>
#include <stdlib.h>

#pragma GCC visibility push(hidden) // not to be confused with the same names in another library

// In a program that is linked statically with glibc, the libraries have a C library of their own.
// Its errno counts.
extern int *(*cv_errno)(void);
#undef errno
#define errno (*cv_errno())

// The functions of libcalls.h in the libraries. Each also exists here as an inline function with
// its own name, which no other object of the program sees.
#define POINTER(result, name, version, parameters, arguments) result (*name) parameters;
#define OTHER POINTER
extern struct cv_calls {
#include "libcalls.h"
} cv_calls;
#undef POINTER
#define POINTER(result, name, version, parameters, arguments) \
	static inline result name parameters { return cv_calls.name arguments; }
#include "libcalls.h"
#undef POINTER
#undef OTHER

// Returns the extended context, if it has the function at an offset of struct verbs_context.
static inline struct verbs_context *cv_extended(struct ibv_context *context, size_t function)
{
	struct verbs_context *v = (void *)((char *)context - offsetof(struct verbs_context, context));

	if (context->abi_compat != (void *)UINTPTR_MAX || v->sz < sizeof(*v) - function)
		return NULL;
	return *(void **)((char *)v + function) ? v : NULL;
}

// CREATE and CALL define the function ibv_NAME, which calls a function of the extended context.
#define CREATE(type, name, function, context, parameters, arguments) \
	static inline type *ibv_##name parameters \
	{ \
		struct verbs_context *v = cv_extended(context, offsetof(struct verbs_context, function)); \
		return v ? v->function arguments : (errno = EOPNOTSUPP, NULL); \
	}
#define CALL(name, function, context, parameters, arguments) \
	static inline int ibv_##name parameters \
	{ \
		struct verbs_context *v = cv_extended(context, offsetof(struct verbs_context, function)); \
		return v ? v->function arguments : EOPNOTSUPP; \
	}
CREATE(struct ibv_mr, alloc_null_mr, alloc_null_mr, pd->context, (struct ibv_pd *pd), (pd))
CREATE(struct ibv_dm, alloc_dm, alloc_dm, c, (struct ibv_context *c, struct ibv_alloc_dm_attr *a), (c, a))
CREATE(struct ibv_mr, reg_dm_mr, reg_dm_mr, pd->context,
	(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length, unsigned int access),
	(pd, dm, offset, length, access))
CREATE(struct ibv_counters, create_counters, create_counters, c,
	(struct ibv_context *c, struct ibv_counters_init_attr *a), (c, a))
CREATE(struct ibv_flow, create_flow, ibv_create_flow, qp->context,
	(struct ibv_qp *qp, struct ibv_flow_attr *a), (qp, a))
CREATE(struct ibv_xrcd, open_xrcd, open_xrcd, c, (struct ibv_context *c, struct ibv_xrcd_init_attr *a), (c, a))
CREATE(struct ibv_qp, open_qp, open_qp, c, (struct ibv_context *c, struct ibv_qp_open_attr *a), (c, a))
CREATE(struct ibv_qp, create_qp_ex, create_qp_ex, c, (struct ibv_context *c, struct ibv_qp_init_attr_ex *a), (c, a))
CREATE(struct ibv_srq, create_srq_ex, create_srq_ex, c, (struct ibv_context *c, struct ibv_srq_init_attr_ex *a), (c, a))
CREATE(struct ibv_cq_ex, create_cq_ex, create_cq_ex, c, (struct ibv_context *c, struct ibv_cq_init_attr_ex *a), (c, a))
CREATE(struct ibv_wq, create_wq, create_wq, c, (struct ibv_context *c, struct ibv_wq_init_attr *a), (c, a))
CREATE(struct ibv_rwq_ind_table, create_rwq_ind_table, create_rwq_ind_table, c,
	(struct ibv_context *c, struct ibv_rwq_ind_table_init_attr *a), (c, a))
CREATE(struct ibv_td, alloc_td, alloc_td, c, (struct ibv_context *c, struct ibv_td_init_attr *a), (c, a))
CREATE(struct ibv_pd, alloc_parent_domain, alloc_parent_domain, c,
	(struct ibv_context *c, struct ibv_parent_domain_init_attr *a), (c, a))
CALL(advise_mr, advise_mr, pd->context,
	(struct ibv_pd *pd, enum ib_uverbs_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sg, uint32_t n),
	(pd, advice, flags, sg, n))
CALL(free_dm, free_dm, dm->context, (struct ibv_dm *dm), (dm))
CALL(read_counters, read_counters, counters->context,
	(struct ibv_counters *counters, uint64_t *values, uint32_t n, uint32_t flags), (counters, values, n, flags))
CALL(attach_counters_point_flow, attach_counters_point_flow, counters->context,
	(struct ibv_counters *counters, struct ibv_counter_attach_attr *a, struct ibv_flow *f), (counters, a, f))
CALL(destroy_counters, destroy_counters, counters->context, (struct ibv_counters *counters), (counters))
CALL(destroy_flow, ibv_destroy_flow, flow->context, (struct ibv_flow *flow), (flow))
CALL(modify_qp_rate_limit, modify_qp_rate_limit, qp->context,
	(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *a), (qp, a))
CALL(modify_cq, modify_cq, cq->context, (struct ibv_cq *cq, struct ibv_modify_cq_attr *a), (cq, a))
CALL(modify_wq, modify_wq, wq->context, (struct ibv_wq *wq, struct ibv_wq_attr *a), (wq, a))
CALL(destroy_wq, destroy_wq, wq->context, (struct ibv_wq *wq), (wq))
CALL(destroy_rwq_ind_table, destroy_rwq_ind_table, t->context, (struct ibv_rwq_ind_table *t), (t))
CALL(get_srq_num, get_srq_num, srq->context, (struct ibv_srq *srq, uint32_t *num), (srq, num))
CALL(close_xrcd, close_xrcd, xrcd->context, (struct ibv_xrcd *xrcd), (xrcd))
CALL(dealloc_td, dealloc_td, td->context, (struct ibv_td *td), (td))
CALL(query_rt_values_ex, query_rt_values, c, (struct ibv_context *c, struct ibv_values_ex *values), (c, values))
#undef CREATE
#undef CALL

static inline struct ibv_mw *ibv_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	return pd->context->ops.alloc_mw ? pd->context->ops.alloc_mw(pd, type) : (errno = EOPNOTSUPP, NULL);
}
static inline int ibv_memcpy_to_dm(struct ibv_dm *dm, uint64_t offset, const void *from, size_t n)
{
	return dm->memcpy_to_dm(dm, offset, from, n);
}
static inline int ibv_memcpy_from_dm(void *to, struct ibv_dm *dm, uint64_t offset, size_t n)
{
	return dm->memcpy_from_dm(to, dm, offset, n);
}

#pragma GCC visibility pop

#endif
