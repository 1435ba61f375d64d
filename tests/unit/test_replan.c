/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans follow the machine: on the virtual clock a device slows down for a while, as a script says.
 * The plan changes, stays what it became, and comes back to what it was.  Answers are worked out
 * beside the rounds as in a session; each round finds the one of the round before.  Prompts of
 * other sizes are planned with prices of their own, before they run. */
#include "core/round/rounds.h"
#include "tests/unit/policy_case.h"
#include "tests/unit/scratch.h"
#include "tests/unit/sim_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Rounds of each part, of which the plan may change in the first ones. */
enum { PART = 120, MAY_CHANGE = 40, PROBE_ROUNDS = 8 };

#define VRAM ((uint64_t)110 << 20) /* half of the model lives on the host */

/* ---------------------------------------------------------------- probes on the virtual clock */
struct prober {
    struct sim_bench *b;
    struct atsi_event *event;
    uint64_t took_ns;
    uint32_t started[ATSI_N_CLASSES];
};

#define PROBE_NS 100000U

static int probe_start(void *ctx, uint32_t cls, struct atsi_err *err)
{
    struct prober *p = ctx;
    const struct atsi_exec_devices *d = &p->b->d;
    static const struct atsi_modelled takes = {.struct_size = sizeof takes,
                                               .contended_run = 1000,
                                               .contended_copy = 1000,
                                               .run_ns = PROBE_NS};
    struct atsi_copyv copy = {
        .struct_size = sizeof copy, .signal = p->event, .modelled = &takes, .copy_ns = &p->took_ns};
    p->started[cls]++;
    if (cls != ATSI_CLASS_XFER)
        return 1;
    return d->tx_ops->copyv(d->tx, d->copy_engine, NULL, &copy, err);
}

static int probe_take(void *ctx, uint64_t *seen_ns, uint64_t *profile_ns, struct atsi_err *err)
{
    struct prober *p = ctx;
    (void)err;
    if (p->b->d.ops[1]->event_query(p->event) != 1)
        return 0;
    *seen_ns = p->took_ns;
    *profile_ns = PROBE_NS;
    return 1;
}

/* ---------------------------------------------------------------- rounds */
struct stage {
    struct sim_bench b;
    bool no_price;     /* pricing fails */
    uint32_t n_prices; /* asked for */
    char said[256];
    struct prober prober;
    struct atsi_probe hook;
    struct atsi_rounds *rounds;
    uint64_t now;
    uint32_t n_rounds, changes, last_change; /* of the part; its round */
    int32_t *device;                         /* of the plan in force */
};

/* As sessions do it: the question once more, for rounds of so many tokens. */
static int price(void *ctx, struct atsi_question *q, uint32_t phase, uint32_t tokens,
                 struct atsi_err *err)
{
    struct stage *s = ctx;
    const struct atsi_conditions c = {.tokens = tokens,
                                      .ctx_max = 512,
                                      .contention = true,
                                      .load_cpu = 1,
                                      .load_gpu = 1,
                                      .load_pcie = 1};
    const struct atsi_question_params p = {.phase = {c, c},
                                           .temp_bytes = 40U << 20,
                                           .vram_bytes = VRAM,
                                           .max_slots = 3,
                                           .mix_prompt = 64,
                                           .mix_generated = 16,
                                           .n_vocab = 32000};
    struct atsi_question *now = NULL;
    s->n_prices++;
    if (s->no_price)
        return atsi_fail(err, ATSI_ENOMEM, "no price today");
    assert_int_equal(phase, ATSI_PHASE_PREFILL);
    assert_int_equal(atsi_question_model(s->b.items, &s->b.machine, &p, &now, err), ATSI_OK);
    memcpy(q->cost[phase], now->cost[phase],
           ATSI_N_DEVICES * s->b.items->n * sizeof *q->cost[phase]);
    atsi_question_free(now);
    return ATSI_OK;
}

static void hear(void *ctx, const char *text)
{
    struct stage *s = ctx;
    (void)snprintf(s->said, sizeof s->said, "%s", text);
}

static bool sizes_count; /* of the stage that is opened next */

static void open_stage(struct stage *s, const struct atsi_policy_ops *ops, bool probes,
                       const char *load)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_rounds_work work;
    struct atsi_rounds_params p = {.place = {"policy_dp", ops},
                                   .schedule = {"policy_dp", ops},
                                   .dynamic = true,
                                   .lazy = true,
                                   .background = true,
                                   .probe_rounds = PROBE_ROUNDS};
    memset(s, 0, sizeof *s);
    p.price = sizes_count ? price : NULL;
    p.price_ctx = s;
    p.say = hear;
    p.say_ctx = s;
    sim_bench_load = load;
    sim_bench_vram = VRAM;
    sim_bench_open(&s->b, sim_bench_dense, true);
    for (int f = 0; f < 2; f++) {
        work.source[f] = atsi_model_source_get(s->b.source[f]);
        work.in_bytes[f] = atsi_model_source_in_bytes(s->b.source[f]);
    }
    s->prober.b = &s->b;
    s->hook = (struct atsi_probe){&s->prober, probe_start, probe_take};
    p.probe = probes ? &s->hook : NULL;
    assert_int_equal(s->b.d.ops[1]->event_open(s->b.d.be[1], &s->prober.event, &err), ATSI_OK);
    if (atsi_rounds_open(s->b.q, &s->b.d, &work, &p, &s->rounds, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    s->device = calloc(s->b.items->n, sizeof *s->device);
    assert_non_null(s->device);
}

static void close_stage(struct stage *s)
{
    atsi_rounds_close(s->rounds);
    s->b.d.ops[1]->event_close(s->prober.event);
    sim_bench_close(&s->b);
    free(s->device);
    sim_bench_load = "";
    sim_bench_vram = SIM_BENCH_VRAM;
}

static void step(struct stage *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_round_result res;
    const struct atsi_schedule *in_force;
    size_t bytes = s->b.items->n * sizeof *s->device;
    if (atsi_rounds_step(s->rounds, ATSI_PHASE_DECODE, 1, 128, 1000, &res, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    atsi_rounds_settle(s->rounds);
    s->n_rounds++;
    in_force = atsi_rounds_schedule(s->rounds, ATSI_PHASE_DECODE);
    if (memcmp(s->device, in_force->device, bytes) != 0) {
        s->changes++;
        s->last_change = s->n_rounds;
        memcpy(s->device, in_force->device, bytes);
    }
    assert_int_equal(atsi_exec_now(atsi_rounds_exec(s->rounds), &s->now, &err), ATSI_OK);
}

/* Rounds until the clock is there; 0: PART of them. */
static void part(struct stage *s, uint64_t until)
{
    s->n_rounds = s->changes = s->last_change = 0;
    while (until > 0 ? s->now < until : s->n_rounds < PART)
        step(s);
}

static uint64_t bytes_moved(const struct stage *s)
{
    const struct atsi_schedule *in_force = atsi_rounds_schedule(s->rounds, ATSI_PHASE_DECODE);
    uint64_t sum = 0;
    for (uint32_t k = 0; k < in_force->n_transfers; k++)
        sum += s->b.items->items[in_force->order[k]].resident_bytes;
    return sum;
}

/* How long PART undisturbed rounds take. */
static uint64_t time_of_part(const struct atsi_policy_ops *ops)
{
    struct stage s;
    uint64_t ns;
    open_stage(&s, ops, false, "");
    part(&s, 0);
    ns = s.now;
    close_stage(&s);
    return ns;
}

struct factors {
    double cpu, gpu, pcie;
};

static const char *write_script(uint64_t from, uint64_t to, struct factors f)
{
    char text[256];
    (void)snprintf(text, sizeof text, "0 1 1 1\n%llu %g %g %g\n%llu 1 1 1\n",
                   (unsigned long long)from, f.cpu, f.gpu, f.pcie, (unsigned long long)to);
    scratch_write("load", text);
    return scratch_path("load");
}

static void check_calm(const struct stage *s, const char *what, const char *part_name,
                       uint32_t most)
{
    if (s->changes > most || s->last_change > MAY_CHANGE)
        fail_msg("%s, %s: the plan changed %u times in %u rounds, last in round %u", what,
                 part_name, s->changes, s->n_rounds, s->last_change);
}

/* Of a plan that stays. */
static uint64_t time_of_round(struct stage *s)
{
    uint64_t start = s->now;
    for (int k = 0; k < 20; k++)
        step(s);
    return (s->now - start) / 20;
}

/* more: the slowdown makes moving weights pay more than before; else less. */
static void follow(const char *algorithm, struct factors f, bool more, const char *what)
{
    const char *settings[] = {algorithm, NULL};
    const struct atsi_policy_ops *ops = policy_load("policy_dp", settings);
    uint64_t length = time_of_part(ops), moved[3], took[3];
    struct stage s;
    open_stage(&s, ops, true, write_script(3 * length, 15 * length, f));
    part(&s, 0);
    check_calm(&s, what, "undisturbed", 2);
    took[0] = time_of_round(&s);
    moved[0] = bytes_moved(&s);
    part(&s, 3 * length);
    assert_int_equal(s.changes, 0);
    part(&s, 15 * length);
    check_calm(&s, what, "slowed down", 4);
    moved[1] = bytes_moved(&s);
    if (s.changes == 0 || (more ? moved[1] <= moved[0] : moved[1] >= moved[0]))
        fail_msg("%s: %llu bytes moved a round before, %llu while it was slow", what,
                 (unsigned long long)moved[0], (unsigned long long)moved[1]);
    part(&s, 0);
    check_calm(&s, what, "afterwards", 4);
    took[2] = time_of_round(&s);
    moved[2] = bytes_moved(&s);
    /* As good as before: a policy does not change plans for a per cent. */
    if (s.changes == 0 || took[2] > took[0] + took[0] / 50)
        fail_msg("%s: rounds of %llu ns before, %llu afterwards; %llu bytes moved, %llu", what,
                 (unsigned long long)took[0], (unsigned long long)took[2],
                 (unsigned long long)moved[0], (unsigned long long)moved[2]);
    close_stage(&s);
}

static void backlog_follows(void **state)
{
    (void)state;
    follow("algorithm=backlog", (struct factors){4, 1, 1}, true, "backlog, busy CPU");
    follow("algorithm=backlog", (struct factors){1, 1, 20}, false, "backlog, busy link");
}

static void paper_follows(void **state)
{
    (void)state;
    follow("algorithm=paper", (struct factors){1, 1, 20}, false, "paper, busy link");
}

/* Load that comes and goes faster than the recorder's median looks: not one plan is changed. */
static void outliers_change_nothing(void **state)
{
    const char *settings[] = {"algorithm=backlog", NULL};
    const struct atsi_policy_ops *ops = policy_load("policy_dp", settings);
    uint64_t round = time_of_part(ops) / PART;
    char text[8192];
    size_t at = 0;
    struct stage s;
    (void)state;
    for (uint64_t k = 60; k < 200; k += 10) /* one round in ten */
        at += (size_t)snprintf(text + at, sizeof text - at, "%llu 5 1 5\n%llu 1 1 1\n",
                               (unsigned long long)(k * round),
                               (unsigned long long)((k + 1) * round));
    scratch_write("load", text);
    open_stage(&s, ops, true, scratch_path("load"));
    part(&s, 50 * round);
    assert_true(s.last_change < 50);
    part(&s, 220 * round);
    assert_int_equal(s.changes, 0);
    close_stage(&s);
}

/* A policy that moves one weight while that takes no longer than twice the CPU's time for it. */
static int thrifty_place(const struct atsi_problem *in, struct atsi_placement *out,
                         struct atsi_err *err)
{
    (void)err;
    for (uint32_t i = 0; i < in->n_items; i++)
        out->device[i] = in->items[i]->pinned > 0 ? 1 : 0;
    return ATSI_OK;
}

static int thrifty_schedule(const struct atsi_round *in, struct atsi_schedule *out,
                            struct atsi_err *err)
{
    const struct atsi_problem *p = in->problem;
    const struct atsi_item_cost *cpu = in->phase == ATSI_PHASE_DECODE ? p->decode : p->prefill;
    (void)err;
    out->n_transfers = 0;
    for (uint32_t i = 0; i < p->n_items; i++) {
        const struct atsi_item_cost *accel = &cpu[p->n_items + i];
        out->device[i] = in->placed[i];
        out->after[i] = out->slot[i] = -1;
        if (out->n_transfers > 0 || in->placed[i] != 0 || accel->transfer_ns == 0 ||
            accel->transfer_ns > 2 * cpu[i].run_ns)
            continue;
        out->device[i] = 1;
        out->slot[i] = 0;
        out->order[out->n_transfers++] = i;
    }
    return ATSI_OK;
}

static const struct atsi_policy_ops thrifty = {
    .struct_size = sizeof thrifty, .place = thrifty_place, .schedule = thrifty_schedule};

/* Transfers that nobody makes any more are measured by probes, every PROBE_ROUNDS; without them a
 * slow link is slow for ever. */
static void probes_find_that_it_is_over(void **state)
{
    uint64_t length = time_of_part(&thrifty);
    (void)state;
    for (int probes = 0; probes < 2; probes++) {
        struct atsi_rounds_counts n;
        struct stage s;
        open_stage(&s, &thrifty, probes != 0,
                   write_script(length, 6 * length, (struct factors){1, 1, 20}));
        part(&s, length);
        assert_true(bytes_moved(&s) > 0);
        assert_int_equal(s.prober.started[ATSI_CLASS_XFER], 0); /* rounds measure it */
        part(&s, 6 * length);
        assert_int_equal(s.changes, 1);
        assert_int_equal(bytes_moved(&s), 0);
        part(&s, 0);
        assert_int_equal(s.changes, probes);
        assert_int_equal(bytes_moved(&s) > 0, probes);
        assert_true(s.last_change <= 2 * PROBE_ROUNDS);
        atsi_rounds_counts(s.rounds, &n);
        assert_int_equal(n.probes, s.prober.started[ATSI_CLASS_XFER]);
        assert_true(probes ? n.probes > 1 : n.probes == 0);
        assert_true(n.probes <= n.rounds / PROBE_ROUNDS);
        assert_int_equal(s.prober.started[ATSI_CLASS_CPU], 0);
        close_stage(&s);
    }
}

/* ---------------------------------------------------------------- other sizes of prompts */
/* Weights that a prefill round of so many tokens moved. */
static uint32_t prefill(struct stage *s, uint32_t tokens)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_round_result res;
    if (atsi_rounds_step(s->rounds, ATSI_PHASE_PREFILL, tokens, 0, 10, &res, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return res.n_moves;
}

/* Whole rounds stream weights, which a handful of tokens does not pay for: the round itself is
 * planned so, not the one after it, and what comes next has the old plan again. */
static void sizes_have_their_prices(void **state)
{
    const char *settings[] = {"algorithm=backlog", NULL};
    const struct atsi_policy_ops *ops = policy_load("policy_dp", settings);
    uint32_t whole, few, some;
    struct stage s;
    (void)state;
    sizes_count = true;
    open_stage(&s, ops, false, "");
    sizes_count = false;
    whole = prefill(&s, 64);
    assert_int_equal(prefill(&s, 64), whole);
    assert_int_equal(s.n_prices, 1); /* the same size: the same prices */
    few = prefill(&s, 2);
    some = prefill(&s, 16);
    if (!(2 * few < whole && few < some && some <= whole))
        fail_msg("2, 16 and 64 tokens: %u, %u and %u weights moved", few, some, whole);
    assert_int_equal(prefill(&s, 64), whole);
    step(&s); /* decode rounds need no price, and take none away */
    assert_int_equal(prefill(&s, 64), whole);
    assert_int_equal(s.n_prices, 4);
    close_stage(&s);
}

/* What cannot be priced is planned as before, and said. */
static void no_price_no_change(void **state)
{
    const char *settings[] = {"algorithm=backlog", NULL};
    const struct atsi_policy_ops *ops = policy_load("policy_dp", settings);
    uint32_t whole;
    struct stage s;
    (void)state;
    sizes_count = true;
    open_stage(&s, ops, false, "");
    sizes_count = false;
    whole = prefill(&s, 64);
    s.no_price = true;
    assert_int_equal(prefill(&s, 1), whole);
    assert_string_equal(s.said, "prompts of 1 tokens are planned as whole rounds: no price today");
    close_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sizes_have_their_prices, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(no_price_no_change, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(backlog_follows, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(paper_follows, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(outliers_change_nothing, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(probes_find_that_it_is_over, scratch_enter, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
