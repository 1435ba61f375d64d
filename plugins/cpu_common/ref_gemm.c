/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference products.  One skeleton for every block type: decode a block, take exact integer sums
 * against the rounded activations, and add (d * dx) * isum - (dmin * dx) * imin to an f32
 * accumulator, block after block.
 */
#include "ref.h"
#include "ref_block.h"

#include "panel/pack.h"

#define MAX_BLOCK 210u /* bytes: Q6_K */

static void block_sums(const struct ref_block *b, const int8_t *x, int32_t *isum, int32_t *imin)
{
    *isum = *imin = 0;
    for (uint32_t g = 0; g < b->n / b->sub; g++) {
        int32_t dot = 0, sum = 0;
        for (uint32_t i = g * b->sub; i < (g + 1) * b->sub; i++) {
            dot += b->q[i] * x[i];
            sum += x[i];
        }
        *isum += b->sc[g] * dot;
        *imin += b->mn[g] * sum;
    }
}

/* Weight rows of k elements, in either layout. */
struct rows {
    uint32_t type, k;
    const uint8_t *data;
    size_t stride; /* from row to row; 0: panels */
};

/* Block i of row r as the file has it, which panels put together in `room`. */
static const void *block_of(const struct rows *w, uint32_t r, uint32_t i, void *room)
{
    const struct atsi_type_info *ti = atsi_type_info(w->type);
    const uint8_t *panel;
    if (w->stride != 0)
        return w->data + r * w->stride + (size_t)i * ti->block_bytes;
    panel = w->data + r / ATSI_PANEL_ROWS * atsi_panel_bytes(w->type, w->k);
    atsi_panel_read(w->type, w->k, panel, r % ATSI_PANEL_ROWS, i, 1, room);
    return room;
}

/* y of one row for all tokens. */
static void gemm_blocks(const struct rows *w, uint32_t n_rows, const struct cpu_act *x, float *y,
                        size_t y_stride)
{
    ref_decode_fn *decode = ref_decoder(w->type);
    uint32_t n_blocks = x->k / atsi_type_info(w->type)->block_elems;
    for (uint32_t r = 0; r < n_rows; r++) {
        for (uint32_t t = 0; t < x->n_tok; t++)
            y[t * y_stride + r] = 0;
        for (uint32_t i = 0; i < n_blocks; i++) {
            uint16_t room[MAX_BLOCK / 2];
            struct ref_block b;
            decode(block_of(w, r, i, room), &b);
            for (uint32_t t = 0; t < x->n_tok; t++) {
                const int8_t *q = x->q + t * x->q_stride + (size_t)i * b.n;
                float dx = x->d[t * x->d_stride + i], *acc = &y[t * y_stride + r];
                int32_t isum, imin;
                block_sums(&b, q, &isum, &imin);
                *acc += b.d * dx * (float)isum;
                *acc -= b.dmin * dx * (float)imin;
            }
        }
    }
}

static float load(uint32_t type, const void *value)
{
    float f;
    uint16_t h;
    if (type == ATSI_TYPE_F32) {
        memcpy(&f, value, sizeof f);
        return f;
    }
    memcpy(&h, value, sizeof h);
    return type == ATSI_TYPE_F16 ? atsi_f16_to_f32(h) : atsi_bf16_to_f32(h);
}

static void gemm_floats(const struct rows *w, uint32_t n_rows, const struct cpu_act *x, float *y,
                        size_t y_stride)
{
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t t = 0; t < x->n_tok; t++) {
            const float *xt = x->f + t * x->f_stride;
            float acc = 0, room;
            for (uint32_t i = 0; i < x->k; i++)
                acc += load(w->type, block_of(w, r, i, &room)) * xt[i];
            y[t * y_stride + r] = acc;
        }
}

static void gemm_rows(uint32_t type, const void *w, size_t w_stride, uint32_t n_rows,
                      const struct cpu_act *x, float *y, size_t y_stride)
{
    const struct rows rows = {type, x->k, w, w_stride};
    if (atsi_type_info(type)->block_elems == 1)
        gemm_floats(&rows, n_rows, x, y, y_stride);
    else
        gemm_blocks(&rows, n_rows, x, y, y_stride);
}

static void gemm_panel_ref(uint32_t type, const void *panels, uint32_t n_panels,
                           const struct cpu_act *x, float *y, size_t y_stride)
{
    gemm_rows(type, panels, 0, n_panels * ATSI_PANEL_ROWS, x, y, y_stride);
}

#define ARGS                                                                                       \
    const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x, float *y,            \
        size_t y_stride

static void gemm_f32_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_F32, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_f16_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_F16, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_bf16_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_BF16, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q4_0_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q4_0, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q4_1_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q4_1, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q5_0_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q5_0, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q5_1_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q5_1, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q8_0_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q8_0, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q2_k_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q2_K, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q3_k_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q3_K, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q4_k_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q4_K, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q5_k_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q5_K, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_q6_k_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_Q6_K, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_iq4_nl_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_IQ4_NL, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_iq4_xs_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_IQ4_XS, w, w_stride, n_rows, x, y, y_stride);
}

static void gemm_mxfp4_ref(ARGS)
{
    gemm_rows(ATSI_TYPE_MXFP4, w, w_stride, n_rows, x, y, y_stride);
}

void ref_gemm_fill(struct cpu_kernels *k)
{
    k->gemm[ATSI_TYPE_F32] = gemm_f32_ref;
    k->gemm[ATSI_TYPE_F16] = gemm_f16_ref;
    k->gemm[ATSI_TYPE_BF16] = gemm_bf16_ref;
    k->gemm[ATSI_TYPE_Q4_0] = gemm_q4_0_ref;
    k->gemm[ATSI_TYPE_Q4_1] = gemm_q4_1_ref;
    k->gemm[ATSI_TYPE_Q5_0] = gemm_q5_0_ref;
    k->gemm[ATSI_TYPE_Q5_1] = gemm_q5_1_ref;
    k->gemm[ATSI_TYPE_Q8_0] = gemm_q8_0_ref;
    k->gemm[ATSI_TYPE_Q2_K] = gemm_q2_k_ref;
    k->gemm[ATSI_TYPE_Q3_K] = gemm_q3_k_ref;
    k->gemm[ATSI_TYPE_Q4_K] = gemm_q4_k_ref;
    k->gemm[ATSI_TYPE_Q5_K] = gemm_q5_k_ref;
    k->gemm[ATSI_TYPE_Q6_K] = gemm_q6_k_ref;
    k->gemm[ATSI_TYPE_IQ4_NL] = gemm_iq4_nl_ref;
    k->gemm[ATSI_TYPE_IQ4_XS] = gemm_iq4_xs_ref;
    k->gemm[ATSI_TYPE_MXFP4] = gemm_mxfp4_ref;
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        if (atsi_panel_form(t) != NULL)
            k->gemm_panel[t] = gemm_panel_ref;
}
