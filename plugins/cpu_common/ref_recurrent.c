/* SPDX-License-Identifier: Apache-2.0
 * Reference kernels of the operations that carry a state from token to token, as op.h states them:
 * row after row, and the taps and sums in order. */
#include "ref.h"

#include <math.h>

/* Row t of a channel's input; the n_tap - 1 rows before row 0 are the state's. */
static float conv_input(const struct cpu_conv_args *a, size_t before, uint32_t ch)
{
    size_t kept = a->n_tap - 1;
    return before < kept ? a->state[before * a->x_stride + ch]
                         : a->x[(before - kept) * a->x_stride + ch];
}

static void conv_ref(const struct cpu_conv_args *a)
{
    for (size_t t = 0; t < a->n_tok; t++)
        for (uint32_t ch = 0; ch < a->n_ch; ch++) {
            float sum = 0;
            for (uint32_t m = 0; m < a->n_tap; m++)
                sum += a->w[(size_t)ch * a->n_tap + m] * conv_input(a, t + m, ch);
            a->y[t * a->x_stride + ch] = sum / (1.0F + expf(-sum));
        }
    /* Row i of the new state is row n_tok + i of what came in, which lies behind it. */
    for (size_t i = 0; i + 1 < a->n_tap; i++)
        for (uint32_t ch = 0; ch < a->n_ch; ch++)
            a->state[i * a->x_stride + ch] = conv_input(a, a->n_tok + i, ch);
}

/* y[j] = sum over i of x[i] * s[i][j]: S^T x. */
static void state_times(const float *s, uint32_t dk, uint32_t dv, const float *x, float *y)
{
    memset(y, 0, dv * sizeof *y);
    for (uint32_t i = 0; i < dk; i++)
        for (uint32_t j = 0; j < dv; j++)
            y[j] += x[i] * s[(size_t)i * dv + j];
}

/* One row: S *= exp(g);  d = beta (v - S^T k);  S += k d^T;  out = scale S^T q. */
static void delta_step(const struct cpu_delta_args *a, uint32_t t)
{
    const float *q = a->q + (size_t)t * a->dk, *k = a->k + (size_t)t * a->dk;
    const float *v = a->v + t * a->v_stride;
    float *out = a->out + t * a->out_stride, *d = a->scratch, decay = expf(a->log_decay[t]);
    for (size_t i = 0; i < (size_t)a->dk * a->dv; i++)
        a->s[i] *= decay;
    state_times(a->s, a->dk, a->dv, k, d);
    for (uint32_t j = 0; j < a->dv; j++)
        d[j] = a->beta[t] * (v[j] - d[j]);
    for (uint32_t i = 0; i < a->dk; i++)
        for (uint32_t j = 0; j < a->dv; j++)
            a->s[(size_t)i * a->dv + j] += k[i] * d[j];
    state_times(a->s, a->dk, a->dv, q, out);
    for (uint32_t j = 0; j < a->dv; j++)
        out[j] *= a->scale;
}

static void delta_ref(const struct cpu_delta_args *a)
{
    for (uint32_t t = 0; t < a->n_tok; t++)
        delta_step(a, t);
}

void ref_recurrent_fill(struct cpu_kernels *k)
{
    k->conv = conv_ref;
    k->delta = delta_ref;
}
