//go:build dat2

// This file defines how a thread of the program enters Go. Go expects a large stack that stays the
// same, and the program expects that nobody changes its signals. So the Go part of a call runs on a
// stack of this library, one for each thread, and Go's own threads block the program's signals.

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#include "_cgo_export.h"

enum { STACK = 256 << 10, GUARD = 64 << 10 };

// The states of a thread. In the state ASKING, __wrap_crosscall2 records the Go function of
// godat_call and does not call it.
enum { IN_C, ASKING, IN_GO, IN_AGENT };

static __thread __attribute__((tls_model("initial-exec"))) struct {
	int state;
	int starting; // Go has not yet set the thread's signal mask
	char *top;    // the top of the thread's stack for Go
} self;

static pthread_key_t at_exit;

static void leave(void *top)
{
	self.top = NULL;
	munmap((char *)top - STACK - GUARD, STACK + GUARD);
}

// Makes the thread's stack for Go. Returns the top of this stack. If memory is short it returns
// NULL, and calls run on the program's stack.
static char *stack(void)
{
	char *low = mmap(NULL, STACK + GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (low == MAP_FAILED)
		return NULL;
	if (mprotect(low + GUARD, STACK, PROT_READ | PROT_WRITE)) {
		munmap(low, STACK + GUARD);
		return NULL;
	}
	self.top = low + GUARD + STACK;
	pthread_setspecific(at_exit, self.top);
	return self.top;
}

// The linker option --wrap=x makes calls of x in cgo's C code call __wrap_x, and makes calls of
// __real_x call x.

typedef void go_function(void *);

void __real_crosscall2(go_function *function, void *arguments, int size, size_t context);
void __real_x_cgo_getstackbound(uintptr_t bounds[2]);

// Go asks for the bounds of the stack when a thread enters for the first time. The answer is the
// thread's stack for Go, if the thread runs on it.
void __wrap_x_cgo_getstackbound(uintptr_t bounds[2])
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), top = (uintptr_t)self.top;

	if (here >= top || here < top - STACK) {
		__real_x_cgo_getstackbound(bounds);
		return;
	}
	bounds[0] = top - STACK;
	bounds[1] = top;
}

// Calls Go on the stack that ends at top.
__attribute__((noinline, optimize("no-omit-frame-pointer"))) static void enter(char *top, go_function *function,
									       void *arguments, int size,
									       size_t context)
{
#if defined(__x86_64__)
	register char *to __asm__("r12") = top;

	__asm__ volatile("movq %%rsp, %%rbx\n\t"
			 "movq %%r12, %%rsp\n\t"
			 "call *%%rax\n\t"
			 "movq %%rbx, %%rsp"
			 : "+D"(function), "+S"(arguments), "+d"(size), "+c"(context), "+r"(to)
			 : "a"(__real_crosscall2)
			 : "rbx", "r8", "r9", "r10", "r11", "r13", "r14", "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
			   "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc",
			   "memory");
#elif defined(__aarch64__)
	register go_function *x0 __asm__("x0") = function;
	register void *x1 __asm__("x1") = arguments;
	register long x2 __asm__("x2") = size;
	register size_t x3 __asm__("x3") = context;
	register void *x9 __asm__("x9") = __real_crosscall2;
	register char *x20 __asm__("x20") = top;

	__asm__ volatile("mov x19, sp\n\t"
			 "mov sp, x20\n\t"
			 "blr x9\n\t"
			 "mov sp, x19"
			 : "+r"(x0), "+r"(x1), "+r"(x2), "+r"(x3), "+r"(x9), "+r"(x20)
			 :
			 : "x4", "x5", "x6", "x7", "x8", "x10", "x11", "x12", "x13", "x14", "x15", "x16", "x17", "x19", "x30",
			   "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "v18", "v19", "v20", "v21", "v22",
			   "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30", "v31", "cc", "memory");
#else
	__real_crosscall2(function, arguments, size, context);
#endif
}

static struct sigaction handler_of(int sig)
{
	struct sigaction a = {.sa_handler = SIG_DFL};

	sigaction(sig, NULL, &a);
	return a;
}

// Go unblocks SIGCHLD, SIGPROF and SIGSTKFLT in every thread that it starts, and in a thread that
// enters for the first time. It does so by a system call, which the linker cannot wrap. SIGCHLD and
// SIGPROF must stay blocked. So each of these threads raises SIGSTKFLT, which Linux never sends,
// while the signal is still blocked. When the system call unblocks the signal, its handler (masked)
// runs first, and blocks SIGCHLD and SIGPROF again.

static void masked(int sig, siginfo_t *info, void *context)
{
	sigset_t *mask = &((ucontext_t *)context)->uc_sigmask;

	if (!self.starting) { // this SIGSTKFLT was not raised by expect
		signal(sig, SIG_DFL);
		raise(sig);
		return;
	}
	self.starting = 0;
	sigaddset(mask, SIGCHLD);
	sigaddset(mask, SIGPROF);
}

// Makes SIGSTKFLT pending, to prepare the thread for the system call by which Go unblocks signals.
// If the program has its own handler for SIGSTKFLT, this function does nothing. In that case Go
// leaves SIGCHLD and SIGPROF unblocked in this thread.
static void expect(void)
{
	self.starting = handler_of(SIGSTKFLT).sa_sigaction == masked;
	if (self.starting)
		raise(SIGSTKFLT);
}

// The second thread that Go starts is its monitor. While a thread of the program polls without
// waiting, the monitor wakes up every 20 us, and each time takes a processor from another thread. A
// timer slack of 5 ms makes it wake up about 200 times a second. A monitor that has nothing to do
// waits up to 10 ms anyway.
enum { MONITOR = 2, SLACK = 5000000 };

struct body {
	void *(*run)(void *);
	void *argument;
	int nth;
};

static void *go_thread(void *b)
{
	struct body body = *(struct body *)b;

	free(b);
	if (body.nth == MONITOR)
		prctl(PR_SET_TIMERSLACK, SLACK, 0, 0, 0);
	expect();
	return body.run(body.argument);
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument);

// Go starts all its threads by this call.
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument)
{
	static int started;
	struct body *b = malloc(sizeof *b);
	int err;

	if (!b)
		return EAGAIN;
	b->nth = __atomic_add_fetch(&started, 1, __ATOMIC_RELAXED);
	b->run = run;
	b->argument = argument;
	err = __real_pthread_create(thread, attr, go_thread, b);
	if (err)
		free(b);
	return err;
}

// Makes a thread's first call into Go. Then restores the thread's signal mask, which Go changes in
// this call.
static void first(go_function *function, void *arguments, int size, size_t context)
{
	char *top = stack();
	sigset_t one, mask;

	sigemptyset(&one);
	sigaddset(&one, SIGSTKFLT);
	pthread_sigmask(SIG_BLOCK, &one, &mask);
	expect();
	if (top)
		enter(top, function, arguments, size, context);
	else
		__real_crosscall2(function, arguments, size, context);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

static void (*go_handler)(int, siginfo_t *, void *); // Go's handler, the same for all signals that Go handles

static go_function *godat_call_in_go; // NULL before the first call of godat_call

// Runs a function in Go through godat_call. The first time, it also finds the Go function of
// godat_call; see ASKING.
static void call(go_function *function, void *arguments, size_t context)
{
	struct {
		void *function, *arguments;
	} of_call = {function, arguments}; // as cgo passes them
	go_function *go = __atomic_load_n(&godat_call_in_go, __ATOMIC_RELAXED);

	if (!go) {
		self.state = ASKING;
		godat_call(function, arguments);
		go = __atomic_load_n(&godat_call_in_go, __ATOMIC_RELAXED);
		go_handler = handler_of(SIGSEGV).sa_sigaction; // Go has started
	}
	self.state = IN_GO;
	if (self.top)
		enter(self.top, go, &of_call, sizeof of_call, context);
	else
		first(go, &of_call, sizeof of_call, context);
	self.state = IN_C;
}

static int child; // this is a forked child, where Go's threads do not exist

// Runs every call into Go. A call from an agent (see godat_agent) stays on the current stack,
// because an agent runs on a thread of Go. A call is refused if it comes from a signal handler that
// has interrupted Go, or from a forked child: the result, which is the last of cgo's arguments,
// becomes DAT_INVALID_STATE. pthread_cancel has no effect while the thread is in Go, because Go's
// frames cannot be unwound.
void __wrap_crosscall2(go_function *function, void *arguments, int size, size_t context)
{
	int cancel;

	switch (child ? IN_GO : self.state) {
	case IN_C:
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
		call(function, arguments, context);
		pthread_setcancelstate(cancel, NULL);
		break;
	case ASKING:
		__atomic_store_n(&godat_call_in_go, function, __ATOMIC_RELAXED);
		break;
	case IN_GO:
		*(DAT_RETURN *)((char *)arguments + size - sizeof(DAT_RETURN)) = DAT_CLASS_ERROR | DAT_INVALID_STATE;
		break;
	case IN_AGENT:
		__real_crosscall2(function, arguments, size, context);
	}
}

void godat_agent(DAT_AGENT_FUNC func, DAT_PVOID data, DAT_EVD_HANDLE evd)
{
	int before = self.state;

	self.state = IN_AGENT;
	func(data, evd);
	self.state = before;
}

// before_go blocks all signals while Go starts. So Go's threads get only the signals that Go itself
// unblocks. Of these, the handler masked blocks SIGCHLD and SIGPROF again. after_go restores the
// mask. The library is linked with asyncpreemptoff, so that Go neither unblocks nor sends SIGURG:
// the program may have a handler for this signal.

static sigset_t mask;

static const int handled[] = {SIGSEGV, SIGBUS, SIGFPE, SIGPIPE, SIGURG}; // signals that Go handles

enum { HANDLED = sizeof handled / sizeof *handled };

static struct sigaction before[HANDLED];

// Gives a forked child the program's signal handlers back. Go's handler may wait for Go's threads,
// which the child does not have. So with Go's handler a child that crashed would not end.
static void forked(void)
{
	child = 1;
	for (int i = 0; i < HANDLED; i++)
		if (go_handler && handler_of(handled[i]).sa_sigaction == go_handler)
			sigaction(handled[i], &before[i], NULL);
}

__attribute__((constructor(101))) static void before_go(void)
{
	struct sigaction handler = {.sa_sigaction = masked, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	handler.sa_mask = all;
	if (handler_of(SIGSTKFLT).sa_handler == SIG_DFL)
		sigaction(SIGSTKFLT, &handler, NULL);
	for (int i = 0; i < HANDLED; i++)
		before[i] = handler_of(handled[i]);
	pthread_key_create(&at_exit, leave);
	pthread_atfork(NULL, NULL, forked);
}

__attribute__((constructor)) static void after_go(void) { pthread_sigmask(SIG_SETMASK, &mask, NULL); }
