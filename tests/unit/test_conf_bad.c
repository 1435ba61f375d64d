/* SPDX-License-Identifier: Apache-2.0
 * Settings that are refused: each with one line that says where and what. */
#include "core/conf.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void refuse(const char *config, const char *const *overrides, const char *message)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c = NULL;
    int rc = atsi_conf_open(config, overrides, &c, &err);
    if (rc != ATSI_ECONF)
        fail_msg("status %d (%s), expected: %s", rc, err.msg, message);
    assert_null(c);
    assert_string_equal(err.msg, message);
}

static void files(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"[cpu]\nthread = 1\n", "bad.ini:2: unknown key cpu.thread; did you mean cpu.threads?"},
        {"[zzzzzzzzzzzz]\nyyyyyyyyyyyy = 1\n",
         "bad.ini:2: unknown key zzzzzzzzzzzz.yyyyyyyyyyyy; `atsinfer config` lists all keys"},
        {"[policy]\nrule.x = a\n",
         "bad.ini:2: unknown key policy.rule.x; did you mean policy.rule.N?"},
        {"[policy]\nrule.123456789 = a\n",
         "bad.ini:2: unknown key policy.rule.123456789; `atsinfer config` lists all keys"},
        {"[cpu]\nthreads = 1\nspin = 1\nthreads = 2\n",
         "bad.ini:4: key set before in line 2: \"cpu.threads\""},
        {"[cpu]\nthreads = 1\n[kv]\n[cpu]\nthreads = 1\n",
         "bad.ini:5: key set before in line 2: \"cpu.threads\""},
        {"threads = 1\n", "bad.ini:1: key outside any [section]: \"threads\""},
        {"[cpu]\nthreads\n",
         "bad.ini:2: expected key = value, [section] or a comment: \"threads\""},
        {"[cpu]\nthreads: 1\n",
         "bad.ini:2: expected key = value, [section] or a comment: \"threads: 1\""},
        {"[cpu]\n= 1\n", "bad.ini:2: expected key = value, [section] or a comment: \"= 1\""},
        {"[cpu]\nthreads:x = 1\n", "bad.ini:2: not a key: \"threads:x\""},
        {"[cpu]\nthreads ;x = 1\n", "bad.ini:2: not a key: \"threads ;x\""},
        {"[cpu\nthreads = 1\n", "bad.ini:1: not a section like [name]: \"[cpu\""},
        {"[]\n", "bad.ini:1: not a section like [name]: \"[]\""},
        {"[cpu] x\n", "bad.ini:1: not a section like [name]: \"[cpu] x\""},
        {"[cpu ;x]\n", "bad.ini:1: not a section like [name]: \"[cpu ;x]\""},
        {"[cpu]\n\xef\xbb\xbf"
         "spin = 1\n",
         "bad.ini:2: not a key: \"\xef\xbb\xbfspin\""},
        {"[cpu]\nthreads = many\n", "bad.ini:2: cpu.threads: \"many\" is not a whole number"},
        {"[cpu]\nthreads = 3 ; three\n",
         "bad.ini:2: cpu.threads: \"3 ; three\" is not a whole number"},
        {"[cpu]\nthreads =\n", "bad.ini:2: cpu.threads: \"\" is not a whole number"},
        {"[cpu]\nthreads = -1\n", "bad.ini:2: cpu.threads: -1 is outside 0..512"},
        {"[cpu]\ncores = e\n", "bad.ini:2: cpu.cores: \"e\" is not one of p|all"},
        {"[memory]\nvram = 120%\n",
         "bad.ini:2: memory.vram: \"120%\" is not auto, a size such as 6GiB or a percentage"},
        {"[memory]\nvram_margin = lots\n",
         "bad.ini:2: memory.vram_margin: \"lots\" is not a size such as 512MiB"},
        {"[cpu]\n0123456789012345678901234567890123456789012345678 = 1\n",
         "bad.ini:2: key is too long: \"0123456789012345678901234567890123456789012345678\""},
        {"[0123456789012345678901234567890123456789012345678]\n",
         "bad.ini:1: section name is too long: "
         "\"[0123456789012345678901234567890123456789012345678]\""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_write("bad.ini", cases[i].text);
        refuse("bad.ini", NULL, cases[i].message);
    }
}

static void nul_byte(void **state)
{
    (void)state;
    scratch_write_bytes("bad.ini", "[cpu]\nthr\0eads = 1\n", 19);
    refuse("bad.ini", NULL, "bad.ini:2: the line holds a NUL byte: \"\"");
}

/* A found file is as strict as a named one. */
static void found_file(void **state)
{
    (void)state;
    scratch_write("atsinfer.ini", "[cpu]\nspins = 1\n");
    refuse(NULL, NULL, "./atsinfer.ini:2: unknown key cpu.spins; did you mean cpu.spin?");
}

static void unreadable(void **state)
{
    (void)state;
    refuse("absent.ini", NULL, "absent.ini: No such file or directory");
    scratch_write("file", "");
    refuse("file/x.ini", NULL, "file/x.ini: Not a directory");
    scratch_mkdir("folder");
    refuse("folder", NULL, "folder: Is a directory");
    scratch_write("secret.ini", "");
    assert_int_equal(chmod(scratch_path("secret.ini"), 0), 0);
    assert_int_equal(chmod(scratch_path("."), 0755), 0);
    if (geteuid() == 0) { /* root may read everything */
        assert_int_equal(seteuid(65534), 0);
        refuse(scratch_path("secret.ini") + strlen(scratch_path("")), NULL,
               "secret.ini: Permission denied");
        assert_int_equal(seteuid(0), 0);
    } else {
        refuse("secret.ini", NULL, "secret.ini: Permission denied");
    }
}

static void environment(void **state)
{
    static const struct {
        const char *name, *value, *message;
    } cases[] = {
        {"ATSINFER_CPU_THREADS", "x",
         "environment ATSINFER_CPU_THREADS: cpu.threads: \"x\" is not a whole number"},
        {"ATSINFER_CPU_THREAD", "1",
         "environment ATSINFER_CPU_THREAD: no such setting; did you mean ATSINFER_CPU_THREADS"},
        {"ATSINFER_SOMETHING_ELSE_ENTIRELY", "1",
         "environment ATSINFER_SOMETHING_ELSE_ENTIRELY: no such setting"},
        {"ATSINFER_POLICY_RULE_A", "x",
         "environment ATSINFER_POLICY_RULE_A: unknown key policy.rule.A; did you mean "
         "policy.rule.N?"},
    };
    char longest[256] = "ATSINFER_";
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(setenv(cases[i].name, cases[i].value, 1), 0);
        refuse(NULL, NULL, cases[i].message);
        assert_int_equal(unsetenv(cases[i].name), 0);
    }
    memset(longest + 9, 'A', 200);
    assert_int_equal(setenv(longest, "1", 1), 0);
    refuse(
        NULL, NULL,
        "environment ATSINFER_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
        "AAAA...: no such setting");
    assert_int_equal(unsetenv(longest), 0);
}

static void overrides(void **state)
{
    static const char *const one[][2] = {{"cpu.threads", NULL},     {"cpu.threads=x", NULL},
                                         {"cpu.treads=1", NULL},    {"=1", NULL},
                                         {"policy.rule.*=x", NULL}, {"threads=1", NULL}};
    static const char *const messages[] = {
        "command line: \"cpu.threads\": expected SECTION.KEY=VALUE",
        "command line: cpu.threads: \"x\" is not a whole number",
        "command line: unknown key cpu.treads; did you mean cpu.threads?",
        "command line: \"=1\": expected SECTION.KEY=VALUE",
        "command line: unknown key policy.rule.*; did you mean policy.rule.N?",
        "command line: unknown key threads; did you mean cpu.threads?"};
    (void)state;
    for (size_t i = 0; i < sizeof messages / sizeof messages[0]; i++)
        refuse(NULL, one[i], messages[i]);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_enter, scratch_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files),      TEST(nul_byte),    TEST(found_file),
        TEST(unreadable), TEST(environment), TEST(overrides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
