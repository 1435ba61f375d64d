/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy` as a user meets it: answers on small files, and one clear line for every file
 * and option that is wrong.
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

#define TOOL ATSI_BINARY_DIR "/bin/atsinfer policy"
#define SMALL ATSI_SOURCE_DIR "/tests/data/sched/small.json"

static char out[1 << 16];

/* Runs the tool with its messages on stdout as well; returns the exit code. */
static int tool(const char *args)
{
    char command[1024];
    size_t n;
    int status;
    FILE *p;
    (void)snprintf(command, sizeof command, TOOL " %s 2>&1", args);
    p = popen(command, "r"); /* NOLINT(cert-env33-c): constant commands of a test */
    assert_non_null(p);
    n = fread(out, 1, sizeof out - 1, p);
    out[n] = '\0';
    while (fgetc(p) != EOF)
        ;
    status = pclose(p);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* One line of error holding `word`, no JSON. */
static void refused(const char *args, int code, const char *word)
{
    int got = tool(args);
    if (got != code || strstr(out, word) == NULL || strncmp(out, "atsinfer: error: ", 17) != 0 ||
        strchr(out, '\n') != out + strlen(out) - 1)
        fail_msg("%s: exit %d (want %d with \"%s\"): %s", args, got, code, word, out);
}

/* An instance file `text` is refused. */
static void bad_file(const char *text, const char *word)
{
    scratch_write("bad.json", text);
    refused("solve --algorithm backlog --instance bad.json", 1, word);
    assert_non_null(strstr(out, "bad.json"));
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(tool("--help"), 0);
    assert_non_null(strstr(out, "solve"));
    assert_non_null(strstr(out, "resched"));
    assert_int_equal(tool("solve --help"), 0);
    assert_non_null(strstr(out, "--algorithm"));
    assert_int_equal(tool("latency --help"), 0);
    assert_int_equal(tool("resched --help"), 0);
    assert_int_equal(tool(""), 2);
    refused("dance", 2, "dance");
}

/* Any plugin's policy: what lives on the GPU runs there, and a round takes time. */
static void test_policies(void **state)
{
    static const char *const which[] = {"policy_dp:backlog", "policy_static:alg1",
                                        ATSI_BINARY_DIR "/lib/atsinfer/atsinfer-policy_dp.so",
                                        "policy_dp:repaired --place"};
    (void)state;
    for (size_t k = 0; k < sizeof which / sizeof which[0]; k++) {
        char args[512];
        json_t *list, *o;
        size_t i;
        (void)snprintf(args, sizeof args, "solve --instance " SMALL " --policy %s", which[k]);
        assert_int_equal(tool(args), 0);
        list = json_loads(out, 0, NULL);
        assert_true(json_array_size(list) > 0);
        json_array_foreach(list, i, o)
        {
            const char *b = json_string_value(json_object_get(o, "b"));
            const char *rb = json_string_value(json_object_get(o, "rb"));
            assert_int_equal(strlen(b), strlen(rb));
            for (size_t c = 0; b[c] != '\0'; c++)
                assert_true(rb[c] >= b[c]);
            assert_true(json_real_value(json_object_get(o, "fluid")) > 0);
        }
        json_decref(list);
    }
    refused("solve --instance " SMALL " --policy no_such", 2, "no such policy");
    refused("solve --instance " SMALL " --policy policy_dp --algorithm alg1", 2, "exclude");
    refused("solve --instance " SMALL " --policy policy_dp:quick", 2, "quick");
}

static void test_options(void **state)
{
    (void)state;
    refused("solve --instance " SMALL, 2, "--algorithm NAME is missing");
    refused("solve --algorithm alg1", 2, "--instance FILE is missing");
    refused("latency", 2, "--instance FILE is missing");
    refused("resched", 2, "--instance FILE is missing");
    refused("solve --algorithm alg9 --instance " SMALL, 2, "alg9");
    refused("solve --algorithm alg2 --timeline other --instance " SMALL, 2, "--timeline other");
    refused("solve --algorithm backlog --rounds 0 --instance " SMALL, 2, "--rounds");
    refused("solve extra --algorithm alg2 --instance " SMALL, 2, "extra");
    refused("latency --instance nowhere.json", 1, "nowhere.json: No such file");
    refused("latency --instance .", 1, "Is a directory");
}

static void test_answers(void **state)
{
    static const char *const names[] = {
        "alg1", "alg1_subsequence", "layer",   "expert",         "density",       "bound",
        "alg2", "alg2_clip",        "backlog", "alg2_literal17", "alg2_repaired", NULL};
    (void)state;
    scratch_write("one.json",
                  "[{\"input\":{\"name\":\"one\",\"tc\":[100,100],\"tg\":[10,10],\"w\":[80,80],"
                  "\"s\":[1,1],\"M\":1048576}}]");
    for (size_t k = 0; names[k] != NULL; k++) {
        char args[256];
        json_t *o;
        const json_t *first;
        (void)snprintf(args, sizeof args, "solve --algorithm %s --instance one.json", names[k]);
        assert_int_equal(tool(args), 0);
        o = json_loads(out, 0, NULL);
        assert_int_equal(json_array_size(o), 1);
        first = json_array_get(o, 0);
        assert_string_equal(json_string_value(json_object_get(first, "name")), "one");
        assert_true(json_integer_value(json_object_get(first, "ns")) >= 0);
        if (strcmp(names[k], "alg1") == 0) /* one unit: one of the two */
            assert_int_equal(json_integer_value(json_object_get(first, "value")), 90);
        if (strcmp(names[k], "backlog") == 0) {
            assert_int_equal(json_integer_value(json_object_get(first, "latency")), 110);
            assert_string_equal(json_string_value(json_object_get(first, "rb")), "01");
        }
        json_decref(o);
    }
}

static void test_latency(void **state)
{
    json_t *o;
    (void)state;
    scratch_write("plans.json",
                  "[{\"input\":{\"tc\":[100,100],\"tg\":[10,10],\"w\":[80,80]},\"expect\":"
                  "{\"plans\":{\"p\":{\"rb\":\"01\"}}}},{\"input\":{\"tc\":[],\"tg\":[]}}]");
    assert_int_equal(tool("latency --instance plans.json"), 0);
    o = json_loads(out, 0, NULL);
    assert_int_equal(json_array_size(o), 2);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(json_array_get(o, 0), "p"), "latency")),
        110);
    json_decref(o);
    scratch_write("plans.json", "[{\"input\":{\"tc\":[1,1],\"tg\":[1,1]},\"expect\":"
                                "{\"plans\":{\"p\":{\"rb\":\"012\"}}}}]");
    refused("latency --instance plans.json", 1, "plan p");
    scratch_write("plans.json", "[{\"input\":{\"tc\":[1],\"tg\":[1],\"promo\":[0]},\"expect\":"
                                "{\"plans\":{\"p\":{\"rb\":\"1\"}}}}]");
    refused("latency --instance plans.json", 1, "may not be streamed");
    scratch_write("plans.json", "[{\"input\":{\"tc\":[1],\"tg\":[1]},\"expect\":"
                                "{\"plans\":{\"p\":{\"rb\":7}}}}]");
    refused("latency --instance plans.json", 1, "plan p");
}

#define TWO "\"tc\":[1,2],\"tg\":[1,1]"

static void test_bad_instances(void **state)
{
    (void)state;
    bad_file("", "not JSON");
    bad_file("{}", "array is expected");
    bad_file("[1]", "entry 0: there is no object \"input\"");
    bad_file("[{\"input\":{}}]", "input.tc");
    bad_file("[{\"input\":{\"tc\":[1]}}]", "input.tg is missing");
    bad_file("[{\"input\":{\"tc\":[1],\"tg\":[1,2]}}]", "input.tg");
    bad_file("[{\"input\":{" TWO "}},{\"input\":{" TWO ",\"w\":[1,-2]}}]",
             "entry 1: operator 1: w is -2");
    bad_file("[{\"input\":{" TWO ",\"w\":[1,1.5]}}]", "input.w[1] is no whole number");
    bad_file("[{\"input\":{" TWO ",\"w\":[1,99999999999999999999]}}]", "not JSON");
    bad_file("[{\"input\":{" TWO ",\"w\":[1,9999999999999999]}}]", "operator 1: w is");
    bad_file("[{\"input\":{" TWO ",\"km\":[1,\"x\"]}}]", "input.km[1] is no number");
    bad_file("[{\"input\":{" TWO ",\"km\":[1,0]}}]", "operator 1: contention");
    bad_file("[{\"input\":{" TWO ",\"rel\":[-1,1]}}]", "rel is 1");
    bad_file("[{\"input\":{" TWO ",\"rel\":[-1,5000000000]}}]", "input.rel[1]");
    bad_file("[{\"input\":{" TWO ",\"promo\":[1,300]}}]", "input.promo[1] is 300");
    bad_file("[{\"input\":{" TWO ",\"b\":[0,2]}}]", "input.b[1]");
    bad_file("[{\"input\":{" TWO ",\"role\":[0,3]}}]", "input.role[1] is 3");
    bad_file("[{\"input\":{" TWO ",\"depth\":{}}}]", "input.depth");
    bad_file("[{\"input\":{" TWO ",\"depth\":{\"x\":1}}}]", "class \"x\"");
    bad_file("[{\"input\":{" TWO ",\"depth\":{\"0\":0}}}]", "class 0");
    bad_file("[{\"input\":{" TWO ",\"M\":-1}}]", "budget");
    bad_file("[{\"input\":{" TWO ",\"gap\":[]}}]", "input.gap");
    bad_file("[{\"input\":{" TWO ",\"am\":\"1\"}}]", "input.am");
    bad_file("[{\"input\":{" TWO ",\"n\":3}}]", "input.n");
    bad_file("[{\"input\":{" TWO ",\"tc\":[1]}}]", "duplicate");
}

/* Nesting and size meant to exhaust the reader. */
static void test_hostile_sizes(void **state)
{
    enum { DEEP = 100000, LONG = 17000 };
    char *text = malloc(4 * DEEP);
    size_t n;
    (void)state;
    assert_non_null(text);
    memset(text, '[', DEEP);
    text[DEEP] = '\0';
    bad_file(text, "not JSON");
    n = (size_t)snprintf(text, 64, "[{\"input\":{\"tc\":[1");
    for (int i = 0; i < LONG; i++) {
        memcpy(text + n, ",1", 2);
        n += 2;
    }
    memcpy(text + n, "]}}]", 5);
    bad_file(text, "17001 operators, at most 16384");
    free(text);
}

static void test_bad_sequences(void **state)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"[{}]", "sequence 0: eps_pm"},
        {"[{\"eps_pm\":-1,\"tau_tpots\":5,\"steps\":[]}]", "eps_pm"},
        {"[{\"eps_pm\":150,\"tau_tpots\":5,\"steps\":[{}]}]", "step 0: now"},
        {"[{\"eps_pm\":150,\"tau_tpots\":5,\"steps\":[{\"now\":1,\"tpot\":1}]}]", "snapshot"},
        {"[{\"eps_pm\":150,\"tau_tpots\":5,\"steps\":[{\"now\":1,\"tpot\":1,\"snapshot\":"
         "{\"cpu\":0}}]}]",
         "cpu"},
    };
    (void)state;
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        scratch_write("bad.json", bad[k].text);
        refused("resched --instance bad.json", 1, bad[k].word);
    }
    scratch_write("good.json", "[{\"eps_pm\":150,\"tau_tpots\":5,\"steps\":[{\"now\":1,\"tpot\":1,"
                               "\"snapshot\":{\"cpu\":1000}}]}]");
    assert_int_equal(tool("resched --instance good.json"), 0);
    assert_non_null(strstr(out, "true"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_help),          cmocka_unit_test(test_policies),
        cmocka_unit_test(test_options),       cmocka_unit_test(test_answers),
        cmocka_unit_test(test_latency),       cmocka_unit_test(test_bad_instances),
        cmocka_unit_test(test_hostile_sizes), cmocka_unit_test(test_bad_sequences),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
