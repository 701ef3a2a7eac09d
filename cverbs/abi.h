// The part of the ABI of libibverbs and librdmacm that this package uses, so that a build needs no
// headers of rdma-core. The names are the libraries'; a constant or a field that is not used here
// is missing or unused_*. lab/verbs compares all of this with the real headers. The functions are
// listed in libcalls.h.
#ifndef GODAT_CVERBS_ABI_H
#define GODAT_CVERBS_ABI_H

#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

enum { IB_UVERBS_ACCESS_OPTIONAL_RANGE = 0x3ff00000 };
enum ib_uverbs_advise_mr_advice { IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH };
enum ibv_node_type { IBV_NODE_UNKNOWN = -1 };
enum ibv_transport_type { IBV_TRANSPORT_UNKNOWN = -1, IBV_TRANSPORT_IWARP = 1 };
enum ibv_atomic_cap { IBV_ATOMIC_NONE };
enum ibv_mtu { IBV_MTU_256 = 1 };
enum ibv_port_state { IBV_PORT_NOP };
enum { IBV_LINK_LAYER_ETHERNET = 2 };
enum ibv_gid_type { IBV_GID_TYPE_ROCE_V1 = 1, IBV_GID_TYPE_ROCE_V2 };
enum ibv_event_type {
	IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_COMM_EST,
	IBV_EVENT_SQ_DRAINED, IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR, IBV_EVENT_DEVICE_FATAL,
	IBV_EVENT_SRQ_ERR = 14, IBV_EVENT_SRQ_LIMIT_REACHED, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_WQ_FATAL = 19,
};
enum ibv_wc_status { IBV_WC_SUCCESS };
enum ibv_wc_opcode { IBV_WC_SEND, IBV_WC_RECV = 128 };
enum ibv_wc_flags { IBV_WC_WITH_IMM = 2, IBV_WC_IP_CSUM_OK = 4, IBV_WC_WITH_INV = 8 };
enum ibv_create_cq_wc_flags {
	IBV_WC_EX_WITH_BYTE_LEN = 1, IBV_WC_EX_WITH_IMM = 2, IBV_WC_EX_WITH_QP_NUM = 4, IBV_WC_EX_WITH_SRC_QP = 8,
	IBV_WC_EX_WITH_SLID = 16, IBV_WC_EX_WITH_SL = 32, IBV_WC_EX_WITH_DLID_PATH_BITS = 64,
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 128, IBV_WC_EX_WITH_CVLAN = 256, IBV_WC_EX_WITH_FLOW_TAG = 512,
	IBV_WC_EX_WITH_TM_INFO = 1024, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK = 2048,
};
enum ibv_mw_type { IBV_MW_TYPE_1 = 1 };
enum ibv_xrcd_init_attr_mask { IBV_XRCD_INIT_ATTR_FD = 1, IBV_XRCD_INIT_ATTR_OFLAGS = 2 };
enum ibv_rereg_mr_err_code {
	IBV_REREG_MR_ERR_INPUT = -1, IBV_REREG_MR_ERR_DONT_FORK_NEW = -2, IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
};
enum ibv_srq_attr_mask { IBV_SRQ_MAX_WR = 1, IBV_SRQ_LIMIT = 2 };
enum ibv_srq_type { IBV_SRQT_XRC = 1 };
enum ibv_srq_init_attr_mask {
	IBV_SRQ_INIT_ATTR_TYPE = 1, IBV_SRQ_INIT_ATTR_PD = 2, IBV_SRQ_INIT_ATTR_XRCD = 4, IBV_SRQ_INIT_ATTR_CQ = 8,
};
enum ibv_wq_type { IBV_WQT_RQ };
enum ibv_wq_init_attr_mask { IBV_WQ_INIT_ATTR_FLAGS = 1 };
enum ibv_wq_state { IBV_WQS_RESET };
enum ibv_qp_type { IBV_QPT_RC = 2, IBV_QPT_UD = 4, IBV_QPT_XRC_SEND = 9, IBV_QPT_XRC_RECV = 10 };
enum ibv_qp_init_attr_mask {
	IBV_QP_INIT_ATTR_PD = 1, IBV_QP_INIT_ATTR_XRCD = 2, IBV_QP_INIT_ATTR_CREATE_FLAGS = 4,
	IBV_QP_INIT_ATTR_MAX_TSO_HEADER = 8, IBV_QP_INIT_ATTR_IND_TABLE = 16, IBV_QP_INIT_ATTR_RX_HASH = 32,
	IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 64,
};
enum ibv_qp_open_attr_mask {
	IBV_QP_OPEN_ATTR_NUM = 1, IBV_QP_OPEN_ATTR_XRCD = 2, IBV_QP_OPEN_ATTR_CONTEXT = 4, IBV_QP_OPEN_ATTR_TYPE = 8,
};
enum ibv_qp_state { IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTS = 3 };
enum ibv_mig_state { IBV_MIG_MIGRATED };
enum ibv_wr_opcode {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_LOCAL_INV, IBV_WR_BIND_MW, IBV_WR_SEND_WITH_INV,
	IBV_WR_TSO, IBV_WR_ATOMIC_WRITE = 15, // IBV_WR_ATOMIC_WRITE: from rdma-core 44 on
};
enum ibv_qp_create_send_ops_flags { IBV_QP_EX_WITH_ATOMIC_WRITE = 1 << 12 }; // from rdma-core 44 on
enum ibv_send_flags { IBV_SEND_INLINE = 8 };
enum ibv_cq_attr_mask { IBV_CQ_ATTR_MODERATE = 1 };
enum ibv_flow_attr_type { IBV_FLOW_ATTR_NORMAL };
enum ibv_flow_spec_type { IBV_FLOW_SPEC_ETH = 32 };
enum ibv_cq_init_attr_mask { IBV_CQ_INIT_ATTR_MASK_FLAGS = 1, IBV_CQ_INIT_ATTR_MASK_PD = 2 };
enum ibv_counter_description { IBV_COUNTER_PACKETS };
enum ibv_values_mask { IBV_VALUES_MASK_RAW_CLOCK = 1 };

struct ibv_recv_wr;
struct ibv_query_device_ex_input;
struct _compat_ibv_port_attr; // the start of struct ibv_port_attr

// ---- devices

union ibv_gid {
	uint8_t raw[16];
	struct { uint64_t subnet_prefix, interface_id; } global; // aligns the union
};
struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};
struct ibv_device {
	void *unused_ops[2];
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};
struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid, max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom;
	int max_qp_init_rd_atom, max_ee_init_rd_atom;
	enum ibv_atomic_cap atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach;
	int max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};
struct ibv_odp_caps {
	uint64_t general_caps;
	struct { uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps; } per_transport_caps;
};
struct ibv_tso_caps { uint32_t max_tso, supported_qpts; };
struct ibv_rss_caps {
	uint32_t supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};
struct ibv_packet_pacing_caps { uint32_t qp_rate_limit_min, qp_rate_limit_max, supported_qpts; };
struct ibv_tm_caps { uint32_t max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge; };
struct ibv_cq_moderation_caps { uint16_t max_cq_count, max_cq_period; };
struct ibv_pci_atomic_caps { uint16_t fetch_add, swap, compare_swap; };
struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct ibv_odp_caps odp_caps;
	uint64_t completion_timestamp_mask, hca_core_clock, device_cap_flags_ex;
	struct ibv_tso_caps tso_caps;
	struct ibv_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct ibv_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct ibv_tm_caps tm_caps;
	struct ibv_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size;
	struct ibv_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps, phys_port_cnt_ex;
};
struct ibv_port_attr {
	enum ibv_port_state state;
	enum ibv_mtu max_mtu, active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width, active_speed, phys_state;
	uint8_t link_layer, flags;
	uint16_t port_cap_flags2;
};
struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		struct ibv_wq *wq;
		int port_num;
	} element;
	enum ibv_event_type event_type;
};
struct ibv_values_ex { uint32_t comp_mask; struct timespec raw_clock; };

// ---- memory

struct ibv_pd { struct ibv_context *context; uint32_t handle; };
struct ibv_td { struct ibv_context *context; };
struct ibv_td_init_attr { uint32_t comp_mask; };
struct ibv_parent_domain_init_attr {
	struct ibv_pd *pd;
	struct ibv_td *td;
	uint32_t comp_mask;
	void *unused_allocators[3];
};
struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};
struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	enum ibv_mw_type type;
};
struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr, length;
	unsigned int mw_access_flags;
};
struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned int send_flags;
	struct ibv_mw_bind_info bind_info;
};
struct ibv_dm {
	struct ibv_context *context;
	int (*memcpy_to_dm)(struct ibv_dm *, uint64_t offset, const void *, size_t);
	int (*memcpy_from_dm)(void *, struct ibv_dm *, uint64_t offset, size_t);
	uint32_t comp_mask, handle; // handle: from rdma-core 34 on
};
struct ibv_alloc_dm_attr { size_t length; uint32_t log_align_req, comp_mask; };

// ---- addresses

struct ibv_grh {
	uint32_t version_tclass_flow;
	uint16_t paylen;
	uint8_t next_hdr, hop_limit;
	union ibv_gid sgid, dgid;
};
struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};
struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};
struct ibv_ah { struct ibv_context *context; };

// ---- queues

struct ibv_comp_channel { struct ibv_context *context; int fd, refcnt; };
struct ibv_wc {
	uint64_t wr_id;
	enum ibv_wc_status status;
	enum ibv_wc_opcode opcode;
	uint32_t vendor_err, byte_len;
	union { uint32_t imm_data, invalidated_rkey; };
	uint32_t qp_num, src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};
struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};
struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask, flags;
	struct ibv_pd *parent_domain; // from rdma-core 29 on
};
struct ibv_poll_cq_attr { uint32_t comp_mask; };
struct ibv_wc_tm_info { uint64_t tag; uint32_t priv; };
struct ibv_cq_ex {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed, comp_mask;
	enum ibv_wc_status status;
	uint64_t wr_id;
	int (*start_poll)(struct ibv_cq_ex *, struct ibv_poll_cq_attr *);
	int (*next_poll)(struct ibv_cq_ex *);
	void (*end_poll)(struct ibv_cq_ex *);
	enum ibv_wc_opcode (*read_opcode)(struct ibv_cq_ex *);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *), (*read_byte_len)(struct ibv_cq_ex *);
	uint32_t (*read_imm_data)(struct ibv_cq_ex *), (*read_qp_num)(struct ibv_cq_ex *);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *);
	unsigned int (*read_wc_flags)(struct ibv_cq_ex *);
	uint32_t (*read_slid)(struct ibv_cq_ex *);
	uint8_t (*read_sl)(struct ibv_cq_ex *), (*read_dlid_path_bits)(struct ibv_cq_ex *);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *);
	void (*read_tm_info)(struct ibv_cq_ex *, struct ibv_wc_tm_info *);
	uint64_t (*read_completion_wallclock_ns)(struct ibv_cq_ex *);
};
struct ibv_modify_cq_attr {
	uint32_t attr_mask;
	struct ibv_moderate_cq { uint16_t cq_count, cq_period; } moderate;
};
struct ibv_srq { struct ibv_context *context; void *srq_context; };
struct ibv_srq_attr { uint32_t max_wr, max_sge, srq_limit; };
struct ibv_srq_init_attr { void *srq_context; struct ibv_srq_attr attr; };
struct ibv_srq_init_attr_ex {
	void *srq_context;
	struct ibv_srq_attr attr;
	uint32_t comp_mask;
	enum ibv_srq_type srq_type;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	uint32_t unused_tm_cap[2];
};
struct ibv_xrcd { struct ibv_context *context; };
struct ibv_xrcd_init_attr { uint32_t comp_mask; int fd, oflags; };
struct ibv_wq {
	struct ibv_context *context;
	void *wq_context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t wq_num, handle;
	enum ibv_wq_state state;
	enum ibv_wq_type wq_type;
	int (*post_recv)(struct ibv_wq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed, comp_mask;
};
struct ibv_wq_init_attr {
	void *wq_context;
	enum ibv_wq_type wq_type;
	uint32_t max_wr, max_sge;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	uint32_t comp_mask, create_flags;
};
struct ibv_wq_attr {
	uint32_t attr_mask;
	enum ibv_wq_state wq_state, curr_wq_state;
	uint32_t flags, flags_mask;
};
struct ibv_rwq_ind_table { struct ibv_context *context; int ind_tbl_handle, ind_tbl_num; uint32_t comp_mask; };
struct ibv_rwq_ind_table_init_attr {
	uint32_t log_ind_tbl_size;
	struct ibv_wq **ind_tbl;
	uint32_t comp_mask;
};
struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
	enum ibv_qp_state state;
	enum ibv_qp_type qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};
struct ibv_qp_cap { uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data; };
struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
};
struct ibv_rx_hash_conf {
	uint8_t rx_hash_function, rx_hash_key_len, *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};
struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	enum ibv_qp_type qp_type;
	int sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	struct ibv_rwq_ind_table *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};
struct ibv_qp_open_attr {
	uint32_t comp_mask, qp_num;
	struct ibv_xrcd *xrcd;
	void *qp_context;
	enum ibv_qp_type qp_type;
};
struct ibv_qp_attr {
	enum ibv_qp_state qp_state, cur_qp_state;
	enum ibv_mtu path_mtu;
	enum ibv_mig_state path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned int qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout;
	uint8_t retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};
struct ibv_qp_rate_limit_attr { uint32_t rate_limit, max_burst_sz; uint16_t typical_pkt_sz; uint32_t comp_mask; };
struct ibv_ece { uint32_t vendor_id, options, comp_mask; };

// ---- work requests

struct ibv_sge { uint64_t addr; uint32_t length, lkey; };
struct ibv_data_buf { void *addr; size_t length; };
struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
	enum ibv_wr_opcode opcode;
	unsigned int send_flags;
	union { uint32_t imm_data, invalidate_rkey; };
	union {
		struct { uint64_t remote_addr; uint32_t rkey; } rdma;
		struct { uint64_t remote_addr, compare_add, swap; uint32_t rkey; } atomic;
		struct { struct ibv_ah *ah; uint32_t remote_qpn, remote_qkey; } ud;
	} wr;
	union { struct { uint32_t remote_srqn; } xrc; } qp_type;
	union { struct { struct ibv_mw *mw; uint32_t rkey; struct ibv_mw_bind_info bind_info; } bind_mw; };
};
struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};
struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask, wr_id;
	unsigned int wr_flags;
	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, uint64_t add);
	void (*wr_bind_mw)(struct ibv_qp_ex *, struct ibv_mw *, uint32_t rkey, const struct ibv_mw_bind_info *);
	void (*wr_local_inv)(struct ibv_qp_ex *, uint32_t rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr);
	void (*wr_rdma_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, uint32_t imm);
	void (*wr_send)(struct ibv_qp_ex *);
	void (*wr_send_imm)(struct ibv_qp_ex *, uint32_t imm);
	void (*wr_send_inv)(struct ibv_qp_ex *, uint32_t rkey);
	void (*wr_send_tso)(struct ibv_qp_ex *, void *header, uint16_t length, uint16_t mss);
	void (*wr_set_ud_addr)(struct ibv_qp_ex *, struct ibv_ah *, uint32_t qpn, uint32_t qkey);
	void (*wr_set_xrc_srqn)(struct ibv_qp_ex *, uint32_t srqn);
	void (*wr_set_inline_data)(struct ibv_qp_ex *, void *, size_t length);
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *, size_t n, const struct ibv_data_buf *);
	void (*wr_set_sge)(struct ibv_qp_ex *, uint32_t lkey, uint64_t addr, uint32_t length);
	void (*wr_set_sge_list)(struct ibv_qp_ex *, size_t n, const struct ibv_sge *);
	void (*wr_start)(struct ibv_qp_ex *);
	int (*wr_complete)(struct ibv_qp_ex *);
	void (*wr_abort)(struct ibv_qp_ex *);
	void (*wr_atomic_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, const void *); // from 44 on
};

// ---- flows

#define FLOW_FILTER(name, ...) \
	struct ibv_flow_##name##_filter { __VA_ARGS__ }; \
	struct ibv_flow_spec_##name { \
		enum ibv_flow_spec_type type; \
		uint16_t size; \
		struct ibv_flow_##name##_filter val, mask; \
	}
FLOW_FILTER(eth, uint8_t dst_mac[6], src_mac[6]; uint16_t ether_type, vlan_tag;);
FLOW_FILTER(ipv4, uint32_t src_ip, dst_ip;);
FLOW_FILTER(ipv4_ext, uint32_t src_ip, dst_ip; uint8_t proto, tos, ttl, flags;);
FLOW_FILTER(ipv6, uint8_t src_ip[16], dst_ip[16]; uint32_t flow_label; uint8_t next_hdr, traffic_class, hop_limit;);
FLOW_FILTER(esp, uint32_t spi, seq;);
FLOW_FILTER(tcp_udp, uint16_t dst_port, src_port;);
FLOW_FILTER(gre, uint16_t c_ks_res0_ver, protocol; uint32_t key;);
FLOW_FILTER(mpls, uint32_t label;);
FLOW_FILTER(tunnel, uint32_t tunnel_id;);
#undef FLOW_FILTER
struct ibv_flow_spec_action_tag { enum ibv_flow_spec_type type; uint16_t size; uint32_t tag_id; };
struct ibv_flow_spec_action_drop { enum ibv_flow_spec_type type; uint16_t size; };
struct ibv_flow_spec_counter_action {
	enum ibv_flow_spec_type type;
	uint16_t size;
	struct ibv_counters *counters;
};
struct ibv_flow_attr {
	uint32_t comp_mask;
	enum ibv_flow_attr_type type;
	uint16_t size, priority;
	uint8_t num_of_specs, port;
	uint32_t flags;
};
struct ibv_flow { uint32_t comp_mask; struct ibv_context *context; };
struct ibv_counters { struct ibv_context *context; };
struct ibv_counters_init_attr { uint32_t comp_mask; };
struct ibv_counter_attach_attr { enum ibv_counter_description counter_desc; uint32_t index, comp_mask; };

// ---- a device's functions

struct ibv_context_ops {
	void *unused_1[7];
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, enum ibv_mw_type);
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	int (*dealloc_mw)(struct ibv_mw *);
	void *unused_2;
	int (*poll_cq)(struct ibv_cq *, int n, struct ibv_wc *);
	int (*req_notify_cq)(struct ibv_cq *, int solicited_only);
	void *unused_3[7];
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	void *unused_4[4];
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **bad);
	void *unused_5[5];
};
struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat; // all bits are 1 if the context is part of a struct verbs_context
};
struct verbs_context { // grows at its start; sz is its size in the library
	int (*query_port)(struct ibv_context *, uint8_t port, struct ibv_port_attr *, size_t);
	int (*advise_mr)(struct ibv_pd *, enum ib_uverbs_advise_mr_advice, uint32_t flags, struct ibv_sge *, uint32_t n);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *);
	int (*read_counters)(struct ibv_counters *, uint64_t *values, uint32_t n, uint32_t flags);
	int (*attach_counters_point_flow)(struct ibv_counters *, struct ibv_counter_attach_attr *, struct ibv_flow *);
	struct ibv_counters *(*create_counters)(struct ibv_context *, struct ibv_counters_init_attr *);
	int (*destroy_counters)(struct ibv_counters *);
	struct ibv_mr *(*reg_dm_mr)(struct ibv_pd *, struct ibv_dm *, uint64_t offset, size_t, unsigned int access);
	struct ibv_dm *(*alloc_dm)(struct ibv_context *, struct ibv_alloc_dm_attr *);
	int (*free_dm)(struct ibv_dm *);
	void *unused_1[3];
	int (*modify_qp_rate_limit)(struct ibv_qp *, struct ibv_qp_rate_limit_attr *);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *, struct ibv_parent_domain_init_attr *);
	int (*dealloc_td)(struct ibv_td *);
	struct ibv_td *(*alloc_td)(struct ibv_context *, struct ibv_td_init_attr *);
	int (*modify_cq)(struct ibv_cq *, struct ibv_modify_cq_attr *);
	void *unused_2;
	int (*destroy_rwq_ind_table)(struct ibv_rwq_ind_table *);
	struct ibv_rwq_ind_table *(*create_rwq_ind_table)(struct ibv_context *, struct ibv_rwq_ind_table_init_attr *);
	int (*destroy_wq)(struct ibv_wq *);
	int (*modify_wq)(struct ibv_wq *, struct ibv_wq_attr *);
	struct ibv_wq *(*create_wq)(struct ibv_context *, struct ibv_wq_init_attr *);
	int (*query_rt_values)(struct ibv_context *, struct ibv_values_ex *);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	void *unused_3;
	int (*query_device_ex)(struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *,
		size_t);
	int (*ibv_destroy_flow)(struct ibv_flow *);
	void *unused_4;
	struct ibv_flow *(*ibv_create_flow)(struct ibv_qp *, struct ibv_flow_attr *);
	void *unused_5;
	struct ibv_qp *(*open_qp)(struct ibv_context *, struct ibv_qp_open_attr *);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	int (*get_srq_num)(struct ibv_srq *, uint32_t *num);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *, struct ibv_srq_init_attr_ex *);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *, struct ibv_xrcd_init_attr *);
	int (*close_xrcd)(struct ibv_xrcd *);
	uint64_t unused_6;
	size_t sz;
	struct ibv_context context;
};

// ---- librdmacm

enum rdma_cm_event_type {
	RDMA_CM_EVENT_CONNECT_REQUEST = 4, RDMA_CM_EVENT_MULTICAST_JOIN = 12, RDMA_CM_EVENT_MULTICAST_ERROR = 13,
};
enum rdma_port_space { RDMA_PS_TCP = 0x106 };
enum rdma_cm_join_mc_attr_mask { RDMA_CM_JOIN_MC_ATTR_ADDRESS = 1, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS = 2 };
enum rdma_cm_mc_join_flags { RDMA_MC_JOIN_FLAG_FULLMEMBER };
enum { RDMA_OPTION_ID }; // the level of the options below
enum {
	RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_ACK_TIMEOUT,
};
struct rdma_event_channel { int fd; };
struct rdma_addr {
	union { struct sockaddr src_addr; struct sockaddr_storage src_storage; };
	union { struct sockaddr dst_addr; struct sockaddr_storage dst_storage; };
	struct { union ibv_gid sgid, dgid; uint16_t pkey; } unused_ib;
};
struct rdma_route { struct rdma_addr addr; void *unused_path_rec; int num_paths; };
struct rdma_cm_id {
	struct ibv_context *verbs;
	struct rdma_event_channel *channel;
	void *context;
	struct ibv_qp *qp;
	struct rdma_route route;
	enum rdma_port_space ps;
	uint8_t port_num;
	void *unused_event;
	struct ibv_comp_channel *send_cq_channel;
	struct ibv_cq *send_cq;
	struct ibv_comp_channel *recv_cq_channel;
	struct ibv_cq *recv_cq;
	struct ibv_srq *srq;
	struct ibv_pd *pd;
	enum ibv_qp_type qp_type;
};
struct rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len, responder_resources, initiator_depth, flow_control, retry_count, rnr_retry_count, srq;
	uint32_t qp_num;
};
struct rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct ibv_ah_attr ah_attr;
	uint32_t qp_num, qkey;
};
struct rdma_cm_event {
	struct rdma_cm_id *id, *listen_id;
	enum rdma_cm_event_type event;
	int status;
	union { struct rdma_conn_param conn; struct rdma_ud_param ud; } param;
};
struct rdma_addrinfo {
	int ai_flags, ai_family, ai_qp_type, ai_port_space;
	socklen_t ai_src_len, ai_dst_len;
	struct sockaddr *ai_src_addr, *ai_dst_addr;
	char *ai_src_canonname, *ai_dst_canonname;
	size_t ai_route_len;
	void *ai_route;
	size_t ai_connect_len;
	void *ai_connect;
	struct rdma_addrinfo *ai_next;
};
struct rdma_cm_join_mc_attr_ex { uint32_t comp_mask, join_flags; struct sockaddr *addr; };

#endif
