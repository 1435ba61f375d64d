/* SPDX-License-Identifier: Apache-2.0
 * A CPU backend over the reference kernels on a pool of any size, and tensors to feed it. */
#ifndef BACKEND_FIXTURE_H
#define BACKEND_FIXTURE_H

#include "core/pool.h"
#include "cpu_kernels.h"

struct fixture {
    struct atsi_host host;
    struct atsi_pool *pool;
    struct atsi_backend *be;
    struct atsi_queue *queue;
};

/* Fails the test when anything cannot be had. */
void fixture_open(struct fixture *f, uint32_t n_threads);
void fixture_close(struct fixture *f);
int fixture_run(struct fixture *f, const struct atsi_op *const *ops, uint32_t n,
                struct atsi_err *err);

/* A tensor with memory of its own, filled with small random values: f32, i32 (zeros) or blocks. */
struct atsi_tensor tensor_new(uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t ne2);
void tensor_free(struct atsi_tensor *t);
float *floats(const struct atsi_tensor *t);
int32_t *ints(const struct atsi_tensor *t);
/* Random numbers start over. */
void tensor_seed(uint64_t seed);

#endif
