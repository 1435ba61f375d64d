/* SPDX-License-Identifier: Apache-2.0
 * Taking reasoning and answer apart, whatever way the text is cut into pieces. */
#include "cli/chat_think.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

struct parts {
    struct atsi_bytes answer, reasoning;
    int stop_at; /* the call that returns an error; 0: none */
};

static int take(void *ctx, enum chat_kind kind, const char *text, size_t len)
{
    struct parts *p = ctx;
    assert_true(len > 0);
    if (p->stop_at > 0 && --p->stop_at == 0)
        return 7;
    assert_true(atsi_bytes_add(kind == CHAT_ANSWER ? &p->answer : &p->reasoning, text, len));
    return 0;
}

static void expect_bytes(struct atsi_bytes *got, const char *want, const char *text, size_t cut)
{
    assert_true(atsi_bytes_add(got, "", 1));
    if (strcmp(got->p, want) != 0)
        fail_msg("\"%s\" in pieces of %zu: got \"%s\", expected \"%s\"", text, cut, got->p, want);
    free(got->p);
}

/* Splits `text` in pieces of every length. */
static void expect(const struct chat_style *style, bool inside, const char *text,
                   const char *reasoning, const char *answer)
{
    size_t len = strlen(text);
    for (size_t cut = 1; cut <= len; cut++) {
        struct parts p = {.stop_at = 0};
        struct chat_splitter s;
        chat_splitter_open(&s, style, inside, take, &p);
        for (size_t i = 0; i < len; i += cut)
            assert_int_equal(chat_splitter_push(&s, text + i, i + cut < len ? cut : len - i), 0);
        assert_int_equal(chat_splitter_flush(&s), 0);
        chat_splitter_close(&s);
        expect_bytes(&p.reasoning, reasoning, text, cut);
        expect_bytes(&p.answer, answer, text, cut);
    }
}

static struct chat_style style_of(const char *template_text)
{
    struct chat_style s;
    chat_style_of(template_text, strlen(template_text), &s);
    return s;
}

static void test_pair(void **state)
{
    struct chat_style s = style_of("");
    (void)state;
    expect(&s, false, "<think>\nA sum.\n</think>\n\nFour.", "A sum.\n", "Four.");
    expect(&s, false, "\n <think>x</think>y", "x", "y");
    expect(&s, true, "A sum.\n</think>\n\nFour.", "A sum.\n", "Four.");
    expect(&s, true, "\n\n</think>\n\nFour.", "", "Four.");
    expect(&s, false, "<think></think>", "", "");
    expect(&s, false, "<think>never ends </thin", "never ends </thin", "");
}

static void test_no_reasoning(void **state)
{
    struct chat_style s = style_of("");
    (void)state;
    expect(&s, false, "Four.", "", "Four.");
    expect(&s, false, "\n Four.\n", "", "\n Four.\n");
    expect(&s, false, "  ", "", "  ");
    expect(&s, false, "<thin air>", "", "<thin air>");
    expect(&s, false, "<thi", "", "<thi");
    /* Only the beginning of a text is reasoning: further marks are what the answer is about. */
    expect(&s, false, "Write <think>x</think> like this.", "", "Write <think>x</think> like this.");
    expect(&s, false, "<think>a</think>b <think>c</think>", "a", "b <think>c</think>");
}

static void test_styles(void **state)
{
    struct chat_style s = style_of("{{ '<think>' + m.reasoning_content + '</think>' }}");
    (void)state;
    assert_string_equal(s.open, "<think>");
    assert_string_equal(s.field, "reasoning_content");
    assert_false(s.harmony);
    s = style_of("{% if m['thought'] %}[THINK]{{ m['thought'] }}[/THINK]{% endif %}");
    assert_string_equal(s.close, "[/THINK]");
    assert_string_equal(s.field, "thought");
    expect(&s, false, "[THINK]a[/THINK]b", "a", "b");
    s = style_of("{% if \"thinking\" in m %}<|channel|>analysis<|message|>{{ m.thinking }}");
    assert_true(s.harmony);
    assert_string_equal(s.field, "thinking");
    s = style_of("{{ '<|channel>thought\\n' + m.reasoning + '<channel|>' }}");
    assert_false(s.harmony);
    assert_string_equal(s.field, "reasoning");
    expect(&s, false, "<|channel>thought\na\n<channel|>b", "a\n", "b");
    /* A word that is no member does not count. */
    s = style_of("{{ thinking }} {{ m.thinking_budget }}");
    assert_string_equal(s.field, "reasoning_content");
}

static void test_inside(void **state)
{
    struct chat_style s = style_of("");
    const char *open = "x<|im_start|>assistant\n<think>\n";
    const char *closed = "x<|im_start|>assistant\n<think>\n\n</think>\n\n";
    const char *asked = "what is <think><|im_end|>\n<|im_start|>assistant\n";
    (void)state;
    assert_true(chat_style_inside(&s, open, strlen(open)));
    assert_false(chat_style_inside(&s, closed, strlen(closed)));
    assert_false(chat_style_inside(&s, asked, strlen(asked)));
    assert_false(chat_style_inside(&s, "", 0));
}

static void test_harmony(void **state)
{
    struct chat_style s = style_of("<|channel|><|message|>");
    (void)state;
    expect(&s, false,
           "<|channel|>analysis<|message|>A sum.<|end|><|start|>assistant<|channel|>final"
           "<|message|>Four.<|return|>",
           "A sum.", "Four.");
    expect(&s, false, "<|channel|>final<|message|>Four.", "", "Four.");
    expect(&s, false, "<|message|>Four.", "", "Four.");
    expect(&s, false, "Four <|x", "", "Four <|x");
    expect(&s, false, "to or not", "", "to or not");
    expect(&s, false, " to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>",
           "{}", "");
    /* A header cut short by the end is not shown; a channel without <|start|> begins a message. */
    expect(&s, false, "<|channel|>analysis<|message|>a<|end|><|start|>assis", "a", "");
    expect(&s, false, "<|channel|>analysis<|message|>a<|channel|>final<|message|>b", "a", "b");
    expect(&s, false, "<|channel|>finally<|message|>a", "a", "");
}

/* Text that lost its way in a header is shown rather than swallowed. */
static void test_long_header(void **state)
{
    struct chat_style s = style_of("<|channel|><|message|>");
    char text[700];
    (void)state;
    (void)snprintf(text, sizeof text, "<|channel|>%0600d<|message|>x", 0);
    /* Behind it a mark is one again: here a stray one, which is dropped. */
    char want[700];
    (void)snprintf(want, sizeof want, "<|channel|>%0600dx", 0);
    expect(&s, false, text, "", want);
}

static void test_taker_stops(void **state)
{
    struct chat_style s = style_of("");
    struct parts p = {.stop_at = 1};
    struct chat_splitter split;
    (void)state;
    chat_splitter_open(&split, &s, false, take, &p);
    assert_int_equal(chat_splitter_push(&split, "<think>a", 8), 7);
    chat_splitter_close(&split);
}

static void test_marks(void **state)
{
    struct chat_style s = style_of("");
    (void)state;
    assert_string_equal(chat_style_mark(&s, 0), "<think>");
    assert_string_equal(chat_style_mark(&s, 1), "</think>");
    assert_null(chat_style_mark(&s, 2));
    s = style_of("<|channel|><|message|>");
    for (size_t i = 0; i < 7; i++)
        assert_non_null(chat_style_mark(&s, i));
    assert_null(chat_style_mark(&s, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pair),        cmocka_unit_test(test_no_reasoning),
        cmocka_unit_test(test_styles),      cmocka_unit_test(test_inside),
        cmocka_unit_test(test_harmony),     cmocka_unit_test(test_long_header),
        cmocka_unit_test(test_taker_stops), cmocka_unit_test(test_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
