/* SPDX-License-Identifier: Apache-2.0
 * One matrix product on a backend, for checking and timing. */
#ifndef ATSI_CLI_KERNELS_OP_H
#define ATSI_CLI_KERNELS_OP_H

#include "cli/cli.h"

/* A backend opened with its queue. */
struct kernels_backend {
    const char *name;
    const struct atsi_backend_ops *ops;
    struct atsi_backend *be;
    struct atsi_queue *queue;
    char detail[128];
    /* Of a backend with memory of its own: the way there; else NULL. */
    const struct atsi_transfer_ops *link_ops;
    const struct atsi_backend_ops *host_ops;
    struct atsi_backend *host_be;
    struct atsi_transfer *link;
    const struct atsi_channel *const *channels;
    uint32_t channel;
    uint32_t device_kind;    /* enum atsi_device_kind */
    struct atsi_event *done; /* fired by the last work queued */
};

int kernels_open(const struct atsi_runtime *rt, const char *name, struct kernels_backend *out,
                 struct atsi_err *err);
void kernels_close(struct kernels_backend *b);

/* kernels_device.c: for kernels_open() and kernels_close(). */
int kernels_link_open(const struct atsi_runtime *rt, struct kernels_backend *b,
                      struct atsi_err *err);
void kernels_link_close(struct kernels_backend *b);
/* Moves bytes between host memory and that of the device, and waits. */
int kernels_copy(struct kernels_backend *b, void *dst, const void *src, size_t bytes,
                 struct atsi_err *err);
/* Waits for what was queued last. */
int kernels_wait(struct kernels_backend *b, struct atsi_err *err);
/* Runs an operation whose tensors are in host memory, and waits for it. */
int kernels_run(struct kernels_backend *b, const struct atsi_op *op, struct atsi_err *err);

/* out[rows][n_out] = x[rows][k] * n_copies different weights {k, n_out}; each run uses the next. */
struct kernels_product {
    uint32_t type, k, n_out, rows, n_copies, next;
    bool panels; /* what kernels_product_pack() made of the weights */
    unsigned char *weights;
    float *x, *y;
    /* Their copies on the device that ran the product last; NULL: none. */
    struct kernels_backend *at;
    struct atsi_buf *buf;
};

/* Random weights whose values stay of order one, random activations.  ATSI_ENOMEM. */
int kernels_product_open(struct kernels_product *p, uint32_t type, uint32_t k, uint32_t n_out,
                         uint32_t rows, uint32_t n_copies, uint64_t seed);
void kernels_product_close(struct kernels_product *p);
/* The weights as panels (atsinfer/panel.h) from now on; before they are on a device.  ATSI_ENOMEM.
 */
int kernels_product_pack(struct kernels_product *p);
/* 1: the backend computes this type.  Before the backend is closed: kernels_product_close(). */
int kernels_product_supported(const struct kernels_backend *b, const struct kernels_product *p);
/* Queues a product; kernels_wait() waits for it. */
int kernels_product_run(struct kernels_backend *b, struct kernels_product *p, struct atsi_err *err);
/* Queues the products with all weights as one split: what a layer after the other is like. */
int kernels_product_run_all(struct kernels_backend *b, struct kernels_product *p,
                            struct atsi_err *err);

#define KERNELS_SAMPLES 9

/* Nanoseconds of one product over n samples: the median, and the fastest and slowest sample. */
struct kernels_times {
    double median_ns, best_ns, worst_ns;
    uint32_t n;
};

/* KERNELS_SAMPLES samples of `per_sample` products each, after one that warms up; fewer, but at
 * least one, when limit_ns have passed. */
int kernels_product_time(const struct atsi_runtime *rt, struct kernels_backend *b,
                         struct kernels_product *p, uint32_t per_sample, uint64_t limit_ns,
                         struct kernels_times *out, struct atsi_err *err);

/* n elements of random numbers whose values stay of order one: floats, or whole blocks. */
void kernels_fill(uint32_t type, void *data, size_t n, uint64_t *random);

/* What --check is to cover. */
struct kernels_wanted {
    const char *op;             /* NULL: all */
    bool type[ATSI_TYPE_COUNT]; /* of weights */
    bool typed_only;            /* --type was given: leave out operations without weights */
    uint64_t seed;
};

bool kernels_check_known(const char *op);
/* Prints a line per operation and weight type of `b` compared with `ref`; *wrong is set when a
 * difference is too large.  Returns an exit code. */
int kernels_check(struct kernels_backend *b, struct kernels_backend *ref,
                  const struct kernels_wanted *wanted, bool *wrong);

#endif
