/* SPDX-License-Identifier: Apache-2.0
 *
 * Expert caches: who comes in and who goes by each way of choosing, how slots are shared between
 * layers, and that nobody beats the clairvoyant.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sched/experts.h"

enum { EXPERTS = 8, SLOTS = 3, USED = 2 };

static int32_t used[USED], slot_of[EXPERTS], expert_of[SLOTS], admit[USED], evict[USED];
static uint8_t locked[SLOTS];
static uint64_t count[EXPERTS], last[EXPERTS];
static float score[EXPERTS];
static struct atsi_expert_cache in;
static struct atsi_expert_swaps out;

/* Experts 0, 1, 2 are in slots 0, 1, 2; the router has chosen a and b. */
static void cache(int32_t a, int32_t b)
{
    memset(locked, 0, sizeof locked);
    memset(count, 0, sizeof count);
    memset(last, 0, sizeof last);
    memset(score, 0, sizeof score);
    for (int32_t e = 0; e < EXPERTS; e++)
        slot_of[e] = e < SLOTS ? e : -1;
    for (int32_t s = 0; s < SLOTS; s++)
        expert_of[s] = s;
    used[0] = a;
    used[1] = b;
    in = (struct atsi_expert_cache){.struct_size = sizeof in,
                                    .n_layers = 1,
                                    .n_experts = EXPERTS,
                                    .n_slots = SLOTS,
                                    .n_used = USED,
                                    .max_swaps = USED,
                                    .round = 10,
                                    .used = used,
                                    .slot_of = slot_of,
                                    .expert_of = expert_of,
                                    .locked = locked,
                                    .count = count,
                                    .last = last,
                                    .score = score,
                                    .admit_ns = 100,
                                    .hit_ns = 100};
    out = (struct atsi_expert_swaps){
        .struct_size = sizeof out, .n = 99, .admit = admit, .evict = evict};
}

static void swapped(uint32_t at, int32_t expert, int32_t slot)
{
    assert_true(at < out.n);
    assert_int_equal(admit[at], expert);
    assert_int_equal(evict[at], slot);
}

static void empty_slots_come_first(void **state)
{
    (void)state;
    cache(5, 6);
    expert_of[1] = -1;
    slot_of[1] = -1;
    last[0] = 9;
    last[2] = 8;
    sched_experts_lru(&in, &out);
    assert_int_equal(out.n, 2);
    swapped(0, 5, 1);
    swapped(1, 6, 2);
}

static void lru_takes_what_was_used_longest_ago(void **state)
{
    (void)state;
    cache(5, 1);
    last[0] = 9;
    last[1] = 3; /* used now: stays */
    last[2] = 4;
    last[5] = 10;
    sched_experts_lru(&in, &out);
    assert_int_equal(out.n, 1);
    swapped(0, 5, 2);
}

static void nothing_comes_in_twice_or_without_room(void **state)
{
    (void)state;
    cache(0, 1);
    sched_experts_lru(&in, &out);
    assert_int_equal(out.n, 0); /* no miss */
    cache(5, 6);
    in.max_swaps = 1;
    sched_experts_lru(&in, &out);
    assert_int_equal(out.n, 1);
    in.max_swaps = 0;
    sched_experts_lru(&in, &out);
    assert_int_equal(out.n, 0);
    in.max_swaps = USED;
    memset(locked, 1, sizeof locked);
    sched_experts_lru(&in, &out);
    assert_int_equal(out.n, 0);
}

static void lfu_asks_for_more_uses(void **state)
{
    (void)state;
    cache(5, 6);
    count[0] = 7;
    count[1] = 3;
    count[2] = 5;
    count[5] = 3; /* no more than the least */
    count[6] = 4;
    sched_experts_lfu(&in, &out);
    assert_int_equal(out.n, 1);
    swapped(0, 6, 1);
}

static void fading_frequency_asks_for_more_than_the_copy(void **state)
{
    (void)state;
    cache(5, 6);
    score[0] = 4.0F;
    score[1] = 1.0F;
    score[2] = 2.0F;
    score[5] = 2.1F;
    score[6] = 1.9F;
    sched_experts_fade(&in, &out);
    assert_int_equal(out.n, 1); /* 2.1 - 1 hits more are worth one copy, 1.9 - 2 are not */
    swapped(0, 5, 1);
    in.admit_ns = 111;
    sched_experts_fade(&in, &out);
    assert_int_equal(out.n, 0);
    in.hit_ns = 1000;
    sched_experts_fade(&in, &out);
    assert_int_equal(out.n, 1);
}

static void the_clairvoyant_looks_ahead(void **state)
{
    uint64_t next[EXPERTS] = {12, UINT64_MAX, 40, 0, 0, 13, 50, 0};
    (void)state;
    cache(5, 6);
    sched_experts_clairvoyant(&in, next, &out);
    assert_int_equal(out.n, 1);
    swapped(0, 5, 1); /* 6 is used later than all that stay */
    next[5] = UINT64_MAX;
    next[6] = 39;
    sched_experts_clairvoyant(&in, next, &out);
    assert_int_equal(out.n, 1);
    swapped(0, 6, 1);
}

/* ---------------------------------------------------------------- a long series */
enum { ROUNDS = 400 };
static int32_t series[ROUNDS][USED];

static void make_series(uint32_t seed)
{
    for (uint32_t t = 0; t < ROUNDS; t++)
        for (uint32_t k = 0; k < USED; k++) {
            seed = seed * 1664525U + 1013904223U;
            /* the larger the number, the rarer */
            series[t][k] = (int32_t)((seed >> 24) * (seed >> 16 & 255U) * EXPERTS / 65026U);
            if (k == 1 && series[t][1] == series[t][0])
                series[t][1] = (series[t][0] + 1) % EXPERTS;
        }
}

static uint64_t next_use(uint32_t after, int32_t expert)
{
    for (uint32_t t = after + 1; t < ROUNDS; t++)
        if (series[t][0] == expert || series[t][1] == expert)
            return t + 1;
    return UINT64_MAX;
}

/* Hits over the series; which: 0 lru, 1 lfu, 2 fade, 3 clairvoyant. */
static uint32_t replay(int which)
{
    uint32_t hits = 0;
    cache(0, 1);
    memset(slot_of, -1, sizeof slot_of);
    memset(expert_of, -1, sizeof expert_of);
    for (uint32_t t = 0; t < ROUNDS; t++) {
        uint64_t next[EXPERTS];
        in.round = t + 1;
        for (int32_t e = 0; e < EXPERTS; e++) {
            score[e] *= 0.97F;
            next[e] = next_use(t, e);
        }
        for (uint32_t k = 0; k < USED; k++) {
            int32_t e = used[k] = series[t][k];
            hits += slot_of[e] >= 0;
            count[e]++;
            last[e] = t + 1;
            score[e] += 1.0F;
        }
        if (which == 3)
            sched_experts_clairvoyant(&in, next, &out);
        else
            (which == 0   ? sched_experts_lru
             : which == 1 ? sched_experts_lfu
                          : sched_experts_fade)(&in, &out);
        for (uint32_t k = 0; k < out.n; k++) {
            int32_t old = expert_of[evict[k]];
            assert_int_equal(slot_of[admit[k]], -1);
            if (old >= 0)
                slot_of[old] = -1;
            expert_of[evict[k]] = admit[k];
            slot_of[admit[k]] = evict[k];
        }
    }
    return hits;
}

static void nobody_beats_the_clairvoyant(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 20; seed++) {
        uint32_t best;
        make_series(seed);
        best = replay(3);
        for (int which = 0; which < 3; which++)
            assert_true(replay(which) <= best);
        assert_true(best > ROUNDS * USED / 2);
    }
}

/* ---------------------------------------------------------------- slots per layer */
static void slots_go_where_hits_are(void **state)
{
    static const float even[] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const float steep[] = {400, 300, 50, 20, 10, 10, 5, 5};
    struct sched_cache_layer l[2] = {
        {.n_experts = 8, .n_used = 2, .bytes = 10, .hit_ns = 5, .uses = even},
        {.n_experts = 8, .n_used = 2, .bytes = 10, .hit_ns = 5, .uses = steep}};
    uint32_t heap[2];
    (void)state;
    assert_int_equal(sched_experts_share(l, 2, 60, heap), 60);
    assert_int_equal(l[0].n_slots, 4);
    assert_int_equal(l[1].n_slots, 2);
    /* more to gain per hit, or less to pay: more of it */
    l[0].hit_ns = 500;
    (void)sched_experts_share(l, 2, 60, heap);
    assert_int_equal(l[0].n_slots, 6);
    assert_int_equal(l[1].n_slots, 0);
    /* never a whole stack */
    (void)sched_experts_share(l, 2, 100000, heap);
    assert_int_equal(l[0].n_slots, 7);
    assert_int_equal(l[1].n_slots, 7);
    /* nothing fits */
    assert_int_equal(sched_experts_share(l, 2, 9, heap), 0);
    assert_int_equal(l[0].n_slots + l[1].n_slots, 0);
}

static void alike_layers_share_alike(void **state)
{
    struct sched_cache_layer l[4];
    uint32_t heap[4];
    (void)state;
    for (int k = 0; k < 4; k++)
        l[k] = (struct sched_cache_layer){.n_experts = 16, .n_used = 2, .bytes = 7, .hit_ns = 9};
    assert_int_equal(sched_experts_share(l, 4, 7 * 22 + 3, heap), 7 * 22);
    for (int k = 0; k < 4; k++)
        assert_int_equal(l[k].n_slots, k < 2 ? 6 : 5);
    assert_float_equal(sched_experts_hits(&l[0], 4), 1, 1e-9); /* half of the uses */
    assert_float_equal(sched_experts_hits(&l[0], 16), 2, 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_slots_come_first),
        cmocka_unit_test(lru_takes_what_was_used_longest_ago),
        cmocka_unit_test(nothing_comes_in_twice_or_without_room),
        cmocka_unit_test(lfu_asks_for_more_uses),
        cmocka_unit_test(fading_frequency_asks_for_more_than_the_copy),
        cmocka_unit_test(the_clairvoyant_looks_ahead),
        cmocka_unit_test(nobody_beats_the_clairvoyant),
        cmocka_unit_test(slots_go_where_hits_are),
        cmocka_unit_test(alike_layers_share_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
