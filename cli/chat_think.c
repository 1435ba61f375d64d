/* SPDX-License-Identifier: Apache-2.0
 *
 * Which marks a model uses is read from its template: the reasoning stands either between a pair of
 * marks at the beginning of the text, or in Harmony's channels.  The splitter is a state machine
 * over bytes that holds back only what may still become a mark.
 */
#include "cli/chat_think.h"

#include <string.h>

/* ---------------------------------------------------------------- style */
/* Pairs of the published templates.  The first is what a model without any hint is expected to
 * use. */
static const struct {
    const char *open, *close;
} pairs[] = {
    {"<think>", "</think>"},
    {"<|channel>thought", "<channel|>"},
    {"<|START_THINKING|>", "<|END_THINKING|>"},
    {"<seed:think>", "</seed:think>"},
    {"<mm:think>", "</mm:think>"},
    {"<thinking>", "</thinking>"},
    {"[THINK]", "[/THINK]"},
};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static const char *const fields[] = {"reasoning_content", "reasoning", "thinking", "thought"};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static const char CHANNEL[] = "<|channel|>", MESSAGE[] = "<|message|>";
static const char *const harmony_marks[] = {CHANNEL,      MESSAGE,    "<|start|>",    "<|end|>",
                                            "<|return|>", "<|call|>", "<|constrain|>"};
enum { N_HARMONY = sizeof harmony_marks / sizeof harmony_marks[0], N_BODY_ENDS = 6 };
/* Of these, what may end the body of a message: all but <|message|> and <|constrain|>. */
static const char *const body_ends[] = {CHANNEL,      "<|start|>", "<|end|>",
                                        "<|return|>", "<|call|>",  MESSAGE};

static bool has(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Whether the template names a member: .word or "word" or 'word'. */
static bool has_member(const char *text, size_t len, const char *word)
{
    size_t n = strlen(word);
    const char *p = text, *end = text + len;
    while ((p = memmem(p, (size_t)(end - p), word, n)) != NULL) {
        char before = p > text ? p[-1] : ' ', after = p + n < end ? p[n] : ' ';
        if ((before == '.' && !is_name(after)) || (before == '"' && after == '"') ||
            (before == '\'' && after == '\''))
            return true;
        p += n;
    }
    return false;
}

void chat_style_of(const char *template_text, size_t len, struct chat_style *out)
{
    *out = (struct chat_style){.open = pairs[0].open, .close = pairs[0].close, .field = fields[0]};
    out->harmony = has(template_text, len, CHANNEL) && has(template_text, len, MESSAGE);
    for (size_t i = 0; i < N_PAIRS; i++)
        if (has(template_text, len, pairs[i].open) || has(template_text, len, pairs[i].close)) {
            out->open = pairs[i].open;
            out->close = pairs[i].close;
            break;
        }
    for (size_t i = 0; i < N_FIELDS; i++)
        if (has_member(template_text, len, fields[i])) {
            out->field = fields[i];
            break;
        }
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

bool chat_style_inside(const struct chat_style *style, const char *prompt, size_t len)
{
    size_t n = strlen(style->open);
    if (style->harmony)
        return false;
    while (len > 0 && is_blank(prompt[len - 1]))
        len--;
    return len >= n && memcmp(prompt + len - n, style->open, n) == 0;
}

const char *chat_style_mark(const struct chat_style *style, size_t i)
{
    if (style->harmony)
        return i < N_HARMONY ? harmony_marks[i] : NULL;
    if (i == 0 && strncmp(style->open, "<|channel>", 10) == 0)
        return "<|channel>"; /* the token; "thought" behind it is text */
    return i == 0 ? style->open : i == 1 ? style->close : NULL;
}

/* ---------------------------------------------------------------- splitter */
enum {
    START,        /* blanks, then perhaps the opening mark */
    BEGIN_REASON, /* behind it: blanks are dropped */
    REASON,
    BEGIN_ANSWER, /* behind the closing mark: blanks are dropped */
    ANSWER,
    FIRST_HEADER, /* Harmony; text that is no header at all is an answer */
    HEADER,
    BODY
};

/* A header is a few words; longer ones are text that lost its way, and shown. */
#define MAX_HEADER 256

void chat_splitter_open(struct chat_splitter *s, const struct chat_style *style, bool inside,
                        chat_part_fn *fn, void *ctx)
{
    *s = (struct chat_splitter){.style = style, .fn = fn, .ctx = ctx, .kind = CHAT_ANSWER};
    s->state = style->harmony ? FIRST_HEADER : inside ? BEGIN_REASON : START;
}

void chat_splitter_close(struct chat_splitter *s)
{
    free(s->held.p);
    s->held = (struct atsi_bytes){.p = NULL};
}

/* Forgets the first n held bytes. */
static void eat(struct chat_splitter *s, size_t n)
{
    if (n == 0)
        return;
    s->held.n -= n;
    memmove(s->held.p, s->held.p + n, s->held.n);
}

/* Hands the first n held bytes on. */
static int emit(struct chat_splitter *s, enum chat_kind kind, size_t n)
{
    int rc = n > 0 ? s->fn(s->ctx, kind, s->held.p, n) : 0;
    eat(s, n);
    return rc;
}

/* Bytes at the end of the held text with which `mark` may begin, without being complete. */
static size_t open_tail(const struct chat_splitter *s, const char *mark)
{
    size_t n = strlen(mark) - 1;
    if (n > s->held.n)
        n = s->held.n;
    while (n > 0 && memcmp(s->held.p + s->held.n - n, mark, n) != 0)
        n--;
    return n;
}

/* Text of `kind` up to the first of `marks`: emits it, eats the mark, and sets *found to it.
 * Without one, all goes out that cannot be the beginning of one. */
static int until(struct chat_splitter *s, enum chat_kind kind, const char *const *marks, size_t n,
                 const char **found)
{
    const char *first = NULL;
    size_t keep = 0;
    int rc;
    *found = NULL;
    for (size_t i = 0; i < n; i++) {
        const char *at = memmem(s->held.p, s->held.n, marks[i], strlen(marks[i]));
        size_t tail = open_tail(s, marks[i]);
        if (at != NULL && (first == NULL || at < first)) {
            first = at;
            *found = marks[i];
        }
        if (tail > keep)
            keep = tail;
    }
    if (first == NULL)
        return emit(s, kind, s->held.n - keep);
    rc = emit(s, kind, (size_t)(first - s->held.p));
    eat(s, strlen(*found));
    return rc;
}

static size_t blanks(const struct chat_splitter *s)
{
    size_t n = 0;
    while (n < s->held.n && is_blank(s->held.p[n]))
        n++;
    return n;
}

/* Whether the text at `at` is `mark` (1), may become it (0), or is something else (-1). */
static int compare(const struct chat_splitter *s, size_t at, const char *mark)
{
    size_t n = strlen(mark), left = s->held.n - at;
    if (memcmp(s->held.p + at, mark, left < n ? left : n) != 0)
        return -1;
    return left >= n ? 1 : 0;
}

/* Each step returns with *more when the state changed and the held text is to be looked at again.
 */
static void step_start(struct chat_splitter *s, bool *more)
{
    size_t at = blanks(s);
    int is = compare(s, at, s->style->open);
    if (is == 0)
        return;
    if (is == 1)
        eat(s, at + strlen(s->style->open));
    s->state = is == 1 ? BEGIN_REASON : ANSWER;
    *more = true;
}

static void step_begin(struct chat_splitter *s, int next, bool *more)
{
    eat(s, blanks(s));
    if (s->held.n == 0)
        return;
    s->state = next;
    *more = true;
}

static int step_reason(struct chat_splitter *s, bool *more)
{
    const char *found;
    int rc = until(s, CHAT_REASONING, &s->style->close, 1, &found);
    if (found != NULL) {
        s->state = BEGIN_ANSWER;
        *more = true;
    }
    return rc;
}

/* The channel that a header names; a header without one belongs to an answer. */
static enum chat_kind header_kind(const char *header, size_t n)
{
    const char *p = memmem(header, n, CHANNEL, sizeof CHANNEL - 1);
    size_t left;
    if (p == NULL)
        return CHAT_ANSWER;
    p += sizeof CHANNEL - 1;
    left = n - (size_t)(p - header);
    return left >= 5 && memcmp(p, "final", 5) == 0 && (left == 5 || !is_name(p[5]))
               ? CHAT_ANSWER
               : CHAT_REASONING;
}

static int step_header(struct chat_splitter *s, bool *more)
{
    size_t n = s->held.n < MAX_HEADER ? s->held.n : MAX_HEADER;
    const char *at = memmem(s->held.p, n, MESSAGE, sizeof MESSAGE - 1);
    if (at == NULL && n < MAX_HEADER)
        return 0;
    s->state = BODY;
    *more = true;
    s->kind = CHAT_ANSWER;
    if (at == NULL)
        return emit(s, CHAT_ANSWER, n);
    s->kind = header_kind(s->held.p, (size_t)(at - s->held.p));
    eat(s, (size_t)(at - s->held.p) + sizeof MESSAGE - 1);
    return 0;
}

static void step_first_header(struct chat_splitter *s, bool *more)
{
    size_t at = blanks(s);
    bool maybe = false;
    for (size_t i = 0; i < N_HARMONY; i++) {
        int is = compare(s, at, harmony_marks[i]);
        if (is == 1) {
            s->state = HEADER;
            *more = true;
            return;
        }
        maybe = maybe || is == 0;
    }
    /* " to=functions.NAME<|channel|>commentary ...": the addressee of a tool call. */
    if (maybe || compare(s, at, "to=") == 0)
        return;
    s->state = compare(s, at, "to=") == 1 ? HEADER : BODY;
    *more = true;
}

static int step_body(struct chat_splitter *s, bool *more)
{
    const char *found;
    int rc = until(s, s->kind, body_ends, N_BODY_ENDS, &found);
    if (found == NULL)
        return rc;
    if (found == CHANNEL) { /* a header without <|start|>: put its first mark back */
        if (!atsi_bytes_reserve(&s->held, sizeof CHANNEL))
            return CHAT_SPLIT_NOMEM;
        memmove(s->held.p + sizeof CHANNEL - 1, s->held.p, s->held.n);
        memcpy(s->held.p, CHANNEL, sizeof CHANNEL - 1);
        s->held.n += sizeof CHANNEL - 1;
    }
    if (found != MESSAGE)
        s->state = HEADER;
    *more = true;
    return rc;
}

static int step(struct chat_splitter *s, bool *more)
{
    switch (s->state) {
    case START:
        step_start(s, more);
        return 0;
    case BEGIN_REASON:
        step_begin(s, REASON, more);
        return 0;
    case REASON:
        return step_reason(s, more);
    case BEGIN_ANSWER:
        step_begin(s, ANSWER, more);
        return 0;
    case FIRST_HEADER:
        step_first_header(s, more);
        return 0;
    case HEADER:
        return step_header(s, more);
    case BODY:
        return step_body(s, more);
    default:
        return emit(s, CHAT_ANSWER, s->held.n);
    }
}

int chat_splitter_push(struct chat_splitter *s, const char *text, size_t len)
{
    bool more = true;
    int rc = 0;
    if (len == 0)
        return 0;
    if (!atsi_bytes_add(&s->held, text, len))
        return CHAT_SPLIT_NOMEM;
    while (more && rc == 0 && s->held.n > 0) {
        more = false;
        rc = step(s, &more);
    }
    return rc;
}

int chat_splitter_flush(struct chat_splitter *s)
{
    switch (s->state) {
    case HEADER: /* a header that never came to its message: nothing to show */
        s->held.n = 0;
        return 0;
    case FIRST_HEADER:
    case START:
    case ANSWER:
        return emit(s, CHAT_ANSWER, s->held.n);
    case REASON:
        return emit(s, CHAT_REASONING, s->held.n);
    case BODY:
        return emit(s, s->kind, s->held.n);
    default: /* nothing but blanks is held */
        s->held.n = 0;
        return 0;
    }
}
