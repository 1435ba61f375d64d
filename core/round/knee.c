/* SPDX-License-Identifier: Apache-2.0
 *
 * How many workers a phase takes.  Products that wait for memory are as fast with fewer workers
 * than there are cores; the rest would burn power and slow barriers down.  Times are noisy, and a
 * number that is too small costs more than one that is too large: in doubt all work.
 */
#include "core/round/costs.h"

#define LOSS 0.03        /* against the fastest, a number of workers may lose so much */
#define PLATEAU 0.10     /* and no larger number before the fastest more than this */
#define LEAST_SAMPLES 3u /* fewer have no spread */

/* Median, and half of the spread on top: what a sample may well be. */
static double likely_ns(const struct atsi_cost_threads *p)
{
    return (double)p->ns + (double)(p->high_ns - p->low_ns) / 2;
}

/* From point i up to the fastest one, nothing is much slower: a lucky point on a slope is none. */
static bool is_plateau(const struct atsi_cost_threads *p, uint32_t i, uint32_t best)
{
    for (uint32_t k = i; k < best; k++)
        if ((double)p[k].ns > (double)p[best].ns * (1 + PLATEAU))
            return false;
    return true;
}

uint32_t atsi_threads_knee(const struct atsi_cost_threads *p, uint32_t n)
{
    uint32_t best = 0;
    if (n == 0)
        return 0;
    for (uint32_t i = 1; i < n; i++)
        if (p[i].ns <= p[best].ns)
            best = i;
    for (uint32_t i = 0; i <= best; i++)
        if (p[i].n >= LEAST_SAMPLES && likely_ns(&p[i]) <= (double)p[best].ns * (1 + LOSS) &&
            is_plateau(p, i, best))
            return p[i].threads;
    return p[n - 1].threads;
}

void atsi_costs_threads(const struct atsi_costs *c, const struct atsi_runtime *rt,
                        uint32_t out[ATSI_N_COST_PHASES])
{
    const uint32_t most[ATSI_N_COST_PHASES] = {rt->n_decode, rt->n_prefill};
    const bool open[ATSI_N_COST_PHASES] = {rt->open_decode, rt->open_prefill};
    for (uint32_t f = 0; f < ATSI_N_COST_PHASES; f++) {
        uint32_t knee = open[f] ? atsi_threads_knee(c->threads[f], c->n_threads[f]) : 0;
        out[f] = knee != 0 && knee < most[f] ? knee : most[f];
    }
}
