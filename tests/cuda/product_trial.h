/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of the CUDA plugin's matrix products on the emulated device: random weights in either
 * layout, computed by the kernel under test and, in double, from the reference decoders and the
 * reference rounding of activations.
 *
 * Allowed error of an element: additions of f32 round once each, so with u = 2^-24, c the longest
 * chain of additions of a kernel and S the sum of absolute values of what it adds (runs of 16
 * elements, a float scale each)
 *
 *     (c + 4) u S + (c + N) 2^-149      N: sum of the integers, which magnify subnormal scales
 *
 * Where every sum of absolute values is a small integer (CK_EXACT) the bound is 0.
 */
#ifndef PRODUCT_TRIAL_H
#define PRODUCT_TRIAL_H

#include "plugins/cuda/op.h"
#include "tests/checkkern/ck.h"

extern const struct cuda_op cuda_op_embed, cuda_op_matmul, cuda_op_matmul_id;

extern const uint32_t product_types[16]; /* all that there are products for */

struct product {
    uint32_t type, layout, k, rows; /* of one matrix */
    uint32_t n_rows;                /* of the operation */
    uint32_t n_expert, used;        /* 0: a plain product */
    bool per_slot;                  /* activations of their own for each slot */
    bool bias, exact, fast_half;
    bool old; /* on a device of compute capability 7.5 */
    enum ck_mode mode;
    uint32_t shift; /* bytes from an aligned address to the weight */
};

struct product_trial {
    struct product p;
    struct ck ck;
    uint64_t n_tok, x_rows;
    unsigned char *w; /* as in the file */
    float *x, *bias;  /* host memory */
    int32_t *ids;
    float *y; /* what the device computed, [n_tok][rows] */
    void *dev_w, *dev_x, *dev_ids, *dev_bias, *dev_y, *dev_scratch;
    size_t y_bytes, scratch_bytes;
    struct atsi_tensor t[5];
    struct atsi_op op;
    struct cuda_rounded rounded;
};

int product_setup(void **state);
int product_teardown(void **state);

void product_open(struct product_trial *t, const struct product *p, uint64_t seed);
void product_close(struct product_trial *t);
/* Queues the operation, with results that start as NaN, and fetches them into t->y. */
void product_run(struct product_trial *t);
/* t->y against what it should be. */
void product_check(struct product_trial *t);
/* All of it. */
void product_try(const struct product *p, uint64_t seed);
/* Copies host memory to the device's, as much as it was opened with. */
void product_send_x(struct product_trial *t);
void product_send_ids(struct product_trial *t);

const struct cuda_op *product_kernel(const struct product_trial *t);
extern const struct cuda_device product_device;
extern cudaStream_t product_stream;

#endif
