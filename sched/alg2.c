/* SPDX-License-Identifier: Apache-2.0
 *
 * The paper's Algorithm 2: a path over (operator, side), where a promotion of operator i covers a
 * window of operators j+1 .. i-1 at their default sides after a start point j on the CPU, and costs
 * max(transfer, window).  docs/scheduling.md, "Algorithm 2", fixes the readings.
 *
 * Why O(n log n) suffices.  Let P be prefix sums of the default path and d[j] the cost of ending at
 * j on the CPU.  The default path leads from one start point to the next, so d[j] - P[j] never
 * grows with j: among the start points whose window hides the whole transfer the last is best.  Of
 * the later ones, which cost d[j] + w, the cheapest is wanted: a minimum over a suffix, which a
 * stack of ever larger minima answers by bisection.  Which j it was is found again when walking
 * back: the windows walked over are disjoint.
 */
#include "sched/arena.h"
#include "sched/dynamic.h"

#include <string.h>

#define INF (INT64_MAX / 4)

/* Arrays count from 1 as in the paper; 0 is the virtual start on the CPU. */
struct alg2 {
    const struct sched_chain *ch;
    enum sched_alg2_form form;
    int64_t *P, *cpu, *gpu; /* [n+1] default path; cost of ending at i on that side */
    uint32_t *start;        /* [n_start] operators that live on the CPU, ascending */
    uint32_t *least; /* [n_least] of them: each has the least cost of all after the previous */
    uint32_t n_start, n_least;
};

static inline int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int lives_on(const struct alg2 *a, uint32_t i)
{
    return i == 0 ? SCHED_CPU : a->ch->b[i - 1];
}

static inline int64_t switch_cost(const struct alg2 *a, uint32_t i)
{
    return i > 1 ? a->ch->op[i - 1].c : 0;
}

/* What a promoted i pays for the change from the operator before it. */
static inline int64_t entry_cost(const struct alg2 *a, uint32_t i)
{
    int paying = a->form == SCHED_ALG2_LITERAL17 ? SCHED_GPU : SCHED_CPU;
    return lives_on(a, i - 1) == paying ? switch_cost(a, i) : 0;
}

/* First start point allowed for i: 0, or its router. */
static inline uint32_t first_start(const struct alg2 *a, uint32_t i)
{
    return a->form == SCHED_ALG2_CLIPPED ? (uint32_t)(a->ch->op[i - 1].rel + 1) : 0;
}

static inline int64_t window(const struct alg2 *a, int64_t before, uint32_t j, uint32_t i)
{
    return before + max64(a->ch->op[i - 1].w, a->P[i - 1] - a->P[j]);
}

/* Number of start points j with P[j] <= limit. */
static uint32_t count_hiding(const struct alg2 *a, int64_t limit)
{
    uint32_t lo = 0, hi = a->n_start;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (a->P[a->start[mid]] <= limit)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The cheapest start point from operator `from` on, which must not lie behind all of them. */
static uint32_t cheapest_from(const struct alg2 *a, uint32_t from)
{
    uint32_t lo = 0, hi = a->n_least;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (a->least[mid] < from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return a->least[lo];
}

static int64_t best_window(const struct alg2 *a, uint32_t i)
{
    uint32_t first = first_start(a, i);
    uint32_t hiding = count_hiding(a, a->P[i - 1] - a->ch->op[i - 1].w);
    int64_t best = INF;
    if (hiding > 0 && a->start[hiding - 1] >= first)
        best = window(a, a->cpu[a->start[hiding - 1]], a->start[hiding - 1], i);
    if (hiding < a->n_start) {
        uint32_t from = a->start[hiding] > first ? a->start[hiding] : first;
        if (from <= a->start[a->n_start - 1])
            best = min64(best, a->cpu[cheapest_from(a, from)] + a->ch->op[i - 1].w);
    }
    if (first > 0 && lives_on(a, first) == SCHED_GPU) /* the router itself, where it runs anyway */
        best = min64(best, window(a, a->gpu[first], first, i));
    return best;
}

static void add_start(struct alg2 *a, uint32_t i)
{
    a->start[a->n_start++] = i;
    while (a->n_least > 0 && a->cpu[a->least[a->n_least - 1]] >= a->cpu[i])
        a->n_least--;
    a->least[a->n_least++] = i;
}

static void forward(struct alg2 *a)
{
    a->P[0] = a->cpu[0] = 0;
    a->gpu[0] = INF;
    add_start(a, 0);
    for (uint32_t i = 1; i <= a->ch->n; i++) {
        const struct sched_op *op = &a->ch->op[i - 1];
        int side = lives_on(a, i);
        int64_t c = switch_cost(a, i);
        a->P[i] = a->P[i - 1] + (side == SCHED_GPU ? op->tg : op->tc) +
                  (side != lives_on(a, i - 1) ? c : 0);
        if (side == SCHED_GPU) {
            a->cpu[i] = INF;
            a->gpu[i] = min64(a->gpu[i - 1], a->cpu[i - 1] + c) + op->tg;
            continue;
        }
        a->gpu[i] = op->promo ? min64(INF, best_window(a, i) + entry_cost(a, i) + op->tg) : INF;
        a->cpu[i] = min64(a->cpu[i - 1], a->gpu[i - 1] + c) + op->tc;
        add_start(a, i);
    }
}

/* The latest start point of the best window of i; *side_out: where it ran. */
static uint32_t find_window(const struct alg2 *a, uint32_t i, int *side_out)
{
    int64_t want = a->gpu[i] - a->ch->op[i - 1].tg - entry_cost(a, i);
    uint32_t j = i - 1, first = first_start(a, i);
    *side_out = SCHED_CPU;
    for (; j > first; j--)
        if (lives_on(a, j) == SCHED_CPU && window(a, a->cpu[j], j, i) == want)
            return j;
    *side_out = lives_on(a, j);
    return j;
}

static void walk_back(const struct alg2 *a, uint8_t *rb)
{
    uint32_t i = a->ch->n;
    int side = a->cpu[i] <= a->gpu[i] ? SCHED_CPU : SCHED_GPU;
    memcpy(rb, a->ch->b, i);
    while (i > 0) {
        int64_t c = switch_cost(a, i);
        rb[i - 1] = (uint8_t)side;
        if (side == SCHED_GPU && lives_on(a, i) == SCHED_CPU) {
            i = find_window(a, i, &side);
            continue;
        }
        i--;
        if (side == SCHED_CPU)
            side = a->cpu[i] <= a->gpu[i] + c ? SCHED_CPU : SCHED_GPU;
        else
            side = a->gpu[i] <= a->cpu[i] + c ? SCHED_GPU : SCHED_CPU;
    }
}

size_t sched_alg2_scratch(uint32_t n)
{
    size_t len = (size_t)n + 1;
    return 3 * SCHED_ROOM(int64_t, len) + 2 * SCHED_ROOM(uint32_t, len);
}

int64_t sched_alg2(const struct sched_chain *ch, enum sched_alg2_form form, void *scratch,
                   uint8_t *rb_out)
{
    size_t len = (size_t)ch->n + 1;
    unsigned char *at = scratch;
    struct alg2 a = {.ch = ch, .form = form};
    a.P = SCHED_TAKE(&at, int64_t, len);
    a.cpu = SCHED_TAKE(&at, int64_t, len);
    a.gpu = SCHED_TAKE(&at, int64_t, len);
    a.start = SCHED_TAKE(&at, uint32_t, len);
    a.least = SCHED_TAKE(&at, uint32_t, len);
    forward(&a);
    walk_back(&a, rb_out);
    return min64(a.cpu[ch->n], a.gpu[ch->n]);
}
