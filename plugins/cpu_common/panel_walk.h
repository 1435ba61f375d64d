/* SPDX-License-Identifier: Apache-2.0
 *
 * How products walk the panels of a call.
 *
 * Few tokens: two panels at a time, one 64-byte chunk of each in turn, so that memory sees two
 * streams.  Neighbouring panels where rows are long; where they are short, streams would end before
 * prefetching pays, and each stream walks its own half of the panels.
 * Many tokens: two panels are unpacked to bytes for a few hundred columns, in the first cache, and
 * used for every token.  A group of panels passes over the same columns of the activations before
 * the next columns come, so that these are read from the second cache.  How many of each: blocks.c.
 *
 * For kernel files: include it behind the plugin's simd.h (CPU_INLINE, CPU_UNROLL).
 */
#ifndef ATSI_CPU_PANEL_WALK_H
#define ATSI_CPU_PANEL_WALK_H

#include "atsinfer/panel.h"
#include "cpu_kernels.h"

#define PANEL_FAR_K 2048 /* rows up to this length: each stream in its own half */

/* Where few tokens' activations are read: plain pointers that walk along, as gcc 12 makes of sums
 * of base and index an instruction each. */
struct few_act {
    const int8_t *q[2];
    const int16_t *bsum[2];
    const float *d[2];
};

CPU_INLINE struct few_act few_act_at(const struct cpu_act *x, uint32_t t, const int n)
{
    struct few_act a = {{NULL}, {NULL}, {NULL}};
    CPU_UNROLL
    for (int i = 0; i < n; i++) {
        a.q[i] = x->q + (t + (uint32_t)i) * x->q_stride;
        a.bsum[i] = x->bsum + (t + (uint32_t)i) * x->bsum_stride;
        a.d[i] = x->d + (t + (uint32_t)i) * x->d_stride;
    }
    return a;
}

/* n_blocks blocks of `elems` elements on. */
CPU_INLINE void few_act_walk(struct few_act *a, const int n, const int n_blocks, const int elems)
{
    CPU_UNROLL
    for (int i = 0; i < n; i++) {
        a->q[i] += n_blocks * elems;
        a->bsum[i] += n_blocks * elems / 16;
        a->d[i] += n_blocks;
    }
}

/* The panels at w and w + apart times token t (or t and t + 1), to y and y + y_apart; both
 * distances may be 0. */
typedef void panel_few_fn(const uint8_t *w, size_t apart, const struct cpu_act *x, uint32_t t,
                          float *y, size_t y_apart, size_t ys);

struct panel_few {
    panel_few_fn *one_token, *two_tokens; /* two_tokens may be NULL */
    uint32_t many;                        /* from so many tokens on unpacking pays */
};

static inline void panel_few_tokens(const struct panel_few *f, const uint8_t *w, size_t bytes,
                                    uint32_t n_panels, const struct cpu_act *x, float *y, size_t ys)
{
    const uint32_t pairs = n_panels / 2, apart = x->k <= PANEL_FAR_K ? pairs : 1;
    for (uint32_t i = 0; i < pairs; i++) {
        const size_t p = apart == 1 ? 2 * (size_t)i : i;
        for (uint32_t t = 0; t < x->n_tok; t++) {
            float *to = y + t * ys + p * ATSI_PANEL_ROWS;
            if (f->two_tokens != NULL && x->n_tok - t >= 2)
                f->two_tokens(w + p * bytes, apart * bytes, x, t++, to, apart * ATSI_PANEL_ROWS,
                              ys);
            else
                f->one_token(w + p * bytes, apart * bytes, x, t, to, apart * ATSI_PANEL_ROWS, ys);
        }
    }
    for (uint32_t t = 0; t < x->n_tok && n_panels % 2 != 0; t++) /* as if there were two of it */
        f->one_token(w + (n_panels - 1) * bytes, 0, x, t,
                     y + t * ys + (n_panels - 1) * (size_t)ATSI_PANEL_ROWS, 0, ys);
}

/* Columns first .. first + n - 1 (in blocks) of one or two panels at w times tokens t .. t + n_tok
 * - 1. */
struct panel_tile {
    const uint8_t *w;
    size_t apart; /* to the second panel; 0: there is none */
    uint32_t first, n;
    uint32_t t, n_tok;
    const struct cpu_act *x;
    float *y; /* of the first panel, token t */
    size_t ys;
};

typedef void panel_tile_fn(const struct panel_tile *tile);

static inline uint32_t panel_least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* elems: columns of a block; most: columns that fn can unpack at a time */
static inline void panel_many_tokens(panel_tile_fn *fn, const uint8_t *w, size_t bytes,
                                     uint32_t n_panels, uint32_t elems, uint32_t most,
                                     const struct cpu_act *x, float *y, size_t ys)
{
    const struct cpu_blocks at_a_time = cpu_blocks_of(x);
    const uint32_t step = panel_least(at_a_time.columns, most) / elems, n_blocks = x->k / elems;
    for (uint32_t t = 0; t < x->n_tok; t += at_a_time.tokens)
        for (uint32_t g = 0; g < n_panels; g += at_a_time.panels)
            for (uint32_t b = 0; b < n_blocks; b += step)
                for (uint32_t p = g; p < n_panels && p - g < at_a_time.panels; p += 2) {
                    const struct panel_tile tile = {w + p * bytes,
                                                    p + 1 < n_panels ? bytes : 0,
                                                    b,
                                                    panel_least(n_blocks - b, step),
                                                    t,
                                                    panel_least(x->n_tok - t, at_a_time.tokens),
                                                    x,
                                                    y + t * ys + p * (size_t)ATSI_PANEL_ROWS,
                                                    ys};
                    fn(&tile);
                }
}

#endif
