/* SPDX-License-Identifier: Apache-2.0
 *
 * Algorithm 2 with one change: a window may start after any earlier operator on either side, so
 * that one promotion can follow another.  Exact for one temporary slot without switch costs.
 *
 * Walking start points back from i can stop at the first one, at its default side, whose window
 * hides the transfer: everything earlier reaches i through it at no less cost.
 */
#include "sched/arena.h"
#include "sched/dynamic.h"

#include <string.h>

#define INF (INT64_MAX / 4)

/* Arrays count from 1; 0 is the virtual start on the CPU. */
struct repaired {
    const struct sched_chain *ch;
    int64_t *P;         /* [n+1] prefix sums of the default path */
    int64_t (*cost)[2]; /* [n+1][side] of ending there */
};

struct start {
    uint32_t j;
    int side;
};

static inline int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int lives_on(const struct repaired *a, uint32_t i)
{
    return i == 0 ? SCHED_CPU : a->ch->b[i - 1];
}

static inline int64_t switch_cost(const struct repaired *a, uint32_t i)
{
    return i > 1 ? a->ch->op[i - 1].c : 0;
}

/* Default path of j+1 .. i-1 when j ran on `side`. */
static inline int64_t segment(const struct repaired *a, uint32_t j, int side, uint32_t i)
{
    int64_t seg = a->P[i - 1] - a->P[j];
    if (j + 1 < i && side != lives_on(a, j)) {
        int64_t c = switch_cost(a, j + 1);
        seg += lives_on(a, j + 1) != side ? c : -c;
    }
    return seg;
}

/* Cost of having the weight of i and the activations at hand, starting the transfer after j. */
static inline int64_t window(const struct repaired *a, uint32_t j, int side, uint32_t i)
{
    int last = j + 1 == i ? side : lives_on(a, i - 1);
    return a->cost[j][side] + max64(a->ch->op[i - 1].w, segment(a, j, side, i)) +
           (last == SCHED_CPU ? switch_cost(a, i) : 0);
}

static int64_t best_window(const struct repaired *a, uint32_t i, struct start *out)
{
    uint32_t first = (uint32_t)(a->ch->op[i - 1].rel + 1);
    int64_t best = INF, w = a->ch->op[i - 1].w;
    for (uint32_t j = i; j-- > first;) {
        for (int side = SCHED_CPU; side <= SCHED_GPU; side++) {
            int64_t v = window(a, j, side, i);
            if (v < best) {
                best = v;
                *out = (struct start){j, side};
            }
        }
        if (a->P[i - 1] - a->P[j] >= w)
            break;
    }
    return best;
}

static void forward(struct repaired *a)
{
    a->P[0] = a->cost[0][SCHED_CPU] = 0;
    a->cost[0][SCHED_GPU] = INF;
    for (uint32_t i = 1; i <= a->ch->n; i++) {
        const struct sched_op *op = &a->ch->op[i - 1];
        const int64_t *prev = a->cost[i - 1];
        int64_t c = switch_cost(a, i);
        struct start from;
        int side = lives_on(a, i);
        a->P[i] = a->P[i - 1] + (side == SCHED_GPU ? op->tg : op->tc) +
                  (side != lives_on(a, i - 1) ? c : 0);
        if (side == SCHED_GPU) {
            a->cost[i][SCHED_CPU] = INF;
            a->cost[i][SCHED_GPU] = min64(prev[SCHED_GPU], prev[SCHED_CPU] + c) + op->tg;
        } else {
            a->cost[i][SCHED_CPU] = min64(prev[SCHED_CPU], prev[SCHED_GPU] + c) + op->tc;
            a->cost[i][SCHED_GPU] = op->promo ? min64(INF, best_window(a, i, &from) + op->tg) : INF;
        }
    }
}

static void walk_back(const struct repaired *a, uint8_t *rb)
{
    uint32_t i = a->ch->n;
    int side = a->cost[i][SCHED_CPU] <= a->cost[i][SCHED_GPU] ? SCHED_CPU : SCHED_GPU;
    memcpy(rb, a->ch->b, i);
    while (i > 0) {
        int64_t c = switch_cost(a, i), other;
        rb[i - 1] = (uint8_t)side;
        if (side == SCHED_GPU && lives_on(a, i) == SCHED_CPU) {
            struct start from = {i - 1, SCHED_CPU};
            (void)best_window(a, i, &from);
            i = from.j;
            side = from.side;
            continue;
        }
        i--;
        other = a->cost[i][!side] + c;
        side = a->cost[i][side] <= other ? side : !side;
    }
}

size_t sched_alg2_repaired_scratch(uint32_t n)
{
    return 3 * SCHED_ROOM(int64_t, (size_t)n + 1);
}

int64_t sched_alg2_repaired(const struct sched_chain *ch, void *scratch, uint8_t *rb_out)
{
    unsigned char *at = scratch;
    struct repaired a = {.ch = ch};
    a.P = SCHED_TAKE(&at, int64_t, (size_t)ch->n + 1);
    a.cost = (int64_t(*)[2])(void *)at;
    forward(&a);
    walk_back(&a, rb_out);
    return min64(a.cost[ch->n][SCHED_CPU], a.cost[ch->n][SCHED_GPU]);
}
