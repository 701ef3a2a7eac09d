// The C side of type gate; gate.go explains it.
#ifndef GODAT_CVERBS_GATE_H
#define GODAT_CVERBS_GATE_H

#include <stddef.h>
#include <stdint.h>

// The address of the gate that one thread is inside, or NULL. Only that thread writes it.
struct cv_user {
	const uintptr_t *gate;
	struct cv_user *next;
	int taken;       // by a running thread
	uint32_t polled;  // by cv_poll_cq, since cv_yield_due was called
	uint64_t yielded; // when cv_yield_due last returned CV_YIELD, in ns
} __attribute__((aligned(128)));

#define CV_HIDDEN __attribute__((visibility("hidden")))
extern CV_HIDDEN __thread struct cv_user *cv_me;
extern CV_HIDDEN int cv_fenced; // no membarrier: each cv_enter runs a fence
CV_HIDDEN struct cv_user *cv_new_user(void);

// Returns the gate's object, which stays valid until cv_leave; NULL if the gate is closed or memory
// for a cv_user is short.
static inline void *cv_enter(const uintptr_t *gate)
{
	struct cv_user *me = cv_me;
	uintptr_t object;

	if (__builtin_expect(!me, 0) && !(me = cv_new_user()))
		return NULL;
	__atomic_store_n(&me->gate, gate, __ATOMIC_RELAXED);
	if (__builtin_expect(cv_fenced, 0))
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	else
		__atomic_signal_fence(__ATOMIC_SEQ_CST); // orders the compiler; cv_gate_busy orders the processor
	object = __atomic_load_n(gate, __ATOMIC_ACQUIRE);
	if (__builtin_expect(!object, 0))
		__atomic_store_n(&me->gate, NULL, __ATOMIC_RELEASE);
	return (void *)object;
}

static inline void cv_leave(void)
{
	__atomic_store_n(&cv_me->gate, NULL, __ATOMIC_RELEASE);
}

// The largest number of threads that have been in gates at once; for tests.
int cv_gate_users(void);

// For a closed gate: makes later calls see it closed, and returns 1 if an earlier call is still
// inside, else 0, or -errno.
int cv_gate_busy(const uintptr_t *gate);

#endif
