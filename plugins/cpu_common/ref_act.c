/* SPDX-License-Identifier: Apache-2.0
 * Reference rounding of activations and of a Q8_0 cache to 8 bits (docs/formats.md, "Activations").
 */
#include "ref.h"

#include <float.h>
#include <math.h>

static void sums_of_16(const int8_t *q, int16_t *sums, uint32_t k)
{
    for (uint32_t g = 0; g < k / 16; g++) {
        int sum = 0;
        for (uint32_t i = 0; i < 16; i++)
            sum += q[16 * g + i];
        sums[g] = (int16_t)sum;
    }
}

/* 127 / |m|, or 0 when there is nothing to round: m is 0, NaN, or so small that the quotient
 * overflows. */
static float inverse_of(float m)
{
    float inverse = 127.0F / fabsf(m);
    return inverse <= FLT_MAX ? inverse : 0;
}

/* 32 values to 8 bits; returns their scale as f16.  rintf rounds halves to even in the default
 * floating-point environment. */
static uint16_t round_32(const float *x, int8_t *q)
{
    float amax = 0, inverse;
    for (uint32_t i = 0; i < 32; i++)
        amax = fmaxf(amax, fabsf(x[i]));
    inverse = inverse_of(amax);
    for (uint32_t i = 0; i < 32; i++)
        q[i] = (int8_t)rintf(x[i] * inverse);
    return atsi_f32_to_f16(amax / 127.0F);
}

static void quant_32_ref(const float *x, struct cpu_act *act, uint32_t t)
{
    int8_t *q = act->q + t * act->q_stride;
    float *d = act->d + t * act->d_stride;
    for (uint32_t b = 0; b < act->k / 32; b++)
        d[b] = atsi_f16_to_f32(round_32(x + (size_t)32 * b, q + (size_t)32 * b));
    sums_of_16(q, act->bsum + t * act->bsum_stride, act->k);
}

static void store_q8_0_ref(const float *x, void *y, size_t n)
{
    struct atsi_block_q8_0 *block = y;
    for (size_t b = 0; b < n / 32; b++)
        block[b].d = round_32(x + 32 * b, block[b].qs);
}

static void quant_256_ref(const float *x, struct cpu_act *act, uint32_t t)
{
    int8_t *q = act->q + t * act->q_stride;
    float *d = act->d + t * act->d_stride;
    for (uint32_t b = 0; b < act->k / 256; b++) {
        const float *v = x + (size_t)256 * b;
        float m = 0, iscale;
        for (uint32_t i = 0; i < 256; i++)
            if (fabsf(v[i]) > fabsf(m))
                m = v[i];
        iscale = copysignf(inverse_of(m), -m);
        d[b] = iscale != 0 ? 1.0F / iscale : 0;
        for (uint32_t i = 0; i < 256; i++)
            q[256 * b + i] = (int8_t)fminf(127.0F, rintf(iscale * v[i]));
    }
    sums_of_16(q, act->bsum + t * act->bsum_stride, act->k);
}

void ref_act_fill(struct cpu_kernels *k)
{
    k->quant_32 = quant_32_ref;
    k->quant_256 = quant_256_ref;
    k->store_q8_0 = store_q8_0_ref;
}
