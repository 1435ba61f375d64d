/* SPDX-License-Identifier: Apache-2.0
 * Checks of norms, rotation, sums and the cache stores. */
#include "ck_vectors.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- RMS norm */
/* The square sum is kept in double, so it adds no error worth naming; mean, + eps, square root,
 * division and two products round once each, the square root halving what comes before: 6 u.  Lanes
 * of double sums: 1 u more than needed. */
static void rms_norm_case(struct ck *c, const void *arg)
{
    static const float eps[] = {1e-5F, 1e-6F, 0.1F};
    const struct ck_op_case *o = arg;
    struct ck_vectors v = ck_vectors_open(c, o, o->n, o->n, o->n);
    float e = eps[o->n % 3];
    double sum = 0, scale;
    if (o->data == CK_EXTREME) /* squares beyond the range of f32 */
        ck_vectors_scale(&v, o, 1e25F, 0);
    for (uint32_t i = 0; i < o->n; i++)
        sum += (double)v.x[i] * (double)v.x[i];
    scale = 1 / sqrt(sum / (o->n > 0 ? o->n : 1) + (double)e);
    o->k->rms_norm(ck_source(&v, o), v.z, v.out, o->n, e);
    for (uint32_t i = 0; i < o->n; i++) {
        double want = (double)v.x[i] * scale * (double)v.z[i];
        ck_near(c, i, 0, v.out[i], want, 6 * CK_U * fabs(want) + 2 * CK_TINY);
    }
    ck_vectors_close(c, &v);
}

void ck_rms_norm(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "rms_norm", rms_norm_case, true);
}

/* ---------------------------------------------------------------- 2-norm */
/* As above without the mean, + eps and the weight. */
static void l2_norm_case(struct ck *c, const void *arg)
{
    static const float eps[] = {1e-6F, 1e-5F, 0.1F};
    const struct ck_op_case *o = arg;
    struct ck_vectors v = ck_vectors_open(c, o, o->n, 0, o->n);
    float e = eps[o->n % 3];
    double sum = 0, scale;
    if (o->data == CK_EXTREME) /* squares beyond the range of f32 */
        ck_vectors_scale(&v, o, 1e25F, 0);
    else if (o->data == CK_OUTLIERS) /* or below it */
        ck_vectors_scale(&v, o, 1e-24F, 0);
    else if (o->data == CK_TINY_D) /* subnormal numbers */
        ck_vectors_scale(&v, o, 1e-35F, 0);
    for (uint32_t i = 0; i < o->n; i++)
        sum += (double)v.x[i] * (double)v.x[i];
    scale = 1 / fmax(sqrt(sum), (double)(o->data == CK_OUTLIERS ? 1e-30F : e));
    o->k->l2_norm(ck_source(&v, o), v.out, o->n, o->data == CK_OUTLIERS ? 1e-30F : e);
    for (uint32_t i = 0; i < o->n; i++) {
        double want = (double)v.x[i] * scale;
        ck_near(c, i, 0, v.out[i], want, 5 * CK_U * fabs(want) + 2 * CK_TINY);
    }
    ck_vectors_close(c, &v);
}

void ck_l2_norm(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "l2_norm", l2_norm_case, true);
}

/* ---------------------------------------------------------------- rotation */
/* a cos - b sin: two products and an addition, each rounding once: 3 u of the absolute parts (2
 * when a product is fused). */
static void rope_pair(struct ck *c, const struct ck_op_case *o, const struct ck_vectors *v,
                      uint32_t h, uint32_t i)
{
    uint32_t half = o->n_rot / 2;
    size_t base = (size_t)h * o->head_dim;
    size_t ia = base + (o->mode == ATSI_ROPE_PAIRS ? 2 * i : i);
    size_t ib = base + (o->mode == ATSI_ROPE_PAIRS ? 2 * i + 1 : i + half);
    double a = (double)v->x[ia], b = (double)v->x[ib];
    double co = (double)v->z[i], si = (double)v->z[half + i];
    ck_near(c, h, ia - base, v->out[ia], a * co - b * si,
            3 * CK_U * (fabs(a * co) + fabs(b * si)) + 3 * CK_TINY);
    ck_near(c, h, ib - base, v->out[ib], a * si + b * co,
            3 * CK_U * (fabs(a * si) + fabs(b * co)) + 3 * CK_TINY);
}

static void rope_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    size_t n = (size_t)o->n_head * o->head_dim;
    struct ck_vectors v = ck_vectors_open(c, o, n, o->n_rot, n);
    o->k->rope(ck_source(&v, o), v.z, v.out, o->n_head, o->head_dim, o->n_rot, o->mode);
    for (uint32_t h = 0; h < o->n_head; h++) {
        for (uint32_t i = 0; i < o->n_rot / 2; i++)
            rope_pair(c, o, &v, h, i);
        for (uint32_t i = o->n_rot; i < o->head_dim; i++)
            ck_near(c, h, i, v.out[(size_t)h * o->head_dim + i],
                    (double)v.x[(size_t)h * o->head_dim + i], 0);
    }
    ck_vectors_close(c, &v);
}

void ck_rope(struct ck *c, const struct cpu_kernels *k)
{
    static const struct {
        uint32_t n_head, head_dim, n_rot;
    } shapes[] = {{1, 2, 2},    {1, 8, 8},   {3, 16, 8},    {2, 20, 10},    {1, 48, 32},
                  {5, 64, 64},  {2, 66, 66}, {3, 96, 24},   {32, 128, 128}, {2, 128, 64},
                  {1, 130, 34}, {7, 80, 80}, {2, 256, 256}, {1, 192, 64},   {3, 6, 4},
                  {2, 34, 34},  {1, 18, 18}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (uint32_t variant = 0; variant < 4 * CK_N_MODES; variant++) {
            struct ck_op_case o = {.k = k,
                                   .n_head = shapes[i].n_head,
                                   .head_dim = shapes[i].head_dim,
                                   .n_rot = shapes[i].n_rot,
                                   .mode = variant % 2 == 0 ? ATSI_ROPE_PAIRS : ATSI_ROPE_HALVES,
                                   .in_place = variant / 2 % 2 != 0,
                                   .data = (enum ck_mode)(variant / 4)};
            ck_case(c, "rope heads=%u dim=%u rot=%u %s%s, %s", o.n_head, o.head_dim, o.n_rot,
                    o.mode == ATSI_ROPE_PAIRS ? "pairs" : "halves", o.in_place ? " in place" : "",
                    ck_mode_name[o.data]);
            ck_guarded(c, rope_case, &o);
        }
}

/* ---------------------------------------------------------------- sums */
/* One rounding: the nearest float. */
static void add_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    struct ck_vectors v = ck_vectors_open(c, o, o->n, o->n, o->n);
    o->k->add(ck_source(&v, o), v.z, v.out, o->n);
    for (uint32_t i = 0; i < o->n; i++)
        ck_near(c, i, 0, v.out[i], (double)(v.x[i] + v.z[i]), 0);
    ck_vectors_close(c, &v);
}

void ck_add(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "add", add_case, true);
}

/* Product and addition round once each, or together: 2 u. */
static void axpy_case(struct ck *c, const void *arg)
{
    struct ck_op_case o = *(const struct ck_op_case *)arg;
    float s = ck_unit(c) * 2;
    struct ck_vectors v;
    o.in_place = true; /* y starts as a copy of the first operand */
    v = ck_vectors_open(c, &o, o.n, o.n, o.n);
    o.k->axpy(s, v.z, v.out, o.n);
    for (uint32_t i = 0; i < o.n; i++) {
        double p = (double)s * (double)v.z[i], y = (double)v.x[i];
        ck_near(c, i, 0, v.out[i], y + p, 2 * CK_U * (fabs(p) + fabs(y)) + 2 * CK_TINY);
    }
    ck_vectors_close(c, &v);
}

void ck_axpy(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "axpy", axpy_case, false);
}

/* ---------------------------------------------------------------- cache store */
static bool is_nan16(uint16_t h)
{
    return (h & 0x7c00u) == 0x7c00u && (h & 0x3ffu) != 0;
}

/* Any bit pattern: nearest f16, halves to even, subnormals kept, NaN stays NaN. */
static void store_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    struct ck_mem x = ck_mem_open(o->n * sizeof(float), 4);
    struct ck_mem y = ck_mem_open(o->n * sizeof(uint16_t), 2);
    for (uint32_t i = 0; i < o->n; i++) {
        /* all exponents in the random mode, else around the ends of f16's range */
        uint32_t bits = (uint32_t)ck_random(c);
        if (o->data != CK_RANDOM)
            bits = (bits & 0x807fffffu) | ((uint32_t)(100 + ck_random(c) % 46) << 23);
        if (o->data == CK_EXACT) /* halves between two f16 numbers */
            bits = (bits & 0xffffe000u) | 0x1000u;
        memcpy(x.data + (size_t)4 * i, &bits, 4);
    }
    ck_mem_seal(&x);
    o->k->store_f16((const float *)(void *)x.data, (uint16_t *)(void *)y.data, o->n);
    for (uint32_t i = 0; i < o->n; i++) {
        uint16_t got = ((const uint16_t *)(void *)y.data)[i];
        uint16_t want = atsi_f32_to_f16(((const float *)(void *)x.data)[i]);
        if (got != want && !(is_nan16(got) && is_nan16(want)))
            ck_fail(c, "element %u = %04x, want %04x", i, got, want);
    }
    ck_mem_check(c, &x, "x");
    ck_mem_around(c, &y, "y");
    ck_mem_close(&x);
    ck_mem_close(&y);
}

void ck_store_f16(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "store_f16", store_case, false);
}

/* 32 values to a block, bit for bit as docs/formats.md states it. */
static struct atsi_block_q8_0 block_of(const float *x)
{
    struct atsi_block_q8_0 b;
    float amax = 0, inverse;
    for (int i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    inverse = 127.0F / amax;
    for (int i = 0; i < 32; i++)
        b.qs[i] = (int8_t)(isfinite(inverse) ? lrintf(x[i] * inverse) : 0);
    b.d = atsi_f32_to_f16(amax / 127.0F);
    return b;
}

/* One kind of data per block: ordinary, zeros, halves between codes, subnormal, huge, vanishing. */
static float block_value(struct ck *c, uint32_t kind, uint32_t i)
{
    static const float size[] = {4.0F, 0.0F, 0.0F, 1e-38F, 8e6F, 1e-44F, 1e-5F};
    if (kind == 2)
        return i % 32 == 5 ? -127.0F : (float)((int)(ck_random(c) % 253) - 126) * 0.5F;
    return ck_unit(c) * size[kind];
}

static void store_q8_0_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    uint32_t n_blocks = o->n / 32;
    struct ck_mem x = ck_mem_open((size_t)o->n * sizeof(float), 4);
    struct ck_mem y = ck_mem_open(n_blocks * sizeof(struct atsi_block_q8_0), 2);
    for (uint32_t i = 0; i < o->n; i++)
        ((float *)(void *)x.data)[i] = block_value(c, (o->mode + i / 32) % 7, i);
    ck_mem_seal(&x);
    o->k->store_q8_0((const float *)(void *)x.data, y.data, o->n);
    for (uint32_t b = 0; b < n_blocks; b++) {
        struct atsi_block_q8_0 want = block_of((const float *)(void *)x.data + (size_t)32 * b);
        const struct atsi_block_q8_0 *got = (const struct atsi_block_q8_0 *)(void *)y.data + b;
        if (got->d != want.d)
            ck_fail(c, "scale %u = %04x, want %04x", b, got->d, want.d);
        for (uint32_t i = 0; i < 32; i++)
            if (got->qs[i] != want.qs[i])
                ck_fail(c, "code [%u][%u] = %d, want %d", b, i, got->qs[i], want.qs[i]);
    }
    ck_mem_check(c, &x, "x");
    ck_mem_around(c, &y, "y");
    ck_mem_close(&x);
    ck_mem_close(&y);
}

void ck_store_q8_0(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t blocks[] = {0, 1, 2, 3, 4, 5, 7, 8, 16, 33};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        for (uint32_t kind = 0; kind < 7; kind++) {
            struct ck_op_case o = {.k = k, .n = blocks[i] * 32, .mode = kind};
            ck_case(c, "store_q8_0 n=%u, kinds from %u", o.n, kind);
            ck_guarded(c, store_q8_0_case, &o);
        }
}
