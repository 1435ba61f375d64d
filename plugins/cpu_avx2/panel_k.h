/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with super-block weights in panels, included by a plain and by a VNNI file.  The float
 * chain of a row and a token is that of gemv.h, so that bits do not depend on the layout.
 */
#ifndef CPU_AVX2_PANEL_K_H
#define CPU_AVX2_PANEL_K_H

#include "panel_scales.h"
#include "panel_tile.h"

#include "../cpu_common/panel_walk.h"

#define SUPER 256

/* ---------------------------------------------------------------- one token */
/* Halves of the two panels whose parts are kept in registers side by side: eight parts in all. */
CPU_INLINE int halves_at_once(const int type)
{
    const int n = panel_forms[type].n_sum;
    return n > 4 ? 1 : n > 2 ? 2 : 4;
}

/* Units after which parts end. */
CPU_INLINE int units_of_run(const int type)
{
    const struct panel_form *f = &panel_forms[type];
    const int n = panel_run(type) * f->n_sum / f->n_code;
    return panel_is_signed(type) || n > f->n_unit ? f->n_unit : n;
}

/* sum[i] += scale * sum of code * q, of units first .. first + n - 1 of strip s, for halves i. */
CPU_INLINE void units_k(const int type, const int s, const int first, const int n, const int i0,
                        const uint8_t *const body[2], const struct panel_scales sc[4],
                        const int8_t *q, __m256i sum[4])
{
    const struct panel_form *f = &panel_forms[type];
    const int ways = halves_at_once(type), at = 64 * (f->scale_chunks + s * f->strip_chunks);
    __m256i part[4][8];
    CPU_UNROLL
    for (int u = first; u < first + n; u++) {
        CPU_UNROLL
        for (int j = 0; j < ways; j++) {
            const int i = i0 + j;
            __m256i c[8];
            panel_codes(type, body[i / 2] + at, u, i % 2, c);
            CPU_UNROLL
            for (int k = 0; k < f->n_code; k++) {
                const __m256i a = four_at(q + 4 * panel_dword(type, s, k, u));
                const int to = k % f->n_sum;
                part[j][to] = codes_add(type, u == first && k < f->n_sum, part[j][to], c[k], a);
                if (panel_is_signed(type))
                    sum[i] = scale_add(sum[i], part[j][to],
                                       scale_of(type, &sc[i], panel_group(type, s, k)), 0);
            }
        }
    }
    if (panel_is_signed(type)) /* each part has ended */
        return;
    CPU_UNROLL
    for (int j = 0; j < ways; j++) {
        CPU_UNROLL
        for (int k = 0; k < f->n_sum; k++)
            sum[i0 + j] = scale_add(sum[i0 + j], part[j][k],
                                    scale_of(type, &sc[i0 + j], panel_group(type, s, k)),
                                    panel_weight(type, k));
    }
}

/* One super-block of two panels; i: half i % 2 of panel i / 2. */
CPU_INLINE void super_panel_k(const int type, const uint8_t *const head[2],
                              const uint8_t *const body[2], const int8_t *q, const int16_t *bsum,
                              const float *d, __m256 acc[4])
{
    const struct panel_form *f = &panel_forms[type];
    const int zero = panel_zero(type), run = units_of_run(type);
    const __m256 da = _mm256_set1_ps(*d);
    _Alignas(32) int16_t sums[16];
    struct panel_scales sc[4];
    __m256i sum[4], min[4];
    if (f->has_min || zero != 0)
        sums_for_scales(type, bsum, sums);
    CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        panel_scales(type, head[i / 2], body[i / 2], i % 2, &sc[i]);
        sum[i] = _mm256_setzero_si256();
        if (f->has_min)
            min[i] = times_sums(type, sc[i].m, sums);
        if (zero != 0)
            sum[i] = _mm256_sub_epi32(sum[i], _mm256_slli_epi32(times_sums(type, sc[i].s, sums),
                                                                __builtin_ctz((unsigned)zero)));
    }
    CPU_UNROLL
    for (int s = 0; s < f->n_strip; s++) {
        CPU_UNROLL
        for (int u = 0; u < f->n_unit; u += run) {
            CPU_UNROLL
            for (int i = 0; i < 4; i += halves_at_once(type))
                units_k(type, s, u, run, i, body, sc, q, sum);
        }
    }
    CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const uint8_t *at = head[i / 2] + 16 * (i % 2);
        acc[i] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[i]),
                                 _mm256_mul_ps(_mm256_cvtph_ps(load128(at)), da), acc[i]);
        if (f->has_min)
            acc[i] = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(min[i]),
                                      _mm256_mul_ps(_mm256_cvtph_ps(load128(at + 32)), da), acc[i]);
    }
}

CPU_INLINE void one_token_k(const int type, const uint8_t *w, size_t apart, const struct cpu_act *x,
                            uint32_t t, float *y, size_t y_apart)
{
    const uint32_t n_super = x->k / SUPER;
    struct few_act a = few_act_at(x, t, 1);
    __m256 acc[4];
    CPU_UNROLL
    for (int i = 0; i < 4; i++)
        acc[i] = _mm256_setzero_ps();
    for (uint32_t s = 0; s < n_super; s++) {
        const struct atsi_panel_place at = atsi_panel_place((uint32_t)type, n_super, s);
        const uint8_t *const head[2] = {w + at.head, w + apart + at.head};
        const uint8_t *const body[2] = {w + at.body, w + apart + at.body};
        super_panel_k(type, head, body, a.q[0], a.bsum[0], a.d[0], acc);
        few_act_walk(&a, 1, 1, SUPER);
    }
    CPU_UNROLL
    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(y + (size_t)(i / 2) * y_apart + 8 * (i % 2), acc[i]);
}

/* ---------------------------------------------------------------- many tokens */
/* Signed weights of a chunk times their scales: |scale * code| <= 32 * 127. */
CPU_INLINE void scale_weights(struct panel_chunk *o, uint32_t c, const int h, __m256i scale)
{
    CPU_UNROLL
    for (uint32_t i = 0; i < 2; i++) {
        int16_t *at = o->q16[2 * c + i][8 * h];
        store256(at, _mm256_mullo_epi16(load256(at), scale));
    }
}

CPU_INLINE void open_scales(const int type, const uint8_t *head, const struct panel_scales *sc,
                            const int h, struct panel_chunk *o)
{
    const struct panel_form *f = &panel_forms[type];
    const int zero = panel_zero(type);
    CPU_UNROLL
    for (int j = 0; j < 8; j++) { /* 32 columns each */
        const bool wide = f->group == 32;
        const int a = wide ? j : 2 * j, b = wide ? j : 2 * j + 1;
        const __m256i *from = f->has_min ? sc->m : sc->s;
        const __m256i low = word_twice(from[scale_vector(type, a)], scale_word(type, a));
        const __m256i high = word_twice(from[scale_vector(type, b)], scale_word(type, b));
        __m256i m = _mm256_blend_epi16(low, high, 0xaa);
        if (!f->has_min)
            m = _mm256_mullo_epi16(m, _mm256_set1_epi16((short)-zero));
        store256(&o->mins[j][8 * h], m);
        store256(&o->s_even[j][8 * h], scale_of(type, sc, a));
        store256(&o->s_odd[j][8 * h], scale_of(type, sc, b));
    }
    _mm256_store_ps(&o->d[0][8 * h], _mm256_cvtph_ps(load128(head + 16 * h)));
    if (f->has_min)
        _mm256_store_ps(&o->m[0][8 * h], _mm256_cvtph_ps(load128(head + 32 + 16 * h)));
}

/* Super-block `first` of a panel of rows of n_super, as tiles want it. */
CPU_INLINE void open_k(const int type, const uint8_t *panel, uint32_t n_super, uint32_t first,
                       struct panel_chunk *o)
{
    const struct panel_form *f = &panel_forms[type];
    const struct atsi_panel_place at = atsi_panel_place((uint32_t)type, n_super, first);
    for (int h = 0; h < 2; h++) {
        const uint8_t *body = panel + at.body;
        struct panel_scales sc;
        panel_scales(type, panel + at.head, body, h, &sc);
        open_scales(type, panel + at.head, &sc, h, o);
        CPU_UNROLL
        for (int s = 0; s < f->n_strip; s++) {
            CPU_UNROLL
            for (int u = 0; u < f->n_unit; u++) {
                __m256i c[8];
                panel_codes(type, body + 64 * (f->scale_chunks + s * f->strip_chunks), u, h, c);
                CPU_UNROLL
                for (int k = 0; k < f->n_code; k++) {
                    const uint32_t dword = (uint32_t)panel_dword(type, s, k, u);
                    if (panel_weight(type, k) != 0)
                        c[k] = _mm256_srli_epi16(c[k], panel_weight(type, k));
                    store_codes(panel_is_signed(type), o, dword, h, c[k]);
                    if (panel_is_signed(type))
                        scale_weights(o, dword, h, scale_of(type, &sc, panel_group(type, s, k)));
                }
            }
        }
    }
}

/* ---------------------------------------------------------------- the slots */
/* Tiles of a kind of codes. */
#define PANEL_TILES_K(name, GROUP, RUN, IS_SIGNED)                                                 \
    static void name(TILES_ARGS)                                                                   \
    {                                                                                              \
        const struct type256 kind = {                                                              \
            .is_signed = (IS_SIGNED), .has_min = has_min, .group = (GROUP), .run = (RUN)};         \
        (void)zero; /* in the mins */                                                              \
        panel_vectors(NULL, &kind, w, a, nb, nv, acc);                                             \
    }

/* The functions of a type; `tiles` are those of its kind of codes. */
#define PANEL_K(name, TYPE, tiles, MANY)                                                           \
    static void name##_one_token(FEW_ARGS)                                                         \
    {                                                                                              \
        (void)ys;                                                                                  \
        one_token_k(TYPE, w, apart, x, t, y, y_apart);                                             \
    }                                                                                              \
    static void name##_open(OPEN_ARGS)                                                             \
    {                                                                                              \
        (void)n;                                                                                   \
        open_k(TYPE, panel, n_blocks, first, o);                                                   \
    }                                                                                              \
    static void panel_##name(SLOT_ARGS)                                                            \
    {                                                                                              \
        const struct panel_product p = {name##_one_token,                                          \
                                        name##_open,                                               \
                                        tiles,                                                     \
                                        MANY,                                                      \
                                        SUPER,                                                     \
                                        panel_is_signed(TYPE),                                     \
                                        panel_forms[TYPE].has_min != 0,                            \
                                        panel_zero(TYPE)};                                         \
        panel_product(&p, type, w, n_panels, x, y, ys);                                            \
    }

#if CPU_AVX2_VNNI
PANEL_TILES_K(tiles_16, 16, 4, false)
PANEL_TILES_K(tiles_32, 32, 8, false)
#define tiles_16_2 tiles_16
#define tiles_16_4 tiles_16
#define tiles_32_4 tiles_32
#define tiles_32_8 tiles_32
#define tiles_wide tiles_32
#else
PANEL_TILES_K(tiles_16_2, 16, 2, false)
PANEL_TILES_K(tiles_16_4, 16, 4, false)
PANEL_TILES_K(tiles_32_4, 32, 4, false)
PANEL_TILES_K(tiles_32_8, 32, 8, false)
PANEL_TILES_K(tiles_wide, 32, 1, true)
#endif

PANEL_K(q2_k, ATSI_TYPE_Q2_K, tiles_16_4, 8)
PANEL_K(q3_k, ATSI_TYPE_Q3_K, tiles_16_4, 5)
PANEL_K(q4_k, ATSI_TYPE_Q4_K, tiles_32_8, 16)
PANEL_K(q5_k, ATSI_TYPE_Q5_K, tiles_32_4, 6)
PANEL_K(q6_k, ATSI_TYPE_Q6_K, tiles_16_2, 6)
PANEL_K(iq4_xs, ATSI_TYPE_IQ4_XS, tiles_wide, 11)

static void fill_panel_k(cpu_gemm_panel_fn *gemm[])
{
    gemm[ATSI_TYPE_Q2_K] = panel_q2_k;
    gemm[ATSI_TYPE_Q3_K] = panel_q3_k;
    gemm[ATSI_TYPE_Q4_K] = panel_q4_k;
    gemm[ATSI_TYPE_Q5_K] = panel_q5_k;
    gemm[ATSI_TYPE_Q6_K] = panel_q6_k;
    gemm[ATSI_TYPE_IQ4_XS] = panel_iq4_xs;
}

#endif
