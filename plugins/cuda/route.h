/* SPDX-License-Identifier: Apache-2.0
 *
 * Sorting the slots of a batch by expert, on the device: captured launches serve other ids too.
 */
#ifndef ATSI_CUDA_ROUTE_H
#define ATSI_CUDA_ROUTE_H

#include <stdint.h>

#include <cuda_runtime_api.h>

/* The most tokens that one pass over the weights serves without tensor cores; beyond, products are
 * tiled for reuse. */
#define GEMV_TOKENS 8u
#define GEMM_TOKENS 64u

/* Tokens of one expert that are multiplied together. */
struct cuda_tile {
    uint32_t expert; /* n_expert: ids out of range; their results are zero */
    uint32_t first;  /* in `slots` */
    uint32_t count;  /* 1 .. GEMM_TOKENS */
};

struct cuda_routing {
    struct cuda_tile *tiles; /* [max_tiles], of which *n_tiles are there */
    uint32_t *slots;         /* [n_slots], grouped by expert, ascending inside a group */
    uint32_t *n_tiles;
    uint32_t *counts; /* [n_expert + 1] */
    uint32_t max_tiles;
};

/* Tiles that n_slots can need at most. */
static inline uint64_t cuda_route_tiles(uint64_t n_slots, uint64_t n_expert)
{
    return n_slots / GEMM_TOKENS + n_expert + 1;
}

size_t cuda_route_bytes(uint32_t n_slots, uint32_t n_expert);

/* Queues the sorting of ids [n_slots] into `memory`, 16-byte aligned. */
cudaError_t cuda_route(cudaStream_t s, const int32_t *ids, uint32_t n_slots, uint32_t n_expert,
                       void *memory, struct cuda_routing *out);

#endif
