/* SPDX-License-Identifier: Apache-2.0
 * Pre-tokenizers: where each family cuts text, from the published expressions read by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "text/pretok.h"

struct pieces {
    const char *text;
    char joined[512];
    size_t n, end;
};

static int take(void *ctx, size_t start, size_t len)
{
    struct pieces *p = ctx;
    assert_true(start == p->end && len > 0); /* no gap, no overlap, nothing empty */
    assert_true(p->n + len + 2 < sizeof p->joined);
    if (start > 0)
        p->joined[p->n++] = '|';
    memcpy(p->joined + p->n, p->text + start, len);
    p->n += len;
    p->end = start + len;
    return 0;
}

static void expect(const char *pre, const char *text, const char *want)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_pretok_kind *kind = atsi_pretok_find(pre);
    struct pieces got = {.text = text};
    struct atsi_pretok *p;
    struct atsi_pretok_run *run;
    assert_non_null(kind);
    assert_int_equal(atsi_pretok_open(kind, &p, &err), ATSI_OK);
    assert_int_equal(atsi_pretok_run_open(p, strlen(text), &run, &err), ATSI_OK);
    assert_int_equal(atsi_pretok_split(p, run, text, strlen(text), take, &got, &err), ATSI_OK);
    assert_int_equal(got.end, strlen(text));
    got.joined[got.n] = '\0';
    if (strcmp(got.joined, want) != 0)
        fail_msg("%s: \"%s\" was cut into \"%s\", expected \"%s\"", pre, text, got.joined, want);
    atsi_pretok_run_close(run);
    atsi_pretok_close(p);
}

#define E_ACUTE "\xC3\x89" /* capital E with acute */
#define MARK "\xCC\x81"    /* combining acute */
#define WIDE_SPACE "\xE3\x80\x80"
#define VOWEL_SEP "\xE1\xA0\x8E" /* U+180E: not white space */
#define HAN "\xE4\xB8\xAD\xE6\x96\x87"
#define LONG_S "\xC5\xBF"

static const struct {
    const char *pre, *text, *want;
} rows[] = {
    {"llama-bpe", "Hello world, it's 12345!\n\n  x", "Hello| world|,| it|'s| |123|45|!\n\n| | x"},
    {"llama-bpe", "I'LL (foo)\tbar  ", "I|'LL| (|foo|)|\tbar|  "},
    {"llama-bpe", "a \n \n b", "a| \n \n| b"},
    {"llama-bpe", "a   b" WIDE_SPACE "c", "a|  | b|" WIDE_SPACE "c"},
    {"llama-bpe", "x" VOWEL_SEP "y", "x|" VOWEL_SEP "y"},
    {"llama-bpe", "e" MARK "x", "e|" MARK "x"},
    {"llama-bpe", "x'" LONG_S, "x|'" LONG_S},
    {"llama-bpe", "...", "..."},
    {"llama3", "1234", "123|4"},
    {"glm4", "ab 1234", "ab| |123|4"},
    {"chatglm-bpe", "1234", "123|4"},
    {"qwen2", "ab 123", "ab| |1|2|3"},
    {"deepseek-r1-qwen", "12", "1|2"},
    {"qwen35", "e" MARK "x 12", "e" MARK "x| |1|2"},
    {"qwen35", "." MARK "a", "." MARK "a"},
    {"gpt-4o", "helloWorld HTTPServer", "hello|World| HTTPServer"},
    {"gpt-4o", "it's IT'S", "it's| IT'S"},
    {"gpt-4o", E_ACUTE "COLE e" MARK "te", E_ACUTE "COLE| e" MARK "te"},
    {"gpt-4o", "a//\nb", "a|//\n|b"},
    {"llama4", "1234", "123|4"},
    {"gpt-2", "Hello  world's 1234 !?", "Hello| | world|'s| 1234| !?"},
    {"gpt-2", "a\n\n", "a|\n\n"},
    {"gpt-2", "a'S", "a|'|S"},
    {"default", "a+b 12345", "a|+|b| |123|45"},
    {"deepseek-v3", "x" HAN "y 1234.a", "x|" HAN "|y| |123|4|.a"},
    {"deepseek-coder", "a b\n\n12 !", "a| b|\n|\n|1|2| !"},
    {"deepseek-llm", "a  b  ", "a| | b|  "},
    {"deepseek-llm", HAN "1234!\n", HAN "|1234|!|\n"},
};

static void test_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect(rows[i].pre, rows[i].text, rows[i].want);
}

static void test_every_name_compiles_and_keeps_all_text(void **state)
{
    static const char *const names[] = {"llama-bpe",   "llama3",        "llama-v3",
                                        "falcon3",     "pixtral",       "glm4",
                                        "chatglm-bpe", "qwen2",         "deepseek-r1-qwen",
                                        "megrez",      "qwen35",        "gpt-4o",
                                        "llama4",      "gpt-2",         "phi-2",
                                        "olmo",        "mpt",           "default",
                                        "deepseek-v3", "hunyuan-dense", "deepseek-coder",
                                        "deepseek-llm"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect(names[i], "x", "x");
    assert_null(atsi_pretok_find("qwen"));
    assert_null(atsi_pretok_find(""));
    assert_null(atsi_pretok_find("llama-bpe llama3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_every_name_compiles_and_keeps_all_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
