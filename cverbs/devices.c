//go:build linux && cgo

// Runs all calls that may find new devices on one thread, the device thread, which lives as long as
// the process. librdmacm 44 sorts devices by the lower halves of their addresses. malloc gives each
// thread its own region of memory, so that this order is wrong if two threads have found devices.
// When devices are then added or removed, librdmacm opens the remaining devices again, or loses all
// devices and blocks for ever in rdma_create_event_channel.

#include "shim.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>

struct call {
	void *(*f)(int *n);
	void *result;
	int n, error, done;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct call *next;
static int started;

static void run(struct call *c)
{
	errno = 0;
	c->result = c->f(&c->n);
	c->error = errno;
	c->done = 1;
}

static void *serve(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&lock);
	for (;;) {
		while (!next)
			pthread_cond_wait(&changed, &lock);
		run(next);
		next = NULL;
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

static int start(void) // starts the thread with all signals blocked; returns whether it runs
{
	sigset_t all, before;
	pthread_t thread;

	if (started)
		return 1;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = !pthread_create(&thread, NULL, serve, NULL) && !pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return started;
}

// Reports whether the calling thread has entered another network namespace, where other devices may
// exist.
static int elsewhere(void)
{
	struct stat own, its;

	return !stat("/proc/self/ns/net", &own) && !stat("/proc/thread-self/ns/net", &its) && own.st_ino != its.st_ino;
}

static void *on_device_thread(struct call *c) // runs c on the device thread; sets errno as c->f did
{
	pthread_mutex_lock(&lock);
	if (elsewhere() || !start()) {
		run(c);
	} else {
		while (next)
			pthread_cond_wait(&changed, &lock);
		next = c;
		pthread_cond_broadcast(&changed);
		while (!c->done)
			pthread_cond_wait(&changed, &lock);
	}
	pthread_mutex_unlock(&lock);
	errno = c->error;
	return c->result;
}

static void *devices(int *n) { return ibv_get_device_list(n); }
static void *cm_devices(int *n) { return rdma_get_devices(n); }
static void *event_channel(int *n) { return (void)n, rdma_create_event_channel(); }

struct ibv_device **cv_devices(int *n)
{
	struct call c = {.f = devices};
	struct ibv_device **list = on_device_thread(&c);

	*n = c.n;
	return list;
}

struct ibv_context **cv_cm_devices(void)
{
	struct call c = {.f = cm_devices};

	return on_device_thread(&c);
}

struct rdma_event_channel *cv_cm_channel(void)
{
	static atomic_int found; // librdmacm looks for devices only in its first call
	struct call c = {.f = event_channel};

	if (atomic_load(&found))
		return rdma_create_event_channel();
	if (on_device_thread(&c))
		atomic_store(&found, 1);
	return c.result;
}
