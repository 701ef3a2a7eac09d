// Tests the gates of the data path and its polls, in threads of C. TestGateInC builds it with the C
// files of the package. The argument is the number of rounds for the order of a gate.

#include "gate.c" // its list of users is static
#include "shim.h"
#include <sched.h>
#include <stdio.h>

#define CHECK(ok, ...) ((ok) ? (void)0 : (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1)))

enum { THREADS = 200 };

static struct {
	uintptr_t gate __attribute__((aligned(128)));
	int dead __attribute__((aligned(128)));
	int begun, stop;
} shared;

// Yields in every 1024th call, because the other thread may have to run on the same processor.
static void turn(void)
{
	static __thread unsigned turns;

	if (++turns % 1024 == 0)
		sched_yield();
}

// Enters and leaves the gate until shut is done. Returns how often this thread was inside the gate
// after cv_gate_busy had returned 0.
static void *enter(void *none)
{
	uintptr_t dead = 0;
	int i;

	__atomic_store_n(&shared.begun, 1, __ATOMIC_SEQ_CST);
	for (; !__atomic_load_n(&shared.stop, __ATOMIC_RELAXED); turn()) {
		if (!cv_enter(&shared.gate))
			continue;
		for (i = 0; i < 8; i++)
			dead += (uintptr_t)__atomic_load_n(&shared.dead, __ATOMIC_RELAXED);
		cv_leave();
	}
	(void)none;
	return (void *)dead;
}

static void shut(unsigned long rounds)
{
	volatile unsigned long pause;
	unsigned long r;

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

// On every processor a call stores the gate's address before it loads the gate. It takes two
// processors to find a violation.
static void order(unsigned long rounds)
{
	pthread_t thread;
	void *dead;

	shared.begun = shared.stop = 0;
	CHECK(!pthread_create(&thread, NULL, enter, NULL), "no thread");
	shut(rounds);
	pthread_join(thread, &dead);
	CHECK(!dead, "%s: inside a closed gate %lu times", cv_fenced ? "fences" : "membarrier", (unsigned long)dead);
}

static pthread_barrier_t together;
static uintptr_t open_gate = 1;

static void *use(void *at_once)
{
	CHECK(cv_enter(&open_gate), "no user");
	cv_leave();
	if (at_once)
		pthread_barrier_wait(&together);
	return cv_me;
}

// A thread that ends frees its cv_user for another thread. Two threads that run at the same time
// have different ones.
static void threads(void)
{
	pthread_t all[THREADS];
	void *mine[THREADS];
	struct cv_user *u;
	int i, k, n = 0;

	for (i = 0; i < THREADS; i++) {
		CHECK(!pthread_create(&all[0], NULL, use, NULL), "no thread");
		pthread_join(all[0], NULL);
	}
	for (u = users; u; u = u->next)
		n++;
	CHECK(n <= 3, "%d users for one thread after the other", n);
	pthread_barrier_init(&together, NULL, THREADS);
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&all[i], NULL, use, &together), "no thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(all[i], &mine[i]);
	for (i = 0; i < THREADS; i++)
		for (k = 0; k < i; k++)
			CHECK(mine[i] && mine[i] != mine[k], "a user of two threads");
}

static uint32_t polled, empty; // polls so far, and how many of them find no completion

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	return ++polled > empty;
}

// An empty queue is polled as often as the call says, a queue with a completion until that one.
static void polls(void)
{
	static const uint32_t cases[][3] = { { 1, 1, 1 }, { 2, 9, 2 }, { 100, 100, 100 }, { 100, 0, 1 }, { 100, 41, 42 } };
	struct ibv_context ctx = { .ops.poll_cq = poll_cq };
	struct ibv_cq cq = { .context = &ctx };
	uintptr_t gate = (uintptr_t)&cq;
	struct ibv_wc wc = { 0 };
	unsigned i;

	for (i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int got;

		polled = 0, empty = cases[i][1];
		got = cv_poll_cq(&gate, &wc, 1, cases[i][0], 0) & ~CV_YIELD;
		CHECK(polled == cases[i][2] && got == (polled > empty), "%u polls for %u, %d completions", polled, cases[i][2], got);
	}
}

int main(int argc, char **argv)
{
	unsigned long rounds = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000;

	polls();
	if (!cv_fenced) // else this kernel refuses membarrier
		order(rounds); // with few users: a long list of them would hide a violation
	cv_fenced = 1;
	order(rounds);
	threads();
	return 0;
}
