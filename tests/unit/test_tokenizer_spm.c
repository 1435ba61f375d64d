/* SPDX-License-Identifier: Apache-2.0
 * SPM vocabularies: merging by score, byte fallback, the space in front, and cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text_meta.h"

#define M "\xE2\x96\x81"
#define BYTE(b) (3 + (b))
enum { F = TEXT_SPM_FIRST };

static const struct text_token words[] = {
    {"a", 1, -10},        /* F */
    {"b", 1, -11},        /* F + 1 */
    {"c", 1, -12},        /* F + 2 */
    {M, 1, -13},          /* F + 3 */
    {"ab", 1, -2},        /* F + 4 */
    {"bc", 1, -1},        /* F + 5: better than ab */
    {"abc", 1, -3},       /* F + 6: from a + bc */
    {M "a", 1, -4},       /* F + 7 */
    {"aa", 1, -5},        /* F + 8 */
    {"aaaa", 1, -6},      /* F + 9 */
    {M M, 1, -7},         /* F + 10 */
    {"[X]", 4, 0},        /* F + 11: user-defined */
    {"ca", 1, -1},        /* F + 12: as good as bc */
    {"\xC3\xA9", 1, -20}, /* F + 13 */
};

static struct atsi_tokenizer *open_words(bool space_prefix)
{
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    text_meta_spm(&m, words, sizeof words / sizeof words[0]);
    text_meta_bool(&m, "tokenizer.ggml.add_space_prefix", space_prefix);
    t = text_open(&m);
    text_meta_free(&m);
    return t;
}

static void test_best_score_first(void **state)
{
    struct atsi_tokenizer *t = open_words(false);
    (void)state;
    TEXT_EXPECT(t, "ab", 0, F + 4);
    TEXT_EXPECT(t, "abc", 0, F + 6); /* bc, then a + bc; never ab + c */
    TEXT_EXPECT(t, "abcc", 0, F + 6, F + 2);
    TEXT_EXPECT(t, "abca", 0, F + 6, F); /* bc and ca are as good: the left one wins */
    TEXT_EXPECT(t, "aaa", 0, F + 8, F);  /* equal pairs: leftmost */
    TEXT_EXPECT(t, "aaaaaa", 0, F + 9, F + 8);
    TEXT_EXPECT(t, "\xC3\xA9", 0, F + 13);
    atsi_tokenizer_close(t);
}

static void test_unknown_text_becomes_bytes(void **state)
{
    struct atsi_tokenizer *t = open_words(false);
    (void)state;
    TEXT_EXPECT(t, "x", 0, BYTE('x'));
    TEXT_EXPECT(t,
                "a\xE4\xB8\xAD"
                "b",
                0, F, BYTE(0xE4), BYTE(0xB8), BYTE(0xAD), F + 1);
    TEXT_EXPECT(t, "\n", 0, BYTE('\n'));
    TEXT_EXPECT(t, "\0a", 0, BYTE(0), F);
    /* No UTF-8: the lead byte takes its length along, and every byte comes out. */
    TEXT_EXPECT(t, "\xFF", 0, BYTE(0xFF));
    TEXT_EXPECT(t, "\xC3(", 0, BYTE(0xC3), BYTE('('));
    TEXT_EXPECT(t,
                "\xF0\x9F"
                "a",
                0, BYTE(0xF0), BYTE(0x9F), BYTE('a'));
    TEXT_EXPECT(t,
                "\x80"
                "a",
                0, BYTE(0x80), F);
    /* A stray lead byte does not swallow the space after it. */
    TEXT_EXPECT(t, "\xF0 a", 0, BYTE(0xF0), F + 7);
    atsi_tokenizer_close(t);
}

static void test_space_in_front(void **state)
{
    struct atsi_tokenizer *t = open_words(true), *plain = open_words(false);
    (void)state;
    TEXT_EXPECT(t, "a", 0, F + 7);
    TEXT_EXPECT(t, "a a", 0, F + 7, F + 7);
    TEXT_EXPECT(t, " a", 0, F + 3, F + 7); /* mark + a is better than two marks */
    atsi_tokenizer_close(t);
    TEXT_EXPECT(plain, "a a", 0, F, F + 7);
    TEXT_EXPECT(plain, "  ", 0, F + 10);
    atsi_tokenizer_close(plain);
}

static void test_special_tokens(void **state)
{
    struct atsi_tokenizer *t = open_words(true);
    (void)state;
    text_expect(t, "", 0, 0, NULL, 0);
    TEXT_EXPECT(t, "", ATSI_TOK_ADD_SPECIAL, 1);
    TEXT_EXPECT(t, "a", ATSI_TOK_ADD_SPECIAL, 1, F + 7);
    /* Every fragment after a special token gets its space again. */
    TEXT_EXPECT(t, "a[X]a", 0, F + 7, F + 11, F + 7);
    TEXT_EXPECT(t, "<s>a</s>", ATSI_TOK_PARSE_SPECIAL, 1, F + 7, 2);
    TEXT_EXPECT(t, "<s>", 0, F + 3, BYTE('<'), BYTE('s'), BYTE('>'));
    atsi_tokenizer_close(t);
}

static void test_eos_on_request(void **state)
{
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_spm(&m, words, sizeof words / sizeof words[0]);
    text_meta_bool(&m, "tokenizer.ggml.add_eos_token", true);
    text_meta_bool(&m, "tokenizer.ggml.add_bos_token", false);
    t = text_open(&m);
    TEXT_EXPECT(t, "a", ATSI_TOK_ADD_SPECIAL, F + 7, 2);
    TEXT_EXPECT(t, "a", 0, F + 7);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

/* A token that holds a space after a letter joins words, so they must not be cut apart. */
static void test_token_across_a_space(void **state)
{
    static const struct text_token across[] = {
        {"a", 1, -5}, {M, 1, -6}, {"a" M, 1, -1}, {"a" M "a", 1, -2}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_spm(&m, across, 4);
    text_meta_bool(&m, "tokenizer.ggml.add_space_prefix", false);
    t = text_open(&m);
    TEXT_EXPECT(t, "a a", 0, F + 3);
    TEXT_EXPECT(t, "a a a", 0, F + 2, F + 3); /* both "a ", then the right one goes on */
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

/* A text whose parts cannot be reached by merges is not taken whole, however often it is asked. */
static void test_unreachable_token(void **state)
{
    static const struct text_token tokens[] = {{"a", 1, 0}, {"b", 1, 0}, {"aba", 1, 0}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_spm(&m, tokens, 3);
    text_meta_bool(&m, "tokenizer.ggml.add_space_prefix", false);
    t = text_open(&m);
    for (int i = 0; i < 3; i++)
        TEXT_EXPECT(t, "aba", 0, F, F + 1, F);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static uint64_t steps_of(const struct atsi_tokenizer *t, char c, size_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *text = malloc(n);
    int32_t *ids;
    size_t n_ids;
    uint64_t steps;
    assert_non_null(text);
    memset(text, c, n);
    assert_int_equal(atsi_tokenize_counted(t, text, n, 0, &ids, &n_ids, &steps, &err), ATSI_OK);
    free(ids);
    free(text);
    return steps;
}

static void test_long_runs_cost_linear(void **state)
{
    struct atsi_tokenizer *t = open_words(true);
    (void)state;
    for (size_t i = 0; i < 3; i++) { /* looked up and popped: a few per byte, however long */
        char c = "a x"[i];
        assert_true(steps_of(t, c, 1u << 20) <= 8u << 20);
    }
    atsi_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_score_first),  cmocka_unit_test(test_unknown_text_becomes_bytes),
        cmocka_unit_test(test_space_in_front),    cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_eos_on_request),    cmocka_unit_test(test_token_across_a_space),
        cmocka_unit_test(test_unreachable_token), cmocka_unit_test(test_long_runs_cost_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
