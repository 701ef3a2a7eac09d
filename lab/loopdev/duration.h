// Reads durations in the notation of Go: 1us, 10486ns, 2.5ms.
#ifndef GODAT_LOOPDEV_DURATION_H
#define GODAT_LOOPDEV_DURATION_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Reads the duration at *text, stores its nanoseconds in *ns, and advances *text past the duration.
// Returns 1, or 0 if *text does not begin with a duration.
static inline int read_duration(const char **text, uint64_t *ns)
{
	static const struct {
		const char *name;
		double ns;
	} units[] = { { "ns", 1 }, { "us", 1e3 }, { "µs", 1e3 }, { "ms", 1e6 }, { "s", 1e9 } };
	char *end;
	double n = strtod(*text, &end);
	size_t i;

	for (i = 0; end != *text && n >= 0 && i < sizeof(units) / sizeof(*units); i++) {
		size_t length = strlen(units[i].name);

		if (strncmp(end, units[i].name, length))
			continue;
		*text = end + length;
		*ns = (uint64_t)(n * units[i].ns);
		return 1;
	}
	return 0;
}

#endif
