/* SPDX-License-Identifier: Apache-2.0
 * One operation with tensors of random numbers, for checking and timing. */
#ifndef ATSI_CLI_KERNELS_PROBE_H
#define ATSI_CLI_KERNELS_PROBE_H

#include "cli/kernels_op.h"

#define KERNELS_MAX_TENSORS 9

struct kernels_probe {
    struct atsi_op op;
    struct atsi_tensor t[KERNELS_MAX_TENSORS];
    uint32_t n;
    struct atsi_kv kv;
    void *state_start; /* what the state holds before the op */
    uint64_t random;
    bool out_of_memory; /* set by any of the functions below; the probe is to be closed then */
};

/* Random numbers (zeros for I32) of that shape; in 2 MiB pages when large. */
const struct atsi_tensor *kernels_tensor(struct kernels_probe *p, uint32_t type, uint64_t ne0,
                                         uint64_t ne1, uint64_t ne2);
/* The same matrices with one and the same random content: filled once, then copied. */
const struct atsi_tensor *kernels_tensor_copies(struct kernels_probe *p, uint32_t type,
                                                uint64_t ne0, uint64_t ne1, uint64_t ne2);
/* A weight in panels, of the numbers of a weight in rows. */
const struct atsi_tensor *kernels_packed(struct kernels_probe *p, const struct atsi_tensor *rows);
/* Ids or positions: value i * step % modulus + first. */
const struct atsi_tensor *kernels_integers(struct kernels_probe *p, uint64_t ne0, uint64_t ne1,
                                           int32_t step, int32_t modulus, int32_t first);
/* The state of a recurrent operation. */
void kernels_state(struct kernels_probe *p, uint64_t ne0, uint64_t ne1, uint64_t ne2);
/* Frees the data of a tensor that is not needed any more (its place stays). */
void kernels_tensor_drop(struct atsi_tensor *t);
void kernels_probe_close(struct kernels_probe *p);

size_t kernels_bytes_of(const struct atsi_tensor *t);

#endif
