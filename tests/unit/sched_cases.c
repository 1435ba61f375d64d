/* SPDX-License-Identifier: Apache-2.0 */
#include "sched_cases.h"

#include <stdlib.h>
#include <string.h>

#include "sched/timeline.h"

uint64_t case_next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

int64_t case_range(uint64_t *state, int64_t lo, int64_t hi)
{
    return lo + (int64_t)((case_next(state) >> 11) % (uint64_t)(hi - lo + 1));
}

void case_plain(struct sched_case *c, uint32_t n)
{
    memset(c, 0, sizeof *c);
    c->depth[0] = 2;
    c->ch = (struct sched_chain){.n = n,
                                 .n_classes = 1,
                                 .op = c->op,
                                 .b = c->b,
                                 .depth = c->depth,
                                 .budget = INT64_C(1) << 40,
                                 .am = 1,
                                 .ax = 1};
    for (uint32_t i = 0; i < n; i++) {
        c->op[i].km = c->op[i].kx = 1;
        c->op[i].rel = c->op[i].layer = -1;
        c->op[i].pinned = -1;
        c->op[i].promo = 1;
    }
}

/* Times from bytes read per round, at about 32 B/ns on the CPU, 400 on the GPU, 12 over the bus. */
static void set_times(struct sched_op *op, uint64_t *st, int64_t act, enum case_kind kind)
{
    op->tc = act / 32 + case_range(st, 5000, 15000);
    op->tg = act / 400 + 4000;
    op->w = act / 12 + 8000;
    if (kind == CASE_PREFILL) {
        op->tc *= case_range(st, 8, 20);
        op->tg *= case_range(st, 4, 12);
    }
    if (kind == CASE_WILD) {
        op->tc = case_range(st, 0, 6) * 1000;
        op->tg = case_range(st, 0, 4) * 1000;
        op->w = case_range(st, 0, 8) * 1000;
    }
}

void case_random(struct sched_case *c, uint64_t seed, uint32_t n, enum case_kind kind)
{
    uint64_t st = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    int64_t base = case_range(&st, 1, 4) * (kind == CASE_WILD ? 500 : 8000), evt;
    int32_t router = -1;
    int on_gpu;
    case_plain(c, n);
    (void)case_next(&st);
    evt = case_range(&st, 0, 1) * 3000;
    on_gpu = (int)case_range(&st, 0, 5);
    c->depth[0] = (uint32_t)case_range(&st, 1, 3);
    c->ch.out = base;
    c->ch.gap = case_range(&st, 0, 1) * 20000;
    for (uint32_t i = 0; i < n; i++) {
        struct sched_op *op = &c->op[i];
        op->s = case_range(&st, 1, 48) << 20;
        set_times(op, &st, kind == CASE_EXPERTS && i % 5 > 1 ? op->s / 4 : op->s, kind);
        op->cg = base * case_range(&st, 5, 15) / 10;
        op->gc = base * case_range(&st, 5, 20) / 10;
        op->c = i > 0 ? (op->cg + op->gc) / 2 : 0;
        op->evt = evt;
        op->promo = case_range(&st, 0, 9) > 0;
        op->layer = (int32_t)(i / 5);
        c->b[i] = case_range(&st, 0, 9) < on_gpu;
        if (kind == CASE_EXPERTS && i % 5 == 1)
            router = (int32_t)i;
        op->is_exp = kind == CASE_EXPERTS && i % 5 > 1;
        op->rel = op->is_exp ? router : -1;
    }
    c->ch.rlat = kind == CASE_EXPERTS ? 15000 : 0;
    if (kind == CASE_WILD && n > 0)
        for (int k = 0; k < 3; k++) { /* releases anywhere */
            uint32_t i = (uint32_t)case_range(&st, 0, n - 1);
            c->op[i].rel = (int32_t)case_range(&st, -1, (int64_t)i - 1);
        }
}

void case_contend(struct sched_case *c, uint64_t seed)
{
    uint64_t st = seed * 77 + 5;
    for (uint32_t i = 0; i < c->ch.n; i++) {
        c->op[i].km = 1e-3 * (double)case_range(&st, 500, 1000);
        c->op[i].kx = 1e-3 * (double)case_range(&st, 500, 1000);
    }
    c->ch.am = c->ch.ax = 0.5;
}

void case_plan(const struct sched_case *c, uint64_t *state, uint8_t *rb)
{
    for (uint32_t i = 0; i < c->ch.n; i++)
        rb[i] = c->b[i] || (c->op[i].promo && case_range(state, 0, 1));
}

double case_latency(const struct sched_chain *ch, const uint8_t *rb, void *scratch)
{
    return (double)sched_latency(ch, rb, NULL, scratch);
}

double case_fluid(const struct sched_chain *ch, const uint8_t *rb, void *scratch)
{
    return sched_fluid(ch, rb, NULL, scratch);
}

double case_optimum(const struct sched_case *c, case_cost cost, uint8_t *rb_out)
{
    void *scratch = case_scratch(sched_timeline_scratch(c->ch.n, 1));
    uint32_t at[CASE_MAX], n_free = 0;
    uint8_t rb[CASE_MAX];
    double best = -1;
    memcpy(rb, c->b, c->ch.n);
    for (uint32_t i = 0; i < c->ch.n; i++)
        if (sched_is_free(&c->ch, i))
            at[n_free++] = i;
    if (n_free > 16)
        abort();
    for (uint32_t bits = 0; bits < 1u << n_free; bits++) {
        double v;
        for (uint32_t k = 0; k < n_free; k++)
            rb[at[k]] = bits >> k & 1;
        v = cost(&c->ch, rb, scratch);
        if (best < 0 || v < best) {
            best = v;
            memcpy(rb_out, rb, c->ch.n);
        }
    }
    free(scratch);
    return best;
}

void *case_scratch(size_t bytes)
{
    void *p = aligned_alloc(64, bytes > 0 ? bytes : 64);
    if (p == NULL || bytes % 64 != 0)
        abort();
    memset(p, 0xA5, bytes);
    return p;
}
