/* SPDX-License-Identifier: Apache-2.0
 * Going back in a session, with a fake that cannot be cut wherever one likes. */
#include "cli/chat_past.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---------------------------------------------------------------- the fake */
struct atsi_checkpoint {
    uint32_t n;
    int32_t tokens[64];
};

struct atsi_session {
    uint32_t n_past, low; /* truncation reaches positions >= low, and 0 */
    int32_t tokens[64];
    uint32_t can_rewind;
    size_t cp_bytes;
    int n_cp; /* checkpoints alive */
    bool no_memory;
} fake;

void atsi_session_info(const struct atsi_session *s, struct atsi_session_info *out)
{
    out->can_rewind = s->can_rewind;
}

uint32_t atsi_session_n_past(const struct atsi_session *s)
{
    return s->n_past;
}

const int32_t *atsi_session_tokens(const struct atsi_session *s)
{
    return s->tokens;
}

uint32_t atsi_session_rewind_point(const struct atsi_session *s, uint32_t n)
{
    if (n >= s->n_past)
        return s->n_past;
    return s->can_rewind || n >= s->low ? n : 0;
}

int atsi_session_truncate(struct atsi_session *s, uint32_t n, struct atsi_err *err)
{
    (void)err;
    assert_int_equal(atsi_session_rewind_point(s, n), n);
    s->n_past = n;
    if (n == 0)
        s->low = 0;
    return ATSI_OK;
}

int atsi_session_checkpoint(const struct atsi_session *s, struct atsi_checkpoint **out,
                            struct atsi_err *err)
{
    if (s->no_memory)
        return atsi_fail(err, ATSI_ENOMEM, "no memory");
    *out = calloc(1, sizeof **out);
    assert_non_null(*out);
    (*out)->n = s->n_past;
    memcpy((*out)->tokens, s->tokens, sizeof s->tokens);
    fake.n_cp++;
    return ATSI_OK;
}

int atsi_session_restore(struct atsi_session *s, const struct atsi_checkpoint *cp,
                         struct atsi_err *err)
{
    (void)err;
    assert_true(cp->n <= s->n_past);
    assert_memory_equal(cp->tokens, s->tokens, cp->n * sizeof s->tokens[0]);
    s->n_past = s->low = cp->n;
    return ATSI_OK;
}

uint32_t atsi_checkpoint_n_past(const struct atsi_checkpoint *cp)
{
    return cp->n;
}

size_t atsi_checkpoint_bytes(const struct atsi_checkpoint *cp)
{
    (void)cp;
    return fake.cp_bytes;
}

void atsi_checkpoint_free(struct atsi_checkpoint *cp)
{
    if (cp != NULL)
        fake.n_cp--;
    free(cp);
}

static void begin(struct chat_past *p, bool can_rewind, size_t max_bytes)
{
    fake = (struct atsi_session){.can_rewind = can_rewind, .cp_bytes = 1};
    chat_past_open(p, &fake, max_bytes);
}

/* The tokens of a text, one a letter. */
static size_t ids_of(const char *text, int32_t ids[64])
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        ids[i] = text[i];
    return n;
}

/* Evaluates more letters; a recurrent state then knows only the present. */
static void eval(const char *text)
{
    fake.n_past += (uint32_t)ids_of(text, fake.tokens + fake.n_past);
    if (!fake.can_rewind)
        fake.low = fake.n_past;
}

static uint32_t rewind_to(struct chat_past *p, const char *text)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t ids[64];
    uint32_t kept = 99;
    assert_int_equal(chat_past_rewind(p, ids, ids_of(text, ids), &kept, &err), ATSI_OK);
    assert_int_equal(kept, fake.n_past);
    assert_memory_equal(ids, fake.tokens, kept * sizeof ids[0]);
    return kept;
}

static void mark(struct chat_past *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    assert_int_equal(chat_past_mark(p, &err), ATSI_OK);
}

/* ---------------------------------------------------------------- tests */
static void test_common(void **state)
{
    const int32_t a[] = {1, 2, 3}, b[] = {1, 2, 4, 5};
    (void)state;
    assert_int_equal(chat_common(a, 3, b, 4), 2);
    assert_int_equal(chat_common(a, 2, b, 4), 2);
    assert_int_equal(chat_common(a, 0, b, 4), 0);
    assert_int_equal(chat_common(a, 3, a, 3), 3);
}

static void test_cut(void **state)
{
    struct chat_past p;
    (void)state;
    begin(&p, true, 100);
    assert_int_equal(rewind_to(&p, "abc"), 0);
    eval("abcdef");
    assert_int_equal(rewind_to(&p, "abcdefgh"), 6); /* it goes on */
    assert_int_equal(rewind_to(&p, "abcXYZ"), 3);   /* another middle */
    eval("def");
    assert_int_equal(rewind_to(&p, "abcdef"), 5); /* the same again: the last one's logits */
    assert_int_equal(rewind_to(&p, "abc"), 2);
    mark(&p); /* nothing is copied for a model that can be cut back */
    assert_int_equal(p.n_cp, 0);
    assert_int_equal(rewind_to(&p, "x"), 0);
}

static void test_restore(void **state)
{
    struct chat_past p;
    (void)state;
    begin(&p, false, 100);
    mark(&p); /* of an empty session: none */
    assert_int_equal(p.n_cp, 0);
    eval("abc");
    mark(&p);
    mark(&p); /* there is one already */
    assert_int_equal(p.n_cp, 1);
    eval("def");
    mark(&p);
    eval("ghi");
    assert_int_equal(rewind_to(&p, "abcdefghijk"), 9); /* it goes on: nothing is restored */
    assert_int_equal(p.n_cp, 2);
    assert_int_equal(rewind_to(&p, "abcdefgX"), 6);
    assert_int_equal(p.n_cp, 2);
    eval("gX");
    assert_int_equal(rewind_to(&p, "abcdeYYY"), 3); /* what is longer than "abcde" is no use now */
    assert_int_equal(p.n_cp, 1);
    assert_int_equal(rewind_to(&p, "abX"), 0);
    assert_int_equal(p.n_cp, 0);
    assert_int_equal(fake.n_cp, 0);
}

/* A window that still reaches is cut, not restored. */
static void test_window(void **state)
{
    struct chat_past p;
    (void)state;
    begin(&p, false, 100);
    eval("abc");
    mark(&p);
    eval("defghi");
    fake.low = 5;
    assert_int_equal(rewind_to(&p, "abcdefX"), 6);
    assert_int_equal(rewind_to(&p, "abcdX"), 3);
    chat_past_forget(&p);
    assert_int_equal(fake.n_cp, 0);
}

/* The newest and the very first stay. */
static void test_bounds(void **state)
{
    struct chat_past p;
    (void)state;
    begin(&p, false, 100);
    for (int i = 0; i < 40; i++) {
        eval("x");
        mark(&p);
    }
    assert_int_equal(p.n_cp, CHAT_MAX_CHECKPOINTS);
    assert_int_equal(fake.n_cp, CHAT_MAX_CHECKPOINTS);
    assert_int_equal(atsi_checkpoint_n_past(p.cp[0]), 1);
    assert_int_equal(atsi_checkpoint_n_past(p.cp[p.n_cp - 1]), 40);
    chat_past_forget(&p);
    assert_int_equal(fake.n_cp, 0);
    begin(&p, false, 25);
    fake.cp_bytes = 10;
    for (int i = 0; i < 4; i++) {
        eval("x");
        mark(&p);
    }
    assert_int_equal(p.n_cp, 2);
    assert_int_equal(chat_past_bytes(&p), 20);
    assert_int_equal(atsi_checkpoint_n_past(p.cp[0]), 1);
    assert_int_equal(atsi_checkpoint_n_past(p.cp[1]), 4);
    fake.cp_bytes = 1000; /* one is kept whatever its size */
    eval("x");
    mark(&p);
    assert_int_equal(p.n_cp, 1);
    assert_int_equal(atsi_checkpoint_n_past(p.cp[0]), 5);
    chat_past_forget(&p);
}

static void test_no_memory(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct chat_past p;
    (void)state;
    begin(&p, false, 100);
    eval("abc");
    fake.no_memory = true;
    assert_int_equal(chat_past_mark(&p, &err), ATSI_ENOMEM);
    assert_int_equal(p.n_cp, 0);
    eval("d");
    assert_int_equal(rewind_to(&p, "abX"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),  cmocka_unit_test(test_cut),
        cmocka_unit_test(test_restore), cmocka_unit_test(test_window),
        cmocka_unit_test(test_bounds),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
