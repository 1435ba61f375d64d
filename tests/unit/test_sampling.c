/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to a sampler: what was given beats what the model file recommends, which beats the
 * defaults; forbidden tokens; escapes of stop strings.
 */
#include "cli/sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "text_meta.h"

enum { N_VOCAB = TEXT_BPE_FIRST + 2, EOG = TEXT_BPE_FIRST, SUPPRESSED = TEXT_BPE_FIRST + 1 };

/* ---------------------------------------------------------------- stand-ins for the command */
static char said[512];
static struct text_meta file; /* metadata of the model */

int atsi_model_meta_find(const struct atsi_model *m, const char *key, struct atsi_meta *out)
{
    struct atsi_meta_source src = text_meta_source(&file);
    (void)m;
    return src.find(src.ctx, key, out);
}

int cli_fail(int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    return code;
}

int cli_fail_status(int status, const struct atsi_err *err)
{
    return cli_fail(status == ATSI_ECONF ? CLI_USAGE : CLI_RUN_ERROR, "%s", err->msg);
}

void cli_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
}

/* ---------------------------------------------------------------- fixture */
static const struct cli_sampling nothing_given = {.n_predict = -1,
                                                  .seed = 1,
                                                  .top_k = CLI_UNSET_INT,
                                                  .last_n = CLI_UNSET_INT,
                                                  .temp = NAN,
                                                  .top_p = NAN,
                                                  .min_p = NAN,
                                                  .typical_p = NAN,
                                                  .repeat = NAN,
                                                  .presence = NAN,
                                                  .frequency = NAN};
static struct text_meta vocab;
static struct atsi_tokenizer *tok;

static int set_up(void **state)
{
    static const struct text_token extra[] = {{"<|im_end|>", 3, 0}, {"<unused>", 3, 0}};
    static const int32_t suppressed[] = {SUPPRESSED};
    (void)state;
    cli_sampling = nothing_given;
    said[0] = '\0';
    text_meta_bpe(&vocab, "qwen2", NULL, 0, extra, 2);
    text_meta_u32(&vocab, "tokenizer.ggml.eos_token_id", EOG);
    text_meta_i32s(&vocab, "tokenizer.ggml.suppress_tokens", suppressed, 1);
    tok = text_open(&vocab);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    atsi_tokenizer_close(tok);
    text_meta_free(&vocab);
    text_meta_free(&file);
    vocab = file = (struct text_meta){.n = 0};
    return 0;
}

/* How many different tokens come up in 64 draws from nearly equal logits; *last: the last one. */
static int kinds(int32_t *last)
{
    struct atsi_sampler *s;
    bool seen[N_VOCAB] = {false};
    int n = 0;
    assert_int_equal(cli_sampler(NULL, tok, N_VOCAB, &s), CLI_OK);
    for (int i = 0; i < 64; i++) {
        float logits[N_VOCAB];
        for (int k = 0; k < N_VOCAB; k++)
            logits[k] = (float)k * 0.001F;
        *last = atsi_sampler_next(s, logits);
        assert_in_range(*last, 0, N_VOCAB - 1);
        n += !seen[*last];
        seen[*last] = true;
    }
    atsi_sampler_close(s);
    return n;
}

/* ---------------------------------------------------------------- values */
static void test_defaults_draw(void **state)
{
    int32_t last;
    (void)state;
    assert_in_range(kinds(&last), 10, 40); /* top_k 40 */
}

static void test_file_recommends(void **state)
{
    int32_t last;
    (void)state;
    text_meta_i32(&file, "general.sampling.top_k", 1);
    assert_int_equal(kinds(&last), 1);
    assert_int_equal(last, EOG); /* the largest that is not suppressed */
    text_meta_i32(&file, "general.sampling.top_k", 3);
    assert_int_equal(kinds(&last), 3);
    text_meta_i32(&file, "general.sampling.temp", 0); /* 0: greedy */
    assert_int_equal(kinds(&last), 1);
}

static void test_given_beats_file(void **state)
{
    int32_t last;
    (void)state;
    text_meta_i32(&file, "general.sampling.top_k", 1);
    cli_sampling.top_k = 5;
    assert_int_equal(kinds(&last), 5);
    cli_sampling.temp = 0;
    assert_int_equal(kinds(&last), 1);
}

static void test_bad_recommendation(void **state)
{
    int32_t last;
    (void)state;
    text_meta_i32(&file, "general.sampling.top_k", -7);
    assert_in_range(kinds(&last), 10, 40);
    assert_non_null(strstr(said, "general.sampling.top_k"));
    text_meta_str(&file, "general.sampling.temp", "hot");
    assert_in_range(kinds(&last), 10, 40);
}

static void test_forbidden(void **state)
{
    int32_t last;
    (void)state;
    cli_sampling.temp = 0;
    assert_int_equal(kinds(&last), 1);
    assert_int_equal(last, EOG);
    cli_sampling.ignore_eos = true;
    assert_int_equal(kinds(&last), 1);
    assert_int_equal(last, EOG - 1);
}

static void test_bias(void **state)
{
    static const char *const bad[] = {"", "5", "5+", "x+1", "5+1,", "-5+1", "5+nan", "5+1;6+1"};
    struct atsi_sampler *s;
    int32_t last;
    (void)state;
    cli_sampling.temp = 0;
    cli_sampling.bias = "7+100,8+1e2,8-50.5";
    assert_int_equal(kinds(&last), 1);
    assert_int_equal(last, 7);
    cli_sampling.bias = "258+1";
    assert_int_equal(cli_sampler(NULL, tok, N_VOCAB, &s), CLI_USAGE);
    assert_non_null(strstr(said, "id 258 is outside the vocabulary, 0..257"));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cli_sampling.bias = bad[i];
        assert_int_equal(cli_sampler(NULL, tok, N_VOCAB, &s), CLI_USAGE);
        assert_null(s);
        assert_non_null(strstr(said, "expected ID+X"));
    }
}

/* ---------------------------------------------------------------- stop strings */
static void expect_stop(const char *typed, const char *bytes, size_t n)
{
    struct atsi_stops *s;
    cli_sampling.stop.items[0] = typed;
    cli_sampling.stop.n = 1;
    assert_int_equal(cli_stops(&s), CLI_OK);
    assert_true(atsi_stops_has(s, bytes, n));
    atsi_stops_close(s);
}

static void test_escapes(void **state)
{
    (void)state;
    expect_stop("plain", "plain", 5);
    expect_stop("a\\nb\\tc\\r", "a\nb\tc\r", 6);
    expect_stop("\\\\n", "\\n", 2);
    expect_stop("\\x00\\xfF", "\0\xff", 2);
    expect_stop("\\\"\\'", "\"'", 2);
    expect_stop("\\q\\x4\\xg0", "\\q\\x4\\xg0", 9); /* none of ours: as they stand */
    expect_stop("end\\", "end\\", 4);
}

static void test_stop_list(void **state)
{
    struct atsi_stops *s;
    (void)state;
    assert_int_equal(cli_stops(&s), CLI_OK); /* none */
    assert_false(atsi_stops_has(s, "a", 1));
    atsi_stops_close(s);
    cli_sampling.stop = (struct cli_texts){.items = {"a", "\\n", "bc"}, .n = 3};
    assert_int_equal(cli_stops(&s), CLI_OK);
    assert_true(atsi_stops_has(s, "a", 1) && atsi_stops_has(s, "\n", 1) &&
                atsi_stops_has(s, "bc", 2));
    atsi_stops_close(s);
    cli_sampling.stop.items[1] = "";
    assert_int_equal(cli_stops(&s), CLI_USAGE);
    assert_null(s);
}

#define WITH_VOCAB(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_VOCAB(test_defaults_draw),    WITH_VOCAB(test_file_recommends),
        WITH_VOCAB(test_given_beats_file), WITH_VOCAB(test_bad_recommendation),
        WITH_VOCAB(test_forbidden),        WITH_VOCAB(test_bias),
        WITH_VOCAB(test_escapes),          WITH_VOCAB(test_stop_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
