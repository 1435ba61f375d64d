/* SPDX-License-Identifier: Apache-2.0
 *
 * Policies asked beside the running round, and probes of classes that no round measures, on the
 * simulated machine.  The policy waits for the test wherever an order of events matters, so that no
 * line depends on how fast a thread is.
 */
#include "core/round/rounds.h"
#include "tests/unit/scratch.h"
#include "tests/unit/sim_bench.h"

#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---------------------------------------------------------------- a policy led by the test */
enum wish { PROMOTE, KEEP, ILLEGAL, FAIL };

static struct {
    _Atomic int wish;
    _Atomic uint32_t item, asked;  /* item: of the movable ones, the one that is promoted */
    _Atomic bool held;             /* answers wait for the semaphore */
    _Atomic uint32_t cpu_slowdown; /* as the last question had it */
    sem_t go;
} led;

static int place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    (void)err;
    for (uint32_t i = 0; i < in->n_items; i++) {
        out->device[i] = in->items[i]->pinned > 0 ? 1 : 0;
        out->expert_slots[i] = 0;
    }
    return ATSI_OK;
}

static size_t state_bytes(uint32_t n)
{
    (void)n;
    return sizeof(uint32_t);
}

static int schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    const struct atsi_problem *p = in->problem;
    const struct atsi_item_cost *accel =
        (in->phase == ATSI_PHASE_DECODE ? p->decode : p->prefill) + p->n_items;
    uint32_t which = atomic_load(&led.item), *calls = in->state;
    if (atomic_load(&led.held))
        while (sem_wait(&led.go) != 0)
            ;
    assert_int_equal(*calls, atomic_load(&led.asked)); /* memory comes back as it was left */
    (*calls)++;
    atomic_fetch_add(&led.asked, 1);
    atomic_store(&led.cpu_slowdown, in->slowdown_now[ATSI_CLASS_CPU]);
    if (atomic_load(&led.wish) == FAIL)
        return atsi_fail(err, ATSI_ENOTSUP, "no, said the policy");
    if (atomic_load(&led.wish) == KEEP) {
        out->keep = 1;
        return ATSI_OK;
    }
    for (uint32_t i = 0; i < p->n_items; i++)
        if (accel[i].transfer_ns > 0 && which-- == 0) {
            out->device[i] = 1;
            out->slot[i] = atomic_load(&led.wish) == ILLEGAL ? 99 : 0;
            out->order[out->n_transfers++] = i;
            break;
        }
    return ATSI_OK;
}

static const struct atsi_policy_ops led_ops = {.struct_size = sizeof led_ops,
                                               .place = place,
                                               .schedule = schedule,
                                               .state_bytes = state_bytes};

/* The fallback promotes nothing and says so by a prediction nobody else makes. */
static int fall_back(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    (void)in;
    (void)err;
    out->predicted_ns = 4711;
    return ATSI_OK;
}

static const struct atsi_policy_ops fallback_ops = {
    .struct_size = sizeof fallback_ops, .place = place, .schedule = fall_back};

/* ---------------------------------------------------------------- rounds */
struct stage {
    struct sim_bench b;
    struct atsi_rounds_work work;
    struct atsi_rounds_params p;
    struct atsi_rounds *rounds;
    struct atsi_rounds_counts counts;
    struct atsi_round_result last;
    char said[2048];
};

static void said(void *ctx, const char *text)
{
    struct stage *s = ctx;
    size_t at = strlen(s->said);
    (void)snprintf(s->said + at, sizeof s->said - at, "%s\n", text);
}

static void prepare(struct stage *s)
{
    memset(s, 0, sizeof *s);
    atomic_store(&led.wish, PROMOTE);
    atomic_store(&led.item, 0);
    atomic_store(&led.asked, 0);
    atomic_store(&led.held, false);
    assert_int_equal(sem_init(&led.go, 0, 0), 0);
    sim_bench_open(&s->b, sim_bench_dense, false);
    for (int f = 0; f < 2; f++) {
        s->work.source[f] = atsi_model_source_get(s->b.source[f]);
        s->work.in_bytes[f] = atsi_model_source_in_bytes(s->b.source[f]);
    }
    s->p = (struct atsi_rounds_params){.place = {"led", &led_ops},
                                       .schedule = {"led", &led_ops},
                                       .fallback = {"spare", &fallback_ops},
                                       .dynamic = true,
                                       .background = true,
                                       .say = said,
                                       .say_ctx = s};
}

static void begin(struct stage *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_rounds_open(s->b.q, &s->b.d, &s->work, &s->p, &s->rounds, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static void step(struct stage *s, uint32_t phase)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_rounds_step(s->rounds, phase, phase == ATSI_PHASE_PREFILL ? 64 : 1, 128, 100, &s->last,
                         &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    atsi_rounds_counts(s->rounds, &s->counts);
}

static void end(struct stage *s)
{
    atsi_rounds_close(s->rounds);
    sim_bench_close(&s->b);
    assert_int_equal(sem_destroy(&led.go), 0);
}

/* The item that the plan in force of a phase promotes; -1: none. */
static int promoted(const struct stage *s, uint32_t phase)
{
    const struct atsi_schedule *in_force = atsi_rounds_schedule(s->rounds, phase);
    return in_force->n_transfers > 0 ? (int)in_force->order[0] : -1;
}

/* ---------------------------------------------------------------- tests */
/* The first plan is waited for; a later answer is adopted by the round after it is there, and not
 * by the one it was asked beside. */
static void adopted_at_the_next_round(void **state)
{
    struct stage s;
    int first, second;
    (void)state;
    prepare(&s);
    begin(&s);
    step(&s, ATSI_PHASE_DECODE);
    first = promoted(&s, ATSI_PHASE_DECODE);
    assert_true(first >= 0);
    assert_false(s.last.kept);
    atomic_store(&led.item, 3);
    step(&s, ATSI_PHASE_DECODE); /* asks beside itself */
    assert_true(s.last.kept);
    assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), first);
    atsi_rounds_settle(s.rounds);
    atomic_store(&led.wish, KEEP);
    step(&s, ATSI_PHASE_DECODE);
    second = promoted(&s, ATSI_PHASE_DECODE);
    assert_false(s.last.kept);
    assert_true(second > first);
    assert_int_equal(s.last.n_moves, 1);
    for (int k = 0; k < 3; k++) {
        atsi_rounds_settle(s.rounds);
        step(&s, ATSI_PHASE_DECODE);
        assert_true(s.last.kept);
        assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), second);
    }
    assert_int_equal(s.counts.illegal + s.counts.failed + s.counts.late, 0);
    end(&s);
}

/* Rounds go on while an answer is being worked out, however long it takes. */
static void rounds_do_not_wait(void **state)
{
    struct stage s;
    int first;
    (void)state;
    prepare(&s);
    begin(&s);
    step(&s, ATSI_PHASE_DECODE);
    first = promoted(&s, ATSI_PHASE_DECODE);
    atomic_store(&led.item, 2);
    atomic_store(&led.held, true);
    for (int k = 0; k < 10; k++) {
        step(&s, ATSI_PHASE_DECODE);
        assert_true(s.last.kept);
        assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), first);
    }
    assert_int_equal(s.counts.waiting, 9);
    assert_int_equal(s.counts.schedules, 1);
    atomic_store(&led.held, false);
    assert_int_equal(sem_post(&led.go), 0);
    atsi_rounds_settle(s.rounds);
    step(&s, ATSI_PHASE_DECODE);
    assert_false(s.last.kept);
    assert_true(promoted(&s, ATSI_PHASE_DECODE) > first);
    end(&s);
}

/* What cannot be used is said and counted, and the fallback's answer is adopted instead. */
static void refused(void **state)
{
    static const struct {
        int wish;
        const char *words;
    } cases[] = {{ILLEGAL, "illegal answer to schedule"}, {FAIL, "no, said the policy"}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct stage s;
        prepare(&s);
        begin(&s);
        step(&s, ATSI_PHASE_DECODE);
        atomic_store(&led.wish, cases[k].wish);
        step(&s, ATSI_PHASE_DECODE);
        atsi_rounds_settle(s.rounds);
        step(&s, ATSI_PHASE_DECODE);
        assert_non_null(strstr(s.said, cases[k].words));
        assert_int_equal(s.counts.illegal, k == 0);
        assert_int_equal(s.counts.failed, k == 1);
        assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), -1);
        assert_true(s.last.predicted_ns == 4711);
        end(&s);
    }
}

/* Longer than policy.time_limit: refused, also when it is legal; the fallback is late as well, and
 * the plan in force stays. */
static void late(void **state)
{
    struct stage s;
    (void)state;
    prepare(&s);
    s.p.time_limit_ns = 1;
    begin(&s);
    step(&s, ATSI_PHASE_DECODE); /* nobody is in time: everything runs where it lives */
    assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), -1);
    s.said[0] = '\0';
    step(&s, ATSI_PHASE_DECODE);
    atsi_rounds_settle(s.rounds);
    step(&s, ATSI_PHASE_DECODE);
    assert_true(s.last.kept);
    assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), -1);
    assert_non_null(strstr(s.said, "policy led: late answer"));
    assert_non_null(strstr(s.said, "policy spare: late answer"));
    assert_true(s.counts.late >= 4);
    end(&s);
}

/* An answer for one phase that comes during the other is adopted for its own; a phase's first plan
 * waits for what is being worked out, so that no memory of a policy is lost. */
static void phases(void **state)
{
    struct stage s;
    int decode;
    (void)state;
    prepare(&s);
    begin(&s);
    step(&s, ATSI_PHASE_DECODE);
    decode = promoted(&s, ATSI_PHASE_DECODE);
    atomic_store(&led.item, 3);
    step(&s, ATSI_PHASE_DECODE);
    step(&s, ATSI_PHASE_PREFILL); /* checks in schedule(): the state is that of both before it */
    assert_false(s.last.kept);
    assert_true(promoted(&s, ATSI_PHASE_DECODE) > decode);
    decode = promoted(&s, ATSI_PHASE_DECODE);
    atomic_store(&led.wish, KEEP);
    step(&s, ATSI_PHASE_DECODE);
    assert_true(s.last.kept);
    assert_int_equal(promoted(&s, ATSI_PHASE_DECODE), decode);
    end(&s);
}

/* Closing while a policy is still thinking waits for it. */
static void closed_early(void **state)
{
    struct stage s;
    (void)state;
    prepare(&s);
    begin(&s);
    step(&s, ATSI_PHASE_DECODE);
    step(&s, ATSI_PHASE_DECODE);
    end(&s);
}

/* Many rounds with an answer each: for the thread sanitizer. */
static void many(void **state)
{
    struct stage s;
    (void)state;
    prepare(&s);
    begin(&s);
    for (uint32_t k = 0; k < 300; k++) {
        atomic_store(&led.item, k % 5);
        step(&s, k % 7 == 0 ? ATSI_PHASE_PREFILL : ATSI_PHASE_DECODE);
    }
    assert_int_equal(s.counts.rounds, 300);
    assert_true(s.counts.schedules + s.counts.waiting >= 299);
    assert_int_equal(s.counts.illegal + s.counts.failed + s.counts.late, 0);
    end(&s);
}

/* ---------------------------------------------------------------- probes */
struct prober {
    uint32_t started[ATSI_N_CLASSES], takes; /* takes: still to say "not yet" */
    bool can[ATSI_N_CLASSES];
    int fails;
    uint32_t cls;
};

static int probe_start(void *ctx, uint32_t cls, struct atsi_err *err)
{
    struct prober *p = ctx;
    p->started[cls]++;
    p->cls = cls;
    p->takes = 2;
    if (p->fails == 1)
        return atsi_fail(err, ATSI_EIO, "the device is gone");
    return p->can[cls] ? ATSI_OK : 1;
}

static int probe_take(void *ctx, uint64_t *seen, uint64_t *profile, struct atsi_err *err)
{
    struct prober *p = ctx;
    if (p->fails == 2)
        return atsi_fail(err, ATSI_EIO, "the device is gone");
    if (p->takes > 0) {
        p->takes--;
        return 0;
    }
    *seen = 3000;
    *profile = 1000;
    return 1;
}

static void probes(void **state)
{
    struct prober pr = {.can = {[ATSI_CLASS_XFER] = true}};
    const struct atsi_probe hook = {&pr, probe_start, probe_take};
    struct stage s;
    (void)state;
    prepare(&s);
    atomic_store(&led.wish, KEEP); /* nothing is ever promoted: the fallback's first plan stays */
    s.p.background = false;
    s.p.probe = &hook;
    s.p.probe_rounds = 10;
    begin(&s);
    for (int k = 0; k < 9; k++)
        step(&s, ATSI_PHASE_DECODE);
    assert_int_equal(pr.started[ATSI_CLASS_XFER], 0);
    for (int k = 0; k < 60; k++)
        step(&s, ATSI_PHASE_DECODE);
    assert_int_equal(pr.started[ATSI_CLASS_CPU], 0); /* every round measures it */
    assert_true(pr.started[ATSI_CLASS_XFER] >= 2 && pr.started[ATSI_CLASS_XFER] <= 7);
    assert_true(pr.started[ATSI_CLASS_GPU] >= 1); /* tried in turn, though nothing measures it */
    assert_true(s.counts.probes >= 2);
    /* the slowdown that was found is in the questions: transfers take three times as long */
    for (uint32_t i = 0; i < s.b.items->n; i++) {
        uint64_t profile = s.b.q->cost[1][s.b.items->n + i].transfer_ns;
        assert_true(s.b.q->now[1][s.b.items->n + i].transfer_ns == 3 * profile);
    }
    end(&s);
}

static void failing_probes(void **state)
{
    (void)state;
    for (int how = 1; how <= 2; how++) {
        struct prober pr = {.can = {true, true, true, true}, .fails = how};
        const struct atsi_probe hook = {&pr, probe_start, probe_take};
        struct stage s;
        uint32_t started = 0;
        prepare(&s);
        atomic_store(&led.wish, KEEP);
        s.p.background = false;
        s.p.probe = &hook;
        s.p.probe_rounds = 5;
        begin(&s);
        for (int k = 0; k < 40; k++)
            step(&s, ATSI_PHASE_DECODE);
        for (int k = 0; k < ATSI_N_CLASSES; k++)
            started += pr.started[k];
        assert_int_equal(started, 1); /* said once, and left alone; rounds go on */
        assert_non_null(strstr(s.said, "no longer measured: the device is gone"));
        assert_int_equal(s.counts.probes, 0);
        end(&s);
    }
}

/* Without a hook nothing is probed, and a class keeps what was measured last. */
static void no_probe(void **state)
{
    struct stage s;
    (void)state;
    prepare(&s);
    s.p.background = false;
    begin(&s);
    for (int k = 0; k < 100; k++) {
        atomic_store(&led.wish, k < 5 ? PROMOTE : KEEP);
        step(&s, ATSI_PHASE_DECODE);
    }
    assert_int_equal(s.counts.probes, 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adopted_at_the_next_round),
        cmocka_unit_test(rounds_do_not_wait),
        cmocka_unit_test(refused),
        cmocka_unit_test(late),
        cmocka_unit_test(phases),
        cmocka_unit_test(closed_early),
        cmocka_unit_test(many),
        cmocka_unit_test(probes),
        cmocka_unit_test(failing_probes),
        cmocka_unit_test(no_probe),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
