/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer inspect` on files made here: the facts it states, arrays cut, and bytes that could do
 * something to a terminal or break JSON made harmless.  The rest of the command is replaced by the
 * few functions below. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "gguf_fixture.h"

struct atsi_model {
    struct atsi_loaded *loaded;
};

/* ---------------------------------------------------------------- stand-ins */
static char said[600]; /* what went to stderr */

int cli_parse(const struct cli_command *cmd, const struct cli_option *opts, int argc, char **argv,
              int *n_pos_out)
{
    int kept = 1;
    (void)cmd;
    for (const struct cli_option *o = opts; o->name != NULL; o++)
        *o->flag = false;
    for (int i = 1; i < argc; i++) {
        const struct cli_option *o = opts;
        while (o->name != NULL && strcmp(o->name, argv[i]) != 0)
            o++;
        if (o->name != NULL)
            *o->flag = true;
        else
            argv[kept++] = argv[i];
    }
    *n_pos_out = kept - 1;
    return -1;
}

int cli_runtime(struct atsi_runtime **out)
{
    *out = NULL;
    return CLI_OK;
}

void atsi_runtime_close(struct atsi_runtime *rt)
{
    (void)rt;
}

const char *cli_model_path(struct atsi_runtime *rt)
{
    (void)rt;
    return fx_path("default.gguf");
}

const char *cli_find_model(const char *name)
{
    return name;
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
    (void)status;
    return cli_fail(CLI_RUN_ERROR, "%s", err->msg);
}

int cli_finish_stdout(int code)
{
    return fflush(stdout) == 0 ? code : CLI_RUN_ERROR;
}

const char *cli_bytes(uint64_t bytes, char buf[32])
{
    (void)snprintf(buf, 32, "%llu B", (unsigned long long)bytes);
    return buf;
}

int atsi_model_open(struct atsi_runtime *rt, const char *path,
                    const struct atsi_model_params *params, struct atsi_model **out,
                    struct atsi_err *err)
{
    struct atsi_loaded *m;
    int st = fx_open(path, ATSI_LOAD_MMAP, true, &m);
    assert_int_equal(params->no_weights, ATSI_PLAN_ONLY);
    (void)rt;
    *err = fx_err;
    *out = NULL;
    if (st == ATSI_OK) {
        *out = malloc(sizeof **out);
        assert_non_null(*out);
        (*out)->loaded = m;
    }
    return st;
}

void atsi_model_close(struct atsi_model *m)
{
    if (m != NULL)
        fx_ops->close(m->loaded);
    free(m);
}

const struct atsi_loaded_info *atsi_model_info(const struct atsi_model *m)
{
    return fx_ops->info(m->loaded);
}

int atsi_model_meta_at(const struct atsi_model *m, uint32_t index, struct atsi_meta *out)
{
    return fx_ops->meta_at(m->loaded, index, out);
}

int atsi_model_meta_find(const struct atsi_model *m, const char *key, struct atsi_meta *out)
{
    return fx_ops->meta_find(m->loaded, key, out);
}

/* A session of 100 positions at 10 bytes each, rounded up by 24, and one layer's state. */
static int plan_status;

int atsi_session_plan(struct atsi_model *m, const struct atsi_session_params *params,
                      struct atsi_session_info *out, struct atsi_err *err)
{
    uint32_t n_ctx = params->n_ctx != 0 ? params->n_ctx : 100;
    assert_non_null(m);
    if (plan_status != ATSI_OK)
        return atsi_fail(err, plan_status, "file: key 'llama.block\x1b' is missing");
    *out = (struct atsi_session_info){.struct_size = sizeof *out,
                                      .n_ctx = n_ctx,
                                      .chunk = 64,
                                      .type_k = ATSI_TYPE_F16,
                                      .type_v = ATSI_TYPE_Q8_0,
                                      .kv_bytes = 10 * (uint64_t)n_ctx + 24,
                                      .compute_bytes = 500,
                                      .logits_bytes = 77,
                                      .state_bytes = 4096};
    return ATSI_OK;
}

/* ---------------------------------------------------------------- running it */
static char *output; /* of the last run */

static int inspect(const char *a, const char *b, const char *c)
{
    char name[] = "inspect", arg[3][512];
    char *argv[5] = {name, arg[0], arg[1], arg[2], NULL};
    const char *const in[3] = {a, b, c};
    FILE *real = stdout;
    size_t size = 0;
    int argc = 1, code;
    for (int i = 0; i < 3 && in[i] != NULL; i++, argc++)
        (void)snprintf(arg[i], sizeof arg[i], "%s", in[i]);
    free(output);
    output = NULL;
    said[0] = '\0';
    stdout = open_memstream(&output, &size);
    assert_non_null(stdout);
    code = cli_cmd_inspect.run(argc, argv);
    assert_int_equal(fclose(stdout), 0);
    stdout = real;
    return code;
}

static void shows(const char *text)
{
    if (strstr(output, text) == NULL)
        fail_msg("\"%s\" is not in:\n%s", text, output);
}

static json_t *parsed(void)
{
    json_error_t e;
    json_t *o = json_loads(output, 0, &e);
    if (o == NULL)
        fail_msg("no JSON: %s in:\n%s", e.text, output);
    return o;
}

static json_int_t number(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

/* A mixture of experts: 4 of them, 1 used. */
static const char *moe_file(void)
{
    static const char *const tokens[] = {"<s>", "</s>"};
    static const int32_t many[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    struct gw w = {0};
    gw_header(&w, 3, 4, 9);
    gw_kv_str(&w, "general.architecture", "llama");
    gw_kv_str(&w, "general.name", "ev\x1b[2Jil \xe2\x80\xae\xff\n\xe6\xa8\xa1");
    gw_kv_int(&w, "general.file_type", ATSI_META_U32, 15);
    gw_kv_int(&w, "llama.expert_count", ATSI_META_U32, 4);
    gw_kv_int(&w, "llama.expert_used_count", ATSI_META_U32, 1);
    gw_kv_array_i32(&w, "llama.many", many, 9);
    gw_kv_str(&w, "tokenizer.ggml.model", "llama");
    gw_kv_array_str(&w, "tokenizer.ggml.tokens", tokens, 2);
    gw_kv_int(&w, "tokenizer.ggml.eos_token_id", ATSI_META_U32, 1);
    gw_tensor(&w, "token_embd.weight", 2, (const uint64_t[]){32, 2}, ATSI_TYPE_F16, 0);
    gw_tensor(&w, "blk.0.ffn_up_exps.weight", 3, (const uint64_t[]){32, 2, 4}, ATSI_TYPE_Q8_0, 128);
    gw_tensor(&w, "blk.0.attn_norm.weight", 1, (const uint64_t[]){8}, ATSI_TYPE_F32, 416);
    gw_tensor(&w, "blk.0.attn_q.weight", 1, (const uint64_t[]){256}, 16, 448);
    gw_pad(&w, 32);
    gw_fill(&w, 448 + 66);
    gw_save(&w, w.n, fx_path("moe.gguf"));
    gw_free(&w);
    return fx_path("moe.gguf");
}

static void test_text(void **state)
{
    (void)state;
    assert_int_equal(inspect(moe_file(), "--meta", "--tensors"), CLI_OK);
    shows("model, GGUF v3");
    shows("Q4_K_M (Q8_0 54.6 %, F16 25.7 %, IQ2_XXS 13.3 %"); /* of 272 + 128 + 66 + 32 bytes */
    shows("584 (584), 392 active per token");                 /* 64 + 256 + 8 + 256 */
    shows("eos             1 \"</s>\"");
    shows("[1, 2, 3, 4, 5, 6, ... 9 in all]");
    shows("chat template   none");
    shows("32 x 2 x 4");
    shows("experts               1");
    /* harmless on a terminal, but real text stays readable */
    shows("ev\\u001b[2Jil \\u202e\\xff\\n\xe6\xa8\xa1");
    assert_null(strchr(output, 0x1b));
}

static void test_json(void **state)
{
    json_t *o, *tensor;
    (void)state;
    assert_int_equal(inspect("--json", moe_file(), "--tensors"), CLI_OK);
    o = parsed();
    assert_string_equal(json_string_value(json_object_get(o, "kind")), "model");
    assert_string_equal(json_string_value(json_object_get(o, "quantization")), "Q4_K_M");
    assert_int_equal(number(o, "parameters"), 584);
    assert_int_equal(number(o, "active_parameters"), 392);
    assert_int_equal(number(o, "tensor_bytes"), 498);
    assert_int_equal(number(json_object_get(o, "hyperparameters"), "expert_count"), 4);
    assert_int_equal(
        number(json_object_get(json_object_get(o, "hyperparameters"), "many"), "count"), 9);
    assert_int_equal(number(json_object_get(json_object_get(o, "tokenizer"), "special"), "eos"), 1);
    assert_string_equal(json_string_value(json_object_get(o, "name")),
                        "ev\x1b[2Jil \xe2\x80\xae\xef\xbf\xbd\n\xe6\xa8\xa1");
    tensor = json_array_get(json_object_get(o, "tensors"), 3);
    assert_string_equal(json_string_value(json_object_get(tensor, "type")), "IQ2_XXS");
    assert_int_equal(number(tensor, "bytes"), 66);
    json_decref(o);
}

static void test_memory(void **state)
{
    json_t *o, *memory;
    (void)state;
    assert_int_equal(inspect(moe_file(), NULL, NULL), CLI_OK);
    shows("weights         498 B\n");
    shows("KV cache        1024 B for a context of 100 (F16 keys, Q8_0 values), 10 B per further");
    shows("states          4096 B, whatever the context\n");
    shows("buffers         577 B for rounds of 64 tokens\n");
    assert_int_equal(inspect("--json", moe_file(), NULL), CLI_OK);
    o = parsed();
    memory = json_object_get(o, "memory");
    assert_int_equal(number(memory, "weight_bytes"), 498);
    assert_int_equal(number(memory, "context"), 100);
    assert_int_equal(number(memory, "kv_bytes"), 1024);
    assert_int_equal(number(memory, "kv_bytes_per_token"), 10);
    assert_int_equal(number(memory, "state_bytes"), 4096);
    assert_int_equal(number(memory, "buffer_bytes"), 577);
    json_decref(o);
}

/* A model that cannot be used can be looked at. */
static void test_no_plan(void **state)
{
    json_t *o;
    (void)state;
    plan_status = ATSI_EFORMAT;
    assert_int_equal(inspect(moe_file(), NULL, NULL), CLI_OK);
    shows("cannot be used  file: key 'llama.block\\u001b' is missing\n");
    assert_int_equal(inspect("--json", moe_file(), NULL), CLI_OK);
    plan_status = ATSI_OK;
    o = parsed();
    assert_non_null(json_object_get(json_object_get(o, "memory"), "error"));
    assert_null(json_object_get(json_object_get(o, "memory"), "kv_bytes"));
    json_decref(o);
}

static void test_every_value_type(void **state)
{
    struct gw w = {0};
    json_t *o, *meta;
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("default.gguf"));
    assert_int_equal(inspect("--meta", NULL, NULL), CLI_OK); /* the default model */
    shows("18446744073709551615");
    shows("-9223372036854775808");
    shows("3.141592653589793");
    shows("10000.5");
    shows("bool             true");
    shows("i32[0]           []");
    assert_int_equal(inspect("--meta", "--json", NULL), CLI_OK);
    o = parsed();
    meta = json_object_get(o, "metadata");
    assert_int_equal(json_object_size(meta), FX_N_KV);
    assert_string_equal(json_string_value(json_object_get(meta, "t.u64")), "18446744073709551615");
    assert_true(json_integer_value(json_object_get(meta, "t.i64")) == INT64_MIN);
    assert_int_equal(number(meta, "t.i8"), -100);
    json_decref(o);
    gw_free(&w);
}

static void test_failures(void **state)
{
    (void)state;
    assert_int_equal(inspect("a", "b", NULL), CLI_USAGE);
    assert_non_null(strstr(said, "one file, but 2"));
    assert_int_equal(inspect(fx_path("absent.gguf"), NULL, NULL), CLI_RUN_ERROR);
    assert_non_null(strstr(said, "absent.gguf: cannot be opened"));
    assert_string_equal(output, "");
}

static int teardown(void **state)
{
    free(output);
    return fx_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_no_plan),
        cmocka_unit_test(test_every_value_type),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, fx_setup, teardown);
}
