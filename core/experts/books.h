/* SPDX-License-Identifier: Apache-2.0
 *
 * The books of an expert cache: which expert of a layer is in which slot, who was used how often.
 * The same for simulated and for real devices; memory, copies and computing are the user's.
 *
 * Per decode round and layer: atsi_books_look() when the router has chosen, then, when nobody reads
 * the layer's slots any more, atsi_books_choose(), which asks for swaps; atsi_books_arrived() when
 * one of them is over, at the latest before the layer's next look if it is to be used then.
 */
#ifndef ATSI_CORE_EXPERTS_BOOKS_H
#define ATSI_CORE_EXPERTS_BOOKS_H

#include "atsinfer/policy.h"

#include <stdbool.h>

/* At most so many experts of a token. */
#define ATSI_BOOKS_USED 64u

typedef int atsi_swap_fn(void *ctx, const struct atsi_expert_cache *in,
                         struct atsi_expert_swaps *out, struct atsi_err *err);

struct atsi_books_layer {
    uint32_t n_experts, n_used, n_slots;
    uint64_t admit_ns, hit_ns; /* bringing one expert in; what a hit saves */
};

struct atsi_books_params {
    uint32_t n_layers;
    const struct atsi_books_layer *layers; /* [n_layers] */
    float half_life;                       /* rounds; 0: nothing is forgotten */
    atsi_swap_fn *swap;                    /* NULL: by frequency that fades (sched/experts.h) */
    void *swap_ctx;
};

struct atsi_books_counts {
    uint64_t hits, misses, swaps;
    uint64_t refused; /* answers */
};

struct atsi_books;

/* ATSI_EINVAL: a layer without experts, or that uses more than there are or than 64. */
int atsi_books_open(const struct atsi_books_params *p, struct atsi_books **out,
                    struct atsi_err *err);
void atsi_books_close(struct atsi_books *b); /* NULL is allowed */

/* The slot of each chosen expert, -1: not there (yet).  Counts hits, misses and uses.  used:
 * [n_used] distinct, in range. */
void atsi_books_look(struct atsi_books *b, uint32_t layer, const int32_t *used, int32_t *slot_out);
/* So long may transfers of each layer take, beyond what they have left; not more than for two
 * experts is kept.  Once per round. */
void atsi_books_grant(struct atsi_books *b, uint64_t ns);
/* Asks who is to come in, as far as transfers are granted, after the look of this round.  Each
 * swap's slot is locked until it has arrived.  *out: [borrowed until the next call].  An illegal or
 * failing answer is counted and is no swap; err says why, and ATSI_EINVAL or what it failed with is
 * returned: nothing has changed, and rounds may go on. */
int atsi_books_choose(struct atsi_books *b, uint32_t layer, const int32_t *used,
                      const struct atsi_expert_swaps **out, struct atsi_err *err);
void atsi_books_arrived(struct atsi_books *b, uint32_t layer, uint32_t slot);
/* All slots of the layer are empty; nothing is on its way.  Counts stay. */
void atsi_books_empty(struct atsi_books *b, uint32_t layer);
/* Fills empty slots with the experts of the highest scores (ties: the first); they count as
 * arrived.
 */
void atsi_books_fill(struct atsi_books *b, uint32_t layer);
bool atsi_books_locked(const struct atsi_books *b, uint32_t layer, uint32_t slot);
/* -1: the slot is empty. */
int32_t atsi_books_expert(const struct atsi_books *b, uint32_t layer, uint32_t slot);
void atsi_books_counts(const struct atsi_books *b, struct atsi_books_counts *out);
/* Scores of a layer, to be saved or set.  [n_experts] */
float *atsi_books_score(struct atsi_books *b, uint32_t layer);
uint64_t atsi_books_rounds(const struct atsi_books *b, uint32_t layer);

/* Is an answer legal?  The message has the numbers.  (check of atsi_books_choose, for tests and the
 * conformance kit) */
int atsi_swaps_check(const struct atsi_expert_cache *in, const struct atsi_expert_swaps *out,
                     struct atsi_err *err);

#endif
