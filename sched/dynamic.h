/* SPDX-License-Identifier: Apache-2.0
 *
 * Where operators run in the next round: the paper's Algorithm 2 in its readings, the smallest
 * repair of it, the backlog DP, and the search that takes the best of all.  docs/scheduling.md says
 * what each of them optimises.
 *
 * rb_out: [n] sides, always a legal plan.  scratch: 64-byte aligned, of the size told.
 */
#ifndef ATSI_SCHED_DYNAMIC_H
#define ATSI_SCHED_DYNAMIC_H

#include "sched/chain.h"

enum sched_alg2_form {
    SCHED_ALG2_PRINTED,   /* the recurrence with the switch charged where a switch is */
    SCHED_ALG2_LITERAL17, /* line 17 to the letter: charged when the operator before lives on the
                             GPU */
    SCHED_ALG2_CLIPPED    /* as PRINTED, and transfers of experts wait for their router */
};

/* Algorithm 2 in O(n log n).  Returns the plan's cost in the paper's own model. */
size_t sched_alg2_scratch(uint32_t n);
int64_t sched_alg2(const struct sched_chain *ch, enum sched_alg2_form form, void *scratch,
                   uint8_t *rb_out);

/* Algorithm 2 with windows that may start after a promotion too; waits for routers.  O(n) times the
 * operators it takes to hide one transfer. */
size_t sched_alg2_repaired_scratch(uint32_t n);
int64_t sched_alg2_repaired(const struct sched_chain *ch, void *scratch, uint8_t *rb_out);

/* The backlog DP: labels (chain time, backlog of the copy engine), the best few kept per operator
 * and side.  On the contention-free timeline a label is exact; what is approximate is dropping
 * labels. */
struct sched_backlog {
    uint32_t width;              /* labels kept per operator and side, 1..SCHED_MAX_WIDTH */
    uint32_t price, price_scale; /* alpha = price / price_scale: engine time against chain time */
    /* What contention is taken to cost: a transfer takes slower_pm / 1000 of its time longer, and
     * the chain loses lost_pm / 1000 of it; 0, 0: none. */
    uint32_t slower_pm, lost_pm;
    int64_t idle_ns; /* how long before the round the engine has been free */
};
#define SCHED_MAX_WIDTH 64u
size_t sched_backlog_scratch(uint32_t n, uint32_t width);
/* Returns the plan's latency by the labels; rb_out is optimal but for dropped labels. */
int64_t sched_backlog(const struct sched_chain *ch, const struct sched_backlog *how, void *scratch,
                      uint8_t *rb_out);
/* Constant work: wide for few promotable operators, 8 for many. */
uint32_t sched_backlog_width(const struct sched_chain *ch);

/* The whole dynamic scheduler: candidates from all of the above, judged on the timeline, the best
 * one improved by local search.  Never slower there than any candidate, Algorithm 2's plan
 * included. */
enum sched_timeline { SCHED_JUDGE_AUTO, SCHED_JUDGE_FREE, SCHED_JUDGE_FLUID };

struct sched_search {
    enum sched_timeline judge;   /* AUTO: with contention if any speed is below 1 */
    uint32_t rounds;             /* judged by the last of so many: 1, or 2 for a steady state, as if
                                    more followed */
    uint32_t evals;              /* plans that local search may evaluate; 0: candidates only */
    uint32_t width;              /* of the backlog DP; 0: sched_backlog_width() */
    uint32_t n_extra;            /* more candidates, such as the plan in force */
    const uint8_t *const *extra; /* [n_extra][n] legal plans */
    int quick;                   /* 1: one price of engine time instead of two */
};

struct sched_found {
    int64_t ns;     /* of the plan on the timeline it was judged by */
    uint32_t evals; /* plans evaluated */
    int fluid;      /* judged with contention */
};

size_t sched_search_scratch(uint32_t n, uint32_t rounds);
void sched_search(const struct sched_chain *ch, const struct sched_search *how, void *scratch,
                  uint8_t *rb_out, struct sched_found *out);

#endif
