/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of matrix products.
 *
 * Expected: integer sums of each block (exact), scaled and added in double.  Allowed error of an
 * element, with S = sum over blocks of |d_w * d_x * isum| + |dmin_w * d_x * imin| and k = the
 * longest run of f32 additions (two per block, and 16 for lanes that are added at the end):
 *     (k + 3) u S      every addition rounds once, and so do d_w * d_x, isum and their product
 *   + N 2^-149         N = k + sum of |isum| + |imin|: d_w * d_x may round as a subnormal, which
 *                      the integer sum then magnifies
 * With random data a right kernel stays far below: more than 8 u S is reported as a warning.
 * For float weights each element is a block with isum = 1.  Where every sum of absolute values is a
 * small integer (CK_EXACT) nothing may round at all, and the bound is 0.
 *
 * Besides, a token alone, any cut of the rows, and the block sizes for any cache must give the same
 * bits.
 *
 * Products on panels are held to all of the same; rows are then cut at multiples of 16.
 */
#include "ck.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "panel/pack.h"
#include "ref_block.h"

struct gemm_case {
    cpu_gemm_fn *fn;          /* NULL: a product on panels */
    cpu_gemm_panel_fn *panel; /* rows are a multiple of 16, without gaps */
    cpu_gemm_fn *same;        /* of a product on panels: one on rows with the same bits, or NULL */
    uint32_t type, k, n_rows, n_tok;
    size_t w_gap, y_gap; /* bytes between rows of w, floats between rows of y */
    enum ck_mode mode;
};

/* The weights of a case: rows, and the panels of them if those are what the kernel gets. */
struct weights {
    struct ck_mem rows, panels;
    size_t stride;
};

/* The kernel's product of rows first .. first + n - 1. */
static void product(const struct gemm_case *g, const struct weights *w, uint32_t first, uint32_t n,
                    const struct cpu_act *x, float *y, size_t y_stride)
{
    if (g->fn != NULL)
        g->fn(w->rows.data + first * w->stride, w->stride, n, x, y, y_stride);
    else
        g->panel(g->type, w->panels.data + first * w->stride, n / ATSI_PANEL_ROWS, x, y, y_stride);
}

/* A place between `from` and n_rows where the kernel's rows may be cut. */
static uint32_t cut_after(struct ck *c, const struct gemm_case *g, uint32_t from)
{
    uint32_t step = g->fn != NULL ? 1 : ATSI_PANEL_ROWS;
    return from + (uint32_t)(ck_random(c) % ((g->n_rows - from) / step + 1)) * step;
}

/* The expected value of one element and what may be added by rounding. */
struct expected {
    double value, sum_abs, tiny;
};

static void add_block(struct expected *e, const struct ref_block *b, const int8_t *q, float dx)
{
    int32_t isum = 0, imin = 0;
    for (uint32_t g = 0; g < b->n / b->sub; g++) {
        int32_t dot = 0, sum = 0;
        for (uint32_t i = g * b->sub; i < (g + 1) * b->sub; i++) {
            dot += b->q[i] * q[i];
            sum += q[i];
        }
        isum += b->sc[g] * dot;
        imin += b->mn[g] * sum;
    }
    e->value += (double)b->d * dx * isum - (double)b->dmin * dx * imin;
    e->sum_abs += fabs((double)b->d * dx * isum) + fabs((double)b->dmin * dx * imin);
    e->tiny += fabs((double)isum) + fabs((double)imin);
}

static void expect_blocks(const struct gemm_case *g, const unsigned char *row,
                          const struct cpu_act *x, struct expected *e)
{
    const struct atsi_type_info *ti = atsi_type_info(g->type);
    for (uint32_t i = 0; i < g->k / ti->block_elems; i++) {
        struct ref_block b;
        ref_decoder(g->type)(row + (size_t)i * ti->block_bytes, &b);
        for (uint32_t t = 0; t < x->n_tok; t++)
            add_block(&e[t], &b, x->q + t * x->q_stride + (size_t)i * b.n,
                      x->d[t * x->d_stride + i]);
    }
}

static float float_at(uint32_t type, const unsigned char *row, uint32_t i)
{
    float f;
    uint16_t h;
    if (type == ATSI_TYPE_F32) {
        memcpy(&f, row + (size_t)4 * i, 4);
        return f;
    }
    memcpy(&h, row + (size_t)2 * i, 2);
    return type == ATSI_TYPE_F16 ? atsi_f16_to_f32(h) : atsi_bf16_to_f32(h);
}

static void expect_floats(const struct gemm_case *g, const unsigned char *row,
                          const struct cpu_act *x, struct expected *e)
{
    for (uint32_t i = 0; i < g->k; i++) {
        double w = (double)float_at(g->type, row, i);
        for (uint32_t t = 0; t < x->n_tok; t++) {
            double p = w * (double)x->f[t * x->f_stride + i];
            e[t].value += p;
            e[t].sum_abs += fabs(p);
        }
    }
}

static bool is_float(uint32_t type)
{
    return atsi_type_info(type)->block_elems == 1;
}

static double bound_of(const struct gemm_case *g, const struct expected *e)
{
    uint32_t n = g->k / atsi_type_info(g->type)->block_elems;
    double k = is_float(g->type) ? (double)n : 2.0 * n + 16;
    if (g->mode == CK_EXACT && e->sum_abs < 16777216.0)
        return 0;
    return (k + 3) * CK_U * e->sum_abs + (k + e->tiny) * CK_TINY;
}

static void check_values(struct ck *c, const struct gemm_case *g, const struct weights *w,
                         const struct cpu_act *x, const float *y, size_t y_stride)
{
    struct expected *e = malloc((g->n_tok + 1) * sizeof *e);
    for (uint32_t r = 0; r < g->n_rows && e != NULL; r++) {
        memset(e, 0, g->n_tok * sizeof *e);
        if (is_float(g->type))
            expect_floats(g, w->rows.data + r * w->stride, x, e);
        else
            expect_blocks(g, w->rows.data + r * w->stride, x, e);
        for (uint32_t t = 0; t < g->n_tok; t++) {
            float got = y[t * y_stride + r];
            ck_near(c, t, r, got, e[t].value, bound_of(g, &e[t]));
            if (g->mode == CK_RANDOM && !is_float(g->type) && e[t].sum_abs > 0)
                c->worst_s =
                    fmax(c->worst_s, fabs((double)got - e[t].value) / (CK_U * e[t].sum_abs));
        }
    }
    if (e == NULL)
        ck_fail(c, "out of memory");
    free(e);
}

static void check_gaps(struct ck *c, const struct gemm_case *g, const float *y, size_t y_stride)
{
    for (uint32_t t = 0; t + 1 < g->n_tok && g->n_rows > 0; t++)
        for (size_t r = g->n_rows; r < y_stride; r++)
            if (!ck_untouched(&y[t * y_stride + r])) {
                ck_fail(c, "wrote element [%u][%zu], there are %u rows", t, r, g->n_rows);
                return;
            }
}

static bool same_bits(float a, float b)
{
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

/* One token at a time, its rows cut in two at a random place: the same bits. */
static void check_cuts(struct ck *c, const struct gemm_case *g, const struct weights *w,
                       const struct cpu_act *x, const float *y, size_t y_stride)
{
    struct ck_mem part = ck_mem_open(g->n_rows * sizeof(float), 4);
    float *p = (float *)(void *)part.data;
    for (uint32_t t = 0; t < g->n_tok; t++) {
        struct cpu_act one = ck_act_part(x, t, 1);
        uint32_t cut = cut_after(c, g, 0);
        product(g, w, 0, cut, &one, p, g->n_rows);
        product(g, w, cut, g->n_rows - cut, &one, p + cut, g->n_rows);
        for (uint32_t r = 0; r < g->n_rows; r++)
            if (!same_bits(p[r], y[t * y_stride + r])) {
                ck_fail(c, "element [%u][%u] is %a among %u tokens, %a alone with rows cut at %u",
                        t, r, (double)y[t * y_stride + r], g->n_tok, (double)p[r], cut);
                break;
            }
    }
    ck_mem_around(c, &part, "y");
    ck_mem_close(&part);
}

/* All tokens, rows cut in three: what the parallel split of a batch does. */
static void check_row_cuts(struct ck *c, const struct gemm_case *g, const struct weights *w,
                           const struct cpu_act *x, const float *y, size_t y_stride)
{
    struct ck_mem again = ck_mem_open((size_t)g->n_tok * g->n_rows * sizeof(float), 4);
    float *p = (float *)(void *)again.data;
    uint32_t a = cut_after(c, g, 0), b = cut_after(c, g, a);
    const uint32_t cut[] = {0, a, b, g->n_rows};
    for (int i = 0; i < 3; i++)
        product(g, w, cut[i], cut[i + 1] - cut[i], x, p + cut[i], g->n_rows);
    for (uint32_t t = 0; t < g->n_tok; t++)
        for (uint32_t r = 0; r < g->n_rows; r++)
            if (!same_bits(p[(size_t)t * g->n_rows + r], y[t * y_stride + r])) {
                ck_fail(c, "element [%u][%u] changes when rows are cut at %u and %u", t, r, a, b);
                goto done;
            }
done:
    ck_mem_close(&again);
}

/* The layout of weights may change between two tokens. */
static void check_layouts(struct ck *c, const struct gemm_case *g, const struct weights *w,
                          const struct cpu_act *x, const float *y, size_t y_stride)
{
    struct gemm_case rows = *g;
    struct ck_mem again = ck_mem_open((size_t)g->n_tok * g->n_rows * sizeof(float), 4);
    float *p = (float *)(void *)again.data;
    rows.fn = g->same;
    product(&rows, w, 0, g->n_rows, x, p, g->n_rows);
    for (uint32_t t = 0; t < g->n_tok; t++)
        for (uint32_t r = 0; r < g->n_rows; r++)
            if (!same_bits(p[(size_t)t * g->n_rows + r], y[t * y_stride + r])) {
                ck_fail(c, "element [%u][%u] is %a, %a with weights in rows", t, r,
                        (double)y[t * y_stride + r], (double)p[(size_t)t * g->n_rows + r]);
                goto done;
            }
done:
    ck_mem_close(&again);
}

/* The most different ways to walk: the same bits. */
static void check_blocks(struct ck *c, const struct gemm_case *g, const struct weights *w,
                         const struct cpu_act *x, const float *y, size_t y_stride)
{
    static const struct cpu_blocks blocks[] = {{256, 2, 7}, {CPU_BLOCKS_MOST_COLUMNS, 64, 4096}};
    struct ck_mem again = ck_mem_open((size_t)g->n_tok * g->n_rows * sizeof(float), 4);
    float *p = (float *)(void *)again.data;
    for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
        struct cpu_act other = *x;
        other.blocks = &blocks[b];
        product(g, w, 0, g->n_rows, &other, p, g->n_rows);
        for (uint32_t t = 0; t < g->n_tok; t++)
            for (uint32_t r = 0; r < g->n_rows; r++)
                if (!same_bits(p[(size_t)t * g->n_rows + r], y[t * y_stride + r])) {
                    ck_fail(c, "element [%u][%u] changes with %u columns, %u panels, %u tokens", t,
                            r, blocks[b].columns, blocks[b].panels, blocks[b].tokens);
                    goto done;
                }
    }
done:
    ck_mem_close(&again);
}

static struct weights open_weights(struct ck *c, const struct gemm_case *g)
{
    size_t row = (size_t)atsi_row_bytes(g->type, g->k), stride = row + g->w_gap;
    size_t bytes = g->n_rows > 0 ? (g->n_rows - 1) * stride + row : 0;
    struct weights w = {.stride = stride};
    w.rows = ck_mem_open(bytes, g->type == ATSI_TYPE_F32 ? 4 : 2);
    for (uint32_t r = 0; r < g->n_rows; r++)
        ck_fill_weights(c, g->type, g->mode, w.rows.data + r * stride, g->k);
    ck_mem_seal(&w.rows);
    w.panels = ck_mem_open(g->fn == NULL ? bytes : 0, 32);
    if (g->fn == NULL)
        atsi_panel_pack(g->type, g->k, w.rows.data, stride, g->n_rows / ATSI_PANEL_ROWS,
                        w.panels.data);
    ck_mem_seal(&w.panels);
    return w;
}

static void close_weights(struct ck *c, struct weights *w)
{
    ck_mem_check(c, &w->rows, "weights");
    ck_mem_check(c, &w->panels, "panels");
    ck_mem_close(&w->rows);
    ck_mem_close(&w->panels);
}

static void gemm_case(struct ck *c, const void *arg)
{
    const struct gemm_case *g = arg;
    size_t y_stride = g->n_rows + g->y_gap;
    size_t y_elems = g->n_tok > 0 && g->n_rows > 0 ? (g->n_tok - 1) * y_stride + g->n_rows : 0;
    struct weights w = open_weights(c, g);
    struct ck_mem y = ck_mem_open(y_elems * sizeof(float), 4);
    struct ck_act x = ck_act_open(g->k, g->n_tok, ck_act_block(g->type));
    float *out = (float *)(void *)y.data;
    ck_act_fill(c, g->mode, &x);
    ck_act_seal(&x);
    product(g, &w, 0, g->n_rows, &x.act, out, y_stride);
    check_values(c, g, &w, &x.act, out, y_stride);
    check_gaps(c, g, out, y_stride);
    ck_mem_around(c, &y, "y");
    check_cuts(c, g, &w, &x.act, out, y_stride);
    check_row_cuts(c, g, &w, &x.act, out, y_stride);
    check_blocks(c, g, &w, &x.act, out, y_stride);
    if (g->same != NULL)
        check_layouts(c, g, &w, &x.act, out, y_stride);
    ck_act_check(c, &x);
    close_weights(c, &w);
    ck_mem_close(&y);
    ck_act_close(&x);
}

/* ---------------------------------------------------------------- shapes */
/* Row lengths in blocks; for float weights in elements. */
static const uint32_t block_counts[] = {1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 28};
static const uint32_t float_counts[] = {1,  2,  3,  7,  8,  9,   15,  16,  17,
                                        31, 32, 33, 63, 65, 127, 257, 500, 1031};

/* Rows and tokens around every tile size in use, with primes and emptiness between them. */
static const struct {
    uint32_t n_rows, n_tok;
} small[] = {{1, 1},  {2, 1},  {3, 2},  {4, 4},  {5, 3},  {7, 5},  {8, 8},  {9, 1},   {13, 7},
             {15, 2}, {16, 1}, {17, 6}, {16, 9}, {31, 1}, {32, 4}, {33, 3}, {19, 13}, {37, 1},
             {64, 2}, {6, 16}, {5, 17}, {0, 3},  {3, 0},  {0, 0},  {4, 31}, {2, 33},  {48, 12}};

/* Inner dimensions of the models people run, few rows of each. */
static const uint32_t model_k[] = {896,  1024, 1536, 2048, 2560, 2880, 3072,
                                   3584, 4096, 4864, 5120, 8192, 9728, 14336};

/* Panels around every number that is read side by side, and around tiles of tokens. */
static const struct {
    uint32_t n_panels, n_tok;
} small_panels[] = {{1, 1},  {2, 1},  {3, 1}, {4, 2},  {5, 3},  {1, 4},  {2, 5},
                    {3, 6},  {7, 1},  {1, 7}, {2, 8},  {3, 9},  {6, 2},  {4, 4},
                    {1, 12}, {2, 13}, {0, 3}, {3, 0},  {0, 0},  {1, 31}, {5, 1},
                    {9, 1},  {1, 2},  {1, 3}, {2, 19}, {3, 37}, {2, 16}, {1, 23}};

static void one(struct ck *c, struct gemm_case g)
{
    ck_case(c, "%s %s k=%u rows=%u tokens=%u gaps=%zu,%zu, %s",
            g.fn != NULL ? "gemm" : "gemm_panel", atsi_type_info(g.type)->name, g.k, g.n_rows,
            g.n_tok, g.w_gap, g.y_gap, ck_mode_name[g.mode]);
    ck_guarded(c, gemm_case, &g);
}

/* Row lengths to try with a type, in blocks. */
struct counts {
    const uint32_t *of;
    size_t n;
};

static struct counts counts_of(uint32_t type)
{
    if (atsi_type_info(type)->block_elems == 1)
        return (struct counts){float_counts, sizeof float_counts / sizeof *float_counts};
    return (struct counts){block_counts, sizeof block_counts / sizeof *block_counts};
}

void ck_gemm(struct ck *c, cpu_gemm_fn *fn, uint32_t type)
{
    uint32_t elems = atsi_type_info(type)->block_elems;
    struct counts counts = counts_of(type);
    size_t n_small = sizeof small / sizeof small[0], i = 0;
    for (int mode = 0; mode < CK_N_MODES; mode++)
        for (size_t s = 0; s < n_small; s++, i++)
            one(c, (struct gemm_case){.fn = fn,
                                      .type = type,
                                      .k = counts.of[i % counts.n] * elems,
                                      .n_rows = small[s].n_rows,
                                      .n_tok = small[s].n_tok,
                                      .w_gap = i % 3 == 0 ? (elems == 1 ? 4 : 2) * (i % 7) : 0,
                                      .y_gap = i % 2 == 0 ? i % 5 : 0,
                                      .mode = (enum ck_mode)mode});
    for (uint32_t m = 0; m < sizeof model_k / sizeof model_k[0]; m++)
        if (model_k[m] % elems == 0)
            one(c, (struct gemm_case){.fn = fn,
                                      .type = type,
                                      .k = model_k[m],
                                      .n_rows = 3 + m % 5,
                                      .n_tok = 1 + m % 4,
                                      .mode = m % 2 == 0 ? CK_RANDOM : CK_OUTLIERS});
}

void ck_gemm_panel(struct ck *c, cpu_gemm_panel_fn *fn, cpu_gemm_fn *rows, uint32_t type)
{
    uint32_t elems = atsi_type_info(type)->block_elems;
    struct counts counts = counts_of(type);
    size_t n_small = sizeof small_panels / sizeof small_panels[0], i = 0;
    for (int mode = 0; mode < CK_N_MODES; mode++)
        for (size_t s = 0; s < n_small; s++, i++)
            one(c, (struct gemm_case){.panel = fn,
                                      .same = rows,
                                      .type = type,
                                      .k = counts.of[i % counts.n] * elems,
                                      .n_rows = small_panels[s].n_panels * ATSI_PANEL_ROWS,
                                      .n_tok = small_panels[s].n_tok,
                                      .y_gap = i % 2 == 0 ? i % 5 : 0,
                                      .mode = (enum ck_mode)mode});
    for (uint32_t m = 0; m < sizeof model_k / sizeof model_k[0]; m++)
        if (model_k[m] % elems == 0)
            one(c, (struct gemm_case){.panel = fn,
                                      .same = rows,
                                      .type = type,
                                      .k = model_k[m],
                                      .n_rows = (1 + m % 3) * ATSI_PANEL_ROWS,
                                      .n_tok = 1 + m % 5,
                                      .mode = m % 2 == 0 ? CK_RANDOM : CK_OUTLIERS});
}
