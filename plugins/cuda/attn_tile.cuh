/* SPDX-License-Identifier: Apache-2.0
 *
 * A tile of query vectors and a chunk of positions: scores, the softmax of the chunk for itself,
 * the sum of values it weighs, and how chunks are merged (attn.cu says how they are dealt out).
 * Everything here is f32.
 */
#ifndef ATSI_CUDA_ATTN_TILE_CUH
#define ATSI_CUDA_ATTN_TILE_CUH

#include "attn_cache.cuh"
#include "op.h"

#define CHUNK 128u            /* positions */
#define SLAB 32u              /* elements of keys at a time */
#define K_STRIDE 36u          /* floats; 16-byte reads of 8 neighbouring rows meet all banks */
#define V_ROWS 32u            /* values at a time */
#define P_STRIDE (CHUNK + 8u) /* floats; fragments of 8 rows meet all banks */
#define NO_CELL UINT32_MAX

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

/* ---------------------------------------------------------------- a tile of queries */
/* M queries of one KV head. */
template <uint32_t M>
struct alignas(16) attn_tile {
    float kv[CHUNK * K_STRIDE]; /* keys [CHUNK][K_STRIDE], or values [V_ROWS][up to 128] */
    float q[M][SLAB];
    float p[M][P_STRIDE]; /* scores, then weights */
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

#endif
