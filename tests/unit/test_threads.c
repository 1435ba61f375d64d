/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers by measured costs: the knee of curves as machines have them, that sessions take the
 * numbers of a kept table, and that numbers which the user gives win.
 */
#include "atsinfer/profile.h"
#include "core/round/costs.h"
#include "core/session.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL ATSI_SOURCE_DIR "/demo/demo-dense-q8_0.gguf"

/* ---------------------------------------------------------------- curves */
enum { N_POINTS = 8 };
static const uint32_t counts[N_POINTS] = {1, 2, 3, 4, 6, 8, 12, 16};

/* Times of the counts, each with a spread of so many per cent around it. */
static uint32_t knee(const uint64_t ns[N_POINTS], uint32_t spread, uint32_t samples)
{
    struct atsi_cost_threads p[N_POINTS];
    for (int i = 0; i < N_POINTS; i++)
        p[i] = (struct atsi_cost_threads){.threads = counts[i],
                                          .n = samples,
                                          .ns = ns[i],
                                          .low_ns = ns[i] - ns[i] * spread / 200,
                                          .high_ns = ns[i] + ns[i] * spread / 200};
    return atsi_threads_knee(p, N_POINTS);
}

static void a_machine_that_scales_uses_all(void **state)
{
    static const uint64_t perfect[N_POINTS] = {480000, 240000, 160000, 120000,
                                               80000,  60000,  40000,  30000};
    static const uint64_t little[N_POINTS] = {200000, 150000, 130000, 120000,
                                              112000, 106000, 102000, 96000}; /* still 6 % */
    (void)state;
    for (uint32_t spread = 0; spread < 100; spread++)
        assert_int_equal(knee(perfect, spread, 5), 16);
    assert_int_equal(knee(little, 1, 5), 16);
}

static void memory_that_four_fill_takes_four(void **state)
{
    static const uint64_t full[N_POINTS] = {400000, 205000, 140000, 101000,
                                            100500, 100000, 100200, 100100};
    (void)state;
    assert_int_equal(knee(full, 0, 5), 4);
    assert_int_equal(knee(full, 3, 5), 4);
    assert_int_equal(knee(full, 3, 2), 16);  /* too few samples to say anything */
    assert_int_equal(knee(full, 30, 5), 16); /* noise: in doubt all */
}

/* Whatever noise of 15 per cent does to the medians of a machine that scales well: never fewer than
 * what is as fast as that noise. */
static void noise_takes_no_worker_away(void **state)
{
    uint32_t random = 1;
    (void)state;
    for (int run = 0; run < 2000; run++) {
        uint64_t ns[N_POINTS];
        for (int i = 0; i < N_POINTS; i++) {
            random = random * 1664525U + 1013904223U;
            ns[i] = UINT64_C(480000) / counts[i] * (85 + (random >> 16) % 31) / 100;
        }
        assert_in_range(knee(ns, 1, 5), 12, 16);
        assert_int_equal(knee(ns, 30, 5), 16); /* as such samples spread */
    }
}

static void a_lucky_point_is_no_knee(void **state)
{
    static const uint64_t lucky[N_POINTS] = {400000, 200000, 135000, 50500,
                                             80000,  70000,  60000,  50000};
    static const uint64_t dip[N_POINTS] = {400000, 200000, 135000, 100000,
                                           150000, 70000,  60000,  50000};
    (void)state;
    assert_int_equal(knee(lucky, 1, 5), 16);
    assert_int_equal(knee(dip, 1, 5), 16);
}

/* Cores of which the last ones only disturb. */
static void more_may_be_slower(void **state)
{
    static const uint64_t worse[N_POINTS] = {400000, 200000, 135000, 100000,
                                             70000,  50000,  60000,  80000};
    (void)state;
    assert_int_equal(knee(worse, 2, 5), 8);
    assert_int_equal(knee(worse, 40, 5), 16);
}

static void ends(void **state)
{
    const struct atsi_cost_threads one = {.threads = 1, .n = 5, .ns = 7, .low_ns = 7, .high_ns = 7};
    const struct atsi_cost_threads absurd[2] = {
        {.threads = 1, .n = 5, .ns = 1, .low_ns = 1, .high_ns = UINT64_MAX},
        {.threads = 2, .n = 5, .ns = UINT64_MAX, .low_ns = 1, .high_ns = UINT64_MAX}};
    (void)state;
    assert_int_equal(atsi_threads_knee(&one, 1), 1);
    assert_int_equal(atsi_threads_knee(&one, 0), 0);
    assert_int_equal(atsi_threads_knee(absurd, 2), 2);
}

/* ---------------------------------------------------------------- sessions */
struct opened {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
    struct atsi_session_info info;
    char log[4096];
};

static void take_log(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    struct opened *o = ctx;
    size_t at = strlen(o->log);
    (void)level;
    (void)snprintf(o->log + at, sizeof o->log - at, "%s: %s\n", who, msg);
}

/* Eight cores, whatever this machine has. */
static void open_runtime(struct opened *o, const char *threads, const char *batch)
{
    const char *const overrides[] = {"backend.cpu=cpu_ref",
                                     "backend.accel=none",
                                     "cpu.topology=core:8 pu:1",
                                     "load.pack=off",
                                     threads,
                                     batch,
                                     NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p,
                                    .overrides = overrides,
                                    .log = take_log,
                                    .log_ctx = o,
                                    .log_level = ATSI_LOG_INFO};
    struct atsi_err err = ATSI_ERR_INIT;
    memset(o, 0, sizeof *o);
    if (atsi_runtime_open(&p, &o->rt, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static void open_session(struct opened *o)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    p.n_ctx = 32;
    if (atsi_model_open(o->rt, MODEL, NULL, &o->m, &err) != ATSI_OK ||
        atsi_session_open(o->m, &p, &o->s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    o->info.struct_size = sizeof o->info;
    atsi_session_info(o->s, &o->info);
}

static void close_all(struct opened *o)
{
    atsi_session_close(o->s);
    atsi_model_close(o->m);
    atsi_runtime_close(o->rt);
}

static void expect_threads(const char *threads, const char *batch, uint32_t decode,
                           uint32_t prefill)
{
    struct opened o;
    open_runtime(&o, threads, batch);
    open_session(&o);
    assert_int_equal(o.info.threads_decode, decode);
    assert_int_equal(o.info.threads_prefill, prefill);
    close_all(&o);
}

/* Measures a table; its file, with other curves of workers: 2 are enough in decode, 4 in prefill.
 */
static void make_table(void)
{
    struct atsi_profile_params p = {.struct_size = sizeof p,
                                    .mode = ATSI_PROFILE_FORCE,
                                    .model = MODEL,
                                    .chunk = 4,
                                    .ctx = 32,
                                    .budget_ns = 1,
                                    .room_bytes = 1U << 20};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_profile *made = NULL;
    struct atsi_cost_threads t;
    const char *phase;
    struct atsi_costs *c;
    struct opened o;
    uint32_t n = 0;
    open_runtime(&o, "cpu.threads=0", NULL);
    if (atsi_profile_open(o.rt, &p, &made, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    for (uint32_t last = 0; atsi_profile_threads(made, n, &phase, &t); n++) {
        assert_string_equal(phase, n < 6 ? "decode" : "prefill");
        assert_true(n == 6 ? t.threads == 1 : t.threads > last);
        assert_true(t.low_ns > 0 && t.low_ns <= t.ns && t.ns <= t.high_ns && t.n > 0);
        last = t.threads;
    }
    assert_int_equal(n, 12); /* 1, 2, 3, 4, 6, 8 of each */
    assert_in_range(atsi_profile_summary(made)->threads_decode, 1, 8);
    assert_in_range(atsi_profile_summary(made)->threads_prefill, 1, 8);
    assert_int_equal(atsi_costs_read(atsi_profile_summary(made)->path, &c, &err), ATSI_OK);
    for (uint32_t f = 0; f < 2; f++)
        for (uint32_t i = 0; i < c->n_threads[f]; i++) {
            uint32_t enough = f == 0 ? 2 : 4, at = c->threads[f][i].threads;
            uint64_t ns = 120000 / (at < enough ? at : enough);
            c->threads[f][i] = (struct atsi_cost_threads){at, 5, ns, ns - 100, ns + 100};
        }
    assert_int_equal(atsi_costs_write(c, atsi_profile_summary(made)->path, &err), ATSI_OK);
    atsi_costs_free(c);
    atsi_profile_close(made);
    atsi_runtime_close(o.rt);
}

static uint32_t times_said(const char *log, const char *words)
{
    uint32_t n = 0;
    while ((log = strstr(log, words)) != NULL) {
        log += strlen(words);
        n++;
    }
    return n;
}

static void sessions_take_a_tables_numbers(void **state)
{
    static const int32_t ids[] = {1, 40, 77, 12};
    struct atsi_eval req = {.struct_size = sizeof req, .ids = ids, .n = 4};
    struct atsi_err err = ATSI_ERR_INIT;
    struct opened o;
    (void)state;
    expect_threads("cpu.threads=0", NULL, 8, 8); /* nothing was measured */
    make_table();
    open_runtime(&o, "cpu.threads=0", NULL);
    open_session(&o);
    assert_int_equal(o.info.threads_decode, 2);
    assert_int_equal(o.info.threads_prefill, 4);
    assert_int_equal(times_said(o.log, "threads: 2 of 8 in decode, 4 of 8 in prefill"), 1);
    assert_int_equal(atsi_session_eval(o.s, &req, &err), ATSI_OK);
    assert_int_equal(atsi_pool_active(o.rt->pool), 4);
    req.n = 1;
    assert_int_equal(atsi_session_eval(o.s, &req, &err), ATSI_OK);
    assert_int_equal(atsi_pool_active(o.rt->pool), 2);
    /* Told otherwise while it is open. */
    assert_int_equal(atsi_runtime_set_threads(o.rt, 6, &err), ATSI_OK);
    assert_int_equal(atsi_session_eval(o.s, &req, &err), ATSI_OK);
    assert_int_equal(atsi_pool_active(o.rt->pool), 6);
    close_all(&o);
}

static void given_numbers_win(void **state)
{
    (void)state;
    make_table();
    expect_threads("cpu.threads=0", NULL, 2, 4);
    expect_threads("cpu.threads=3", NULL, 3, 3);
    expect_threads("cpu.threads=8", NULL, 8, 8);
    expect_threads("cpu.threads=3", "cpu.threads_batch=5", 3, 5);
    expect_threads("cpu.threads_batch=5", NULL, 8, 5); /* the table was made for others */
    expect_threads("power.mode=quiet", NULL, 4, 4);
}

/* A table of another machine, or a damaged one, is as none. */
static void stale_tables_are_left_alone(void **state)
{
    struct atsi_profile_params p = {
        .struct_size = sizeof p, .mode = ATSI_PROFILE_KEPT, .model = MODEL, .chunk = 4, .ctx = 32};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_profile *kept = NULL;
    struct atsi_costs *c;
    struct opened o;
    (void)state;
    make_table();
    open_runtime(&o, "cpu.threads=0", NULL);
    assert_int_equal(atsi_profile_open(o.rt, &p, &kept, &err), ATSI_OK);
    assert_string_equal(atsi_profile_summary(kept)->why, "");
    assert_int_equal(atsi_profile_summary(kept)->threads_decode, 2);
    assert_int_equal(atsi_costs_read(atsi_profile_summary(kept)->path, &c, &err), ATSI_OK);
    for (uint32_t i = 0; i < c->n_keys; i++)
        if (strcmp(c->key[i].name, "memory") == 0)
            (void)snprintf(c->key[i].value, sizeof c->key[i].value, "12 MiB");
    assert_int_equal(atsi_costs_write(c, atsi_profile_summary(kept)->path, &err), ATSI_OK);
    expect_threads("cpu.threads=0", NULL, 8, 8);
    assert_int_equal(truncate(atsi_profile_summary(kept)->path, 200), 0);
    expect_threads("cpu.threads=0", NULL, 8, 8);
    atsi_costs_free(c);
    atsi_profile_close(kept);
    atsi_runtime_close(o.rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_that_scales_uses_all),
        cmocka_unit_test(memory_that_four_fill_takes_four),
        cmocka_unit_test(noise_takes_no_worker_away),
        cmocka_unit_test(a_lucky_point_is_no_knee),
        cmocka_unit_test(more_may_be_slower),
        cmocka_unit_test(ends),
        cmocka_unit_test_setup_teardown(sessions_take_a_tables_numbers, scratch_enter,
                                        scratch_leave),
        cmocka_unit_test_setup_teardown(given_numbers_win, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(stale_tables_are_left_alone, scratch_enter, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
