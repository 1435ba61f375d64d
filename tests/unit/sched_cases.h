/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems for the tests of sched/: random small ones, their optimum by enumeration, scratch of the
 * exact size (so that a sanitizer sees any step beyond it).
 */
#ifndef ATSI_TEST_SCHED_CASES_H
#define ATSI_TEST_SCHED_CASES_H

#include "sched/chain.h"

#define CASE_MAX 640

/* A chain with arrays of its own. */
struct sched_case {
    struct sched_op op[CASE_MAX];
    uint8_t b[CASE_MAX];
    uint32_t depth[SCHED_MAX_CLASSES];
    struct sched_chain ch;
};

enum case_kind {
    CASE_DENSE,   /* decode: weights of mixed sizes, transfers about as long as the CPU takes */
    CASE_EXPERTS, /* decode with routers that release transfers */
    CASE_PREFILL, /* the CPU far slower than a transfer */
    CASE_WILD,    /* nothing correlated, zeros and ties */
    CASE_KINDS
};

/* The generator of all tests: deterministic, good enough (xorshift*). */
uint64_t case_next(uint64_t *state);
int64_t case_range(uint64_t *state, int64_t lo, int64_t hi);

/* Zeroed but for speeds of 1, no releases, no pins, one class of two slots; sets n. */
void case_plain(struct sched_case *c, uint32_t n);
void case_random(struct sched_case *c, uint64_t seed, uint32_t n, enum case_kind kind);
/* Random contention speeds between 0.5 and 1. */
void case_contend(struct sched_case *c, uint64_t seed);
/* A random legal plan. */
void case_plan(const struct sched_case *c, uint64_t *state, uint8_t *rb);

/* Least value of `cost` over all legal plans, rb_out: the first that has it. */
typedef double (*case_cost)(const struct sched_chain *ch, const uint8_t *rb, void *scratch);
double case_optimum(const struct sched_case *c, case_cost cost, uint8_t *rb_out);
double case_latency(const struct sched_chain *ch, const uint8_t *rb, void *scratch);
double case_fluid(const struct sched_chain *ch, const uint8_t *rb, void *scratch);

/* 64-byte aligned, filled with junk; free(). */
void *case_scratch(size_t bytes);

#endif
