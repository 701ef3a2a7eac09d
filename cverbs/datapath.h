// Declarations that datapath.c (ordinary queues), extended.c and extended_cq.c (extended queues)
// share.
#ifndef GODAT_CVERBS_DATAPATH_H
#define GODAT_CVERBS_DATAPATH_H

#include "gate.h"
#include "shim.h"
#include <pthread.h>

// The largest number of requests that are passed to the driver at once. A longer batch is posted as
// several chains, in one crossing from Go into C.
enum { CHAIN = 128 };

// Returns the address handle of a token, or NULL. The caller holds cv_ahs.
__attribute__((visibility("hidden"))) struct ibv_ah *cv_ah_of(uint64_t token);
__attribute__((visibility("hidden"))) extern pthread_rwlock_t cv_ahs;

// Binds a window of type 2 on an extended queue pair.
__attribute__((visibility("hidden"))) int cv_bind_mw_ex(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id,
	uint32_t flags, const struct ibv_mw_bind_info *info, uint32_t rkey);

static inline int sge_check(uint32_t first, uint32_t num, uint32_t nsg, uint32_t max)
{
	if (__builtin_expect((uint64_t)first + num <= nsg && num <= max, 1) || num == 0)
		return 0;
	return (uint64_t)first + num > nsg ? CV_BAD_RANGE : CV_TOO_MANY;
}

// Reports whether the queue pair has not yet reached the given state. Some drivers queue a request
// before they check the state: they refuse the request, and still send it later. On iWARP the
// connection manager changes the state without libibverbs' knowledge, so on iWARP only the driver
// checks.
static inline int too_early(const struct ibv_qp *qp, enum ibv_qp_state from)
{
	return qp->state < from && qp->context->device->transport_type != IBV_TRANSPORT_IWARP;
}

// Returns CV_YIELD if the thread has not yielded for 2 ms, else 0. The caller is inside a gate.
__attribute__((visibility("hidden"))) int cv_yield_due(void);

// yield_after adds the polls of a call to the thread's count, if the call has made more than one.
// After every 8192 polls it calls cv_yield_due, which reads the clock. It returns CV_YIELD or 0.
// The caller is inside the gate of an object (gate.c).
static inline int yield_after(uint32_t polls)
{
	if (polls > 1 && (cv_me->polled += polls) >= 1 << 13) {
		cv_me->polled = 0;
		return cv_yield_due();
	}
	return 0;
}

static inline unsigned int true_flags(unsigned int wc_flags, uint32_t how)
{
	if (how & CV_RXE && wc_flags & IBV_WC_IP_CSUM_OK)
		wc_flags ^= IBV_WC_IP_CSUM_OK | IBV_WC_WITH_INV;
	return wc_flags;
}

#endif
