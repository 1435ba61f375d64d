/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing traces: files good and hostile, made-up traces, watching routers; the books of an expert
 * cache, answers that are refused, replays against the bound; files of statistics.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "atsinfer/routing.h"
#include "atsinfer/simulate.h"
#include "core/experts/books.h"
#include "core/experts/stats.h"
#include "tests/unit/scratch.h"

static struct atsi_err err;

static int enter(void **state)
{
    err = (struct atsi_err)ATSI_ERR_INIT;
    return scratch_enter(state);
}

static struct atsi_routing *made(double zipf, double repeat)
{
    struct atsi_routing_skew k = {.struct_size = sizeof k,
                                  .n_layers = 3,
                                  .n_experts = 16,
                                  .n_used = 2,
                                  .n_tokens = 600,
                                  .zipf = zipf,
                                  .drift = 0.2,
                                  .repeat = repeat,
                                  .follow = 0.3,
                                  .seed = 5};
    struct atsi_routing *r = NULL;
    if (atsi_routing_generate(&k, &r, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return r;
}

static struct atsi_routing_info info_of(const struct atsi_routing *r)
{
    struct atsi_routing_info info = {.struct_size = sizeof info};
    atsi_routing_info(r, &info);
    return info;
}

/* ---------------------------------------------------------------- files */
static void a_file_gives_what_was_written(void **state)
{
    struct atsi_routing *r = made(1, 0.5), *back = NULL;
    const char *path = scratch_path("trace.txt");
    int32_t a[6], b[6];
    uint32_t phase = 0;
    (void)state;
    assert_int_equal(atsi_routing_add(r, 0, (const int32_t[]){15, 0, 1, 2, 3, 4}, &err), ATSI_OK);
    assert_int_equal(atsi_routing_write(r, path, &err), ATSI_OK);
    assert_int_equal(atsi_routing_read(path, &back, &err), ATSI_OK);
    assert_int_equal(info_of(back).n_tokens, 601);
    assert_int_equal(info_of(back).n_layers, 3);
    assert_int_equal(info_of(back).n_used, 6);
    assert_string_equal(info_of(back).model, info_of(r).model);
    for (uint64_t t = 0; t < 601; t++) {
        atsi_routing_get(r, t, a, NULL);
        atsi_routing_get(back, t, b, &phase);
        assert_memory_equal(a, b, sizeof a);
        assert_int_equal(phase, t < 600 ? 1 : 0);
    }
    atsi_routing_free(back);
    atsi_routing_free(r);
}

static void refused(const char *text, const char *why)
{
    struct atsi_routing *r = (struct atsi_routing *)&err;
    scratch_write("bad.txt", text);
    assert_int_equal(atsi_routing_read(scratch_path("bad.txt"), &r, &err), ATSI_EFORMAT);
    assert_null(r);
    if (strstr(err.msg, why) == NULL)
        fail_msg("\"%s\": \"%s\" expected in \"%s\"", text, why, err.msg);
}

#define HEAD "atsinfer routing 1\nlayer 0 4 2\nlayer 7 4 1\n"

static void hostile_files_are_refused_with_their_line(void **state)
{
    struct atsi_routing *r;
    (void)state;
    refused("", ":1: the file is empty");
    refused("model\n", ":1: this is no routing trace");
    refused("atsinfer routing 2\n", ":1: this is no routing trace");
    refused("atsinfer routing 1\nend\n", ":2: a routing trace of 0 layers");
    refused(HEAD "d 0 1 2\n", ":5: cut off");
    refused(HEAD "d 0 1\nend\n", ":4: 2 expert numbers, the layers above use 3");
    refused(HEAD "d 0 1 2 3\nend\n", ":4: more expert numbers");
    refused(HEAD "d 0 4 2\nend\n", ":4: layer 0: expert 4, there are 4");
    refused(HEAD "d 1 1 2\nend\n", ":4: layer 0: expert 1 is there twice");
    refused(HEAD "d 0 -1 2\nend\n", ":4: 1 expert numbers");
    refused(HEAD "d 0 1 99999999999999999999\nend\n", ":4: 2 expert numbers");
    refused(HEAD "d 0 1 2x\nend\n", ":4: 2 expert numbers");
    refused(HEAD "x 0 1 2\nend\n", ":4: expected");
    refused(HEAD "d 0 1 2\nlayer 9 4 1\nend\n", ":5: a layer after the first token");
    refused(HEAD "d 0 1 2\nend\nd 0 1 2\n", ":6: a line behind the end");
    refused(HEAD "d 0 1 2\nend", ":5: the line is too long, cut off");
    refused("atsinfer routing 1\nlayer 3 4 2\nlayer 3 4 2\nend\n", "layer 3 comes after layer 3");
    refused("atsinfer routing 1\nlayer 3 4 5\nend\n", "layer 3: 5 of 4 experts");
    refused("atsinfer routing 1\nlayer 3 4\nend\n", ":2: expected \"layer");
    refused("atsinfer routing 1\nlayer 3 70000 2\nend\n", ":2: expected \"layer");
    /* a line without an end is not read to its end */
    assert_int_equal(atsi_routing_read("/dev/zero", &r, &err), ATSI_EFORMAT);
    assert_string_equal(err.msg,
                        "/dev/zero:1: the line is too long, cut off, or holds a zero byte");
    assert_int_equal(atsi_routing_read(scratch_path("none.txt"), &r, &err), ATSI_ENOENT);
}

static void a_trace_without_tokens_is_one(void **state)
{
    struct atsi_routing *r = NULL;
    (void)state;
    scratch_write("empty.txt", "atsinfer routing 1\n# nothing\n\nmodel a b\nlayer 2 4 2\nend\n");
    assert_int_equal(atsi_routing_read(scratch_path("empty.txt"), &r, &err), ATSI_OK);
    assert_int_equal(info_of(r).n_tokens, 0);
    assert_string_equal(info_of(r).model, "a b");
    atsi_routing_free(r);
}

/* ---------------------------------------------------------------- made-up traces */
static uint32_t most_used(const struct atsi_routing *r)
{
    uint32_t count[16] = {0}, most = 0;
    int32_t ids[6];
    for (uint64_t t = 0; t < info_of(r).n_tokens; t++) {
        atsi_routing_get(r, t, ids, NULL);
        for (int k = 0; k < 2; k++)
            count[ids[k]]++;
    }
    for (int e = 0; e < 16; e++)
        most = count[e] > most ? count[e] : most;
    return most;
}

static void made_traces_are_skewed_as_asked(void **state)
{
    struct atsi_routing *even = made(0, 0), *steep = made(2, 0), *again = made(2, 0);
    int32_t a[6], b[6];
    (void)state;
    assert_true(most_used(even) < 130);  /* 75 expected */
    assert_true(most_used(steep) > 250); /* drift moves the first ranks */
    for (uint64_t t = 0; t < 600; t++) {
        atsi_routing_get(steep, t, a, NULL);
        atsi_routing_get(again, t, b, NULL);
        assert_memory_equal(a, b, sizeof a);
    }
    atsi_routing_free(even);
    atsi_routing_free(steep);
    atsi_routing_free(again);
}

static void wrong_skews_are_refused(void **state)
{
    struct atsi_routing_skew k = {
        .struct_size = sizeof k, .n_layers = 1, .n_experts = 4, .n_used = 2, .n_tokens = 1};
    struct atsi_routing *r;
    (void)state;
    k.zipf = -1;
    assert_int_equal(atsi_routing_generate(&k, &r, &err), ATSI_EINVAL);
    k.zipf = 0;
    k.repeat = 1.5;
    assert_int_equal(atsi_routing_generate(&k, &r, &err), ATSI_EINVAL);
    k.repeat = 0;
    k.n_used = 5;
    assert_int_equal(atsi_routing_generate(&k, &r, &err), ATSI_EINVAL);
    k.n_used = 4; /* all of them, and the steepest law: it ends */
    k.zipf = 10;
    assert_int_equal(atsi_routing_generate(&k, &r, &err), ATSI_OK);
    atsi_routing_free(r);
}

/* ---------------------------------------------------------------- watching */
static void see(struct atsi_routing_watch *w, const char *name, int32_t *ids, uint32_t rows)
{
    struct atsi_tensor src = {.ne = {8, rows, 1, 1}, .name = "logits"};
    struct atsi_tensor dst = {.ne = {2, rows, 1, 1}, .row_bytes = 8, .data = ids, .name = name};
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_TOPK,
                         .n_rows = rows,
                         .src = {&src},
                         .dst = {&dst},
                         .p.moe.n_used = 2};
    atsi_routing_watch(w, &op);
}

static void routers_are_watched(void **state)
{
    struct atsi_routing_watch *w = NULL;
    struct atsi_routing *r = NULL;
    int32_t two[] = {0, 1, 2, 3}, last[] = {4, 5}, one[] = {6, 7}, got[4];
    uint32_t phase;
    (void)state;
    assert_int_equal(atsi_routing_watch_open(&w, &err), ATSI_OK);
    assert_int_equal(atsi_routing_watch_take(w, "m", &r, &err), ATSI_ENOTSUP);
    see(w, "topk-3", two, 2); /* the first round of a prompt ends before the last layer */
    see(w, "topk-3", two, 2);
    see(w, "topk-9", last, 1); /* of the second one it sees the last row */
    see(w, "topk-3", one, 1);
    see(w, "topk-9", two, 1);
    assert_int_equal(atsi_routing_watch_take(w, "m\n", &r, &err), ATSI_OK);
    assert_string_equal(info_of(r).model, "m?");
    assert_int_equal(info_of(r).n_layers, 2);
    assert_int_equal(info_of(r).layers[1].layer, 9);
    assert_int_equal(info_of(r).layers[1].n_experts, 8);
    assert_int_equal(info_of(r).n_tokens, 2);
    atsi_routing_get(r, 0, got, &phase);
    assert_int_equal(phase, 0);
    assert_memory_equal(got, ((int32_t[]){2, 3, 4, 5}), sizeof got);
    atsi_routing_get(r, 1, got, &phase);
    assert_int_equal(phase, 1);
    assert_memory_equal(got, ((int32_t[]){6, 7, 0, 1}), sizeof got);
    atsi_routing_free(r);
    see(w, "nameless", one, 1);
    assert_int_equal(atsi_routing_watch_take(w, "m", &r, &err), ATSI_ENOTSUP);
    atsi_routing_watch_close(w);
}

/* ---------------------------------------------------------------- books */
struct answer {
    uint32_t n;
    int32_t admit[3], evict[3];
};

static int say(void *ctx, const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
               struct atsi_err *e)
{
    const struct answer *a = ctx;
    (void)e;
    out->n = a->n;
    for (uint32_t k = 0; k < a->n && k < 3 && k < in->max_swaps; k++) {
        out->admit[k] = a->admit[k];
        out->evict[k] = a->evict[k];
    }
    return ATSI_OK;
}

static void wrong_answers_change_nothing(void **state)
{
    static const struct {
        struct answer a;
        const char *why;
    } bad[] = {{{1, {8}, {0}}, "expert 8, there are 8"},
               {{1, {-1}, {0}}, "expert -1"},
               {{1, {5}, {2}}, "slot 2, there are 2"},
               {{1, {0}, {1}}, "expert 0 has slot 0 already"},
               {{2, {5, 5}, {0, 1}}, "expert 5 twice"},
               {{2, {5, 6}, {1, 1}}, "slot 1 twice"},
               {{3, {5, 6, 7}, {0, 1, 1}}, "3 swaps, at most 2"}};
    struct answer a;
    struct atsi_books_layer l = {.n_experts = 8, .n_used = 2, .n_slots = 2, .admit_ns = 10};
    struct atsi_books_params p = {
        .n_layers = 1, .layers = &l, .half_life = 4, .swap = say, .swap_ctx = &a};
    const struct atsi_expert_swaps *swaps;
    struct atsi_books_counts counts;
    struct atsi_books *b = NULL;
    const int32_t used[2] = {5, 6};
    int32_t slot[2];
    (void)state;
    assert_int_equal(atsi_books_open(&p, &b, &err), ATSI_OK);
    atsi_books_fill(b, 0);
    atsi_books_grant(b, 20);
    for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
        a = bad[k].a;
        atsi_books_look(b, 0, used, slot);
        assert_int_equal(slot[0], -1);
        assert_int_equal(atsi_books_choose(b, 0, used, &swaps, &err), ATSI_EINVAL);
        assert_int_equal(swaps->n, 0);
        if (strstr(err.msg, bad[k].why) == NULL)
            fail_msg("\"%s\" expected in \"%s\"", bad[k].why, err.msg);
        assert_int_equal(atsi_books_expert(b, 0, 0), 0);
        assert_int_equal(atsi_books_expert(b, 0, 1), 1);
    }
    a = (struct answer){1, {5}, {1}};
    assert_int_equal(atsi_books_choose(b, 0, used, &swaps, &err), ATSI_OK);
    atsi_books_look(b, 0, used, slot);
    assert_int_equal(slot[0], -1); /* on its way */
    a = (struct answer){1, {6}, {1}};
    assert_int_equal(atsi_books_choose(b, 0, used, &swaps, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "slot 1 is locked"));
    atsi_books_arrived(b, 0, 1);
    atsi_books_look(b, 0, used, slot);
    assert_int_equal(slot[0], 1);
    a = (struct answer){1, {6}, {0}};
    assert_int_equal(atsi_books_choose(b, 0, used, &swaps, &err), ATSI_OK); /* all is granted now */
    a = (struct answer){1, {7}, {1}};
    assert_int_equal(atsi_books_choose(b, 0, used, &swaps, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "at most 0"));
    atsi_books_counts(b, &counts);
    assert_int_equal(counts.swaps, 2);
    assert_int_equal(counts.hits, 1);
    assert_int_equal(counts.refused, sizeof bad / sizeof bad[0] + 2);
    atsi_books_close(b);
}

static void scores_halve(void **state)
{
    struct atsi_books_layer l = {.n_experts = 4, .n_used = 1, .n_slots = 1};
    struct atsi_books_params p = {.n_layers = 1, .layers = &l, .half_life = 10};
    struct atsi_books *b = NULL;
    int32_t slot;
    (void)state;
    assert_int_equal(atsi_books_open(&p, &b, &err), ATSI_OK);
    atsi_books_look(b, 0, (const int32_t[]){2}, &slot);
    for (int t = 0; t < 10; t++)
        atsi_books_look(b, 0, (const int32_t[]){1}, &slot);
    assert_float_equal(atsi_books_score(b, 0)[2], 0.5, 1e-4);
    for (int t = 0; t < 400; t++)
        atsi_books_look(b, 0, (const int32_t[]){1}, &slot);
    assert_true(atsi_books_score(b, 0)[2] == 0.0F); /* forgotten, and no denormal number */
    atsi_books_fill(b, 0);
    assert_int_equal(atsi_books_expert(b, 0, 0), 1);
    atsi_books_close(b);
}

/* ---------------------------------------------------------------- replays */
static struct atsi_replay_result replay(const struct atsi_routing *r, uint32_t way, uint32_t slots)
{
    const struct atsi_replay_params p = {.struct_size = sizeof p,
                                         .way = way,
                                         .routing = r,
                                         .half_life = 64,
                                         .copy_hits = 1,
                                         .n_slots = slots};
    struct atsi_replay_result out;
    if (atsi_routing_replay(&p, &out, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(out.hits + out.misses, 600 * 6);
    return out;
}

static void nobody_beats_the_bound(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct atsi_routing *r = made(k * 0.7, k % 2 * 0.6);
        uint64_t before = 0;
        for (uint32_t slots = 0; slots <= 16; slots += 4) {
            uint64_t best = replay(r, ATSI_CACHE_CLAIRVOYANT, slots).hits;
            for (uint32_t way = ATSI_CACHE_POLICY; way <= ATSI_CACHE_LFU; way++)
                assert_true(replay(r, way, slots).hits <= best);
            assert_true(best >= before);
            before = best;
            if (slots == 0)
                assert_int_equal(best, 0);
            if (slots == 16)
                assert_int_equal(replay(r, ATSI_CACHE_POLICY, slots).misses, 0);
        }
        atsi_routing_free(r);
    }
}

/* Where few experts are used most, keeping them is better than chance. */
static void frequency_pays_on_a_skew(void **state)
{
    struct atsi_routing *r = made(1.4, 0);
    struct atsi_replay_result fade = replay(r, ATSI_CACHE_POLICY, 4);
    struct atsi_replay_result lru = replay(r, ATSI_CACHE_LRU, 4);
    (void)state;
    assert_true(fade.hits > 600 * 6 / 2); /* 4 of 16 by chance: a quarter */
    assert_true(fade.hits > lru.hits);
    assert_true(fade.swaps < lru.swaps / 2);
    atsi_routing_free(r);
}

/* ---------------------------------------------------------------- statistics */
static void bad_stats(const char *text, const char *why)
{
    struct atsi_expert_stats s = {0};
    scratch_write("stats.txt", text);
    assert_int_equal(atsi_expert_stats_read(&s, scratch_path("stats.txt"), &err), ATSI_EFORMAT);
    assert_int_equal(s.n, 0);
    if (strstr(err.msg, why) == NULL)
        fail_msg("\"%s\" expected in \"%s\"", why, err.msg);
}

static void statistics_are_read_as_written(void **state)
{
    struct atsi_expert_stats s = {0}, back = {0};
    (void)state;
    atsi_expert_stats_layer(&s, 3, 4)[2] = 1.5F;
    atsi_expert_stats_layer(&s, 9, 2)[0] = 7.25F;
    assert_null(atsi_expert_stats_layer(&s, 3, 5));
    assert_int_equal(atsi_expert_stats_write(&s, scratch_path("s.txt"), &err), ATSI_OK);
    assert_int_equal(atsi_expert_stats_read(&back, scratch_path("s.txt"), &err), ATSI_OK);
    assert_int_equal(back.n, 2);
    assert_true(atsi_expert_stats_layer(&back, 3, 4)[2] == 1.5F);
    assert_true(atsi_expert_stats_layer(&back, 9, 2)[0] == 7.25F);
    atsi_expert_stats_free(&s);
    atsi_expert_stats_free(&back);
    bad_stats("", ":0: cut off");
    bad_stats("what\n", ":1: no statistics");
    bad_stats("atsinfer experts 1\nlayer 1 2 0 0\n", ":2: cut off");
    bad_stats("atsinfer experts 1\nlayer 1 2 0\nend\n", ":2: score 2 of 2");
    bad_stats("atsinfer experts 1\nlayer 1 2 0 0 0\nend\n", ":2: more scores");
    bad_stats("atsinfer experts 1\nlayer 1 2 0 -1\nend\n", ":2: score 2 of 2");
    bad_stats("atsinfer experts 1\nlayer 1 2 0 1e30\nend\n", ":2: score 2 of 2");
    bad_stats("atsinfer experts 1\nlayer 1 2 0 1\nlayer 1 2 0 1\nend\n", ":3: this layer a second");
    bad_stats("atsinfer experts 1\nlayer 1 99999999 0\nend\n", ":2: expected");
    bad_stats("atsinfer experts 1\nend\nend\n", ":3: a line behind");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_gives_what_was_written),
        cmocka_unit_test(hostile_files_are_refused_with_their_line),
        cmocka_unit_test(a_trace_without_tokens_is_one),
        cmocka_unit_test(made_traces_are_skewed_as_asked),
        cmocka_unit_test(wrong_skews_are_refused),
        cmocka_unit_test(routers_are_watched),
        cmocka_unit_test(wrong_answers_change_nothing),
        cmocka_unit_test(scores_halve),
        cmocka_unit_test(nobody_beats_the_bound),
        cmocka_unit_test(frequency_pays_on_a_skew),
        cmocka_unit_test(statistics_are_read_as_written),
    };
    return cmocka_run_group_tests(tests, enter, scratch_leave);
}
