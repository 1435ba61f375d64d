/* SPDX-License-Identifier: Apache-2.0
 *
 * A scheduling policy (plugin kind ATSI_KIND_POLICY): decides where tensors live and, per round,
 * where operators run and which weights move.
 *
 * Policies are pure: plain data in, plain data out, no clock, no random numbers, no I/O; the same
 * input gives the same output.  Memory of the past is data too: `state` is owned by the core and
 * only lent.  The core checks every answer (devices, budgets, slots, order) before using it and
 * falls back to another policy when one is wrong or late.  Every function is [any thread].
 *
 * Times are nanoseconds, sizes are bytes, speeds are per mille (1000: undisturbed).  Devices are
 * numbers: 0 is the host CPU.
 */
#ifndef ATSINFER_POLICY_H
#define ATSINFER_POLICY_H

#include <stddef.h>
#include <stdint.h>

#include "atsinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum atsi_phase { ATSI_PHASE_PREFILL = 0, ATSI_PHASE_DECODE = 1 };

/* One schedulable operator.  Items are in execution order. */
struct atsi_item {
    uint32_t struct_size;
    uint32_t role;        /* enum atsi_role (graph.h) */
    int32_t layer;        /* -1: none */
    int32_t router;       /* item whose result says which experts are used, or -1 */
    uint32_t slot_class;  /* class of temporary slot its weight fits */
    uint32_t can_promote; /* 1: its weight may be streamed for a round */
    int32_t pinned;       /* the user's rule, a constraint: device number, or -1 */
    uint32_t n_experts;   /* of a stack of experts; 0: none */
    uint32_t cost_class;  /* of atsi_round.slowdown_*: operators that slow down together */
    uint32_t reserved;
    uint64_t resident_bytes; /* all experts; KV or state for attention */
    uint64_t touched_bytes;  /* what a decode step reads: of experts, those expected to be used */
    const char *name;        /* of its weight tensor */
};

/* Times of one item on one device in one phase.  This struct and the next one never grow: arrays of
 * them have a fixed stride. */
struct atsi_item_cost {
    uint64_t run_ns;      /* now: profile times current slowdown */
    uint64_t transfer_ns; /* moving its weight to this device; 0: it cannot move in this phase */
    uint64_t in_ns;       /* its activations to this device, launch or wait included */
    uint64_t in_copy_ns;  /* their bytes over the link alone, as the paper prices a switch */
    /* While it runs here and some weight is on the move: its speed, and that of the transfer. */
    uint32_t contended_run, contended_copy;
};

/* Outputs that cross when the backends of `from` and `to` differ. */
struct atsi_edge {
    uint32_t from, to;
    uint64_t bytes;
};

/* What every question of a policy starts with. */
struct atsi_problem {
    uint32_t struct_size;
    uint32_t n_items, n_devices, n_edges, n_slot_classes;
    const struct atsi_item *const *items; /* [n_items] */
    const struct atsi_item_cost *prefill; /* [n_devices][n_items] */
    const struct atsi_item_cost *decode;  /* [n_devices][n_items] */
    const struct atsi_edge *edges;        /* [n_edges] */
    const uint64_t *budget_bytes;         /* [n_devices]: what placement may use; UINT64_MAX: all */
    /* [2][n_slot_classes], prefill then decode: temporary slots per class, and their size. */
    const uint32_t *slot_depth;
    const uint64_t *slot_bytes;
    uint32_t mix_prompt, mix_generated; /* tokens placement is balanced for */
    /* Speeds of an activation copy and of a weight transfer while both are under way. */
    uint32_t contended_act, contended_act_copy;
    uint64_t split_ns;   /* a cut before an item whose weight arrives in a slot */
    uint64_t routing_ns; /* from the end of a router to its experts' ids on the host */
    uint64_t result_ns;  /* the round's result to the host, when it ends elsewhere */
    uint64_t gap_ns;     /* host time between two rounds */
    void *scratch; /* [borrowed for the call]  scratch_bytes(n_items) bytes, 64-byte aligned */
    uint32_t prefill_tokens; /* of the round that `prefill` prices; 0: mix_prompt */
    /* 1: of stacks of experts that live on the host, some experts may have slots on device 1
     * (atsi_placement.expert_slots).  The stacks between a router and the next one belong together:
     * same number of slots, or none. */
    uint32_t expert_cache;
    /* [n_items]: of a stack, how often each expert was chosen lately, most first ([n_experts]);
     * NULL: nothing is known, or it is no stack.  The array may be NULL. */
    const float *const *expert_uses;
};

struct atsi_placement {
    uint32_t struct_size;
    uint32_t n_items;
    int32_t *device;        /* [n_items] out: where the weight lives */
    uint32_t *expert_slots; /* [n_items] out: resident experts, for expert items: all of a stack on
                             * the accelerator; of one on the host 0, or slots of its cache */
    uint64_t predicted_prefill_ns, predicted_decode_ns; /* out; 0: no prediction */
};

struct atsi_round {
    uint32_t struct_size;
    uint32_t phase; /* enum atsi_phase */
    uint32_t n_tokens, n_ctx;
    uint32_t tokens_left; /* expected rounds to come */
    const struct atsi_problem *problem;
    const int32_t *placed;       /* [n_items]: device of residency */
    const int32_t *in_force;     /* [n_items]: runtime device of the plan in force, or NULL */
    uint64_t now_ns, planned_ns; /* engine clock now, and when the plan in force was made */
    uint64_t predicted_ns, observed_ns; /* round time by the plan in force, and as measured */
    /* [n_classes] time against the profile's, per mille: when that plan was made, and now */
    const uint32_t *slowdown_then, *slowdown_now;
    uint32_t n_classes; /* cost classes */
    void *state;        /* owned by the core, zeroed before the first call */
    size_t state_bytes; /* what state_bytes() asked for */
};

struct atsi_schedule {
    uint32_t struct_size;
    uint32_t n_items;
    uint32_t keep;        /* out: 1 = the plan in force stays */
    uint32_t n_transfers; /* out */
    int32_t *device;      /* [n_items] out: runtime device; differs from `placed` = promoted */
    uint32_t *order;      /* [n_items] out: promoted items in order of transfer */
    int32_t *after; /* [n_items] out: earliest start, after this item; -1: as early as possible */
    int32_t *slot;  /* [n_items] out: slot of a promoted item, -1: none */
    uint64_t predicted_ns; /* out; 0: no prediction */
    /* [n_items] out, or NULL when nobody asks: predicted, from the round's start */
    uint64_t *start_ns, *end_ns;
    uint64_t evals; /* out: plans or table cells evaluated, for accounts of overhead */
};

/* The expert cache of one layer, when the layer's router has chosen in a decode round.  Experts in
 * slots are computed on device 1 beside the others on the host; what is brought in now can be used
 * from the next round on. */
struct atsi_expert_cache {
    uint32_t struct_size;
    uint32_t layer, n_layers; /* cached layers by number, in order of execution */
    uint32_t n_experts, n_slots, n_used;
    uint32_t
        max_swaps;   /* experts that may be brought in now: the round's transfers allow no more */
    float half_life; /* of `score`, in rounds; 0: nothing is forgotten */
    uint64_t round;  /* decode rounds so far, this one included */
    const int32_t *used;      /* [n_used] distinct experts, best first */
    const int32_t *slot_of;   /* [n_experts] its slot, also while it is on its way; -1: none */
    const int32_t *expert_of; /* [n_slots] -1: empty */
    const uint8_t *locked;    /* [n_slots] 1: an expert is on its way there */
    const uint64_t *count;    /* [n_experts] rounds that used it */
    const uint64_t *last;     /* [n_experts] the last of them; 0: none */
    const float *score;       /* [n_experts] rounds that used it, each worth half of one that is
                               * half_life younger */
    uint64_t admit_ns;        /* bringing an expert in */
    uint64_t hit_ns;          /* what one more hit saves */
};

struct atsi_expert_swaps {
    uint32_t struct_size;
    uint32_t n;     /* out, at most max_swaps */
    int32_t *admit; /* [max_swaps] out: experts without a slot, best first */
    int32_t *evict; /* [max_swaps] out: the slot of each; not locked; what is there is given up */
};

struct atsi_policy_ops {
    uint32_t struct_size;
    /* Scratch lent per call. */
    size_t (*scratch_bytes)(uint32_t n_items);
    int (*place)(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err);
    /* NULL: placement only, items run where they live. */
    int (*schedule)(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err);
    /* NULL: no state. */
    size_t (*state_bytes)(uint32_t n_items);
    /* Who comes into an expert cache, and who goes.  NULL: the core keeps those used most. */
    int (*swap_experts)(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                        struct atsi_err *err);
};

#ifdef __cplusplus
}
#endif
#endif
