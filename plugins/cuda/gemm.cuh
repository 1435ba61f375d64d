/* SPDX-License-Identifier: Apache-2.0
 *
 * What products of many tokens share: tiles of GEMM_ROWS rows of the weight and GEMM_TOKENS tokens,
 * one block each.  Plain products cut their tokens; products over experts go through the tiles that
 * route.cu made of the slots, as many as there are.  Neighbouring blocks share rows of the weight.
 */
#ifndef ATSI_CUDA_GEMM_CUH
#define ATSI_CUDA_GEMM_CUH

#include "grid.h"
#include "math.cuh"
#include "product.cuh"

#define GEMM_ROWS 64u

struct gemm_tile {
    uint32_t row0;         /* of the weight */
    uint32_t first, count; /* tokens or positions in p.slots */
    uint32_t expert;
    const uint8_t *w;
};

static inline uint64_t gemm_token_tiles(const cuda_product &p)
{
    return p.tiles != NULL ? p.max_tiles : cuda_div_up(p.n_tok, GEMM_TOKENS);
}

static inline dim3 gemm_grid(const cuda_product &p)
{
    return dim3((unsigned)(gemm_token_tiles(p) * cuda_div_up(p.n_rows, GEMM_ROWS)));
}

/* Token j of a tile: the row of y, and that of x. */
static __device__ __forceinline__ uint32_t gemm_token(const cuda_product &p, const gemm_tile &at,
                                                      uint32_t j)
{
    return p.tiles != NULL ? p.slots[at.first + j] : at.first + j;
}

/* Those of ids out of range. */
static __device__ __forceinline__ void gemm_zero(const cuda_product &p, const gemm_tile &at)
{
    for (uint32_t i = threadIdx.x; i < at.count * GEMM_ROWS; i += blockDim.x) {
        uint32_t row = at.row0 + i % GEMM_ROWS;
        if (row < p.n_rows)
            p.y[gemm_token(p, at, i / GEMM_ROWS) * p.y_stride + row] = 0;
    }
}

/* This block's tile; false when there is nothing to compute. */
static __device__ __forceinline__ bool gemm_here(const cuda_product &p, gemm_tile &at)
{
    uint32_t n = p.tiles != NULL ? p.max_tiles : (p.n_tok + GEMM_TOKENS - 1) / GEMM_TOKENS;
    uint32_t i = blockIdx.x % n;
    at.row0 = blockIdx.x / n * GEMM_ROWS;
    at.expert = 0;
    at.w = p.w;
    if (p.tiles == NULL) {
        at.first = i * GEMM_TOKENS;
        at.count = p.n_tok - at.first < GEMM_TOKENS ? p.n_tok - at.first : GEMM_TOKENS;
        return true;
    }
    if (i >= *p.n_tiles)
        return false;
    at.first = p.tiles[i].first;
    at.count = p.tiles[i].count;
    at.expert = p.tiles[i].expert;
    if (at.expert == p.n_expert) {
        gemm_zero(p, at);
        return false;
    }
    at.w += at.expert * p.matrix_bytes;
    return true;
}

/* Rows of x and y of the tile's tokens; those past the end take the last one's x. */
static __device__ __forceinline__ void gemm_list_tokens(const cuda_product &p, const gemm_tile &at,
                                                        uint32_t (&token)[GEMM_TOKENS])
{
    for (uint32_t j = threadIdx.x; j < GEMM_TOKENS; j += blockDim.x)
        token[j] = gemm_token(p, at, j < at.count ? j : at.count - 1);
    __syncthreads();
}

static __device__ __forceinline__ void gemm_store(const cuda_product &p, const gemm_tile &at,
                                                  const uint32_t (&token)[GEMM_TOKENS], uint32_t j,
                                                  uint32_t row, float v)
{
    if (j >= at.count || row >= p.n_rows)
        return;
    if (p.bias != NULL)
        v += p.bias[(uint64_t)at.expert * p.bias_stride + row];
    p.y[token[j] * p.y_stride + row] = v;
}

#endif
