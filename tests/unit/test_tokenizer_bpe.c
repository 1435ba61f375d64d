/* SPDX-License-Identifier: Apache-2.0
 * Byte-level BPE: ranks, whole words, normalization, repair of bad UTF-8, and cost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text_meta.h"

enum { F = TEXT_BPE_FIRST };

/* In the byte alphabet, where \xC4\xA0 is a space. */
static const char *const merges[] = {
    "b c",               /* F */
    "a b",               /* F + 1 */
    "a bc",              /* F + 2 */
    "a a",               /* F + 3 */
    "aa aa",             /* F + 4 */
    "\xC4\xA0 a",        /* F + 5 */
    "\xC4\xA0\x61 bc",   /* F + 6 */
    "1 2",               /* F + 7 */
    "12 3",              /* F + 8 */
    "\xC3\x83 \xC2\xA9", /* F + 9: the bytes C3 A9, e with acute */
    "x y",               /* F + 10 */
};
enum { N_MERGES = sizeof merges / sizeof merges[0] };

static struct atsi_tokenizer *open_with(const char *pre, const struct text_token *extra, size_t n)
{
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    text_meta_bpe(&m, pre, merges, N_MERGES, extra, n);
    t = text_open(&m);
    text_meta_free(&m);
    return t;
}

static void test_lowest_rank_first(void **state)
{
    struct atsi_tokenizer *t = open_with("gpt-2", NULL, 0);
    (void)state;
    TEXT_EXPECT(t, "ab", 0, F + 1);
    TEXT_EXPECT(t, "abc", 0, F + 2); /* b c has rank 0, so not ab + c */
    TEXT_EXPECT(t, "aaa", 0, F + 3, 'a');
    TEXT_EXPECT(t, "aaaaaaa", 0, F + 4, F + 3, 'a');
    TEXT_EXPECT(t, "xyz", 0, F + 10, 'z');
    atsi_tokenizer_close(t);
}

static void test_words_are_apart(void **state)
{
    struct atsi_tokenizer *t = open_with("gpt-2", NULL, 0);
    (void)state;
    TEXT_EXPECT(t, "abc abc", 0, F + 2, ' ', F + 2); /* a bc goes before space a */
    TEXT_EXPECT(t, "a  a", 0, 'a', ' ', F + 5);
    TEXT_EXPECT(t, "a\n", 0, 'a', '\n');
    TEXT_EXPECT(t, "a1", 0, 'a', '1');
    text_expect(t, "", 0, 0, NULL, 0);
    atsi_tokenizer_close(t);
}

/* The same word as a token that merges cannot reach: only ignore_merges takes it. */
static void test_ignore_merges(void **state)
{
    static const struct text_token whole[] = {{"abab", 1, 0}, {"abc", 1, 0}};
    struct atsi_tokenizer *t = open_with("llama-bpe", whole, 2);
    (void)state;
    TEXT_EXPECT(t, "abab", 0, F + N_MERGES);
    TEXT_EXPECT(t, "abc", 0, F + N_MERGES + 1); /* of two equal texts the later id */
    atsi_tokenizer_close(t);
    t = open_with("qwen2", whole, 1);
    for (int i = 0; i < 3; i++)
        TEXT_EXPECT(t, "abab", 0, F + 1, F + 1);
    atsi_tokenizer_close(t);
}

static void test_digits_by_family(void **state)
{
    static const struct {
        const char *pre;
        int n;
        int32_t want[4];
    } rows[] = {
        {"llama-bpe", 2, {F + 8, '4'}},
        {"glm4", 2, {F + 8, '4'}},
        {"gpt-4o", 2, {F + 8, '4'}},
        {"deepseek-v3", 2, {F + 8, '4'}},
        {"gpt-2", 2, {F + 8, '4'}},
        {"default", 2, {F + 8, '4'}},
        {"qwen2", 4, {'1', '2', '3', '4'}},
        {"qwen35", 4, {'1', '2', '3', '4'}},
        {"deepseek-coder", 4, {'1', '2', '3', '4'}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct atsi_tokenizer *t = open_with(rows[i].pre, NULL, 0);
        text_expect(t, "1234", 4, 0, rows[i].want, (size_t)rows[i].n);
        atsi_tokenizer_close(t);
    }
}

/* qwen2 vocabularies with composed letters compose; without them the bytes stay; others never. */
static void test_nfc(void **state)
{
    struct atsi_tokenizer *t = open_with("qwen2", NULL, 0);
    struct text_meta m = {.n = 0};
    (void)state;
    TEXT_EXPECT(t, "e\xCC\x81", 0, F + 9);
    TEXT_EXPECT(t, "\xC3\xA9", 0, F + 9);
    TEXT_EXPECT(t, "e\xCC\x81\xFF", 0, F + 9, 0xEF, 0xBF, 0xBD);
    atsi_tokenizer_close(t);
    t = open_with("llama-bpe", NULL, 0);
    TEXT_EXPECT(t, "e\xCC\x81", 0, 'e', 0xCC, 0x81);
    atsi_tokenizer_close(t);
    text_meta_bpe(&m, "qwen2", merges, 9, NULL, 0); /* without the merge to C3 A9 */
    t = text_open(&m);
    TEXT_EXPECT(t, "e\xCC\x81", 0, 'e', 0xCC, 0x81);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

/* Every byte that belongs to no character becomes U+FFFD; lone surrogates pass as they are. */
static void test_bad_utf8(void **state)
{
    static const char *const pres[] = {"llama-bpe", "qwen2", "gpt-4o", "gpt-2", "default"};
    (void)state;
    for (size_t i = 0; i < sizeof pres / sizeof pres[0]; i++) {
        struct atsi_tokenizer *t = open_with(pres[i], NULL, 0);
        TEXT_EXPECT(t, "\xFF", 0, 0xEF, 0xBF, 0xBD);
        TEXT_EXPECT(t, "b\xC3", 0, 'b', 0xEF, 0xBF, 0xBD);
        TEXT_EXPECT(t, "\xE4\xB8", 0, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD);
        TEXT_EXPECT(t, "\xC0\x80", 0, 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD); /* overlong */
        TEXT_EXPECT(t, "\xED\xA0\x80", 0, 0xED, 0xA0, 0x80);
        TEXT_EXPECT(t, "b\0b", 0, 'b', 0, 'b');
        atsi_tokenizer_close(t);
    }
}

/* Merges may pass through texts that are no tokens. */
static void test_merge_through_a_text_without_token(void **state)
{
    static const char *const path[] = {"a b", "ab c", "q r"};
    struct text_meta m = {.n = 0};
    struct text_meta full = {.n = 0};
    struct atsi_meta_source src;
    struct atsi_meta all;
    struct atsi_tokenizer *t;
    struct atsi_str strs[257];
    (void)state;
    text_meta_bpe(&full, "gpt-2", path, 3, NULL, 0);
    src = text_meta_source(&full);
    assert_int_equal(src.find(src.ctx, "tokenizer.ggml.tokens", &all), ATSI_OK);
    memcpy(strs, all.strs, 256 * sizeof strs[0]); /* the bytes, then abc; neither ab nor qr */
    strs[256] = (struct atsi_str){"abc", 3};
    text_meta_str(&m, "tokenizer.ggml.model", "gpt2");
    text_meta_str(&m, "tokenizer.ggml.pre", "gpt-2");
    text_meta_strs(&m, "tokenizer.ggml.tokens", strs, 257);
    text_meta_texts(&m, "tokenizer.ggml.merges", path, 3);
    t = text_open(&m);
    TEXT_EXPECT(t, "abc", 0, 256);
    TEXT_EXPECT(t, "abd", 0, 'a', 'b', 'd');
    TEXT_EXPECT(t, "qr", 0, 'q', 'r');
    atsi_tokenizer_close(t);
    text_meta_free(&m);
    text_meta_free(&full);
}

static void test_bos(void **state)
{
    static const struct text_token bos[] = {{"<|b|>", 3, 0}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_bpe(&m, "llama-bpe", merges, N_MERGES, bos, 1); /* the family adds BOS by default */
    text_meta_u32(&m, "tokenizer.ggml.bos_token_id", F + N_MERGES);
    t = text_open(&m);
    TEXT_EXPECT(t, "a", ATSI_TOK_ADD_SPECIAL, F + N_MERGES, 'a');
    TEXT_EXPECT(t, "", ATSI_TOK_ADD_SPECIAL, F + N_MERGES);
    TEXT_EXPECT(t, "a", 0, 'a');
    atsi_tokenizer_close(t);
    text_meta_bool(&m, "tokenizer.ggml.add_bos_token", false);
    t = text_open(&m);
    TEXT_EXPECT(t, "a", ATSI_TOK_ADD_SPECIAL, 'a');
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static uint64_t steps_of(const struct atsi_tokenizer *t, const char *unit, size_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    size_t len = strlen(unit), n_ids;
    char *text = malloc(n);
    int32_t *ids;
    uint64_t steps;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = unit[i % len];
    if (atsi_tokenize_counted(t, text, n, 0, &ids, &n_ids, &steps, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_true(n_ids > 0);
    free(ids);
    free(text);
    return steps;
}

static void test_long_runs_cost_linear(void **state)
{
    static const char *const pres[] = {"llama-bpe",      "qwen2",        "qwen35",
                                       "gpt-4o",         "gpt-2",        "deepseek-v3",
                                       "deepseek-coder", "deepseek-llm", "default"};
    static const char *const units[] = {
        "a", "A", " ", "\n", "1", ".", "\xCC\x81", "\xE4\xB8\xAD", "\xFF", "'"};
    (void)state;
    for (size_t i = 0; i < sizeof pres / sizeof pres[0]; i++) {
        struct atsi_tokenizer *t = open_with(pres[i], NULL, 0);
        for (size_t k = 0; k < sizeof units / sizeof units[0]; k++)
            assert_true(steps_of(t, units[k], 1u << 19) <= 16u << 19);
        atsi_tokenizer_close(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lowest_rank_first),
        cmocka_unit_test(test_words_are_apart),
        cmocka_unit_test(test_ignore_merges),
        cmocka_unit_test(test_digits_by_family),
        cmocka_unit_test(test_nfc),
        cmocka_unit_test(test_bad_utf8),
        cmocka_unit_test(test_merge_through_a_text_without_token),
        cmocka_unit_test(test_bos),
        cmocka_unit_test(test_long_runs_cost_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
