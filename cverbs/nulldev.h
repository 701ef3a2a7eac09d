// A verbs device with nearly empty operations, to measure the cost of the binding. Only with the
// build tag nulldev.
#ifndef GODAT_CVERBS_NULLDEV_H
#define GODAT_CVERBS_NULLDEV_H

#include "shim.h"

struct ibv_cq *cv_null_cq(void);
struct ibv_qp *cv_null_qp(struct ibv_cq *send, struct ibv_cq *recv);
uint64_t cv_null_polls(struct ibv_cq *cq);
void cv_null_free_cq(struct ibv_cq *cq);
void cv_null_free_qp(struct ibv_qp *qp);
uint64_t cv_null_loop(struct ibv_qp *qp, struct ibv_cq *cq, uint64_t rounds, uint32_t batch);
void cv_null_call(void);
int cv_null_fences(int on);
uint64_t cv_null_enter(void);
void cv_null_shut(uint32_t rounds);

#endif
