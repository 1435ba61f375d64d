/* SPDX-License-Identifier: Apache-2.0
 * The fixture of the GGUF tests. */
#include "gguf_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "loaders/arch/arch.h"

const struct atsi_loader_ops *fx_ops;
struct atsi_host fx_host;
struct atsi_err fx_err;
char fx_log[4096];
int fx_graphs_built, fx_graphs_freed;
static char folder[256];

static void record(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
static void record(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    size_t n = strlen(fx_log);
    va_list ap;
    (void)ctx;
    n += (size_t)snprintf(fx_log + n, sizeof fx_log - n, "%d %s: ", (int)level, who);
    if (n >= sizeof fx_log)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(fx_log + n, sizeof fx_log - n, fmt, ap);
    va_end(ap);
}

/* ---------------------------------------------------------------- stand-in for loaders/arch */
static struct atsi_graph stand_in;

static void free_graph(void *arg)
{
    assert_ptr_equal(arg, &stand_in);
    fx_graphs_freed++;
}

int arch_build_graph(struct atsi_loaded *m, struct atsi_err *err)
{
    static const float freqs[3] = {1.0f, 0.5f, 0.25f};
    const uint64_t ne[1] = {3};
    int at;
    if (strcmp(gguf_arch(m), "llama") != 0)
        return atsi_fail(err, ATSI_ENOTSUP, "architecture '%s' is not supported", gguf_arch(m));
    at = gguf_add_constant(m, "const.freqs", ATSI_TYPE_F32, 1, ne, freqs, err);
    if (at < 0)
        return at;
    fx_graphs_built++;
    gguf_set_graph(m, &stand_in, free_graph, &stand_in);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- set-up */
int fx_setup(void **state)
{
    const char *tmp = getenv("TMPDIR"), *why = NULL;
    const struct atsi_plugin *plugin;
    (void)state;
    (void)snprintf(folder, sizeof folder, "%s/atsi-gguf-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(folder) == NULL)
        return -1;
    fx_host.struct_size = sizeof fx_host;
    fx_host.log = record;
    plugin = atsi_plugin_entry(&fx_host, &why);
    if (plugin == NULL || plugin->components[0]->kind != ATSI_KIND_LOADER)
        return -1;
    fx_ops = plugin->components[0]->ops;
    return 0;
}

int fx_teardown(void **state)
{
    char command[sizeof folder + 16];
    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command); // NOLINT(cert-env33-c): a path of our own
}

const char *fx_path(const char *name)
{
    static char buf[8][512];
    static unsigned next;
    char *out = buf[next++ % 8];
    (void)snprintf(out, sizeof buf[0], "%s/%s", folder, name);
    return out;
}

int fx_open(const char *path, uint32_t mode, bool no_weights, struct atsi_loaded **out)
{
    struct atsi_load_params p = {.struct_size = sizeof p, .mode = mode, .no_weights = no_weights};
    fx_log[0] = '\0';
    memset(&fx_err, 0, sizeof fx_err);
    fx_err.struct_size = sizeof fx_err;
    *out = NULL;
    return fx_ops->open(&fx_host, path, &p, out, &fx_err);
}

/* ---------------------------------------------------------------- the model */
static void write_meta(struct gw *w)
{
    static const char *const tokens[] = {"<s>", "hello", "\xff\xfe", ""};
    static const int32_t types[] = {3, 1, 1, -5}, heads[] = {4, 2};
    gw_kv_str(w, "general.architecture", "llama");
    gw_kv_str(w, "general.name", "a test");
    gw_kv_int(w, "general.alignment", ATSI_META_U32, 32);
    gw_kv_int(w, "llama.block_count", ATSI_META_U32, 2);
    gw_kv_array_i32(w, "llama.attention.head_count", heads, 2);
    gw_kv_int(w, "llama.feed_forward_length", ATSI_META_U64, 64);
    gw_kv_f32(w, "llama.rope.freq_base", 10000.5f);
    gw_kv_int(w, "t.u8", ATSI_META_U8, 200);
    gw_kv_int(w, "t.i8", ATSI_META_I8, (uint8_t)-100);
    gw_kv_int(w, "t.u16", ATSI_META_U16, 60000);
    gw_kv_int(w, "t.i16", ATSI_META_I16, (uint16_t)-30000);
    gw_kv_int(w, "t.i32", ATSI_META_I32, (uint32_t)-2000000000);
    gw_kv_int(w, "t.bool", ATSI_META_BOOL, 1);
    gw_kv_int(w, "t.u64", ATSI_META_U64, UINT64_MAX);
    gw_kv_int(w, "t.i64", ATSI_META_I64, (uint64_t)INT64_MIN);
    gw_kv_int(w, "t.f64", ATSI_META_F64, UINT64_C(0x400921fb54442d18)); /* pi */
    gw_kv_str(w, "t.empty", "");
    gw_kv_array_i32(w, "t.none", NULL, 0);
    gw_kv_str(w, "tokenizer.ggml.model", "llama");
    gw_kv_array_str(w, "tokenizer.ggml.tokens", tokens, 4);
    gw_kv_array_i32(w, "tokenizer.ggml.token_type", types, 4);
}

void fx_model(struct gw *w, uint32_t version)
{
    gw_header(w, version, FX_N_TENSORS, FX_N_KV);
    write_meta(w);
    gw_tensor(w, "token_embd.weight", 2, (const uint64_t[]){8, 4}, ATSI_TYPE_F32, 0);
    gw_tensor(w, "blk.0.attn_q.weight", 2, (const uint64_t[]){32, 2}, ATSI_TYPE_Q8_0, 128);
    gw_tensor(w, "output_norm.weight", 1, (const uint64_t[]){5}, ATSI_TYPE_F16, 224);
    gw_label(w, "directory_end");
    gw_pad(w, 32);
    gw_label(w, "data");
    gw_fill(w, 256);
}

size_t fx_model_end(const struct gw *w)
{
    return gw_at(w, "data") + 224 + 10;
}

void fx_refused(const char *path, int status, const char *needle)
{
    const char *name = strrchr(path, '/') + 1;
    for (uint32_t mode = ATSI_LOAD_MMAP; mode <= ATSI_LOAD_DIRECT; mode++) {
        struct atsi_loaded *m = NULL;
        int st = fx_open(path, mode, false, &m);
        if (st != status || strstr(fx_err.msg, needle) == NULL || strstr(fx_err.msg, name) == NULL)
            fail_msg("mode %u: status %d, expected %d; message \"%s\", expected \"%s\"", mode, st,
                     status, fx_err.msg, needle);
        assert_null(m);
        assert_null(strchr(fx_err.msg, '\n'));
    }
}
