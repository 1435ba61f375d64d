/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy new`: writes a small, complete policy to start from.  It is the one of
 * examples/policy_greedy, which tests build and run, under another name.
 */
#include "cli/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OLD_NAME "policy_greedy"
enum { MAX_NAME = 40 }; /* of plugins: docs/abi.md */

static const struct cli_option options[] = {{.name = NULL}};

/* Three files: all are written, or none. */
struct output {
    const char *suffix; /* of NAME; or the whole name of the file */
    bool whole;
    const char *text;
    char path[PATH_MAX];
    bool made;
};

static int check_name(const char *name)
{
    static const char *const taken[] = {"policy_static", "policy_dp", "sim", "gguf"};
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != n ||
        name[0] < 'a')
        return cli_fail(CLI_USAGE,
                        "\"%.60s\": a plugin's name is 1 to %d of a-z, 0-9 and _, a letter first",
                        name, MAX_NAME);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        if (strcmp(name, taken[i]) == 0)
            return cli_fail(CLI_USAGE, "%s comes with atsinfer; take another name", name);
    return CLI_OK;
}

/* Writes text with the name exchanged. */
static bool write_text(FILE *f, const char *text, const char *name)
{
    for (;;) {
        const char *next = strstr(text, OLD_NAME);
        if (next == NULL)
            return fputs(text, f) != EOF;
        if (fwrite(text, 1, (size_t)(next - text), f) != (size_t)(next - text) ||
            fputs(name, f) == EOF)
            return false;
        text = next + strlen(OLD_NAME);
    }
}

/* A file that was not there before. */
static int write_file(struct output *o, const char *name)
{
    int fd = open(o->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    bool good;
    if (fd < 0 && errno == EEXIST)
        return cli_fail(CLI_USAGE, "%s is there already; nothing was written", o->path);
    o->made = fd >= 0;
    if (f == NULL) {
        int why = errno;
        if (fd >= 0)
            (void)close(fd);
        return cli_fail(CLI_RUN_ERROR, "%s: %s", o->path, strerror(why));
    }
    good = write_text(f, o->text, name);
    if (fclose(f) != 0 || !good)
        return cli_fail(CLI_RUN_ERROR, "%s: %s", o->path, strerror(errno));
    return CLI_OK;
}

static int write_all(struct output *out, size_t n, const char *dir, const char *name)
{
    bool made_dir = mkdir(dir, 0755) == 0;
    int code = CLI_OK;
    if (!made_dir && errno != EEXIST)
        return cli_fail(CLI_RUN_ERROR, "%s: %s", dir, strerror(errno));
    for (size_t i = 0; i < n && code == CLI_OK; i++) {
        if (snprintf(out[i].path, sizeof out[i].path, "%s/%s%s", dir, out[i].whole ? "" : name,
                     out[i].suffix) >= (int)sizeof out[i].path)
            code = cli_fail(CLI_USAGE, "%.60s...: the path is too long", dir);
        else
            code = write_file(&out[i], name);
    }
    for (size_t i = 0; i < n && code != CLI_OK; i++)
        if (out[i].made)
            (void)unlink(out[i].path);
    if (code != CLI_OK && made_dir)
        (void)rmdir(dir);
    return code;
}

static int run(int argc, char **argv)
{
    struct output out[] = {{.suffix = ".c", .text = policy_template_c},
                           {.suffix = "Makefile", .whole = true, .text = policy_template_makefile},
                           {.suffix = "README.md", .whole = true, .text = policy_template_readme}};
    const char *name, *dir;
    int n_pos, code = cli_parse(&policy_cmd_new, options, argc, argv, &n_pos);
    if (code != -1)
        return code;
    if (n_pos < 1 || n_pos > 2)
        return cli_fail(CLI_USAGE, "expected: atsinfer policy new NAME [DIR]");
    name = argv[1];
    dir = n_pos == 2 ? argv[2] : name;
    code = check_name(name);
    if (code == CLI_OK)
        code = write_all(out, sizeof out / sizeof out[0], dir, name);
    if (code != CLI_OK)
        return code;
    (void)printf("%s\n%s\n%s\n`make -C %s` builds it, `make -C %s check` tests it\n", out[0].path,
                 out[1].path, out[2].path, dir, dir);
    return cli_finish_stdout(CLI_OK);
}

const struct cli_command policy_cmd_new = {
    .name = "new",
    .summary = "write a small policy to start from",
    .usage = "atsinfer policy new NAME [DIR]",
    .run = run,
};
