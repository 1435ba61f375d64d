/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with super-block weights in panels, included by a plain and by a VNNI file behind
 * gemm_k.h, whose sums (and tiles) these are: the bits do not depend on the layout.
 */
#ifndef ATSI_CPU_AVX512_PANEL_K_H
#define ATSI_CPU_AVX512_PANEL_K_H

#include "gemm_k.h"
#include "panel_codes.h"
#include "panel_scales.h"
#include "rows.h"

#include "../cpu_common/panel_walk.h"

/* ---------------------------------------------------------------- few tokens */
/* What the sums of each sub-block start from: -zero times the sum of its activations, weighted as
 * the sum is. */
CPU_INLINE void zero_sums_k(const int type, const int16_t *bsum, int32_t z[16])
{
    const struct panel_form *f = &panel_forms[type];
    const __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)bsum);
    _Alignas(64) int32_t m[16] = {0};
    if (f->group == 32) {
        __m256i v = _mm256_madd_epi16(b, _mm256_set1_epi16((short)-f->zero));
        _mm256_store_si256((__m256i *)(void *)z, v);
        return;
    }
    for (int s = 0; s < f->n_strip; s++)
        for (int k = 0; k < f->n_sum; k++)
            m[panel_group(type, s, k)] = -f->zero * (1 << panel_weight(type, k));
    _mm512_store_si512(z, _mm512_mullo_epi32(_mm512_cvtepi16_epi32(b), _mm512_load_si512(m)));
}

/* The three kinds of weight a type has, at most four: sums of either are kept apart. */
CPU_INLINE int weight_class(const int type, const int k)
{
    if (type == ATSI_TYPE_Q2_K)
        return k;
    if (type == ATSI_TYPE_Q3_K)
        return k < 6 ? k % 2 : 2;
    return 0;
}

#define WEIGHT_CLASSES 4

/* acc[p][t] -= (dmin * da) * (sum of min * bsum) */
CPU_INLINE void mins_k(const int type, const int n, const uint8_t *const head[],
                       const struct panel_scales sc[], const struct few_act *x, __m512 acc[][2])
{
    __m512i sum[2][2];
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        CPU_UNROLL
        for (int t = 0; t < n; t++)
            sum[p][t] = _mm512_setzero_si512();
    }
    CPU_UNROLL
    for (int j = 0; j < 8; j++) {
        CPU_UNROLL
        for (int p = 0; p < 2; p++) {
            const __m512i m = min_pair(type, &sc[p], j);
            CPU_UNROLL
            for (int t = 0; t < n; t++)
                sum[p][t] = dot2(sum[p][t], m, broadcast_i32(x->bsum[t] + 2 * j));
        }
    }
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        const __m512 m =
            _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(head[p] + 32)));
        CPU_UNROLL
        for (int t = 0; t < n; t++) {
            __m512 da = _mm512_set1_ps(x->d[t][0]);
            acc[p][t] =
                _mm512_fnmadd_ps(_mm512_mul_ps(m, da), _mm512_cvtepi32_ps(sum[p][t]), acc[p][t]);
        }
    }
}

/* isum[p][t][class] += scale * sum of code * q, of one strip. */
CPU_INLINE void strip_k(const int type, const int n, const int s, const uint8_t *const body[],
                        const struct panel_scales sc[], const struct few_act *x, int32_t z[][16],
                        __m512i isum[][2][WEIGHT_CLASSES])
{
    const struct panel_form *f = &panel_forms[type];
    __m512i dot[2][2][8];
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        CPU_UNROLL
        for (int t = 0; t < n; t++) {
            CPU_UNROLL
            for (int k = 0; k < f->n_sum; k++)
                dot[p][t][k] = f->zero != 0 ? _mm512_set1_epi32(z[t][panel_group(type, s, k)])
                                            : _mm512_setzero_si512();
        }
    }
    CPU_UNROLL
    for (int u = 0; u < f->n_unit; u++) {
        CPU_UNROLL
        for (int p = 0; p < 2; p++) {
            __m512i c[8];
            panel_codes(type, body[p] + 64 * (f->scale_chunks + s * f->strip_chunks), u, c);
            CPU_UNROLL
            for (int k = 0; k < f->n_code; k++) {
                CPU_UNROLL
                for (int t = 0; t < n; t++)
                    dot[p][t][k % f->n_sum] = dot4_at(f->wide, dot[p][t][k % f->n_sum], c[k],
                                                      x->q[t] + 4 * panel_dword(type, s, k, u));
            }
        }
    }
    CPU_UNROLL
    for (int k = 0; k < f->n_sum; k++) {
        CPU_UNROLL
        for (int p = 0; p < 2; p++) {
            const __m512i v = scale_of(type, &sc[p], panel_group(type, s, k));
            CPU_UNROLL
            for (int t = 0; t < n; t++)
                isum[p][t][weight_class(type, k)] = _mm512_add_epi32(
                    isum[p][t][weight_class(type, k)], _mm512_mullo_epi32(dot[p][t][k], v));
        }
    }
}

/* acc[p][t] += (d * da) * (sums of all classes, each by its weight: they are multiples of it) */
CPU_INLINE void sums_k(const int type, const int n, const uint8_t *const head[],
                       const struct few_act *x, __m512i isum[][2][WEIGHT_CLASSES], __m512 acc[][2])
{
    const struct panel_form *f = &panel_forms[type];
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        const __m512 d =
            _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)head[p]));
        CPU_UNROLL
        for (int t = 0; t < n; t++) {
            __m512i v = isum[p][t][0];
            __m512 da = _mm512_set1_ps(x->d[t][0]);
            int done = 0;
            CPU_UNROLL
            for (int k = 0; k < f->n_sum; k++)
                if (weight_class(type, k) > done) {
                    done = weight_class(type, k);
                    v = _mm512_add_epi32(
                        v, _mm512_srai_epi32(isum[p][t][done], (unsigned)panel_weight(type, k)));
                }
            acc[p][t] = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(v), acc[p][t]);
        }
    }
}

/* One super-block of two panels times n tokens. */
CPU_INLINE void super_panel_k(const int type, const int n, const uint8_t *const head[],
                              const uint8_t *const body[], const struct few_act *x, __m512 acc[][2])
{
    const struct panel_form *f = &panel_forms[type];
    _Alignas(64) int32_t z[2][16];
    struct panel_scales sc[2];
    __m512i isum[2][2][WEIGHT_CLASSES];
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        panel_scales(type, head[p], body[p], &sc[p]);
        CPU_UNROLL
        for (int t = 0; t < n; t++) {
            CPU_UNROLL
            for (int c = 0; c < WEIGHT_CLASSES; c++)
                isum[p][t][c] = _mm512_setzero_si512();
        }
    }
    CPU_UNROLL
    for (int t = 0; t < n; t++)
        if (f->zero != 0)
            zero_sums_k(type, x->bsum[t], z[t]);
    if (f->has_min)
        mins_k(type, n, head, sc, x, acc);
    CPU_UNROLL
    for (int s = 0; s < f->n_strip; s++)
        strip_k(type, n, s, body, sc, x, z, isum);
    sums_k(type, n, head, x, isum, acc);
}

CPU_INLINE void few_panel_k(const int type, const int n, const uint8_t *w, size_t apart,
                            const struct cpu_act *x, uint32_t t, float *y, size_t y_apart,
                            size_t ys)
{
    const uint32_t n_super = x->k / SUPER;
    struct few_act a = few_act_at(x, t, n);
    __m512 acc[2][2];
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        CPU_UNROLL
        for (int i = 0; i < n; i++)
            acc[p][i] = _mm512_setzero_ps();
    }
    for (uint32_t s = 0; s < n_super; s++) {
        const struct atsi_panel_place at = atsi_panel_place((uint32_t)type, n_super, s);
        const uint8_t *const head[2] = {w + at.head, w + apart + at.head};
        const uint8_t *const body[2] = {w + at.body, w + apart + at.body};
        super_panel_k(type, n, head, body, &a, acc);
        few_act_walk(&a, n, 1, SUPER);
    }
    CPU_UNROLL
    for (int p = 0; p < 2; p++) {
        CPU_UNROLL
        for (int i = 0; i < n; i++)
            _mm512_storeu_ps(y + (size_t)p * y_apart + (size_t)i * ys, acc[p][i]);
    }
}

/* ---------------------------------------------------------------- many tokens */
/* What is read of the activations of one super-block: token t at a fixed stride. */
CPU_INLINE struct tile_k act_of_super(const struct cpu_act *x, uint32_t t, uint32_t s)
{
    const struct tile_k a = {x->q + t * x->q_stride + (size_t)s * SUPER,
                             x->bsum + t * x->bsum_stride + (size_t)s * 16,
                             x->d + t * x->d_stride + s,
                             x->q_stride,
                             x->bsum_stride,
                             x->d_stride};
    return a;
}

/* A super-block of one panel as tiles want it. */
CPU_INLINE void unpack_super(const int type, const uint8_t *head, const uint8_t *body,
                             struct panel_k *o)
{
    const struct panel_form *f = &panel_forms[type];
    struct panel_scales sc;
    panel_scales(type, head, body, &sc);
    CPU_UNROLL
    for (int g = 0; g < 16; g++) /* of 16 elements; two of 32-element sub-blocks are the same */
        _mm512_store_si512(o->scale[g], scale_of(type, &sc, f->group == 32 ? g / 2 : g));
    _mm512_store_ps(o->d, _mm512_cvtph_ps(load_256(head)));
    if (f->has_min) {
        CPU_UNROLL
        for (int j = 0; j < 8; j++)
            _mm512_store_si512(o->min[j], min_pair(type, &sc, j));
        _mm512_store_ps(o->dmin, _mm512_cvtph_ps(load_256(head + 32)));
    }
    CPU_UNROLL
    for (int s = 0; s < f->n_strip; s++) {
        CPU_UNROLL
        for (int u = 0; u < f->n_unit; u++) {
            __m512i c[8];
            panel_codes(type, body + 64 * (f->scale_chunks + s * f->strip_chunks), u, c);
            CPU_UNROLL
            for (int k = 0; k < f->n_code; k++)
                _mm512_store_si512(o->q[panel_dword(type, s, k, u)],
                                   _mm512_srli_epi16(c[k], (unsigned)panel_weight(type, k)));
        }
    }
}

CPU_INLINE void tile_panel_k(const int type, tiles_k_fn *tiles, const struct panel_tile *g)
{
    struct panel_k panel[2 * PANEL_SUPERS];
    const uint32_t n_super = g->x->k / SUPER, n_panels = g->apart != 0 ? 2 : 1;
    for (uint32_t s = 0; s < g->n; s++)
        for (uint32_t p = 0; p < n_panels; p++) {
            const struct atsi_panel_place at =
                atsi_panel_place((uint32_t)type, n_super, g->first + s);
            const uint8_t *w = g->w + p * g->apart;
            unpack_super(type, w + at.head, w + at.body, &panel[2 * s + p]);
        }
    if (n_panels == 1)
        for (uint32_t s = 0; s < g->n; s++)
            panel[2 * s + 1] = panel[2 * s]; /* computed, not stored */
    {
        const struct tile_job_k job = {panel,
                                       g->n,
                                       g->first == 0,
                                       forms_k[type].zero,
                                       g->n_tok,
                                       0xffff,
                                       n_panels == 2 ? 0xffff : 0,
                                       act_of_super(g->x, g->t, g->first),
                                       g->y,
                                       g->ys};
        tiles(&job);
    }
}

/* ---------------------------------------------------------------- the slots */
static void gemm_panel_k(const struct panel_few *few, panel_tile_fn *tile, uint32_t type,
                         const void *w, uint32_t n_panels, const struct cpu_act *x, float *y,
                         size_t ys)
{
    const size_t bytes = (size_t)atsi_panel_bytes(type, x->k);
    if (x->n_tok < few->many)
        panel_few_tokens(few, w, bytes, n_panels, x, y, ys);
    else
        panel_many_tokens(tile, w, bytes, n_panels, SUPER, CPU_BLOCKS_MOST_COLUMNS, x, y, ys);
}

#define FEW_ARGS                                                                                   \
    const uint8_t *w, size_t apart, const struct cpu_act *x, uint32_t t, float *y, size_t y_apart, \
        size_t ys

static void q2_k_one_token(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q2_K, 1, w, apart, x, t, y, y_apart, ys);
}

static void q2_k_two_tokens(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q2_K, 2, w, apart, x, t, y, y_apart, ys);
}

static void q2_k_tile(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q2_K, tiles_k_16_min, g);
}

static void panel_q2_k_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q2_k_one_token, q2_k_two_tokens, 4};
    gemm_panel_k(&few, q2_k_tile, type, w, n_panels, x, y, ys);
}

static void q3_k_one_token(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q3_K, 1, w, apart, x, t, y, y_apart, ys);
}

static void q3_k_two_tokens(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q3_K, 2, w, apart, x, t, y, y_apart, ys);
}

static void q3_k_tile(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q3_K, tiles_k_16, g);
}

static void panel_q3_k_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q3_k_one_token, q3_k_two_tokens, 4};
    gemm_panel_k(&few, q3_k_tile, type, w, n_panels, x, y, ys);
}

static void q4_k_one_token(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q4_K, 1, w, apart, x, t, y, y_apart, ys);
}

static void q4_k_two_tokens(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q4_K, 2, w, apart, x, t, y, y_apart, ys);
}

static void q4_k_tile(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q4_K, tiles_k_32_min, g);
}

static void panel_q4_k_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q4_k_one_token, q4_k_two_tokens, 6};
    gemm_panel_k(&few, q4_k_tile, type, w, n_panels, x, y, ys);
}

static void q5_k_one_token(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q5_K, 1, w, apart, x, t, y, y_apart, ys);
}

static void q5_k_two_tokens(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q5_K, 2, w, apart, x, t, y, y_apart, ys);
}

static void q5_k_tile(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q5_K, tiles_k_32_min, g);
}

static void panel_q5_k_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q5_k_one_token, q5_k_two_tokens, 6};
    gemm_panel_k(&few, q5_k_tile, type, w, n_panels, x, y, ys);
}

static void q6_k_one_token(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q6_K, 1, w, apart, x, t, y, y_apart, ys);
}

static void q6_k_two_tokens(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_Q6_K, 2, w, apart, x, t, y, y_apart, ys);
}

static void q6_k_tile(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q6_K, tiles_k_16, g);
}

static void panel_q6_k_avx512(uint32_t type, const void *w, uint32_t n_panels,
                              const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {q6_k_one_token, q6_k_two_tokens, 6};
    gemm_panel_k(&few, q6_k_tile, type, w, n_panels, x, y, ys);
}

static void iq4_xs_one_token(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_IQ4_XS, 1, w, apart, x, t, y, y_apart, ys);
}

static void iq4_xs_two_tokens(FEW_ARGS)
{
    few_panel_k(ATSI_TYPE_IQ4_XS, 2, w, apart, x, t, y, y_apart, ys);
}

static void iq4_xs_tile(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_IQ4_XS, tiles_k_32_wide, g);
}

static void panel_iq4_xs_avx512(uint32_t type, const void *w, uint32_t n_panels,
                                const struct cpu_act *x, float *y, size_t ys)
{
    static const struct panel_few few = {iq4_xs_one_token, iq4_xs_two_tokens, 6};
    gemm_panel_k(&few, iq4_xs_tile, type, w, n_panels, x, y, ys);
}

static void fill_panel_k(cpu_gemm_panel_fn *gemm[])
{
    gemm[ATSI_TYPE_Q2_K] = panel_q2_k_avx512;
    gemm[ATSI_TYPE_Q3_K] = panel_q3_k_avx512;
    gemm[ATSI_TYPE_Q4_K] = panel_q4_k_avx512;
    gemm[ATSI_TYPE_Q5_K] = panel_q5_k_avx512;
    gemm[ATSI_TYPE_Q6_K] = panel_q6_k_avx512;
    gemm[ATSI_TYPE_IQ4_XS] = panel_iq4_xs_avx512;
}

#endif
