//go:build linux && cgo

// Extended completion queues, whose completions are read with one function for each field. This
// file reads a whole batch of completions in one crossing from Go into C. It also contains the
// calls of thread domains.

#include "datapath.h"
#include <arpa/inet.h>
#include <string.h>

_Static_assert(sizeof(struct cv_wc_ex) == 88, "WCEx");
_Static_assert(offsetof(struct cv_wc_ex, timestamp) == 48, "WCEx.Timestamp");
_Static_assert(offsetof(struct cv_wc_ex, tm_priv) == 72, "WCEx.TMPriv");
_Static_assert(offsetof(struct cv_wc_ex, cvlan) == 80, "WCEx.CVLAN");

enum {
	MOST_BUSY = 1 << 16, // limit of polls that fail with EBUSY while the device updates its clock
};

struct ibv_cq *cv_create_cq_ex(struct ibv_context *ctx, int depth, uintptr_t handle, struct ibv_comp_channel *ch,
	int vector, const struct cv_cq_init *init)
{
	struct ibv_cq_init_attr_ex a = { .cqe = (uint32_t)depth, .cq_context = (void *)handle, .channel = ch,
		.comp_vector = (uint32_t)vector, .wc_flags = init->fields, .flags = init->flags,
		.parent_domain = init->domain };

	if (init->flags)
		a.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
	if (init->domain)
		a.comp_mask |= IBV_CQ_INIT_ATTR_MASK_PD;
	return (struct ibv_cq *)ibv_create_cq_ex(ctx, &a); // both structs begin with the same fields
}

// Reads the fields of struct ibv_wc.
static void read_wc(struct ibv_cq_ex *x, struct ibv_wc *w, uint32_t how)
{
	memset(w, 0, sizeof(*w));
	w->wr_id = x->wr_id;
	w->status = x->status;
	if (how & IBV_WC_EX_WITH_QP_NUM)
		w->qp_num = x->read_qp_num(x);
	if (w->status != IBV_WC_SUCCESS) {
		w->vendor_err = x->read_vendor_err(x);
		return;
	}
	w->opcode = x->read_opcode(x);
	if (!(w->opcode & IBV_WC_RECV))
		return; // no other field is defined
	w->wc_flags = true_flags(x->read_wc_flags(x), how);
	if (how & IBV_WC_EX_WITH_BYTE_LEN)
		w->byte_len = x->read_byte_len(x);
	if (how & IBV_WC_EX_WITH_IMM && w->wc_flags & IBV_WC_WITH_INV)
		w->invalidated_rkey = x->read_imm_data(x);
	else if (how & IBV_WC_EX_WITH_IMM && w->wc_flags & IBV_WC_WITH_IMM)
		w->imm_data = ntohl(x->read_imm_data(x));
	if (how & IBV_WC_EX_WITH_SRC_QP)
		w->src_qp = x->read_src_qp(x);
	if (how & IBV_WC_EX_WITH_SLID)
		w->slid = (uint16_t)x->read_slid(x);
	if (how & IBV_WC_EX_WITH_SL)
		w->sl = x->read_sl(x);
	if (how & IBV_WC_EX_WITH_DLID_PATH_BITS)
		w->dlid_path_bits = x->read_dlid_path_bits(x);
}

// Reads the fields of struct cv_wc_ex that struct ibv_wc lacks.
static void read_more(struct ibv_cq_ex *x, struct cv_wc_ex *w, uint32_t how)
{
	struct ibv_wc_tm_info tm = { 0, 0 };

	memset((char *)w + sizeof(w->wc), 0, sizeof(*w) - sizeof(w->wc));
	if (x->status != IBV_WC_SUCCESS)
		return;
	if (how & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		w->timestamp = x->read_completion_ts(x);
	if (how & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
		w->wall_clock = x->read_completion_wallclock_ns(x);
	if (!(w->wc.opcode & IBV_WC_RECV))
		return;
	if (how & IBV_WC_EX_WITH_FLOW_TAG)
		w->flow_tag = x->read_flow_tag(x);
	if (how & IBV_WC_EX_WITH_CVLAN)
		w->cvlan = x->read_cvlan(x);
	if (how & IBV_WC_EX_WITH_TM_INFO) {
		x->read_tm_info(x, &tm);
		w->tm_tag = tm.tag;
		w->tm_priv = tm.priv;
	}
}

// Takes up to n completions. Returns their number, or -errno if it took none because of an error.
static int take(struct ibv_cq_ex *x, char *wc, uint32_t size, uint32_t n, uint32_t how)
{
	uint32_t got = 0, busy = 0;
	int rc;

	do {
		struct ibv_poll_cq_attr attr = { 0 };

		rc = positive(x->start_poll(x, &attr));
		if (rc == EBUSY && ++busy < MOST_BUSY)
			continue;
		if (rc)
			break;
		do {
			read_wc(x, (struct ibv_wc *)wc, how);
			if (size > sizeof(struct ibv_wc))
				read_more(x, (struct cv_wc_ex *)wc, how);
			wc += size;
			got++;
			// On rxe this loop reads one completion only. If there is no further completion, rxe's
			// ibv_next_poll before rdma-core 59 leaves the queue unlocked, and the index of the queue wrong.
		} while (got < n && !(how & CV_RXE) && !(rc = positive(x->next_poll(x))));
		x->end_poll(x);
	} while (got < n && rc != ENOENT);
	return got || rc == ENOENT ? (int)got : -rc;
}

int cv_poll_cq_ex(const uintptr_t *gate, void *wc, uint32_t size, uint32_t n, uint32_t polls, uint32_t how)
{
	struct ibv_cq_ex *x = cv_enter(gate); // the gate holds the ibv_cq, which has the same address
	int k, yield;

	if (!x)
		return CV_CLOSED;
	yield = yield_after(polls);
	do
		k = take(x, wc, size, n, how);
	while (!k && --polls);
	cv_leave();
	return k < 0 ? k : k | yield;
}

int cv_clock(struct ibv_context *ctx, uint64_t *ticks)
{
	struct ibv_values_ex v = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	int rc = positive(ibv_query_rt_values_ex(ctx, &v));

	if (!rc && !(v.comp_mask & IBV_VALUES_MASK_RAW_CLOCK))
		rc = EOPNOTSUPP;
	*ticks = (uint64_t)v.raw_clock.tv_sec * 1000000000 + (uint64_t)v.raw_clock.tv_nsec;
	return rc;
}

// ---- thread domains

struct ibv_td *cv_alloc_td(struct ibv_context *ctx)
{
	struct ibv_td_init_attr attr = { 0 };

	return ibv_alloc_td(ctx, &attr);
}

int cv_dealloc_td(struct ibv_td *td)
{
	return positive(ibv_dealloc_td(td));
}

struct ibv_pd *cv_alloc_parent_domain(struct ibv_pd *pd, struct ibv_td *td)
{
	struct ibv_parent_domain_init_attr attr = { .pd = pd, .td = td };

	return ibv_alloc_parent_domain(pd->context, &attr);
}
