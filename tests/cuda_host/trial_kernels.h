/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that the simulated device is tried on, good ones and faulty ones.
 */
#ifndef CH_TRIAL_KERNELS_H
#define CH_TRIAL_KERNELS_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* out[i] = a * in[i] + b, n of them in blocks of 64 threads. */
cudaError_t trial_scale(float *out, const float *in, float a, float b, uint32_t n,
                        cudaStream_t stream);
/* The same after `us` microseconds. */
cudaError_t trial_slow_scale(float *out, const float *in, float a, uint32_t n, uint32_t us,
                             cudaStream_t stream);
/* One warp: out[lane] of each kind of shuffle, enum trial_shuffle, of `width`. */
enum trial_shuffle {
    TRIAL_SHFL_REVERSE, /* __shfl_sync(31 - lane) */
    TRIAL_SHFL_XOR_5,
    TRIAL_SHFL_UP_3,
    TRIAL_SHFL_DOWN_3,
    TRIAL_SHFL_OTHER_TYPES, /* the sum of a double's, a 64-bit's, a float's and a half's */
};
cudaError_t trial_shuffle(int32_t *out, int kind, int width, cudaStream_t stream);
/* One warp: ballot, any, all, match-any, reductions, masks of halves of the warp, active mask. */
enum { TRIAL_VOTES = 10 };
cudaError_t trial_votes(uint32_t *out /* [TRIAL_VOTES][32] */, cudaStream_t stream);
/* The sum of n values in every block, by shared memory, warps and barriers; `dynamic` or static. */
cudaError_t trial_block_sum(float *out, const float *in, uint32_t n, uint32_t blocks, int dynamic,
                            cudaStream_t stream);
/* Barriers that count: out[0..2] = or, and, count of `tid < limit`. */
cudaError_t trial_barrier_votes(int32_t *out, uint32_t limit, cudaStream_t stream);
/* Every thread of many blocks adds, maximises, ... at out[0..7]. */
cudaError_t trial_atomics(uint32_t *out, float *sum, unsigned long long *wide, uint32_t blocks,
                          cudaStream_t stream);
/* Integer and float intrinsics on n pairs; out[i * TRIAL_INTRINSICS + k]. */
enum { TRIAL_INTRINSICS = 16 };
cudaError_t trial_intrinsics(uint32_t *out, const uint32_t *a, const uint32_t *b, uint32_t n,
                             cudaStream_t stream);
/* out[linear thread of the grid] = a number made of all of its coordinates. */
cudaError_t trial_indices(uint32_t *out, dim3 grid, dim3 block, cudaStream_t stream);
/* Rows of 4-bit weights with a scale per 32 times q8 activations: one warp per row. */
cudaError_t trial_gemv(float *y, const uint8_t *w, const float *scales, const int8_t *x,
                       uint32_t rows, uint32_t columns, cudaStream_t stream);

/* ---- Faulty ---- */
cudaError_t trial_divergent_barrier(float *out, cudaStream_t stream);
cudaError_t trial_early_exit_barrier(float *out, cudaStream_t stream);
cudaError_t trial_two_barriers(float *out, cudaStream_t stream);
cudaError_t trial_lonely_shuffle(float *out, cudaStream_t stream);
cudaError_t trial_foreign_lane(float *out, cudaStream_t stream);
/* Reads or writes element `at`. */
cudaError_t trial_read_at(float *out, const float *in, int64_t at, cudaStream_t stream);
cudaError_t trial_write_at(float *out, int64_t at, cudaStream_t stream);
/* out[i] = shared memory that nobody wrote: static, or `dynamic`. */
cudaError_t trial_unwritten_shared(float *out, int dynamic, cudaStream_t stream);
/* As trial_block_sum, without the barrier between writing and reading. */
cudaError_t trial_missing_barrier(float *out, const float *in, cudaStream_t stream);
/* Two stages of asynchronous copies, in[stage][64]: out[i] = the sum of stages, of the first as it
 * is when both have been begun, with its wait or without. */
cudaError_t trial_async(float *out, const float *in, int wait, cudaStream_t stream);
/* The same, but the second is begun into the place of the first while that is being read. */
cudaError_t trial_async_reuse(float *out, const float *in, int barrier, cudaStream_t stream);
cudaError_t trial_divide_by(int32_t *out, int32_t by, cudaStream_t stream);
cudaError_t trial_deep_stack(float *out, int depth, cudaStream_t stream);
/* Dynamic shared memory of `bytes`, allowed or not. */
cudaError_t trial_big_shared(float *out, size_t bytes, int allow, cudaStream_t stream);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
