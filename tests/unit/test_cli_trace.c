/* SPDX-License-Identifier: Apache-2.0
 * The drawing of rounds: what is written is JSON with arrows, counters and lanes without overlaps,
 * and memory stays bounded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "atsinfer/policy.h"
#include "cli/trace.h"
#include "tests/unit/scratch.h"

/* What cli/file.c needs of the command. */
int cli_fail(int code, const char *fmt, ...)
{
    (void)fmt;
    return code;
}

/* A round at `at`: one item on the CPU, a copy and an item on the accelerator, whose weight came in
 * before it. */
static void draw_round(struct cli_trace *t, uint64_t at)
{
    struct atsi_sim_span s = {
        .struct_size = sizeof s, .phase = ATSI_PHASE_DECODE, .layer = -1, .slot = -1, .tokens = 1};
    s.event = ATSI_SIM_ROUND;
    s.lane = ATSI_SIM_LANE_ROUND;
    s.start_ns = at;
    s.end_ns = at + 900;
    s.bytes = 4096;
    s.name = "decode";
    cli_trace_span(t, &s);
    s.event = ATSI_SIM_ITEM;
    s.lane = ATSI_SIM_LANE_CPU;
    s.end_ns = at + 300;
    s.bytes = 10;
    s.name = "blk.0.\"odd\" \xff name";
    cli_trace_span(t, &s);
    s.event = ATSI_SIM_COPY;
    s.lane = ATSI_SIM_LANE_STREAM;
    s.item = 1;
    s.start_ns = at + 300;
    s.end_ns = at + 400;
    s.name = "blk.1";
    cli_trace_span(t, &s);
    s.event = ATSI_SIM_ITEM;
    s.start_ns = at + 380; /* clocks disagree: before its copy ended */
    s.end_ns = at + 800;
    cli_trace_span(t, &s);
    s.event = ATSI_SIM_MOVE;
    s.lane = ATSI_SIM_LANE_ENGINE;
    s.slot = 0;
    s.start_ns = at + 100;
    s.end_ns = at + 350;
    s.bytes = 1000;
    cli_trace_span(t, &s);
}

static json_t *written(struct cli_trace *t)
{
    const char *path = scratch_path("trace.json");
    json_error_t why;
    json_t *o;
    assert_int_equal(cli_trace_write(t, path), CLI_OK);
    o = json_load_file(path, JSON_REJECT_DUPLICATES, &why);
    if (o == NULL)
        fail_msg("%s at line %d", why.text, why.line);
    return o;
}

static const char *text_of(const json_t *e, const char *key)
{
    const char *s = json_string_value(json_object_get(e, key));
    return s != NULL ? s : "";
}

static size_t count(const json_t *o, const char *ph, const char *name)
{
    size_t n = 0, i;
    json_t *e;
    json_array_foreach(json_object_get(o, "traceEvents"), i, e)
    {
        n += strcmp(text_of(e, "ph"), ph) == 0 &&
             (name == NULL || !strcmp(text_of(e, "name"), name));
    }
    return n;
}

static void test_events(void **state)
{
    struct cli_trace *t = cli_trace_new(false);
    json_t *o, *e;
    size_t i;
    double busy[8] = {0};
    (void)state;
    cli_trace_process(t, "run");
    for (uint64_t r = 0; r < 3; r++)
        draw_round(t, 5000000 + 1000 * r);
    assert_int_equal(cli_trace_rounds(t), 3);
    o = written(t);
    assert_true(json_is_false(json_object_get(json_object_get(o, "otherData"), "simulated")));
    assert_int_equal(count(o, "X", "decode"), 3);
    assert_int_equal(count(o, "X", "to blk.1"), 3);
    assert_int_equal(count(o, "s", "weight"), 3);
    assert_int_equal(count(o, "f", "weight"), 3);
    assert_int_equal(count(o, "f", "activation"), 3);
    assert_int_equal(count(o, "C", "VRAM resident"), 3);
    assert_int_equal(count(o, "C", "slots in use"), 6);
    assert_int_equal(count(o, "X", "weights"), 3); /* 100 to 300 */
    assert_int_equal(count(o, "X", "weights and activations"), 3);
    assert_int_equal(count(o, "X", "activations"), 3);
    json_array_foreach(json_object_get(o, "traceEvents"), i, e)
    {
        size_t lane = (size_t)json_integer_value(json_object_get(e, "tid"));
        double from = json_number_value(json_object_get(e, "ts"));
        assert_true(from >= 0 && from < 4); /* times begin with the drawing */
        if (strcmp(text_of(e, "ph"), "X") != 0 || lane == 4)
            continue;
        assert_true(lane < 4 && from >= busy[lane] - 1e-6);
        busy[lane] = from + json_number_value(json_object_get(e, "dur"));
    }
    json_decref(o);
    cli_trace_free(t);
}

static void test_ring(void **state)
{
    const uint64_t n = CLI_TRACE_SPANS / 5 + 70; /* five spans each */
    struct cli_trace *t = cli_trace_new(false);
    json_t *o;
    (void)state;
    cli_trace_process(t, "long");
    for (uint64_t r = 0; r < n; r++)
        draw_round(t, 1000 * r);
    o = written(t);
    assert_int_equal(cli_trace_rounds(t), CLI_TRACE_SPANS / 5);
    assert_int_equal(cli_trace_cut(t), 70);
    assert_int_equal(json_integer_value(
                         json_object_get(json_object_get(o, "otherData"), "older_rounds_left_out")),
                     70);
    assert_int_equal(count(o, "X", "decode"), CLI_TRACE_SPANS / 5);
    json_decref(o);
    cli_trace_free(t);
}

static void test_nothing(void **state)
{
    struct cli_trace *t = cli_trace_new(true);
    json_t *o = written(t);
    (void)state;
    assert_int_equal(json_array_size(json_object_get(o, "traceEvents")), 0);
    assert_int_equal(cli_trace_write(t, "/nonexistent/trace.json"), CLI_RUN_ERROR);
    json_decref(o);
    cli_trace_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events), cmocka_unit_test(test_ring),
                                       cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
