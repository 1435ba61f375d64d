/* SPDX-License-Identifier: Apache-2.0
 * Vocabularies that are wrong or malicious: one clear error each, or a defined answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text_meta.h"

#define TOKENS "tokenizer.ggml.tokens"
#define TYPES "tokenizer.ggml.token_type"
#define SCORES "tokenizer.ggml.scores"
#define MERGES "tokenizer.ggml.merges"

static const char *const good_merges[] = {"a b"};
static const struct text_token good_tokens[] = {{"a", 1, 0}, {"b", 1, 0}};

/* The status must be `want` and the message must hold both words. */
static void expect_refusal(const struct text_meta *m, int want, const char *word_a,
                           const char *word_b)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_meta_source src = text_meta_source(m);
    struct atsi_tokenizer *t = NULL;
    int rc = atsi_tokenizer_open(&src, &t, &err);
    assert_null(t);
    if (rc != want || strstr(err.msg, word_a) == NULL || strstr(err.msg, word_b) == NULL)
        fail_msg("status %d \"%s\", expected %d with \"%s\" and \"%s\"", rc, err.msg, want, word_a,
                 word_b);
    assert_null(strchr(err.msg, '\n'));
}

static void no_tokens(struct text_meta *m)
{
    text_meta_drop(m, TOKENS);
}
static void no_model(struct text_meta *m)
{
    text_meta_drop(m, "tokenizer.ggml.model");
}
static void other_model(struct text_meta *m)
{
    text_meta_str(m, "tokenizer.ggml.model", "bert");
}
static void model_is_number(struct text_meta *m)
{
    text_meta_u32(m, "tokenizer.ggml.model", 1);
}
static void model_with_newline(struct text_meta *m)
{
    text_meta_str(m, "tokenizer.ggml.model", "gpt2\nfake log line");
}
static void model_too_long(struct text_meta *m)
{
    text_meta_str(m, "tokenizer.ggml.model",
                  "0123456789012345678901234567890123456789012345678901234567890123456789");
}
static void other_pre(struct text_meta *m)
{
    text_meta_str(m, "tokenizer.ggml.pre", "super-bpe");
}
static void empty_vocab(struct text_meta *m)
{
    text_meta_texts(m, TOKENS, NULL, 0);
}
static void tokens_are_numbers(struct text_meta *m)
{
    static const int32_t n[] = {1, 2};
    text_meta_i32s(m, TOKENS, n, 2);
}
static void tokens_is_text(struct text_meta *m)
{
    text_meta_str(m, TOKENS, "a b c");
}
static void types_too_few(struct text_meta *m)
{
    static const int32_t n[] = {1, 1};
    text_meta_i32s(m, TYPES, n, 2);
}
static void types_are_texts(struct text_meta *m)
{
    text_meta_texts(m, TYPES, good_merges, 1);
}
static void types_are_floats(struct text_meta *m)
{
    static const float f[] = {1};
    text_meta_f32s(m, TYPES, f, 1);
}
static void type_out_of_range(struct text_meta *m)
{
    int32_t n[258];
    for (int i = 0; i < 258; i++)
        n[i] = i == 77 ? 9 : 1;
    text_meta_i32s(m, TYPES, n, 257);
}
static void type_negative(struct text_meta *m)
{
    int32_t n[258];
    for (int i = 0; i < 258; i++)
        n[i] = i == 5 ? -1 : 1;
    text_meta_i32s(m, TYPES, n, 257);
}
static void no_merges(struct text_meta *m)
{
    text_meta_drop(m, MERGES);
}
static void merges_is_text(struct text_meta *m)
{
    text_meta_str(m, MERGES, "a b");
}
static void merge_without_space(struct text_meta *m)
{
    static const char *const bad[] = {"a b", "ab"};
    text_meta_texts(m, MERGES, bad, 2);
}
static void merge_empty(struct text_meta *m)
{
    static const char *const bad[] = {""};
    text_meta_texts(m, MERGES, bad, 1);
}
static void merge_without_right(struct text_meta *m)
{
    static const char *const bad[] = {"a "};
    text_meta_texts(m, MERGES, bad, 1);
}
static void merge_without_left(struct text_meta *m)
{
    static const char *const bad[] = {" b"};
    text_meta_texts(m, MERGES, bad, 1);
}
static void add_bos_is_text(struct text_meta *m)
{
    text_meta_str(m, "tokenizer.ggml.add_bos_token", "yes");
}
static void eos_is_text(struct text_meta *m)
{
    text_meta_str(m, "tokenizer.ggml.eos_token_id", "2");
}
static void suppress_out_of_range(struct text_meta *m)
{
    static const int32_t n[] = {3, 257};
    text_meta_i32s(m, "tokenizer.ggml.suppress_tokens", n, 2);
}
static void stops_negative(struct text_meta *m)
{
    static const int32_t n[] = {-1};
    text_meta_i32s(m, "tokenizer.ggml.eos_token_ids", n, 1);
}

static void test_refusals(void **state)
{
    static const struct {
        void (*spoil)(struct text_meta *m);
        int status;
        const char *word_a, *word_b;
    } rows[] = {
        {no_tokens, ATSI_ENOENT, TOKENS, "missing"},
        {no_model, ATSI_ENOENT, "tokenizer.ggml.model", "missing"},
        {other_model, ATSI_ENOTSUP, "tokenizer.ggml.model", "bert"},
        {model_is_number, ATSI_EFORMAT, "tokenizer.ggml.model", "u32"},
        {model_with_newline, ATSI_EFORMAT, "tokenizer.ggml.model", "0x0a"},
        {model_too_long, ATSI_EFORMAT, "63", "70"},
        {other_pre, ATSI_ENOTSUP, "tokenizer.ggml.pre", "super-bpe"},
        {empty_vocab, ATSI_EFORMAT, TOKENS, "0 entries"},
        {tokens_are_numbers, ATSI_EFORMAT, TOKENS, "array of i32"},
        {tokens_is_text, ATSI_EFORMAT, TOKENS, "has string"},
        {types_too_few, ATSI_EFORMAT, "2 entries", "257"},
        {types_are_texts, ATSI_EFORMAT, TYPES, "array of string"},
        {types_are_floats, ATSI_EFORMAT, TYPES, "f32"},
        {type_out_of_range, ATSI_EFORMAT, "entry 77", "9"},
        {type_negative, ATSI_EFORMAT, "entry 5", "-1"},
        {no_merges, ATSI_EFORMAT, MERGES, "missing"},
        {merges_is_text, ATSI_EFORMAT, MERGES, "string"},
        {merge_without_space, ATSI_EFORMAT, MERGES, "entry 1"},
        {merge_empty, ATSI_EFORMAT, MERGES, "entry 0"},
        {merge_without_right, ATSI_EFORMAT, MERGES, "entry 0"},
        {merge_without_left, ATSI_EFORMAT, MERGES, "entry 0"},
        {add_bos_is_text, ATSI_EFORMAT, "add_bos_token", "bool expected"},
        {eos_is_text, ATSI_EFORMAT, "eos_token_id", "string"},
        {suppress_out_of_range, ATSI_EFORMAT, "suppress_tokens: entry 1", "257"},
        {stops_negative, ATSI_EFORMAT, "eos_token_ids", "-1"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct text_meta m = {.n = 0};
        text_meta_bpe(&m, "qwen2", good_merges, 1, NULL, 0);
        rows[i].spoil(&m);
        expect_refusal(&m, rows[i].status, rows[i].word_a, rows[i].word_b);
        text_meta_free(&m);
    }
}

static void test_scores_that_disagree(void **state)
{
    static const float three[] = {0, 0, 0};
    struct text_meta m = {.n = 0};
    (void)state;
    text_meta_spm(&m, good_tokens, 2);
    text_meta_f32s(&m, SCORES, three, 3);
    expect_refusal(&m, ATSI_EFORMAT, "3 entries", "261");
    text_meta_str(&m, SCORES, "high");
    expect_refusal(&m, ATSI_EFORMAT, SCORES, "array of numbers");
    text_meta_free(&m);
}

static int broken_find(const void *ctx, const char *key, struct atsi_meta *out)
{
    (void)ctx;
    (void)key;
    (void)out;
    return ATSI_EIO;
}

static void test_source_that_fails(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_meta_source src = {NULL, broken_find};
    struct atsi_tokenizer *t = NULL;
    (void)state;
    assert_int_equal(atsi_tokenizer_open(&src, &t, &err), ATSI_EIO);
    assert_null(t);
    atsi_tokenizer_close(NULL);
}

/* Odd but usable: duplicates, empty texts, NaN scores, missing bytes, special ids out of range. */
static void test_odd_spm(void **state)
{
    static const char *const tokens[] = {"a", "a", "", "ab", "b"};
    static const float scores[] = {0, 0, 0, NAN, INFINITY};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    struct atsi_vocab_info info;
    size_t n;
    (void)state;
    text_meta_str(&m, "tokenizer.ggml.model", "llama");
    text_meta_texts(&m, TOKENS, tokens, 5);
    text_meta_f32s(&m, SCORES, scores, 5);
    text_meta_bool(&m, "tokenizer.ggml.add_space_prefix", false);
    text_meta_i32(&m, "tokenizer.ggml.bos_token_id", -7);
    text_meta_u32(&m, "tokenizer.ggml.unknown_token_id", 4000000000u);
    t = text_open(&m);
    TEXT_EXPECT(t, "a", 0, 1);  /* the later of two equal texts */
    TEXT_EXPECT(t, "ab", 0, 3); /* a NaN score is the lowest, yet a score */
    TEXT_EXPECT(t, "z", 0, 0);  /* no byte token: the unknown one */
    assert_memory_equal(atsi_token_text(t, 2, &n), "[EMPTY_2]", 9);
    assert_int_equal(n, 9);
    atsi_tokenizer_info(t, &info);
    assert_int_equal(info.bos, 1); /* the default, as the key names none of the tokens */
    assert_int_equal(info.nl, -1);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

/* Without byte tokens text is dropped, as there is nothing to write it with. */
static void test_bpe_without_bytes(void **state)
{
    static const char *const tokens[] = {"ab", "\xFF\xFE", "x\xE4\xB8\xAD"};
    static const char *const merges[] = {"a b", "a b", "\xE4\xB8\xAD a", "x \xFF"};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_str(&m, "tokenizer.ggml.model", "gpt2");
    text_meta_texts(&m, TOKENS, tokens, 3);
    text_meta_texts(&m, MERGES, merges, 4);
    t = text_open(&m); /* without a pre-tokenizer name: "default" */
    TEXT_EXPECT(t, "ab", 0, 0);
    TEXT_EXPECT(t, "abab a", 0, 0, 0);
    text_expect(t, "zz", 2, ATSI_TOK_ADD_SPECIAL, NULL, 0);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static char *filled(char c, size_t n)
{
    char *p = malloc(n);
    assert_non_null(p);
    memset(p, c, n);
    return p;
}

/* A token of 10^6 bytes that is also what a merge makes: fine as text, refused as a marker. */
static void test_huge_token(void **state)
{
    enum { N = 1000000 };
    static const char *const models[] = {"llama", "gpt2"};
    char *huge = filled('q', N + 2);
    struct atsi_str strs[] = {{"a", 1}, {"b", 1}, {huge, N}}, merge = {huge, N + 2};
    static const int32_t normal[] = {1, 1, 1}, user[] = {1, 1, 4};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct text_meta m = {.n = 0};
        struct atsi_tokenizer *t;
        text_meta_str(&m, "tokenizer.ggml.model", models[i]);
        text_meta_str(&m, "tokenizer.ggml.pre", "llama-bpe");
        text_meta_strs(&m, TOKENS, strs, 3);
        text_meta_i32s(&m, TYPES, normal, 3);
        text_meta_strs(&m, MERGES, &merge, 1);
        huge[N] = ' ';
        t = text_open(&m);
        huge[N] = 'q';
        if (i == 0) /* nothing leads up to it by merges; the space in front is unknown */
            TEXT_EXPECT(t, "ab", 0, 0, 0, 0, 0, 1);
        else /* a whole word that is a token */
            text_expect(t, huge, N, 0, (const int32_t[]){2}, 1);
        atsi_tokenizer_close(t);
        text_meta_i32s(&m, TYPES, user, 3);
        huge[N] = ' ';
        expect_refusal(&m, ATSI_EFORMAT, "entry 2", "1000000 bytes");
        text_meta_free(&m);
    }
    free(huge);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),          cmocka_unit_test(test_scores_that_disagree),
        cmocka_unit_test(test_source_that_fails), cmocka_unit_test(test_odd_spm),
        cmocka_unit_test(test_bpe_without_bytes), cmocka_unit_test(test_huge_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
