/* SPDX-License-Identifier: Apache-2.0
 *
 * A check in a child process.  What it is at and what it found lie in memory that both share; a
 * child that dies or is silent for too long is named by what it was at.
 */
#include "core/kit/kit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void atsi_kit_at(struct atsi_kit_run *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(r->note->where, sizeof r->note->where, fmt, ap);
    va_end(ap);
    r->note->beats++;
}

bool atsi_kit_bad(struct atsi_kit_run *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(r->note->text, sizeof r->note->text, fmt, ap);
    va_end(ap);
    return false;
}

bool atsi_kit_good(struct atsi_kit_run *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(r->note->text, sizeof r->note->text, fmt, ap);
    va_end(ap);
    return true;
}

/* Runs before exit handlers of the application, which are not for this process. */
static void leave(int status, void *arg)
{
    (void)arg;
    _exit(status);
}

/* A crash shall end the child by its signal, whatever handles it in the parent. */
static void default_signals(void)
{
    static const int fatal[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        (void)signal(fatal[i], SIG_DFL);
}

_Noreturn static void child(struct atsi_kit_run *r, atsi_kit_check_fn *fn)
{
    static const struct rlimit none = {0, 0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    (void)on_exit(leave, NULL);
    (void)setrlimit(RLIMIT_CORE, &none);             /* a crash here is expected: leave no dump */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* nor a process that hangs */
    default_signals();
    if (null >= 0) {
        (void)dup2(null, STDOUT_FILENO);
        (void)dup2(null, STDERR_FILENO);
    }
    r->note->ok = fn(r);
    r->note->done = 1;
    _exit(0);
}

static uint64_t now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Waits for the child's end.  False: it was silent for too long and is no more. */
static bool wait_for(pid_t pid, const struct atsi_kit_note *note, uint32_t patience_ms, int *status)
{
    static const struct timespec pause = {.tv_nsec = 2000000};
    uint32_t beats = note->beats;
    uint64_t since = now_ms();
    for (;;) {
        pid_t got = waitpid(pid, status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR))
            return true;
        if (note->beats != beats) {
            beats = note->beats;
            since = now_ms();
        }
        if (now_ms() - since > patience_ms) {
            (void)kill(pid, SIGKILL);
            while (waitpid(pid, status, 0) < 0 && errno == EINTR)
                ;
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
}

static void blame(struct atsi_kit_run *r, bool ended, uint32_t patience_ms, int status)
{
    struct atsi_kit_note *note = r->note;
    note->where[sizeof note->where - 1] = '\0'; /* the child may have written anything */
    note->ok = 0;
    if (!ended)
        (void)atsi_kit_bad(r, "did not return within %u ms: %s", patience_ms, note->where);
    else if (WIFSIGNALED(status))
        (void)atsi_kit_bad(r, "crashed with signal %d (%s): %s", WTERMSIG(status),
                           strsignal(WTERMSIG(status)), note->where);
    else
        (void)atsi_kit_bad(r, "ended the process with status %d: %s",
                           WIFEXITED(status) ? WEXITSTATUS(status) : -1, note->where);
}

int atsi_kit_child_run(struct atsi_kit_run *r, atsi_kit_check_fn *fn, uint32_t patience_ms,
                       struct atsi_err *err)
{
    int status = 0;
    bool ended;
    pid_t pid;
    memset(r->note, 0, sizeof *r->note);
    pid = fork();
    if (pid < 0)
        return atsi_fail(err, ATSI_EIO, "no child process to ask the policy in: %s",
                         strerror(errno));
    if (pid == 0)
        child(r, fn);
    ended = wait_for(pid, r->note, patience_ms, &status);
    if (!ended || r->note->done != 1)
        blame(r, ended, patience_ms, status);
    r->note->text[sizeof r->note->text - 1] = '\0';
    return ATSI_OK;
}
