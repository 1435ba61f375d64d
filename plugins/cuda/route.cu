/* SPDX-License-Identifier: Apache-2.0
 *
 * A counting sort with one warp per expert: each reads all ids twice, first to count its own, then
 * to write down their places behind those of the experts before it.  Slots keep their order and
 * nothing depends on which warp is first.
 */
#include "route.h"

#include "grid.h"
#include "math.cuh"

#define ROUTE_WARPS 4u

/* The expert of a slot; n_expert for an id out of range. */
static __device__ __forceinline__ uint32_t group_of(int32_t id, uint32_t n_expert)
{
    return id >= 0 && (uint32_t)id < n_expert ? (uint32_t)id : n_expert;
}

/* Lanes of 32 neighbouring slots that belong to the group. */
static __device__ __forceinline__ uint32_t members(const int32_t *ids, uint32_t n_slots,
                                                   uint32_t n_expert, uint32_t first,
                                                   uint32_t group)
{
    uint32_t slot = first + threadIdx.x % CUDA_WARP;
    return __ballot_sync(CUDA_ALL_LANES, slot < n_slots && group_of(ids[slot], n_expert) == group);
}

static __global__ void count_kernel(const int32_t *ids, uint32_t n_slots, uint32_t n_expert,
                                    uint32_t *counts)
{
    uint32_t group = blockIdx.x * ROUTE_WARPS + threadIdx.x / CUDA_WARP, n = 0;
    if (group > n_expert)
        return;
    for (uint64_t i = 0; i < n_slots; i += CUDA_WARP)
        n += (uint32_t)__popc(members(ids, n_slots, n_expert, (uint32_t)i, group));
    if (threadIdx.x % CUDA_WARP == 0)
        counts[group] = n;
}

static __device__ __forceinline__ uint32_t tiles_of(uint32_t count)
{
    return (count + GEMM_TOKENS - 1) / GEMM_TOKENS;
}

static __device__ __forceinline__ uint32_t warp_sum(uint32_t x)
{
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(CUDA_ALL_LANES, x, step);
    return x;
}

static __device__ __forceinline__ void write_tiles(const cuda_routing &r, uint32_t group,
                                                   uint32_t tile, uint32_t first)
{
    uint32_t n = r.counts[group];
    for (uint32_t i = threadIdx.x % CUDA_WARP; i < tiles_of(n); i += CUDA_WARP) {
        uint32_t done = i * GEMM_TOKENS;
        r.tiles[tile + i] = {group, first + done, n - done < GEMM_TOKENS ? n - done : GEMM_TOKENS};
    }
}

static __global__ void place_kernel(const int32_t *ids, uint32_t n_slots, uint32_t n_expert,
                                    const cuda_routing r)
{
    uint32_t group = blockIdx.x * ROUTE_WARPS + threadIdx.x / CUDA_WARP, at = 0, tile = 0;
    uint32_t lane = threadIdx.x % CUDA_WARP;
    if (group > n_expert)
        return;
    for (uint32_t e = lane; e < group; e += CUDA_WARP) {
        at += r.counts[e];
        tile += tiles_of(r.counts[e]);
    }
    at = warp_sum(at);
    tile = warp_sum(tile);
    write_tiles(r, group, tile, at);
    if (group == n_expert && lane == 0)
        *r.n_tiles = tile + tiles_of(r.counts[group]);
    for (uint64_t i = 0; i < n_slots; i += CUDA_WARP) {
        uint32_t mine = members(ids, n_slots, n_expert, (uint32_t)i, group);
        if ((mine >> lane & 1) != 0)
            r.slots[at + (uint32_t)__popc(mine & ((1u << lane) - 1))] = (uint32_t)i + lane;
        at += (uint32_t)__popc(mine);
    }
}

size_t cuda_route_bytes(uint32_t n_slots, uint32_t n_expert)
{
    return (size_t)cuda_route_tiles(n_slots, n_expert) * sizeof(cuda_tile) +
           ((size_t)n_slots + n_expert + 2) * sizeof(uint32_t);
}

cudaError_t cuda_route(cudaStream_t s, const int32_t *ids, uint32_t n_slots, uint32_t n_expert,
                       void *memory, struct cuda_routing *out)
{
    dim3 grid(n_expert / ROUTE_WARPS + 1), block(ROUTE_WARPS * CUDA_WARP);
    cudaError_t e;
    out->max_tiles = (uint32_t)cuda_route_tiles(n_slots, n_expert);
    out->tiles = (cuda_tile *)memory;
    out->slots = (uint32_t *)(out->tiles + out->max_tiles);
    out->counts = out->slots + n_slots;
    out->n_tiles = out->counts + n_expert + 1;
    e = ATSI_LAUNCH(count_kernel, grid, block, 0, s, ids, n_slots, n_expert, out->counts);
    if (e != cudaSuccess)
        return e;
    return ATSI_LAUNCH(place_kernel, grid, block, 0, s, ids, n_slots, n_expert, *out);
}
