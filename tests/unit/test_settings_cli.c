/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer config` and `atsinfer plugins` as people and scripts use them: JSON, text that is a
 * valid ini, and exit codes.
 */
#include "atsinfer/plugin.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TOOL ATSI_BINARY_DIR "/bin/atsinfer"
#define FIXTURES ATSI_BINARY_DIR "/tests/plugins/"

/* Standard output of the tool (owned) and its exit code; its messages go to the file "err". */
static char *run_tool(const char *args, int *code_out)
{
    char command[2048], *text = NULL;
    size_t n = 0, room = 0;
    int status, ch;
    FILE *p;
    (void)snprintf(command, sizeof command, TOOL " %s 2>err", args);
    p = popen(command, "r"); /* NOLINT(cert-env33-c): constant commands of a test */
    assert_non_null(p);
    while ((ch = fgetc(p)) != EOF) {
        if (n + 1 >= room) {
            room = 2 * room + 4096;
            text = realloc(text, room);
            assert_non_null(text);
        }
        text[n++] = (char)ch;
    }
    status = pclose(p);
    assert_true(WIFEXITED(status));
    *code_out = WEXITSTATUS(status);
    if (text == NULL)
        text = calloc(1, 1);
    assert_non_null(text);
    text[n] = '\0';
    return text;
}

static json_t *run_json(const char *args, int expected)
{
    json_error_t error;
    int code;
    char *text = run_tool(args, &code);
    json_t *o = json_loads(text, 0, &error);
    if (code != expected)
        fail_msg("%s: exit code %d, expected %d", args, code, expected);
    if (o == NULL)
        fail_msg("%s: no JSON: %s", args, error.text);
    free(text);
    return o;
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    assert_non_null(s);
    return s;
}

/* The object of a list whose `key` has that value; fails without one. */
static const json_t *pick(const json_t *list, const char *key, const char *value)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(text_of(json_array_get(list, i), key), value) == 0)
            return json_array_get(list, i);
    fail_msg("nothing has %s = %s", key, value);
    return NULL;
}

/* ---------------------------------------------------------------- config */
static void config_as_json(void **state)
{
    const json_t *e;
    json_t *all;
    (void)state;
    scratch_write("mine.ini", "[cpu]\nthreads = 2\n");
    all = run_json("config --config mine.ini --set cpu.spin=7 --json", 0);
    assert_true(json_array_size(all) > 20);
    e = pick(all, "key", "cpu.threads");
    assert_string_equal(text_of(e, "value"), "2");
    assert_string_equal(text_of(e, "default"), "0");
    assert_string_equal(text_of(e, "origin"), "mine.ini:2");
    assert_string_equal(text_of(e, "type"), "int");
    assert_string_equal(text_of(e, "range"), "0..512");
    assert_true(strlen(text_of(e, "help")) > 0);
    assert_string_equal(text_of(pick(all, "key", "cpu.spin"), "origin"), "command line");
    assert_string_equal(text_of(pick(all, "key", "kv.type_k"), "origin"), "built-in");
    json_decref(all);
    all = run_json("config kv --json", 0); /* one section */
    assert_int_equal(json_array_size(all), 3);
    json_decref(all);
    all = run_json("config kv.type_k --json", 0); /* one key */
    assert_int_equal(json_array_size(all), 1);
    json_decref(all);
}

/* What a plugin declares is listed like the core's own keys. */
static void config_of_plugins(void **state)
{
    const json_t *e;
    json_t *all = run_json("config plugin.good --json --plugin " FIXTURES "atsinfer-good.so "
                           "--set plugin.good.level=5",
                           0);
    (void)state;
    e = pick(all, "key", "plugin.good.level");
    assert_string_equal(text_of(e, "value"), "5");
    assert_string_equal(text_of(e, "default"), "3");
    assert_string_equal(text_of(e, "range"), "0..9");
    assert_string_equal(text_of(e, "origin"), "command line");
    json_decref(all);
}

/* The printed text, origins included, is an ini that gives the same settings. */
static void config_reads_its_own_output(void **state)
{
    static const char args[] =
        "config --show-origin --set cpu.threads=3 --set 'model.path=a ;b #c' "
        "--set 'policy.rule.7=ffn = cpu' --set memory.vram=80%m";
    int code;
    char *first = run_tool(args, &code), *plain, *again;
    (void)state;
    assert_int_equal(code, 0);
    assert_non_null(strstr(first, "# command line\nthreads = 3\n"));
    assert_non_null(strstr(first, "# command line\npath = a ;b #c\n"));
    scratch_write("printed.ini", first);
    plain = run_tool("config --config printed.ini", &code);
    assert_int_equal(code, 0);
    assert_non_null(strstr(plain, "threads = 3\n"));
    assert_non_null(strstr(plain, "path = a ;b #c\n"));
    assert_non_null(strstr(plain, "7 = ffn = cpu\n"));
    assert_non_null(strstr(plain, "vram = 80%m\n"));
    assert_null(strstr(plain, "*"));
    scratch_write("again.ini", plain);
    again = run_tool("config --config again.ini", &code);
    assert_int_equal(code, 0);
    assert_string_equal(again, plain);
    free(again);
    free(plain);
    free(first);
}

/* ---------------------------------------------------------------- plugins */
static void plugins_as_json(void **state)
{
    char abi[32];
    const json_t *p, *c;
    json_t *o = run_json("plugins --json", 0);
    (void)state;
    (void)snprintf(abi, sizeof abi, "%u.%u", ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
    assert_string_equal(text_of(o, "abi"), abi);
    p = pick(json_object_get(o, "plugins"), "name", "gguf");
    assert_true(json_is_true(json_object_get(p, "loaded")));
    assert_string_equal(text_of(p, "abi"), abi);
    c = pick(json_object_get(p, "components"), "name", "gguf");
    assert_string_equal(text_of(c, "kind"), "loader");
    assert_string_equal(
        text_of(pick(json_object_get(o, "searched"), "origin", "this installation"), "folder"),
        ATSI_BINARY_DIR "/lib/atsinfer");
    json_decref(o);
}

/* Asked for by name, a backend tells what it computes with. */
static void capabilities_of_a_backend(void **state)
{
    const json_t *c, *weights;
    bool found = false;
    json_t *o = run_json("plugins cpu_ref --json", 0);
    (void)state;
    assert_int_equal(json_array_size(json_object_get(o, "plugins")), 1);
    c = pick(json_object_get(json_array_get(json_object_get(o, "plugins"), 0), "components"),
             "kind", "backend");
    assert_string_equal(text_of(c, "state"), "usable");
    weights = json_object_get(c, "weights");
    for (size_t i = 0; i < json_array_size(weights); i++)
        found = found || strcmp(json_string_value(json_array_get(weights, i)), "Q4_K") == 0;
    assert_true(found);
    json_decref(o);
}

static void parameters_of_a_plugin(void **state)
{
    const json_t *p, *q;
    json_t *o = run_json("plugins good --json --set plugin.good.mode=careful --plugin " FIXTURES
                         "atsinfer-good.so",
                         0);
    (void)state;
    p = pick(json_object_get(o, "plugins"), "name", "good");
    q = pick(json_object_get(p, "params"), "key", "plugin.good.mode");
    assert_string_equal(text_of(q, "value"), "careful");
    assert_string_equal(text_of(q, "default"), "quick");
    assert_string_equal(text_of(q, "range"), "quick|careful");
    json_decref(o);
}

/* Broken plugins are listed with the reason; a name that is no UTF-8 does not spoil the list. */
static void refused_plugins_are_listed(void **state)
{
    const json_t *p;
    json_t *o;
    (void)state;
    scratch_mkdir("more");
    assert_int_equal(
        symlink(FIXTURES "atsinfer-wrong_major.so", scratch_path("more/atsinfer-wrong_major.so")),
        0);
    scratch_write("more/atsinfer-\xff.so", "");
    assert_int_equal(setenv("ATSINFER_PLUGIN_PATH", scratch_path("more"), 1), 0);
    o = run_json("plugins --json", 0);
    p = pick(json_object_get(o, "plugins"), "name", "wrong_major");
    assert_true(json_is_false(json_object_get(p, "loaded")));
    assert_non_null(strstr(text_of(p, "why"), "7."));
    assert_non_null(strstr(text_of(p, "path"), "atsinfer-wrong_major.so"));
    assert_true(
        json_is_false(json_object_get(pick(json_object_get(o, "plugins"), "name", "?"), "loaded")));
    json_decref(o);
}

static void devices_that_do_not_open_say_so(void **state)
{
    int code;
    char *text =
        run_tool("plugins failing_open --plugin " FIXTURES "atsinfer-failing_open.so", &code);
    (void)state;
    assert_int_equal(code, 0);
    assert_non_null(strstr(text, "cannot be opened: device 0 does not answer"));
    free(text);
}

/* ---------------------------------------------------------------- both */
static void exit_codes_and_words(void **state)
{
    static const struct {
        const char *args;
        int code;
        const char *out, *err; /* NULL: not looked at */
    } cases[] = {
        {"config nosuch", 2, NULL, "no key or section nosuch"},
        {"config a b", 2, NULL, "one key or section"},
        {"config --set cpu.treads=1", 2, NULL, "did you mean cpu.threads?"},
        {"config --set cpu.threads=999", 2, NULL, "outside 0..512"},
        {"plugins a b", 2, NULL, "one NAME"},
        {"plugins a --why b", 2, NULL, "one NAME"},
        {"plugins nosuch", 1, "nosuch was not found", NULL},
        {"plugins nosuch --json", 1, "\"plugins\": []", NULL},
        {"plugins --why nosuch", 1, "this installation", NULL},
        {"plugins --why gguf", 0, "looked in, in this order", NULL},
        {"plugins --plugin nowhere.so", 2, NULL, "nowhere.so"},
        {"plugins --plugin " FIXTURES "atsinfer-crash_entry.so", 2, NULL, "signal 11"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char err[2048] = "";
        int code;
        char *out = run_tool(cases[i].args, &code);
        FILE *f = fopen("err", "re");
        assert_non_null(f);
        (void)fread(err, 1, sizeof err - 1, f);
        assert_int_equal(fclose(f), 0);
        if (code != cases[i].code)
            fail_msg("%s: exit code %d, expected %d: %s", cases[i].args, code, cases[i].code, err);
        if (cases[i].out != NULL && strstr(out, cases[i].out) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].args, out, cases[i].out);
        if (cases[i].err != NULL && strstr(err, cases[i].err) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", cases[i].args, err, cases[i].err);
        free(out);
    }
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_enter, scratch_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(config_as_json),
        TEST(config_of_plugins),
        TEST(config_reads_its_own_output),
        TEST(plugins_as_json),
        TEST(capabilities_of_a_backend),
        TEST(parameters_of_a_plugin),
        TEST(refused_plugins_are_listed),
        TEST(devices_that_do_not_open_say_so),
        TEST(exit_codes_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
