// The gate of an object of the data path: the C side of type gate, which says how it works.
#ifndef GODAT_CVERBS_GATE_H
#define GODAT_CVERBS_GATE_H

#include <stddef.h>
#include <stdint.h>

// What one thread is using: the address of a gate, or NULL. Only the thread itself writes it.
struct cv_user {
	const uintptr_t *gate;
	struct cv_user *next;
	int taken; // by a thread that has not ended
} __attribute__((aligned(128)));

#define CV_HIDDEN __attribute__((visibility("hidden")))
extern CV_HIDDEN __thread struct cv_user *cv_me;
extern CV_HIDDEN int cv_fenced; // the kernel has no membarrier for us: each entry fences itself
CV_HIDDEN struct cv_user *cv_new_user(void);

// Gives the object behind the gate, which stays until cv_leave; NULL if it is closed (or there is no memory to note the use).
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
		__atomic_signal_fence(__ATOMIC_SEQ_CST); // the compiler; cv_gate_busy sees to the processor
	object = __atomic_load_n(gate, __ATOMIC_ACQUIRE);
	if (__builtin_expect(!object, 0))
		__atomic_store_n(&me->gate, NULL, __ATOMIC_RELEASE);
	return (void *)object;
}

static inline void cv_leave(void)
{
	__atomic_store_n(&cv_me->gate, NULL, __ATOMIC_RELEASE);
}

// How many threads have been in gates at once, at the most: for tests.
int cv_gate_users(void);

// For a gate that has been shut: makes the next calls see it shut, then tells whether one that did not is still inside. 0, 1 or -errno.
int cv_gate_busy(const uintptr_t *gate);

#endif
