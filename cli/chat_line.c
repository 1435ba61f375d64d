/* SPDX-License-Identifier: Apache-2.0
 *
 * libedit edits in the locale's character set, so this file chooses a UTF-8 one for characters
 * (nothing else of the locale: numbers stay as they are).  The history is a private file.
 */
#include "cli/chat_line.h"

#include "cli/cli.h"
#include "text/buf.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

enum { HISTORY_LINES = 1000 };
#define MAX_LINE ((size_t)64 << 20) /* no message is longer; /dev/zero is */

struct chat_lines {
    EditLine *edit;          /* NULL: not a terminal */
    History *past;           /* NULL: none */
    char *path;              /* of the history's file; NULL: not kept */
    bool more;               /* which prompt is shown */
    sigset_t waiting;        /* signal mask while a key is waited for */
    struct atsi_bytes plain; /* the line, without a terminal; [owned] */
};

/* ---------------------------------------------------------------- history */
/* Creates the folders of `path` that are missing, private ones. */
static bool make_folders(char *path)
{
    for (char *p = strchr(path + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
            *p = '/';
            return false;
        }
        *p = '/';
    }
    return true;
}

/* $XDG_STATE_HOME/atsinfer/chat_history, or below ~/.local/state; NULL: neither is known.
 * [owned by caller: free()] */
static char *history_path(void)
{
    const char *base = secure_getenv("XDG_STATE_HOME"), *home = secure_getenv("HOME");
    char *path = NULL;
    int n = -1;
    if (base != NULL && base[0] == '/')
        n = asprintf(&path, "%s/atsinfer/chat_history", base);
    else if (home != NULL && home[0] == '/')
        n = asprintf(&path, "%s/.local/state/atsinfer/chat_history", home);
    return n > 0 ? path : NULL;
}

/* Lines stay in the file from then on; a file that cannot be written is said once. */
static void keep_history(struct chat_lines *l)
{
    HistEvent ev;
    l->path = history_path();
    if (l->path == NULL)
        return;
    if (make_folders(l->path))
        (void)history(l->past, &ev, H_LOAD, l->path); /* none yet at the first time */
    else {
        cli_warn("%s: %s; what you type is not kept (--no-history)", l->path, strerror(errno));
        free(l->path);
        l->path = NULL;
    }
}

static void add_history(struct chat_lines *l, const char *line)
{
    HistEvent ev;
    mode_t old;
    if (l->past == NULL || line[strspn(line, " \t\r\n")] == '\0')
        return;
    (void)history(l->past, &ev, H_ENTER, line);
    if (l->path == NULL)
        return;
    old = umask(077);
    if (history(l->past, &ev, H_SAVE, l->path) == -1) {
        cli_warn("%s: %s; what you type is not kept (--no-history)", l->path, strerror(errno));
        free(l->path);
        l->path = NULL;
    }
    (void)umask(old);
}

/* ---------------------------------------------------------------- keys */
/* libedit's own reading loses a signal that comes just before it reads.  Here the signals are
 * blocked while a line is edited, but for the moments of waiting for a key. */
static volatile sig_atomic_t resized, suspended;

static void on_key_signal(int sig)
{
    if (sig == SIGWINCH)
        resized = 1;
    else
        suspended = 1;
}

/* Blocks the signals and takes those over that concern the editor; back: undoes it. */
struct key_signals {
    sigset_t mask;
    struct sigaction resize, suspend;
};

static void take_signals(struct key_signals *old)
{
    struct sigaction sa = {.sa_handler = on_key_signal};
    sigset_t block;
    (void)sigemptyset(&sa.sa_mask);
    (void)sigemptyset(&block);
    (void)sigaddset(&block, SIGINT);
    (void)sigaddset(&block, SIGTERM);
    (void)sigaddset(&block, SIGWINCH);
    (void)sigaddset(&block, SIGTSTP);
    (void)sigprocmask(SIG_BLOCK, &block, &old->mask);
    (void)sigaction(SIGWINCH, &sa, &old->resize);
    (void)sigaction(SIGTSTP, &sa, &old->suspend);
}

static void give_signals(const struct key_signals *old)
{
    (void)sigaction(SIGWINCH, &old->resize, NULL);
    (void)sigaction(SIGTSTP, &old->suspend, NULL);
    (void)sigprocmask(SIG_SETMASK, &old->mask, NULL);
}

/* A larger or smaller terminal; Ctrl-Z: the terminal as it was until the program goes on. */
static void handle_signals(EditLine *edit)
{
    if (resized) {
        resized = 0;
        el_resize(edit);
    }
    if (suspended) {
        suspended = 0;
        (void)el_set(edit, EL_PREP_TERM, 0);
        (void)raise(SIGSTOP);
        (void)el_set(edit, EL_PREP_TERM, 1);
        (void)el_wset(edit, EL_REFRESH);
    }
}

/* Waits for a byte and reads it: 1, 0 at the end, -1 (errno) on Ctrl-C or a failure. */
static int read_byte(EditLine *edit, const sigset_t *waiting, char *out)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        ssize_t n = -1;
        handle_signals(edit);
        if (cli_interrupted != 0) {
            errno = EINTR;
            return -1;
        }
        if (ppoll(&p, 1, NULL, waiting) > 0)
            n = read(STDIN_FILENO, out, 1);
        if (n >= 0)
            return (int)n;
        if (errno != EINTR && errno != EAGAIN)
            return -1;
    }
}

/* libedit's way to get a character: 1, 0 at the end, -1.  Bytes that are no character of the locale
 * are dropped.  A Ctrl-D typed while the terminal still collected lines arrives as NUL. */
static int next_char(EditLine *edit, wchar_t *out)
{
    struct chat_lines *l = NULL;
    char bytes[MB_LEN_MAX];
    size_t n = 0;
    if (el_get(edit, EL_CLIENTDATA, &l) != 0 || l == NULL)
        return -1;
    for (;;) {
        mbstate_t state = {0};
        int got = read_byte(edit, &l->waiting, &bytes[n]);
        size_t len;
        if (got <= 0)
            return got;
        n++;
        len = mbrtowc(out, bytes, n, &state);
        if (len == (size_t)-2 && n < sizeof bytes)
            continue;
        if (len <= n) {
            *out = *out == L'\0' ? L'\004' : *out;
            return 1;
        }
        bytes[0] = bytes[n - 1]; /* no character: perhaps its last byte begins one */
        n = n > 1 && mbrtowc(out, bytes, 1, &(mbstate_t){0}) == (size_t)-2;
    }
}

/* ---------------------------------------------------------------- terminal */
static const char *prompt_text(EditLine *edit)
{
    struct chat_lines *l = NULL;
    (void)el_get(edit, EL_CLIENTDATA, &l);
    return l != NULL && l->more ? ". " : "> ";
}

/* el_set() takes a function that returns char * which it does not change. */
static char *show_prompt(EditLine *edit)
{
    union {
        const char *in;
        char *out;
    } p = {.in = prompt_text(edit)};
    return p.out;
}

static void choose_utf8(void)
{
    (void)setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
}

static bool open_terminal(struct chat_lines *l, bool keep)
{
    FILE *shown = isatty(STDOUT_FILENO) != 0 ? stdout : stderr;
    HistEvent ev;
    choose_utf8();
    l->edit = el_init("atsinfer", stdin, shown, stderr);
    l->past = history_init();
    if (l->edit == NULL || l->past == NULL)
        return false;
    (void)history(l->past, &ev, H_SETSIZE, HISTORY_LINES);
    (void)history(l->past, &ev, H_SETUNIQUE, 1);
    (void)el_set(l->edit, EL_CLIENTDATA, l);
    (void)el_set(l->edit, EL_PROMPT, show_prompt);
    (void)el_set(l->edit, EL_EDITOR, "emacs");
    (void)el_set(l->edit, EL_GETCFN, next_char);
    (void)el_set(l->edit, EL_HIST, history, l->past);
    (void)el_set(l->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    (void)el_source(l->edit, NULL); /* ~/.editrc, as users of libedit expect */
    if (keep)
        keep_history(l);
    return true;
}

static enum chat_got next_edited(struct chat_lines *l, const char **line, size_t *len)
{
    struct key_signals old;
    const char *text;
    int n = 0;
    take_signals(&old);
    l->waiting = old.mask;
    text = el_gets(l->edit, &n);
    give_signals(&old);
    if (text == NULL || n <= 0)
        return cli_interrupted != 0 ? CHAT_INTERRUPTED : CHAT_END;
    add_history(l, text);
    *line = text;
    *len = (size_t)n;
    if (text[n - 1] == '\n')
        (*len)--;
    return CHAT_LINE;
}

/* ---------------------------------------------------------------- no terminal */
static enum chat_got input_failed(const char *why)
{
    (void)cli_fail(CLI_RUN_ERROR, "standard input: %s", why);
    return CHAT_FAILED;
}

static enum chat_got next_plain(struct chat_lines *l, const char **line, size_t *len)
{
    int c;
    l->plain.n = 0;
    while ((c = getc(stdin)) != EOF && c != '\n') {
        char byte = (char)c;
        if (l->plain.n == MAX_LINE)
            return input_failed("a line of more than 64 MiB");
        if (!atsi_bytes_add(&l->plain, &byte, 1))
            return input_failed("out of memory");
    }
    if (cli_interrupted != 0)
        return CHAT_INTERRUPTED;
    if (ferror(stdin) != 0)
        return input_failed(strerror(errno));
    if (c == EOF && l->plain.n == 0)
        return CHAT_END;
    *line = l->plain.n > 0 ? l->plain.p : "";
    *len = l->plain.n;
    return CHAT_LINE;
}

/* ---------------------------------------------------------------- both */
struct chat_lines *chat_lines_open(bool terminal, bool keep)
{
    struct chat_lines *l = calloc(1, sizeof *l);
    if (l != NULL && (!terminal || open_terminal(l, keep)))
        return l;
    chat_lines_close(l);
    (void)cli_fail(CLI_RUN_ERROR, "out of memory");
    return NULL;
}

void chat_lines_close(struct chat_lines *l)
{
    if (l == NULL)
        return;
    if (l->edit != NULL)
        el_end(l->edit);
    if (l->past != NULL)
        history_end(l->past);
    free(l->path);
    free(l->plain.p);
    free(l);
}

enum chat_got chat_lines_next(struct chat_lines *l, bool more, const char **line, size_t *len)
{
    l->more = more;
    return l->edit != NULL ? next_edited(l, line, len) : next_plain(l, line, len);
}
