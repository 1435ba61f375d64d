/* SPDX-License-Identifier: Apache-2.0
 * What the files of policy_dp share. */
#ifndef ATSI_POLICY_DP_H
#define ATSI_POLICY_DP_H

#include "atsinfer/plugin.h"
#include "atsinfer/policy.h"
#include "sched/experts.h"
#include "sched/problem.h"

/* Both in the order of the parameter's choices. */
enum dp_algorithm { DP_PAPER, DP_PAPER_LITERAL, DP_REPAIRED, DP_BACKLOG, DP_BACKLOG_CO };

enum dp_experts { DP_EXPERTS_FADE, DP_EXPERTS_LRU, DP_EXPERTS_LFU, DP_EXPERTS_OFF };

/* Parameters, as settings.c describes them. */
struct dp_settings {
    enum dp_algorithm algorithm;
    enum dp_experts experts;
    int always_cache;                    /* where experts have memory at all */
    int64_t unit;                        /* bytes */
    uint32_t evals;                      /* of local search */
    uint32_t eps_pm, tau, regret_eps_pm; /* per mille; rounds */
    int64_t rebuild_ns;
};

extern const struct atsi_param *const dp_params[];

/* A runtime took the plugin up: its settings are read with the first question.  host NULL: gone. */
void dp_settings_host(const struct atsi_host *host);
/* Placing anew: they may have changed (atsi_runtime_set). */
void dp_settings_again(void);
/* Copies the settings.  ATSI_ECONF.  [any thread] */
int dp_settings_get(struct dp_settings *out, struct atsi_err *err);

/* ---- plan.c: the operators to promote in one round */
size_t dp_plan_scratch(uint32_t n);
/* in_force: one more candidate for the search, a legal plan; or NULL.  Returns the plans or table
 * cells evaluated. */
uint64_t dp_plan_make(const struct dp_settings *s, const struct sched_chain *ch, uint32_t phase,
                      const uint8_t *in_force, void *scratch, uint8_t *rb_out);
/* Rounds by whose last one plans of a phase are compared. */
uint32_t dp_plan_rounds(uint32_t phase);

/* ---- place.c, schedule.c */
int dp_place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err);
size_t dp_place_scratch(uint32_t n);
int dp_schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err);
size_t dp_schedule_scratch(uint32_t n);
size_t dp_schedule_state(uint32_t n);

/* ---- experts.c: caches of experts, by router.  Stacks that one router chooses from are a group.
 */
struct dp_caches {
    struct sched_cache_layer *group; /* [n_groups] */
    int32_t *group_of;               /* [n] of an item; -1: none, or it cannot have a cache */
    uint32_t *heap;
    uint32_t n_groups;
};
size_t dp_caches_scratch(uint32_t n);
/* Groups of the problem; none when there are no caches. */
void dp_caches_find(const struct atsi_problem *p, const struct dp_settings *s, void *scratch,
                    struct dp_caches *out);
/* Takes all stacks of groups off the GPU (b) and shares what then is left of the budget between
 * their caches. */
void dp_caches_share(const struct atsi_problem *p, struct dp_caches *c, uint8_t *b);
/* Costs of a decode round with the caches: misses on the CPU beside hits on the GPU.  Stacks with a
 * cache are no longer promoted. */
void dp_caches_price(const struct dp_caches *c, struct sched_op *op, uint32_t n);
void dp_caches_write(const struct dp_caches *c, struct atsi_placement *out);
int dp_swap_experts(const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                    struct atsi_err *err);

#endif
