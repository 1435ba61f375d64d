/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of rounds.  Per phase there are two answers, the one in force and the one a policy is
 * writing, so that a refused answer leaves the plan in force untouched.
 */
#include "core/round/rounds.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct phase {
    struct atsi_answer *in_force, *draft;
    struct atsi_plan *plan;
    bool planned;
    uint32_t tokens;     /* of the rounds the plan copies activations for */
    uint64_t planned_ns; /* on the devices' clock */
    uint32_t slowdown_then[ATSI_N_CLASSES];
    uint32_t asked_at[ATSI_N_CLASSES]; /* slowdowns when a policy was last asked */
    uint64_t observed_ns;
    uint64_t serial; /* of the plan in force */
};

struct atsi_rounds {
    struct atsi_question *q;
    struct atsi_rounds_work work;
    struct atsi_rounds_params p;
    struct atsi_exec *exec;
    struct atsi_recorder recorder;
    struct atsi_answer *placement;
    struct phase phase[2];
    void *state[2]; /* of the schedule policy and the fallback, per use */
    size_t state_bytes[2];
    struct atsi_rounds_counts counts;
    const struct atsi_record *record;
    struct atsi_solver *solver;    /* NULL: policies are asked on this thread */
    bool probing, no_probes;       /* one is under way; they failed */
    uint32_t probed;               /* class of the one under way */
    uint32_t slow[ATSI_N_CLASSES]; /* that the question has; 0: not yet known */
    uint32_t priced; /* tokens of prefill rounds that the question is priced for; 0: whole ones */
    bool new_prices; /* since the last plan of prefill */
};

static void say(const struct atsi_rounds *r, const char *fmt, ...) ATSI_PRINTF(2, 3);
static void say(const struct atsi_rounds *r, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    if (r->p.say == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    r->p.say(r->p.say_ctx, text);
}

/* ---------------------------------------------------------------- answers that cannot be used */
/* Judges what came back: rc of the call, its time, its legality.  True: use it. */
static bool usable(struct atsi_rounds *r, const char *what, const struct atsi_policy_use *use,
                   int rc, uint64_t took, const struct atsi_err *why, int legal)
{
    if (rc != ATSI_OK) {
        r->counts.failed++;
        say(r, "policy %s failed to %s: %s", use->name, what, why->msg);
        return false;
    }
    if (legal != ATSI_OK) {
        r->counts.illegal++;
        say(r, "policy %s: illegal answer to %s: %s", use->name, what, why->msg);
        return false;
    }
    if (r->p.time_limit_ns != 0 && took > r->p.time_limit_ns) {
        r->counts.late++;
        say(r, "policy %s: late answer to %s: %.3f ms, policy.time_limit is %.3f ms", use->name,
            what, (double)took / 1e6, (double)r->p.time_limit_ns / 1e6);
        return false;
    }
    return true;
}

static int lend_scratch(struct atsi_rounds *r, const struct atsi_policy_ops *ops,
                        struct atsi_err *err)
{
    size_t bytes = ops->scratch_bytes != NULL ? ops->scratch_bytes(r->q->items->n) : 0;
    return atsi_question_scratch(r->q, bytes, err);
}

/* ---------------------------------------------------------------- placement */
static bool try_place(struct atsi_rounds *r, const struct atsi_policy_use *use)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc, legal = ATSI_OK;
    if (use->ops == NULL || use->ops->place == NULL)
        return false;
    rc = lend_scratch(r, use->ops, &why);
    if (rc == ATSI_OK)
        rc = use->ops->place(&r->q->p, &r->placement->place, &why);
    if (rc == ATSI_OK)
        legal = atsi_check_placement(r->q, &r->placement->place, &why);
    /* Placing is done once, before anything waits: no time limit. */
    return usable(r, "place", use, rc, 0, &why, legal);
}

/* Saved answers are taken whole or not at all. */
static int check_given(struct atsi_rounds *r, struct atsi_err *err)
{
    const struct atsi_answer *const *given = r->p.given->phase;
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = atsi_check_placement(r->q, &given[0]->place, &why);
    for (uint32_t f = 0; f < 2 && rc == ATSI_OK; f++)
        rc = atsi_check_schedule(r->q, f, given[0]->placed, &given[f]->schedule, &why);
    return rc == ATSI_OK ? ATSI_OK
                         : atsi_fail(err, rc == ATSI_ENOMEM ? rc : ATSI_ECONF,
                                     "the saved plan cannot be used here: %.400s", why.msg);
}

static void take_placement(struct atsi_rounds *r, const struct atsi_placement *from)
{
    struct atsi_placement *to = &r->placement->place;
    memcpy(to->device, from->device, r->q->items->n * sizeof *to->device);
    memcpy(to->expert_slots, from->expert_slots, r->q->items->n * sizeof *to->expert_slots);
    to->predicted_prefill_ns = from->predicted_prefill_ns;
    to->predicted_decode_ns = from->predicted_decode_ns;
}

static void take_schedule(const struct atsi_rounds *r, const struct atsi_schedule *from,
                          struct atsi_schedule *to)
{
    size_t n = r->q->items->n;
    to->keep = 0;
    to->n_transfers = from->n_transfers;
    to->predicted_ns = from->predicted_ns;
    memcpy(to->device, from->device, n * sizeof *to->device);
    memcpy(to->order, from->order, n * sizeof *to->order);
    memcpy(to->after, from->after, n * sizeof *to->after);
    memcpy(to->slot, from->slot, n * sizeof *to->slot);
}

static void place(struct atsi_rounds *r)
{
    if (r->p.given != NULL) {
        take_placement(r, &r->p.given->phase[0]->place);
        return;
    }
    if (try_place(r, &r->p.place) || try_place(r, &r->p.fallback))
        return;
    say(r, "no usable placement: everything stays on the host");
    for (uint32_t i = 0; i < r->q->items->n; i++) {
        r->placement->place.device[i] = ATSI_DEVICE_HOST;
        r->placement->place.expert_slots[i] = 0;
    }
}

/* ---------------------------------------------------------------- schedules */
static int state_for(struct atsi_rounds *r, int use, const struct atsi_policy_ops *ops,
                     struct atsi_err *err)
{
    size_t bytes = ops->state_bytes != NULL ? ops->state_bytes(r->q->items->n) : 0;
    if (bytes == 0 || r->state[use] != NULL)
        return ATSI_OK;
    r->state[use] = calloc(1, bytes);
    r->state_bytes[use] = bytes;
    return r->state[use] != NULL
               ? ATSI_OK
               : atsi_fail(err, ATSI_ENOMEM, "out of memory for %zu bytes of policy state", bytes);
}

struct ask {
    uint32_t phase, tokens, ctx, left;
    uint32_t now[ATSI_N_CLASSES];
    uint64_t clock_ns;
};

static struct atsi_round round_of(struct atsi_rounds *r, const struct ask *a)
{
    struct phase *ph = &r->phase[a->phase];
    return (struct atsi_round){.struct_size = sizeof(struct atsi_round),
                               .phase = a->phase,
                               .n_tokens = a->tokens,
                               .n_ctx = a->ctx,
                               .tokens_left = a->left,
                               .problem = &r->q->p,
                               .placed = r->placement->placed,
                               .in_force = ph->planned ? ph->in_force->schedule.device : NULL,
                               .now_ns = a->clock_ns,
                               .planned_ns = ph->planned_ns,
                               .predicted_ns =
                                   ph->planned ? ph->in_force->schedule.predicted_ns : 0,
                               .observed_ns = ph->observed_ns,
                               .slowdown_then = ph->slowdown_then,
                               .slowdown_now = a->now,
                               .n_classes = ATSI_N_CLASSES};
}

/* 1: a new schedule in ph->draft; 0: keep; -1: not usable. */
static int try_schedule(struct atsi_rounds *r, const struct atsi_policy_use *use, int slot,
                        const struct ask *a, uint64_t *took)
{
    struct atsi_schedule *s = &r->phase[a->phase].draft->schedule;
    struct atsi_round in = round_of(r, a);
    struct atsi_attempt t = {.why = ATSI_ERR_INIT};
    t.rc = lend_scratch(r, use->ops, &t.why);
    if (t.rc == ATSI_OK)
        t.rc = state_for(r, slot, use->ops, &t.why);
    in.state = r->state[slot];
    in.state_bytes = r->state_bytes[slot];
    if (t.rc == ATSI_OK)
        atsi_attempt_schedule(r->q, use, &in, s, &t);
    *took = t.took_ns;
    if (!usable(r, "schedule", use, t.rc, t.took_ns, &t.why, t.legal))
        return -1;
    return s->keep != 0 ? 0 : 1;
}

/* Asks the policy, then the fallback; nobody: everything runs where it lives. */
static bool new_schedule(struct atsi_rounds *r, const struct ask *a, uint64_t *took)
{
    const struct atsi_policy_use *uses[2] = {&r->p.schedule, &r->p.fallback};
    *took = 0;
    if (r->p.given != NULL) {
        if (r->phase[a->phase].planned)
            return false;
        take_schedule(r, &r->p.given->phase[a->phase]->schedule,
                      &r->phase[a->phase].draft->schedule);
        return true;
    }
    for (int k = 0; k < 2 && r->p.dynamic; k++) {
        int got;
        if (uses[k]->ops == NULL)
            continue;
        if (uses[k]->ops->schedule == NULL) /* items run where they live */
            break;
        r->counts.schedules++;
        got = try_schedule(r, uses[k], k, a, took);
        if (got >= 0)
            return got == 1;
    }
    if (r->phase[a->phase].planned &&
        (!r->p.dynamic || (r->p.schedule.ops != NULL && r->p.schedule.ops->schedule == NULL)))
        return false; /* nothing else can come */
    atsi_schedule_stay(r->placement->placed, &r->phase[a->phase].draft->schedule);
    return true;
}

static void build_plan(struct atsi_rounds *r, const struct ask *a)
{
    struct phase *ph = &r->phase[a->phase];
    atsi_plan_build(ph->plan, r->q, &ph->in_force->schedule, a->phase, r->work.in_bytes[a->phase],
                    a->tokens);
    ph->tokens = a->tokens;
}

static void adopt(struct atsi_rounds *r, const struct ask *a)
{
    struct phase *ph = &r->phase[a->phase];
    struct atsi_answer *old = ph->in_force;
    ph->in_force = ph->draft;
    ph->draft = old;
    build_plan(r, a);
    ph->planned = true;
    ph->planned_ns = a->clock_ns;
    ph->serial++;
    memcpy(ph->slowdown_then, a->now, sizeof ph->slowdown_then);
}

/* ---------------------------------------------------------------- beside the running round */
/* An answer that came: judged, and adopted unless its phase has another plan by now. */
static bool take_solved(struct atsi_rounds *r, bool wait, struct atsi_round_result *out)
{
    struct atsi_solved got;
    struct phase *ph;
    struct ask a;
    if (!atsi_solver_take(r->solver, wait, &got))
        return false;
    ph = &r->phase[got.asked->in.phase];
    for (uint32_t k = 0; k < ATSI_USES; k++) {
        const struct atsi_attempt *t = &got.attempt[k];
        if (!t->made)
            continue;
        r->counts.schedules++;
        out->schedule_ns = t->took_ns;
        (void)usable(r, "schedule", &got.asked->use[k], t->rc, t->took_ns, &t->why, t->legal);
        if (got.asked->state_bytes[k] > 0)
            memcpy(r->state[k], got.state[k], got.asked->state_bytes[k]);
    }
    if (got.used < 0 || got.schedule->keep != 0 || got.asked->serial != ph->serial)
        return false;
    a = (struct ask){
        .phase = got.asked->in.phase, .tokens = ph->tokens, .clock_ns = got.asked->in.now_ns};
    memcpy(a.now, got.asked->in.slowdown_now, sizeof a.now);
    take_schedule(r, got.schedule, &ph->draft->schedule);
    adopt(r, &a);
    return true;
}

/* The question of this round, for the next one. */
static void ask_beside(struct atsi_rounds *r, const struct ask *a)
{
    struct atsi_solve job = {.use = {r->p.schedule, r->p.fallback},
                             .in = round_of(r, a),
                             .time_limit_ns = r->p.time_limit_ns,
                             .serial = r->phase[a->phase].serial};
    struct atsi_err why = ATSI_ERR_INIT;
    int rc = ATSI_OK;
    if (job.use[0].ops == NULL || job.use[0].ops->schedule == NULL)
        return;
    for (int k = 0; k < (int)ATSI_USES && rc == ATSI_OK; k++) {
        if (job.use[k].ops == NULL)
            continue;
        rc = state_for(r, k, job.use[k].ops, &why);
        job.state[k] = r->state[k];
        job.state_bytes[k] = r->state_bytes[k];
    }
    if (rc == ATSI_OK)
        rc = atsi_solver_ask(r->solver, &job, &why);
    if (rc != ATSI_OK)
        (void)usable(r, "schedule", &job.use[0], rc, 0, &why, ATSI_OK);
}

/* Nothing that a policy could answer differently: the same size, slowdowns within 5 %. */
static bool nothing_new(const struct atsi_rounds *r, const struct ask *a)
{
    const struct phase *ph = &r->phase[a->phase];
    if (!r->p.lazy || !ph->planned || ph->tokens != a->tokens)
        return false;
    for (int k = 0; k < ATSI_N_CLASSES; k++) {
        uint64_t was = ph->asked_at[k], now = a->now[k];
        if ((now > was ? now - was : was - now) * 20 > was)
            return false;
    }
    return true;
}

/* True: a plan of this phase was adopted.  A phase without a plan is not for here. */
static bool beside(struct atsi_rounds *r, const struct ask *a, struct atsi_round_result *out)
{
    uint64_t before = r->phase[a->phase].serial;
    (void)take_solved(r, false, out);
    if (atsi_solver_busy(r->solver)) {
        r->counts.waiting++;
    } else if (!nothing_new(r, a)) {
        memcpy(r->phase[a->phase].asked_at, a->now, sizeof a->now);
        ask_beside(r, a);
    }
    return r->phase[a->phase].serial != before;
}

/* The same, but the answer is waited for. */
static bool at_once(struct atsi_rounds *r, const struct ask *a, struct atsi_round_result *out)
{
    uint64_t before = r->phase[a->phase].serial;
    (void)take_solved(r, true, out); /* to an older question, perhaps of another phase */
    memcpy(r->phase[a->phase].asked_at, a->now, sizeof a->now);
    ask_beside(r, a);
    (void)take_solved(r, true, out);
    return r->phase[a->phase].serial != before;
}

void atsi_rounds_settle(struct atsi_rounds *r)
{
    if (r->solver != NULL)
        atsi_solver_wait(r->solver);
}

/* ---------------------------------------------------------------- classes nobody measures */
static void end_probe(struct atsi_rounds *r)
{
    struct atsi_err why = ATSI_ERR_INIT;
    uint64_t seen = 0, profile = 0;
    int rc = r->p.probe->take(r->p.probe->ctx, &seen, &profile, &why);
    if (rc == 0)
        return;
    r->probing = false;
    if (rc == 1) {
        atsi_recorder_probed(&r->recorder, r->probed, seen, profile);
        r->counts.probes++;
    } else {
        r->no_probes = true;
        say(r, "idle devices are no longer measured: %s", why.msg);
    }
}

/* The class that went without a measurement longest. */
static void begin_probe(struct atsi_rounds *r)
{
    uint32_t after = r->p.probe_rounds != 0 ? r->p.probe_rounds : ATSI_PROBE_ROUNDS, k = 0;
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    for (uint32_t c = 1; c < ATSI_N_CLASSES; c++)
        if (r->recorder.since[c] > r->recorder.since[k])
            k = c;
    if (r->recorder.since[k] < after)
        return;
    rc = r->p.probe->start(r->p.probe->ctx, k, &why);
    r->recorder.since[k] = 0; /* also when nothing measures it: others have their turn */
    r->probed = k;
    r->probing = rc == ATSI_OK;
    if (rc < 0) {
        r->no_probes = true;
        say(r, "idle devices are no longer measured: %s", why.msg);
    }
}

static void probe(struct atsi_rounds *r)
{
    if (r->p.probe == NULL || r->no_probes || r->p.frozen)
        return;
    if (r->probing)
        end_probe(r);
    else
        begin_probe(r);
}

/* ---------------------------------------------------------------- what a round was like */
static void measure(const struct atsi_rounds *r, uint32_t phase, struct atsi_round_result *out)
{
    const struct atsi_plan *plan = r->phase[phase].plan;
    const struct atsi_record *rec = r->record;
    uint64_t before = rec->round.start_ns;
    out->ns = rec->round.end_ns - rec->round.start_ns;
    out->n_moves = plan->n_moves;
    if (!rec->measured)
        return;
    for (uint32_t s = 0; s < rec->n_steps; s++) {
        const struct atsi_step *step = &plan->steps[s];
        uint64_t took = rec->steps[s].end_ns - rec->steps[s].start_ns;
        bool host = step->kind == ATSI_STEP_RUN && step->device == ATSI_DEVICE_HOST;
        out->busy_ns[host ? 0 : 1] += took;
        if (step->kind == ATSI_STEP_RUN && step->transfer >= 0 && rec->steps[s].start_ns > before)
            out->exposed_ns += rec->steps[s].start_ns - before;
        before = rec->steps[s].end_ns;
    }
    for (uint32_t k = 0; k < rec->n_moves; k++)
        out->busy_ns[2] += rec->moves[k].end_ns - rec->moves[k].start_ns;
}

static bool keeps_plan(struct atsi_rounds *r, const struct ask *a, uint64_t *took)
{
    if ((r->p.frozen && r->phase[a->phase].planned) || nothing_new(r, a))
        return true;
    memcpy(r->phase[a->phase].asked_at, a->now, sizeof a->now);
    return !new_schedule(r, a, took);
}

/* The question's times of now; the same slowdowns give the same ones. */
static void slow_down(struct atsi_rounds *r, const uint32_t now[ATSI_N_CLASSES])
{
    if (memcmp(r->slow, now, sizeof r->slow) == 0)
        return;
    memcpy(r->slow, now, sizeof r->slow);
    atsi_question_slow(r->q, now);
}

/* Prefill rounds of another size: other prices, and a plan for them before they run.  It takes
 * about a millisecond, where the wrong plan may stream every weight for a handful of tokens. */
static void price(struct atsi_rounds *r, const struct ask *a)
{
    struct atsi_err why = ATSI_ERR_INIT;
    if (r->p.price == NULL || a->phase != ATSI_PHASE_PREFILL || r->priced == a->tokens)
        return;
    r->priced = a->tokens;
    if (r->solver != NULL) /* its thread reads what is about to change; at_once() would wait too */
        atsi_solver_wait(r->solver);
    if (r->p.price(r->p.price_ctx, r->q, a->phase, a->tokens, &why) != ATSI_OK) {
        say(r, "prompts of %u tokens are planned as whole rounds: %s", a->tokens, why.msg);
        return;
    }
    memset(r->slow, 0, sizeof r->slow);
    r->new_prices = true;
}

int atsi_rounds_step(struct atsi_rounds *r, uint32_t phase, uint32_t tokens, uint32_t ctx,
                     uint32_t tokens_left, struct atsi_round_result *out, struct atsi_err *err)
{
    struct phase *ph = &r->phase[phase];
    struct ask a = {.phase = phase, .tokens = tokens, .ctx = ctx, .left = tokens_left};
    uint64_t start;
    int rc = atsi_exec_now(r->exec, &a.clock_ns, err);
    *out = (struct atsi_round_result){0};
    if (rc != ATSI_OK)
        return rc;
    if (r->p.frozen)
        memset(&r->recorder, 0, sizeof r->recorder);
    atsi_recorder_now(&r->recorder, a.now);
    price(r, &a);
    slow_down(r, a.now);
    if (r->solver != NULL && !ph->planned) /* what policies remember is with the solver */
        (void)take_solved(r, true, out);
    if (r->solver != NULL && ph->planned && r->new_prices) {
        out->kept = !at_once(r, &a, out);
    } else if (r->solver != NULL && ph->planned) {
        out->kept = !beside(r, &a, out);
    } else if (!keeps_plan(r, &a, &out->schedule_ns)) {
        start = atsi_wall_ns();
        adopt(r, &a);
        out->plan_ns = atsi_wall_ns() - start;
    } else {
        out->kept = true;
    }
    if (phase == ATSI_PHASE_PREFILL)
        r->new_prices = false;
    if (ph->tokens != a.tokens) /* the same answer for a round of another size */
        build_plan(r, &a);
    r->counts.kept += out->kept;
    rc =
        atsi_exec_round(r->exec, ph->plan, r->work.source[phase], tokens_left > 1, &r->record, err);
    if (rc != ATSI_OK)
        return rc;
    if (r->record->measured)
        atsi_recorder_take(&r->recorder, r->q, phase, ph->plan, r->record);
    else
        atsi_recorder_skip(&r->recorder);
    probe(r);
    measure(r, phase, out);
    out->predicted_ns = ph->in_force->schedule.predicted_ns;
    ph->observed_ns = out->ns;
    r->counts.rounds++;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- life */
int atsi_rounds_open(struct atsi_question *q, const struct atsi_exec_devices *d,
                     const struct atsi_rounds_work *work, const struct atsi_rounds_params *p,
                     struct atsi_rounds **out, struct atsi_err *err)
{
    struct atsi_rounds *r = calloc(1, sizeof *r);
    int rc;
    *out = NULL;
    if (r == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening rounds");
    r->q = q;
    r->work = *work;
    r->p = *p;
    atsi_recorder_reset(&r->recorder);
    rc = atsi_answer_open(q->items->n, &r->placement, err);
    for (int f = 0; f < 2 && rc == ATSI_OK; f++) {
        rc = atsi_answer_open(q->items->n, &r->phase[f].in_force, err);
        if (rc == ATSI_OK)
            rc = atsi_answer_open(q->items->n, &r->phase[f].draft, err);
        if (rc == ATSI_OK)
            rc = atsi_plan_open(q, &r->phase[f].plan, err);
    }
    if (rc == ATSI_OK)
        rc = atsi_exec_open(q, d, &r->exec, err);
    if (rc == ATSI_OK && p->given != NULL)
        rc = check_given(r, err);
    if (rc == ATSI_OK && p->background && p->dynamic && !p->frozen && p->given == NULL)
        rc = atsi_solver_open(q, &r->solver, err);
    if (rc != ATSI_OK) {
        atsi_rounds_close(r);
        return rc;
    }
    place(r);
    *out = r;
    return ATSI_OK;
}

void atsi_rounds_close(struct atsi_rounds *r)
{
    if (r == NULL)
        return;
    atsi_solver_close(r->solver);
    atsi_exec_close(r->exec);
    for (int f = 0; f < 2; f++) {
        atsi_plan_close(r->phase[f].plan);
        atsi_answer_close(r->phase[f].draft);
        atsi_answer_close(r->phase[f].in_force);
    }
    atsi_answer_close(r->placement);
    for (int k = 0; k < 2; k++)
        free(r->state[k]);
    free(r);
}

struct atsi_exec *atsi_rounds_exec(struct atsi_rounds *r)
{
    return r->exec;
}

const struct atsi_placement *atsi_rounds_placement(const struct atsi_rounds *r)
{
    return &r->placement->place;
}

const struct atsi_schedule *atsi_rounds_schedule(const struct atsi_rounds *r, uint32_t phase)
{
    return r->phase[phase].planned ? &r->phase[phase].in_force->schedule : NULL;
}

const struct atsi_plan *atsi_rounds_plan(const struct atsi_rounds *r, uint32_t phase)
{
    return r->phase[phase].planned ? r->phase[phase].plan : NULL;
}

const struct atsi_record *atsi_rounds_record(const struct atsi_rounds *r)
{
    return r->record;
}

void atsi_rounds_counts(const struct atsi_rounds *r, struct atsi_rounds_counts *out)
{
    *out = r->counts;
}
