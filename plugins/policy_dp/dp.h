/* SPDX-License-Identifier: Apache-2.0
 * What the files of policy_dp share. */
#ifndef ATSI_POLICY_DP_H
#define ATSI_POLICY_DP_H

#include "atsinfer/plugin.h"
#include "atsinfer/policy.h"
#include "sched/problem.h"

/* In the order of the parameter's choices. */
enum dp_algorithm { DP_PAPER, DP_PAPER_LITERAL, DP_REPAIRED, DP_BACKLOG, DP_BACKLOG_CO };

/* Parameters, as settings.c describes them. */
struct dp_settings {
    enum dp_algorithm algorithm;
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

#endif
