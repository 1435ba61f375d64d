/* SPDX-License-Identifier: Apache-2.0
 * Checks of norms, rotation, element-wise operations and the cache store. */
#include "ck.h"

#include <math.h>
#include <string.h>

/* Lengths: empty, vector widths and their neighbours, primes, model widths. */
static const uint32_t lengths[] = {0,   1,   2,   3,   7,   8,   9,    15,   16,   17,   23,
                                   31,  32,  33,  47,  63,  64,  65,   80,   96,   127,  128,
                                   129, 255, 256, 257, 509, 896, 1024, 2880, 4096, 4099, 14336};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

struct op_case {
    const struct cpu_kernels *k;
    uint32_t n, n_head, head_dim, n_rot, mode;
    enum ck_mode data;
    bool in_place;
};

/* Three vectors; y starts as a copy of a when the result goes in place. */
struct vectors {
    struct ck_mem a, b, y;
    const float *x, *z;
    float *out;
};

static struct vectors vectors_open(struct ck *c, const struct op_case *o, size_t na, size_t nb,
                                   size_t ny)
{
    struct vectors v = {ck_mem_open(na * sizeof(float), 4),
                        ck_mem_open(nb * sizeof(float), 4),
                        ck_mem_open(ny * sizeof(float), 4),
                        NULL,
                        NULL,
                        NULL};
    v.x = (const float *)(void *)v.a.data;
    v.z = (const float *)(void *)v.b.data;
    v.out = (float *)(void *)v.y.data;
    ck_fill_floats(c, o->data, (float *)(void *)v.a.data, na);
    ck_fill_floats(c, o->data == CK_ZERO_X ? CK_RANDOM : o->data, (float *)(void *)v.b.data, nb);
    if (o->in_place)
        memcpy(v.out, v.x, ny * sizeof(float));
    ck_mem_seal(&v.a);
    ck_mem_seal(&v.b);
    return v;
}

static void vectors_close(struct ck *c, struct vectors *v)
{
    ck_mem_check(c, &v->a, "first operand");
    ck_mem_check(c, &v->b, "second operand");
    ck_mem_around(c, &v->y, "y");
    ck_mem_close(&v->a);
    ck_mem_close(&v->b);
    ck_mem_close(&v->y);
}

static const float *source(const struct vectors *v, const struct op_case *o)
{
    return o->in_place ? v->out : v->x;
}

/* Stretches the first operand, element i by first + i % 257 * step. */
static void scale_operand(struct vectors *v, const struct op_case *o, float first, float step)
{
    for (uint32_t i = 0; i < o->n; i++) {
        ((float *)(void *)v->a.data)[i] *= first + (float)(i % 257) * step;
        v->out[i] = o->in_place ? v->x[i] : v->out[i];
    }
    ck_mem_seal(&v->a);
}

/* fn over all lengths, kinds of data, in place and not. */
static void over_lengths(struct ck *c, const struct cpu_kernels *k, const char *name,
                         void (*fn)(struct ck *c, const void *arg), bool in_place_too)
{
    for (size_t i = 0; i < N_LENGTHS; i++)
        for (int mode = 0; mode < CK_N_MODES; mode++)
            for (int place = 0; place <= (in_place_too ? 1 : 0); place++) {
                struct op_case o = {
                    .k = k, .n = lengths[i], .data = (enum ck_mode)mode, .in_place = place != 0};
                ck_case(c, "%s n=%u%s, %s", name, o.n, place != 0 ? " in place" : "",
                        ck_mode_name[mode]);
                ck_guarded(c, fn, &o);
            }
}

/* ---------------------------------------------------------------- RMS norm */
/* The square sum is kept in double, so it adds no error worth naming; mean, + eps, square root,
 * division and two products round once each, the square root halving what comes before: 6 u.  Lanes
 * of double sums: 1 u more than needed. */
static void rms_norm_case(struct ck *c, const void *arg)
{
    static const float eps[] = {1e-5F, 1e-6F, 0.1F};
    const struct op_case *o = arg;
    struct vectors v = vectors_open(c, o, o->n, o->n, o->n);
    float e = eps[o->n % 3];
    double sum = 0, scale;
    if (o->data == CK_EXTREME) /* squares beyond the range of f32 */
        scale_operand(&v, o, 1e25F, 0);
    for (uint32_t i = 0; i < o->n; i++)
        sum += (double)v.x[i] * (double)v.x[i];
    scale = 1 / sqrt(sum / (o->n > 0 ? o->n : 1) + (double)e);
    o->k->rms_norm(source(&v, o), v.z, v.out, o->n, e);
    for (uint32_t i = 0; i < o->n; i++) {
        double want = (double)v.x[i] * scale * (double)v.z[i];
        ck_near(c, i, 0, v.out[i], want, 6 * CK_U * fabs(want) + 2 * CK_TINY);
    }
    vectors_close(c, &v);
}

void ck_rms_norm(struct ck *c, const struct cpu_kernels *k)
{
    over_lengths(c, k, "rms_norm", rms_norm_case, true);
}

/* ---------------------------------------------------------------- rotation */
/* a cos - b sin: two products and an addition, each rounding once: 3 u of the absolute parts (2
 * when a product is fused). */
static void rope_pair(struct ck *c, const struct op_case *o, const struct vectors *v, uint32_t h,
                      uint32_t i)
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
    const struct op_case *o = arg;
    size_t n = (size_t)o->n_head * o->head_dim;
    struct vectors v = vectors_open(c, o, n, o->n_rot, n);
    o->k->rope(source(&v, o), v.z, v.out, o->n_head, o->head_dim, o->n_rot, o->mode);
    for (uint32_t h = 0; h < o->n_head; h++) {
        for (uint32_t i = 0; i < o->n_rot / 2; i++)
            rope_pair(c, o, &v, h, i);
        for (uint32_t i = o->n_rot; i < o->head_dim; i++)
            ck_near(c, h, i, v.out[(size_t)h * o->head_dim + i],
                    (double)v.x[(size_t)h * o->head_dim + i], 0);
    }
    vectors_close(c, &v);
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
            struct op_case o = {.k = k,
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

/* ---------------------------------------------------------------- SwiGLU */
/* silu(g) * up.  exp may be wrong by 2 ulp (4 u); 1 + exp, the division and the product round once
 * each: 8 u with one spare.  Where exp(-g) leaves the range of f32 (g < -87) a kernel may saturate:
 * the exact value is then below 88 e^-87 |up|. */
static double silu(double g)
{
    return g / (1 + exp(-g));
}

static void swiglu_case(struct ck *c, const void *arg)
{
    const struct op_case *o = arg;
    struct vectors v = vectors_open(c, o, o->n, o->n, o->n);
    if (o->data == CK_RANDOM)
        scale_operand(&v, o, 20.0F, 0);
    else if (o->data == CK_EXTREME) /* 80 to 112 of either sign: where exp leaves f32 */
        scale_operand(&v, o, 80.0F, 0.125F);
    o->k->swiglu(source(&v, o), v.z, v.out, o->n);
    for (uint32_t i = 0; i < o->n; i++) {
        double up = (double)v.z[i], want = silu((double)v.x[i]) * up;
        double flat = v.x[i] < -87 ? 90 * exp(-87.0) * fabs(up) : 0;
        ck_near(c, i, 0, v.out[i], want, 8 * CK_U * fabs(want) + flat + 4 * CK_TINY);
    }
    vectors_close(c, &v);
}

/* A worker gets whole multiples of 16 elements: the same bits as in one call. */
static void swiglu_cut(struct ck *c, const void *arg)
{
    const struct op_case *o = arg;
    struct vectors v = vectors_open(c, o, o->n, o->n, o->n);
    struct ck_mem whole = ck_mem_open(o->n * sizeof(float), 4);
    uint32_t cut = (uint32_t)(ck_random(c) % (o->n / 16 + 1)) * 16;
    o->k->swiglu(v.x, v.z, (float *)(void *)whole.data, o->n);
    o->k->swiglu(v.x, v.z, v.out, cut);
    o->k->swiglu(v.x + cut, v.z + cut, v.out + cut, o->n - cut);
    if (memcmp(whole.data, v.y.data, o->n * sizeof(float)) != 0)
        ck_fail(c, "the result changes when cut at %u", cut);
    ck_mem_close(&whole);
    vectors_close(c, &v);
}

void ck_swiglu(struct ck *c, const struct cpu_kernels *k)
{
    over_lengths(c, k, "swiglu", swiglu_case, true);
    over_lengths(c, k, "swiglu cut", swiglu_cut, false);
}

/* ---------------------------------------------------------------- sums */
/* One rounding: the nearest float. */
static void add_case(struct ck *c, const void *arg)
{
    const struct op_case *o = arg;
    struct vectors v = vectors_open(c, o, o->n, o->n, o->n);
    o->k->add(source(&v, o), v.z, v.out, o->n);
    for (uint32_t i = 0; i < o->n; i++)
        ck_near(c, i, 0, v.out[i], (double)(v.x[i] + v.z[i]), 0);
    vectors_close(c, &v);
}

void ck_add(struct ck *c, const struct cpu_kernels *k)
{
    over_lengths(c, k, "add", add_case, true);
}

/* Product and addition round once each, or together: 2 u. */
static void axpy_case(struct ck *c, const void *arg)
{
    struct op_case o = *(const struct op_case *)arg;
    float s = ck_unit(c) * 2;
    struct vectors v;
    o.in_place = true; /* y starts as a copy of the first operand */
    v = vectors_open(c, &o, o.n, o.n, o.n);
    o.k->axpy(s, v.z, v.out, o.n);
    for (uint32_t i = 0; i < o.n; i++) {
        double p = (double)s * (double)v.z[i], y = (double)v.x[i];
        ck_near(c, i, 0, v.out[i], y + p, 2 * CK_U * (fabs(p) + fabs(y)) + 2 * CK_TINY);
    }
    vectors_close(c, &v);
}

void ck_axpy(struct ck *c, const struct cpu_kernels *k)
{
    over_lengths(c, k, "axpy", axpy_case, false);
}

/* ---------------------------------------------------------------- cache store */
static bool is_nan16(uint16_t h)
{
    return (h & 0x7c00u) == 0x7c00u && (h & 0x3ffu) != 0;
}

/* Any bit pattern: nearest f16, halves to even, subnormals kept, NaN stays NaN. */
static void store_case(struct ck *c, const void *arg)
{
    const struct op_case *o = arg;
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
    over_lengths(c, k, "store_f16", store_case, false);
}
