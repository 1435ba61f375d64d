/* SPDX-License-Identifier: Apache-2.0
 *
 * Running another program's bench: a shell command of its own process group, whose output is kept
 * up to a limit and which does not outlive us.
 */
#include "cli/bench_rival.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_OUTPUT ((size_t)4 << 20)
#define POLL_MS 100

/* ---------------------------------------------------------------- the command */
/* Text that grows. */
struct text {
    char *s;
    size_t n, room;
    bool failed;
};

static bool grow(struct text *t, size_t n)
{
    char *more;
    if (n <= t->room)
        return true;
    more = realloc(t->s, 2 * n);
    if (more == NULL)
        return false;
    t->s = more;
    t->room = 2 * n;
    return true;
}

static void add(struct text *t, const char *s, size_t n)
{
    t->failed = t->failed || !grow(t, t->n + n + 1);
    if (t->failed)
        return;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

static void add_number(struct text *t, uint32_t v)
{
    char digits[16];
    add(t, digits, (size_t)snprintf(digits, sizeof digits, "%u", v));
}

/* As one word for the shell. */
static void add_quoted(struct text *t, const char *s)
{
    add(t, "'", 1);
    for (; *s != '\0'; s++)
        if (*s == '\'')
            add(t, "'\\''", 4);
        else
            add(t, s, 1);
    add(t, "'", 1);
}

/* Replaces a name in braces at `at`; returns its length, 0 when it is none of ours. */
static size_t fill_in(struct text *out, const char *at, const struct bench_rival_test *t)
{
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {
        {"{p}", t->n_prompt}, {"{n}", t->n_gen}, {"{d}", t->n_depth}, {"{t}", t->n_threads}};
    if (strncmp(at, "{model}", 7) == 0) {
        add_quoted(out, t->model);
        return 7;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strncmp(at, numbers[i].name, 3) == 0) {
            add_number(out, numbers[i].value);
            return 3;
        }
    return 0;
}

static void add_option(struct text *out, const char *name, uint32_t v)
{
    add(out, name, strlen(name));
    add_number(out, v);
}

char *bench_rival_command(const char *command, const struct bench_rival_test *t)
{
    struct text out = {NULL, 0, 0, false};
    bool named = false;
    for (const char *p = command; *p != '\0';) {
        size_t n = *p == '{' ? fill_in(&out, p, t) : 0;
        named = named || n > 0;
        if (n == 0)
            add(&out, p, n = 1);
        p += n;
    }
    if (!named) {
        add(&out, " -m ", 4);
        add_quoted(&out, t->model);
        add_option(&out, " -p ", t->n_prompt);
        add_option(&out, " -n ", t->n_gen);
        add_option(&out, " -t ", t->n_threads);
        if (t->n_depth > 0) /* older ones do not know it */
            add_option(&out, " -d ", t->n_depth);
        add(&out, " -r 1 -o json", 13);
    }
    if (out.failed) {
        free(out.s);
        return NULL;
    }
    return out.s;
}

/* ---------------------------------------------------------------- the process */
struct child {
    pid_t pid;
    int out, err; /* pipes; -1: closed */
    char *text;   /* stdout */
    size_t n;
    double end_s;   /* of its time, as seconds_now() */
    char last[512]; /* the end of stderr */
    size_t n_last;
};

static void close_pipe(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

/* The CPUs this process was given; its own thread is pinned to one of them later, which a child
 * must not inherit.  Room for 8192, as the kernel may want more than a cpu_set_t. */
static cpu_set_t home[8];
static bool home_known;

void bench_rival_remember_cpus(void)
{
    home_known = sched_getaffinity(0, sizeof home, home) == 0;
}

static _Noreturn void run_child(const char *command, int out, int err)
{
    int null = open("/dev/null", O_RDONLY);
    (void)setpgid(0, 0);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)signal(SIGXFSZ, SIG_DFL);
    if (home_known)
        (void)sched_setaffinity(0, sizeof home, home); /* of a mask it had before */
    if (null >= 0 && dup2(null, 0) >= 0 && dup2(out, 1) >= 0 && dup2(err, 2) >= 0)
        (void)execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static int start(struct child *c, const char *command)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
        goto fail;
    c->pid = fork();
    if (c->pid < 0)
        goto fail;
    if (c->pid == 0)
        run_child(command, out[1], err[1]);
    (void)setpgid(c->pid, c->pid); /* whoever comes first */
    close_pipe(&out[1]);
    close_pipe(&err[1]);
    c->out = out[0];
    c->err = err[0];
    return CLI_OK;
fail:
    for (int i = 0; i < 2; i++) {
        close_pipe(&out[i]);
        close_pipe(&err[i]);
    }
    return cli_fail(CLI_RUN_ERROR, "--rival: cannot start a process: %s", strerror(errno));
}

/* Takes what a pipe has; what goes beyond the limit is dropped, and said by the return value. */
static bool take(struct child *c, int *fd)
{
    char buf[4096];
    ssize_t n = read(*fd, buf, sizeof buf);
    if (n <= 0) {
        if (n == 0 || (errno != EINTR && errno != EAGAIN))
            close_pipe(fd);
        return true;
    }
    if (fd == &c->out) {
        if (c->n + (size_t)n > MAX_OUTPUT)
            return false;
        memcpy(c->text + c->n, buf, (size_t)n);
        c->n += (size_t)n;
    } else {
        size_t keep = (size_t)n < sizeof c->last - 1 ? (size_t)n : sizeof c->last - 1;
        size_t old = c->n_last + keep < sizeof c->last ? c->n_last : sizeof c->last - 1 - keep;
        memmove(c->last, c->last + c->n_last - old, old);
        memcpy(c->last + old, buf + n - (ssize_t)keep, keep);
        c->n_last = old + keep;
    }
    return true;
}

static double seconds_now(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: Linux has this clock */
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Whether a sample may go on.  An exit code. */
static int still_waiting(const struct child *c, const struct bench_rival *r)
{
    if (cli_interrupted != 0)
        return CLI_INTERRUPTED;
    if (seconds_now() > c->end_s)
        return cli_fail(CLI_RUN_ERROR, "--rival %s: no end after %u s", r->name, r->limit_s);
    return CLI_OK;
}

/* Until both pipes are closed.  An exit code. */
static int listen_to(struct child *c, const struct bench_rival *r)
{
    while (c->out >= 0 || c->err >= 0) {
        struct pollfd fds[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
        int code = still_waiting(c, r);
        if (code != CLI_OK)
            return code;
        if (poll(fds, 2, POLL_MS) <= 0)
            continue;
        if (fds[0].revents != 0 && !take(c, &c->out))
            return cli_fail(CLI_RUN_ERROR, "--rival %s: it printed more than %zu MiB", r->name,
                            MAX_OUTPUT >> 20);
        if (fds[1].revents != 0)
            (void)take(c, &c->err);
    }
    return CLI_OK;
}

/* The last line that holds something, for a message. */
static const char *last_line(struct child *c)
{
    char *line;
    while (c->n_last > 0 && (c->last[c->n_last - 1] == '\n' || c->last[c->n_last - 1] == ' '))
        c->n_last--;
    c->last[c->n_last] = '\0';
    for (size_t i = 0; i < c->n_last; i++)
        if ((unsigned char)c->last[i] < 0x20 && c->last[i] != '\n')
            c->last[i] = ' '; /* nothing that moves a terminal's cursor */
    line = strrchr(c->last, '\n');
    return line != NULL ? line + 1 : c->last;
}

/* Waits for the shell, which may have closed its pipes long before it ends, unless something went
 * wrong; then, or when we are interrupted or the time is over, all of its group is ended. */
static int wait_for(const struct child *c, const struct bench_rival *r, int *status, int code)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    pid_t pid = 0;
    while (code == CLI_OK && (pid = waitpid(c->pid, status, WNOHANG)) == 0) {
        (void)nanosleep(&pause, NULL); /* woken early: asked again */
        code = still_waiting(c, r);
    }
    (void)kill(-c->pid, SIGKILL); /* also what it left behind */
    while (pid == 0 && waitpid(c->pid, status, 0) < 0 && errno == EINTR)
        ;
    return code;
}

static int finish(struct child *c, const struct bench_rival *r, int code)
{
    const char *name = r->name;
    int status = 0;
    code = wait_for(c, r, &status, code);
    close_pipe(&c->out);
    close_pipe(&c->err);
    if (code != CLI_OK)
        return code;
    if (WIFSIGNALED(status))
        return cli_fail(CLI_RUN_ERROR, "--rival %s: ended by signal %d: %s", name, WTERMSIG(status),
                        last_line(c));
    if (WEXITSTATUS(status) != 0)
        return cli_fail(CLI_RUN_ERROR, "--rival %s: exit code %d: %s", name, WEXITSTATUS(status),
                        last_line(c));
    return CLI_OK;
}

/* ---------------------------------------------------------------- rivals */
/* A name has no blank and no '/': "A=B prog" is a name, "/x/prog --y=z" is not. */
static size_t name_length(const char *text)
{
    size_t n = strcspn(text, "= \t/'\"");
    return text[n] == '=' && n > 0 ? n : 0;
}

int bench_rival_open(struct bench_rival *r, const char *text, uint32_t repeats)
{
    size_t n = name_length(text);
    const char *command = n > 0 ? text + n + 1 : text;
    size_t word = strcspn(command, " \t"), from = word;
    *r = (struct bench_rival){.command = command, .limit_s = BENCH_RIVAL_LIMIT_S};
    if (command[0] == '\0')
        return cli_fail(CLI_USAGE, "--rival %s: expected [NAME=]COMMAND", text);
    while (n == 0 && from > 0 && command[from - 1] != '/')
        from--;
    n = n > 0 ? n : word - from;
    (void)snprintf(r->name, sizeof r->name, "%.*s", (int)(n < sizeof r->name ? n : 63),
                   command == text ? command + from : text);
    r->samples_ns = calloc(repeats, sizeof *r->samples_ns);
    return r->samples_ns != NULL ? CLI_OK : cli_fail(CLI_RUN_ERROR, "out of memory");
}

void bench_rival_close(struct bench_rival *r)
{
    free(r->samples_ns);
    *r = (struct bench_rival){.name = ""};
}

static int read_sample(struct bench_rival *r, const struct bench_rival_test *t,
                       const struct child *c)
{
    double ts, ns, tokens = t->n_gen > 0 ? t->n_gen : t->n_prompt;
    char why[160];
    if (!bench_rival_parse(c->text, c->n, t, &ts, why, sizeof why))
        return cli_fail(CLI_RUN_ERROR, "--rival %s: %s", r->name, why);
    ns = tokens * 1e9 / ts;
    if (ns < 1 || ns > 1e18)
        return cli_fail(CLI_RUN_ERROR, "--rival %s: %g tokens per second cannot be", r->name, ts);
    r->samples_ns[r->n_samples++] = (uint64_t)ns;
    return CLI_OK;
}

int bench_rival_sample(struct bench_rival *r, const struct bench_rival_test *t)
{
    struct child c = {.out = -1, .err = -1, .text = malloc(MAX_OUTPUT)};
    char *command = bench_rival_command(r->command, t);
    int code;
    if (c.text == NULL || command == NULL) {
        code = cli_fail(CLI_RUN_ERROR, "out of memory");
        goto done;
    }
    c.end_s = seconds_now() + r->limit_s;
    code = start(&c, command);
    if (code == CLI_OK)
        code = finish(&c, r, listen_to(&c, r));
    if (code == CLI_OK)
        code = read_sample(r, t, &c);
done:
    free(command);
    free(c.text);
    return code;
}
