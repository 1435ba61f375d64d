/* SPDX-License-Identifier: Apache-2.0
 *
 * Published models at their real size: files with every key and tensor of the release, but holes
 * for weights.  They open, their graphs are built, and the plan of a session has the bytes that
 * follow from the published configurations, which are written out here as numbers. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "atsinfer/loader.h"
#include "tests/unit/arch_run.h"
#include "tests/unit/scratch.h"

struct release {
    const char *name;
    struct am_config c;
    double params;        /* as published */
    uint64_t kv_full;     /* bytes per token of f16 KV cache, layers that see everything */
    uint64_t kv_windowed; /* the others */
    uint64_t states;      /* bytes */
};

#define PLAIN(layers, embd, heads, kv_heads, dim, ff, vocab)                                       \
    .n_layer = (layers), .n_embd = (embd), .n_head = (heads), .n_head_kv = (kv_heads),             \
    .head_dim = (dim), .n_ff = (ff), .n_vocab = (vocab)

static const struct release releases[] = {
    {"GLM-Z1-9B",
     {.arch = "glm4",
      PLAIN(40, 4096, 32, 2, 128, 13696, 151552),
      .n_rot = 64,
      .n_ctx = 32768,
      .rope_base = 1e4F,
      .eps = 1e-5F,
      .bias = true},
     9.400e9,
     40960,
     0,
     0},
    {"Qwen3-14B",
     {.arch = "qwen3",
      PLAIN(40, 5120, 40, 8, 128, 17408, 151936),
      .n_ctx = 40960,
      .rope_base = 1e6F,
      .eps = 1e-6F},
     14.768e9,
     163840,
     0,
     0},
    {"Qwen3-30B-A3B",
     {.arch = "qwen3moe",
      PLAIN(48, 2048, 32, 4, 128, 6144, 151936),
      .n_expert = 128,
      .n_used = 8,
      .n_ff_expert = 768,
      .n_ctx = 40960,
      .rope_base = 1e6F,
      .eps = 1e-6F},
     30.532e9,
     98304,
     0,
     0},
    {"gpt-oss-20b",
     {.arch = "gpt-oss",
      PLAIN(24, 2880, 64, 8, 64, 0, 201088),
      .n_expert = 32,
      .n_used = 4,
      .n_ff_expert = 2880,
      .n_ctx = 131072,
      .rope_base = 1.5e5F,
      .eps = 1e-5F,
      .yarn = 32,
      .n_orig = 4096,
      .window = 128,
      .bias = true},
     20.91e9,
     24576,
     24576,
     0},
    {"gpt-oss-120b",
     {.arch = "gpt-oss",
      PLAIN(36, 2880, 64, 8, 64, 0, 201088),
      .n_expert = 128,
      .n_used = 4,
      .n_ff_expert = 2880,
      .n_ctx = 131072,
      .rope_base = 1.5e5F,
      .eps = 1e-5F,
      .yarn = 32,
      .n_orig = 4096,
      .window = 128,
      .bias = true},
     116.83e9,
     36864,
     36864,
     0},
    {"Llama-3.1-70B",
     {.arch = "llama",
      PLAIN(80, 8192, 64, 8, 128, 28672, 128256),
      .n_rot = 128,
      .n_ctx = 131072,
      .rope_base = 5e5F,
      .eps = 1e-5F,
      .rope_freqs = true},
     70.554e9,
     327680,
     0,
     0},
    {"Qwen3-Next-80B-A3B",
     {.arch = "qwen3next",
      PLAIN(48, 2048, 16, 2, 256, 5120, 151936),
      .n_rot = 64,
      .n_expert = 512,
      .n_used = 10,
      .n_ff_expert = 512,
      .n_ff_shared = 512,
      .nk = 16,
      .nv = 32,
      .state = 128,
      .taps = 4,
      .interval = 4,
      .n_ctx = 262144,
      .rope_base = 1e7F,
      .eps = 1e-6F},
     79.67e9,
     24576,
     0,
     79036416},
    {"Qwen3.5-122B-A10B",
     {.arch = "qwen35moe",
      PLAIN(48, 3072, 32, 2, 256, 0, 248320),
      .n_rot = 64,
      .n_expert = 256,
      .n_used = 8,
      .n_ff_expert = 1024,
      .n_ff_shared = 1024,
      .nk = 16,
      .nv = 64,
      .state = 128,
      .taps = 4,
      .interval = 4,
      .n_ctx = 262144,
      .rope_base = 1e7F,
      .eps = 1e-6F},
     122.11e9,
     24576,
     0,
     156303360},
    {"Mixtral-8x7B",
     {.arch = "llama",
      PLAIN(32, 4096, 32, 8, 128, 14336, 32000),
      .n_rot = 128,
      .n_expert = 8,
      .n_used = 2,
      .n_ctx = 32768,
      .rope_base = 1e6F,
      .eps = 1e-5F},
     46.703e9,
     131072,
     0,
     0},
    {"Qwen2.5-7B",
     {.arch = "qwen2",
      PLAIN(28, 3584, 28, 4, 128, 18944, 152064),
      .n_ctx = 32768,
      .rope_base = 1e6F,
      .eps = 1e-6F,
      .bias = true},
     7.616e9,
     57344,
     0,
     0},
};
enum { N_RELEASES = sizeof releases / sizeof releases[0] };

/* Replaces the C library's for the loader: reading ahead would fill the page cache with the zeros
 * of the holes. */
ATSI_EXPORT int madvise(void *at, size_t bytes, int advice);
int madvise(void *at, size_t bytes, int advice)
{
    (void)at;
    (void)bytes;
    (void)advice;
    return 0;
}

/* ---------------------------------------------------------------- the file */
/* What a Q4_K_M release does: vectors, routers and convolutions stay f32; rows that are no multiple
 * of 256 take blocks of 32; experts of gpt-oss are MXFP4 and the rest of it Q8_0. */
static uint32_t type_for(const struct am_tensor *t, bool oss)
{
    const char *n = t->name;
    if (t->n_dims == 1 || strstr(n, "ffn_gate_inp") != NULL || strstr(n, "conv1d") != NULL ||
        strstr(n, ".bias") != NULL)
        return ATSI_TYPE_F32;
    if (oss)
        return strstr(n, "_exps.") != NULL ? ATSI_TYPE_MXFP4 : ATSI_TYPE_Q8_0;
    if (t->ne[0] % 256 != 0)
        return strstr(n, "ffn_down") != NULL ? ATSI_TYPE_Q5_0 : ATSI_TYPE_Q8_0;
    if (strcmp(n, "output.weight") == 0 || strstr(n, "attn_v.") != NULL ||
        strstr(n, "ffn_down") != NULL)
        return ATSI_TYPE_Q6_K;
    return ATSI_TYPE_Q4_K;
}

/* false: the file system cannot hold it as holes. */
static bool write_release(const struct release *r, const char *path)
{
    struct am m;
    struct stat st;
    bool ok;
    am_build(&m, &r->c, true);
    for (size_t i = 0; i < m.n_tensors; i++)
        m.tensors[i].type = type_for(&m.tensors[i], strcmp(r->c.arch, "gpt-oss") == 0);
    ok = am_save(&m, path);
    am_free(&m);
    if (ok && stat(path, &st) == 0 && st.st_blocks * INT64_C(512) < (INT64_C(64) << 20))
        return true;
    print_message("%s: skipped, sparse files of its size are not possible here (%s)\n", r->name,
                  ok ? "holes take space" : strerror(errno));
    (void)unlink(path);
    return false;
}

/* ---------------------------------------------------------------- the plan */
static void assert_about(const char *name, const char *what, uint64_t have, uint64_t want,
                         uint64_t slack)
{
    if (have < want || have > want + slack)
        fail_msg("%s: %s of %llu bytes, expected %llu", name, what, (unsigned long long)have,
                 (unsigned long long)want);
}

static void check_plan(const struct release *r, struct atsi_model *m, uint32_t n_ctx)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info info = {.struct_size = sizeof info};
    uint64_t ring = r->c.window + 256;
    p.n_ctx = n_ctx;
    p.chunk = 256;
    p.type_k = p.type_v = ATSI_TYPE_F16;
    if (atsi_session_plan(m, &p, &info, &err) != ATSI_OK)
        fail_msg("%s: %s", r->name, err.msg);
    assert_int_equal(info.n_ctx, n_ctx);
    assert_int_equal(info.n_vocab, r->c.n_vocab);
    /* every cache and state is rounded up to lines of memory */
    assert_about(r->name, "KV cache", info.kv_bytes,
                 r->kv_full * n_ctx + r->kv_windowed * (ring < n_ctx ? ring : n_ctx),
                 r->c.n_layer * 256);
    assert_about(r->name, "states", info.state_bytes, r->states, r->c.n_layer * 128);
    assert_int_equal(info.can_rewind, r->states == 0 && (r->c.window == 0 || ring >= n_ctx));
    assert_true(info.compute_bytes > 0 && info.compute_bytes < (UINT64_C(4) << 30));
}

/* Opens, or says with numbers why there is no room. */
static void check_session(const struct release *r, struct atsi_model *m)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session *s = NULL;
    int rc;
    p.n_ctx = 512;
    rc = atsi_session_open(m, &p, &s, &err);
    if (rc == ATSI_ENOFIT) {
        assert_non_null(strstr(err.msg, "weights "));
        assert_non_null(strstr(err.msg, "available "));
        assert_null(s);
    } else if (rc != ATSI_OK) {
        fail_msg("%s: %s", r->name, err.msg);
    }
    print_message("%s: %s\n", r->name, rc == ATSI_OK ? "a session opens" : err.msg);
    atsi_session_close(s);
}

/* Without the weights the plan is the same, and a session is refused. */
static void check_plan_only(const struct release *r, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model_params p = {.struct_size = sizeof p, .no_weights = ATSI_PLAN_ONLY};
    struct atsi_session_params small = ATSI_SESSION_PARAMS_INIT;
    struct atsi_model *m = NULL;
    struct atsi_session *s = NULL;
    small.n_ctx = 32;
    if (atsi_model_open(ar_runtimes[0], path, &p, &m, &err) != ATSI_OK)
        fail_msg("%s: %s", r->name, err.msg);
    check_plan(r, m, 4096);
    assert_int_equal(atsi_session_open(m, &small, &s, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "without weights"));
    assert_null(s);
    atsi_model_close(m);
}

static void check_release(const struct release *r)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model *m = NULL;
    const struct atsi_graph *g = NULL;
    const char *path = scratch_path("release.gguf");
    if (!write_release(r, path))
        return;
    if (atsi_model_open(ar_runtimes[ar_n_backends - 1], path, NULL, &m, &err) != ATSI_OK ||
        atsi_model_graph(m, &g, &err) != ATSI_OK)
        fail_msg("%s: %s", r->name, err.msg);
    assert_int_equal(g->n_layer, r->c.n_layer);
    assert_int_equal(g->n_ctx_train, r->c.n_ctx);
    if ((double)g->n_params < r->params * 0.999 || (double)g->n_params > r->params * 1.001)
        fail_msg("%s: %.4g parameters, published are %.4g", r->name, (double)g->n_params,
                 r->params);
    check_plan(r, m, 64);
    check_plan(r, m, 4096);
    check_plan(r, m, r->c.n_ctx);
    check_session(r, m);
    atsi_model_close(m);
    check_plan_only(r, path);
    assert_int_equal(unlink(path), 0);
}

static void releases_take_what_was_published(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_RELEASES; i++)
        check_release(&releases[i]);
}

/* ---------------------------------------------------------------- atsinfer inspect */
static json_int_t number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    assert_true(json_is_integer(v));
    return json_integer_value(v);
}

static json_t *inspect(const char *args)
{
    char command[1024];
    json_error_t why;
    json_t *o;
    FILE *p;
    (void)snprintf(command, sizeof command, ATSI_BINARY_DIR "/bin/atsinfer inspect --json %s",
                   args);
    p = popen(command, "r"); /* NOLINT(cert-env33-c): commands of this test */
    assert_non_null(p);
    o = json_loadf(p, 0, &why);
    if (o == NULL)
        fail_msg("%s: %s", args, why.text);
    assert_int_equal(pclose(p), 0);
    return o;
}

static void inspect_shows_the_plan(void **state)
{
    const char *path = scratch_path("release.gguf");
    const struct release *r = &releases[6];
    char args[512];
    json_t *o, *memory;
    (void)state;
    if (!write_release(r, path))
        skip();
    (void)snprintf(args, sizeof args, "-m %s -c 8192", path);
    o = inspect(args);
    memory = json_object_get(o, "memory");
    assert_int_equal(number(memory, "weight_bytes"), number(o, "tensor_bytes"));
    assert_int_equal(number(memory, "context"), 8192);
    assert_int_equal(number(memory, "kv_bytes_per_token"), 24576);
    assert_about(r->name, "KV cache", (uint64_t)number(memory, "kv_bytes"), 24576 * 8192, 48 * 256);
    assert_int_equal(number(memory, "state_bytes"), 79036416);
    assert_true(number(memory, "buffer_bytes") > 0);
    json_decref(o);
    assert_int_equal(unlink(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(releases_take_what_was_published),
        cmocka_unit_test(inspect_shows_the_plan),
    };
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a reason to skip */
    return cmocka_run_group_tests(tests, ar_enter, ar_leave);
}
