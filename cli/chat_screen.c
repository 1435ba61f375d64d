/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's text is a stranger's text: an escape sequence in it could retitle a terminal, move its
 * cursor or make it answer.  So none reaches a terminal.  Pipes and files get the bytes as they
 * are, and the answer only.
 */
#include "cli/chat_screen.h"

#include "cli/options.h"
#include "text/utf8.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

static const char DIM_ON[] = "\033[2m", DIM_OFF[] = "\033[22m";

/* The character at p[0..n) as it may be shown; returns the bytes it takes there. */
static size_t clean_one(const char *p, size_t n, struct atsi_bytes *out, bool *ok)
{
    uint32_t cp = 0;
    size_t len = atsi_utf8_decode(p, n, &cp);
    char shown[4];
    if (len == 0 || (cp >= 0x7F && cp < 0xA0)) {
        *ok = atsi_bytes_add(out, ATSI_UTF8_REPLACEMENT, 3);
        return len > 0 ? len : 1;
    }
    if (cp == '\r' && n > 1 && p[1] == '\n')
        return 1;
    if (cp < 0x20 && cp != '\n' && cp != '\t')
        *ok = atsi_bytes_add(out, shown, atsi_utf8_encode(0x2400 + cp, shown));
    else
        *ok = atsi_bytes_add(out, p, len);
    return len;
}

bool chat_clean(const char *text, size_t n, struct atsi_bytes *out)
{
    bool ok = true;
    for (size_t i = 0; i < n && ok;)
        i += clean_one(text + i, n - i, out, &ok);
    return ok;
}

void chat_note(const char *fmt, ...)
{
    va_list ap;
    if (cli_common.level < ATSI_LOG_WARN)
        return;
    va_start(ap, fmt);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
}

void chat_screen_open(struct chat_screen *s, bool hide_thinking)
{
    *s = (struct chat_screen){.terminal = isatty(STDOUT_FILENO) != 0,
                              .hide_thinking = hide_thinking};
}

static void set_dim(struct chat_screen *s, bool dim)
{
    if (s->dim == dim)
        return;
    (void)fputs(dim ? DIM_ON : DIM_OFF, stdout);
    s->dim = dim;
}

/* Reasoning and answer stand on lines of their own. */
static void change_kind(struct chat_screen *s, bool dim)
{
    if (s->dim && !dim)
        (void)fputs(s->line_open ? "\n\n" : "\n", stdout);
    set_dim(s, dim);
}

int chat_screen_put(struct chat_screen *s, enum chat_kind kind, const char *text, size_t len)
{
    struct atsi_bytes clean = {.p = NULL};
    bool ok = true;
    if (kind == CHAT_REASONING && (s->hide_thinking || !s->terminal))
        return CLI_OK;
    if (s->terminal) {
        ok = chat_clean(text, len, &clean);
        text = clean.p;
        len = clean.n;
        change_kind(s, kind == CHAT_REASONING);
    }
    if (ok && len > 0) {
        (void)fwrite(text, 1, len, stdout);
        s->line_open = text[len - 1] != '\n';
        s->any = true;
    }
    free(clean.p);
    return ok ? cli_finish_stdout(CLI_OK) : cli_fail(CLI_RUN_ERROR, "out of memory");
}

int chat_screen_end(struct chat_screen *s)
{
    set_dim(s, false);
    if (s->line_open || (!s->any && !s->terminal))
        (void)putchar('\n');
    s->line_open = s->any = false;
    return cli_finish_stdout(CLI_OK);
}
