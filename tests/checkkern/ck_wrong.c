/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that are wrong on purpose, each in the way kernels really go wrong.  The checker must
 * notice every one of them, or its silence about the others means nothing.
 */
#include "ck.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static struct cpu_kernels right;

#define GEMM_ARGS                                                                                  \
    const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x, float *y,            \
        size_t y_stride

static void product(GEMM_ARGS)
{
    right.gemm[ATSI_TYPE_Q4_K](w, w_stride, n_rows, x, y, y_stride);
}

static void lost_block(GEMM_ARGS)
{
    struct cpu_act shorter = *x;
    shorter.k -= x->k > 3 * 256 ? 256 : 0; /* the last block of long rows is forgotten */
    product(w, w_stride, n_rows, &shorter, y, y_stride);
}

static void swapped_rows(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    for (uint32_t t = 0; t < x->n_tok && n_rows > 16; t++) {
        float *a = &y[t * y_stride + 15], *b = &y[t * y_stride + 16], swap = *a;
        *a = *b;
        *b = swap;
    }
}

static void slightly_off(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    if (n_rows > 2 && x->n_tok > 0)
        y[2] *= 1.001F;
}

static void depends_on_company(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    for (uint32_t r = 0; r < n_rows && x->n_tok > 4; r++)
        y[r] *= 1.0F + 0x1p-23F; /* well inside every bound */
}

static void depends_on_cut(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    if (n_rows % 16 == 1 && x->n_tok > 0)
        y[n_rows - 1] *= 1.0F + 0x1p-23F;
}

static void reads_on(GEMM_ARGS)
{
    volatile unsigned char past = 0;
    product(w, w_stride, n_rows, x, y, y_stride);
    for (uint32_t r = 0; r < n_rows; r++)
        past ^= ((const unsigned char *)w)[r * w_stride + (size_t)x->k / 256 * 144 + 1];
    (void)past;
}

static void writes_on(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    if (x->n_tok > 1 && n_rows < y_stride)
        y[n_rows] = 0;
}

static void writes_before(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    y[-1] = 0;
}

static void uses_gap(GEMM_ARGS)
{
    product(w, w_stride - w_stride % 144, n_rows, x, y, y_stride); /* a stride of whole blocks */
}

static void changes_input(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    if (x->n_tok > 0)
        x->q[0] ^= 1;
}

static void illegal(GEMM_ARGS)
{
    (void)raise(SIGILL);
    product(w, w_stride, n_rows, x, y, y_stride);
}

static void leaves_rows(GEMM_ARGS)
{
    product(w, w_stride, n_rows - n_rows % 4, x, y, y_stride); /* the tail is not written */
}

static void off_for_one_token(GEMM_ARGS)
{
    product(w, w_stride, n_rows, x, y, y_stride);
    for (uint32_t r = 0; r < n_rows && x->n_tok == 1; r++)
        y[r] *= 1.01F;
}

static const struct {
    const char *name;
    cpu_gemm_fn *fn;
} wrong_gemm[] = {{"forgets the last block", lost_block},
                  {"swaps two rows", swapped_rows},
                  {"is 0.1 % off in one element", slightly_off},
                  {"depends on the number of tokens", depends_on_company},
                  {"depends on the cut of rows", depends_on_cut},
                  {"reads past the last weight", reads_on},
                  {"writes past a row", writes_on},
                  {"writes before the first row", writes_before},
                  {"ignores the stride of rows", uses_gap},
                  {"changes its input", changes_input},
                  {"uses an illegal instruction", illegal},
                  {"does not write the last rows", leaves_rows},
                  {"is 1 % off for one token", off_for_one_token}};

/* ---------------------------------------------------------------- products on panels */
#define PANEL_ARGS                                                                                 \
    uint32_t type, const void *panels, uint32_t n_panels, const struct cpu_act *x, float *y,       \
        size_t y_stride

static void panel_product(PANEL_ARGS)
{
    right.gemm_panel[type](type, panels, n_panels, x, y, y_stride);
}

static void takes_rows(PANEL_ARGS)
{
    right.gemm[type](panels, atsi_row_bytes(type, x->k), 16 * n_panels, x, y, y_stride);
}

static void odd_panel_lost(PANEL_ARGS)
{
    panel_product(type, panels, n_panels > 1 ? n_panels - n_panels % 2 : n_panels, x, y, y_stride);
}

/* As a kernel of two streams goes wrong: the chain of the second one is another. */
static void second_stream_differs(PANEL_ARGS)
{
    panel_product(type, panels, n_panels, x, y, y_stride);
    if (n_panels > 1 && x->n_tok > 0)
        y[16] *= 1.0F + 0x1p-23F;
}

/* A step that the unpacked columns do not fit. */
static void large_step_differs(PANEL_ARGS)
{
    panel_product(type, panels, n_panels, x, y, y_stride);
    if (n_panels > 0 && x->n_tok > 0 && cpu_blocks_of(x).columns > 512)
        y[0] *= 1.0F + 0x1p-23F;
}

static void panel_reads_on(PANEL_ARGS)
{
    const volatile unsigned char *end =
        (const unsigned char *)panels + n_panels * 16 * atsi_row_bytes(type, x->k);
    panel_product(type, panels, n_panels, x, y, y_stride);
    (void)*end;
}

static const struct {
    const char *name;
    cpu_gemm_panel_fn *fn;
} wrong_panel[] = {{"takes panels for rows", takes_rows},
                   {"forgets the odd panel", odd_panel_lost},
                   {"depends on panels side by side", second_stream_differs},
                   {"depends on the sizes of caches", large_step_differs},
                   {"reads past the last panel", panel_reads_on}};

/* ---------------------------------------------------------------- other slots */
static void dequant_next(const void *w, float *y, uint32_t k)
{
    right.dequant[ATSI_TYPE_Q6_K](w, y, k);
    if (k > 256)
        y[256] *= 1.0F + 0x1p-22F;
}

static void quant_truncates(const float *x, struct cpu_act *act, uint32_t t)
{
    right.quant_32(x, act, t);
    for (uint32_t i = 0; i < act->k; i++)
        act->q[t * act->q_stride + i] &= ~1;
}

static void norm_without_weight(const float *x, const float *w, float *y, uint32_t n, float eps)
{
    right.rms_norm(x, w, y, n, eps);
    if (n > 32)
        y[n - 1] *= 1.00001F;
}

static void rope_other_sign(const float *x, const float *cs, float *y, uint32_t n_head,
                            uint32_t head_dim, uint32_t n_rot, uint32_t mode)
{
    right.rope(x, cs, y, n_head, head_dim, n_rot, mode);
    y[0] = -y[0];
}

static void swiglu_tail(const float *gate, const float *up, float *y, size_t n)
{
    right.swiglu(gate, up, y, n);
    if (n % 16 == 1)
        y[n - 1] = gate[n - 1];
}

static void attn_one_short(const struct cpu_attn_tile *t)
{
    struct cpu_attn_tile shorter = *t;
    struct cpu_attn_seen seen[CPU_ATTN_ROWS];
    for (uint32_t r = 0; r < t->n_row; r++) {
        seen[r] = t->seen[r];
        seen[r].to -= seen[r].to > seen[r].from + 1 ? 1 : 0;
    }
    shorter.seen = seen;
    right.attn(&shorter);
}

static void topk_any_tie(const float *logits, uint32_t n, uint32_t k, uint32_t gating, int32_t *ids,
                         float *w)
{
    right.topk(logits, n, k, gating, ids, w);
    if (k > 1 && logits[ids[0]] == logits[ids[1]]) {
        int32_t swap = ids[0];
        ids[0] = ids[1];
        ids[1] = swap;
    }
}

static void topk_one_gating(const float *logits, uint32_t n, uint32_t k, uint32_t gating,
                            int32_t *ids, float *w)
{
    (void)gating;
    right.topk(logits, n, k, ATSI_GATING_SELECTED, ids, w);
}

/* The sum as if it were of probabilities. */
static void attn_divided(const struct cpu_attn_tile *t)
{
    right.attn(t);
    for (uint32_t r = 0; r < t->n_row && t->sum[r] > 0; r++) {
        for (uint32_t i = 0; i < t->dv; i++)
            t->out[r * CPU_ATTN_OUT(t->dv) + i] /= t->sum[r];
        t->sum[r] = 1;
    }
}

/* Scores that count from 0: right as long as they are small. */
static void attn_no_max(const struct cpu_attn_tile *t)
{
    right.attn(t);
    for (uint32_t r = 0; r < t->n_row; r++)
        t->max[r] = t->max[r] > 0 ? t->max[r] : 0;
}

static void attn_no_ring(const struct cpu_attn_tile *t)
{
    struct cpu_attn_tile other = *t;
    other.n_first = t->n;
    right.attn(&other);
}

static void attn_by_part(const struct cpu_attn_tile *t)
{
    right.attn(t);
    if (t->n_first < t->n)
        t->out[0] *= 1.0F + 0x1p-23F; /* well inside every bound */
}

static void attn_by_company(const struct cpu_attn_tile *t)
{
    right.attn(t);
    if (t->n_row > t->n_head)
        t->out[0] *= 1.0F + 0x1p-22F;
}

static void attn_sees_all(const struct cpu_attn_tile *t)
{
    struct cpu_attn_tile more = *t;
    struct cpu_attn_seen seen[CPU_ATTN_ROWS];
    for (uint32_t r = 0; r < t->n_row; r++)
        seen[r] = (struct cpu_attn_seen){t->seen[r].from, t->at + t->n};
    more.seen = seen;
    right.attn(&more);
}

static void l2_norm_plus_eps(const float *x, float *y, uint32_t n, float eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] / (sqrt(sum) + (double)eps));
}

static void l2_norm_in_f32(const float *x, float *y, uint32_t n, float eps)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++)
        y[i] = x[i] / fmaxf(sqrtf(sum), eps);
}

static void clamped_both_ways(const float *gate, const float *up, float *y, size_t n, float alpha,
                              float limit)
{
    for (size_t i = 0; i < n; i++) {
        float g = fmaxf(gate[i], -limit);
        right.swiglu_clamped(&g, up + i, y + i, 1, alpha, limit);
    }
}

static void gate_tail(const float *x, const float *g, float *y, size_t n)
{
    right.gate(x, g, y, n - n % 8);
}

/* Codes from the scale that is stored instead of the one before its rounding. */
static void store_by_stored_scale(const float *x, void *y, size_t n)
{
    struct atsi_block_q8_0 *b = y;
    right.store_q8_0(x, y, n);
    for (size_t i = 0; i < n; i++) {
        float d = atsi_f16_to_f32(b[i / 32].d);
        if (d > 0 && isfinite(d))
            b[i / 32].qs[i % 32] = (int8_t)lrintf(fmaxf(-127, fminf(127, x[i] / d)));
    }
}

/* ---------------------------------------------------------------- slots with a state */
static void conv_other_order(const struct cpu_conv_args *a)
{
    static float w[8 * 512];
    struct cpu_conv_args other = *a;
    for (size_t i = 0; i < (size_t)a->n_ch * a->n_tap; i++)
        w[i] = a->w[i / a->n_tap * a->n_tap + (a->n_tap - 1 - i % a->n_tap)];
    other.w = w;
    right.conv(&other);
}

/* Right when a call brings enough rows to fill the state anew. */
static void conv_stale_state(const struct cpu_conv_args *a)
{
    static float oldest[512];
    memcpy(oldest, a->state, a->n_ch * sizeof *oldest);
    right.conv(a);
    if (a->n_tok < a->n_tap - 1)
        memcpy(a->state, oldest, a->n_ch * sizeof *oldest);
}

/* The recurrence with beta on the values alone, or with the decay behind the correction. */
static void delta_variant(const struct cpu_delta_args *a, bool values_only, bool late)
{
    for (uint32_t t = 0; t < a->n_tok; t++)
        for (uint32_t j = 0; j < a->dv; j++) {
            const float *q = a->q + (size_t)t * a->dk, *k = a->k + (size_t)t * a->dk;
            float decay = expf(a->log_decay[t]), dot = 0, out = 0, d;
            for (uint32_t i = 0; i < a->dk; i++)
                dot += (late ? 1 : decay) * a->s[(size_t)i * a->dv + j] * k[i];
            d = a->beta[t] * a->v[t * a->v_stride + j] - (values_only ? 1 : a->beta[t]) * dot;
            for (uint32_t i = 0; i < a->dk; i++) {
                float *s = &a->s[(size_t)i * a->dv + j];
                *s = decay * *s + k[i] * d;
                out += *s * q[i];
            }
            a->out[t * a->out_stride + j] = out * a->scale;
        }
}

static void delta_beta_on_values(const struct cpu_delta_args *a)
{
    delta_variant(a, true, false);
}

static void delta_late_decay(const struct cpu_delta_args *a)
{
    delta_variant(a, false, true);
}

static void delta_slightly_off(const struct cpu_delta_args *a)
{
    right.delta(a);
    a->s[0] *= a->n_tok > 1 ? 1.001F : 1.0F;
}

static float dot_of(const float *a, const float *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Column j of s times x. */
static float column_times(const struct cpu_delta_args *a, const float *x, uint32_t j)
{
    float sum = 0;
    for (uint32_t i = 0; i < a->dk; i++)
        sum += a->s[(size_t)i * a->dv + j] * x[i];
    return sum;
}

/* What row t takes from row i: products of x's and the keys' rows with the decay between them. */
static void fill_weights(const struct cpu_delta_args *a, const double *g, const float *x, float *m)
{
    for (uint32_t t = 0; t < a->n_tok; t++)
        for (uint32_t i = 0; i <= t; i++)
            m[t * CPU_DELTA_ROWS + i] =
                dot_of(x + (size_t)t * a->dk, a->k + (size_t)i * a->dk, a->dk) *
                expf((float)(g[t] - g[i]));
}

/* The chunked form, right when the running sums g of the decays are. */
static void delta_chunked(const struct cpu_delta_args *a, const double *g)
{
    float *known = a->scratch, *seen = known + (size_t)CPU_DELTA_ROWS * CPU_DELTA_ROWS;
    float d[CPU_DELTA_ROWS] = {0};
    fill_weights(a, g, a->k, known);
    fill_weights(a, g, a->q, seen);
    for (uint32_t j = 0; j < a->dv; j++) {
        for (uint32_t t = 0; t < a->n_tok; t++) {
            const float *q = a->q + (size_t)t * a->dk, *k = a->k + (size_t)t * a->dk;
            float decay = expf((float)g[t]), v = a->v[t * a->v_stride + j];
            v -= decay * column_times(a, k, j) + dot_of(known + (size_t)t * CPU_DELTA_ROWS, d, t);
            d[t] = a->beta[t] * v;
            a->out[t * a->out_stride + j] =
                a->scale * (decay * column_times(a, q, j) +
                            dot_of(seen + (size_t)t * CPU_DELTA_ROWS, d, t + 1));
        }
        for (uint32_t t = 0; t < a->n_tok; t++)
            d[t] *= expf((float)(g[a->n_tok - 1] - g[t]));
        for (uint32_t i = 0; i < a->dk; i++) {
            float *s = &a->s[(size_t)i * a->dv + j];
            *s *= expf((float)g[a->n_tok - 1]);
            for (uint32_t t = 0; t < a->n_tok; t++)
                *s += a->k[(size_t)t * a->dk + i] * d[t];
        }
    }
}

static void delta_chunked_sums_in_f32(const struct cpu_delta_args *a)
{
    double g[CPU_DELTA_ROWS];
    float sum = 0;
    for (uint32_t t = 0; t < a->n_tok; t++) {
        sum += a->log_decay[t];
        g[t] = (double)sum;
    }
    delta_chunked(a, g);
}

static void delta_chunked_right(const struct cpu_delta_args *a)
{
    double g[CPU_DELTA_ROWS], sum = 0;
    for (uint32_t t = 0; t < a->n_tok; t++)
        g[t] = sum += (double)a->log_decay[t];
    delta_chunked(a, g);
}

/* Tables with one wrong slot. */
static const struct {
    const char *name;
    void (*check)(struct ck *c, const struct cpu_kernels *k);
    struct cpu_kernels k;
} wrong_slot[] = {
    {"norm 0.001 % off in the last element", ck_rms_norm, {.rms_norm = norm_without_weight}},
    {"adds eps to the 2-norm", ck_l2_norm, {.l2_norm = l2_norm_plus_eps}},
    {"sums squares in f32", ck_l2_norm, {.l2_norm = l2_norm_in_f32}},
    {"turns one element the other way", ck_rope, {.rope = rope_other_sign}},
    {"skips the tail of SwiGLU", ck_swiglu, {.swiglu = swiglu_tail}},
    {"clamps the gate below", ck_swiglu_clamped, {.swiglu_clamped = clamped_both_ways}},
    {"does not write the last gates", ck_gate, {.gate = gate_tail}},
    {"codes from the stored scale", ck_store_q8_0, {.store_q8_0 = store_by_stored_scale}},
    {"attention forgets the last cell", ck_attn, {.attn = attn_one_short}},
    {"attention with weights, not exponentials", ck_attn, {.attn = attn_divided}},
    {"attention with a largest score of 0", ck_attn, {.attn = attn_no_max}},
    {"attention sees what comes later", ck_attn, {.attn = attn_sees_all}},
    {"attention depends on the rows beside", ck_attn, {.attn = attn_by_company}},
    {"reads on where the ring turns", ck_attn, {.attn = attn_no_ring}},
    {"depends on where the ring turns", ck_attn, {.attn = attn_by_part}},
    {"takes the higher id on a tie", ck_topk, {.topk = topk_any_tie}},
    {"one gating for all", ck_topk, {.topk = topk_one_gating}},
    {"convolves backwards", ck_conv, {.conv = conv_other_order}},
    {"forgets a state of few rows", ck_conv, {.conv = conv_stale_state}},
    {"delta rule: beta on the values alone", ck_delta, {.delta = delta_beta_on_values}},
    {"delta rule: decay too late", ck_delta, {.delta = delta_late_decay}},
    {"delta rule: state 0.1 % off", ck_delta, {.delta = delta_slightly_off}},
    {"delta rule: sums of decays in f32", ck_delta, {.delta = delta_chunked_sums_in_f32}},
};

static uint32_t expect_failure(struct ck *c, const char *name)
{
    bool noticed = c->n_failed > 0;
    (void)printf("%-40s %s\n", name, noticed ? "noticed" : "NOT NOTICED");
    c->n_failed = 0;
    return noticed ? 0 : 1;
}

/* The form that kernels may use instead of the recurrence has to pass, bounds and all. */
static uint32_t expect_success(struct ck *c)
{
    static const struct cpu_kernels k = {.delta = delta_chunked_right};
    uint32_t n_failed;
    ck_delta(c, &k);
    n_failed = c->n_failed;
    (void)printf("%-40s %s\n", "(delta rule in chunks, right)",
                 n_failed > 0 ? "REFUSED" : "passed");
    c->n_failed = 0;
    return n_failed > 0 ? 1 : 0;
}

uint32_t ck_wrong(struct ck *c)
{
    uint32_t missed = 0;
    cpu_ref_kernels(&right);
    c->quiet = true;
    for (size_t i = 0; i < sizeof wrong_gemm / sizeof wrong_gemm[0]; i++) {
        ck_gemm(c, wrong_gemm[i].fn, ATSI_TYPE_Q4_K);
        missed += expect_failure(c, wrong_gemm[i].name);
    }
    for (size_t i = 0; i < sizeof wrong_panel / sizeof wrong_panel[0]; i++) {
        ck_gemm_panel(c, wrong_panel[i].fn, NULL, ATSI_TYPE_MXFP4);
        missed += expect_failure(c, wrong_panel[i].name);
    }
    ck_gemm_panel(c, panel_product, depends_on_company, ATSI_TYPE_Q4_K);
    missed += expect_failure(c, "other bits in panels than in rows");
    ck_dequant(c, dequant_next, ATSI_TYPE_Q6_K);
    missed += expect_failure(c, "dequantizes with a last-bit error");
    ck_quant(c, quant_truncates, 32);
    missed += expect_failure(c, "rounds activations otherwise");
    for (size_t i = 0; i < sizeof wrong_slot / sizeof wrong_slot[0]; i++) {
        wrong_slot[i].check(c, &wrong_slot[i].k);
        missed += expect_failure(c, wrong_slot[i].name);
    }
    missed += expect_success(c);
    c->quiet = false;
    return missed;
}
