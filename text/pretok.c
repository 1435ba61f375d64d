/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the expressions of a pre-tokenizer through PCRE2, compiled to machine code where the system
 * allows that.
 *
 * Text between matches is a piece too.  Every later expression sees one piece as if it were the
 * whole text.  A match or memory limit that is reached is a failure, never "no match": a wrong cut
 * would silently give wrong ids.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/pretok.h"

#include <pcre2.h>
#include <stdint.h>
#include <stdlib.h>

#define JIT_STACK_START ((size_t)256 << 10)
#define JIT_STACK_MAX ((size_t)64 << 20)

struct atsi_pretok {
    pcre2_code *code[ATSI_PRETOK_MAX];
    size_t n;
};

struct atsi_pretok_run {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *jit_stack; /* NULL until the default of 32 KiB proves too small */
};

static int compile(const char *expr, pcre2_code **out, struct atsi_err *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    *out = pcre2_compile((PCRE2_SPTR)expr, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
    if (*out == NULL) {
        PCRE2_UCHAR words[128];
        (void)pcre2_get_error_message(code, words, sizeof words);
        return atsi_fail(err, code == PCRE2_ERROR_NOMEMORY ? ATSI_ENOMEM : ATSI_EFAIL,
                         "pre-tokenizer: PCRE2 refuses an expression at offset %zu: %s", (size_t)at,
                         (const char *)words);
    }
    /* Without machine code (a hardened system, another CPU) matching is interpreted: slower. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return ATSI_OK;
}

int atsi_pretok_open(const struct atsi_pretok_kind *kind, struct atsi_pretok **out,
                     struct atsi_err *err)
{
    struct atsi_pretok *p = calloc(1, sizeof *p);
    int rc = ATSI_OK;
    *out = p;
    if (p == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "pre-tokenizer: out of memory");
    for (; rc == ATSI_OK && kind->expr[p->n] != NULL; p->n += rc == ATSI_OK)
        rc = compile(kind->expr[p->n], &p->code[p->n], err);
    if (rc != ATSI_OK) {
        atsi_pretok_close(p);
        *out = NULL;
    }
    return rc;
}

void atsi_pretok_close(struct atsi_pretok *p)
{
    if (p == NULL)
        return;
    for (size_t i = 0; i < p->n; i++)
        pcre2_code_free(p->code[i]);
    free(p);
}

int atsi_pretok_run_open(const struct atsi_pretok *p, size_t text_len, struct atsi_pretok_run **out,
                         struct atsi_err *err)
{
    struct atsi_pretok_run *r = calloc(1, sizeof *r);
    uint64_t limit = 10000000u + 64u * (uint64_t)text_len; /* backtracks; linear text needs few */
    if (r != NULL) {
        r->match = pcre2_match_data_create_from_pattern(p->code[0], NULL);
        r->context = pcre2_match_context_create(NULL);
    }
    *out = r;
    if (r == NULL || r->match == NULL || r->context == NULL) {
        atsi_pretok_run_close(r);
        *out = NULL;
        return atsi_fail(err, ATSI_ENOMEM, "pre-tokenizer: out of memory");
    }
    (void)pcre2_set_match_limit(r->context, limit > UINT32_MAX ? UINT32_MAX : (uint32_t)limit);
    return ATSI_OK;
}

void atsi_pretok_run_close(struct atsi_pretok_run *r)
{
    if (r == NULL)
        return;
    pcre2_match_data_free(r->match);
    pcre2_match_context_free(r->context);
    if (r->jit_stack != NULL)
        pcre2_jit_stack_free(r->jit_stack);
    free(r);
}

/* Searches text[n] from `at`: 1 found, 0 not, or an error. */
static int search(const pcre2_code *code, struct atsi_pretok_run *r, const char *text, size_t n,
                  size_t at, struct atsi_err *err)
{
    for (;;) {
        int rc =
            pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, r->match, r->context);
        PCRE2_UCHAR words[128];
        if (rc >= 0)
            return 1;
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT && r->jit_stack == NULL) {
            r->jit_stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, NULL);
            if (r->jit_stack != NULL) {
                pcre2_jit_stack_assign(r->context, NULL, r->jit_stack);
                continue;
            }
        }
        (void)pcre2_get_error_message(rc, words, sizeof words);
        return atsi_fail(err, rc == PCRE2_ERROR_NOMEMORY ? ATSI_ENOMEM : ATSI_EFAIL,
                         "pre-tokenizer: PCRE2 gave up at byte %zu of %zu: %s", at, n,
                         (const char *)words);
    }
}

struct split {
    const struct atsi_pretok *pretok;
    struct atsi_pretok_run *run;
    const char *text;
    atsi_word_fn *fn;
    void *ctx;
    struct atsi_err *err;
};

static int split_piece(const struct split *s, size_t level, size_t start, size_t len);

/* A piece that expression `level` left: to the next expression, or out. */
static int pass_on(const struct split *s, size_t level, size_t start, size_t len)
{
    if (len == 0)
        return ATSI_OK;
    if (level + 1 == s->pretok->n)
        return s->fn(s->ctx, start, len);
    return split_piece(s, level + 1, start, len);
}

static int split_piece(const struct split *s, size_t level, size_t start, size_t len)
{
    const char *piece = s->text + start;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->run->match);
    for (size_t at = 0; at < len;) {
        int rc = search(s->pretok->code[level], s->run, piece, len, at, s->err);
        size_t from = rc == 1 ? found[0] : len, to = rc == 1 ? found[1] : len;
        if (rc < 0)
            return rc;
        rc = pass_on(s, level, start + at, from - at);
        if (rc == ATSI_OK)
            rc = pass_on(s, level, start + from, to - from);
        if (rc != ATSI_OK)
            return rc;
        at = to; /* no expression of the table matches the empty string */
    }
    return ATSI_OK;
}

int atsi_pretok_split(const struct atsi_pretok *p, struct atsi_pretok_run *r, const char *text,
                      size_t n, atsi_word_fn *fn, void *ctx, struct atsi_err *err)
{
    struct split s = {p, r, text, fn, ctx, err};
    return split_piece(&s, 0, 0, n);
}
