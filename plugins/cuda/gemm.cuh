/* SPDX-License-Identifier: Apache-2.0
 *
 * What products of many tokens share: tiles of rows of the weight and tokens, one block each.
 * Plain products cut their tokens; products over experts go through the tiles that route.cu made of
 * the slots, as many as there are.  Neighbouring blocks share rows of the weight.
 *
 * Products on tensor cores have GEMM_WIDE_ROWS rows to a tile, and 64 or 128 tokens.  A warp
 * multiplies 32 rows, or twice that, with 64 tokens, in fragments of 16 rows x 8 tokens (mma.cuh).
 * Which row of a fragment is which of the weight is free; here lane 4 g + t holds rows 4 g .. 4 g +
 * 3 of 32: rows g and g + 8 of fragment m are rows 4 g + 2 m and 4 g + 2 m + 1.  So four rows of a
 * panel come in one 16-byte read, and four results of a token leave in one.
 *
 * Columns pass through shared memory in stages, a ring of them, filled ahead by asynchronous
 * copies.
 */
#ifndef ATSI_CUDA_GEMM_CUH
#define ATSI_CUDA_GEMM_CUH

#include "async.cuh"
#include "grid.h"
#include "math.cuh"
#include "product.cuh"

#define GEMM_ROWS 64u /* without tensor cores */
#define GEMM_WIDE_ROWS 128u
#define GEMM_WIDE_TOKENS 128u
#define GEMM_WARP_TOKENS 64u

struct gemm_tile {
    uint32_t row0;         /* of the weight */
    uint32_t first, count; /* tokens or positions in p.slots */
    uint32_t expert;
    const uint8_t *w;
};

static inline uint64_t gemm_blocks(const cuda_product &p, uint32_t rows, uint32_t tokens)
{
    uint64_t token_tiles = p.tiles != NULL ? p.max_tiles : cuda_div_up(p.n_tok, tokens);
    return token_tiles * cuda_div_up(p.n_rows, rows);
}

/* Token j of a tile: the row of y, and that of x. */
static __device__ __forceinline__ uint32_t gemm_token(const cuda_product &p, const gemm_tile &at,
                                                      uint32_t j)
{
    return p.tiles != NULL ? p.slots[at.first + j] : at.first + j;
}

/* Those of ids out of range. */
static __device__ __forceinline__ void gemm_zero(const cuda_product &p, const gemm_tile &at,
                                                 uint32_t rows)
{
    for (uint32_t i = threadIdx.x; i < at.count * rows; i += blockDim.x) {
        uint32_t row = at.row0 + i % rows;
        if (row < p.n_rows)
            p.y[gemm_token(p, at, i / rows) * p.y_stride + row] = 0;
    }
}

/* This block's tile of `rows` x `tokens`; false when there is nothing to compute.  Tiles of experts
 * have GEMM_TOKENS tokens at most. */
static __device__ __forceinline__ bool gemm_here(const cuda_product &p, gemm_tile &at,
                                                 uint32_t rows, uint32_t tokens)
{
    uint32_t n = p.tiles != NULL ? p.max_tiles : (p.n_tok + tokens - 1) / tokens;
    uint32_t i = blockIdx.x % n;
    at.row0 = blockIdx.x / n * rows;
    at.expert = 0;
    at.w = p.w;
    if (p.tiles == NULL) {
        at.first = i * tokens;
        at.count = p.n_tok - at.first < tokens ? p.n_tok - at.first : tokens;
        return true;
    }
    if (i >= *p.n_tiles)
        return false;
    at.first = p.tiles[i].first;
    at.count = p.tiles[i].count;
    at.expert = p.tiles[i].expert;
    if (at.expert == p.n_expert) {
        gemm_zero(p, at, rows);
        return false;
    }
    at.w += at.expert * p.matrix_bytes;
    return true;
}

/* Rows of x and y of the tile's tokens; those past the end take the last one's x. */
static __device__ __forceinline__ void gemm_list_tokens(const cuda_product &p, const gemm_tile &at,
                                                        uint32_t *token, uint32_t tokens)
{
    for (uint32_t j = threadIdx.x; j < tokens; j += blockDim.x)
        token[j] = gemm_token(p, at, j < at.count ? j : at.count - 1);
    __syncthreads();
}

static __device__ __forceinline__ void gemm_store(const cuda_product &p, const gemm_tile &at,
                                                  const uint32_t *token, uint32_t j, uint32_t row,
                                                  float v)
{
    if (j >= at.count || row >= p.n_rows)
        return;
    if (p.bias != NULL)
        v += p.bias[(uint64_t)at.expert * p.bias_stride + row];
    p.y[token[j] * p.y_stride + row] = v;
}

/* ---------------------------------------------------------------- on tensor cores */

/* A lane's part of a tile: four rows from `row` on, tokens token + 8 n + 2 t and the next one. */
struct gemm_lane {
    uint32_t row, token, g, t;
};

/* [8 tokens' groups n][rows][2 tokens] */
typedef float gemm_sums[GEMM_WARP_TOKENS / 8][4][2];

/* Of a warp with `rows` rows, 32 or 64. */
static __device__ __forceinline__ gemm_lane gemm_lane_here(uint32_t rows)
{
    uint32_t warp = threadIdx.x / CUDA_WARP, lane = threadIdx.x % CUDA_WARP;
    uint32_t along = GEMM_WIDE_ROWS / rows;
    gemm_lane at = {warp % along * rows, warp / along * GEMM_WARP_TOKENS, lane / 4, lane % 4};
    at.row += 4 * at.g;
    return at;
}

#define GEMM_THREADS(rows, tokens)                                                                 \
    ((tokens) / GEMM_WARP_TOKENS * (GEMM_WIDE_ROWS / (rows)) * CUDA_WARP)

/* Tokens of this block's tile. */
static __device__ __forceinline__ uint32_t gemm_tokens_here(uint32_t rows)
{
    return blockDim.x / GEMM_THREADS(rows, GEMM_WARP_TOKENS) * GEMM_WARP_TOKENS;
}

/* Where a tile of whole rows keeps row r, so that rows of a fragment are neighbours. */
static __device__ __forceinline__ uint32_t gemm_row_slot(uint32_t r)
{
    return r / 32 * 32 + r % 4 * 8 + r % 32 / 4;
}

/* First row of the warp's panel that the lane reads: row `at.row` of the tile lies in it. */
static __device__ __forceinline__ const uint8_t *gemm_panel(const cuda_product &p,
                                                            const gemm_tile &at, uint32_t panel)
{
    uint32_t row = at.row0 + panel * ATSI_PANEL_ROWS;
    uint64_t i = (row < p.n_rows ? row : p.n_rows - 1) / ATSI_PANEL_ROWS;
    return at.w + i * ATSI_PANEL_ROWS * p.row_bytes;
}

/* Where a stage keeps the 16 bytes of rows 4 quad .. + 3 of chunk c, from the first chunk on: lanes
 * of a quarter of a warp read chunks c .. c + 3 of two quads without meeting in a bank. */
static __device__ __forceinline__ uint32_t gemm_chunk_at(uint32_t c, uint32_t quad)
{
    return c * ATSI_PANEL_CHUNK + (quad ^ (c & 2)) * 16;
}

/* Rows of a table of activations, `bytes` of each from `from` on (n of them there, the rest zeros),
 * to rows of `stride` bytes. */
static __device__ __forceinline__ void gemm_copy_rows(uint8_t *to, uint32_t stride,
                                                      const uint8_t *table, uint64_t row_bytes,
                                                      const uint32_t *row, uint32_t rows,
                                                      uint64_t from, uint32_t bytes, uint32_t n)
{
    uint32_t per = bytes / 16;
    for (uint32_t i = threadIdx.x; i < rows * per; i += blockDim.x) {
        uint32_t r = i / per, at = i % per * 16;
        const uint8_t *x = table + row[r] * row_bytes + from;
        async_copy_16(to + r * stride + at, at < n ? x + at : x, at < n);
    }
}

/* All sums of a lane. */
static __device__ __forceinline__ void gemm_store_sums(const cuda_product &p, const gemm_tile &tile,
                                                       const uint32_t *token, const gemm_lane &at,
                                                       const gemm_sums &sums, const float *factor)
{
    uint32_t row = tile.row0 + at.row;
    bool wide = row + 4 <= p.n_rows && ((uintptr_t)p.y | (p.y_stride * 4)) % 16 == 0;
    float bias[4] = {};
    if (p.bias != NULL)
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            bias[r] =
                row + r < p.n_rows ? p.bias[(uint64_t)tile.expert * p.bias_stride + row + r] : 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < GEMM_WARP_TOKENS / 4; i++) {
        uint32_t n = i / 2, c = i % 2, j = at.token + 8 * n + 2 * at.t + c;
        if (j >= tile.count)
            continue;
        float f = factor != NULL ? factor[j] : 1.0f, v[4];
        float *y = p.y + token[j] * p.y_stride + row;
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            v[r] = sums[n][r][c] * f + bias[r];
        if (wide) {
            *(float4 *)(void *)y = make_float4(v[0], v[1], v[2], v[3]);
            continue;
        }
#pragma unroll
        for (uint32_t r = 0; r < 4; r++)
            if (row + r < p.n_rows)
                y[r] = v[r];
    }
}

/* How a product is cut: tokens to a tile, stages of a ring, bytes of shared memory. */
struct gemm_plan {
    uint32_t tokens, stages;
    size_t shared;
};

/* What tiles of 64 and of 128 tokens need: bytes of shared memory for all stages and for each of
 * them, and how many blocks of their registers a multiprocessor holds. */
struct gemm_needs {
    size_t fixed[2], stage[2];
    uint32_t blocks[2];
    uint32_t most; /* stages that are of use */
};

/* Bytes for a block when a multiprocessor is to hold n: 1 KiB of each is the system's. */
static inline size_t gemm_share(const struct cuda_device *dev, uint32_t n)
{
    return (dev->shared_bytes + 1024) / n - 1024;
}

/* Wide tiles read less, narrow ones keep more multiprocessors busy.  Two stages in two blocks come
 * before more of them in one. */
static inline gemm_plan gemm_plan_of(const cuda_product &p, const struct cuda_device *dev,
                                     const gemm_needs &n)
{
    int i = p.tiles == NULL &&
            gemm_blocks(p, GEMM_WIDE_ROWS, GEMM_WIDE_TOKENS) >= n.blocks[1] * dev->n_sm &&
            n.fixed[1] + 2 * n.stage[1] <= dev->shared_bytes;
    gemm_plan plan = {i != 0 ? GEMM_WIDE_TOKENS : GEMM_TOKENS, 1, 0};
    size_t room = gemm_share(dev, n.blocks[i]);
    if (n.fixed[i] + 2 * n.stage[i] > room)
        room = dev->shared_bytes;
    while (plan.stages < n.most && n.fixed[i] + (plan.stages + 1) * n.stage[i] <= room)
        plan.stages++;
    plan.shared = n.fixed[i] + plan.stages * n.stage[i];
    return plan;
}

/* Waits for the oldest of the stages under way; there are ring - 1, or 1. */
static __device__ __forceinline__ void gemm_wait(uint32_t ring)
{
    if (ring > 3)
        async_wait<2>();
    else if (ring == 3)
        async_wait<1>();
    else
        async_wait<0>();
}

/* More than 48 KiB must be asked for. */
template <class KERNEL>
static inline cudaError_t gemm_allow(KERNEL kernel, const gemm_plan &plan)
{
    return plan.shared > (48u << 10)
               ? cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)plan.shared)
               : cudaSuccess;
}

#endif
