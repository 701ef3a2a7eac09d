// The loops of a C program on the loop device, which those of Go are measured against. Only with
// the build tag nulldev.
#ifndef GODAT_CVERBS_LOOPBENCH_H
#define GODAT_CVERBS_LOOPBENCH_H

#include <stdint.h>

enum { LB_PING, LB_WRITE, LB_READ, LB_RATE, LB_BATCH, LB_MANY, LB_POSTERS }; // = LoopPing and those that follow it

struct lb_work {
	uint32_t kind, size, batch, ends, threads, events, shared;
	uint64_t warmup, time; // ns
	uint32_t *samples;     // ns of each round, where the kind has any
	uint64_t max_samples;

	uint64_t n, ops, took; // results: samples, operations (where there are samples, with the warm-up's), ns
};

int lb_run(struct lb_work *w); // 0 or errno

#endif
