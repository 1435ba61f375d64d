/* SPDX-License-Identifier: Apache-2.0
 * What a session with an accelerator tells of itself: sums over its rounds, spans of each, and
 * costs measured at first use. */
#include "tests/hybrid/hybrid_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atsinfer/policy.h"
#include "atsinfer/simulate.h"
#include "tests/unit/scratch.h"

static const char *const stream[] = {"policy.name=policy_static",
                                     "plugin.policy_static.mode=stream", "memory.vram=40%m",
                                     "memory.temp=20%m", NULL};

static struct atsi_accel_stats stats_of(const struct atsi_session *s)
{
    struct atsi_accel_stats st = {.struct_size = sizeof st};
    atsi_session_accel_stats(s, &st);
    return st;
}

static void feed(struct atsi_session *s, uint32_t from, uint32_t n)
{
    int32_t ids[HR_MAX_IDS];
    hr_ids(ids, HR_MAX_IDS, hr_info(s).n_vocab);
    for (uint32_t i = from; i < from + n; i++) {
        struct hr_rows r = hr_eval(s, ids + i, 1, false);
        hr_free(&r);
    }
}

/* ---------------------------------------------------------------- sums */
static void test_sums(void **state)
{
    struct atsi_runtime *rt = hr_runtime(stream);
    struct atsi_model *m = hr_open(rt, hr_model("llama"));
    struct atsi_session *s = hr_session(m, 64, 8);
    struct atsi_accel_stats st = stats_of(s), later;
    int32_t ids[HR_MAX_IDS];
    struct hr_rows r;
    (void)state;
    assert_int_equal(st.prefill.n_rounds + st.decode.n_rounds, 0);
    hr_ids(ids, HR_MAX_IDS, hr_info(s).n_vocab);
    r = hr_eval(s, ids, 16, false);
    hr_free(&r);
    feed(s, 16, 20);
    st = stats_of(s);
    assert_int_equal(st.struct_size, sizeof st);
    assert_int_equal(st.prefill.n_rounds, 2);
    assert_int_equal(st.decode.n_rounds, 20);
    assert_int_equal(st.n_made + st.n_kept, 22);
    assert_true(st.n_made >= 2); /* one of each phase */
    assert_int_equal(st.measured_costs, 0);
    assert_true(st.decode.n_measured > 0 && st.decode.n_measured < 20);
    assert_true(st.decode.busy_ns[0] > 0 && st.decode.busy_ns[0] <= st.decode.measured_ns);
    assert_true(st.decode.busy_ns[1] > 0 && st.decode.exposed_ns <= st.decode.measured_ns);
    assert_int_equal(st.weight_bytes, hr_info(s).transfer_bytes);
    assert_int_equal(st.activation_bytes + st.result_bytes, hr_info(s).copy_bytes);
    assert_true(st.weight_bytes > 0 && st.activation_bytes > 0);
    /* Another budget begins anew, what was counted stays. */
    assert_int_equal(atsi_session_set_budget(s, "60%m", NULL), ATSI_OK);
    feed(s, 36, 4);
    later = stats_of(s);
    assert_int_equal(later.decode.n_rounds, 24);
    assert_int_equal(later.n_made + later.n_kept, 26);
    assert_true(later.weight_bytes >= st.weight_bytes);
    assert_true(later.activation_bytes > st.activation_bytes);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

static void test_older_caller(void **state)
{
    struct atsi_runtime *rt = hr_cpu();
    struct atsi_model *m = hr_open(rt, hr_model("llama"));
    struct atsi_session *s = hr_session(m, 16, 8);
    struct atsi_accel_stats st;
    (void)state;
    memset(&st, 0x5a, sizeof st);
    st.struct_size = offsetof(struct atsi_accel_stats, n_made);
    atsi_session_accel_stats(s, &st);
    assert_int_equal(st.decode.n_rounds, 0);
    assert_int_equal(st.n_made, 0x5a5a5a5a5a5a5a5a);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

/* ---------------------------------------------------------------- spans */
struct spans {
    uint32_t rounds, items, copies, moves, wrong;
    uint64_t busy_ns;
};

static void take_span(void *ctx, const struct atsi_sim_span *s)
{
    struct spans *n = ctx;
    n->rounds += s->event == ATSI_SIM_ROUND;
    n->items += s->event == ATSI_SIM_ITEM;
    n->copies += s->event == ATSI_SIM_COPY;
    n->moves += s->event == ATSI_SIM_MOVE;
    n->wrong += s->end_ns < s->start_ns || s->name == NULL || s->phase != ATSI_PHASE_DECODE ||
                (s->event == ATSI_SIM_ROUND && s->bytes == 0);
    if (s->event == ATSI_SIM_ITEM)
        n->busy_ns += s->end_ns - s->start_ns;
}

static void test_spans(void **state)
{
    struct atsi_runtime *rt = hr_runtime(stream);
    struct atsi_model *m = hr_open(rt, hr_model("llama"));
    struct atsi_session *s = hr_session(m, 64, 8);
    struct spans n = {0};
    struct atsi_accel_stats st;
    uint64_t transfers;
    (void)state;
    feed(s, 0, 1);
    transfers = hr_info(s).n_transfers;
    atsi_session_spans(s, take_span, &n);
    feed(s, 1, 20);
    st = stats_of(s);
    assert_int_equal(n.rounds, 20);
    assert_int_equal(n.wrong, 0);
    assert_int_equal(n.items, 20 * hr_info(s).n_items); /* each once a round */
    assert_true(n.copies > 0 && n.moves > 0 && n.busy_ns > 0);
    assert_true(n.moves + hr_info(s).n_items >= hr_info(s).n_transfers - transfers);
    assert_int_equal(st.decode.n_measured, 21); /* all rounds that are drawn */
    atsi_session_spans(s, NULL, NULL);
    feed(s, 21, 1);
    assert_int_equal(n.rounds, 20);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

/* ---------------------------------------------------------------- measured costs */
static const char *const measured[] = {"policy.costs=measured", "memory.vram=40%m",
                                       "memory.temp=20%m", "prefill.chunk=8", NULL};

struct seen {
    uint32_t calls, total;
};

static void take_progress(void *ctx, uint32_t done, uint32_t total, const char *what)
{
    struct seen *n = ctx;
    assert_true(done < total);
    assert_non_null(what);
    n->calls++;
    n->total = total;
}

static void test_measured(void **state)
{
    struct atsi_runtime *rt = hr_runtime(measured), *cpu = hr_cpu();
    struct atsi_model *m = hr_open(rt, hr_model("llama")), *plain = hr_open(cpu, hr_model("llama"));
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s = NULL, *want = hr_session(plain, 64, 8);
    struct seen first = {0}, second = {0};
    struct hr_rows a, b;
    int32_t ids[HR_MAX_IDS];
    int stop = 1;
    (void)state;
    p.n_ctx = 64;
    p.chunk = 8;
    p.measuring = take_progress;
    p.measuring_ctx = &first;
    p.cancel = &stop;
    assert_int_equal(atsi_session_open(m, &p, &s, NULL), ATSI_EINTR);
    stop = 0;
    first.calls = 0;
    assert_int_equal(atsi_session_open(m, &p, &s, NULL), ATSI_OK);
    assert_true(first.calls > 0);
    hr_ids(ids, HR_MAX_IDS, hr_info(s).n_vocab);
    a = hr_eval(want, ids, 20, true);
    b = hr_eval(s, ids, 20, true);
    hr_same(&a, &b, "measured costs");
    assert_int_equal(stats_of(s).measured_costs, 1);
    atsi_session_close(s);
    p.measuring_ctx = &second; /* the table was kept */
    assert_int_equal(atsi_session_open(m, &p, &s, NULL), ATSI_OK);
    assert_int_equal(second.calls, 0);
    hr_free(&a);
    hr_free(&b);
    atsi_session_close(s);
    atsi_session_close(want);
    atsi_model_close(m);
    atsi_model_close(plain);
    atsi_runtime_close(rt);
    atsi_runtime_close(cpu);
}

static int enter(void **state)
{
    return hr_enter(state) != 0 || setenv("XDG_CACHE_HOME", scratch_path("cache"), 1) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums), cmocka_unit_test(test_older_caller),
        cmocka_unit_test(test_spans), cmocka_unit_test(test_measured)};
    return cmocka_run_group_tests(tests, enter, hr_leave);
}
