//go:build linux && cgo && nulldev

// The loop device moves data between queue pairs of this host: by memcpy within a process, by
// process_vm_readv and process_vm_writev between two. It has no kernel part and no thread: the
// poster executes its own requests. A post takes the peer's receive, copies the data and writes
// both completions. Each completion has a due time, before which polls do not return it: that
// models the wire.
//
// Everything that two processes share lies in one memfd of each process, which the other maps:
// queue pairs, completion queues and memory keys. References inside it are offsets. A GID names the
// process and the memfd.
//
// Lock order: the send lock of a queue pair, the receive lock of its peer, the lock of a completion
// queue. Moving a queue pair to ERR takes its send lock and its receive lock, and no other queue
// pair's.

#define _GNU_SOURCE
#define LP_OWN_NAMES
#include "loopdev.h"
#include <errno.h>
#include <fcntl.h>
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
	MAX_WR = 16384, // of one queue
	MAX_CQE = 1 << 18,
	MAX_SGE = 16,
	MAX_INLINE = 256,
	MAX_PEERS = 256, // processes
	MAX_RD = 16,
	CLASSES = 40,
};

static const uint64_t SEGMENT = 4ull << 30; // of address space; pages come with use

typedef int lock_t; // the number of the process that holds it; 0: free

static inline void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#endif
}

struct mem_key { // of one region
	uint32_t key, used, access, pd; // key 0: of no region, but copies may be under way while it is used
	uint64_t addr, length;
};

struct entry { // of a completion queue
	struct ibv_wc wc;
	uint64_t due;
	uint32_t solicited;
	uint32_t slot; // the send queue's head once this has been polled
};

struct ring {
	uint64_t at; // offset of the entries
	uint32_t head, tail;
};

struct scq { // a completion queue, as the peer sees it
	lock_t lock;
	uint32_t live, depth, mask;
	uint32_t armed; // 0, 1: any, 2: solicited
	uint32_t fired; // notifications that nobody has taken
	int32_t fd;
	uint32_t channel; // its number: another channel may have the descriptor next
	uint32_t lost;
	struct ring sends, recvs; // each ordered by due
};

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

struct sqp { // a queue pair, as the peer sees it
	lock_t send_lock, recv_lock;
	uint32_t live, num, pd, access, state;
	uint32_t peer_num;
	uint32_t sig_all, scq, rcq;
	uint64_t sq, rq;
	uint32_t sq_mask, sq_max, rq_mask, rq_max;
	uint32_t sq_head, sq_next, sq_tail; // freed, to be executed, to be posted
	uint32_t rq_head, rq_tail;
	uint32_t starved; // the peer's send waits for a receive, or for the state
	uint64_t depart;
};

struct block { uint64_t next; };

struct segment {
	lock_t lock;
	uint64_t top, free[CLASSES];
	uint32_t generation;
	uint32_t last_qp; // the greatest index that was used
	struct mem_key mr[MAX_MR];
	struct scq cq[MAX_CQ];
	struct sqp qp[MAX_QP];
};

// A process, this one included. Another's entry lasts as long as queue pairs of this one refer to
// it.
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
	struct ibv_cq base;
	struct scq *s;
	struct cq *next; // of the channel
};

struct qp {
	struct ibv_qp base;
	struct sqp *s;
	struct host *peer;
	uint32_t max_sge_send, max_sge_recv, max_inline;
	struct ibv_qp_attr path; // as it was set; nothing depends on it
};

struct pd {
	struct ibv_pd base;
	uint32_t num;
};

struct event { // a channel of a process, and its descriptor in this one
	int pid, theirs, mine;
	uint32_t channel;
	struct event *next;
};

static struct {
	pthread_mutex_t lock;
	struct host hosts[MAX_PEERS]; // the first is this process
	struct event *events;
	uint32_t pds, channels;
	uint64_t delay, gap, per_us; // in ticks
	uint64_t delay_ns, gap_ns;
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
				sched_yield(); // its holder may not run
			if (spins % (1 << 16) == 0 && ended(holder)) // it was killed
				__atomic_compare_exchange_n(l, &holder, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
		}
	}
}

static inline void unlock(lock_t *l) { __atomic_store_n(l, 0, __ATOMIC_RELEASE); }

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

static void set_wire(void)
{
	lp.delay = lp.delay_ns * lp.per_us / 1000;
	lp.gap = lp.gap_ns * lp.per_us / 1000;
}

void lp_set_wire(uint64_t delay, uint64_t gap)
{
	pthread_mutex_lock(&lp.lock);
	lp.delay_ns = delay;
	lp.gap_ns = gap;
	set_wire();
	pthread_mutex_unlock(&lp.lock);
}

static void calibrate(void)
{
	uint64_t n = nanos(), t = ticks(), passed;

	while ((passed = nanos() - n) < 5000000)
		pause_cpu();
	lp.per_us = (ticks() - t) * 1000 / passed;
	set_wire();
}

// ---- shared memory

static struct segment *map(int fd)
{
	void *p = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

// Returns this process's host entry. A forked child must not use its parent's.
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
			prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); // peers read and write this process's registered memory
		}
	}
	pthread_mutex_unlock(&lp.lock);
	return h;
}

// Returns the entry of a process, with a reference for put_host.
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

// Drops a reference. With the last one go the mapping and the descriptors of the other process.
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

// Allocates zeroed memory in this process's segment. Returns its offset, or 0.
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

// Copies between the memory of two processes, one of them this one. Returns 0, or -1 where it is
// not mapped.
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

// Reports whether a key's region contains the range and grants the rights. That stays so while the
// caller holds the lock of a queue pair of the region's process, see lp_dereg_mr.
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
		if (e) {
			close(e->mine);
		} else if ((e = malloc(sizeof(*e)))) {
			*e = (struct event){ .pid = h->pid, .theirs = theirs, .next = lp.events };
			lp.events = e;
		}
		if (e) {
			e->mine = fd;
			e->channel = q->channel;
		}
	}
	pthread_mutex_unlock(&lp.lock);
	return fd;
}

static void notify(const struct host *h, struct scq *q) // its lock is held
{
	static const uint64_t one = 1;
	int fd;

	q->armed = 0;
	if (q->fd < 0)
		return;
	q->fired++;
	fd = event_fd(h, q);
	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		return; // it is as full of notifications as can be
}

static struct entry *entries(const struct host *h, const struct ring *r)
{
	return (struct entry *)((char *)h->seg + r->at);
}

static void complete(const struct host *h, uint32_t num, int receive, const struct ibv_wc *wc, uint64_t due,
	int solicited, uint32_t slot)
{
	struct scq *q = &h->seg->cq[num];
	struct ring *r = receive ? &q->recvs : &q->sends;

	lock(&q->lock);
	if (r->tail - r->head > q->mask || q->sends.tail - q->sends.head + q->recvs.tail - q->recvs.head >= q->depth) {
		q->lost++;
		unlock(&q->lock);
		return;
	}
	struct entry *e = &entries(h, r)[r->tail & q->mask];
	e->wc = *wc;
	e->due = due;
	e->solicited = (uint32_t)solicited;
	e->slot = slot;
	__atomic_store_n(&r->tail, r->tail + 1, __ATOMIC_RELEASE);
	if (q->armed == 1 || (q->armed == 2 && (solicited || wc->status != IBV_WC_SUCCESS)))
		notify(h, q);
	unlock(&q->lock);
}

static int poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct scq *q = ((struct cq *)base)->s;
	const struct host *me = &lp.hosts[0];
	struct ring *s = &q->sends, *r = &q->recvs;
	uint64_t now = 0;
	int got = 0;

	if (__atomic_load_n(&s->tail, __ATOMIC_ACQUIRE) == s->head && __atomic_load_n(&r->tail, __ATOMIC_ACQUIRE) == r->head)
		return 0;
	lock(&q->lock);
	while (got < n) {
		struct entry *a = s->head != s->tail ? &entries(me, s)[s->head & q->mask] : NULL;
		struct entry *b = r->head != r->tail ? &entries(me, r)[r->head & q->mask] : NULL;
		struct entry *e = !b || (a && a->due <= b->due) ? a : b;

		if (!e)
			break;
		if (e->due > now && e->due > (now = ticks()))
			break;
		wc[got++] = e->wc;
		if (e == a) {
			struct sqp *p = &me->seg->qp[e->wc.qp_num % MAX_QP];

			s->head++;
			if (p->num == e->wc.qp_num)
				__atomic_store_n(&p->sq_head, e->slot, __ATOMIC_RELEASE);
		} else {
			r->head++;
		}
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
	for (i = 0; i < 2; i++) { // what is still on the wire has not come yet
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

static void flush_sends(const struct host *h, struct sqp *p) // its send lock is held
{
	for (; p->sq_next != p->sq_tail; p->sq_next++) {
		struct ibv_wc wc = { .wr_id = wqe(h, p, p->sq_next)->id, .status = IBV_WC_WR_FLUSH_ERR, .qp_num = p->num };

		complete(h, p->scq, 0, &wc, 0, 0, p->sq_next + 1);
	}
}

static void flush_recvs(const struct host *h, struct sqp *p) // its receive lock is held
{
	for (; p->rq_head != p->rq_tail; p->rq_head++) {
		struct ibv_wc wc = { .wr_id = rqe(h, p, p->rq_head)->id, .status = IBV_WC_WR_FLUSH_ERR, .opcode = IBV_WC_RECV,
			.qp_num = p->num };

		complete(h, p->rcq, 1, &wc, 0, 0, 0);
	}
}

static void to_error(const struct host *h, struct sqp *p, uint32_t num)
{
	lock(&p->send_lock);
	lock(&p->recv_lock);
	if (p->live && p->num == num && p->state != IBV_QPS_RESET) {
		__atomic_store_n(&p->state, IBV_QPS_ERR, __ATOMIC_SEQ_CST);
		flush_recvs(h, p);
		flush_sends(h, p);
	}
	unlock(&p->recv_lock);
	unlock(&p->send_lock);
}

// The outcome of a request: executed, to be retried later, or failed at one or both ends.
enum outcome { DONE, LATER, BROKEN };

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

// Copies one list of segments to another, which must be long enough.
static int scatter(const struct host *to, const struct ibv_sge *dst, const struct host *from,
	const struct ibv_sge *src, uint32_t nsrc)
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
			if (copy(to, dst->addr + used, from, src[i].addr + at, k))
				return -1;
			at += k;
			used += k;
		}
	}
	return 0;
}

// Executes one request of p at its peer q. Both statuses are success unless it returns BROKEN.
static enum outcome execute(const struct host *h, struct sqp *p, const struct host *o, struct sqp *q, struct wqe *w,
	uint64_t arrive, struct ibv_wc *mine, int *theirs_broken)
{
	struct ibv_sge own[1], *src = w->sge;
	const struct host *from = h;
	uint32_t nsrc = w->nsge;
	uint64_t n;
	int takes = w->opcode != IBV_WR_RDMA_WRITE && w->opcode != IBV_WR_RDMA_READ;
	int reads = w->opcode == IBV_WR_RDMA_READ;
	int sends = w->opcode == IBV_WR_SEND || w->opcode == IBV_WR_SEND_WITH_IMM;
	int failed = 0;

	*theirs_broken = 0;
	if (w->flags & IBV_SEND_INLINE) { // the data lie in the queue, which both processes map
		own[0] = (struct ibv_sge){ .addr = (uintptr_t)w->data, .length = w->inline_len };
		src = own;
		nsrc = 1;
		from = &lp.hosts[0];
		n = w->inline_len;
	} else {
		n = total(src, nsrc);
		if (!grant_all(h->seg, src, nsrc, p->pd, reads ? IBV_ACCESS_LOCAL_WRITE : 0)) {
			mine->status = IBV_WC_LOC_PROT_ERR;
			return BROKEN;
		}
	}
	lock(&q->recv_lock);
	if (!q->live || q->num != p->peer_num || q->peer_num != p->num ||
		(q->state != IBV_QPS_RTR && q->state != IBV_QPS_RTS) ||
	    (takes && q->rq_head == q->rq_tail)) {
		q->starved = 1;
		unlock(&q->recv_lock);
		return LATER;
	}
	if (!sends && n) {
		uint32_t right = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

		if (!(q->access & right) || !grants(o->seg, w->rkey, w->remote, n, q->pd, right)) {
			mine->status = IBV_WC_REM_ACCESS_ERR;
			*theirs_broken = 1;
			goto out;
		}
		struct ibv_sge far = { .addr = w->remote, .length = (uint32_t)n };
		failed = reads ? scatter(h, src, o, &far, 1) : scatter(o, &far, from, src, nsrc);
	}
	if (takes) {
		struct rqe *r = rqe(o, q, q->rq_head);
		struct ibv_wc wc = { .wr_id = r->id, .opcode = IBV_WC_RECV, .byte_len = (uint32_t)n, .qp_num = q->num };
		int solicited = (w->flags & IBV_SEND_SOLICITED) != 0;

		if (sends && n > total(r->sge, r->nsge)) {
			wc.status = IBV_WC_LOC_LEN_ERR;
			mine->status = IBV_WC_REM_INV_REQ_ERR;
		} else if (sends && !grant_all(o->seg, r->sge, r->nsge, q->pd, IBV_ACCESS_LOCAL_WRITE)) {
			wc.status = IBV_WC_LOC_PROT_ERR;
			mine->status = IBV_WC_REM_OP_ERR;
		} else if (sends) {
			failed = scatter(o, r->sge, from, src, nsrc);
		} else {
			wc.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
		}
		if (w->opcode == IBV_WR_SEND_WITH_IMM || w->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
			wc.wc_flags = IBV_WC_WITH_IMM;
			wc.imm_data = w->imm;
		}
		*theirs_broken = wc.status != IBV_WC_SUCCESS;
		if (!failed) {
			q->rq_head++;
			complete(o, q->rcq, 1, &wc, arrive, solicited, 0);
		}
	}
	if (failed) // the memory, or the process that had it, is gone
		mine->status = IBV_WC_RETRY_EXC_ERR;
out:
	unlock(&q->recv_lock);
	return mine->status == IBV_WC_SUCCESS ? DONE : BROKEN;
}

// Executes p's posted requests as far as possible; the caller holds p's send lock. p is of host h,
// which is this process or its peer. Reports which ends must move to ERR.
static void run(const struct host *h, struct sqp *p, const struct host *o, int *mine_broken, int *theirs_broken)
{
	struct sqp *q = &o->seg->qp[p->peer_num % MAX_QP];

	*mine_broken = *theirs_broken = 0;
	while (p->sq_next != p->sq_tail && p->state == IBV_QPS_RTS) {
		struct wqe *w = wqe(h, p, p->sq_next);
		struct ibv_wc wc = { .wr_id = w->id, .opcode = completed[w->opcode], .qp_num = p->num,
			.byte_len = (uint32_t)total(w->sge, w->nsge) };
		uint64_t arrive = 0, leave = 0;
		enum outcome end;

		if (lp.delay || lp.gap) {
			leave = ticks();
			if (leave < p->depart)
				leave = p->depart;
			arrive = leave + lp.delay;
		}
		end = execute(h, p, o, q, w, arrive, &wc, theirs_broken);
		if (end == LATER)
			return;
		if (lp.gap)
			p->depart = leave + lp.gap;
		p->sq_next++;
		if (end == BROKEN || p->sig_all || w->flags & IBV_SEND_SIGNALED)
			complete(h, p->scq, 0, &wc, arrive ? arrive + lp.delay : 0, 0, p->sq_next);
		if (end == BROKEN) {
			*mine_broken = 1;
			return;
		}
	}
}

// Executes what p can, and moves broken ends to ERR. The caller holds no lock.
static void progress(const struct host *h, struct sqp *p, const struct host *o)
{
	uint32_t num = p->num, peer = p->peer_num;
	int mine, theirs;

	lock(&p->send_lock);
	run(h, p, o, &mine, &theirs);
	unlock(&p->send_lock);
	if (theirs)
		to_error(o, &o->seg->qp[peer % MAX_QP], peer);
	if (mine)
		to_error(h, p, num);
}

// Resumes the peer of a queue pair if it waits for a receive or a state.
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

static int post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)base;
	const struct host *me = &lp.hosts[0];
	struct sqp *p = q->s;
	uint32_t num = p->num, peer = p->peer_num;
	int rc = 0, mine = 0, theirs = 0;

	lock(&p->send_lock);
	if (p->state != IBV_QPS_RTS && p->state != IBV_QPS_ERR)
		rc = EINVAL;
	for (; wr && !rc; wr = wr->next) {
		struct wqe *w = wqe(me, p, p->sq_tail);
		int i;

		if (p->sq_tail - __atomic_load_n(&p->sq_head, __ATOMIC_ACQUIRE) >= p->sq_max) {
			rc = ENOMEM;
			break;
		}
		if (wr->num_sge < 0 || (uint32_t)wr->num_sge > q->max_sge_send ||
		    (wr->opcode != IBV_WR_SEND && wr->opcode != IBV_WR_SEND_WITH_IMM && wr->opcode != IBV_WR_RDMA_WRITE &&
		     wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM && wr->opcode != IBV_WR_RDMA_READ)) {
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
	if (p->state == IBV_QPS_ERR)
		flush_sends(me, p);
	else if (q->peer)
		run(me, p, q->peer, &mine, &theirs);
	unlock(&p->send_lock);
	if (theirs)
		to_error(q->peer, &q->peer->seg->qp[peer % MAX_QP], peer);
	if (mine)
		to_error(me, p, num);
	return rc;
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
	feed(q);
	return rc;
}

// ---- the device

static struct ibv_device loop0 = {
	.node_type = IBV_NODE_CA, .transport_type = IBV_TRANSPORT_IB, .name = "loop0", .dev_name = "loop0",
};

static int is_loop(const struct ibv_context *ctx) { return ctx->device == &loop0; }
int lp_is_loop(struct ibv_context *ctx) { return is_loop(ctx); }

struct ibv_device **lp_get_device_list(int *n)
{
	int real = 0, i;
	struct ibv_device **list = ibv_get_device_list(&real), **all = calloc((size_t)real + 3, sizeof(*all));

	if (!all) {
		if (list)
			ibv_free_device_list(list);
		return NULL;
	}
	all[0] = (struct ibv_device *)list; // for lp_free_device_list
	for (i = 0; list && i < real; i++)
		all[i + 1] = list[i];
	all[i + 1] = &loop0;
	if (n)
		*n = i + 1;
	return all + 1;
}

void lp_free_device_list(struct ibv_device **all)
{
	if (all[-1])
		ibv_free_device_list((struct ibv_device **)all[-1]);
	free(all - 1);
}

const char *lp_get_device_name(struct ibv_device *dev) { return dev == &loop0 ? dev->name : ibv_get_device_name(dev); }
__be64 lp_get_device_guid(struct ibv_device *dev) { return dev == &loop0 ? 0 : ibv_get_device_guid(dev); }
int lp_get_device_index(struct ibv_device *dev) { return dev == &loop0 ? -1 : ibv_get_device_index(dev); }

struct ibv_context *lp_open_device(struct ibv_device *dev)
{
	struct ibv_context *ctx;

	if (dev != &loop0)
		return ibv_open_device(dev);
	if (!self() || !(ctx = calloc(1, sizeof(*ctx))))
		return NULL;
	ctx->device = dev;
	ctx->num_comp_vectors = 1;
	ctx->cmd_fd = -1;
	ctx->async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ctx->ops.poll_cq = poll_cq;
	ctx->ops.req_notify_cq = req_notify;
	ctx->ops.post_send = post_send;
	ctx->ops.post_recv = post_recv;
	return ctx;
}

int lp_close_device(struct ibv_context *ctx)
{
	if (!is_loop(ctx))
		return ibv_close_device(ctx);
	close(ctx->async_fd);
	free(ctx);
	return 0;
}

int lp_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	if (!is_loop(ctx))
		return ibv_query_device(ctx, a);
	*a = (struct ibv_device_attr){
		.fw_ver = "1", .vendor_id = 0x6c6f6f, .max_mr_size = UINT64_MAX, .page_size_cap = 4096, .max_qp = MAX_QP,
		.max_qp_wr = MAX_WR, .max_sge = MAX_SGE, .max_sge_rd = MAX_SGE, .max_cq = MAX_CQ, .max_cqe = MAX_CQE,
		.max_mr = MAX_MR, .max_pd = 65536, .max_qp_rd_atom = MAX_RD, .max_res_rd_atom = MAX_RD * MAX_QP,
		.max_qp_init_rd_atom = MAX_RD, .phys_port_cnt = 1, .max_pkeys = 1, .device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
	};
	return 0;
}

int lp_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *a)
{
	return is_loop(ctx) ? lp_query_device(ctx, &a->orig_attr) : ibv_query_device_ex(ctx, in, a);
}

int lp_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *a)
{
	if (!is_loop(ctx))
		return ibv_query_port(ctx, port, a);
	if (port != 1)
		return EINVAL;
	*a = (struct ibv_port_attr){
		.state = IBV_PORT_ACTIVE, .max_mtu = IBV_MTU_4096, .active_mtu = IBV_MTU_4096, .gid_tbl_len = 1,
		.max_msg_sz = 1u << 30, .pkey_tbl_len = 1, .active_width = 2, .active_speed = 32, .phys_state = 5,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
	return 0;
}

int lp_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey)
{
	if (!is_loop(ctx))
		return ibv_query_pkey(ctx, port, index, pkey);
	if (port != 1 || index) {
		errno = EINVAL;
		return -1;
	}
	memset(pkey, 0xff, sizeof(*pkey));
	return 0;
}

// The GID by which other processes find this one, known through the connection manager: a prefix,
// the process id, and its memfd.
static const char gid_prefix[8] = "\xfd" "loopdev";

void lp_own_gid(union ibv_gid *g)
{
	int32_t id[2] = { lp.hosts[0].pid, lp.hosts[0].fd };

	memcpy(g->raw, gid_prefix, 8);
	memcpy(g->raw + 8, id, 8);
}

int lp_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags,
	size_t size)
{
	if (!is_loop(ctx))
		return _ibv_query_gid_ex(ctx, port, index, e, flags, size);
	if (port != 1 || index)
		return EINVAL;
	*e = (struct ibv_gid_entry){ .port_num = 1, .gid_type = IBV_GID_TYPE_ROCE_V2 };
	memcpy(e->gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\1", 16); // 127.0.0.1
	return 0;
}

ssize_t lp_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size)
{
	if (!is_loop(ctx))
		return _ibv_query_gid_table(ctx, e, max, flags, size);
	return max && lp_query_gid_ex(ctx, 1, 0, e, flags, size) == 0;
}

struct ibv_pd *lp_alloc_pd(struct ibv_context *ctx)
{
	struct pd *pd;

	if (!is_loop(ctx))
		return ibv_alloc_pd(ctx);
	if ((pd = calloc(1, sizeof(*pd)))) {
		pd->base.context = ctx;
		pd->num = __atomic_add_fetch(&lp.pds, 1, __ATOMIC_RELAXED);
	}
	return &pd->base;
}

int lp_dealloc_pd(struct ibv_pd *pd)
{
	if (!is_loop(pd->context))
		return ibv_dealloc_pd(pd);
	free(pd);
	return 0;
}

static int unmapped(void *addr)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { addr, 1 };

	return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1;
}

struct ibv_mr *lp_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct segment *s = lp.hosts[0].seg;
	struct ibv_mr *mr;
	uint32_t i;

	if (!is_loop(pd->context))
		return ibv_reg_mr(pd, addr, length, access);
	if (unmapped(addr) || unmapped((char *)addr + length - 1)) {
		errno = EFAULT;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	lock(&s->lock);
	s->generation++;
	for (i = 0; i < MAX_MR; i++) { // rotate keys, so that a stale key is not reused soon
		struct mem_key *m = &s->mr[(s->generation + i) % MAX_MR];

		if (m->used)
			continue;
		m->used = 1;
		m->addr = (uintptr_t)addr;
		m->length = length;
		m->access = (uint32_t)access;
		m->pd = ((struct pd *)pd)->num;
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
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	return mr;
}

int lp_dereg_mr(struct ibv_mr *mr)
{
	struct segment *s = lp.hosts[0].seg;
	struct mem_key *m;
	uint32_t i;

	if (!is_loop(mr->context))
		return ibv_dereg_mr(mr);
	m = &s->mr[mr->lkey % MAX_MR];
	__atomic_store_n(&m->key, 0, __ATOMIC_SEQ_CST);
	for (i = 1; i <= __atomic_load_n(&s->last_qp, __ATOMIC_SEQ_CST); i++) { // copies may be under way
		struct sqp *p = &s->qp[i];

		if (__atomic_load_n(&p->live, __ATOMIC_SEQ_CST)) {
			lock(&p->send_lock);
			unlock(&p->send_lock);
			lock(&p->recv_lock);
			unlock(&p->recv_lock);
		}
	}
	lock(&s->lock);
	m->used = 0;
	unlock(&s->lock);
	free(mr);
	return 0;
}

struct ibv_comp_channel *lp_create_comp_channel(struct ibv_context *ctx)
{
	struct channel *ch;

	if (!is_loop(ctx))
		return ibv_create_comp_channel(ctx);
	if (!(ch = calloc(1, sizeof(*ch))))
		return NULL;
	ch->base.context = ctx;
	ch->base.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
	if (ch->base.fd < 0) {
		free(ch);
		return NULL;
	}
	pthread_mutex_init(&ch->lock, NULL);
	ch->number = __atomic_add_fetch(&lp.channels, 1, __ATOMIC_RELAXED);
	return &ch->base;
}

int lp_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	if (!is_loop(ch->context))
		return ibv_destroy_comp_channel(ch);
	close(ch->fd);
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

struct ibv_cq *lp_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector)
{
	struct segment *s = lp.hosts[0].seg;
	uint32_t i, n = ring_size(cqe);
	struct cq *cq;

	if (!is_loop(ctx))
		return ibv_create_cq(ctx, cqe, context, ch, vector);
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
			.channel = ch ? ((struct channel *)ch)->number : 0 };
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
	return &cq->base;
}

static void move_ring(struct segment *s, struct ring *r, uint32_t mask, uint64_t to, uint32_t to_mask)
{
	struct entry *a = (struct entry *)((char *)s + r->at), *b = (struct entry *)((char *)s + to);
	uint32_t i;

	for (i = r->head; i != r->tail; i++)
		b[i & to_mask] = a[i & mask];
	r->at = to;
}

int lp_resize_cq(struct ibv_cq *base, int cqe)
{
	struct segment *s = lp.hosts[0].seg;
	struct scq *q = ((struct cq *)base)->s;
	uint32_t n = ring_size(cqe), old;
	uint64_t a, b, c, d;
	int rc = 0;

	if (!is_loop(base->context))
		return ibv_resize_cq(base, cqe);
	if (cqe < 1 || cqe > MAX_CQE)
		return EINVAL;
	a = take(s, n * sizeof(struct entry));
	b = take(s, n * sizeof(struct entry));
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
	give_back(s, a, (rc ? n : old) * sizeof(struct entry));
	give_back(s, b, (rc ? n : old) * sizeof(struct entry));
	return rc;
}

int lp_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return is_loop(cq->context) ? EOPNOTSUPP : ibv_modify_cq(cq, attr);
}

int lp_destroy_cq(struct ibv_cq *base)
{
	struct segment *s = lp.hosts[0].seg;
	struct cq *cq = (struct cq *)base, **at;
	struct scq *q = cq->s;

	if (!is_loop(base->context))
		return ibv_destroy_cq(base);
	if (base->channel) {
		struct channel *c = (struct channel *)base->channel;

		pthread_mutex_lock(&c->lock);
		for (at = &c->queues; *at && *at != cq; at = &(*at)->next)
			;
		if (*at)
			*at = cq->next;
		pthread_mutex_unlock(&c->lock);
	}
	give_back(s, q->sends.at, (q->mask + 1) * sizeof(struct entry));
	give_back(s, q->recvs.at, (q->mask + 1) * sizeof(struct entry));
	__atomic_store_n(&q->live, 0, __ATOMIC_RELEASE);
	free(cq);
	return 0;
}

// Waits for the wire, so that a notified process finds the completion.
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

int lp_get_cq_event(struct ibv_comp_channel *base, struct ibv_cq **cq, void **context)
{
	struct channel *ch = (struct channel *)base;
	struct cq *q;
	uint64_t one;

	if (!is_loop(base->context))
		return ibv_get_cq_event(base, cq, context);
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
			*cq = &q->base;
			*context = q->base.cq_context;
		}
		pthread_mutex_unlock(&ch->lock);
		if (q)
			return 0;
	} // of a queue that has been destroyed
}

void lp_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	if (!is_loop(cq->context))
		ibv_ack_cq_events(cq, n);
}

struct ibv_qp *lp_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct segment *s = lp.hosts[0].seg;
	struct ibv_qp_cap *cap = &a->cap;
	uint32_t i;
	struct qp *q;
	struct sqp *p = NULL;

	if (!is_loop(pd->context))
		return ibv_create_qp(pd, a);
	if (a->qp_type != IBV_QPT_RC || a->srq || cap->max_send_wr > MAX_WR || cap->max_recv_wr > MAX_WR ||
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

		lock(&p->send_lock); // peers of the queue pair before may have one of them
		lock(&p->recv_lock);
		memset(&p->num, 0, sizeof(*p) - offsetof(struct sqp, num)); // all that follows live
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
	p->sig_all = a->sq_sig_all != 0;
	p->scq = (uint32_t)(((struct cq *)a->send_cq)->s - s->cq);
	p->rcq = (uint32_t)(((struct cq *)a->recv_cq)->s - s->cq);
	q->s = p;
	q->max_sge_send = cap->max_send_sge;
	q->max_sge_recv = cap->max_recv_sge;
	q->max_inline = cap->max_inline_data;
	q->base = (struct ibv_qp){
		.context = pd->context, .qp_context = a->qp_context, .pd = pd, .send_cq = a->send_cq, .recv_cq = a->recv_cq,
		.qp_num = p->num, .state = IBV_QPS_RESET, .qp_type = IBV_QPT_RC,
	};
	return &q->base;
}

// Returns the peer of an address, with a reference.
static struct host *peer_of(const struct ibv_ah_attr *a)
{
	int32_t id[2];

	if (memcmp(a->grh.dgid.raw, gid_prefix, 8))
		return &lp.hosts[0]; // 127.0.0.1 is this process
	memcpy(id, a->grh.dgid.raw + 8, 8);
	return host_of(id[0], id[1]);
}

int lp_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)base;
	struct sqp *p = q->s;
	struct host *peer = NULL;
	uint32_t to = a->qp_state, from;
	int rc = 0;

	if (!is_loop(base->context))
		return ibv_modify_qp(base, a, mask);
	if (mask & IBV_QP_STATE && to == IBV_QPS_ERR) {
		if (p->state == IBV_QPS_RESET)
			return EINVAL;
		base->state = IBV_QPS_ERR;
		to_error(&lp.hosts[0], p, p->num);
		return 0;
	}
	if (mask & IBV_QP_AV && !(peer = peer_of(&a->ah_attr)))
		return EHOSTUNREACH;
	lock(&p->send_lock);
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
	put_host(peer); // the one before, or the new one if it was refused
	if (!rc && to == IBV_QPS_RTR)
		__atomic_store_n(&p->starved, 1, __ATOMIC_SEQ_CST); // the peer may have sent already
	if (!rc)
		feed(q);
	return rc;
}

int lp_query_qp(struct ibv_qp *base, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *q = (struct qp *)base;

	if (!is_loop(base->context))
		return ibv_query_qp(base, a, mask, init);
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

int lp_destroy_qp(struct ibv_qp *base)
{
	struct segment *s = lp.hosts[0].seg;
	struct qp *q = (struct qp *)base;
	struct sqp *p = q->s;

	if (!is_loop(base->context))
		return ibv_destroy_qp(base);
	lock(&p->send_lock);
	lock(&p->recv_lock);
	p->state = IBV_QPS_RESET;
	p->sq_next = p->sq_tail;
	p->rq_head = p->rq_tail;
	give_back(s, p->sq, (p->sq_mask + 1) * sizeof(struct wqe));
	give_back(s, p->rq, (p->rq_mask + 1) * sizeof(struct rqe));
	p->peer_num = 0;
	unlock(&p->recv_lock);
	unlock(&p->send_lock);
	__atomic_store_n(&p->live, 0, __ATOMIC_SEQ_CST);
	put_host(q->peer);
	free(q);
	return 0;
}

struct ibv_srq *lp_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	if (!is_loop(pd->context))
		return ibv_create_srq(pd, attr);
	errno = EOPNOTSUPP;
	return NULL;
}

struct ibv_ah *lp_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (!is_loop(pd->context))
		return ibv_create_ah(pd, attr);
	errno = EOPNOTSUPP;
	return NULL;
}

struct ibv_mw *lp_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	if (!is_loop(pd->context))
		return ibv_alloc_mw(pd, type);
	errno = EOPNOTSUPP;
	return NULL;
}

int lp_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	if (!is_loop(ctx))
		return ibv_get_async_event(ctx, ev);
	errno = EAGAIN; // nothing happens here that nobody asked for
	return -1;
}

void lp_ack_async_event(struct ibv_async_event *ev) { ibv_ack_async_event(ev); }
