/* SPDX-License-Identifier: Apache-2.0
 * Special tokens: recognition in text, corrections of types, and where generation ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_impl.h"
#include "text_meta.h"

enum { F = TEXT_BPE_FIRST, ALL = ATSI_TOK_PARSE_SPECIAL };

static struct atsi_tokenizer *open_with(struct text_meta *m, const struct text_token *extra,
                                        size_t n)
{
    text_meta_bpe(m, "qwen2", NULL, 0, extra, n);
    return text_open(m);
}

static void test_longest_text_first(void **state)
{
    static const struct text_token extra[] = {
        {"<a>", 3, 0}, {"<a><b>", 3, 0}, {"b><c", 4, 0}, {"aa", 4, 0}, {"aaa", 4, 0}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t = open_with(&m, extra, 5);
    (void)state;
    TEXT_EXPECT(t, "x<a>y", ALL, 'x', F, 'y');
    TEXT_EXPECT(t, "<a><a>", ALL, F, F);
    TEXT_EXPECT(t, "<a><b>", ALL, F + 1);
    TEXT_EXPECT(t, "<a><b><c", ALL, F + 1, '<', 'c'); /* six bytes go before four */
    TEXT_EXPECT(t, "<x><a", ALL, '<', 'x', '>', '<', 'a');
    TEXT_EXPECT(t, "aaaa", 0, F + 4, 'a'); /* the longer one, leftmost, though aa + aa would fit */
    TEXT_EXPECT(t, "aaaaa", 0, F + 4, F + 3);
    TEXT_EXPECT(t, "baab", 0, 'b', F + 3, 'b');
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

/* A shorter token to the left loses against a longer one that begins later. */
static void test_longer_beats_leftmost(void **state)
{
    static const struct text_token extra[] = {{"xab", 4, 0}, {"abcd", 4, 0}, {"dx", 4, 0}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t = open_with(&m, extra, 3);
    (void)state;
    TEXT_EXPECT(t, "xabcd", 0, 'x', F + 1);
    TEXT_EXPECT(t, "xabxab", 0, F, F);
    TEXT_EXPECT(t, "abcdxab", 0, F + 1, F);
    TEXT_EXPECT(t, "dxab", 0, 'd', F);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static void test_untrusted_text(void **state)
{
    static const struct text_token extra[] = {{"<c>", 3, 0}, {"<u>", 4, 0}, {"<n>", 2, 0}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t = open_with(&m, extra, 3);
    (void)state;
    TEXT_EXPECT(t, "<c><u><n>", ALL, F, F + 1, F + 2);
    TEXT_EXPECT(t, "<c><u><n>", 0, '<', 'c', '>', F + 1, '<', 'n', '>');
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static void expect_stops(const struct atsi_tokenizer *t, uint32_t n, const int32_t *want,
                         size_t n_want)
{
    for (int32_t id = 0; id < (int32_t)n; id++) {
        bool wanted = false;
        for (size_t i = 0; i < n_want; i++)
            wanted = wanted || want[i] == id;
        if (atsi_token_is_eog(t, id) != wanted)
            fail_msg("token %d: end of generation %d, expected %d", id, !wanted, wanted);
    }
    assert_false(atsi_token_is_eog(t, -1));
    assert_false(atsi_token_is_eog(t, (int32_t)n));
}

static void test_stops_by_text_and_key(void **state)
{
    static const struct text_token extra[] = {{"<|endoftext|>", 3, 0}, {"<|im_end|>", 1, 0},
                                              {"<|im_start|>", 3, 0},  {"<|fim_pad|>", 3, 0},
                                              {"<|file_sep|>", 3, 0},  {"<stop-by-key>", 3, 0},
                                              {"<other>", 3, 0},       {"<another>", 3, 0}};
    static const int32_t want[] = {F, F + 1, F + 3, F + 4, F + 5, F + 7}, more[] = {F + 7};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    struct atsi_vocab_info info;
    (void)state;
    text_meta_u32(&m, "tokenizer.ggml.eos_token_id", F + 5);
    text_meta_i32s(&m, "tokenizer.ggml.eos_token_ids", more, 1);
    text_meta_i32s(&m, "tokenizer.ggml.suppress_tokens", more, 1);
    text_meta_i32(&m, "tokenizer.ggml.padding_token_id", F);
    text_meta_u32(&m, "tokenizer.ggml.bos_token_id", 100000); /* outside: as if absent */
    t = open_with(&m, extra, 8);
    expect_stops(t, F + 8, want, 6);
    atsi_tokenizer_info(t, &info);
    assert_int_equal(info.eos, F + 5);
    assert_int_equal(info.eot, F + 1);
    assert_int_equal(info.pad, F);
    assert_int_equal(info.bos, -1);
    assert_int_equal(info.nl, '\n');
    assert_string_equal(info.model, "gpt2");
    assert_string_equal(info.pre, "qwen2");
    assert_int_equal(info.n_tokens, F + 8);
    assert_true(atsi_token_is_suppressed(t, F + 7));
    assert_false(atsi_token_is_suppressed(t, F + 6));
    TEXT_EXPECT(t, "<|im_end|>", ALL, F + 1); /* typed normal in the file, yet a marker */
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

/* What a merge makes was learned from text: `</s>` here is no marker. */
static void test_merged_text_is_no_marker(void **state)
{
    static const char *const merges[] = {"< /", "s >", "</ s>"};
    static const int32_t none[] = {0};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_bpe(&m, "qwen2", merges, 3, NULL, 0);
    t = text_open(&m);
    expect_stops(t, F + 3, none, 0);
    TEXT_EXPECT(t, "</s>", ALL, F, 's', '>'); /* </ s > by the expression */
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static void test_harmony(void **state)
{
    static const struct text_token extra[] = {
        {"<|return|>", 3, 0},  {"<|call|>", 3, 0},      {"<|end|>", 3, 0},  {"<|channel|>", 3, 0},
        {"<|message|>", 3, 0}, {"<|endoftext|>", 3, 0}, {"<|start|>", 3, 0}};
    static const int32_t want[] = {F, F + 1, F + 5};
    static const int32_t shown[] = {F + 6, F + 3, F + 2, F};
    struct atsi_err err = ATSI_ERR_INIT;
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    char *text;
    size_t n;
    (void)state;
    t = open_with(&m, extra, 7);
    expect_stops(t, F + 7, want, 3);
    assert_int_equal(atsi_detokenize(t, shown, 4, false, &text, &n, &err), ATSI_OK);
    assert_string_equal(text, "<|start|><|channel|><|end|>");
    free(text);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static void test_end_without_harmony(void **state)
{
    static const struct text_token extra[] = {{"<|end|>", 3, 0}, {"</s>", 3, 0}};
    static const struct text_token gemma[] = {{"<|tool_response>", 3, 0}, {"</s>", 3, 0}};
    static const int32_t both[] = {F, F + 1};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t = open_with(&m, extra, 2);
    (void)state;
    expect_stops(t, F + 2, both, 2);
    atsi_tokenizer_close(t);
    t = open_with(&m, gemma, 2);
    expect_stops(t, F + 2, both, 1); /* </s> is no stop beside <|tool_response> */
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_text_first),
        cmocka_unit_test(test_longer_beats_leftmost),
        cmocka_unit_test(test_untrusted_text),
        cmocka_unit_test(test_stops_by_text_and_key),
        cmocka_unit_test(test_merged_text_is_no_marker),
        cmocka_unit_test(test_harmony),
        cmocka_unit_test(test_end_without_harmony),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
