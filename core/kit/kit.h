/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checks of policies share: problems made of built-in shapes and machines, memory lent
 * with guards, questions asked in a fixed series, and notes that a child process leaves.
 */
#ifndef ATSI_CORE_KIT_KIT_H
#define ATSI_CORE_KIT_KIT_H

#include "atsinfer/conform.h"
#include "core/round/plan.h"

/* ---- kit_data.c: problems that look like real ones */
struct atsi_kit_case {
    uint8_t shape, machine;
    uint16_t budget_pm; /* accelerator's budget, per mille of all resident bytes */
    uint8_t slots;      /* temporary slots at most */
    uint8_t rules;      /* 1: the last item pinned to the host, the second to the accelerator */
    uint8_t contention, large;
};
enum { KIT_ROWS = 6 }; /* cases of the table of regrets: one per shape */

uint32_t atsi_kit_n_cases(bool quick);
void atsi_kit_get_case(uint32_t i, struct atsi_kit_case *out);
void atsi_kit_get_row(uint32_t shape, struct atsi_kit_case *out);
void atsi_kit_case_label(const struct atsi_kit_case *c, char *out, size_t size);
/* Items and question of a case.  [owned by caller: atsi_kit_question_close] */
int atsi_kit_question_open(const struct atsi_kit_case *c, struct atsi_question **out,
                           struct atsi_err *err);
/* A random one of n items, at most 16; the same for the same seed. */
int atsi_kit_question_random(uint32_t n, uint64_t seed, struct atsi_question **out,
                             struct atsi_err *err);
void atsi_kit_question_close(struct atsi_question *q); /* its items too; NULL is allowed */
uint64_t atsi_kit_next(uint64_t *seed);

/* ---- atsi_kit_seat.c: one place to ask from, with memory of its own */
enum atsi_kit_array {
    KIT_SCRATCH,
    KIT_STATE,
    KIT_PLACE,
    KIT_EXPERTS,
    KIT_DEVICE,
    KIT_ORDER,
    KIT_AFTER,
    KIT_SLOT,
    KIT_START,
    KIT_END,
    KIT_N_ARRAYS
};

struct atsi_kit_lent {
    unsigned char *base, *at; /* at: 64-byte aligned, guards before and behind; base: the first */
    size_t bytes;
    const char *name;
};

struct atsi_kit_seat {
    const struct atsi_policy_ops *ops;
    struct atsi_question *q; /* [borrowed] */
    struct atsi_kit_lent lent[KIT_N_ARRAYS];
    struct atsi_problem problem; /* the question's, with the seat's scratch */
    struct atsi_placement place;
    struct atsi_schedule schedule;
    uint32_t now[ATSI_N_CLASSES];
    unsigned char junk; /* what scratch and arrays are filled with before a call */
    uint64_t took_ns;   /* by the last call */
    bool watch;         /* ask for the next: */
    bool input_changed; /* by a call, which may only read it */
    struct {
        bool planned;
        int32_t *in_force; /* [n] */
        uint64_t planned_ns, predicted_ns;
        uint32_t then[ATSI_N_CLASSES];
    } phase[2];
};

int atsi_kit_seat_open(const struct atsi_policy_ops *ops, struct atsi_question *q,
                       struct atsi_kit_seat *s, struct atsi_err *err);
void atsi_kit_seat_close(struct atsi_kit_seat *s);
/* As new: no plan, state zeroed. */
void atsi_kit_seat_reset(struct atsi_kit_seat *s);

/* A series of questions as a session asks them: both phases, the same twice, slowdowns, other
 * numbers of tokens. */
enum { KIT_STEPS = 9 };
const char *atsi_kit_step_name(uint32_t step);
uint32_t atsi_kit_step_phase(uint32_t step);
/* Status of the call.  Step 0 places, all others schedule. */
int atsi_kit_ask(struct atsi_kit_seat *s, uint32_t step, struct atsi_err *err);
/* Is the last answer legal?  Then its plan is in force. */
int atsi_kit_judge_answer(struct atsi_kit_seat *s, uint32_t step, struct atsi_err *err);
/* Sum over everything the answer says. */
uint64_t atsi_kit_answer_sum(const struct atsi_kit_seat *s, uint32_t step);
/* Memory between guards.  [base owned by caller: free()] */
int atsi_kit_lend(struct atsi_kit_lent *l, const char *name, size_t bytes, struct atsi_err *err);
bool atsi_kit_intact(const struct atsi_kit_lent *l);
/* FNV-1a, from a start or an earlier sum on. */
#define ATSI_KIT_SUM_START UINT64_C(0xCBF29CE484222325)
uint64_t atsi_kit_sum(uint64_t h, const void *data, size_t bytes);
/* An array whose guards are no longer what they were, or NULL. */
const struct atsi_kit_lent *atsi_kit_overrun(const struct atsi_kit_seat *s);

/* ---- kit_judge.c: how long rounds take */
/* The last schedule of the seat, on its placement. */
int atsi_kit_round_ns(const struct atsi_kit_seat *s, uint32_t phase, double *ns_out,
                      struct atsi_err *err);
/* The shortest of all plans on that placement, by trying each. */
int atsi_kit_best_plan(const struct atsi_kit_seat *s, uint32_t phase, double *ns_out,
                       struct atsi_err *err);
/* The shortest request of all placements and plans: generated decode rounds and one of prefill. */
int atsi_kit_best_request(struct atsi_question *q, double *ns_out, struct atsi_err *err);
/* Algorithm 1 and the scheduler: both phases. */
int atsi_kit_reference(struct atsi_question *q, double ns_out[2], struct atsi_err *err);

/* ---- kit_child.c: what a check leaves behind, in memory shared with the parent */
struct atsi_kit_note {
    volatile uint32_t beats; /* calls begun */
    uint32_t done, ok, n_cases, n_rows;
    char where[256]; /* what is being asked */
    char text[512];
    struct atsi_conform_row rows[KIT_ROWS];
};

struct atsi_kit_run {
    const struct atsi_policy_ops *ops;
    uint64_t limit_ns;
    bool quick;
    struct atsi_kit_note *note;
};
/* Says what is about to be asked. */
void atsi_kit_at(struct atsi_kit_run *r, const char *fmt, ...) ATSI_PRINTF(2, 3);
/* Notes what was found: atsi_kit_bad returns false, atsi_kit_good true. */
bool atsi_kit_bad(struct atsi_kit_run *r, const char *fmt, ...) ATSI_PRINTF(2, 3);
bool atsi_kit_good(struct atsi_kit_run *r, const char *fmt, ...) ATSI_PRINTF(2, 3);

typedef bool atsi_kit_check_fn(struct atsi_kit_run *r);
/* Runs a check in a child; what goes wrong there becomes its text. */
int atsi_kit_child_run(struct atsi_kit_run *r, atsi_kit_check_fn *fn, uint32_t patience_ms,
                       struct atsi_err *err);

/* ---- the checks */
struct atsi_kit_check {
    const char *name, *promise;
    atsi_kit_check_fn *run;
};
extern const struct atsi_kit_check atsi_kit_checks[];
extern const uint32_t atsi_kit_n_checks;
bool atsi_kit_check_place(struct atsi_kit_run *r);
bool atsi_kit_check_schedule(struct atsi_kit_run *r);
bool atsi_kit_check_keep(struct atsi_kit_run *r);
bool atsi_kit_check_memory(struct atsi_kit_run *r);
bool atsi_kit_check_repeat(struct atsi_kit_run *r);
bool atsi_kit_check_state(struct atsi_kit_run *r);
bool atsi_kit_check_threads(struct atsi_kit_run *r);
bool atsi_kit_check_experts(struct atsi_kit_run *r); /* kit_experts.c */
bool atsi_kit_check_time(struct atsi_kit_run *r);
bool atsi_kit_check_optimum(struct atsi_kit_run *r);
bool atsi_kit_check_regret(struct atsi_kit_run *r);

#endif
