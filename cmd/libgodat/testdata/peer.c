// Prints what a DAT 2.0 provider says of a peer that need not be a DAT program.
//
//   peer IA PORT
//
// It prints the port on which it listens, and each request that comes, until one has the private
// data "end". Then it connects twice from one endpoint to PORT, and prints what the peer answers.
// Each line has the number of the event, the size of the private data, the address family of the
// peer, and all the memory of the private data.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dat2/udat.h>

#define PATIENCE (60 * 1000000)

enum { MEMORY = 512 }; // of private data in a handle of the provider

#define must(condition)                                                                                         \
	do {                                                                                                    \
		if (!(condition)) {                                                                             \
			printf("line %d: not %s\n", __LINE__, #condition);                                      \
			exit(1);                                                                                \
		}                                                                                               \
	} while (0)
#define ok(call) must((call) == DAT_SUCCESS)

static void print(const DAT_EVENT *ev, DAT_COUNT size, const void *private_data, int family)
{
	const unsigned char *b = private_data;

	printf("0x%x %d %s ", ev->event_number, (int)size, family == AF_INET ? "IPv4" : family == AF_INET6 ? "IPv6" : "none");
	for (int i = 0; b && i < MEMORY; i++)
		printf("%02x", b[i]);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	DAT_EVD_HANDLE async = DAT_HANDLE_NULL, requests, connection;
	DAT_IA_HANDLE ia;
	DAT_IA_ATTR attr;
	DAT_PZ_HANDLE pz;
	DAT_PSP_HANDLE psp;
	DAT_EP_HANDLE ep;
	DAT_CONN_QUAL port;
	DAT_CR_PARAM request = {.private_data = NULL};
	DAT_EVENT ev;
	DAT_COUNT more;

	must(argc == 3);
	ok(dat_ia_open(argv[1], 8, &async, &ia));
	ok(dat_ia_query(ia, NULL, DAT_IA_FIELD_ALL, &attr, 0, NULL));
	ok(dat_pz_create(ia, &pz));
	ok(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CR_FLAG, &requests));
	ok(dat_evd_create(ia, 8, DAT_HANDLE_NULL, DAT_EVD_CONNECTION_FLAG, &connection));
	ok(dat_psp_create_any(ia, &port, requests, DAT_PSP_CONSUMER_FLAG, &psp));
	printf("%d\n", (int)port);
	fflush(stdout);
	do {
		DAT_CR_HANDLE cr;

		ok(dat_evd_wait(requests, PATIENCE, 1, &ev, &more));
		must(ev.evd_handle == requests && ev.event_data.cr_arrival_event_data.sp_handle.psp_handle == psp);
		cr = ev.event_data.cr_arrival_event_data.cr_handle;
		ok(dat_cr_query(cr, DAT_CR_FIELD_ALL, &request));
		print(&ev, request.private_data_size, request.private_data, request.remote_ia_address_ptr->sa_family);
		ok(dat_cr_reject(cr, 0, NULL));
	} while (memcmp(request.private_data, "end", 4));

	ok(dat_ep_create(ia, pz, DAT_HANDLE_NULL, DAT_HANDLE_NULL, connection, NULL, &ep));
	for (int i = 0; i < 2; i++) {
		DAT_CONNECTION_EVENT_DATA *d = &ev.event_data.connect_event_data;
		DAT_EP_PARAM param;

		ok(dat_ep_connect(ep, attr.ia_address_ptr, atoi(argv[2]), PATIENCE, 0, NULL, DAT_QOS_BEST_EFFORT,
				  DAT_CONNECT_DEFAULT_FLAG));
		ok(dat_evd_wait(connection, PATIENCE, 1, &ev, &more));
		must(ev.evd_handle == connection && d->ep_handle == ep);
		ok(dat_ep_query(ep, DAT_EP_FIELD_ALL, &param));
		print(&ev, d->private_data_size, d->private_data, param.remote_ia_address_ptr->sa_family);
		ok(dat_ep_reset(ep));
	}
	ok(dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG));
	printf("ok\n");
	return 0;
}
