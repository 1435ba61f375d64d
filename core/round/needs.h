/* SPDX-License-Identifier: Apache-2.0
 * What items need where, summed before anything is placed, and whether budgets hold it: the sums
 * that plans and sessions share. */
#ifndef ATSI_CORE_ROUND_NEEDS_H
#define ATSI_CORE_ROUND_NEEDS_H

#include "atsinfer/plan.h"
#include "core/round/items.h"

struct atsi_needs_params {
    uint64_t vram, ram; /* budgets for items and slots; ram 0: not limited */
    uint32_t ctx_max;   /* positions that caches are sized for */
    bool slots;         /* there is temporary memory, of two slots at least */
};

bool atsi_work_is_cache(const struct atsi_work *w);
/* Sums, what is missing, and what would be enough of one budget; of *out the rest is zero. */
void atsi_needs_sum(const struct atsi_items *it, const struct atsi_needs_params *p,
                    struct atsi_plan_memory *out);
/* ATSI_ENOFIT when something is missing: fits_ctx is set then, and err has the numbers. */
int atsi_needs_judge(const struct atsi_items *it, const struct atsi_needs_params *p,
                     struct atsi_plan_memory *m, struct atsi_err *err);

#endif
