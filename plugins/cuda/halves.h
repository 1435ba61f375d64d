/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations as halves of a weight's type, for tensor cores, at the front of the scratch: rounded
 * once, or as two terms, the second being what the first leaves out.  Two terms of f16 hold 22 bits
 * of every element (down to 2^-40 of the row's largest), two of bf16 hold 16.
 */
#ifndef ATSI_CUDA_HALVES_H
#define ATSI_CUDA_HALVES_H

#include "op.h"

struct cuda_halves {
    const uint16_t *term[2]; /* [rows][k], 16-byte aligned; the second may be NULL */
    const float *factor;     /* [rows] powers of two that products are multiplied by; bf16: NULL */
};

/* Bytes for rows of k elements, a multiple of 8, a multiple of 256. */
size_t cuda_halves_bytes(const struct cuda_device *dev, uint64_t rows, uint32_t k);

/* Queues it, unless what lies there is just that. */
cudaError_t cuda_halves_make(const struct cuda_launch *l, uint32_t type, const float *x,
                             uint32_t rows, uint32_t k, struct cuda_halves *out);

#endif
