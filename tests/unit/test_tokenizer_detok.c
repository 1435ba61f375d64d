/* SPDX-License-Identifier: Apache-2.0
 * Ids back to text: whole texts, single tokens, and streams that may be cut anywhere. */
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
enum { F = TEXT_BPE_FIRST, S = TEXT_SPM_FIRST };

static const struct text_token extra[] = {
    {"<|c|>", 3, 0}, {"<think>", 4, 0}, {"[PAD]", 5, 0}, {"\xE4\xB8\xAD x", 1, 0}};

static struct atsi_tokenizer *open_bpe(const char *pre)
{
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    text_meta_bpe(&m, pre, NULL, 0, extra, 4);
    t = text_open(&m);
    text_meta_free(&m);
    return t;
}

static void expect_text(const struct atsi_tokenizer *t, const int32_t *ids, size_t n, bool special,
                        const char *want, size_t n_want)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *text;
    size_t len;
    assert_int_equal(atsi_detokenize(t, ids, n, special, &text, &len, &err), ATSI_OK);
    assert_int_equal(text[len], '\0');
    if (len != n_want || memcmp(text, want, len) != 0)
        fail_msg("text is \"%s\" (%zu bytes), expected \"%s\" (%zu)", text, len, want, n_want);
    free(text);
}
#define EXPECT_TEXT(t, special, want, ...)                                                         \
    do {                                                                                           \
        const int32_t ids_[] = {__VA_ARGS__};                                                      \
        expect_text(t, ids_, sizeof ids_ / sizeof ids_[0], special, want, sizeof(want) - 1);       \
    } while (0)

static void test_bpe_text(void **state)
{
    struct atsi_tokenizer *t = open_bpe("qwen2");
    (void)state;
    expect_text(t, NULL, 0, true, "", 0);
    EXPECT_TEXT(t, true, "a b\n", 'a', ' ', 'b', '\n');
    EXPECT_TEXT(t, true, "\0\xFF\xC3", 0, 0xFF, 0xC3);
    EXPECT_TEXT(t, true, "<|c|>a<think>", F, 'a', F + 1, F + 2);
    EXPECT_TEXT(t, false, "a<think>", F, 'a', F + 1, F + 2);
    EXPECT_TEXT(t, true, "\xE4\xB8\xAD x", F + 3);    /* no alphabet characters: as they are */
    EXPECT_TEXT(t, true, "ab", -1, 'a', 100000, 'b'); /* ids outside say nothing */
    atsi_tokenizer_close(t);
}

static void test_clean_up_by_family(void **state)
{
    static const char text[] = " a ? b ! c . d , e 's f 're g 'll h ' i 'x";
    static const char clean[] = " a? b! c. d, e's f're g 'll h'i 'x";
    static const struct {
        const char *pre, *want;
    } rows[] = {{"llama-bpe", clean}, {"glm4", clean},  {"gpt-2", clean}, {"default", clean},
                {"qwen2", text},      {"qwen35", text}, {"gpt-4o", text}, {"deepseek-v3", text}};
    int32_t ids[sizeof text];
    (void)state;
    for (size_t i = 0; i + 1 < sizeof text; i++)
        ids[i] = (unsigned char)text[i];
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct atsi_tokenizer *t = open_bpe(rows[i].pre);
        expect_text(t, ids, sizeof text - 1, true, rows[i].want, strlen(rows[i].want));
        atsi_tokenizer_close(t);
    }
}

static void test_spm_text(void **state)
{
    static const struct text_token tokens[] = {{M "a", 1, 0}, {M, 1, 0}, {"b" M, 1, 0}};
    struct text_meta m = {.n = 0};
    struct atsi_tokenizer *t;
    (void)state;
    text_meta_spm(&m, tokens, 3);
    t = text_open(&m);
    EXPECT_TEXT(t, true, "a a", S, S);    /* the space put in front goes */
    EXPECT_TEXT(t, true, " a", S + 1, S); /* one of them */
    EXPECT_TEXT(t, true, "b b ", S + 2, S + 2);
    EXPECT_TEXT(t, true, "<s> a</s>", 1, S, 2);
    EXPECT_TEXT(t, false, " a", 1, S, 2); /* BOS stood before it */
    EXPECT_TEXT(t, true, "\xE4\xB8\xAD", 3 + 0xE4, 3 + 0xB8, 3 + 0xAD);
    EXPECT_TEXT(t, true, "<unk>", 0);
    EXPECT_TEXT(t, false, "", 0);
    atsi_tokenizer_close(t);
    text_meta_free(&m);
}

static void test_token_bytes(void **state)
{
    struct atsi_tokenizer *t = open_bpe("llama-bpe");
    char buf[8] = "zzzzzzz";
    size_t n;
    (void)state;
    assert_int_equal(atsi_token_bytes(t, F + 1, true, buf, 4), 7); /* needs 7, writes 4 */
    assert_memory_equal(buf, "<thizzz", 7);
    assert_int_equal(atsi_token_bytes(t, F + 1, true, NULL, 0), 7);
    assert_int_equal(atsi_token_bytes(t, F, false, buf, sizeof buf), 0);
    assert_int_equal(atsi_token_bytes(t, ' ', true, buf, sizeof buf), 1);
    assert_int_equal(buf[0], ' ');
    assert_memory_equal(atsi_token_text(t, F, &n), "<|c|>", 5);
    assert_int_equal(n, 5);
    assert_null(atsi_token_text(t, -1, &n));
    assert_null(atsi_token_text(t, F + 4, &n));
    atsi_tokenizer_close(t);
}

/* Pushes bytes one by one; what comes out each time goes to out[], ends in lens[]. */
static void push_bytes(const struct atsi_tokenizer *t, struct atsi_detok *d, const char *bytes,
                       size_t n, char *out, size_t *lens)
{
    struct atsi_err err = ATSI_ERR_INIT;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        char *piece;
        size_t len;
        assert_int_equal(atsi_detok_push(d, t, (unsigned char)bytes[i], true, &piece, &len, &err),
                         ATSI_OK);
        assert_int_equal(piece[len], '\0');
        memcpy(out + total, piece, len);
        total += len;
        lens[i] = total;
        free(piece);
    }
}

/* Every length of character: nothing comes out before its last byte, then all of it. */
static void test_stream_holds_back_characters(void **state)
{
    static const char *const chars[] = {"a",
                                        "\xC3\xA9",
                                        "\xE4\xB8\xAD",
                                        "\xF0\x9F\x98\x80",
                                        "\xF4\x8F\xBF\xBF",
                                        "\xE0\xA0\x80",
                                        "\xF0\x90\x80\x80"};
    struct atsi_tokenizer *t = open_bpe("qwen2");
    (void)state;
    for (size_t i = 0; i < sizeof chars / sizeof chars[0]; i++) {
        struct atsi_detok d = {.n_pending = 0};
        size_t n = strlen(chars[i]), lens[4];
        char out[8], rest[8];
        push_bytes(t, &d, chars[i], n, out, lens);
        for (size_t k = 0; k + 1 < n; k++)
            assert_int_equal(lens[k], 0);
        assert_int_equal(lens[n - 1], n);
        assert_memory_equal(out, chars[i], n);
        assert_int_equal(atsi_detok_flush(&d, rest), 0);
    }
    atsi_tokenizer_close(t);
}

/* Bytes that cannot become a character are not held: they come out with the byte that shows it. */
static void test_stream_of_bad_bytes(void **state)
{
    static const struct {
        const char *bytes;
        size_t n, lens[5];
        size_t held;
    } rows[] = {
        {"\xFF", 1, {1}, 0},
        {"\x80", 1, {1}, 0},
        {"\xC0", 1, {1}, 0},
        {"\xC3(", 2, {0, 2}, 0},
        {"\xE4\xB8(", 3, {0, 0, 3}, 0},
        {"\xE0\x80", 2, {0, 2}, 0},
        {"\xED\xA0\x80", 3, {0, 2, 3}, 0},
        {"\xF0\x9F\xC3\xA9", 4, {0, 0, 2, 4}, 0},
        {"\xF4\x90", 2, {0, 2}, 0},
        {"a\xF0\x9F\x98", 4, {1, 1, 1, 1}, 3},
    };
    struct atsi_tokenizer *t = open_bpe("qwen2");
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct atsi_detok d = {.n_pending = 0};
        size_t lens[8];
        char out[16], rest[8];
        push_bytes(t, &d, rows[i].bytes, rows[i].n, out, lens);
        for (size_t k = 0; k < rows[i].n; k++)
            if (lens[k] != rows[i].lens[k])
                fail_msg("row %zu: %zu bytes out after byte %zu, expected %zu", i, lens[k], k,
                         rows[i].lens[k]);
        assert_int_equal(atsi_detok_flush(&d, rest), rows[i].held);
        assert_memory_equal(rest, rows[i].bytes + rows[i].n - rows[i].held, rows[i].held);
        assert_memory_equal(out, rows[i].bytes, rows[i].n - rows[i].held);
    }
    atsi_tokenizer_close(t);
}

static void test_stream_is_not_cleaned_up(void **state)
{
    struct atsi_tokenizer *t = open_bpe("llama-bpe");
    struct atsi_detok d = {.n_pending = 0};
    char out[8];
    size_t lens[4];
    (void)state;
    push_bytes(t, &d, "a ?", 3, out, lens);
    assert_int_equal(lens[2], 3);
    assert_memory_equal(out, "a ?", 3);
    atsi_tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bpe_text),
        cmocka_unit_test(test_clean_up_by_family),
        cmocka_unit_test(test_spm_text),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_stream_holds_back_characters),
        cmocka_unit_test(test_stream_of_bad_bytes),
        cmocka_unit_test(test_stream_is_not_cleaned_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
