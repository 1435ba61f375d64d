/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of many queries over an f16 cache, on tensor cores: scores and sums of values of a
 * chunk as products of halves, everything between them as in attn_tile.cuh.
 *
 * Keys and values are halves already.  Queries and weights, which are floats, become the sum of two
 * (split_half.cuh), so that a product is off by no more than 2^-22 of itself.  A chunk with a key
 * or value that is not finite goes the way of attn_tile.cuh: times zero, or in two parts, it would
 * spoil what must not see it.
 *
 * A block of 4 or 8 warps has 32 or 64 queries.  Four warps share 32 of them: each has a quarter of
 * the positions, then of the columns.  The sums stay in registers from chunk to chunk.
 */
#ifndef ATSI_CUDA_ATTN_WIDE_CUH
#define ATSI_CUDA_ATTN_WIDE_CUH

#include "async.cuh"
#include "attn_tile.cuh"
#include "mma.cuh"
#include "split_half.cuh"

#define WIDE_DIM 128u       /* the widest head */
#define WIDE_WEIGHT 1024.0f /* weights are scaled up so far, lest small ones lose bits */

/* Shared memory: attn_tile, then rows of the cache and both terms of the queries. */
template <uint32_t M>
struct wide_memory {
    struct attn_tile<M> *s;
    uint32_t k_stride, v_stride; /* bytes of a row; rows start in different banks */

    static __host__ __device__ constexpr uint32_t stride_of(uint32_t dim)
    {
        return 2 * dim + 16;
    }
    static __host__ __device__ constexpr size_t bytes(uint32_t dk, uint32_t dv)
    {
        return sizeof(struct attn_tile<M>) + CHUNK * stride_of(dk > dv ? dk : dv) +
               2 * M * stride_of(dk) + M * sizeof(float);
    }
    __device__ __forceinline__ uint8_t *rows() const
    {
        return (uint8_t *)(s + 1);
    }
    __device__ __forceinline__ uint8_t *q(uint32_t term) const
    {
        return rows() + CHUNK * (k_stride > v_stride ? k_stride : v_stride) + term * M * k_stride;
    }
    __device__ __forceinline__ float *factor() const
    {
        return (float *)(void *)(q(0) + 2 * M * k_stride);
    }
};

/* A lane's place: 32 queries from `query` on, quarter `part` of the rest. */
struct wide_lane {
    uint32_t query, part, g, t;
};

typedef float wide_sums[2][4][4]; /* [16 queries][8 columns][of a fragment] */

/* ---------------------------------------------------------------- filling */

/* The tile's queries, scaled and split: a warp for each in turn. */
template <uint32_t M>
static __device__ void wide_queries(const struct attn_args &a, const wide_memory<M> &m,
                                    const struct attn_work &w)
{
    uint32_t lane = threadIdx.x % CUDA_WARP;
    for (uint32_t i = threadIdx.x / CUDA_WARP; i < M; i += blockDim.x / CUDA_WARP) {
        uint32_t u = w.first + i;
        bool have = m.s->span[i].end > 0;
        const float *x = a.q + ((size_t)(u / a.n_q) * a.n_head + w.head * a.n_q + u % a.n_q) * a.dk;
        float most = 0;
        for (uint32_t e = lane; have && e < a.dk; e += CUDA_WARP)
            most = fmaxf(most, fabsf(x[e]));
        cuda_scaling scaling = cuda_scaling_of(cuda_warp_max(most));
        for (uint32_t e = lane; e < a.dk; e += CUDA_WARP) {
            uint16_t first = 0, second = 0;
            if (have)
                cuda_split_half<false>(x[e] * scaling.scale, &first, &second);
            ((uint16_t *)(void *)(m.q(0) + i * m.k_stride))[e] = first;
            ((uint16_t *)(void *)(m.q(1) + i * m.k_stride))[e] = second;
        }
        if (lane == 0)
            m.factor()[i] = scaling.factor;
    }
}

/* Rows of the chunk's cells, zeros where there is none. */
template <uint32_t M>
static __device__ void wide_copy(const wide_memory<M> &m, const unsigned char *cache,
                                 uint32_t row_bytes, uint32_t dim, uint32_t stride)
{
    uint32_t per = dim / 8;
    for (uint32_t i = threadIdx.x; i < CHUNK * per; i += blockDim.x) {
        uint32_t r = i / per, at = i % per * 16, cell = m.s->cell[r];
        bool there = cell != NO_CELL;
        async_copy_16(m.rows() + r * stride + at,
                      there ? cache + (size_t)cell * row_bytes + at : cache, there);
    }
    async_commit();
}

static __device__ __forceinline__ uint32_t wide_word_is_odd(uint32_t x)
{
    return (x & 0x7c00u) == 0x7c00u || (x & 0x7c000000u) == 0x7c000000u;
}

/* Waits for the rows; whether some element of them is not finite. */
template <uint32_t M>
static __device__ bool wide_arrived(const wide_memory<M> &m, uint32_t dim, uint32_t stride)
{
    uint32_t per = dim / 8;
    uint32_t odd = 0;
    async_wait<0>();
    for (uint32_t i = threadIdx.x; i < CHUNK * per; i += blockDim.x) { /* what this thread copied */
        uint4 x = *(const uint4 *)(const void *)(m.rows() + i / per * stride + i % per * 16);
        odd |= wide_word_is_odd(x.x) | wide_word_is_odd(x.y) | wide_word_is_odd(x.z) |
               wide_word_is_odd(x.w);
    }
    return __syncthreads_or((int)odd) != 0;
}

/* ---------------------------------------------------------------- products */

static __device__ __forceinline__ void wide_mma(float (&c)[4], const uint32_t (&a)[4],
                                                const uint32_t (&b)[2])
{
    mma_half<false>(c[0], c[1], c[2], c[3], a, b);
}

/* Scores of 32 queries and 32 positions. */
template <uint32_t M>
static __device__ void wide_scores(const struct attn_args &a, const wide_memory<M> &m,
                                   const wide_lane &at)
{
    wide_sums sums = {};
    const int8_t *k = (const int8_t *)m.rows() + 32 * at.part * m.k_stride;
#pragma unroll 2
    for (uint32_t e = 0; e < a.dk; e += 16) {
        uint32_t b[4][2];
#pragma unroll
        for (uint32_t n = 0; n < 4; n += 2) {
            uint32_t two[2][2];
            mma_load_b(two, k + 8 * n * m.k_stride + 2 * e, m.k_stride);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                b[n + i / 2][i % 2] = two[i / 2][i % 2];
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            uint32_t q[4], half = i / 2;
            const int8_t *tile = (const int8_t *)m.q(i % 2);
            mma_load_a(q, tile + (at.query + 16 * half) * m.k_stride + 2 * e, m.k_stride);
#pragma unroll
            for (uint32_t n = 0; n < 4; n++)
                wide_mma(sums[half][n], q, b[n]);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t n = i / 4 % 4, c = i % 4, query = at.query + 16 * (i / 16) + 8 * (c / 2) + at.g;
        m.s->p[query][32 * at.part + 8 * n + 2 * at.t + c % 2] =
            sums[i / 16][n][c] * m.factor()[query] * a.scale;
    }
}

/* Weights of queries at.g, and 8 below, positions 2 t and 2 t + 1 and 8 further: both terms. */
template <uint32_t M>
static __device__ __forceinline__ void wide_weights(const wide_memory<M> &m, const wide_lane &at,
                                                    uint32_t query, uint32_t position,
                                                    uint32_t (&p)[2][4])
{
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        float2 x = *(const float2 *)(const void *)&m.s
                        ->p[query + at.g + 8 * (i % 2)][position + 2 * at.t + 8 * (i / 2)];
        uint16_t first[2], second[2];
        cuda_split_half<false>(x.x * WIDE_WEIGHT, &first[0], &second[0]);
        cuda_split_half<false>(x.y * WIDE_WEIGHT, &first[1], &second[1]);
        p[0][i] = first[0] | (uint32_t)first[1] << 16;
        p[1][i] = second[0] | (uint32_t)second[1] << 16;
    }
}

/* Sums of values of 32 queries and 32 columns. */
template <uint32_t M>
static __device__ void wide_values(const struct attn_args &a, const wide_memory<M> &m,
                                   const wide_lane &at, wide_sums &sums)
{
    uint32_t col = 32 * at.part;
    for (uint32_t j = 0; j < CHUNK && col < a.dv; j += 16) {
        uint32_t b[4][2];
#pragma unroll
        for (uint32_t n = 0; n < 4; n += 2) {
            uint32_t two[2][2] = {};
            if (col + 8 * n < a.dv)
                mma_load_b_across(two, m.rows() + j * m.v_stride + 2 * (col + 8 * n), m.v_stride);
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                b[n + i / 2][i % 2] = two[i / 2][i % 2];
        }
#pragma unroll
        for (uint32_t half = 0; half < 2; half++) {
            uint32_t p[2][4];
            wide_weights(m, at, at.query + 16 * half, j, p);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++)
                wide_mma(sums[half][i % 4], p[i / 4], b[i % 4]);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 32; i++)
        sums[i / 16][i / 4 % 4][i % 4] *= 1.0f / WIDE_WEIGHT;
}

/* The same in f32, with values as they are. */
template <uint32_t M>
static __device__ void wide_values_exact(const struct attn_args &a, const wide_memory<M> &m,
                                         const struct attn_work &w, const wide_lane &at,
                                         wide_sums &sums)
{
    const uint16_t *v = (const uint16_t *)(const void *)m.rows();
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t query = at.query + 16 * (i / 16) + 8 * (i % 4 / 2) + at.g;
        uint32_t col = 32 * at.part + 8 * (i / 4 % 4) + 2 * at.t + i % 2;
        float sum = 0;
#pragma unroll 1
        for (uint32_t j = 0; j < CHUNK && col < a.dv; j++) {
            uint32_t position = w.chunk * CHUNK + j;
            float p = m.s->p[query][j];
            bool seen = position >= w.all.begin && position < w.all.end;
            if (seen && (!w.ragged || p != 0.0f))
                sum = fmaf(p, cuda_from_f16(v[j * (m.v_stride / 2) + col]), sum);
        }
        sums[i / 16][i / 4 % 4][i % 4] = sum;
    }
}

/* ---------------------------------------------------------------- blocks */

/* Element i of a lane's sums. */
static __device__ __forceinline__ uint32_t wide_query(const wide_lane &at, uint32_t i)
{
    return at.query + 16 * (i / 16) + 8 * (i % 4 / 2) + at.g;
}

static __device__ __forceinline__ uint32_t wide_column(const wide_lane &at, uint32_t i)
{
    return 32 * at.part + 8 * (i / 4 % 4) + 2 * at.t + i % 2;
}

/* A chunk's sums go to the parts, or into those so far. */
template <uint32_t M>
static __device__ void wide_merge(const struct attn_args &a, const wide_memory<M> &m,
                                  const struct attn_work &w, const wide_lane &at,
                                  const wide_sums &sums, wide_sums &all)
{
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t query = wide_query(at, i), col = wide_column(at, i);
        const struct span &span = m.s->span[query];
        float sum = sums[i / 16][i / 4 % 4][i % 4], *to = &all[i / 16][i / 4 % 4][i % 4];
        if (!meets(span, w.chunk))
            continue;
        if (a.n_parts == 0)
            *to = merged(span.begin >= w.chunk * CHUNK ? 0.0f : *to, m.s->alpha[query], sum,
                         m.s->beta[query]);
        else if (col < a.dv)
            a.part[part_at(a, w, query) * a.dv + col] = sum;
    }
}

template <uint32_t M>
static __device__ void wide_end(const struct attn_args &a, const wide_memory<M> &m,
                                const struct attn_work &w, const wide_lane &at,
                                const wide_sums &all)
{
#pragma unroll
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t query = wide_query(at, i), col = wide_column(at, i), u = w.first + query;
        if (u >= a.n_rows * a.n_q || col >= a.dv)
            continue;
        uint32_t head = w.head * a.n_q + u % a.n_q;
        struct last_step last = last_step_of(a, head, m.s->max[query], m.s->sum[query]);
        a.y[((size_t)(u / a.n_q) * a.n_head + head) * a.dv + col] =
            all[i / 16][i / 4 % 4][i % 4] * last.alpha / last.sum;
    }
}

template <uint32_t GROUPS>
static __device__ void wide_chunk(const struct attn_args &a, const wide_memory<32 * GROUPS> &m,
                                  struct attn_work &w, const wide_lane &at, wide_sums &all)
{
    wide_sums sums = {};
    chunk_begin(a, *m.s, w);
    wide_copy(m, a.cache_k + (size_t)w.head * a.n_ctx * a.row_k, a.row_k, a.dk, m.k_stride);
    if (wide_arrived(m, a.dk, m.k_stride))
        chunk_scores<GROUPS, 32>(a, *m.s, w.first, w.head);
    else
        wide_scores(a, m, at);
    __syncthreads(); /* scores are there, and the keys' place is free */
    wide_copy(m, a.cache_v + (size_t)w.head * a.n_ctx * a.row_v, a.row_v, a.dv, m.v_stride);
    chunk_weights<GROUPS, 32>(a, *m.s, w);
    if (wide_arrived(m, a.dv, m.v_stride))
        wide_values_exact(a, m, w, at, sums);
    else
        wide_values(a, m, at, sums);
    wide_merge(a, m, w, at, sums, all);
    __syncthreads(); /* the tile is free */
}

/* As attn_kernel(), with 32 * GROUPS queries. */
template <uint32_t GROUPS>
static __global__ void __launch_bounds__(GROUPS *CHUNK, 1) attn_wide_kernel(struct attn_args a)
{
    const uint32_t tile = 32 * GROUPS;
    ATSI_DYNAMIC_SHARED(struct attn_tile<tile>, s);
    const wide_memory<tile> m = {s, wide_memory<tile>::stride_of(a.dk),
                                 wide_memory<tile>::stride_of(a.dv)};
    uint32_t lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    const wide_lane at = {warp / 4 * 32, warp % 4, lane / 4, lane % 4};
    wide_sums all = {};
    struct attn_work w = {};
    w.tile = gridDim.x - 1 - blockIdx.x;
    w.first = w.tile * tile;
    w.head = blockIdx.y;
    w.part = blockIdx.z;
    tile_begin(a, *s, w);
    wide_queries(a, m, w);
    uint32_t n_chunks = w.all.end > 0 ? (w.all.end - 1) / CHUNK + 1 : 0;
    w.chunk = w.all.begin / CHUNK + w.part;
    if (a.n_parts != 0 && w.chunk + 1 < n_chunks)
        n_chunks = w.chunk + 1;
    for (; w.chunk < n_chunks; w.chunk++)
        wide_chunk<GROUPS>(a, m, w, at, all);
    if (a.n_parts == 0)
        wide_end(a, m, w, at, all);
}

#endif
