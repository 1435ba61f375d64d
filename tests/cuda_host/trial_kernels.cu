/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of trial_kernels.h, written as those of plugins/cuda are.
 */
#include "plugins/cuda/async.cuh"
#include "plugins/cuda/launch.cuh"
#include "tests/cuda_host/trial_kernels.h"

#define ALL 0xffffffffu

static __global__ void scale(float *__restrict__ out, const float *__restrict__ in, float a,
                             float b, uint32_t n)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __fmaf_rn(a, __ldg(in + i), b);
}

cudaError_t trial_scale(float *out, const float *in, float a, float b, uint32_t n,
                        cudaStream_t stream)
{
    return ATSI_LAUNCH(scale, (n + 63) / 64, 64, 0, stream, out, in, a, b, n);
}

static __global__ void slow_scale(float *out, const float *in, float a, uint32_t n, uint32_t us)
{
    if (!blockIdx.x && !threadIdx.x)
        __nanosleep(1000 * us);
    __syncthreads();
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a * in[i];
}

cudaError_t trial_slow_scale(float *out, const float *in, float a, uint32_t n, uint32_t us,
                             cudaStream_t stream)
{
    return ATSI_LAUNCH(slow_scale, (n + 63) / 64, 64, 0, stream, out, in, a, n, us);
}

static __global__ void shuffle(int32_t *out, int kind, int width)
{
    int lane = (int)threadIdx.x, value = 100 + lane, result;
    switch (kind) {
    case TRIAL_SHFL_REVERSE:
        result = __shfl_sync(ALL, value, 31 - lane, width);
        break;
    case TRIAL_SHFL_XOR_5:
        result = __shfl_xor_sync(ALL, value, 5, width);
        break;
    case TRIAL_SHFL_UP_3:
        result = __shfl_up_sync(ALL, value, 3, width);
        break;
    case TRIAL_SHFL_DOWN_3:
        result = __shfl_down_sync(ALL, value, 3, width);
        break;
    default:
        result = (int)__shfl_xor_sync(ALL, (double)value, 1, width);
        result += (int)(__shfl_xor_sync(ALL, (unsigned long long)value << 32, 1, width) >> 32);
        result += (int)__shfl_xor_sync(ALL, (float)value, 1, width);
        result += (int)__half2float(__shfl_xor_sync(ALL, __float2half((float)value), 1, width));
    }
    out[lane] = result;
}

cudaError_t trial_shuffle(int32_t *out, int kind, int width, cudaStream_t stream)
{
    return ATSI_LAUNCH(shuffle, 1, 32, 0, stream, out, kind, width);
}

static __global__ void votes(uint32_t *out)
{
    uint32_t lane = threadIdx.x, half = lane < 16 ? 0xffffu : 0xffff0000u;
    uint32_t *o = out + lane;
    o[0 * 32] = __ballot_sync(ALL, lane % 3 == 0);
    o[1 * 32] = (uint32_t)__any_sync(ALL, lane == 31);
    o[2 * 32] = (uint32_t)__all_sync(ALL, lane != 31);
    o[3 * 32] = __match_any_sync(ALL, lane / 8);
    o[4 * 32] = __reduce_add_sync(ALL, lane);
    o[5 * 32] = (uint32_t)__reduce_min_sync(ALL, (int)lane - 16);
    o[6 * 32] = __reduce_max_sync(ALL, lane);
    /* The halves do different things, and meet again. */
    if (lane < 16)
        o[7 * 32] = __ballot_sync(half, lane & 1);
    else
        o[7 * 32] = __shfl_sync(half, lane, 16);
    __syncwarp();
    if (lane & 1)
        o[8 * 32] = __activemask();
    else
        o[8 * 32] = 0;
    __syncwarp();
    o[9 * 32] = __shfl_up_sync(half, lane, 15, 16);
}

cudaError_t trial_votes(uint32_t *out, cudaStream_t stream)
{
    return ATSI_LAUNCH(votes, 1, 32, 0, stream, out);
}

template <bool DYNAMIC>
static __global__ void __launch_bounds__(128) block_sum(float *out, const float *in, uint32_t n)
{
    ATSI_DYNAMIC_SHARED(float, dynamic);
    __shared__ __align__(16) float fixed[4];
    float *parts = DYNAMIC ? dynamic : fixed;
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += in[i];
#pragma unroll
    for (int d = 16; d; d >>= 1)
        sum += __shfl_xor_sync(ALL, sum, d);
    if (threadIdx.x % 32 == 0)
        parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
}

cudaError_t trial_block_sum(float *out, const float *in, uint32_t n, uint32_t blocks, int dynamic,
                            cudaStream_t stream)
{
    if (dynamic)
        return ATSI_LAUNCH((block_sum<true>), blocks, 128, 4 * sizeof(float), stream, out, in, n);
    return ATSI_LAUNCH((block_sum<false>), blocks, 128, 0, stream, out, in, n);
}

static __global__ void barrier_votes(int32_t *out, uint32_t limit)
{
    int p = threadIdx.x < limit;
    int any = __syncthreads_or(p), all = __syncthreads_and(p), n = __syncthreads_count(p);
    if (threadIdx.x == blockDim.x - 1) {
        out[0] = any;
        out[1] = all;
        out[2] = n;
    }
}

cudaError_t trial_barrier_votes(int32_t *out, uint32_t limit, cudaStream_t stream)
{
    return ATSI_LAUNCH(barrier_votes, 1, 96, 0, stream, out, limit);
}

static __global__ void atomics(uint32_t *out, float *sum, unsigned long long *wide)
{
    uint32_t id = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    atomicAdd(&out[0], 1u);
    atomicMax(&out[1], id);
    atomicMin(&out[2], n - id);
    atomicOr(&out[3], 1u << (id & 31));
    atomicMax((int *)&out[4], (int)id - 5);
    if (atomicCAS(&out[5], 0u, id + 1) == 0)
        atomicExch(&out[6], id + 1);
    atomicAdd(sum, 0.5f);
    atomicAdd(wide, 1ull << 32);
    /* The last block to come sees what all others wrote. */
    __shared__ uint32_t ticket;
    out[8 + blockIdx.x] = blockIdx.x;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        ticket = atomicAdd(&out[7], 1u);
    __syncthreads();
    if (ticket != gridDim.x - 1)
        return;
    __threadfence();
    if (threadIdx.x == 0) {
        uint32_t seen = 0;
        for (uint32_t b = 0; b < gridDim.x; b++)
            seen += __ldcg(&out[8 + b]) == b;
        atomicExch(&out[7], seen);
    }
}

cudaError_t trial_atomics(uint32_t *out, float *sum, unsigned long long *wide, uint32_t blocks,
                          cudaStream_t stream)
{
    return ATSI_LAUNCH(atomics, blocks, 64, 0, stream, out, sum, wide);
}

static __global__ void intrinsics(uint32_t *out, const uint32_t *a, const uint32_t *b, uint32_t n)
{
    uint32_t i = threadIdx.x;
    if (i >= n)
        return;
    uint32_t x = a[i], y = b[i], *o = out + i * TRIAL_INTRINSICS;
    o[0] = (uint32_t)__dp4a((int)x, (int)y, -7);
    o[1] = __dp4a(x, y, 7u);
    o[2] = (uint32_t)atsi_dp4a_us(x, (int)y, 1);
    o[3] = __byte_perm(x, y, 0x7250);
    o[4] = (uint32_t)__popc(x);
    o[5] = (uint32_t)__ffs((int)x);
    o[6] = (uint32_t)__clz((int)x);
    o[7] = __vsub4(x, y);
    o[8] = __vadd4(x, y);
    o[9] = (uint32_t)__float2int_rn(__int_as_float((int)x));
    o[10] = __float_as_uint(__fmul_rn(__uint2float_rn(x), 0.5f));
    o[11] = __float_as_uint(__half2float(__ushort_as_half((unsigned short)(x & 0x7bff))));
    o[12] = __float_as_uint(__bfloat162float(__float2bfloat16((float)x)));
    o[13] = __funnelshift_r(x, y, 8);
    o[14] = __float_as_uint(rsqrtf((float)y));
    o[15] = max(x, y) - min(x, y);
}

cudaError_t trial_intrinsics(uint32_t *out, const uint32_t *a, const uint32_t *b, uint32_t n,
                             cudaStream_t stream)
{
    return ATSI_LAUNCH(intrinsics, 1, 32, 0, stream, out, a, b, n);
}

static __global__ void indices(uint32_t *out)
{
    uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    uint32_t per_block = blockDim.x * blockDim.y * blockDim.z;
    __syncthreads(); /* coordinates are each thread's own after it has waited, too */
    out[block * per_block + thread] = blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z +
                                      1000 * threadIdx.x + 10000 * threadIdx.y +
                                      100000 * threadIdx.z;
}

cudaError_t trial_indices(uint32_t *out, dim3 grid, dim3 block, cudaStream_t stream)
{
    return ATSI_LAUNCH(indices, grid, block, 0, stream, out);
}

/* ---- A quantized matrix-vector product ---- */

static __global__ void __launch_bounds__(128)
    gemv(float *__restrict__ y, const uint8_t *__restrict__ w, const float *__restrict__ scales,
         const int8_t *__restrict__ x, uint32_t rows, uint32_t columns)
{
    __shared__ float sums[4];
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x;
    uint32_t blocks = columns / 32;
    const int4 *weights = (const int4 *)(w + (size_t)row * columns / 2);
    float sum = 0;
    for (uint32_t b = threadIdx.x; b < blocks; b += 128) {
        int4 q = __ldg(weights + b);
        const int *xs = (const int *)(x + 32 * b);
        int words[4] = {q.x, q.y, q.z, q.w}, dot = 0;
        for (int i = 0; i < 4; i++) {
            int low = (int)__vsub4((unsigned)words[i] & 0x0f0f0f0fu, 0x08080808u);
            int high = (int)__vsub4(((unsigned)words[i] >> 4) & 0x0f0f0f0fu, 0x08080808u);
            dot = __dp4a(low, xs[i], dot);
            dot = __dp4a(high, xs[i + 4], dot);
        }
        sum += (float)dot * scales[(size_t)row * blocks + b];
    }
    for (int d = 16; d; d >>= 1)
        sum += __shfl_xor_sync(ALL, sum, d);
    if (lane == 0)
        sums[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0 && row < rows)
        y[row] = sums[0] + sums[1] + sums[2] + sums[3];
}

cudaError_t trial_gemv(float *y, const uint8_t *w, const float *scales, const int8_t *x,
                       uint32_t rows, uint32_t columns, cudaStream_t stream)
{
    return ATSI_LAUNCH(gemv, rows, 128, 0, stream, y, w, scales, x, rows, columns);
}

/* ---- Faulty ones ---- */

static __global__ void divergent_barrier(float *out)
{
    if (threadIdx.x < 40)
        __syncthreads();
    __syncwarp();
    out[threadIdx.x] = 1;
}

cudaError_t trial_divergent_barrier(float *out, cudaStream_t stream)
{
    return ATSI_LAUNCH(divergent_barrier, 1, 64, 0, stream, out);
}

static __global__ void early_exit_barrier(float *out)
{
    if (threadIdx.x == 7)
        return;
    __syncthreads();
    out[threadIdx.x] = 1;
}

cudaError_t trial_early_exit_barrier(float *out, cudaStream_t stream)
{
    return ATSI_LAUNCH(early_exit_barrier, 1, 64, 0, stream, out);
}

static __global__ void two_barriers(float *out)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    out[threadIdx.x] = 1;
}

cudaError_t trial_two_barriers(float *out, cudaStream_t stream)
{
    return ATSI_LAUNCH(two_barriers, 1, 64, 0, stream, out);
}

static __global__ void lonely_shuffle(float *out)
{
    float value = (float)threadIdx.x;
    if (threadIdx.x < 20)
        value = __shfl_xor_sync(ALL, value, 1);
    out[threadIdx.x] = value;
}

cudaError_t trial_lonely_shuffle(float *out, cudaStream_t stream)
{
    return ATSI_LAUNCH(lonely_shuffle, 1, 32, 0, stream, out);
}

static __global__ void foreign_lane(float *out)
{
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_sync(0xffffu, (float)threadIdx.x, 20);
}

cudaError_t trial_foreign_lane(float *out, cudaStream_t stream)
{
    return ATSI_LAUNCH(foreign_lane, 1, 32, 0, stream, out);
}

static __global__ void read_at(float *out, const float *in, int64_t at)
{
    if (threadIdx.x == 5)
        out[0] = in[at];
}

cudaError_t trial_read_at(float *out, const float *in, int64_t at, cudaStream_t stream)
{
    return ATSI_LAUNCH(read_at, 1, 32, 0, stream, out, in, at);
}

static __global__ void write_at(float *out, int64_t at)
{
    if (threadIdx.x == 5)
        out[at] = 1;
}

cudaError_t trial_write_at(float *out, int64_t at, cudaStream_t stream)
{
    return ATSI_LAUNCH(write_at, 1, 32, 0, stream, out, at);
}

static __global__ void unwritten_shared(float *out, int dynamic)
{
    ATSI_DYNAMIC_SHARED(float, d);
    __shared__ float fixed[32];
    if (threadIdx.x == 40) /* never */
        fixed[blockDim.x - 1] = 1;
    out[threadIdx.x] = dynamic ? d[threadIdx.x] : fixed[threadIdx.x];
}

cudaError_t trial_unwritten_shared(float *out, int dynamic, cudaStream_t stream)
{
    return ATSI_LAUNCH(unwritten_shared, 1, 32, 128, stream, out, dynamic);
}

static __global__ void missing_barrier(float *out, const float *in)
{
    __shared__ float values[64];
    values[threadIdx.x] = in[threadIdx.x];
    out[blockIdx.x * 64 + threadIdx.x] = values[63 - threadIdx.x];
}

cudaError_t trial_missing_barrier(float *out, const float *in, cudaStream_t stream)
{
    return ATSI_LAUNCH(missing_barrier, 2, 64, 0, stream, out, in);
}

static __global__ void async_stages(float *out, const float *in, int wait)
{
    __shared__ float values[2][64];
    for (int stage = 0; stage < 2; stage++) {
        async_copy_4(&values[stage][threadIdx.x], &in[64 * stage + threadIdx.x]);
        async_commit();
    }
    if (wait)
        async_wait<1>();
    __syncthreads();
    float first = values[0][63 - threadIdx.x];
    async_wait<0>();
    __syncthreads();
    out[threadIdx.x] = first + values[1][63 - threadIdx.x];
}

cudaError_t trial_async(float *out, const float *in, int wait, cudaStream_t stream)
{
    return ATSI_LAUNCH(async_stages, 1, 64, 0, stream, out, in, wait);
}

static __global__ void async_reuse(float *out, const float *in, int barrier)
{
    __shared__ float values[64];
    float sum = 0;
    for (int stage = 0; stage < 2; stage++) {
        async_copy_4(&values[threadIdx.x], &in[64 * stage + threadIdx.x]);
        async_commit();
        async_wait<0>();
        __syncthreads();
        sum += values[63 - threadIdx.x];
        if (barrier)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}

cudaError_t trial_async_reuse(float *out, const float *in, int barrier, cudaStream_t stream)
{
    return ATSI_LAUNCH(async_reuse, 1, 64, 0, stream, out, in, barrier);
}

static __global__ void divide_by(int32_t *out, int32_t by)
{
    out[0] = 10 / by;
}

cudaError_t trial_divide_by(int32_t *out, int32_t by, cudaStream_t stream)
{
    return ATSI_LAUNCH(divide_by, 1, 1, 0, stream, out, by);
}

static __device__ __noinline__ float deep(const float *x, int depth)
{
    float local[64];
    for (int i = 0; i < 64; i++)
        local[i] = x[i % 4] + (float)depth;
    return depth ? deep(local + depth % 8, depth - 1) + local[depth % 64] : local[0];
}

static __global__ void deep_stack(float *out, int depth)
{
    float x[4] = {1, 2, 3, 4};
    out[threadIdx.x] = deep(x, depth);
}

cudaError_t trial_deep_stack(float *out, int depth, cudaStream_t stream)
{
    return ATSI_LAUNCH(deep_stack, 1, 64, 0, stream, out, depth);
}

static __global__ void big_shared(float *out, uint32_t n)
{
    ATSI_DYNAMIC_SHARED(float, d);
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        d[i] = (float)i;
    __syncthreads();
    if (threadIdx.x == 0)
        out[0] = d[n - 1];
}

cudaError_t trial_big_shared(float *out, size_t bytes, int allow, cudaStream_t stream)
{
    if (allow) {
        cudaError_t e = cudaFuncSetAttribute(
            big_shared, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
        if (e)
            return e;
    }
    return ATSI_LAUNCH(big_shared, 1, 64, bytes, stream, out, (uint32_t)(bytes / sizeof(float)));
}
