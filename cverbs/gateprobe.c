//go:build linux && cgo && gateprobe

// Helpers in C for the tests of gates and polls.

#include "gate.h"
#include "shim.h"
#include <sched.h>

// Switches the mode for kernels without membarrier on or off. Returns whether it was on.
int cv_probe_fences(int on)
{
	static const uintptr_t gate;
	int was;

	cv_gate_busy(&gate); // initializes cv_fenced
	was = cv_fenced;
	cv_fenced = on;
	return was;
}

uintptr_t cv_probe_user(void)
{
	return (uintptr_t)cv_me;
}

static struct {
	uintptr_t gate __attribute__((aligned(128)));
	int dead __attribute__((aligned(128)));
	int begun, stop;
} shared;

// Yields in every 1024th call, because the other thread of the test may have to run on the same
// processor.
static void turn(void)
{
	static __thread unsigned turns;

	if (++turns % 1024 == 0)
		sched_yield();
}

// Enters and leaves a gate again and again, while another thread runs cv_probe_shut, which opens
// and closes the gate. Ends when cv_probe_shut is done. Returns how often this thread was inside
// the gate after cv_gate_busy had returned 0.
uint64_t cv_probe_enter(void)
{
	uint64_t dead = 0;
	int i;

	__atomic_store_n(&shared.begun, 1, __ATOMIC_SEQ_CST);
	for (; !__atomic_load_n(&shared.stop, __ATOMIC_RELAXED); turn()) {
		if (!cv_enter(&shared.gate))
			continue;
		for (i = 0; i < 8; i++)
			dead += (uint64_t)__atomic_load_n(&shared.dead, __ATOMIC_RELAXED);
		cv_leave();
	}
	__atomic_store_n(&shared.begun, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&shared.stop, 0, __ATOMIC_SEQ_CST);
	return dead;
}

void cv_probe_shut(uint32_t rounds)
{
	volatile uint32_t pause;
	uint32_t r;

	while (!__atomic_load_n(&shared.begun, __ATOMIC_SEQ_CST))
		turn();
	for (r = 0; r < rounds; r++) {
		__atomic_store_n(&shared.dead, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&shared.gate, 1, __ATOMIC_SEQ_CST);
		for (pause = 0; pause < r % 64; pause++)
			;
		__atomic_store_n(&shared.gate, 0, __ATOMIC_SEQ_CST);
		while (cv_gate_busy(&shared.gate))
			turn();
		__atomic_store_n(&shared.dead, 1, __ATOMIC_SEQ_CST);
		for (pause = 0; pause < 64; pause++)
			;
		turn();
	}
	__atomic_store_n(&shared.stop, 1, __ATOMIC_SEQ_CST);
}

static int (*real_poll)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
static uint64_t polls;

static int counting_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	__atomic_add_fetch(&polls, 1, __ATOMIC_RELAXED);
	return real_poll(cq, n, wc);
}

// Returns how often all queues of cq's device context have been polled since the first call.
uint64_t cv_probe_polls(struct ibv_cq *cq)
{
	if (cq->context->ops.poll_cq != counting_poll) {
		real_poll = cq->context->ops.poll_cq;
		cq->context->ops.poll_cq = counting_poll;
	}
	return __atomic_load_n(&polls, __ATOMIC_RELAXED);
}
