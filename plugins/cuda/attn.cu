/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_ATTN.
 *
 * The new keys and values are stored first.  Then a block works on a tile of query vectors, those
 * of neighbouring rows and of all query heads that share a KV head, and on chunks of CHUNK
 * positions, which begin at multiples of CHUNK: scores, the softmax of the chunk for itself, and
 * the sum of values it weighs.  Chunks are then merged in order of position.
 *
 * With enough tiles to fill the device a block walks through all of its chunks and merges them into
 * the result as it goes.  With few (decode) there is a block per chunk, which leaves its part in
 * the scratch, and a second kernel merges.  Both compute the same, to the bit: a row's result
 * depends neither on the other rows of a call, nor on how large n_kv is said to be, nor on where
 * the ring begins anew.
 */
#include "attn_cache.cuh"
#include "grid.h"
#include "shape.h"

#define CHUNK 128u   /* positions */
#define SLAB 32u     /* elements of keys at a time */
#define K_STRIDE 36u /* floats; 16-byte reads of 8 neighbouring rows meet all banks */
#define V_ROWS 32u   /* values at a time */
#define MERGE_THREADS 128u
#define STORE_WARPS 8u
#define NO_CELL UINT32_MAX
#define PARTS_LIMIT ((uint64_t)64 << 20) /* bytes of scratch */

struct attn_args {
    const float *q, *k, *v, *sink; /* sink: NULL or [n_head] */
    const int32_t *position;
    float *y;
    unsigned char *cache_k, *cache_v;
    uint32_t n_rows, n_head, n_head_kv, n_q;       /* n_q: query heads of a KV head */
    uint32_t dk, dv, type_k, type_v, row_k, row_v; /* row_k, row_v: bytes */
    uint32_t n_ctx, window, n_kv;                  /* n_kv: at most, for which the grid is made */
    float scale;
    /* Parts: [tile][KV head][part][query][dv] sums, then as many pairs of maximum and sum. */
    float *part, *part_ml;
    uint32_t tile, n_tiles, n_parts; /* tile: queries; n_parts 0: blocks merge themselves */
};

/* ---------------------------------------------------------------- positions */
/* Positions [begin, end) that a row sees. */
struct span {
    uint32_t begin, end;
};

/* Of row t.  Whatever the numbers are, no more than n_ctx positions, below n_kv. */
static __device__ struct span visible(const struct attn_args &a, uint32_t t)
{
    int32_t position = a.position[t];
    uint32_t end = position < 0 ? 0 : (uint32_t)position + 1;
    end = end < a.n_kv ? end : a.n_kv;
    uint32_t most = a.window != 0 && a.window < a.n_ctx ? a.window : a.n_ctx;
    return {end > most ? end - most : 0, end};
}

static __device__ inline bool meets(const struct span &s, uint32_t chunk)
{
    return s.begin < (chunk + 1) * CHUNK && s.end > chunk * CHUNK;
}

/* ---------------------------------------------------------------- storing */
/* 32 elements of a new row's head, by one warp; piece counts those of the keys, then values. */
static __device__ void store_piece(const struct attn_args &a, uint32_t t, uint32_t cell,
                                   uint32_t piece, uint32_t lane)
{
    uint32_t per_k = (a.dk + 31) / 32, per_v = (a.dv + 31) / 32;
    bool keys = piece < a.n_head_kv * per_k;
    uint32_t dim = keys ? a.dk : a.dv, type = keys ? a.type_k : a.type_v;
    uint32_t per = keys ? per_k : per_v;
    piece -= keys ? 0 : a.n_head_kv * per_k;
    uint32_t head = piece / per, i = piece % per * 32 + lane;
    const float *x = (keys ? a.k : a.v) + ((size_t)t * a.n_head_kv + head) * dim;
    unsigned char *row = (keys ? a.cache_k : a.cache_v) +
                         ((size_t)head * a.n_ctx + cell) * (keys ? a.row_k : a.row_v);
    if (type == ATSI_TYPE_Q8_0)
        cuda_store_q8_0(x[i], row, i / 32, lane);
    else if (i < dim)
        cuda_store_element(type, x[i], row, i);
}

/* Pieces along x, rows along y. */
static __global__ void attn_store_kernel(struct attn_args a)
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

/* ---------------------------------------------------------------- a tile of queries */
/* M queries of one KV head. */
template <uint32_t M>
struct alignas(16) attn_tile {
    float kv[CHUNK * K_STRIDE]; /* keys [CHUNK][K_STRIDE], or values [V_ROWS][up to 128] */
    float q[M][SLAB];
    float p[M][CHUNK]; /* scores, then weights */
    uint32_t cell[CHUNK];
    struct span span[M];     /* empty behind the last query */
    float max[M], sum[M];    /* of the chunks so far */
    float alpha[M], beta[M]; /* what the sums so far, and this chunk's, count in the merged one */
};

/* What a block works on. */
struct attn_work {
    uint32_t first, head, tile, part; /* first: query; part: when there are parts */
    struct span all;                  /* positions that some query sees */
    uint32_t chunk;
    bool ragged; /* not all queries see the same of this chunk */
};

/* Where query m's part of the chunk is. */
static __device__ inline size_t part_at(const struct attn_args &a, const struct attn_work &w,
                                        uint32_t m)
{
    return (((size_t)w.tile * a.n_head_kv + w.head) * a.n_parts + w.part) * a.tile + m;
}

/* e^(x - m), and 0 at -infinity whatever m is. */
static __device__ inline float weight_at(float x, float m)
{
    return x == -INFINITY ? 0.0f : expf(x - m);
}

/* What there is, x, and a chunk's c. */
static __device__ inline float merged(float x, float alpha, float c, float beta)
{
    return fmaf(x, alpha, c * beta);
}

/* `rows` rows of the cache, elements [from, from + WIDTH), into `to`. */
template <uint32_t WIDTH, uint32_t THREADS>
static __device__ inline void load_rows(uint32_t type, const unsigned char *cache,
                                        uint32_t row_bytes, const uint32_t *cell, uint32_t rows,
                                        uint32_t from, uint32_t dim, float *to, uint32_t stride)
{
    const uint32_t per = WIDTH / 4;
    for (uint32_t u = threadIdx.x; u < rows * per; u += THREADS) {
        uint32_t r = u / per, i = u % per * 4;
        float4 x = make_float4(0, 0, 0, 0);
        if (cell[r] != NO_CELL)
            x = cuda_cache_read(type, cache + (size_t)cell[r] * row_bytes, from + i, dim);
        *(float4 *)(void *)(to + r * stride + i) = x;
    }
}

/* Elements [from, from + SLAB) of the tile's queries. */
template <uint32_t M, uint32_t THREADS>
static __device__ inline void load_queries(const struct attn_args &a, struct attn_tile<M> &s,
                                           uint32_t first, uint32_t head, uint32_t from)
{
    for (uint32_t e = threadIdx.x; e < M * SLAB; e += THREADS) {
        uint32_t m = e / SLAB, i = from + e % SLAB, u = first + m;
        bool have = s.span[m].end > 0 && i < a.dk;
        size_t row = (size_t)(u / a.n_q) * a.n_head + head * a.n_q + u % a.n_q;
        s.q[m][e % SLAB] = have ? a.q[row * a.dk + i] : 0.0f;
    }
}

/* ---------------------------------------------------------------- scores */
/* A thread per position and PER queries. */
template <uint32_t GROUPS, uint32_t PER>
static __device__ void chunk_scores(const struct attn_args &a, struct attn_tile<GROUPS * PER> &s,
                                    uint32_t first, uint32_t head)
{
    const uint32_t threads = GROUPS * CHUNK;
    uint32_t j = threadIdx.x % CHUNK, m0 = threadIdx.x / CHUNK * PER;
    float dot[PER] = {};
    for (uint32_t from = 0; from < a.dk; from += SLAB) {
        load_rows<SLAB, threads>(a.type_k, a.cache_k + (size_t)head * a.n_ctx * a.row_k, a.row_k,
                                 s.cell, CHUNK, from, a.dk, s.kv, K_STRIDE);
        load_queries<GROUPS * PER, threads>(a, s, first, head, from);
        __syncthreads();
        for (uint32_t i = 0; i < SLAB; i += 4) {
            float4 k = *(const float4 *)(const void *)(s.kv + j * K_STRIDE + i);
#pragma unroll
            for (uint32_t m = 0; m < PER; m++) {
                float4 q = *(const float4 *)(const void *)&s.q[m0 + m][i];
                dot[m] = fmaf(q.w, k.w, fmaf(q.z, k.z, fmaf(q.y, k.y, fmaf(q.x, k.x, dot[m]))));
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (uint32_t m = 0; m < PER; m++)
        s.p[m0 + m][j] = dot[m] * a.scale;
}

/* Scores of query m to weights, by one warp; its maximum and sum. */
template <uint32_t M>
static __device__ void chunk_softmax(struct attn_tile<M> &s, uint32_t chunk, uint32_t m,
                                     uint32_t lane, float *max_out, float *sum_out)
{
    float x[CHUNK / CUDA_WARP], max = -INFINITY, sum = 0;
    for (uint32_t e = 0; e < CHUNK / CUDA_WARP; e++) {
        uint32_t position = chunk * CHUNK + e * CUDA_WARP + lane;
        bool seen = position >= s.span[m].begin && position < s.span[m].end;
        x[e] = seen ? s.p[m][e * CUDA_WARP + lane] : -INFINITY;
        max = fmaxf(max, x[e]);
    }
    max = cuda_warp_max(max);
    for (uint32_t e = 0; e < CHUNK / CUDA_WARP; e++) {
        x[e] = weight_at(x[e], max);
        s.p[m][e * CUDA_WARP + lane] = x[e];
        sum += x[e];
    }
    *max_out = max;
    *sum_out = cuda_warp_sum(sum);
}

/* Takes the chunk's maximum and sum into those of the chunks so far. */
template <uint32_t M>
static __device__ inline void merge_query(struct attn_tile<M> &s, uint32_t m, float max, float sum)
{
    float both = fmaxf(s.max[m], max);
    s.alpha[m] = weight_at(s.max[m], both);
    s.beta[m] = weight_at(max, both);
    s.sum[m] = merged(s.sum[m], s.alpha[m], sum, s.beta[m]);
    s.max[m] = both;
}

template <uint32_t GROUPS, uint32_t PER>
static __device__ void chunk_weights(const struct attn_args &a, struct attn_tile<GROUPS * PER> &s,
                                     const struct attn_work &w)
{
    const uint32_t warps = GROUPS * CHUNK / CUDA_WARP;
    uint32_t lane = threadIdx.x % CUDA_WARP;
    for (uint32_t m = threadIdx.x / CUDA_WARP; m < GROUPS * PER; m += warps) {
        float max, sum;
        chunk_softmax(s, w.chunk, m, lane, &max, &sum);
        if (lane != 0 || !meets(s.span[m], w.chunk))
            continue;
        if (a.n_parts != 0) {
            size_t at = part_at(a, w, m);
            a.part_ml[2 * at] = max;
            a.part_ml[2 * at + 1] = sum;
        } else {
            merge_query(s, m, max, sum);
        }
    }
}

/* ---------------------------------------------------------------- values */
/* sum[m] += weights of queries m0 + m times column `col` of V_ROWS values.  `ragged`: some query
 * does not see all of them, and what it does not see must not count even when it is infinite. */
template <uint32_t WIDTH, uint32_t PER, uint32_t M>
static __device__ inline void add_values(const struct attn_tile<M> &s, uint32_t m0, uint32_t j0,
                                         uint32_t col, bool ragged, float (&sum)[PER])
{
    for (uint32_t j = 0; j < V_ROWS; j += 4) {
        const float *v = s.kv + j * WIDTH + col;
        float v0 = v[0], v1 = v[WIDTH], v2 = v[2 * WIDTH], v3 = v[3 * WIDTH];
#pragma unroll
        for (uint32_t m = 0; m < PER; m++) {
            float4 p = *(const float4 *)(const void *)&s.p[m0 + m][j0 + j];
            if (!ragged) {
                sum[m] = fmaf(p.w, v3, fmaf(p.z, v2, fmaf(p.y, v1, fmaf(p.x, v0, sum[m]))));
            } else {
                sum[m] = p.x != 0.0f ? fmaf(p.x, v0, sum[m]) : sum[m];
                sum[m] = p.y != 0.0f ? fmaf(p.y, v1, sum[m]) : sum[m];
                sum[m] = p.z != 0.0f ? fmaf(p.z, v2, sum[m]) : sum[m];
                sum[m] = p.w != 0.0f ? fmaf(p.w, v3, sum[m]) : sum[m];
            }
        }
    }
}

/* Element `col` of query m's sum over the chunk goes to the parts, or into the result. */
template <uint32_t M>
static __device__ inline void put_value(const struct attn_args &a, const struct attn_tile<M> &s,
                                        const struct attn_work &w, uint32_t m, uint32_t col,
                                        float sum)
{
    uint32_t u = w.first + m;
    if (!meets(s.span[m], w.chunk))
        return;
    if (a.n_parts != 0) {
        a.part[part_at(a, w, m) * a.dv + col] = sum;
        return;
    }
    float *y = a.y + ((size_t)(u / a.n_q) * a.n_head + w.head * a.n_q + u % a.n_q) * a.dv + col;
    bool fresh = s.span[m].begin >= w.chunk * CHUNK; /* nothing of this row is in y yet */
    *y = merged(fresh ? 0.0f : *y, s.alpha[m], sum, s.beta[m]);
}

/* A thread per column, WIDTH of them at a time, and PER queries. */
template <uint32_t M, uint32_t THREADS, uint32_t WIDTH>
static __device__ void chunk_values(const struct attn_args &a, struct attn_tile<M> &s,
                                    const struct attn_work &w)
{
    const uint32_t per = M * WIDTH / THREADS;
    uint32_t col = threadIdx.x % WIDTH, m0 = threadIdx.x / WIDTH * per;
    const unsigned char *cache = a.cache_v + (size_t)w.head * a.n_ctx * a.row_v;
    for (uint32_t from = 0; from < a.dv; from += WIDTH) {
        float sum[per] = {};
        for (uint32_t j0 = 0; j0 < CHUNK; j0 += V_ROWS) {
            uint32_t position = w.chunk * CHUNK + j0;
            if (position >= w.all.end || position + V_ROWS <= w.all.begin)
                continue;
            load_rows<WIDTH, THREADS>(a.type_v, cache, a.row_v, s.cell + j0, V_ROWS, from, a.dv,
                                      s.kv, WIDTH);
            __syncthreads();
            add_values<WIDTH, per>(s, m0, j0, col, w.ragged, sum);
            __syncthreads();
        }
#pragma unroll
        for (uint32_t m = 0; m < per; m++)
            if (from + col < a.dv)
                put_value(a, s, w, m0 + m, from + col, sum[m]);
    }
}

/* ---------------------------------------------------------------- blocks */
template <uint32_t M>
static __device__ void tile_begin(const struct attn_args &a, struct attn_tile<M> &s,
                                  struct attn_work &w)
{
    uint32_t m = threadIdx.x, u = w.first + m;
    if (m < M) {
        s.span[m] = u < a.n_rows * a.n_q ? visible(a, u / a.n_q) : span{0, 0};
        s.max[m] = -INFINITY;
        s.sum[m] = 0;
    }
    __syncthreads();
    w.all = {UINT32_MAX, 0};
    for (m = 0; m < M; m++) {
        if (s.span[m].end == 0)
            continue;
        w.all.begin = s.span[m].begin < w.all.begin ? s.span[m].begin : w.all.begin;
        w.all.end = s.span[m].end > w.all.end ? s.span[m].end : w.all.end;
    }
}

/* Cells of the chunk's positions, and whether all queries see the same of them. */
template <uint32_t M>
static __device__ void chunk_begin(const struct attn_args &a, struct attn_tile<M> &s,
                                   struct attn_work &w)
{
    uint32_t from = w.chunk * CHUNK, position = from + threadIdx.x;
    if (threadIdx.x < CHUNK)
        s.cell[threadIdx.x] =
            position >= w.all.begin && position < w.all.end ? position % a.n_ctx : NO_CELL;
    w.ragged = false;
    for (uint32_t m = 0; m < M; m++)
        if (s.span[m].end != 0 && ((s.span[m].begin > from && s.span[m].begin != w.all.begin) ||
                                   (s.span[m].end < from + CHUNK && s.span[m].end != w.all.end)))
            w.ragged = true;
    __syncthreads();
}

/* The factor of a merged sum, with maximum `max` and weights' sum `sum`, in the result. */
struct last_step {
    float alpha, sum;
};

static __device__ inline struct last_step last_step_of(const struct attn_args &a, uint32_t head,
                                                       float max, float sum)
{
    if (a.sink == NULL)
        return {1.0f, sum};
    float sink = a.sink[head], both = fmaxf(max, sink), alpha = weight_at(max, both);
    return {alpha, merged(sum, alpha, weight_at(sink, both), 1.0f)};
}

/* Results of the tile: sums over all chunks by the sum of their weights. */
template <uint32_t M, uint32_t THREADS, uint32_t WIDTH>
static __device__ void tile_end(const struct attn_args &a, const struct attn_tile<M> &s,
                                const struct attn_work &w)
{
    const uint32_t per = M * WIDTH / THREADS;
    uint32_t m0 = threadIdx.x / WIDTH * per;
    for (uint32_t m = m0; m < m0 + per; m++) {
        uint32_t u = w.first + m;
        if (u >= a.n_rows * a.n_q)
            continue;
        uint32_t head = w.head * a.n_q + u % a.n_q;
        struct last_step last = last_step_of(a, head, s.max[m], s.sum[m]);
        float *y = a.y + ((size_t)(u / a.n_q) * a.n_head + head) * a.dv;
        for (uint32_t i = threadIdx.x % WIDTH; i < a.dv; i += WIDTH) /* what this thread wrote */
            y[i] = (s.span[m].end > 0 ? y[i] : 0.0f) * last.alpha / last.sum;
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

/* How an attention is cut; does not change a bit of its results. */
struct attn_cut {
    uint32_t tile, n_tiles, n_parts;
    uint64_t n_sums; /* of all parts */
};

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
    c.tile = n <= 1 ? 1 : n <= 4 ? 4 : n <= 8 ? 8 : 32;
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

static cudaError_t launch_store(const struct cuda_launch *l, const struct attn_args *a)
{
    uint64_t n =
        (uint64_t)a->n_head_kv * (cuda_div_up(a->dk, CUDA_WARP) + cuda_div_up(a->dv, CUDA_WARP));
    dim3 grid(cuda_blocks(n, STORE_WARPS), cuda_blocks_y(a->n_rows));
    return ATSI_LAUNCH(attn_store_kernel, grid, dim3(STORE_WARPS * CUDA_WARP), 0, l->stream, *a);
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

static cudaError_t launch_merge(const struct cuda_launch *l, const struct attn_args *a)
{
    dim3 grid(a->n_rows * a->n_head, (unsigned)cuda_div_up(a->dv, MERGE_THREADS));
    return ATSI_LAUNCH(attn_merge_kernel, grid, dim3(MERGE_THREADS), 0, l->stream, *a);
}

static cudaError_t attn_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct attn_args a = attn_args_of(l, op);
    cudaError_t e = launch_store(l, &a);
    if (e != cudaSuccess)
        return e;
    e = a.tile == 1   ? launch_tiles<1, 1>(l, &a)
        : a.tile == 4 ? launch_tiles<1, 4>(l, &a)
        : a.tile == 8 ? launch_tiles<1, 8>(l, &a)
                      : launch_tiles<2, 16>(l, &a);
    return e != cudaSuccess || a.n_parts == 0 ? e : launch_merge(l, &a);
}

extern "C" const struct cuda_op cuda_op_attn = {ATSI_OP_ATTN, attn_supports, attn_scratch,
                                                attn_launch};
