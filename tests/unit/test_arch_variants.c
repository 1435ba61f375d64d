/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that say the same thing in different words give the same logits: fused tensors, experts in
 * one stack, defaults spelled out, rows in the order of the other rotation.  Summation orders that
 * differ leave rounding, everything else is equal to the bit. */
#include <stdlib.h>
#include <string.h>

#include "atsinfer/loader.h"
#include "tests/unit/arch_run.h"

/* Logits are of the size of 1 to 10; sums of some 50 products, a few layers deep. */
#define ROUNDING 2e-5

static const char *const qkv[] = {"blk.%d.attn_q.weight", "blk.%d.attn_k.weight",
                                  "blk.%d.attn_v.weight"};
static const char *const qkv_bias[] = {"blk.%d.attn_q.bias", "blk.%d.attn_k.bias",
                                       "blk.%d.attn_v.bias"};

/* A pair of models, the second to be changed. */
struct pair {
    struct am a, b;
    struct am_config c;
};

static void open_pair(struct pair *p, const char *name)
{
    p->c = am_tiny(name);
    am_build(&p->a, &p->c, false);
    am_clone(&p->a, &p->b);
}

static void close_pair(struct pair *p, double within, const char *what)
{
    ar_same(&p->a, &p->b, within, what);
    am_free(&p->a);
    am_free(&p->b);
}

/* ---------------------------------------------------------------- fused q, k, v */
static void fuse_qkv(struct pair *p, bool bias)
{
    for (int l = 0; l < (int)p->c.n_layer; l++) {
        am_join(&p->b, l, "blk.%d.attn_qkv.weight", 1, qkv, 3);
        if (bias)
            am_join(&p->b, l, "blk.%d.attn_qkv.bias", 0, qkv_bias, 3);
    }
}

static void fused_qkv_is_three_products(void **state)
{
    static const char *const names[] = {"llama",    "mixtral", "qwen2",  "qwen3",
                                        "qwen3moe", "glm4",    "gpt-oss"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct pair p;
        open_pair(&p, names[i]);
        fuse_qkv(&p, p.c.bias);
        close_pair(&p, 0, names[i]);
    }
}

/* Biases where the tiny model has none by itself. */
static void fused_qkv_takes_biases(void **state)
{
    static const char *const names[] = {"llama", "qwen3"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct am_config c = am_tiny(names[i]);
        struct pair p = {.c = c};
        p.c.bias = true;
        am_build(&p.a, &p.c, false);
        am_clone(&p.a, &p.b);
        fuse_qkv(&p, true);
        close_pair(&p, 0, names[i]);
    }
}

/* The comparisons above can fail: keys and values exchanged. */
static void fused_qkv_has_an_order(void **state)
{
    static const char *const wrong[] = {"blk.%d.attn_q.weight", "blk.%d.attn_v.weight",
                                        "blk.%d.attn_k.weight"};
    struct pair p;
    (void)state;
    open_pair(&p, "llama");
    for (int l = 0; l < (int)p.c.n_layer; l++)
        am_join(&p.b, l, "blk.%d.attn_qkv.weight", 1, wrong, 3);
    ar_differ(&p.a, &p.b, 0.01, "k and v exchanged");
    am_free(&p.a);
    am_free(&p.b);
}

/* ---------------------------------------------------------------- experts */
static void fused_experts_are_two_stacks(void **state)
{
    static const char *const names[] = {"mixtral", "qwen3moe", "gpt-oss", "qwen3next", "qwen35moe"};
    static const char *const stacks[] = {"blk.%d.ffn_gate_exps.weight",
                                         "blk.%d.ffn_up_exps.weight"};
    static const char *const biases[] = {"blk.%d.ffn_gate_exps.bias", "blk.%d.ffn_up_exps.bias"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct pair p;
        open_pair(&p, names[i]);
        for (int l = 0; l < (int)p.c.n_layer; l++) {
            am_join(&p.b, l, "blk.%d.ffn_gate_up_exps.weight", 1, stacks, 2);
            if (am_has(&p.b, l, biases[0]))
                am_join(&p.b, l, "blk.%d.ffn_gate_up_exps.bias", 0, biases, 2);
        }
        close_pair(&p, 0, names[i]);
    }
}

/* One expert out of one, always chosen with weight 1, is the dense FFN. */
static void make_single_expert(struct am *m, const struct am_config *c)
{
    static const char *const part[] = {"gate", "up", "down"};
    char dense[48], stack[48];
    for (int l = 0; l < (int)c->n_layer; l++) {
        for (int i = 0; i < 3; i++) {
            (void)snprintf(dense, sizeof dense, "blk.%%d.ffn_%s.weight", part[i]);
            (void)snprintf(stack, sizeof stack, "blk.%%d.ffn_%s_exps.weight", part[i]);
            am_copy(m, l, dense, stack);
            am_tensor(m, l, stack)->n_dims = 3;
            am_drop(m, l, dense);
        }
        am_add(m, l, "blk.%d.ffn_gate_inp.weight", c->n_embd, 1, 0);
    }
    am_u32(m, ".expert_count", 1);
    am_u32(m, ".expert_used_count", 1);
    am_u32(m, ".expert_feed_forward_length", c->n_ff);
}

static void one_expert_is_a_dense_ffn(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "llama");
    make_single_expert(&p.b, &p.c);
    close_pair(&p, 0, "llama");
    open_pair(&p, "qwen3");
    make_single_expert(&p.b, &p.c);
    (void)strcpy(p.b.arch, "qwen3moe");
    close_pair(&p, 0, "qwen3moe");
}

/* qwen35moe with one expert and a shared expert that adds nothing. */
static void qwen35_is_qwen35moe_with_one_expert(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "qwen35");
    make_single_expert(&p.b, &p.c);
    (void)strcpy(p.b.arch, "qwen35moe");
    am_u32(&p.b, ".expert_shared_feed_forward_length", 8);
    for (int l = 0; l < (int)p.c.n_layer; l++) {
        struct am_tensor *down;
        am_add(&p.b, l, "blk.%d.ffn_gate_inp_shexp.weight", p.c.n_embd, 0, 0);
        am_add(&p.b, l, "blk.%d.ffn_gate_shexp.weight", p.c.n_embd, 8, 0);
        am_add(&p.b, l, "blk.%d.ffn_up_shexp.weight", p.c.n_embd, 8, 0);
        down = am_add(&p.b, l, "blk.%d.ffn_down_shexp.weight", 8, p.c.n_embd, 0);
        memset(down->data, 0, am_elems(down) * sizeof *down->data);
    }
    close_pair(&p, 0, "qwen35moe");
}

/* qwen3moe without expert_feed_forward_length: feed_forward_length / experts used. */
static void expert_width_has_a_default(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "qwen3moe");
    am_drop_key(&p.b, ".expert_feed_forward_length");
    assert_int_equal(p.c.n_ff / p.c.n_used, p.c.n_ff_expert);
    close_pair(&p, 0, "qwen3moe");
}

static void shared_expert_width_has_a_default(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "qwen3next");
    am_drop_key(&p.b, ".expert_shared_feed_forward_length");
    am_u32(&p.b, ".feed_forward_length", p.c.n_ff_shared);
    close_pair(&p, 0, "qwen3next");
}

/* ---------------------------------------------------------------- heads */
static void tied_head_is_the_embedding(void **state)
{
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct pair p;
        if (strcmp(*name, "gpt-oss") == 0) /* has a head of its own, always */
            continue;
        open_pair(&p, *name);
        am_drop(&p.a, -1, "output.weight");
        am_drop(&p.b, -1, "output.weight");
        am_copy(&p.b, -1, "token_embd.weight", "output.weight");
        close_pair(&p, 0, *name);
    }
}

static void zero_biases_are_no_biases(void **state)
{
    struct pair p;
    struct am_tensor *t;
    (void)state;
    open_pair(&p, "qwen2");
    t = am_add(&p.b, -1, "output.bias", p.c.n_vocab, 0, 0);
    memset(t->data, 0, am_elems(t) * sizeof *t->data);
    for (int l = 0; l < (int)p.c.n_layer; l++)
        for (int i = 0; i < 3; i++) {
            t = am_tensor(&p.b, l, qkv_bias[i]);
            memset(t->data, 0, am_elems(t) * sizeof *t->data);
            am_drop(&p.a, l, qkv_bias[i]);
        }
    close_pair(&p, 0, "qwen2");
}

/* One KV head for two query heads is two equal KV heads. */
static void grouped_heads_are_repeated_heads(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "qwen3");
    am_u32(&p.b, ".attention.head_count_kv", p.c.n_head);
    for (int l = 0; l < (int)p.c.n_layer; l++)
        for (int i = 1; i < 3; i++) {
            uint32_t from[128], n = p.c.n_head * p.c.head_dim, dh = p.c.head_dim;
            for (uint32_t r = 0; r < n; r++)
                from[r] = r / dh / (p.c.n_head / p.c.n_head_kv) * dh + r % dh;
            am_pick(am_tensor(&p.b, l, qkv[i]), 1, from, n);
        }
    close_pair(&p, 0, "qwen3");
}

/* ---------------------------------------------------------------- rotation */
/* Rows of q and k from half-split order to neighbouring pairs or back, in the first n_rot of each
 * head. */
static void reorder_rows(struct am_tensor *t, uint32_t dim, uint32_t head_dim, uint32_t n_rot,
                         bool to_pairs)
{
    uint32_t from[256], n = (uint32_t)t->ne[dim];
    assert_true(n <= 256);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t head = r / head_dim * head_dim, i = r % head_dim;
        if (i < n_rot)
            i = to_pairs ? i % 2 * (n_rot / 2) + i / 2 : i % (n_rot / 2) * 2 + i / (n_rot / 2);
        from[r] = head + i;
    }
    am_pick(t, dim, from, n);
}

static void reorder_model(struct pair *p, uint32_t n_rot, bool to_pairs)
{
    for (int l = 0; l < (int)p->c.n_layer; l++)
        for (int i = 0; i < 2; i++) {
            reorder_rows(am_tensor(&p->b, l, qkv[i]), 1, p->c.head_dim, n_rot, to_pairs);
            if (p->c.bias)
                reorder_rows(am_tensor(&p->b, l, qkv_bias[i]), 0, p->c.head_dim, n_rot, to_pairs);
        }
}

/* qwen2 is llama with the rows of q and k in the other order. */
static void pairs_and_halves_are_one_rotation(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "qwen2");
    reorder_model(&p, p.c.head_dim, true);
    (void)strcpy(p.b.arch, "llama");
    close_pair(&p, ROUNDING, "qwen2 as llama");
}

static void glm4_with_sections_turns_halves(void **state)
{
    static const uint32_t sections[4] = {8, 12, 12, 0};
    struct pair p;
    (void)state;
    open_pair(&p, "glm4");
    reorder_model(&p, p.c.n_rot, false);
    am_array(&p.b, ".rope.dimension_sections", ATSI_META_I32, sections, 4);
    close_pair(&p, ROUNDING, "glm4 with sections");
}

static void glm4_turns_half_a_head_by_default(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "glm4");
    assert_int_equal(p.c.n_rot, p.c.head_dim / 2);
    am_drop_key(&p.b, ".rope.dimension_count");
    close_pair(&p, 0, "glm4 without rope.dimension_count");
    open_pair(&p, "glm4");
    am_u32(&p.b, ".rope.dimension_count", p.c.head_dim);
    ar_differ(&p.a, &p.b, 0.01, "glm4 turning whole heads");
    am_free(&p.a);
    am_free(&p.b);
}

/* Divisors of one factor are linear scaling. */
static void rope_freqs_divide(void **state)
{
    struct pair p;
    struct am_tensor *t;
    (void)state;
    open_pair(&p, "llama");
    t = am_tensor(&p.a, -1, "rope_freqs.weight");
    for (uint64_t i = 0; i < am_elems(t); i++)
        t->data[i] = 4;
    am_drop(&p.b, -1, "rope_freqs.weight");
    am_str(&p.b, ".rope.scaling.type", "linear");
    am_f32(&p.b, ".rope.scaling.factor", 4);
    close_pair(&p, 0, "llama with divisors");
    open_pair(&p, "llama");
    am_drop(&p.b, -1, "rope_freqs.weight");
    ar_differ(&p.a, &p.b, 0.001, "llama without divisors");
    am_free(&p.a);
    am_free(&p.b);
}

/* ---------------------------------------------------------------- windows */
/* Period p: all but the last of each p layers are windowed. */
static void window_pattern_is_a_period(void **state)
{
    struct pair p;
    (void)state;
    open_pair(&p, "gpt-oss");
    am_u32(&p.b, ".attention.sliding_window_pattern", 2);
    close_pair(&p, 0, "pattern 2 is the default");
    open_pair(&p, "gpt-oss"); /* nothing windowed: as a window beyond the text */
    am_u32(&p.a, ".attention.sliding_window", 1000);
    am_u32(&p.b, ".attention.sliding_window_pattern", 1);
    close_pair(&p, 0, "pattern 1");
    open_pair(&p, "gpt-oss"); /* 4 layers: 0, 1, 2 windowed instead of 0, 2 */
    am_u32(&p.b, ".attention.sliding_window_pattern", 4);
    ar_differ(&p.a, &p.b, 0.01, "pattern 4");
    am_free(&p.a);
    am_free(&p.b);
}

/* ---------------------------------------------------------------- blocks beyond the end */
static void next_token_blocks_change_nothing(void **state)
{
    static const char *const names[] = {"glm4", "qwen3next", "qwen35", "qwen35moe"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (uint32_t n = 1; n <= 2; n++) {
            struct pair p;
            struct am_config more;
            open_pair(&p, names[i]);
            more = p.c;
            more.n_nextn = n;
            am_free(&p.b);
            am_build(&p.b, &more, false);
            close_pair(&p, 0, names[i]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_qkv_is_three_products),
        cmocka_unit_test(fused_qkv_takes_biases),
        cmocka_unit_test(fused_qkv_has_an_order),
        cmocka_unit_test(fused_experts_are_two_stacks),
        cmocka_unit_test(one_expert_is_a_dense_ffn),
        cmocka_unit_test(qwen35_is_qwen35moe_with_one_expert),
        cmocka_unit_test(expert_width_has_a_default),
        cmocka_unit_test(shared_expert_width_has_a_default),
        cmocka_unit_test(tied_head_is_the_embedding),
        cmocka_unit_test(zero_biases_are_no_biases),
        cmocka_unit_test(grouped_heads_are_repeated_heads),
        cmocka_unit_test(pairs_and_halves_are_one_rotation),
        cmocka_unit_test(glm4_with_sections_turns_halves),
        cmocka_unit_test(glm4_turns_half_a_head_by_default),
        cmocka_unit_test(rope_freqs_divide),
        cmocka_unit_test(window_pattern_is_a_period),
        cmocka_unit_test(next_token_blocks_change_nothing),
    };
    return cmocka_run_group_tests(tests, ar_enter, ar_leave);
}
