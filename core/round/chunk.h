/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the size of prefill rounds.  Weights that are streamed cross the link once per round, so
 * larger rounds hide more of it behind the computation; their activations take memory from what
 * lives on the accelerator, and a round that computes longer than it transfers gains nothing more.
 */
#ifndef ATSI_CORE_ROUND_CHUNK_H
#define ATSI_CORE_ROUND_CHUNK_H

#include "core/round/attempt.h"

#define ATSI_CHUNK_USUAL 512u /* where nothing is to be gained */
#define ATSI_CHUNK_MOST 8192u
#define ATSI_CHUNK_TRIALS 6u

/* A request of the mix with rounds of that many tokens, as the policy that places predicts it. */
struct atsi_chunk_trial {
    uint32_t tokens;
    uint64_t round_ns, decode_ns; /* one of each */
    uint64_t request_ns;
};

struct atsi_chunk_choice {
    uint32_t tokens; /* the best */
    uint32_t n;
    struct atsi_chunk_trial trial[ATSI_CHUNK_TRIALS]; /* the usual size first */
    char why[256];                                    /* in words */
};

struct atsi_chunk_params {
    const struct atsi_policy_use *place;
    uint32_t prompt, generated; /* tokens of a request */
    uint32_t most;              /* that a round may have */
    void *ctx;
    /* The question with rounds of so many tokens, within the budget that their activations leave.
     * ATSI_ENOFIT, ATSI_ENOMEM: there is none, smaller rounds are taken.  [owned by the caller of
     * this: atsi_question_free] */
    int (*ask)(void *ctx, uint32_t tokens, struct atsi_question **out, struct atsi_err *err);
};

/* Tries the usual size, then twice as many tokens as long as a request gets shorter by 2 % or more.
 * A policy that predicts nothing, or fails: the usual size, and `why` says so.  Errors are those of
 * ask() for the usual size. */
int atsi_chunk_choose(const struct atsi_chunk_params *p, struct atsi_chunk_choice *out,
                      struct atsi_err *err);

/* Bytes of activations per token that shape files imply: what the widest layer reads and writes. */
uint64_t atsi_chunk_row_bytes(const struct atsi_items *it);

#endif
