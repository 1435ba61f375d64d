/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that carry a state from token to token.  Rows depend on each other, so the work is
 * dealt out across them: neighbouring channels of the convolution, value heads of the delta rule.
 */
#include "backend.h"

#include <math.h>

void cpu_op_conv(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t first, end, c = op->src[0]->ne[0];
    uint32_t n_tap = (uint32_t)op->weight[0]->ne[0];
    struct cpu_conv_args a = {.n_tap = n_tap, .n_tok = op->n_rows, .x_stride = c};
    cpu_share(w->w, c, CPU_ROW_STEP, &first, &end);
    if (first >= end)
        return;
    a.n_ch = (uint32_t)(end - first);
    a.x = (const float *)op->src[0]->data + first;
    a.w = (const float *)op->weight[0]->data + first * n_tap;
    a.y = (float *)op->dst[0]->data + first;
    a.state = (float *)op->state->data + first;
    w->kernels->conv(&a);
}

/* ---------------------------------------------------------------- delta rule */
/* A worker's scratch: normalised queries and keys, decays and betas of a block of rows. */
struct delta_block {
    float *q, *k, *log_decay, *beta, *kernel;
};

static size_t heads_bytes(const struct atsi_op *op)
{
    return cpu_round_up(CPU_DELTA_ROWS * op->p.delta.dim_k * sizeof(float), CPU_ALIGN);
}

size_t cpu_delta_scratch(const struct atsi_op *op)
{
    size_t kernel = CPU_DELTA_SCRATCH(op->p.delta.dim_k, op->p.delta.dim_v) * sizeof(float);
    return 2 * heads_bytes(op) + 2 * CPU_DELTA_ROWS * sizeof(float) +
           cpu_round_up(kernel, CPU_ALIGN);
}

static struct delta_block lay_out(const struct cpu_worker *w, const struct atsi_op *op)
{
    unsigned char *at = w->free;
    struct delta_block b = {.q = (float *)(void *)at};
    at += heads_bytes(op);
    b.k = (float *)(void *)at;
    at += heads_bytes(op);
    b.log_decay = (float *)(void *)at;
    b.beta = b.log_decay + CPU_DELTA_ROWS;
    b.kernel = b.beta + CPU_DELTA_ROWS;
    return b;
}

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

/* exp() of less is 0 in f32: the end of the scale, so that sums over a block stay small. */
#define LOG_DECAY_MIN (-128.0)

/* Decays and betas of value head h for rows [t0, t0 + n). */
static void prepare_rates(const struct atsi_op *op, uint32_t h, uint32_t t0, uint32_t n,
                          struct delta_block *b)
{
    size_t at = (size_t)(h / op->p.delta.run) * op->p.delta.stride + h % op->p.delta.run;
    const struct atsi_tensor *beta = op->src[1], *alpha = op->src[2];
    double rate = (double)((const float *)op->weight[0]->data)[h];
    double bias = (double)((const float *)op->weight[1]->data)[h];
    for (uint32_t i = 0; i < n; i++) {
        size_t t = (size_t)t0 + i;
        float x = ((const float *)beta->data)[t * beta->ne[0] + at + op->p.delta.beta_offset];
        float a = ((const float *)alpha->data)[t * alpha->ne[0] + at + op->p.delta.alpha_offset];
        double g = rate * softplus((double)a + bias);
        b->beta[i] = (float)(1 / (1 + exp(-(double)x)));
        b->log_decay[i] = (float)(g < LOG_DECAY_MIN ? LOG_DECAY_MIN : g);
    }
}

/* The key head of value head h, normalised. */
static void prepare_heads(const struct cpu_worker *w, const struct atsi_op *op, uint32_t h,
                          uint32_t t0, uint32_t n, struct delta_block *b)
{
    uint32_t n_k = op->p.delta.n_head_k, dk = op->p.delta.dim_k;
    uint32_t j = op->p.delta.tiled != 0 ? h % n_k : h / (op->p.delta.n_head_v / n_k);
    for (uint32_t i = 0; i < n; i++) {
        const float *row = (const float *)op->src[0]->data + ((size_t)t0 + i) * op->src[0]->ne[0];
        w->kernels->l2_norm(row + (size_t)j * dk, b->q + (size_t)i * dk, dk, op->p.delta.eps);
        w->kernels->l2_norm(row + ((size_t)n_k + j) * dk, b->k + (size_t)i * dk, dk,
                            op->p.delta.eps);
    }
}

static void delta_head(const struct cpu_worker *w, const struct atsi_op *op, uint32_t h)
{
    uint32_t dk = op->p.delta.dim_k, dv = op->p.delta.dim_v;
    size_t in = op->src[0]->ne[0], out = op->dst[0]->ne[0];
    size_t v_at = 2 * (size_t)op->p.delta.n_head_k * dk + (size_t)h * dv;
    struct delta_block b = lay_out(w, op);
    struct cpu_delta_args a = {.dk = dk,
                               .dv = dv,
                               .scale = (float)(1 / sqrt((double)dk)),
                               .q = b.q,
                               .k = b.k,
                               .v_stride = in,
                               .out_stride = out,
                               .log_decay = b.log_decay,
                               .beta = b.beta,
                               .s = (float *)op->state->data + (size_t)h * dk * dv,
                               .scratch = b.kernel};
    for (uint32_t t = 0; t < op->n_rows; t += a.n_tok) {
        a.n_tok = op->n_rows - t < CPU_DELTA_ROWS ? op->n_rows - t : CPU_DELTA_ROWS;
        prepare_heads(w, op, h, t, a.n_tok, &b);
        prepare_rates(op, h, t, a.n_tok, &b);
        a.v = (const float *)op->src[0]->data + t * in + v_at;
        a.out = (float *)op->dst[0]->data + t * out + (size_t)h * dv;
        w->kernels->delta(&a);
    }
}

void cpu_op_delta_net(struct cpu_worker *w, const struct atsi_op *op)
{
    size_t first, end;
    cpu_share(w->w, op->p.delta.n_head_v, 1, &first, &end);
    for (size_t h = first; h < end; h++)
        delta_head(w, op, (uint32_t)h);
}
