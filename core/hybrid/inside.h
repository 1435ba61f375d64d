/* SPDX-License-Identifier: Apache-2.0
 * The parts of a hybrid session: setup.c puts them together, hybrid.c runs rounds. */
#ifndef ATSI_CORE_HYBRID_INSIDE_H
#define ATSI_CORE_HYBRID_INSIDE_H

#include "core/experts/stats.h"
#include "core/govern/governor.h"
#include "core/hybrid/experts.h"
#include "core/hybrid/hybrid.h"
#include "core/hybrid/question.h"
#include "core/round/probe.h"
#include "core/round/rounds.h"

struct atsi_hybrid {
    struct atsi_session *s;
    struct atsi_accel a;
    struct atsi_budget_conf conf;
    struct atsi_budget_sizes sizes;
    struct atsi_budget budget;
    struct atsi_items *items;
    struct atsi_values values;
    struct atsi_weights *weights; /* [borrowed from the model] */
    struct atsi_source *source;
    struct atsi_hybrid_costs costs;
    struct atsi_question *question;
    struct atsi_prober *prober; /* NULL: idle devices are not measured */
    struct atsi_rounds *rounds;
    struct atsi_region *region;
    struct atsi_region_change changed; /* by the last budget */
    struct atsi_state state;
    struct atsi_piece *wants;
    uint8_t *packable; /* [tensors] */
    double *in_bytes;  /* [n_items] not used by plans with a flow */
    uint64_t version;  /* of the weights that operations are bound to */
    uint64_t n_rounds;
    struct atsi_source_counts seen;      /* what the session's statistics have of `source` */
    struct atsi_governor *governor;      /* NULL: nobody watches */
    struct atsi_experts *experts;        /* NULL: the placement has no caches of experts */
    struct atsi_books_counts books_seen; /* what the session's statistics have of `experts` */
    struct atsi_expert_stats stats;      /* what is known of who is chosen */
    const float **uses;                  /* [n_items] of the question: into `sorted` */
    float *sorted;                       /* scores of each layer, most first */
    uint64_t last_round_ns;              /* of the last decode round */
    uint32_t n_replans;
    uint32_t top;          /* largest logits that whoever asked last wanted; 0: all */
    uint32_t refused_seen; /* of `rounds`, in the session's statistics */
    bool may_probe;        /* the budget has room for probes */
    bool pinned;           /* this session pinned the weights */
    bool begun;            /* inside atsi_weights_begin() .. end() */
    bool chunk_chosen, stats_read;
};

/* Everything but the devices, in the order things depend on each other; again with less when the
 * device has not as much memory as it said.  ATSI_ENOTSUP, ATSI_ENOMEM: not on this accelerator. */
int atsi_hybrid_setup(struct atsi_hybrid *h, struct atsi_err *err);
void atsi_hybrid_undo(struct atsi_hybrid *h);
/* All that is on the host under the budget of now: items, operations, placement, rounds; what the
 * device has stays as it is.  Nothing is under way.  ATSI_ENOFIT: the budget is too small. */
int atsi_hybrid_plan_again(struct atsi_hybrid *h, struct atsi_err *err);
/* The region as the placement wants it; only what differs is loaded. */
int atsi_hybrid_fill_region(struct atsi_hybrid *h, struct atsi_region_change *change,
                            struct atsi_err *err);

/* chunk.c: the size of prefill rounds, where it is free: with which requests are shortest.  Items
 * and operations are there, of the usual size.  1: another size than now was taken. */
int atsi_hybrid_choose_chunk(struct atsi_hybrid *h, struct atsi_err *err);
/* setup.c, for chunk.c */
int atsi_hybrid_make_budget(struct atsi_hybrid *h, struct atsi_err *err);
struct atsi_hybrid_ask atsi_hybrid_ask_of(struct atsi_hybrid *h);
int atsi_hybrid_find_policy(const struct atsi_hybrid *h, const char *key, bool required,
                            struct atsi_policy_use *out, struct atsi_err *err);

/* again.c: before a round; takes up a budget that was changed since the last one. */
int atsi_hybrid_follow_budget(struct atsi_hybrid *h, struct atsi_err *err);
/* The log's line about what lives where. */
void atsi_hybrid_report(const struct atsi_hybrid *h);
/* Pins what may move; again when weights have other addresses.  Nothing is on the move. */
void atsi_hybrid_pin(struct atsi_hybrid *h);

/* caches.c: caches of experts.  Before the question is asked: whether there may be any, and what is
 * known of the model's choices. */
int atsi_hybrid_ask_experts(struct atsi_hybrid *h, struct atsi_err *err);
/* The placement is known. */
int atsi_hybrid_open_experts(struct atsi_hybrid *h, const struct atsi_policy_use *placed_by,
                             struct atsi_err *err);
/* What was learned is kept for the next question. */
void atsi_hybrid_close_experts(struct atsi_hybrid *h);
/* The session ends: what was learned is saved. */
void atsi_hybrid_save_experts(struct atsi_hybrid *h);

/* watch.c: the governor of a session (power.watch). */
void atsi_hybrid_watch(struct atsi_hybrid *h);
/* Weights were placed, n items on the accelerator. */
void atsi_hybrid_watch_placed(const struct atsi_hybrid *h, uint32_t n);

/* seen.c: what a round was like, for the session's statistics and whoever draws its spans.
 * measured: its operations were measured one by one. */
void atsi_hybrid_see(struct atsi_hybrid *h, uint32_t phase, uint32_t rows, bool measured,
                     const struct atsi_round_result *res);

#endif
