//go:build linux && cgo

// libibverbs and librdmacm, opened when they are first needed: a program runs where they are not
// installed. Each function of libcalls.h is defined here, hidden from other libraries, and calls
// the library's through a table; so the inline functions of verbs.h and Go call it by its own name.
// A program that has the libraries in it (ci/static.sh) needs no table.

#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#ifdef RDMA_STATIC_PROVIDERS

const char *cv_load(void) { return NULL; }
const char *cv_library_file(int i) { return (void)i, ""; }

#else

#undef ibv_get_device_list // macros around the functions
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#ifndef __GLIBC__ // musl knows no symbol versions
#define dlvsym(handle, name, version) dlsym(handle, name)
#endif

static struct {
#define POINTER(result, name, version, parameters, arguments) result (*name) parameters;
#define OTHER POINTER
#include "libcalls.h"
#undef POINTER
} table;

#define POINTER(result, name, version, parameters, arguments) \
	__attribute__((visibility("hidden"))) result name parameters { return table.name arguments; }
#include "libcalls.h"
#undef POINTER
#undef OTHER

static void *handles[2]; // libibverbs and librdmacm

// What a library that is older than the headers does not have.
static void *missing_pointer(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

static int missing(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

// Returns the function with this name and version, or instead if there is none. A function of a
// library that was loaded before, such as the loop device's, takes precedence; it need not have
// versions.
static void *symbol(const char *name, const char *version, void *instead)
{
	void *library = handles[1]; // and what librdmacm depends on
	void *f = dlsym(RTLD_DEFAULT, name);

	if (!f || f == dlsym(library, name))
		f = dlvsym(library, name, version);
	return f ? f : instead;
}

const char *cv_load(void)
{
	static const char *const names[] = { "libibverbs.so.1", "librdmacm.so.1" };
	static char why[512];
	int i;

	for (i = 0; i < 2; i++) {
		if (!handles[i] && !(handles[i] = dlopen(names[i], RTLD_NOW))) {
			const char *error = dlerror();

			snprintf(why, sizeof(why), "%s", error ? error : names[i]);
			return why;
		}
	}
#define POINTER(result, name, version, parameters, arguments) \
	*(void **)&table.name = symbol(#name, #version, missing_pointer);
#define OTHER(result, name, version, parameters, arguments) *(void **)&table.name = symbol(#name, #version, missing);
#include "libcalls.h"
	return NULL;
}

const char *cv_library_file(int i)
{
	struct link_map *map;

	return dlinfo(handles[i], RTLD_DI_LINKMAP, &map) ? "" : map->l_name;
}

#endif
