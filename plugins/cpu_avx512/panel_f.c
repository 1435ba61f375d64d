/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with F32, F16 and BF16 weights in panels and exact f32 activations.
 *
 * A row and a token have one accumulator, to which columns are added in order by fused
 * multiply-adds; tiles only group such chains.
 */
#include "kernels.h"
#include "panel_codes.h"
#include "rows.h"

#include "../cpu_common/panel_walk.h"

#define STEP_COLUMNS 512 /* of 32 rows: 32 KiB of F16, and 12 KiB of activations per tile */

CPU_INLINE __m512 half_values(const int type, const uint8_t *p)
{
    const __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (type == ATSI_TYPE_F16)
        return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* The columns of a chunk: one of F32, two of the others. */
CPU_INLINE void chunk_values(const int type, const uint8_t *p, __m512 v[2])
{
    const __m512i w = load_ahead(p);
    if (type == ATSI_TYPE_F32) {
        v[0] = _mm512_castsi512_ps(w);
    } else if (type == ATSI_TYPE_BF16) {
        v[0] = _mm512_castsi512_ps(_mm512_slli_epi32(w, 16));
        v[1] = _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32((int)0xffff0000u)));
    } else { /* even words, then odd ones */
        const __m512i even =
            _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26,
                             24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
        const __m512i s = _mm512_permutexvar_epi16(even, w);
        v[0] = _mm512_cvtph_ps(_mm512_castsi512_si256(s));
        v[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(s, 1));
    }
}

CPU_INLINE void add_column(const __m512 v[2], const float *x, size_t xs, const int n,
                           __m512 acc[2][TILE_TOKENS])
{
    CPU_UNROLL
    for (int t = 0; t < n; t++) {
        const __m512 a = _mm512_set1_ps(x[(size_t)t * xs]);
        acc[0][t] = _mm512_fmadd_ps(v[0], a, acc[0][t]);
        acc[1][t] = _mm512_fmadd_ps(v[1], a, acc[1][t]);
    }
}

/* Columns of two panels, apart bytes from each other, that a tile of n tokens adds to y. */
struct columns {
    const uint8_t *w;
    size_t apart;
    uint32_t n;
    int first; /* starts y instead of adding to it */
    const float *x;
    size_t xs;
    float *y;
    size_t y_apart, ys;
};

CPU_INLINE void columns_f(const int type, const struct columns *g, uint32_t t0, const int n)
{
    const uint32_t each = type == ATSI_TYPE_F32 ? 1 : 2; /* columns of a chunk */
    const float *x = g->x + t0 * g->xs;
    const uint8_t *w = g->w;
    float *y = g->y + t0 * g->ys;
    __m512 acc[2][TILE_TOKENS];
    CPU_UNROLL
    for (int t = 0; t < n; t++)
        for (size_t p = 0; p < 2; p++)
            acc[p][t] = g->first ? _mm512_setzero_ps()
                                 : _mm512_loadu_ps(y + (size_t)t * g->ys + p * g->y_apart);
    for (uint32_t c = 0; c + each <= g->n; c += each, w += 64, x += each) {
        __m512 a[2], b[2];
        chunk_values(type, w, a);
        chunk_values(type, w + g->apart, b);
        for (uint32_t i = 0; i < each; i++)
            add_column((const __m512[2]){a[i], b[i]}, x + i, g->xs, n, acc);
    }
    if (g->n % each != 0)
        add_column((const __m512[2]){half_values(type, w), half_values(type, w + g->apart)}, x,
                   g->xs, n, acc);
    CPU_UNROLL
    for (int t = 0; t < n; t++)
        for (size_t p = 0; p < 2; p++)
            _mm512_storeu_ps(y + (size_t)t * g->ys + p * g->y_apart, acc[p][t]);
}

/* n_tok tokens over two panels. */
CPU_INLINE void tokens_f(const int type, const struct columns *g, uint32_t n_tok)
{
    uint32_t t = 0;
    for (; n_tok - t >= TILE_TOKENS; t += TILE_TOKENS)
        columns_f(type, g, t, TILE_TOKENS);
    switch (n_tok - t) {
    case 5:
        columns_f(type, g, t, 5);
        break;
    case 4:
        columns_f(type, g, t, 4);
        break;
    case 3:
        columns_f(type, g, t, 3);
        break;
    case 2:
        columns_f(type, g, t, 2);
        break;
    case 1:
        columns_f(type, g, t, 1);
        break;
    default:
        break;
    }
}

CPU_INLINE void few_f(const int type, const uint8_t *w, size_t apart, const struct cpu_act *x,
                      uint32_t t, float *y, size_t y_apart, size_t ys, const int n)
{
    const struct columns g = {w,           apart, x->k,    1, x->f + t * x->f_stride,
                              x->f_stride, y,     y_apart, ys};
    columns_f(type, &g, 0, n);
}

/* n columns of a panel as those of F32. */
CPU_INLINE void widen(const int type, const uint8_t *w, uint32_t n, float (*out)[ATSI_PANEL_ROWS])
{
    uint32_t c = 0;
    for (; c + 2 <= n; c += 2, w += 64) {
        __m512 v[2];
        chunk_values(type, w, v);
        _mm512_store_ps(out[c], v[0]);
        _mm512_store_ps(out[c + 1], v[1]);
    }
    if (c < n)
        _mm512_store_ps(out[c], half_values(type, w));
}

/* Many tokens: what is wider than it lies is widened once for all of them. */
CPU_INLINE void tile_f(const int type, const struct panel_tile *tile)
{
    _Alignas(64) float wide[2][STEP_COLUMNS][ATSI_PANEL_ROWS];
    const uint8_t *w = tile->w + tile->first * (type == ATSI_TYPE_F32 ? 64u : 32u);
    if (type != ATSI_TYPE_F32) {
        widen(type, w, tile->n, wide[0]);
        widen(type, w + tile->apart, tile->n, wide[1]);
    }
    const struct columns g = {type == ATSI_TYPE_F32 ? w : (const uint8_t *)wide[0],
                              type == ATSI_TYPE_F32 ? tile->apart : sizeof wide[0],
                              tile->n,
                              tile->first == 0,
                              tile->x->f + tile->t * tile->x->f_stride + tile->first,
                              tile->x->f_stride,
                              tile->y,
                              tile->apart != 0 ? ATSI_PANEL_ROWS : 0,
                              tile->ys};
    tokens_f(ATSI_TYPE_F32, &g, tile->n_tok);
}

static void gemm_panel_f(const struct panel_few *few, panel_tile_fn *tile, uint32_t type,
                         const void *w, uint32_t n_panels, const struct cpu_act *x, float *y,
                         size_t ys)
{
    const size_t bytes = (size_t)atsi_panel_bytes(type, x->k);
    if (x->n_tok < few->many)
        panel_few_tokens(few, w, bytes, n_panels, x, y, ys);
    else
        panel_many_tokens(tile, w, bytes, n_panels, 1, STEP_COLUMNS, x, y, ys);
}

#define FEW_ARGS                                                                                   \
    const uint8_t *w, size_t apart, const struct cpu_act *x, uint32_t t, float *y, size_t y_apart, \
        size_t ys

static void f32_one_token(FEW_ARGS)
{
    few_f(ATSI_TYPE_F32, w, apart, x, t, y, y_apart, ys, 1);
}

static void f32_two_tokens(FEW_ARGS)
{
    few_f(ATSI_TYPE_F32, w, apart, x, t, y, y_apart, ys, 2);
}

static void f32_tile(const struct panel_tile *g)
{
    tile_f(ATSI_TYPE_F32, g);
}

static void panel_f32_avx512(uint32_t type, const void *w, uint32_t n_panels,
                             const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {f32_one_token, f32_two_tokens, 4};
    gemm_panel_f(&few, f32_tile, type, w, n_panels, x, y, ys);
}

static void f16_one_token(FEW_ARGS)
{
    few_f(ATSI_TYPE_F16, w, apart, x, t, y, y_apart, ys, 1);
}

static void f16_two_tokens(FEW_ARGS)
{
    few_f(ATSI_TYPE_F16, w, apart, x, t, y, y_apart, ys, 2);
}

static void f16_tile(const struct panel_tile *g)
{
    tile_f(ATSI_TYPE_F16, g);
}

static void panel_f16_avx512(uint32_t type, const void *w, uint32_t n_panels,
                             const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {f16_one_token, f16_two_tokens, 4};
    gemm_panel_f(&few, f16_tile, type, w, n_panels, x, y, ys);
}

static void bf16_one_token(FEW_ARGS)
{
    few_f(ATSI_TYPE_BF16, w, apart, x, t, y, y_apart, ys, 1);
}

static void bf16_two_tokens(FEW_ARGS)
{
    few_f(ATSI_TYPE_BF16, w, apart, x, t, y, y_apart, ys, 2);
}

static void bf16_tile(const struct panel_tile *g)
{
    tile_f(ATSI_TYPE_BF16, g);
}

static void panel_bf16_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {bf16_one_token, bf16_two_tokens, 4};
    gemm_panel_f(&few, bf16_tile, type, w, n_panels, x, y, ys);
}

void fill_panel_f_avx512(struct cpu_kernels *out)
{
    out->gemm_panel[ATSI_TYPE_F32] = panel_f32_avx512;
    out->gemm_panel[ATSI_TYPE_F16] = panel_f16_avx512;
    out->gemm_panel[ATSI_TYPE_BF16] = panel_bf16_avx512;
}
