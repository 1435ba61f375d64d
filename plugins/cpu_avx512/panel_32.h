/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with weights in blocks of 32 in panels, included by a plain and by a VNNI file behind
 * gemm_32.h, whose sums (and tiles) these are: the bits do not depend on the layout.
 */
#ifndef ATSI_CPU_AVX512_PANEL_32_H
#define ATSI_CPU_AVX512_PANEL_32_H

#include "gemm_32.h"
#include "panel_codes.h"
#include "rows.h"

#include "../cpu_common/panel_walk.h"

/* ---------------------------------------------------------------- scales */
/* 2^(e - 128) of sixteen bytes: exact, subnormals too. */
CPU_INLINE __m512 e8m0_bytes(const uint8_t *e)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)e);
    return _mm512_scalef_ps(_mm512_set1_ps(0x1p-128F), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v)));
}

CPU_INLINE __m512 f16_values(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* d of sixteen rows at a block's head. */
CPU_INLINE __m512 scale_values(const int type, const uint8_t *head)
{
    return type == ATSI_TYPE_MXFP4 ? e8m0_bytes(head) : f16_values(head);
}

/* ---------------------------------------------------------------- few tokens */
/* dot[p][t] += sum of code * q of one block. */
CPU_INLINE void dots_32(const int type, const int n, const uint8_t *const body[],
                        const struct few_act *x, __m512i dot[][2])
{
    const struct panel_form *f = &panel_forms[type];
    CPU_UNROLL
    for (int u = 0; u < f->n_unit; u++) {
        CPU_UNROLL
        for (int p = 0; p < 2; p++) {
            __m512i c[8];
            panel_codes(type, body[p], u, c);
            CPU_UNROLL
            for (int k = 0; k < f->n_code; k++) {
                CPU_UNROLL
                for (int t = 0; t < n; t++)
                    dot[p][t] =
                        dot4_at(f->wide, dot[p][t], c[k], x->q[t] + 4 * panel_dword(type, 0, k, u));
            }
        }
    }
}

/* One block of two panels times n tokens. */
CPU_INLINE void block_panel_32(const int type, const int n, const uint8_t *const head[],
                               const uint8_t *const body[], const struct few_act *x,
                               __m512 acc[][2])
{
    const struct panel_form *f = &panel_forms[type];
    const __m512i one = _mm512_set1_epi16(f->has_min ? 1 : (short)-f->zero);
    __m512i dot[2][2], sum[2];
    CPU_UNROLL
    for (int t = 0; t < n; t++) {
        sum[t] = _mm512_madd_epi16(broadcast_i32(x->bsum[t]), one);
        CPU_UNROLL
        for (int p = 0; p < 2; p++)
            dot[p][t] = f->has_min ? _mm512_setzero_si512() : sum[t];
    }
    dots_32(type, n, body, x, dot);
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        const __m512 d = scale_values(type, head[p]);
        CPU_UNROLL
        for (int t = 0; t < n; t++) {
            const __m512 da = _mm512_set1_ps(x->d[t][0]);
            acc[p][t] =
                _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(dot[p][t]), acc[p][t]);
            if (f->has_min)
                acc[p][t] =
                    _mm512_fmadd_ps(f16_values(head[p] + 32),
                                    _mm512_mul_ps(da, _mm512_cvtepi32_ps(sum[t])), acc[p][t]);
        }
    }
}

/* n_blocks blocks at w, a record. */
CPU_INLINE void record_32(const int type, const int n, const uint32_t n_blocks, const uint8_t *w,
                          size_t apart, struct few_act *x, __m512 acc[][2])
{
    const size_t head_bytes = 16 * (size_t)atsi_panel_form((uint32_t)type)->head_bytes;
    const size_t body_bytes = 64 * (size_t)panel_forms[type].strip_chunks;
    CPU_UNROLL
    for (int p = 0; p < 2; p++)
        _mm_prefetch((const char *)w + (size_t)p * apart + PANEL_AHEAD, _MM_HINT_T1);
    CPU_UNROLL
    for (uint32_t i = 0; i < n_blocks; i++) {
        const uint8_t *h = w + i * head_bytes, *q = w + n_blocks * head_bytes + i * body_bytes;
        const uint8_t *const head[2] = {h, h + apart}, *const body[2] = {q, q + apart};
        block_panel_32(type, n, head, body, x, acc);
        few_act_walk(x, n, 1, 32);
    }
}

CPU_INLINE void few_panel_32(const int type, const int n, const uint8_t *w, size_t apart,
                             const struct cpu_act *x, uint32_t t, float *y, size_t y_apart,
                             size_t ys)
{
    const uint32_t n_blocks = x->k / 32, group = atsi_panel_form((uint32_t)type)->group;
    const size_t bytes = 16 * (size_t)group * atsi_type_info((uint32_t)type)->block_bytes;
    struct few_act a = few_act_at(x, t, n);
    __m512 acc[2][2];
    uint32_t b = 0;
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        CPU_UNROLL
        for (int i = 0; i < n; i++)
            acc[p][i] = _mm512_setzero_ps();
    }
    for (; b + group <= n_blocks; b += group, w += bytes)
        record_32(type, n, group, w, apart, &a, acc);
    switch (n_blocks - b) {
    case 3:
        if (group > 3)
            record_32(type, n, 3, w, apart, &a, acc);
        break;
    case 2:
        if (group > 2)
            record_32(type, n, 2, w, apart, &a, acc);
        break;
    case 1:
        if (group > 1)
            record_32(type, n, 1, w, apart, &a, acc);
        break;
    default:
        break;
    }
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        CPU_UNROLL
        for (int i = 0; i < n; i++)
            _mm512_storeu_ps(y + (size_t)p * y_apart + (size_t)i * ys, acc[p][i]);
    }
}

/* ---------------------------------------------------------------- many tokens */
/* Block b of a tile's unit of four, as tiles want it. */
CPU_INLINE void unpack_block(const int type, const uint8_t *head, const uint8_t *body, uint32_t b,
                             struct panel_32 *o)
{
    const struct panel_form *f = &panel_forms[type];
    _mm512_store_ps(o->d[b], scale_values(type, head));
    if (f->has_min)
        _mm512_store_ps(o->m[b], f16_values(head + 32));
    CPU_UNROLL
    for (int u = 0; u < f->n_unit; u++) {
        __m512i c[8];
        panel_codes(type, body, u, c);
        CPU_UNROLL
        for (int k = 0; k < f->n_code; k++)
            _mm512_store_si512(o->q[8 * b + (uint32_t)panel_dword(type, 0, k, u)], c[k]);
    }
}

CPU_INLINE void tile_panel_32(const int type, tiles_32_fn *tiles, const struct panel_tile *g)
{
    struct panel_32 panel[2 * PANEL_UNITS];
    const uint32_t n_blocks = g->x->k / 32, n_panels = g->apart != 0 ? 2 : 1;
    struct cpu_act x = *g->x;
    for (uint32_t b = 0; b < g->n; b++)
        for (uint32_t p = 0; p < 2; p++) { /* a panel that is missing is computed, not stored */
            const struct atsi_panel_place at =
                atsi_panel_place((uint32_t)type, n_blocks, g->first + b);
            const uint8_t *w = g->w + p * g->apart;
            unpack_block(type, w + at.head, w + at.body, b % UNIT_BLOCKS,
                         &panel[b / UNIT_BLOCKS * 2 + p]);
        }
    x.q += g->t * x.q_stride;
    x.d += g->t * x.d_stride;
    x.bsum += g->t * x.bsum_stride;
    x.n_tok = g->n_tok;
    {
        const struct tile_job_32 job = {panel,
                                        g->n,
                                        g->first == 0,
                                        panel_forms[type].zero,
                                        0xffff,
                                        n_panels == 2 ? 0xffff : 0,
                                        &x,
                                        g->first,
                                        g->y,
                                        g->ys};
        tiles(&job);
    }
}

/* ---------------------------------------------------------------- the slots */
static void gemm_panel_32(const struct panel_few *few, panel_tile_fn *tile, uint32_t type,
                          const void *w, uint32_t n_panels, const struct cpu_act *x, float *y,
                          size_t ys)
{
    const size_t bytes = (size_t)atsi_panel_bytes(type, x->k);
    if (x->n_tok < few->many)
        panel_few_tokens(few, w, bytes, n_panels, x, y, ys);
    else
        panel_many_tokens(tile, w, bytes, n_panels, 32, PANEL_COLUMNS_32, x, y, ys);
}

#define FEW_ARGS                                                                                   \
    const uint8_t *w, size_t apart, const struct cpu_act *x, uint32_t t, float *y, size_t y_apart, \
        size_t ys

static void q4_0_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q4_0, 1, w, apart, x, t, y, y_apart, ys);
}

static void q4_0_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q4_0, 2, w, apart, x, t, y, y_apart, ys);
}

static void q4_0_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_Q4_0, tiles_32_plain, g);
}

static void panel_q4_0_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q4_0_one_token, q4_0_two_tokens, 6};
    gemm_panel_32(&few, q4_0_tile, type, w, n_panels, x, y, ys);
}

static void q4_1_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q4_1, 1, w, apart, x, t, y, y_apart, ys);
}

static void q4_1_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q4_1, 2, w, apart, x, t, y, y_apart, ys);
}

static void q4_1_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_Q4_1, tiles_32_min, g);
}

static void panel_q4_1_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q4_1_one_token, q4_1_two_tokens, 6};
    gemm_panel_32(&few, q4_1_tile, type, w, n_panels, x, y, ys);
}

static void q5_0_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q5_0, 1, w, apart, x, t, y, y_apart, ys);
}

static void q5_0_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q5_0, 2, w, apart, x, t, y, y_apart, ys);
}

static void q5_0_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_Q5_0, tiles_32_plain, g);
}

static void panel_q5_0_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q5_0_one_token, q5_0_two_tokens, 6};
    gemm_panel_32(&few, q5_0_tile, type, w, n_panels, x, y, ys);
}

static void q5_1_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q5_1, 1, w, apart, x, t, y, y_apart, ys);
}

static void q5_1_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q5_1, 2, w, apart, x, t, y, y_apart, ys);
}

static void q5_1_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_Q5_1, tiles_32_min, g);
}

static void panel_q5_1_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q5_1_one_token, q5_1_two_tokens, 6};
    gemm_panel_32(&few, q5_1_tile, type, w, n_panels, x, y, ys);
}

static void q8_0_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q8_0, 1, w, apart, x, t, y, y_apart, ys);
}

static void q8_0_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_Q8_0, 2, w, apart, x, t, y, y_apart, ys);
}

static void q8_0_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_Q8_0, tiles_32_wide, g);
}

static void panel_q8_0_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q8_0_one_token, q8_0_two_tokens, 6};
    gemm_panel_32(&few, q8_0_tile, type, w, n_panels, x, y, ys);
}

static void iq4_nl_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_IQ4_NL, 1, w, apart, x, t, y, y_apart, ys);
}

static void iq4_nl_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_IQ4_NL, 2, w, apart, x, t, y, y_apart, ys);
}

static void iq4_nl_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_IQ4_NL, tiles_32_wide, g);
}

static void panel_iq4_nl_avx512(uint32_t type, const void *w, uint32_t n_panels,
                                const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {iq4_nl_one_token, iq4_nl_two_tokens, 6};
    gemm_panel_32(&few, iq4_nl_tile, type, w, n_panels, x, y, ys);
}

static void mxfp4_one_token(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_MXFP4, 1, w, apart, x, t, y, y_apart, ys);
}

static void mxfp4_two_tokens(FEW_ARGS)
{
    few_panel_32(ATSI_TYPE_MXFP4, 2, w, apart, x, t, y, y_apart, ys);
}

static void mxfp4_tile(const struct panel_tile *g)
{
    tile_panel_32(ATSI_TYPE_MXFP4, tiles_32_plain, g);
}

static void panel_mxfp4_avx512(uint32_t type, const void *w, uint32_t n_panels,
                               const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {mxfp4_one_token, mxfp4_two_tokens, 6};
    gemm_panel_32(&few, mxfp4_tile, type, w, n_panels, x, y, ys);
}

static void fill_panel_32(cpu_gemm_panel_fn *gemm[])
{
    gemm[ATSI_TYPE_Q4_0] = panel_q4_0_avx512;
    gemm[ATSI_TYPE_Q4_1] = panel_q4_1_avx512;
    gemm[ATSI_TYPE_Q5_0] = panel_q5_0_avx512;
    gemm[ATSI_TYPE_Q5_1] = panel_q5_1_avx512;
    gemm[ATSI_TYPE_Q8_0] = panel_q8_0_avx512;
    gemm[ATSI_TYPE_IQ4_NL] = panel_iq4_nl_avx512;
    gemm[ATSI_TYPE_MXFP4] = panel_mxfp4_avx512;
}

#endif
