/* SPDX-License-Identifier: Apache-2.0
 * The question that policies get about a session's real devices: items, costs, budgets, slots. */
#ifndef ATSI_CORE_HYBRID_QUESTION_H
#define ATSI_CORE_HYBRID_QUESTION_H

#include "core/hybrid/budget.h"
#include "core/hybrid/source.h"
#include "core/round/costs.h"

struct atsi_hybrid_ask {
    struct atsi_session *s;
    struct atsi_items *items;
    const struct atsi_source *source; /* sizes of slots */
    const struct atsi_budget *budget;
    const struct atsi_accel *a;
    bool panels; /* weights will be packed */
};

/* Items that cannot run on the accelerator are pinned to the host; kv.device and the user's rules
 * pin others.  ATSI_ECONF: a malformed rule. */
int atsi_hybrid_pin_items(const struct atsi_hybrid_ask *a, struct atsi_err *err);
/* [owned by caller: atsi_question_free]  slot_bytes and slot_depth are those of the real slots.
 * *costs_out: what it was made from, or NULL.  [owned by caller: atsi_costs_free, after the
 * question] */
int atsi_hybrid_question(const struct atsi_hybrid_ask *a, struct atsi_question **out,
                         struct atsi_costs **costs_out, struct atsi_err *err);

#endif
