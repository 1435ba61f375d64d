/* SPDX-License-Identifier: Apache-2.0
 *
 * A setuid program does not trust its caller's environment: neither settings nor plugins come from
 * it.  The test runs a copy of itself with the setuid bit as another user; that needs root.
 */
#include "core/registry.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOBODY 65534

static void silent(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
static void silent(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)who;
    (void)fmt;
}

static int count_good(void *ctx, const struct atsi_plugin_info *p)
{
    *(int *)ctx += strcmp(p->name, "good") == 0;
    return 0;
}

/* What the copy does: prints "secure threads spin plugins" as numbers. */
static int report(void)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_host host = {.struct_size = sizeof host, .log = silent};
    struct atsi_registry_params p = {.host = &host};
    struct atsi_registry *r = NULL;
    int n_good = 0;
    if (atsi_conf_open(NULL, NULL, &p.conf, &err) != ATSI_OK ||
        atsi_registry_open(&p, &r, &err) != ATSI_OK) {
        (void)printf("%s\n", err.msg);
        return 1;
    }
    (void)atsi_registry_plugins_each(r, count_good, &n_good);
    (void)printf("%d %d %d %d\n", getauxval(AT_SECURE) != 0,
                 (int)atsi_conf_int(p.conf, "cpu.threads"), (int)atsi_conf_int(p.conf, "cpu.spin"),
                 n_good);
    atsi_registry_close(r);
    atsi_conf_close(p.conf);
    return 0;
}

static void copy_file(const char *from, const char *to, mode_t mode)
{
    static char buffer[1 << 16];
    char path[512];
    size_t n;
    FILE *in = fopen(from, "re"), *out;
    scratch_write(to, "");
    (void)snprintf(path, sizeof path, "%s", scratch_path(to));
    out = fopen(path, "we");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(buffer, 1, sizeof buffer, in)) > 0)
        assert_int_equal(fwrite(buffer, 1, n, out), n);
    assert_int_equal(fclose(in) | fclose(out), 0);
    assert_int_equal(chmod(path, mode), 0);
}

/* Runs the copy as `uid` and returns its line. */
static void run_as(uid_t uid, char *line, int size)
{
    int fds[2], status;
    char path[512];
    FILE *in;
    pid_t pid;
    (void)snprintf(path, sizeof path, "%s", scratch_path("copy"));
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (dup2(fds[1], STDOUT_FILENO) < 0 || setuid(uid) != 0)
            _exit(1);
        (void)execl(path, "copy", "report", (char *)NULL);
        _exit(1);
    }
    assert_int_equal(close(fds[1]), 0);
    in = fdopen(fds[0], "r");
    assert_non_null(in);
    line[0] = '\0';
    (void)fgets(line, size, in);
    assert_int_equal(fclose(in), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the copy ended with status %d: %s", status, line);
}

/* Settings and a plugin, reachable through the environment alone. */
static void fill_environment(void)
{
    static const char good[] = ATSI_BINARY_DIR "/tests/plugins/atsinfer-good.so";
    copy_file(good, "more/atsinfer-good.so", 0755);
    copy_file(good, "data/atsinfer/plugins/atsinfer-good.so", 0755);
    scratch_write("config/atsinfer/atsinfer.ini", "[cpu]\nspin = 5\n");
    assert_int_equal(setenv("ATSINFER_CPU_THREADS", "3", 1), 0);
    assert_int_equal(setenv("ATSINFER_PLUGIN_PATH", scratch_path("more"), 1), 0);
}

static void the_callers_environment_is_not_trusted(void **state)
{
    char line[600];
    (void)state;
    if (geteuid() != 0) {
        print_message("needs root\n");
        skip();
    }
    copy_file("/proc/self/exe", "copy", 04755);
    assert_int_equal(chmod(scratch_path("."), 0755), 0);
    fill_environment();
    run_as(0, line, sizeof line); /* no change of user: everything counts */
    assert_string_equal(line, "0 3 5 2\n");
    run_as(NOBODY, line, sizeof line);
    if (line[0] == '0') {
        print_message("the folder of temporary files allows no setuid programs\n");
        skip();
    }
    assert_string_equal(line, "1 0 1000 0\n");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_callers_environment_is_not_trusted, scratch_enter,
                                        scratch_leave),
    };
    if (argc == 2 && strcmp(argv[1], "report") == 0)
        return report();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
