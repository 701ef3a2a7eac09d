//go:build dat2

// The calls that dequeue events or wait for them. The first 10 ms of a wait run in Go. Then the
// thread blocks in C, where signals and pthread_cancel end the wait.

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "_cgo_export.h"

DAT_RETURN godat_c_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event)
{
	godat_event e;
	DAT_RETURN ret;

	if (!event)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG2;
	ret = godat_evd_dequeue(evd, &e);
	if (ret == DAT_SUCCESS)
		godat_layout(&e, event);
	return ret;
}

int godat_eventfd(void) { return eventfd(0, EFD_CLOEXEC); }

void godat_signal(int fd)
{
	uint64_t one = 1;

	while (write(fd, &one, sizeof one) < 0 && errno == EINTR)
		;
}

// Blocks signals, except those of faults such as SIGSEGV. It is called before a wait runs in Go. If
// a signal arrives while the wait runs in Go, it ends the wait as soon as the wait runs in C.
static void hold(sigset_t *before)
{
	static const int open[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
	sigset_t most;

	sigfillset(&most);
	for (unsigned i = 0; i < sizeof open / sizeof *open; i++)
		sigdelset(&most, open[i]);
	pthread_sigmask(SIG_BLOCK, &most, before);
}

// Ends the wait of a thread that has been cancelled.
static void drop(void *wait)
{
	godat_wait_drop(((godat_wait *)wait)->id);
}

// Blocks until Go has signalled the wait. Cancels the wait if a signal handler runs meanwhile.
static void block(godat_wait *w, const sigset_t *mask)
{
	struct pollfd p = {.fd = w->fd, .events = POLLIN};

	pthread_cleanup_push(drop, w);
	while (ppoll(&p, 1, NULL, mask) < 0 && errno == EINTR)
		godat_wait_cancel(w->id);
	pthread_cleanup_pop(0);
}

DAT_RETURN godat_c_evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
			    DAT_COUNT *nmore)
{
	godat_wait w = {.fd = -1};
	godat_event e;
	sigset_t mask;
	DAT_COUNT more = 0;
	DAT_RETURN ret;

	if (!event)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG4;
	if (!nmore)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG5;
	ret = godat_evd_wait(evd, 0, threshold, &e, &more, &w);
	if (timeout && ret == (DAT_CLASS_ERROR | DAT_TIMEOUT_EXPIRED)) {
		hold(&mask);
		ret = godat_evd_wait(evd, timeout, threshold, &e, &more, &w);
		if (ret == GODAT_PENDING) {
			block(&w, &mask);
			ret = godat_evd_wait_end(w.id, &e, &more);
		}
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
	}
	*nmore = more;
	if (ret == DAT_SUCCESS)
		godat_layout(&e, event);
	return ret;
}

DAT_RETURN godat_c_cno_wait(DAT_CNO_HANDLE cno, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd)
{
	godat_wait w = {.fd = -1};
	sigset_t mask;
	DAT_RETURN ret;

	if (!evd)
		return DAT_CLASS_ERROR | DAT_INVALID_PARAMETER | DAT_INVALID_ARG3;
	ret = godat_cno_wait(cno, 0, evd, &w);
	if (timeout && ret == (DAT_CLASS_ERROR | DAT_QUEUE_EMPTY)) {
		hold(&mask);
		ret = godat_cno_wait(cno, timeout, evd, &w);
		if (ret == GODAT_PENDING) {
			block(&w, &mask);
			ret = godat_cno_wait_end(w.id, evd);
		}
		pthread_sigmask(SIG_SETMASK, &mask, NULL);
	}
	if (ret == (DAT_CLASS_ERROR | DAT_QUEUE_EMPTY))
		*evd = DAT_HANDLE_NULL;
	return ret;
}
