/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with super-block weights, included by a plain and by a VNNI file.
 *
 * For a row and a token, per super-block: isum = sum scale * (code - zero) * q and
 * imin = sum min * bsum, both exact integers, then
 *     acc = acc - (dmin * da) * imin;  acc = acc + (d * da) * isum      (fused, in f32)
 * Only this float chain is ordered, so tiles of any shape give the same bits.
 */
#ifndef ATSI_CPU_AVX512_GEMM_K_H
#define ATSI_CPU_AVX512_GEMM_K_H

#include "dot.h"
#include "rows.h"
#include "unpack_k.h"

/* ---------------------------------------------------------------- few tokens: four rows at once */

/* Activations of one super-block in the lane order of the codes. */
CPU_INLINE void act_k(const int type, const int8_t *q, __m512i a[4])
{
    const enum order_k order = forms_k[type].order;
    const uint8_t *g = groups_k[order];
    if (order == ORDER_SIXTEENS) {
        for (int u = 0; u < 4; u += 2) {
            __m512i lo = _mm512_load_si512(q + 64 * u), hi = _mm512_load_si512(q + 64 * u + 64);
            a[u] = _mm512_shuffle_i64x2(lo, hi, 0x88);
            a[u + 1] = _mm512_shuffle_i64x2(lo, hi, 0xdd);
        }
    } else {
        for (int u = 0; u < 4; u++)
            a[u] = load_2x32(q + 16 * g[4 * u], q + 16 * g[4 * u + 2]);
    }
}

/* Sixteen partial sums of scale * code * q; c, s, a in the same order. */
CPU_INLINE __m512i scaled_dot_k(const int wide, __m512i acc, const __m512i c[4], const __m512i s[4],
                                const __m512i a[4])
{
    for (int u = 0; u < 4; u++) {
        if (wide) {
            __m512i p = dot4(1, _mm512_setzero_si512(), c[u], a[u]);
            acc = _mm512_add_epi32(acc, _mm512_mullo_epi32(p, _mm512_srai_epi32(s[u], 16)));
        } else { /* pair sums stay below 2 * 63 * 127 */
            acc = dot2(acc, _mm512_maddubs_epi16(c[u], a[u]), s[u]);
        }
    }
    return acc;
}

/* imin of four rows: mins [4 rows][16] times the 16 block sums. */
CPU_INLINE __m128i min_dot_k(__m512i min, __m256i bsum)
{
    const __m512i pick = _mm512_castsi128_si512(_mm_set_epi32(9, 1, 8, 0));
    __m512i b = _mm512_broadcast_i64x4(bsum);
    __m512i m01 = _mm512_cvtepu8_epi16(_mm512_castsi512_si256(min));
    __m512i m23 = _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(min, 1));
    __m512i s;
    m01 = _mm512_madd_epi16(m01, b); /* rows 0 | 1 in the halves */
    m23 = _mm512_madd_epi16(m23, b);
    s = _mm512_add_epi32(_mm512_unpacklo_epi32(m01, m23), _mm512_unpackhi_epi32(m01, m23));
    s = _mm512_add_epi32(s, _mm512_shuffle_epi32(s, _MM_PERM_BADC));
    s = _mm512_add_epi32(s, _mm512_shuffle_i64x2(s, s, 0xb1));
    return _mm512_castsi512_si128(_mm512_permutexvar_epi32(pick, s));
}

/* One super-block of four rows times the tokens t < n: isum[t][row] as partial sums. */
CPU_INLINE void super_dots_k(const int type, const uint8_t *const p[4], const struct head_k *h,
                             const int n, __m512i a[][4], const __m256i bsum[], __m512i isum[][4])
{
    const struct form_k *f = &forms_k[type];
    _Alignas(64) int8_t scale[4][16];
    _mm512_store_si512(scale, h->scale);
    for (int r = 0; r < 4; r++) {
        __m256i s16 = _mm256_cvtepi8_epi16(_mm_load_si128((const __m128i *)(const void *)scale[r]));
        __m512i c[4], s[4];
        codes_k(type, p[r], c);
        for (int u = 0; u < 4; u++)
            s[u] = _mm512_permutexvar_epi16(scale_index_k(type, u), _mm512_castsi256_si512(s16));
        if (f->zero != 0)
            s16 = _mm256_mullo_epi16(s16, _mm256_set1_epi16((short)-f->zero));
        for (int t = 0; t < n; t++) {
            __m512i acc = _mm512_setzero_si512();
            if (f->zero != 0)
                acc = _mm512_zextsi256_si512(_mm256_madd_epi16(s16, bsum[t]));
            isum[t][r] = scaled_dot_k(f->wide, acc, c, s, a[t]);
        }
    }
}

/* Four rows times n <= FEW_TOKENS tokens. */
CPU_INLINE void four_rows_k(const int type, const uint8_t *const w[4], const struct cpu_act *x,
                            const int n, __m128 acc[])
{
    const struct form_k *f = &forms_k[type];
    const uint32_t n_super = x->k / SUPER;
    for (int t = 0; t < n; t++)
        acc[t] = _mm_setzero_ps();
    for (uint32_t s = 0; s < n_super; s++) {
        const size_t at = (size_t)s * (size_t)f->bytes;
        const uint8_t *const p[4] = {w[0] + at, w[1] + at, w[2] + at, w[3] + at};
        __m512i a[FEW_TOKENS][4], isum[FEW_TOKENS][4];
        __m256i bsum[FEW_TOKENS];
        struct head_k h;
        prefetch_four(p, 0, f->bytes);
        for (int t = 0; t < n; t++) {
            act_k(type, x->q + (size_t)t * x->q_stride + (size_t)s * SUPER, a[t]);
            bsum[t] = _mm256_load_si256((const __m256i *)(const void *)(x->bsum +
                                                                        (size_t)t * x->bsum_stride +
                                                                        (size_t)s * 16));
        }
        decode_head_k(type, p, &h);
        super_dots_k(type, p, &h, n, a, bsum, isum);
        for (int t = 0; t < n; t++) {
            __m128 da = _mm_set1_ps(x->d[(size_t)t * x->d_stride + s]);
            __m128i i = sum_all_4(isum[t][0], isum[t][1], isum[t][2], isum[t][3]);
            if (f->has_min)
                acc[t] = _mm_fnmadd_ps(_mm_mul_ps(h.dmin, da),
                                       _mm_cvtepi32_ps(min_dot_k(h.min, bsum[t])), acc[t]);
            acc[t] = _mm_fmadd_ps(_mm_mul_ps(h.d, da), _mm_cvtepi32_ps(i), acc[t]);
        }
    }
}

CPU_INLINE void few_tokens_k(const int type, const void *w, size_t stride, uint32_t n_rows,
                             const struct cpu_act *x, const int n, float *y, size_t ys)
{
    for (uint32_t i = 0; i < (n_rows + 3) / 4; i++) {
        struct four_rows g;
        __m128 acc[FEW_TOKENS];
        four_rows_at(w, stride, n_rows, i, &g);
        four_rows_k(type, g.w, x, n, acc);
        for (int t = 0; t < n; t++)
            store_four(&g, acc[t], y + (size_t)t * ys);
    }
}

/* ---------------------------------------------------------------- many tokens: panels of 16 rows
 */

/* Super-blocks unpacked at once, at most: 32 rows of them fit the first cache (blocks.c). */
#define PANEL_SUPERS (CPU_BLOCKS_MOST_COLUMNS / SUPER)

/* One super-block of 16 rows; the lane is the row throughout. */
struct panel_k {
    _Alignas(64) uint8_t q[64][16][4]; /* codes of elements 4c .. 4c + 3 */
    int32_t scale[16][16];             /* [group] */
    int16_t min[8][16][2];             /* [pair of groups]; of types with mins */
    float d[16], dmin[16];
};

/* Even words of one, odd words of the other. */
CPU_INLINE __m512i odd_words(__m512i even, __m512i odd)
{
    return _mm512_mask_blend_epi16(0xaaaaaaaau, even, odd);
}

CPU_INLINE __m512i word_pair(__m512i lo, __m512i hi)
{
    return odd_words(lo, _mm512_slli_epi32(hi, 16));
}

/* scale [16 rows][16 groups] bytes (mins likewise) -> the panel's scale and min. */
CPU_INLINE void panel_scales_k(const int type, const uint8_t *scale, const uint8_t *min,
                               struct panel_k *o)
{
    const struct form_k *f = &forms_k[type];
    __m512i vs[4], vm[4];
    for (size_t i = 0; i < 4; i++) {
        vs[i] = load_4x16(scale + 16 * i, scale + 16 * (i + 4), scale + 16 * (i + 8),
                          scale + 16 * (i + 12));
        vm[i] =
            load_4x16(min + 16 * i, min + 16 * (i + 4), min + 16 * (i + 8), min + 16 * (i + 12));
    }
    transpose_lanes_4(vs);
    transpose_lanes_4(vm);
    for (unsigned g = 0; g < 16; g += 2) {
        _mm512_store_si512(o->scale[g], byte_of_dword(vs[g / 4], g % 4));
        _mm512_store_si512(o->scale[g + 1], byte_of_dword(vs[g / 4], g % 4 + 1));
        if (f->has_min)
            _mm512_store_si512(o->min[g / 2], word_pair(byte_of_dword(vm[g / 4], g % 4),
                                                        byte_of_dword(vm[g / 4], g % 4 + 1)));
    }
}

/* Super-block at w + at of 16 rows. */
CPU_INLINE void unpack_panel_k(const int type, const uint8_t *const w[16], size_t at,
                               struct panel_k *o)
{
    const uint8_t *g = groups_k[forms_k[type].order];
    _Alignas(64) uint8_t rows[16][SUPER], scale[16][16], min[16][16];
    for (int r = 0; r < 16; r += 4) {
        const uint8_t *const p[4] = {w[r] + at, w[r + 1] + at, w[r + 2] + at, w[r + 3] + at};
        struct head_k h;
        decode_head_k(type, p, &h);
        _mm512_store_si512(scale[r], h.scale);
        _mm512_store_si512(min[r], h.min);
        _mm_store_ps(o->d + r, h.d);
        _mm_store_ps(o->dmin + r, h.dmin);
        for (int i = 0; i < 4; i++) {
            __m512i c[4];
            codes_k(type, p[i], c);
            for (int u = 0; u < 4; u++)
                _mm512_store_si512(rows[r + i] + 64 * u, c[u]);
        }
    }
    for (int u = 0; u < 4; u++)
        interleave_16(rows[0] + 64 * u, SUPER, g + 4 * u, o->q);
    panel_scales_k(type, scale[0], min[0], o);
}

CPU_INLINE __m256i load_256(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Sums of 16 times a factor -> of 32. */
CPU_INLINE __m256i sums_of_32(const int16_t bsum[16], int factor)
{
    return _mm256_madd_epi16(load_256(bsum), _mm256_set1_epi16((short)factor));
}

/* What a tile reads of the activations: token t of the tile at a fixed stride. */
struct tile_k {
    const int8_t *q;
    const int16_t *bsum;
    const float *d;
    size_t q_stride, bsum_stride, d_stride;
};

/* sum[.][t] += mins times the block sums of token t. */
CPU_INLINE void tile_mins_16_k(const struct panel_k *p0, const struct panel_k *p1,
                               const struct tile_k *x, const int n, __m512i sum[2][TILE_TOKENS])
{
    for (int j = 0; j < 8; j++) {
        __m512i m0 = _mm512_load_si512(p0->min[j]), m1 = _mm512_load_si512(p1->min[j]);
        for (int t = 0; t < n; t++) {
            __m512i b = broadcast_i32(x->bsum + (size_t)t * x->bsum_stride + 2 * j);
            sum[0][t] = dot2(sum[0][t], m0, b);
            sum[1][t] = dot2(sum[1][t], m1, b);
        }
    }
}

/* The same where both groups of each pair are one of 32: two pairs at a time. */
CPU_INLINE void tile_mins_32_k(const struct panel_k *p0, const struct panel_k *p1,
                               const struct tile_k *x, const int n, __m512i sum[2][TILE_TOKENS])
{
    _Alignas(16) int16_t both[TILE_TOKENS][8];
    for (int t = 0; t < n; t++)
        _mm_store_si128((__m128i *)(void *)both[t],
                        _mm256_cvtepi32_epi16(sums_of_32(x->bsum + (size_t)t * x->bsum_stride, 1)));
    for (int j = 0; j < 8; j += 2) {
        __m512i m0 = odd_words(_mm512_load_si512(p0->min[j]), _mm512_load_si512(p0->min[j + 1]));
        __m512i m1 = odd_words(_mm512_load_si512(p1->min[j]), _mm512_load_si512(p1->min[j + 1]));
        for (int t = 0; t < n; t++) {
            __m512i b = broadcast_i32(both[t] + j);
            sum[0][t] = dot2(sum[0][t], m0, b);
            sum[1][t] = dot2(sum[1][t], m1, b);
        }
    }
}

/* start[t][group] = -zero times the sum of the group's activations, from where its dots begin. */
CPU_INLINE void tile_zeros_k(const int group, int zero, const struct tile_k *x, const int n,
                             int32_t start[TILE_TOKENS][16])
{
    for (int t = 0; t < n; t++) {
        const int16_t *bsum = x->bsum + (size_t)t * x->bsum_stride;
        if (group == 32)
            _mm256_store_si256((__m256i *)(void *)start[t], sums_of_32(bsum, -zero));
        else
            _mm512_store_si512(start[t], _mm512_mullo_epi32(_mm512_cvtepi16_epi32(load_256(bsum)),
                                                            _mm512_set1_epi32(-zero)));
    }
}

/* sum[.][t] += scale * dot for every group of one super-block; start: tile_zeros_k(), or NULL. */
CPU_INLINE void tile_dots_k(const int wide, const int group, const struct panel_k *p0,
                            const struct panel_k *p1, const struct tile_k *x, const int32_t *start,
                            const int n, __m512i sum[2][TILE_TOKENS])
{
    for (int g = 0; g < 16; g += group / 16) {
        __m512i s0 = _mm512_load_si512(p0->scale[g]), s1 = _mm512_load_si512(p1->scale[g]);
        __m512i dot[2][TILE_TOKENS];
        for (int t = 0; t < n; t++)
            dot[0][t] = dot[1][t] =
                _mm512_set1_epi32(start != NULL ? start[16 * t + g / (group / 16)] : 0);
        for (int c = 4 * g; c < 4 * g + group / 4; c++) {
            __m512i w0 = _mm512_load_si512(p0->q[c]), w1 = _mm512_load_si512(p1->q[c]);
            for (int t = 0; t < n; t++) {
                __m512i a = broadcast_i32(x->q + (size_t)t * x->q_stride + 4 * c);
                dot[0][t] = dot4(wide, dot[0][t], w0, a);
                dot[1][t] = dot4(wide, dot[1][t], w1, a);
            }
        }
        for (int t = 0; t < n; t++) {
            sum[0][t] = _mm512_add_epi32(sum[0][t], _mm512_mullo_epi32(dot[0][t], s0));
            sum[1][t] = _mm512_add_epi32(sum[1][t], _mm512_mullo_epi32(dot[1][t], s1));
        }
    }
}

/* acc[.][t] -= dmin * da * (mins times the block sums of token t) */
CPU_INLINE void tile_mins_k(const int group, const struct panel_k *p0, const struct panel_k *p1,
                            const struct tile_k *x, const int n, __m512 acc[2][TILE_TOKENS])
{
    const __m512 m0 = _mm512_load_ps(p0->dmin), m1 = _mm512_load_ps(p1->dmin);
    __m512i sum[2][TILE_TOKENS];
    for (int t = 0; t < n; t++)
        sum[0][t] = sum[1][t] = _mm512_setzero_si512();
    if (group == 32)
        tile_mins_32_k(p0, p1, x, n, sum);
    else
        tile_mins_16_k(p0, p1, x, n, sum);
    for (int t = 0; t < n; t++) {
        const __m512 da = _mm512_set1_ps(x->d[(size_t)t * x->d_stride]);
        acc[0][t] =
            _mm512_fnmadd_ps(_mm512_mul_ps(m0, da), _mm512_cvtepi32_ps(sum[0][t]), acc[0][t]);
        acc[1][t] =
            _mm512_fnmadd_ps(_mm512_mul_ps(m1, da), _mm512_cvtepi32_ps(sum[1][t]), acc[1][t]);
    }
}

CPU_INLINE void tile_super_k(const int wide, const int group, const int has_min, int zero,
                             const struct panel_k *p0, const struct panel_k *p1,
                             const struct tile_k *x, const int n, __m512 acc[2][TILE_TOKENS])
{
    _Alignas(64) int32_t start[TILE_TOKENS][16];
    __m512i sum[2][TILE_TOKENS];
    for (int t = 0; t < n; t++)
        sum[0][t] = sum[1][t] = _mm512_setzero_si512();
    if (has_min)
        tile_mins_k(group, p0, p1, x, n, acc);
    else
        tile_zeros_k(group, zero, x, n, start);
    tile_dots_k(wide, group, p0, p1, x, has_min ? NULL : start[0], n, sum);
    for (int t = 0; t < n; t++) {
        __m512 da = _mm512_set1_ps(x->d[(size_t)t * x->d_stride]);
        acc[0][t] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(p0->d), da),
                                    _mm512_cvtepi32_ps(sum[0][t]), acc[0][t]);
        acc[1][t] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(p1->d), da),
                                    _mm512_cvtepi32_ps(sum[1][t]), acc[1][t]);
    }
}

/* One pair of panels, all its super-blocks in `panel` (two panels each), times every token. */
struct tile_job_k {
    const struct panel_k *panel;
    uint32_t n_super;
    int first; /* starts y instead of adding to it */
    int zero;  /* the code that means 0, of types without mins */
    uint32_t n_tok;
    __mmask16 m0, m1; /* rows to store of either panel */
    struct tile_k x;  /* of token 0 */
    float *y;
    size_t ys;
};

/* 32 rows x n tokens from t0 on. */
CPU_INLINE void tile_rows_k(const int wide, const int group, const int has_min,
                            const struct tile_job_k *job, uint32_t t0, const int n)
{
    struct tile_k x = job->x;
    const size_t ys = job->ys;
    float *y = job->y + t0 * ys;
    __m512 acc[2][TILE_TOKENS];
    x.q += t0 * x.q_stride;
    x.bsum += t0 * x.bsum_stride;
    x.d += t0 * x.d_stride;
    tile_start(job->first, y, ys, n, job->m0, job->m1, acc);
    for (uint32_t s = 0; s < job->n_super; s++) {
        tile_super_k(wide, group, has_min, job->zero, &job->panel[2 * s], &job->panel[2 * s + 1],
                     &x, n, acc);
        x.q += SUPER;
        x.bsum += 16;
        x.d++;
    }
    tile_store(y, ys, n, job->m0, job->m1, acc);
}

/* Tokens 0 .. n_tok - 1 over a pair of panels. */
CPU_INLINE void tiles_k(const int wide, const int group, const int has_min,
                        const struct tile_job_k *job)
{
    uint32_t t = 0;
    for (; job->n_tok - t >= TILE_TOKENS; t += TILE_TOKENS)
        tile_rows_k(wide, group, has_min, job, t, TILE_TOKENS);
    switch (job->n_tok - t) {
    case 5:
        tile_rows_k(wide, group, has_min, job, t, 5);
        break;
    case 4:
        tile_rows_k(wide, group, has_min, job, t, 4);
        break;
    case 3:
        tile_rows_k(wide, group, has_min, job, t, 3);
        break;
    case 2:
        tile_rows_k(wide, group, has_min, job, t, 2);
        break;
    case 1:
        tile_rows_k(wide, group, has_min, job, t, 1);
        break;
    default:
        break;
    }
}

typedef void tiles_k_fn(const struct tile_job_k *job);

static void tiles_k_16(const struct tile_job_k *job)
{
    tiles_k(0, 16, 0, job);
}

static void tiles_k_16_min(const struct tile_job_k *job)
{
    tiles_k(0, 16, 1, job);
}

static void tiles_k_32_min(const struct tile_job_k *job)
{
    tiles_k(0, 32, 1, job);
}

static void tiles_k_32_wide(const struct tile_job_k *job)
{
    tiles_k(1, 32, 0, job);
}

CPU_INLINE void many_tokens_k(const int type, tiles_k_fn *tiles, const void *w, size_t stride,
                              uint32_t n_rows, const struct cpu_act *x, float *y, size_t ys)
{
    const uint32_t n_super = x->k / SUPER, step = cpu_blocks_of(x).columns / SUPER;
    struct panel_k panel[2 * PANEL_SUPERS];
    for (uint32_t row = 0; row < n_rows; row += PANEL_ROWS) {
        const uint8_t *p[PANEL_ROWS];
        panel_rows(w, stride, n_rows, row, p);
        for (uint32_t s = 0; s < n_super; s += step) {
            const uint32_t n = n_super - s < step ? n_super - s : step;
            const struct tile_job_k job = {panel,
                                           n,
                                           s == 0,
                                           forms_k[type].zero,
                                           x->n_tok,
                                           mask_left(n_rows - row),
                                           n_rows - row > 16 ? mask_left(n_rows - row - 16) : 0,
                                           {x->q + (size_t)s * SUPER, x->bsum + (size_t)s * 16,
                                            x->d + s, x->q_stride, x->bsum_stride, x->d_stride},
                                           y + row,
                                           ys};
            for (uint32_t i = 0; i < n; i++) {
                const size_t at = (size_t)(s + i) * (size_t)forms_k[type].bytes;
                unpack_panel_k(type, p, at, &panel[2 * i]);
                unpack_panel_k(type, p + 16, at, &panel[2 * i + 1]);
            }
            tiles(&job);
        }
    }
}

/* ---------------------------------------------------------------- the slots */

CPU_INLINE void gemm_k(const int type, tiles_k_fn *tiles, const void *w, size_t stride,
                       uint32_t n_rows, const struct cpu_act *x, float *y, size_t ys)
{
    if (x->n_tok >= PANEL_MIN_TOKENS)
        many_tokens_k(type, tiles, w, stride, n_rows, x, y, ys);
    else if (x->n_tok == 1)
        few_tokens_k(type, w, stride, n_rows, x, 1, y, ys);
    else if (x->n_tok == 2)
        few_tokens_k(type, w, stride, n_rows, x, 2, y, ys);
    else if (x->n_tok == 3)
        few_tokens_k(type, w, stride, n_rows, x, 3, y, ys);
}

static void gemm_q2_k_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_k(ATSI_TYPE_Q2_K, tiles_k_16_min, w, stride, n_rows, x, y, ys);
}

static void gemm_q3_k_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_k(ATSI_TYPE_Q3_K, tiles_k_16, w, stride, n_rows, x, y, ys);
}

static void gemm_q4_k_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_k(ATSI_TYPE_Q4_K, tiles_k_32_min, w, stride, n_rows, x, y, ys);
}

static void gemm_q5_k_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_k(ATSI_TYPE_Q5_K, tiles_k_32_min, w, stride, n_rows, x, y, ys);
}

static void gemm_q6_k_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_k(ATSI_TYPE_Q6_K, tiles_k_16, w, stride, n_rows, x, y, ys);
}

static void gemm_iq4_xs_avx512(const void *w, size_t stride, uint32_t n_rows,
                               const struct cpu_act *x, float *y, size_t ys)
{
    gemm_k(ATSI_TYPE_IQ4_XS, tiles_k_32_wide, w, stride, n_rows, x, y, ys);
}

static void fill_gemm_k(cpu_gemm_fn *gemm[])
{
    gemm[ATSI_TYPE_Q2_K] = gemm_q2_k_avx512;
    gemm[ATSI_TYPE_Q3_K] = gemm_q3_k_avx512;
    gemm[ATSI_TYPE_Q4_K] = gemm_q4_k_avx512;
    gemm[ATSI_TYPE_Q5_K] = gemm_q5_k_avx512;
    gemm[ATSI_TYPE_Q6_K] = gemm_q6_k_avx512;
    gemm[ATSI_TYPE_IQ4_XS] = gemm_iq4_xs_avx512;
}

#endif
