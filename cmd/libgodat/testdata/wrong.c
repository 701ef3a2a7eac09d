// Calls a DAT 2.0 provider with wrong arguments through libdat2, each in a process of its own.
//
//   cc -o wrong wrong.c -ldat2
//   wrong IA         runs all cases; prints a line for each answer that is not the wanted one
//   wrong IA NAME    runs one case, and prints its DAT_RETURN
//
// A call must return a code of the wanted type, and of the wanted subtype if the case names one. It
// must neither end the program nor block.

#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dat2/udat.h>
#include <dat2/dat_ib_extensions.h>

#define PATIENCE (60 * 1000000)
enum { QUAL = 15450, SIZE = 65536, LIMIT = 120 }; // LIMIT: seconds that a case may take

// What a case may want instead of a type.
enum { ERROR = -1, ANY = -2 };

static DAT_IA_HANDLE ia, ia2;
static DAT_EVD_HANDLE async, recv_evd, request_evd, conn_evd, cr_evd, soft_evd, evd;
static DAT_PZ_HANDLE pz, pz2;
static DAT_EP_HANDLE ep, peer, ep2;
static DAT_LMR_HANDLE lmr, lmr2;
static DAT_LMR_CONTEXT lkey, lkey2;
static DAT_RMR_CONTEXT rkey, rkey2;
static DAT_RMR_HANDLE rmr;
static DAT_SRQ_HANDLE srq;
static DAT_CNO_HANDLE cno;
static DAT_PSP_HANDLE psp;
static DAT_RSP_HANDLE rsp;
static DAT_IA_ATTR attr;
static DAT_CONN_QUAL qual;
static DAT_VLEN size;
static DAT_VADDR address;
static DAT_EVENT ev;
static DAT_COUNT more;
static DAT_DTO_COOKIE cookie;
static DAT_RMR_COOKIE rmr_cookie;
static DAT_SRQ_ATTR srq_attr = {.max_recv_dtos = 8, .max_recv_iov = 1, .low_watermark = DAT_SRQ_LW_DEFAULT};
static DAT_CONTEXT context;
static DAT_HANDLE_TYPE type;
static DAT_EP_PARAM ep_param;
static DAT_EVD_PARAM evd_param;
static DAT_CR_PARAM cr_param;
static char *name, memory[SIZE];
static int garbage[256]; // what a forged handle points to

static void *const nowhere = (void *)(uintptr_t)5;

static void must(DAT_RETURN r, const char *what)
{
	if (r == DAT_SUCCESS)
		return;
	printf("0x%08x from %s, before the case\n", r, what);
	exit(3);
}
#define MUST(call) must(call, #call)

static void open_ia(void)
{
	DAT_REGION_DESCRIPTION region = {.for_va = memory};

	MUST(dat_ia_open(name, 8, &async, &ia));
	MUST(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	MUST(dat_pz_create(ia, &pz));
	MUST(dat_evd_create(ia, 64, NULL, DAT_EVD_DTO_FLAG, &recv_evd));
	MUST(dat_evd_create(ia, 64, NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &request_evd));
	MUST(dat_evd_create(ia, 8, NULL, DAT_EVD_CONNECTION_FLAG, &conn_evd));
	MUST(dat_evd_create(ia, 8, NULL, DAT_EVD_CR_FLAG, &cr_evd));
	MUST(dat_evd_create(ia, 8, NULL, DAT_EVD_SOFTWARE_FLAG, &soft_evd));
	MUST(dat_ep_create(ia, pz, recv_evd, request_evd, conn_evd, NULL, &ep));
	MUST(dat_ep_create(ia, pz, recv_evd, request_evd, conn_evd, NULL, &peer));
	MUST(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &lkey,
			    &rkey, &size, &address));
}

static DAT_CR_HANDLE request(void)
{
	MUST(dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	MUST(dat_ep_connect(ep, attr.ia_address_ptr, QUAL, PATIENCE, 4, "abcd", DAT_QOS_BEST_EFFORT, 0));
	MUST(dat_evd_wait(cr_evd, PATIENCE, 1, &ev, &more));
	return ev.event_data.cr_arrival_event_data.cr_handle;
}

static DAT_CR_HANDLE connected(void)
{
	DAT_CR_HANDLE cr = request();

	MUST(dat_cr_accept(cr, peer, 0, NULL));
	MUST(dat_evd_wait(conn_evd, PATIENCE, 1, &ev, &more));
	MUST(dat_evd_wait(conn_evd, PATIENCE, 1, &ev, &more));
	return cr;
}

static DAT_LMR_TRIPLET *local(int64_t offset, int n)
{
	static DAT_LMR_TRIPLET l[512];

	l[0] = (DAT_LMR_TRIPLET){(uintptr_t)memory + offset, n, lkey};
	for (int i = 1; i < 512; i++)
		l[i] = l[0];
	return l;
}

static DAT_RMR_TRIPLET *remote(int n)
{
	static DAT_RMR_TRIPLET r;

	r = (DAT_RMR_TRIPLET){(uintptr_t)memory + SIZE / 2, n, rkey};
	return &r;
}

static DAT_RETURN new_lmr(DAT_MEM_TYPE kind, void *at, DAT_VLEN n, DAT_LMR_HANDLE *out)
{
	DAT_REGION_DESCRIPTION region = {.for_va = at};

	return dat_lmr_create(ia, kind, region, n, pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, out, &lkey2, &rkey2, &size,
			      &address);
}

static DAT_RETURN new_ep(int recv_flags, int request_flags, DAT_COUNT dtos)
{
	DAT_EP_ATTR a;

	memset(&a, 0, sizeof a);
	a.max_recv_dtos = a.max_request_dtos = dtos;
	a.max_recv_iov = a.max_request_iov = 1;
	a.recv_completion_flags = recv_flags;
	a.request_completion_flags = request_flags;
	return dat_ep_create(ia, pz, recv_evd, recv_evd, conn_evd, &a, &ep2);
}

static DAT_RETURN odd_ep(void)
{
	DAT_EP_ATTR a;

	memset(&a, 0xff, sizeof a);
	a.ep_transport_specific_count = a.ep_provider_specific_count = 0;
	return dat_ep_create(ia, pz, recv_evd, request_evd, conn_evd, &a, &ep2);
}

static void *copied(DAT_HANDLE h)
{
	memcpy(garbage, h, 256);
	return garbage;
}

static DAT_RETURN filled(DAT_RETURN (*post)(void))
{
	DAT_RETURN ret = DAT_SUCCESS;

	for (int i = 0; i < 100000 && ret == DAT_SUCCESS; i++)
		ret = post();
	return ret;
}

static DAT_RETURN post_se(void)
{
	ev.event_number = DAT_SOFTWARE_EVENT;
	return dat_evd_post_se(soft_evd, &ev);
}

static DAT_RETURN post_recv(void) { return dat_ep_post_recv(ep, 1, local(0, 8), cookie, 0); }

static void *unmapped(void)
{
	void *p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	munmap(p, 4096);
	return p;
}

static DAT_RETURN close_ia(void) { return dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG); }

static struct {
	const char *name;
	int want;
} cases[400];
static int n_cases;
static const char *chosen; // NULL: record the names of the cases, run none
static DAT_RETURN answer;

// CASE(name, wanted type, which may include a subtype, call, statements before the call...)
#define CASE(label, type, call, ...)                                                                            \
	do {                                                                                                    \
		if (!chosen) {                                                                                  \
			cases[n_cases].name = label;                                                            \
			cases[n_cases++].want = type;                                                           \
		} else if (!strcmp(chosen, label)) {                                                            \
			__VA_ARGS__;                                                                            \
			answer = call;                                                                          \
			return;                                                                                 \
		}                                                                                               \
	} while (0)

static void cases_of_ia(void)
{
	DAT_EVD_HANDLE bad = nowhere;

	CASE("open: null async", DAT_INVALID_PARAMETER, dat_ia_open(name, 8, NULL, &ia));
	CASE("open: no events", DAT_INVALID_PARAMETER, dat_ia_open(name, 0, &async, &ia2), async = NULL);
	CASE("open: negative events", DAT_INVALID_PARAMETER, dat_ia_open(name, -5, &async, &ia2), async = NULL);
	CASE("open: many events", ANY, dat_ia_open(name, 0x7fffffff, &async, &ia2), async = NULL);
	CASE("open: unknown name", DAT_PROVIDER_NOT_FOUND, dat_ia_open("nobody", 8, &async, &ia2));
	CASE("open: garbage async", DAT_INVALID_HANDLE, dat_ia_open(name, 8, &bad, &ia2));
	CASE("open: a zone as async", DAT_INVALID_HANDLE, dat_ia_open(name, 8, (DAT_EVD_HANDLE *)&pz, &ia2));
	CASE("close: null", DAT_INVALID_HANDLE, dat_ia_close(NULL, DAT_CLOSE_ABRUPT_FLAG));
	CASE("close: flags", DAT_INVALID_PARAMETER, dat_ia_close(ia, 77));
	CASE("close: in use", DAT_INVALID_STATE, dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG));
	CASE("close: twice", DAT_INVALID_HANDLE, close_ia(), MUST(close_ia()));
	CASE("query: nothing", DAT_SUCCESS, dat_ia_query(ia, NULL, 0, NULL, 0, NULL));
	CASE("query: null", DAT_INVALID_PARAMETER | DAT_INVALID_ARG4,
	     dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, NULL, 0, NULL));
	CASE("query: mask", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_ia_query(ia, NULL, ~0ull, &attr, 0, NULL));
	CASE("query: provider's mask", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_ia_query(ia, NULL, 0, NULL, ~0ull, NULL));
	CASE("query: provider's null", DAT_INVALID_PARAMETER | DAT_INVALID_ARG6,
	     dat_ia_query(ia, NULL, 0, NULL, DAT_PROVIDER_FIELD_ALL, NULL));
	CASE("closed: pz_create", DAT_INVALID_HANDLE, dat_pz_create(ia, &pz2), MUST(close_ia()));
	CASE("closed: pz_free", DAT_INVALID_HANDLE, dat_pz_free(pz), MUST(close_ia()));
	CASE("closed: ep_free", DAT_INVALID_HANDLE, dat_ep_free(ep), MUST(close_ia()));
	CASE("closed: evd_wait", DAT_INVALID_HANDLE, dat_evd_wait(recv_evd, 1000, 1, &ev, &more), MUST(close_ia()));
	CASE("closed: evd_dequeue", DAT_INVALID_HANDLE, dat_evd_dequeue(recv_evd, &ev), MUST(close_ia()));
	CASE("closed: post_send", DAT_INVALID_HANDLE,
	     dat_ep_post_send(ep, 1, local(0, 8), cookie, 0), MUST(close_ia()));
	CASE("closed: lmr_free", DAT_INVALID_HANDLE, dat_lmr_free(lmr), MUST(close_ia()));
	CASE("closed: context", DAT_INVALID_HANDLE, dat_get_consumer_context(ep, &context), MUST(close_ia()));
	CASE("closed: again", DAT_SUCCESS, dat_ia_open(name, 8, &async, &ia), MUST(close_ia()), async = NULL);
}

static void cases_of_handles(void)
{
	CASE("ia: garbage", DAT_INVALID_HANDLE, dat_pz_create((DAT_IA_HANDLE)(uintptr_t)99, &pz2));
	CASE("ia: a zone", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_IA, dat_pz_create((DAT_IA_HANDLE)pz, &pz2));
	CASE("ia: of a query", DAT_SUCCESS, dat_pz_create(ep_param.ia_handle, &pz2),
	     MUST(dat_ep_query(ep, DAT_EP_FIELD_ALL, &ep_param)));
	CASE("ia: of a dispatcher", DAT_SUCCESS, dat_pz_create(evd_param.ia_handle, &pz2),
	     MUST(dat_evd_query(soft_evd, DAT_EVD_FIELD_ALL, &evd_param)));
	CASE("forged: copy", DAT_INVALID_HANDLE, dat_ep_free(copied(ep)));
	CASE("forged: copied context", DAT_INVALID_HANDLE, dat_get_consumer_context(copied(ep), &context));
	CASE("forged: other bytes", DAT_INVALID_HANDLE, dat_ep_free(garbage), copied(ep),
	     memset((char *)garbage + 8, 0xff, sizeof garbage - 8));
	CASE("garbage: pz of ep", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_PZ,
	     dat_ep_create(ia, nowhere, recv_evd, request_evd, conn_evd, NULL, &ep2));
	CASE("garbage: recv of ep", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EVD_RECV,
	     dat_ep_create(ia, pz, nowhere, request_evd, conn_evd, NULL, &ep2));
	CASE("garbage: connect of ep", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EVD_CONN,
	     dat_ep_create(ia, pz, recv_evd, request_evd, nowhere, NULL, &ep2));
	CASE("garbage: cno of evd", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CNO,
	     dat_evd_create(ia, 8, nowhere, DAT_EVD_DTO_FLAG, &evd));
	CASE("garbage: cno of modify", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CNO,
	     dat_evd_modify_cno(soft_evd, nowhere));
	CASE("garbage: evd of psp", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EVD_CR,
	     dat_psp_create(ia, QUAL, nowhere, DAT_PSP_CONSUMER_FLAG, &psp));
	CASE("garbage: ep of rsp", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP,
	     dat_rsp_create(ia, QUAL, nowhere, cr_evd, &rsp));
	CASE("garbage: ep of accept", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP,
	     dat_cr_accept(ev.event_data.cr_arrival_event_data.cr_handle, nowhere, 0, NULL), request());
	CASE("garbage: dup", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP,
	     dat_ep_dup_connect(ep, nowhere, 1000, 0, NULL, 0));
	CASE("garbage: pz of srq", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_PZ,
	     dat_srq_create(ia, nowhere, &srq_attr, &srq));
	CASE("garbage: srq of ep", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_SRQ,
	     dat_ep_create_with_srq(ia, pz, recv_evd, request_evd, conn_evd, nowhere, NULL, &ep2));
	CASE("garbage: region", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_LMR,
	     new_lmr(DAT_MEM_TYPE_LMR, nowhere, 64, &lmr2));
	CASE("garbage: odd address", DAT_INVALID_HANDLE, dat_evd_modify_cno(soft_evd, (char *)soft_evd + 1));
	CASE("context: null", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_get_consumer_context(ep, NULL));
	CASE("context: null handle", DAT_INVALID_HANDLE, dat_get_consumer_context(NULL, &context));
	CASE("context: of the adapter", DAT_SUCCESS, dat_get_consumer_context(ia, &context),
	     MUST(dat_set_consumer_context(ia, context)));
	CASE("type: null", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_get_handle_type(ep, NULL));
	CASE("type: of the adapter", DAT_SUCCESS, dat_get_handle_type(ia, &type));
}

static void cases_of_outputs(void)
{
	CASE("null: pz", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_pz_create(ia, NULL));
	CASE("null: evd", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_evd_create(ia, 8, NULL, DAT_EVD_DTO_FLAG, NULL));
	CASE("null: cno", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, NULL));
	CASE("null: ep", DAT_INVALID_PARAMETER | DAT_INVALID_ARG7,
	     dat_ep_create(ia, pz, recv_evd, request_evd, conn_evd, NULL, NULL));
	CASE("null: ep with srq", ERROR,
	     dat_ep_create_with_srq(ia, pz, recv_evd, request_evd, conn_evd, srq, NULL, NULL),
	     dat_srq_create(ia, pz, &srq_attr, &srq));
	CASE("null: lmr", DAT_INVALID_PARAMETER | DAT_INVALID_ARG8, new_lmr(DAT_MEM_TYPE_VIRTUAL, memory, 64, NULL));
	CASE("null: lmr, contexts", DAT_SUCCESS,
	     dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, (DAT_REGION_DESCRIPTION){.for_va = memory}, 64, pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr2, NULL, NULL, NULL, NULL));
	CASE("null: rmr", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_rmr_create(pz, NULL));
	CASE("null: srq", DAT_INVALID_PARAMETER | DAT_INVALID_ARG4, dat_srq_create(ia, pz, &srq_attr, NULL));
	CASE("null: srq attributes", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_srq_create(ia, pz, NULL, &srq));
	CASE("null: psp", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, NULL));
	CASE("null: psp, then again", DAT_SUCCESS, dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp),
	     dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, NULL));
	CASE("null: any psp", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_psp_create_any(ia, &qual, cr_evd, DAT_PSP_CONSUMER_FLAG, NULL));
	CASE("null: any qualifier", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2,
	     dat_psp_create_any(ia, NULL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	CASE("null: rsp", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5, dat_rsp_create(ia, QUAL, ep, cr_evd, NULL));
	CASE("null: rsp, then again", DAT_SUCCESS, dat_rsp_create(ia, QUAL, ep, cr_evd, &rsp),
	     dat_rsp_create(ia, QUAL, ep, cr_evd, NULL));
	CASE("null: event of wait", DAT_INVALID_PARAMETER | DAT_INVALID_ARG4,
	     dat_evd_wait(soft_evd, 1000, 1, NULL, &more));
	CASE("null: count of wait", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_evd_wait(soft_evd, 1000, 1, &ev, NULL));
	CASE("null: event", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_evd_dequeue(soft_evd, NULL));
	CASE("null: software event", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_evd_post_se(soft_evd, NULL));
	CASE("null: evd of cno", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_cno_wait(cno, 1000, NULL),
	     MUST(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno)));
	CASE("null: pz_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_pz_query(pz, DAT_PZ_FIELD_ALL, NULL));
	CASE("null: evd_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_evd_query(soft_evd, DAT_EVD_FIELD_ALL, NULL));
	CASE("null: cno_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_cno_query(cno, DAT_CNO_FIELD_ALL, NULL),
	     MUST(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno)));
	CASE("null: ep_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_ep_query(ep, DAT_EP_FIELD_ALL, NULL));
	CASE("null: ep_modify", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_ep_modify(ep, DAT_EP_FIELD_EP_ATTR_ALL, NULL));
	CASE("null: lmr_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, NULL));
	CASE("null: lmr_sync", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_lmr_sync_rdma_read(ia, NULL, 3));
	CASE("null: psp_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_psp_query(psp, DAT_PSP_FIELD_ALL, NULL),
	     MUST(dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp)));
	CASE("null: rsp_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3, dat_rsp_query(rsp, DAT_RSP_FIELD_ALL, NULL),
	     MUST(dat_rsp_create(ia, QUAL, ep, cr_evd, &rsp)));
	CASE("null: cr_query", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_cr_query(ev.event_data.cr_arrival_event_data.cr_handle, DAT_CR_FIELD_ALL, NULL), request());
	CASE("null: ep_get_status", DAT_SUCCESS, dat_ep_get_status(ep, NULL, NULL, NULL));
	CASE("null: ep_recv_query", ANY, dat_ep_recv_query(ep, NULL, NULL));
}

static void cases_of_dispatchers(void)
{
	CASE("pz: free null", DAT_INVALID_HANDLE, dat_pz_free(NULL));
	CASE("pz: free twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_PZ,
	     dat_pz_free(pz2), MUST(dat_pz_create(ia, &pz2)), MUST(dat_pz_free(pz2)));
	CASE("pz: in use", DAT_INVALID_STATE, dat_pz_free(pz));
	CASE("evd: no events", DAT_INVALID_PARAMETER, dat_evd_create(ia, 0, NULL, DAT_EVD_DTO_FLAG, &evd));
	CASE("evd: negative", DAT_INVALID_PARAMETER, dat_evd_create(ia, -1, NULL, DAT_EVD_DTO_FLAG, &evd));
	CASE("evd: huge", ERROR, dat_evd_create(ia, 0x7fffffff, NULL, DAT_EVD_DTO_FLAG, &evd));
	CASE("evd: no stream", DAT_INVALID_PARAMETER | DAT_INVALID_ARG4, dat_evd_create(ia, 8, NULL, 0, &evd));
	CASE("evd: unknown stream", DAT_INVALID_PARAMETER, dat_evd_create(ia, 8, NULL, 0x4000, &evd));
	CASE("evd: free twice", DAT_INVALID_HANDLE, dat_evd_free(soft_evd), MUST(dat_evd_free(soft_evd)));
	CASE("evd: in use", DAT_INVALID_STATE, dat_evd_free(recv_evd));
	CASE("evd: threshold 0", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_evd_wait(soft_evd, 1000, 0, &ev, &more));
	CASE("evd: threshold -3", DAT_INVALID_PARAMETER | DAT_INVALID_ARG3,
	     dat_evd_wait(soft_evd, 1000, -3, &ev, &more));
	CASE("evd: large threshold", DAT_INVALID_PARAMETER, dat_evd_wait(soft_evd, 1000, 100000, &ev, &more));
	CASE("evd: an endpoint", DAT_INVALID_HANDLE, dat_evd_wait((DAT_EVD_HANDLE)ep, 1000, 1, &ev, &more));
	CASE("evd: resize to 0", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_evd_resize(soft_evd, 0));
	CASE("evd: full", DAT_QUEUE_FULL, filled(post_se));
	CASE("evd: unwaitable", DAT_INVALID_STATE, dat_evd_wait(soft_evd, 1000, 1, &ev, &more),
	     MUST(dat_evd_set_unwaitable(soft_evd)));
	CASE("cno: in use", DAT_INVALID_STATE, dat_cno_free(cno),
	     MUST(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno)), MUST(dat_evd_modify_cno(soft_evd, cno)));
	CASE("psp: in use", DAT_CONN_QUAL_IN_USE, dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp),
	     MUST(dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp)));
	CASE("psp: flags", DAT_INVALID_PARAMETER, dat_psp_create(ia, QUAL, cr_evd, 9, &psp));
	CASE("psp: other stream", ERROR, dat_psp_create(ia, QUAL, recv_evd, DAT_PSP_CONSUMER_FLAG, &psp));
	CASE("psp: free twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_PSP, dat_psp_free(psp),
	     MUST(dat_psp_create(ia, QUAL, cr_evd, DAT_PSP_CONSUMER_FLAG, &psp)), MUST(dat_psp_free(psp)));
	CASE("rsp: free twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_RSP,
	     dat_rsp_free(rsp), MUST(dat_rsp_create(ia, QUAL, ep, cr_evd, &rsp)),
	     MUST(dat_rsp_free(rsp)));
}

static void cases_of_endpoints(void)
{
	DAT_CR_HANDLE cr;
	struct sockaddr odd = {.sa_family = 77};

	CASE("ep: other stream", ERROR, dat_ep_create(ia, pz, conn_evd, request_evd, conn_evd, NULL, &ep2));
	CASE("ep: odd attributes", ERROR, odd_ep());
	CASE("ep: many DTOs", ERROR, new_ep(0, 0, 0x7fffffff));
	CASE("ep: receives are suppressed", DAT_INVALID_PARAMETER, new_ep(DAT_COMPLETION_SUPPRESS_FLAG, 0, 8));
	CASE("ep: mask", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, dat_ep_query(ep, ~0ull, &ep_param));
	CASE("ep: free twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_EP, dat_ep_free(ep), MUST(dat_ep_free(ep)));
	CASE("connect: null", ERROR, dat_ep_connect(ep, NULL, 1, 1000, 0, NULL, 0, 0));
	CASE("connect: family", ERROR, dat_ep_connect(ep, &odd, 1, 1000, 0, NULL, 0, 0));
	CASE("connect: negative size", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, -1, memory, 0, 0));
	CASE("connect: no data", DAT_INVALID_PARAMETER | DAT_INVALID_ARG5,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 10, NULL, 0, 0));
	CASE("connect: much data", DAT_INVALID_PARAMETER,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 60000, memory, 0, 0));
	CASE("connect: service", ERROR, dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 0, NULL, 0x4444, 0));
	CASE("connect: flags", DAT_INVALID_PARAMETER | DAT_INVALID_ARG8,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 0, NULL, 0, 4));
	CASE("connect: multipath", DAT_MODEL_NOT_SUPPORTED,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 0, NULL, 0, DAT_CONNECT_MULTIPATH_REQUESTED_FLAG));
	CASE("connect: multipath required", DAT_MODEL_NOT_SUPPORTED,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 0, NULL, 0, DAT_CONNECT_MULTIPATH_REQUIRED_FLAG));
	CASE("connect: multipath, both flags", DAT_MODEL_NOT_SUPPORTED,
	     dat_ep_connect(ep, attr.ia_address_ptr, QUAL, 1000, 0, NULL, 0, 3));
	CASE("disconnect: early", ERROR, dat_ep_disconnect(ep, DAT_CLOSE_ABRUPT_FLAG));
	CASE("disconnect: flags", DAT_INVALID_PARAMETER, dat_ep_disconnect(ep, 99), connected());
	CASE("reset: connected", DAT_INVALID_STATE, dat_ep_reset(ep), connected());
	CASE("free: connected", DAT_SUCCESS, dat_ep_free(ep), connected());
	CASE("dup: unconnected", DAT_INVALID_STATE, dat_ep_dup_connect(ep, peer, 1000, 0, NULL, 0));
	CASE("accept: no endpoint", ERROR, dat_cr_accept(cr, NULL, 0, NULL), cr = request());
	CASE("accept: its own endpoint", ERROR, dat_cr_accept(cr, ep, 0, NULL), cr = request());
	CASE("accept: twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CR,
	     dat_cr_accept(cr, peer, 0, NULL), cr = connected());
	CASE("accept: much data", DAT_INVALID_PARAMETER, dat_cr_accept(cr, peer, 60000, memory), cr = request());
	CASE("reject: negative size", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2,
	     dat_cr_reject(cr, -4, memory), cr = request());
	CASE("reject: twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_CR, dat_cr_reject(cr, 0, NULL), cr = request(),
	     MUST(dat_cr_reject(cr, 0, NULL)));
	CASE("request: an endpoint", DAT_INVALID_HANDLE,
	     dat_cr_query((DAT_CR_HANDLE)ep, DAT_CR_FIELD_ALL, &cr_param));
}

static void cases_of_posts(void)
{
	CASE("send: unconnected", DAT_INVALID_STATE, dat_ep_post_send(ep, 1, local(0, 8), cookie, 0));
	CASE("send: null", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2,
	     dat_ep_post_send(ep, 1, NULL, cookie, 0), connected());
	CASE("send: negative", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2,
	     dat_ep_post_send(ep, -1, local(0, 8), cookie, 0), connected());
	CASE("send: many", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2,
	     dat_ep_post_send(ep, 500, local(0, 8), cookie, 0), connected());
	CASE("send: very many", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2,
	     dat_ep_post_send(ep, 0x7fffffff, local(0, 8), cookie, 0), connected());
	CASE("send: nothing", DAT_SUCCESS, dat_ep_post_send(ep, 0, NULL, cookie, 0), connected());
	CASE("send: flags", DAT_INVALID_PARAMETER, dat_ep_post_send(ep, 1, local(0, 8), cookie, 0x8000), connected());
	CASE("send: beyond", ERROR, dat_ep_post_send(ep, 1, local(SIZE - 8, 100), cookie, 0), connected());
	CASE("send: before", ERROR, dat_ep_post_send(ep, 1, local(-64, 8), cookie, 0), connected());
	CASE("send: freed region", ERROR, dat_ep_post_send(ep, 1, local(0, 8), cookie, 0), connected(),
	     MUST(dat_lmr_free(lmr)));
	CASE("recv: null", DAT_INVALID_HANDLE, dat_ep_post_recv(NULL, 1, local(0, 8), cookie, 0));
	CASE("recv: full", DAT_INSUFFICIENT_RESOURCES, filled(post_recv));
	CASE("read: null", DAT_INVALID_PARAMETER,
	     dat_ep_post_rdma_read(ep, 1, local(0, 8), cookie, NULL, 0), connected());
	CASE("write: null", DAT_INVALID_PARAMETER,
	     dat_ep_post_rdma_write(ep, 1, local(0, 8), cookie, NULL, 0), connected());
	CASE("write: wrong key", DAT_SUCCESS,
	     dat_evd_wait(request_evd, PATIENCE, 1, &ev, &more), connected(), rkey ^= 0x5555,
	     MUST(dat_ep_post_rdma_write(ep, 1, local(0, 8), cookie, remote(8), 0)));
	CASE("extension: unknown", ERROR, dat_extension_op(ep, 0x7777), connected());
	CASE("extension: null", DAT_INVALID_HANDLE,
	     dat_ib_post_fetch_and_add((DAT_EP_HANDLE)NULL, (DAT_UINT64)1, local(0, 8), cookie, remote(8), 0));
	CASE("bind: null", ERROR,
	     dat_rmr_bind(rmr, lmr, NULL, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, ep, rmr_cookie, 0, &rkey2), connected(),
	     dat_rmr_create(pz, &rmr));
	CASE("srq: null", ERROR, dat_srq_post_recv(srq, 1, NULL, cookie), dat_srq_create(ia, pz, &srq_attr, &srq));
	CASE("sync: very many", DAT_INVALID_PARAMETER, dat_lmr_sync_rdma_write(ia, local(0, 8), ~0ull));
}

static void cases_of_memory(void)
{
	CASE("lmr: no memory", DAT_INVALID_PARAMETER | DAT_INVALID_ARG4,
	     new_lmr(DAT_MEM_TYPE_VIRTUAL, NULL, 64, &lmr2));
	CASE("lmr: unmapped", ANY, new_lmr(DAT_MEM_TYPE_VIRTUAL, unmapped(), 4096, &lmr2));
	CASE("lmr: length 0", DAT_LENGTH_ERROR, new_lmr(DAT_MEM_TYPE_VIRTUAL, memory, 0, &lmr2));
	CASE("lmr: length 2^46", ERROR, new_lmr(DAT_MEM_TYPE_VIRTUAL, memory, 1ull << 46, &lmr2));
	CASE("lmr: length 2^64-1", ERROR, new_lmr(DAT_MEM_TYPE_VIRTUAL, memory, ~0ull, &lmr2));
	CASE("lmr: type", DAT_INVALID_PARAMETER | DAT_INVALID_ARG2, new_lmr(0x99, memory, 64, &lmr2));
	CASE("lmr: address type", DAT_MODEL_NOT_SUPPORTED,
	     dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, (DAT_REGION_DESCRIPTION){.for_va = memory}, 64, pz,
			    DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_ZB, &lmr2, NULL, NULL, NULL, NULL));
	CASE("lmr: of a freed one", DAT_INVALID_HANDLE,
	     new_lmr(DAT_MEM_TYPE_LMR, lmr, 64, &lmr2), MUST(dat_lmr_free(lmr)));
	CASE("lmr: free twice", DAT_INVALID_HANDLE | DAT_INVALID_HANDLE_LMR,
	     dat_lmr_free(lmr), MUST(dat_lmr_free(lmr)));
}

static void all(void)
{
	static void (*const groups[])(void) = {cases_of_ia, cases_of_handles, cases_of_outputs, cases_of_dispatchers,
					       cases_of_endpoints, cases_of_posts, cases_of_memory};

	answer = -1;
	for (unsigned i = 0; i < sizeof groups / sizeof *groups && answer == (DAT_RETURN)-1; i++)
		groups[i]();
}

// judge runs a case in a process of its own, and returns what is wrong with the result, or NULL.
static const char *judge(char *self, int i)
{
	static char text[300];
	unsigned code = 0;
	int fd[2], status, n = 0, got;
	pid_t pid;

	if (pipe(fd) || (pid = fork()) < 0)
		return "no process";
	if (!pid) {
		dup2(fd[1], 1);
		close(fd[0]);
		execl("/proc/self/exe", self, name, cases[i].name, NULL);
		_exit(4);
	}
	close(fd[1]);
	while ((got = read(fd[0], text + n, sizeof text - 1 - n)) > 0)
		n += got;
	text[n] = 0;
	close(fd[0]);
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status)) {
		snprintf(text, sizeof text, "signal %d", WTERMSIG(status));
		return text;
	}
	if (WEXITSTATUS(status))
		return text;
	sscanf(text, "%x", &code);
	if (cases[i].want == ANY || (cases[i].want == ERROR && code))
		return NULL;
	if (!DAT_GET_SUBTYPE(cases[i].want))
		code = DAT_GET_TYPE(code);
	return cases[i].want == (int)(code & ~DAT_CLASS_ERROR) ? NULL : text;
}

int main(int argc, char **argv)
{
	int wrong = 0;

	setvbuf(stdout, NULL, _IONBF, 0);
	if (argc < 2)
		return 2;
	name = argv[1];
	if (argc > 2) {
		alarm(LIMIT);
		chosen = argv[2];
		open_ia();
		all();
		printf("0x%08x\n", answer);
		_exit(0);
	}
	all();
	for (int i = 0; i < n_cases; i++) {
		const char *what = judge(argv[0], i);

		if (what)
			printf("%s: %s\n", cases[i].name, what);
		wrong += !!what;
	}
	printf("%d cases, %d wrong\n", n_cases, wrong);
	return wrong > 0;
}
