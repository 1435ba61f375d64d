/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract between the host code of the CUDA plugin (C) and its kernels (.cu): one struct
 * cuda_op per kind of operation, which says what it computes, what scratch that takes, and queues
 * it.
 *
 * Answers do not depend on the device: activations are rounded to 8 bits exactly as the CPU
 * backends do it, so that results differ by the rounding of f32 sums alone.  The result for one row
 * does not depend on how many rows a call holds, but for the same roundings between few rows and
 * many (products, attention over f16 caches), where tensor cores take over.  A captured launch may
 * be replayed with other contents of all tensors: what changes from round to round (ids, positions,
 * and with them the number of visible positions) is read on the device.
 */
#ifndef ATSI_CUDA_OP_H
#define ATSI_CUDA_OP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime_api.h>

#include "atsinfer/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_device {
    int index;
    int sm; /* compute capability, 75, 90 */
    uint32_t n_sm;
    size_t shared_bytes; /* of a block, opted in */
    bool fast_half;      /* activations meet F16 and BF16 weights rounded once (halves.h) */
};

/* Activations that an operation before in the same split left rounded in the scratch, so that q, k
 * and v are served by one rounding.  The host clears it at the start of a split and after every
 * operation that writes over `src`. */
struct cuda_rounded {
    const void *src; /* NULL: none */
    uint32_t block;  /* 32 or 256 elements, or a kind of halves (rounded.h) */
    uint32_t n_rows;
    uint64_t k;
};

struct cuda_launch {
    cudaStream_t stream;
    const struct cuda_device *dev;
    void *scratch; /* device memory, 256-byte aligned, scratch() bytes of the largest op of the
                    * split; contents stay from op to op of a split */
    size_t scratch_bytes;
    struct cuda_rounded *rounded;
    /* What a product behind a norm or a SwiGLU will want rounded: these leave it so themselves, and
     * say so in `rounded`.  block 0: nothing. */
    struct cuda_rounded wanted;
    /* The next operation, when this launch is to do it too: a rotation by the same table. */
    const struct atsi_op *with;
    /* An attention behind a rotation, which is to store its keys, turned here, and values. */
    const struct atsi_op *store;
    bool stored; /* to that attention: it has been done */
};

struct cuda_op {
    uint32_t kind; /* enum atsi_op_kind */
    /* 1 if launch() would accept `op`.  Data pointers may be NULL.  Pure. */
    int (*supports)(const struct cuda_device *dev, const struct atsi_op *op);
    size_t (*scratch)(const struct cuda_device *dev, const struct atsi_op *op);
    /* All pointers of the op are readable by the device.  Queues only: no allocation, no wait. */
    cudaError_t (*launch)(const struct cuda_launch *l, const struct atsi_op *op);
};

/* [ATSI_OP_COUNT], by kind; entries of kinds that are not there are NULL (ops.c). */
extern const struct cuda_op *const cuda_ops[ATSI_OP_COUNT];

/* Launches of an attention depend on n_kv only through this: a captured one serves until it grows.
 */
static inline uint32_t cuda_kv_bucket(uint32_t n_kv)
{
    uint32_t step = n_kv <= 4096 ? 256 : 2048;
    return (n_kv + step - 1) / step * step;
}

#ifdef __cplusplus
}
#endif
#endif
