// Checks a DAT 2.0 provider through libdat2: both ends of a connection in one process.
//
//   cc -o check check.c -ldat2 -lpthread
//   check IA            runs the checks; the last line is ok
//   check IA strict     checks what the word strict in dat.conf changes
//   check IA bench      prints the cost of an empty dequeue, a post, a post and its completion
//
// The costs are processor time of the calling thread. A failed check prints its line and ends the
// program.

#include <pthread.h>
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <dat2/udat.h>
#include <dat2/udat_redirection.h> // libdat2 does not export dat_ep_post_rdma_read_to_rmr
#include <dat2/dat_ib_extensions.h>

#define ERR(type, sub) (DAT_CLASS_ERROR | (type) | (sub))
#define SECOND 1000000
#define PATIENCE (60 * SECOND)
#define QUAL 15350 // on tcp it is a TCP port, below those that a kernel gives to outgoing connections

#define is(call, want)                                                                                          \
	do {                                                                                                    \
		DAT_RETURN got_ = (call), want_ = (want);                                                       \
		if (got_ != want_) {                                                                            \
			const char *type_ = "?", *sub_ = "?";                                                   \
			dat_strerror(got_, &type_, &sub_);                                                      \
			printf("line %d: %s is 0x%08x (%s %s), want 0x%08x\n", __LINE__, #call, got_, type_, sub_, want_); \
			exit(1);                                                                                \
		}                                                                                               \
	} while (0)
#define must(condition)                                                                                         \
	do {                                                                                                    \
		if (!(condition)) {                                                                             \
			printf("line %d: not %s\n", __LINE__, #condition);                                      \
			exit(1);                                                                                \
		}                                                                                               \
	} while (0)

static DAT_IA_HANDLE ia;
static DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
static DAT_IA_ATTR ia_attr;
static DAT_PROVIDER_ATTR provider_attr;

typedef struct end {
	DAT_PZ_HANDLE pz;
	DAT_EVD_HANDLE recv, request, connect;
	DAT_EP_HANDLE ep;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_CONTEXT lkey;
	DAT_RMR_CONTEXT rkey;
	char *memory;
} end;

enum { SIZE = 65536 };

static void open_end(end *e)
{
	DAT_REGION_DESCRIPTION region;
	DAT_VLEN size;
	DAT_VADDR address;
	DAT_EP_ATTR attr;

	is(dat_pz_create(ia, &e->pz), DAT_SUCCESS);
	is(dat_evd_create(ia, 128, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &e->recv), DAT_SUCCESS);
	is(dat_evd_create(ia, 128, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG, &e->request), DAT_SUCCESS);
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &e->connect), DAT_SUCCESS);
	memset(&attr, 0, sizeof attr);
	attr.max_recv_dtos = attr.max_request_dtos = 64;
	attr.max_recv_iov = attr.max_request_iov = 2;
	attr.max_rdma_read_in = attr.max_rdma_read_out = 4;
	is(dat_ep_create(ia, e->pz, e->recv, e->request, e->connect, &attr, &e->ep), DAT_SUCCESS);
	e->memory = calloc(1, SIZE);
	region.for_va = e->memory;
	is(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, e->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &e->lmr,
			  &e->lkey, &e->rkey, &size, &address),
	   DAT_SUCCESS);
	must(size >= SIZE && address == (uintptr_t)e->memory); // registered in place
}

static void close_end(end *e)
{
	is(dat_ep_free(e->ep), DAT_SUCCESS);
	is(dat_lmr_free(e->lmr), DAT_SUCCESS);
	is(dat_evd_free(e->recv), DAT_SUCCESS);
	is(dat_evd_free(e->request), DAT_SUCCESS);
	is(dat_evd_free(e->connect), DAT_SUCCESS);
	is(dat_pz_free(e->pz), DAT_SUCCESS);
	free(e->memory);
}

static DAT_EVENT event(DAT_EVD_HANDLE evd, DAT_EVENT_NUMBER number)
{
	DAT_EVENT ev;
	DAT_COUNT more;

	is(dat_evd_wait(evd, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
	if (ev.event_number != number) {
		printf("event 0x%x, want 0x%x\n", ev.event_number, number);
		exit(1);
	}
	must(ev.evd_handle == evd);
	return ev;
}

// same_addr compares two addresses of IPv4 or IPv6, without their ports.
static int same_addr(DAT_IA_ADDRESS_PTR x, DAT_IA_ADDRESS_PTR y)
{
	const struct sockaddr_in6 *p = (void *)x, *q = (void *)y;

	if (((struct sockaddr *)p)->sa_family != ((struct sockaddr *)q)->sa_family)
		return 0;
	if (((struct sockaddr *)p)->sa_family == AF_INET)
		return !memcmp(&((struct sockaddr_in *)p)->sin_addr, &((struct sockaddr_in *)q)->sin_addr, 4);
	return ((struct sockaddr *)p)->sa_family == AF_INET6 && !memcmp(&p->sin6_addr, &q->sin6_addr, 16);
}

// port_of returns the port of an address of IPv4 or IPv6.
static int port_of(DAT_IA_ADDRESS_PTR x)
{
	const struct sockaddr_in6 *p = (void *)x;

	return ntohs(((struct sockaddr *)p)->sa_family == AF_INET ? ((struct sockaddr_in *)p)->sin_port : p->sin6_port);
}

static void connect_ends(end *a, end *b)
{
	static const char request[] = "a request", answer[] = "its answer";
	DAT_EVD_HANDLE requests;
	DAT_PSP_HANDLE psp;
	DAT_CR_PARAM param;
	DAT_EP_PARAM from;
	DAT_EVENT ev;
	DAT_CR_HANDLE cr;

	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests), DAT_SUCCESS);
	is(dat_psp_create(ia, QUAL, requests, DAT_PSP_CONSUMER_FLAG, &psp), DAT_SUCCESS);
	is(dat_ep_connect(a->ep, ia_attr.ia_address_ptr, QUAL, DAT_TIMEOUT_INFINITE, sizeof request, (void *)request,
			  DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG),
	   DAT_SUCCESS);
	ev = event(requests, DAT_CONNECTION_REQUEST_EVENT);
	cr = ev.event_data.cr_arrival_event_data.cr_handle;
	must(ev.event_data.cr_arrival_event_data.sp_handle.psp_handle == psp);
	must(ev.event_data.cr_arrival_event_data.conn_qual == QUAL);
	is(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.private_data_size >= (int)sizeof request);
	must(!memcmp(param.private_data, request, sizeof request));
	is(dat_ep_query(a->ep, DAT_EP_FIELD_ALL, &from), DAT_SUCCESS);
	must(from.remote_port_qual == QUAL && same_addr(from.remote_ia_address_ptr, ia_attr.ia_address_ptr));
	must(port_of(from.remote_ia_address_ptr) == QUAL);
	must(same_addr(param.remote_ia_address_ptr, ia_attr.ia_address_ptr)); // the requester uses this adapter too
	must(port_of(param.remote_ia_address_ptr) == (int)param.remote_port_qual);
	is(dat_cr_accept(cr, b->ep, sizeof answer, (void *)answer), DAT_SUCCESS);
	is(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CR));
	ev = event(a->connect, DAT_CONNECTION_EVENT_ESTABLISHED);
	must(ev.event_data.connect_event_data.ep_handle == a->ep);
	must(!memcmp(ev.event_data.connect_event_data.private_data, answer, sizeof answer));
	event(b->connect, DAT_CONNECTION_EVENT_ESTABLISHED);
	is(dat_psp_free(psp), DAT_SUCCESS);
	is(dat_evd_free(requests), DAT_SUCCESS);
}

static void open_all(const char *name, end *a, end *b)
{
	is(dat_ia_open((char *)name, 8, &async, &ia), DAT_SUCCESS);
	is(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &ia_attr, DAT_PROVIDER_FIELD_ALL, &provider_attr), DAT_SUCCESS);
	must(!strcmp(ia_attr.adapter_name, name) && !strcmp(provider_attr.provider_name, name));
	open_end(a);
	open_end(b);
	connect_ends(a, b);
}

static DAT_DTO_COOKIE cookie(uint64_t v) { return (DAT_DTO_COOKIE){.as_64 = v}; }

static DAT_LMR_TRIPLET local(end *e, int offset, int n)
{
	return (DAT_LMR_TRIPLET){(uintptr_t)e->memory + offset, n, e->lkey};
}

static DAT_RMR_TRIPLET remote(end *e, int offset, int n)
{
	return (DAT_RMR_TRIPLET){(uintptr_t)e->memory + offset, n, e->rkey};
}

static void completes(DAT_EVD_HANDLE evd, DAT_EP_HANDLE ep, uint64_t want, int length, int operation)
{
	DAT_EVENT ev = event(evd, DAT_DTO_COMPLETION_EVENT);
	DAT_DTO_COMPLETION_EVENT_DATA *d = &ev.event_data.dto_completion_event_data;

	must(d->ep_handle == ep);
	must(d->user_cookie.as_64 == want);
	must(d->status == DAT_DTO_SUCCESS);
	must((int)d->transfered_length == length);
	must((int)d->operation == operation);
}

static int has(const char *attr)
{
	for (int i = 0; i < provider_attr.num_provider_specific_attr; i++)
		if (!strcmp(provider_attr.provider_specific_attr[i].name, attr))
			return !strcmp(provider_attr.provider_specific_attr[i].value, "TRUE");
	return 0;
}

static void check_transfers(end *a, end *b)
{
	const uint64_t odd = UINT64_C(0xfedcba9876543210);
	DAT_LMR_TRIPLET l[2];
	DAT_RMR_TRIPLET r;
	DAT_EVENT ev;

	l[0] = local(b, 0, 100);
	is(dat_ep_post_recv(b->ep, 1, l, cookie(odd), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	strcpy(a->memory, "gathered ");
	strcpy(a->memory + 500, "message");
	l[0] = local(a, 0, 9);
	l[1] = local(a, 500, 8);
	is(dat_ep_post_send(a->ep, 2, l, cookie(~odd), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	completes(a->request, a->ep, ~odd, 17, DAT_DTO_SEND);
	completes(b->recv, b->ep, odd, 17, DAT_DTO_RECEIVE);
	must(!strcmp(b->memory, "gathered message"));

	strcpy(a->memory, "written");
	l[0] = local(a, 0, 8);
	r = remote(b, 1000, 0); // C DAPL ignores the length
	is(dat_ep_post_rdma_write(a->ep, 1, l, cookie(2), &r, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	completes(a->request, a->ep, 2, 8, DAT_DTO_RDMA_WRITE);
	l[0] = local(a, 2000, 8);
	r = remote(b, 1000, 8);
	is(dat_ep_post_rdma_read(a->ep, 1, l, cookie(3), &r, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	completes(a->request, a->ep, 3, 8, DAT_DTO_RDMA_READ);
	must(!strcmp(a->memory + 2000, "written"));

	l[0] = local(a, 0, 8);
	l[0].lmr_context ^= 0x5a5a5a; // the context of no region
	is(dat_ep_post_send(a->ep, 1, l, cookie(4), DAT_COMPLETION_DEFAULT_FLAG),
	   ERR(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_READ));

	if (has(DAT_IB_ATTR_IMMED_DATA)) {
		DAT_IB_EXTENSION_EVENT_DATA *x = (void *)ev.event_extension_data;

		is(dat_ep_post_recv(b->ep, 0, NULL, cookie(5), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
		l[0] = local(a, 0, 8);
		r = remote(b, 3000, 8);
		is(dat_ib_post_rdma_write_immed(a->ep, 1, l, cookie(6), &r, 0x12345678, DAT_COMPLETION_DEFAULT_FLAG),
		   DAT_SUCCESS);
		ev = event(a->request, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
		must(x->type == DAT_IB_RDMA_WRITE_IMMED);
		ev = event(b->recv, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
		must(x->type == DAT_IB_RDMA_WRITE_IMMED_DATA && x->val.immed.data == 0x12345678);
		must(ev.event_data.dto_completion_event_data.user_cookie.as_64 == 5);
	}
	if (has(DAT_IB_ATTR_FETCH_AND_ADD)) {
		uint64_t *word = (uint64_t *)(b->memory + 4096), *old = (uint64_t *)(a->memory + 4096);
		DAT_LMR_HANDLE lmr;
		DAT_REGION_DESCRIPTION region;
		DAT_RMR_CONTEXT rkey;

		region.for_va = b->memory;
		is(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, b->pz,
				  DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC, DAT_VA_TYPE_VA, &lmr, NULL, &rkey,
				  NULL, NULL),
		   DAT_SUCCESS);
		*word = 40;
		l[0] = local(a, 4096, 8);
		r = remote(b, 4096, 8);
		r.rmr_context = rkey;
		is(dat_ib_post_fetch_and_add(a->ep, (DAT_UINT64)2, l, cookie(7), &r, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
		ev = event(a->request, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
		must(*old == 40 && *word == 42);
		is(dat_ib_post_cmp_and_swap(a->ep, (DAT_UINT64)42, odd, l, cookie(8), &r, DAT_COMPLETION_DEFAULT_FLAG),
		   DAT_SUCCESS);
		ev = event(a->request, (DAT_EVENT_NUMBER)DAT_IB_DTO_EVENT);
		must(*old == 42 && *word == odd);
		is(dat_lmr_free(lmr), DAT_SUCCESS);
	}
}

// Suppressed requests make no events. Their places in the queue become free although the program
// does not dequeue.
static void check_suppressed(end *a, end *b)
{
	DAT_LMR_TRIPLET l = local(a, 0, 8);
	DAT_RMR_TRIPLET r = remote(b, 1000, 8);
	DAT_RETURN ret;
	DAT_EVENT ev;

	for (int i = 0; i < 1000; i++) { // the endpoint holds 64
		for (int ms = 0; ms < PATIENCE / 1000; ms++) {
			ret = dat_ep_post_rdma_write(a->ep, 1, &l, cookie(i), &r, DAT_COMPLETION_SUPPRESS_FLAG);
			if (DAT_GET_TYPE(ret) != DAT_INSUFFICIENT_RESOURCES)
				break;
			usleep(1000);
		}
		is(ret, DAT_SUCCESS);
	}
	is(dat_ep_post_rdma_write(a->ep, 1, &l, cookie(9999), &r, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	completes(a->request, a->ep, 9999, 8, DAT_DTO_RDMA_WRITE);
	is(dat_evd_dequeue(a->request, &ev), DAT_QUEUE_EMPTY);
}

static void check_handles(end *a)
{
	DAT_CONTEXT set = {.as_64 = UINT64_C(0x8000000000000001)}, got;
	DAT_HANDLE_TYPE type;
	DAT_PZ_HANDLE pz, other;
	DAT_PZ_PARAM param;
	DAT_EVD_HANDLE evd;
	DAT_EVENT ev;

	is(dat_pz_create(ia, &pz), DAT_SUCCESS);
	is(dat_get_consumer_context(pz, &got), DAT_SUCCESS);
	must(got.as_64 == 0);
	is(dat_set_consumer_context(pz, set), DAT_SUCCESS);
	is(dat_get_consumer_context(pz, &got), DAT_SUCCESS);
	must(got.as_64 == set.as_64);
	is(dat_get_handle_type(pz, &type), DAT_SUCCESS);
	must(type == DAT_HANDLE_TYPE_PZ);
	is(dat_lmr_free(pz), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR)); // the handle is of another kind
	is(dat_pz_free(pz), DAT_SUCCESS);
	for (int i = 0; i < 1000; i++) { // the handle is not reused soon
		is(dat_pz_create(ia, &other), DAT_SUCCESS);
		must(other != pz);
		is(dat_pz_free(other), DAT_SUCCESS);
	}
	is(dat_pz_free(pz), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ));
	is(dat_pz_query(pz, DAT_PZ_FIELD_ALL, &param), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PZ));
	is(dat_get_consumer_context(pz, &got), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1));

	// Numbers that differ between DAT 1.2 and 2.0.
	is(dat_pz_free(a->pz), ERR(DAT_INVALID_STATE, DAT_INVALID_STATE_PZ_IN_USE));
	is(dat_evd_free(a->recv), ERR(DAT_INVALID_STATE, DAT_INVALID_STATE_EVD_IN_USE));
	is(dat_pz_query(a->pz, 0x100, &param), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	is(dat_ep_connect(a->ep, ia_attr.ia_address_ptr, QUAL, SECOND, 0, NULL, DAT_QOS_BEST_EFFORT,
			  DAT_CONNECT_DEFAULT_FLAG),
	   ERR(DAT_INVALID_STATE, DAT_INVALID_STATE_EP_CONNECTED));

	// The code for an empty queue is the same as in C DAPL.
	is(dat_evd_dequeue(a->recv, &ev), DAT_QUEUE_EMPTY);
	is(dat_evd_dequeue(a->connect, &ev), ERR(DAT_QUEUE_EMPTY, 0));

	is(dat_evd_create(ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
	ev.event_number = DAT_SOFTWARE_EVENT;
	ev.event_data.software_event_data.pointer = &ev;
	is(dat_evd_post_se(evd, &ev), DAT_SUCCESS);
	ev = event(evd, DAT_SOFTWARE_EVENT);
	must(ev.event_data.software_event_data.pointer == &ev);
	is(dat_evd_free(evd), DAT_SUCCESS);
}

static int strict; // the word strict is in dat.conf

// A region has no remote right but those that the program gave it.
static void check_rights(end *a)
{
	const DAT_MEM_PRIV_FLAGS given[] = {DAT_MEM_PRIV_LOCAL_WRITE_FLAG, DAT_MEM_PRIV_REMOTE_READ_FLAG,
					    DAT_MEM_PRIV_REMOTE_WRITE_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG};
	const DAT_MEM_PRIV_FLAGS any = DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;

	for (unsigned i = 0; i < sizeof given / sizeof *given; i++) {
		DAT_REGION_DESCRIPTION region = {.for_va = a->memory};
		DAT_MEM_PRIV_FLAGS more = strict ? 0 : DAT_MEM_PRIV_LOCAL_READ_FLAG;
		DAT_LMR_HANDLE lmr;
		DAT_LMR_PARAM param;
		DAT_RMR_CONTEXT rkey;

		is(dat_lmr_create(ia, DAT_MEM_TYPE_VIRTUAL, region, SIZE, a->pz, given[i], DAT_VA_TYPE_VA, &lmr, NULL, &rkey,
				  NULL, NULL),
		   DAT_SUCCESS);
		is(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param), DAT_SUCCESS);
		must(param.mem_priv == (given[i] | more) && !rkey == !(given[i] & any));
		is(dat_lmr_free(lmr), DAT_SUCCESS);
	}
}

// Queries of objects return the values with which the objects were created.
static void check_queries(end *a)
{
	DAT_EVD_PARAM evd_param;
	DAT_LMR_PARAM lmr_param;
	DAT_PSP_PARAM psp_param;
	DAT_EVD_HANDLE evd;
	DAT_PSP_HANDLE psp;
	DAT_EP_HANDLE ep;
	DAT_EP_PARAM ep_param;
	DAT_EP_ATTR asked, *got = &ep_param.ep_attr;

	memset(&asked, 0, sizeof asked); // each attribute gets a different value
	asked.max_recv_dtos = 7;
	asked.max_request_dtos = 9;
	asked.max_recv_iov = 1;
	asked.max_request_iov = 2;
	asked.max_rdma_read_in = 3;
	asked.max_rdma_read_out = 4;
	is(dat_ep_create(ia, a->pz, a->recv, a->request, a->connect, &asked, &ep), DAT_SUCCESS);
	is(dat_ep_query(ep, DAT_EP_FIELD_ALL, &ep_param), DAT_SUCCESS);
	must(got->max_recv_dtos >= 7 && got->max_request_dtos >= 9);
	must(got->max_recv_iov >= 1 && got->max_request_iov >= 2);
	must(got->max_rdma_read_in == 3 && got->max_rdma_read_out == 4);
	must(ep_param.ia_handle == ia && ep_param.pz_handle == a->pz && ep_param.connect_evd_handle == a->connect);
	must(ep_param.recv_evd_handle == a->recv && ep_param.request_evd_handle == a->request);
	is(dat_ep_free(ep), DAT_SUCCESS);
	is(dat_evd_query(a->recv, DAT_EVD_FIELD_ALL, &evd_param), DAT_SUCCESS);
	must(evd_param.evd_qlen >= 128 && evd_param.evd_flags == DAT_EVD_DTO_FLAG);
	is(dat_lmr_query(a->lmr, DAT_LMR_FIELD_ALL, &lmr_param), DAT_SUCCESS);
	must(lmr_param.pz_handle == a->pz && lmr_param.length == SIZE);
	must(lmr_param.lmr_context == a->lkey && lmr_param.rmr_context == a->rkey);
	is(dat_lmr_query(a->pz, DAT_LMR_FIELD_ALL, &lmr_param), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_LMR));
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &evd), DAT_SUCCESS);
	is(dat_psp_create(ia, QUAL + 1, evd, DAT_PSP_CONSUMER_FLAG, &psp), DAT_SUCCESS);
	is(dat_psp_query(psp, DAT_PSP_FIELD_ALL, &psp_param), DAT_SUCCESS);
	must(psp_param.conn_qual == QUAL + 1 && psp_param.evd_handle == evd);
	is(dat_psp_query(a->pz, DAT_PSP_FIELD_ALL, &psp_param), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_PSP));
	is(dat_psp_free(psp), DAT_SUCCESS);
	is(dat_evd_free(evd), DAT_SUCCESS);
}

// The asynchronous events of a second adapter go to the dispatcher of the first.
static void check_async(const char *name)
{
	DAT_EVD_HANDLE same = async, got;
	DAT_IA_HANDLE other;

	is(dat_ia_open((char *)name, 8, &same, &other), DAT_SUCCESS);
	must(same == async);
	is(dat_ia_query(other, &got, 0, NULL, 0, NULL), DAT_SUCCESS);
	must(got == async);
	is(dat_ia_close(other, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
}

// Arguments that calls must refuse, and some that they must accept.
static void check_arguments(end *a)
{
	DAT_LMR_TRIPLET l = local(a, 0, 8);
	DAT_RMR_HANDLE rmr;
	DAT_RMR_CONTEXT context;
	DAT_EP_HANDLE ep;
	DAT_EVENT ev = {.event_number = DAT_DTO_COMPLETION_EVENT};
	DAT_EVD_HANDLE evd;
	DAT_LMR_HANDLE lmr;
	DAT_LMR_PARAM param;
	char id[40] = "an identifier of shared memory";
	DAT_REGION_DESCRIPTION region;
	struct {
		const void *provider;
		uint32_t rest[200];
	} fake = {.provider = *(void **)a->pz};

	for (int i = 0; i < 200; i++) // fake looks like a handle, but the provider did not make it
		fake.rest[i] = 1;
	is(dat_evd_query(&fake, 0, NULL), ERR(DAT_INVALID_HANDLE, 0));
	is(dat_rsp_free(a->pz), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP));
	is(dat_ep_post_send(a->ep, -1, &l, cookie(0), DAT_COMPLETION_DEFAULT_FLAG),
	   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	is(dat_ep_post_send(a->ep, 1, NULL, cookie(0), DAT_COMPLETION_DEFAULT_FLAG),
	   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	is(dat_evd_create(ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
	is(dat_evd_post_se(evd, &ev), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2)); // the event belongs to another stream
	is(dat_evd_post_se(evd, NULL), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	is(dat_evd_dequeue(evd, &ev), ERR(DAT_QUEUE_EMPTY, 0));
	is(dat_evd_free(evd), DAT_SUCCESS);
	if (ia_attr.max_rmrs > 0) {
		is(dat_rmr_create(a->pz, &rmr), DAT_SUCCESS);
		is(dat_rmr_bind(rmr, DAT_HANDLE_NULL, NULL, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, a->ep, cookie(0),
				DAT_COMPLETION_DEFAULT_FLAG, &context),
		   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3));
		is(dat_rmr_bind(rmr, DAT_HANDLE_NULL, &l, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_ZB, a->ep, cookie(0),
				DAT_COMPLETION_DEFAULT_FLAG, &context),
		   ERR(DAT_MODEL_NOT_SUPPORTED, 0));
		l.lmr_context ^= 0x5a5a5a; // the context of no region
		is(dat_rmr_bind(rmr, DAT_HANDLE_NULL, &l, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, a->ep, cookie(0),
				DAT_COMPLETION_DEFAULT_FLAG, &context),
		   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG3));
		l.lmr_context ^= 0x5a5a5a;
		is(dat_rmr_bind(rmr, DAT_HANDLE_NULL, &l, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, a->ep, cookie(0),
				DAT_COMPLETION_DEFAULT_FLAG, &context),
		   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4));
		is(dat_rmr_bind(rmr, DAT_HANDLE_NULL, &l, DAT_MEM_PRIV_REMOTE_READ_FLAG, DAT_VA_TYPE_VA, a->ep, cookie(0),
				0x400, &context),
		   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG8));
		is(dat_rmr_free(rmr), DAT_SUCCESS);
	}

	region.for_shared_memory.virtual_address = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(region.for_shared_memory.virtual_address != MAP_FAILED);
	region.for_shared_memory.shared_memory_id = (DAT_LMR_COOKIE)&id;
	is(dat_lmr_create(ia, DAT_MEM_TYPE_SHARED_VIRTUAL, region, SIZE, a->pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr,
			  NULL, NULL, NULL, NULL),
	   DAT_SUCCESS);
	is(dat_lmr_query(lmr, DAT_LMR_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.mem_type == DAT_MEM_TYPE_SHARED_VIRTUAL && param.length == SIZE);
	is(dat_lmr_free(lmr), DAT_SUCCESS);
	munmap(region.for_shared_memory.virtual_address, SIZE);

	is(dat_ep_create(ia, a->pz, a->recv, a->request, a->connect, NULL, &ep), DAT_SUCCESS);
	is(dat_ep_dup_connect(ep, a->ep, PATIENCE, -1, NULL, DAT_QOS_BEST_EFFORT),
	   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4));
	is(dat_ep_dup_connect(ep, a->ep, PATIENCE, 4, NULL, DAT_QOS_BEST_EFFORT),
	   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG4));
	is(dat_ep_dup_connect(ep, a->ep, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT), DAT_SUCCESS); // nobody listens any more
	event(a->connect, DAT_CONNECTION_EVENT_NON_PEER_REJECTED);
	is(dat_ep_free(ep), DAT_SUCCESS);
}

// An endpoint with a shared queue may be created with the attributes of an endpoint without one, as
// in C DAPL.
static void check_shared(end *a)
{
	DAT_SRQ_ATTR srq_attr = {.max_recv_dtos = 8, .max_recv_iov = 1, .low_watermark = DAT_SRQ_LW_DEFAULT};
	DAT_SRQ_PARAM srq_param;
	DAT_SRQ_HANDLE srq;
	DAT_EP_HANDLE ep;
	DAT_EP_PARAM param;
	DAT_EP_ATTR attr;

	if (!ia_attr.max_srqs)
		return;
	is(dat_srq_create(ia, a->pz, &srq_attr, &srq), DAT_SUCCESS);
	is(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &srq_param), DAT_SUCCESS);
	must(srq_param.max_recv_dtos >= 8 && srq_param.pz_handle == a->pz);
	for (int i = 0; i < 2; i++)
		is(dat_srq_post_recv(srq, 0, NULL, cookie(i)), DAT_SUCCESS);
	is(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &srq_param), DAT_SUCCESS);
	must(srq_param.available_dto_count != 0 && srq_param.outstanding_dto_count == 2);
	is(dat_srq_set_lw(srq, 1), DAT_SUCCESS);
	is(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &srq_param), DAT_SUCCESS);
	must(srq_param.low_watermark == 1);
	memset(&attr, 0, sizeof attr);
	attr.max_recv_dtos = attr.max_request_dtos = 4;
	attr.max_recv_iov = attr.max_request_iov = 1;
	attr.srq_soft_hw = 1;
	is(dat_ep_create_with_srq(ia, a->pz, a->recv, a->request, a->connect, srq, &attr, NULL),
	   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG8));
	is(dat_ep_create_with_srq(ia, a->pz, a->recv, a->request, a->connect, srq, &attr, &ep), DAT_SUCCESS);
	is(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.srq_handle == srq && param.ep_attr.srq_soft_hw == DAT_WATERMARK_INFINITE);
	must(param.ep_attr.max_recv_dtos == DAT_WATERMARK_INFINITE);
	is(dat_ep_free(ep), DAT_SUCCESS);
	is(dat_srq_free(srq), DAT_SUCCESS);
}

// A receive that an endpoint has taken is no longer available. It is outstanding until the program
// dequeues its completion. Not every device counts the available ones.
static void check_shared_counts(void)
{
	DAT_SRQ_ATTR srq_attr = {.max_recv_dtos = 8, .max_recv_iov = 1, .low_watermark = DAT_SRQ_LW_DEFAULT};
	DAT_EP_ATTR attr;
	DAT_SRQ_PARAM param;
	DAT_SRQ_HANDLE srq;
	end a, b;

	if (!ia_attr.max_srqs)
		return;
	open_end(&a);
	open_end(&b);
	memset(&attr, 0, sizeof attr);
	attr.max_recv_dtos = attr.max_request_dtos = 4;
	attr.max_recv_iov = attr.max_request_iov = 1;
	is(dat_srq_create(ia, b.pz, &srq_attr, &srq), DAT_SUCCESS);
	is(dat_ep_free(b.ep), DAT_SUCCESS);
	is(dat_ep_create_with_srq(ia, b.pz, b.recv, b.request, b.connect, srq, &attr, &b.ep), DAT_SUCCESS);
	for (int i = 0; i < 3; i++)
		is(dat_srq_post_recv(srq, 0, NULL, cookie(i)), DAT_SUCCESS);
	connect_ends(&a, &b);
	is(dat_ep_post_send(a.ep, 0, NULL, cookie(0), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	completes(a.request, a.ep, 0, 0, DAT_DTO_SEND);
	for (int ms = 0; ms < PATIENCE / 1000; ms++) {
		is(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param), DAT_SUCCESS);
		must(param.outstanding_dto_count == 3);
		if (param.available_dto_count == 2 || param.available_dto_count == DAT_VALUE_UNKNOWN)
			break;
		usleep(1000);
	}
	must(param.available_dto_count == 2 || param.available_dto_count == DAT_VALUE_UNKNOWN);
	completes(b.recv, b.ep, 0, 0, DAT_DTO_RECEIVE);
	is(dat_srq_query(srq, DAT_SRQ_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.outstanding_dto_count == 2);
	is(dat_ep_free(b.ep), DAT_SUCCESS);
	is(dat_srq_free(srq), DAT_SUCCESS);
	is(dat_ep_create(ia, b.pz, b.recv, b.request, b.connect, NULL, &b.ep), DAT_SUCCESS);
	close_end(&a);
	close_end(&b);
}

// A query of a window describes its binding. A read into a window fills the memory of the window
// whose context it names, and needs a window.
static void check_windows(end *a, end *b)
{
	struct {
		DAT_RMR_HANDLE rmr;
		DAT_RMR_CONTEXT context;
		DAT_LMR_TRIPLET part;
	} w[2];
	DAT_RMR_TRIPLET from = remote(b, 5000, 8), to;
	DAT_RMR_PARAM param;
	DAT_EVENT ev;

	if (!ia_attr.max_rmrs)
		return;
	strcpy(b->memory + 5000, "windows");
	for (int i = 0; i < 2; i++) {
		w[i].part = local(a, 6000 + 100 * i, 24 + i);
		is(dat_rmr_create(a->pz, &w[i].rmr), DAT_SUCCESS);
		is(dat_rmr_bind(w[i].rmr, DAT_HANDLE_NULL, &w[i].part, DAT_MEM_PRIV_REMOTE_WRITE_FLAG, DAT_VA_TYPE_VA, a->ep,
				cookie(i), DAT_COMPLETION_DEFAULT_FLAG, &w[i].context),
		   DAT_SUCCESS);
		ev = event(a->request, DAT_RMR_BIND_COMPLETION_EVENT);
		must(ev.event_data.rmr_completion_event_data.rmr_handle == w[i].rmr);
	}
	for (int i = 0; i < 2; i++) {
		is(dat_rmr_query(w[i].rmr, DAT_RMR_FIELD_ALL, &param), DAT_SUCCESS);
		must(param.ia_handle == ia && param.pz_handle == a->pz && param.rmr_context == w[i].context);
		must(param.lmr_triplet.virtual_address == w[i].part.virtual_address);
		must(param.lmr_triplet.segment_length == w[i].part.segment_length);
		must(param.lmr_triplet.lmr_context == a->lkey && param.mem_priv == DAT_MEM_PRIV_REMOTE_WRITE_FLAG);
		to = (DAT_RMR_TRIPLET){w[i].part.virtual_address + 8, 8, w[i].context};
		is(DAT_EP_POST_RDMA_READ_TO_RMR(a->ep, &to, cookie(10 + i), &from, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
		completes(a->request, a->ep, 10 + i, 8, DAT_DTO_RDMA_READ);
		must(!strcmp(a->memory + 6000 + 100 * i + 8, "windows"));
		to.virtual_address += 9 + i; // one byte beyond
		is(DAT_EP_POST_RDMA_READ_TO_RMR(a->ep, &to, cookie(0), &from, DAT_COMPLETION_DEFAULT_FLAG),
		   ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	}
	to = (DAT_RMR_TRIPLET){w[0].part.virtual_address, 8, a->rkey}; // the context of a region is none of a window
	is(DAT_EP_POST_RDMA_READ_TO_RMR(a->ep, &to, cookie(0), &from, DAT_COMPLETION_DEFAULT_FLAG),
	   ERR(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_WRITE));
	for (int i = 0; i < 2; i++)
		is(dat_rmr_free(w[i].rmr), DAT_SUCCESS);
	to.rmr_context = w[0].context;
	is(DAT_EP_POST_RDMA_READ_TO_RMR(a->ep, &to, cookie(0), &from, DAT_COMPLETION_DEFAULT_FLAG),
	   ERR(DAT_PRIVILEGES_VIOLATION, DAT_PRIVILEGES_WRITE));
}

// The calls that synchronize memory check each segment.
static void check_sync(end *a)
{
	DAT_LMR_TRIPLET l[2] = {local(a, 0, 8), local(a, 8, SIZE - 8)};

	is(dat_lmr_sync_rdma_read(ia, l, 2), DAT_SUCCESS);
	is(dat_lmr_sync_rdma_write(ia, l, 2), DAT_SUCCESS);
	l[1].segment_length++;
	is(dat_lmr_sync_rdma_read(ia, l, 1), DAT_SUCCESS);
	is(dat_lmr_sync_rdma_read(ia, l, 2), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	is(dat_lmr_sync_rdma_write(ia, l, 2), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	l[1] = local(a, 0, 8);
	l[1].lmr_context ^= 0x5a5a5a; // the context of no region
	is(dat_lmr_sync_rdma_read(ia, l, 2), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
	is(dat_lmr_sync_rdma_write(ia, l, 2), ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG2));
}

// Read depths of 0 stay 0, and each receive above the soft watermark makes an event.
static void check_limits(end *a)
{
	DAT_EP_HANDLE ep;
	DAT_EP_ATTR attr;
	DAT_EP_PARAM param;
	DAT_EVENT ev;
	DAT_ASYNCH_ERROR_EVENT_DATA *d = &ev.event_data.asynch_error_event_data;

	memset(&attr, 0, sizeof attr);
	attr.max_recv_dtos = attr.max_request_dtos = 4;
	attr.max_recv_iov = attr.max_request_iov = 1;
	is(dat_ep_create(ia, a->pz, a->recv, a->request, a->connect, &attr, &ep), DAT_SUCCESS);
	is(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.ep_attr.max_rdma_read_in == 0 && param.ep_attr.max_rdma_read_out == 0);
	for (int i = 0; i < 2; i++) {
		is(dat_ep_set_watermark(ep, i, DAT_WATERMARK_INFINITE), DAT_SUCCESS);
		is(dat_ep_post_recv(ep, 0, NULL, cookie(i), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
		ev = event(async, 0x08011);
		must(d->dat_handle == ep && (int)d->reason == DAT_SRQ_SOFT_HIGH_WATERMARK_EVENT);
	}
	is(dat_ep_free(ep), DAT_SUCCESS);
}

// Completion flags of endpoints that share a dispatcher: C DAPL notifies of every completion.
static void check_flags(end *a)
{
	static const DAT_COMPLETION_FLAGS mixed[][2] = {
		{DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_UNSIGNALLED_FLAG},
		{DAT_COMPLETION_DEFAULT_FLAG, DAT_COMPLETION_SUPPRESS_FLAG},
		{DAT_COMPLETION_UNSIGNALLED_FLAG, DAT_COMPLETION_DEFAULT_FLAG},
		{DAT_COMPLETION_SOLICITED_WAIT_FLAG, DAT_COMPLETION_EVD_THRESHOLD_FLAG},
	};
	enum { N = sizeof mixed / sizeof *mixed };
	DAT_LMR_TRIPLET l = local(a, 0, 8);
	DAT_EVD_HANDLE all;
	DAT_EP_HANDLE ep[N];
	DAT_EP_ATTR attr;
	DAT_EVENT ev;
	DAT_COUNT more;

	is(dat_evd_create(ia, 256, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &all), DAT_SUCCESS);
	memset(&attr, 0, sizeof attr);
	attr.max_recv_dtos = attr.max_request_dtos = 4;
	attr.max_recv_iov = attr.max_request_iov = 1;
	for (int i = 0; i < N; i++) {
		attr.recv_completion_flags = mixed[i][0];
		attr.request_completion_flags = mixed[i][1];
		is(dat_ep_create(ia, a->pz, all, all, a->connect, &attr, &ep[i]),
		   strict ? ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG6) : DAT_SUCCESS);
		if (strict)
			continue;
		is(dat_ep_post_recv(ep[i], 1, &l, cookie(i), DAT_COMPLETION_UNSIGNALLED_FLAG), DAT_SUCCESS);
		is(dat_evd_wait(all, 0, 2, &ev, &more), ERR(DAT_TIMEOUT_EXPIRED, 0)); // any threshold is allowed
		is(dat_ep_free(ep[i]), DAT_SUCCESS);
	}
	is(dat_evd_free(all), DAT_SUCCESS);
}

// An adapter has the InfiniBand extension if it has one of the extension's operations. The
// extension's flag of an EVD does not add a stream, and a query returns the flag.
static void check_extension(void)
{
	const DAT_EVD_FLAGS flags = DAT_EVD_DTO_FLAG | DAT_IB_EVD_EXTENSION_FLAG;
	const int any = has(DAT_IB_ATTR_IMMED_DATA) || has(DAT_IB_ATTR_FETCH_AND_ADD);
	DAT_EVD_HANDLE evd;
	DAT_EVD_PARAM param;

	must(ia_attr.extension_supported == (any ? DAT_EXTENSION_IB : DAT_EXTENSION_NONE));
	must(has("DAT_EXTENSION_INTERFACE") == any);
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, flags, &evd), DAT_SUCCESS);
	is(dat_evd_query(evd, DAT_EVD_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.evd_flags == flags);
	is(dat_evd_free(evd), DAT_SUCCESS);
}

// An endpoint with a shared queue and without attributes has the defaults, as with C DAPL.
static void check_no_attributes(end *a)
{
	DAT_SRQ_ATTR attr = {.max_recv_dtos = 8, .max_recv_iov = 1, .low_watermark = DAT_SRQ_LW_DEFAULT};
	DAT_SRQ_HANDLE srq;
	DAT_EP_HANDLE ep;
	DAT_EP_PARAM param;

	if (!ia_attr.max_srqs)
		return;
	is(dat_srq_create(ia, a->pz, &attr, &srq), DAT_SUCCESS);
	is(dat_ep_create_with_srq(ia, a->pz, a->recv, a->request, a->connect, srq, NULL, &ep),
	   strict ? ERR(DAT_INVALID_PARAMETER, DAT_INVALID_ARG7) : DAT_SUCCESS);
	if (!strict) {
		is(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param), DAT_SUCCESS);
		must(param.srq_handle == srq && param.ep_attr.max_request_dtos > 0);
		must(param.ep_attr.max_request_iov > 0 && param.ep_attr.max_message_size > 0);
		is(dat_ep_free(ep), DAT_SUCCESS);
	}
	is(dat_srq_free(srq), DAT_SUCCESS);
}

// Events of requests name the reserved service points, and connection events name endpoints that
// have been freed. The connection events go to a dispatcher of another adapter.
static void check_reserved(const char *name)
{
	DAT_EVD_HANDLE others = DAT_HANDLE_NULL, conn, requests;
	DAT_RSP_HANDLE rsp[2], seen[2];
	DAT_EP_HANDLE ep[2], from[2], asker[2];
	DAT_RSP_PARAM param;
	DAT_PZ_HANDLE pz;
	DAT_IA_HANDLE other;
	DAT_CR_PARAM cr_param;
	DAT_EVENT ev;

	is(dat_ia_open((char *)name, 8, &others, &other), DAT_SUCCESS);
	is(dat_evd_create(other, 16, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &conn), DAT_SUCCESS);
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests), DAT_SUCCESS);
	is(dat_pz_create(ia, &pz), DAT_SUCCESS);
	for (int i = 0; i < 2; i++) { // points that are freed; later ones have the same qualifier and dispatcher
		is(dat_rsp_create(ia, QUAL + 2, DAT_HANDLE_NULL, requests, &rsp[0]), DAT_SUCCESS);
		is(dat_rsp_free(rsp[0]), DAT_SUCCESS);
	}
	for (int i = 0; i < 2; i++) {
		is(dat_ep_create(ia, pz, DAT_HANDLE_NULL, DAT_HANDLE_NULL, conn, NULL, &ep[i]), DAT_SUCCESS);
		is(dat_ep_create(ia, pz, DAT_HANDLE_NULL, DAT_HANDLE_NULL, conn, NULL, &from[i]), DAT_SUCCESS);
		is(dat_rsp_create(ia, QUAL + 2 + i, ep[i], requests, &rsp[i]), DAT_SUCCESS);
	}
	for (int i = 1; i >= 0; i--) // not in the order of the service points
		is(dat_ep_connect(from[i], ia_attr.ia_address_ptr, QUAL + 2 + i, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
				  DAT_CONNECT_DEFAULT_FLAG),
		   DAT_SUCCESS);
	for (int i = 0; i < 2; i++) {
		DAT_CR_ARRIVAL_EVENT_DATA *d = &ev.event_data.cr_arrival_event_data;
		int which;

		ev = event(requests, DAT_CONNECTION_REQUEST_EVENT);
		which = d->conn_qual - QUAL - 2;
		seen[i] = d->sp_handle.rsp_handle;
		must(seen[i] == rsp[which]);
		is(dat_cr_query(d->cr_handle, DAT_CR_FIELD_ALL, &cr_param), DAT_SUCCESS);
		must(cr_param.local_ep_handle == ep[which]);
		is(dat_rsp_query(seen[i], DAT_RSP_FIELD_ALL, &param), DAT_SUCCESS);
		must(param.conn_qual == d->conn_qual && param.evd_handle == requests && param.ep_handle == ep[which]);
		is(dat_cr_accept(d->cr_handle, DAT_HANDLE_NULL, 0, NULL), DAT_SUCCESS);
		is(dat_rsp_free(seen[i]), DAT_SUCCESS);
		is(dat_rsp_free(seen[i]), ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_RSP));
	}
	must(seen[0] != seen[1]);
	for (int i = 0; i < 4; i++)
		event(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
	is(dat_ep_disconnect(from[0], DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	usleep(SECOND / 10);
	is(dat_ep_free(from[0]), DAT_SUCCESS);
	is(dat_ep_free(ep[0]), DAT_SUCCESS);
	for (int i = 0, both = 0; i < 2; i++) {
		ev = event(conn, DAT_CONNECTION_EVENT_DISCONNECTED);
		both |= 1 << (ev.event_data.connect_event_data.ep_handle == ep[0]);
		must(ev.event_data.connect_event_data.ep_handle == ep[0] || ev.event_data.connect_event_data.ep_handle == from[0]);
		must(!i || both == 3);
	}
	// Two points of one qualifier, one after the other: their requests wait on two dispatchers.
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &others), DAT_SUCCESS);
	for (int i = 0; i < 2; i++) {
		is(dat_rsp_create(ia, QUAL + 2, DAT_HANDLE_NULL, i ? others : requests, &rsp[i]), DAT_SUCCESS);
		is(dat_ep_create(ia, pz, DAT_HANDLE_NULL, DAT_HANDLE_NULL, conn, NULL, &asker[i]), DAT_SUCCESS);
		is(dat_ep_connect(asker[i], ia_attr.ia_address_ptr, QUAL + 2, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
				  DAT_CONNECT_DEFAULT_FLAG),
		   DAT_SUCCESS);
		while (!i && dat_rsp_create(ia, QUAL + 2, DAT_HANDLE_NULL, requests, &seen[0]) != DAT_SUCCESS)
			usleep(1000); // until the request has come
		if (!i)
			is(dat_rsp_free(seen[0]), DAT_SUCCESS);
	}
	for (int i = 1; i >= 0; i--) {
		ev = event(i ? others : requests, DAT_CONNECTION_REQUEST_EVENT);
		must(ev.event_data.cr_arrival_event_data.sp_handle.rsp_handle == rsp[i]);
		is(dat_cr_reject(ev.event_data.cr_arrival_event_data.cr_handle, 0, NULL), DAT_SUCCESS);
		is(dat_ep_free(asker[i]), DAT_SUCCESS);
	}
	is(dat_ia_close(other, DAT_CLOSE_ABRUPT_FLAG), DAT_SUCCESS);
	is(dat_ep_free(from[1]), DAT_SUCCESS);
	is(dat_ep_free(ep[1]), DAT_SUCCESS);
	is(dat_pz_free(pz), DAT_SUCCESS);
	is(dat_evd_free(requests), DAT_SUCCESS);
	is(dat_evd_free(others), DAT_SUCCESS);
}

// dat_ep_modify changes what its mask names, and nothing else.
static void check_modify(end *a)
{
	DAT_EP_HANDLE ep;
	DAT_PZ_HANDLE pz;
	DAT_EVD_HANDLE recv, request, connect;
	DAT_EP_PARAM was, is_now, to;
	DAT_BOOLEAN recv_idle, request_idle;
	DAT_EP_STATE state;

	is(dat_pz_create(ia, &pz), DAT_SUCCESS);
	is(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &recv), DAT_SUCCESS);
	is(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &request), DAT_SUCCESS);
	is(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connect), DAT_SUCCESS);
	is(dat_ep_create(ia, a->pz, a->recv, a->request, a->connect, NULL, &ep), DAT_SUCCESS);
	memset(&to, 0, sizeof to);
	to.pz_handle = pz;
	to.recv_evd_handle = recv;
	to.request_evd_handle = request;
	to.connect_evd_handle = connect;
	to.ep_attr.max_message_size = 1001;
	to.ep_attr.max_rdma_size = 1002;
	to.ep_attr.max_recv_dtos = 3;
	to.ep_attr.max_request_dtos = 5;
	to.ep_attr.max_rdma_read_in = 2;
#define CHANGES(bit, field)                                                                                     \
	is(dat_ep_query(ep, DAT_EP_FIELD_ALL, &was), DAT_SUCCESS);                                              \
	must(was.field != to.field);                                                                            \
	is(dat_ep_modify(ep, DAT_EP_FIELD_##bit, &to), DAT_SUCCESS);                                            \
	is(dat_ep_query(ep, DAT_EP_FIELD_ALL, &is_now), DAT_SUCCESS);                                           \
	must(is_now.field == to.field);                                                                         \
	was.field = to.field;                                                                                   \
	must(!memcmp(&is_now, &was, sizeof was))
	CHANGES(PZ_HANDLE, pz_handle);
	CHANGES(RECV_EVD_HANDLE, recv_evd_handle);
	CHANGES(REQUEST_EVD_HANDLE, request_evd_handle);
	CHANGES(CONNECT_EVD_HANDLE, connect_evd_handle);
	CHANGES(EP_ATTR_MAX_MESSAGE_SIZE, ep_attr.max_message_size);
	CHANGES(EP_ATTR_MAX_RDMA_SIZE, ep_attr.max_rdma_size);
	CHANGES(EP_ATTR_MAX_RECV_DTOS, ep_attr.max_recv_dtos);
	CHANGES(EP_ATTR_MAX_REQUEST_DTOS, ep_attr.max_request_dtos);
	CHANGES(EP_ATTR_MAX_RDMA_READ_IN, ep_attr.max_rdma_read_in);
	to.ep_attr.max_rdma_read_out = 2;
	CHANGES(EP_ATTR_MAX_RDMA_READ_OUT, ep_attr.max_rdma_read_out);
	to.ep_attr.max_rdma_read_in = to.ep_attr.max_rdma_read_out = 0;
	CHANGES(EP_ATTR_MAX_RDMA_READ_IN, ep_attr.max_rdma_read_in);
	CHANGES(EP_ATTR_MAX_RDMA_READ_OUT, ep_attr.max_rdma_read_out);

	is(dat_ep_post_recv(ep, 0, NULL, cookie(1), DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
	is(dat_ep_get_status(ep, &state, &recv_idle, &request_idle), DAT_SUCCESS);
	must(state == DAT_EP_STATE_UNCONNECTED && !recv_idle && request_idle);
	is(dat_ep_free(ep), DAT_SUCCESS);
	is(dat_evd_free(recv), DAT_SUCCESS);
	is(dat_evd_free(request), DAT_SUCCESS);
	is(dat_evd_free(connect), DAT_SUCCESS);
	is(dat_pz_free(pz), DAT_SUCCESS);
}

// A service point that makes the endpoints of its requests gets one from another service point.
static void check_handoff(end *a)
{
	DAT_EVD_HANDLE requests, conn;
	DAT_PSP_HANDLE first, second;
	DAT_CONN_QUAL qual;
	DAT_EP_HANDLE ep;
	DAT_EP_PARAM to;
	DAT_CR_PARAM param;
	DAT_CR_HANDLE cr;
	DAT_EVENT ev;

	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests), DAT_SUCCESS);
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &conn), DAT_SUCCESS);
	is(dat_psp_create(ia, QUAL + 1, requests, DAT_PSP_CONSUMER_FLAG, &first), DAT_SUCCESS);
	is(dat_psp_create_any(ia, &qual, requests, DAT_PSP_PROVIDER_FLAG, &second), DAT_SUCCESS);
	is(dat_ep_create(ia, a->pz, DAT_HANDLE_NULL, DAT_HANDLE_NULL, conn, NULL, &ep), DAT_SUCCESS);
	is(dat_ep_connect(ep, ia_attr.ia_address_ptr, QUAL + 1, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
			  DAT_CONNECT_DEFAULT_FLAG),
	   DAT_SUCCESS);
	ev = event(requests, DAT_CONNECTION_REQUEST_EVENT);
	must(ev.event_data.cr_arrival_event_data.sp_handle.psp_handle == first);
	is(dat_cr_handoff(ev.event_data.cr_arrival_event_data.cr_handle, qual), DAT_SUCCESS);
	ev = event(requests, DAT_CONNECTION_REQUEST_EVENT);
	must(ev.event_data.cr_arrival_event_data.sp_handle.psp_handle == second);
	cr = ev.event_data.cr_arrival_event_data.cr_handle;
	is(dat_cr_query(cr, DAT_CR_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.local_ep_handle != DAT_HANDLE_NULL);
	to.pz_handle = a->pz;
	to.connect_evd_handle = conn;
	is(dat_ep_modify(param.local_ep_handle, DAT_EP_FIELD_PZ_HANDLE | DAT_EP_FIELD_CONNECT_EVD_HANDLE, &to), DAT_SUCCESS);
	is(dat_cr_accept(cr, param.local_ep_handle, 0, NULL), DAT_SUCCESS); // its own endpoint may be named
	event(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
	event(conn, DAT_CONNECTION_EVENT_ESTABLISHED);
	is(dat_ep_free(ep), DAT_SUCCESS);
	is(dat_ep_free(param.local_ep_handle), DAT_SUCCESS);
	is(dat_psp_free(first), DAT_SUCCESS);
	is(dat_psp_free(second), DAT_SUCCESS);
	is(dat_evd_free(requests), DAT_SUCCESS);
	while (dat_evd_free(conn) != DAT_SUCCESS) // events of connections that end may come yet
		usleep(1000);
}

// A request may come before dat_psp_create has returned. Its event names the service point.

enum { POINTS = 1000 };
// Each of many handles works, also those that reuse the memory of freed ones.
static void check_many(void)
{
	enum { MANY = 5000 };
	static DAT_CNO_HANDLE cno[MANY];
	DAT_CNO_PARAM param;

	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < MANY; i++) {
			DAT_CONTEXT context;

			is(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno[i]), DAT_SUCCESS);
			is(dat_get_consumer_context(cno[i], &context), DAT_SUCCESS);
			must(context.as_64 == 0); // not that of a handle whose memory it reuses
			is(dat_set_consumer_context(cno[i], (DAT_CONTEXT){.as_64 = i + 1}), DAT_SUCCESS);
		}
		for (int i = 0; i < MANY; i++) {
			DAT_CONTEXT context;

			is(dat_cno_query(cno[i], DAT_CNO_FIELD_ALL, &param), DAT_SUCCESS);
			must(param.ia_handle == ia);
			is(dat_get_consumer_context(cno[i], &context), DAT_SUCCESS);
			must(context.as_64 == (DAT_UINT64)i + 1);
			is(dat_cno_free(cno[i]), DAT_SUCCESS);
			must(dat_cno_query(cno[i], DAT_CNO_FIELD_ALL, &param) == ERR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_CNO));
		}
	}
}

static int open_files(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");

	must(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static void *post_late(void *evd) // when a wait is most likely to block in C
{
	DAT_EVENT ev = {.event_number = DAT_SOFTWARE_EVENT};

	usleep(SECOND / 20);
	for (int i = 0; i < 3; i++)
		is(dat_evd_post_se(evd, &ev), DAT_SUCCESS);
	return NULL;
}

// A wait leaves no file open, however long it is and however it ends.
static void check_files(void)
{
	pthread_t late;
	DAT_EVD_HANDLE evd;
	DAT_CNO_HANDLE cno;
	DAT_EVENT ev;
	DAT_COUNT more;
	int before = 0;

	is(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno), DAT_SUCCESS);
	is(dat_evd_create(ia, 8, cno, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
	for (int i = 0; i < 4; i++) {
		DAT_EVD_HANDLE from;

		is(dat_evd_wait(evd, 12000, 1, &ev, &more), ERR(DAT_TIMEOUT_EXPIRED, 0));
		is(dat_cno_wait(cno, 12000, &from), ERR(DAT_QUEUE_EMPTY, 0));
		if (!i)
			before = open_files();
	}
	must(open_files() == before);
	must(!pthread_create(&late, NULL, post_late, evd));
	is(dat_evd_wait(evd, PATIENCE, 3, &ev, &more), DAT_SUCCESS);
	must(more == 2); // a long wait says how many events are left
	pthread_join(late, NULL);
	is(dat_evd_free(evd), DAT_SUCCESS);
	is(dat_cno_free(cno), DAT_SUCCESS);
}

static DAT_EVD_HANDLE asked, asking;
static DAT_PZ_HANDLE askers;
static int answered, enough; // answered requests; whether the threads may end

static void *ask(void *arg)
{
	DAT_EP_HANDLE ep;
	DAT_EVENT ev;
	DAT_COUNT more;

	while (!__atomic_load_n(&enough, __ATOMIC_ACQUIRE)) { // most find no service point
		is(dat_ep_create(ia, askers, DAT_HANDLE_NULL, DAT_HANDLE_NULL, asking, NULL, &ep), DAT_SUCCESS);
		is(dat_ep_connect(ep, ia_attr.ia_address_ptr, QUAL + 4, PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
				  DAT_CONNECT_DEFAULT_FLAG),
		   DAT_SUCCESS);
		is(dat_evd_wait(asking, PATIENCE, 1, &ev, &more), DAT_SUCCESS);
		is(dat_ep_free(ep), DAT_SUCCESS);
	}
	return NULL;
}

static void *answer(void *arg)
{
	DAT_CR_ARRIVAL_EVENT_DATA *d;
	DAT_EVENT ev;
	DAT_COUNT more;

	for (;;) {
		if (dat_evd_wait(asked, SECOND / 100, 1, &ev, &more) != DAT_SUCCESS) {
			if (__atomic_load_n(&enough, __ATOMIC_ACQUIRE) == 2)
				return NULL;
			continue;
		}
		d = &ev.event_data.cr_arrival_event_data;
		must(d->sp_handle.psp_handle != DAT_HANDLE_NULL);
		is(dat_cr_reject(d->cr_handle, 0, NULL), DAT_SUCCESS);
		__atomic_add_fetch(&answered, 1, __ATOMIC_RELEASE);
	}
}

static void check_requests(void)
{
	pthread_t client, server;
	DAT_PSP_HANDLE psp;

	is(dat_pz_create(ia, &askers), DAT_SUCCESS);
	is(dat_evd_create(ia, 64, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &asked), DAT_SUCCESS);
	is(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &asking), DAT_SUCCESS);
	must(!pthread_create(&client, NULL, ask, NULL) && !pthread_create(&server, NULL, answer, NULL));
	for (int i = 0; i < POINTS; i++) {
		int before = __atomic_load_n(&answered, __ATOMIC_ACQUIRE);

		is(dat_psp_create(ia, QUAL + 4, asked, DAT_PSP_CONSUMER_FLAG, &psp), DAT_SUCCESS);
		while (__atomic_load_n(&answered, __ATOMIC_ACQUIRE) == before)
			usleep(50);
		is(dat_psp_free(psp), DAT_SUCCESS);
	}
	__atomic_store_n(&enough, 1, __ATOMIC_RELEASE);
	pthread_join(client, NULL);
	__atomic_store_n(&enough, 2, __ATOMIC_RELEASE);
	pthread_join(server, NULL);
	is(dat_evd_free(asked), DAT_SUCCESS);
	is(dat_evd_free(asking), DAT_SUCCESS);
	is(dat_pz_free(askers), DAT_SUCCESS);
}

static void on_signal(int sig) {}

static DAT_EVD_HANDLE agent_evd;

static void agent(DAT_PVOID data, DAT_EVD_HANDLE evd)
{
	if (data == &agent_evd)
		__atomic_store_n(&agent_evd, evd, __ATOMIC_RELEASE);
}

static void check_waits(end *a)
{
	DAT_EVENT ev;
	DAT_COUNT more;
	DAT_CNO_HANDLE cno;
	DAT_CNO_PARAM param;
	DAT_EVD_HANDLE evd, triggered;
	DAT_OS_WAIT_PROXY_AGENT proxy = {&agent_evd, agent};

	is(dat_evd_wait(a->recv, 0, 1, &ev, &more), ERR(DAT_TIMEOUT_EXPIRED, 0));
	is(dat_evd_wait(a->recv, SECOND / 20, 1, &ev, &more), ERR(DAT_TIMEOUT_EXPIRED, 0));
	signal(SIGALRM, on_signal);
	alarm(1);
	is(dat_evd_wait(a->recv, PATIENCE, 1, &ev, &more), ERR(DAT_INTERRUPTED_CALL, 0));
	alarm(1);
	is(dat_evd_wait(a->recv, DAT_TIMEOUT_INFINITE, 1, &ev, &more), ERR(DAT_INTERRUPTED_CALL, 0));

	is(dat_cno_create(ia, DAT_OS_WAIT_PROXY_AGENT_NULL, &cno), DAT_SUCCESS);
	is(dat_evd_create(ia, 4, cno, DAT_EVD_SOFTWARE_FLAG, &evd), DAT_SUCCESS);
	for (int i = 0; i < 2; i++) {
		triggered = evd;
		is(dat_cno_wait(cno, i * SECOND / 20, &triggered), ERR(DAT_QUEUE_EMPTY, 0));
		must(triggered == DAT_HANDLE_NULL);
	}
	alarm(1);
	is(dat_cno_wait(cno, DAT_TIMEOUT_INFINITE, &triggered), ERR(DAT_INTERRUPTED_CALL, 0));
	ev.event_number = DAT_SOFTWARE_EVENT;
	is(dat_evd_post_se(evd, &ev), DAT_SUCCESS);
	is(dat_cno_wait(cno, PATIENCE, &triggered), DAT_SUCCESS);
	must(triggered == evd);
	is(dat_cno_modify_agent(cno, proxy), DAT_SUCCESS);
	is(dat_cno_query(cno, DAT_CNO_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.proxy_type == DAT_PROXY_TYPE_AGENT && param.proxy.agent.proxy_agent_func == agent);
	must(param.proxy.agent.instance_data == &agent_evd);
	is(dat_evd_post_se(evd, &ev), DAT_SUCCESS);
	for (int i = 0; i < 6000 && !__atomic_load_n(&agent_evd, __ATOMIC_ACQUIRE); i++)
		usleep(10000);
	must(agent_evd == evd);
	is(dat_evd_free(evd), DAT_SUCCESS);
	is(dat_cno_free(cno), DAT_SUCCESS);
}

// Several threads wait, each for a software event that the thread before it posts.

enum { THREADS = 16, ROUNDS = 200 };
static DAT_EVD_HANDLE circle[THREADS];

static void *pass_on(void *arg)
{
	long i = (long)arg;
	DAT_EVENT ev;
	DAT_COUNT more;

	for (int round = 0; round < ROUNDS; round++) {
		is(dat_evd_wait(circle[i], DAT_TIMEOUT_INFINITE, 1, &ev, &more), DAT_SUCCESS);
		is(dat_evd_post_se(circle[(i + 1) % THREADS], &ev), DAT_SUCCESS);
	}
	return NULL;
}

static void check_threads(void)
{
	pthread_t t[THREADS];
	DAT_EVENT ev = {.event_number = DAT_SOFTWARE_EVENT};

	for (long i = 0; i < THREADS; i++)
		is(dat_evd_create(ia, 4, DAT_HANDLE_NULL, DAT_EVD_SOFTWARE_FLAG, &circle[i]), DAT_SUCCESS);
	for (long i = 0; i < THREADS; i++)
		must(!pthread_create(&t[i], NULL, pass_on, (void *)i));
	is(dat_evd_post_se(circle[0], &ev), DAT_SUCCESS);
	for (long i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (long i = 0; i < THREADS; i++)
		is(dat_evd_free(circle[i]), DAT_SUCCESS);
}

static double seconds(void) // processor time of this thread, without that of other programs
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void bench(end *a, end *b)
{
	enum { N = 1000000, BATCH = 50, ROUNDS = 4000 };
	double start, empty, posts = 0, all;
	DAT_LMR_TRIPLET l = local(a, 0, 64);
	DAT_RMR_TRIPLET r = remote(b, 0, 64);
	DAT_EVENT ev;

	start = seconds();
	for (int i = 0; i < N; i++)
		dat_evd_dequeue(a->recv, &ev);
	empty = seconds() - start;
	start = seconds();
	for (int i = 0; i < ROUNDS; i++) {
		double before = seconds();

		for (int j = 0; j < BATCH; j++)
			is(dat_ep_post_rdma_write(a->ep, 1, &l, cookie(j), &r, DAT_COMPLETION_DEFAULT_FLAG), DAT_SUCCESS);
		posts += seconds() - before;
		for (int j = 0; j < BATCH;)
			j += dat_evd_dequeue(a->request, &ev) == DAT_SUCCESS;
	}
	all = seconds() - start;
	printf("empty dequeue %.0f ns, post %.0f ns, post with completion %.0f ns\n", empty / N * 1e9,
	       posts / ROUNDS / BATCH * 1e9, all / ROUNDS / BATCH * 1e9);
}

int main(int argc, char **argv)
{
	end a, b;
	DAT_EP_PARAM param;

	if (argc < 2)
		return 2;
	strict = argc > 2 && !strcmp(argv[2], "strict");
	open_all(argv[1], &a, &b);
	check_rights(&a);
	if (strict) {
		check_flags(&a);
		check_no_attributes(&a);
	} else if (argc > 2) {
		bench(&a, &b);
	} else {
		check_transfers(&a, &b);
		check_suppressed(&a, &b);
		check_handles(&a);
		check_queries(&a);
		check_async(argv[1]);
		check_arguments(&a);
		check_shared(&a);
		check_shared_counts();
		check_windows(&a, &b);
		check_sync(&a);
		check_limits(&a);
		check_flags(&a);
		check_extension();
		check_no_attributes(&a);
		check_modify(&a);
		check_handoff(&a);
		check_reserved(argv[1]);
		check_requests();
		check_many();
		check_files();
		check_waits(&a);
		check_threads();
	}
	is(dat_ep_disconnect(a.ep, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	event(a.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
	event(b.connect, DAT_CONNECTION_EVENT_DISCONNECTED);
	is(dat_ep_query(a.ep, DAT_EP_FIELD_ALL, &param), DAT_SUCCESS);
	must(param.remote_ia_address_ptr->sa_family == 0 && port_of(param.remote_ia_address_ptr) == 0);
	close_end(&a);
	close_end(&b);
	is(dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_SUCCESS);
	printf("ok\n");
	return 0;
}
