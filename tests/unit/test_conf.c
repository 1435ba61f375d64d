/* SPDX-License-Identifier: Apache-2.0
 *
 * Configuration: the order of sources and their origins, what an ini file may hold, and one clear
 * line for everything it may not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/conf.h"
#include "core/log.h"

static char folder[] = "/tmp/atsinfer-conf-XXXXXX";
static char home_ini[PATH_MAX];

/* Each test starts in an empty current folder, with an empty user configuration. */
static int set_up(void **state)
{
    char path[PATH_MAX];
    (void)state;
    (void)unlink("atsinfer.ini");
    (void)unlink("named.ini");
    (void)snprintf(path, sizeof path, "%s/config", folder);
    if (setenv("XDG_CONFIG_HOME", path, 1) != 0)
        return -1;
    (void)snprintf(home_ini, sizeof home_ini, "%.3900s/atsinfer/atsinfer.ini", path);
    (void)unlink(home_ini);
    return 0;
}

static int enter_folder(void **state)
{
    char path[PATH_MAX];
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/config", folder);
    if (mkdir(path, 0700) != 0)
        return -1;
    (void)snprintf(path, sizeof path, "%s/config/atsinfer", folder);
    return mkdir(path, 0700);
}

static int leave_folder(void **state)
{
    char command[PATH_MAX];
    (void)set_up(state);
    (void)snprintf(command, sizeof command, "%s/config/atsinfer", folder);
    (void)rmdir(command);
    (void)snprintf(command, sizeof command, "%s/config", folder);
    (void)rmdir(command);
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

static void write_bytes(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void write_text(const char *path, const char *text)
{
    write_bytes(path, text, strlen(text));
}

static struct atsi_conf *open_good(const char *named, const char *const *overrides)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c = NULL;
    if (atsi_conf_open(named, overrides, &c, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return c;
}

/* Opening fails with ATSI_ECONF and a message that holds both parts. */
static void open_bad(const char *named, const char *const *overrides, const char *part,
                     const char *other)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c = NULL;
    assert_int_equal(atsi_conf_open(named, overrides, &c, &err), ATSI_ECONF);
    assert_null(c);
    if (strstr(err.msg, part) == NULL || strstr(err.msg, other) == NULL)
        fail_msg("\"%s\" lacks \"%s\" or \"%s\"", err.msg, part, other);
    assert_null(strchr(err.msg, '\n'));
}

static void bad_file(const char *text, const char *part, const char *other)
{
    write_text("named.ini", text);
    open_bad("named.ini", NULL, part, other);
}

static void assert_value(const struct atsi_conf *c, const char *key, const char *value,
                         const char *origin)
{
    assert_string_equal(atsi_conf_get(c, key), value);
    if (strstr(atsi_conf_origin(c, key), origin) == NULL)
        fail_msg("origin of %s is \"%s\", not \"%s\"", key, atsi_conf_origin(c, key), origin);
}

/* ---------------------------------------------------------------- sources */
static void later_sources_win_and_are_named(void **state)
{
    const char *overrides[] = {"cpu.spin=5", "prefill.chunk=1", "prefill.chunk=2", NULL};
    struct atsi_conf *c = open_good(NULL, NULL);
    (void)state;
    assert_value(c, "cpu.threads", "0", "built-in");
    atsi_conf_close(c);

    write_text(home_ini, "[cpu]\nthreads = 2\nspin = 7\ncores = all\n[load]\nmode = read\n");
    write_text("atsinfer.ini", "[cpu]\n\nthreads = 3\nspin = 8\n");
    c = open_good(NULL, NULL);
    assert_value(c, "cpu.threads", "3", "./atsinfer.ini:3");
    assert_value(c, "cpu.cores", "all", "config/atsinfer/atsinfer.ini:4");
    atsi_conf_close(c);

    write_text("named.ini", "[cpu]\nspin = 9\n");
    assert_int_equal(setenv("ATSINFER_CPU_THREADS", "4", 1), 0);
    c = open_good("named.ini", overrides);
    assert_value(c, "cpu.threads", "4", "environment ATSINFER_CPU_THREADS");
    assert_value(c, "cpu.spin", "5", "command line");
    assert_value(c, "prefill.chunk", "2", "command line");
    assert_value(c, "load.mode", "read", "atsinfer.ini:6"); /* the user's file still counts */
    assert_int_equal(atsi_conf_int(c, "cpu.threads"), 4);
    atsi_conf_close(c);
    assert_int_equal(unsetenv("ATSINFER_CPU_THREADS"), 0);
}

static void unknown_keys_are_errors_with_the_nearest(void **state)
{
    const char *typo[] = {"cpu.thread=1", NULL}, *no_equals[] = {"cpu.threads", NULL};
    (void)state;
    bad_file("[cpu]\nthreads = 1\nthreds = 2\n", "named.ini:3: unknown key cpu.threds",
             "did you mean cpu.threads?");
    bad_file("[quux]\nfrobnicate = 2\n", "named.ini:2: unknown key quux.frobnicate", "config");
    open_bad(NULL, typo, "command line", "did you mean cpu.threads?");
    open_bad(NULL, no_equals, "command line", "SECTION.KEY=VALUE");
    assert_int_equal(setenv("ATSINFER_CPU_THREDS", "4", 1), 0);
    open_bad(NULL, NULL, "ATSINFER_CPU_THREDS", "ATSINFER_CPU_THREADS");
    assert_int_equal(unsetenv("ATSINFER_CPU_THREDS"), 0);
    open_bad("nowhere.ini", NULL, "nowhere.ini", "No such file");
    open_bad(folder, NULL, folder, "");
}

static void values_are_checked_where_they_are_read(void **state)
{
    (void)state;
    bad_file("[cpu]\nthreads = lots\n", "named.ini:2: cpu.threads", "not a whole number");
    bad_file("[cpu]\nthreads = -1\n", "named.ini:2", "outside 0..512");
    bad_file("[cpu]\nthreads = 1.5\n", "named.ini:2", "not a whole number");
    bad_file("[cpu]\nthreads = 99999999999999999999\n", "named.ini:2", "not a whole number");
    bad_file("[kv]\ntype_k = q9\n", "named.ini:2: kv.type_k", "f16|f32");
    bad_file("[memory]\nvram_margin = big\n", "named.ini:2", "512MiB");
    bad_file("[memory]\nvram = 120%\n", "named.ini:2", "percentage");
}

/* ---------------------------------------------------------------- the file itself */
static void malformed_lines_name_file_and_line(void **state)
{
    static const char nul[] = "[cpu]\nthreads = 1\0\n";
    (void)state;
    bad_file("[cpu]\nthreads\n", "named.ini:2", "key = value");
    bad_file("[cpu\nthreads = 1\n", "named.ini:1", "section");
    bad_file("[cpu] x\nthreads = 1\n", "named.ini:1", "section");
    bad_file("threads = 1\n", "named.ini:1", "outside any [section]");
    bad_file("[cpu]\n= 1\n", "named.ini:2", "key = value");
    bad_file("[cpu]\nthreads = 1\n[kv]\n[cpu]\nthreads = 2\n", "named.ini:5",
             "set before in line 2");
    write_bytes("named.ini", nul, sizeof nul - 1);
    open_bad("named.ini", NULL, "named.ini:2", "NUL");
    bad_file("[aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa]\nb = 1\n",
             "named.ini:1", "too long");
}

static void values_keep_what_inih_would_cut(void **state)
{
    char *text = malloc(12000), *rule = malloc(11000);
    struct atsi_conf *c;
    (void)state;
    assert_non_null(text);
    assert_non_null(rule);
    memset(rule, 'x', 10000);
    (void)snprintf(rule + 10000, 1000, " ; and # too = cpu");
    (void)snprintf(text, 12000,
                   "\xef\xbb\xbf; comment\r\n# another\r\n[policy]\r\n  rule.1 =  %s  \r\n"
                   "\trule.22 = b\r\n[cpu]\r\nthreads=1",
                   rule);
    write_text("named.ini", text);
    c = open_good("named.ini", NULL);
    assert_value(c, "policy.rule.1", rule, "named.ini:4");
    assert_value(c, "policy.rule.22", "b", "named.ini:5");
    assert_value(c, "cpu.threads", "1", "named.ini:7"); /* no newline at the end */
    atsi_conf_close(c);
    free(rule);
    free(text);
    write_text("named.ini", "");
    atsi_conf_close(open_good("named.ini", NULL));
}

/* ---------------------------------------------------------------- plugins */
static const struct atsi_param depth = {.struct_size = sizeof depth,
                                        .type = ATSI_PARAM_INT,
                                        .key = "depth",
                                        .def = "2",
                                        .choices = "1..8",
                                        .help = "How deep."};
static const struct atsi_param kind = {.struct_size = sizeof kind,
                                       .type = ATSI_PARAM_CHOICE,
                                       .key = "kind",
                                       .def = "fast",
                                       .choices = "fast|slow",
                                       .help = "Which way."};
static const struct atsi_param *const params[] = {&depth, &kind, NULL};

static void parameters_take_settings_read_before(void **state)
{
    const char *overrides[] = {"plugin.mine.depth=5", "plugin.other.x=1", NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c;
    (void)state;
    assert_int_equal(setenv("ATSINFER_PLUGIN_MINE_KIND", "slow", 1), 0);
    c = open_good(NULL, overrides);
    assert_null(atsi_conf_get(c, "plugin.mine.depth")); /* nobody declared it yet */
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_OK);
    assert_value(c, "plugin.mine.depth", "5", "command line");
    assert_value(c, "plugin.mine.kind", "slow", "ATSINFER_PLUGIN_MINE_KIND");
    assert_int_equal(atsi_conf_check_plugins(c, NULL, &err), ATSI_OK); /* other: not loaded */
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_EINVAL);
    atsi_conf_close(c);
    assert_int_equal(unsetenv("ATSINFER_PLUGIN_MINE_KIND"), 0);
}

static void bad_settings_of_a_loaded_plugin_are_errors(void **state)
{
    const char *range[] = {"plugin.mine.depth=9", NULL}, *unknown[] = {"plugin.mine.dept=3", NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c = open_good(NULL, range);
    (void)state;
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_ECONF);
    assert_non_null(strstr(err.msg, "1..8"));
    atsi_conf_close(c);
    c = open_good(NULL, unknown);
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_OK);
    assert_int_equal(atsi_conf_check_plugins(c, NULL, &err), ATSI_ECONF);
    assert_non_null(strstr(err.msg, "did you mean plugin.mine.depth?"));
    atsi_conf_close(c);
}

static void a_found_file_may_not_name_plugin_folders(void **state)
{
    struct atsi_conf *c;
    (void)state;
    write_text("atsinfer.ini", "[plugins]\npath = /somewhere\n");
    c = open_good(NULL, NULL);
    assert_true(atsi_conf_plugin_path_untrusted(c));
    atsi_conf_close(c);
    c = open_good("atsinfer.ini", NULL); /* named on purpose */
    assert_false(atsi_conf_plugin_path_untrusted(c));
    assert_value(c, "plugins.path", "/somewhere", "atsinfer.ini:2");
    atsi_conf_close(c);
}

/* ---------------------------------------------------------------- the shipped file */
struct shipped {
    FILE *out;
    uint32_t n;
};

/* A copy of the shipped ini with every "#key = default" uncommented. */
static void uncomment(const char *from, const char *to)
{
    FILE *in = fopen(from, "re"), *out = fopen(to, "we");
    char line[1024];
    assert_non_null(in);
    assert_non_null(out);
    while (fgets(line, sizeof line, in) != NULL) {
        bool setting = line[0] == '#' && line[1] != ' ' && line[1] != '\n';
        assert_true(fputs(setting ? line + 1 : line, out) >= 0);
    }
    assert_int_equal(fclose(in), 0);
    assert_int_equal(fclose(out), 0);
}

static int compare_entry(void *ctx, const struct atsi_conf_entry *e)
{
    struct shipped *s = ctx;
    if (strcmp(e->key, "policy.rule.*") == 0)
        return 0; /* shown as rule.1 */
    assert_string_equal(e->value, e->def);
    if (strstr(e->origin, "named.ini:") == NULL)
        fail_msg("%s is not in the shipped atsinfer.ini", e->key);
    s->n++;
    return 0;
}

static void the_shipped_ini_lists_every_key_with_its_default(void **state)
{
    struct shipped s = {NULL, 0};
    struct atsi_conf *c;
    (void)state;
    uncomment(ATSI_SOURCE_DIR "/atsinfer.ini", "named.ini");
    c = open_good("named.ini", NULL);
    assert_int_equal(atsi_conf_each(c, compare_entry, &s), 0);
    assert_true(s.n > 25);
    atsi_conf_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(later_sources_win_and_are_named, set_up),
        cmocka_unit_test_setup(unknown_keys_are_errors_with_the_nearest, set_up),
        cmocka_unit_test_setup(values_are_checked_where_they_are_read, set_up),
        cmocka_unit_test_setup(malformed_lines_name_file_and_line, set_up),
        cmocka_unit_test_setup(values_keep_what_inih_would_cut, set_up),
        cmocka_unit_test_setup(parameters_take_settings_read_before, set_up),
        cmocka_unit_test_setup(bad_settings_of_a_loaded_plugin_are_errors, set_up),
        cmocka_unit_test_setup(a_found_file_may_not_name_plugin_folders, set_up),
        cmocka_unit_test_setup(the_shipped_ini_lists_every_key_with_its_default, set_up),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
