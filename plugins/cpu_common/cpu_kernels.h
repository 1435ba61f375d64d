/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel table of a CPU plugin, and the contracts of its slots.
 *
 * cpu_ref fills every slot (ref_*.c, the definition of right); an ISA plugin starts from those and
 * overlays what it improves (cpu_avx2_kernels()).  A half-filled ISA is always legal.
 *
 * Contracts common to all slots:
 *  - rows of activations, scratch and quantized activations start 64-byte aligned; weights are
 * 2-aligned (f32 4-aligned) and nothing may be read past the last byte of the last weight row: it
 * may be the end of a mapped file;
 *  - a result for one token never depends on how many tokens the call holds, nor on how rows were
 * cut into calls: prefill and decode, 1 and N threads agree bit for bit (but `delta`, which may
 * differ in rounding with the number of rows);
 *  - no allocation, no static state, no change of the floating-point environment.
 */
#ifndef ATSI_CPU_KERNELS_H
#define ATSI_CPU_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "atsinfer/op.h"
#include "atsinfer/plugin.h"

/* How products of many tokens walk panels, so that what is used again stays in a cache (blocks.c).
 * Results do not depend on it. */
struct cpu_blocks {
    uint32_t columns; /* unpacked at a time for the first cache: 256, 512, 768 or 1024 */
    uint32_t panels;  /* that share activations in the second cache, even */
    uint32_t tokens;  /* of a pass over them */
};
#define CPU_BLOCKS_MOST_COLUMNS 1024

/* For the first (data) and second cache that a worker has, in bytes; 0, or more or less than a core
 * can have: as for 32 KiB and 1 MiB. */
struct cpu_blocks cpu_blocks_for(uint64_t l1d_bytes, uint64_t l2_bytes);

/* n_tok activation rows, rounded to 8 bits or not.
 *   block = 32:  per 32 elements d = f16-rounded(amax / 127), q = round-half-even(x * (127 / amax))
 *   block = 256: per 256 elements m = signed element of largest magnitude (first one on a tie),
 *                iscale = -127 / m, q = min(127, round-half-even(iscale * x)), d = 1 / iscale (f32)
 *   block = 0:   f32 rows, only f and f_stride are set
 * Blocks that are all zero, or so small that 127 / amax overflows: q = 0, and d = 0 (block = 256).
 * bsum holds the sum of each 16 consecutive q (exact in i16). */
struct cpu_act {
    uint32_t k; /* elements of a row */
    uint32_t n_tok;
    uint32_t block;
    const float *f; /* [n_tok][f_stride] */
    size_t f_stride;
    int8_t *q;                              /* [n_tok][q_stride] */
    float *d;                               /* [n_tok][d_stride] */
    int16_t *bsum;                          /* [n_tok][bsum_stride] */
    size_t q_stride, d_stride, bsum_stride; /* in elements; every row 64-byte aligned */
    const struct cpu_blocks *blocks;        /* NULL: cpu_blocks_for(0, 0) */
};

/* Those of a call. */
static inline struct cpu_blocks cpu_blocks_of(const struct cpu_act *x)
{
    return x->blocks != NULL ? *x->blocks : cpu_blocks_for(0, 0);
}

/* y[t * y_stride + r] = row r of w times activation row t, for r < n_rows and t < x->n_tok.
 * w: n_rows rows of x->k elements, w_stride bytes apart.  n_rows and n_tok may be 0; any n_rows.
 * Accumulation across blocks is f32 (see the bound in tests/checkkern). */
typedef void cpu_gemm_fn(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                         float *y, size_t y_stride);

/* The same for n_panels panels of `type` (atsinfer/panel.h), one after the other:
 *   y[t * y_stride + 16 p + r] = row r of panel p times activation row t.
 * `type` is the slot's own, so that one function may serve several.  What surrounds a panel is not
 * read but may be prefetched.  Any n_panels; workers get an even number wherever they can. */
typedef void cpu_gemm_panel_fn(uint32_t type, const void *panels, uint32_t n_panels,
                               const struct cpu_act *x, float *y, size_t y_stride);

/* Attention goes over the positions in chunks that begin at multiples of CPU_ATTN_CELLS, whoever
 * computes them, and joins their results in order: a row's result depends neither on the rows
 * beside it nor on how chunks were dealt to workers. */
#define CPU_ATTN_CELLS 512u
#define CPU_ATTN_ROWS 96u /* the most query rows of a call */
/* Floats from row to row of a chunk's result: dv values, then padding. */
#define CPU_ATTN_OUT(dv) (((size_t)(dv) + 31) / 32 * 32)
/* Floats of scratch: queries, keys, the values, the scores. */
#define CPU_ATTN_SCORES (CPU_ATTN_CELLS + 16u)
#define CPU_ATTN_SCRATCH(n_row, dk, dv)                                                            \
    (((size_t)(n_row) + 32) * (((size_t)(dk) + 15) / 16 * 16) +                                    \
     CPU_ATTN_CELLS * CPU_ATTN_OUT(dv) + (size_t)(n_row)*CPU_ATTN_SCORES)

/* Cells [from, to) of a chunk; from >= to: none. */
struct cpu_attn_seen {
    uint32_t from, to;
};

/* One chunk of one KV head's cache times n_row query rows.
 *   q: row r at q + r / n_head * q_stride + r % n_head * dk; it sees seen[r].
 *   Cells at .. at + n of the chunk (at + n <= CPU_ATTN_CELLS, n > 0) are there, in order of
 * position: n_first of them at k [.][dk] and v [.][dv] (rows packed, types type_k / type_v: F32,
 * F16, Q8_0), the rest at k2 and v2, where a ring begins anew (n_first == n: k2 and v2 are not
 * read).  What no row sees need not be a number.
 *   Results per row: max, the largest score, sum of exp(score - max), out [CPU_ATTN_OUT(dv)], the
 * values weighted with exp(score - max); -inf, 0 and 0 for a row that sees nothing. */
struct cpu_attn_tile {
    uint32_t n_row, n_head, dk, dv;
    uint32_t at, n, n_first;
    uint32_t type_k, type_v;
    float scale;
    const float *q;
    size_t q_stride;
    const struct cpu_attn_seen *seen;
    const void *k, *v, *k2, *v2;
    float *max, *sum, *out; /* out: 64-byte aligned */
    float *scratch;         /* CPU_ATTN_SCRATCH(n_row, dk, dv), 64-byte aligned */
};

/* ATSI_OP_CONV for n_ch neighbouring channels and n_tok rows.  x, y: first channel of row 0, rows
 * x_stride elements apart; w [n_ch][n_tap]; state: first channel of the oldest of n_tap - 1 rows,
 * x_stride elements apart too, moved on by the call.  x and y do not overlap. */
struct cpu_conv_args {
    uint32_t n_ch, n_tap, n_tok;
    size_t x_stride;
    const float *x, *w;
    float *y, *state;
};

/* The most rows one call of the delta slot gets. */
#define CPU_DELTA_ROWS 64u

/* ATSI_OP_DELTA_NET for one value head and 1..CPU_DELTA_ROWS rows.
 *   q, k [n_tok][dk], of norm 1; v [n_tok] rows v_stride apart, out [n_tok] rows out_stride apart,
 * of dv; log_decay g <= 0 and beta [n_tok]; s [dk][dv]; scale = 1 / sqrt(dk) of the output.
 *   scratch: CPU_DELTA_SCRATCH(dk, dv) floats, 64-byte aligned.  dk, dv: 1..1024.
 * n_tok == 1 is a decode step; more rows may use the chunked form. */
struct cpu_delta_args {
    uint32_t n_tok, dk, dv;
    float scale;
    const float *q, *k, *v;
    size_t v_stride, out_stride;
    const float *log_decay, *beta;
    float *s, *out, *scratch;
};
#define CPU_DELTA_SCRATCH(dk, dv)                                                                  \
    ((size_t)CPU_DELTA_ROWS * (2 * (size_t)CPU_DELTA_ROWS + (dk) + 2 * (size_t)(dv) + 32))

struct cpu_kernels {
    const char *isa; /* "ref", "avx2", "avx512" */
    char detail[96]; /* variants chosen at run time: "VNNI" */
    /* x[k] -> row t of act (q, d, bsum) for act->block 32 / 256 */
    void (*quant_32)(const float *x, struct cpu_act *act, uint32_t t);
    void (*quant_256)(const float *x, struct cpu_act *act, uint32_t t);
    /* Products by weight type with the activation kind of atsi_type_info(type)->act; F32, F16 and
     * BF16 take f32 rows. */
    cpu_gemm_fn *gemm[ATSI_TYPE_COUNT];
    /* Likewise for ATSI_LAYOUT_PANELS.  Rows that fill no panel go to `gemm`. */
    cpu_gemm_panel_fn *gemm_panel[ATSI_TYPE_COUNT];
    /* y[k] = row of `type`, exact to f32 rounding as docs/formats.md orders the multiplications. */
    void (*dequant[ATSI_TYPE_COUNT])(const void *w, float *y, uint32_t k);
    /* y may equal x. */
    void (*rms_norm)(const float *x, const float *w, float *y, uint32_t n, float eps);
    /* cs: n_rot/2 cosines then n_rot/2 sines; x, y: [n_head][head_dim]; y may equal x. */
    void (*rope)(const float *x, const float *cs, float *y, uint32_t n_head, uint32_t head_dim,
                 uint32_t n_rot, uint32_t mode);
    void (*swiglu)(const float *gate, const float *up, float *y, size_t n);
    /* ATSI_GLU_CLAMPED */
    void (*swiglu_clamped)(const float *gate, const float *up, float *y, size_t n, float alpha,
                           float limit);
    /* y = x * sigmoid(g) */
    void (*gate)(const float *x, const float *g, float *y, size_t n);
    void (*add)(const float *a, const float *b, float *y, size_t n);
    /* y[i] += s * x[i] */
    void (*axpy)(float s, const float *x, float *y, size_t n);
    /* n f32 values to the cache's type */
    void (*store_f16)(const float *x, uint16_t *y, size_t n);
    /* n a multiple of 32; rounding as ATSI_TYPE_Q8_0 of docs/formats.md */
    void (*store_q8_0)(const float *x, void *y, size_t n);
    void (*attn)(const struct cpu_attn_tile *t);
    /* ids[k], w[k]: the k largest logits of n and their weights (ATSI_OP_TOPK) */
    void (*topk)(const float *logits, uint32_t n, uint32_t k, uint32_t gating, int32_t *ids,
                 float *w);
    /* y = x / max(2-norm of x, eps); y may equal x */
    void (*l2_norm)(const float *x, float *y, uint32_t n, float eps);
    void (*conv)(const struct cpu_conv_args *a);
    void (*delta)(const struct cpu_delta_args *a);
};

/* Fills every slot with the reference. */
void cpu_ref_kernels(struct cpu_kernels *k);

/* ---------------------------------------------------------------- the backend over a table */
/* A CPU plugin's entry.c fills this and includes no more than this header. */
struct cpu_plugin_desc {
    const char *name; /* component name: "cpu_avx2" */
    uint64_t caps;    /* ATSI_CPU_* bits all required */
    void (*kernels)(const struct atsi_host *host,
                    struct cpu_kernels *out); /* after caps were checked */
};

/* The ops table written once for every CPU plugin.  Its open() builds the kernel table from the
 * description registered with cpu_backend_describe() (called by entry(), before anything else). */
extern const struct atsi_backend_ops cpu_backend_ops;
void cpu_backend_describe(const struct cpu_plugin_desc *desc);

#endif
