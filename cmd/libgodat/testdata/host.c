// Checks how a DAT 2.0 provider behaves inside a C program: it leaves the program's signals, stacks
// and threads alone.
//
//   cc -o host host.c -ldat2 -lpthread -ldl
//   host             prints the names of the tests
//   host IA TEST     runs a test; the last line is ok
//
// Each test runs in a process of its own. A check that fails prints its line and ends the program.

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <dat2/udat.h>

#define SECOND 1000000
#define PATIENCE (60 * SECOND)

#define is(call, want)                                                                               \
	do {                                                                                         \
		DAT_RETURN got_ = (call), want_ = (want);                                            \
		if (DAT_GET_TYPE(got_) != DAT_GET_TYPE(want_)) {                                     \
			printf("line %d: %s is 0x%08x, want 0x%08x\n", __LINE__, #call, got_, want_); \
			_exit(1);                                                                    \
		}                                                                                    \
	} while (0)
#define must(condition)                                             \
	do {                                                        \
		if (!(condition)) {                                 \
			printf("line %d: not %s\n", __LINE__, #condition); \
			_exit(1);                                   \
		}                                                   \
	} while (0)

static char *name;
static DAT_IA_HANDLE ia;
static DAT_IA_ATTR attr;
static DAT_EVD_HANDLE recv_evd[2], request_evd[2], conn_evd, cr_evd, async;
static DAT_PZ_HANDLE pz;
static DAT_EP_HANDLE ep[2];
static DAT_LMR_CONTEXT lkey;
static char memory[8192];
static DAT_CONN_QUAL qual = 15460;

static DAT_EVD_HANDLE new_evd(int flags)
{
	DAT_EVD_HANDLE evd;

	is(dat_evd_create(ia, 64, DAT_HANDLE_NULL, flags, &evd), DAT_SUCCESS);
	return evd;
}

static void open_ia(void)
{
	async = DAT_HANDLE_NULL;
	is(dat_ia_open(name, 8, &async, &ia), DAT_SUCCESS);
	is(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL), DAT_SUCCESS);
}

static void connect_pair(void)
{
	DAT_REGION_DESCRIPTION region = {.for_va = memory};
	DAT_LMR_HANDLE lmr;
	DAT_PSP_HANDLE psp;
	DAT_EVENT ev;
	DAT_COUNT more;

	is(dat_pz_create(ia, &pz), DAT_SUCCESS);
	conn_evd = new_evd(DAT_EVD_CONNECTION_FLAG);
	cr_evd = new_evd(DAT_EVD_CR_FLAG);
	for (int i = 0; i < 2; i++) {
		recv_evd[i] = new_evd(DAT_EVD_DTO_FLAG);
		request_evd[i] = new_evd(DAT_EVD_DTO_FLAG);
		is(dat_ep_create(ia, pz, recv_evd[i], request_evd[i], conn_evd, NULL, &ep[i]), DAT_SUCCESS);
	}
	is(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, sizeof memory, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr,
			  &lkey, NULL, NULL, NULL),
	   DAT_SUCCESS);
	is(dat_psp_create(ia, qual, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp), DAT_SUCCESS);
	is(dat_ep_connect(ep[0], attr.ia_address_ptr, qual, PATIENCE, 0, NULL, 0, 0), DAT_SUCCESS);
	is(dat_evd_wait(cr_evd, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
	is(dat_cr_accept(ev.event_data.cr_arrival_event_data.cr_handle, ep[1], 0, NULL), DAT_SUCCESS);
	for (int i = 0; i < 2; i++) {
		is(dat_evd_wait(conn_evd, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
		must(ev.event_number == DAT_CONNECTION_EVENT_ESTABLISHED);
	}
}

// transfer sends n messages, to and fro, and compares them.
static void transfer(int n)
{
	DAT_DTO_COOKIE cookie = {.as_64 = 7};
	DAT_EVENT ev;

	for (int i = 0; i < n; i++) {
		int a = i & 1, b = !a;
		DAT_LMR_TRIPLET to = {(uintptr_t)memory + 4096, 64, lkey}, from = {(uintptr_t)memory, 64, lkey};

		memset(memory, i, 64);
		is(dat_ep_post_recv(ep[b], 1, &to, cookie, 0), DAT_SUCCESS);
		is(dat_ep_post_send(ep[a], 1, &from, cookie, 0), DAT_SUCCESS);
		while (dat_evd_dequeue(recv_evd[b], &ev))
			;
		must(ev.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
		while (dat_evd_dequeue(request_evd[a], &ev))
			;
		must(ev.event_data.dto_completion_event_data.status == DAT_DTO_SUCCESS);
		must(!memcmp(memory, memory + 4096, 64));
	}
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void post(DAT_EVD_HANDLE evd)
{
	DAT_EVENT ev = {.event_number = DAT_SOFTWARE_EVENT};

	is(dat_evd_post_se(evd, &ev), DAT_SUCCESS);
}

static void handle(int sig, void (*handler)(int))
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};

	must(!sigaction(sig, &a, NULL));
}

// Handlers.

static volatile sig_atomic_t hits;

static void hit(int sig) { hits++; }

// large is a handler that needs a large stack. It fills 128 KiB of locals, which would overwrite
// what lies below a smaller stack, and formats text.
static void large(int sig)
{
	char frame[128 << 10], text[100];
	char *volatile at = frame;

	memset(at, sig | 0x80, sizeof frame);
	snprintf(text, sizeof text, "%d %s %.3f", sig, "tick", hits / 3.0);
	for (unsigned i = 0; i < sizeof frame; i += 64)
		must(at[i] == (char)(sig | 0x80));
	hits++;
}

// under_signals polls and transfers for a second, while SIGALRM arrives every millisecond.
static void under_signals(void)
{
	struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	DAT_EVENT ev;

	setitimer(ITIMER_REAL, &often, NULL);
	for (double end = now() + 1; now() < end; transfer(5))
		for (int i = 0; i < 1000; i++)
			dat_evd_dequeue(recv_evd[0], &ev);
	setitimer(ITIMER_REAL, &never, NULL);
	must(hits > 10);
	transfer(100);
}

static void t_handler_after(void)
{
	setenv("GOGC", "1", 1); // so that the garbage collector often halves stacks
	open_ia();
	connect_pair();
	handle(SIGALRM, large);
	under_signals();
}

static void t_handler_before(void) // Go gives such a handler a stack of 32 KiB
{
	handle(SIGALRM, hit);
	open_ia();
	connect_pair();
	under_signals();
}

static DAT_EVD_HANDLE ticks;

static void call(int sig)
{
	DAT_EVENT ev = {.event_number = DAT_SOFTWARE_EVENT};
	DAT_RETURN ret = dat_evd_post_se(ticks, &ev); // refused if the signal has interrupted another call

	must(ret == DAT_SUCCESS || DAT_GET_TYPE(ret) == DAT_QUEUE_FULL || DAT_GET_TYPE(ret) == DAT_INVALID_STATE);
	hits++;
}

static void t_call_in_handler(void)
{
	open_ia();
	connect_pair();
	ticks = new_evd(DAT_EVD_SOFTWARE_FLAG);
	handle(SIGALRM, call);
	under_signals();
}

static const int kinds[] = {SIGINT,  SIGTERM, SIGCHLD,	SIGALRM, SIGUSR1, SIGUSR2, SIGHUP,    SIGPROF,	SIGPIPE,
			    SIGURG,  SIGIO,   SIGWINCH, SIGQUIT, SIGABRT, SIGTRAP, SIGVTALRM, SIGXCPU};

static void all_kinds(void)
{
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		int before = hits;

		kill(getpid(), kinds[i]);
		for (int k = 0; k < 1000 && hits == before; k++)
			usleep(1000);
		if (hits == before)
			printf("signal %d is lost\n", kinds[i]);
		must(hits > before);
	}
}

static void t_signals_before(void)
{
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		handle(kinds[i], hit);
	open_ia();
	connect_pair();
	transfer(200);
	all_kinds();
}

static void t_signals_after(void)
{
	open_ia();
	connect_pair();
	transfer(200);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		handle(kinds[i], hit);
	all_kinds();
}

static void t_sigwait(void) // the signals are blocked after the adapter has been opened
{
	sigset_t set;
	int sig;

	open_ia();
	connect_pair();
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < 50; i++) {
		transfer(20);
		kill(getpid(), i & 1 ? SIGCHLD : SIGTERM);
		usleep(1000);
		sigwait(&set, &sig);
		must(sig == (i & 1 ? SIGCHLD : SIGTERM));
	}
}

static void *keeps_mask(void *arg)
{
	sigset_t set, got;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGPROF);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_SETMASK, &set, NULL);
	if (!arg)
		open_ia();
	is(dat_evd_free(new_evd(DAT_EVD_DTO_FLAG)), DAT_SUCCESS);
	pthread_sigmask(SIG_SETMASK, NULL, &got);
	for (int i = 1; i < 65; i++)
		must(sigismember(&got, i) == sigismember(&set, i));
	return NULL;
}

static void t_mask(void)
{
	pthread_t t;

	keeps_mask(NULL);
	must(!pthread_create(&t, NULL, keeps_mask, &ia));
	pthread_join(t, NULL);
}

// Go's threads block every signal but faults: a handler without SA_ONSTACK that runs on one of them
// writes beyond Go's small stacks.
static void t_masks_of_go(void)
{
	static const int open[] = {SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS, SIGKILL, SIGSTOP, SIGSTKFLT};
	unsigned long long must_block = (1ull << 31) - 1, blocked;
	char file[64], line[128];
	struct dirent *task;
	DIR *tasks;
	int n = 0;

	open_ia();
	connect_pair();
	transfer(2000);
	for (unsigned i = 0; i < sizeof open / sizeof *open; i++)
		must_block &= ~(1ull << (open[i] - 1));
	must((tasks = opendir("/proc/self/task")) != NULL);
	while ((task = readdir(tasks))) {
		FILE *status;

		if (atoi(task->d_name) == 0 || atoi(task->d_name) == getpid())
			continue;
		snprintf(file, sizeof file, "/proc/self/task/%.20s/status", task->d_name);
		if (!(status = fopen(file, "r")))
			continue;
		while (fgets(line, sizeof line, status)) {
			if (sscanf(line, "SigBlk: %llx", &blocked) != 1)
				continue;
			if (must_block & ~blocked)
				printf("%s does not block %llx\n", file, must_block & ~blocked);
			must(!(must_block & ~blocked));
			n++;
		}
		fclose(status);
	}
	closedir(tasks);
	must(n > 2);
}

static void t_monitor(void) // has a timer slack, so that it wakes up less often while a thread polls
{
	char file[64], line[256];
	struct dirent *task;
	DIR *tasks;
	DAT_EVENT ev;
	long slack, switches, most = 0, slacks = 0, of_slack = 0;

	open_ia();
	connect_pair();
	for (double end = now() + 2; now() < end;)
		for (int i = 0; i < 50; i++) {
			must(dat_evd_dequeue(recv_evd[0], &ev));
			transfer(i == 0);
		}
	must((tasks = opendir("/proc/self/task")) != NULL);
	while ((task = readdir(tasks))) {
		FILE *status;

		if (atoi(task->d_name) == 0 || atoi(task->d_name) == getpid())
			continue;
		snprintf(file, sizeof file, "/proc/%.20s/timerslack_ns", task->d_name);
		if (!(status = fopen(file, "r")) || fscanf(status, "%ld", &slack) != 1) {
			puts("the slack cannot be read without CAP_SYS_NICE");
			return;
		}
		fclose(status);
		snprintf(file, sizeof file, "/proc/self/task/%.20s/status", task->d_name);
		must((status = fopen(file, "r")) != NULL);
		switches = 0;
		while (fgets(line, sizeof line, status))
			sscanf(line, "voluntary_ctxt_switches: %ld", &switches);
		fclose(status);
		printf("%s: slack %ld ns, waited %ld times in 2 s\n", task->d_name, slack, switches);
		most = switches > most ? switches : most;
		if (slack == 5000000) {
			slacks++;
			of_slack = switches;
		}
	}
	closedir(tasks);
	must(slacks == 1);
	must(of_slack >= most / 4); // the monitor wakes up more often than most other threads
}

static void t_interrupt(void) // signals end a wait at any time; on a busy host a signal may come before the wait
{
	DAT_EVD_HANDLE evd;
	timer_t timers[2];
	DAT_EVENT ev;
	DAT_COUNT more;
	DAT_RETURN ret;

	open_ia();
	evd = new_evd(DAT_EVD_SOFTWARE_FLAG);
	for (int i = 0; i < 2; i++) {
		struct sigevent event = {.sigev_signo = i ? SIGCHLD : SIGALRM};

		handle(event.sigev_signo, hit);
		must(!timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
	}
	for (int ms = 1; ms < 40; ms += 3) {
		struct itimerspec once = {{0, 0}, {0, 1000000 * ms}};
		int attempts = 0;

		do {
			timer_settime(timers[ms & 1], 0, &once, NULL);
			ret = dat_evd_wait(evd, SECOND, 1, &ev, &more);
		} while (DAT_GET_TYPE(ret) == DAT_TIMEOUT_EXPIRED && ++attempts < 5);
		is(ret, DAT_INTERRUPTED_CALL);
	}
}

// Stacks.

static void *on_small_stack(void *open)
{
	DAT_EVD_HANDLE evd;
	DAT_EVENT ev;
	DAT_COUNT more;

	if (open) {
		open_ia();
		connect_pair();
	}
	transfer(50);
	evd = new_evd(DAT_EVD_SOFTWARE_FLAG);
	is(dat_evd_wait(evd, SECOND / 20, 1, &ev, &more), DAT_TIMEOUT_EXPIRED);
	is(dat_evd_free(evd), DAT_SUCCESS);
	return NULL;
}

static void t_small_stacks(void)
{
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	must(!pthread_attr_setstacksize(&a, PTHREAD_STACK_MIN > 16 << 10 ? PTHREAD_STACK_MIN : 16 << 10)); // arm64: 128 KiB
	for (long i = 0; i < 20; i++) {
		must(!pthread_create(&t, &a, on_small_stack, (void *)(intptr_t)(i == 0)));
		pthread_join(t, NULL);
	}
}

enum { COROUTINES = 32 };
static ucontext_t scheduler, coroutines[COROUTINES];
static int ended;

static void coroutine(int i)
{
	for (int k = 0; k < 10; k++) {
		on_small_stack(NULL);
		swapcontext(&coroutines[i], &scheduler);
	}
	ended++;
}

static void start(int i, void (*body)(int))
{
	getcontext(&coroutines[i]);
	coroutines[i].uc_stack.ss_sp = malloc(16 << 10);
	coroutines[i].uc_stack.ss_size = 16 << 10;
	coroutines[i].uc_link = &scheduler;
	makecontext(&coroutines[i], (void (*)(void))body, 1, i);
}

static void t_coroutines(void)
{
	open_ia();
	connect_pair();
	for (int i = 0; i < COROUTINES; i++)
		start(i, coroutine);
	for (int k = 0; k < 11; k++)
		for (int i = 0; i < COROUTINES; i++) {
			swapcontext(&scheduler, &coroutines[i]);
			transfer(1);
		}
	must(ended == COROUTINES);
}

static double polls(void)
{
	DAT_EVENT ev;
	double best = 1, start;

	for (int round = 0; round < 20; round++) {
		start = now();
		for (int i = 0; i < 100; i++)
			dat_evd_dequeue(recv_evd[0], &ev);
		if (now() - start < best)
			best = now() - start;
	}
	return best;
}

static double slow;

static void polling(int i) { slow = polls(); }

static double reads(void) // each call of a thread whose stack Go does not know reads this file
{
	double start = now();
	char buffer[4096];

	for (int i = 0; i < 100; i++) {
		FILE *f = fopen("/proc/self/maps", "r");

		must(f);
		while (fread(buffer, 1, sizeof buffer, f))
			;
		fclose(f);
	}
	return now() - start;
}

static void t_coroutine_cost(void)
{
	double fast;

	open_ia();
	connect_pair();
	fast = polls();
	start(0, polling);
	swapcontext(&scheduler, &coroutines[0]);
	printf("100 polls: %.1f us, in a coroutine %.1f us\n", fast * 1e6, slow * 1e6);
	must(slow < 20 * fast);
	must(slow < reads() / 4);
}

// Threads and processes.

static void *wait_for_ever(void *evd)
{
	DAT_EVENT ev;
	DAT_COUNT more;

	dat_evd_wait(evd, DAT_TIMEOUT_INFINITE, 1, &ev, &more);
	return evd;
}

static void *wait_on_cno(void *cno)
{
	DAT_EVD_HANDLE evd;

	dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &evd);
	return cno;
}

static void t_cancel(void) // a cancelled wait takes no event
{
	DAT_EVD_HANDLE evd, from;
	DAT_CNO_HANDLE cno;
	DAT_EVENT ev;
	DAT_COUNT more;
	pthread_t t;
	void *result;

	open_ia();
	evd = new_evd(DAT_EVD_SOFTWARE_FLAG);
	for (int ms = 0; ms < 60; ms += 6) {
		must(!pthread_create(&t, NULL, wait_for_ever, evd));
		usleep(1000 * ms);
		pthread_cancel(t);
		pthread_join(t, &result);
		must(result == PTHREAD_CANCELED);
		post(evd);
		is(dat_evd_wait(evd, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
	}
	for (int i = 0; i < 200; i++) { // cancels while the event comes
		must(!pthread_create(&t, NULL, wait_for_ever, evd));
		usleep(12000);
		post(evd);
		pthread_cancel(t);
		pthread_join(t, &result);
		if (result != PTHREAD_CANCELED)
			continue;
		if (i % 2)
			is(dat_evd_wait(evd, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
		else
			is(dat_evd_dequeue(evd, &ev), DAT_SUCCESS);
	}
	is(dat_evd_free(evd), DAT_SUCCESS);
	is(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno), DAT_SUCCESS);
	is(dat_evd_create(ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
	for (int i = 0; i < 200; i++) {
		must(!pthread_create(&t, NULL, wait_on_cno, cno));
		usleep(12000);
		post(evd);
		pthread_cancel(t);
		pthread_join(t, &result);
		if (result == PTHREAD_CANCELED) {
			is(dat_cno_wait(cno, PATIENCE, &from), DAT_SUCCESS);
			must(from == evd);
		}
		is(dat_evd_dequeue(evd, &ev), DAT_SUCCESS);
	}
	is(dat_evd_free(evd), DAT_SUCCESS);
	is(dat_cno_free(cno), DAT_SUCCESS);
}

static void *refused(void *arg) // a thread that the child has started
{
	DAT_EVENT ev;
	DAT_COUNT more;
	DAT_PZ_HANDLE other;

	must(dat_pz_create(ia, &other) != DAT_SUCCESS);
	must(dat_evd_wait(recv_evd[0], 50000, 1, &ev, &more) != DAT_SUCCESS);
	return arg;
}

// own_handlers checks that a child has the program's handlers. Go's handlers would wait for threads
// that the child does not have.
static void own_handlers(void)
{
	static const int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGPIPE, SIGURG};
	struct sigaction a;

	for (unsigned i = 0; i < sizeof handled / sizeof *handled; i++)
		must(!sigaction(handled[i], NULL, &a) && a.sa_handler == (handled[i] == SIGBUS ? hit : SIG_DFL));
}

static void t_fork(void) // the child can do everything except use DAT
{
	DAT_EVENT ev;
	pthread_t t;
	int status;
	pid_t pid;

	handle(SIGBUS, hit);
	open_ia();
	connect_pair();
	for (int i = 0; i < 20; i++) {
		pid = fork();
		if (!pid) {
			alarm(20);
			own_handlers();
			free(malloc(1000));
			must(dat_evd_dequeue(recv_evd[0], &ev) != DAT_SUCCESS);
			must(dat_pz_free(pz) != DAT_SUCCESS);
			must(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS);
			must(!pthread_create(&t, NULL, refused, NULL) && !pthread_join(t, NULL));
			exit(0);
		}
		waitpid(pid, &status, 0);
		must(WIFEXITED(status) && !WEXITSTATUS(status));
		transfer(10);
	}
	must(!system("true"));
}

static void t_lines(void) // a name may have a line in dat.conf for each value of thread safety
{
	DAT_IA_HANDLE of[3];

	for (int i = 0; i < 3; i++) {
		DAT_RETURN ret;

		async = DAT_HANDLE_NULL;
		ret = dat_ia_openv("split", 8, &async, &of[i], 2, 0, i == 1);
		if (i == 1)
			must(DAT_GET_TYPE(ret) == DAT_PROVIDER_NOT_FOUND);
		else
			is(ret, DAT_SUCCESS);
	}
	is(dat_ia_close(of[0], DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	is(dat_ia_close(of[2], DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
}

static void t_fork_first(void)
{
	int status;
	pid_t pid = fork();

	qual += !pid;
	open_ia();
	connect_pair();
	transfer(100);
	if (!pid)
		exit(0);
	waitpid(pid, &status, 0);
	must(WIFEXITED(status) && !WEXITSTATUS(status));
}

static void t_exit_with_waiters(void)
{
	pthread_t t;

	open_ia();
	for (int i = 0; i < 20; i++)
		must(!pthread_create(&t, NULL, wait_for_ever, new_evd(DAT_EVD_SOFTWARE_FLAG)));
	usleep(100000);
}

static void t_close_with_waiters(void)
{
	pthread_t t[20];

	open_ia();
	for (int i = 0; i < 20; i++)
		must(!pthread_create(&t[i], NULL, wait_for_ever, new_evd(DAT_EVD_SOFTWARE_FLAG)));
	usleep(100000);
	is(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	for (int i = 0; i < 20; i++)
		pthread_join(t[i], NULL);
}

static void *makes_and_frees(void *end)
{
	while (now() < *(double *)end) {
		DAT_EVD_HANDLE evd = new_evd(DAT_EVD_SOFTWARE_FLAG);
		DAT_PZ_HANDLE zone;
		DAT_EVENT ev;
		DAT_COUNT more;

		is(dat_pz_create(ia, &zone), DAT_SUCCESS);
		post(evd);
		is(dat_evd_wait(evd, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
		is(dat_evd_free(evd), DAT_SUCCESS);
		is(dat_pz_free(zone), DAT_SUCCESS);
	}
	return NULL;
}

static void start_threads(pthread_t *t, int n, void *(*run)(void *), void *argument)
{
	for (int i = 0; i < n; i++)
		must(!pthread_create(&t[i], NULL, run, argument));
}

static void join_threads(const pthread_t *t, int n)
{
	for (int i = 0; i < n; i++)
		pthread_join(t[i], NULL);
}

static void t_threads(void)
{
	pthread_t t[64];
	double end;

	open_ia();
	connect_pair();
	end = now() + 1;
	start_threads(t, 64, makes_and_frees, &end);
	while (now() < end)
		transfer(10);
	join_threads(t, 64);
}

static void t_profile(void) // SIGPROF goes to the running thread, or to another one that does not block it
{
	struct itimerval often = {{0, 1000}, {0, 1000}};
	pthread_t t[4];
	double end;

	open_ia();
	connect_pair();
	handle(SIGPROF, large);
	setitimer(ITIMER_PROF, &often, NULL);
	end = now() + 3;
	start_threads(t, 4, makes_and_frees, &end);
	join_threads(t, 4);
	must(hits > 10);
}

static void closes(void) { must(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG) != DAT_SUCCESS); }

static pid_t child_of(int kind)
{
	char *words[] = {"true", NULL};
	pid_t pid;

	if (kind == 0) {
		must(!posix_spawnp(&pid, words[0], NULL, NULL, words, environ));
		return pid;
	}
	pid = kind == 1 ? vfork() : fork();
	if (pid)
		return pid;
	if (kind == 1 || kind == 2) {
		execvp(words[0], words);
		_exit(1);
	}
	if (kind == 3)
		_exit(0);
	alarm(20);
	atexit(closes);
	exit(0);
}

static void *starts_children(void *end)
{
	for (int i = 0; i < 5 || now() < *(double *)end; i++) {
		pid_t pid = child_of(i % 5);
		int status;

		must(pid > 0 && waitpid(pid, &status, 0) == pid);
		must(WIFEXITED(status) && !WEXITSTATUS(status));
	}
	return NULL;
}

// Children of several kinds are started by a thread that calls DAT, and by one that does not call
// it. Meanwhile other threads are in calls.
static void t_children(void)
{
	pthread_t t[5];
	double end;

	open_ia();
	connect_pair();
	end = now() + 2;
	start_threads(t, 4, makes_and_frees, &end);
	start_threads(t + 4, 1, starts_children, &end);
	starts_children(&end);
	join_threads(t, 5);
	transfer(100);
}

static void *one_call(void *arg)
{
	DAT_EVENT ev;

	dat_evd_dequeue(conn_evd, &ev);
	return NULL;
}

static long mapped(void) // the number of pages
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	must(f && fscanf(f, "%ld", &pages) == 1);
	fclose(f);
	return pages;
}

// Threads that have ended leave no stack behind; the C library's heap may grow by two of its
// arenas.
static void t_short_threads(void)
{
	pthread_t t;
	long before = 0;

	open_ia();
	connect_pair();
	for (int i = 0; i < 2000; i++) {
		must(!pthread_create(&t, NULL, one_call, NULL));
		pthread_join(t, NULL);
		if (i == 100)
			before = mapped();
	}
	must(mapped() - before < 65536);
}

static DAT_EVD_HANDLE shared_evd;

static void *frees(void *arg)
{
	for (int i = 0; i < 50; i++)
		dat_evd_free(shared_evd);
	return NULL;
}

static void t_double_free(void)
{
	pthread_t t[8];

	open_ia();
	for (int round = 0; round < 100; round++) {
		shared_evd = new_evd(DAT_EVD_SOFTWARE_FLAG);
		start_threads(t, 8, frees, NULL);
		join_threads(t, 8);
	}
	is(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
}

// Libraries and limits.

static void t_dlclose(void)
{
	for (int i = 0; i < 10; i++) {
		void *h = dlopen("libdat2.so.2", RTLD_NOW);

		must(h);
		open_ia();
		is(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
		must(!dlclose(h));
	}
}

static void t_two_libraries(void) // $SECOND names an adapter of another copy of the provider
{
	DAT_EVD_HANDLE other = DAT_HANDLE_NULL;
	DAT_PZ_HANDLE zone;
	DAT_IA_HANDLE second;

	open_ia();
	connect_pair();
	must(getenv("SECOND"));
	is(dat_ia_open(getenv("SECOND"), 8, &other, &second), DAT_SUCCESS);
	transfer(100);
	is(dat_pz_create(second, &zone), DAT_SUCCESS);
	is(dat_ep_create(ia, zone, NULL, NULL, NULL, NULL, &ep[0]), DAT_INVALID_HANDLE);
	is(dat_pz_free(zone), DAT_SUCCESS);
	is(dat_ia_close(second, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
}

static void t_few_files(void)
{
	struct rlimit r = {40, 40};
	DAT_RETURN ret = DAT_SUCCESS;
	DAT_EVD_HANDLE evd;

	open_ia();
	connect_pair();
	setrlimit(RLIMIT_NOFILE, &r);
	for (int i = 0; i < 100 && ret == DAT_SUCCESS; i++)
		ret = dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &evd);
	if (ret != DAT_SUCCESS)
		is(ret, DAT_INSUFFICIENT_RESOURCES);
	transfer(10);
}

static void t_address_space(void) // 2 GiB of address space are enough
{
	struct rlimit r = {(rlim_t)2 << 30, (rlim_t)2 << 30};

	must(!setrlimit(RLIMIT_AS, &r));
	open_ia();
	connect_pair();
	transfer(1000);
}

static long resident(void) // the number of bytes
{
	long all, pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	must(f && fscanf(f, "%ld %ld", &all, &pages) == 2);
	fclose(f);
	return pages * sysconf(_SC_PAGESIZE);
}

static void t_locked_memory(void) // memory that Go has only reserved does not become resident
{
	struct rlimit r;

	open_ia();
	connect_pair();
	must(!getrlimit(RLIMIT_MEMLOCK, &r));
	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		must(errno == EPERM || r.rlim_cur != RLIM_INFINITY); // this process may not lock memory
		return;
	}
	transfer(1000);
	printf("%ld MiB are resident\n", resident() >> 20);
	must(resident() < 400 << 20);
}

static void t_environment(void)
{
	setenv("GODEBUG", "gctrace=1", 1);
	setenv("GOGC", "1", 1);
	setenv("GOMAXPROCS", "1", 1);
	open_ia();
	connect_pair();
	transfer(2000);
}

#define TEST(name) {#name, t_##name}
static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	TEST(handler_after), TEST(handler_before), TEST(call_in_handler), TEST(signals_before),
	TEST(signals_after), TEST(sigwait), TEST(mask), TEST(masks_of_go), TEST(monitor), TEST(interrupt),
	TEST(small_stacks), TEST(coroutines), TEST(coroutine_cost), TEST(cancel),
	TEST(fork), TEST(fork_first), TEST(lines), TEST(exit_with_waiters), TEST(close_with_waiters),
	TEST(threads), TEST(profile), TEST(children), TEST(short_threads), TEST(double_free), TEST(dlclose),
	TEST(two_libraries), TEST(few_files), TEST(address_space), TEST(locked_memory),
	TEST(environment),
};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < sizeof tests / sizeof *tests; i++) {
		if (argc < 3) {
			puts(tests[i].name);
		} else if (!strcmp(argv[2], tests[i].name)) {
			name = argv[1];
			tests[i].run();
			puts("ok");
			return 0;
		}
	}
	return argc < 3 ? 0 : 2;
}
