/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the operations with a sigmoid.  exp may be wrong by 2 ulp (4 u); 1 + exp, the division
 * and the products round once each: 8 u with one to spare.  Where exp(-z) leaves the range of f32
 * (z < -87) a kernel may saturate: what is exact there is a factor below e^-87.
 */
#include "ck_vectors.h"

#include <math.h>

static double sigmoid(double z)
{
    return 1 / (1 + exp(-z));
}

static double flat(double z, double factor)
{
    return z < -87 ? exp(-87.0) * fabs(factor) : 0;
}

/* ---------------------------------------------------------------- SwiGLU */
static void swiglu_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    struct ck_vectors v = ck_vectors_open(c, o, o->n, o->n, o->n);
    if (o->data == CK_RANDOM)
        ck_vectors_scale(&v, o, 20.0F, 0);
    else if (o->data == CK_EXTREME) /* 80 to 112 of either sign: where exp leaves f32 */
        ck_vectors_scale(&v, o, 80.0F, 0.125F);
    o->k->swiglu(ck_source(&v, o), v.z, v.out, o->n);
    for (uint32_t i = 0; i < o->n; i++) {
        double g = (double)v.x[i], up = (double)v.z[i], want = g * sigmoid(g) * up;
        ck_near(c, i, 0, v.out[i], want, 8 * CK_U * fabs(want) + flat(g, 90 * up) + 4 * CK_TINY);
    }
    ck_vectors_close(c, &v);
}

static void swiglu_pair(const struct cpu_kernels *k, const float *a, const float *b, float *y,
                        size_t n)
{
    k->swiglu(a, b, y, n);
}

static void swiglu_cut(struct ck *c, const void *arg)
{
    ck_pair_cut(c, arg, swiglu_pair);
}

void ck_swiglu(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "swiglu", swiglu_case, true);
    ck_over_lengths(c, k, "swiglu cut", swiglu_cut, false);
}

/* ---------------------------------------------------------------- clamped */
#define ALPHA 1.702F
#define LIMIT 7.0F

/* The argument alpha g of exp rounds as well, to |alpha g| u of absolute error, of which
 * sigmoid(-alpha g) reaches the result; up + 1 is one more sum. */
static void clamped_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    struct ck_vectors v = ck_vectors_open(c, o, o->n, o->n, o->n);
    if (o->data == CK_RANDOM) { /* on both sides of either limit */
        ck_vectors_scale(&v, o, 15.0F, 0);
        ck_vectors_scale_second(&v, o, 10.0F);
    } else if (o->data == CK_EXTREME) { /* alpha g of 80 to 112 */
        ck_vectors_scale(&v, o, 47.0F, 0.073F);
    } else if (o->data == CK_OUTLIERS) {
        ck_vectors_scale(&v, o, 1e30F, 0);
        ck_vectors_scale_second(&v, o, 1e30F);
    }
    o->k->swiglu_clamped(ck_source(&v, o), v.z, v.out, o->n, ALPHA, LIMIT);
    for (uint32_t i = 0; i < o->n; i++) {
        double g = fmin((double)v.x[i], (double)LIMIT), z = (double)ALPHA * g;
        double up = fmax(fmin((double)v.z[i], (double)LIMIT), -(double)LIMIT) + 1;
        double want = g * sigmoid(z) * up;
        ck_near(c, i, 0, v.out[i], want,
                (9 + fabs(z) * sigmoid(-z)) * CK_U * fabs(want) + flat(z, g * up) + 4 * CK_TINY);
    }
    ck_vectors_close(c, &v);
}

static void clamped_pair(const struct cpu_kernels *k, const float *a, const float *b, float *y,
                         size_t n)
{
    k->swiglu_clamped(a, b, y, n, ALPHA, LIMIT);
}

static void clamped_cut(struct ck *c, const void *arg)
{
    ck_pair_cut(c, arg, clamped_pair);
}

void ck_swiglu_clamped(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "swiglu_clamped", clamped_case, true);
    ck_over_lengths(c, k, "swiglu_clamped cut", clamped_cut, false);
}

/* ---------------------------------------------------------------- gate */
static void gate_case(struct ck *c, const void *arg)
{
    const struct ck_op_case *o = arg;
    struct ck_vectors v = ck_vectors_open(c, o, o->n, o->n, o->n);
    if (o->data == CK_RANDOM)
        ck_vectors_scale_second(&v, o, 20.0F);
    else if (o->data == CK_EXTREME)
        ck_vectors_scale_second(&v, o, 80.0F + (float)(o->n % 32));
    else if (o->data == CK_OUTLIERS) {
        ck_vectors_scale(&v, o, 1e30F, 0);
        ck_vectors_scale_second(&v, o, 1e30F);
    }
    o->k->gate(ck_source(&v, o), v.z, v.out, o->n);
    for (uint32_t i = 0; i < o->n; i++) {
        double x = (double)v.x[i], g = (double)v.z[i], want = x * sigmoid(g);
        ck_near(c, i, 0, v.out[i], want, 8 * CK_U * fabs(want) + flat(g, x) + 4 * CK_TINY);
    }
    ck_vectors_close(c, &v);
}

static void gate_pair(const struct cpu_kernels *k, const float *a, const float *b, float *y,
                      size_t n)
{
    k->gate(a, b, y, n);
}

static void gate_cut(struct ck *c, const void *arg)
{
    ck_pair_cut(c, arg, gate_pair);
}

void ck_gate(struct ck *c, const struct cpu_kernels *k)
{
    ck_over_lengths(c, k, "gate", gate_case, true);
    ck_over_lengths(c, k, "gate cut", gate_cut, false);
}
