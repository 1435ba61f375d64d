/* SPDX-License-Identifier: Apache-2.0
 *
 * The real work behind a plan: the graph's operations on either device with their weights where
 * they are (resident, in a slot, on the host), activation copies as ranges, expert transfers with
 * the chosen experts only.
 */
#ifndef ATSI_CORE_HYBRID_SOURCE_H
#define ATSI_CORE_HYBRID_SOURCE_H

#include "core/hybrid/pick.h"
#include "core/hybrid/region.h"
#include "core/hybrid/state.h"
#include "core/hybrid/values.h"

struct atsi_source;

struct atsi_source_params {
    struct atsi_session *s;
    struct atsi_accel *a;
    const struct atsi_items *items; /* with a flow */
    struct atsi_values *values;
    struct atsi_weights *weights;
};

/* ATSI_ENOTSUP: an operation that the CPU backend refuses.  [owned by caller: atsi_source_close] */
int atsi_source_open(const struct atsi_source_params *p, struct atsi_source **out,
                     struct atsi_err *err);
void atsi_source_close(struct atsi_source *src); /* NULL is allowed */
const struct atsi_exec_source *atsi_source_get(const struct atsi_source *src);

/* Whether the accelerator computes an item's own operations, and all the light ones. */
bool atsi_source_accel_can(const struct atsi_source *src, uint32_t item);
/* Whether both backends take the matrix of a row tile, whose result is part of wider rows. */
bool atsi_source_can_tile(const struct atsi_session *s, const struct atsi_accel *a,
                          const struct atsi_items *items);

/* Clears, in an array of ones, the tensors that not both backends read as panels wherever they use
 * them.  Before the first bind. */
void atsi_source_packable(const struct atsi_source *src, uint8_t *packable);

/* What must be resident: all small weights, and the matrices of items placed on the accelerator.
 * out: room for atsi_source_max_wants(). */
uint32_t atsi_source_max_wants(const struct atsi_source *src);
uint32_t atsi_source_wants(const struct atsi_source *src, const int32_t *placed,
                           struct atsi_piece *out);
/* Bytes that an item's weight takes in a slot of a phase. */
uint64_t atsi_source_slot_bytes(const struct atsi_source *src, uint32_t item, uint32_t phase);

/* Weights are where `region` (NULL: nowhere) and the host have them now. */
void atsi_source_bind(struct atsi_source *src, const struct atsi_region *region);
/* From now on decode rounds use these caches of experts; NULL: none.  [borrowed] */
struct atsi_experts;
void atsi_source_use_experts(struct atsi_source *src, struct atsi_experts *x);
/* The largest logits, picked on the accelerator (pick.h). */
struct atsi_pick *atsi_source_pick(struct atsi_source *src);
/* The host has the whole row of logits of the last round, though only the largest had come. */
int atsi_source_fetch_logits(struct atsi_source *src, struct atsi_err *err);
/* A round begins; rows and windows were set in the values. */
void atsi_source_begin(struct atsi_source *src, uint32_t phase, uint32_t n_kv);

struct atsi_source_counts {
    uint64_t move_bytes, copy_bytes; /* over the link, since the start */
    uint64_t result_bytes;           /* of copy_bytes: logits */
    uint64_t n_moves, n_copies;
};
void atsi_source_counts(const struct atsi_source *src, struct atsi_source_counts *out);

#endif
