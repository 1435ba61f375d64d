/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates as the command uses them: a conversation in, text out; what the caller passes; a
 * template in several threads; memory that runs out at the Nth request (the program is linked with
 * --wrap for the allocating functions). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"

#define TEMPLATE ATSI_SOURCE_DIR "/tests/data/chat_tools.jinja"

/* ---------------------------------------------------------------- memory */
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static _Thread_local long countdown = -1; /* requests that still succeed; negative: all */

static bool refuse(void)
{
    return countdown >= 0 && countdown-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

/* ---------------------------------------------------------------- helpers */
static char *read_text(const char *path, size_t *n)
{
    char *text = malloc(1 << 16);
    FILE *f = fopen(path, "rb");
    assert_non_null(text);
    assert_non_null(f);
    *n = fread(text, 1, 1 << 16, f);
    assert_true(*n > 0 && *n < 1 << 16);
    (void)fclose(f);
    return text;
}

static struct atsi_chat_template *open_text(const char *source)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_template *t = NULL;
    if (atsi_chat_template_open(source, strlen(source), &t, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return t;
}

static struct atsi_chat_template *open_tools(void)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_template *t = NULL;
    size_t n;
    char *source = read_text(TEMPLATE, &n);
    if (atsi_chat_template_open(source, n, &t, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    free(source); /* a template does not need its source any more */
    return t;
}

static json_t *json(const char *text)
{
    json_t *v = json_loads(text, JSON_ALLOW_NUL, NULL);
    assert_non_null(v);
    return v;
}

/* Renders and checks; `raised` tells which of the two texts it is. */
static void expect(const struct atsi_chat_template *t, const struct atsi_chat_input *in,
                   const char *text, bool raised)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_text out = {.struct_size = sizeof out};
    if (atsi_chat_template_render(t, in, &out, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_string_equal(out.text, text);
    assert_int_equal(out.len, strlen(text));
    assert_int_equal(out.raised, raised);
    free(out.text);
}

/* A source with an input of nothing but variables. */
static void expect_vars(const char *source, const char *variables, const char *text)
{
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_template *t = open_text(source);
    json_t *vars = json(variables);
    in.variables = vars;
    expect(t, &in, text, false);
    json_decref(vars);
    atsi_chat_template_close(t);
}

/* ---------------------------------------------------------------- conversations */
static const char conversation[] =
    "[{\"role\": \"system\", \"content\": \"  Be brief. \\n\"},"
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Weather in Zürich?\"},"
    "                                   {\"type\": \"image\"}]},"
    " {\"role\": \"assistant\", \"content\": \"hm</think>\\n\\nLooking.\","
    "  \"tool_calls\": [{\"function\": {\"name\": \"weather\","
    "                    \"arguments\": {\"city\": \"Zürich\", \"days\": 2, \"units\": "
    "[\"°C\"]}}}]},"
    " {\"role\": \"tool\", \"content\": \"{\\\"t\\\": 21.0}\"},"
    " {\"role\": \"assistant\", \"content\": \"21 °C\"},"
    " {\"role\": \"user\", \"content\": \"Thanks\"}]";

static void test_conversation(void **state)
{
    struct atsi_chat_input in = {.struct_size = sizeof in, .add_generation_prompt = true};
    struct atsi_chat_template *t = open_tools();
    json_t *messages = json(conversation);
    json_t *tools = json("[{\"name\": \"weather\", \"max\": 1.0, \"strict\": true, \"a\": null}]");
    json_t *vars = json("{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    (void)state;
    in.messages = messages;
    in.tools = tools;
    in.variables = vars;
    expect(t, &in,
           "<s>#system\nBe brief.\nYou may call:\n"
           "1. {\"name\": \"weather\", \"max\": 1.0, \"strict\": true, \"a\": null}\n"
           "#user 1\nWeather in Zürich?\n#assistant\nLooking.\n<call name=\"weather\">\n"
           "city = Zürich\ndays = 2\nunits = [\"°C\"]\n</call>\n</s>#result\n{\"t\": 21.0}\n"
           "#assistant\n21 °C\n</s>#user 2\nThanks\n#assistant\n",
           false);
    in.tools = NULL;
    in.add_generation_prompt = false;
    assert_int_equal(json_object_set_new(vars, "eos_token", json_string("")), 0);
    expect(t, &in,
           "<s>#system\nBe brief.\n#user 1\nWeather in Zürich?\n#assistant\nLooking.\n"
           "<call name=\"weather\">\ncity = Zürich\ndays = 2\nunits = [\"°C\"]\n</call>\n#result\n"
           "{\"t\": 21.0}\n#assistant\n21 °C\n#user 2\nThanks\n",
           false);
    json_decref(messages);
    json_decref(tools);
    json_decref(vars);
    atsi_chat_template_close(t);
}

static void test_refused(void **state)
{
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_template *t = open_tools();
    json_t *pending =
        json("[{\"role\": \"assistant\", \"tool_calls\": [{\"function\": {\"name\": "
             "\"f\", \"arguments\": {}}}]}, {\"role\": \"user\", \"content\": \"?\"}]");
    json_t *role = json("[{\"role\": \"judge\"}]");
    (void)state;
    in.messages = pending;
    expect(t, &in, "turn 2: a tool has not answered yet", true);
    in.messages = role;
    expect(t, &in, "unknown role judge", true);
    json_decref(pending);
    json_decref(role);
    atsi_chat_template_close(t);
}

static void test_empty(void **state)
{
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_template *t = open_text("");
    (void)state;
    expect(t, &in, "", false);
    atsi_chat_template_close(t);
    t = open_text("{{ messages }}{{ tools }}{{ add_generation_prompt }}");
    expect(t, &in, "[]NoneFalse", false);
    in.add_generation_prompt = true;
    expect(t, &in, "[]NoneTrue", false);
    atsi_chat_template_close(t);
    atsi_chat_template_close(NULL);
}

static void test_variables(void **state)
{
    (void)state;
    expect_vars("{{ tools }}{{ b }}{{ a }}", "{\"tools\": 1, \"a\": \"x\", \"b\": [1.5]}",
                "1[1.5]x");
    expect_vars("{{ range }}", "{\"range\": 3}", "3");
    expect_vars("{{ v }}", "{\"v\": {\"z\": 9223372036854775807, \"a\": -1e300, \"é\": null}}",
                "{'z': 9223372036854775807, 'a': -1e+300, 'é': None}");
    expect_vars("{{ v|length }}{{ v|tojson }}", "{\"v\": \"a\\u0000b\"}", "3\"a\\u0000b\"");
}

/* Text may hold NUL. */
static void test_nul(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_text out = {.struct_size = sizeof out};
    struct atsi_chat_template *t = open_text("[{{ v }}]");
    json_t *vars = json("{\"v\": \"a\\u0000b\"}");
    (void)state;
    in.variables = vars;
    assert_int_equal(atsi_chat_template_render(t, &in, &out, &err), ATSI_OK);
    assert_int_equal(out.len, 5);
    assert_memory_equal(out.text, "[a\0b]", 6);
    free(out.text);
    json_decref(vars);
    atsi_chat_template_close(t);
}

static void test_clock(void **state)
{
    static const struct {
        int year, month, day;
        const char *text;
    } rows[] = {
        {2025, 7, 3, "03 Jul 2025 Thu Thursday July 184 26 2025-27-4 7/3/25"},
        {2024, 2, 29, "29 Feb 2024 Thu Thursday February 060 08 2024-09-4 2/29/24"},
        {2021, 1, 1, "01 Jan 2021 Fri Friday January 001 00 2020-53-5 1/1/21"},
        {2018, 12, 31, "31 Dec 2018 Mon Monday December 365 52 2019-01-1 12/31/18"},
        {2000, 12, 31, "31 Dec 2000 Sun Sunday December 366 53 2000-52-7 12/31/00"},
    };
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_template *t =
        open_text("{{ strftime_now('%d %b %Y %a %A %B %j %U %G-%V-%u %-m/%-d/%y') }}");
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        in.now = (struct tm){
            .tm_year = rows[i].year - 1900, .tm_mon = rows[i].month - 1, .tm_mday = rows[i].day};
        expect(t, &in, rows[i].text, false);
    }
    atsi_chat_template_close(t);
    t = open_text("{{ strftime_now('%H:%M:%S|%I %p|%-I|%k|%e|%F %T|%^a|%%') }}");
    in.now = (struct tm){
        .tm_year = 125, .tm_mon = 6, .tm_mday = 3, .tm_hour = 0, .tm_min = 5, .tm_sec = 9};
    expect(t, &in, "00:05:09|12 AM|12| 0| 3|2025-07-03 00:05:09|THU|%", false);
    atsi_chat_template_close(t);
}

/* ---------------------------------------------------------------- bad arguments */
static int open_bytes(const char *source, size_t n, struct atsi_err *err)
{
    struct atsi_chat_template *t = NULL;
    int rc = atsi_chat_template_open(source, n, &t, err);
    assert_true((rc == ATSI_OK) == (t != NULL));
    atsi_chat_template_close(t);
    return rc;
}

static void test_bad_source(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *large = calloc(1, 5 << 20);
    (void)state;
    assert_non_null(large);
    assert_int_equal(open_bytes("a\nb\n\xFFzz", 7, &err), ATSI_EFORMAT);
    assert_string_equal(err.msg, "line 3: not valid UTF-8");
    assert_int_equal(open_bytes(large, 5 << 20, &err), ATSI_EFORMAT);
    assert_non_null(strstr(err.msg, "5242880 bytes, at most 4194304"));
    assert_int_equal(open_bytes(NULL, 0, &err), ATSI_OK);
    assert_int_equal(open_bytes(NULL, 1, &err), ATSI_EINVAL);
    assert_int_equal(open_bytes("{{ 1 +", 6, NULL), ATSI_EFORMAT);
    free(large);
}

static void test_bad_input(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_text out = {.struct_size = sizeof out};
    struct atsi_chat_template *t = open_text("x");
    json_t *list = json("[]");
    (void)state;
    in.variables = list;
    assert_int_equal(atsi_chat_template_render(t, &in, &out, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "must be a JSON object"));
    in.variables = NULL;
    in.now = (struct tm){.tm_year = 125, .tm_mon = 1, .tm_mday = 29};
    assert_int_equal(atsi_chat_template_render(t, &in, &out, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "2025-2-29 0:0:0 is no date"));
    in.now.tm_mday = 0;
    in.struct_size = 4;
    assert_int_equal(atsi_chat_template_render(t, &in, &out, &err), ATSI_EINVAL);
    in.struct_size = sizeof in;
    assert_int_equal(atsi_chat_template_render(NULL, &in, &out, &err), ATSI_EINVAL);
    assert_null(out.text);
    json_decref(list);
    atsi_chat_template_close(t);
}

/* ---------------------------------------------------------------- threads, memory */
struct renders {
    const struct atsi_chat_template *t;
    const json_t *messages;
    const char *first;
    bool good;
};

static void *render_many(void *p)
{
    struct renders *w = p;
    struct atsi_chat_input in = {.struct_size = sizeof in, .messages = w->messages};
    w->good = true;
    for (int i = 0; i < 200 && w->good; i++) {
        struct atsi_chat_text out = {.struct_size = sizeof out};
        w->good = atsi_chat_template_render(w->t, &in, &out, NULL) == ATSI_OK &&
                  strcmp(out.text, w->first) == 0;
        free(out.text);
    }
    return NULL;
}

static void test_threads(void **state)
{
    struct atsi_chat_template *t = open_tools();
    json_t *messages = json(conversation);
    struct atsi_chat_input in = {.struct_size = sizeof in, .messages = messages};
    struct atsi_chat_text first = {.struct_size = sizeof first};
    struct renders work[4];
    pthread_t threads[4];
    (void)state;
    assert_int_equal(atsi_chat_template_render(t, &in, &first, NULL), ATSI_OK);
    for (int i = 0; i < 4; i++) {
        work[i] = (struct renders){t, messages, first.text, false};
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_true(work[i].good);
    }
    free(first.text);
    json_decref(messages);
    atsi_chat_template_close(t);
}

/* Opens and renders with the Nth request refused; true when all was granted. */
static bool attempt(const char *source, size_t n, const json_t *messages, long nth)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_input in = {.struct_size = sizeof in, .messages = messages};
    struct atsi_chat_text out = {.struct_size = sizeof out};
    struct atsi_chat_template *t = NULL;
    bool granted;
    int rc;
    countdown = nth;
    rc = atsi_chat_template_open(source, n, &t, &err);
    if (rc == ATSI_OK)
        rc = atsi_chat_template_render(t, &in, &out, &err);
    granted = countdown >= 0;
    countdown = -1;
    assert_int_equal(rc, granted ? ATSI_OK : ATSI_ENOMEM);
    if (!granted)
        assert_non_null(strstr(err.msg, "out of memory"));
    free(out.text);
    atsi_chat_template_close(t);
    return granted;
}

static void test_out_of_memory(void **state)
{
    static const char large[] = "{% set ns = namespace(s='', l=[]) %}{% for i in range(300) %}"
                                "{% set ns.s = ns.s ~ i ~ '-' * 100 %}{% set ns.l = ns.l + [i] %}"
                                "{{ ns.s[:9] }}{% endfor %}{{ ns.s.split('-')|length }}"
                                "{{ ns.l|tojson }}{{ range(300)|map('string')|join }}";
    json_t *messages = json(conversation);
    size_t n;
    char *source = read_text(TEMPLATE, &n);
    long nth = 0;
    (void)state;
    while (!attempt(source, n, messages, nth))
        nth++;
    assert_true(nth >= 5); /* it did take memory */
    nth = 0;
    while (!attempt(large, sizeof large - 1, messages, nth))
        nth++;
    assert_true(nth >= 10);
    free(source);
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversation), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_empty),        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_nul),          cmocka_unit_test(test_clock),
        cmocka_unit_test(test_bad_source),   cmocka_unit_test(test_bad_input),
        cmocka_unit_test(test_threads),      cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
