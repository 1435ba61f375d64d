/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with gated delta nets (qwen3next, qwen35, qwen35moe): the two orders of value heads, the
 * older one-tensor form of the projections, and the ways of saying which layers are recurrent, all
 * give the same logits. */
#include <stdlib.h>
#include <string.h>

#include "atsinfer/loader.h"
#include "tests/unit/arch_run.h"

/* Logits are of the size of 1 to 10; only ssm_out sums in another order. */
#define ROUNDING 5e-5

enum { MAX_ROWS = 512 };

static struct am_config with_heads(const char *name, uint32_t nk, uint32_t nv)
{
    struct am_config c = am_tiny(name);
    c.nk = nk;
    c.nv = nv;
    return c;
}

static void compare(struct am *a, struct am *b, double within, const char *what)
{
    ar_same(a, b, within, what);
    am_free(a);
    am_free(b);
}

/* ---------------------------------------------------------------- legacy ssm_in */
/* attn_qkv (all q, all k, all v) and attn_gate (all z), as one tensor of a group per key head: its
 * q, its k, its v heads, their z. */
static void join_inputs(struct am *m, const struct am_config *c, int l)
{
    static const char *const parts[] = {"blk.%d.attn_qkv.weight", "blk.%d.attn_gate.weight"};
    uint32_t from[MAX_ROWS], n = 0, s = c->state, key = c->nk * s, v = c->nv / c->nk * s;
    assert_true(2 * key + 2 * c->nv * s <= MAX_ROWS);
    for (uint32_t g = 0; g < c->nk; g++) {
        for (uint32_t i = 0; i < s; i++)
            from[n++] = g * s + i;
        for (uint32_t i = 0; i < s; i++)
            from[n++] = key + g * s + i;
        for (uint32_t i = 0; i < v; i++)
            from[n++] = 2 * key + g * v + i;
        for (uint32_t i = 0; i < v; i++)
            from[n++] = 2 * key + c->nk * v + g * v + i;
    }
    am_join(m, l, "blk.%d.ssm_in.weight", 1, parts, 2);
    am_pick(am_tensor(m, l, "blk.%d.ssm_in.weight"), 1, from, n);
}

static void one_input_tensor_is_two(void **state)
{
    static const uint32_t heads[][2] = {{2, 6}, {3, 3}, {1, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct am_config c = with_heads("qwen3next", heads[i][0], heads[i][1]);
        struct am a, b;
        am_build(&a, &c, false);
        am_clone(&a, &b);
        for (uint32_t l = 0; l < c.n_layer; l++)
            if (am_is_recurrent(&c, l))
                join_inputs(&b, &c, (int)l);
        compare(&a, &b, 0, "ssm_in");
    }
}

/* ---------------------------------------------------------------- order of value heads */
/* Value head j * nk + k of the new order was head k * r + j; `size` entries each, after `skip`. */
static void tile(struct am_tensor *t, uint32_t dim, const struct am_config *c, uint32_t skip,
                 uint32_t size)
{
    uint32_t from[MAX_ROWS], r = c->nv / c->nk, n = skip + c->nv * size;
    assert_true(n <= MAX_ROWS && n == t->ne[dim]);
    for (uint32_t i = 0; i < skip; i++)
        from[i] = i;
    for (uint32_t h = 0; h < c->nv; h++)
        for (uint32_t i = 0; i < size; i++)
            from[skip + h * size + i] = skip + (h % c->nk * r + h / c->nk) * size + i;
    am_pick(t, dim, from, n);
}

/* ssm_ba holds, for each key head, beta of its value heads, then alpha. */
static void split_ba(struct am *m, const struct am_config *c, int l)
{
    uint32_t beta[MAX_ROWS], alpha[MAX_ROWS], r = c->nv / c->nk;
    for (uint32_t h = 0; h < c->nv; h++) {
        beta[h] = h % c->nk * 2 * r + h / c->nk;
        alpha[h] = beta[h] + r;
    }
    am_copy(m, l, "blk.%d.ssm_ba.weight", "blk.%d.ssm_beta.weight");
    am_copy(m, l, "blk.%d.ssm_ba.weight", "blk.%d.ssm_alpha.weight");
    am_pick(am_tensor(m, l, "blk.%d.ssm_beta.weight"), 1, beta, c->nv);
    am_pick(am_tensor(m, l, "blk.%d.ssm_alpha.weight"), 1, alpha, c->nv);
    am_drop(m, l, "blk.%d.ssm_ba.weight");
}

static void tile_layer(struct am *m, const struct am_config *c, int l)
{
    uint32_t keys = 2 * c->nk * c->state;
    tile(am_tensor(m, l, "blk.%d.attn_qkv.weight"), 1, c, keys, c->state);
    tile(am_tensor(m, l, "blk.%d.ssm_conv1d.weight"), 1, c, keys, c->state);
    tile(am_tensor(m, l, "blk.%d.attn_gate.weight"), 1, c, 0, c->state);
    tile(am_tensor(m, l, "blk.%d.ssm_out.weight"), 0, c, 0, c->state);
    tile(am_tensor(m, l, "blk.%d.ssm_a"), 0, c, 0, 1);
    tile(am_tensor(m, l, "blk.%d.ssm_dt.bias"), 0, c, 0, 1);
    split_ba(m, c, l);
}

static void make_qwen35moe(struct am *m, const struct am_config *c)
{
    static const uint32_t sections[4] = {11, 11, 10, 0};
    (void)strcpy(m->arch, "qwen35moe");
    am_array(m, ".rope.dimension_sections", ATSI_META_I32, sections, 4);
    for (uint32_t l = 0; l < c->n_layer; l++)
        if (am_is_recurrent(c, l))
            tile_layer(m, c, (int)l);
}

static void tiled_heads_are_grouped_heads(void **state)
{
    static const uint32_t heads[][2] = {{2, 6}, {3, 6}, {2, 2}, {1, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct am_config c = with_heads("qwen3next", heads[i][0], heads[i][1]);
        struct am a, b;
        am_build(&a, &c, false);
        am_clone(&a, &b);
        make_qwen35moe(&b, &c);
        compare(&a, &b, ROUNDING, "qwen3next as qwen35moe");
    }
}

/* The order matters: without the permutation the logits are others. */
static void untiled_heads_are_noticed(void **state)
{
    struct am_config c = am_tiny("qwen3next");
    struct am a, b, wrong;
    (void)state;
    am_build(&a, &c, false);
    am_clone(&a, &b);
    make_qwen35moe(&b, &c);
    am_clone(&b, &wrong);
    for (uint32_t l = 0; l < c.n_layer; l++)
        if (am_is_recurrent(&c, l))
            tile(am_tensor(&wrong, (int)l, "blk.%d.ssm_dt.bias"), 0, &c, 0, 1);
    ar_differ(&b, &wrong, 10 * ROUNDING, "ssm_dt in another order");
    am_free(&a);
    am_free(&b);
    am_free(&wrong);
}

/* ---------------------------------------------------------------- kinds of layers */
static void a_list_is_an_interval(void **state)
{
    static const uint32_t types[] = {ATSI_META_BOOL, ATSI_META_I32, ATSI_META_U8};
    static const uint32_t list[] = {1, 0, 1, 0};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct am_config c = am_tiny("qwen35");
        struct am a, b;
        am_build(&a, &c, false);
        am_clone(&a, &b);
        am_drop_key(&b, ".full_attention_interval");
        am_array(&b, ".attention.recurrent_layers", types[i], list, 4);
        compare(&a, &b, 0, "recurrent_layers");
    }
}

/* The list wins over an interval that says otherwise, and covers next-token blocks. */
static void a_list_covers_every_block(void **state)
{
    static const uint32_t list[] = {1, 0, 1, 0, 0};
    struct am_config c = am_tiny("qwen3next"), more;
    struct am a, b;
    (void)state;
    more = c;
    more.n_nextn = 1;
    am_build(&a, &c, false);
    am_build(&b, &more, false);
    am_u32(&b, ".full_attention_interval", 4);
    am_array(&b, ".attention.recurrent_layers", ATSI_META_BOOL, list, 5);
    compare(&a, &b, 0, "recurrent_layers with a next-token block");
}

static void the_interval_defaults_to_four(void **state)
{
    struct am_config c = am_tiny("qwen35moe");
    struct am a, b;
    (void)state;
    c.interval = 4;
    am_build(&a, &c, false);
    am_clone(&a, &b);
    am_drop_key(&b, ".full_attention_interval");
    compare(&a, &b, 0, "interval 4");
}

/* 5 layers with an interval of 2 or 4 end on a recurrent layer: rows that are not asked for are
 * left out behind its recurrence only. */
static void the_last_layer_may_be_recurrent(void **state)
{
    static const struct ar_how whole = {.chunk = 64}, cut = {.chunk = 5};
    (void)state;
    for (uint32_t interval = 2; interval <= 6; interval += 2) {
        struct am_config c = am_tiny("qwen3next");
        struct am m;
        c.n_layer = 5;
        c.interval = interval; /* 6: no attention at all */
        am_build(&m, &c, false);
        for (uint32_t b = 0; b < ar_n_backends; b++) {
            struct atsi_model *model = ar_open(b, &m);
            struct ar_rows all = ar_logits(b, &m, 33, &whole), last;
            int32_t ids[33];
            ar_ids(ids, 33, c.n_vocab);
            last = ar_fresh(model, ids, 33, &cut); /* rows asked for: the last one only */
            memmove(all.data, all.data + (size_t)32 * all.n_vocab, all.n_vocab * sizeof *all.data);
            all.n = 1;
            assert_true(ar_difference(&all, &last) < 1e-4);
            ar_free(&all);
            ar_free(&last);
            atsi_model_close(model);
        }
        am_free(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_input_tensor_is_two),
        cmocka_unit_test(tiled_heads_are_grouped_heads),
        cmocka_unit_test(untiled_heads_are_noticed),
        cmocka_unit_test(a_list_is_an_interval),
        cmocka_unit_test(a_list_covers_every_block),
        cmocka_unit_test(the_interval_defaults_to_four),
        cmocka_unit_test(the_last_layer_may_be_recurrent),
    };
    return cmocka_run_group_tests(tests, ar_enter, ar_leave);
}
