/* SPDX-License-Identifier: Apache-2.0
 *
 * What another program's bench printed is read, whatever it is: the three formats of llama-bench,
 * and text that means harm.
 */
#include "cli/bench_rival.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What cli/bench_rival.c needs of the rest of the command. */
volatile int cli_interrupted;
static char said[1024];

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return code;
}

static const struct bench_rival_test pp512 = {"model.gguf", 512, 0, 0, 2};
static const struct bench_rival_test tg64 = {"it's a model.gguf", 0, 64, 0, 2};
static const struct bench_rival_test deep = {"model.gguf", 0, 64, 4096, 2};

static double parse(const char *text, const struct bench_rival_test *t, const char **why)
{
    static char buf[200];
    double ts = 0;
    buf[0] = '\0';
    *why = buf;
    return bench_rival_parse(text, strlen(text), t, &ts, buf, sizeof buf) ? ts : -1;
}

static void reads(const char *text, const struct bench_rival_test *t, double want)
{
    const char *why;
    double ts = parse(text, t, &why);
    if (ts != want)
        print_error("%s\n", why);
    assert_true(ts == want);
}

static void refuses(const char *text, const struct bench_rival_test *t, const char *reason)
{
    const char *why;
    assert_true(parse(text, t, &why) < 0);
    if (strstr(why, reason) == NULL)
        print_error("said: %s\n", why);
    assert_non_null(strstr(why, reason));
}

static void test_formats(void **state)
{
    static const char rows[] =
        "ggml: some message\n"
        "[\n  {\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 226.25, \"samples_ts\": [1]},\n"
        "  {\"n_prompt\": 0, \"n_gen\": 64, \"n_depth\": 0, \"avg_ts\": 64.5},\n"
        "  {\"n_prompt\": 0, \"n_gen\": 64, \"n_depth\": 4096, \"avg_ts\": 31}\n]\n";
    static const char table[] =
        "| model | size | threads | test | t/s |\n| --- | ---: | ---: | ---: | ---: |\n"
        "| qwen3 0.6B | 1 MiB | 2 |  pp512 |  226.25 \xc2\xb1 3.24 |\n"
        "| qwen3 0.6B | 1 MiB | 2 |  tg64 |  64.5 \xc2\xb1 1 |\n"
        "| qwen3 0.6B | 1 MiB | 2 |  tg64 @ d4096 |  31 |\n\nbuild: 1 (2)\n";
    (void)state;
    reads(rows, &pp512, 226.25);
    reads(rows, &tg64, 64.5);
    reads(rows, &deep, 31);
    reads("{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 2}\n"
          "noise\n{\"n_prompt\": 0, \"n_gen\": 64, \"avg_ts\": 3.5}\n",
          &tg64, 3.5);
    reads(table, &pp512, 226.25);
    reads(table, &tg64, 64.5);
    reads(table, &deep, 31);
}

static void test_refused(void **state)
{
    char *deep_json = malloc(100001);
    (void)state;
    refuses("", &pp512, "no result");
    refuses("error: no such model\n", &pp512, "no result");
    refuses("[", &pp512, "no result");
    refuses("[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 1}", &pp512, "no result");
    refuses("[1, null, \"x\", [], {}]\n", &pp512, "no result");
    refuses("[{\"n_prompt\": 128, \"n_gen\": 0, \"avg_ts\": 1}]", &pp512, "none of them pp512");
    refuses("[{\"n_prompt\": 512, \"n_gen\": 0}]", &pp512, "no speed");
    refuses("[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": \"9\"}]", &pp512, "no speed");
    refuses("[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": -1}]", &pp512, "no speed");
    refuses("{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 1}\n"
            "{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 2}\n",
            &pp512, "2 results for pp512");
    refuses("| test | t/s |\n| pp512 | nan |\n", &pp512, "no speed");
    refuses("| test | t/s |\n| pp512 | fast |\n", &pp512, "no speed");
    refuses("| test | t/s |\n| pp512 |\n", &pp512, "none of them");
    refuses("| t/s |\n| 12 |\n", &pp512, "no result");
    assert_non_null(deep_json);
    memset(deep_json, '[', 100000);
    deep_json[100000] = '\0';
    refuses(deep_json, &pp512, "no result");
    free(deep_json);
}

/* Megabytes that look like the beginning of JSON, line by line, take no minutes to be refused. */
static void test_endless_json(void **state)
{
    static const char row[] = "\n{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 2.5}\n";
    const size_t n = (size_t)4 << 20;
    char *text = malloc(n), why[160];
    double ts;
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = i % 2 == 0 ? '[' : '\n';
    assert_false(bench_rival_parse(text, n, &pp512, &ts, why, sizeof why));
    assert_non_null(strstr(why, "begins like JSON"));
    /* many short ones are messages, and hide no result */
    for (size_t i = 0; i < n; i++)
        text[i] = "[i] say\n"[i % 8];
    memcpy(text + n - (sizeof row - 1), row, sizeof row - 1);
    assert_true(bench_rival_parse(text, n, &pp512, &ts, why, sizeof why));
    assert_true(ts == 2.5);
    free(text);
}

/* Every beginning of good outputs, and every byte of them changed: no crash, no wrong number. */
static void test_torn(void **state)
{
    static const char text[] = "[{\"n_prompt\": 512, \"n_gen\": 0, \"avg_ts\": 226.25}]\n"
                               "| test | t/s |\n| pp512 | 226.25 |\n";
    char copy[sizeof text], why[64];
    double ts;
    (void)state;
    for (size_t n = 0; n < sizeof text; n++) {
        memcpy(copy, text, sizeof text);
        (void)bench_rival_parse(copy, n, &pp512, &ts, why, sizeof why);
        for (int bit = 0; bit < 8 && n + 1 < sizeof text; bit++) {
            copy[n] = (char)(text[n] ^ (1 << bit));
            if (bench_rival_parse(copy, sizeof text - 1, &pp512, &ts, why, sizeof why))
                assert_true(ts > 0);
        }
    }
}

static void test_command(void **state)
{
    char *c = bench_rival_command("/x/llama-bench -rtr 1", &tg64);
    (void)state;
    assert_string_equal(c, "/x/llama-bench -rtr 1 -m 'it'\\''s a model.gguf' -p 0 -n 64 -t 2 -r 1 "
                           "-o json");
    free(c);
    c = bench_rival_command("prog", &deep);
    assert_non_null(strstr(c, " -d 4096"));
    free(c);
    c = bench_rival_command("other {model} {p}/{n}/{d}/{t} {x}", &deep);
    assert_string_equal(c, "other 'model.gguf' 0/64/4096/2 {x}");
    free(c);
}

static int sample_within(const char *text, uint32_t limit_s, double *ts)
{
    struct bench_rival r;
    int code;
    said[0] = '\0';
    assert_int_equal(bench_rival_open(&r, text, 1), CLI_OK);
    assert_int_equal(r.limit_s, BENCH_RIVAL_LIMIT_S);
    r.limit_s = limit_s;
    code = bench_rival_sample(&r, &tg64);
    *ts = code == CLI_OK ? 64e9 / (double)r.samples_ns[0] : 0;
    bench_rival_close(&r);
    return code;
}

static int sample(const char *text, double *ts)
{
    return sample_within(text, BENCH_RIVAL_LIMIT_S, ts);
}

/* A program that does not end is ended, whether or not it still holds its pipes. */
static void test_no_end(void **state)
{
    double ts;
    (void)state;
    assert_int_equal(sample_within("holds=sleep 100 #{n}", 0, &ts), CLI_RUN_ERROR);
    assert_string_equal(said, "--rival holds: no end after 0 s");
    assert_int_equal(sample_within("closes=exec >&- 2>&-; exec sleep 100 #{n}", 1, &ts),
                     CLI_RUN_ERROR);
    assert_string_equal(said, "--rival closes: no end after 1 s");
}

static void test_run(void **state)
{
    double ts;
    (void)state;
    assert_int_equal(sample("good=echo '{\"n_prompt\": {p}, \"n_gen\": {n}, \"avg_ts\": 32}'", &ts),
                     CLI_OK);
    assert_float_equal(ts, 32, 0.01);
    assert_int_equal(sample("bad=echo 'first'>&2; echo 'no model {n}'>&2; exit 3", &ts),
                     CLI_RUN_ERROR);
    assert_string_equal(said, "--rival bad: exit code 3: no model 64");
    assert_int_equal(sample("/no/such/program", &ts), CLI_RUN_ERROR);
    assert_non_null(strstr(said, "--rival program: exit code 127"));
    assert_int_equal(sample("dies=kill -9 $$ #{n}", &ts), CLI_RUN_ERROR);
    assert_non_null(strstr(said, "signal 9"));
    assert_int_equal(sample("floods=yes {model}", &ts), CLI_RUN_ERROR);
    assert_non_null(strstr(said, "more than 4 MiB"));
    assert_int_equal(sample("silent=true {n}", &ts), CLI_RUN_ERROR);
    assert_non_null(strstr(said, "no result"));
    /* neither with nor without its pipes does it outlive us */
    cli_interrupted = 1;
    assert_int_equal(sample("sleeps=sleep 100 #{n}", &ts), CLI_INTERRUPTED);
    assert_int_equal(sample("hides=exec >/dev/null 2>&1; sleep 100 #{n}", &ts), CLI_INTERRUPTED);
    cli_interrupted = 0;
}

static void test_names(void **state)
{
    struct bench_rival r;
    (void)state;
    assert_int_equal(bench_rival_open(&r, "ik=/a/llama-bench -rtr 1", 1), CLI_OK);
    assert_string_equal(r.name, "ik");
    assert_string_equal(r.command, "/a/llama-bench -rtr 1");
    bench_rival_close(&r);
    assert_int_equal(bench_rival_open(&r, "/a/llama-bench --x=y", 1), CLI_OK);
    assert_string_equal(r.name, "llama-bench");
    bench_rival_close(&r);
    assert_int_equal(bench_rival_open(&r, "", 1), CLI_USAGE);
    assert_int_equal(bench_rival_open(&r, "name=", 1), CLI_USAGE);
    bench_rival_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_torn),    cmocka_unit_test(test_command),
        cmocka_unit_test(test_run),     cmocka_unit_test(test_names),
        cmocka_unit_test(test_no_end),  cmocka_unit_test(test_endless_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
