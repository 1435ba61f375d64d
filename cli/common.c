/* SPDX-License-Identifier: Apache-2.0
 *
 * What every subcommand needs around the library: messages, signals, opening the runtime and the
 * model, and the demo model that answers when none is named.
 */
#include "cli/options.h"
#include "cli/resolve.h"
#include "cli/session.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

volatile int cli_interrupted;

int cli_exit_code(int status)
{
    switch (status) {
    case ATSI_OK:
        return CLI_OK;
    case ATSI_ECONF:
        return CLI_USAGE;
    case ATSI_ENOFIT:
    case ATSI_ENODEV:
        return CLI_NO_FIT;
    case ATSI_EFAIL:
        return CLI_SELF_TEST;
    case ATSI_EINTR:
        return CLI_INTERRUPTED;
    default:
        return CLI_RUN_ERROR;
    }
}

/* Whether what begins at `at` would move a terminal's cursor, or worse: a control character, also
 * as UTF-8 has those from U+0080 on.  Messages quote what stands in files of any origin. */
static bool is_control(const char *at)
{
    unsigned char c = (unsigned char)at[0], d = c != '\0' ? (unsigned char)at[1] : 0;
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ||
           (c == 0xc2 && d >= 0x80 && d < 0xa0);
}

static void put_clean(const char *s)
{
    for (; *s != '\0'; s++) {
        bool control = is_control(s);
        (void)fputc(control ? '?' : *s, stderr);
        s += control && (unsigned char)*s == 0xc2;
    }
}

static void put_message(const char *kind, const char *fmt, va_list ap) ATSI_PRINTF(2, 0);

static void put_message(const char *kind, const char *fmt, va_list ap)
{
    char *text = NULL;
    (void)fprintf(stderr, "atsinfer: %s: ", kind);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL; /* undefined then */
    put_clean(text != NULL ? text : "out of memory");
    (void)fputc('\n', stderr);
    free(text);
}

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_message("error", fmt, ap);
    va_end(ap);
    return code;
}

int cli_fail_status(int status, const struct atsi_err *err)
{
    const char *words = err != NULL && err->msg[0] != '\0' ? err->msg : atsi_strerror(status);
    return cli_fail(cli_exit_code(status), "%s", words);
}

void cli_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    put_message("warning", fmt, ap);
    va_end(ap);
}

static volatile sig_atomic_t exit_at_once;

static void on_signal(int sig)
{
    if (exit_at_once != 0 || (cli_interrupted != 0 && sig == SIGINT))
        _exit(CLI_INTERRUPTED);
    cli_interrupted = 1;
}

/* A file that is mapped can be cut short by others: what was behind its end is gone, and whoever
 * reads it, a worker too, gets this. */
static void on_lost_page(int sig, siginfo_t *info, void *context)
{
    static const char words[] =
        "atsinfer: error: a page of a mapped file could not be read: the file was cut short, or "
        "its disk failed, while it was in use; load.mode = read would have read all of it at the "
        "start\n";
    ssize_t n;
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        (void)signal(sig, SIG_DFL); /* the access is tried again, and ends the process */
        return;
    }
    n = write(STDERR_FILENO, words, sizeof words - 1);
    (void)n; /* nowhere else to say it */
    _exit(CLI_RUN_ERROR);
}

/* What the operator changed in the ini is taken up between two rounds. */
static void on_settings(int sig)
{
    (void)sig;
    atsi_settings_changed();
}

void cli_exit_on_signal(bool on)
{
    exit_at_once = on;
    if (on && cli_interrupted != 0) /* it came before */
        _exit(CLI_INTERRUPTED);
}

void cli_catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal};
    (void)sigemptyset(&sa.sa_mask);
    (void)sigaction(SIGINT, &sa, NULL);
    (void)sigaction(SIGTERM, &sa, NULL);
    sa.sa_handler = SIG_IGN;
    (void)sigaction(SIGPIPE, &sa, NULL);
    (void)sigaction(SIGXFSZ, &sa, NULL); /* of files beyond `ulimit -f`: EFBIG is said instead */
    sa.sa_handler = on_settings;
    sa.sa_flags = SA_RESTART;
    (void)sigaction(SIGUSR1, &sa, NULL);
    sa.sa_sigaction = on_lost_page;
    sa.sa_flags = SA_SIGINFO;
    (void)sigaction(SIGBUS, &sa, NULL);
}

int cli_finish_stdout(int code)
{
    static bool said;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return code;
    if (!said)
        (void)cli_fail(CLI_RUN_ERROR, "cannot write to standard output: %s", strerror(errno));
    said = true;
    return CLI_RUN_ERROR;
}

const char *cli_bytes(uint64_t bytes, char buf[32])
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double x = (double)bytes;
    int u = 0;
    while (x >= 1024.0 && u < 6) {
        x /= 1024.0;
        u++;
    }
    (void)snprintf(buf, 32, u == 0 ? "%.0f %s" : "%.1f %s", x, unit[u]);
    return buf;
}

static void log_to_stderr(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    static const char *const word[] = {"error", "warning", "info", "debug"};
    (void)ctx;
    (void)fprintf(stderr, "atsinfer: %s: %s: ", word[level], who);
    put_clean(msg);
    (void)fputc('\n', stderr);
}

int cli_runtime(struct atsi_runtime **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime_params p = {.struct_size = sizeof p,
                                    .config_path = cli_common.config_path,
                                    .overrides = (const char *const *)cli_common.overrides,
                                    .plugin_files = cli_common.plugins,
                                    .log = log_to_stderr,
                                    .log_level = cli_common.level};
    int rc;
    if (!cli_routing_prepare())
        return CLI_USAGE;
    rc = atsi_runtime_open(&p, out, &err);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

/* Joins the folder of the file at `self` (its last `up` components dropped) and `rest`. */
static bool beside(const char *self, int up, const char *rest, char out[PATH_MAX])
{
    char dir[PATH_MAX];
    int n;
    if (realpath(self, dir) == NULL)
        return false;
    while (up-- > 0) {
        char *slash = strrchr(dir, '/');
        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    n = snprintf(out, PATH_MAX, "%s/%s", dir, rest);
    return n > 0 && n < PATH_MAX && access(out, R_OK) == 0;
}

bool cli_share_path(const char *name, char out[PATH_MAX])
{
    char rest[128];
    int n = snprintf(rest, sizeof rest, "share/atsinfer/%s", name);
    if (n > 0 && n < (int)sizeof rest && beside("/proc/self/exe", 2, rest, out))
        return true;
#ifdef ATSI_SHARE_DIR
    n = snprintf(out, PATH_MAX, "%s/%s", ATSI_SHARE_DIR, name);
    if (n > 0 && n < PATH_MAX && access(out, R_OK) == 0)
        return true;
#endif
    return false;
}

/* The model that is used when none is named. */
static const char *demo_model(void)
{
    static char path[PATH_MAX];
    return cli_share_path("demo/demo-dense-q4_k_m.gguf", path) ? path : NULL;
}

const char *cli_find_model(const char *name)
{
    static char path[PATH_MAX];
    char *why = NULL;
    size_t n;
    FILE *say = open_memstream(&why, &n);
    int rc = say != NULL ? cli_resolve(name, path, say) : ATSI_ENOMEM;
    if (say != NULL && fclose(say) != 0)
        rc = ATSI_ENOMEM;
    if (rc == ATSI_ENOMEM)
        (void)cli_fail(CLI_RUN_ERROR, "out of memory");
    else if (rc != ATSI_OK)
        (void)cli_fail(CLI_USAGE, "%s", why);
    else if (cli_common.level >= ATSI_LOG_INFO && strcmp(name, path) != 0)
        (void)fprintf(stderr, "atsinfer: %s is %s\n", name, path);
    free(why);
    return rc == ATSI_OK ? path : NULL;
}

const char *cli_model_path(struct atsi_runtime *rt)
{
    const char *path = atsi_runtime_conf(rt, "model.path");
    if (path != NULL && path[0] != '\0')
        return cli_find_model(path);
    path = demo_model();
    if (path == NULL)
        (void)cli_fail(CLI_USAGE, "no model: name one with -m FILE or model.path in atsinfer.ini");
    else if (cli_common.level >= ATSI_LOG_WARN)
        (void)fprintf(stderr, "atsinfer: no -m given, using the demo model %s\n", path);
    return path;
}

struct progress {
    struct timespec start;
    bool shown;
};

static int show_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct progress *p = ctx;
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (isatty(STDERR_FILENO) != 0 && total > 0 && now.tv_sec - p->start.tv_sec >= 1) {
        (void)fprintf(stderr, "\rloading %3u %%", (unsigned)(100.0 * (double)done / (double)total));
        p->shown = true;
    }
    return cli_interrupted;
}

int cli_model(struct atsi_runtime *rt, bool no_weights, struct atsi_model **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct progress progress = {.shown = false};
    struct atsi_model_params p = {.struct_size = sizeof p,
                                  .no_weights = no_weights,
                                  .progress = show_progress,
                                  .progress_ctx = &progress};
    const char *path = cli_model_path(rt);
    int rc;
    if (path == NULL)
        return CLI_USAGE;
    (void)clock_gettime(CLOCK_MONOTONIC, &progress.start);
    rc = atsi_model_open(rt, path, &p, out, &err);
    if (progress.shown)
        (void)fputs("\r             \r", stderr);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

int cli_parse_size(const char *option, const char *text, uint64_t *bytes_out)
{
    static const struct {
        const char *name;
        double bytes;
    } unit[] = {{"", 1}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end;
    double v;
    if (text == NULL)
        return CLI_OK;
    v = strtod(text, &end);
    for (size_t i = 0; i < sizeof unit / sizeof unit[0] && end != text; i++)
        if (strcmp(end, unit[i].name) == 0 && v * unit[i].bytes >= 1 && v * unit[i].bytes < 1e16) {
            *bytes_out = (uint64_t)(v * unit[i].bytes);
            return CLI_OK;
        }
    return cli_fail(CLI_USAGE, "%s %.40s: expected a size such as 6GiB", option, text);
}
