/* SPDX-License-Identifier: Apache-2.0
 * The inside of a plan report: the answers it shows, and what they were made for. */
#ifndef ATSI_CORE_ROUND_PLAN_REPORT_H
#define ATSI_CORE_ROUND_PLAN_REPORT_H

#include "atsinfer/plan.h"
#include "core/round/sim_run.h"

/* What a saved plan belongs to. */
struct atsi_plan_key {
    uint64_t items, machine;        /* hashes */
    uint64_t vram, ram;             /* bytes */
    uint32_t slots, ctx_max, chunk; /* slots at most; tokens of prefill rounds */
    uint32_t contention, sustained;
    char model[96], machine_name[96], policy[96];
};

struct atsi_plan_report {
    struct atsi_sim_run run;
    struct atsi_sim_params sim; /* run.p */
    struct atsi_plan_summary summary;
    struct atsi_plan_item *items;  /* [run.items->n] */
    struct atsi_answer *answer[2]; /* what is in force per phase; NULL until there is an answer */
    struct atsi_plan_key key;
    uint32_t made_for[3]; /* prompt, generated, context that the answers were made for */
};

/* The question that a plan answers, without running anything: sizes and costs.
 * [owned: atsi_question_free] */
int atsi_plan_question(struct atsi_plan_report *r, struct atsi_question **out);

/* ---- plan_needs.c */
/* Pins by pattern, the machine's caches; then sums up what has to fit where.  ATSI_ENOFIT. */
int atsi_plan_pin_items(struct atsi_plan_report *r, const struct atsi_plan_params *p);
int atsi_plan_needs(struct atsi_plan_report *r);
/* Bytes that live where; after placement.  ATSI_ENOFIT: the host's do not fit. */
int atsi_plan_regions(struct atsi_plan_report *r);

/* ---- plan_report.c */
/* A session with devices of its own; half-opened ones are closed too. */
int atsi_plan_open_trial(struct atsi_plan_report *r, struct atsi_sim_session *s);
void atsi_plan_close_trial(struct atsi_plan_report *r, struct atsi_sim_session *s);
/* ATSI_ENOFIT: no policy found a legal placement. */
int atsi_plan_check_placed(struct atsi_plan_report *r, const struct atsi_sim_session *s);

/* ---- plan_fit.c */
/* After ATSI_ENOFIT: enough_vram, enough_ram and fits_ctx, each tried; 0 where nothing helps. */
void atsi_plan_suggest(struct atsi_plan_report *r);

/* ---- plan_items.c */
/* Everything but decisions. */
void atsi_plan_describe(struct atsi_plan_report *r, const struct atsi_question *q);
/* Decisions and reasons from the answers. */
void atsi_plan_decide(struct atsi_plan_report *r);
/* What the rounds of a phase are limited by. */
void atsi_plan_find_limit(const struct atsi_plan_report *r, uint32_t phase,
                          struct atsi_plan_phase *out);

/* ---- plan_file.c, plan_load.c */
/* The key of what is at hand; policy: the name when p has none. */
int atsi_plan_key_make(struct atsi_plan_report *r, const struct atsi_plan_params *p,
                       const char *policy);
/* Answers from a saved plan that was made for the same.  ATSI_ECONF, ATSI_ENOENT. */
int atsi_plan_load(struct atsi_plan_report *r, const char *path, bool any_policy);

#endif
