/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of attention and expert selection.
 *
 * Attention, to first order, with s the exact scores and p the exact weights of a query head:
 *   a score is wrong by   es = (dk + 3) u |scale| max sum|q k|     (dot product, then the scale)
 *   exp(s - max) by       ew = es + 2 u max|s| + 4 u               (its argument; exp within 2 ulp)
 *   a weight by           2 ew + (n_kv + 2) u                      (its own and the sum's error)
 *   the result by         (2 ew + (4 n_kv + 16) u) sum p |v|       (the value sum; another n_kv u
 *                                                                  each for a running maximum)
 * and by n_kv e^-87 max|v| where exp underflows.
 */
#include "ck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct attn_case {
    const struct cpu_kernels *k;
    uint32_t n_q, dk, dv, n_kv, type_k, type_v;
    float stretch; /* of queries: how peaked the weights are; < 0: every score far below zero */
};

struct attn_memory {
    struct ck_mem q, k, v, out, score;
};

static double cache_at(uint32_t type, const struct ck_mem *m, size_t i)
{
    uint16_t h;
    float f;
    if (type == ATSI_TYPE_F16) {
        memcpy(&h, m->data + 2 * i, 2);
        return (double)atsi_f16_to_f32(h);
    }
    memcpy(&f, m->data + 4 * i, 4);
    return (double)f;
}

/* Scores of one head into s; returns the bound on a score's error. */
static double exact_scores(const struct attn_case *a, const struct attn_memory *m, uint32_t h,
                           double *s, double *max_out, double *abs_out)
{
    double most = 0;
    *max_out = -INFINITY;
    *abs_out = 0;
    for (uint32_t p = 0; p < a->n_kv; p++) {
        double dot = 0, sum = 0;
        for (uint32_t i = 0; i < a->dk; i++) {
            double x = (double)((const float *)(const void *)m->q.data)[(size_t)h * a->dk + i] *
                       cache_at(a->type_k, &m->k, (size_t)p * a->dk + i);
            dot += x;
            sum += fabs(x);
        }
        s[p] = dot / sqrt((double)a->dk);
        *max_out = fmax(*max_out, s[p]);
        *abs_out = fmax(*abs_out, fabs(s[p]));
        most = fmax(most, sum / sqrt((double)a->dk));
    }
    return (a->dk + 3) * CK_U * most;
}

static void check_head(struct ck *c, const struct attn_case *a, const struct attn_memory *m,
                       uint32_t h, double *s)
{
    double max, most, sum = 0, es = exact_scores(a, m, h, s, &max, &most), rel;
    const float *out = (const float *)(const void *)m->out.data + (size_t)h * a->dv;
    for (uint32_t p = 0; p < a->n_kv; p++) {
        s[p] = exp(s[p] - max);
        sum += s[p];
    }
    rel = expm1(2 * (es + 2 * CK_U * most + 4 * CK_U) + (4.0 * a->n_kv + 16) * CK_U);
    for (uint32_t i = 0; i < a->dv; i++) {
        double want = 0, parts = 0, largest = 0;
        for (uint32_t p = 0; p < a->n_kv; p++) {
            double v = cache_at(a->type_v, &m->v, (size_t)p * a->dv + i);
            want += s[p] / sum * v;
            parts += s[p] / sum * fabs(v);
            largest = fmax(largest, fabs(v));
        }
        ck_near(c, h, i, out[i], want, rel * parts + a->n_kv * exp(-87.0) * largest);
    }
}

static void fill_cache(struct ck *c, uint32_t type, struct ck_mem *m, size_t n, bool outliers)
{
    ck_fill_weights(c, type, outliers ? CK_OUTLIERS : CK_RANDOM, m->data, n);
    ck_mem_seal(m);
}

static size_t bytes_of(uint32_t type, size_t n)
{
    return n * (type == ATSI_TYPE_F16 ? 2 : 4);
}

static void fill_queries(struct ck *c, const struct attn_case *a, struct ck_mem *q)
{
    for (size_t i = 0; i < (size_t)a->n_q * a->dk; i++) {
        float x = ck_unit(c);
        ((float *)(void *)q->data)[i] = a->stretch * (a->stretch < 0 ? fabsf(x) + 0.5F : x);
    }
    ck_mem_seal(q);
}

/* Keys without sign: with negative queries no score is near zero, so a softmax that takes zero for
 * a cell (padding, a wrong start of the maximum) finds nothing but underflow. */
static void make_positive(uint32_t type, struct ck_mem *m, size_t n)
{
    size_t size = type == ATSI_TYPE_F16 ? 2 : 4;
    for (size_t i = 0; i < n; i++)
        m->data[i * size + size - 1] &= 0x7f;
    ck_mem_seal(m);
}

static void attn_case(struct ck *c, const void *arg)
{
    const struct attn_case *a = arg;
    size_t nk = (size_t)a->n_kv * a->dk, nv = (size_t)a->n_kv * a->dv;
    struct attn_memory m = {
        ck_mem_open((size_t)a->n_q * a->dk * sizeof(float), 4),
        ck_mem_open(bytes_of(a->type_k, nk), 4), ck_mem_open(bytes_of(a->type_v, nv), 4),
        ck_mem_open((size_t)a->n_q * a->dv * sizeof(float), 4),
        ck_mem_open(a->n_q * (((size_t)a->n_kv + 15) / 16 * 16) * sizeof(float), 64)};
    struct cpu_attn_args args = {.n_q = a->n_q,
                                 .dk = a->dk,
                                 .dv = a->dv,
                                 .n_kv = a->n_kv,
                                 .type_k = a->type_k,
                                 .type_v = a->type_v,
                                 .scale = (float)(1 / sqrt((double)a->dk)),
                                 .q = (const float *)(void *)m.q.data,
                                 .k = m.k.data,
                                 .v = m.v.data,
                                 .out = (float *)(void *)m.out.data,
                                 .score = (float *)(void *)m.score.data};
    double *s = malloc(a->n_kv * sizeof *s);
    fill_queries(c, a, &m.q);
    fill_cache(c, a->type_k, &m.k, nk, false);
    if (a->stretch < 0)
        make_positive(a->type_k, &m.k, nk);
    fill_cache(c, a->type_v, &m.v, nv, a->n_kv % 2 != 0);
    a->k->attn(&args);
    for (uint32_t h = 0; h < a->n_q && s != NULL; h++)
        check_head(c, a, &m, h, s);
    ck_mem_check(c, &m.q, "queries");
    ck_mem_check(c, &m.k, "keys");
    ck_mem_check(c, &m.v, "values");
    ck_mem_around(c, &m.out, "out");
    ck_mem_around(c, &m.score, "score");
    ck_mem_close(&m.q);
    ck_mem_close(&m.k);
    ck_mem_close(&m.v);
    ck_mem_close(&m.out);
    ck_mem_close(&m.score);
    free(s);
}

void ck_attn(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t dims[][2] = {{8, 8},     {16, 16},   {20, 20}, {32, 32},
                                       {64, 64},   {80, 80},   {96, 96}, {128, 128},
                                       {192, 128}, {256, 256}, {33, 17}, {64, 128}};
    static const uint32_t cells[] = {1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257, 511};
    static const uint32_t heads[] = {1, 2, 3, 4, 5, 7, 8, 16};
    static const float stretch[] = {0.5F, 4.0F, 60.0F, -2000.0F};
    size_t i = 0;
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t n = 0; n < sizeof cells / sizeof cells[0]; n++)
            for (int types = 0; types < 4; types++, i++) {
                struct attn_case a = {.k = k,
                                      .n_q = heads[i % 8],
                                      .dk = dims[d][0],
                                      .dv = dims[d][1],
                                      .n_kv = cells[n],
                                      .type_k = types % 2 == 0 ? ATSI_TYPE_F16 : ATSI_TYPE_F32,
                                      .type_v = types < 2 ? ATSI_TYPE_F16 : ATSI_TYPE_F32,
                                      .stretch = stretch[i / 3 % 4]};
                ck_case(c, "attn heads=%u dk=%u dv=%u cells=%u k %s v %s, queries of %g", a.n_q,
                        a.dk, a.dv, a.n_kv, atsi_type_info(a.type_k)->name,
                        atsi_type_info(a.type_v)->name, (double)a.stretch);
                ck_guarded(c, attn_case, &a);
            }
}

/* ---------------------------------------------------------------- expert selection */
#define MAX_USED 128u

struct topk_case {
    const struct cpu_kernels *k;
    uint32_t n, used;
    int kind;
};

#define N_TOPK_KINDS 6
static const char *const topk_kind[N_TOPK_KINDS] = {
    "random", "all equal", "pairs of equals", "-infinity among them", "far apart", "NaN"};

static float topk_value(struct ck *c, int kind, uint32_t i)
{
    switch (kind) {
    case 1:
        return 0.25F;
    case 2:
        return (float)(ck_random(c) % 5);
    case 3:
        return i % 3 == 1 ? -INFINITY : ck_unit(c);
    case 4:
        return ck_unit(c) * 200.0F;
    case 5:
        return i % 4 == 2 ? NAN : ck_unit(c);
    default:
        return ck_unit(c) * 5.0F;
    }
}

/* Ids: the k best, larger first, lower id on a tie, NaN last. */
static bool better(const float *x, uint32_t a, uint32_t b)
{
    if (isnan(x[a]) || isnan(x[b]))
        return isnan(x[b]) && (!isnan(x[a]) || a < b);
    return x[a] != x[b] ? x[a] > x[b] : a < b;
}

static void check_ids(struct ck *c, const struct topk_case *o, const float *x, const int32_t *ids)
{
    for (uint32_t j = 0; j < o->used; j++) {
        uint32_t rank = 0;
        if (ids[j] < 0 || (uint32_t)ids[j] >= o->n) {
            ck_fail(c, "place %u = id %d of %u", j, ids[j], o->n);
            return;
        }
        for (uint32_t i = 0; i < o->n; i++)
            rank += better(x, i, (uint32_t)ids[j]) ? 1 : 0;
        if (rank != j)
            ck_fail(c, "place %u holds id %d, which is number %u", j, ids[j], rank);
    }
}

/* A weight: exp within 2 ulp of an argument that rounded once, sums of n terms, two divisions. */
static void check_weights(struct ck *c, const struct topk_case *o, const float *x,
                          const int32_t *ids, const float *w)
{
    double sum = 0, selected = 0, p[MAX_USED], top = (double)x[ids[0]];
    for (uint32_t i = 0; i < o->n; i++)
        sum += exp((double)x[i] - top);
    for (uint32_t j = 0; j < o->used; j++) {
        p[j] = exp((double)x[ids[j]] - top) / sum;
        selected += p[j];
    }
    for (uint32_t j = 0; j < o->used; j++) {
        double far = fabs((double)x[ids[j]] - top), want = p[j] / fmax(selected, 0x1p-14);
        double rel = 2 * (o->n + 8.0) * CK_U + (isfinite(far) ? far * CK_U : 0);
        ck_near(c, j, 0, w[j], want, rel * want + 2 * exp(-87.0));
    }
}

static void topk_case(struct ck *c, const void *arg)
{
    const struct topk_case *o = arg;
    struct ck_mem x = ck_mem_open(o->n * sizeof(float), 4);
    struct ck_mem ids = ck_mem_open(o->used * sizeof(int32_t), 4);
    struct ck_mem w = ck_mem_open(o->used * sizeof(float), 4);
    const float *logits = (const float *)(void *)x.data;
    const int32_t *got = (const int32_t *)(void *)ids.data;
    for (uint32_t i = 0; i < o->n; i++)
        ((float *)(void *)x.data)[i] = topk_value(c, o->kind, i);
    ck_mem_seal(&x);
    o->k->topk(logits, o->n, o->used, (int32_t *)(void *)ids.data, (float *)(void *)w.data);
    check_ids(c, o, logits, got);
    if (o->kind != 5 && got[0] >= 0 && (uint32_t)got[0] < o->n)
        check_weights(c, o, logits, got, (const float *)(void *)w.data);
    ck_mem_check(c, &x, "logits");
    ck_mem_around(c, &ids, "ids");
    ck_mem_around(c, &w, "weights");
    ck_mem_close(&x);
    ck_mem_close(&ids);
    ck_mem_close(&w);
}

void ck_topk(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t shapes[][2] = {{1, 1},   {2, 1},   {2, 2},   {8, 2},    {15, 4},
                                         {16, 16}, {17, 5},  {31, 8},  {64, 6},   {60, 4},
                                         {128, 8}, {129, 8}, {256, 8}, {512, 10}, {128, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int kind = 0; kind < N_TOPK_KINDS; kind++) {
            struct topk_case o = {k, shapes[i][0], shapes[i][1], kind};
            if (kind == 3 && o.n == 2 && o.used == 2)
                o.used = 1; /* one finite logit: the other's weight is 0 / 1 by either rule */
            ck_case(c, "topk n=%u k=%u, %s", o.n, o.used, topk_kind[kind]);
            ck_guarded(c, topk_case, &o);
        }
}
