/* SPDX-License-Identifier: Apache-2.0
 * The question that policies get about a session's real devices: items, costs, budgets, slots. */
#ifndef ATSI_CORE_HYBRID_QUESTION_H
#define ATSI_CORE_HYBRID_QUESTION_H

#include "core/hybrid/budget.h"
#include "core/hybrid/source.h"
#include "core/round/measure.h"

/* Measured costs, as long as the session is hybrid: another budget asks again with them. */
struct atsi_hybrid_costs {
    struct atsi_measure_request request;
    struct atsi_costs *table; /* NULL: not measured */
    bool tried;
};

struct atsi_hybrid_ask {
    struct atsi_session *s;
    const struct atsi_accel *accel;
    struct atsi_hybrid_costs *costs;
    struct atsi_items *items;
    const struct atsi_source *source; /* sizes of slots */
    const struct atsi_budget *budget;
    bool panels;           /* weights will be packed */
    uint32_t tokens;       /* of prefill rounds; 0: whole ones */
    uint64_t result_bytes; /* of logits that come to the host */
};

/* Tokens of the request that policies are to make short: policy.mix.  ATSI_ECONF. */
int atsi_hybrid_mix(const struct atsi_conf *c, uint32_t *prompt, uint32_t *generated,
                    struct atsi_err *err);
/* Items that cannot run on the accelerator are pinned to the host; kv.device and the user's rules
 * pin others.  ATSI_ECONF: a malformed rule. */
int atsi_hybrid_pin_items(const struct atsi_hybrid_ask *a, struct atsi_err *err);
/* policy.costs = measured: costs are measured at the model's first use here, or a middling
 * machine's where that fails, which is said.  ATSI_EINTR. [owned by caller: atsi_question_free,
 * before the costs are]  slot_bytes and slot_depth are those of the real slots. */
int atsi_hybrid_question(const struct atsi_hybrid_ask *a, struct atsi_question **out,
                         struct atsi_err *err);
/* Costs of a phase of q, made by the function above, for rounds of a->tokens.  Slots stay. */
int atsi_hybrid_price(const struct atsi_hybrid_ask *a, struct atsi_question *q, uint32_t phase,
                      struct atsi_err *err);
/* Time of so many bytes of logits to the host, from the costs q was made with: its result_ns.  It
 * is the copy's; picking them takes some microseconds before it, which nobody measures. */
uint64_t atsi_hybrid_result_ns(const struct atsi_question *q, uint64_t bytes);

#endif
