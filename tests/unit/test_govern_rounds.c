/* SPDX-License-Identifier: Apache-2.0
 *
 * What a governor brings, on the virtual clock: ten minutes of decoding on simulated devices, whose
 * clocks follow a script, with a plan that stays, with schedules that follow what rounds take, and
 * with a governor, which places weights anew besides.  It plans once for each change that lasts,
 * never swings, and is not slower than the plan that stays.  Prints the table of docs/power.md.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/govern_bench.h"

enum { ROUNDS = 16, MAX_KNOWN = 512 };

/* ---------------------------------------------------------------- rounds */
static int enter(void **state)
{
    (void)state;
    return gb_open(NULL);
}

static int leave(void **state)
{
    (void)state;
    gb_close();
    return 0;
}

/* Placed for one load, decoding under another. */
struct known {
    struct gb_load planned, real;
    bool follows;
    uint64_t ns; /* per token, once all has settled */
    int32_t device[GB_ITEMS];
};
static struct known all[MAX_KNOWN];
static uint32_t n_known;

static void decode(struct atsi_sim_session *s, struct known *k)
{
    struct atsi_exec *x = atsi_rounds_exec(s->rounds);
    struct atsi_round_result res;
    uint64_t start = 0, end = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        if (i == ROUNDS - 4)
            gb_need(atsi_exec_now(x, &start, &gb_err));
        gb_need(atsi_exec_host(x, atsi_model_source_gap(s->source[ATSI_PHASE_DECODE]), &gb_err));
        gb_need(
            atsi_rounds_step(s->rounds, ATSI_PHASE_DECODE, 1, gb_base.ctx, 1000, &res, &gb_err));
    }
    gb_need(atsi_exec_now(x, &end, &gb_err));
    k->ns = (end - start) / 4;
    memcpy(k->device, atsi_rounds_placement(s->rounds)->device,
           gb_sim.items->n * sizeof *k->device);
}

static void find_out(struct known *k)
{
    struct atsi_sim_session s = {.told = gb_question(k->planned), .truth = gb_question(k->real)};
    struct atsi_rounds_params p = gb_sim.policies;
    struct atsi_rounds_work work;
    p.dynamic = true;
    p.frozen = !k->follows;
    for (uint32_t f = 0; f < 2; f++) {
        struct atsi_conditions c = atsi_sim_conditions(&gb_sim, f, false);
        c.load_cpu = k->real.cpu;
        c.load_gpu = k->real.gpu;
        gb_need(atsi_model_source_open(s.truth, &gb_sim.machine, f, &c, &s.source[f], &gb_err));
        work.source[f] = atsi_model_source_get(s.source[f]);
        work.in_bytes[f] = atsi_model_source_in_bytes(s.source[f]);
    }
    gb_need(atsi_rounds_open(s.told, &gb_sim.d, &work, &p, &s.rounds, &gb_err));
    decode(&s, k);
    atsi_sim_close_session(&s);
}

/* Loads within 2 % are the same. */
static struct gb_load rounded(struct gb_load l)
{
    return (struct gb_load){round(l.cpu * 50) / 50, round(l.gpu * 50) / 50};
}

static const struct known *known(struct gb_load planned, struct gb_load real, bool follows)
{
    struct known k = {.planned = rounded(planned), .real = rounded(real), .follows = follows};
    for (uint32_t i = 0; i < n_known; i++)
        if (memcmp(&all[i].planned, &k.planned, sizeof k.planned) == 0 &&
            memcmp(&all[i].real, &k.real, sizeof k.real) == 0 && all[i].follows == follows)
            return &all[i];
    assert_true(n_known < MAX_KNOWN);
    find_out(&k);
    all[n_known] = k;
    return &all[n_known++];
}

/* ---------------------------------------------------------------- the script */
struct part {
    const char *name;
    uint32_t seconds;
    struct gb_load load;
    uint32_t swing; /* half a period, in seconds: this load and none in turn; 0: the load lasts */
    uint32_t plans; /* of a governor: at most that many, and without a swing just as many */
};

static const struct part script[] = {
    {"full clock", 60, {1, 1}, 0, 0},
    {"accelerator at a quarter", 120, {1, 4}, 0, 1},
    {"full clock again", 60, {1, 1}, 0, 1},
    {"accelerator at a quarter for 1 s of 5", 60, {1, 4}, 1, 0},
    {"others use half of the CPUs", 120, {2, 1}, 0, 1},
    {"full clock again", 60, {1, 1}, 0, 1},
    {"accelerator between a quarter and all every 20 s", 240, {1, 4}, 20, 6},
};
enum { N_PARTS = sizeof script / sizeof script[0], N_WAYS = 3 };

struct way {
    bool follows, governed;
    struct gb_load planned;
    struct atsi_govern g;
    struct atsi_govern_plan plan;
    uint64_t seed, now;
    double tokens[N_PARTS];
    uint32_t plans[N_PARTS];
};

static struct gb_load load_at(const struct part *p, uint32_t sample)
{
    static const struct gb_load none = {1, 1};
    uint32_t second = sample / 2;
    if (p->swing == 1)
        return second % 5 == 2 ? p->load : none;
    return p->swing == 0 || second / p->swing % 2 == 0 ? p->load : none;
}

/* Half a second. */
static void run_sample(struct way *w, uint32_t part, struct gb_load l)
{
    const struct known *k = known(w->planned, l, w->follows);
    struct atsi_sense s = gb_sense(&w->seed, l);
    struct atsi_govern_decision d;
    double seconds = (double)GB_PERIOD / 1e9;
    w->now += GB_PERIOD;
    w->tokens[part] += seconds * 1e9 / (double)k->ns;
    if (!w->governed)
        return;
    atsi_govern_step(&w->g, &w->plan, &s, true, w->now, &d);
    if (d.what == ATSI_GOVERN_NOTHING)
        return;
    assert_int_equal(d.what, ATSI_GOVERN_COSTS);
    w->plans[part]++;
    w->planned = (struct gb_load){d.load_cpu, d.load_gpu};
    w->tokens[part] -= gb_reload_seconds(k->device, known(w->planned, l, w->follows)->device) *
                       1e9 / (double)k->ns;
}

static void run_script(struct way *w)
{
    w->planned = (struct gb_load){1, 1};
    w->seed = 1;
    w->now = 100 * GB_SECOND;
    atsi_govern_begin(&w->g);
    for (uint32_t k = 0; k < N_PARTS; k++)
        for (uint32_t i = 0; i < 2 * script[k].seconds; i++)
            run_sample(w, k, load_at(&script[k], i));
}

static double tpot_ms(const struct way *w, uint32_t part)
{
    return 1e3 * script[part].seconds / w->tokens[part];
}

static void check(const struct way *stays, const struct way *governed)
{
    double tokens[2] = {0, 0};
    for (uint32_t k = 0; k < N_PARTS; k++) {
        const struct part *p = &script[k];
        double gain = tpot_ms(stays, k) / tpot_ms(governed, k);
        bool lasts = p->swing == 0 && (p->load.cpu > 1 || p->load.gpu > 1);
        if (governed->plans[k] > p->plans || (p->swing == 0 && governed->plans[k] != p->plans))
            fail_msg("%s: %u plans, expected %u", p->name, governed->plans[k], p->plans);
        if (gain < (lasts ? 1.05 : 0.99))
            fail_msg("%s: %.1f ms a token, %.1f ms with the plan that stays", p->name,
                     tpot_ms(governed, k), tpot_ms(stays, k));
        tokens[0] += stays->tokens[k];
        tokens[1] += governed->tokens[k];
    }
    assert_true(tokens[1] > 1.04 * tokens[0]);
}

static void test_script(void **state)
{
    struct way way[N_WAYS] = {
        {.follows = false}, {.follows = true}, {.follows = true, .governed = true}};
    (void)state;
    for (int k = 0; k < N_WAYS; k++)
        run_script(&way[k]);
    print_message("| | s | plan stays | schedules follow | governed | plans |\n"
                  "|---|---:|---:|---:|---:|---:|\n");
    for (uint32_t k = 0; k < N_PARTS; k++)
        print_message("| %s | %u | %.1f ms | %.1f ms | %.1f ms | %u |\n", script[k].name,
                      script[k].seconds, tpot_ms(&way[0], k), tpot_ms(&way[1], k),
                      tpot_ms(&way[2], k), way[2].plans[k]);
    check(&way[0], &way[2]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_script),
    };
    return cmocka_run_group_tests_name("govern_rounds", tests, enter, leave);
}
