/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement for both phases.  Algorithm 1 counts what an operator gains on the GPU over running on
 * the CPU; an operator that may be streamed has a third choice, which costs the GPU's time and some
 * of the copy engine's.  With a price mu on engine time its CPU-side cost is
 *     e(mu) = min(tc, tg + evt + mu w)
 * and Algorithm 1 with gains e - tg of decode, and of prefill weighted by chunks per token,
 * anticipates streaming.  The right prices are not known: a grid of them is tried, and the
 * placements by layers and by experts; both phases are scheduled on each and the shortest request
 * wins.  How long requests will be is a guess, so that of those within 1 % of the shortest one that
 * decodes fastest does.
 */
#include "sched/arena.h"
#include "sched/dynamic.h"
#include "sched/place.h"
#include "sched/spread.h"

#include <math.h>
#include <string.h>

/* Prices of engine time; never: operators are not expected to be streamed. */
static const double never = HUGE_VAL;
static const double decode_price[] = {0.0, 0.2, 0.4, 0.7, 1.0, HUGE_VAL};
static const double prefill_price[] = {0.0, 0.5, 1.0};
enum {
    N_DECODE = sizeof decode_price / sizeof decode_price[0],
    N_PREFILL = sizeof prefill_price / sizeof prefill_price[0],
    /* layer, expert; per decode price: decode alone, and with prefill attention as asked and free
     */
    MAX_TRIED = 2 + (1 + SCHED_SPREADS) * N_DECODE * (1 + 2 * N_PREFILL),
    WIDTH = 8
};

struct grid {
    const struct sched_coplace *how;
    struct sched_chain place;   /* decode's, with attention pinned or not */
    struct sched_op *op;        /* [n] its operators */
    int64_t *r, *c;             /* [n] */
    uint8_t *b;                 /* [n] */
    uint8_t *tried;             /* [MAX_TRIED][n] */
    struct sched_coplaced *got; /* [MAX_TRIED] what came of them */
    uint8_t *rb;                /* [n] */
    struct sched_spread spread;
    uint8_t *alone; /* [n] Algorithm 1's, not spread */
    uint32_t n_tried;
    void *work;
    int attn_fits, has_exp;
};

/* What operator i costs more when it does not live on the GPU. */
static double gain(const struct sched_op *op, double price)
{
    double stay = (double)(op->tc - op->tg), move = HUGE_VAL;
    if (op->promo && price < never)
        move = (double)op->evt + price * (double)op->w;
    return fmin(stay, move);
}

static int64_t schedule(struct grid *g, const struct sched_chain *phase, uint32_t rounds)
{
    struct sched_chain ch = *phase;
    const struct sched_search how = {.rounds = rounds, .width = WIDTH, .quick = 1};
    struct sched_found found;
    ch.b = g->b;
    sched_search(&ch, &how, g->work, g->rb, &found);
    return found.ns;
}

/* Schedules both phases on the placement g->b, unless it came before. */
static void judge(struct grid *g)
{
    const struct sched_coplace *how = g->how;
    struct sched_coplaced *got = &g->got[g->n_tried];
    uint32_t n = g->place.n;
    for (uint32_t k = 0; k < g->n_tried; k++)
        if (memcmp(g->tried + (size_t)k * n, g->b, n) == 0)
            return;
    memcpy(g->tried + (size_t)g->n_tried++ * n, g->b, n);
    got->decode_ns = schedule(g, how->decode, how->decode_rounds);
    got->prefill_ns = schedule(g, how->prefill, 1);
    got->request_ns =
        (double)got->decode_ns * how->n_tokens + (double)got->prefill_ns * how->n_chunks;
}

/* Which of those tried: of the requests within 1 % of the shortest, and of decode rounds within 0.1
 * % of the fastest of these, the fastest prefill. */
static uint32_t choose(const struct grid *g)
{
    double shortest = HUGE_VAL, fastest = HUGE_VAL;
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < g->n_tried; k++)
        shortest = fmin(shortest, g->got[k].request_ns);
    for (uint32_t k = 0; k < g->n_tried; k++)
        if (g->got[k].request_ns <= 1.01 * shortest)
            fastest = fmin(fastest, (double)g->got[k].decode_ns);
    for (uint32_t k = 0; k < g->n_tried; k++) {
        const struct sched_coplaced *a = &g->got[k];
        if (a->request_ns > 1.01 * shortest || (double)a->decode_ns > 1.001 * fastest)
            continue;
        if (best == UINT32_MAX || a->prefill_ns < g->got[best].prefill_ns)
            best = k;
    }
    return best;
}

/* Algorithm 1 at these prices; prefill counts if it has one. */
static int try_prices(struct grid *g, double decode, const double *prefill, int pin_attn,
                      struct atsi_err *err)
{
    const struct sched_coplace *how = g->how;
    const struct sched_alg1 alg1 = {.unit = how->unit, .r = g->r, .c = g->c};
    double per_token = how->n_tokens > 0 ? (double)how->n_chunks / how->n_tokens : 1;
    int64_t value;
    int rc;
    for (uint32_t i = 0; i < g->place.n; i++) {
        double r = gain(&how->decode->op[i], decode);
        if (prefill != NULL)
            r += gain(&how->prefill->op[i], *prefill) * per_token;
        g->r[i] = llround(fmin(r, (double)SCHED_MAX_NS)); /* keeps sums within bounds */
        g->op[i].pinned = how->decode->op[i].pinned;
        if (pin_attn && g->op[i].pinned < 0 && how->attn[i])
            g->op[i].pinned = SCHED_GPU;
    }
    rc = sched_alg1(&g->place, &alg1, g->work, g->b, &value, err);
    if (rc != ATSI_OK)
        return rc;
    judge(g);
    memcpy(g->alone, g->b, g->place.n);
    for (int s = 0; s < SCHED_SPREADS; s++) {
        memcpy(g->b, g->alone, g->place.n);
        sched_spread_apply(&g->spread, (enum sched_spread_how)s, g->b);
        judge(g);
    }
    return ATSI_OK;
}

static int try_grains(struct grid *g, struct atsi_err *err)
{
    int rc = sched_place_grain(g->how->decode, SCHED_BY_LAYER, 0, g->work, g->b, err);
    if (rc != ATSI_OK)
        return rc;
    judge(g);
    rc = sched_place_grain(g->how->decode, SCHED_BY_EXPERT, 0, g->work, g->b, err);
    if (rc == ATSI_OK)
        judge(g);
    return rc;
}

/* Attention left free pays where prefill is counted too, and never did for models with experts. */
static int try_grid(struct grid *g, struct atsi_err *err)
{
    int rc = try_grains(g, err);
    for (int d = 0; rc == ATSI_OK && d < N_DECODE; d++) {
        rc = try_prices(g, decode_price[d], NULL, g->attn_fits, err);
        for (int p = 0; rc == ATSI_OK && p < N_PREFILL; p++) {
            rc = try_prices(g, decode_price[d], &prefill_price[p], g->attn_fits, err);
            if (rc == ATSI_OK && g->attn_fits && !g->has_exp)
                rc = try_prices(g, decode_price[d], &prefill_price[p], 0, err);
        }
    }
    return rc;
}

/* Attention is pinned only where all of it fits beside what the user pinned. */
static void look_at_attention(struct grid *g)
{
    const struct sched_chain *ch = g->how->decode;
    int64_t need = 0, unit = g->how->unit;
    int any = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        const struct sched_op *op = &ch->op[i];
        int attn = g->how->attn != NULL && g->how->attn[i] && op->pinned < 0;
        any |= attn;
        need += attn || op->pinned == SCHED_GPU ? op->s / unit + (op->s % unit != 0) : 0;
        g->has_exp |= op->is_exp;
        g->c[i] = (op->cg + op->gc) / 2;
    }
    g->attn_fits = any && need <= ch->budget / unit;
}

static size_t work_scratch(const struct sched_coplace *how)
{
    uint32_t n = how->decode->n;
    size_t bytes = sched_alg1_scratch(how->decode, how->unit);
    size_t search = sched_search_scratch(n, how->decode_rounds), grain = sched_grain_scratch(n);
    bytes = bytes > search ? bytes : search;
    return bytes > grain ? bytes : grain;
}

size_t sched_coplace_scratch(const struct sched_coplace *how)
{
    uint32_t n = how->decode->n;
    size_t work = work_scratch(how);
    if (work == SIZE_MAX)
        return SIZE_MAX;
    return SCHED_ROOM(struct sched_op, n) + 2 * SCHED_ROOM(int64_t, n) +
           3 * SCHED_ROOM(uint8_t, n) + SCHED_ROOM(uint8_t, (size_t)n * MAX_TRIED) +
           SCHED_ROOM(struct sched_coplaced, MAX_TRIED) + sched_spread_scratch(n) + work;
}

int sched_coplace(const struct sched_coplace *how, void *scratch, uint8_t *b_out,
                  struct sched_coplaced *out, struct atsi_err *err)
{
    uint32_t n = how->decode->n, chosen;
    unsigned char *at = scratch;
    struct grid g = {.how = how, .place = *how->decode};
    int rc;
    g.op = SCHED_TAKE(&at, struct sched_op, n);
    g.r = SCHED_TAKE(&at, int64_t, n);
    g.c = SCHED_TAKE(&at, int64_t, n);
    g.b = SCHED_TAKE(&at, uint8_t, n);
    g.rb = SCHED_TAKE(&at, uint8_t, n);
    g.tried = SCHED_TAKE(&at, uint8_t, (size_t)n * MAX_TRIED);
    g.got = SCHED_TAKE(&at, struct sched_coplaced, MAX_TRIED);
    g.alone = SCHED_TAKE(&at, uint8_t, n);
    sched_spread_init(how->decode, how->prefill, sched_take(&at, sched_spread_scratch(n)),
                      &g.spread);
    g.work = at;
    memcpy(g.op, how->decode->op, n * sizeof *g.op);
    g.place.op = g.op;
    look_at_attention(&g);
    rc = try_grid(&g, err);
    if (rc != ATSI_OK)
        return rc;
    chosen = choose(&g);
    memcpy(b_out, g.tried + (size_t)chosen * n, n);
    *out = g.got[chosen];
    out->tried = g.n_tried;
    return ATSI_OK;
}
