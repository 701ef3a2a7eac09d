//go:build linux && cgo && nulldev

#include "nulldev.h"
#include "gate.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

// A null completion queue, with a spin lock like a real provider's.
enum { NULL_DEPTH = 1024 };

struct null_cq {
	struct ibv_cq cq;
	pthread_spinlock_t lock;
	uint32_t head, tail;
	uint64_t polls;
	struct ibv_wc wc[NULL_DEPTH];
};

struct null_qp {
	struct ibv_qp qp;
	pthread_spinlock_t lock;
};

static int null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct null_cq *cq = (struct null_cq *)qp->send_cq;
	struct null_qp *q = (struct null_qp *)qp;
	int rc = 0;

	pthread_spin_lock(&q->lock);
	for (; wr; wr = wr->next) {
		struct ibv_wc *wc;

		if (!(wr->send_flags & IBV_SEND_SIGNALED))
			continue;
		if (cq->tail - cq->head == NULL_DEPTH) {
			*bad = wr;
			rc = ENOMEM;
			break;
		}
		wc = &cq->wc[cq->tail % NULL_DEPTH];
		wc->wr_id = wr->wr_id;
		wc->status = IBV_WC_SUCCESS;
		wc->opcode = IBV_WC_SEND;
		wc->byte_len = wr->num_sge ? wr->sg_list[0].length : 0;
		wc->wc_flags = 0;
		wc->qp_num = qp->qp_num;
		cq->tail++;
	}
	pthread_spin_unlock(&q->lock);
	return rc;
}

static int null_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)qp, (void)wr, (void)bad;
	return 0;
}

static int null_poll_cq(struct ibv_cq *base, int n, struct ibv_wc *wc)
{
	struct null_cq *cq = (struct null_cq *)base;
	int i;

	pthread_spin_lock(&cq->lock);
	cq->polls++;
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->wc[cq->head++ % NULL_DEPTH];
	pthread_spin_unlock(&cq->lock);
	return i;
}

static int null_notify(struct ibv_cq *cq, int solicited)
{
	(void)cq, (void)solicited;
	return 0;
}

static struct ibv_context null_context = {
	.ops = { .post_send = null_post_send, .post_recv = null_post_recv, .poll_cq = null_poll_cq,
		.req_notify_cq = null_notify },
};

// Memory that faults on access once freed.
static void *pages(void *at, size_t size, int prot)
{
	void *p = mmap(at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0), -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static void *take(size_t size) { return pages(NULL, size, PROT_READ | PROT_WRITE); }
static void give_back(void *p, size_t size) { pages(p, size, PROT_NONE); }

struct ibv_cq *cv_null_cq(void)
{
	struct null_cq *cq = take(sizeof(*cq));

	cq->cq.context = &null_context;
	cq->cq.cqe = NULL_DEPTH;
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	return &cq->cq;
}

struct ibv_qp *cv_null_qp(struct ibv_cq *send, struct ibv_cq *recv)
{
	static uint32_t num = 0x100;
	struct null_qp *q = take(sizeof(*q));

	q->qp.context = &null_context;
	q->qp.send_cq = send;
	q->qp.recv_cq = recv;
	q->qp.qp_num = __atomic_add_fetch(&num, 1, __ATOMIC_RELAXED);
	q->qp.state = IBV_QPS_RTS;
	q->qp.qp_type = IBV_QPT_RC;
	pthread_spin_init(&q->lock, PTHREAD_PROCESS_PRIVATE);
	return &q->qp;
}

uint64_t cv_null_polls(struct ibv_cq *cq) { return ((struct null_cq *)cq)->polls; }

void cv_null_free_cq(struct ibv_cq *cq) { give_back(cq, sizeof(struct null_cq)); }
void cv_null_free_qp(struct ibv_qp *qp) { give_back(qp, sizeof(struct null_qp)); }

// The program's context of a posted request; the work request id is its address.
struct request {
	uint64_t cookie;
	uint32_t length, opcode;
};

// The C loop that the Go side is measured against: it posts batches of small sends, each with its
// own segment and context, and reaps them. For each request it fills the context, the segment and
// the work request; then it chains, posts and polls, checks status and context, and counts the
// bytes.
uint64_t cv_null_loop(struct ibv_qp *qp, struct ibv_cq *cq, uint64_t rounds, uint32_t batch)
{
	static char payload[64 * 64];
	struct request requests[64];
	struct ibv_sge sg[64];
	struct ibv_send_wr wr[64], *bad;
	struct ibv_wc wc[64];
	uint64_t r, cookie = 0, expected = 0, bytes = 0;
	uint32_t i;

	if (batch > 64)
		batch = 64;
	for (r = 0; r < rounds; r++) {
		uint32_t got = 0;

		for (i = 0; i < batch; i++) {
			requests[i] = (struct request){ .cookie = cookie++, .length = 64, .opcode = IBV_WR_SEND };
			sg[i] = (struct ibv_sge){ .addr = (uintptr_t)&payload[64 * i], .length = 64, .lkey = 1 };
			wr[i].wr_id = (uintptr_t)&requests[i];
			wr[i].next = i + 1 < batch ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sg[i];
			wr[i].num_sge = 1;
			wr[i].opcode = IBV_WR_SEND; // a compound literal would clear all 128 bytes
			wr[i].send_flags = IBV_SEND_SIGNALED;
		}
		if (ibv_post_send(qp, wr, &bad))
			abort();
		while (got < batch) {
			int n = ibv_poll_cq(cq, (int)batch, wc);

			for (i = 0; i < (uint32_t)n; i++) {
				const struct request *q = (const struct request *)(uintptr_t)wc[i].wr_id;

				if (wc[i].status != IBV_WC_SUCCESS || q->cookie != expected++)
					abort();
				bytes += q->length;
			}
			got += (uint32_t)n;
		}
	}
	return bytes;
}

void cv_null_call(void) {}

int cv_null_fences(int on)
{
	static const uintptr_t gate;
	int was;

	cv_gate_busy(&gate); // so that what the kernel can do is known
	was = cv_fenced;
	cv_fenced = on;
	return was;
}

// One thread enters and leaves a gate while another opens and closes it.
static struct {
	uintptr_t gate __attribute__((aligned(128)));
	int dead __attribute__((aligned(128)));
	int stop;
} shared;

uint64_t cv_null_enter(void)
{
	uint64_t dead = 0;
	int i;

	while (!__atomic_load_n(&shared.stop, __ATOMIC_RELAXED)) {
		if (!cv_enter(&shared.gate))
			continue;
		for (i = 0; i < 8; i++)
			dead += (uint64_t)__atomic_load_n(&shared.dead, __ATOMIC_RELAXED);
		cv_leave();
	}
	return dead;
}

void cv_null_shut(uint32_t rounds)
{
	volatile uint32_t pause;
	uint32_t r;

	__atomic_store_n(&shared.stop, 0, __ATOMIC_SEQ_CST);
	for (r = 0; r < rounds; r++) {
		__atomic_store_n(&shared.dead, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&shared.gate, 1, __ATOMIC_SEQ_CST);
		for (pause = 0; pause < r % 64; pause++)
			;
		__atomic_store_n(&shared.gate, 0, __ATOMIC_SEQ_CST);
		while (cv_gate_busy(&shared.gate))
			;
		__atomic_store_n(&shared.dead, 1, __ATOMIC_SEQ_CST);
		for (pause = 0; pause < 64; pause++)
			;
	}
	__atomic_store_n(&shared.stop, 1, __ATOMIC_SEQ_CST);
}
