/* SPDX-License-Identifier: Apache-2.0
 * The record of a round as spans that a caller of the library can draw. */
#ifndef ATSI_CORE_ROUND_TRACE_H
#define ATSI_CORE_ROUND_TRACE_H

#include "atsinfer/simulate.h"
#include "core/round/exec.h"

struct atsi_trace {
    const struct atsi_question *question;
    const struct atsi_plan *plan;     /* that the round followed */
    const struct atsi_record *record; /* of that round */
    uint32_t phase, tokens;
    uint64_t resident_bytes; /* on the accelerator */
};

/* Calls fn for the round, then for each step of the plan, then for each weight moved. */
void atsi_trace_round(const struct atsi_trace *t,
                      void (*fn)(void *ctx, const struct atsi_sim_span *span), void *ctx);

/* Bytes that such a round sends over the link: weights, activations, and the result, of
 * result_bytes where the accelerator computes it. */
void atsi_trace_bytes(const struct atsi_trace *t, uint64_t result_bytes, uint64_t out[3]);

#endif
