// The loop device moves data between queue pairs of this host: by memcpy within a process, by
// process_vm_readv and process_vm_writev between two processes. It has no kernel part and no
// thread: the thread that posts a request executes it. If the request must wait for a receive, the
// thread that posts the receive executes it. (A request with a limit of retries starts a thread,
// which ends the request when the retries are over.) To execute a request is to take the peer's
// receive, copy the data and write both completions. Polls do not return a completion before its
// due time, which models the time that a message takes.
//
// Each process has one memfd with all that it shares: its queue pairs, completion queues and memory
// keys. The other processes map this memfd. References inside the memfd are offsets. A GID contains
// the process id and the descriptor of the memfd.
//
// Lock order: the send lock of a queue pair, the receive lock of its peer, the lock of a completion
// queue. Moving a queue pair to ERR takes the send lock and the receive lock of this queue pair,
// and no lock of another queue pair.
//
// The library is loaded before libibverbs and librdmacm (LD_PRELOAD), and defines functions with
// the same names. For objects of other devices these functions call the host's functions. They have
// no symbol versions, so the dynamic linker uses them for every version of a name. dlsym finds the
// default version of a host's function. The inline functions of verbs.h call function pointers in
// an ibv_context. If a pointer is NULL they return EOPNOTSUPP.

#include "loopdev.h"
#include "duration.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	MAX_QP = 16384,
	MAX_CQ = 16384,
	MAX_MR = 65536,
	MAX_WR = 16384, // work requests of one queue
	MAX_CQE = 1 << 18,
	MAX_SGE = 16,
	MAX_INLINE = 256,
	MAX_PEERS = 256, // processes, this one included
	MAX_RD = 16,
	CLASSES = 40,
	MAX_DM = 1 << 20, // bytes of one device memory
	MIN_RATE = 1000, MAX_RATE = 1000000, // kbit/s
};

static const uint64_t SEGMENT = 4ull << 30; // bytes of address space; memory is allocated page by page, on first use

typedef int lock_t; // id of the process that holds the lock; 0: the lock is free

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

struct mem_key { // the shared part of a region
	uint32_t key, used, access, pd; // key 0 and used 1: requests can no longer begin to use the region
	uint64_t addr, length;
	uint64_t shift; // device memory: the true address of its first byte, whose address in requests is 0
	uint32_t null;  // 1: the region has no memory
};

struct entry { // one completion in a completion queue
	struct ibv_wc wc;
	uint64_t due;
	uint32_t solicited;
	uint32_t slot; // of a send: sq_head of the queue pair after this completion was polled
};

struct ring {
	uint64_t at; // offset of the entries
	uint32_t head, tail;
};

struct scq { // the shared part of a completion queue
	lock_t lock;
	uint32_t live, depth, mask;
	uint32_t armed; // 0: no, 1: for any completion, 2: for solicited completions
	uint32_t fired; // notifications that ibv_get_cq_event has not taken
	int32_t fd;
	uint32_t channel; // number of the channel; another channel may get the same descriptor later
	uint32_t lost; // completions for which there was no room
	uint32_t stamps;  // 1: due is set in all completions, because it serves as timestamp
	uint32_t senders; // queue pairs that complete their sends here
	uint32_t lone;    // the only sender, if it needs no lock to complete its sends (add_sender); else 0
	struct ring sends, recvs; // each ordered by due
};

enum { RNR_WAIT = 2000000 }; // between two tries of a request for which the peer has no receive, in ns

struct wqe {
	uint64_t id, remote;
	uint32_t opcode, flags, imm, rkey, nsge, inline_len;
	struct ibv_sge sge[MAX_SGE];
	uint8_t data[MAX_INLINE];
};

struct rqe {
	uint64_t id;
	uint32_t nsge;
	struct ibv_sge sge[MAX_SGE];
};

struct sqp { // the shared part of a queue pair
	lock_t send_lock, recv_lock;
	lock_t inside; // the process that has taken the sends without send_lock (begin_post), or 0
	uint32_t live, num, pd, access, state;
	uint32_t single; // 1: posts take inside instead of send_lock
	uint32_t lone;   // 1: sends complete without the lock of the completion queue
	uint32_t peer_num;
	uint32_t sig_all, scq, rcq;
	uint64_t sq, rq;
	uint32_t sq_mask, sq_max, rq_mask, rq_max;
	uint32_t sq_head, sq_next, sq_tail; // the oldest slot in use, the next to execute, the next to post
	uint32_t rq_head, rq_tail;
	uint32_t starved; // 1: a request of the peer waits for a receive, or for the state of this queue pair
	uint32_t lost;    // not 0: a thread runs give_up for this queue pair; the status of its request
	struct qp *own;   // in the process of this queue pair
	uint64_t retries; // how long a request is retried whose queue pair does not answer, in ns; 0: for ever
	uint64_t rnr_retries; // the same for a request for which the peer has no receive
	uint64_t depart; // the next message leaves at this tick at the earliest
};

struct block { uint64_t next; };

struct segment {
	lock_t lock;
	uint64_t top, free[CLASSES];
	uint32_t generation;
	uint32_t last_qp; // the greatest index of qp that was used
	uint32_t moved;   // number of regions that are null or have a shift
	struct mem_key mr[MAX_MR];
	struct scq cq[MAX_CQ];
	struct sqp qp[MAX_QP];
};

// A host is this process, or another process that has peers of this process's queue pairs. The
// entry of another process lasts as long as queue pairs of this process refer to it.
struct host {
	int pid, fd;
	struct segment *seg; // NULL: the entry is free
	int pidfd;
	uint32_t refs;
};

struct channel {
	struct ibv_comp_channel base;
	uint32_t number;
	pthread_mutex_t lock;
	struct cq *queues;
};

struct cq {
	union {
		struct ibv_cq base;
		struct ibv_cq_ex ex; // begins with the same fields
	};
	struct scq *s;
	struct cq *next; // the next queue of the channel
	uint32_t unacked; // events that are not acknowledged yet
	int single; // 1: the program serializes extended polls
	struct entry *e; // the completion that an extended poll reads
	struct ring *ring; // the ring of e
};

struct qp {
	union {
		struct ibv_qp base;
		struct ibv_qp_ex ex; // begins with the same fields
	};
	struct sqp *s;
	struct host *peer;
	uint32_t max_sge_send, max_sge_recv, max_inline;
	struct ibv_qp_attr path; // as the program set it; only for queries
	struct ibv_ece ece;
	int extended; // 1: an extended queue pair; from wr_start to wr_complete or wr_abort it uses what follows
	lock_t *held; // the lock that wr_start has taken
	uint32_t end; // sq_tail after these requests; wr_complete stores it
	int refused; // the errno of wr_complete, if these requests will not be posted; else 0
	struct wqe *w, none; // w: the latest request; none: a place for refused requests
};

struct wq {
	struct ibv_wq base;
	pthread_mutex_t lock;
	struct scq *cq;
	uint32_t depth, max_sge, posted;
	uint64_t id[]; // ids of the posted receives
};

struct pd {
	struct ibv_pd base;
	uint32_t num;
	int single; // 1: a parent domain with a thread domain
};

struct event { // a copy of the descriptor of another process's channel
	int pid, theirs, mine; // the process, its descriptor, and the copy
	uint32_t channel;
	struct event *next;
};

static struct {
	pthread_mutex_t lock;
	struct host hosts[MAX_PEERS]; // the first is this process
	struct event *events;
	uint32_t pds, channels;
	int barrier; // 1: lock_sends can make the kernel run memory barriers
	uint64_t delay, gap, burst, per_us; // in ticks; per_us: of one microsecond
} lp = { .lock = PTHREAD_MUTEX_INITIALIZER };

// ---- locks

static int ended(int pid)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { NULL, 1 };

	return process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno == ESRCH;
}

static inline void lock(lock_t *l)
{
	unsigned spins = 0;
	lock_t holder = 0;

	while (!__atomic_compare_exchange_n(l, &holder, lp.hosts[0].pid, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
		while ((holder = __atomic_load_n(l, __ATOMIC_RELAXED))) {
			pause_cpu();
			if (++spins % 1024 == 0)
				sched_yield(); // the holder may need this processor
			if (spins % (1 << 16) == 0 && ended(holder)) // the holder was killed
				__atomic_compare_exchange_n(l, &holder, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
	}
}

static inline void unlock(lock_t *l) { __atomic_store_n(l, 0, __ATOMIC_RELEASE); }

// Locks the send queue of a queue pair, which only one thread at a time may access. In a thread
// domain this is almost always the thread that posts. So begin_post uses no locked instruction in a
// thread domain: it stores the process in p->inside, and then checks p->send_lock. lock_sends locks
// p->send_lock, makes the kernel run a memory barrier on every thread, and waits until p->inside is
// 0. Because of the barrier, either begin_post sees the lock, or lock_sends sees p->inside.
static void lock_sends(struct sqp *p)
{
	unsigned spins = 0;
	lock_t holder;

	lock(&p->send_lock);
	if (!__atomic_load_n(&p->single, __ATOMIC_RELAXED))
		return;
	syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
	while ((holder = __atomic_load_n(&p->inside, __ATOMIC_ACQUIRE))) {
		pause_cpu();
		if (++spins % 1024 == 0)
			sched_yield();
		if (spins % (1 << 16) == 0 && ended(holder))
			__atomic_store_n(&p->inside, 0, __ATOMIC_RELAXED);
	}
}

// Locks the send queue of a queue pair for a post. Returns the lock that the caller must unlock.
static inline lock_t *begin_post(struct sqp *p)
{
	if (__builtin_expect(p->single, 0)) {
		__atomic_store_n(&p->inside, lp.hosts[0].pid, __ATOMIC_RELAXED);
		__atomic_signal_fence(__ATOMIC_SEQ_CST); // for the compiler; lock_sends runs the barrier for the processor
		if (!__atomic_load_n(&p->send_lock, __ATOMIC_ACQUIRE))
			return &p->inside;
		__atomic_store_n(&p->inside, 0, __ATOMIC_RELEASE);
	}
	lock(&p->send_lock);
	return &p->send_lock;
}

// ---- time, in ticks of the processor

static inline uint64_t nanos(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static inline uint64_t ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	return nanos();
#endif
}

// Reads GODAT_LOOP_WIRE, such as "1us,50ns,5ms", into lp.delay, lp.gap and lp.burst: the time that
// a message takes, the least time between two messages of one queue pair, and the time from one
// burst of completions to the next. Returns 0 if the text is not valid, else 1.
static int set_wire(void)
{
	const char *text = getenv("GODAT_LOOP_WIRE");
	uint64_t *const values[] = { &lp.delay, &lp.gap, &lp.burst }, ns;
	int i;

	for (i = 0; i < 3; i++) {
		ns = 0;
		if (text && *text && *text != ',' && !read_duration(&text, &ns))
			break;
		*values[i] = ns * lp.per_us / 1000;
		if (text && *text == ',' && i < 2)
			text++;
	}
	if (i == 3 && (!text || !*text))
		return 1;
	fprintf(stderr, "loop0: GODAT_LOOP_WIRE is not a delay, a gap and the time of a burst, as in 1us,50ns,5ms\n");
	return 0;
}

static void calibrate(void)
{
	uint64_t n = nanos(), t = ticks(), passed;

	while ((passed = nanos() - n) < 5000000)
		pause_cpu();
	lp.per_us = (ticks() - t) * 1000 / passed;
}

// ---- shared memory

static struct segment *map(int fd)
{
	void *p = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

// Returns the host entry of this process, or NULL. A forked child gets a new entry, because it must
// not use that of its parent.
static struct host *self(void)
{
	struct host *h = &lp.hosts[0];

	pthread_mutex_lock(&lp.lock);
	if (h->pid != getpid()) {
		int fd = memfd_create("loop device", MFD_CLOEXEC);
		struct segment *s = NULL;

		if (fd >= 0 && ftruncate(fd, (off_t)SEGMENT) == 0)
			s = map(fd);
		if (!s) {
			if (fd >= 0)
				close(fd);
			h = NULL;
		} else {
			s->top = (sizeof(*s) + 4095) & ~4095ull;
			memset(&lp.hosts, 0, sizeof(lp.hosts));
			*h = (struct host){ .pid = getpid(), .fd = fd, .seg = s, .pidfd = -1 };
			lp.events = NULL;
			calibrate();
			lp.barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
			prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); // so that peers may access the registered memory
		}
	}
	pthread_mutex_unlock(&lp.lock);
	return h;
}

// Returns the entry of a process, or NULL. Adds a reference, which put_host drops.
static struct host *host_of(int pid, int fd)
{
	struct host *h = NULL, *unused = NULL;
	char path[64];
	int i, f;

	pthread_mutex_lock(&lp.lock);
	for (i = 0; i < MAX_PEERS && !h; i++) {
		struct host *at = &lp.hosts[i];

		if (!at->seg)
			unused = unused ? unused : at;
		else if (at->pid == pid && at->fd == fd)
			h = at;
	}
	if (!h && unused) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
		f = open(path, O_RDWR | O_CLOEXEC);
		if (f >= 0) {
			struct segment *s = map(f);

			close(f);
			if (s) {
				h = unused;
				*h = (struct host){ .pid = pid, .fd = fd, .seg = s, .pidfd = (int)syscall(SYS_pidfd_open, pid, 0) };
			}
		}
	}
	if (h)
		h->refs++;
	pthread_mutex_unlock(&lp.lock);
	return h;
}

// Drops a reference. Dropping the last reference unmaps the memory of the other process and closes
// the copies of its descriptors.
static void put_host(struct host *h)
{
	if (!h || h == &lp.hosts[0])
		return;
	pthread_mutex_lock(&lp.lock);
	if (--h->refs == 0) {
		struct event **at = &lp.events;

		while (*at) {
			struct event *e = *at;

			if (e->pid == h->pid) {
				*at = e->next;
				close(e->mine);
				free(e);
			} else {
				at = &e->next;
			}
		}
		if (h->pidfd >= 0)
			close(h->pidfd);
		munmap(h->seg, SEGMENT);
		*h = (struct host){ .pidfd = -1 };
	}
	pthread_mutex_unlock(&lp.lock);
}

static int class_of(uint64_t size)
{
	int c = 6;

	while (1ull << c < size)
		c++;
	return c;
}

// Allocates zeroed memory in the segment of this process. Returns the offset of the memory, or 0.
static uint64_t take(struct segment *s, uint64_t size)
{
	int c = class_of(size);
	uint64_t at;

	lock(&s->lock);
	at = s->free[c];
	if (at) {
		s->free[c] = ((struct block *)((char *)s + at))->next;
	} else if (s->top + (1ull << c) <= SEGMENT) {
		at = s->top;
		s->top += 1ull << c;
	}
	unlock(&s->lock);
	if (at)
		memset((char *)s + at, 0, size);
	return at;
}

static void give_back(struct segment *s, uint64_t at, uint64_t size)
{
	int c = class_of(size);

	if (!at)
		return;
	lock(&s->lock);
	((struct block *)((char *)s + at))->next = s->free[c];
	s->free[c] = at;
	unlock(&s->lock);
}

// Copies n bytes within this process, or between this process and another. Returns 0. Between two
// processes it returns -1 if some of the memory is not mapped.
static int copy(const struct host *to, uint64_t dst, const struct host *from, uint64_t src, uint64_t n)
{
	const struct host *me = &lp.hosts[0];
	struct iovec local, remote;

	if (to == me && from == me) {
		memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n);
		return 0;
	}
	local = (struct iovec){ (void *)(uintptr_t)(to == me ? dst : src), n };
	remote = (struct iovec){ (void *)(uintptr_t)(to == me ? src : dst), n };
	if (to == me)
		return process_vm_readv(from->pid, &local, 1, &remote, 1, 0) == (ssize_t)n ? 0 : -1;
	return process_vm_writev(to->pid, &local, 1, &remote, 1, 0) == (ssize_t)n ? 0 : -1;
}

// ---- keys

// Reports whether a key's region contains the range and grants the rights. If so, the region stays
// valid while the caller holds a lock of a queue pair of the region's process: see take_key.
static int grants(struct segment *s, uint32_t key, uint64_t addr, uint64_t n, uint32_t pd, uint32_t access)
{
	const struct mem_key *m = &s->mr[key % MAX_MR];

	return key && __atomic_load_n(&m->key, __ATOMIC_SEQ_CST) == key && m->pd == pd && (m->access & access) == access &&
		addr >= m->addr && n <= m->length && addr - m->addr <= m->length - n;
}

// ---- completions

// Returns the descriptor of a completion queue's channel in this process, or -1.
static int event_fd(const struct host *h, const struct scq *q)
{
	int theirs = q->fd;
	struct event *e;
	int fd = -1;

	if (h == &lp.hosts[0])
		return theirs;
	pthread_mutex_lock(&lp.lock);
	for (e = lp.events; e && (e->pid != h->pid || e->theirs != theirs); e = e->next)
		;
	if (e && e->channel == q->channel) {
		fd = e->mine;
	} else if (h->pidfd >= 0 && (fd = (int)syscall(SYS_pidfd_getfd, h->pidfd, theirs, 0)) >= 0) {
		if (e) { // another thread may be about to write to e->mine
			dup2(fd, e->mine);
			close(fd);
			fd = e->mine;
		} else if ((e = malloc(sizeof(*e)))) {
			*e = (struct event){ .pid = h->pid, .theirs = theirs, .mine = fd, .next = lp.events };
			lp.events = e;
		}
		if (e)
			e->channel = q->channel;
	}
	pthread_mutex_unlock(&lp.lock);
	return fd;
}

// The descriptors to which this thread must write notifications. The function tell writes the
// notifications when the thread holds no other lock, or when this array is full. A process that
// wakes earlier would at once wait for a lock that this thread holds. Until the notifications are
// written, the thread holds the read lock of the rwlock below, so that no channel is closed.
static __thread int owed[16];
static __thread unsigned owes;
static pthread_rwlock_t descriptors = PTHREAD_RWLOCK_INITIALIZER;

static void tell(void)
{
	static const uint64_t one = 1;
	unsigned i;

	if (!owes)
		return;
	for (i = 0; i < owes; i++) {
		if (write(owed[i], &one, sizeof(one)) < 0)
			continue; // the eventfd cannot count more notifications
	}
	owes = 0;
	pthread_rwlock_unlock(&descriptors);
}

static void notify(const struct host *h, struct scq *q) // the caller holds q's lock, and must call tell later
{
	int fd;

	q->armed = 0;
	if (q->fd < 0)
		return;
	q->fired++;
	if (owes == sizeof(owed) / sizeof(*owed))
		tell();
	if (!owes)
		pthread_rwlock_rdlock(&descriptors);
	fd = event_fd(h, q);
	if (fd >= 0)
		owed[owes++] = fd;
	else if (!owes)
		pthread_rwlock_unlock(&descriptors);
}

static struct entry *entries(const struct host *h, const struct ring *r)
{
	return (struct entry *)((char *)h->seg + r->at);
}

// Reads the head atomically, because polls that the program serializes move it without the queue's
// lock.
static inline uint32_t head_of(const struct ring *r) { return __atomic_load_n(&r->head, __ATOMIC_ACQUIRE); }

// Adds a completion. Returns 0 if there is no room, else 1. The caller holds the queue's lock, or
// is the only one that writes to the ring.
static inline int add_entry(const struct host *h, struct scq *q, struct ring *r, const struct ibv_wc *wc,
	uint64_t due, int solicited, uint32_t slot)
{
	if (r->tail - head_of(r) > q->mask ||
		q->sends.tail - head_of(&q->sends) + q->recvs.tail - head_of(&q->recvs) >= q->depth) {
		__atomic_add_fetch(&q->lost, 1, __ATOMIC_RELAXED);
		return 0;
	}
	if (lp.burst) // until the end of the current burst
		due = ((due ? due : ticks()) / lp.burst + 1) * lp.burst;
	struct entry *e = &entries(h, r)[r->tail & q->mask];
	e->wc = *wc;
	e->due = due;
	if (__builtin_expect(q->stamps, 0) && !due)
		e->due = ticks();
	e->solicited = (uint32_t)solicited;
	e->slot = slot;
	__atomic_store_n(&r->tail, r->tail + 1, __ATOMIC_RELEASE);
	return 1;
}

static void complete(const struct host *h, uint32_t num, int receive, const struct ibv_wc *wc, uint64_t due,
	int solicited, uint32_t slot)
{
	struct scq *q = &h->seg->cq[num];

	lock(&q->lock);
	if (!add_entry(h, q, receive ? &q->recvs : &q->sends, wc, due, solicited, slot)) {
		unlock(&q->lock);
		return;
	}
	if (q->armed == 1 || (q->armed == 2 && (solicited || wc->status != IBV_WC_SUCCESS)))
		notify(h, q);
	unlock(&q->lock);
}

// Completes a request of p. The caller has locked the send queue of p.
static inline void complete_send(const struct host *h, struct sqp *p, const struct ibv_wc *wc, uint64_t due,
	uint32_t slot)
{
	struct scq *q = &h->seg->cq[p->scq];

	if (__builtin_expect(p->lone, 0))
		add_entry(h, q, &q->sends, wc, due, 0, slot);
	else
		complete(h, p->scq, 0, wc, due, 0, slot);
}

static inline int is_empty(const struct scq *q)
{
	return __atomic_load_n(&q->sends.tail, __ATOMIC_ACQUIRE) == q->sends.head &&
		__atomic_load_n(&q->recvs.tail, __ATOMIC_ACQUIRE) == q->recvs.head;
}

static inline struct entry *first_of(const struct host *h, const struct scq *q, const struct ring *r)
{
	return r->head != __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) ? &entries(h, r)[r->head & q->mask] : NULL;
}

// Returns the first completion if it is due, and stores its ring. Otherwise returns NULL. The
// caller holds the queue's lock, or is the only one that polls.
static inline struct entry *first_due(struct scq *q, uint64_t *now, struct ring **ring)
{
	const struct host *me = &lp.hosts[0];
	struct entry *a = first_of(me, q, &q->sends), *b = first_of(me, q, &q->recvs);
	struct entry *e = !b || (a && a->due <= b->due) ? a : b;

	if (!e || (e->due > *now && e->due > (*now = ticks())))
		return NULL;
	*ring = e == a ? &q->sends : &q->recvs;
	return e;
}

static inline void drop(struct scq *q, const struct entry *e, struct ring *ring)
{
	if (ring == &q->sends) {
		struct sqp *p = &lp.hosts[0].seg->qp[e->wc.qp_num % MAX_QP];

		if (p->num == e->wc.qp_num)
			__atomic_store_n(&p->sq_head, e->slot, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct scq *q = ((struct cq *)base)->s;
	struct ring *ring;
	struct entry *e;
	uint64_t now = 0;
	int got = 0;

	if (is_empty(q))
		return 0;
	lock(&q->lock);
	for (; got < n && (e = first_due(q, &now, &ring)); got++) {
		wc[got] = e->wc;
		drop(q, e, ring);
	}
	unlock(&q->lock);
	return got;
}

static int req_notify(struct ibv_cq *base, int solicited)
{
	struct scq *q = ((struct cq *)base)->s;
	const struct host *me = &lp.hosts[0];
	struct ring *rings[2] = { &q->sends, &q->recvs };
	uint64_t now = ticks();
	int i, late = 0;

	lock(&q->lock);
	q->armed = q->armed == 1 || !solicited ? 1 : 2;
	for (i = 0; i < 2; i++) { // completions that are not due yet still cause the event
		uint32_t t = rings[i]->tail;

		for (; t != rings[i]->head; t--) {
			struct entry *e = &entries(me, rings[i])[(t - 1) & q->mask];

			if (e->due <= now)
				break;
			late |= q->armed == 1 || e->solicited || e->wc.status != IBV_WC_SUCCESS;
		}
	}
	if (late)
		notify(me, q);
	unlock(&q->lock);
	tell();
	return 0;
}

// ---- execution

static struct wqe *wqe(const struct host *h, struct sqp *p, uint32_t i)
{
	return (struct wqe *)((char *)h->seg + p->sq) + (i & p->sq_mask);
}
static struct rqe *rqe(const struct host *h, struct sqp *p, uint32_t i)
{
	return (struct rqe *)((char *)h->seg + p->rq) + (i & p->rq_mask);
}

static const enum ibv_wc_opcode completed[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE, [IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ,
};

static void flush_sends(const struct host *h, struct sqp *p) // the caller has taken the sends
{
	for (; p->sq_next != p->sq_tail; p->sq_next++) {
		struct ibv_wc wc = { .wr_id = wqe(h, p, p->sq_next)->id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = p->num };

		complete_send(h, p, &wc, 0, p->sq_next + 1);
	}
}

static void flush_recvs(const struct host *h, struct sqp *p) // the caller holds the receive lock
{
	for (; p->rq_head != p->rq_tail; p->rq_head++) {
		struct ibv_wc wc = { .wr_id = rqe(h, p, p->rq_head)->id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV,
			.qp_num = p->num };

		complete(h, p->rcq, 1, &wc, 0, 0, 0);
	}
}

static void to_error(const struct host *h, struct sqp *p, uint32_t num)
{
	lock_sends(p);
	lock(&p->recv_lock);
	if (p->live && p->num == num && p->state != IBV_QPS_RESET) {
		__atomic_store_n(&p->state, IBV_QPS_ERR, __ATOMIC_SEQ_CST);
		flush_recvs(h, p);
		flush_sends(h, p);
	}
	unlock(&p->recv_lock);
	unlock(&p->send_lock);
	tell();
}

// The outcome of a request: executed, to be retried later, to be retried although the peer has no
// receive or the queue pair does not exist, or failed at one or both ends.
enum outcome { DONE, UNREADY, LOST, BROKEN };

// What execute returns. If the request has failed, status says why, and theirs_broken whether the
// peer's queue pair moves to ERR, too.
struct result {
	enum outcome outcome;
	enum ibv_wc_status status;
	int theirs_broken;
	uint32_t length;
};

static struct result result_of(enum ibv_wc_status status, int theirs_broken, uint64_t length)
{
	return (struct result){ status == IBV_WC_SUCCESS ? DONE : BROKEN, status, theirs_broken, (uint32_t)length };
}

// The segments that a request reads or fills, and the process whose memory they are.
struct data {
	const struct host *host;
	const struct ibv_sge *sge;
	uint32_t n;
	uint64_t length;
};

// Reports whether the regions of a request's own segments grant the right.
static int grant_all(struct segment *s, const struct ibv_sge *sge, uint32_t n, uint32_t pd, uint32_t access)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		if (sge[i].length && !grants(s, sge[i].lkey, sge[i].addr, sge[i].length, pd, access))
			return 0;
	}
	return 1;
}

static uint64_t total(const struct ibv_sge *sge, uint32_t n)
{
	uint64_t sum = 0;

	while (n)
		sum += sge[--n].length;
	return sum;
}

static __attribute__((noinline)) const struct ibv_sge *place(const struct segment *s, const struct ibv_sge *sge,
	uint32_t n, struct ibv_sge *real)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		const struct mem_key *m = &s->mr[sge[i].lkey % MAX_MR];

		real[i] = sge[i];
		real[i].addr = m->null ? 0 : sge[i].addr + m->shift;
	}
	return real;
}

// Returns the segments with true addresses. The address of a region without memory is 0. Returns
// sge itself if no address changes, else real, which must have room for n segments.
static inline const struct ibv_sge *placed(const struct segment *s, const struct ibv_sge *sge, uint32_t n,
	struct ibv_sge *real)
{
	return __builtin_expect(__atomic_load_n(&s->moved, __ATOMIC_RELAXED), 0) ? place(s, sge, n, real) : sge;
}

static int wipe(const struct host *to, uint64_t dst, uint64_t n)
{
	static const char zeroes[1 << 16];
	uint64_t k;

	for (; n; n -= k, dst += k) {
		k = n < sizeof(zeroes) ? n : sizeof(zeroes);
		if (copy(to, dst, &lp.hosts[0], (uintptr_t)zeroes, k))
			return -1;
	}
	return 0;
}

static __attribute__((noinline)) int scatter_all(const struct host *to, const struct ibv_sge *dst,
	const struct host *from, const struct ibv_sge *src, uint32_t nsrc)
{
	uint64_t used = 0, k;
	uint32_t i;

	for (i = 0; i < nsrc; i++) {
		uint64_t at = 0;

		while (at < src[i].length) {
			while (used == dst->length) {
				dst++;
				used = 0;
			}
			k = src[i].length - at < dst->length - used ? src[i].length - at : dst->length - used;
			if (dst->addr && (src[i].addr ? copy(to, dst->addr + used, from, src[i].addr + at, k) :
					wipe(to, dst->addr + used, k)))
				return -1;
			at += k;
			used += k;
		}
	}
	return 0;
}

// Copies one list of segments to another list, which must be long enough. At address 0 writes are
// dropped, and reads return zeroes.
static inline int scatter(const struct host *to, const struct ibv_sge *dst, const struct host *from,
	const struct ibv_sge *src, uint32_t nsrc)
{
	if (nsrc == 1 && src->length && src->length <= dst->length && src->addr && dst->addr)
		return copy(to, dst->addr, from, src->addr, src->length);
	return scatter_all(to, dst, from, src, nsrc);
}

static inline int is_send(const struct wqe *w)
{
	return w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM;
}

static inline int takes_receive(const struct wqe *w)
{
	return w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_READ;
}

// Returns DONE if q can execute w now. The caller has locked the receive queue of q.
static inline enum outcome readiness(const struct sqp *p, struct sqp *q, const struct wqe *w)
{
	int answers = q->peer_num == p->num && (q->state == IBV_QPS_RTR || q->state == IBV_QPS_RTS);

	if (!q->live || q->num != p->peer_num || (q->peer_num && q->peer_num != p->num))
		return LOST;
	if (answers && !(takes_receive(w) && q->rq_head == q->rq_tail))
		return DONE;
	q->starved = 1;
	return answers ? UNREADY : LOST;
}

// Copies the data of an RDMA request.
static inline struct result access_remote(const struct data *own, const struct host *o, const struct sqp *q,
	const struct wqe *w)
{
	int reads = w->opcode == IBV_WR_RDMA_READ;
	uint32_t right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
	struct ibv_sge there = { .addr = w->remote, .length = (uint32_t)own->length, .lkey = w->rkey }, real[MAX_SGE];
	const struct ibv_sge *far;
	int failed;

	if (!own->length)
		return result_of(IBV_WC_SUCCESS, 0, 0);
	if (!(q->access & right) || !grants(o->seg, w->rkey, w->remote, own->length, q->pd, right))
		return result_of(IBV_WC_REM_ACCESS_ERR, 1, own->length);
	far = placed(o->seg, &there, 1, real);
	failed = reads ? scatter(own->host, own->sge, o, far, 1) : scatter(o, far, own->host, own->sge, own->n);
	return result_of(failed ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS, 0, own->length);
}

// Takes a receive of q for a Send, or for the immediate data of a write.
static inline struct result deliver(const struct data *own, const struct host *o, struct sqp *q, const struct wqe *w,
	uint64_t arrive)
{
	struct rqe *r = rqe(o, q, q->rq_head);
	struct ibv_wc wc = { .wr_id = r->id, .opcode = is_send(w) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM,
		.byte_len = (uint32_t)own->length, .qp_num = q->num };
	struct ibv_sge real[MAX_SGE];
	enum ibv_wc_status mine = IBV_WC_SUCCESS;

	if (is_send(w) && own->length > total(r->sge, r->nsge)) {
		wc.status = IBV_WC_LOC_LEN_ERR;
		mine = IBV_WC_REM_INV_REQ_ERR;
	} else if (is_send(w) && !grant_all(o->seg, r->sge, r->nsge, q->pd, IBV_ACCESS_LOCAL_WRITE)) {
		wc.status = IBV_WC_LOC_PROT_ERR;
		mine = IBV_WC_REM_OP_ERR;
	} else if (is_send(w) && scatter(o, placed(o->seg, r->sge, r->nsge, real), own->host, own->sge, own->n)) {
		return result_of(IBV_WC_RETRY_EXC_ERR, 0, own->length);
	}
	if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = w->imm;
	}
	q->rq_head++;
	complete(o, q->rcq, 1, &wc, arrive, (w->flags & IBV_SEND_SOLICITED) != 0, 0);
	return result_of(mine, wc.status != IBV_WC_SUCCESS, own->length);
}

// Executes one request w of p at the peer q. h and o are the processes of p and q. A copy that
// fails (the memory has been unmapped, or its process has ended) ends the request with
// RETRY_EXC_ERR.
static struct result execute(const struct host *h, struct sqp *p, const struct host *o, struct sqp *q, struct wqe *w,
	uint64_t arrive)
{
	struct ibv_sge inlined[1], real[MAX_SGE];
	struct data own = { .host = h, .n = w->nsge };
	struct result r = { .outcome = DONE };

	if (w->flags & IBV_SEND_INLINE) { // the data is in the send queue, which both processes map
		inlined[0] = (struct ibv_sge){ .addr = (uintptr_t)w->data, .length = w->inline_len };
		own = (struct data){ &lp.hosts[0], inlined, 1, w->inline_len };
	} else {
		own.length = total(w->sge, w->nsge);
		if (!grant_all(h->seg, w->sge, w->nsge, p->pd, w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0))
			return result_of(IBV_WC_LOC_PROT_ERR, 0, own.length);
		own.sge = placed(h->seg, w->sge, w->nsge, real);
	}
	lock(&q->recv_lock);
	r.outcome = readiness(p, q, w);
	if (r.outcome == DONE && !is_send(w))
		r = access_remote(&own, o, q, w);
	if (r.outcome == DONE && takes_receive(w))
		r = deliver(&own, o, q, w, arrive);
	unlock(&q->recv_lock);
	r.length = (uint32_t)own.length;
	return r;
}

// Returns how long a request is retried that will end with status, in ns; 0: for ever.
static uint64_t patience(const struct sqp *p, uint32_t status)
{
	return status == IBV_WC_RETRY_EXC_ERR ? p->retries : p->rnr_retries;
}

// Returns DONE if the peer's queue pair can take the oldest request of p now. The caller has locked
// the send queue of p.
static enum outcome oldest(struct sqp *p)
{
	const struct host *o = p->own->peer;
	struct sqp *q = &o->seg->qp[p->peer_num % MAX_QP];
	enum outcome now;

	if (o != &lp.hosts[0] && ended(o->pid))
		return LOST;
	lock(&q->recv_lock);
	now = readiness(p, q, wqe(&lp.hosts[0], p, p->sq_next));
	unlock(&q->recv_lock);
	return now;
}

// Waits until the retries of the oldest request of a queue pair are over, and breaks the queue pair
// unless the request has ended meanwhile. A request that waits for a receive for ever fails if the
// peer does not answer any more.
static void *give_up(void *index)
{
	const struct host *me = &lp.hosts[0];
	struct sqp *p = &me->seg->qp[(uintptr_t)index];
	uint32_t num = p->num, slot = p->sq_next;
	int again, broken = 0;

	do {
		uint64_t wait = patience(p, p->lost) ? patience(p, p->lost) : p->retries;
		struct timespec t = { .tv_sec = (time_t)(wait / 1000000000), .tv_nsec = (long)(wait % 1000000000) };

		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
		lock_sends(p);
		again = wait && p->live && p->num == num && p->state == IBV_QPS_RTS && p->sq_next != p->sq_tail;
		if (again) {
			enum outcome now = oldest(p);
			uint32_t status = now == LOST ? IBV_WC_RETRY_EXC_ERR : IBV_WC_RNR_RETRY_EXC_ERR;

			if (now != DONE && p->sq_next == slot && status == p->lost && patience(p, status)) {
				struct ibv_wc wc = { .wr_id = wqe(me, p, slot)->id, .status = status, .qp_num = num };

				complete_send(me, p, &wc, 0, ++p->sq_next);
				broken = 1;
				again = 0;
			}
			p->lost = status;
		}
		slot = p->sq_next;
		if (!again && p->num == num)
			p->lost = 0;
		unlock(&p->send_lock);
	} while (again);
	tell();
	if (broken)
		to_error(me, p, num);
	return NULL;
}

// Starts give_up for the queue pair p of this process. The caller has locked the send queue of p.
static void start_give_up(struct sqp *p, enum outcome end)
{
	pthread_t thread;

	if (p->lost || !(p->retries || p->rnr_retries))
		return;
	p->lost = end == LOST ? IBV_WC_RETRY_EXC_ERR : IBV_WC_RNR_RETRY_EXC_ERR;
	if (pthread_create(&thread, NULL, give_up, (void *)(p - lp.hosts[0].seg->qp)))
		p->lost = 0;
	else
		pthread_detach(thread);
}

// Executes the posted requests of p as far as possible. The caller has locked the send queue of p.
// h is the process of p, and o the process of its peer; one of them is this process. Reports which
// of the two queue pairs must move to ERR.
static void run(const struct host *h, struct sqp *p, const struct host *o, int *mine_broken, int *theirs_broken)
{
	struct sqp *q = &o->seg->qp[p->peer_num % MAX_QP];

	*mine_broken = *theirs_broken = 0;
	while (p->sq_next != p->sq_tail && p->state == IBV_QPS_RTS) {
		struct wqe *w = wqe(h, p, p->sq_next);
		struct ibv_wc wc = { .wr_id = w->id, .opcode = completed[w->opcode], .qp_num = p->num };
		uint64_t arrive = 0, leave = 0;
		struct result end;

		if (lp.delay || lp.gap) {
			leave = ticks();
			if (leave < p->depart)
				leave = p->depart;
			arrive = leave + lp.delay;
		}
		end = execute(h, p, o, q, w, arrive);
		if ((end.outcome == LOST || end.outcome == UNREADY) && h == &lp.hosts[0])
			start_give_up(p, end.outcome);
		if (end.outcome != DONE && end.outcome != BROKEN)
			return;
		if (lp.gap)
			p->depart = leave + lp.gap;
		p->sq_next++;
		wc.status = end.status;
		wc.byte_len = end.length;
		if (end.outcome == BROKEN || p->sig_all || w->flags & IBV_SEND_SIGNALED)
			complete_send(h, p, &wc, arrive ? arrive + lp.delay : 0, p->sq_next);
		if (end.outcome == BROKEN) {
			*mine_broken = 1;
			*theirs_broken = end.theirs_broken;
			return;
		}
	}
}

// Executes the posted requests of p as far as possible, and moves failed queue pairs to ERR. The
// caller holds no lock.
static void progress(const struct host *h, struct sqp *p, const struct host *o)
{
	uint32_t num = p->num, peer = p->peer_num;
	int mine, theirs;

	lock_sends(p);
	run(h, p, o, &mine, &theirs);
	unlock(&p->send_lock);
	tell();
	if (theirs)
		to_error(o, &o->seg->qp[peer % MAX_QP], peer);
	if (mine)
		to_error(h, p, num);
}

// Executes the peer's requests if one of them waits for a receive, or for a state of q in which q
// can receive.
static void feed(struct qp *q)
{
	struct sqp *p;

	if (!q->peer || !__atomic_load_n(&q->s->starved, __ATOMIC_SEQ_CST))
		return;
	__atomic_store_n(&q->s->starved, 0, __ATOMIC_SEQ_CST);
	p = &q->peer->seg->qp[q->s->peer_num % MAX_QP];
	if (p->live && p->num == q->s->peer_num && p->peer_num == q->s->num)
		progress(q->peer, p, &lp.hosts[0]);
}

// Executes the posted requests of q as far as possible, and releases the lock that begin_post has
// returned.
static void end_post(struct qp *q, lock_t *held)
{
	const struct host *me = &lp.hosts[0];
	struct sqp *p = q->s;
	uint32_t num = p->num, peer = p->peer_num;
	int mine = 0, theirs = 0;

	if (p->state == IBV_QPS_ERR)
		flush_sends(me, p);
	else if (q->peer)
		run(me, p, q->peer, &mine, &theirs);
	unlock(held);
	tell();
	if (theirs)
		to_error(q->peer, &q->peer->seg->qp[peer % MAX_QP], peer);
	if (mine)
		to_error(me, p, num);
}

static inline int may_send(const struct sqp *p) { return p->state == IBV_QPS_RTS || p->state == IBV_QPS_ERR; }

static inline int is_full(const struct sqp *p, uint32_t tail)
{
	return tail - __atomic_load_n(&p->sq_head, __ATOMIC_ACQUIRE) >= p->sq_max;
}

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)base;
	const struct host *me = &lp.hosts[0];
	struct sqp *p = q->s;
	lock_t *held = begin_post(p);
	const uint32_t known = 1 << IBV_WR_SEND | 1 << IBV_WR_SEND_WITH_IMM | 1 << IBV_WR_RDMA_WRITE |
		1 << IBV_WR_RDMA_WRITE_WITH_IMM | 1 << IBV_WR_RDMA_READ;
	int rc = may_send(p) ? 0 : EINVAL;

	for (; wr && !rc; wr = wr->next) {
		struct wqe *w = wqe(me, p, p->sq_tail);
		int i;

		if (is_full(p, p->sq_tail)) {
			rc = ENOMEM;
			break;
		}
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_sge_send || wr->opcode > 31 ||
		    !(known >> wr->opcode & 1)) {
			rc = EINVAL;
			break;
		}
		w->id = wr->wr_id;
		w->opcode = wr->opcode;
		w->flags = wr->send_flags;
		w->nsge = (uint32_t)wr->num_sge;
		for (i = 0; i < wr->num_sge; i++)
			w->sge[i] = wr->sg_list[i];
		if (wr->opcode != IBV_WR_SEND) {
			w->imm = wr->imm_data;
			w->remote = wr->wr.rdma.remote_addr;
			w->rkey = wr->wr.rdma.rkey;
		}
		if (w->flags & IBV_SEND_INLINE) {
			if (wr->opcode == IBV_WR_RDMA_READ || total(w->sge, w->nsge) > q->max_inline) {
				rc = EINVAL;
				break;
			}
			w->inline_len = 0;
			for (i = 0; i < wr->num_sge; i++) {
				memcpy(w->data + w->inline_len, (const void *)(uintptr_t)w->sge[i].addr, w->sge[i].length);
				w->inline_len += w->sge[i].length;
			}
		}
		p->sq_tail++;
	}
	if (rc)
		*bad = wr;
	end_post(q, held);
	return rc;
}

// ---- extended queue pairs

static void wr_start(struct ibv_qp_ex *x)
{
	struct qp *q = (struct qp *)x;

	q->held = begin_post(q->s);
	q->end = q->s->sq_tail;
	q->refused = may_send(q->s) ? 0 : EINVAL;
}

static struct wqe *begin_request(struct ibv_qp_ex *x, uint32_t opcode)
{
	struct qp *q = (struct qp *)x;

	if (!q->refused && is_full(q->s, q->end))
		q->refused = ENOMEM;
	q->w = q->refused ? &q->none : wqe(&lp.hosts[0], q->s, q->end++);
	q->w->id = x->wr_id;
	q->w->opcode = opcode;
	q->w->flags = x->wr_flags & ~(uint32_t)IBV_SEND_INLINE; // set by wr_set_inline_data_list
	q->w->nsge = 0;
	return q->w;
}

static void begin_rdma(struct ibv_qp_ex *x, uint32_t opcode, uint32_t rkey, uint64_t remote, __be32 imm)
{
	struct wqe *w = begin_request(x, opcode);

	w->rkey = rkey;
	w->remote = remote;
	w->imm = imm;
}

static void wr_send(struct ibv_qp_ex *x) { begin_request(x, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *x, __be32 imm) { begin_request(x, IBV_WR_SEND_WITH_IMM)->imm = imm; }

static void wr_rdma_write(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote)
{
	begin_rdma(x, IBV_WR_RDMA_WRITE, rkey, remote, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote, __be32 imm)
{
	begin_rdma(x, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote, imm);
}

static void wr_rdma_read(struct ibv_qp_ex *x, uint32_t rkey, uint64_t remote)
{
	begin_rdma(x, IBV_WR_RDMA_READ, rkey, remote, 0);
}

static void wr_set_sge_list(struct ibv_qp_ex *x, size_t n, const struct ibv_sge *sg)
{
	struct qp *q = (struct qp *)x;

	if (n > q->max_sge_send) {
		q->refused = EINVAL;
		return;
	}
	memcpy(q->w->sge, sg, n * sizeof(*sg));
	q->w->nsge = (uint32_t)n;
}

static void wr_set_sge(struct ibv_qp_ex *x, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sg = { .addr = addr, .length = length, .lkey = lkey };

	wr_set_sge_list(x, length != 0, &sg);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *x, size_t n, const struct ibv_data_buf *from)
{
	struct qp *q = (struct qp *)x;
	struct wqe *w = q->w;

	w->flags |= IBV_SEND_INLINE;
	w->inline_len = 0;
	for (; n; n--, from++) {
		if (w->opcode == IBV_WR_RDMA_READ || from->length > q->max_inline - w->inline_len) {
			q->refused = EINVAL;
			return;
		}
		memcpy(w->data + w->inline_len, from->addr, from->length);
		w->inline_len += (uint32_t)from->length;
	}
}

static void wr_set_inline_data(struct ibv_qp_ex *x, void *addr, size_t length)
{
	struct ibv_data_buf from = { .addr = addr, .length = length };

	wr_set_inline_data_list(x, 1, &from);
}

static void wr_abort(struct ibv_qp_ex *x) { unlock(((struct qp *)x)->held); }

// Posts all requests since wr_start, or none.
static int wr_complete(struct ibv_qp_ex *x)
{
	struct qp *q = (struct qp *)x;
	int rc = q->refused;

	if (rc) {
		wr_abort(x);
		return rc;
	}
	q->s->sq_tail = q->end;
	end_post(q, q->held);
	return 0;
}

static int post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = (struct qp *)base;
	const struct host *me = &lp.hosts[0];
	struct sqp *p = q->s;
	int rc = 0, i;

	lock(&p->recv_lock);
	if (p->state == IBV_QPS_RESET)
		rc = EINVAL;
	for (; wr && !rc; wr = wr->next) {
		struct rqe *r = rqe(me, p, p->rq_tail);

		if (p->rq_tail - p->rq_head >= p->rq_max) {
			rc = ENOMEM;
			break;
		}
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_sge_recv) {
			rc = EINVAL;
			break;
		}
		r->id = wr->wr_id;
		r->nsge = (uint32_t)wr->num_sge;
		for (i = 0; i < wr->num_sge; i++)
			r->sge[i] = wr->sg_list[i];
		p->rq_tail++;
	}
	if (rc)
		*bad = wr;
	if (p->state == IBV_QPS_ERR)
		flush_recvs(me, p);
	unlock(&p->recv_lock);
	tell();
	feed(q);
	return rc;
}

// ---- the device

static struct ibv_device loop0 = {
	.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "loop0", .dev_name = "loop0",
};

static int is_loop(const struct ibv_context *ctx) { return ctx->device == &loop0; }

void *loop_host(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (!f) {
		fprintf(stderr, "loop0: this host's libibverbs and librdmacm have no %s\n", name);
		abort();
	}
	return f;
}

static void *not_supported(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

// Reports whether the caller is librdmacm. librdmacm must not find the loop device, because it
// would keep a context of the device.
static int is_librdmacm(void *caller)
{
	Dl_info info;

	return dladdr(caller, &info) && strstr(info.dli_fname, "/librdmacm.so");
}

// 1 while this thread imports a context. libibverbs then lists the devices, and reads fields that
// the loop device does not have. So the list must not contain the loop device.
static __thread int importing;

static int lists;        // lists of devices that are not freed
enum { MOST_LISTS = 32 }; // so many are a leak of the program, and there are no more

struct ibv_device **ibv_get_device_list(int *n)
{
	int real = 0, i;
	struct ibv_device **list = HOST(ibv_get_device_list)(&real), **all;
	int hidden = importing || is_librdmacm(__builtin_return_address(0));

	errno = ENOMEM;
	if (__atomic_load_n(&lists, __ATOMIC_RELAXED) >= MOST_LISTS || (!list && hidden) ||
	    !(all = calloc((size_t)real + 3, sizeof(*all)))) {
		if (list)
			HOST(ibv_free_device_list)(list);
		return NULL;
	}
	all[0] = (struct ibv_device *)list; // for ibv_free_device_list
	for (i = 0; list && i < real; i++)
		all[i + 1] = list[i];
	if (!hidden)
		all[++i] = &loop0;
	if (n)
		*n = i;
	__atomic_add_fetch(&lists, 1, __ATOMIC_RELAXED);
	return all + 1;
}

void ibv_free_device_list(struct ibv_device **all)
{
	if (all[-1])
		HOST(ibv_free_device_list)((struct ibv_device **)all[-1]);
	free(all - 1);
	__atomic_sub_fetch(&lists, 1, __ATOMIC_RELAXED);
}

// Returns the device's GUID, which is a locally administered one.
static __be64 loop_guid(void) { return htobe64(0x020000fffe6c6f6full); }

__be64 ibv_get_device_guid(struct ibv_device *dev)
{
	return dev == &loop0 ? loop_guid() : HOST(ibv_get_device_guid)(dev);
}

int ibv_get_device_index(struct ibv_device *dev) { return dev == &loop0 ? -1 : HOST(ibv_get_device_index)(dev); }

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a);
static struct ibv_qp *create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a);
static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *a, size_t size);
static int query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *v);
static struct ibv_td *alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr);
static int dealloc_td(struct ibv_td *td);
static struct ibv_pd *alloc_parent_domain(struct ibv_context *ctx, struct ibv_parent_domain_init_attr *attr);
static struct ibv_mr *alloc_null_mr(struct ibv_pd *pd);
static struct ibv_dm *alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr);
static int free_dm(struct ibv_dm *dm);
static struct ibv_wq *create_wq(struct ibv_context *ctx, struct ibv_wq_init_attr *a);
static int modify_wq(struct ibv_wq *wq, struct ibv_wq_attr *a);
static int destroy_wq(struct ibv_wq *wq);
static int modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *a);
static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *dm, uint64_t offset, size_t length,
	unsigned int access);

struct loop_context { // a context with the number of its objects
	int objects;
	struct verbs_context x;
};

static void count(struct ibv_context *ctx, int n)
{
	struct verbs_context *x = verbs_get_ctx(ctx);

	__atomic_add_fetch(&((struct loop_context *)((char *)x - offsetof(struct loop_context, x)))->objects, n,
		__ATOMIC_RELAXED);
}

struct ibv_context *ibv_open_device(struct ibv_device *dev)
{
	struct loop_context *c;
	struct verbs_context *x;
	struct ibv_context *ctx;

	if (dev != &loop0)
		return HOST(ibv_open_device)(dev);
	if (!self())
		return NULL;
	if (!set_wire()) {
		errno = EINVAL;
		return NULL;
	}
	if (!(c = calloc(1, sizeof(*c))))
		return NULL;
	x = &c->x;
	x->sz = sizeof(*x);
	x->create_cq_ex = create_cq_ex;
	x->create_qp_ex = create_qp_ex;
	x->query_device_ex = query_device_ex;
	x->query_rt_values = query_rt_values;
	x->alloc_td = alloc_td;
	x->dealloc_td = dealloc_td;
	x->alloc_parent_domain = alloc_parent_domain;
	x->alloc_null_mr = alloc_null_mr;
	x->alloc_dm = alloc_dm;
	x->free_dm = free_dm;
	x->create_wq = create_wq;
	x->modify_wq = modify_wq;
	x->destroy_wq = destroy_wq;
	x->modify_qp_rate_limit = modify_qp_rate_limit;
	x->reg_dm_mr = reg_dm_mr;
	ctx = &x->context;
	ctx->device = dev;
	ctx->abi_compat = __VERBS_ABI_IS_EXTENDED;
	ctx->num_comp_vectors = 1;
	ctx->cmd_fd = -1;
	ctx->async_fd = eventfd(0, EFD_CLOEXEC); // the device has no asynchronous events
	ctx->ops.poll_cq = poll_cq;
	ctx->ops.req_notify_cq = req_notify;
	ctx->ops.post_send = post_send;
	ctx->ops.post_recv = post_recv;
	return ctx;
}

// Fails while an object of the context exists. A real device destroys the object, and so hides that
// the program has forgotten it.
int ibv_close_device(struct ibv_context *ctx)
{
	struct loop_context *c;

	if (!is_loop(ctx))
		return HOST(ibv_close_device)(ctx);
	c = (struct loop_context *)((char *)verbs_get_ctx(ctx) - offsetof(struct loop_context, x));
	if (__atomic_load_n(&c->objects, __ATOMIC_RELAXED)) {
		fprintf(stderr, "loop0: %d objects are open, and the device is being closed\n", c->objects);
		errno = EBUSY;
		return -1;
	}
	close(ctx->async_fd);
	free(c);
	return 0;
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	if (!is_loop(ctx))
		return HOST(ibv_query_device)(ctx, a);
	*a = (struct ibv_device_attr){
		.fw_ver = "1", .node_guid = loop_guid(), .vendor_id = 0x6c6f6f, .max_mr_size = UINT64_MAX,
		.page_size_cap = 4096, .max_qp = MAX_QP,
		.max_qp_wr = MAX_WR, .max_sge = MAX_SGE, .max_sge_rd = MAX_SGE, .max_cq = MAX_CQ, .max_cqe = MAX_CQE,
		.max_mr = MAX_MR, .max_pd = 65536, .max_qp_rd_atom = MAX_RD, .max_res_rd_atom = MAX_RD * MAX_QP,
		.max_qp_init_rd_atom = MAX_RD / 2, .phys_port_cnt = 1, .max_pkeys = 1, .device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
	};
	return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *a)
{
	static const struct ibv_port_attr attr = {
		.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 2,
		.max_msg_sz = 1u << 30, .pkey_tbl_len = 1, .active_width = 2, .active_speed = 32, .phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};

	if (!is_loop(ctx))
		return HOST(ibv_query_port)(ctx, port, a);
	if (port != 1)
		return EINVAL;
	memcpy(a, &attr, offsetof(struct ibv_port_attr, port_cap_flags2)); // the structs of older programs end here
	return 0;
}

int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)
{
	if (!is_loop(ctx))
		return HOST(ibv_query_pkey)(ctx, port, index, pkey);
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	memset(pkey, 0xff, sizeof(*pkey));
	return 0;
}

// Other processes find this process by the GID with index 1: a link-local address of this prefix,
// the process id, and the descriptor of the memfd. The connection manager sends this GID to the
// peer. It is of RoCE v2 and the other one of RoCE v1, so that programs choose it.
static const char gid_prefix[8] = "\xfe\x80";

union ibv_gid loop_gid(void)
{
	int32_t id[2] = { lp.hosts[0].pid, lp.hosts[0].fd };
	union ibv_gid g;

	memcpy(g.raw, gid_prefix, 8);
	memcpy(g.raw + 8, id, 8);
	return g;
}

int _ibv_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags,
	size_t size)
{
	if (!is_loop(ctx))
		return HOST(_ibv_query_gid_ex)(ctx, port, index, e, flags, size);
	if (port != 1 || index > 1)
		return EINVAL;
	*e = (struct ibv_gid_entry){ .port_num = 1, .gid_index = index,
		.gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1 };
	if (index)
		e->gid = loop_gid();
	else
		memcpy(e->gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16); // 127.0.0.1
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	if (!is_loop(ctx))
		return HOST(_ibv_query_gid_table)(ctx, e, max, flags, size);
	if (max < 2)
		return -EINVAL;
	_ibv_query_gid_ex(ctx, 1, 0, e, flags, size);
	_ibv_query_gid_ex(ctx, 1, 1, e + 1, flags, size);
	return 2;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry e;

	if (!is_loop(ctx))
		return HOST(ibv_query_gid)(ctx, port, index, gid);
	if (_ibv_query_gid_ex(ctx, port, (uint32_t)index, &e, 0, sizeof(e)))
		return -1;
	*gid = e.gid;
	return 0;
}

// ibv_devinfo -v calls this function. No installed header declares it.
int ibv_query_gid_type(struct ibv_context *ctx, uint8_t port, unsigned int index, int *type)
{
	if (!is_loop(ctx))
		return HOST(ibv_query_gid_type)(ctx, port, index, type);
	*type = index == 1; // RoCE v2
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct pd *pd;

	if (!is_loop(ctx))
		return HOST(ibv_alloc_pd)(ctx);
	if ((pd = calloc(1, sizeof(*pd)))) {
		pd->base.context = ctx;
		pd->num = __atomic_add_fetch(&lp.pds, 1, __ATOMIC_RELAXED);
		count(ctx, 1);
	}
	return &pd->base;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	if (!is_loop(pd->context))
		return HOST(ibv_dealloc_pd)(pd);
	count(pd->context, -1);
	free(pd);
	return 0;
}

static int unmapped(void *addr)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { addr, 1 };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1;
}

// Creates a region with the properties in *key, and a new key.
static struct ibv_mr *add_region(struct ibv_pd *pd, const struct mem_key *key)
{
	struct segment *s = lp.hosts[0].seg;
	struct ibv_mr *mr;
	uint32_t i;

	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	lock(&s->lock);
	s->generation++;
	for (i = 0; i < MAX_MR; i++) { // rotate keys, so that a stale key is not reused soon
		struct mem_key *m = &s->mr[(s->generation + i) % MAX_MR];

		if (m->used)
			continue;
		*m = *key;
		m->used = 1;
		m->pd = ((struct pd *)pd)->num;
		s->moved += m->null || m->shift;
		mr->lkey = mr->rkey = (s->generation % 65535 + 1) << 16 | (uint32_t)(m - s->mr);
		__atomic_store_n(&m->key, mr->lkey, __ATOMIC_SEQ_CST);
		break;
	}
	unlock(&s->lock);
	if (!mr->lkey) {
		free(mr);
		errno = ENOMEM;
		return NULL;
	}
	count(pd->context, 1);
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = (void *)(uintptr_t)key->addr;
	mr->length = key->length;
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct mem_key key = { .addr = (uintptr_t)addr, .length = length, .access = (uint32_t)access };

	if (!is_loop(pd->context))
		return HOST(ibv_reg_mr)(pd, addr, length, access);
	if (unmapped(addr) || unmapped((char *)addr + length - 1)) {
		errno = EFAULT;
		return NULL;
	}
	return add_region(pd, &key);
}

static struct ibv_mr *alloc_null_mr(struct ibv_pd *pd)
{
	struct mem_key key = { .length = UINT64_MAX, .access = IBV_ACCESS_LOCAL_WRITE, .null = 1 };

	return add_region(pd, &key);
}

struct dm {
	struct ibv_dm base;
	size_t length;
	char memory[];
};

static int memcpy_to_dm(struct ibv_dm *base, uint64_t offset, const void *from, size_t length)
{
	struct dm *dm = (struct dm *)base;

	if (offset > dm->length || length > dm->length - offset)
		return EINVAL;
	memcpy(dm->memory + offset, from, length);
	return 0;
}

static int memcpy_from_dm(void *to, struct ibv_dm *base, uint64_t offset, size_t length)
{
	struct dm *dm = (struct dm *)base;

	if (offset > dm->length || length > dm->length - offset)
		return EINVAL;
	memcpy(to, dm->memory + offset, length);
	return 0;
}

static struct ibv_dm *alloc_dm(struct ibv_context *ctx, struct ibv_alloc_dm_attr *attr)
{
	struct dm *dm;

	if (attr->length > MAX_DM) {
		errno = ENOMEM;
		return NULL;
	}
	if (!(dm = calloc(1, sizeof(*dm) + attr->length)))
		return NULL;
	dm->base = (struct ibv_dm){ .context = ctx, .memcpy_to_dm = memcpy_to_dm, .memcpy_from_dm = memcpy_from_dm };
	dm->length = attr->length;
	count(ctx, 1);
	return &dm->base;
}

static int free_dm(struct ibv_dm *dm)
{
	count(dm->context, -1);
	free(dm);
	return 0;
}

static struct ibv_mr *reg_dm_mr(struct ibv_pd *pd, struct ibv_dm *base, uint64_t offset, size_t length,
	unsigned int access)
{
	struct dm *dm = (struct dm *)base;
	struct mem_key key = { .length = length, .access = access, .shift = (uintptr_t)dm->memory + offset };

	if (!(access & IBV_ACCESS_ZERO_BASED) || offset > dm->length || length > dm->length - offset) {
		errno = EINVAL;
		return NULL;
	}
	return add_region(pd, &key);
}

// The addresses of a region must be those of its memory: no other iova is supported.
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	if (!is_loop(pd->context))
		return HOST(ibv_reg_mr_iova2)(pd, addr, length, iova, access);
	return iova == (uintptr_t)addr ? ibv_reg_mr(pd, addr, length, (int)access) : not_supported();
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	if (!is_loop(pd->context))
		return HOST(ibv_reg_mr_iova)(pd, addr, length, iova, access);
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

// Makes a region's key invalid, and waits until no request uses the region.
static struct mem_key *take_key(const struct ibv_mr *mr)
{
	struct segment *s = lp.hosts[0].seg;
	struct mem_key *m = &s->mr[mr->lkey % MAX_MR];
	uint32_t i;

	__atomic_store_n(&m->key, 0, __ATOMIC_SEQ_CST);
	for (i = 1; i <= __atomic_load_n(&s->last_qp, __ATOMIC_SEQ_CST); i++) { // a holder of these locks may use it
		struct sqp *p = &s->qp[i];

		if (__atomic_load_n(&p->live, __ATOMIC_SEQ_CST)) {
			lock_sends(p);
			unlock(&p->send_lock);
			lock(&p->recv_lock);
			unlock(&p->recv_lock);
		}
	}
	return m;
}

// If the new memory is not mapped, the change fails in the middle, and the region is lost.
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct mem_key *m;

	if (!is_loop(mr->context))
		return HOST(ibv_rereg_mr)(mr, flags, pd, addr, length, access);
	m = &lp.hosts[0].seg->mr[mr->lkey % MAX_MR];
	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED || (access && !(flags & IBV_REREG_MR_CHANGE_ACCESS)) || m->null ||
	    m->shift) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	take_key(mr);
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		if (unmapped(addr) || unmapped((char *)addr + length - 1)) {
			errno = EFAULT;
			return IBV_REREG_MR_ERR_CMD;
		}
		m->addr = (uintptr_t)addr;
		m->length = length;
		mr->addr = addr;
		mr->length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		m->pd = ((struct pd *)pd)->num;
		mr->pd = pd;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		m->access = (uint32_t)access;
	__atomic_store_n(&m->key, mr->lkey, __ATOMIC_SEQ_CST);
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct segment *s = lp.hosts[0].seg;
	struct mem_key *m;

	if (!is_loop(mr->context))
		return HOST(ibv_dereg_mr)(mr);
	m = take_key(mr);
	lock(&s->lock);
	s->moved -= m->null || m->shift;
	m->used = 0;
	unlock(&s->lock);
	count(mr->context, -1);
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct channel *ch;

	if (!is_loop(ctx))
		return HOST(ibv_create_comp_channel)(ctx);
	if (!(ch = calloc(1, sizeof(*ch))))
		return NULL;
	ch->base.context = ctx;
	ch->base.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ch->base.fd < 0) {
		free(ch);
		return NULL;
	}
	pthread_mutex_init(&ch->lock, NULL);
	ch->number = __atomic_add_fetch(&lp.channels, 1, __ATOMIC_RELAXED);
	count(ctx, 1);
	return &ch->base;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	if (!is_loop(ch->context))
		return HOST(ibv_destroy_comp_channel)(ch);
	pthread_rwlock_wrlock(&descriptors);
	close(ch->fd);
	pthread_rwlock_unlock(&descriptors);
	count(ch->context, -1);
	free(ch);
	return 0;
}

// Returns the size of a ring: a power of two, at least cqe.
static uint32_t ring_size(int cqe)
{
	uint32_t n = 1;

	while (n < (uint32_t)cqe)
		n *= 2;
	return n;
}

static struct cq *new_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector,
	uint32_t stamps)
{
	struct segment *s = lp.hosts[0].seg;
	uint32_t i, n = ring_size(cqe);
	struct cq *cq;

	if (cqe < 1 || cqe > MAX_CQE || vector) {
		errno = EINVAL;
		return NULL;
	}
	if (!(cq = calloc(1, sizeof(*cq))))
		return NULL;
	lock(&s->lock);
	for (i = 0; i < MAX_CQ && s->cq[i].live; i++)
		;
	if (i < MAX_CQ)
		s->cq[i] = (struct scq){ .live = 1, .depth = n, .mask = n - 1, .fd = ch ? ch->fd : -1,
			.stamps = stamps, .channel = ch ? ((struct channel *)ch)->number : 0 };
	unlock(&s->lock);
	if (i < MAX_CQ) {
		cq->s = &s->cq[i];
		cq->s->sends.at = take(s, n * sizeof(struct entry));
		cq->s->recvs.at = take(s, n * sizeof(struct entry));
	}
	if (i == MAX_CQ || !cq->s->sends.at || !cq->s->recvs.at) {
		if (cq->s) {
			give_back(s, cq->s->sends.at, n * sizeof(struct entry));
			give_back(s, cq->s->recvs.at, n * sizeof(struct entry));
			__atomic_store_n(&cq->s->live, 0, __ATOMIC_RELEASE);
		}
		free(cq);
		errno = ENOMEM;
		return NULL;
	}
	count(ctx, 1);
	cq->base.context = ctx;
	cq->base.channel = ch;
	cq->base.cq_context = context;
	cq->base.cqe = (int)n;
	if (ch) {
		struct channel *c = (struct channel *)ch;

		pthread_mutex_lock(&c->lock);
		cq->next = c->queues;
		c->queues = cq;
		pthread_mutex_unlock(&c->lock);
	}
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector)
{
	struct cq *cq;

	if (!is_loop(ctx))
		return HOST(ibv_create_cq)(ctx, cqe, context, ch, vector);
	cq = new_cq(ctx, cqe, context, ch, vector, 0);
	return cq ? &cq->base : NULL;
}

// ---- extended completion queues: their clock counts ticks of the processor

static int next_poll(struct ibv_cq_ex *x)
{
	struct cq *cq = (struct cq *)x;
	uint64_t now = 0;

	if (cq->e)
		drop(cq->s, cq->e, cq->ring);
	if (!(cq->e = first_due(cq->s, &now, &cq->ring)))
		return ENOENT;
	x->wr_id = cq->e->wc.wr_id;
	x->status = cq->e->wc.status;
	return 0;
}

static void end_poll(struct ibv_cq_ex *x)
{
	struct cq *cq = (struct cq *)x;

	if (cq->e)
		drop(cq->s, cq->e, cq->ring);
	cq->e = NULL;
	if (!cq->single)
		unlock(&cq->s->lock);
}

static int start_poll(struct ibv_cq_ex *x, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = (struct cq *)x;
	int rc;

	if (attr->comp_mask)
		return EINVAL;
	if (is_empty(cq->s))
		return ENOENT;
	if (!cq->single)
		lock(&cq->s->lock);
	rc = next_poll(x);
	if (rc)
		end_poll(x);
	return rc;
}

#define READ(type, name, field) \
	static type read_##name(struct ibv_cq_ex *x) { return (type)((struct cq *)x)->field; }
READ(enum ibv_wc_opcode, opcode, e->wc.opcode)
READ(uint32_t, vendor_err, e->wc.vendor_err)
READ(uint32_t, byte_len, e->wc.byte_len)
READ(__be32, imm_data, e->wc.imm_data)
READ(uint32_t, qp_num, e->wc.qp_num)
READ(uint32_t, src_qp, e->wc.src_qp)
READ(unsigned int, wc_flags, e->wc.wc_flags)
READ(uint32_t, slid, e->wc.slid)
READ(uint8_t, sl, e->wc.sl)
READ(uint8_t, dlid_path_bits, e->wc.dlid_path_bits)
READ(uint64_t, completion_ts, e->due)
// The device has no packets with tags. It derives these fields from the work request id, so that
// tests can check how they are read.
READ(uint16_t, cvlan, e->wc.wr_id)
READ(uint32_t, flow_tag, e->wc.wr_id >> 8)
#undef READ

static void read_tm_info(struct ibv_cq_ex *x, struct ibv_wc_tm_info *tm)
{
	tm->tag = ~x->wr_id;
	tm->priv = (uint32_t)(x->wr_id >> 32);
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *x)
{
	uint64_t passed = (ticks() - ((struct cq *)x)->e->due) * 1000 / lp.per_us;
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec - passed;
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a)
{
	const uint64_t stamps = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct pd *domain = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD ? (struct pd *)a->parent_domain : NULL;
	uint32_t flags = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? a->flags : 0;
	struct cq *cq;

	if (a->cqe > MAX_CQE || a->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)) {
		errno = EINVAL;
		return NULL;
	}
	if (flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)
		return not_supported();
	cq = new_cq(ctx, (int)a->cqe, a->cq_context, a->channel, (int)a->comp_vector, (a->wc_flags & stamps) != 0);
	if (!cq)
		return NULL;
	cq->single = flags || (domain && domain->single);
#define READER(flag, name) \
	cq->ex.read_##name = a->wc_flags & IBV_WC_EX_WITH_##flag ? read_##name : NULL
	READER(BYTE_LEN, byte_len);
	READER(IMM, imm_data);
	READER(QP_NUM, qp_num);
	READER(SRC_QP, src_qp);
	READER(SLID, slid);
	READER(SL, sl);
	READER(DLID_PATH_BITS, dlid_path_bits);
	READER(COMPLETION_TIMESTAMP, completion_ts);
	READER(CVLAN, cvlan);
	READER(FLOW_TAG, flow_tag);
	READER(TM_INFO, tm_info);
	READER(COMPLETION_TIMESTAMP_WALLCLOCK, completion_wallclock_ns);
#undef READER
	cq->ex.read_opcode = read_opcode;
	cq->ex.read_vendor_err = read_vendor_err;
	cq->ex.read_wc_flags = read_wc_flags;
	cq->ex.start_poll = start_poll;
	cq->ex.next_poll = next_poll;
	cq->ex.end_poll = end_poll;
	return &cq->ex;
}

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *input,
	struct ibv_device_attr_ex *a, size_t size)
{
	struct ibv_device_attr_ex all = { .completion_timestamp_mask = UINT64_MAX, .hca_core_clock = lp.per_us * 1000,
		.max_dm_size = MAX_DM, .max_wq_type_rq = 1024,
		.packet_pacing_caps = { MIN_RATE, MAX_RATE, 1 << IBV_QPT_RC } };

	(void)input;
	ibv_query_device(ctx, &all.orig_attr);
	memcpy(a, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

static int query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *v)
{
	(void)ctx;
	if (v->comp_mask != IBV_VALUES_MASK_RAW_CLOCK)
		return EINVAL;
	v->raw_clock = (struct timespec){ .tv_nsec = (long)ticks() };
	return 0;
}

// ---- thread domains

static struct ibv_td *alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr)
{
	struct ibv_td *td;

	if (attr->comp_mask)
		return not_supported();
	if ((td = calloc(1, sizeof(*td)))) {
		td->context = ctx;
		count(ctx, 1);
	}
	return td;
}

static int dealloc_td(struct ibv_td *td)
{
	count(td->context, -1);
	free(td);
	return 0;
}

static struct ibv_pd *alloc_parent_domain(struct ibv_context *ctx, struct ibv_parent_domain_init_attr *attr)
{
	struct pd *pd;

	if (attr->comp_mask)
		return not_supported();
	if ((pd = calloc(1, sizeof(*pd)))) {
		pd->base.context = ctx;
		pd->num = ((struct pd *)attr->pd)->num;
		pd->single = attr->td != NULL;
		count(ctx, 1);
	}
	return &pd->base;
}

static pthread_mutex_t senders = PTHREAD_MUTEX_INITIALIZER; // taken before send locks

static void move_ring(struct segment *s, struct ring *r, uint32_t mask, uint64_t to, uint32_t to_mask)
{
	struct entry *a = (struct entry *)((char *)s + r->at), *b = (struct entry *)((char *)s + to);
	uint32_t i;

	for (i = r->head; i != r->tail; i++)
		b[i & to_mask] = a[i & mask];
	r->at = to;
}

int ibv_resize_cq(struct ibv_cq *base, int cqe)
{
	struct segment *s = lp.hosts[0].seg;
	struct scq *q = ((struct cq *)base)->s;
	uint32_t n = ring_size(cqe), old;
	uint64_t a, b, c, d;
	int rc = 0;

	if (!is_loop(base->context))
		return HOST(ibv_resize_cq)(base, cqe);
	if (cqe < 1 || cqe > MAX_CQE)
		return EINVAL;
	a = take(s, n * sizeof(struct entry));
	b = take(s, n * sizeof(struct entry));
	pthread_mutex_lock(&senders);
	if (q->lone)
		lock_sends(&s->qp[q->lone]);
	lock(&q->lock);
	old = q->mask + 1;
	c = q->sends.at;
	d = q->recvs.at;
	if (!a || !b) {
		rc = ENOMEM;
	} else if (q->sends.tail - q->sends.head + q->recvs.tail - q->recvs.head > n) {
		rc = EINVAL;
	} else {
		move_ring(s, &q->sends, q->mask, a, n - 1);
		move_ring(s, &q->recvs, q->mask, b, n - 1);
		q->depth = n;
		q->mask = n - 1;
		base->cqe = (int)n;
		a = c;
		b = d;
	}
	unlock(&q->lock);
	if (q->lone)
		unlock(&s->qp[q->lone].send_lock);
	pthread_mutex_unlock(&senders);
	give_back(s, a, (rc ? n : old) * sizeof(struct entry));
	give_back(s, b, (rc ? n : old) * sizeof(struct entry));
	return rc;
}

int ibv_destroy_cq(struct ibv_cq *base)
{
	struct segment *s = lp.hosts[0].seg;
	struct cq *cq = (struct cq *)base, **at;
	struct scq *q = cq->s;

	if (!is_loop(base->context))
		return HOST(ibv_destroy_cq)(base);
	if (base->channel) {
		struct channel *c = (struct channel *)base->channel;

		pthread_mutex_lock(&c->lock);
		for (at = &c->queues; *at && *at != cq; at = &(*at)->next)
			;
		if (*at)
			*at = cq->next;
		pthread_mutex_unlock(&c->lock);
	}
	while (__atomic_load_n(&cq->unacked, __ATOMIC_ACQUIRE)) // as libibverbs does
		sched_yield();
	give_back(s, q->sends.at, (q->mask + 1) * sizeof(struct entry));
	give_back(s, q->recvs.at, (q->mask + 1) * sizeof(struct entry));
	__atomic_store_n(&q->live, 0, __ATOMIC_RELEASE);
	count(base->context, -1);
	free(cq);
	return 0;
}

// Waits until the first completion is due, so that a notified process finds it.
static void await_wire(struct scq *q)
{
	const struct host *me = &lp.hosts[0];
	uint64_t due = UINT64_MAX;

	lock(&q->lock);
	if (q->sends.head != q->sends.tail)
		due = entries(me, &q->sends)[q->sends.head & q->mask].due;
	if (q->recvs.head != q->recvs.tail && entries(me, &q->recvs)[q->recvs.head & q->mask].due < due)
		due = entries(me, &q->recvs)[q->recvs.head & q->mask].due;
	unlock(&q->lock);
	while (due != UINT64_MAX && ticks() < due)
		pause_cpu();
}

int ibv_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq, void **context)
{
	struct channel *ch = (struct channel *)base;
	struct cq *q;
	uint64_t one;

	if (!is_loop(base->context))
		return HOST(ibv_get_cq_event)(base, cq, context);
	for (;;) {
		if (read(base->fd, &one, sizeof(one)) != sizeof(one))
			return -1;
		pthread_mutex_lock(&ch->lock);
		for (q = ch->queues; q; q = q->next) {
			uint32_t fired = __atomic_load_n(&q->s->fired, __ATOMIC_SEQ_CST);

			if (fired && __atomic_compare_exchange_n(&q->s->fired, &fired, fired - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
				break;
		}
		if (q) {
			await_wire(q->s);
			__atomic_add_fetch(&q->unacked, 1, __ATOMIC_RELAXED);
			*cq = &q->base;
			*context = q->base.cq_context;
		}
		pthread_mutex_unlock(&ch->lock);
		if (q)
			return 0;
	} // the notification was of a queue that has been destroyed
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (!is_loop(cq->context))
		HOST(ibv_ack_cq_events)(cq, n);
	else
		__atomic_sub_fetch(&((struct cq *)cq)->unacked, n, __ATOMIC_RELEASE);
}

// Counts p as a sender of its completion queue. If p is in a thread domain, is the only sender, and
// the completion queue has no channel, then p completes its sends without the lock of the queue:
// what serializes the sends of p also serializes their completions. When a second sender is
// counted, p uses the lock again.
static void add_sender(struct segment *s, struct sqp *p)
{
	struct scq *q = &s->cq[p->scq];

	pthread_mutex_lock(&senders);
	if (!q->senders++) {
		p->lone = p->single && q->fd < 0;
		q->lone = p->lone ? (uint32_t)(p - s->qp) : 0;
	} else if (q->lone) {
		struct sqp *first = &s->qp[q->lone];

		lock_sends(first);
		first->lone = 0;
		unlock(&first->send_lock);
		q->lone = 0;
	}
	pthread_mutex_unlock(&senders);
}

static void remove_sender(struct segment *s, struct sqp *p)
{
	struct scq *q = &s->cq[p->scq];

	pthread_mutex_lock(&senders);
	q->senders--;
	if (q->lone == (uint32_t)(p - s->qp))
		q->lone = 0;
	pthread_mutex_unlock(&senders);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct segment *s = lp.hosts[0].seg;
	struct ibv_qp_cap *cap = &a->cap;
	uint32_t i;
	struct qp *q;
	struct sqp *p = NULL;

	if (!is_loop(pd->context))
		return HOST(ibv_create_qp)(pd, a);
	if (a->qp_type != IBV_QPT_RC) {
		errno = EOPNOTSUPP; // as the kernel's drivers do
		return NULL;
	}
	if (a->srq || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR ||
		cap->max_send_sge > MAX_SGE ||
	    cap->max_recv_sge > MAX_SGE || cap->max_inline_data > MAX_INLINE) {
		errno = EINVAL;
		return NULL;
	}
	if (!(q = calloc(1, sizeof(*q))))
		return NULL;
	lock(&s->lock);
	for (i = 1; i < MAX_QP && s->qp[i].live; i++)
		;
	if (i < MAX_QP) {
		p = &s->qp[i];
		if (s->last_qp < i)
			__atomic_store_n(&s->last_qp, i, __ATOMIC_SEQ_CST);
		__atomic_store_n(&p->live, 1, __ATOMIC_SEQ_CST);
	}
	unlock(&s->lock);
	if (p) {
		uint32_t generation = (p->num / MAX_QP + 1) % (1 << 10);

		lock_sends(p); // peers of the queue pair that had this index before may hold the locks
		lock(&p->recv_lock);
		memset(&p->num, 0, sizeof(*p) - offsetof(struct sqp, num)); // clears all fields after live
		p->num = generation * MAX_QP + i;
		p->pd = ((struct pd *)pd)->num;
		unlock(&p->recv_lock);
		unlock(&p->send_lock);
		p->sq_max = cap->max_send_wr;
		p->rq_max = cap->max_recv_wr;
		p->sq_mask = ring_size((int)cap->max_send_wr) - 1;
		p->rq_mask = ring_size((int)cap->max_recv_wr) - 1;
		p->sq = take(s, (p->sq_mask + 1) * sizeof(struct wqe));
		p->rq = take(s, (p->rq_mask + 1) * sizeof(struct rqe));
	}
	if (!p || !p->sq || !p->rq) {
		if (p) {
			give_back(s, p->sq, (p->sq_mask + 1) * sizeof(struct wqe));
			give_back(s, p->rq, (p->rq_mask + 1) * sizeof(struct rqe));
			__atomic_store_n(&p->live, 0, __ATOMIC_SEQ_CST);
		}
		free(q);
		errno = ENOMEM;
		return NULL;
	}
	p->single = lp.barrier && ((struct pd *)pd)->single;
	p->sig_all = a->sq_sig_all != 0;
	p->scq = (uint32_t)(((struct cq *)a->send_cq)->s - s->cq);
	p->rcq = (uint32_t)(((struct cq *)a->recv_cq)->s - s->cq);
	add_sender(s, p);
	q->s = p;
	p->own = q;
	q->max_sge_send = cap->max_send_sge;
	q->max_sge_recv = cap->max_recv_sge;
	q->max_inline = cap->max_inline_data;
	q->base = (struct ibv_qp){
		.context = pd->context, .qp_context = a->qp_context, .pd = pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq,
		.qp_num = p->num, .state = IBV_QPS_RESET, .qp_type = IBV_QPT_RC,
	};
	count(pd->context, 1);
	return &q->base;
}

static struct ibv_qp *create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a)
{
	const uint64_t known = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ;
	struct qp *q;

	(void)ctx;
	if (a->qp_type != IBV_QPT_RC || a->send_ops_flags & ~known ||
	    a->comp_mask != (IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS))
		return not_supported();
	if (!(q = (struct qp *)ibv_create_qp(a->pd, (struct ibv_qp_init_attr *)a))) // both structs begin with the same fields
		return NULL;
	q->extended = 1;
	q->ex.wr_send = wr_send;
	q->ex.wr_send_imm = wr_send_imm;
	q->ex.wr_rdma_write = wr_rdma_write;
	q->ex.wr_rdma_write_imm = wr_rdma_write_imm;
	q->ex.wr_rdma_read = wr_rdma_read;
	q->ex.wr_set_sge = wr_set_sge;
	q->ex.wr_set_sge_list = wr_set_sge_list;
	q->ex.wr_set_inline_data = wr_set_inline_data;
	q->ex.wr_set_inline_data_list = wr_set_inline_data_list;
	q->ex.wr_start = wr_start;
	q->ex.wr_complete = wr_complete;
	q->ex.wr_abort = wr_abort;
	return &q->base;
}

// Returns the process that an address refers to, or NULL. Adds a reference, which put_host drops.
static struct host *peer_of(const struct ibv_ah_attr *a)
{
	int32_t id[2];

	if (memcmp(a->grh.dgid.raw, gid_prefix, 8))
		return &lp.hosts[0]; // 127.0.0.1 is this process
	memcpy(id, a->grh.dgid.raw + 8, 8);
	return host_of(id[0], id[1]);
}

int ibv_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)base;
	struct sqp *p = q->s;
	struct host *peer = NULL;
	uint32_t to = a->qp_state, from;
	int rc = 0;

	if (!is_loop(base->context))
		return HOST(ibv_modify_qp)(base, a, mask);
	if (mask & IBV_QP_STATE && to == IBV_QPS_ERR) {
		if (p->state == IBV_QPS_RESET)
			return EINVAL;
		base->state = IBV_QPS_ERR;
		to_error(&lp.hosts[0], p, p->num);
		return 0;
	}
	if (mask & IBV_QP_AV && !(peer = peer_of(&a->ah_attr)))
		return EHOSTUNREACH;
	lock_sends(p);
	lock(&p->recv_lock);
	from = p->state;
	if (!(mask & IBV_QP_STATE))
		to = from;
	if (!(to == from || to == IBV_QPS_RESET || (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
	      (from == IBV_QPS_INIT && to == IBV_QPS_RTR && mask & IBV_QP_AV && mask & IBV_QP_DEST_QPN) ||
	      (from == IBV_QPS_RTR && to == IBV_QPS_RTS)))
		rc = EINVAL;
	if (!rc) {
		if (mask & IBV_QP_ACCESS_FLAGS)
			p->access = (uint32_t)a->qp_access_flags;
		if (mask & IBV_QP_DEST_QPN)
			p->peer_num = a->dest_qp_num;
		if (peer) {
			struct host *before = q->peer;

			q->peer = peer;
			peer = before;
			q->path.ah_attr = a->ah_attr;
		}
		if (mask & IBV_QP_PATH_MTU)
			q->path.path_mtu = a->path_mtu;
		if (mask & IBV_QP_TIMEOUT)
			q->path.timeout = a->timeout;
		if (mask & IBV_QP_RETRY_CNT)
			q->path.retry_cnt = a->retry_cnt;
		if (mask & IBV_QP_RNR_RETRY)
			q->path.rnr_retry = a->rnr_retry;
		p->retries = q->path.timeout ? (4096ull << (q->path.timeout & 31)) * (1u + q->path.retry_cnt) : 0;
		p->rnr_retries = q->path.rnr_retry < 7 ? RNR_WAIT * (1u + q->path.rnr_retry) : 0; // 7 is for ever
		if (to == IBV_QPS_RESET) {
			p->sq_head = p->sq_next = p->sq_tail;
			p->rq_head = p->rq_tail;
			p->peer_num = 0;
		}
		__atomic_store_n(&p->state, to, __ATOMIC_SEQ_CST);
		base->state = to;
	}
	unlock(&p->recv_lock);
	unlock(&p->send_lock);
	put_host(peer); // the previous peer; if the change was refused, the new one
	if (!rc && to == IBV_QPS_RTR)
		__atomic_store_n(&p->starved, 1, __ATOMIC_SEQ_CST); // the peer may have sent already
	if (!rc)
		feed(q);
	return rc;
}

int ibv_query_qp(struct ibv_qp *base, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *q = (struct qp *)base;

	if (!is_loop(base->context))
		return HOST(ibv_query_qp)(base, a, mask, init);
	*a = q->path;
	memset(init, 0, sizeof(*init));
	a->qp_state = a->cur_qp_state = __atomic_load_n(&q->s->state, __ATOMIC_SEQ_CST);
	a->dest_qp_num = q->s->peer_num;
	a->port_num = 1;
	a->qp_access_flags = q->s->access;
	a->cap = (struct ibv_qp_cap){ q->s->sq_max, q->s->rq_max, q->max_sge_send, q->max_sge_recv, q->max_inline };
	init->cap = a->cap;
	base->state = a->qp_state;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *base)
{
	struct segment *s = lp.hosts[0].seg;
	struct qp *q = (struct qp *)base;
	struct sqp *p = q->s;

	if (!is_loop(base->context))
		return HOST(ibv_destroy_qp)(base);
	lock_sends(p);
	lock(&p->recv_lock);
	p->state = IBV_QPS_RESET;
	p->sq_next = p->sq_tail;
	p->rq_head = p->rq_tail;
	give_back(s, p->sq, (p->sq_mask + 1) * sizeof(struct wqe));
	give_back(s, p->rq, (p->rq_mask + 1) * sizeof(struct rqe));
	p->peer_num = 0;
	unlock(&p->recv_lock);
	unlock(&p->send_lock);
	remove_sender(s, p);
	__atomic_store_n(&p->live, 0, __ATOMIC_SEQ_CST);
	put_host(q->peer);
	count(base->context, -1);
	free(q);
	return 0;
}

// ---- receive queues without a queue pair: they stay empty, as the device has no raw packets

static int post_wq_recv(struct ibv_wq *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct wq *q = (struct wq *)base;
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	for (; wr; wr = wr->next) {
		if (base->state != IBV_WQS_RDY || wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_sge)
			rc = EINVAL;
		else if (q->posted == q->depth)
			rc = ENOMEM;
		if (rc)
			break;
		q->id[q->posted++] = wr->wr_id;
	}
	pthread_mutex_unlock(&q->lock);
	if (rc)
		*bad = wr;
	return rc;
}

static struct ibv_wq *create_wq(struct ibv_context *ctx, struct ibv_wq_init_attr *a)
{
	static uint32_t number;
	struct wq *q;

	if (a->comp_mask || a->wq_type != IBV_WQT_RQ)
		return not_supported();
	if (a->max_wr > 4096 || a->max_sge > 16) {
		errno = EINVAL;
		return NULL;
	}
	if (!(q = calloc(1, sizeof(*q) + a->max_wr * sizeof(q->id[0]))))
		return NULL;
	pthread_mutex_init(&q->lock, NULL);
	q->cq = ((struct cq *)a->cq)->s;
	q->depth = a->max_wr;
	q->max_sge = a->max_sge;
	q->base = (struct ibv_wq){ .context = ctx, .wq_context = a->wq_context, .pd = a->pd, .cq = a->cq,
		.wq_num = __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED), .post_recv = post_wq_recv };
	count(ctx, 1);
	return &q->base;
}

static int modify_wq(struct ibv_wq *base, struct ibv_wq_attr *a)
{
	struct wq *q = (struct wq *)base;
	uint32_t from, to = a->wq_state, i;
	int rc = 0;

	pthread_mutex_lock(&q->lock);
	from = base->state;
	if (a->attr_mask & IBV_WQ_ATTR_FLAGS || (a->attr_mask & IBV_WQ_ATTR_CURR_STATE && a->curr_wq_state != from) ||
	    !(a->attr_mask & IBV_WQ_ATTR_STATE) ||
	    !(to == IBV_WQS_RESET || (from == IBV_WQS_RESET && to == IBV_WQS_RDY) ||
	      (from == IBV_WQS_RDY && to == IBV_WQS_ERR)))
		rc = EINVAL;
	else
		base->state = to;
	for (i = 0; !rc && to == IBV_WQS_ERR && i < q->posted; i++) {
		struct ibv_wc wc = { .wr_id = q->id[i], .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV };

		complete(&lp.hosts[0], (uint32_t)(q->cq - lp.hosts[0].seg->cq), 1, &wc, 0, 0, 0);
	}
	if (!rc && to != IBV_WQS_RDY)
		q->posted = 0;
	pthread_mutex_unlock(&q->lock);
	tell();
	return rc;
}

static int destroy_wq(struct ibv_wq *wq)
{
	count(wq->context, -1);
	free(wq);
	return 0;
}

// Checks the state of the queue pair and the range of the limit. The limit itself has no effect.
static int modify_qp_rate_limit(struct ibv_qp *qp, struct ibv_qp_rate_limit_attr *a)
{
	if (a->comp_mask || ((struct qp *)qp)->s->state != IBV_QPS_RTS)
		return EINVAL;
	return a->rate_limit && (a->rate_limit < MIN_RATE || a->rate_limit > MAX_RATE) ? EINVAL : 0;
}

// Accepts the lower 8 options, if the queue pair is in RESET or INIT. The options have no effect.
int ibv_set_ece(struct ibv_qp *base, struct ibv_ece *ece)
{
	struct qp *q = (struct qp *)base;

	if (!is_loop(base->context))
		return HOST(ibv_set_ece)(base, ece);
	if (!ece->vendor_id)
		return EOPNOTSUPP;
	if (q->s->state != IBV_QPS_RESET && q->s->state != IBV_QPS_INIT)
		return EINVAL;
	ece->options &= 0xff;
	q->ece = *ece;
	return 0;
}

int ibv_query_ece(struct ibv_qp *base, struct ibv_ece *ece)
{
	if (!is_loop(base->context))
		return HOST(ibv_query_ece)(base, ece);
	*ece = ((struct qp *)base)->ece;
	return 0;
}

// ---- what the device does not have

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return is_loop(pd->context) ? not_supported() : HOST(ibv_create_srq)(pd, attr);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	return is_loop(pd->context) ? not_supported() : HOST(ibv_create_ah)(pd, attr);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	return is_loop(pd->context) ? not_supported() : HOST(ibv_reg_dmabuf_mr)(pd, offset, length, iova, fd, access);
}

// A context of the loop device has no descriptor, so fd never belongs to this device.
struct ibv_context *ibv_import_device(int fd)
{
	struct ibv_context *ctx;

	importing = 1;
	ctx = HOST(ibv_import_device)(fd);
	importing = 0;
	return ctx;
}

struct ibv_pd *ibv_import_pd(struct ibv_context *ctx, uint32_t handle)
{
	return is_loop(ctx) ? not_supported() : HOST(ibv_import_pd)(ctx, handle);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t handle)
{
	return is_loop(pd->context) ? not_supported() : HOST(ibv_import_mr)(pd, handle);
}

struct ibv_dm *ibv_import_dm(struct ibv_context *ctx, uint32_t handle)
{
	return is_loop(ctx) ? not_supported() : HOST(ibv_import_dm)(ctx, handle);
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;

	if (!is_loop(qp->context))
		return HOST(ibv_qp_to_qp_ex)(qp);
	return q->extended ? &q->ex : NULL;
}

int ibv_init_ah_from_wc(struct ibv_context *ctx, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
	struct ibv_ah_attr *attr)
{
	if (!is_loop(ctx))
		return HOST(ibv_init_ah_from_wc)(ctx, port, wc, grh, attr);
	not_supported();
	return -1;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port)
{
	return is_loop(pd->context) ? not_supported() : HOST(ibv_create_ah_from_wc)(pd, wc, grh, port);
}

int ibv_resolve_eth_l2_from_gid(struct ibv_context *ctx, struct ibv_ah_attr *attr,
	uint8_t mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	return is_loop(ctx) ? -EOPNOTSUPP : HOST(ibv_resolve_eth_l2_from_gid)(ctx, attr, mac, vid);
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	return is_loop(qp->context) ? 0 : HOST(ibv_query_qp_data_in_order)(qp, op, flags); // memcpy promises no order
}
