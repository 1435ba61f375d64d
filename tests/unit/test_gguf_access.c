/* SPDX-License-Identifier: Apache-2.0
 *
 * The checked getters for graph builders: accepted widths, ranges, defaults, and messages that name
 * the full key and both values. */
#include <stdio.h>

#include "gguf_fixture.h"
#include "loaders/gguf/gguf.h"

static struct atsi_loaded *model;

static int setup(void **state)
{
    struct gw w = {0};
    if (fx_setup(state) != 0)
        return -1;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("valid.gguf"));
    gw_free(&w);
    return fx_open(fx_path("valid.gguf"), ATSI_LOAD_MMAP, true, &model);
}

static int teardown(void **state)
{
    fx_ops->close(model);
    return fx_teardown(state);
}

static void test_u32(void **state)
{
    static const struct {
        const char *key;
        uint32_t min, max;
        int status;
        uint32_t value;
        const char *says;
    } cases[] = {
        {".block_count", 1, 512, ATSI_OK, 2, NULL},
        {"llama.block_count", 2, 2, ATSI_OK, 2, NULL},
        {".feed_forward_length", 0, 100, ATSI_OK, 64, NULL}, /* a u64 */
        {"t.u8", 0, 255, ATSI_OK, 200, NULL},
        {"t.bool", 0, 1, ATSI_OK, 1, NULL},
        {".block_count", 3, 512, ATSI_EFORMAT, 0, "key 'llama.block_count': 2 is outside 3..512"},
        {"t.i8", 0, UINT32_MAX, ATSI_EFORMAT, 0, "key 't.i8': -100 is outside 0..4294967295"},
        {"t.u64", 0, UINT32_MAX, ATSI_EFORMAT, 0, "18446744073709551615 is outside"},
        {"t.i64", 0, UINT32_MAX, ATSI_EFORMAT, 0, "-9223372036854775808 is outside"},
        {"general.name", 0, 9, ATSI_EFORMAT, 0, "type string, but it has to be an integer"},
        {".rope.freq_base", 0, 9, ATSI_EFORMAT, 0, "key 'llama.rope.freq_base': type f32"},
        {"t.none", 0, 9, ATSI_EFORMAT, 0, "type array of i32"},
        {".absent", 0, 9, ATSI_EFORMAT, 0, "key 'llama.absent' is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t v = 4242;
        int st = gguf_get_u32(model, cases[i].key, GGUF_REQUIRED, cases[i].min, cases[i].max, &v,
                              &fx_err);
        assert_int_equal(st, cases[i].status);
        assert_int_equal(v, st == ATSI_OK ? cases[i].value : 4242);
        if (cases[i].says != NULL && strstr(fx_err.msg, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", fx_err.msg, cases[i].says);
    }
}

static void test_defaults(void **state)
{
    uint32_t u = 7, layers[2] = {8, 9};
    float f = 1.5f;
    bool b = true;
    uint64_t n = 3;
    struct atsi_str s = {"d", 1};
    (void)state;
    assert_int_equal(gguf_get_u32(model, ".absent", GGUF_OPTIONAL, 0, 1, &u, &fx_err), ATSI_OK);
    assert_int_equal(gguf_get_f32(model, ".absent", GGUF_OPTIONAL, &f, &fx_err), ATSI_OK);
    assert_int_equal(gguf_get_bool(model, ".absent", GGUF_OPTIONAL, &b, &fx_err), ATSI_OK);
    assert_int_equal(gguf_get_str(model, ".absent", GGUF_OPTIONAL, &s, &fx_err), ATSI_OK);
    assert_int_equal(gguf_get_u32_layers(model, ".absent", GGUF_OPTIONAL, 0, 1, 2, layers, &fx_err),
                     ATSI_OK);
    assert_int_equal(
        gguf_get_array_len(model, ".absent", GGUF_OPTIONAL, ATSI_META_STRING, &n, &fx_err),
        ATSI_OK);
    assert_true(u == 7 && f == 1.5f && b && s.len == 1 && layers[0] == 8 && n == 3);
    /* present but wrong is an error even when optional */
    assert_int_equal(gguf_get_u32(model, "t.u8", GGUF_OPTIONAL, 0, 1, &u, &fx_err), ATSI_EFORMAT);
}

static void test_other_types(void **state)
{
    float f = 0;
    bool b = false;
    struct atsi_str s = {NULL, 0};
    uint64_t n = 0;
    (void)state;
    assert_int_equal(gguf_get_f32(model, ".rope.freq_base", GGUF_REQUIRED, &f, &fx_err), ATSI_OK);
    assert_true(f == 10000.5f);
    assert_int_equal(gguf_get_f32(model, "t.i16", GGUF_REQUIRED, &f, &fx_err), ATSI_OK);
    assert_true(f == -30000.0f);
    assert_int_equal(gguf_get_f32(model, "t.u8", GGUF_REQUIRED, &f, &fx_err), ATSI_OK);
    assert_true(f == 200.0f);
    assert_int_equal(gguf_get_f32(model, "t.bool", GGUF_REQUIRED, &f, &fx_err), ATSI_EFORMAT);
    assert_int_equal(gguf_get_bool(model, "t.bool", GGUF_REQUIRED, &b, &fx_err), ATSI_OK);
    assert_true(b);
    assert_int_equal(gguf_get_bool(model, "t.u8", GGUF_REQUIRED, &b, &fx_err), ATSI_EFORMAT);
    assert_int_equal(gguf_get_str(model, "general.name", GGUF_REQUIRED, &s, &fx_err), ATSI_OK);
    assert_int_equal(s.len, 6);
    assert_int_equal(gguf_get_str(model, "t.u8", GGUF_REQUIRED, &s, &fx_err), ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "type u8, but it has to be string"));
    assert_int_equal(gguf_get_array_len(model, "tokenizer.ggml.tokens", GGUF_REQUIRED,
                                        ATSI_META_STRING, &n, &fx_err),
                     ATSI_OK);
    assert_int_equal(n, 4);
    assert_int_equal(gguf_get_array_len(model, "tokenizer.ggml.tokens", GGUF_REQUIRED,
                                        ATSI_META_F32, &n, &fx_err),
                     ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "type array of string, but it has to be array of f32"));
}

static void test_layers(void **state)
{
    static const char key[] = ".attention.head_count"; /* [4, 2] */
    uint32_t v[3] = {0};
    (void)state;
    assert_int_equal(gguf_get_u32_layers(model, key, GGUF_REQUIRED, 1, 64, 2, v, &fx_err), ATSI_OK);
    assert_true(v[0] == 4 && v[1] == 2);
    assert_int_equal(
        gguf_get_u32_layers(model, ".feed_forward_length", GGUF_REQUIRED, 1, 64, 3, v, &fx_err),
        ATSI_OK);
    assert_true(v[0] == 64 && v[1] == 64 && v[2] == 64);
    assert_int_equal(gguf_get_u32_layers(model, key, GGUF_REQUIRED, 1, 64, 3, v, &fx_err),
                     ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "key 'llama.attention.head_count': an array of 2 entries, "
                                       "but there are 3 layers"));
    assert_int_equal(gguf_get_u32_layers(model, key, GGUF_REQUIRED, 3, 64, 2, v, &fx_err),
                     ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "layer 1: key 'llama.attention.head_count': 2 is outside"));
    assert_int_equal(gguf_get_u32_layers(model, "tokenizer.ggml.token_type", GGUF_REQUIRED, 0, 64,
                                         4, v, &fx_err),
                     ATSI_EFORMAT); /* -5 */
    assert_int_equal(
        gguf_get_u32_layers(model, "tokenizer.ggml.tokens", GGUF_REQUIRED, 0, 64, 4, v, &fx_err),
        ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "array of string"));
}

static void test_tensors(void **state)
{
    (void)state;
    assert_string_equal(gguf_arch(model), "llama");
    assert_int_equal(gguf_n_tensors(model), FX_N_TENSORS);
    assert_int_equal(gguf_tensor_find(model, "output_norm.weight"), 2);
    assert_int_equal(gguf_tensor_find(model, "output_norm"), -1);
    assert_int_equal(gguf_tensor_find(model, ""), -1);
    assert_int_equal(gguf_tensor(model, 1)->ne[0], 32);
}

static void test_log(void **state)
{
    (void)state;
    fx_log[0] = '\0';
    gguf_log(model, ATSI_LOG_WARN, "%s %d", "words", 3);
    assert_string_equal(fx_log, "1 gguf: words 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_u32),         cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_other_types), cmocka_unit_test(test_layers),
        cmocka_unit_test(test_tensors),     cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
