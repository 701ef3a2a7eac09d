// Declarations for all files of the loop device. Include this header before all others.
#ifndef GODAT_LOOPDEV_H
#define GODAT_LOOPDEV_H

#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#undef ibv_get_device_list // the headers define macros with these names
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// The function f of the host's libibverbs or librdmacm.
#define HOST(f) ((__typeof__(&f))loop_host(#f))

#define LOOP_HIDDEN __attribute__((visibility("hidden")))
LOOP_HIDDEN void *loop_host(const char *name);

// Returns the GID by which other processes find this one.
LOOP_HIDDEN union ibv_gid loop_gid(void);

#endif
