/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products with F32, F16 and BF16 weights and f32 activations.
 *
 * The float chain of one (row, token): eight lanes, lane j adds the products of elements j, j + 8,
 * ... in order (fused), then sum8_f32.  Every tile shape keeps it, so results agree bit for bit
 * however rows and tokens are cut.
 */
#include "kernels.h"
#include "simd.h"

enum {
    STREAM_ROWS = 8,     /* decode: rows read at once, far apart */
    STREAM_AHEAD = 1024, /* bytes each is fetched ahead */
    BLOCK_ROWS = 16, /* prefill: rows and tokens whose lane sums wait on the stack (12 KiB) ... */
    BLOCK_TOKENS = 24,
    BLOCK_ELEMS = 512, /* ... while this many elements of each are in L1 */
    TILE_R = 4,        /* rows x tokens in registers */
    TILE_T = 3
};

/* Eight weights, or the first n (0 < n < 8) and zeros. */
typedef __m256 load8_fn(const uint8_t *p);
typedef __m256 load_part_fn(const uint8_t *p, uint32_t n);

CPU_INLINE __m256 load8_f32(const uint8_t *p)
{
    return _mm256_loadu_ps((const float *)(const void *)p);
}

CPU_INLINE __m256 load8_f16(const uint8_t *p)
{
    return _mm256_cvtph_ps(load128(p));
}

CPU_INLINE __m256 load8_bf16(const uint8_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
}

CPU_INLINE __m256 load_part_f32(const uint8_t *p, uint32_t n)
{
    return _mm256_maskload_ps((const float *)(const void *)p, lane_mask(n));
}

CPU_INLINE __m256 load_part_f16(const uint8_t *p, uint32_t n)
{
    uint8_t b[16] = {0};
    memcpy(b, p, n * sizeof(uint16_t));
    return load8_f16(b);
}

CPU_INLINE __m256 load_part_bf16(const uint8_t *p, uint32_t n)
{
    uint8_t b[16] = {0};
    memcpy(b, p, n * sizeof(uint16_t));
    return load8_bf16(b);
}

struct ftype {
    size_t bytes; /* of an element */
    load8_fn *load8;
    load_part_fn *load_part;
};

/* acc[r][t] goes on over n elements of R rows and T tokens (compile-time constants). */
CPU_INLINE void ftile(const struct ftype *type, const uint8_t *const row[], const float *const x[],
                      int R, int T, uint32_t n, size_t ahead, __m256 *acc)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 a[TILE_T];
        for (int t = 0; t < T; t++)
            a[t] = _mm256_loadu_ps(x[t] + i);
        for (int r = 0; r < R; r++) {
            const uint8_t *p = row[r] + i * type->bytes;
            if (ahead != 0 && (type->bytes == 4 || i % 16 == 0))
                prefetch(p + ahead);
            __m256 w = type->load8(p);
            for (int t = 0; t < T; t++)
                acc[r * T + t] = _mm256_fmadd_ps(w, a[t], acc[r * T + t]);
        }
    }
    if (i == n)
        return;
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            acc[r * T + t] =
                _mm256_fmadd_ps(type->load_part(row[r] + i * type->bytes, n - i),
                                _mm256_maskload_ps(x[t] + i, lane_mask(n - i)), acc[r * T + t]);
}

/* ---------------------------------------------------------------- decode */
CPU_INLINE void stream_rows(const struct ftype *type, const uint8_t *w, size_t w_stride,
                            uint32_t r0, uint32_t step, uint32_t n, const struct cpu_act *x,
                            float *y, size_t y_stride)
{
    const uint8_t *row[STREAM_ROWS];
    for (uint32_t r = 0; r < STREAM_ROWS; r++)
        row[r] = w + (r0 + (size_t)(r < n ? r : n - 1) * step) * w_stride;
    for (uint32_t t = 0; t < x->n_tok; t++) {
        const float *const a[1] = {x->f + t * x->f_stride};
        __m256 acc[STREAM_ROWS];
        for (int r = 0; r < STREAM_ROWS; r++)
            acc[r] = _mm256_setzero_ps();
        ftile(type, row, a, STREAM_ROWS, 1, x->k, STREAM_AHEAD, acc);
        for (uint32_t r = 0; r < n; r++)
            y[t * y_stride + r0 + (size_t)r * step] = sum8_f32(acc[r]);
    }
}

/* Few tokens: rows an eighth of the call apart are read side by side, each group once for all
 * tokens. */
CPU_INLINE void stream_all(const struct ftype *type, const uint8_t *w, size_t w_stride,
                           uint32_t n_rows, const struct cpu_act *x, float *y, size_t y_stride)
{
    const uint32_t far = n_rows / STREAM_ROWS, tail = n_rows % STREAM_ROWS;
    for (uint32_t g = 0; g < far; g++)
        stream_rows(type, w, w_stride, g, far, STREAM_ROWS, x, y, y_stride);
    if (tail != 0)
        stream_rows(type, w, w_stride, n_rows - tail, 1, tail, x, y, y_stride);
}

/* ---------------------------------------------------------------- prefill */
struct fblock { /* lane sums of a block of rows and tokens */
    __m256 acc[BLOCK_ROWS][BLOCK_TOKENS];
};

CPU_INLINE void block_tile(const struct ftype *type, const uint8_t *w, size_t w_stride,
                           const float *x, size_t x_stride, int R, int T, uint32_t n,
                           __m256 (*out)[BLOCK_TOKENS])
{
    const uint8_t *row[TILE_R];
    const float *a[TILE_T];
    __m256 acc[TILE_R * TILE_T];
    for (int r = 0; r < R; r++)
        row[r] = w + (size_t)r * w_stride;
    for (int t = 0; t < T; t++)
        a[t] = x + (size_t)t * x_stride;
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            acc[r * T + t] = out[r][t];
    ftile(type, row, a, R, T, n, 0, acc);
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++)
            out[r][t] = acc[r * T + t];
}

/* T tokens against all rows of the block. */
CPU_INLINE void block_rows(const struct ftype *type, const uint8_t *w, size_t w_stride,
                           uint32_t n_rows, const float *x, size_t x_stride, int T, uint32_t n,
                           struct fblock *b, uint32_t t)
{
    uint32_t r = 0;
    for (; r + TILE_R <= n_rows; r += TILE_R)
        block_tile(type, w + r * w_stride, w_stride, x, x_stride, TILE_R, T, n,
                   (__m256(*)[BLOCK_TOKENS]) & b->acc[r][t]);
    for (; r < n_rows; r++)
        block_tile(type, w + r * w_stride, w_stride, x, x_stride, 1, T, n,
                   (__m256(*)[BLOCK_TOKENS]) & b->acc[r][t]);
}

CPU_INLINE void block_product(const struct ftype *type, const uint8_t *w, size_t w_stride,
                              uint32_t n_rows, const float *x, size_t x_stride, uint32_t n_tok,
                              uint32_t k, float *y, size_t y_stride)
{
    struct fblock b;
    memset(&b, 0, n_rows * sizeof b.acc[0]);
    for (uint32_t k0 = 0; k0 < k; k0 += BLOCK_ELEMS) {
        const uint32_t n = k - k0 < BLOCK_ELEMS ? k - k0 : BLOCK_ELEMS;
        const uint8_t *p = w + k0 * type->bytes;
        uint32_t t = 0;
        for (; t + TILE_T <= n_tok; t += TILE_T)
            block_rows(type, p, w_stride, n_rows, x + t * x_stride + k0, x_stride, TILE_T, n, &b,
                       t);
        if (n_tok - t == 2)
            block_rows(type, p, w_stride, n_rows, x + t * x_stride + k0, x_stride, 2, n, &b, t);
        else if (n_tok - t == 1)
            block_rows(type, p, w_stride, n_rows, x + t * x_stride + k0, x_stride, 1, n, &b, t);
    }
    for (uint32_t t = 0; t < n_tok; t++)
        for (uint32_t r = 0; r < n_rows; r++)
            y[t * y_stride + r] = sum8_f32(b.acc[r][t]);
}

CPU_INLINE void gemm_float(const struct ftype *type, const void *w, size_t w_stride,
                           uint32_t n_rows, const struct cpu_act *x, float *y, size_t y_stride)
{
    const uint8_t *p = w;
    if (x->n_tok < TILE_T) {
        stream_all(type, p, w_stride, n_rows, x, y, y_stride);
        return;
    }
    for (uint32_t r = 0; r < n_rows; r += BLOCK_ROWS) {
        const uint32_t nr = n_rows - r < BLOCK_ROWS ? n_rows - r : BLOCK_ROWS;
        for (uint32_t t = 0; t < x->n_tok; t += BLOCK_TOKENS) {
            const uint32_t nt = x->n_tok - t < BLOCK_TOKENS ? x->n_tok - t : BLOCK_TOKENS;
            block_product(type, p + r * w_stride, w_stride, nr, x->f + t * x->f_stride, x->f_stride,
                          nt, x->k, y + t * y_stride + r, y_stride);
        }
    }
}

void gemm_f32_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                   float *y, size_t y_stride)
{
    static const struct ftype type = {sizeof(float), load8_f32, load_part_f32};
    gemm_float(&type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_f16_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                   float *y, size_t y_stride)
{
    static const struct ftype type = {sizeof(uint16_t), load8_f16, load_part_f16};
    gemm_float(&type, w, w_stride, n_rows, x, y, y_stride);
}

void gemm_bf16_avx2(const void *w, size_t w_stride, uint32_t n_rows, const struct cpu_act *x,
                    float *y, size_t y_stride)
{
    static const struct ftype type = {sizeof(uint16_t), load8_bf16, load_part_bf16};
    gemm_float(&type, w, w_stride, n_rows, x, y, y_stride);
}
