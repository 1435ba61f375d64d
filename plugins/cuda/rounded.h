/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations rounded to 8 bits, bit for bit as the CPU backends round them (cpu_kernels.h, struct
 * cpu_act), at the front of the scratch: rows of quants, then scales, then sums of 16 quants.
 */
#ifndef ATSI_CUDA_ROUNDED_H
#define ATSI_CUDA_ROUNDED_H

#include "op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What cuda_rounded.block says of halves (halves.h). */
#define CUDA_ROUNDED_F16 1u
#define CUDA_ROUNDED_BF16 2u

struct cuda_act {
    const int8_t *q;   /* [rows][k], 16-byte aligned */
    const float *d;    /* [rows][k / block] */
    const int16_t *s;  /* [rows][k / 16] */
    uint32_t k, block; /* 32 or 256 */
};

/* The same to be filled. */
struct cuda_rounding {
    int8_t *q;
    float *d;
    int16_t *s;
};

/* Bytes that `rows` rows of k elements take, a multiple of 256. */
size_t cuda_act_bytes(uint64_t rows, uint32_t k, uint32_t block);

/* Queues the rounding of x [rows][k] into the scratch, unless what lies there is just that. */
cudaError_t cuda_act_round(const struct cuda_launch *l, const float *x, uint32_t rows, uint32_t k,
                           uint32_t block, struct cuda_act *out);

/* Where in the scratch it goes. */
struct cuda_rounding cuda_rounding_of(const struct cuda_launch *l, uint64_t rows, uint32_t k,
                                      uint32_t block);

/* What a product rounds its activations by, *rows of k elements; 0: it does not. */
uint32_t cuda_product_rounds(const struct atsi_op *op, uint32_t *rows, uint32_t *k);

#ifdef __cplusplus
}
#endif
#endif
