/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels of the small operations. */
#include "ref.h"

#include <math.h>

static void rms_norm_ref(const float *x, const float *w, float *y, uint32_t n, float eps)
{
    double sum = 0;
    float scale;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    scale = (float)(1.0 / sqrt(sum / (double)n + (double)eps));
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale * w[i];
}

static void l2_norm_ref(const float *x, float *y, uint32_t n, float eps)
{
    double sum = 0;
    float scale;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    scale = (float)(1.0 / fmax(sqrt(sum), (double)eps));
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] * scale;
}

static void rope_ref(const float *x, const float *cs, float *y, uint32_t n_head, uint32_t head_dim,
                     uint32_t n_rot, uint32_t mode)
{
    uint32_t half = n_rot / 2;
    for (uint32_t h = 0; h < n_head; h++) {
        const float *xh = x + (size_t)h * head_dim;
        float *yh = y + (size_t)h * head_dim;
        for (uint32_t i = 0; i < half; i++) {
            uint32_t ia = mode == ATSI_ROPE_PAIRS ? 2 * i : i;
            uint32_t ib = mode == ATSI_ROPE_PAIRS ? 2 * i + 1 : i + half;
            float a = xh[ia], b = xh[ib];
            yh[ia] = a * cs[i] - b * cs[half + i];
            yh[ib] = a * cs[half + i] + b * cs[i];
        }
        for (uint32_t i = n_rot; i < head_dim; i++)
            yh[i] = xh[i];
    }
}

static void swiglu_ref(const float *gate, const float *up, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = gate[i] / (1.0F + expf(-gate[i])) * up[i];
}

/* Comparisons that let NaN through, unlike fminf. */
static float at_most(float x, float limit)
{
    return x > limit ? limit : x;
}

static void swiglu_clamped_ref(const float *gate, const float *up, float *y, size_t n, float alpha,
                               float limit)
{
    for (size_t i = 0; i < n; i++) {
        float g = at_most(gate[i], limit), u = at_most(up[i], limit);
        u = u < -limit ? -limit : u;
        y[i] = g / (1.0F + expf(-alpha * g)) * (u + 1.0F);
    }
}

static void gate_ref(const float *x, const float *g, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] / (1.0F + expf(-g[i]));
}

static void add_ref(const float *a, const float *b, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static void axpy_ref(float s, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += s * x[i];
}

static void store_f16_ref(const float *x, uint16_t *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = atsi_f32_to_f16(x[i]);
}

/* Larger first; NaN never wins. */
static int before(const float *x, int32_t a, int32_t b)
{
    if (x[a] == x[b])
        return a < b;
    return x[a] > x[b] || (!isnan(x[a]) && isnan(x[b]));
}

static void select_ids(const float *logits, uint32_t n, uint32_t k, int32_t *ids)
{
    uint32_t have = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = have < k ? have++ : k;
        for (; at > 0 && before(logits, (int32_t)i, ids[at - 1]); at--)
            if (at < k)
                ids[at] = ids[at - 1];
        if (at < k)
            ids[at] = (int32_t)i;
    }
}

/* Softmax over all, then the selected are divided by their sum, or by 2^-14 when that is less. */
static void weights_of_all(const float *logits, uint32_t n, uint32_t k, const int32_t *ids,
                           float *w)
{
    double sum = 0, selected = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)logits[ids[0]]);
    for (uint32_t j = 0; j < k; j++) {
        w[j] = (float)(exp((double)logits[ids[j]] - (double)logits[ids[0]]) / sum);
        selected += (double)w[j];
    }
    selected = fmax(selected, 6.103515625e-5); /* 2^-14 */
    for (uint32_t j = 0; j < k; j++)
        w[j] = (float)((double)w[j] / selected);
}

static void weights_of_selected(const float *logits, uint32_t k, const int32_t *ids, float *w)
{
    double sum = 0;
    for (uint32_t j = 0; j < k; j++)
        sum += exp((double)logits[ids[j]] - (double)logits[ids[0]]);
    for (uint32_t j = 0; j < k; j++)
        w[j] = (float)(exp((double)logits[ids[j]] - (double)logits[ids[0]]) / sum);
}

static void weights_as_they_are(const float *logits, uint32_t k, const int32_t *ids, float *w)
{
    for (uint32_t j = 0; j < k; j++)
        w[j] = logits[ids[j]];
}

static void topk_ref(const float *logits, uint32_t n, uint32_t k, uint32_t gating, int32_t *ids,
                     float *w)
{
    select_ids(logits, n, k, ids);
    if (gating == ATSI_GATING_NONE)
        weights_as_they_are(logits, k, ids, w);
    else if (gating == ATSI_GATING_SELECTED)
        weights_of_selected(logits, k, ids, w);
    else
        weights_of_all(logits, n, k, ids, w);
}

void ref_ops_fill(struct cpu_kernels *k)
{
    k->rms_norm = rms_norm_ref;
    k->rope = rope_ref;
    k->l2_norm = l2_norm_ref;
    k->swiglu = swiglu_ref;
    k->swiglu_clamped = swiglu_clamped_ref;
    k->gate = gate_ref;
    k->add = add_ref;
    k->axpy = axpy_ref;
    k->store_f16 = store_f16_ref;
    k->topk = topk_ref;
}

void cpu_ref_kernels(struct cpu_kernels *k)
{
    memset(k, 0, sizeof *k);
    k->isa = "ref";
    ref_gemm_fill(k);
    ref_dequant_fill(k);
    ref_act_fill(k);
    ref_attn_fill(k);
    ref_ops_fill(k);
    ref_recurrent_fill(k);
}
