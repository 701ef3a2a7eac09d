// Half round trips of a ping-pong of sends, polled or waiting in ibv_get_cq_event: what datperf's
// loop does, in C.
//
//   pingpong poll|event SIZE ITERATIONS           the end that answers
//   pingpong poll|event SIZE ITERATIONS ADDRESS   the end that measures, and prints
//
// As in datperf: one completion queue for both directions, one request in sixteen signalled,
// receives posted again after the answer, requests of up to 256 bytes inline.
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RECEIVES = 64, DEPTH = 64, SIGNAL = 16, INLINE = 256, WARMUP = 100, EVENTS_ACKED_AT_ONCE = 64 };

static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_mr *mr;
static struct rdma_cm_id *id;
static char *memory;
static size_t size, stride;
static int events, armed, received, unacked;
static uint64_t sent, slot;

static void die(const char *what) {
  fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
  exit(1);
}

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void post_receive(void) {
  struct ibv_sge sge = {(uintptr_t)memory + (1 + slot++ % RECEIVES) * stride, size, mr->lkey};
  struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
  if (ibv_post_recv(id->qp, &wr, &bad)) die("ibv_post_recv");
}

static void post_send(void) {
  struct ibv_sge sge = {(uintptr_t)memory, size, mr->lkey};
  struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
  if (++sent % SIGNAL == 0) wr.send_flags |= IBV_SEND_SIGNALED;
  if (size <= INLINE) wr.send_flags |= IBV_SEND_INLINE;
  if (ibv_post_send(id->qp, &wr, &bad)) die("ibv_post_send");
}

static int poll_queue(void) {
  struct ibv_wc wc[16];
  int n = ibv_poll_cq(cq, 16, wc);
  if (n < 0) die("ibv_poll_cq");
  for (int i = 0; i < n; i++) {
    if (wc[i].status) {
      fprintf(stderr, "pingpong: %s\n", ibv_wc_status_str(wc[i].status));
      exit(1);
    }
    if (wc[i].opcode & IBV_WC_RECV) received++;
  }
  return n;
}

static void await_message(void) {
  while (!received) {
    if (poll_queue() || !events) continue;
    if (!armed) {
      if (ibv_req_notify_cq(cq, 0)) die("ibv_req_notify_cq");
      armed = 1;
      if (poll_queue()) continue; // what came before the arming makes no event
    }
    struct ibv_cq *which;
    void *context;
    if (ibv_get_cq_event(channel, &which, &context)) die("ibv_get_cq_event");
    armed = 0;
    if (++unacked == EVENTS_ACKED_AT_ONCE) {
      ibv_ack_cq_events(cq, unacked);
      unacked = 0;
    }
  }
  received--;
}

static void set_up(void) {
  struct ibv_pd *pd = ibv_alloc_pd(id->verbs);
  channel = ibv_create_comp_channel(id->verbs);
  if (!pd || !channel) die("protection domain, completion channel");
  cq = ibv_create_cq(id->verbs, RECEIVES + DEPTH, NULL, channel, 0);
  if (!cq) die("ibv_create_cq");
  stride = (size + 63) & ~(size_t)63;
  if (posix_memalign((void **)&memory, 4096, (RECEIVES + 1) * stride)) die("memory");
  memset(memory, 1, (RECEIVES + 1) * stride);
  mr = ibv_reg_mr(pd, memory, (RECEIVES + 1) * stride, IBV_ACCESS_LOCAL_WRITE);
  if (!mr) die("ibv_reg_mr");
  struct ibv_qp_init_attr init = {
      .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = DEPTH, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1,
      	.max_inline_data = INLINE}};
  if (rdma_create_qp(id, pd, &init)) die("rdma_create_qp");
  for (int i = 0; i < RECEIVES; i++) post_receive();
}

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc < 4) {
    fprintf(stderr, "usage: pingpong poll|event SIZE ITERATIONS [ADDRESS]\n");
    return 2;
  }
  events = !strcmp(argv[1], "event");
  size = strtoul(argv[2], NULL, 10);
  long iterations = strtol(argv[3], NULL, 10);
  const char *address = argc > 4 ? argv[4] : NULL;
  struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP, .ai_flags = address ? 0 : RAI_PASSIVE}, *info;
  if (rdma_getaddrinfo(address, "18600", &hints, &info)) die("rdma_getaddrinfo");
  struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};

  if (!address) {
    struct rdma_cm_id *listener;
    if (rdma_create_ep(&listener, info, NULL, NULL)) die("rdma_create_ep");
    if (rdma_listen(listener, 1)) die("rdma_listen");
    fprintf(stderr, "listening\n");
    if (rdma_get_request(listener, &id)) die("rdma_get_request");
    set_up();
    if (rdma_accept(id, &param)) die("rdma_accept");
    for (long i = 0; i < iterations + WARMUP; i++) {
      await_message();
      post_send();
      post_receive();
    }
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); // the last answer is on its way
    return 0;
  }

  int64_t *took = calloc(iterations, sizeof *took), sum = 0;
  if (!took) die("memory");
  if (rdma_create_ep(&id, info, NULL, NULL)) die("rdma_create_ep");
  set_up();
  if (rdma_connect(id, &param)) die("rdma_connect");
  for (long i = -WARMUP; i < iterations; i++) {
    int64_t begin = now();
    post_send();
    await_message();
    if (i >= 0) sum += took[i] = now() - begin;
    post_receive();
  }
  qsort(took, iterations, sizeof *took, compare);
  printf("min_ns=%.1f p50_ns=%.1f p99_ns=%.1f mean_ns=%.1f\n", took[0] / 2.0, took[iterations / 2] / 2.0,
  	took[iterations * 99 / 100] / 2.0, sum / 2.0 / iterations);
  return 0;
}
