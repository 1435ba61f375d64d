/* SPDX-License-Identifier: Apache-2.0
 *
 * Products with weights in blocks of 32, included by a plain and by a VNNI file.
 *
 * For a row and a token, per block: isum = sum (code - zero) * q, an exact integer, then
 *     acc = acc + (d * da) * isum;  acc = acc + m * (da * bsum)        (fused, in f32)
 * Only this float chain is ordered, so tiles of any shape give the same bits.
 */
#ifndef ATSI_CPU_AVX512_GEMM_32_H
#define ATSI_CPU_AVX512_GEMM_32_H

#include "dot.h"
#include "rows.h"
#include "unpack_32.h"

/* ---------------------------------------------------------------- few tokens: four rows at once */

/* The activations of one unit, in the order of the codes; d and the sums spread over lane b = block
 * b. */
struct act_unit {
    __m512i q[2];
    __m512i zero_sum; /* -zero times the block's sum */
    __m512 d, d_sum;  /* d times the block's sum, for mins */
};

CPU_INLINE void act_unit_32(const int type, const int8_t *q, const float *d, const int16_t *bsum,
                            struct act_unit *a)
{
    const struct form_32 *f = &forms_32[type];
    const __m512i spread = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    __m512i lo = _mm512_load_si512(q), hi = _mm512_load_si512(q + 64);
    __m128i s = _mm_load_si128((const __m128i *)(const void *)bsum);
    a->q[0] = f->natural ? lo : _mm512_shuffle_i64x2(lo, hi, 0x88);
    a->q[1] = f->natural ? hi : _mm512_shuffle_i64x2(lo, hi, 0xdd);
    a->d = _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(_mm_load_ps(d)));
    s = _mm_madd_epi16(s, _mm_set1_epi16(f->has_min ? 1 : (short)-f->zero));
    a->zero_sum = _mm512_permutexvar_epi32(spread, _mm512_castsi128_si512(s));
    a->d_sum = _mm512_mul_ps(a->d, _mm512_cvtepi32_ps(a->zero_sum));
}

/* Four partial sums per block of one row, block b in lane b. */
CPU_INLINE __m512i row_dot_32(const int type, const __m512i c[2], const struct act_unit *a)
{
    const int wide = forms_32[type].wide;
    __m512i p = dot4(wide, _mm512_setzero_si512(), c[0], a->q[0]);
    if (forms_32[type].natural) {
        __m512i r = dot4(wide, _mm512_setzero_si512(), c[1], a->q[1]);
        return _mm512_add_epi32(_mm512_shuffle_i64x2(p, r, 0x88), _mm512_shuffle_i64x2(p, r, 0xdd));
    }
    return dot4(wide, p, c[1], a->q[1]);
}

/* acc += lanes of s * v in order, each followed by that of s2 * v2 when there are mins. */
CPU_INLINE __m128 chain_32(const int has_min, __m128 acc, __m512 s, __m512 v, __m512 s2, __m512 v2)
{
    acc = _mm_fmadd_ps(_mm512_castps512_ps128(s), _mm512_castps512_ps128(v), acc);
    if (has_min)
        acc = _mm_fmadd_ps(_mm512_castps512_ps128(s2), _mm512_castps512_ps128(v2), acc);
    acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(s, 1), _mm512_extractf32x4_ps(v, 1), acc);
    if (has_min)
        acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(s2, 1), _mm512_extractf32x4_ps(v2, 1), acc);
    acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(s, 2), _mm512_extractf32x4_ps(v, 2), acc);
    if (has_min)
        acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(s2, 2), _mm512_extractf32x4_ps(v2, 2), acc);
    acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(s, 3), _mm512_extractf32x4_ps(v, 3), acc);
    if (has_min)
        acc = _mm_fmadd_ps(_mm512_extractf32x4_ps(s2, 3), _mm512_extractf32x4_ps(v2, 3), acc);
    return acc;
}

/* One unit of four rows times n tokens. */
CPU_INLINE void unit_32(const int type, const uint8_t *const p[4], const struct act_unit *a,
                        const int n, __m128 acc[])
{
    const struct form_32 *f = &forms_32[type];
    __m512i c[4][2];
    __m512 d, m;
    for (int r = 0; r < 4; r++)
        codes_32(type, p[r], c[r]);
    scales_32(type, p, &d, &m);
    for (int t = 0; t < n; t++) {
        __m512i i = sum_lanes_4(row_dot_32(type, c[0], &a[t]), row_dot_32(type, c[1], &a[t]),
                                row_dot_32(type, c[2], &a[t]), row_dot_32(type, c[3], &a[t]));
        if (f->zero != 0)
            i = _mm512_add_epi32(i, a[t].zero_sum);
        acc[t] = chain_32(f->has_min, acc[t], _mm512_mul_ps(d, a[t].d), _mm512_cvtepi32_ps(i), m,
                          a[t].d_sum);
    }
}

/* The row's last n_blocks < 4 blocks, copied behind which zeros make a whole unit: their scales are
 * zero on both sides, so the chain gains exact zeros. */
CPU_INLINE void tail_unit_32(const int type, const uint8_t *const w[4], const struct cpu_act *x,
                             const int n, uint32_t n_blocks, __m128 acc[])
{
    const size_t bytes = (size_t)forms_32[type].bytes, at = x->k / 32 - n_blocks;
    uint8_t rows[4][UNIT_MAX_BYTES];
    const uint8_t *const p[4] = {rows[0], rows[1], rows[2], rows[3]};
    struct act_unit a[FEW_TOKENS];
    __builtin_memset(rows, 0, sizeof rows);
    for (int r = 0; r < 4; r++)
        __builtin_memcpy(rows[r], w[r] + at * bytes, n_blocks * bytes);
    for (int t = 0; t < n; t++) {
        _Alignas(64) int8_t q[UNIT_ELEMS] = {0};
        _Alignas(64) float d[UNIT_BLOCKS] = {0};
        _Alignas(64) int16_t bsum[2 * UNIT_BLOCKS] = {0};
        const size_t tok = (size_t)t;
        __builtin_memcpy(q, x->q + tok * x->q_stride + at * 32, (size_t)n_blocks * 32);
        __builtin_memcpy(d, x->d + tok * x->d_stride + at, n_blocks * sizeof(float));
        __builtin_memcpy(bsum, x->bsum + tok * x->bsum_stride + at * 2,
                         n_blocks * 2 * sizeof *bsum);
        act_unit_32(type, q, d, bsum, &a[t]);
    }
    unit_32(type, p, a, n, acc);
}

/* Four rows times n <= FEW_TOKENS tokens. */
CPU_INLINE void four_rows_32(const int type, const uint8_t *const w[4], const struct cpu_act *x,
                             const int n, __m128 acc[])
{
    const int bytes = forms_32[type].bytes;
    const uint32_t n_blocks = x->k / 32, n_unit = n_blocks / UNIT_BLOCKS;
    for (int t = 0; t < n; t++)
        acc[t] = _mm_setzero_ps();
    for (uint32_t u = 0; u < n_unit; u++) {
        const size_t at = (size_t)u * UNIT_BLOCKS * (size_t)bytes;
        const uint8_t *const p[4] = {w[0] + at, w[1] + at, w[2] + at, w[3] + at};
        struct act_unit a[FEW_TOKENS];
        prefetch_four(p, 0, UNIT_BLOCKS * bytes);
        for (int t = 0; t < n; t++) {
            const size_t tok = (size_t)t;
            act_unit_32(type, x->q + tok * x->q_stride + (size_t)u * UNIT_ELEMS,
                        x->d + tok * x->d_stride + (size_t)u * UNIT_BLOCKS,
                        x->bsum + tok * x->bsum_stride + (size_t)u * 2 * UNIT_BLOCKS, &a[t]);
        }
        unit_32(type, p, a, n, acc);
    }
    if (n_blocks % UNIT_BLOCKS != 0)
        tail_unit_32(type, w, x, n, n_blocks % UNIT_BLOCKS, acc);
}

CPU_INLINE void few_tokens_32(const int type, const void *w, size_t stride, uint32_t n_rows,
                              const struct cpu_act *x, const int n, float *y, size_t ys)
{
    for (uint32_t i = 0; i < (n_rows + 3) / 4; i++) {
        struct four_rows g;
        __m128 acc[FEW_TOKENS];
        four_rows_at(w, stride, n_rows, i, &g);
        four_rows_32(type, g.w, x, n, acc);
        for (int t = 0; t < n; t++)
            store_four(&g, acc[t], y + (size_t)t * ys);
    }
}

/* ---------------------------------------------------------------- many tokens: panels of 16 rows
 */

/* Columns unpacked at once, at most (else as blocks.c says): the sums of their blocks are a
 * register.
 */
#define PANEL_COLUMNS_32 512u
#define PANEL_UNITS (PANEL_COLUMNS_32 / UNIT_ELEMS)

/* One unit of 16 rows; the lane is the row throughout. */
struct panel_32 {
    _Alignas(64) uint8_t q[32][16][4]; /* codes of elements 4c .. 4c + 3 */
    float d[4][16], m[4][16];          /* [block] */
};

/* The unit at w + at of 16 rows, n_blocks of it there. */
CPU_INLINE void unpack_panel_32(const int type, const uint8_t *const w[16], size_t at,
                                uint32_t n_blocks, struct panel_32 *o)
{
    static const uint8_t natural[2][4] = {{0, 1, 2, 3}, {4, 5, 6, 7}};
    static const uint8_t nibbles[2][4] = {{0, 2, 4, 6}, {1, 3, 5, 7}};
    const struct form_32 *f = &forms_32[type];
    _Alignas(64) uint8_t rows[16][UNIT_ELEMS];
    uint8_t copy[4][UNIT_MAX_BYTES];
    __m512 d[4], m[4];
    if (n_blocks < UNIT_BLOCKS)
        __builtin_memset(copy, 0, sizeof copy);
    for (int r = 0; r < 16; r += 4) {
        const uint8_t *p[4];
        for (int i = 0; i < 4; i++) {
            __m512i c[2];
            p[i] = w[r + i] + at;
            if (n_blocks < UNIT_BLOCKS) {
                __builtin_memcpy(copy[i], p[i], n_blocks * (size_t)f->bytes);
                p[i] = copy[i];
            }
            codes_32(type, p[i], c);
            _mm512_store_si512(rows[r + i], c[0]);
            _mm512_store_si512(rows[r + i] + 64, c[1]);
        }
        scales_32(type, p, &d[r / 4], &m[r / 4]);
    }
    for (int u = 0; u < 2; u++)
        interleave_16(rows[0] + 64 * u, UNIT_ELEMS, f->natural ? natural[u] : nibbles[u], o->q);
    transpose_quads_4(d);
    for (int b = 0; b < 4; b++)
        _mm512_store_ps(o->d[b], d[b]);
    if (f->has_min) {
        transpose_quads_4(m);
        for (int b = 0; b < 4; b++)
            _mm512_store_ps(o->m[b], m[b]);
    }
}

/* One pair of panels, all its units in `panel` (two panels each), times every token. */
struct tile_job_32 {
    const struct panel_32 *panel;
    uint32_t n_blocks; /* <= 16 */
    int first;         /* starts y instead of adding to it */
    int zero;
    __mmask16 m0, m1; /* rows to store of either panel */
    const struct cpu_act *x;
    uint32_t block; /* of the activation rows, first of this job */
    float *y;
    size_t ys;
};

/* dot[.][t] = sum code * q of block b of the job, from -zero * bsum on. */
CPU_INLINE void tile_dots_32(const int wide, const struct panel_32 *p, uint32_t b, const int8_t *q,
                             size_t q_stride, const int32_t *sum, const int n,
                             __m512i dot[2][TILE_TOKENS])
{
    const uint32_t c0 = b % 4 * 8;
    for (int t = 0; t < n; t++)
        dot[0][t] = dot[1][t] = _mm512_set1_epi32(sum[16 * t]);
    for (uint32_t c = 0; c < 8; c++) {
        __m512i w0 = _mm512_load_si512(p[0].q[c0 + c]), w1 = _mm512_load_si512(p[1].q[c0 + c]);
        for (int t = 0; t < n; t++) {
            __m512i a = broadcast_i32(q + (size_t)t * q_stride + 4 * c);
            dot[0][t] = dot4(wide, dot[0][t], w0, a);
            dot[1][t] = dot4(wide, dot[1][t], w1, a);
        }
    }
}

/* -zero times the sum of each of the job's blocks of token t; with mins, d times the sum too. */
CPU_INLINE void block_sums_32(const int has_min, const struct tile_job_32 *job, size_t t,
                              int32_t zero_sum[16], float d_sum[16])
{
    const struct cpu_act *x = job->x;
    const __mmask16 have = mask_left(job->n_blocks);
    __m512i s =
        _mm512_maskz_loadu_epi32(have, x->bsum + t * x->bsum_stride + 2 * (size_t)job->block);
    _mm512_store_si512(zero_sum, _mm512_madd_epi16(s, _mm512_set1_epi16((short)-job->zero)));
    if (has_min) {
        __m512 d = _mm512_maskz_loadu_ps(have, x->d + t * x->d_stride + job->block);
        s = _mm512_madd_epi16(s, _mm512_set1_epi16(1));
        _mm512_store_ps(d_sum, _mm512_mul_ps(d, _mm512_cvtepi32_ps(s)));
    }
}

/* acc = acc + (d * da) * dot, for both panels and all tokens; da: one float per token. */
CPU_INLINE void tile_scale_32(const float *d0, const float *d1, const float *da, size_t da_stride,
                              const int n, __m512i dot[2][TILE_TOKENS], __m512 acc[2][TILE_TOKENS])
{
    const __m512 v0 = _mm512_load_ps(d0), v1 = _mm512_load_ps(d1);
    for (int t = 0; t < n; t++) {
        const __m512 a = _mm512_set1_ps(da[(size_t)t * da_stride]);
        acc[0][t] = _mm512_fmadd_ps(_mm512_mul_ps(v0, a), _mm512_cvtepi32_ps(dot[0][t]), acc[0][t]);
        acc[1][t] = _mm512_fmadd_ps(_mm512_mul_ps(v1, a), _mm512_cvtepi32_ps(dot[1][t]), acc[1][t]);
    }
}

/* acc = acc + m * (da * bsum) */
CPU_INLINE void tile_min_32(const float *m0, const float *m1, const float *d_sum, const int n,
                            __m512 acc[2][TILE_TOKENS])
{
    const __m512 v0 = _mm512_load_ps(m0), v1 = _mm512_load_ps(m1);
    for (int t = 0; t < n; t++) {
        const __m512 s = _mm512_set1_ps(d_sum[16 * t]);
        acc[0][t] = _mm512_fmadd_ps(v0, s, acc[0][t]);
        acc[1][t] = _mm512_fmadd_ps(v1, s, acc[1][t]);
    }
}

/* 32 rows x n tokens from t0 on. */
CPU_INLINE void tile_rows_32(const int wide, const int has_min, const struct tile_job_32 *job,
                             uint32_t t0, const int n)
{
    const struct cpu_act *x = job->x;
    const int8_t *q = x->q + t0 * x->q_stride + (size_t)job->block * 32;
    const float *d = x->d + t0 * x->d_stride + job->block;
    float *y = job->y + t0 * job->ys;
    _Alignas(64) int32_t zero_sum[TILE_TOKENS][16];
    _Alignas(64) float d_sum[TILE_TOKENS][16];
    __m512 acc[2][TILE_TOKENS];
    for (int t = 0; t < n; t++)
        block_sums_32(has_min, job, t0 + (size_t)t, zero_sum[t], d_sum[t]);
    tile_start(job->first, y, job->ys, n, job->m0, job->m1, acc);
    for (uint32_t b = 0; b < job->n_blocks; b++) {
        const struct panel_32 *p = &job->panel[b / 4 * 2];
        __m512i dot[2][TILE_TOKENS];
        tile_dots_32(wide, p, b, q + (size_t)b * 32, x->q_stride, &zero_sum[0][b], n, dot);
        tile_scale_32(p[0].d[b % 4], p[1].d[b % 4], d + b, x->d_stride, n, dot, acc);
        if (has_min)
            tile_min_32(p[0].m[b % 4], p[1].m[b % 4], &d_sum[0][b], n, acc);
    }
    tile_store(y, job->ys, n, job->m0, job->m1, acc);
}

CPU_INLINE void tiles_32(const int wide, const int has_min, const struct tile_job_32 *job)
{
    const uint32_t n_tok = job->x->n_tok;
    uint32_t t = 0;
    for (; n_tok - t >= TILE_TOKENS; t += TILE_TOKENS)
        tile_rows_32(wide, has_min, job, t, TILE_TOKENS);
    switch (n_tok - t) {
    case 5:
        tile_rows_32(wide, has_min, job, t, 5);
        break;
    case 4:
        tile_rows_32(wide, has_min, job, t, 4);
        break;
    case 3:
        tile_rows_32(wide, has_min, job, t, 3);
        break;
    case 2:
        tile_rows_32(wide, has_min, job, t, 2);
        break;
    case 1:
        tile_rows_32(wide, has_min, job, t, 1);
        break;
    default:
        break;
    }
}

typedef void tiles_32_fn(const struct tile_job_32 *job);

static void tiles_32_plain(const struct tile_job_32 *job)
{
    tiles_32(0, 0, job);
}

static void tiles_32_min(const struct tile_job_32 *job)
{
    tiles_32(0, 1, job);
}

static void tiles_32_wide(const struct tile_job_32 *job)
{
    tiles_32(1, 0, job);
}

CPU_INLINE void many_tokens_32(const int type, tiles_32_fn *tiles, const void *w, size_t stride,
                               uint32_t n_rows, const struct cpu_act *x, float *y, size_t ys)
{
    const uint32_t n_blocks = x->k / 32, columns = cpu_blocks_of(x).columns;
    const uint32_t step = (columns < PANEL_COLUMNS_32 ? columns : PANEL_COLUMNS_32) / 32;
    struct panel_32 panel[2 * PANEL_UNITS];
    for (uint32_t row = 0; row < n_rows; row += PANEL_ROWS) {
        const uint8_t *p[PANEL_ROWS];
        panel_rows(w, stride, n_rows, row, p);
        for (uint32_t b = 0; b < n_blocks; b += step) {
            const uint32_t n = n_blocks - b < step ? n_blocks - b : step;
            const struct tile_job_32 job = {panel,
                                            n,
                                            b == 0,
                                            forms_32[type].zero,
                                            mask_left(n_rows - row),
                                            n_rows - row > 16 ? mask_left(n_rows - row - 16) : 0,
                                            x,
                                            b,
                                            y + row,
                                            ys};
            for (uint32_t i = 0; i < n; i += UNIT_BLOCKS) {
                const size_t at = (size_t)(b + i) * (size_t)forms_32[type].bytes;
                unpack_panel_32(type, p, at, n - i, &panel[i / 2]);
                unpack_panel_32(type, p + 16, at, n - i, &panel[i / 2 + 1]);
            }
            tiles(&job);
        }
    }
}

/* ---------------------------------------------------------------- the slots */

CPU_INLINE void gemm_32(const int type, tiles_32_fn *tiles, const void *w, size_t stride,
                        uint32_t n_rows, const struct cpu_act *x, float *y, size_t ys)
{
    if (x->n_tok >= PANEL_MIN_TOKENS)
        many_tokens_32(type, tiles, w, stride, n_rows, x, y, ys);
    else if (x->n_tok == 1)
        few_tokens_32(type, w, stride, n_rows, x, 1, y, ys);
    else if (x->n_tok == 2)
        few_tokens_32(type, w, stride, n_rows, x, 2, y, ys);
    else if (x->n_tok == 3)
        few_tokens_32(type, w, stride, n_rows, x, 3, y, ys);
}

static void gemm_q4_0_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_Q4_0, tiles_32_plain, w, stride, n_rows, x, y, ys);
}

static void gemm_q4_1_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_Q4_1, tiles_32_min, w, stride, n_rows, x, y, ys);
}

static void gemm_q5_0_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_Q5_0, tiles_32_plain, w, stride, n_rows, x, y, ys);
}

static void gemm_q5_1_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_Q5_1, tiles_32_min, w, stride, n_rows, x, y, ys);
}

static void gemm_q8_0_avx512(const void *w, size_t stride, uint32_t n_rows, const struct cpu_act *x,
                             float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_Q8_0, tiles_32_wide, w, stride, n_rows, x, y, ys);
}

static void gemm_iq4_nl_avx512(const void *w, size_t stride, uint32_t n_rows,
                               const struct cpu_act *x, float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_IQ4_NL, tiles_32_wide, w, stride, n_rows, x, y, ys);
}

static void gemm_mxfp4_avx512(const void *w, size_t stride, uint32_t n_rows,
                              const struct cpu_act *x, float *y, size_t ys)
{
    gemm_32(ATSI_TYPE_MXFP4, tiles_32_plain, w, stride, n_rows, x, y, ys);
}

static void fill_gemm_32(cpu_gemm_fn *gemm[])
{
    gemm[ATSI_TYPE_Q4_0] = gemm_q4_0_avx512;
    gemm[ATSI_TYPE_Q4_1] = gemm_q4_1_avx512;
    gemm[ATSI_TYPE_Q5_0] = gemm_q5_0_avx512;
    gemm[ATSI_TYPE_Q5_1] = gemm_q5_1_avx512;
    gemm[ATSI_TYPE_Q8_0] = gemm_q8_0_avx512;
    gemm[ATSI_TYPE_IQ4_NL] = gemm_iq4_nl_avx512;
    gemm[ATSI_TYPE_MXFP4] = gemm_mxfp4_avx512;
}

#endif
