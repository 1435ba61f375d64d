/* SPDX-License-Identifier: Apache-2.0
 * Activations in guarded memory, and the checks of the quantizers and dequantizers. */
#include "ck.h"

#include <math.h>
#include <string.h>

static size_t up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

uint32_t ck_act_block(uint32_t type)
{
    switch (atsi_type_info(type)->act) {
    case ATSI_ACT_Q8_32:
        return 32;
    case ATSI_ACT_Q8_256:
        return 256;
    default:
        return 0;
    }
}

struct ck_act ck_act_open(uint32_t k, uint32_t n_tok, uint32_t block)
{
    struct ck_act a = {.act = {.k = k, .n_tok = n_tok, .block = block}};
    if (block == 0) {
        a.f = ck_mem_open((size_t)n_tok * k * sizeof(float), sizeof(float));
        a.act.f = (const float *)(void *)a.f.data;
        a.act.f_stride = k;
        return a;
    }
    a.act.q_stride = up(k, 64);
    a.act.d_stride = up(k / block, 16);
    a.act.bsum_stride = up(k / 16, 32);
    a.q = ck_mem_open(n_tok * a.act.q_stride, 64);
    a.d = ck_mem_open(n_tok * a.act.d_stride * sizeof(float), 64);
    a.bsum = ck_mem_open(n_tok * a.act.bsum_stride * sizeof(int16_t), 64);
    a.act.q = (int8_t *)a.q.data;
    a.act.d = (float *)(void *)a.d.data;
    a.act.bsum = (int16_t *)(void *)a.bsum.data;
    return a;
}

void ck_act_close(struct ck_act *a)
{
    ck_mem_close(&a->f);
    ck_mem_close(&a->q);
    ck_mem_close(&a->d);
    ck_mem_close(&a->bsum);
}

/* Codes -1, 0, 1 and scale 1: with small weights every sum is an exact float. */
static void fill_exact(struct ck *c, struct ck_act *a, uint32_t t)
{
    int8_t *q = a->act.q + t * a->act.q_stride;
    int16_t *bsum = a->act.bsum + t * a->act.bsum_stride;
    for (uint32_t b = 0; b < a->act.k / a->act.block; b++)
        a->act.d[t * a->act.d_stride + b] = 1;
    for (uint32_t i = 0; i < a->act.k; i++) {
        q[i] = (int8_t)((int)(ck_random(c) % 3) - 1);
        bsum[i / 16] = (int16_t)((i % 16 == 0 ? 0 : bsum[i / 16]) + q[i]);
    }
}

void ck_act_fill(struct ck *c, enum ck_mode mode, struct ck_act *a)
{
    struct cpu_kernels ref;
    struct ck_mem row;
    if (a->act.block == 0) {
        ck_fill_floats(c, mode, (float *)(void *)a->f.data, (size_t)a->act.n_tok * a->act.k);
        return;
    }
    cpu_ref_kernels(&ref);
    row = ck_mem_open(a->act.k * sizeof(float), 64);
    for (uint32_t t = 0; t < a->act.n_tok; t++) {
        float *x = (float *)(void *)row.data;
        ck_fill_floats(c, mode, x, a->act.k);
        if (mode == CK_EXACT)
            fill_exact(c, a, t);
        else if (a->act.block == 32)
            ref.quant_32(x, &a->act, t);
        else
            ref.quant_256(x, &a->act, t);
    }
    ck_mem_close(&row);
}

void ck_act_seal(struct ck_act *a)
{
    ck_mem_seal(&a->f);
    ck_mem_seal(&a->q);
    ck_mem_seal(&a->d);
    ck_mem_seal(&a->bsum);
}

void ck_act_check(struct ck *c, const struct ck_act *a)
{
    ck_mem_check(c, &a->f, "activations");
    ck_mem_check(c, &a->q, "activation codes");
    ck_mem_check(c, &a->d, "activation scales");
    ck_mem_check(c, &a->bsum, "activation sums");
}

struct cpu_act ck_act_part(const struct cpu_act *a, uint32_t first, uint32_t n_tok)
{
    struct cpu_act part = *a;
    part.n_tok = n_tok;
    if (a->block == 0) {
        part.f += first * a->f_stride;
    } else {
        part.q += first * a->q_stride;
        part.d += first * a->d_stride;
        part.bsum += first * a->bsum_stride;
    }
    return part;
}

/* ---------------------------------------------------------------- quantizers */
struct quant_case {
    void (*fn)(const float *x, struct cpu_act *act, uint32_t t);
    uint32_t block, k;
    int kind;
};

#define N_QUANT_KINDS 9
static const char *const quant_kind[N_QUANT_KINDS] = {
    "random", "zeros",     "ties of rounding", "subnormal", "outliers", "largest twice, both signs",
    "huge",   "one value", "vanishing"};

static float quant_value(struct ck *c, int kind, uint32_t i)
{
    switch (kind) {
    case 1:
        return i % 2 == 0 ? 0.0F : -0.0F;
    case 2: /* multiples of one half where 127 / amax is 1 */
        return i % 32 == 5 ? 127.0F : (float)((int)(ck_random(c) % 253) - 126) * 0.5F;
    case 3:
        return ck_unit(c) * 1e-38F;
    case 4:
        return ck_unit(c) * (ck_random(c) % 40 == 0 ? 1000.0F : 1.0F);
    case 5:
        return i % 32 == 7 ? -3.0F : (i % 32 == 20 ? 3.0F : ck_unit(c));
    case 6:
        return ck_unit(c) * 8e6F; /* the f16 scale ends at 65504 * 127 */
    case 7:
        return i == 3 ? -0.7F : 0.0F;
    case 8:
        return ck_unit(c) * 1e-44F;
    default:
        return ck_unit(c) * 4.0F;
    }
}

/* Codes, scales and sums are those of the reference, bit for bit: all plugins must round alike. */
static void compare_quant(struct ck *c, const struct cpu_act *got, const struct cpu_act *want)
{
    for (uint32_t t = 0; t < want->n_tok; t++) {
        for (uint32_t b = 0; b < want->k / want->block; b++) {
            float g = got->d[t * got->d_stride + b], w = want->d[t * want->d_stride + b];
            if (!(g == w))
                ck_fail(c, "scale [%u][%u] = %a, want %a", t, b, (double)g, (double)w);
        }
        for (uint32_t i = 0; i < want->k; i++)
            if (got->q[t * got->q_stride + i] != want->q[t * want->q_stride + i])
                ck_fail(c, "code [%u][%u] = %d, want %d", t, i, got->q[t * got->q_stride + i],
                        want->q[t * want->q_stride + i]);
        for (uint32_t g = 0; g < want->k / 16; g++)
            if (got->bsum[t * got->bsum_stride + g] != want->bsum[t * want->bsum_stride + g])
                ck_fail(c, "sum [%u][%u] = %d, want %d", t, g, got->bsum[t * got->bsum_stride + g],
                        want->bsum[t * want->bsum_stride + g]);
    }
}

/* What lies between the rows belongs to nobody. */
static void quant_padding(struct ck *c, const struct ck_act *a)
{
    for (uint32_t t = 0; t < a->act.n_tok; t++)
        for (size_t i = a->act.k; i < a->act.q_stride; i++)
            if (a->act.q[t * a->act.q_stride + i] != -1) {
                ck_fail(c, "wrote behind the codes of row %u", t);
                return;
            }
}

static void quant_case(struct ck *c, const void *arg)
{
    const struct quant_case *q = arg;
    struct ck_act got = ck_act_open(q->k, 3, q->block), want = ck_act_open(q->k, 3, q->block);
    struct ck_mem x = ck_mem_open(q->k * sizeof(float), 64);
    struct cpu_kernels ref;
    cpu_ref_kernels(&ref);
    for (uint32_t t = 0; t < 3; t++) {
        for (uint32_t i = 0; i < q->k; i++)
            ((float *)(void *)x.data)[i] = quant_value(c, q->kind, i);
        ck_mem_seal(&x);
        q->fn((const float *)(void *)x.data, &got.act, t);
        (q->block == 32 ? ref.quant_32 : ref.quant_256)((const float *)(void *)x.data, &want.act,
                                                        t);
        ck_mem_check(c, &x, "x");
    }
    compare_quant(c, &got.act, &want.act);
    quant_padding(c, &got);
    ck_mem_around(c, &got.q, "codes");
    ck_mem_around(c, &got.d, "scales");
    ck_mem_around(c, &got.bsum, "sums");
    ck_mem_close(&x);
    ck_act_close(&got);
    ck_act_close(&want);
}

void ck_quant(struct ck *c, void (*fn)(const float *x, struct cpu_act *act, uint32_t t),
              uint32_t block)
{
    static const uint32_t blocks[] = {1, 2, 3, 5, 7, 16};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        for (int kind = 0; kind < N_QUANT_KINDS; kind++) {
            struct quant_case q = {fn, block, blocks[i] * block, kind};
            ck_case(c, "quant_%u k=%u, %s", block, q.k, quant_kind[kind]);
            ck_guarded(c, quant_case, &q);
        }
}

/* ---------------------------------------------------------------- dequantizers */
struct dequant_case {
    void (*fn)(const void *w, float *y, uint32_t k);
    uint32_t type, k;
    enum ck_mode mode;
};

/* The order of multiplications is fixed by the format, so results are equal, not just near. */
static void dequant_case(struct ck *c, const void *arg)
{
    const struct dequant_case *d = arg;
    size_t bytes = (size_t)atsi_row_bytes(d->type, d->k);
    struct ck_mem w = ck_mem_open(bytes, d->type == ATSI_TYPE_F32 ? 4 : 2);
    struct ck_mem y = ck_mem_open(d->k * sizeof(float), 4);
    struct ck_mem z = ck_mem_open(d->k * sizeof(float), 4);
    const float *got = (const float *)(void *)y.data, *want = (const float *)(void *)z.data;
    struct cpu_kernels ref;
    cpu_ref_kernels(&ref);
    ck_fill_weights(c, d->type, d->mode, w.data, d->k);
    ck_mem_seal(&w);
    d->fn(w.data, (float *)(void *)y.data, d->k);
    ref.dequant[d->type](w.data, (float *)(void *)z.data, d->k);
    for (uint32_t i = 0; i < d->k; i++)
        if (!(got[i] == want[i]))
            ck_fail(c, "element %u = %a, want %a", i, (double)got[i], (double)want[i]);
    ck_mem_check(c, &w, "weights");
    ck_mem_around(c, &y, "y");
    ck_mem_close(&w);
    ck_mem_close(&y);
    ck_mem_close(&z);
}

void ck_dequant(struct ck *c, void (*fn)(const void *w, float *y, uint32_t k), uint32_t type)
{
    static const uint32_t blocks[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 33};
    const struct atsi_type_info *ti = atsi_type_info(type);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        for (int mode = 0; mode < CK_N_MODES; mode++) {
            struct dequant_case d = {fn, type, blocks[i] * ti->block_elems, (enum ck_mode)mode};
            ck_case(c, "dequant %s k=%u, %s", ti->name, d.k, ck_mode_name[mode]);
            ck_guarded(c, dequant_case, &d);
        }
}
