/* SPDX-License-Identifier: Apache-2.0
 * Choosing the size of prefill rounds: by what the policy that places predicts, within memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "core/round/chunk.h"

/* A machine where a round streams for `stream_ns` and computes `token_ns` per token. */
static uint64_t stream_ns, token_ns;
static uint32_t fits, now, asked; /* most tokens; of the question that was asked last; questions */
static struct atsi_items *items;

static int place(const struct atsi_problem *p, struct atsi_placement *out, struct atsi_err *err)
{
    uint64_t computes = now * token_ns;
    (void)err;
    assert_int_equal(p->n_items, 1);
    out->device[0] = ATSI_DEVICE_HOST;
    out->predicted_prefill_ns = computes > stream_ns ? computes : stream_ns;
    out->predicted_decode_ns = 10;
    return ATSI_OK;
}

static const struct atsi_policy_ops ops = {.struct_size = sizeof ops, .place = place};
static const struct atsi_policy_use use = {.name = "fake", .ops = &ops};

static int ask(void *ctx, uint32_t tokens, struct atsi_question **out, struct atsi_err *err)
{
    const struct atsi_question_params qp = {.vram_bytes = 1 << 20};
    const struct atsi_question_fixed fixed = {0};
    (void)ctx;
    *out = NULL;
    asked++;
    now = tokens;
    if (tokens > fits)
        return atsi_fail(err, ATSI_ENOFIT, "rounds of %u tokens do not fit", tokens);
    *out = atsi_question_new(items);
    assert_non_null(*out);
    atsi_question_finish(*out, &qp, &fixed);
    return ATSI_OK;
}

static struct atsi_chunk_choice choose(uint32_t prompt, uint32_t most, int want)
{
    const struct atsi_chunk_params p = {
        .place = &use, .prompt = prompt, .generated = 100, .most = most, .ask = ask};
    struct atsi_chunk_choice c;
    struct atsi_err err = ATSI_ERR_INIT;
    asked = 0;
    assert_int_equal(atsi_chunk_choose(&p, &c, &err), want);
    return c;
}

static int enter(void **state)
{
    (void)state;
    items = atsi_items_new(1, 0, 8);
    if (items == NULL)
        return -1;
    items->items[0].name = items->names;
    (void)snprintf(items->names, 8, "x");
    return 0;
}

static int leave(void **state)
{
    (void)state;
    atsi_items_free(items);
    return 0;
}

/* Twice the tokens hide twice the stream, until computing takes as long. */
static void test_grows_until_computing_takes_longer(void **state)
{
    struct atsi_chunk_choice c;
    (void)state;
    fits = UINT32_MAX;
    stream_ns = 2000000;
    token_ns = 1000; /* as long as 2000 tokens compute */
    c = choose(8192, 8192, ATSI_OK);
    assert_int_equal(c.tokens, 2048);
    assert_int_equal(c.n, 4); /* 4096 gains less than 2 % */
    assert_int_equal(c.trial[0].tokens, 512);
    assert_int_equal(c.trial[0].request_ns, 16 * 2000000 + 100 * 10);
    assert_non_null(strstr(c.why, "2048 tokens a round"));
    assert_non_null(strstr(c.why, "with 512"));
    token_ns = 10000;
    assert_int_equal(choose(8192, 8192, ATSI_OK).tokens, 512);
    assert_int_equal(asked, 2);
}

static void test_prompt_and_context_end_it(void **state)
{
    (void)state;
    fits = UINT32_MAX;
    stream_ns = 1000000000;
    token_ns = 1;
    assert_int_equal(choose(1000, 8192, ATSI_OK).tokens, 1024); /* one round is enough */
    assert_int_equal(choose(1 << 20, 3000, ATSI_OK).tokens, 3000);
    assert_int_equal(choose(1 << 20, 100, ATSI_OK).tokens, 100);
    assert_int_equal(choose(1 << 20, UINT32_MAX, ATSI_OK).tokens, ATSI_CHUNK_MOST);
}

static void test_memory_ends_it(void **state)
{
    struct atsi_chunk_choice c;
    (void)state;
    stream_ns = 1000000000;
    token_ns = 1;
    fits = 1500;
    c = choose(1 << 20, 8192, ATSI_OK);
    assert_int_equal(c.tokens, 1024);
    assert_non_null(strstr(c.why, "too little memory"));
    fits = 100;
    (void)choose(1 << 20, 8192, ATSI_ENOFIT);
}

static void test_nothing_predicted(void **state)
{
    struct atsi_chunk_choice c;
    (void)state;
    fits = UINT32_MAX;
    stream_ns = token_ns = 0;
    c = choose(8192, 8192, ATSI_OK);
    assert_int_equal(c.tokens, 512);
    assert_int_equal(asked, 1);
    assert_non_null(strstr(c.why, "policy fake predicts nothing"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_until_computing_takes_longer),
        cmocka_unit_test(test_prompt_and_context_end_it),
        cmocka_unit_test(test_memory_ends_it),
        cmocka_unit_test(test_nothing_predicted),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
