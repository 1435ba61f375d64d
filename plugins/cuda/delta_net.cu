/* SPDX-License-Identifier: Apache-2.0
 *
 * ATSI_OP_DELTA_NET, row after row, so that results do not depend on how rows were cut into calls.
 *
 * Columns of a head's state never meet, so a block takes 32 of them, a lane each, and its warps
 * take stretches of the rows of S: a thread keeps its part of S in registers over all rows of the
 * call (in memory where keys are longer than those of any model we know).  With S already decayed,
 *   d = beta (v - S^T k),   S^T q after the update = S^T q + d (k.q),
 * so one exchange between the warps serves both products.
 *
 * Keys and queries are normalised, and rates computed, for a tile of rows at a time.
 */
#include "grid.h"
#include "math.cuh"
#include "shape.h"

#define DELTA_WARPS 8u
#define DELTA_THREADS (DELTA_WARPS * CUDA_WARP)
#define DELTA_TILE_ROWS 16u
#define DELTA_TILE 2048u /* floats: keys (queries) of a tile */
#define DELTA_REGS 16u   /* of a thread, for S */
#define DELTA_MAX_DIM 1024u
/* exp() of less is 0 in f32. */
#define LOG_DECAY_MIN (-128.0f)

struct delta_args {
    const float *qkv, *beta, *alpha; /* rows; beta and alpha at those of head 0 */
    const float *rate, *bias;        /* [n_head_v] */
    float *state, *y;                /* [n_head_v][dk][dv], [n_rows][n_head_v * dv] */
    uint32_t n_rows, n_head_k, n_head_v, dk, dv;
    uint32_t beta_width, alpha_width; /* of a row */
    uint32_t run, stride, tiled;
    uint32_t part, tile_rows; /* rows of S of a warp; rows of a tile */
    float eps, scale;
};

/* What a tile of rows brings; keys and queries are padded with zeros to DELTA_WARPS * part. */
struct alignas(16) delta_tile {
    float q[DELTA_TILE], k[DELTA_TILE];
    float v[DELTA_TILE_ROWS][CUDA_WARP];
    float decay[DELTA_TILE_ROWS], beta[DELTA_TILE_ROWS], kq[DELTA_TILE_ROWS];
};

/* Sums of the warps' parts of S^T k and S^T q, by turns, so that one barrier per row is enough. */
struct delta_sums {
    float k[2][DELTA_WARPS][CUDA_WARP], q[2][DELTA_WARPS][CUDA_WARP];
};

/* Which head and column a thread works on. */
struct delta_place {
    uint32_t head, key_head, column, lane, warp;
    bool active; /* the column exists */
};

/* A thread's part of one column of S: N rows in registers, those that S lacks being 0. */
template <uint32_t N>
struct delta_column {
    float s[N];
    static const uint32_t n = N;

    __device__ void load(const float *from, uint32_t stride, uint32_t n_valid)
    {
#pragma unroll
        for (uint32_t e = 0; e < N; e++)
            s[e] = e < n_valid ? from[(size_t)e * stride] : 0.0f;
    }
    __device__ void store(float *to, uint32_t stride, uint32_t n_valid) const
    {
#pragma unroll
        for (uint32_t e = 0; e < N; e++)
            if (e < n_valid)
                to[(size_t)e * stride] = s[e];
    }
    __device__ float get(uint32_t e) const
    {
        return s[e];
    }
    __device__ void set(uint32_t e, float x)
    {
        s[e] = x;
    }
};

/* The same in place. */
template <>
struct delta_column<0> {
    float *at;
    uint32_t step, n;

    __device__ void load(float *from, uint32_t stride, uint32_t n_valid)
    {
        at = from;
        step = stride;
        n = n_valid;
    }
    __device__ void store(float *, uint32_t, uint32_t) const
    {
    }
    __device__ float get(uint32_t e) const
    {
        return at[(size_t)e * step];
    }
    __device__ void set(uint32_t e, float x)
    {
        at[(size_t)e * step] = x;
    }
};

/* ---------------------------------------------------------------- a tile of rows */
/* x / max(its 2-norm, eps), by one warp. */
static __device__ void normalise(const float *x, float *y, uint32_t n, uint32_t padded, float eps,
                                 uint32_t lane)
{
    float sum = 0, scale;
    for (uint32_t i = lane; i < n; i += CUDA_WARP)
        sum = fmaf(x[i], x[i], sum);
    sum = cuda_warp_sum(sum);
    scale = 1.0f / fmaxf(sqrtf(sum), eps);
    if (!cuda_squares_fit(sum)) {
        double exact = 0;
        for (uint32_t i = lane; i < n; i += CUDA_WARP)
            exact += (double)x[i] * (double)x[i];
        scale = (float)(1.0 / fmax(sqrt(cuda_warp_sum(exact)), (double)eps));
    }
    for (uint32_t i = lane; i < padded; i += CUDA_WARP)
        y[i] = i < n ? x[i] * scale : 0.0f;
}

static __device__ float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

/* Decay and beta of a row. */
static __device__ void delta_rates(const struct delta_args &a, uint32_t head, uint64_t t,
                                   float *decay, float *beta)
{
    uint64_t at = (uint64_t)(head / a.run) * a.stride + head % a.run;
    float g = a.rate[head] * softplus(a.alpha[t * a.alpha_width + at] + a.bias[head]);
    *decay = expf(g < LOG_DECAY_MIN ? LOG_DECAY_MIN : g);
    *beta = 1.0f / (1.0f + expf(-a.beta[t * a.beta_width + at]));
}

/* Row t into row i of the tile, by one warp. */
static __device__ void delta_stage(const struct delta_args &a, const struct delta_place &p,
                                   struct delta_tile &tile, uint64_t t, uint32_t i)
{
    uint64_t width = 2 * (uint64_t)a.n_head_k * a.dk + (uint64_t)a.n_head_v * a.dv;
    const float *row = a.qkv + t * width;
    uint32_t padded = DELTA_WARPS * a.part;
    float *q = tile.q + i * padded, *k = tile.k + i * padded, kq = 0;
    normalise(row + (uint64_t)p.key_head * a.dk, q, a.dk, padded, a.eps, p.lane);
    normalise(row + ((uint64_t)a.n_head_k + p.key_head) * a.dk, k, a.dk, padded, a.eps, p.lane);
    for (uint32_t e = p.lane; e < a.dk; e += CUDA_WARP) /* what this lane wrote */
        kq = fmaf(k[e], q[e], kq);
    kq = cuda_warp_sum(kq);
    row += 2 * (uint64_t)a.n_head_k * a.dk + (uint64_t)p.head * a.dv;
    tile.v[i][p.lane] = p.active ? row[p.column] : 0.0f;
    if (p.lane == 0) {
        tile.kq[i] = kq;
        delta_rates(a, p.head, t, &tile.decay[i], &tile.beta[i]);
    }
}

/* ---------------------------------------------------------------- one row */
/* All threads of the block; returns the result of the thread's column. */
template <uint32_t N>
static __device__ float delta_step(const struct delta_args &a, const struct delta_place &p,
                                   const struct delta_tile &tile, struct delta_sums &sums,
                                   struct delta_column<N> &s, uint32_t i)
{
    const uint32_t part = N != 0 ? N : a.part; /* known: elements are read four at a time */
    const float *k = tile.k + (i * DELTA_WARPS + p.warp) * part;
    const float *q = tile.q + (i * DELTA_WARPS + p.warp) * part;
    float decay = tile.decay[i], sk = 0, sq = 0;
#pragma unroll
    for (uint32_t e = 0; e < s.n; e++) {
        float x = s.get(e) * decay;
        sk = fmaf(x, k[e], sk);
        sq = fmaf(x, q[e], sq);
    }
    sums.k[i % 2][p.warp][p.lane] = sk;
    sums.q[i % 2][p.warp][p.lane] = sq;
    __syncthreads();
    sk = sq = 0;
    for (uint32_t w = 0; w < DELTA_WARPS; w++) {
        sk += sums.k[i % 2][w][p.lane];
        sq += sums.q[i % 2][w][p.lane];
    }
    float d = tile.beta[i] * (tile.v[i][p.lane] - sk);
#pragma unroll
    for (uint32_t e = 0; e < s.n; e++)
        s.set(e, fmaf(k[e], d, s.get(e) * decay));
    return fmaf(d, tile.kq[i], sq) * a.scale;
}

/* A block per head and 32 columns. */
template <uint32_t N>
static __global__ void __launch_bounds__(DELTA_THREADS) delta_kernel(struct delta_args a)
{
    __shared__ struct delta_tile tile;
    __shared__ struct delta_sums sums;
    uint32_t slices = (a.dv + CUDA_WARP - 1) / CUDA_WARP;
    struct delta_place p;
    struct delta_column<N> s;
    p.head = blockIdx.x / slices;
    p.key_head = a.tiled != 0 ? p.head % a.n_head_k : p.head / (a.n_head_v / a.n_head_k);
    p.lane = threadIdx.x % CUDA_WARP;
    p.warp = threadIdx.x / CUDA_WARP;
    p.column = blockIdx.x % slices * CUDA_WARP + p.lane;
    p.active = p.column < a.dv;
    uint32_t from = p.warp * a.part, left = from < a.dk ? a.dk - from : 0;
    uint32_t n_valid = !p.active ? 0 : left < a.part ? left : a.part;
    float *state = a.state + ((size_t)p.head * a.dk + (n_valid > 0 ? from : 0)) * a.dv +
                   (p.active ? p.column : 0);
    s.load(state, a.dv, n_valid);
    for (uint64_t t0 = 0; t0 < a.n_rows; t0 += a.tile_rows) {
        uint32_t n = a.n_rows - t0 < a.tile_rows ? (uint32_t)(a.n_rows - t0) : a.tile_rows;
        for (uint32_t i = p.warp; i < n; i += DELTA_WARPS)
            delta_stage(a, p, tile, t0 + i, i);
        __syncthreads();
        for (uint32_t i = 0; i < n; i++) {
            float y = delta_step(a, p, tile, sums, s, i);
            if (p.warp == 0 && p.active)
                a.y[((t0 + i) * a.n_head_v + p.head) * a.dv + p.column] = y;
        }
        __syncthreads(); /* the tile is free again */
    }
    s.store(state, a.dv, n_valid);
}

/* ---------------------------------------------------------------- the operation */
/* The rates of all heads lie within a row: `at` is where those of head 0 are. */
static bool has_rates(const struct atsi_op *op, const struct atsi_tensor *t, uint32_t at)
{
    uint32_t heads = op->p.delta.n_head_v, run = op->p.delta.run;
    uint64_t in = cuda_width(t), stride = op->p.delta.stride;
    /* The last run may hold fewer heads than those before it, and runs may overlap. */
    return run > 0 && cuda_is_f32(t, op, in) &&
           cuda_runs_fit((heads - 1) / run + 1, stride, at, (heads - 1) % run + 1, in) &&
           (heads <= run || cuda_runs_fit((heads - 1) / run, stride, at, run, in));
}

static int delta_supports(const struct cuda_device *dev, const struct atsi_op *op)
{
    (void)dev;
    if (!cuda_is_op(op, ATSI_OP_DELTA_NET))
        return 0;
    uint64_t hk = op->p.delta.n_head_k, hv = op->p.delta.n_head_v;
    uint64_t dk = op->p.delta.dim_k, dv = op->p.delta.dim_v;
    if (hk == 0 || hv == 0 || hv % hk != 0 || dk == 0 || dk > DELTA_MAX_DIM || dv == 0 ||
        dv > DELTA_MAX_DIM || op->p.delta.tiled > 1 ||
        !(op->p.delta.eps > 0 && isfinite(op->p.delta.eps)))
        return 0;
    return cuda_is_f32(op->src[0], op, 2 * hk * dk + hv * dv) &&
           has_rates(op, op->src[1], op->p.delta.beta_offset) &&
           has_rates(op, op->src[2], op->p.delta.alpha_offset) &&
           cuda_is_vector(op->weight[0], hv) && cuda_is_vector(op->weight[1], hv) &&
           cuda_is_matrix(op->state, dv, dk, hv) && cuda_is_f32(op->dst[0], op, hv * dv);
}

static struct delta_args delta_args_of(const struct atsi_op *op)
{
    struct delta_args a = {};
    a.qkv = (const float *)op->src[0]->data;
    a.beta = (const float *)op->src[1]->data + op->p.delta.beta_offset;
    a.alpha = (const float *)op->src[2]->data + op->p.delta.alpha_offset;
    a.rate = (const float *)op->weight[0]->data;
    a.bias = (const float *)op->weight[1]->data;
    a.state = (float *)op->state->data;
    a.y = (float *)op->dst[0]->data;
    a.n_rows = op->n_rows;
    a.n_head_k = op->p.delta.n_head_k;
    a.n_head_v = op->p.delta.n_head_v;
    a.dk = op->p.delta.dim_k;
    a.dv = op->p.delta.dim_v;
    a.beta_width = (uint32_t)op->src[1]->ne[0];
    a.alpha_width = (uint32_t)op->src[2]->ne[0];
    a.run = op->p.delta.run;
    a.stride = op->p.delta.stride;
    a.tiled = op->p.delta.tiled;
    a.part =
        a.dk <= DELTA_WARPS * DELTA_REGS ? DELTA_REGS : (uint32_t)cuda_div_up(a.dk, DELTA_WARPS);
    a.tile_rows = cuda_at_most(DELTA_TILE / (DELTA_WARPS * a.part), DELTA_TILE_ROWS);
    a.eps = op->p.delta.eps;
    a.scale = (float)(1 / sqrt((double)a.dk));
    return a;
}

static cudaError_t delta_launch(const struct cuda_launch *l, const struct atsi_op *op)
{
    struct delta_args a = delta_args_of(op);
    dim3 grid((unsigned)(a.n_head_v * cuda_div_up(a.dv, CUDA_WARP)));
    if (a.part == DELTA_REGS)
        return ATSI_LAUNCH((delta_kernel<DELTA_REGS>), grid, dim3(DELTA_THREADS), 0, l->stream, a);
    return ATSI_LAUNCH((delta_kernel<0>), grid, dim3(DELTA_THREADS), 0, l->stream, a);
}

extern "C" const struct cuda_op cuda_op_delta_net = {ATSI_OP_DELTA_NET, delta_supports,
                                                     cuda_no_scratch, delta_launch};
