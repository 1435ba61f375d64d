/* SPDX-License-Identifier: Apache-2.0
 *
 * Made-up routing traces.  Each layer has its experts in an order of ranks; a token takes distinct
 * ranks, each drawn with weight rank^-zipf among those not taken yet.  Neighbouring ranks are
 * swapped now and then (drift), ranks may be those of the layer before (follow) or experts those of
 * the token before (repeat).
 */
#include "core/experts/routing.h"

#include <math.h>
#include <stdlib.h>

#define MOST_TOKENS (UINT64_C(1) << 24)

struct maker {
    const struct atsi_routing_skew *p;
    uint64_t state;
    double *below;                  /* [n_experts + 1] sums of the weights of smaller ranks */
    uint16_t *rank;                 /* [n_layers][n_experts] expert by rank */
    double *due;                    /* [n_layers] swaps that are due */
    int32_t *ids;                   /* [n_layers][n_used] of the token; before: of the one before */
    uint32_t *ranks, *ranks_before; /* [n_used] of this layer and of the one before */
    unsigned char *taken;           /* [n_experts] */
};

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t draw(struct maker *m)
{
    uint64_t z = m->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* In [0, 1). */
static double uniform(struct maker *m)
{
    return (double)(draw(m) >> 11) * 0x1p-53;
}

static uint32_t below(struct maker *m, uint32_t n)
{
    return (uint32_t)(uniform(m) * n);
}

static uint32_t draw_rank(struct maker *m)
{
    uint32_t n = m->p->n_experts, lo = 0, hi = n;
    double at = uniform(m) * m->below[n];
    while (hi - lo > 1) { /* the last rank whose sum is not above */
        uint32_t mid = lo + (hi - lo) / 2;
        if (m->below[mid] <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* A rank that is free; after many tries the first free one, as with a steep Zipf. */
static uint32_t free_rank(struct maker *m, const uint16_t *rank)
{
    uint32_t r = 0;
    for (int t = 0; t < 64; t++) {
        r = draw_rank(m);
        if (m->taken[rank[r]] == 0)
            return r;
    }
    for (r = 0; m->taken[rank[r]] != 0;)
        r++;
    return r;
}

static uint32_t rank_of(const uint16_t *rank, int32_t expert)
{
    uint32_t r = 0;
    while (rank[r] != expert)
        r++;
    return r;
}

static void choose(struct maker *m, uint32_t layer, bool first_token)
{
    uint32_t used = m->p->n_used;
    const uint16_t *rank = m->rank + (size_t)layer * m->p->n_experts;
    int32_t *ids = m->ids + (size_t)layer * used;
    for (uint32_t k = 0; k < used; k++) {
        bool keep = !first_token && uniform(m) < m->p->repeat && m->taken[ids[k]] == 0;
        bool follow = !keep && layer > 0 && uniform(m) < m->p->follow;
        uint32_t r;
        if (keep)
            r = rank_of(rank, ids[k]);
        else if (follow && m->taken[rank[m->ranks_before[k]]] == 0)
            r = m->ranks_before[k];
        else
            r = free_rank(m, rank);
        m->ranks[k] = r;
        ids[k] = rank[r];
        m->taken[rank[r]] = 1;
    }
    /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): close_maker() frees all of a maker's memory */
    for (uint32_t k = 0; k < used; k++)
        m->taken[ids[k]] = 0;
}

static void drift(struct maker *m, uint32_t layer)
{
    uint16_t *rank = m->rank + (size_t)layer * m->p->n_experts;
    for (m->due[layer] += m->p->drift; m->due[layer] >= 1; m->due[layer] -= 1) {
        uint32_t r = m->p->n_experts > 1 ? below(m, m->p->n_experts - 1) : 0;
        uint16_t one = rank[r];
        if (m->p->n_experts < 2)
            continue;
        rank[r] = rank[r + 1];
        rank[r + 1] = one;
    }
}

static int make_tokens(struct maker *m, struct atsi_routing *r, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint64_t t = 0; t < m->p->n_tokens && rc == ATSI_OK; t++) {
        for (uint32_t l = 0; l < m->p->n_layers; l++) {
            uint32_t *old = m->ranks_before;
            choose(m, l, t == 0);
            drift(m, l);
            m->ranks_before = m->ranks;
            m->ranks = old;
        }
        rc = atsi_routing_add(r, ATSI_PHASE_DECODE, m->ids, err);
    }
    return rc;
}

/* Every layer in an order of its own. */
static void shuffle(struct maker *m)
{
    uint32_t n = m->p->n_experts;
    for (uint32_t l = 0; l < m->p->n_layers; l++) {
        uint16_t *rank = m->rank + (size_t)l * n;
        for (uint32_t e = 0; e < n; e++)
            rank[e] = (uint16_t)e;
        for (uint32_t e = n; e > 1; e--) {
            uint32_t other = below(m, e);
            uint16_t one = rank[e - 1];
            rank[e - 1] = rank[other];
            rank[other] = one;
        }
    }
}

static int check(const struct atsi_routing_skew *p, struct atsi_err *err)
{
    if (!(p->zipf >= 0 && p->zipf <= 10))
        return atsi_fail(err, ATSI_EINVAL, "zipf %g: expected 0..10", p->zipf);
    if (!(p->drift >= 0 && p->drift <= 1e6))
        return atsi_fail(err, ATSI_EINVAL, "drift %g: expected 0..1e6 swaps per token", p->drift);
    if (!(p->follow >= 0 && p->follow <= 1) || !(p->repeat >= 0 && p->repeat <= 1))
        return atsi_fail(err, ATSI_EINVAL, "follow %g, repeat %g: expected shares of 0..1",
                         p->follow, p->repeat);
    if (p->n_tokens > MOST_TOKENS)
        return atsi_fail(err, ATSI_EINVAL, "%llu tokens, at most %llu",
                         (unsigned long long)p->n_tokens, (unsigned long long)MOST_TOKENS);
    return ATSI_OK;
}

static int open_trace(const struct atsi_routing_skew *p, struct atsi_routing **out,
                      struct atsi_err *err)
{
    struct atsi_routing_layer layers[ATSI_ROUTING_LAYERS];
    char name[96];
    for (uint32_t l = 0; l < p->n_layers && l < ATSI_ROUTING_LAYERS; l++)
        layers[l] = (struct atsi_routing_layer){l, p->n_experts, p->n_used};
    (void)snprintf(name, sizeof name, "zipf %g, drift %g, follow %g, repeat %g, seed %llu", p->zipf,
                   p->drift, p->follow, p->repeat, (unsigned long long)p->seed);
    return atsi_routing_new(name, layers, p->n_layers, out, err);
}

static int open_maker(struct maker *m, struct atsi_err *err)
{
    const struct atsi_routing_skew *p = m->p;
    m->below = calloc((size_t)p->n_experts + 1, sizeof *m->below);
    m->rank = calloc((size_t)p->n_layers * p->n_experts, sizeof *m->rank);
    m->due = calloc(p->n_layers, sizeof *m->due);
    m->ids = calloc((size_t)p->n_layers * p->n_used, sizeof *m->ids);
    m->ranks = calloc(p->n_used, sizeof *m->ranks);
    m->ranks_before = calloc(p->n_used, sizeof *m->ranks_before);
    m->taken = calloc(p->n_experts, 1);
    if (m->below == NULL || m->rank == NULL || m->due == NULL || m->ids == NULL ||
        m->ranks == NULL || m->ranks_before == NULL || m->taken == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory making a trace");
    for (uint32_t k = 0; k < p->n_experts; k++)
        m->below[k + 1] = m->below[k] + pow((double)k + 1, -p->zipf);
    shuffle(m);
    return ATSI_OK;
}

static void close_maker(struct maker *m)
{
    free(m->below);
    free(m->rank);
    free(m->due);
    free(m->ids);
    free(m->ranks);
    free(m->ranks_before);
    free(m->taken);
}

int atsi_routing_generate(const struct atsi_routing_skew *p, struct atsi_routing **out,
                          struct atsi_err *err)
{
    struct maker m = {.p = p, .state = p->seed};
    struct atsi_routing *r = NULL;
    int rc = check(p, err);
    *out = NULL;
    if (rc == ATSI_OK)
        rc = open_trace(p, &r, err);
    if (rc == ATSI_OK)
        rc = open_maker(&m, err);
    if (rc == ATSI_OK)
        rc = make_tokens(&m, r, err);
    close_maker(&m);
    if (rc == ATSI_OK)
        *out = r;
    else
        atsi_routing_free(r);
    return rc;
}
