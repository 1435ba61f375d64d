/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with weights in blocks of 32 in panels, included by a plain and by a VNNI file.  The
 * float chain of a row and a token is that of gemv.h, so that bits do not depend on the layout.
 */
#ifndef CPU_AVX2_PANEL_32_H
#define CPU_AVX2_PANEL_32_H

#include "panel_codes.h"
#include "panel_tile.h"

#include "../cpu_common/panel_walk.h"

/* ---------------------------------------------------------------- scales */
CPU_INLINE __m256 f16_values(const uint8_t *p)
{
    return _mm256_cvtph_ps(load128(p));
}

/* d of the eight rows of half h at a block's head. */
CPU_INLINE __m256 scale_values(const int type, const uint8_t *head, const int h)
{
    if (type == ATSI_TYPE_MXFP4)
        return e8m0_values(
            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(head + 8 * h))));
    return f16_values(head + 16 * h);
}

/* ---------------------------------------------------------------- one token */
/* sum[p][h] = sum of code * q of one block of both panels. */
CPU_INLINE void dots_32(const int type, const uint8_t *const body[2], const int8_t *q,
                        __m256i sum[2][2])
{
    const struct panel_form *f = &panel_forms[type];
    const int run = panel_run(type) / f->n_code > 0 ? panel_run(type) / f->n_code : 1; /* units */
    const bool each = panel_run(type) == 1; /* nothing may be added in 16 bits */
    __m256i part[2][2];
    CPU_UNROLL
    for (int u = 0; u < f->n_unit; u++) {
        __m256i a[2];
        CPU_UNROLL
        for (int k = 0; k < f->n_code; k++)
            a[k] = four_at(q + 4 * panel_dword(type, 0, k, u));
        CPU_UNROLL
        for (int i = 0; i < 4; i++) {
            const int p = i / 2, h = i % 2;
            __m256i c[2];
            panel_codes(type, body[p], u, h, c);
            CPU_UNROLL
            for (int k = 0; k < f->n_code; k++) {
                part[p][h] =
                    codes_add(type, each || (u % run == 0 && k == 0), part[p][h], c[k], a[k]);
                if (each || ((u + 1) % run == 0 && k == f->n_code - 1))
                    sum[p][h] = widen_add(u < run && (!each || k == 0), sum[p][h], part[p][h]);
            }
        }
    }
}

/* One block of two panels. */
CPU_INLINE void block_panel_32(const int type, const uint8_t *const head[2],
                               const uint8_t *const body[2], const int8_t *q, const int16_t *bsum,
                               const float *d, __m256 acc[2][2])
{
    const struct panel_form *f = &panel_forms[type];
    const int zero = panel_zero(type);
    const __m256i b = _mm256_set1_epi32((int)load_u32(bsum));
    const __m256 da = _mm256_set1_ps(*d);
    __m256i sum[2][2];
    dots_32(type, body, q, sum);
    CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        const int p = i / 2, h = i % 2;
        __m256i s = sum[p][h];
        if (zero != 0)
            s = _mm256_add_epi32(s, _mm256_madd_epi16(b, _mm256_set1_epi16((short)-zero)));
        acc[p][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s),
                                    _mm256_mul_ps(scale_values(type, head[p], h), da), acc[p][h]);
        if (f->has_min)
            acc[p][h] =
                _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(b, _mm256_set1_epi16(1))),
                                _mm256_mul_ps(f16_values(head[p] + 32 + 16 * h), da), acc[p][h]);
    }
}

/* Blocks of one record (`group` of them, or fewer at the end of a row) of two panels. */
CPU_INLINE void record_32(const int type, const uint32_t n, const uint8_t *const w[2],
                          const struct few_act *a, __m256 acc[2][2])
{
    const struct panel_form *f = &panel_forms[type];
    const uint32_t head = type == ATSI_TYPE_MXFP4 ? 16 : f->has_min ? 64 : 32;
    const uint32_t chunks = (uint32_t)f->strip_chunks * ATSI_PANEL_CHUNK;
    CPU_UNROLL
    for (int p = 0; p < 2; p++)
        _mm_prefetch((const char *)w[p] + PANEL_AHEAD, _MM_HINT_T0);
    CPU_UNROLL
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *const heads[2] = {w[0] + i * head, w[1] + i * head};
        const uint8_t *const bodies[2] = {w[0] + n * head + i * chunks,
                                          w[1] + n * head + i * chunks};
        block_panel_32(type, heads, bodies, a->q[0] + 32 * i, a->bsum[0] + 2 * i, a->d[0] + i, acc);
    }
}

CPU_INLINE void one_token_32(const int type, const uint8_t *w, size_t apart,
                             const struct cpu_act *x, uint32_t t, float *y, size_t y_apart)
{
    const uint32_t group = atsi_panel_form((uint32_t)type)->group, n_blocks = x->k / 32;
    const size_t record = (size_t)atsi_panel_bytes((uint32_t)type, 32 * (uint64_t)group);
    const uint8_t *at[2] = {w, w + apart};
    struct few_act a = few_act_at(x, t, 1);
    __m256 acc[2][2];
    uint32_t b = 0;
    CPU_UNROLL
    for (int i = 0; i < 4; i++)
        acc[i / 2][i % 2] = _mm256_setzero_ps();
    for (; b + group <= n_blocks; b += group) {
        record_32(type, group, at, &a, acc);
        few_act_walk(&a, 1, (int)group, 32);
        at[0] += record;
        at[1] += record;
    }
    switch (group > 1 ? n_blocks - b : 0) {
    case 3:
        record_32(type, 3, at, &a, acc);
        break;
    case 2:
        record_32(type, 2, at, &a, acc);
        break;
    case 1:
        record_32(type, 1, at, &a, acc);
        break;
    default:
        break;
    }
    CPU_UNROLL
    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(y + (size_t)(i / 2) * y_apart + 8 * (i % 2), acc[i / 2][i % 2]);
}

/* ---------------------------------------------------------------- many tokens */
/* Blocks first .. first + n - 1 of a panel of rows of n_blocks, as tiles want them. */
CPU_INLINE void open_32(const int type, const uint8_t *panel, uint32_t n_blocks, uint32_t first,
                        uint32_t n, struct panel_chunk *o)
{
    const struct panel_form *f = &panel_forms[type];
    for (uint32_t b = 0; b < n; b++) {
        const struct atsi_panel_place at = atsi_panel_place((uint32_t)type, n_blocks, first + b);
        const uint8_t *head = panel + at.head, *body = panel + at.body;
        CPU_UNROLL
        for (int h = 0; h < 2; h++) {
            _mm256_store_ps(&o->d[b][8 * h], scale_values(type, head, h));
            if (f->has_min)
                _mm256_store_ps(&o->m[b][8 * h], f16_values(head + 32 + 16 * h));
            CPU_UNROLL
            for (int u = 0; u < f->n_unit; u++) {
                __m256i c[2];
                panel_codes(type, body, u, h, c);
                CPU_UNROLL
                for (int k = 0; k < f->n_code; k++)
                    store_codes(panel_is_signed(type), o,
                                8 * b + (uint32_t)panel_dword(type, 0, k, u), h, c[k]);
            }
        }
    }
}

/* ---------------------------------------------------------------- the slots */
/* Tiles of a kind of codes. */
#define PANEL_TILES_32(name, RUN, IS_SIGNED)                                                       \
    static void name(TILES_ARGS)                                                                   \
    {                                                                                              \
        const struct type32 kind = {                                                               \
            .zero = zero, .is_signed = (IS_SIGNED), .has_min = has_min, .run = (RUN)};             \
        panel_vectors(&kind, NULL, w, a, nb, nv, acc);                                             \
    }

/* The functions of a type; `tiles` are those of its kind of codes. */
#define PANEL_32(name, TYPE, tiles, MANY)                                                          \
    static void name##_one_token(FEW_ARGS)                                                         \
    {                                                                                              \
        (void)ys;                                                                                  \
        one_token_32(TYPE, w, apart, x, t, y, y_apart);                                            \
    }                                                                                              \
    static void name##_open(OPEN_ARGS)                                                             \
    {                                                                                              \
        open_32(TYPE, panel, n_blocks, first, n, o);                                               \
    }                                                                                              \
    static void panel_##name(SLOT_ARGS)                                                            \
    {                                                                                              \
        const struct panel_product p = {name##_one_token,                                          \
                                        name##_open,                                               \
                                        tiles,                                                     \
                                        MANY,                                                      \
                                        32,                                                        \
                                        panel_is_signed(TYPE),                                     \
                                        panel_forms[TYPE].has_min != 0,                            \
                                        panel_zero(TYPE)};                                         \
        panel_product(&p, type, w, n_panels, x, y, ys);                                            \
    }

PANEL_TILES_32(tiles_32_8, 8, false)
#if CPU_AVX2_VNNI
#define tiles_32_4 tiles_32_8
#define tiles_32_wide tiles_32_8
#else
PANEL_TILES_32(tiles_32_4, 4, false)
PANEL_TILES_32(tiles_32_wide, 1, true)
#endif

PANEL_32(q4_0, ATSI_TYPE_Q4_0, tiles_32_8, 16)
PANEL_32(q4_1, ATSI_TYPE_Q4_1, tiles_32_8, 16)
PANEL_32(q5_0, ATSI_TYPE_Q5_0, tiles_32_4, 7)
PANEL_32(q5_1, ATSI_TYPE_Q5_1, tiles_32_4, 7)
PANEL_32(q8_0, ATSI_TYPE_Q8_0, tiles_32_wide, 20)
PANEL_32(iq4_nl, ATSI_TYPE_IQ4_NL, tiles_32_wide, 11)
PANEL_32(mxfp4, ATSI_TYPE_MXFP4, tiles_32_4, 5)

static void fill_panel_32(cpu_gemm_panel_fn *gemm[])
{
    gemm[ATSI_TYPE_Q4_0] = panel_q4_0;
    gemm[ATSI_TYPE_Q4_1] = panel_q4_1;
    gemm[ATSI_TYPE_Q5_0] = panel_q5_0;
    gemm[ATSI_TYPE_Q5_1] = panel_q5_1;
    gemm[ATSI_TYPE_Q8_0] = panel_q8_0;
    gemm[ATSI_TYPE_IQ4_NL] = panel_iq4_nl;
    gemm[ATSI_TYPE_MXFP4] = panel_mxfp4;
}

#endif
