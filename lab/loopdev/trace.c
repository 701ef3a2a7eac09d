// Is built into a copy of the loop device whose functions call __cyg_profile_func_enter
// (-finstrument-functions). It writes each function's offset in the library to the file that
// GODAT_LOOP_TRACE names, once.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLOTS = 4096 }; // several times as many as the library has functions

void __cyg_profile_func_enter(void *function, void *site) __attribute__((no_instrument_function));
void __cyg_profile_func_exit(void *function, void *site) __attribute__((no_instrument_function));

void __cyg_profile_func_enter(void *function, void *site)
{
	static void *seen[SLOTS];
	const char *file = getenv("GODAT_LOOP_TRACE");
	uintptr_t i = (uintptr_t)function >> 4;
	Dl_info info;
	char line[32];
	int fd, n;

	(void)site;
	for (;; i++) {
		void **slot = &seen[i % SLOTS], *none = NULL;

		if (__atomic_load_n(slot, __ATOMIC_RELAXED) == function)
			return;
		if (__atomic_compare_exchange_n(slot, &none, function, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			break;
		if (none == function)
			return;
	}
	if (!file || !dladdr(function, &info) || (fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) < 0)
		return;
	n = snprintf(line, sizeof(line), "%lx\n", (unsigned long)((uintptr_t)function - (uintptr_t)info.dli_fbase));
	if (write(fd, line, (size_t)n) != n)
		abort();
	close(fd);
}

void __cyg_profile_func_exit(void *function, void *site)
{
	(void)function;
	(void)site;
}
