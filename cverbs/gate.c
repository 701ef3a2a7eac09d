//go:build linux && cgo

#include "gate.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread struct cv_user *cv_me;
int cv_fenced;

static struct cv_user *users; // one for each thread that uses gates; reused when the thread ends, never freed
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int have_key;

// Commands of membarrier(2). Not every C library comes with the kernel's headers.
enum { MEMBARRIER_CMD_PRIVATE_EXPEDITED = 8, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED = 16 };

static long membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0); }

// Runs when a thread ends. Makes the thread's cv_user available to another thread.
static void end_user(void *me)
{
	cv_me = NULL;
	__atomic_store_n(&((struct cv_user *)me)->taken, 0, __ATOMIC_RELEASE);
}

static void init(void)
{
	cv_fenced = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) != 0;
	have_key = pthread_key_create(&key, end_user) == 0;
}

struct cv_user *cv_new_user(void)
{
	struct cv_user *u;

	pthread_once(&once, init);
	for (u = __atomic_load_n(&users, __ATOMIC_ACQUIRE); u; u = u->next) {
		int free = 0;

		if (__atomic_compare_exchange_n(&u->taken, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			break;
	}
	if (!u) {
		if (posix_memalign((void **)&u, sizeof(*u), sizeof(*u)))
			return NULL;
		u->gate = NULL;
		u->polled = 0;
		u->yielded = 0;
		u->taken = 1;
		u->next = __atomic_load_n(&users, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(&users, &u->next, u, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
			;
	}
	if (have_key)
		pthread_setspecific(key, u);
	return cv_me = u;
}

int cv_gate_busy(const uintptr_t *gate)
{
	const struct cv_user *u;

	pthread_once(&once, init);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!cv_fenced && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED))
		return -errno;
	for (u = __atomic_load_n(&users, __ATOMIC_SEQ_CST); u; u = u->next)
		if (__atomic_load_n(&u->gate, __ATOMIC_ACQUIRE) == gate)
			return 1;
	return 0;
}
