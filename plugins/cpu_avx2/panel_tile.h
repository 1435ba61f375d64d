/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of panels with many tokens: 256 columns of a panel are opened once for 32 tokens, whose
 * activations fill the lanes as for weights in rows (tile.h): the same sums, so the same bits.
 *
 * Per call a worker keeps about 46 KiB on its stack; there is no other memory.
 */
#ifndef CPU_AVX2_PANEL_TILE_H
#define CPU_AVX2_PANEL_TILE_H

#include "tile.h"

#include "../cpu_common/panel_walk.h"

/* 256 columns of a panel: row_chunk of sixteen rows. */
struct panel_chunk {
    union { /* dword c of every row; or, for signed weights, i16 2c and 2c+1 */
        _Alignas(64) uint8_t q8[TILE_ELEMS / 4][ATSI_PANEL_ROWS][4];
        int16_t q16[TILE_ELEMS / 2][ATSI_PANEL_ROWS][2];
    };
    int32_t s_even[8][ATSI_PANEL_ROWS], s_odd[8][ATSI_PANEL_ROWS], mins[8][ATSI_PANEL_ROWS];
    float d[8][ATSI_PANEL_ROWS], m[8][ATSI_PANEL_ROWS];
};

CPU_INLINE struct row_view view_panel_row(const struct panel_chunk *c, uint32_t r)
{
    const struct row_view w = {c->q8[0][r],    sizeof c->q8[0], &c->s_even[0][r], &c->s_odd[0][r],
                               &c->mins[0][r], &c->d[0][r],     &c->m[0][r],      ATSI_PANEL_ROWS};
    return w;
}

/* A register of codes (dword c of the rows of half h), or of signed weights as i16. */
CPU_INLINE void store_codes(const bool is_signed, struct panel_chunk *o, uint32_t c, const int h,
                            __m256i v)
{
    if (!is_signed) {
        store256(o->q8[c][8 * h], v);
    } else { /* bytes 0 and 1 of every dword, then 2 and 3 */
        store256(o->q16[2 * c][8 * h], low_pair(v));
        store256(o->q16[2 * c + 1][8 * h], high_pair(v));
    }
}

/* acc[row][token] goes on over the chunk's nb blocks of 32 (or its super-block). */
typedef void panel_tiles_fn(const struct panel_chunk *w, const struct act_tile *a, bool has_min,
                            int zero, int nb, int nv, float (*acc)[TILE_TOKENS]);
/* Blocks first .. first + n - 1 of a panel of rows of n_blocks. */
typedef void panel_open_fn(const uint8_t *panel, uint32_t n_blocks, uint32_t first, uint32_t n,
                           struct panel_chunk *o);

struct panel_product {
    panel_few_fn *one_token;
    panel_open_fn *open;
    panel_tiles_fn *tiles;
    /* Of a pass of 32 tokens: fewer are cheaper one by one, as a tile works on whole vectors of
     * eight (measured, Zen 4). */
    uint32_t many;
    uint32_t block;
    bool is_signed, has_min;
    int zero;
};

/* n_panels <= 4 panels times n <= 32 tokens from t0. */
static void panel_block(const struct panel_product *f, const uint8_t *w, size_t bytes,
                        uint32_t n_panels, const struct cpu_act *x, uint32_t t0, uint32_t n,
                        float *y, size_t ys)
{
    _Alignas(64) float acc[TILE_ROWS][TILE_TOKENS];
    struct act_tile a;
    struct panel_chunk c;
    memset(acc, 0, n_panels * ATSI_PANEL_ROWS * sizeof acc[0]);
    for (uint32_t k0 = 0; k0 < x->k; k0 += TILE_ELEMS) {
        const uint32_t elems = x->k - k0 < TILE_ELEMS ? x->k - k0 : TILE_ELEMS;
        pack_tile(x, t0, n, k0, elems, f->is_signed, &a);
        for (uint32_t p = 0; p < n_panels; p++) {
            f->open(w + p * bytes, x->k / f->block, k0 / f->block, elems / f->block, &c);
            f->tiles(&c, &a, f->has_min, f->zero, (int)(elems / 32), (int)(n + 7) / 8,
                     acc + (size_t)p * ATSI_PANEL_ROWS);
        }
    }
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < n_panels * ATSI_PANEL_ROWS; r++)
            y[t * ys + r] = acc[r][t];
}

static void panel_product(const struct panel_product *f, uint32_t type, const void *w,
                          uint32_t n_panels, const struct cpu_act *x, float *y, size_t ys)
{
    const uint32_t group = TILE_ROWS / ATSI_PANEL_ROWS;
    const struct panel_few few = {f->one_token, NULL, 0};
    const size_t bytes = (size_t)atsi_panel_bytes(type, x->k);
    const uint32_t rest = x->n_tok % TILE_TOKENS, done = x->n_tok - (rest < f->many ? rest : 0);
    struct cpu_act last = *x;
    for (uint32_t p = 0; p < n_panels; p += group)
        for (uint32_t t = 0; t < done; t += TILE_TOKENS)
            panel_block(f, (const uint8_t *)w + p * bytes, bytes,
                        n_panels - p < group ? n_panels - p : group, x, t,
                        done - t < TILE_TOKENS ? done - t : TILE_TOKENS,
                        y + t * ys + p * (size_t)ATSI_PANEL_ROWS, ys);
    last.q += done * x->q_stride;
    last.d += done * x->d_stride;
    last.bsum += done * x->bsum_stride;
    last.n_tok -= done;
    panel_few_tokens(&few, w, bytes, n_panels, &last, y + done * ys, ys);
}

/* ---------------------------------------------------------------- kinds of tiles */
/* Rows of a panel against nv vectors of tokens, for one of the two kinds of blocks. */
CPU_INLINE void panel_rows(const struct type32 *t32, const struct type256 *t256,
                           const struct panel_chunk *w, const struct act_tile *a, int nb, int nv,
                           float (*acc)[TILE_TOKENS])
{
    for (uint32_t r = 0; r < ATSI_PANEL_ROWS; r++) {
        const struct row_view view = view_panel_row(w, r);
        if (t32 != NULL)
            tile32(t32, &view, a, nb, nv, acc[r]);
        else
            tile256(t256, &view, a, nv, acc[r]);
    }
}

CPU_INLINE void panel_vectors(const struct type32 *t32, const struct type256 *t256,
                              const struct panel_chunk *w, const struct act_tile *a, int nb, int nv,
                              float (*acc)[TILE_TOKENS])
{
    switch (nv) {
    case 1:
        panel_rows(t32, t256, w, a, nb, 1, acc);
        break;
    case 2:
        panel_rows(t32, t256, w, a, nb, 2, acc);
        break;
    case 3:
        panel_rows(t32, t256, w, a, nb, 3, acc);
        break;
    default:
        panel_rows(t32, t256, w, a, nb, 4, acc);
        break;
    }
}

/* Parameters of the functions that are written by macros, one per type. */
#define FEW_ARGS                                                                                   \
    const uint8_t *w, size_t apart, const struct cpu_act *x, uint32_t t, float *y, size_t y_apart, \
        size_t ys
#define OPEN_ARGS                                                                                  \
    const uint8_t *panel, uint32_t n_blocks, uint32_t first, uint32_t n, struct panel_chunk *o
#define SLOT_ARGS                                                                                  \
    uint32_t type, const void *w, uint32_t n_panels, const struct cpu_act *x, float *y, size_t ys
#define TILES_ARGS                                                                                 \
    const struct panel_chunk *w, const struct act_tile *a, bool has_min, int zero, int nb, int nv, \
        float(*acc)[TILE_TOKENS]

#endif
