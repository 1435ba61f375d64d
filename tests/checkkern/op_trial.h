/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of single operations: a random operation with its tensors and what its results must be;
 * run on any number of workers, then broken in every way its shapes can be.
 */
#ifndef OP_TRIAL_H
#define OP_TRIAL_H

#include "backend_fixture.h"

#define TRIAL_TENSORS 16

struct trial {
    struct atsi_op op;
    struct atsi_tensor t[TRIAL_TENSORS];
    uint32_t n_t, rows;
    struct atsi_kv kv;
    float *want[2];   /* ids as bits */
    float *want_kept; /* what a state, the last tensor made, must be afterwards; NULL: no state */
};

/* The kernels that are right. */
extern struct cpu_kernels k;

/* Random numbers below n. */
uint32_t below(uint32_t n);
void trial_seed(uint64_t seed);

struct atsi_tensor *trial_tensor(struct trial *t, uint32_t type, uint64_t ne0, uint64_t ne1,
                                 uint64_t ne2);
/* Room for one more row than the operation has. */
struct atsi_tensor *trial_rows(struct trial *t, uint64_t width);
/* The same for a result, full of NaN, with t->want[i] alike. */
struct atsi_tensor *trial_result(struct trial *t, int i, uint32_t type, uint64_t width);
/* A state of small random numbers, with t->want_kept a copy. */
struct atsi_tensor *trial_state(struct trial *t, uint64_t ne0, uint64_t ne1, uint64_t ne2);

/* One kind of operation. */
struct trial_kind {
    uint32_t kind;
    bool typed; /* for each weight type; else once, with f32 */
    void (*build)(struct trial *t, uint32_t type);
    /* Calls trial_refused() for every rule about its parameters. */
    void (*break_it)(struct fixture *f, const struct trial *t);
};

void trial_open(struct trial *t, const struct trial_kind *kind, uint32_t type, uint32_t rows);
void trial_close(struct trial *t);
/* `bad` is not supported, and running it changes nothing the trial knows. */
void trial_refused(struct fixture *f, const struct trial *t, const struct atsi_op *bad,
                   const char *how);
/* Each kind and type with several numbers of rows and workers: results as expected, to the bit. */
void trials_run(const struct trial_kind *kinds, size_t n);
/* Each kind with every tensor and parameter broken. */
void trials_break(const struct trial_kind *kinds, size_t n);

#endif
