/* SPDX-License-Identifier: Apache-2.0
 * Reference attention over one chunk of positions, one query row after the other. */
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

/* Cell c of the chunk, keys or values: in the first part, or where the ring begins anew. */
static const void *row_at(const struct cpu_attn_tile *t, bool keys, uint32_t c)
{
    size_t bytes = (size_t)atsi_row_bytes(keys ? t->type_k : t->type_v, keys ? t->dk : t->dv);
    const unsigned char *first = keys ? t->k : t->v, *rest = keys ? t->k2 : t->v2;
    uint32_t i = c - t->at;
    return i < t->n_first ? first + i * bytes : rest + (i - t->n_first) * bytes;
}

static float scores(const struct cpu_attn_tile *t, const float *q, struct cpu_attn_seen seen,
                    float *score)
{
    float max = -INFINITY;
    for (uint32_t c = seen.from; c < seen.to; c++) {
        const void *row = row_at(t, true, c);
        float dot = 0;
        for (uint32_t i = 0; i < t->dk; i++)
            dot += q[i] * element(t->type_k, row, i);
        score[c] = dot * t->scale;
        max = fmaxf(max, score[c]);
    }
    return max;
}

static void values(const struct cpu_attn_tile *t, struct cpu_attn_seen seen, float max,
                   float *sum_out, float *out)
{
    const float *score = t->scratch;
    double sum = 0;
    memset(out, 0, CPU_ATTN_OUT(t->dv) * sizeof *out);
    for (uint32_t c = seen.from; c < seen.to; c++) {
        const void *row = row_at(t, false, c);
        float weight = expf(score[c] - max);
        sum += (double)weight;
        for (uint32_t i = 0; i < t->dv; i++)
            out[i] += weight * element(t->type_v, row, i);
    }
    *sum_out = (float)sum;
}

static void attn_ref(const struct cpu_attn_tile *t)
{
    for (uint32_t r = 0; r < t->n_row; r++) {
        const float *q = t->q + r / t->n_head * t->q_stride + (size_t)(r % t->n_head) * t->dk;
        t->max[r] = scores(t, q, t->seen[r], t->scratch);
        values(t, t->seen[r], t->max[r], &t->sum[r], t->out + r * CPU_ATTN_OUT(t->dv));
    }
}

void ref_attn_fill(struct cpu_kernels *k)
{
    k->attn = attn_ref;
}
