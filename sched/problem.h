/* SPDX-License-Identifier: Apache-2.0
 *
 * From the problem a policy is asked (struct atsi_problem) to the chains of its two phases.  Device
 * 0 is the CPU, device 1 the GPU; with one device alone everything is pinned to the CPU.
 */
#ifndef ATSI_SCHED_PROBLEM_H
#define ATSI_SCHED_PROBLEM_H

#include "atsinfer/policy.h"
#include "sched/chain.h"

/* A problem as one phase sees it; `chain` borrows the rest, which lies in the scratch and is the
 * caller's to change (pins, before a placement). */
struct sched_view {
    struct sched_chain chain; /* b is NULL */
    struct sched_op *op;      /* [n] */
    uint8_t *attn;            /* [n] 1: attention, or the recurrence in its stead */
    uint32_t *depth;          /* [n_classes] */
};

size_t sched_view_scratch(uint32_t n_items);
/* phase: enum atsi_phase.  scratch: 64-byte aligned, of the size told.  ATSI_EINVAL with the item
 * and the number for a problem no chain can be made of; ATSI_ENOTSUP for more than two devices.
 *
 * What may not be obvious: an operator may be streamed if it has a transfer time in this phase and
 * its class has a slot; routers release transfers in decode alone; a head without a layer is the
 * layer after the last; experts pinned to the GPU are no experts to Algorithm 1, which would
 * otherwise reckon with room that they take. */
int sched_view_read(const struct atsi_problem *p, uint32_t phase, void *scratch,
                    struct sched_view *out, struct atsi_err *err);

/* ATSI_ENOFIT with both numbers when what the user pinned to the GPU exceeds its budget. */
int sched_view_check_pins(const struct sched_view *v, struct atsi_err *err);

/* Devices to sides.  ATSI_EINVAL for a device there is not. */
int sched_read_sides(const struct atsi_problem *p, const int32_t *device, uint8_t *side_out,
                     struct atsi_err *err);

/* Prefill rounds in the prompt that placements are balanced for. */
uint32_t sched_problem_chunks(const struct atsi_problem *p);
/* Tokens of the prefill round that is priced. */
uint32_t sched_problem_chunk_tokens(const struct atsi_problem *p);

#endif
