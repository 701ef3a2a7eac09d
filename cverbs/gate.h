// The C side of type gate; gate.go explains it.
#ifndef GODAT_CVERBS_GATE_H
#define GODAT_CVERBS_GATE_H

#include <stddef.h>
#include <stdint.h>

// The state of one thread that uses gates.
struct cv_user {
	const uintptr_t *gate; // the gate that the thread is inside, or NULL; only this thread writes it
	struct cv_user *next;
	int taken;       // 1 while a running thread uses this cv_user
	uint32_t polled;  // polls since cv_yield_due was last called
	uint64_t yielded; // when cv_yield_due last returned CV_YIELD, in ns
} __attribute__((aligned(128)));

#define CV_HIDDEN __attribute__((visibility("hidden")))
extern CV_HIDDEN __thread struct cv_user *cv_me;
extern CV_HIDDEN int cv_fenced; // not 0 if the kernel lacks membarrier: each cv_enter then runs a fence
CV_HIDDEN struct cv_user *cv_new_user(void);

// Returns the gate's object, which stays valid until cv_leave. Returns NULL if the gate is closed,
// or if there is no memory for a cv_user.
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
		__atomic_signal_fence(__ATOMIC_SEQ_CST); // for the compiler; cv_gate_busy runs the barrier for the processor
	object = __atomic_load_n(gate, __ATOMIC_ACQUIRE);
	if (__builtin_expect(!object, 0))
		__atomic_store_n(&me->gate, NULL, __ATOMIC_RELEASE);
	return (void *)object;
}

static inline void cv_leave(void)
{
	__atomic_store_n(&cv_me->gate, NULL, __ATOMIC_RELEASE);
}

// Reports whether a call is inside a gate that the caller has just closed. Makes sure that later
// calls see the gate closed. Returns 1 if an earlier call is still inside, 0 if no call is inside,
// or -errno.
int cv_gate_busy(const uintptr_t *gate);

#endif
