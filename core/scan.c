/* SPDX-License-Identifier: Apache-2.0
 *
 * Loading plugin code for the first time: in a child process, which reports each file over a pipe.
 * When the child dies or falls silent, the file it was at is refused and a new child goes on behind
 * it.
 */
#include "core/scan.h"

#include "core/abi.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Smaller than PIPE_BUF: one write arrives whole. */
struct report {
    uint32_t index;
    struct atsi_scan_result result;
};

int atsi_plugin_load(const struct atsi_host *host, const char *path, void **handle_out,
                     const struct atsi_plugin **plugin_out, struct atsi_err *err)
{
    atsi_plugin_entry_fn *entry;
    const char *why = NULL;
    void *symbol;
    int rc;
    *handle_out = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (*handle_out == NULL)
        return atsi_fail(err, ATSI_EINVAL, "cannot be loaded: %s", dlerror());
    symbol = dlsym(*handle_out, ATSI_PLUGIN_ENTRY);
    if (symbol == NULL) {
        rc = atsi_fail(err, ATSI_EABI, "exports no %s", ATSI_PLUGIN_ENTRY);
        goto fail;
    }
    memcpy(&entry, &symbol, sizeof entry); /* POSIX: a data pointer holds a function's address */
    *plugin_out = entry(host, &why);
    if (*plugin_out == NULL) {
        rc = atsi_fail(err, ATSI_ENODEV, "not for this machine: %s",
                       why != NULL ? why : "no reason given");
        goto fail;
    }
    rc = atsi_abi_check(*plugin_out, err);
    if (rc == ATSI_OK)
        return ATSI_OK;
fail:
    (void)dlclose(*handle_out); /* nothing to do about a failure to unload */
    *handle_out = NULL;
    return rc;
}

static void no_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
static void no_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    (void)ctx;
    (void)level;
    (void)who;
    (void)fmt;
}

/* Runs before the exit handlers of the application, which are not for this process: they would
 * remove its files, and write its buffered output a second time. */
static void leave(int status, void *arg)
{
    (void)arg;
    _exit(status);
}

/* The child: never returns.  Whatever plugins print goes nowhere. */
_Noreturn static void child(const struct atsi_host *host, const char *const *paths, uint32_t first,
                            uint32_t n, int out)
{
    struct atsi_host quiet = *host;
    static const struct rlimit none = {0, 0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (out <= STDERR_FILENO) /* the application runs without standard streams */
        out = fcntl(out, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    quiet.log = no_log;
    (void)on_exit(leave, NULL);
    (void)setrlimit(RLIMIT_CORE, &none);             /* a crash here is expected: leave no dump */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* nor a process that hangs */
    if (null >= 0) {
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
    }
    for (uint32_t i = first; i < n; i++) {
        struct report r = {.index = i};
        struct atsi_err err = ATSI_ERR_INIT;
        const struct atsi_plugin *plugin;
        void *handle;
        /* The handle stays open: unloading runs code as well, and the process ends soon. */
        r.result.good = atsi_plugin_load(&quiet, paths[i], &handle, &plugin, &err) == ATSI_OK;
        if (!r.result.good)
            (void)snprintf(r.result.why, sizeof r.result.why, "%.390s", err.msg);
        if (write(out, &r, sizeof r) != (ssize_t)sizeof r)
            _exit(1);
    }
    _exit(0);
}

static int64_t now_ms(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* The next report, or false when the child died or is silent for too long. */
static bool next_report(int in, int timeout_ms, struct report *r, bool *timed_out)
{
    int64_t end = now_ms() + timeout_ms;
    *timed_out = false;
    for (;;) {
        struct pollfd p = {.fd = in, .events = POLLIN};
        int64_t left = end - now_ms();
        int got = left > 0 ? poll(&p, 1, (int)left) : 0;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *timed_out = got == 0;
            return false;
        }
        return read(in, r, sizeof *r) == (ssize_t)sizeof *r;
    }
}

static void blame(struct atsi_scan_result *result, bool timed_out, int timeout_ms, int status)
{
    result->good = false;
    if (timed_out)
        (void)snprintf(result->why, sizeof result->why,
                       "its entry did not return within %d ms (tried in a child process)",
                       timeout_ms);
    else if (WIFSIGNALED(status))
        (void)snprintf(result->why, sizeof result->why,
                       "crashed while being loaded: signal %d (tried in a child process)",
                       WTERMSIG(status));
    else
        (void)snprintf(result->why, sizeof result->why,
                       "ended the process while being loaded: status %d (tried in a child process)",
                       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* No child can be had (errno says why): nothing more is tried. */
static uint32_t give_up(struct atsi_scan_result *results, uint32_t next, uint32_t n)
{
    int why = errno;
    for (; next < n; next++)
        (void)snprintf(results[next].why, sizeof results[next].why,
                       "no child process to try it in: %s", strerror(why));
    return n;
}

/* Scans from `first` on in one child; returns the index to go on from. */
static uint32_t scan_from(const struct atsi_host *host, const char *const *paths, uint32_t first,
                          uint32_t n, int timeout_ms, struct atsi_scan_result *results)
{
    int fds[2], status = 0;
    bool timed_out = false;
    uint32_t next = first;
    struct report r;
    pid_t pid;
    if (pipe2(fds, O_CLOEXEC) != 0)
        return give_up(results, next, n);
    pid = fork();
    if (pid < 0) {
        next = give_up(results, next, n);
        (void)close(fds[0]);
        (void)close(fds[1]);
        return next;
    }
    if (pid == 0)
        child(host, paths, first, n, fds[1]);
    (void)close(fds[1]);
    while (next < n && next_report(fds[0], timeout_ms, &r, &timed_out) && r.index == next)
        results[next++] = r.result;
    if (next < n)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    (void)close(fds[0]);
    if (next < n)
        blame(&results[next++], timed_out, timeout_ms, status);
    return next;
}

void atsi_scan_plugins(const struct atsi_host *host, const char *const *paths, uint32_t n,
                       int timeout_ms, struct atsi_scan_result *results)
{
    memset(results, 0, n * sizeof *results);
    for (uint32_t next = 0; next < n;)
        next = scan_from(host, paths, next, n, timeout_ms, results);
}
