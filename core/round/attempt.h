/* SPDX-License-Identifier: Apache-2.0
 *
 * Asking a policy for a schedule: on the engine's thread, or beside the running round on a thread
 * of its own, with a copy of everything it reads.
 */
#ifndef ATSI_CORE_ROUND_ATTEMPT_H
#define ATSI_CORE_ROUND_ATTEMPT_H

#include "core/round/plan.h"

struct atsi_policy_use {
    const char *name; /* for messages */
    const struct atsi_policy_ops *ops;
};

/* What came of asking one policy. */
struct atsi_attempt {
    bool made;
    int rc, legal;       /* of the policy's function; of the check of its answer */
    uint64_t took_ns;    /* wall clock */
    struct atsi_err why; /* when rc or legal is no ATSI_OK */
};

/* Asks for a schedule; in->problem->scratch must have what the policy wants.  The answer begins as
 * "everything runs where it lives".  [any thread; q: what does not change while plans are made] */
void atsi_attempt_schedule(const struct atsi_question *q, const struct atsi_policy_use *use,
                           const struct atsi_round *in, struct atsi_schedule *out,
                           struct atsi_attempt *result);
/* Everything runs where it lives. */
void atsi_schedule_stay(const int32_t *placed, struct atsi_schedule *out);
uint64_t atsi_wall_ns(void);

/* ---- background.c */
#define ATSI_USES 2u /* the policy, then the fallback */

/* One question, as it is when asked; all of it is copied. */
struct atsi_solve {
    struct atsi_policy_use use[ATSI_USES]; /* ops NULL: none */
    const void *state[ATSI_USES];
    size_t state_bytes[ATSI_USES];
    struct atsi_round in; /* problem: of the question; state: ignored */
    uint64_t time_limit_ns;
    uint64_t serial; /* the caller's, given back */
};

/* Its answer.  [borrowed until the next atsi_solver_ask()] */
struct atsi_solved {
    const struct atsi_solve *asked; /* slowdowns and devices as copied */
    struct atsi_attempt attempt[ATSI_USES];
    int used; /* whose answer is good; -1: nobody's */
    const struct atsi_schedule *schedule;
    const void *state[ATSI_USES]; /* of the policies, after they were asked */
};

struct atsi_solver;

/* Room for questions of q's size, and a thread that waits. */
int atsi_solver_open(const struct atsi_question *q, struct atsi_solver **out, struct atsi_err *err);
void atsi_solver_close(struct atsi_solver *s); /* waits for the answer; NULL is allowed */
/* A question was asked whose answer was not taken yet. */
bool atsi_solver_busy(struct atsi_solver *s);
/* Only after the last answer was taken.  ATSI_ENOMEM. */
int atsi_solver_ask(struct atsi_solver *s, const struct atsi_solve *job, struct atsi_err *err);
/* Until nothing is being worked out; the answer stays to be taken. */
void atsi_solver_wait(struct atsi_solver *s);
/* The answer, once; wait: until it is there.  False: none is there, or none was asked for. */
bool atsi_solver_take(struct atsi_solver *s, bool wait, struct atsi_solved *out);

#endif
