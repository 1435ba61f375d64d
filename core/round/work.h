/* SPDX-License-Identifier: Apache-2.0
 *
 * What one scheduling item computes, as far as its cost depends on it, and the demand that a round
 * of some tokens at some context makes: bytes and operations.
 */
#ifndef ATSI_CORE_ROUND_WORK_H
#define ATSI_CORE_ROUND_WORK_H

#include <stdbool.h>
#include <stdint.h>

enum atsi_work_kind {
    ATSI_WORK_MATRIX = 0, /* y = W x */
    ATSI_WORK_EXPERTS,    /* y_j = W[e_j] x for the experts a token uses */
    ATSI_WORK_ATTENTION,  /* over a KV cache */
    ATSI_WORK_RECURRENT,  /* with a state of constant size */
    ATSI_WORK_LOOKUP      /* a row of a table per token */
};

struct atsi_work {
    uint32_t kind; /* enum atsi_work_kind */
    uint32_t type; /* enum atsi_type of the weight; ATSI_TYPE_COUNT: none */
    uint64_t in,
        out; /* MATRIX, EXPERTS: elements of a row of x and y (of one expert); LOOKUP: in = 1 */
    uint32_t n_expert, n_used;
    bool own_inputs; /* EXPERTS: each used expert has an input of its own (down projections) */
    bool last_only;  /* only the last token of a prompt needs it (the head) */
    uint64_t weight_bytes; /* all experts together */
    /* ATTENTION: n_pos cells of cell_bytes each; a token sees at most `window` positions (0: all).
     * RECURRENT: state_bytes read and written per round. */
    uint64_t cell_bytes, state_bytes;
    uint32_t window;
    uint64_t in_width;      /* ATTENTION, RECURRENT: elements of all inputs of a token */
    double flops_per_token; /* RECURRENT */
    double flops_per_pair;  /* ATTENTION: per token and visible position */
};

struct atsi_demand {
    double resident_bytes; /* weights, all experts; KV cache of ctx_max positions; state */
    double touched_bytes;  /* read (and for states written) in the round */
    double flops;
    double in_bytes; /* f32 activations that must reach the device it runs on */
};

/* tokens: of the round; ctx: positions before it; ctx_max: positions the cache is sized for.  The
 * experts a prompt of T tokens touches are those expected of uniform routing, E (1 - (1 - K/E)^T).
 */
void atsi_work_demand(const struct atsi_work *w, uint32_t tokens, uint32_t ctx, uint32_t ctx_max,
                      struct atsi_demand *out);

#endif
