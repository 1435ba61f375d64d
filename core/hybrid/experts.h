/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert caches of a session that runs hybrid: slots in the accelerator's memory, filled with the
 * experts of stacks that live on the host.  In a decode round a group of stacks is one step of the
 * host's; the accelerator computes the chosen experts that have a slot beside it, the host the
 * others.  Results meet on the host in the order of choice, so that sums are those of the CPU.
 *
 * Without memory for slots all experts are misses.  [thread of the session]
 */
#ifndef ATSI_CORE_HYBRID_EXPERTS_H
#define ATSI_CORE_HYBRID_EXPERTS_H

#include "core/hybrid/source.h"
#include "core/round/caches.h"

struct atsi_experts;

struct atsi_experts_params {
    struct atsi_source *source;
    struct atsi_accel *accel;
    const struct atsi_items *items;
    struct atsi_values *values;
    struct atsi_weights *weights;
    struct atsi_log *log;                 /* or NULL */
    const struct atsi_policy_use *policy; /* that placed: says who comes in; copied */
    const struct atsi_question *question;
    const struct atsi_placement *place;
    float half_life;        /* rounds */
    uint32_t copy_permille; /* of a round's time that transfers may take */
};

/* Whether all stacks of the model are as caches need them: between a router and the sum there are
 * products of experts and their activation alone. */
bool atsi_experts_can(const struct atsi_source *src, const struct atsi_items *items);

/* *out stays NULL when the placement has no caches.  No memory of the accelerator is taken yet. */
int atsi_experts_open(const struct atsi_experts_params *p, struct atsi_experts **out,
                      struct atsi_err *err);
/* Waits for copies under way, unless the accelerator's queues are closed.  NULL is allowed. */
void atsi_experts_close(struct atsi_experts *x);
const struct atsi_cache_group *atsi_experts_groups(const struct atsi_experts *x, uint32_t *n_out);
/* For starting warm, and for keeping what was learned. */
struct atsi_books *atsi_experts_books(struct atsi_experts *x);
/* Memory of the accelerator that slots have. */
uint64_t atsi_experts_bytes(const struct atsi_experts *x);

/* A decode round begins; last_ns: what the last one took.  Weights are what they will be during the
 * round: slots whose host copy has another layout now are filled again. */
int atsi_experts_begin(struct atsi_experts *x, uint64_t last_ns, struct atsi_err *err);
/* No copy reads host weights any more. */
int atsi_experts_settle(struct atsi_experts *x, struct atsi_err *err);

/* ---- the executor's callbacks, from those of the source; steps that are no group's are left alone
 */
/* The host is about to compute, and has the router's choice: ops (the step's list) become those of
 * the misses, the accelerator's part is queued. */
int atsi_experts_before(struct atsi_experts *x, const struct atsi_plan *plan, uint32_t step,
                        const struct atsi_op **ops, struct atsi_err *err);
/* It has: results are put together, swaps are chosen and sent. */
int atsi_experts_after(struct atsi_experts *x, const struct atsi_plan *plan, uint32_t step,
                       struct atsi_err *err);

#endif
