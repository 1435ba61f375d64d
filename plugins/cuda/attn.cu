/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_ATTN.
 *
 * The new keys and values are stored first, unless the rotation before has done so.  Then a block
 * works on a tile of query vectors, those of neighbouring rows and of all query heads that share a
 * KV head, and on chunks of CHUNK positions, which begin at multiples of CHUNK: scores, the softmax
 * of the chunk for itself, and the sum of values it weighs.  Chunks are then merged in order of
 * position.
 *
 * With enough tiles to fill the device a block walks through all of its chunks and merges them into
 * the result as it goes.  With few (decode) there is a block per chunk, which leaves its part in
 * the scratch, and a second kernel merges.  Both compute the same, to the bit: a row's result
 * depends neither on the other rows of a call, nor on how large n_kv is said to be, nor on where
 * the ring begins anew.
 */
#include "attn_store.cuh"
#include "attn_wide.cuh"
#include "grid.h"
#include "shape.h"

#define MERGE_THREADS 128u
#define STORE_WARPS 8u
#define PARTS_LIMIT ((uint64_t)64 << 20) /* bytes of scratch */

/* ---------------------------------------------------------------- storing */
/* 32 elements of a new row's head, by one warp; piece counts those of the keys, then values. */
static __device__ void store_piece(const struct store_args &a, uint32_t t, uint32_t cell,
                                   uint32_t piece, uint32_t lane)
{
    uint32_t per_k = (a.dk + 31) / 32, per_v = (a.dv + 31) / 32;
    bool keys = piece < a.n_head_kv * per_k;
    uint32_t per = keys ? per_k : per_v;
    piece -= keys ? 0 : a.n_head_kv * per_k;
    uint32_t head = piece / per, i = piece % per * 32 + lane;
    store_32(keys ? a.type_k : a.type_v, new_row(a, keys, head, t), cache_row(a, keys, head, cell),
             keys ? a.dk : a.dv, i, lane);
}

/* Pieces along x, rows along y. */
static __global__ void attn_store_kernel(struct store_args a)
{
    uint32_t lane = threadIdx.x % CUDA_WARP;
    uint32_t n = a.n_head_kv * ((a.dk + 31) / 32 + (a.dv + 31) / 32);
    for (uint32_t t = blockIdx.y; t < a.n_rows; t += gridDim.y) {
        int32_t position = a.position[t];
        for (uint32_t piece = blockIdx.x * STORE_WARPS + threadIdx.x / CUDA_WARP;
             piece < n && position >= 0; piece += gridDim.x * STORE_WARPS)
            store_piece(a, t, (uint32_t)position % a.n_ctx, piece, lane);
    }
}

/* Tiles along x, the longest first; KV heads along y; parts along z. */
template <uint32_t GROUPS, uint32_t PER, uint32_t WIDTH>
static __global__ void __launch_bounds__(GROUPS *CHUNK, GROUPS == 1 ? 4 : 2)
    attn_kernel(struct attn_args a)
{
    const uint32_t tile = GROUPS * PER, threads = GROUPS * CHUNK;
    __shared__ struct attn_tile<tile> s;
    struct attn_work w = {};
    w.tile = gridDim.x - 1 - blockIdx.x;
    w.first = w.tile * tile;
    w.head = blockIdx.y;
    w.part = blockIdx.z;
    tile_begin(a, s, w);
    uint32_t n_chunks = w.all.end > 0 ? (w.all.end - 1) / CHUNK + 1 : 0;
    w.chunk = w.all.begin / CHUNK + w.part;
    if (a.n_parts != 0 && w.chunk + 1 < n_chunks)
        n_chunks = w.chunk + 1;
    for (; w.chunk < n_chunks; w.chunk++) {
        chunk_begin(a, s, w);
        chunk_scores<GROUPS, PER>(a, s, w.first, w.head);
        __syncthreads();
        chunk_weights<GROUPS, PER>(a, s, w);
        chunk_values<tile, threads, WIDTH>(a, s, w);
    }
    if (a.n_parts == 0)
        tile_end<tile, threads, WIDTH>(a, s, w);
}

/* ---------------------------------------------------------------- merging parts */
/* Factors of a batch of parts. */
struct merge_batch {
    float max[MERGE_THREADS], sum[MERGE_THREADS];
    float alpha[MERGE_THREADS], beta[MERGE_THREADS];
};

/* Factors of n parts, a thread each, when `max` was the maximum before them; returns the one
 * after. */
static __device__ float batch_factors(struct merge_batch &b, uint32_t n, float max)
{
    float before = max, all = max;
    for (uint32_t k = 0; k < n; k++) {
        before = k < threadIdx.x ? fmaxf(before, b.max[k]) : before;
        all = fmaxf(all, b.max[k]);
    }
    if (threadIdx.x < n) {
        float both = fmaxf(before, b.max[threadIdx.x]);
        b.alpha[threadIdx.x] = weight_at(before, both);
        b.beta[threadIdx.x] = weight_at(b.max[threadIdx.x], both);
    }
    return all;
}

/* First chunk of the tile's first part. */
static __device__ uint32_t first_chunk(const struct attn_args &a, uint32_t tile)
{
    uint32_t t = tile * a.tile / a.n_q, end = (tile * a.tile + a.tile - 1) / a.n_q + 1;
    uint32_t begin = UINT32_MAX;
    for (; t < end && t < a.n_rows; t++) {
        struct span s = visible(a, t);
        begin = s.end > 0 && s.begin < begin ? s.begin : begin;
    }
    return begin / CHUNK;
}

/* A block per row and head (x) and MERGE_THREADS columns (y). */
static __global__ void __launch_bounds__(MERGE_THREADS) attn_merge_kernel(struct attn_args a)
{
    __shared__ struct merge_batch b;
    uint32_t t = blockIdx.x / a.n_head, head = blockIdx.x % a.n_head;
    uint32_t u = t * a.n_q + head % a.n_q, tile = u / a.tile;
    uint32_t col = blockIdx.y * MERGE_THREADS + threadIdx.x;
    size_t at = ((size_t)tile * a.n_head_kv + head / a.n_q) * a.n_parts;
    struct span seen = visible(a, t);
    uint32_t first = first_chunk(a, tile), end = 0, c = 0;
    float max = -INFINITY, sum = 0, y = 0;
    if (seen.end > 0) {
        c = seen.begin / CHUNK - first;
        end = (seen.end - 1) / CHUNK + 1 - first;
        end = end < a.n_parts ? end : a.n_parts;
    }
    for (uint32_t n; c < end; c += n) {
        n = end - c < MERGE_THREADS ? end - c : MERGE_THREADS;
        if (threadIdx.x < n) {
            size_t mine = (at + c + threadIdx.x) * a.tile + u % a.tile;
            b.max[threadIdx.x] = a.part_ml[2 * mine];
            b.sum[threadIdx.x] = a.part_ml[2 * mine + 1];
        }
        __syncthreads();
        max = batch_factors(b, n, max);
        __syncthreads();
        const float *part = a.part + ((at + c) * a.tile + u % a.tile) * a.dv + col;
#pragma unroll 8
        for (uint32_t k = 0; k < n; k++) {
            float x = col < a.dv ? part[(size_t)k * a.tile * a.dv] : 0.0f;
            sum = merged(sum, b.alpha[k], b.sum[k], b.beta[k]);
            y = merged(y, b.alpha[k], x, b.beta[k]);
        }
        __syncthreads(); /* the batch is free again */
    }
    struct last_step last = last_step_of(a, head, max, sum);
    if (col < a.dv)
        a.y[(size_t)blockIdx.x * a.dv + col] = y * last.alpha / last.sum;
}

/* ---------------------------------------------------------------- the operation */
static bool is_cache(uint32_t type, uint32_t dim)
{
    return (type == ATSI_TYPE_F32 || type == ATSI_TYPE_F16 || type == ATSI_TYPE_Q8_0) && dim > 0 &&
           dim < CUDA_MAX_WIDTH && atsi_row_bytes(type, dim) != 0;
}

/* Everything a row sees has a cell of its own, also once all rows of the call are stored. */
static bool has_cells(const struct atsi_op *op)
{
    uint64_t n = op->p.attn.n_kv, w = op->p.attn.window;
    if (w != 0 && w + op->n_rows - 1 < n)
        n = w + op->n_rows - 1;
    return op->p.attn.n_kv > 0 && op->p.attn.n_kv <= INT32_MAX && op->kv->n_ctx >= n;
}

/* Limits of a grid, and of the 32-bit numbers that count queries. */
static bool fits_grid(const struct atsi_op *op)
{
    return (uint64_t)op->n_rows * op->p.attn.n_head < INT32_MAX && op->p.attn.n_head_kv <= 65535 &&
           cuda_div_up(op->p.attn.head_dim_v, MERGE_THREADS) <= 65535;
}

static int attn_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_ATTN) || op->kv == NULL)
        return 0;
    const struct atsi_kv *kv = op->kv;
    uint32_t h = op->p.attn.n_head, hkv = op->p.attn.n_head_kv;
    if (hkv == 0 || h == 0 || h % hkv != 0 || hkv != kv->n_head_kv ||
        op->p.attn.head_dim_k != kv->head_dim_k || op->p.attn.head_dim_v != kv->head_dim_v)
        return 0;
    return is_cache(kv->type_k, kv->head_dim_k) && is_cache(kv->type_v, kv->head_dim_v) &&
           has_cells(op) && fits_grid(op) &&
           cuda_is_f32(op->src[0], op, (uint64_t)h * kv->head_dim_k) &&
           cuda_is_f32(op->src[1], op, (uint64_t)hkv * kv->head_dim_k) &&
           cuda_is_f32(op->src[2], op, (uint64_t)hkv * kv->head_dim_v) &&
           cuda_is_i32(op->src[3], op, 1) &&
           (op->weight[0] == NULL || cuda_is_vector(op->weight[0], h)) &&
           cuda_is_f32(op->dst[0], op, (uint64_t)h * kv->head_dim_v);
}

/* How an attention is cut.  That changes no bit of its results, but for `wide`, which tensor cores
 * compute with other roundings. */
struct attn_cut {
    uint32_t tile, n_tiles, n_parts;
    uint64_t n_sums; /* of all parts */
    bool wide;
};

/* The most queries that a tile on tensor cores may have here; 0: none. */
static uint32_t wide_tile(const struct cuda_device *dev, const struct atsi_op *op)
{
    const struct atsi_kv *kv = op->kv;
    uint32_t dk = kv->head_dim_k, dv = kv->head_dim_v;
    if (kv->type_k != ATSI_TYPE_F16 || kv->type_v != ATSI_TYPE_F16 || dk % 16 != 0 ||
        dv % 16 != 0 || dk > WIDE_DIM || dv > WIDE_DIM ||
        ((uintptr_t)kv->k | (uintptr_t)kv->v) % 16 != 0)
        return 0;
    return wide_memory<64>::bytes(dk, dv) <= dev->shared_bytes   ? 64
           : wide_memory<32>::bytes(dk, dv) <= dev->shared_bytes ? 32
                                                                 : 0;
}

/* As many chunks as the rows of one tile may see, n_kv being anything of its bucket. */
static uint32_t parts_of(const struct atsi_op *op)
{
    uint64_t n = cuda_kv_bucket(op->p.attn.n_kv), w = op->p.attn.window;
    uint64_t all = cuda_div_up(n, CHUNK);
    uint64_t seen = w != 0 ? (w + op->n_rows - 2) / CHUNK + 2 : all;
    return (uint32_t)(seen < all ? seen : all);
}

static struct attn_cut cut_of(const struct cuda_device *dev, const struct atsi_op *op)
{
    uint32_t hkv = op->p.attn.n_head_kv, n = op->n_rows * (op->p.attn.n_head / hkv);
    struct attn_cut c = {};
    uint32_t wide = wide_tile(dev, op);
    c.tile = n <= 1 ? 1 : n <= 4 ? 4 : n <= 8 ? 8 : 32;
    c.wide = c.tile == 32 && wide != 0;
    if (c.wide)
        c.tile = n <= 32 ? 32 : wide;
    c.n_tiles = (uint32_t)cuda_div_up(n, c.tile);
    c.n_parts = parts_of(op);
    c.n_sums = (uint64_t)c.n_tiles * hkv * c.n_parts * c.tile;
    if (c.n_parts == 1 || c.n_parts > 65535 ||
        (uint64_t)c.n_tiles * hkv >= 2 * (uint64_t)dev->n_sm ||
        c.n_sums > PARTS_LIMIT / (op->p.attn.head_dim_v + 2) / sizeof(float))
        c.n_parts = 0;
    return c;
}

static size_t attn_scratch(const struct cuda_device *dev, const struct atsi_op *op)
{
    struct attn_cut c = cut_of(dev, op);
    return c.n_parts != 0 ? c.n_sums * (op->p.attn.head_dim_v + 2) * sizeof(float) : 0;
}

static void attn_shape(struct attn_args *a, const struct atsi_op *op)
{
    a->n_rows = op->n_rows;
    a->n_head = op->p.attn.n_head;
    a->n_head_kv = op->p.attn.n_head_kv;
    a->n_q = a->n_head / a->n_head_kv;
    a->dk = op->kv->head_dim_k;
    a->dv = op->kv->head_dim_v;
    a->type_k = op->kv->type_k;
    a->type_v = op->kv->type_v;
    a->row_k = (uint32_t)atsi_row_bytes(a->type_k, a->dk);
    a->row_v = (uint32_t)atsi_row_bytes(a->type_v, a->dv);
    a->n_ctx = op->kv->n_ctx;
    a->window = op->p.attn.window;
    a->n_kv = cuda_kv_bucket(op->p.attn.n_kv);
    a->scale = op->p.attn.scale;
}

static struct attn_args attn_args_of(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct attn_cut c = cut_of(l->dev, op);
    struct attn_args a = {};
    attn_shape(&a, op);
    a.q = (const float *)op->src[0]->data;
    a.k = (const float *)op->src[1]->data;
    a.v = (const float *)op->src[2]->data;
    a.position = (const int32_t *)op->src[3]->data;
    a.sink = op->weight[0] != NULL ? (const float *)op->weight[0]->data : NULL;
    a.y = (float *)op->dst[0]->data;
    a.cache_k = (unsigned char *)op->kv->k;
    a.cache_v = (unsigned char *)op->kv->v;
    a.part = (float *)l->scratch;
    a.part_ml = a.part + (c.n_parts != 0 ? c.n_sums * a.dv : 0);
    a.tile = c.tile;
    a.n_tiles = c.n_tiles;
    a.n_parts = c.n_parts;
    return a;
}

static cudaError_t launch_store(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct store_args a = store_args_of(op);
    uint64_t n =
        (uint64_t)a.n_head_kv * (cuda_div_up(a.dk, CUDA_WARP) + cuda_div_up(a.dv, CUDA_WARP));
    dim3 grid(cuda_blocks(n, STORE_WARPS), cuda_blocks_y(a.n_rows));
    return ATSI_LAUNCH(attn_store_kernel, grid, dim3(STORE_WARPS * CUDA_WARP), 0, l->stream, a);
}

template <uint32_t GROUPS, uint32_t PER>
static cudaError_t launch_tiles(const struct cuda_launch *l, const struct attn_args *a)
{
    dim3 grid(a->n_tiles, a->n_head_kv, a->n_parts != 0 ? a->n_parts : 1);
    /* A single query has no second half for the other threads. */
    constexpr uint32_t narrow = GROUPS * PER == 1 ? 128 : 64;
    if (a->dv <= narrow)
        return ATSI_LAUNCH((attn_kernel<GROUPS, PER, narrow>), grid, dim3(GROUPS * CHUNK), 0,
                           l->stream, *a);
    return ATSI_LAUNCH((attn_kernel<GROUPS, PER, 128>), grid, dim3(GROUPS * CHUNK), 0, l->stream,
                       *a);
}

template <uint32_t GROUPS>
static cudaError_t launch_wide(const struct cuda_launch *l, const struct attn_args *a)
{
    dim3 grid(a->n_tiles, a->n_head_kv, a->n_parts != 0 ? a->n_parts : 1);
    size_t bytes = wide_memory<32 * GROUPS>::bytes(a->dk, a->dv);
    cudaError_t e = cudaFuncSetAttribute(attn_wide_kernel<GROUPS>,
                                         cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return e == cudaSuccess ? ATSI_LAUNCH((attn_wide_kernel<GROUPS>), grid, dim3(GROUPS * CHUNK),
                                          bytes, l->stream, *a)
                            : e;
}

static cudaError_t launch_merge(const struct cuda_launch *l, const struct attn_args *a)
{
    dim3 grid(a->n_rows * a->n_head, (unsigned)cuda_div_up(a->dv, MERGE_THREADS));
    return ATSI_LAUNCH(attn_merge_kernel, grid, dim3(MERGE_THREADS), 0, l->stream, *a);
}

static cudaError_t attn_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct attn_args a = attn_args_of(l, op);
    cudaError_t e = l->stored ? cudaSuccess : launch_store(l, op);
    if (e != cudaSuccess)
        return e;
    if (cut_of(l->dev, op).wide)
        e = a.tile == 64 ? launch_wide<2>(l, &a) : launch_wide<1>(l, &a);
    else
        e = a.tile == 1   ? launch_tiles<1, 1>(l, &a)
            : a.tile == 4 ? launch_tiles<1, 4>(l, &a)
            : a.tile == 8 ? launch_tiles<1, 8>(l, &a)
                          : launch_tiles<2, 16>(l, &a);
    return e != cudaSuccess || a.n_parts == 0 ? e : launch_merge(l, &a);
}

extern "C" const struct cuda_op cuda_op_attn = {ATSI_OP_ATTN, attn_supports, attn_scratch,
                                                attn_launch};
