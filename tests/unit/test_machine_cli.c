/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer topology` and `atsinfer doctor` as scripts use them: their JSON on described machines,
 * and the exit codes.
 */
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

#define TOOL ATSI_BINARY_DIR "/bin/atsinfer"
#define HYBRID ATSI_SOURCE_DIR "/tests/data/topo/hybrid-8p-8e.xml"
#define HASWELL ATSI_SOURCE_DIR "/tests/data/cpuid/haswell.txt"

/* Runs the tool with fixed arguments of the tests below; its JSON (or NULL) and its exit code. */
static json_t *run_tool(const char *args, int *code_out)
{
    char command[2048];
    json_error_t error;
    json_t *o;
    FILE *p;
    int status;
    (void)snprintf(command, sizeof command, "cd /tmp && " TOOL " %s 2>/dev/null", args);
    p = popen(command, "r"); /* NOLINT(cert-env33-c): constant commands of a test */
    assert_non_null(p);
    o = json_loadf(p, 0, &error);
    while (fgetc(p) != EOF) /* so that the tool does not see a closed pipe */
        ;
    status = pclose(p);
    assert_true(WIFEXITED(status));
    *code_out = WEXITSTATUS(status);
    return o;
}

static json_int_t integer(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static bool has_string(const json_t *array, const char *s)
{
    size_t i;
    json_t *v;
    json_array_foreach(array, i, v) if (json_is_string(v) &&
                                        strcmp(json_string_value(v), s) == 0) return true;
    return false;
}

static void topology_of_a_described_machine(void **state)
{
    int code;
    json_t *o =
        run_tool("topology --json --set cpu.topology=" HYBRID " --set cpu.cores=all", &code);
    (void)state;
    assert_int_equal(code, 0);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "cpu_model")),
                        "Example hybrid processor");
    assert_string_equal(json_string_value(json_object_get(o, "described_by")), HYBRID);
    assert_int_equal(integer(o, "n_cpus"), 24);
    assert_int_equal(integer(o, "n_cores"), 16);
    assert_int_equal(integer(o, "n_kinds"), 2);
    assert_int_equal(json_array_size(json_object_get(o, "cpus")), 24);
    assert_int_equal(json_array_size(json_object_get(o, "caches")), 3);
    assert_int_equal(json_array_size(json_object_get(o, "workers")), 16);
    json_decref(o);
}

/* Capabilities are split into those in use and those taken away, never in both. */
static void masked_capabilities_are_reported(void **state)
{
    int code;
    json_t *all = run_tool("topology --json", &code), *few, *used, *masked;
    size_t n_all, i;
    json_t *v;
    (void)state;
    assert_int_equal(code, 0);
    n_all = json_array_size(json_object_get(all, "caps"));
    assert_int_equal(json_array_size(json_object_get(all, "caps_masked")), 0);
    few = run_tool("topology --json --set cpu.caps_mask=-avx", &code);
    assert_int_equal(code, 0);
    used = json_object_get(few, "caps");
    masked = json_object_get(few, "caps_masked");
    assert_int_equal(json_array_size(used) + json_array_size(masked), n_all);
    assert_false(has_string(used, "avx"));
    assert_false(has_string(used, "avx2"));
    json_array_foreach(masked, i, v) assert_false(has_string(used, json_string_value(v)));
    json_decref(few);
    few = run_tool("topology --json --set cpu.caps_file=" HASWELL, &code);
    assert_int_equal(code, 0);
    assert_false(has_string(json_object_get(few, "caps"), "avx512f"));
    json_decref(few);
    json_decref(all);
}

/* A finding of this level and topic whose text contains `words`. */
static bool has_finding(const json_t *o, const char *level, const char *topic, const char *words)
{
    size_t i;
    json_t *f;
    json_array_foreach(json_object_get(o, "findings"), i,
                       f) if (strcmp(json_string_value(json_object_get(f, "level")), level) == 0 &&
                              strcmp(json_string_value(json_object_get(f, "topic")), topic) == 0 &&
                              strstr(json_string_value(json_object_get(f, "text")), words) !=
                                  NULL) return true;
    return false;
}

static const struct {
    const char *args;
    int code;
    const char *level, *topic, *words; /* NULL level: no JSON is expected */
} doctor_cases[] = {
    {"doctor --json", 0, "ok", "plugins", "in use"},
    {"doctor --json", 0, "ok", "memory", "available"},
    {"doctor --json --set cpu.caps_mask=-sse42", 0, "ok", "setting", "cpu.caps_mask = -sse42"},
    {"doctor --json --set cpu.caps_mask=none", 0, "note", "plugin", "cpu_avx2 is not used"},
    {"doctor --json --set cpu.caps_mask=none", 0, "note", "cpu", "masked"},
    {"doctor --json -t 500", 0, "note", "workers", "share"},
    {"doctor --json --set cpu.topology=" HYBRID, 0, "note", "topology", "described by"},
    {"doctor --json -m /nonexistent.gguf", 1, "problem", "model", "/nonexistent.gguf"},
    {"doctor --json -m " HASWELL, 1, "problem", "model", "haswell.txt"},
    {"doctor --json --set cpu.cpus=4000", 2, NULL, NULL, NULL},
    {"doctor --json --set cpu.caps_mask=avx521f", 2, NULL, NULL, NULL},
    {"doctor --json extra", 2, NULL, NULL, NULL},
    {"topology --bogus", 2, NULL, NULL, NULL},
    {"topology extra", 2, NULL, NULL, NULL},
};

static void doctor_finds_what_is_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof doctor_cases / sizeof doctor_cases[0]; i++) {
        int code;
        json_t *o = run_tool(doctor_cases[i].args, &code);
        if (code != doctor_cases[i].code)
            fail_msg("%s: exit code %d, expected %d", doctor_cases[i].args, code,
                     doctor_cases[i].code);
        if (doctor_cases[i].level == NULL) {
            assert_null(o);
            continue;
        }
        assert_int_equal(integer(o, "exit_code"), code);
        assert_int_equal(json_is_true(json_object_get(o, "ready")), code == 0);
        if (!has_finding(o, doctor_cases[i].level, doctor_cases[i].topic, doctor_cases[i].words))
            fail_msg("%s: no %s about %s with \"%s\"", doctor_cases[i].args, doctor_cases[i].level,
                     doctor_cases[i].topic, doctor_cases[i].words);
        json_decref(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(topology_of_a_described_machine),
        cmocka_unit_test(masked_capabilities_are_reported),
        cmocka_unit_test(doctor_finds_what_is_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
