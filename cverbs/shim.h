// Flat structs and calls between Go and libibverbs/librdmacm. Functions return 0 or a positive
// errno unless noted.
#ifndef GODAT_CVERBS_SHIM_H
#define GODAT_CVERBS_SHIM_H

#include "calls.h"

#pragma GCC visibility push(hidden) // another copy of this package in the process has its own functions

// Opens libibverbs and librdmacm. Must be called before any other function, by one thread at a
// time. Returns NULL, or the reason why it failed.
const char *cv_load(void);
void cv_linked(void *calls);
const char *cv_library_file(int i); // i: 0 libibverbs, 1 librdmacm; "" if linked into the program

static inline int positive(int rc) // drivers return errno, -errno, or -1 with errno set
{
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

struct cv_send_wr { // same layout as SendWR
	uint64_t id, remote_addr, compare_add, swap;
	uint32_t rkey, first_sge;
	uint32_t num_sge, opcode, flags, imm; // in the order of struct ibv_send_wr
	uint64_t ah;
	uint32_t remote_qpn, remote_qkey;
};

struct cv_recv_wr { // same layout as RecvWR
	uint64_t id;
	uint32_t first_sge, num_sge;
};

// The shim's own error codes; negative, so that they differ from errno values.
enum {
	CV_BAD_RANGE = -1,  // segments outside the slice
	CV_TOO_MANY = -2,   // more segments than the queue takes
	CV_BAD_STATE = -3,  // the state of the queue pair or the queue does not allow the post
	CV_BAD_AH = -4,     // no such address handle
	CV_BAD_OPCODE = -5, // not an opcode for PostSend
	CV_BAD_HEADER = -6, // no first segment, or one that is too long for a header
	CV_CLOSED = -1 << 30,
	CV_YIELD = 1 << 29, // added to a count of completions: the caller should call runtime.Gosched
};

struct cv_posted {
	uint32_t n; // number of accepted requests
	int32_t rc; // 0, errno, or CV_*
};

// A data path function receives the gate of an object, not the object.
struct cv_posted cv_post_send(const uintptr_t *qp, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
// Posts to an extended queue pair that was created for ops. A chain is posted as a whole or not at
// all.
enum { CV_MAX_BUFFERS = 32 }; // segments of a request with inline data
#define CV_GATHER (1ull << 63) // a bit of ops: the driver takes inline data from one buffer only
struct cv_posted cv_post_send_ex(const uintptr_t *qp, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge, uint64_t ops);
struct cv_posted cv_post_recv(const uintptr_t *qp, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
struct cv_posted cv_post_srq_recv(const uintptr_t *srq, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
struct cv_posted cv_post_wq_recv(const uintptr_t *wq, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
// The poll functions have a parameter how, which is a set of these bits. For an extended queue the
// bits IBV_WC_EX_WITH_* of its fields are set, too.
enum {
	CV_EXTENDED = 1 << 29,
	CV_RXE = 1 << 30, // the device is soft-RoCE
};
// The driver writes into Go's slice. Then cv_poll_cq converts immediate data to host order, zeroes
// undefined fields, and maps the flag of rxe's invalidations to IBV_WC_WITH_INV (rxe reports the
// kernel's flag value). Returns the number of completions, -errno, or CV_CLOSED. CV_YIELD is added
// to the number if the thread has polled for 2 ms without yielding.
int cv_poll_cq(const uintptr_t *cq, struct ibv_wc *wc, uint32_t n, uint32_t polls, uint32_t how);

struct cv_wc_ex { // same layout as WCEx
	struct ibv_wc wc;
	uint64_t timestamp, wall_clock, tm_tag;
	uint32_t tm_priv, flow_tag;
	uint16_t cvlan;
};
// Polls an extended queue, and stores completions of size bytes each in wc. A completion is a
// struct cv_wc_ex, or only the struct ibv_wc at its start. An optional field is set only if the
// queue was created for it.
int cv_poll_cq_ex(const uintptr_t *cq, void *wc, uint32_t size, uint32_t n, uint32_t polls, uint32_t how);

// A turn: posts to any number of queues, then one poll.
enum { CV_TURN_SEND, CV_TURN_RECV, CV_TURN_SRQ_RECV };
struct cv_turn_post { // same layout as turnPost
	uintptr_t gate, wr, sg; // arguments of cv_post_send and the like
	uint64_t ops; // the SendOps of an extended queue pair, else 0
	uint32_t n, nsg, max_sge, kind;
	struct cv_posted done; // result
};
struct cv_turned {
	int32_t got;      // result of cv_poll_cq; 0 without a poll
	uint32_t refused; // number of refused posts
};
// Runs all posts in order, and continues after a post that is refused. Polls unless nwc is 0.
struct cv_turned cv_turn(struct cv_turn_post *p, uint32_t n, const uintptr_t *cq, struct ibv_wc *wc, uint32_t nwc,
	uint32_t polls, uint32_t how);
uint32_t cv_vendor(struct ibv_context *ctx); // the vendor id; 0 if the query fails
int cv_req_notify_cq(const uintptr_t *cq, int solicited_only);
int cv_moderate_cq(struct ibv_cq *cq, uint16_t count, uint16_t period);
int cv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr, uint64_t addr,
	uint64_t length, uint32_t access, int extended, uint32_t *rkey);

struct ibv_cq *cv_create_cq(struct ibv_context *ctx, int depth, uintptr_t handle, struct ibv_comp_channel *ch,
	int vector);
struct cv_cq_init { // arguments in addition to those of cv_create_cq
	uint64_t fields;
	uint32_t flags;
	struct ibv_pd *domain; // a parent domain, or NULL
};
struct ibv_cq *cv_create_cq_ex(struct ibv_context *ctx, int depth, uintptr_t handle, struct ibv_comp_channel *ch,
	int vector, const struct cv_cq_init *init);
int cv_clock(struct ibv_context *ctx, uint64_t *ticks);
struct ibv_td *cv_alloc_td(struct ibv_context *ctx);
int cv_dealloc_td(struct ibv_td *td);
struct ibv_pd *cv_alloc_parent_domain(struct ibv_pd *pd, struct ibv_td *td);
// The contexts of C objects are integers (handles). These functions exist because Go must not store
// integers in pointer fields.
void cv_set_qp_handle(struct ibv_qp_init_attr *attr, uintptr_t handle);
void cv_set_srq_handle(struct ibv_srq_init_attr *attr, uintptr_t handle);
struct cv_qp_more { // attributes that ibv_qp_init_attr lacks; 0: not set
	uint64_t ops, hash_fields;
	uint32_t flags, source_qpn;
	struct ibv_rwq_ind_table *table;
	uint16_t tso;
	uint8_t hash_function, key_len, key[255];
};
struct ibv_qp *cv_create_qp_ex(struct ibv_pd *pd, struct ibv_qp_init_attr *attr, struct cv_qp_more *more);
int cv_cm_create_qp_ex(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
	struct cv_qp_more *more);
struct ibv_qp *cv_create_xrc_qp(struct ibv_xrcd *xrcd, uintptr_t handle);
struct ibv_qp *cv_open_xrc_qp(struct ibv_xrcd *xrcd, uint32_t num, uintptr_t handle);
struct ibv_srq *cv_create_xrc_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr, struct ibv_xrcd *xrcd,
	struct ibv_cq *cq);
struct ibv_wq *cv_create_wq(struct ibv_pd *pd, struct ibv_cq *cq, uintptr_t handle, uint32_t *max_wr,
	uint32_t *max_sge, uint32_t flags);
struct ibv_rwq_ind_table *cv_create_ind_table(struct ibv_context *ctx, uint32_t log_size, struct ibv_wq **queues);
struct ibv_mr *cv_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t length, uint32_t access);
struct ibv_mr *cv_reg_mr_iova(struct ibv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, uint32_t access);
int cv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, uintptr_t addr, size_t length, int access);
int cv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int cv_query_device(struct ibv_context *ctx, struct ibv_device_attr_ex *attr);
int cv_dealloc_mw(struct ibv_mw *mw);

// Go refers to an address handle by a token. Each post that uses the token checks that the address
// handle is open.
uint64_t cv_ah_create(struct ibv_pd *pd, struct ibv_ah_attr *attr); // 0 on failure, with errno set
uint64_t cv_ah_create_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port);
int cv_ah_destroy(uint64_t token);

// Takes and acknowledges up to max completion events, and stores the handles of their queues.
// Returns the number of events, or -errno.
int cv_drain_cq_events(struct ibv_comp_channel *ch, uint64_t *handles, int max);

struct cv_async {
	uint32_t type, port;
	uint64_t qp, cq, srq, wq; // handles; all are 0 but that of the event's object
};
int cv_get_async_event(struct ibv_context *ctx, struct cv_async *ev);

struct cv_addr {
	uint8_t ip[16];
	uint32_t family; // 0, 4 or 6
	uint32_t scope;
	uint16_t port;
};

struct cv_conn {
	uint8_t responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};

struct cv_cm_event {
	uint32_t type;
	int32_t status;
	uint64_t id, listen_id; // handles
	uintptr_t new_id;       // CONNECT_REQUEST: the new id, still without a handle
	uintptr_t join;         // MULTICAST_JOIN and MULTICAST_ERROR: the handle passed to cv_cm_join
	struct cv_conn conn;
	uint32_t qkey;
	struct ibv_ah_attr ah;
	uint32_t private_len;
	uint8_t private_data[256];
};

// These run on the device thread (devices.c), and set errno in the calling thread.
struct ibv_device **cv_devices(int *n);
struct ibv_context **cv_cm_devices(void);
struct rdma_event_channel *cv_cm_channel(void);

struct rdma_cm_id *cv_cm_create_id(struct rdma_event_channel *ch, uintptr_t handle, uint32_t ps);
struct rdma_cm_id *cv_cm_id_of(uintptr_t id);
void cv_cm_set_handle(struct rdma_cm_id *id, uintptr_t handle);
int cv_get_cm_event(struct rdma_event_channel *ch, struct cv_cm_event *ev);
int cv_cm_bind_addr(struct rdma_cm_id *id, const struct cv_addr *a);
int cv_cm_resolve_addr(struct rdma_cm_id *id, const struct cv_addr *src, const struct cv_addr *dst, int timeout_ms);
void cv_cm_addrs(struct rdma_cm_id *id, struct cv_addr *local, struct cv_addr *remote);
int cv_cm_connect(struct rdma_cm_id *id, const struct cv_conn *c, const uint8_t *data, uint32_t len);
int cv_cm_accept(struct rdma_cm_id *id, const struct cv_conn *c, const uint8_t *data, uint32_t len);
int cv_cm_reject(struct rdma_cm_id *id, const uint8_t *data, uint32_t len);
int cv_cm_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int cv_cm_listen(struct rdma_cm_id *id, int backlog);
int cv_cm_establish(struct rdma_cm_id *id);
int cv_cm_notify(struct rdma_cm_id *id, uint32_t event);
int cv_cm_disconnect(struct rdma_cm_id *id);
int cv_cm_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
int cv_cm_migrate(struct rdma_cm_id *id, struct rdma_event_channel *ch);
int cv_cm_set_option(struct rdma_cm_id *id, int name, int value, int size);
int cv_cm_reject_ece(struct rdma_cm_id *id, const uint8_t *data, uint32_t len);
int cv_cm_destroy_qp(struct rdma_cm_id *id);
int cv_cm_join(struct rdma_cm_id *id, const struct cv_addr *group, uint32_t flags, uintptr_t handle);
int cv_cm_leave(struct rdma_cm_id *id, const struct cv_addr *group);

struct cv_addrinfo {
	struct cv_addr src, dst;
	uint32_t flags, qp_type, port_space;
	int32_t family; // 0, 4 or 6
};
// Stores up to max results. Returns their number, -errno, or CV_EAI plus an EAI_* code; these codes
// are negative.
enum { CV_EAI = -1000 };
int cv_getaddrinfo(const char *node, const char *service, const struct cv_addrinfo *hints, struct cv_addrinfo *all,
	int max);
int cv_create_ep(const struct cv_addrinfo *info, struct rdma_cm_id **id);

#pragma GCC visibility pop

#endif
