/* SPDX-License-Identifier: Apache-2.0
 * Algorithm 3 and the regret test that replaces it; docs/scheduling.md, "Re-scheduling". */
#include "sched/resched.h"

enum { HORIZON = 64, HYSTERESIS = 100 /* one part in */ };

int sched_deviates(const uint32_t *prev, const uint32_t *cur, uint32_t n, uint32_t eps_pm)
{
    for (uint32_t k = 0; k < n; k++) {
        uint64_t p = prev[k], c = cur[k], d = p > c ? p - c : c - p;
        if (p > 0 && c > 0 && d * 1000 >= (uint64_t)eps_pm * p)
            return 1;
    }
    return 0;
}

int sched_resched_step(struct sched_resched *r, int64_t now_ns, int64_t tpot_ns,
                       const uint32_t *cur)
{
    /* now - last < tau, with a product that cannot overflow */
    int early = tpot_ns > 0 && r->tau_tpots > 0 && (now_ns - r->last_ns) / r->tau_tpots < tpot_ns;
    if (r->started && (early || !sched_deviates(r->prev, cur, r->n, r->eps_pm)))
        return 0;
    for (uint32_t k = 0; k < r->n; k++)
        if (cur[k] > 0)
            r->prev[k] = cur[k];
    r->started = 1;
    r->last_ns = now_ns;
    return 1;
}

int sched_pays(int64_t old_ns, int64_t new_ns, uint32_t tokens_left, int64_t rebuild_ns)
{
    int64_t tokens = tokens_left < HORIZON ? tokens_left : HORIZON;
    return (old_ns - new_ns - old_ns / HYSTERESIS) * tokens > rebuild_ns;
}
