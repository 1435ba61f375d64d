/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer template` as people and scripts use it: the text on stdout, one error line on stderr,
 * exit codes; templates of files and of models. */
#include "gguf_writer.h"
#include "scratch.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "atsinfer/loader.h"

#define TOOL ATSI_BINARY_DIR "/bin/atsinfer template "
#define TOOLS_TEMPLATE ATSI_SOURCE_DIR "/tests/data/chat_tools.jinja"

/* All that a stream or a file gives.  [free() it] */
static char *read_all(FILE *f)
{
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    assert_non_null(f);
    assert_true(fread(text, 1, (1 << 16) - 1, f) < (1 << 16) - 1);
    return text;
}

/* Runs with the arguments (`<input` too) and checks the exit code; the text of stdout. */
static char *run(const char *args, int expected)
{
    char command[2048], *text;
    int status;
    FILE *p;
    assert_true(snprintf(command, sizeof command, TOOL "%s 2>err", args) < (int)sizeof command);
    p = popen(command, "r"); /* NOLINT(cert-env33-c): constant commands of a test */
    text = read_all(p);
    status = pclose(p);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != expected)
        fail_msg("%s: exit %d, expected %d", args, WEXITSTATUS(status), expected);
    return text;
}

static void gives(const char *args, const char *text)
{
    char *got = run(args, 0);
    assert_string_equal(got, text);
    free(got);
}

/* It fails with one line that contains `words`. */
static void fails(const char *args, int code, const char *words)
{
    char *got = run(args, code), *err;
    FILE *f = fopen("err", "rb");
    assert_string_equal(got, "");
    err = read_all(f);
    (void)fclose(f);
    if (strstr(err, words) == NULL || strchr(err, '\n') != err + strlen(err) - 1)
        fail_msg("%s: %s", args, err);
    free(got);
    free(err);
}

static void test_file(void **state)
{
    (void)state;
    scratch_write("m.json", "[{\"role\": \"user\", \"content\": \"hé\"}]");
    scratch_write("t.json", "[{\"b\": 1, \"a\": \"é\"}]");
    scratch_write("vars", "{{ a }}|{{ b }}|{{ messages }}|{{ tools }}|{{ add_generation_prompt }}");
    gives("--file " TOOLS_TEMPLATE " --messages m.json", "#user 1\nhé\n#assistant\n");
    gives("--file " TOOLS_TEMPLATE " --messages m.json --no-generation-prompt --tools t.json",
          "#system\n\nYou may call:\n1. {\"b\": 1, \"a\": \"é\"}\n#user 1\nhé\n");
    gives("--file " TOOLS_TEMPLATE " --messages m.json --var enable_thinking=false",
          "#user 1\nhé\n#assistant\n<think></think>\n");
    gives("--file vars --var a='\"x=y\"' --var b='[1.0,null]'", "x=y|[1.0, None]|[]|None|True");
    gives("--file - <vars", "||[]|None|True");
    gives("--file vars --messages - <m.json", "||[{'role': 'user', 'content': 'hé'}]|None|True");
    gives("--file vars --show",
          "{{ a }}|{{ b }}|{{ messages }}|{{ tools }}|{{ add_generation_prompt }}");
}

static void test_errors(void **state)
{
    (void)state;
    scratch_write("bad", "a\n{{ x.y }}");
    scratch_write("syntax", "a\n\n{% if %}");
    scratch_write("tag", "{% include 'x' %}");
    scratch_write("no", "{{ raise_exception('please begin with a user turn') }}");
    scratch_write("o.json", "{}");
    scratch_write("broken.json", "[1,\n2,,]");
    fails("--file bad", 1, "error: bad: line 2: 'x' is undefined");
    fails("--file syntax", 1, "syntax: line 3: unexpected '%}'");
    fails("--file tag", 1, "tag: line 1: the tag 'include' is not supported");
    fails("--file no", 1, "refuses the conversation: please begin with a user turn");
    fails("--file nosuch", 1, "nosuch: No such file");
    fails("--file bad --messages nosuch", 1, "nosuch: No such file");
    fails("--file bad --messages o.json", 1, "o.json: a JSON list expected");
    fails("--file bad --tools broken.json", 1, "broken.json: line 2: ");
    fails("--file bad --var x", 2, "'x': KEY=JSON expected");
    fails("--file bad --var x=hello", 2, "the value is not JSON");
    fails("--file bad --name tools", 2, "--name is for the templates of a model");
    fails("--file - --messages - <o.json", 2, "only one of");
    fails("--file bad extra", 2, "unexpected argument extra");
    fails("--jsonl --file bad", 2, "--jsonl reads everything from stdin");
}

/* A model of nothing but metadata. */
static void write_model(const char *path, int with_template)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a"};
    static const int32_t types[] = {2, 3, 3, 1};
    struct gw w = {.p = NULL};
    gw_header(&w, 3, 0, with_template ? 8 : 1);
    gw_kv_str(&w, "general.architecture", "llama");
    if (with_template) {
        gw_kv_str(&w, "tokenizer.chat_template",
                  "{{ bos_token }}{{ eos_token }}{{ messages[0].content }}");
        gw_kv_str(&w, "tokenizer.chat_template.tool_use", "tools: {{ tools }}");
        gw_kv_str(&w, "tokenizer.ggml.model", "llama");
        gw_kv_array_str(&w, "tokenizer.ggml.tokens", tokens, 4);
        gw_kv_array_i32(&w, "tokenizer.ggml.token_type", types, 4);
        gw_kv_int(&w, "tokenizer.ggml.bos_token_id", ATSI_META_U32, 1);
        gw_kv_int(&w, "tokenizer.ggml.eos_token_id", ATSI_META_U32, 2);
    }
    gw_pad(&w, 32);
    gw_save(&w, w.n, path);
    gw_free(&w);
}

static void test_model(void **state)
{
    (void)state;
    write_model("m.gguf", 1);
    write_model("none.gguf", 0);
    scratch_write("m.json", "[{\"role\": \"user\", \"content\": \"hi\"}]");
    gives("-m m.gguf --messages m.json", "<s></s>hi");
    gives("-m m.gguf --messages m.json --var bos_token='\"!\"'", "!</s>hi");
    gives("-m m.gguf --name tool_use", "tools: None");
    gives("-m m.gguf --show", "{{ bos_token }}{{ eos_token }}{{ messages[0].content }}");
    fails("-m m.gguf --name nosuch", 1, "no chat template (tokenizer.chat_template.nosuch)");
    fails("-m none.gguf", 1, "no chat template (tokenizer.chat_template)");
}

static void test_lines(void **state)
{
    static const char *const expected[] = {
        "{\"text\":\"1user\"}",
        "{\"raised\":\"no \\u00E9\"}",
        "{\"error\":\"line 2: 'x' is undefined\"}",
        "{\"error\":\"not a JSON object\"}",
        "{\"error\":\"\\\"template\\\" is missing\"}",
        "{\"error\":\"\\\"messages\\\" is not a list\"}",
        "{\"error\":\"\\\"strftime_now\\\" is not a string YYYY-MM-DD HH:MM:SS\"}",
        "{\"text\":\"2001-02-03 04:05:06\"}",
        "{\"text\":\"None[]False\"}",
    };
    char *got, *line;
    (void)state;
    scratch_write(
        "q.jsonl",
        "{\"template\": \"{{ a }}{{ messages[0].role }}\", \"messages\": [{\"role\": \"user\"}],"
        " \"variables\": {\"a\": 0}, \"extra\": {\"a\": 1}}\n\n"
        "{\"template\": \"{{ raise_exception('no é') }}\"}\n"
        "{\"template\": \"\\n{{ x.y }}\"}\n[]\n{}\n{\"template\": \"\", \"messages\": {}}\n"
        "{\"template\": \"\", \"strftime_now\": \"now\"}\n"
        "{\"template\": \"{{ strftime_now('%Y-%m-%d %H:%M:%S') }}\","
        " \"strftime_now\": \"2001-02-03 04:05:06\"}\n"
        "{\"template\": \"{{ tools }}{{ messages }}{{ add_generation_prompt }}\", \"tools\": "
        "null}\n");
    got = run("--jsonl <q.jsonl", 1);
    line = got;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        size_t n = strcspn(line, "\n");
        assert_int_equal(line[n], '\n');
        line[n] = '\0';
        assert_string_equal(line, expected[i]);
        line += n + 1;
    }
    assert_string_equal(line, "");
    free(got);
    scratch_write("good.jsonl", "{\"template\": \"x\"}\n");
    gives("--jsonl <good.jsonl", "{\"text\":\"x\"}\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_file, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(test_errors, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(test_model, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(test_lines, scratch_enter, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
