/* SPDX-License-Identifier: Apache-2.0
 * Checks of expert selection. */
#include "ck.h"

#include <math.h>
#include <string.h>

#define MAX_USED 128u

struct topk_case {
    const struct cpu_kernels *k;
    uint32_t n, used, gating;
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

/* A weight: exp within 2 ulp of an argument that rounded once, sums of the terms, two divisions. */
static void check_weights(struct ck *c, const struct topk_case *o, const float *x,
                          const int32_t *ids, const float *w)
{
    bool of_all = o->gating == ATSI_GATING_SOFTMAX;
    uint32_t terms = of_all ? o->n : o->used;
    double sum = 0, selected = 0, p[MAX_USED], top = (double)x[ids[0]];
    for (uint32_t i = 0; i < terms; i++)
        sum += exp((double)x[of_all ? i : (uint32_t)ids[i]] - top);
    for (uint32_t j = 0; j < o->used; j++) {
        p[j] = exp((double)x[ids[j]] - top) / sum;
        selected += p[j];
    }
    for (uint32_t j = 0; j < o->used; j++) {
        double far = fabs((double)x[ids[j]] - top);
        double want = of_all ? p[j] / fmax(selected, 0x1p-14) : p[j];
        double rel = 2 * (terms + 8.0) * CK_U + (isfinite(far) ? far * CK_U : 0);
        ck_near(c, j, 0, w[j], want, rel * want + 2 * exp(-87.0));
    }
}

/* As they are, NaN too. */
static void check_logits(struct ck *c, const struct topk_case *o, const float *x,
                         const int32_t *ids, const float *w)
{
    for (uint32_t j = 0; j < o->used; j++) {
        float want;
        if (ids[j] < 0 || (uint32_t)ids[j] >= o->n)
            continue;
        want = x[ids[j]];
        if (memcmp(&w[j], &want, sizeof want) != 0)
            ck_fail(c, "place %u has logit %g, of id %d it is %g", j, (double)w[j], ids[j],
                    (double)want);
    }
}

static const char *gating_name(uint32_t gating)
{
    static const char *const names[] = {"softmax over all", "softmax over the selected", "logits"};
    return names[gating];
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
    o->k->topk(logits, o->n, o->used, o->gating, (int32_t *)(void *)ids.data,
               (float *)(void *)w.data);
    check_ids(c, o, logits, got);
    if (o->gating == ATSI_GATING_NONE)
        check_logits(c, o, logits, got, (const float *)(void *)w.data);
    else if (o->kind != 5 && got[0] >= 0 && (uint32_t)got[0] < o->n)
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
    static const uint32_t shapes[][2] = {{1, 1},    {2, 1},   {2, 2},   {8, 2},    {15, 4},
                                         {16, 16},  {17, 5},  {31, 8},  {64, 6},   {60, 4},
                                         {128, 8},  {129, 8}, {256, 8}, {512, 10}, {128, 128},
                                         {17000, 1}}; /* selected: less than 2^-14 */
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int v = 0; v < 3 * N_TOPK_KINDS; v++) {
            struct topk_case o = {k, shapes[i][0], shapes[i][1], (uint32_t)v % 3, v / 3};
            if (o.kind == 3 && o.n == 2 && o.used == 2)
                o.used = 1; /* one finite logit: the other's weight is 0 / 1 by either rule */
            ck_case(c, "topk n=%u k=%u, %s, %s", o.n, o.used, gating_name(o.gating),
                    topk_kind[o.kind]);
            ck_guarded(c, topk_case, &o);
        }
}
