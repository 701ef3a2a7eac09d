// Benchmark loops of a C program on the loop device. The loops of Go (lab/bench/loop) are compared
// with them. Prints the results as JSON: for ping the minimum, the median and the 99th percentile
// of the round trips in nanoseconds; for the other loops the number of operations, the nanoseconds
// that they took together (took), and the nanoseconds of one operation (ns).
//
//	loopbench [flags] ping|rate|batch|many

#define _GNU_SOURCE
#include "duration.h"
#include <errno.h>
#include <getopt.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
	RECVS = 16,   // receives that each end of a ping-pong keeps posted
	SIGNAL = 16,  // sends of a ping-pong for each signalled send
	POLL = 64,    // most completions of one poll
	DEPTH = 128,  // send queue depth of a stream of writes
	MODERATE = 32, // writes of a stream for each signalled write
	WINDOW = 64,  // writes in flight in the loop many, on all queue pairs together
	CLOCK = 1024, // operations of a stream between two readings of the clock
	ROUNDS = 1000, // fewest rounds of a ping-pong, unless they take longer than LONGEST
	MAX_BATCH = 64,
	MAX_SIZE = 1 << 16,
	REMOTE = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
};

static const uint64_t LONGEST = 5000000000; // ns

struct work {
	uint32_t size, batch, ends, threads, events;
	uint64_t warmup, time; // ns
	uint32_t *samples;     // ns of each round, in loops that measure rounds
	uint64_t max_samples;

	uint64_t n;    // result: number of samples
	uint64_t ops;  // result: number of operations; in loops with samples also those of the warm-up
	uint64_t took; // result: ns
};

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void check(int failed)
{
	if (failed)
		abort();
}

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *ch;
	struct ibv_mr *mr;
	char *buf; // MAX_SIZE to send, RECVS * MAX_SIZE to receive
	struct end *peer;
	uint32_t size, sent, received;
	int events;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;

static int open_device(void)
{
	int i, n;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "loop0"))
			ctx = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	if (!ctx || !(pd = ibv_alloc_pd(ctx)))
		return ENODEV;
	return 0;
}

// Opens one end of a pair. If owner is NULL the end gets its own completion queue and memory, else
// it shares those of owner.
static void open_end(struct end *e, struct end *owner, uint32_t depth, uint32_t cqe, int events)
{
	static const size_t total = (RECVS + 1) * MAX_SIZE;
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = depth, .max_recv_wr = RECVS, .max_send_sge = 1, .max_recv_sge = 1,
			 .max_inline_data = 128 },
	};
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = REMOTE };

	e->events = events;
	if (owner) {
		e->cq = owner->cq;
		e->ch = owner->ch;
		e->buf = owner->buf;
		e->mr = owner->mr;
	} else {
		if (events)
			check(!(e->ch = ibv_create_comp_channel(ctx)));
		check(!(e->cq = ibv_create_cq(ctx, (int)cqe, NULL, e->ch, 0)));
		check(posix_memalign((void **)&e->buf, 4096, total));
		memset(e->buf, 0, total);
		check(!(e->mr = ibv_reg_mr(pd, e->buf, total, IBV_ACCESS_LOCAL_WRITE | REMOTE)));
	}
	a.send_cq = a.recv_cq = e->cq;
	check(!(e->qp = ibv_create_qp(pd, &a)));
	check(ibv_modify_qp(e->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_to(struct end *e, struct end *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
	};
	struct ibv_qp_attr s = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4,
	};

	check(ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid));
	check(ibv_modify_qp(e->qp, &a,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	check(ibv_modify_qp(e->qp, &s,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
	e->peer = peer;
}

static void open_pair(struct end *a, struct end *b, struct end *owner, struct end *peer_owner, uint32_t depth,
		      uint32_t cqe, int events)
{
	open_end(a, owner, depth, cqe, events);
	open_end(b, peer_owner, depth, cqe, events);
	connect_to(a, b);
	connect_to(b, a);
}

static void close_end(struct end *e, int owner)
{
	check(ibv_destroy_qp(e->qp));
	if (!owner)
		return;
	check(ibv_dereg_mr(e->mr) || ibv_destroy_cq(e->cq));
	if (e->ch)
		check(ibv_destroy_comp_channel(e->ch));
	free(e->buf);
}

// ---- ping-pong

static void post_receive(struct end *e, uint64_t slot)
{
	struct ibv_sge sg = { .addr = (uintptr_t)e->buf + (slot + 1) * MAX_SIZE, .length = e->size, .lkey = e->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sg, .num_sge = 1 }, *bad;

	check(ibv_post_recv(e->qp, &wr, &bad));
}

static void post(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t size, int signalled)
{
	struct ibv_sge sg = { .addr = (uintptr_t)e->buf, .length = size, .lkey = e->mr->lkey };
	struct ibv_send_wr wr, *bad;

	wr.wr_id = id;
	wr.next = NULL;
	wr.sg_list = &sg;
	wr.num_sge = 1;
	wr.opcode = op;
	wr.send_flags = (op != IBV_WR_RDMA_READ && size <= 128 ? IBV_SEND_INLINE : 0) | (signalled ? IBV_SEND_SIGNALED : 0);
	if (op != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = (uintptr_t)e->peer->buf + MAX_SIZE;
		wr.wr.rdma.rkey = e->peer->mr->rkey;
	}
	check(ibv_post_send(e->qp, &wr, &bad));
}

static void post_message(struct end *e) { post(e, IBV_WR_SEND, 0, e->size, ++e->sent % SIGNAL == 0); }

// Polls the completion queue once, and returns the number of completions. If a receive is among
// them, sets *slot to its slot.
static int take(struct end *e, uint64_t *slot)
{
	struct ibv_wc wc[POLL];
	int i, n = ibv_poll_cq(e->cq, POLL, wc);

	check(n < 0);
	for (i = 0; i < n; i++) {
		check(wc[i].status != IBV_WC_SUCCESS);
		if (wc[i].opcode & IBV_WC_RECV)
			*slot = wc[i].wr_id;
	}
	return n;
}

// Waits for a message and returns the slot of its receive. Reaps the sends that complete meanwhile.
static uint64_t await_message(struct end *e)
{
	struct ibv_cq *cq;
	void *context;
	uint64_t slot = RECVS;

	for (;;) {
		while (take(e, &slot))
			if (slot < RECVS)
				return slot;
		if (!e->events)
			continue;
		check(ibv_req_notify_cq(e->cq, 0));
		take(e, &slot); // a completion may have come before the queue was armed
		if (slot < RECVS)
			return slot;
		check(ibv_get_cq_event(e->ch, &cq, &context));
		ibv_ack_cq_events(cq, 1);
	}
}

// Records the duration of a round that ended at t. Reports whether the round was the last one.
static int last_round(struct work *w, uint64_t begin, uint64_t *last, uint64_t t)
{
	if (t - begin >= w->warmup && w->n < w->max_samples)
		w->samples[w->n++] = (uint32_t)(t - *last);
	*last = t;
	w->ops++;
	return t - begin >= w->warmup + w->time && (w->n >= ROUNDS || t - begin >= w->warmup + LONGEST);
}

static int stop;

// Answers each message. Ends without an answer when a message comes after stop was set.
static void *pong(void *arg)
{
	struct end *e = arg;

	for (;;) {
		uint64_t slot = await_message(e);

		if (__atomic_load_n(&stop, __ATOMIC_ACQUIRE))
			return NULL;
		post_message(e);
		post_receive(e, slot);
	}
}

static void ping(struct work *w)
{
	struct end a = { .size = w->size }, b = { .size = w->size };
	uint64_t begin, last, slot, i;
	pthread_t peer;

	open_pair(&a, &b, NULL, NULL, 2 * SIGNAL + 1, 64, (int)w->events);
	for (i = 0; i < RECVS; i++) {
		post_receive(&a, i);
		post_receive(&b, i);
	}
	stop = 0;
	if (w->threads == 2)
		check(pthread_create(&peer, NULL, pong, &b));
	begin = last = now();
	do {
		post_message(&a);
		if (w->threads == 1) {
			slot = await_message(&b);
			post_message(&b);
			post_receive(&b, slot);
		}
		slot = await_message(&a);
		post_receive(&a, slot);
	} while (!last_round(w, begin, &last, now()));
	if (w->threads == 2) {
		__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
		post_message(&a);
		pthread_join(peer, NULL);
	}
	close_end(&a, 1);
	close_end(&b, 1);
}

// ---- streams

static int reap(struct ibv_cq *cq, struct ibv_wc *wc)
{
	int i, n = ibv_poll_cq(cq, POLL, wc);

	check(n < 0);
	for (i = 0; i < n; i++)
		check(wc[i].status != IBV_WC_SUCCESS);
	return n;
}

// Starts the measurement when the warm-up is over. Reports whether the measurement has ended, and
// then stores its results in w. done is the number of operations so far.
static int over(struct work *w, uint64_t *begin, uint64_t *start, uint64_t *base, uint64_t done)
{
	uint64_t t = now();

	if (!*begin)
		*begin = t;
	if (!*start && t - *begin >= w->warmup) {
		*start = t;
		*base = done;
	}
	if (!*start || t - *start < w->time)
		return 0;
	w->took = t - *start;
	w->ops = done - *base;
	return 1;
}

static void rate(struct work *w)
{
	struct end a = { .size = 0 }, b = { .size = 0 };
	uint64_t posted = 0, done = 0, begin = 0, start = 0, base = 0;
	struct ibv_wc wc[POLL];

	open_pair(&a, &b, NULL, NULL, DEPTH, 64, 0);
	while (posted % CLOCK || !over(w, &begin, &start, &base, posted)) {
		while (posted - done == DEPTH)
			done += (uint64_t)reap(a.cq, wc) * MODERATE;
		posted++;
		post(&a, IBV_WR_RDMA_WRITE, posted, w->size, posted % MODERATE == 0);
	}
	while (posted / MODERATE * MODERATE != done)
		done += (uint64_t)reap(a.cq, wc) * MODERATE;
	close_end(&a, 1);
	close_end(&b, 1);
}

// What a program stores for a posted request. The work request id points to it.
struct request {
	uint64_t cookie;
	uint32_t length, opcode;
};

// Posts batches of writes, each with its own segment and context, and does what a C program does:
// it fills contexts, segments and work requests, posts the requests as a chain, polls, checks the
// status, finds the context of each completion, checks the context, and counts the bytes.
static void batches(struct work *w)
{
	struct end a = { .size = 0 }, b = { .size = 0 };
	uint64_t cookie = 0, expected = 0, bytes = 0, begin = 0, start = 0, base = 0, rounds = 0;
	struct request requests[MAX_BATCH];
	struct ibv_sge sg[MAX_BATCH];
	struct ibv_send_wr wr[MAX_BATCH], *bad;
	struct ibv_wc wc[MAX_BATCH];
	uint32_t i;

	open_pair(&a, &b, NULL, NULL, DEPTH, DEPTH, 0);
	while (rounds++ % 64 || !over(w, &begin, &start, &base, expected)) {
		uint32_t got = 0;

		for (i = 0; i < w->batch; i++) {
			requests[i] = (struct request){ .cookie = cookie++, .length = w->size, .opcode = IBV_WR_RDMA_WRITE };
			sg[i] = (struct ibv_sge){ .addr = (uintptr_t)a.buf + i * w->size, .length = w->size, .lkey = a.mr->lkey };
			wr[i].wr_id = (uintptr_t)&requests[i];
			wr[i].next = i + 1 < w->batch ? &wr[i + 1] : NULL;
			wr[i].sg_list = &sg[i];
			wr[i].num_sge = 1;
			// A compound literal would clear all 128 bytes of the work request, which costs more than all
			// the rest.
			wr[i].opcode = IBV_WR_RDMA_WRITE;
			wr[i].send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
			wr[i].wr.rdma.remote_addr = (uintptr_t)b.buf + i * w->size;
			wr[i].wr.rdma.rkey = b.mr->rkey;
		}
		check(ibv_post_send(a.qp, wr, &bad));
		while (got < w->batch) {
			int n = ibv_poll_cq(a.cq, (int)w->batch, wc);

			for (i = 0; n > 0 && i < (uint32_t)n; i++) {
				const struct request *q = (const struct request *)(uintptr_t)wc[i].wr_id;

				check(wc[i].status != IBV_WC_SUCCESS || q->cookie != expected++);
				bytes += q->length;
			}
			check(n < 0);
			got += (uint32_t)n;
		}
	}
	check(bytes != expected * w->size);
	close_end(&a, 1);
	close_end(&b, 1);
}

// Posts writes to many queue pairs in turn. All queue pairs use one completion queue.
static void many(struct work *w)
{
	uint32_t i, next = 0, depth = (WINDOW + w->ends - 1) / w->ends;
	struct end *a = calloc(w->ends, sizeof(*a)), *b = calloc(w->ends, sizeof(*b));
	uint32_t *pending = calloc(w->ends, sizeof(*pending));
	uint64_t posted = 0, done = 0, begin = 0, start = 0, base = 0;
	struct ibv_wc wc[POLL];
	int k, n;

	check(!a || !b || !pending);
	for (i = 0; i < w->ends; i++)
		open_pair(&a[i], &b[i], i ? &a[0] : NULL, i ? &b[0] : NULL, depth, 2 * w->ends * (depth + 1), 0);
	while (posted % CLOCK || !over(w, &begin, &start, &base, posted)) {
		while (posted - done == WINDOW) {
			n = reap(a[0].cq, wc);
			for (k = 0; k < n; k++)
				pending[wc[k].wr_id]--;
			done += (uint64_t)n;
		}
		while (pending[next] == depth)
			next = next + 1 < w->ends ? next + 1 : 0;
		post(&a[next], IBV_WR_RDMA_WRITE, next, w->size, 1);
		pending[next]++;
		posted++;
		next = next + 1 < w->ends ? next + 1 : 0;
	}
	while (posted != done)
		done += (uint64_t)reap(a[0].cq, wc);
	for (i = w->ends; i--;) {
		close_end(&a[i], i == 0);
		close_end(&b[i], i == 0);
	}
	free(a);
	free(b);
	free(pending);
}

// ---- the program

static const struct loop {
	const char *name;
	void (*run)(struct work *w);
	int samples;
} loops[] = {
	{ "ping", ping, 1 }, // ping-pong of sends: the samples are round trips
	{ "rate", rate, 0 }, // RDMA writes, one post at a time
	{ "batch", batches, 0 }, // RDMA writes, all signalled
	{ "many", many, 0 }, // RDMA writes on many queue pairs in turn
};

static int by_length(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static int fails(const char *why, const char *what)
{
	fprintf(stderr, "loopbench: %s%s\n", why, what);
	return 1;
}

static uint32_t number(const char *text) { return (uint32_t)strtoul(text, NULL, 10); }

static uint64_t length(const char *text)
{
	uint64_t ns;

	if (!read_duration(&text, &ns) || *text)
		exit(fails("not a duration: ", text));
	return ns;
}

int main(int argc, char **argv)
{
	static const struct option flags[] = {
		{ "size", 1, NULL, 's' }, // bytes of a message
		{ "batch", 1, NULL, 'b' }, // batch: writes of one post
		{ "ends", 1, NULL, 'e' }, // many: queue pairs
		{ "threads", 1, NULL, 't' }, // ping: 1: one thread runs both ends in turn; 2: one thread for each end
		{ "events", 0, NULL, 'E' }, // ping: wait for completion events
		{ "warmup", 1, NULL, 'w' },
		{ "time", 1, NULL, 'T' }, // duration of the measurement
		{ "delay", 1, NULL, 'd' }, // time that a message takes
		{ "gap", 1, NULL, 'g' }, // least time between two messages of a queue pair
		{ NULL, 0, NULL, 0 },
	};
	struct work w = { .size = 64, .batch = 32, .ends = 1, .threads = 1, .warmup = 50000000, .time = 200000000,
		.max_samples = 1 << 20 };
	const char *delay = "0s", *gap = "0s";
	const struct loop *l = loops, *end = loops + sizeof(loops) / sizeof(*loops);
	char wire[64];
	int c;

	while ((c = getopt_long_only(argc, argv, "", flags, NULL)) != -1) {
		switch (c) {
		case 's': w.size = number(optarg); break;
		case 'b': w.batch = number(optarg); break;
		case 'e': w.ends = number(optarg); break;
		case 't': w.threads = number(optarg); break;
		case 'E': w.events = 1; break;
		case 'w': w.warmup = length(optarg); break;
		case 'T': w.time = length(optarg); break;
		case 'd': delay = optarg; break;
		case 'g': gap = optarg; break;
		default: return 2;
		}
	}
	while (l < end && (optind != argc - 1 || strcmp(l->name, argv[optind])))
		l++;
	if (l == end)
		return fails("which loop? ping, rate, batch or many", "");
	if (!w.ends || w.size > MAX_SIZE || w.batch > MAX_BATCH || w.threads > 2 || (l->run == batches && w.size > 128))
		return fails("a number is out of range", "");
	snprintf(wire, sizeof(wire), "%s,%s", delay, gap);
	setenv("GODAT_LOOP_WIRE", wire, 1);
	if (open_device())
		return fails("no loop0 here: lab/loopdev/loop.sh runs a program with it", "");
	check(!(w.samples = malloc(w.max_samples * sizeof(*w.samples))));
	l->run(&w);
	if (l->samples) {
		if (!w.n)
			return fails("no round was measured", "");
		qsort(w.samples, w.n, sizeof(*w.samples), by_length);
		printf("{\"min\":%u,\"p50\":%u,\"p99\":%u}\n", w.samples[0], w.samples[w.n / 2], w.samples[w.n * 99 / 100]);
	} else {
		if (!w.ops)
			return fails("nothing completed", "");
		printf("{\"ops\":%" PRIu64 ",\"took\":%" PRIu64 ",\"ns\":%.9g}\n", w.ops, w.took, (double)w.took / (double)w.ops);
	}
	return 0;
}
