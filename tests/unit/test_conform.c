/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy test` finds what is wrong with a policy, and nothing wrong with those that come
 * with atsinfer.
 */
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define TOOL ATSI_BINARY_DIR "/bin/atsinfer policy test --quick "
/* Instrumented policies on a busy machine: these tests are not about time. */
#define AT_EASE " --limit 10000000"

static char out[1 << 16];

static int tool(const char *args)
{
    char command[1024];
    size_t n;
    int status;
    FILE *p;
    (void)snprintf(command, sizeof command, TOOL "%s 2>&1", args);
    p = popen(command, "r"); /* NOLINT(cert-env33-c): constant commands of a test */
    assert_non_null(p);
    n = fread(out, 1, sizeof out - 1, p);
    out[n] = '\0';
    status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* The line of a check. */
static const char *line_of(const char *check)
{
    static char line[1024];
    char start[64];
    const char *at = out;
    size_t n = (size_t)snprintf(start, sizeof start, "%-9s ", check);
    while (strncmp(at, start, n) != 0) {
        at = strchr(at, '\n');
        if (at == NULL)
            fail_msg("no line of %s in:\n%s", check, out);
        at++;
    }
    (void)snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
    return line;
}

static void expect(const char *check, const char *words)
{
    const char *line = line_of(check);
    if (strstr(line, "FAILED") == NULL || strstr(line, words) == NULL)
        fail_msg("%s: expected FAILED and \"%s\", got: %s", check, words, line);
}

/* The plugin with a fault fails the test, and the check says so in these words. */
static void caught(const char *fault, const char *options, const char *check, const char *words)
{
    char args[256];
    int code;
    (void)snprintf(args, sizeof args, ATSI_BINARY_DIR "/tests/policies/atsinfer-%s.so%s", fault,
                   options);
    code = tool(args);
    if (code != 4)
        fail_msg("%s: exit %d: %s", fault, code, out);
    expect(check, words);
}

static const char *k_experts(const char *policy)
{
    return strstr(policy, "policy_static") != NULL ? "leaves caches of experts to the core"
                                                   : "10 caches, ";
}

static void test_good_ones(void **state)
{
    static const char *const good[] = {ATSI_BINARY_DIR "/tests/policies/atsinfer-good.so",
                                       "policy_static:layer", "policy_dp:paper",
                                       "policy_dp:backlog"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char args[256];
        (void)snprintf(args, sizeof args, "%s" AT_EASE, good[i]);
        if (tool(args) != 0 || strstr(out, "FAILED") != NULL)
            fail_msg("%s: %s", good[i], out);
        assert_non_null(strstr(line_of("schedule"), "every answer legal"));
        assert_non_null(strstr(line_of("experts"), k_experts(good[i])));
        assert_non_null(strstr(line_of("optimum"), "%"));
    }
}

static void test_illegal_answers(void **state)
{
    (void)state;
    caught("over_budget", AT_EASE, "place", "over budget: device 1 holds ");
    caught("ignores_rules", AT_EASE, "place", "a rule asks for 0");
    caught("wrong_device", AT_EASE, "schedule", "device 7, there are 2");
    caught("order", AT_EASE, "schedule", "transfer order blocks: slot 0 is refilled for item ");
    caught("keeps", AT_EASE, "keep", "keeps a plan, but none is in force");
    caught("fails", AT_EASE, "schedule", "failed: schedule: first prefill round: ");
    assert_non_null(strstr(line_of("schedule"), "no idea about "));
}

static void test_answers_by_chance(void **state)
{
    (void)state;
    caught("random", AT_EASE, "repeat", "two different answers: schedule: first prefill round");
    assert_non_null(strstr(line_of("schedule"), "ok"));
    caught("stateful", AT_EASE, "state", "depends on what another session asked in between");
    caught("unsafe", AT_EASE, "threads", "another answer when 4 threads ask at a time");
    assert_non_null(strstr(line_of("repeat"), "ok"));
}

static void test_memory(void **state)
{
    (void)state;
    caught("overruns", AT_EASE, "memory", "wrote outside schedule.after, of ");
    caught("scratch_overrun", AT_EASE, "memory", "wrote outside scratch, of ");
    caught("writes_input", AT_EASE, "memory", "wrote to its input: schedule: first prefill round");
}

static void test_caches_of_experts(void **state)
{
    static const char *const words[][2] = {
        {"swaps_range", "illegal: swap_experts: 4 slots for 8 experts, layer 0, round 1: "
                        "layer 0, swap 0: expert 8, there are 8"},
        {"swaps_twice", " twice"},
        {"swaps_many", "swaps, at most "},
        {"swaps_locked", " is locked, expert "},
        {"swaps_stateful",
         "the same question has got two different answers: swap_experts: 4 slots"},
        {"swaps_overrun", "wrote outside swaps.evict, of "},
        {"swaps_crash", "crashed with signal 11 (Segmentation fault): swap_experts: 0 slots"},
        {"swaps_fail", "no idea about 4 slots"}};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        caught(words[i][0], AT_EASE, "experts", words[i][1]);
        assert_non_null(strstr(line_of("schedule"), "ok"));
    }
}

static void test_crashes(void **state)
{
    (void)state;
    caught("crashes", AT_EASE, "schedule",
           "crashed with signal 11 (Segmentation fault): schedule: "
           "first decode round: dense-small");
    assert_non_null(strstr(line_of("place"), "ok")); /* it costs the checks that meet it alone */
    caught("exits", AT_EASE, "schedule",
           "ended the process with status 3: schedule: first prefill");
    caught("endless", " --patience 1" AT_EASE, "place",
           "did not return within 1000 ms: place: dense-small");
}

static void test_time(void **state)
{
    (void)state;
    caught("slow", " --limit 500", "time", " ms, policy.time_limit is 0.500 ms: schedule: ");
    assert_non_null(strstr(line_of("schedule"), "ok"));
}

static void test_json(void **state)
{
    json_t *root, *check;
    size_t i, failed = 0;
    (void)state;
    assert_int_equal(
        tool(ATSI_BINARY_DIR "/tests/policies/atsinfer-wrong_device.so --json" AT_EASE), 4);
    root = json_loads(out, 0, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "policy")), "wrong_device");
    json_array_foreach(json_object_get(root, "checks"), i, check)
    {
        failed += json_is_false(json_object_get(check, "ok"));
        assert_true(strlen(json_string_value(json_object_get(check, "text"))) > 0);
    }
    assert_int_equal(i, 11);
    assert_int_equal(json_integer_value(json_object_get(root, "failed")), failed);
    json_decref(root);
    assert_int_equal(tool("policy_static --json" AT_EASE), 0);
    root = json_loads(out, 0, NULL);
    check = json_array_get(json_object_get(root, "checks"), 10);
    assert_string_equal(json_string_value(json_object_get(check, "name")), "regret");
    check = json_array_get(json_object_get(check, "rows"), 0);
    assert_true(json_integer_value(json_object_get(check, "decode_ns")) > 0);
    json_decref(root);
}

static void refused(const char *args, const char *word)
{
    int code = tool(args);
    if (code != 2 || strstr(out, word) == NULL || strchr(out, '\n') != out + strlen(out) - 1)
        fail_msg("%s: exit %d (want 2 with \"%s\"): %s", args, code, word, out);
}

static void test_what_cannot_be_tested(void **state)
{
    (void)state;
    refused("", "one policy is expected");
    refused("no_such_policy", "there is no such policy");
    refused("./no/such.so", "no/such.so");
    refused("policy_static:dance", "dance");
    refused("good:fast --plugin " ATSI_BINARY_DIR "/tests/policies/atsinfer-good.so",
            "has no modes");
    refused(ATSI_BINARY_DIR "/lib/atsinfer/atsinfer-sim.so", "offers no policy");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_ones),
        cmocka_unit_test(test_illegal_answers),
        cmocka_unit_test(test_answers_by_chance),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_caches_of_experts),
        cmocka_unit_test(test_crashes),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_what_cannot_be_tested),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
