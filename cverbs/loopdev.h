// The loop device: RDMA between queue pairs of one host without a kernel, for tests and
// measurements. Only with the build tag nulldev.
#ifndef GODAT_CVERBS_LOOPDEV_H
#define GODAT_CVERBS_LOOPDEV_H

#include <stdint.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

int lp_is_loop(struct ibv_context *ctx);
struct ibv_device **lp_get_device_list(int *n);
void lp_free_device_list(struct ibv_device **list);
const char *lp_get_device_name(struct ibv_device *dev);
__be64 lp_get_device_guid(struct ibv_device *dev);
int lp_get_device_index(struct ibv_device *dev);
struct ibv_context *lp_open_device(struct ibv_device *dev);
int lp_close_device(struct ibv_context *ctx);
int lp_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
int lp_query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *attr);
int lp_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);
int lp_query_pkey(struct ibv_context *ctx, uint8_t port, int index, __be16 *pkey);
int lp_query_gid_ex(struct ibv_context *ctx, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags,
	size_t size);
ssize_t lp_query_gid_table(struct ibv_context *ctx, struct ibv_gid_entry *e, size_t max, uint32_t flags, size_t size);
struct ibv_pd *lp_alloc_pd(struct ibv_context *ctx);
int lp_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *lp_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
int lp_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *lp_create_comp_channel(struct ibv_context *ctx);
int lp_destroy_comp_channel(struct ibv_comp_channel *ch);
struct ibv_cq *lp_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector);
int lp_resize_cq(struct ibv_cq *cq, int cqe);
int lp_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr);
int lp_destroy_cq(struct ibv_cq *cq);
int lp_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context);
void lp_ack_cq_events(struct ibv_cq *cq, unsigned int n);
struct ibv_qp *lp_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int lp_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int lp_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int lp_destroy_qp(struct ibv_qp *qp);
struct ibv_srq *lp_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_ah *lp_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
struct ibv_mw *lp_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int lp_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev);
void lp_ack_async_event(struct ibv_async_event *ev);

// Sets the wire of all loop devices of this process, in nanoseconds: delay is a message's time on
// the wire, gap the least time between two messages of one queue pair.
void lp_set_wire(uint64_t delay, uint64_t gap);

// The connection manager. On a host that has one, loop devices use the host's.
struct rdma_event_channel *lp_create_event_channel(void);
void lp_destroy_event_channel(struct rdma_event_channel *ch);
int lp_get_cm_event(struct rdma_event_channel *ch, struct rdma_cm_event **ev);
int lp_ack_cm_event(struct rdma_cm_event *ev);
int lp_create_id(struct rdma_event_channel *ch, struct rdma_cm_id **id, void *context, enum rdma_port_space ps);
int lp_destroy_id(struct rdma_cm_id *id);
int lp_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *to);
int lp_bind_addr(struct rdma_cm_id *id, struct sockaddr *sa);
int lp_listen(struct rdma_cm_id *id, int backlog);
int lp_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src, struct sockaddr *dst, int timeout_ms);
int lp_resolve_route(struct rdma_cm_id *id, int timeout_ms);
int lp_connect(struct rdma_cm_id *id, struct rdma_conn_param *c);
int lp_accept(struct rdma_cm_id *id, struct rdma_conn_param *c);
int lp_reject(struct rdma_cm_id *id, const void *data, uint8_t len);
int lp_establish(struct rdma_cm_id *id);
int lp_notify(struct rdma_cm_id *id, enum ibv_event_type event);
int lp_disconnect(struct rdma_cm_id *id);
int lp_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *a, int *mask);
int lp_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t size);
int lp_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int lp_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece);
int lp_create_cm_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr);

// The GID by which other processes find this one. The device's GID table does not list it.
void lp_own_gid(union ibv_gid *g);

#ifndef LP_OWN_NAMES // everywhere but in loopdev.c a verb takes loop devices and all others
#undef ibv_query_port
#undef ibv_reg_mr
#define ibv_get_device_list lp_get_device_list
#define ibv_free_device_list lp_free_device_list
#define ibv_get_device_name lp_get_device_name
#define ibv_get_device_guid lp_get_device_guid
#define ibv_get_device_index lp_get_device_index
#define ibv_open_device lp_open_device
#define ibv_close_device lp_close_device
#define ibv_query_device lp_query_device
#define ibv_query_device_ex lp_query_device_ex
#define ibv_query_port lp_query_port
#define ibv_query_pkey lp_query_pkey
#define _ibv_query_gid_ex lp_query_gid_ex
#define _ibv_query_gid_table lp_query_gid_table
#define ibv_alloc_pd lp_alloc_pd
#define ibv_dealloc_pd lp_dealloc_pd
#define ibv_reg_mr lp_reg_mr
#define ibv_dereg_mr lp_dereg_mr
#define ibv_create_comp_channel lp_create_comp_channel
#define ibv_destroy_comp_channel lp_destroy_comp_channel
#define ibv_create_cq lp_create_cq
#define ibv_resize_cq lp_resize_cq
#define ibv_modify_cq lp_modify_cq
#define ibv_destroy_cq lp_destroy_cq
#define ibv_get_cq_event lp_get_cq_event
#define ibv_ack_cq_events lp_ack_cq_events
#define ibv_create_qp lp_create_qp
#define ibv_modify_qp lp_modify_qp
#define ibv_query_qp lp_query_qp
#define ibv_destroy_qp lp_destroy_qp
#define ibv_create_srq lp_create_srq
#define ibv_create_ah lp_create_ah
#define ibv_alloc_mw lp_alloc_mw
#define ibv_get_async_event lp_get_async_event
#define ibv_ack_async_event lp_ack_async_event
#define rdma_create_event_channel lp_create_event_channel
#define rdma_destroy_event_channel lp_destroy_event_channel
#define rdma_get_cm_event lp_get_cm_event
#define rdma_ack_cm_event lp_ack_cm_event
#define rdma_create_id lp_create_id
#define rdma_destroy_id lp_destroy_id
#define rdma_migrate_id lp_migrate_id
#define rdma_bind_addr lp_bind_addr
#define rdma_listen lp_listen
#define rdma_resolve_addr lp_resolve_addr
#define rdma_resolve_route lp_resolve_route
#define rdma_connect lp_connect
#define rdma_accept lp_accept
#define rdma_reject lp_reject
#define rdma_establish lp_establish
#define rdma_notify lp_notify
#define rdma_disconnect lp_disconnect
#define rdma_init_qp_attr lp_init_qp_attr
#define rdma_set_option lp_set_option
#define rdma_set_local_ece lp_set_local_ece
#define rdma_get_remote_ece lp_get_remote_ece
#define rdma_create_qp lp_create_cm_qp
#endif

#endif
