// Flat structs and calls between Go and libibverbs/librdmacm. Functions return 0 or a positive
// errno unless noted.
#ifndef GODAT_CVERBS_SHIM_H
#define GODAT_CVERBS_SHIM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#ifdef CV_LOOP
#include "loopdev.h"
#endif

static inline int positive(int rc) // drivers return errno, -errno, or -1 with errno set
{
	if (rc == -1)
		return errno ? errno : EIO;
	return rc < 0 ? -rc : rc;
}

struct cv_send_wr { // = SendWR
	uint64_t id, remote_addr, compare_add, swap;
	uint32_t rkey, first_sge;
	uint32_t num_sge, opcode, flags, imm; // in the order of struct ibv_send_wr
	uint64_t ah;
	uint32_t remote_qpn, remote_qkey;
};

struct cv_recv_wr { // = RecvWR
	uint64_t id;
	uint32_t first_sge, num_sge;
};

// The shim's own error codes; negative, so that they differ from errno values.
enum {
	CV_BAD_RANGE = -1,  // segments outside the slice
	CV_TOO_MANY = -2,   // more segments than the queue takes
	CV_BAD_STATE = -3,  // queue pair state does not allow the post
	CV_BAD_AH = -4,     // no such address handle
	CV_BAD_OPCODE = -5, // not an opcode for PostSend
	CV_CLOSED = -1 << 30,
	CV_YIELD = 1 << 29, // added to a count of completions: the caller should call runtime.Gosched
};

struct cv_posted {
	uint32_t n; // accepted
	int32_t rc; // 0, errno, or CV_*
};

// Data path calls take an object's gate.
struct cv_posted cv_post_send(const uintptr_t *qp, const struct cv_send_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
struct cv_posted cv_post_recv(const uintptr_t *qp, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
struct cv_posted cv_post_srq_recv(const uintptr_t *srq, const struct cv_recv_wr *wr, uint32_t n, struct ibv_sge *sg,
	uint32_t nsg, uint32_t max_sge);
// The driver writes into Go's slice. Then this function converts immediate data to host order,
// zeroes undefined fields, and maps the flag of rxe's invalidations to IBV_WC_WITH_INV (rxe reports
// the kernel's flag value). Returns a count, with CV_YIELD once in 32768 repeated polls of a
// thread, -errno, or CV_CLOSED.
int cv_poll_cq(const uintptr_t *cq, struct ibv_wc *wc, uint32_t n, uint32_t polls, int rxe);
uint32_t cv_vendor(struct ibv_context *ctx); // 0 if unknown
int cv_req_notify_cq(const uintptr_t *cq, int solicited_only);
int cv_moderate_cq(struct ibv_cq *cq, uint16_t count, uint16_t period);
int cv_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, uint64_t id, uint32_t flags, struct ibv_mr *mr, uint64_t addr,
	uint64_t length, uint32_t access, uint32_t *rkey);

struct ibv_cq *cv_create_cq(struct ibv_context *ctx, int depth, uintptr_t handle, struct ibv_comp_channel *ch,
	int vector);
// Contexts are integers, because Go must not store them as pointers.
void cv_set_qp_handle(struct ibv_qp_init_attr *attr, uintptr_t handle);
void cv_set_srq_handle(struct ibv_srq_init_attr *attr, uintptr_t handle);
struct ibv_mr *cv_reg_mr(struct ibv_pd *pd, uintptr_t addr, size_t length, uint32_t access);
// NULL and EOPNOTSUPP on the loop device.
struct ibv_mr *cv_reg_mr_iova(struct ibv_pd *pd, uintptr_t addr, size_t length, uint64_t iova, uint32_t access);
struct ibv_mr *cv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd,
	uint32_t access);
int cv_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int cv_query_device(struct ibv_context *ctx, struct ibv_device_attr_ex *attr);
struct ibv_mw *cv_alloc_mw(struct ibv_pd *pd, uint32_t type);
int cv_dealloc_mw(struct ibv_mw *mw);

// Go refers to an address handle by a token, which every use checks.
uint64_t cv_ah_create(struct ibv_pd *pd, struct ibv_ah_attr *attr); // 0: see errno
int cv_ah_destroy(uint64_t token);

// Takes and acknowledges completion events and stores the contexts of their queues. Returns a
// count, or -errno.
int cv_drain_cq_events(struct ibv_comp_channel *ch, uint64_t *handles, int max);

struct cv_async {
	uint32_t type, port;
	uint64_t qp, cq, srq; // handles; 0 unless the event's object
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
	struct cv_conn conn;
	uint32_t qkey;
	struct ibv_ah_attr ah;
	uint32_t private_len;
	uint8_t private_data[256];
};

// On the thread that finds devices; errno is the call's.
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
int cv_cm_set_local_ece(struct rdma_cm_id *id, uint32_t vendor, uint32_t options);
int cv_cm_remote_ece(struct rdma_cm_id *id, uint32_t *vendor, uint32_t *options);

#endif
