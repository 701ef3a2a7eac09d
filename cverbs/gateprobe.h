// What the tests of gates and polls need in C. Only with the build tag nulldev.
#ifndef GODAT_CVERBS_GATEPROBE_H
#define GODAT_CVERBS_GATEPROBE_H

#include "shim.h"

// Switches to the mode for kernels without membarrier, or back; returns the previous mode.
int cv_probe_fences(int on);

// One thread enters and leaves a gate while another opens and closes it, rounds times. The first
// returns how often it was inside after the gate had been closed and waited for.
uint64_t cv_probe_enter(void);
void cv_probe_shut(uint32_t rounds);

// From the first call on, counts the polls of all queues of the queue's context.
uint64_t cv_probe_polls(struct ibv_cq *cq);

#endif
