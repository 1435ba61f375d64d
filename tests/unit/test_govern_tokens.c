/* SPDX-License-Identifier: Apache-2.0
 *
 * A governed session token by token, on the virtual clock, the ways from one plan to the next
 * included: the simulated devices follow a load script that comes and goes, and flickers faster and
 * slower than the governor looks.  Plans and schedules are counted, and tokens timed, against a
 * plan that stays.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/govern_bench.h"
#include "tests/unit/scratch.h"

#define MS UINT64_C(1000000)

/* In turn for `half_ms` this load and none; 0: it lasts. */
struct spell {
    const char *name;
    uint32_t seconds;
    struct gb_load load;
    uint32_t half_ms;
    uint32_t least, most; /* plans of a governor */
    uint32_t changes;     /* of schedules, at most */
    double worst;         /* time of a token against the plan that stays, at most */
};

/* What flickers costs those who follow it up to 8 %: they are late, and a schedule that hides
 * transfers behind a slow device waits for them beside a fast one. */
static const struct spell spells[] = {
    {"full clock", 10, {1, 1}, 0, 0, 0, 1, 1.001},
    {"accelerator at a quarter", 60, {1, 4}, 0, 1, 1, 4, 0.95},
    {"full clock again", 60, {1, 1}, 0, 1, 1, 4, 1.02},
    {"others use half of the CPUs", 60, {2, 1}, 0, 1, 1, 4, 0.95},
    {"full clock again", 60, {1, 1}, 0, 1, 1, 4, 1.02},
    {"accelerator, another at each look", 40, {1, 4}, 500, 0, 0, 12, 1.09},
    {"accelerator, back between two looks", 40, {1, 4}, 250, 0, 1, 16, 1.09},
    {"both, another at every other look", 40, {2, 4}, 1000, 0, 0, 8, 1.06},
    {"accelerator, long enough for a plan", 80, {1, 4}, 2500, 1, 4, 20, 1.08},
    {"full clock at last", 160, {1, 1}, 0, 0, 1, 4, 1.01}, /* whichever load the last plan was for
                                                            */
};
enum { N_SPELLS = sizeof spells / sizeof spells[0] };

static struct gb_load load_of(const struct spell *p, uint64_t ns)
{
    static const struct gb_load none = {1, 1};
    return p->half_ms == 0 || ns / (p->half_ms * MS) % 2 == 0 ? p->load : none;
}

/* A session of rounds that is told what a governor says, and learns the rest. */
struct clocked {
    bool governed;
    struct atsi_govern g;
    struct atsi_govern_plan plan;
    struct atsi_sim_session s;
    uint64_t seed, now, looked; /* on the devices' clock */
    uint64_t rounds;
    int32_t device[GB_ITEMS]; /* of the schedule in force */
    double ms[N_SPELLS];      /* a token */
    uint32_t plans[N_SPELLS], changes[N_SPELLS];
};

static void open_rounds(struct clocked *c, struct gb_load told)
{
    struct atsi_rounds_params p = gb_sim.policies;
    struct atsi_rounds_work work;
    p.dynamic = p.lazy = p.background = true;
    p.frozen = !c->governed;
    for (uint32_t f = 0; f < 2; f++) {
        work.source[f] = atsi_model_source_get(c->s.source[f]);
        work.in_bytes[f] = atsi_model_source_in_bytes(c->s.source[f]);
    }
    c->s.told = gb_question(told);
    gb_need(atsi_rounds_open(c->s.told, &gb_sim.d, &work, &p, &c->s.rounds, &gb_err));
}

static void open_clocked(struct clocked *c)
{
    static const struct gb_load none = {1, 1};
    gb_need(atsi_sim_open_devices(&gb_sim));
    c->s.truth = gb_question(none);
    for (uint32_t f = 0; f < 2; f++) {
        struct atsi_conditions to = atsi_sim_conditions(&gb_sim, f, false);
        gb_need(
            atsi_model_source_open(c->s.truth, &gb_sim.machine, f, &to, &c->s.source[f], &gb_err));
    }
    open_rounds(c, none);
    atsi_govern_begin(&c->g);
    c->seed = 1;
}

static void close_clocked(struct clocked *c)
{
    atsi_sim_close_session(&c->s);
    atsi_sim_close_devices(&gb_sim);
    memset(&gb_sim.d, 0, sizeof gb_sim.d);
}

static void spend(struct clocked *c, double seconds)
{
    struct atsi_modelled time = {.struct_size = sizeof time,
                                 .contended_run = 1000,
                                 .contended_copy = 1000,
                                 .run_ns = (uint64_t)(seconds * 1e9)};
    const struct atsi_op op = {.struct_size = sizeof op, .n_rows = 1, .modelled = &time};
    gb_need(atsi_exec_host(atsi_rounds_exec(c->s.rounds), &op, &gb_err));
}

/* As sessions do: settle, ask anew, load what is missing. */
static void plan_again(struct clocked *c, struct gb_load told)
{
    int32_t before[GB_ITEMS];
    size_t bytes = gb_sim.items->n * sizeof *before;
    memcpy(before, atsi_rounds_placement(c->s.rounds)->device, bytes);
    atsi_rounds_settle(c->s.rounds);
    gb_need(atsi_exec_settle(atsi_rounds_exec(c->s.rounds), &gb_err));
    atsi_rounds_close(c->s.rounds);
    atsi_question_free(c->s.told);
    c->s.rounds = NULL;
    c->s.told = NULL;
    open_rounds(c, told);
    c->rounds = 0;
    spend(c, gb_reload_seconds(before, atsi_rounds_placement(c->s.rounds)->device));
}

static void look(struct clocked *c, uint32_t k, uint64_t at, uint64_t began)
{
    struct atsi_sense s = gb_sense(&c->seed, load_of(&spells[k], at - began));
    struct atsi_govern_decision d;
    atsi_govern_step(&c->g, &c->plan, &s, true, at, &d);
    if (d.what == ATSI_GOVERN_NOTHING)
        return;
    assert_int_equal(d.what, ATSI_GOVERN_COSTS);
    c->plans[k]++;
    plan_again(c, (struct gb_load){d.load_cpu, d.load_gpu});
}

/* A token; operations are measured in the first rounds and in every 16th, as in sessions. */
static void token(struct clocked *c, uint32_t k)
{
    struct atsi_exec *x = atsi_rounds_exec(c->s.rounds);
    size_t bytes = gb_sim.items->n * sizeof *c->device;
    struct atsi_round_result res;
    const int32_t *device;
    atsi_exec_measure(x, c->rounds < 8 || c->rounds % 16 == 0,
                      c->rounds + 1 < 8 || (c->rounds + 1) % 16 == 0);
    gb_need(atsi_exec_host(x, atsi_model_source_gap(c->s.source[ATSI_PHASE_DECODE]), &gb_err));
    gb_need(atsi_rounds_step(c->s.rounds, ATSI_PHASE_DECODE, 1, gb_base.ctx, 1000, &res, &gb_err));
    atsi_rounds_settle(c->s.rounds); /* the next round finds the answer, however busy we are */
    c->rounds++;
    device = atsi_rounds_schedule(c->s.rounds, ATSI_PHASE_DECODE)->device;
    c->changes[k] += memcmp(c->device, device, bytes) != 0;
    memcpy(c->device, device, bytes);
    gb_need(atsi_exec_now(x, &c->now, &gb_err));
}

static void run_spells(struct clocked *c)
{
    uint64_t end = 0;
    open_clocked(c);
    for (uint32_t k = 0; k < N_SPELLS; k++) {
        uint64_t began = end, start = c->now, n = 0;
        end += spells[k].seconds * GB_SECOND;
        for (; c->now < end; n++) {
            token(c, k);
            for (; c->governed && c->looked + GB_PERIOD <= c->now && c->looked + GB_PERIOD < end;)
                look(c, k, c->looked += GB_PERIOD, began);
        }
        c->ms[k] = (double)(c->now - start) / 1e6 / (double)n;
    }
    close_clocked(c);
}

/* The devices' own script of the same. */
static const char *write_loads(void)
{
    static char text[1 << 16];
    uint64_t began = 0;
    size_t at = 0;
    for (uint32_t k = 0; k < N_SPELLS; k++) {
        uint64_t length = spells[k].seconds * GB_SECOND, step = spells[k].half_ms * MS;
        for (uint64_t t = 0; t < length && at<sizeof text; t += step> 0 ? step : length) {
            struct gb_load l = load_of(&spells[k], t);
            at += (size_t)snprintf(text + at, sizeof text - at, "%llu %g %g 1\n",
                                   (unsigned long long)(began + t), l.cpu, l.gpu);
        }
        began += length;
    }
    assert_true(at < sizeof text);
    scratch_write("load", text);
    return scratch_path("load");
}

/* One plan for each change that lasts, few for what does not; schedules do not swing either; and
 * what lasts is answered better than by the plan that stays. */
static void check_spells(const struct clocked *stays, const struct clocked *governed)
{
    for (uint32_t k = 0; k < N_SPELLS; k++) {
        const struct spell *p = &spells[k];
        uint32_t plans = governed->plans[k], changes = governed->changes[k];
        if (plans < p->least || plans > p->most)
            fail_msg("%s: %u plans, expected %u to %u", p->name, plans, p->least, p->most);
        if (changes > p->changes)
            fail_msg("%s: %u schedules, at most %u are expected", p->name, changes, p->changes);
        assert_true(stays->plans[k] == 0 && stays->changes[k] <= (k == 0)); /* it stays */
        if (governed->ms[k] > p->worst * stays->ms[k])
            fail_msg("%s: %.1f ms a token, %.1f ms with the plan that stays", p->name,
                     governed->ms[k], stays->ms[k]);
    }
}

static void test_tokens(void **state)
{
    static struct clocked way[2];
    char setting[4200];
    (void)state;
    (void)snprintf(setting, sizeof setting, "plugin.sim.load=%s", write_loads());
    assert_int_equal(gb_open(setting), 0);
    atsi_sim_close_devices(&gb_sim); /* their clock begins with each way */
    memset(&gb_sim.d, 0, sizeof gb_sim.d);
    for (int k = 0; k < 2; k++) {
        way[k] = (struct clocked){.governed = k == 1};
        run_spells(&way[k]);
    }
    print_message("| | s | plan stays | governed | plans | schedules |\n"
                  "|---|---:|---:|---:|---:|---:|\n");
    for (uint32_t k = 0; k < N_SPELLS; k++)
        print_message("| %s | %u | %.1f ms | %.1f ms | %u | %u |\n", spells[k].name,
                      spells[k].seconds, way[0].ms[k], way[1].ms[k], way[1].plans[k],
                      way[1].changes[k]);
    gb_close();
    check_spells(&way[0], &way[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests_name("govern_tokens", tests, scratch_enter, scratch_leave);
}
