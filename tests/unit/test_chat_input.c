/* SPDX-License-Identifier: Apache-2.0
 * Lines that become messages, and slash commands. */
#include "cli/chat_input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

/* Feeds lines (the last one completes the message) and compares the text. */
static void expect_text(const char *const *lines, size_t n, const char *text, bool command)
{
    struct chat_input in = {.block = false};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(chat_input_line(&in, lines[i], strlen(lines[i])),
                         i + 1 < n ? CHAT_FED_MORE : CHAT_FED_DONE);
    assert_string_equal(in.text.p, text);
    assert_int_equal(in.text.n, strlen(text));
    assert_int_equal(in.command, command);
    chat_input_close(&in);
}
#define EXPECT(text, command, ...)                                                                 \
    do {                                                                                           \
        const char *const l[] = {__VA_ARGS__};                                                     \
        expect_text(l, sizeof l / sizeof l[0], text, command);                                     \
    } while (0)

static void test_messages(void **state)
{
    (void)state;
    EXPECT("hello", false, "hello");
    EXPECT("hello", false, "hello\r");
    EXPECT("a\nb\nc", false, "a\\", "b\\", "c");
    EXPECT("a\n/b", false, "a\\", "/b");
    EXPECT("/etc/passwd", false, "//etc/passwd");
    EXPECT("a\n  b\n\nc", false, "\"\"\"a", "  b", "", "c\"\"\"");
    EXPECT("a\n/clear\\\nb", false, "\"\"\"", "a", "/clear\\", "b", "\"\"\"");
    EXPECT("one line", false, "\"\"\"one line\"\"\"");
    EXPECT("/clear", true, "/clear");
    EXPECT("/save a\\", true, "/save a\\");
}

static void test_reuse(void **state)
{
    struct chat_input in = {.block = false};
    (void)state;
    assert_int_equal(chat_input_line(&in, "first", 5), CHAT_FED_DONE);
    assert_int_equal(chat_input_line(&in, "/x", 2), CHAT_FED_DONE);
    assert_true(in.command);
    assert_int_equal(chat_input_line(&in, "2nd", 3), CHAT_FED_DONE);
    assert_string_equal(in.text.p, "2nd");
    assert_false(in.command);
    chat_input_close(&in);
}

static void test_nothing(void **state)
{
    struct chat_input in = {.block = false};
    (void)state;
    assert_int_equal(chat_input_line(&in, "", 0), CHAT_FED_EMPTY);
    assert_int_equal(chat_input_line(&in, " \t", 2), CHAT_FED_EMPTY);
    assert_int_equal(chat_input_line(&in, "\"\"\"\"\"\"", 6), CHAT_FED_EMPTY);
    assert_int_equal(chat_input_line(&in, "\"\"\"", 3), CHAT_FED_MORE);
    assert_int_equal(chat_input_line(&in, "\"\"\"", 3), CHAT_FED_EMPTY);
    assert_int_equal(chat_input_end(&in), CHAT_FED_EMPTY);
    chat_input_close(&in);
}

static void test_end(void **state)
{
    struct chat_input in = {.block = false};
    (void)state;
    assert_int_equal(chat_input_line(&in, "a\\", 2), CHAT_FED_MORE);
    assert_int_equal(chat_input_end(&in), CHAT_FED_DONE);
    assert_string_equal(in.text.p, "a");
    assert_int_equal(chat_input_line(&in, "\"\"\"b", 4), CHAT_FED_MORE);
    assert_int_equal(chat_input_end(&in), CHAT_FED_DONE);
    assert_string_equal(in.text.p, "b");
    assert_int_equal(chat_input_end(&in), CHAT_FED_EMPTY);
    chat_input_close(&in);
}

static struct chat_command parse(const char *text)
{
    static char line[256];
    struct chat_command cmd;
    strcpy(line, text);
    chat_command_parse(line, &cmd);
    return cmd;
}

static void test_commands(void **state)
{
    struct chat_command c = parse("/help");
    (void)state;
    assert_int_equal(c.verb, CHAT_HELP);
    assert_int_equal(parse("/quit").verb, CHAT_EXIT);
    c = parse("/save  my file.ats  ");
    assert_int_equal(c.verb, CHAT_SAVE);
    assert_string_equal(c.arg, "my file.ats");
    c = parse("/system Speak\tplainly.");
    assert_int_equal(c.verb, CHAT_SYSTEM);
    assert_string_equal(c.arg, "Speak\tplainly.");
    assert_null(parse("/system ").arg);
    assert_int_equal(parse("/system").verb, CHAT_SYSTEM);
}

static void expect_bad(const char *line, const char *why)
{
    struct chat_command c = parse(line);
    assert_int_equal(c.verb, CHAT_BAD_VERB);
    if (strstr(c.why, why) == NULL)
        fail_msg("%s: \"%s\" lacks \"%s\"", line, c.why, why);
}

static void test_bad_commands(void **state)
{
    (void)state;
    expect_bad("/hepl", "did you mean /help");
    expect_bad("/saev x", "did you mean /save");
    expect_bad("/frobnicate", "/help lists them");
    expect_bad("/", "/help lists them");
    expect_bad("/xy", "/help lists them");
    expect_bad("/load", "needs a file name");
    expect_bad("/clear all", "takes nothing");
    expect_bad("/averyveryveryveryveryveryveryveryveryveryveryveryveryveryverylongword", "unknown");
}

static void test_help(void **state)
{
    const char *usage;
    size_t n = 0;
    (void)state;
    for (; chat_command_help(n, &usage) != NULL; n++)
        assert_int_equal(usage[0], '/');
    assert_int_equal(n, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages), cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_nothing),  cmocka_unit_test(test_end),
        cmocka_unit_test(test_commands), cmocka_unit_test(test_bad_commands),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
