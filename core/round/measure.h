/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring a table of costs: the distinct operations of a model's graph, with made-up data, on the
 * open devices; copies between them; what they cost each other.  No weight of the model is read.
 */
#ifndef ATSI_CORE_ROUND_MEASURE_H
#define ATSI_CORE_ROUND_MEASURE_H

#include "core/round/costs.h"

struct atsi_measure_progress {
    uint32_t done, total;
    const char *what; /* being measured now: "cuda: matmul Q4_K, 64 tokens" */
};

struct atsi_measure_request {
    struct atsi_runtime *rt;
    struct atsi_model *model;          /* with or without weights */
    const struct atsi_exec_devices *d; /* be[ATSI_DEVICE_ACCEL] == NULL: no accelerator */
    const char *backend[ATSI_N_DEVICES], *transfer; /* names of the components, for the key */
    uint32_t chunk;                                 /* most tokens of a round */
    uint32_t ctx_max; /* positions of a cache at most; larger contexts are left out */
    uint32_t type_k, type_v;
    bool exact;          /* cpu.activations = f32 */
    uint64_t budget_ns;  /* for all of it, about; 0: some seconds */
    uint64_t room_bytes; /* memory to walk over on each device; 0: by the last cache */
    void (*progress)(void *ctx, const struct atsi_measure_progress *p); /* may be NULL */
    void *progress_ctx;
    const volatile int *cancel; /* may be NULL; non-zero: ATSI_EINTR */
};

struct atsi_devices;
/* What the settings ask for, on open devices (devices.h), which the request borrows. */
int atsi_measure_usual(struct atsi_runtime *rt, struct atsi_model *model,
                       const struct atsi_devices *v, struct atsi_measure_request *out,
                       struct atsi_err *err);

/* Measures everything.  [owned by caller: atsi_costs_free]  ATSI_EINTR, ATSI_ENOMEM, or what a
 * device failed with. */
int atsi_costs_measure(const struct atsi_measure_request *r, struct atsi_costs **out,
                       struct atsi_err *err);

/* The key that a table of this request has. */
int atsi_costs_key_make(const struct atsi_measure_request *r, struct atsi_costs *out,
                        struct atsi_err *err);
/* Path of the table of this machine and model in the user's cache; its folders are made when
 * `make`.  ATSI_ENOENT: there is no such place (HOME and XDG_CACHE_HOME are not set). */
int atsi_costs_path(const struct atsi_measure_request *r, bool make, char *out, size_t size,
                    struct atsi_err *err);
/* True when `c` was measured with what `want` (a key) says; else *why, in words. */
bool atsi_costs_fit(const struct atsi_costs *c, const struct atsi_costs *want, char *why,
                    size_t size);

/* The table of this machine and model: from the cache when it is current; else why it is not is
 * logged, and it is measured and kept.  force: measured in any case.  why (may be NULL): why it was
 * measured; "": it was not. */
int atsi_costs_obtain(const struct atsi_measure_request *r, bool force, struct atsi_costs **out,
                      char *why, size_t why_size, struct atsi_err *err);

/* The question with the costs of a table that request r measured, which must outlive it. */
int atsi_question_from(const struct atsi_measure_request *r, const struct atsi_costs *c,
                       struct atsi_items *it, const uint32_t layout[ATSI_N_DEVICES],
                       const struct atsi_question_params *p, const struct atsi_question_more *more,
                       struct atsi_question **out, struct atsi_err *err);
/* Both at once: the table (measured at first use), and the question
 * with its costs.  more and costs_out may be NULL; *costs_out: [owned by caller: atsi_costs_free].
 */
int atsi_question_here(const struct atsi_measure_request *r, struct atsi_items *it,
                       const uint32_t layout[ATSI_N_DEVICES], const struct atsi_question_params *p,
                       const struct atsi_question_more *more, struct atsi_question **out,
                       struct atsi_costs **costs_out, struct atsi_err *err);

#endif
