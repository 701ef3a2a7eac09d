// Declarations that the C and the Go files share.

#ifndef GODAT_SHIM_H
#define GODAT_SHIM_H

#include <stdint.h>
#include <netinet/in.h>
#include <dat2/udat.h>
#include <dat2/dat_registry.h>
#include <dat2/dat_ib_extensions.h>

// const types, which Go cannot express
typedef const DAT_EP_ATTR cDAT_EP_ATTR;
typedef const DAT_EP_PARAM cDAT_EP_PARAM;
typedef const DAT_LMR_TRIPLET cDAT_LMR_TRIPLET;

#define GODAT_PENDING 1 // result of a wait: the caller must block on the fd of its godat_wait
#define GODAT_PRIVATE 512 // the most private data that a peer can send: that of iWARP
#define GODAT_PIECE 1024 // handles of the first piece of memory; each further piece has twice as many
#define GODAT_PIECES 12

// godat_handle is what a DAT_HANDLE of this provider points to. libdat2 reads the field provider.
// The memory is never freed. It is reused for another handle only long after the object has been
// freed.
typedef struct godat_handle {
	const DAT_PROVIDER *provider;
	DAT_CONTEXT context;
	uint32_t kind; // DAT_HANDLE_TYPE + 1; 0: freed
	struct sockaddr_in6 local, remote;
	uint8_t private_data[GODAT_PRIVATE];
} godat_handle;

// godat_event is an event as Go writes it: a DAT_EVENT without unions.
typedef struct godat_event {
	DAT_EVENT_NUMBER number;
	DAT_HANDLE evd;
	DAT_HANDLE object; // EP, RMR, service point, or what an asynchronous event is about
	uint64_t cookie;   // or the pointer of a software event
	uint32_t status;
	uint32_t length;
	uint32_t operation;
	uint32_t rmr_context;
	int32_t extension; // DAT_IB_EXT_TYPE; -1: none
	uint32_t immediate;
	DAT_COUNT reason;
	DAT_HANDLE cr;
	DAT_CONN_QUAL qual;
	void *address;
	void *private_data;
	DAT_COUNT private_size;
} godat_event;

// godat_wait is a wait that blocks in C, where a signal can end it. Go writes to fd when the wait
// has ended.
typedef struct godat_wait {
	int fd;
	uintptr_t id;
} godat_wait;

enum { GODAT_SEND, GODAT_SEND_IMMEDIATE, GODAT_SEND_INVALIDATE, GODAT_WRITE, GODAT_WRITE_IMMEDIATE, GODAT_READ,
       GODAT_FETCH_ADD, GODAT_CMP_SWAP }; // same values as udat.OpKind

// dats_get_ia_handle is a function of libdat2. It converts the provider's handle of an adapter to
// the program's handle, or back.
DAT_RETURN dats_get_ia_handle(DAT_IA_HANDLE handle, DAT_IA_HANDLE *other);

const DAT_PROVIDER *godat_provider(const char *name, DAT_BOOLEAN safe);
extern char *godat_handles[GODAT_PIECES];
godat_handle *godat_handles_more(int piece);
void godat_layout(const godat_event *e, DAT_EVENT *out);
DAT_RETURN godat_c_evd_dequeue(DAT_EVD_HANDLE evd, DAT_EVENT *event);
DAT_RETURN godat_c_evd_wait(DAT_EVD_HANDLE evd, DAT_TIMEOUT timeout, DAT_COUNT threshold, DAT_EVENT *event,
			    DAT_COUNT *nmore);
DAT_RETURN godat_c_cno_wait(DAT_CNO_HANDLE cno, DAT_TIMEOUT timeout, DAT_EVD_HANDLE *evd);
int godat_eventfd(void);
void godat_signal(int fd);
void godat_agent(DAT_AGENT_FUNC func, DAT_PVOID data, DAT_EVD_HANDLE evd);

#endif
