/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert caches of a placement: groups of stacks that one router chooses from, with their slots.
 * In decode rounds a group is one step of the host's, beside which hits run on the accelerator.
 */
#ifndef ATSI_CORE_ROUND_CACHES_H
#define ATSI_CORE_ROUND_CACHES_H

#include "core/experts/books.h"
#include "core/round/problem.h"

/* Items [first, first + n), one behind the other. */
struct atsi_cache_group {
    uint32_t first, n, router;
    uint32_t n_experts, n_used, n_slots;
    uint64_t bytes;             /* of one expert */
    uint64_t host_ns, accel_ns; /* one expert, all of the group's items: as the costs say */
    uint64_t to_accel_ns, to_host_ns, row_ns; /* a row there and back; of the latter, one more */
    uint64_t move_ns;                         /* bringing one expert in */
};

/* The groups that have slots in a placement, [owned by caller: free]; *n may be 0.  Before
 * atsi_question_caches().  ATSI_ENOMEM. */
int atsi_cache_groups(const struct atsi_question *q, const struct atsi_placement *p,
                      struct atsi_cache_group **out, uint32_t *n_out, struct atsi_err *err);
/* From now on decode rounds of q are planned and priced with these caches: groups are steps of
 * their own, and are not promoted.  Once, before the first round.  ATSI_ENOMEM. */
int atsi_question_caches(struct atsi_question *q, const struct atsi_cache_group *groups, uint32_t n,
                         struct atsi_err *err);
/* Books for groups. */
int atsi_cache_books(const struct atsi_cache_group *groups, uint32_t n, float half_life,
                     atsi_swap_fn *swap, void *swap_ctx, struct atsi_books **out,
                     struct atsi_err *err);

#endif
