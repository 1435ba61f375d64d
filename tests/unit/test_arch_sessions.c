/* SPDX-License-Identifier: Apache-2.0
 *
 * Sessions of every architecture: how the work is cut changes nothing, windowed layers take the
 * memory of a window, recurrent states the same memory at any length, and going back in a text
 * either gives what a fresh session gives or is refused and changes nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "atsinfer/loader.h"
#include "tests/unit/arch_run.h"

/* Kernels of the delta net work on blocks of rows: another cut, another rounding. */
#define DELTA_ROUNDING 1e-4

enum { WINDOW = 8, N_LONG = 20 * WINDOW };

static double tolerance(const struct am_config *c)
{
    return c->interval != 0 ? DELTA_ROUNDING : 0;
}

/* ---------------------------------------------------------------- cuts */
static void check_cuts(uint32_t backend, const char *name)
{
    static const struct ar_how whole = {.chunk = 512, .threads = 2};
    static const struct ar_how cuts[] = {{.chunk = 512, .threads = 1}, {.chunk = 3, .threads = 2},
                                         {.chunk = 3, .threads = 1},   {.chunk = 1, .threads = 2},
                                         {.chunk = 1, .threads = 1},   {.chunk = 65, .threads = 2}};
    struct am_config c = am_tiny(name);
    struct am m;
    struct ar_rows a;
    am_build(&m, &c, false);
    a = ar_logits(backend, &m, 100, &whole);
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        struct ar_rows b = ar_logits(backend, &m, 100, &cuts[i]);
        double d = ar_difference(&a, &b);
        if (d > tolerance(&c))
            fail_msg("%s, %s, chunk %u, %u threads: logits differ by %g", name, ar_names[backend],
                     cuts[i].chunk, cuts[i].threads, d);
        ar_free(&b);
    }
    ar_free(&a);
    am_free(&m);
}

static void chunks_and_threads_change_nothing(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < ar_n_backends; b++)
        for (const char *const *name = am_tiny_names; *name != NULL; name++)
            check_cuts(b, *name);
}

/* Backends differ by rounding. */
static void backends_agree(void **state)
{
    static const struct ar_how how = {.chunk = 32};
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct am_config c = am_tiny(*name);
        struct am m;
        struct ar_rows ref;
        am_build(&m, &c, false);
        ref = ar_logits(0, &m, 100, &how);
        for (uint32_t b = 1; b < ar_n_backends; b++) {
            struct ar_rows r = ar_logits(b, &m, 100, &how);
            double d = ar_difference(&ref, &r);
            if (d > 1e-4)
                fail_msg("%s: %s and %s differ by %g", *name, ar_names[0], ar_names[b], d);
            ar_free(&r);
        }
        ar_free(&ref);
        am_free(&m);
    }
}

/* ---------------------------------------------------------------- memory of a window */
/* Bytes of one layer's cache: keys and values, each with at most two lines of padding. */
static void assert_kv_bytes(uint64_t have, const struct am_config *c, uint64_t windowed_cells,
                            uint64_t full_cells)
{
    uint64_t cell = 2 * (uint64_t)c->n_head_kv * c->head_dim * sizeof(uint16_t);
    uint64_t layers = c->n_layer / 2; /* of each kind */
    uint64_t want = layers * (windowed_cells + full_cells) * cell;
    if (have < want || have > want + (uint64_t)c->n_layer * 2 * 128)
        fail_msg("KV cache of %llu bytes, expected %llu and a little", (unsigned long long)have,
                 (unsigned long long)want);
}

static uint64_t planned_kv(struct atsi_model *m, uint32_t n_ctx, uint32_t chunk)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info plan = {.struct_size = sizeof plan}, info;
    struct atsi_session *s = NULL;
    p.n_ctx = n_ctx;
    p.chunk = chunk;
    if (atsi_session_plan(m, &p, &plan, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(plan.backend, "");
    if (atsi_session_open(m, &p, &s, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    info = ar_info(s);
    atsi_session_close(s);
    assert_int_equal(plan.kv_bytes, info.kv_bytes);
    assert_int_equal(plan.state_bytes, info.state_bytes);
    assert_int_equal(plan.compute_bytes, info.compute_bytes);
    assert_int_equal(plan.logits_bytes, info.logits_bytes);
    assert_int_equal(plan.can_rewind, info.can_rewind);
    assert_int_equal(plan.n_ctx, n_ctx);
    return info.kv_bytes;
}

static void a_window_takes_a_window_of_memory(void **state)
{
    struct am_config c = am_tiny("gpt-oss");
    struct am m;
    struct atsi_model *model;
    (void)state;
    assert_int_equal(c.window, WINDOW);
    am_build(&m, &c, false);
    model = ar_open(0, &m);
    assert_kv_bytes(planned_kv(model, 160, 4), &c, WINDOW + 4, 160);
    assert_kv_bytes(planned_kv(model, 160, 32), &c, WINDOW + 32, 160);
    assert_kv_bytes(planned_kv(model, 100000, 32), &c, WINDOW + 32, 100000);
    assert_kv_bytes(planned_kv(model, 12, 4), &c, 12, 12); /* never more than the context */
    atsi_model_close(model);
    am_free(&m);
}

static void windows_wrap_without_a_trace(void **state)
{
    static const struct ar_how whole = {.n_ctx = N_LONG, .chunk = N_LONG};
    static const uint32_t chunks[] = {1, 2, 5, 7, WINDOW, 16, 33};
    struct am_config c = am_tiny("gpt-oss");
    struct am m;
    (void)state;
    am_build(&m, &c, false);
    for (uint32_t b = 0; b < ar_n_backends; b++) {
        struct ar_rows a = ar_logits(b, &m, N_LONG, &whole);
        for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
            struct ar_how how = {.n_ctx = 1000, .chunk = chunks[i]};
            struct ar_rows r = ar_logits(b, &m, N_LONG, &how);
            double d = ar_difference(&a, &r);
            if (d > 0)
                fail_msg("%s: chunk %u: logits differ by %g", ar_names[b], chunks[i], d);
            ar_free(&r);
        }
        ar_free(&a);
    }
    am_free(&m);
}

static void quantized_windows_wrap_too(void **state)
{
    static const uint32_t types[] = {ATSI_TYPE_F16, ATSI_TYPE_Q8_0};
    struct am_config c = am_tiny("gpt-oss");
    struct am m;
    (void)state;
    am_build(&m, &c, false);
    for (size_t t = 0; t < 2; t++)
        for (uint32_t b = 0; b < ar_n_backends; b++) {
            struct ar_how whole = {.n_ctx = N_LONG, .chunk = N_LONG, .type_kv = types[t]};
            struct ar_how cut = {.n_ctx = 1000, .chunk = 5, .type_kv = types[t]};
            struct ar_rows a = ar_logits(b, &m, N_LONG, &whole);
            struct ar_rows r = ar_logits(b, &m, N_LONG, &cut);
            assert_true(ar_difference(&a, &r) <= 0);
            ar_free(&a);
            ar_free(&r);
        }
    am_free(&m);
}

/* ---------------------------------------------------------------- memory of states */
static uint64_t state_bytes(struct atsi_model *m, uint32_t n_ctx)
{
    struct ar_how how = {.n_ctx = n_ctx, .chunk = 8};
    struct atsi_session *s = ar_session(m, &how);
    struct atsi_session_info info = ar_info(s);
    atsi_session_close(s);
    return info.state_bytes;
}

static void states_do_not_grow(void **state)
{
    static const char *const names[] = {"qwen3next", "qwen35", "qwen35moe"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct am_config c = am_tiny(names[i]);
        uint64_t channels = (2 * c.nk + c.nv) * (uint64_t)c.state;
        uint64_t layer = (c.taps - 1) * channels + (uint64_t)c.nv * c.state * c.state;
        struct am m;
        struct atsi_model *model;
        uint64_t want = c.n_layer / 2 * layer * sizeof(float);
        am_build(&m, &c, false);
        model = ar_open(0, &m);
        assert_in_range(state_bytes(model, 16), want, want + c.n_layer * 64);
        assert_int_equal(state_bytes(model, 16), state_bytes(model, 5000));
        atsi_model_close(model);
        am_free(&m);
    }
}

static void models_without_states_have_none(void **state)
{
    struct am_config c = am_tiny("llama");
    struct am m;
    struct atsi_model *model;
    (void)state;
    am_build(&m, &c, false);
    model = ar_open(0, &m);
    assert_int_equal(state_bytes(model, 64), 0);
    atsi_model_close(model);
    am_free(&m);
}

/* ---------------------------------------------------------------- going back */
static void assert_as_fresh(struct atsi_model *m, struct atsi_session *s, const struct ar_how *how,
                            double within)
{
    struct ar_rows now = {atsi_session_logits(s), 1, ar_info(s).n_vocab}, fresh;
    assert_non_null(now.data);
    fresh = ar_fresh(m, atsi_session_tokens(s), atsi_session_n_past(s), how);
    if (ar_difference(&now, &fresh) > within)
        fail_msg("%u tokens: differ from a fresh session by %g", atsi_session_n_past(s),
                 ar_difference(&now, &fresh));
    ar_free(&fresh);
}

/* From a text of n tokens back to every position: what is allowed is right after other tokens, what
 * is not leaves the session as it was.  Returns the number of positions that are reached. */
static uint32_t go_back_everywhere(struct atsi_model *m, const struct ar_how *how, uint32_t n,
                                   uint32_t n_vocab, double within)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t ids[AR_MAX_IDS], other[3] = {1, 2, 3};
    uint32_t reached = 0;
    ar_ids(ids, n, n_vocab);
    for (uint32_t at = 0; at <= n; at++) {
        struct atsi_session *s = ar_session(m, how);
        uint32_t point;
        int rc;
        ar_eval(s, ids, n);
        point = atsi_session_rewind_point(s, at);
        assert_true(point == at || point == 0);
        rc = atsi_session_truncate(s, at, &err);
        if (point == at) {
            assert_int_equal(rc, ATSI_OK);
            assert_int_equal(atsi_session_n_past(s), at);
            reached++;
        } else {
            assert_int_equal(rc, ATSI_ENOTSUP);
            assert_non_null(strstr(err.msg, "restore a checkpoint"));
            assert_int_equal(atsi_session_n_past(s), n);
            assert_memory_equal(atsi_session_tokens(s), ids, n * sizeof *ids);
            assert_as_fresh(m, s, how, within);
        }
        ar_eval(s, other, 3);
        assert_as_fresh(m, s, how, within);
        atsi_session_close(s);
    }
    return reached;
}

static uint32_t reach(const char *name, const struct ar_how *how, uint32_t n)
{
    struct am_config c = am_tiny(name);
    struct am m;
    struct atsi_model *model;
    uint32_t reached;
    am_build(&m, &c, false);
    model = ar_open(0, &m);
    reached = go_back_everywhere(model, how, n, c.n_vocab, tolerance(&c));
    atsi_model_close(model);
    am_free(&m);
    return reached;
}

static void a_plain_cache_is_cut_anywhere(void **state)
{
    static const struct ar_how how = {.n_ctx = 64, .chunk = 8};
    (void)state;
    assert_int_equal(reach("qwen3", &how, 20), 21);
    assert_int_equal(reach("glm4", &how, 20), 21);
}

/* A ring of window + chunk cells: back to the window's edge, that is one chunk and one more. */
static void a_window_goes_back_one_chunk(void **state)
{
    static const struct ar_how how = {.n_ctx = 200, .chunk = 5}, roomy = {.n_ctx = 64, .chunk = 60};
    (void)state;
    assert_int_equal(reach("gpt-oss", &how, 40), 1 + 1 + 5 + 1); /* 0, then 34 to 40 */
    assert_int_equal(reach("gpt-oss", &how, 10), 11);            /* not wrapped yet */
    assert_int_equal(reach("gpt-oss", &roomy, 40), 41);          /* no ring at all */
}

static void a_state_knows_only_the_present(void **state)
{
    static const struct ar_how how = {.n_ctx = 64, .chunk = 8};
    (void)state;
    assert_int_equal(reach("qwen3next", &how, 12), 2); /* 0 and 12 */
    assert_int_equal(reach("qwen35", &how, 12), 2);
}

/* Anything, in any order: after each step the session is what its tokens say. */
static void wander(const char *name, const struct ar_how *how)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct am_config c = am_tiny(name);
    struct am m;
    struct atsi_model *model;
    struct atsi_session *s;
    uint32_t random = 12345;
    int32_t ids[32];
    am_build(&m, &c, false);
    model = ar_open(0, &m);
    s = ar_session(model, how);
    for (uint32_t step = 0; step < 120; step++) {
        uint32_t past = atsi_session_n_past(s), n;
        random = random * 1664525 + 1013904223;
        n = 1 + (random >> 8) % 20;
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (int32_t)((random >> 4) * (i + 3) % c.n_vocab);
        if (past + n > how->n_ctx || ((random >> 20) % 3 == 0 && past > 0)) {
            uint32_t back = past > n ? past - n : 0;
            assert_int_equal(atsi_session_truncate(s, atsi_session_rewind_point(s, back), &err),
                             ATSI_OK);
            continue;
        }
        ar_eval(s, ids, n);
        assert_as_fresh(model, s, how, tolerance(&c));
    }
    atsi_session_close(s);
    atsi_model_close(model);
    am_free(&m);
}

static void wandering_is_as_fresh(void **state)
{
    static const struct ar_how how = {.n_ctx = 90, .chunk = 6};
    (void)state;
    wander("gpt-oss", &how);
    wander("qwen35moe", &how);
    wander("mixtral", &how);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_threads_change_nothing),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(a_window_takes_a_window_of_memory),
        cmocka_unit_test(windows_wrap_without_a_trace),
        cmocka_unit_test(quantized_windows_wrap_too),
        cmocka_unit_test(states_do_not_grow),
        cmocka_unit_test(models_without_states_have_none),
        cmocka_unit_test(a_plain_cache_is_cut_anywhere),
        cmocka_unit_test(a_window_goes_back_one_chunk),
        cmocka_unit_test(a_state_knows_only_the_present),
        cmocka_unit_test(wandering_is_as_fresh),
    };
    return cmocka_run_group_tests(tests, ar_enter, ar_leave);
}
