/* SPDX-License-Identifier: Apache-2.0
 *
 * Many tokens times super-block weights in panels, by tiles.
 *
 * Sixteen chunks of codes, as a panel is unpacked for cpu_avx512, are one tile of 64 columns x 16
 * rows, and sixteen rows of activations are another as they lie.  Scales would have to be applied
 * to results every 16 or 32 columns; instead they are multiplied into the codes, which is exact:
 *     w = scale * (code - zero), |w| <= 8192    (without a zero: scale * code)
 *     w = 128 * high + low, 0 <= low < 128, |high| <= 64
 * so that two products of bytes give the integer sum of a whole super-block,
 *     isum = 128 * (high . q) + (low . q),
 * in one store.  Mins and the f32 chain are those of cpu_avx512: both plugins give the same bits.
 *
 * Tokens are taken 32 at a time: two tiles of activations, two of weights, four of sums.  What is
 * left below 16 goes through the tiles of cpu_avx512.
 */
#include "kernels.h"
#include "tile_ops.h"

#include "../cpu_avx512/gemm_k.h"
#include "../cpu_avx512/panel_k.h"

#define AMX_TOKENS 16u /* of a tile */
#define AMX_SUPERS 2   /* split at once, at most: two bytes per weight, 32 rows, 32 KiB */

/* One super-block of a panel as two signed bytes per weight: [dword][row][4]. */
struct split_k {
    _Alignas(64) int8_t low[64][16][4];
    int8_t high[64][16][4];
};

static const struct amx_config all_full = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

/* 16-bit products of codes with scales, in even and odd bytes' places. */
CPU_INLINE void split_store(__m512i even, __m512i odd, int8_t *low, int8_t *high)
{
    const __m512i seven = _mm512_set1_epi16(127), byte = _mm512_set1_epi16(255);
    __m512i l = _mm512_or_si512(_mm512_and_si512(even, seven),
                                _mm512_slli_epi16(_mm512_and_si512(odd, seven), 8));
    __m512i h = _mm512_or_si512(_mm512_and_si512(_mm512_srai_epi16(even, 7), byte),
                                _mm512_slli_epi16(_mm512_srai_epi16(odd, 7), 8));
    _mm512_store_si512(low, l);
    _mm512_store_si512(high, h);
}

/* zero: the code that means 0; with mins, which are subtracted apart, it is 0. */
CPU_INLINE void split_panel(int zero, const struct panel_k *p, struct split_k *o)
{
    for (int g = 0; g < 16; g++) {
        const __m512i s32 = _mm512_load_si512(p->scale[g]);
        const __m512i s = word_pair(s32, s32);
        const __m512i less = _mm512_mullo_epi16(s, _mm512_set1_epi16((short)-zero));
        for (int c = 4 * g; c < 4 * g + 4; c++) {
            const __m512i q = _mm512_load_si512(p->q[c]);
            const __m512i even = _mm512_and_si512(q, _mm512_set1_epi16(255));
            split_store(_mm512_add_epi16(_mm512_mullo_epi16(even, s), less),
                        _mm512_add_epi16(_mm512_mullo_epi16(_mm512_srli_epi16(q, 8), s), less),
                        &o->low[c][0][0], &o->high[c][0][0]);
        }
    }
}

/* Sums of a super-block: [low, high of tokens 0..15; low, high of tokens 16..31][token][row]. */
struct sums_k {
    _Alignas(64) int32_t v[4][16][16];
};

/* two: 32 tokens, else 16. */
CPU_INLINE void dot_super(const int two, const struct split_k *w, const int8_t *q, size_t q_stride,
                          struct sums_k *out)
{
    AMX_ZERO(0);
    AMX_ZERO(1);
    if (two) {
        AMX_ZERO(2);
        AMX_ZERO(3);
    }
    for (int k = 0; k < 4; k++) {
        AMX_LOAD(6, w->low[16 * k], 64);
        AMX_LOAD(7, w->high[16 * k], 64);
        AMX_LOAD(4, q + 64 * k, q_stride);
        AMX_DOT(0, 4, 6);
        AMX_DOT(1, 4, 7);
        if (two) {
            AMX_LOAD(5, q + AMX_TOKENS * q_stride + 64 * k, q_stride);
            AMX_DOT(2, 5, 6);
            AMX_DOT(3, 5, 7);
        }
    }
    AMX_STORE(0, out->v[0], 64);
    AMX_STORE(1, out->v[1], 64);
    if (two) {
        AMX_STORE(2, out->v[2], 64);
        AMX_STORE(3, out->v[3], 64);
    }
}

/* The mins' part: eight pairs of sub-blocks times their activations' sums. */
CPU_INLINE __m512i min_sum(const struct panel_k *p, const int16_t *bsum)
{
    __m512i sum = _mm512_setzero_si512();
    for (int j = 0; j < 8; j++)
        sum = dot2(sum, _mm512_load_si512(p->min[j]), broadcast_i32(bsum + 2 * j));
    return sum;
}

/* Adds a super-block's sums to sixteen rows of y, token by token, in the order of
 * tile_super_k(). */
CPU_INLINE void add_super(const int has_min, const struct panel_k *p, const struct sums_k *sums,
                          const struct tile_k *x, int first, uint32_t n_tok, float *y, size_t ys)
{
    const __m512 d = _mm512_load_ps(p->d);
    for (uint32_t t = 0; t < n_tok; t++) {
        const int32_t *low = sums->v[t / AMX_TOKENS * 2][t % AMX_TOKENS];
        const int32_t *high = sums->v[t / AMX_TOKENS * 2 + 1][t % AMX_TOKENS];
        const __m512 da = _mm512_set1_ps(x->d[t * x->d_stride]);
        const __m512i isum =
            _mm512_add_epi32(_mm512_load_si512(low), _mm512_slli_epi32(_mm512_load_si512(high), 7));
        __m512 acc = first ? _mm512_setzero_ps() : _mm512_loadu_ps(y + t * ys);
        if (has_min)
            acc =
                _mm512_fnmadd_ps(_mm512_mul_ps(_mm512_load_ps(p->dmin), da),
                                 _mm512_cvtepi32_ps(min_sum(p, x->bsum + t * x->bsum_stride)), acc);
        acc = _mm512_fmadd_ps(_mm512_mul_ps(d, da), _mm512_cvtepi32_ps(isum), acc);
        _mm512_storeu_ps(y + t * ys, acc);
    }
}

/* 16 or 32 tokens from t0 on times the super-blocks of a job. */
CPU_INLINE void tokens_amx(const int has_min, const struct tile_job_k *job,
                           const struct split_k *split, uint32_t t0, uint32_t n)
{
    struct sums_k sums;
    for (uint32_t s = 0; s < job->n_super; s++) {
        const struct tile_k x = {job->x.q + t0 * job->x.q_stride + (size_t)s * SUPER,
                                 job->x.bsum + t0 * job->x.bsum_stride + (size_t)s * 16,
                                 job->x.d + t0 * job->x.d_stride + s,
                                 job->x.q_stride,
                                 job->x.bsum_stride,
                                 job->x.d_stride};
        for (uint32_t p = 0; p < (job->m1 != 0 ? 2u : 1u); p++) {
            const uint32_t i = 2 * s + p;
            if (n == 2 * AMX_TOKENS)
                dot_super(1, &split[i], x.q, x.q_stride, &sums);
            else
                dot_super(0, &split[i], x.q, x.q_stride, &sums);
            add_super(has_min, &job->panel[i], &sums, &x, job->first && s == 0, n,
                      job->y + t0 * job->ys + (size_t)p * 16, job->ys);
        }
    }
}

/* A tiles_k_fn: whole panels only. */
CPU_INLINE void tiles_amx(const int has_min, tiles_k_fn *rest, const struct tile_job_k *job)
{
    struct split_k split[2 * AMX_SUPERS];
    struct tile_job_k left = *job;
    uint32_t t = 0;
    for (uint32_t i = 0; i < 2 * job->n_super; i++)
        if (job->m1 != 0 || i % 2 == 0)
            split_panel(job->zero, &job->panel[i], &split[i]);
    AMX_CONFIGURE(&all_full);
    for (; job->n_tok - t >= 2 * AMX_TOKENS; t += 2 * AMX_TOKENS)
        tokens_amx(has_min, job, split, t, 2 * AMX_TOKENS);
    for (; job->n_tok - t >= AMX_TOKENS; t += AMX_TOKENS)
        tokens_amx(has_min, job, split, t, AMX_TOKENS);
    AMX_RELEASE();
    left.n_tok -= t;
    left.x.q += t * left.x.q_stride;
    left.x.bsum += t * left.x.bsum_stride;
    left.x.d += t * left.x.d_stride;
    left.y += t * left.ys;
    rest(&left);
}

static void tiles_amx_16(const struct tile_job_k *job)
{
    tiles_amx(0, tiles_k_16, job);
}

static void tiles_amx_16_min(const struct tile_job_k *job)
{
    tiles_amx(1, tiles_k_16_min, job);
}

static void tiles_amx_32_min(const struct tile_job_k *job)
{
    tiles_amx(1, tiles_k_32_min, job);
}

static void tiles_amx_32_wide(const struct tile_job_k *job)
{
    tiles_amx(0, tiles_k_32_wide, job);
}

static void q2_k_amx(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q2_K, tiles_amx_16_min, g);
}

static void q3_k_amx(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q3_K, tiles_amx_16, g);
}

static void q4_k_amx(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q4_K, tiles_amx_32_min, g);
}

static void q5_k_amx(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q5_K, tiles_amx_32_min, g);
}

static void q6_k_amx(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_Q6_K, tiles_amx_16, g);
}

static void iq4_xs_amx(const struct panel_tile *g)
{
    tile_panel_k(ATSI_TYPE_IQ4_XS, tiles_amx_32_wide, g);
}

/* Few tokens as in cpu_avx512. */
static void panel_k_amx(uint32_t type, const void *w, uint32_t n_panels, const struct cpu_act *x,
                        float *y, size_t ys)
{
    static panel_tile_fn *const tile[ATSI_TYPE_COUNT] = {
        [ATSI_TYPE_Q2_K] = q2_k_amx, [ATSI_TYPE_Q3_K] = q3_k_amx, [ATSI_TYPE_Q4_K] = q4_k_amx,
        [ATSI_TYPE_Q5_K] = q5_k_amx, [ATSI_TYPE_Q6_K] = q6_k_amx, [ATSI_TYPE_IQ4_XS] = iq4_xs_amx};
    static cpu_gemm_panel_fn *const few[ATSI_TYPE_COUNT] = {
        [ATSI_TYPE_Q2_K] = panel_q2_k_avx512, [ATSI_TYPE_Q3_K] = panel_q3_k_avx512,
        [ATSI_TYPE_Q4_K] = panel_q4_k_avx512, [ATSI_TYPE_Q5_K] = panel_q5_k_avx512,
        [ATSI_TYPE_Q6_K] = panel_q6_k_avx512, [ATSI_TYPE_IQ4_XS] = panel_iq4_xs_avx512};
    if (x->n_tok < AMX_TOKENS)
        few[type](type, w, n_panels, x, y, ys);
    else
        panel_many_tokens(tile[type], w, (size_t)atsi_panel_bytes(type, x->k), n_panels, SUPER,
                          AMX_SUPERS * SUPER, x, y, ys);
}

void fill_panel_k_amx(struct cpu_kernels *out)
{
    static const uint32_t types[] = {ATSI_TYPE_Q2_K, ATSI_TYPE_Q3_K, ATSI_TYPE_Q4_K,
                                     ATSI_TYPE_Q5_K, ATSI_TYPE_Q6_K, ATSI_TYPE_IQ4_XS};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        out->gemm_panel[types[i]] = panel_k_amx;
}
