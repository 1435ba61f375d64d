/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that are wrong on purpose, each in the way kernels really go wrong.  The checker must
 * notice every one of them, or its silence about the others means nothing.
 */
#include "ck.h"

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

static void attn_one_short(const struct cpu_attn_args *a)
{
    struct cpu_attn_args shorter = *a;
    shorter.n_kv -= a->n_kv > 1 ? 1 : 0;
    right.attn(&shorter);
}

static void topk_any_tie(const float *logits, uint32_t n, uint32_t k, int32_t *ids, float *w)
{
    right.topk(logits, n, k, ids, w);
    if (k > 1 && logits[ids[0]] == logits[ids[1]]) {
        int32_t swap = ids[0];
        ids[0] = ids[1];
        ids[1] = swap;
    }
}

static uint32_t expect_failure(struct ck *c, const char *name)
{
    bool noticed = c->n_failed > 0;
    (void)printf("%-40s %s\n", name, noticed ? "noticed" : "NOT NOTICED");
    c->n_failed = 0;
    return noticed ? 0 : 1;
}

uint32_t ck_wrong(struct ck *c)
{
    uint32_t missed = 0;
    struct cpu_kernels k;
    cpu_ref_kernels(&right);
    k = right;
    k.rms_norm = norm_without_weight;
    k.rope = rope_other_sign;
    k.swiglu = swiglu_tail;
    k.attn = attn_one_short;
    k.topk = topk_any_tie;
    c->quiet = true;
    for (size_t i = 0; i < sizeof wrong_gemm / sizeof wrong_gemm[0]; i++) {
        ck_gemm(c, wrong_gemm[i].fn, ATSI_TYPE_Q4_K);
        missed += expect_failure(c, wrong_gemm[i].name);
    }
    ck_dequant(c, dequant_next, ATSI_TYPE_Q6_K);
    missed += expect_failure(c, "dequantizes with a last-bit error");
    ck_quant(c, quant_truncates, 32);
    missed += expect_failure(c, "rounds activations otherwise");
    ck_rms_norm(c, &k);
    missed += expect_failure(c, "norm 0.001 % off in the last element");
    ck_rope(c, &k);
    missed += expect_failure(c, "turns one element the other way");
    ck_swiglu(c, &k);
    missed += expect_failure(c, "skips the tail of SwiGLU");
    ck_attn(c, &k);
    missed += expect_failure(c, "attention forgets the last cell");
    ck_topk(c, &k);
    missed += expect_failure(c, "takes the higher id on a tie");
    c->quiet = false;
    return missed;
}
