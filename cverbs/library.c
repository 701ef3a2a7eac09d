//go:build linux && cgo

// Opens libibverbs and librdmacm when they are first needed, so that a program runs also where they
// are not installed, and fills the table cv_calls with the addresses of their functions. In a
// program that is linked with the libraries (ci/static.sh), static.c fills the table.

#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <link.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#ifndef __GLIBC__ // musl has no symbol versions
#define dlvsym(handle, name, version) dlsym(handle, name)
#endif

struct cv_calls cv_calls;
int *(*cv_errno)(void) = __errno_location;

#ifdef RDMA_STATIC_PROVIDERS

const char *cv_load(void) { return cv_linked(&cv_calls), NULL; }
const char *cv_library_file(int i) { return (void)i, ""; }

#else

// ---- replacements for functions that a library lacks because it is too old

#define OTHER(result, name, version, parameters, arguments) \
	static result missing_##name parameters { errno = EOPNOTSUPP; return (result)-1; }
#define POINTER(result, name, version, parameters, arguments) \
	static result missing_##name parameters { errno = EOPNOTSUPP; return NULL; }
#include "libcalls.h"
#undef POINTER
#undef OTHER

static struct ibv_mr *old_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
	unsigned int access)
{
	int known = (int)(access & ~IB_UVERBS_ACCESS_OPTIONAL_RANGE);

	return iova == (uintptr_t)addr ? ibv_reg_mr(pd, addr, length, known) :
		ibv_reg_mr_iova(pd, addr, length, iova, known);
}

// Reads an attribute of a GID, such as "types". The text is empty if the attribute cannot be read.
static void gid_attribute(const struct ibv_context *c, const char *what, const struct ibv_gid_entry *e, char *text,
	int n)
{
	char path[sizeof(c->device->ibdev_path) + 64];
	FILE *f;

	snprintf(path, sizeof(path), "%s/ports/%u/gid_attrs/%s/%u", c->device->ibdev_path, e->port_num, what, e->gid_index);
	text[0] = 0;
	if ((f = fopen(path, "re"))) {
		if (!fgets(text, n, f))
			text[0] = 0;
		fclose(f);
	}
	text[strcspn(text, "\n")] = 0;
}

static int old_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e,
	uint32_t flags, size_t size)
{
	static const union ibv_gid none;
	struct ibv_port_attr attr;
	char type[32], interface[IF_NAMESIZE + 1];
	int rc = cv_query_port(c, (uint8_t)port, &attr);

	(void)flags;
	memset(e, 0, size);
	e->port_num = port;
	e->gid_index = index;
	if (rc)
		return rc;
	if (ibv_query_gid(c, (uint8_t)port, (int)index, &e->gid))
		return errno ? errno : EIO;
	if (!memcmp(&e->gid, &none, sizeof(none)))
		return ENODATA;
	gid_attribute(c, "types", e, type, sizeof(type));
	gid_attribute(c, "ndevs", e, interface, sizeof(interface));
	if (attr.link_layer == IBV_LINK_LAYER_ETHERNET)
		e->gid_type = strcmp(type, "RoCE v2") ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
	e->ndev_ifindex = if_nametoindex(interface);
	return 0;
}

static ssize_t old_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *all, size_t max, uint32_t flags,
	size_t size)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	uint32_t p, i;
	size_t n = 0;

	if (ibv_query_device(c, &device))
		return -EIO;
	for (p = 1; p <= device.phys_port_cnt; p++)
		for (i = 0; n < max && !cv_query_port(c, (uint8_t)p, &port) && i < (uint32_t)port.gid_tbl_len; i++)
			n += !old_query_gid_ex(c, p, i, &all[n], flags, size);
	return (ssize_t)n;
}

// ---- loading

static void *handles[2]; // libibverbs and librdmacm

// Returns the function with this name and version, or fallback if there is no such function. If a
// library that was loaded earlier, such as the loop device's, has a function with this name, symbol
// returns that function, whatever its version is.
static void *symbol(const char *name, const char *version, void *fallback)
{
	void *library = handles[1]; // librdmacm; dlsym also searches its dependencies
	void *f = dlsym(RTLD_DEFAULT, name);

	if (!f || f == dlsym(library, name))
		f = dlvsym(library, name, version);
	return f ? f : fallback;
}

const char *cv_load(void)
{
	static const char *const names[] = { "libibverbs.so.1", "librdmacm.so.1" };
	static char why[512];
	int *(*their_errno)(void);
	int i;

	for (i = 0; i < 2; i++) {
		if (!handles[i] && !(handles[i] = dlopen(names[i], RTLD_NOW))) {
			const char *error = dlerror();

			snprintf(why, sizeof(why), "%s", error ? error : names[i]);
			return why;
		}
	}
#define POINTER(result, name, version, parameters, arguments) \
	*(void **)&cv_calls.name = symbol(#name, #version, missing_##name);
#define OTHER POINTER
#include "libcalls.h"
	if (cv_calls.ibv_reg_mr_iova2 == missing_ibv_reg_mr_iova2)
		cv_calls.ibv_reg_mr_iova2 = old_reg_mr_iova2;
	if (cv_calls._ibv_query_gid_ex == missing__ibv_query_gid_ex)
		cv_calls._ibv_query_gid_ex = old_query_gid_ex;
	if (cv_calls._ibv_query_gid_table == missing__ibv_query_gid_table)
		cv_calls._ibv_query_gid_table = old_query_gid_table;
	*(void **)&their_errno = dlsym(handles[0], "__errno_location");
	if (their_errno)
		cv_errno = their_errno;
	return NULL;
}

const char *cv_library_file(int i)
{
	struct link_map *map;

	return dlinfo(handles[i], RTLD_DI_LINKMAP, &map) ? "" : map->l_name;
}

#endif
