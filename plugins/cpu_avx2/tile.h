/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill skeleton: up to 32 tokens at once, lane = token.
 *
 * A chunk of 256 elements of up to 32 activation rows is repacked so that four elements of eight
 * neighbouring tokens fill a vector (struct act_tile); the same chunk of one weight row is opened
 * once (struct row_chunk) and its dwords are broadcast against it.  So integer sums need no
 * addition across lanes, products are added in i16 as long as they fit, and scales are applied to
 * eight tokens at a time.  Results wait in f32 between chunks, for up to 64 rows; the float chain
 * is that of gemv.h.
 *
 * Per call a worker keeps about 27 KiB on its stack; there is no other memory.
 */
#ifndef CPU_AVX2_TILE_H
#define CPU_AVX2_TILE_H

#include "dot.h"
#include "gemv.h"
#include "unpack.h"

enum {
    TILE_TOKENS = 32, /* four vectors */
    TILE_ROWS = 64,
    TILE_ELEMS = 256,
    /* Fewer tokens are cheaper one by one (measured); i16 weights cost the tile twice as much. */
    TILE_MIN_TOKENS = 5,
    TILE_MIN_TOKENS_WIDE = 7
};

/* Activations of one chunk.  Tokens that are not there are zero. */
struct act_tile {
    union { /* bytes 4c..4c+3 of every token; or, for signed weights, i16 2c and 2c+1 */
        _Alignas(64) int8_t q8[TILE_ELEMS / 4][TILE_TOKENS][4];
        int16_t q16[TILE_ELEMS / 2][TILE_TOKENS][2];
    };
    int16_t bsum[TILE_ELEMS / 32][TILE_TOKENS][2]; /* sums of the two halves of each 32 */
    float d[TILE_ELEMS / 32][TILE_TOKENS];         /* per 32; per 256: d[0] */
};

/* One weight row of a chunk. */
struct row_chunk {
    union {
        _Alignas(32) uint8_t q8[TILE_ELEMS];
        int16_t q16[TILE_ELEMS]; /* signed types; times the scale for types with blocks of 256 */
    };
    /* 256: scale of group 2j, of group 2j + 1, mins of both (i16 pairs, as madd takes them) */
    _Alignas(32) int32_t s_even[8], s_odd[8], mins[8];
    _Alignas(32) float d[8], m[8]; /* 32: per block; 256: d[0] and dmin in m[0] */
};

/* What tiles read of a weight row of a chunk: dwords q_step bytes apart; steps of the others in
 * elements. */
struct row_view {
    const uint8_t *q;
    size_t q_step;
    const int32_t *s_even, *s_odd, *mins;
    const float *d, *m;
    size_t step;
};

/* ---------------------------------------------------------------- activations */
/* Dwords 8i..8i+7 (of which `valid`) of eight rows `stride` bytes apart, n of which are there, to
 * out[dword][token]; `wide`: bytes become i16 on the way, eight dwords from sixteen bytes. */
CPU_INLINE void pack_dwords(const void *rows, size_t stride, uint32_t n, uint32_t valid, bool wide,
                            void *out)
{
    const uint8_t *p = rows;
    uint8_t *o = out;
    __m256i v[8];
    for (uint32_t t = 0; t < 8; t++) {
        if (t >= n)
            v[t] = _mm256_setzero_si256();
        else if (wide)
            v[t] = _mm256_cvtepi8_epi16(load128(p + t * stride));
        else
            v[t] = _mm256_maskload_epi32((const int *)(const void *)(p + t * stride),
                                         lane_mask(valid));
    }
    transpose8(v);
    for (size_t i = 0; i < valid; i++)
        store256(o + i * sizeof(int32_t) * TILE_TOKENS, v[i]);
}

/* Tokens t0 .. t0+n-1 (n <= 32), elements k0 .. k0+elems-1 (elems <= 256, a multiple of 32). */
CPU_INLINE void pack_tile(const struct cpu_act *x, uint32_t t0, uint32_t n, uint32_t k0,
                          uint32_t elems, bool wide, struct act_tile *a)
{
    for (uint32_t v = 0; v < n; v += 8) {
        const uint32_t left = n - v < 8 ? n - v : 8, t = t0 + v;
        const int8_t *q = x->q + t * x->q_stride + k0;
        for (uint32_t e = 0; e < elems; e += wide ? 16 : 32) {
            void *out = wide ? (void *)a->q16[e / 2][v] : (void *)a->q8[e / 4][v];
            pack_dwords(q + e, x->q_stride, left, 8, wide, out);
        }
        pack_dwords(x->bsum + t * x->bsum_stride + k0 / 16, x->bsum_stride * sizeof(int16_t), left,
                    elems / 32, false, a->bsum[0][v]);
        const uint32_t nd = x->block == 32 ? elems / 32 : 1;
        pack_dwords(x->d + t * x->d_stride + k0 / x->block, x->d_stride * sizeof(float), left, nd,
                    false, &a->d[0][v]);
    }
}

/* ---------------------------------------------------------------- weights */
CPU_INLINE void store_wide(int16_t *out, __m256i q)
{
    store256(out, _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q)));
    store256(out + 16, _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1)));
}

CPU_INLINE void open32(const struct type32 *type, const uint8_t *w, uint32_t nb,
                       struct row_chunk *c)
{
    const uint8_t *b[8];
    for (uint32_t i = 0; i < 8; i++) {
        b[i] = w + (i < nb ? i : nb - 1) * type->bytes;
        if (type->is_signed)
            store_wide(c->q16 + (size_t)32 * i, type->vec(b[i]));
        else
            store256(c->q8 + (size_t)32 * i, type->vec(b[i]));
    }
    _mm256_store_ps(c->d, type->d(b));
    if (type->has_min)
        _mm256_store_ps(c->m, type->m(b));
}

/* i16 lanes (a | b) -> dwords (x, x): first dwords of both halves, then the rest. */
CPU_INLINE void store_scales(struct row_chunk *c, __m256i s)
{
    __m256i lo = _mm256_unpacklo_epi16(s, s), hi = _mm256_unpackhi_epi16(s, s);
    store256(c->s_even, _mm256_permute2x128_si256(lo, hi, 0x20));
    store256(c->s_odd, _mm256_permute2x128_si256(lo, hi, 0x31));
}

CPU_INLINE void open256(const struct type256 *type, const uint8_t *w, struct row_chunk *c)
{
    __m256i s, m;
    type->scale(w, &s, &m);
    for (int j = 0; j < 8; j++) {
        __m256i q = type->vec(w, j);
        if (!type->is_signed) {
            store256(c->q8 + 32 * j, q);
            continue;
        }
        /* |scale * quant| <= 32 * 127 is a 16-bit weight; scales of both halves are equal */
        __m256i sc = _mm256_shuffle_epi8(s, _mm256_set1_epi16((short)(2 * j + 256 * (2 * j + 1))));
        __m256i lo = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(q));
        __m256i hi = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(q, 1));
        store256(c->q16 + 32 * j, _mm256_mullo_epi16(lo, sc));
        store256(c->q16 + 32 * j + 16, _mm256_mullo_epi16(hi, sc));
    }
    store_scales(c, s);
    store256(c->mins, m);
    c->d[0] = f16_at(w + type->d_at);
    if (type->has_min)
        c->m[0] = f16_at(w + type->dmin_at);
}

/* ---------------------------------------------------------------- products */
CPU_INLINE struct row_view view_row(const struct row_chunk *c)
{
    const struct row_view w = {c->q8, 4, c->s_even, c->s_odd, c->mins, c->d, c->m, 1};
    return w;
}

/* sum[v] += scale * products of 4 * n elements, for nv vectors of tokens; runs of `run` dwords are
 * added in i16.  scale may be NULL. */
CPU_INLINE void mul_u8(const uint8_t *w, size_t step, const int8_t (*a)[TILE_TOKENS][4], int n,
                       int run, int nv, const __m256i *scale, __m256i sum[4])
{
    for (int i = 0; i < n; i += run) {
        __m256i p[4];
        for (int c = i; c < i + run; c++) {
            const __m256i q = _mm256_set1_epi32((int)load_u32(w + step * (size_t)c));
            for (int v = 0; v < nv; v++)
                p[v] = part_add(c == i, p[v], q,
                                _mm256_load_si256((const __m256i *)(const void *)a[c][8 * v]));
        }
        for (int v = 0; v < nv; v++)
            sum[v] =
                scale != NULL ? scale_add(sum[v], p[v], *scale, 0) : widen_add(false, sum[v], p[v]);
    }
}

/* sum[v] += products of 2 * n elements. */
CPU_INLINE void mul_i16(const uint8_t *w, size_t step, const int16_t (*a)[TILE_TOKENS][2], int n,
                        int nv, __m256i sum[4])
{
    for (int c = 0; c < n; c++) {
        const __m256i q = _mm256_set1_epi32((int)load_u32(w + step * (size_t)c));
        for (int v = 0; v < nv; v++) {
            __m256i t =
                _mm256_madd_epi16(q, _mm256_load_si256((const __m256i *)(const void *)a[c][8 * v]));
            sum[v] = in_order(_mm256_add_epi32(sum[v], t));
        }
    }
}

CPU_INLINE __m256i bsum_at(const struct act_tile *a, int i, int v)
{
    return _mm256_load_si256((const __m256i *)(const void *)a->bsum[i][8 * v]);
}

/* acc[8 nv] of one row goes on over nb blocks. */
CPU_INLINE void tile32(const struct type32 *type, const struct row_view *w,
                       const struct act_tile *a, int nb, int nv, float *acc)
{
    const size_t step = w->q_step;
    const __m256i one = _mm256_set1_epi16(1);
    __m256 y[4];
    for (int v = 0; v < nv; v++)
        y[v] = _mm256_load_ps(acc + 8 * v);
    for (int i = 0; i < nb; i++) {
        __m256i s[4];
        for (int v = 0; v < nv; v++)
            s[v] = type->zero == 0 ? _mm256_setzero_si256()
                                   : _mm256_madd_epi16(bsum_at(a, i, v),
                                                       _mm256_set1_epi16((short)(-type->zero)));
        if (type->is_signed)
            mul_i16(w->q + 16 * step * (size_t)i, step, a->q16 + 16 * i, 16, nv, s);
        else
            mul_u8(w->q + 8 * step * (size_t)i, step, a->q8 + 8 * i, 8, type->run, nv, NULL, s);
        const __m256 d = _mm256_set1_ps(w->d[w->step * (size_t)i]);
        const __m256 m = _mm256_set1_ps(type->has_min ? w->m[w->step * (size_t)i] : 0);
        for (int v = 0; v < nv; v++) {
            __m256 da = _mm256_load_ps(&a->d[i][8 * v]);
            y[v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[v]), _mm256_mul_ps(d, da), y[v]);
            if (type->has_min)
                y[v] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_madd_epi16(bsum_at(a, i, v), one)),
                                       _mm256_mul_ps(m, da), y[v]);
        }
    }
    for (int v = 0; v < nv; v++)
        _mm256_store_ps(acc + 8 * v, y[v]);
}

/* acc[8 nv] of one row goes on over one block. */
CPU_INLINE void tile256(const struct type256 *type, const struct row_view *w,
                        const struct act_tile *a, int nv, float *acc)
{
    const size_t step = w->q_step;
    __m256i s[4], m[4];
    for (int v = 0; v < nv; v++)
        s[v] = m[v] = _mm256_setzero_si256();
    if (type->is_signed)
        mul_i16(w->q, step, a->q16, TILE_ELEMS / 2, nv, s);
    for (int j = 0; j < 8 && !type->is_signed; j++) {
        const uint8_t *q = w->q + 8 * step * (size_t)j;
        const __m256i even = _mm256_set1_epi32(w->s_even[w->step * (size_t)j]);
        const int n = type->group / 4;
        mul_u8(q, step, a->q8 + 8 * j, n, type->run, nv, &even, s);
        if (n == 4) {
            const __m256i odd = _mm256_set1_epi32(w->s_odd[w->step * (size_t)j]);
            mul_u8(q + 4 * step, step, a->q8 + 8 * j + 4, n, type->run, nv, &odd, s);
        }
    }
    for (int j = 0; j < 8 && !type->is_signed; j++) {
        const __m256i mins = _mm256_set1_epi32(w->mins[w->step * (size_t)j]);
        for (int v = 0; v < nv; v++)
            m[v] = in_order(_mm256_add_epi32(m[v], _mm256_madd_epi16(mins, bsum_at(a, j, v))));
    }
    const __m256 d = _mm256_set1_ps(w->d[0]), dmin = _mm256_set1_ps(type->has_min ? w->m[0] : 0);
    for (int v = 0; v < nv; v++) {
        __m256 y = _mm256_load_ps(acc + 8 * v), da = _mm256_load_ps(&a->d[0][8 * v]);
        if (!type->has_min)
            s[v] = _mm256_add_epi32(s[v], m[v]);
        y = _mm256_fmadd_ps(_mm256_cvtepi32_ps(s[v]), _mm256_mul_ps(d, da), y);
        if (type->has_min)
            y = _mm256_fnmadd_ps(_mm256_cvtepi32_ps(m[v]), _mm256_mul_ps(dmin, da), y);
        _mm256_store_ps(acc + 8 * v, y);
    }
}

/* ---------------------------------------------------------------- driver */
/* Rows w[0..n_rows) of one chunk against one activation tile. */
CPU_INLINE void tile_rows(const struct type32 *t32, const struct type256 *t256, const uint8_t *w,
                          size_t w_stride, uint32_t n_rows, const struct act_tile *a, int nb,
                          int nv, float (*acc)[TILE_TOKENS])
{
    struct row_chunk c;
    const struct row_view view = view_row(&c);
    for (uint32_t r = 0; r < n_rows; r++) {
        const uint8_t *p = w + r * w_stride;
        const size_t bytes = t32 != NULL ? (size_t)nb * t32->bytes : t256->bytes;
        for (size_t o = 0; o < bytes; o += 64) /* this row's next chunk */
            prefetch(p + bytes + o);
        if (t32 != NULL) {
            open32(t32, p, (uint32_t)nb, &c);
            tile32(t32, &view, a, nb, nv, acc[r]);
        } else {
            open256(t256, p, &c);
            tile256(t256, &view, a, nv, acc[r]);
        }
    }
}

/* n_rows <= 64 rows times n <= 32 tokens from t0. */
CPU_INLINE void tile_block(const struct type32 *t32, const struct type256 *t256, const uint8_t *w,
                           size_t w_stride, uint32_t n_rows, const struct cpu_act *x, uint32_t t0,
                           uint32_t n, float *y, size_t y_stride)
{
    _Alignas(64) float acc[TILE_ROWS][TILE_TOKENS];
    struct act_tile a;
    const bool wide = t32 != NULL ? t32->is_signed : t256->is_signed;
    memset(acc, 0, n_rows * sizeof acc[0]);
    for (uint32_t k0 = 0; k0 < x->k; k0 += TILE_ELEMS) {
        const uint32_t elems = x->k - k0 < TILE_ELEMS ? x->k - k0 : TILE_ELEMS;
        const int nb = (int)(elems / 32);
        const uint8_t *p = w + (t32 != NULL ? k0 / 32 * t32->bytes : k0 / TILE_ELEMS * t256->bytes);
        pack_tile(x, t0, n, k0, elems, wide, &a);
        switch ((n + 7) / 8) {
        case 1:
            tile_rows(t32, t256, p, w_stride, n_rows, &a, nb, 1, acc);
            break;
        case 2:
            tile_rows(t32, t256, p, w_stride, n_rows, &a, nb, 2, acc);
            break;
        case 3:
            tile_rows(t32, t256, p, w_stride, n_rows, &a, nb, 3, acc);
            break;
        default:
            tile_rows(t32, t256, p, w_stride, n_rows, &a, nb, 4, acc);
            break;
        }
    }
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t r = 0; r < n_rows; r++)
            y[(t0 + t) * y_stride + r] = acc[r][t];
}

/* The product of a quantized type.  One of t32 and t256 is NULL. */
CPU_INLINE void gemm_quant(const struct type32 *t32, const struct type256 *t256, const void *w,
                           size_t w_stride, uint32_t n_rows, const struct cpu_act *x, float *y,
                           size_t y_stride)
{
    const bool wide = t32 != NULL ? t32->is_signed : t256->is_signed;
    if (x->n_tok < (wide ? TILE_MIN_TOKENS_WIDE : TILE_MIN_TOKENS)) {
        gemv_all(t32, t256, w, w_stride, n_rows, x, y, y_stride);
        return;
    }
    for (uint32_t r = 0; r < n_rows; r += TILE_ROWS) {
        const uint32_t nr = n_rows - r < TILE_ROWS ? n_rows - r : TILE_ROWS;
        for (uint32_t t = 0; t < x->n_tok; t += TILE_TOKENS) {
            const uint32_t n = x->n_tok - t < TILE_TOKENS ? x->n_tok - t : TILE_TOKENS;
            tile_block(t32, t256, (const uint8_t *)w + r * w_stride, w_stride, nr, x, t, n, y + r,
                       y_stride);
        }
    }
}

#endif
