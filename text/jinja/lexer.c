/* SPDX-License-Identifier: Apache-2.0
 *
 * The lexer: text and tags, with trim_blocks and lstrip_blocks, and what lies within a tag.
 *
 * White space control: "{%-" drops all white space before a tag, "-%}" all behind it.  Without
 * signs, blanks between a line's start and a block or comment are dropped ("{%+" keeps them), and
 * so is one line end behind "%}" or "#}" ("+%}" keeps it).
 */
#include "text/jinja/lexer.h"

#include "text/jinja/number.h"
#include "text/jinja/ucs.h"

struct lexer {
    struct atsi_jr *r;
    const char *p; /* source, line ends as \n */
    size_t n, at;
    uint32_t line;
    size_t line_at;     /* the lines up to here are counted */
    bool line_starting; /* the tag before ended with a line end */
    char open[200];     /* brackets that wait for their end */
    size_t n_open;
    struct atsi_jtokens *out;
};

/* The line of a position that is not before the last one asked for. */
static uint32_t line_of(struct lexer *l, size_t at)
{
    for (; l->line_at < at; l->line_at++)
        l->line += l->p[l->line_at] == '\n';
    return l->line;
}

static bool fail_at(struct lexer *l, size_t at, const char *what)
{
    l->r->line = line_of(l, at);
    (void)atsi_jr_error(l->r, "%s", what);
    return false;
}

static struct atsi_jtoken *add(struct lexer *l, enum atsi_jtoken_kind kind, size_t at)
{
    struct atsi_jtokens *out = l->out;
    struct atsi_jtoken *t;
    if (out->n == out->cap) {
        size_t cap = out->cap == 0 ? 64 : 2 * out->cap;
        t = atsi_jr_array(l->r, cap, sizeof *t);
        if (t == NULL)
            return NULL;
        if (out->n > 0)
            memcpy(t, out->v, out->n * sizeof *t);
        out->v = t;
        out->cap = cap;
    }
    t = &out->v[out->n++];
    t->kind = (uint8_t)kind;
    t->line = line_of(l, at);
    return t;
}

static bool add_text(struct lexer *l, enum atsi_jtoken_kind kind, size_t from, size_t to)
{
    struct atsi_jtoken *t = add(l, kind, from);
    if (t == NULL)
        return false;
    t->value = atsi_jv_text(l->r, l->p + from, to - from);
    return t->value.type != ATSI_J_FAIL;
}

static bool has(const struct lexer *l, size_t at, const char *text)
{
    size_t n = strlen(text);
    return l->n - at >= n && memcmp(l->p + at, text, n) == 0;
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    while (at < l->n) {
        size_t next = at;
        if (!atsi_ucs_is_space(atsi_ucs_next(l->p, l->n, &next)))
            break;
        at = next;
    }
    return at;
}

/* ---------------------------------------------------------------- text and tags */
/* Where the tag end at `at` ("%}" or "#}", with a sign) is left behind; 0 when there is none. */
static size_t match_end(const struct lexer *l, size_t at, const char *end, bool block)
{
    if (at < l->n && l->p[at] == '-' && has(l, at + 1, end))
        return skip_space(l, at + 3);
    if (block && at < l->n && l->p[at] == '+' && has(l, at + 1, end))
        return at + 3;
    if (!has(l, at, end))
        return 0;
    at += 2;
    return block && at < l->n && l->p[at] == '\n' ? at + 1 : at;
}

/* Moves behind a tag. */
static void leave_tag(struct lexer *l, size_t to)
{
    l->at = to;
    l->line_starting = l->p[to - 1] == '\n';
}

/* End of the text [from, to) before a tag with this sign. */
static size_t trimmed_end(const struct lexer *l, size_t from, size_t to, char sign, bool variable)
{
    size_t start = to;
    if (sign == '-')
        return from + atsi_ucs_rstrip(l->p + from, to - from);
    if (sign == '+' || variable)
        return to;
    while (start > from && l->p[start - 1] != '\n')
        start--;
    if (start == from && !l->line_starting)
        return to;
    return atsi_ucs_rstrip(l->p + start, to - start) == 0 ? start : to;
}

static bool text_before(struct lexer *l, size_t to, char sign, bool variable)
{
    size_t end = trimmed_end(l, l->at, to, sign, variable);
    return end == l->at || add_text(l, ATSI_JT_DATA, l->at, end);
}

static char sign_at(const struct lexer *l, size_t at)
{
    return at < l->n && (l->p[at] == '-' || l->p[at] == '+') ? l->p[at] : 0;
}

/* "{% raw %}" at `at`: where its text begins, else 0. */
static size_t match_raw(const struct lexer *l, size_t at)
{
    size_t to = skip_space(l, at + 2 + (sign_at(l, at + 2) != 0));
    if (!has(l, to, "raw"))
        return 0;
    to = skip_space(l, to + 3);
    if (has(l, to, "-%}"))
        return skip_space(l, to + 3);
    return has(l, to, "%}") ? to + 2 : 0;
}

/* "{% endraw %}" at `at`: what follows it, else 0. */
static size_t match_endraw(const struct lexer *l, size_t at)
{
    size_t to = skip_space(l, at + 2 + (sign_at(l, at + 2) != 0));
    return has(l, to, "endraw") ? match_end(l, skip_space(l, to + 6), "%}", true) : 0;
}

static bool lex_raw(struct lexer *l, size_t tag, size_t text)
{
    leave_tag(l, text);
    for (size_t at = text; at < l->n; at++) {
        const char *brace = memchr(l->p + at, '{', l->n - at);
        size_t end;
        if (brace == NULL)
            break;
        at = (size_t)(brace - l->p);
        end = has(l, at, "{%") ? match_endraw(l, at) : 0;
        if (end == 0)
            continue;
        if (!text_before(l, at, sign_at(l, at + 2), false))
            return false;
        leave_tag(l, end);
        return true;
    }
    if (text < l->n)
        return fail_at(l, tag, "a raw block without {% endraw %}");
    l->at = l->n; /* Jinja2 lets the tag stand at the very end */
    return true;
}

static bool lex_comment(struct lexer *l, size_t tag)
{
    for (size_t at = tag + 2 + (sign_at(l, tag + 2) != 0); at < l->n; at++) {
        size_t end = match_end(l, at, "#}", true);
        if (end != 0) {
            leave_tag(l, end);
            return true;
        }
    }
    if (tag + 2 + (sign_at(l, tag + 2) != 0) < l->n)
        return fail_at(l, tag, "a comment without #}");
    l->at = l->n; /* as above */
    return true;
}

/* ---------------------------------------------------------------- within a tag */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; where they end. */
static size_t digits(const struct lexer *l, size_t at)
{
    while (at < l->n &&
           (is_digit(l->p[at]) || (l->p[at] == '_' && at + 1 < l->n && is_digit(l->p[at + 1]))))
        at++;
    return at;
}

/* A float at `from` (a digit): where it ends, or 0. */
static size_t match_float(const struct lexer *l, size_t from)
{
    size_t whole = digits(l, from), at = whole, e;
    bool point = false;
    if (from > 0 && l->p[from - 1] == '.')
        return 0; /* the index of `x.1.2` */
    if (at + 1 < l->n && l->p[at] == '.' && is_digit(l->p[at + 1])) {
        at = digits(l, at + 1);
        point = true;
    }
    e = at;
    if (e < l->n && (l->p[e] == 'e' || l->p[e] == 'E')) {
        e++;
        if (e < l->n && (l->p[e] == '+' || l->p[e] == '-'))
            e++;
        if (e < l->n && is_digit(l->p[e]))
            return digits(l, e);
    }
    return point ? at : 0;
}

/* An integer at `from` (a digit): where it ends. */
static size_t match_int(const struct lexer *l, size_t from)
{
    static const char *const sets[] = {"xX0123456789abcdefABCDEF", "oO01234567", "bB01"};
    size_t at = from + 1;
    if (l->p[from] != '0')
        return digits(l, from);
    for (size_t i = 0; i < 3; i++) {
        const char *set = sets[i];
        size_t to = at + 1;
        if (at >= l->n || (l->p[at] != set[0] && l->p[at] != set[1]))
            continue;
        while (to < l->n && (memchr(set + 2, l->p[to], strlen(set + 2)) != NULL ||
                             (l->p[to] == '_' && to + 1 < l->n &&
                              memchr(set + 2, l->p[to + 1], strlen(set + 2)) != NULL)))
            to++;
        if (to > at + 1)
            return to;
    }
    while (at < l->n &&
           (l->p[at] == '0' || (l->p[at] == '_' && at + 1 < l->n && l->p[at + 1] == '0')))
        at++;
    return at;
}

static bool lex_number(struct lexer *l)
{
    size_t from = l->at, end = match_float(l, from);
    struct atsi_jtoken *t;
    l->at = end != 0 ? end : match_int(l, from);
    t = add(l, end != 0 ? ATSI_JT_FLOAT : ATSI_JT_INT, from);
    if (t == NULL)
        return false;
    l->r->line = t->line;
    if (end != 0) {
        double f;
        if (!atsi_jfloat_from_text(l->p + from, end - from, &f))
            return fail_at(l, from, "a number with too many digits");
        t->value = atsi_jv_float(f);
    } else {
        int64_t i;
        if (atsi_jint_parse(l->p + from, l->at - from, 0, &i) != 1) {
            (void)atsi_jr_notsup(l->r, "integers beyond 64 bits are not supported");
            return false;
        }
        t->value = atsi_jv_int(i);
    }
    return true;
}

static bool lex_string(struct lexer *l)
{
    size_t from = l->at + 1, at = from;
    char quote = l->p[l->at];
    struct atsi_jtoken *t;
    while (at < l->n && l->p[at] != quote)
        at += l->p[at] == '\\' ? 2 : 1;
    if (at >= l->n)
        return fail_at(l, l->at, "a string without its closing quote");
    t = add(l, ATSI_JT_STRING, l->at);
    if (t == NULL)
        return false;
    l->r->line = t->line;
    t->value = atsi_jlex_unescape(l->r, l->p + from, at - from);
    l->at = at + 1;
    return t->value.type != ATSI_J_FAIL;
}

static bool push_bracket(struct lexer *l, char c)
{
    char want = c == '(' ? ')' : c == '[' ? ']' : '}';
    if (l->n_open == sizeof l->open)
        return fail_at(l, l->at, "brackets nested more than 200 levels deep");
    l->open[l->n_open++] = want;
    return true;
}

static bool pop_bracket(struct lexer *l, char c)
{
    if (l->n_open > 0 && l->open[l->n_open - 1] == c) {
        l->n_open--;
        return true;
    }
    l->r->line = line_of(l, l->at);
    if (l->n_open == 0)
        (void)atsi_jr_error(l->r, "unexpected '%c'", c);
    else
        (void)atsi_jr_error(l->r, "unexpected '%c', expected '%c'", c, l->open[l->n_open - 1]);
    return false;
}

static bool lex_operator(struct lexer *l)
{
    static const char *const doubles[] = {"==E", "!=N", "<=L", ">=G", "//F", "**P"};
    char c = l->p[l->at], op = c;
    size_t len = 1;
    struct atsi_jtoken *t;
    for (size_t i = 0; i < sizeof doubles / sizeof doubles[0]; i++)
        if (l->at + 1 < l->n && memcmp(l->p + l->at, doubles[i], 2) == 0) {
            op = doubles[i][2];
            len = 2;
        }
    if (c == '\0' || (len == 1 && strchr("+-/*%~[](){}<>=.:|,;", c) == NULL)) {
        l->r->line = line_of(l, l->at);
        if (c > ' ' && c < 0x7F)
            (void)atsi_jr_error(l->r, "unexpected character '%c'", c);
        else
            (void)atsi_jr_error(l->r, "unexpected character, byte 0x%02X", (unsigned char)c);
        return false;
    }
    if (strchr("([{", c) != NULL && !push_bracket(l, c))
        return false;
    if (strchr(")]}", c) != NULL && !pop_bracket(l, c))
        return false;
    t = add(l, ATSI_JT_OP, l->at);
    if (t == NULL)
        return false;
    t->op = op;
    l->at += len;
    return true;
}

/* End of the name at `at`, which does not begin with an ASCII digit. */
static size_t match_name(const struct lexer *l, size_t at)
{
    size_t next = at;
    while (next < l->n && atsi_ucs_is_word(atsi_ucs_next(l->p, l->n, &next)))
        at = next;
    return at;
}

static bool lex_tag(struct lexer *l, size_t tag, bool variable)
{
    const char *close = variable ? "}}" : "%}";
    l->n_open = 0;
    l->at = tag + 2 + (sign_at(l, tag + 2) != 0);
    if (add(l, variable ? ATSI_JT_VAR_BEGIN : ATSI_JT_BLOCK_BEGIN, tag) == NULL)
        return false;
    for (;;) {
        size_t end, name;
        bool ok;
        l->at = skip_space(l, l->at);
        if (l->at >= l->n)
            return fail_at(l, tag, variable ? "{{ without }}" : "{% without %}");
        end = l->n_open == 0 ? match_end(l, l->at, close, !variable) : 0;
        if (end != 0) {
            ok = add(l, variable ? ATSI_JT_VAR_END : ATSI_JT_BLOCK_END, l->at) != NULL;
            leave_tag(l, end);
            return ok;
        }
        if (is_digit(l->p[l->at])) {
            ok = lex_number(l);
        } else if ((name = match_name(l, l->at)) > l->at) {
            ok = add_text(l, ATSI_JT_NAME, l->at, name);
            l->at = name;
        } else if (l->p[l->at] == '\'' || l->p[l->at] == '"') {
            ok = lex_string(l);
        } else {
            ok = lex_operator(l);
        }
        if (!ok)
            return false;
    }
}

/* Position of the next tag, or n. */
static size_t find_tag(const struct lexer *l)
{
    for (size_t at = l->at; at + 1 < l->n; at++) {
        const char *brace = memchr(l->p + at, '{', l->n - at - 1);
        if (brace == NULL)
            break;
        at = (size_t)(brace - l->p);
        if (brace[1] == '%' || brace[1] == '{' || brace[1] == '#')
            return at;
    }
    return l->n;
}

static bool lex_next(struct lexer *l)
{
    size_t tag = find_tag(l), raw;
    bool variable = tag < l->n && l->p[tag + 1] == '{';
    if (tag == l->n) {
        bool ok = add_text(l, ATSI_JT_DATA, l->at, tag);
        l->at = tag;
        return ok;
    }
    if (!text_before(l, tag, sign_at(l, tag + 2), variable))
        return false;
    if (l->p[tag + 1] == '#')
        return lex_comment(l, tag);
    raw = variable ? 0 : match_raw(l, tag);
    return raw != 0 ? lex_raw(l, tag, raw) : lex_tag(l, tag, variable);
}

/* A copy with every line end as \n, and without the last one. */
static bool copy_source(struct lexer *l, const char *source, size_t len)
{
    char *p = atsi_arena_chars(&l->r->arena, len);
    if (p == NULL && len > 0) {
        (void)atsi_jr_nomem(l->r);
        return false;
    }
    l->p = p;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            i++;
        p[l->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (l->n > 0 && p[l->n - 1] == '\n')
        l->n--;
    return true;
}

bool atsi_jlex(struct atsi_jr *r, const char *source, size_t len, struct atsi_jtokens *out)
{
    struct lexer l = {.r = r, .line = 1, .line_starting = true, .out = out};
    if (!copy_source(&l, source, len))
        return false;
    while (l.at < l.n)
        if (!lex_next(&l))
            return false;
    return add(&l, ATSI_JT_END, l.n) != NULL;
}
