//go:build linux && cgo

// The functions of libibverbs and librdmacm in a program that is linked with the libraries. Only
// such a build needs the headers of rdma-core, which name the drivers.

#ifdef RDMA_STATIC_PROVIDERS

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

static struct ibv_device **device_list(int *n) { return ibv_get_device_list(n); } // makes the drivers known
#undef ibv_get_device_list
#define ibv_get_device_list device_list

__attribute__((visibility("hidden"))) void cv_linked(void **calls)
{
#define POINTER(result, name, version, parameters, arguments) *calls++ = (void *)name;
#define OTHER POINTER
#include "libcalls.h"
}

#endif
