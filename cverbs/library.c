//go:build linux && cgo

// Opens libibverbs and librdmacm when they are first needed, so that a program runs also where they
// are not installed. This file defines each function of libcalls.h, hidden from other libraries.
// The definition calls the library's function through a table. So Go and the inline functions of
// verbs.h call each function by its own name. A program that is linked with the libraries
// (ci/static.sh) needs no table.

#define _GNU_SOURCE
#include "shim.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>

#ifdef RDMA_STATIC_PROVIDERS

const char *cv_load(void) { return NULL; }
const char *cv_library_file(int i) { return (void)i, ""; }

#else

#undef ibv_get_device_list // the headers define macros with these names
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

#ifndef __GLIBC__ // musl has no symbol versions
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

// Replacements for functions that a library lacks because it is older than the headers.
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
