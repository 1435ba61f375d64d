/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds under policies: place once; then, per round, ask for a schedule with the costs of now,
 * check it, plan it, run it, record it.  An illegal, failing or late answer is refused, counted and
 * said; a fallback policy answers instead, and at last nothing is promoted.
 */
#ifndef ATSI_CORE_ROUND_ROUNDS_H
#define ATSI_CORE_ROUND_ROUNDS_H

#include "core/round/attempt.h"
#include "core/round/exec.h"
#include "core/round/record.h"

/* Answers made before, for both phases; their placements are the same. */
struct atsi_rounds_given {
    const struct atsi_answer *phase[2]; /* enum atsi_phase */
};

/* Measures, between rounds, a cost class that rounds do not: when nothing runs on a device or
 * nothing moves.  Nothing waits for it: it is started after one round and looked at after later
 * ones. */
struct atsi_probe {
    void *ctx;
    /* ATSI_OK: under way; 1: nothing here measures this class. */
    int (*start)(void *ctx, uint32_t cls, struct atsi_err *err);
    /* 1: over, with its time and that of the profile; 0: not yet; or ATSI_E*. */
    int (*take)(void *ctx, uint64_t *seen_ns, uint64_t *profile_ns, struct atsi_err *err);
};

#define ATSI_PROBE_ROUNDS 64u

struct atsi_rounds_params {
    struct atsi_policy_use place, schedule, fallback; /* fallback.ops may be NULL */
    uint64_t time_limit_ns; /* of one answer, on the wall clock; 0: none */
    bool dynamic;           /* false: nothing is promoted */
    bool frozen;            /* the first schedule of a phase stays, whatever is measured */
    bool lazy; /* policies are asked again only when a slowdown or the rounds' size has changed */
    void (*say)(void *ctx, const char *text); /* refusals; may be NULL */
    void *say_ctx;
    /* Used instead of asking policies, as they are; NULL: ask.  An illegal one is an error. */
    const struct atsi_rounds_given *given;
    /* Policies are asked beside the running round, on a thread of their own; their answer is
     * adopted before the next round that begins after it is there.  Only the first plan of a phase
     * is waited for. */
    bool background;
    /* Prices a phase of the question for rounds of so many tokens: what is streamed and what the
     * host computes itself depends on it.  Called when the size of prefill rounds changes; the plan
     * of such a round is then waited for.  NULL: prices are those of whole rounds.  A failure
     * leaves the question as it was. */
    int (*price)(void *ctx, struct atsi_question *q, uint32_t phase, uint32_t tokens,
                 struct atsi_err *err);
    void *price_ctx;
    const struct atsi_probe *probe; /* NULL: classes keep what was measured last */
    uint32_t probe_rounds; /* without a measurement, before a probe; 0: ATSI_PROBE_ROUNDS */
};

/* Sources of work and activation bytes per phase (enum atsi_phase). */
struct atsi_rounds_work {
    const struct atsi_exec_source *source[2];
    const double *in_bytes[2];
};

struct atsi_round_result {
    uint64_t ns, predicted_ns; /* 0: the policy made no prediction */
    bool kept;                 /* the plan in force stayed */
    uint64_t schedule_ns;      /* wall clock of the policy's answer */
    uint64_t plan_ns;          /* and of checking and planning it */
    uint32_t n_moves;
    uint64_t exposed_ns; /* accelerator's splits waiting for their weights */
    uint64_t busy_ns[3]; /* host, stream, copy engine */
};

struct atsi_rounds_counts {
    uint32_t rounds, schedules, kept, illegal, failed, late;
    uint32_t waiting; /* rounds that began while an answer was being worked out */
    uint32_t probes;  /* that measured something */
};

struct atsi_rounds;

int atsi_rounds_open(struct atsi_question *q, const struct atsi_exec_devices *d,
                     const struct atsi_rounds_work *work, const struct atsi_rounds_params *p,
                     struct atsi_rounds **out, struct atsi_err *err);
void atsi_rounds_close(struct atsi_rounds *r); /* NULL is allowed */
/* One round of a phase; tokens_left: rounds expected to come. */
int atsi_rounds_step(struct atsi_rounds *r, uint32_t phase, uint32_t tokens, uint32_t ctx,
                     uint32_t tokens_left, struct atsi_round_result *out, struct atsi_err *err);
/* Waits for the answer that is being worked out, which the next round will find: for whoever is
 * about to change the question, and for tests. */
void atsi_rounds_settle(struct atsi_rounds *r);
struct atsi_exec *atsi_rounds_exec(struct atsi_rounds *r);
const struct atsi_placement *atsi_rounds_placement(const struct atsi_rounds *r);
/* The schedule and the plan in force in a phase, and what its last round took.  NULL: no round yet.
 */
const struct atsi_schedule *atsi_rounds_schedule(const struct atsi_rounds *r, uint32_t phase);
const struct atsi_plan *atsi_rounds_plan(const struct atsi_rounds *r, uint32_t phase);
const struct atsi_record *atsi_rounds_record(const struct atsi_rounds *r);
void atsi_rounds_counts(const struct atsi_rounds *r, struct atsi_rounds_counts *out);

#endif
