// The operations of lab/counts/subject in C. Usage: subject post|poll|receive|exchange. It prints
// nothing.

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 64, SIZE = 64, REGIONS = 8, WARM_UP = 32, N = 16, BURST = 32 };

struct end {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char buf[SIZE];
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct end a, b;
static struct { struct end a, b; } all[N]; // all on one completion queue

static void check(int failed)
{
	if (failed)
		abort();
}

static void open_device(void)
{
	int i, n;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), "loop0"))
			ctx = ibv_open_device(list[i]);
	check(!ctx || !(pd = ibv_alloc_pd(ctx)));
	ibv_free_device_list(list);
}

static void open_end(struct end *e, struct ibv_cq *cq)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1 },
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = (unsigned)access };

	check(!(e->mr = ibv_reg_mr(pd, e->buf, SIZE, access)));
	check(!(e->cq = cq ? cq : ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0)));
	init.send_cq = init.recv_cq = e->cq;
	check(!(e->qp = ibv_create_qp(pd, &init)));
	check(ibv_modify_qp(e->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
}

static void connect_to(struct end *e, struct end *peer)
{
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh.hop_limit = 64 },
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4,
	};

	check(ibv_query_gid(ctx, 1, 0, &rtr.ah_attr.grh.dgid));
	check(ibv_modify_qp(e->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
						 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	check(ibv_modify_qp(e->qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
						 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

static void posts(struct end *e, enum ibv_wr_opcode op, int n)
{
	for (; n > 0; n--) {
		struct ibv_sge sg = { .addr = (uintptr_t)e->buf, .length = SIZE, .lkey = e->mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.sg_list = &sg, .num_sge = 1, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
			.wr.rdma = { .remote_addr = (uintptr_t)b.buf, .rkey = b.mr->rkey },
		};

		check(ibv_post_send(e->qp, &wr, &bad));
	}
}

static void receives(struct end *e, int n)
{
	for (; n > 0; n--) {
		struct ibv_sge sg = { .addr = (uintptr_t)e->buf, .length = SIZE, .lkey = e->mr->lkey };
		struct ibv_recv_wr *bad, wr = { .sg_list = &sg, .num_sge = 1 };

		check(ibv_post_recv(e->qp, &wr, &bad));
	}
}

static void polls(struct end *e)
{
	struct ibv_wc wc;
	int got, left;

	for (left = N; left > 0; left -= got) {
		got = ibv_poll_cq(e->cq, 1, &wc);
		check(got < 0 || (got && wc.status != IBV_WC_SUCCESS));
	}
}

// Opens and connects two ends. Both use the completion queue cq, or each has its own if cq is NULL.
static void open_pair(struct end *x, struct end *y, struct ibv_cq *cq)
{
	open_end(x, cq);
	open_end(y, cq);
	connect_to(x, y);
	connect_to(y, x);
}

// Posts a receive and a Send on each of N connections, and polls their completions.
static void exchange(void)
{
	struct ibv_wc wc[BURST];
	int i, got, left;

	for (i = 0; i < N; i++) {
		receives(&all[i].a, 1);
		posts(&all[i].b, IBV_WR_SEND, 1);
	}
	for (left = 2 * N; left > 0; left -= got) {
		got = ibv_poll_cq(all[0].a.cq, BURST, wc);
		check(got < 0);
		for (i = 0; i < got; i++)
			check(wc[i].status != IBV_WC_SUCCESS);
	}
}

__attribute__((noinline)) static void mark(void) { __asm__ volatile("int3" ::: "memory"); }

static void none(void) {}

static void region(const char *what, void (*m)(void))
{
	if (!strcmp(what, "post")) {
		m();
		posts(&a, IBV_WR_RDMA_WRITE, N);
		m();
		polls(&a);
	} else if (!strcmp(what, "poll")) {
		posts(&a, IBV_WR_RDMA_WRITE, N);
		m();
		polls(&a);
		m();
	} else if (!strcmp(what, "receive")) {
		m();
		receives(&a, N);
		m();
		posts(&b, IBV_WR_SEND, N);
		polls(&a);
		polls(&b);
	} else if (!strcmp(what, "exchange")) {
		m();
		exchange();
		m();
	} else {
		fprintf(stderr, "no operation %s\n", what);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct ibv_cq *cq;
	int i;

	check(argc != 2);
	open_device();
	open_pair(&a, &b, NULL);
	check(!(cq = ibv_create_cq(ctx, 4 * N, NULL, NULL, 0)));
	for (i = 0; i < N; i++)
		open_pair(&all[i].a, &all[i].b, cq);
	for (i = 0; i < WARM_UP; i++)
		region(argv[1], none);
	for (i = 0; i < REGIONS; i++)
		region(argv[1], mark);
	return 0;
}
