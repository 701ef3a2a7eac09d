// Prints the rate of this host's time stamp counter in kHz.
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

struct sample { long long ns; unsigned long long ticks; };

// Reads the clock 50 times, and the counter just before and just after each time. The result is
// that of the pass in which these two counter values are closest.
static struct sample take(void) {
	struct sample best = {0, 0};
	unsigned long long width = ~0ULL;
	for (int i = 0; i < 50; i++) {
		struct timespec t;
		unsigned long long before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC_RAW, &t);
		unsigned long long after = __rdtsc();
		if (after - before < width) {
			width = after - before;
			best.ns = t.tv_sec * 1000000000LL + t.tv_nsec;
			best.ticks = before + width / 2;
		}
	}
	return best;
}

int main(void) {
	struct timespec pause = {0, 200 * 1000 * 1000};
	struct sample a = take();
	nanosleep(&pause, NULL);
	struct sample b = take();
	printf("%.0f\n", (b.ticks - a.ticks) * 1e6 / (b.ns - a.ns));
	return 0;
}
