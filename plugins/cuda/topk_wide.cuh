/* SPDX-License-Identifier: Apache-2.0
 *
 * The k largest of a row as long as a vocabulary, for few rows: the next token of a greedy or top-k
 * sampler.
 *
 * Two launches.  Blocks take a part of the row each, in registers, and write down its k largest
 * keys; one block then takes the k largest of these and sorts them.  Both find the k-th key by
 * digits from the top: a histogram of the digit among the keys that agree with it so far says which
 * value the k-th has there.  Keys differ, so at some digit exactly those that are wanted are left.
 *
 * What it costs: the row is read once, 4 n bytes over all SMs (150 thousand logits: 0.6 MB, below
 * 1 us of a device with 3 TB/s); launches, about two barriers per digit and the second block, alone
 * on its SM with n / 4096 * k keys, take longer: it is bound by latency, not by memory.
 */
#ifndef ATSI_CUDA_TOPK_WIDE_CUH
#define ATSI_CUDA_TOPK_WIDE_CUH

#include "grid.h"
#include "math.cuh"

#define WIDE_THREADS 256u
#define WIDE_EACH 16u /* keys of a thread */
#define WIDE_PART (WIDE_THREADS * WIDE_EACH)
#define WIDE_MERGE 1024u /* threads of the second launch */
#define WIDE_MOST 2048u  /* k, a power of two */
#define WIDE_ROWS 8u     /* rows; beyond, blocks of their own serve better */
#define WIDE_BINS 256u

/* Ascends with the logit; 0 for NaN.  -0 and 0 are equal. */
static __device__ inline uint32_t logit_order(float x)
{
    uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);
    if (x != x)
        return 0;
    return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/* Never 0: ids are below 2^31. */
static __device__ inline uint64_t logit_key(float x, uint32_t id)
{
    return (uint64_t)logit_order(x) << 32 | (uint32_t)~id;
}

static __device__ inline uint32_t key_id(uint64_t key)
{
    return ~(uint32_t)key;
}

static __device__ inline uint64_t warp_max_key(uint64_t key)
{
    for (int step = 16; step > 0; step /= 2) {
        uint64_t other = __shfl_xor_sync(CUDA_ALL_LANES, (unsigned long long)key, step);
        key = other > key ? other : key;
    }
    return key;
}

/* What the threads of a block share while they look for the k-th key. */
struct wide_shared {
    uint32_t bins[WIDE_BINS];
    uint64_t best[CUDA_WARP];
    uint32_t digit, before; /* the digit of the k-th key; keys above it */
    uint32_t n;             /* taken so far */
};

/* Keys a thread holds: entry j of thread t; 0: none.  The same n_each for all of a block. */
struct part_keys {
    uint64_t key[WIDE_EACH];
    __device__ __forceinline__ uint64_t operator[](uint32_t j) const
    {
        return key[j];
    }
    __device__ __forceinline__ uint32_t n_each() const
    {
        return WIDE_EACH;
    }
};

struct list_keys {
    const uint64_t *list;
    uint32_t n;
    __device__ __forceinline__ uint64_t operator[](uint32_t j) const
    {
        uint32_t i = j * blockDim.x + threadIdx.x;
        return i < n ? list[i] : 0;
    }
    __device__ __forceinline__ uint32_t n_each() const
    {
        return (n + blockDim.x - 1) / blockDim.x;
    }
};

template <typename Keys>
static __device__ uint64_t largest_key(const Keys &keys, struct wide_shared *s)
{
    uint32_t lane = threadIdx.x % CUDA_WARP, warp = threadIdx.x / CUDA_WARP;
    uint64_t best = 0;
#pragma unroll
    for (uint32_t j = 0; j < keys.n_each(); j++)
        best = keys[j] > best ? keys[j] : best;
    best = warp_max_key(best);
    if (lane == 0)
        s->best[warp] = best;
    __syncthreads();
    return warp_max_key(lane < blockDim.x / CUDA_WARP ? s->best[lane] : 0);
}

/* One more of a digit, in all lanes at once: logits are alike in their first digits, and additions
 * to one place would queue up. */
static __device__ __forceinline__ void count_digit(uint32_t *bins, bool counts, uint32_t digit)
{
    uint32_t same = __match_any_sync(CUDA_ALL_LANES, counts ? digit : WIDE_BINS);
    uint32_t lane = threadIdx.x % CUDA_WARP;
    if (counts && (same & ((1u << lane) - 1)) == 0)
        (void)atomicAdd(&bins[digit], (uint32_t)__popc(same));
}

/* Which digit the key has that `need` - 1 others are above of; by the first warp, whose lanes see 8
 * bins each, highest first. */
static __device__ void find_digit(struct wide_shared *s, uint32_t need)
{
    const uint32_t each = WIDE_BINS / CUDA_WARP;
    uint32_t lane = threadIdx.x % CUDA_WARP, first = WIDE_BINS - 1 - lane * each, mine = 0, sum;
    for (uint32_t i = 0; i < each; i++)
        mine += s->bins[first - i];
    sum = mine;
    for (uint32_t step = 1; step < CUDA_WARP; step *= 2) {
        uint32_t other = __shfl_up_sync(CUDA_ALL_LANES, sum, step);
        sum += lane >= step ? other : 0;
    }
    if (sum < need || sum - mine >= need)
        return;
    sum -= mine;
    for (uint32_t i = 0; i < each; i++) {
        uint32_t n = s->bins[first - i];
        if (sum + n >= need) {
            s->digit = first - i;
            s->before = sum;
            return;
        }
        sum += n;
    }
}

/* A bound that exactly the k largest keys of the block reach; there are as many. */
template <typename Keys>
static __device__ uint64_t bound_of(const Keys &keys, uint32_t k, struct wide_shared *s)
{
    uint64_t prefix = 0, mask = 0;
    uint32_t need = k;
    if (k == 1)
        return largest_key(keys, s);
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (uint32_t i = threadIdx.x; i < WIDE_BINS; i += blockDim.x)
            s->bins[i] = 0;
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < keys.n_each(); j++) {
            uint64_t key = keys[j];
            count_digit(s->bins, key != 0 && (key & mask) == prefix,
                        (uint32_t)(key >> shift) % WIDE_BINS);
        }
        __syncthreads();
        if (threadIdx.x < CUDA_WARP)
            find_digit(s, need);
        __syncthreads();
        uint32_t digit = s->digit, left = s->bins[digit];
        need -= s->before;
        prefix |= (uint64_t)digit << shift;
        mask |= (uint64_t)(WIDE_BINS - 1) << shift;
        __syncthreads(); /* the bins are free again */
        if (left == need)
            break;
    }
    return prefix;
}

/* The keys that reach the bound, in any order. */
template <typename Keys>
static __device__ void take_keys(const Keys &keys, uint64_t bound, uint64_t *out, uint32_t k,
                                 struct wide_shared *s)
{
    if (threadIdx.x == 0)
        s->n = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t j = 0; j < keys.n_each(); j++)
        if (keys[j] != 0 && keys[j] >= bound) {
            uint32_t at = atomicAdd(&s->n, 1u);
            if (at < k) /* it is: exactly k reach the bound */
                out[at] = keys[j];
        }
    __syncthreads();
}

struct wide_args {
    const float *logits;
    uint64_t *keys; /* [rows, parts, k] of the first launch, 0 where a part has fewer */
    uint32_t n, k, parts;
};

static __global__ void __launch_bounds__(WIDE_THREADS) wide_part_kernel(struct wide_args a)
{
    __shared__ struct wide_shared s;
    uint32_t from = blockIdx.x * WIDE_PART, left = a.n - from;
    uint32_t have = left < WIDE_PART ? left : WIDE_PART, k = a.k < have ? a.k : have;
    const float *logits = a.logits + (uint64_t)blockIdx.y * a.n;
    uint64_t *out = a.keys + ((uint64_t)blockIdx.y * a.parts + blockIdx.x) * a.k;
    struct part_keys keys;
#pragma unroll
    for (uint32_t j = 0; j < WIDE_EACH; j++) {
        uint32_t i = j * WIDE_THREADS + threadIdx.x;
        keys.key[j] = i < have ? logit_key(logits[from + i], from + i) : 0;
    }
    uint64_t bound = bound_of(keys, k, &s);
    take_keys(keys, bound, out, k, &s);
    for (uint32_t i = k + threadIdx.x; i < a.k; i += WIDE_THREADS)
        out[i] = 0;
}

/* Bitonic sort, largest first; n is a power of two. */
static __device__ void sort_keys(uint64_t *keys, uint32_t n)
{
    for (uint32_t size = 2; size <= n; size *= 2)
        for (uint32_t step = size / 2; step > 0; step /= 2) {
            for (uint32_t i = threadIdx.x; i < n / 2; i += blockDim.x) {
                uint32_t at = 2 * i - (i & (step - 1)), other = at + step;
                bool down = (at & size) == 0;
                uint64_t a = keys[at], b = keys[other];
                if ((a < b) == down) {
                    keys[at] = b;
                    keys[other] = a;
                }
            }
            __syncthreads();
        }
}

/* By a block of WIDE_MERGE threads: the k largest of a row's keys, sorted, in `sorted`. */
static __device__ void wide_merge(const struct wide_args &a, uint64_t row, uint64_t *sorted,
                                  struct wide_shared *s)
{
    struct list_keys keys = {a.keys + row * a.parts * a.k, a.parts * a.k};
    uint32_t size = 1;
    while (size < a.k)
        size *= 2;
    for (uint32_t i = a.k + threadIdx.x; i < size; i += blockDim.x)
        sorted[i] = 0;
    take_keys(keys, bound_of(keys, a.k, s), sorted, a.k, s);
    sort_keys(sorted, size);
}

#endif
