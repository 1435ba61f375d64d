/* SPDX-License-Identifier: Apache-2.0
 * Reference attention of one token: softmax(scale * q.k) v, one query head after the other. */
#include "ref.h"

#include <math.h>

static float element(uint32_t type, const void *row, uint32_t i)
{
    const struct atsi_block_q8_0 *block;
    switch (type) {
    case ATSI_TYPE_Q8_0:
        block = (const struct atsi_block_q8_0 *)row + i / 32;
        return atsi_f16_to_f32(block->d) * (float)block->qs[i % 32];
    case ATSI_TYPE_F16:
        return atsi_f16_to_f32(((const uint16_t *)row)[i]);
    default:
        return ((const float *)row)[i];
    }
}

/* Visible row p of the keys or values: in the first part, or where the ring begins anew. */
static const void *row_at(const struct cpu_attn_args *a, bool keys, uint32_t p)
{
    size_t bytes = (size_t)atsi_row_bytes(keys ? a->type_k : a->type_v, keys ? a->dk : a->dv);
    const unsigned char *first = keys ? a->k : a->v, *rest = keys ? a->k2 : a->v2;
    return p < a->n_first ? first + p * bytes : rest + (p - a->n_first) * bytes;
}

static void scores(const struct cpu_attn_args *a, const float *q, float *score)
{
    for (uint32_t p = 0; p < a->n_kv; p++) {
        const void *row = row_at(a, true, p);
        float dot = 0;
        for (uint32_t i = 0; i < a->dk; i++)
            dot += q[i] * element(a->type_k, row, i);
        score[p] = dot * a->scale;
    }
}

/* The sink, where there is one, takes its share of the weights and gives nothing. */
static void softmax(float *x, uint32_t n, const float *sink)
{
    float max = sink != NULL ? *sink : x[0];
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        max = fmaxf(max, x[i]);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    if (sink != NULL)
        sum += (double)expf(*sink - max);
    for (uint32_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
}

static void weighted_sum(const struct cpu_attn_args *a, const float *weight, float *out)
{
    memset(out, 0, a->dv * sizeof *out);
    for (uint32_t p = 0; p < a->n_kv; p++) {
        const void *row = row_at(a, false, p);
        for (uint32_t i = 0; i < a->dv; i++)
            out[i] += weight[p] * element(a->type_v, row, i);
    }
}

static void attn_ref(const struct cpu_attn_args *a)
{
    size_t score_stride = ((size_t)a->n_kv + 15) / 16 * 16;
    for (uint32_t h = 0; h < a->n_q; h++) {
        float *score = a->score + h * score_stride;
        scores(a, a->q + (size_t)h * a->dk, score);
        softmax(score, a->n_kv, a->sink != NULL ? a->sink + h : NULL);
        weighted_sum(a, score, a->out + (size_t)h * a->dv);
    }
}

void ref_attn_fill(struct cpu_kernels *k)
{
    k->attn = attn_ref;
}
