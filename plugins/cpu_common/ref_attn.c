/* SPDX-License-Identifier: Apache-2.0
 * Reference attention of one token: softmax(scale * q.k) v, one query head after the other. */
#include "ref.h"

#include <math.h>

static float element(uint32_t type, const void *row, size_t i)
{
    return type == ATSI_TYPE_F16 ? atsi_f16_to_f32(((const uint16_t *)row)[i])
                                 : ((const float *)row)[i];
}

static void softmax(float *x, uint32_t n)
{
    float max = x[0];
    double sum = 0;
    for (uint32_t i = 1; i < n; i++)
        max = fmaxf(max, x[i]);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
}

static void attn_ref(const struct cpu_attn_args *a)
{
    size_t score_stride = ((size_t)a->n_kv + 15) / 16 * 16;
    for (uint32_t h = 0; h < a->n_q; h++) {
        const float *q = a->q + (size_t)h * a->dk;
        float *score = a->score + h * score_stride, *out = a->out + (size_t)h * a->dv;
        for (uint32_t p = 0; p < a->n_kv; p++) {
            float dot = 0;
            for (uint32_t i = 0; i < a->dk; i++)
                dot += q[i] * element(a->type_k, a->k, (size_t)p * a->dk + i);
            score[p] = dot * a->scale;
        }
        softmax(score, a->n_kv);
        for (uint32_t i = 0; i < a->dv; i++) {
            float sum = 0;
            for (uint32_t p = 0; p < a->n_kv; p++)
                sum += score[p] * element(a->type_v, a->v, (size_t)p * a->dv + i);
            out[i] = sum;
        }
    }
}

void ref_attn_fill(struct cpu_kernels *k)
{
    k->attn = attn_ref;
}
