/* SPDX-License-Identifier: Apache-2.0
 * The conversation: turns, what a template is given, and files. */
#include "cli/chat_talk.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void say(struct chat_talk *t, const char *question, const char *answer)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct chat_reply r = {.text = answer, .field = "reasoning_content"};
    assert_int_equal(chat_talk_user(t, question, strlen(question), &err), ATSI_OK);
    if (answer == NULL)
        return;
    r.len = strlen(answer);
    assert_int_equal(chat_talk_answer(t, &r, &err), ATSI_OK);
}

/* The messages as "role:content role:content". */
static void expect(json_t *list, const char *want)
{
    char got[512] = "";
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *m = json_array_get(list, i);
        (void)snprintf(got + strlen(got), sizeof got - strlen(got), "%s%.1s:%s", i > 0 ? " " : "",
                       json_string_value(json_object_get(m, "role")),
                       json_string_value(json_object_get(m, "content")));
    }
    assert_string_equal(got, want);
    json_decref(list);
}

static int open_talk(void **state)
{
    static struct chat_talk t;
    assert_true(chat_talk_open(&t));
    *state = &t;
    return 0;
}

static int close_talk(void **state)
{
    chat_talk_close(*state);
    return 0;
}

static void test_turns(void **state)
{
    struct chat_talk *t = *state;
    struct atsi_err err = ATSI_ERR_INIT;
    assert_int_equal(chat_talk_turns(t), 0);
    assert_false(chat_talk_waiting(t));
    chat_talk_undo(t); /* nothing to undo */
    say(t, "q1", "a1");
    say(t, "q2", "a2");
    say(t, "q3", NULL);
    assert_int_equal(chat_talk_turns(t), 3);
    assert_true(chat_talk_waiting(t));
    assert_int_equal(chat_talk_system(t, "S", 1, &err), ATSI_OK);
    expect(chat_talk_messages(t, 0), "s:S u:q1 a:a1 u:q2 a:a2 u:q3");
    expect(chat_talk_messages(t, 1), "s:S u:q2 a:a2 u:q3");
    expect(chat_talk_messages(t, 2), "s:S u:q3");
    expect(chat_talk_next(t, 2), "s:S u:q3 a:. u:.");
    chat_talk_undo(t);
    expect(chat_talk_messages(t, 0), "s:S u:q1 a:a1 u:q2 a:a2");
    assert_true(chat_talk_unanswer(t));
    expect(chat_talk_messages(t, 0), "s:S u:q1 a:a1 u:q2");
    say(t, "q3", "a3");
    chat_talk_drop(t, 1);
    assert_int_equal(chat_talk_system(t, "", 0, &err), ATSI_OK);
    expect(chat_talk_messages(t, 0), "u:q2 u:q3 a:a3");
    chat_talk_undo(t);
    chat_talk_undo(t);
    assert_int_equal(chat_talk_turns(t), 0);
}

static void test_answer(void **state)
{
    struct chat_talk *t = *state;
    struct atsi_err err = ATSI_ERR_INIT;
    struct chat_reply r = {.text = "a\xFFz",
                           .len = 3,
                           .reasoning = "\n\nwhy \n",
                           .reasoning_len = 7,
                           .field = "thinking",
                           .cut = true};
    const json_t *m;
    say(t, "q", NULL);
    assert_int_equal(chat_talk_answer(t, &r, &err), ATSI_OK);
    m = json_array_get(t->messages, 1);
    assert_string_equal(json_string_value(json_object_get(m, "content")), "a\xEF\xBF\xBDz");
    assert_string_equal(json_string_value(json_object_get(m, "thinking")), "why ");
    assert_true(json_is_true(json_object_get(m, "cut")));
    r = (struct chat_reply){.text = "", .reasoning = "\n", .reasoning_len = 1, .field = "thinking"};
    say(t, "q", NULL);
    assert_int_equal(chat_talk_answer(t, &r, &err), ATSI_OK);
    m = json_array_get(t->messages, 3);
    assert_null(json_object_get(m, "thinking"));
    assert_null(json_object_get(m, "cut"));
}

static void test_not_utf8(void **state)
{
    struct chat_talk *t = *state;
    struct atsi_err err = ATSI_ERR_INIT;
    assert_int_equal(chat_talk_user(t, "ab\xE4z", 4, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "byte 3 is 0xE4"));
    assert_int_equal(chat_talk_turns(t), 0);
    assert_int_equal(chat_talk_system(t, "\xC0", 1, &err), ATSI_EINVAL);
    assert_null(t->system);
}

static void test_variables(void **state)
{
    struct chat_talk *t = *state;
    struct atsi_err err = ATSI_ERR_INIT;
    const char *bad[] = {"enable_thinking", "=1",
                         "a b=1",           "9x=1",
                         "x=high",          "x=",
                         "messages=[]",     "x={",
                         "x=1 2",           "add_generation_prompt=true"};
    assert_int_equal(chat_talk_var(t, "enable_thinking=false", &err), ATSI_OK);
    assert_true(json_is_false(json_object_get(t->variables, "enable_thinking")));
    assert_int_equal(chat_talk_var(t, "reasoning_effort=\"high\"", &err), ATSI_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(chat_talk_var(t, bad[i], &err), ATSI_EINVAL);
        assert_non_null(strstr(err.msg, "--var"));
    }
    assert_int_equal(json_object_size(t->variables), 2);
}

static void test_file(void **state)
{
    struct chat_talk *t = *state, back;
    struct atsi_err err = ATSI_ERR_INIT;
    json_t *note = json_pack("{s:i}", "extra", 7), *more = NULL;
    char *text;
    say(t, "q1 \xC3\xA4", "a1");
    say(t, "q2", "a2");
    assert_int_equal(chat_talk_system(t, "S", 1, &err), ATSI_OK);
    assert_int_equal(chat_talk_var(t, "x=[1]", &err), ATSI_OK);
    t->draws = 5;
    t->now = 1234567890;
    text = chat_talk_write(t, note);
    json_decref(note);
    assert_non_null(text);
    assert_true(chat_talk_open(&back));
    assert_int_equal(chat_talk_read(&back, text, strlen(text), &more, &err), ATSI_OK);
    expect(chat_talk_messages(&back, 0), "s:S u:q1 \xC3\xA4 a:a1 u:q2 a:a2");
    assert_true(json_equal(back.variables, t->variables));
    assert_int_equal(back.draws, 5);
    assert_int_equal(back.now, 1234567890);
    assert_int_equal(json_integer_value(json_object_get(more, "extra")), 7);
    json_decref(more);
    chat_talk_close(&back);
    free(text);
}

#define HEAD "{\"format\":\"atsinfer-chat\",\"version\":1,\"now\":1,\"draws\":0,"

/* Every file that is wrong is named and changes nothing. */
static void test_bad_files(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "no JSON"},
        {"{\"format\":", "no JSON"},
        {"[]", "no conversation"},
        {"{\"format\":\"other\"}", "no conversation"},
        {"{\"format\":\"atsinfer-chat\",\"version\":2}", "version 2"},
        {"{\"format\":\"atsinfer-chat\",\"version\":1,\"now\":-1,\"draws\":0}", "now"},
        {"{\"format\":\"atsinfer-chat\",\"version\":1,\"now\":999999999999999,\"draws\":0}", "now"},
        {"{\"format\":\"atsinfer-chat\",\"version\":1,\"now\":1,\"draws\":\"x\"}", "draws"},
        {HEAD "\"variables\":{}}", "no list of messages"},
        {HEAD "\"variables\":[],\"messages\":[]}", "variables"},
        {HEAD "\"variables\":{},\"system\":1,\"messages\":[]}", "system"},
        {HEAD "\"variables\":{},\"messages\":[1]}", "message 1: role is missing"},
        {HEAD "\"variables\":{},\"messages\":[{\"role\":\"tool\",\"content\":\"\"}]}",
         "role is tool, expected user"},
        {HEAD "\"variables\":{},\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "no text"},
        {HEAD "\"variables\":{},\"messages\":[{\"role\":\"user\",\"content\":\"\"},"
              "{\"role\":\"user\",\"content\":\"\"}]}",
         "message 2: role is user, expected assistant"},
    };
    struct chat_talk *t = *state;
    say(t, "q", "a");
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        assert_true(chat_talk_read(t, bad[i].text, strlen(bad[i].text), NULL, &err) < 0);
        if (strstr(err.msg, bad[i].why) == NULL)
            fail_msg("%s: \"%s\" lacks \"%s\"", bad[i].text, err.msg, bad[i].why);
        expect(chat_talk_messages(t, 0), "u:q a:a");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_turns, open_talk, close_talk),
        cmocka_unit_test_setup_teardown(test_answer, open_talk, close_talk),
        cmocka_unit_test_setup_teardown(test_not_utf8, open_talk, close_talk),
        cmocka_unit_test_setup_teardown(test_variables, open_talk, close_talk),
        cmocka_unit_test_setup_teardown(test_file, open_talk, close_talk),
        cmocka_unit_test_setup_teardown(test_bad_files, open_talk, close_talk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
