/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of CUDA kernels on the emulated device (tests/cuda_host): an operation on random tensors,
 * computed by the reference kernels of the CPU backends and by a kernel, and how far they are
 * apart.  Each tensor has device memory of exactly its size, results start as memory nobody wrote.
 */
#ifndef KERNEL_TRIAL_H
#define KERNEL_TRIAL_H

#include "plugins/cuda/op.h"
#include "tests/checkkern/backend_fixture.h"

#define KT_TENSORS 12

/* Where trials run. */
struct kt {
    struct fixture ref;
    struct cuda_device dev;
    cudaStream_t stream;
};

/* An operation with its tensors in host memory. */
struct kt_op {
    struct atsi_op op;
    struct atsi_tensor t[KT_TENSORS];
    uint32_t n_t;
    struct atsi_kv kv;
};

/* What the device computed, in host memory. */
struct kt_result {
    void *dst[2], *state, *k, *v;
};

int kt_setup(void **state);
int kt_teardown(void **state);

/* Random numbers start over. */
void kt_seed(uint64_t seed);
uint32_t kt_below(uint32_t n);
float kt_unit(void); /* [-1, 1) */

void kt_open(struct kt_op *o, uint32_t kind, uint32_t n_rows);
void kt_close(struct kt_op *o);
/* Random numbers of order one; integers are 0. */
struct atsi_tensor *kt_tensor(struct kt_op *o, uint32_t type, uint64_t ne0, uint64_t ne1,
                              uint64_t ne2);
/* An activation: as many rows as the operation has. */
struct atsi_tensor *kt_rows(struct kt_op *o, uint64_t width);
/* dst[i] and state. */
void kt_dst(struct kt_op *o, int i, uint32_t type, uint64_t width);
void kt_state(struct kt_op *o, uint64_t ne0, uint64_t ne1, uint64_t ne2);
/* A cache full of NaN; rows of `type` are whole blocks. */
void kt_cache(struct kt_op *o, uint32_t type_k, uint32_t type_v, uint32_t n_head, uint32_t dk,
              uint32_t dv, uint32_t n_ctx);
/* Multiplies all numbers of an f32 tensor. */
void kt_scale(const struct atsi_tensor *t, float by);

/* Runs the operation by the kernel; the tensors in host memory stay as they are. */
struct kt_result kt_device(const struct kt *k, const struct cuda_op *kernel, const struct kt_op *o);
void kt_result_free(struct kt_result *r);
/* Runs it by the reference, in place. */
void kt_reference(struct kt *k, const struct kt_op *o);
/* Both, and no result may be further from the reference than `limit` of its size and of the
 * root mean square of its row; caches and ids must be equal.  Leaves the reference's results in the
 * tensors. */
void kt_compare(struct kt *k, const struct cuda_op *kernel, const struct kt_op *o, double limit,
                const char *what);
/* n elements alike, to the bit; else the test fails and says where. */
void kt_same(const void *a, const void *b, size_t n, const char *what);

#endif
