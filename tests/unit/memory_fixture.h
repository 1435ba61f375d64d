/* SPDX-License-Identifier: Apache-2.0
 * A model of matrices and a device, for tests of memory regions.  The device keeps count of its
 * memory, copies only when an event is waited for (so that what nobody waited for never arrives),
 * and stops the program when a contract is broken: a registration that overlaps another, a copy
 * that begins in one registered block and ends outside it, memory used that was not committed. */
#ifndef MEMORY_FIXTURE_H
#define MEMORY_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/hybrid/region.h"

enum { MEM_TENSORS = 16, MEM_BLOCKS = 64 };

/* ---------------------------------------------------------------- the model */
struct mem_shape {
    uint32_t type;
    uint64_t ne[3]; /* 0: 1 */
};

struct atsi_loaded {
    struct atsi_loaded_info info;
    struct atsi_graph g;
    struct atsi_graph_node nodes[MEM_TENSORS];
    const struct atsi_graph_node *node_ptrs[MEM_TENSORS];
    struct atsi_tensor tensors[MEM_TENSORS];
    const struct atsi_tensor *ptrs[MEM_TENSORS];
    char names[MEM_TENSORS][16];
    unsigned char *data; /* one mapping; tensors follow one another at multiples of 32 */
    size_t bytes;
    uint64_t released; /* bytes */
};

struct mem_model {
    struct atsi_model m;
    struct atsi_runtime rt;
    struct atsi_loaded loaded;
};

/* Matrices of pseudo-random bytes; each is the weight of one MATMUL (a stack: MATMUL_ID). */
void mem_model_open(struct mem_model *m, const struct mem_shape *shapes, uint32_t n, uint32_t seed);
void mem_model_close(struct mem_model *m);
uint64_t mem_bytes(const struct mem_model *m, uint32_t tensor);
const unsigned char *mem_data(const struct mem_model *m, uint32_t tensor);

/* ---------------------------------------------------------------- the device */
struct mem_device {
    uint64_t total, used; /* device memory */
    bool can_reserve;
    uint64_t pin_limit, pinned;    /* bytes that may be registered */
    bool pins_nothing;             /* ATSI_ENOTSUP */
    uint32_t fail_copy, fail_wait; /* the Nth from now fails with ATSI_ENOMEM; 0: none */
    uint32_t n_copies, in_flight, most_in_flight;
    struct {
        unsigned char *p;
        uint64_t bytes;
    } blocks[MEM_BLOCKS];
    uint32_t n_blocks;
};

extern struct mem_device mem_dev;
extern const struct atsi_backend_ops mem_ops;
extern const struct atsi_transfer_ops mem_tx_ops;

/* A fresh device of so much memory. */
void mem_device_reset(uint64_t total);
struct atsi_backend *mem_backend(void);
struct atsi_transfer *mem_transfer(void);

#endif
