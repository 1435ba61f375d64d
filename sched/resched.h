/* SPDX-License-Identifier: Apache-2.0
 *
 * When to plan anew.  Both answers are exact in integers, so that they can be replayed.
 */
#ifndef ATSI_SCHED_RESCHED_H
#define ATSI_SCHED_RESCHED_H

#include <stdint.h>

/* The paper's Algorithm 3.  Zero-initialise, set the two thresholds. */
struct sched_resched {
    uint32_t eps_pm;    /* deviation that counts, per mille of the value before: 150 */
    uint32_t tau_tpots; /* least interval, in recent times per token: 5 */
    int started;
    int64_t last_ns;
    uint32_t *prev; /* [n] slowdowns at the last decision, per mille; 0: never seen.  [lent] */
    uint32_t n;
};

/* cur: [n] slowdowns now, per mille; 0: the class was not executed lately.  1: schedule now; then
 * the classes present in cur are remembered. */
int sched_resched_step(struct sched_resched *r, int64_t now_ns, int64_t tpot_ns,
                       const uint32_t *cur);
/* Whether some class present in both differs by eps_pm or more. */
int sched_deviates(const uint32_t *prev, const uint32_t *cur, uint32_t n, uint32_t eps_pm);

/* The regret test: whether changing from a plan predicted at old_ns to one at new_ns pays within
 * the tokens left (64 at most), after the cost of rebuilding and 1 % of the old time as hysteresis.
 */
int sched_pays(int64_t old_ns, int64_t new_ns, uint32_t tokens_left, int64_t rebuild_ns);

#endif
