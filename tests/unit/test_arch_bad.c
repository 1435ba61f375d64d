/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are wrong: each key and each tensor of each architecture missing, of a wrong type, out
 * of range, of another shape; keys that contradict each other.  Whatever it is, one sentence says
 * which key or tensor and which numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "atsinfer/loader.h"
#include "tests/unit/arch_run.h"
#include "tests/unit/scratch.h"

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

/* Status of a plan; err has the words. */
static int try_plan(const struct am *m, uint32_t no_weights, struct atsi_err *err)
{
    struct atsi_model_params p = {.struct_size = sizeof p, .no_weights = no_weights};
    struct atsi_session_info plan = {.struct_size = sizeof plan};
    struct atsi_model *model = NULL;
    const char *path = scratch_path("model.gguf");
    int rc;
    *err = (struct atsi_err)ATSI_ERR_INIT;
    assert_true(am_save(m, path));
    rc = atsi_model_open(ar_runtimes[0], path, &p, &model, err);
    if (rc == ATSI_OK)
        rc = atsi_session_plan(model, NULL, &plan, err);
    atsi_model_close(model);
    return rc;
}

static int try_open(const struct am *m, struct atsi_err *err)
{
    return try_plan(m, ATSI_PLAN_ONLY, err);
}

static void check_words(const struct am *m, int rc, const struct atsi_err *err, int status,
                        const char *needle, const char *needle2)
{
    if (rc != status || strstr(err->msg, needle) == NULL || strstr(err->msg, needle2) == NULL ||
        strstr(err->msg, "model.gguf") == NULL || strchr(err->msg, '\n') != NULL)
        fail_msg("%s: status %d, expected %d; \"%s\", expected \"%s\" and \"%s\"", m->arch, rc,
                 status, err->msg, needle, needle2);
}

static void expect(const struct am *m, int status, const char *needle, const char *needle2)
{
    struct atsi_err err;
    int rc = try_open(m, &err);
    check_words(m, rc, &err, status, needle, needle2);
}

/* A change to a tiny model, undone by building it again. */
static void build(struct am *m, const char *name)
{
    struct am_config c = am_tiny(name);
    c.n_nextn = c.interval != 0 ? 1 : 0; /* its blocks may say anything */
    am_build(m, &c, true);
}

/* ---------------------------------------------------------------- tensors */
static bool is_optional(const char *arch, const char *name)
{
    if (strcmp(arch, "gpt-oss") == 0)
        return false;
    return strcmp(name, "output.weight") == 0 || strcmp(name, "rope_freqs.weight") == 0 ||
           ends_with(name, "attn_q.bias") || ends_with(name, "attn_k.bias") ||
           ends_with(name, "attn_v.bias");
}

static bool is_next_token(const struct am *m, const char *name)
{
    char prefix[16];
    struct am_config c = am_tiny(m->arch);
    (void)snprintf(prefix, sizeof prefix, "blk.%u.", c.n_layer);
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static void without_tensor(const char *name, size_t i)
{
    struct am m;
    struct atsi_err err;
    char tensor[AM_NAME];
    build(&m, name);
    (void)snprintf(tensor, sizeof tensor, "%s", m.tensors[i].name);
    am_drop(&m, -1, tensor);
    if (!is_optional(m.arch, tensor) && !is_next_token(&m, tensor))
        expect(&m, ATSI_EFORMAT, tensor, "is missing");
    else if (try_open(&m, &err) != ATSI_OK)
        fail_msg("%s without %s: %s", name, tensor, err.msg);
    am_free(&m);
}

/* dim: one behind the last adds a dimension. */
static void with_shape(const char *name, size_t i, uint32_t dim, int64_t step)
{
    struct am m;
    struct am_tensor *t;
    char have[32], want[32];
    build(&m, name);
    t = &m.tensors[i];
    if (!is_next_token(&m, t->name) && (step > 0 || t->ne[dim] > 1)) {
        free(t->data);
        t->data = NULL;
        (void)snprintf(want, sizeof want, "%llu",
                       (unsigned long long)t->ne[dim < t->n_dims ? dim : 0]);
        t->ne[dim] += (uint64_t)step;
        if (dim >= t->n_dims)
            t->n_dims = dim + 1;
        (void)snprintf(have, sizeof have, "%llu", (unsigned long long)t->ne[dim]);
        expect(&m, ATSI_EFORMAT, t->name, have);
        expect(&m, ATSI_EFORMAT, "but the hyperparameters ask for", want);
    }
    am_free(&m);
}

static void every_tensor_is_needed_in_its_shape(void **state)
{
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct am m;
        size_t n;
        build(&m, *name);
        n = m.n_tensors;
        for (size_t i = 0; i < n; i++) {
            without_tensor(*name, i);
            for (uint32_t d = 0; d < m.tensors[i].n_dims; d++) {
                with_shape(*name, i, d, 1);
                with_shape(*name, i, d, -1);
            }
            if (m.tensors[i].n_dims < 3)
                with_shape(*name, i, m.tensors[i].n_dims, 1);
        }
        am_free(&m);
    }
}

static void unknown_tensors_are_refused(void **state)
{
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct am m;
        build(&m, *name);
        am_add(&m, 1, "blk.%d.attn_surprise.weight", 8, 8, 0);
        expect(&m, ATSI_ENOTSUP, "blk.1.attn_surprise.weight", m.arch);
        am_free(&m);
    }
}

/* Vectors are read as f32 by every kernel. */
static void vectors_must_be_f32(void **state)
{
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct am m;
        build(&m, *name);
        for (size_t i = 0; i < m.n_tensors; i++) {
            struct am_tensor *t = &m.tensors[i];
            bool vector = t->n_dims == 1 || ends_with(t->name, "_exps.bias") ||
                          ends_with(t->name, "ssm_conv1d.weight");
            if (!vector || is_next_token(&m, t->name) || ends_with(t->name, "inp_shexp.weight"))
                continue;
            free(t->data);
            t->data = NULL;
            t->type = ATSI_TYPE_F16;
            expect(&m, ATSI_ENOTSUP, t->name, "F32");
            t->type = ATSI_TYPE_F32;
            if (strcmp(t->name, "rope_freqs.weight") == 0)
                am_drop(&m, -1, "rope_freqs.weight");
        }
        am_free(&m);
    }
}

/* A type without kernels is found when a session is opened. */
static void matrices_of_integers_are_refused(void **state)
{
    static const char *const names[] = {"blk.0.attn_q.weight", "token_embd.weight",
                                        "blk.1.ffn_down_exps.weight"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (uint32_t b = 0; b < ar_n_backends; b++) {
            struct atsi_err err = ATSI_ERR_INIT;
            struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
            struct atsi_session *s = NULL;
            struct atsi_model *model;
            struct am m;
            build(&m, "gpt-oss");
            am_tensor(&m, -1, names[i])->type = ATSI_TYPE_I32;
            model = ar_open(b, &m);
            p.n_ctx = 32;
            assert_int_equal(atsi_session_open(model, &p, &s, &err), ATSI_ENOTSUP);
            if (strstr(err.msg, names[i]) == NULL || strstr(err.msg, "I32") == NULL)
                fail_msg("\"%s\" does not name %s and I32", err.msg, names[i]);
            assert_null(s);
            atsi_model_close(model);
            am_free(&m);
        }
}

/* ---------------------------------------------------------------- keys, one at a time */
static const char *leaf(const char *key)
{
    return key[0] == '.' ? key + 1 : key;
}

static bool is_required(const struct am *m, const char *key)
{
    static const char *const always[] = {".block_count",
                                         ".context_length",
                                         ".embedding_length",
                                         ".attention.head_count",
                                         ".attention.layer_norm_rms_epsilon",
                                         ".attention.sliding_window",
                                         ".expert_used_count",
                                         ".ssm.conv_kernel",
                                         ".ssm.state_size",
                                         ".ssm.group_count",
                                         ".ssm.time_step_rank",
                                         ".ssm.inner_size"};
    for (size_t i = 0; i < sizeof always / sizeof always[0]; i++)
        if (strcmp(key, always[i]) == 0)
            return true;
    return strncmp(m->arch, "qwen35", 6) == 0 && strcmp(key, ".rope.dimension_sections") == 0;
}

static void without_key(struct am *m, const char *key)
{
    struct atsi_err err;
    int rc;
    am_drop_key(m, key);
    if (is_required(m, key)) {
        expect(m, ATSI_EFORMAT, leaf(key), "is missing");
        return;
    }
    rc = try_open(m, &err); /* a default, which may not be what tensors and other keys say */
    if (rc != ATSI_OK &&
        ((rc != ATSI_EFORMAT && rc != ATSI_ENOTSUP) ||
         (strstr(err.msg, "tensor") == NULL && strstr(err.msg, "key '") == NULL &&
          strstr(err.msg, "keys of") == NULL && strstr(err.msg, leaf(key)) == NULL)))
        fail_msg("%s without %s: status %d, \"%s\"", m->arch, key, rc, err.msg);
}

static void wrong_type(struct am *m, const struct am_key *k)
{
    char name[AM_NAME];
    static const uint32_t nine[9] = {1, 2, 3}; /* neither layers nor sections */
    (void)snprintf(name, sizeof name, "%s", k->name);
    if (k->type == ATSI_META_STRING) {
        am_u32(m, name, 1);
        expect(m, ATSI_EFORMAT, leaf(name), "type u32");
        return;
    }
    am_str(m, name, "four");
    expect(m, ATSI_EFORMAT, leaf(name), "type string");
    am_array(m, name, ATSI_META_F32, nine, 9);
    expect(m, ATSI_EFORMAT, leaf(name), "type array of f32");
    am_array(m, name, ATSI_META_I32, nine, 9);
    expect(m, ATSI_EFORMAT, leaf(name), "array of");
}

static void wrong_integer(struct am *m, const char *key)
{
    struct atsi_err err;
    am_u32(m, key, UINT32_MAX);
    expect(m, ATSI_EFORMAT, leaf(key), "4294967295");
    am_int(m, key, ATSI_META_I32, (uint32_t)-5);
    expect(m, ATSI_EFORMAT, leaf(key), "-5");
    am_int(m, key, ATSI_META_U64, UINT64_C(1) << 32);
    expect(m, ATSI_EFORMAT, leaf(key), "4294967296");
    am_u32(m, key, 0);
    if (strcmp(key, ".feed_forward_length") == 0 && try_open(m, &err) == ATSI_OK)
        return; /* not used by models of experts only */
    if (strcmp(key, ".expert_count") == 0 || strcmp(key, ".nextn_predict_layers") == 0)
        assert_int_not_equal(try_open(m, &err), ATSI_OK); /* other tensors, then */
    else
        expect(m, ATSI_EFORMAT, leaf(key), "0");
}

static void wrong_real(struct am *m, const char *key)
{
    static const uint32_t bits[] = {0x7fc00000, 0x7f800000, 0xff800000}; /* NaN, inf, -inf */
    for (size_t i = 0; i < 3; i++) {
        am_int(m, key, ATSI_META_F32, bits[i]);
        expect(m, ATSI_EFORMAT, leaf(key), "finite");
    }
    am_f32(m, key, -1);
    expect(m, ATSI_EFORMAT, leaf(key), "-1");
}

static void each_key_is_checked(void **state)
{
    (void)state;
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct am all;
        build(&all, *name);
        for (size_t i = 0; i < all.n_keys; i++) {
            const struct am_key *k = &all.keys[i];
            struct am m;
            if (k->name[0] != '.') /* of the tokenizer */
                continue;
            am_clone(&all, &m);
            without_key(&m, k->name);
            am_free(&m);
            am_clone(&all, &m);
            wrong_type(&m, k);
            if (k->type == ATSI_META_U32)
                wrong_integer(&m, k->name);
            if (k->type == ATSI_META_F32)
                wrong_real(&m, k->name);
            am_free(&m);
        }
        am_free(&all);
    }
}

/* ---------------------------------------------------------------- keys that disagree */
struct contradiction {
    const char *model, *key;
    uint32_t value;
    int status;
    const char *needle, *needle2;
};

static const struct contradiction contradictions[] = {
    {"llama", ".attention.head_count_kv", 3, ATSI_EFORMAT, "head_count 4", "head_count_kv 3"},
    {"llama", ".block_count", 4, ATSI_EFORMAT, "blk.3.attn_norm.weight", "is missing"},
    {"llama", ".block_count", 2, ATSI_ENOTSUP, "blk.2.", "no place"},
    {"llama", ".block_count", 513, ATSI_EFORMAT, "513", "1..512"},
    {"llama", ".rope.dimension_count", 34, ATSI_EFORMAT, "34", "2..32"},
    {"llama", ".rope.dimension_count", 31, ATSI_EFORMAT, "rope.dimension_count 31", "odd"},
    {"llama", ".attention.key_length", 31, ATSI_EFORMAT, "31", "even"},
    {"llama", ".attention.key_length", 2048, ATSI_EFORMAT, "2048", "1024"},
    {"llama", ".nextn_predict_layers", 3, ATSI_EFORMAT, "nextn_predict_layers", "0..2"},
    {"mixtral", ".expert_used_count", 7, ATSI_EFORMAT, "expert_used_count 7", "expert_count 6"},
    {"mixtral", ".expert_count", 5, ATSI_EFORMAT, "blk.0.ffn_gate_inp.weight", "48 x 5"},
    {"mixtral", ".expert_count", 1025, ATSI_EFORMAT, "expert_count", "0..1024"},
    {"qwen3moe", ".expert_feed_forward_length", 23, ATSI_EFORMAT, "ffn_gate_exps", "48 x 23 x 6"},
    {"llama", ".feed_forward_length", 0, ATSI_EFORMAT, "feed_forward_length", "layer 0"},
    {"mixtral", ".feed_forward_length", 0, ATSI_EFORMAT, "feed_forward_length", "layer 0"},
    {"glm4", ".feed_forward_length", 71, ATSI_EFORMAT, "blk.0.ffn_up.weight", "48 x 142"},
    {"glm4", ".rope.dimension_count", 34, ATSI_EFORMAT, "rope.dimension_count", "2..32"},
    {"glm4", ".rope.dimension_count", 15, ATSI_EFORMAT, "rope.dimension_count 15", "odd"},
    {"gpt-oss", ".attention.head_count", 6, ATSI_EFORMAT, "blk.0.attn_q.weight", "48 x 192"},
    {"gpt-oss", ".attention.sliding_window_pattern", 0, ATSI_EFORMAT, "sliding_window_pattern",
     "0"},
    {"gpt-oss", ".expert_count", 0, ATSI_EFORMAT, "expert_count", "needs"},
    {"qwen3next", ".ssm.group_count", 4, ATSI_EFORMAT, "time_step_rank 6", "group_count 4"},
    {"qwen3next", ".ssm.inner_size", 97, ATSI_EFORMAT, "inner_size 97", "96"},
    {"qwen3next", ".ssm.conv_kernel", 1, ATSI_EFORMAT, "conv_kernel", "2..16"},
    {"qwen3next", ".ssm.conv_kernel", 5, ATSI_EFORMAT, "blk.0.ssm_conv1d.weight", "5 x 160"},
    {"qwen3next", ".attention.value_length", 16, ATSI_ENOTSUP, "keys of 32", "values of 16"},
    {"qwen3next", ".full_attention_interval", 1, ATSI_EFORMAT, "blk.0.attn_q.weight", "missing"},
    {"qwen3next", ".expert_shared_feed_forward_length", 21, ATSI_EFORMAT, "shexp", "48 x 21"},
    {"qwen35", ".ssm.group_count", 3, ATSI_EFORMAT, "blk.0.attn_qkv.weight", "48 x 192"},
    {"qwen35moe", ".nextn_predict_layers", 5, ATSI_EFORMAT, "nextn_predict_layers", "0..4"},
};

static void contradictions_name_both_sides(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
        const struct contradiction *c = &contradictions[i];
        struct am m;
        build(&m, c->model);
        am_u32(&m, c->key, c->value);
        expect(&m, c->status, c->needle, c->needle2);
        am_free(&m);
    }
}

/* With a width of 0 a stack of one dimension would pass for one of three. */
static void experts_need_a_width(void **state)
{
    struct am m;
    (void)state;
    build(&m, "qwen3moe");
    am_drop_key(&m, ".expert_feed_forward_length");
    am_u32(&m, ".feed_forward_length", 2); /* of 3 experts */
    expect(&m, ATSI_EFORMAT, "expert_feed_forward_length is missing or 0", "layer 0");
    am_free(&m);
    build(&m, "qwen3next");
    am_drop_key(&m, ".expert_shared_feed_forward_length");
    am_drop_key(&m, ".feed_forward_length");
    expect(&m, ATSI_EFORMAT, "expert_shared_feed_forward_length is missing or 0", "layer 0");
    am_free(&m);
    build(&m, "mixtral");
    am_array(&m, ".feed_forward_length", ATSI_META_I32, (const uint32_t[]){72, 0, 72}, 3);
    expect(&m, ATSI_EFORMAT, "feed_forward_length is missing or 0", "layer 1");
    am_free(&m);
}

static void arrays_must_cover_every_layer(void **state)
{
    static const uint32_t one[8] = {1, 1, 1, 1, 1, 1, 1, 1}, two[5] = {1, 0, 2, 0, 0};
    struct am m;
    (void)state;
    build(&m, "qwen3next"); /* 4 layers and a next-token block */
    am_array(&m, ".attention.recurrent_layers", ATSI_META_BOOL, one, 4);
    expect(&m, ATSI_EFORMAT, "recurrent_layers", "array of 4 entries, but there are 5");
    am_array(&m, ".attention.recurrent_layers", ATSI_META_I32, two, 5);
    expect(&m, ATSI_EFORMAT, "layer 2", "2 is outside 0..1");
    am_array(&m, ".attention.recurrent_layers", ATSI_META_BOOL, one, 5);
    expect(&m, ATSI_EFORMAT, "blk.1.attn_qkv.weight", "is missing");
    am_free(&m);
    build(&m, "qwen35");
    am_array(&m, ".rope.dimension_sections", ATSI_META_I32, one, 3);
    expect(&m, ATSI_EFORMAT, "rope.dimension_sections", "array of 3");
    am_free(&m);
    build(&m, "llama");
    am_array(&m, ".attention.head_count", ATSI_META_I32, one, 8);
    expect(&m, ATSI_EFORMAT, "attention.head_count", "array of 8 entries, but there are 3");
    am_free(&m);
}

static void scaling_must_be_known(void **state)
{
    struct am m;
    (void)state;
    build(&m, "gpt-oss");
    am_str(&m, ".rope.scaling.type", "longrope");
    expect(&m, ATSI_ENOTSUP, "longrope", "yarn");
    am_free(&m);
}

static void divisors_must_be_positive(void **state)
{
    struct am_config c = am_tiny("llama");
    struct am m;
    struct atsi_err err;
    int rc;
    (void)state;
    am_build(&m, &c, true);
    am_tensor(&m, -1, "rope_freqs.weight")->data[3] = -1;
    rc = try_plan(&m, 0, &err);
    check_words(&m, rc, &err, ATSI_EFORMAT, "rope_freqs.weight", "entry 3 is -1");
    am_free(&m);
}

static void unknown_architectures_list_the_known(void **state)
{
    struct am m;
    (void)state;
    build(&m, "llama");
    (void)strcpy(m.arch, "mamba");
    expect(&m, ATSI_ENOTSUP, "\"mamba\" is not supported", "qwen35moe");
    am_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_needed_in_its_shape),
        cmocka_unit_test(unknown_tensors_are_refused),
        cmocka_unit_test(vectors_must_be_f32),
        cmocka_unit_test(matrices_of_integers_are_refused),
        cmocka_unit_test(each_key_is_checked),
        cmocka_unit_test(contradictions_name_both_sides),
        cmocka_unit_test(experts_need_a_width),
        cmocka_unit_test(arrays_must_cover_every_layer),
        cmocka_unit_test(scaling_must_be_known),
        cmocka_unit_test(divisors_must_be_positive),
        cmocka_unit_test(unknown_architectures_list_the_known),
    };
    return cmocka_run_group_tests(tests, ar_enter, ar_leave);
}
