/* SPDX-License-Identifier: Apache-2.0
 *
 * Valid GGUF files: the same metadata and tensors in every mode, kinds of files, progress and
 * cancelling, files that change, and what graph builders are offered. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_fixture.h"
#include "loaders/gguf/gguf.h"

#define N_MODES 4 /* mmap, read, direct, and no weights at all */

static int open_mode(const char *path, uint32_t mode, struct atsi_loaded **out)
{
    return mode < 3 ? fx_open(path, mode, false, out) : fx_open(path, ATSI_LOAD_MMAP, true, out);
}

static struct atsi_meta find(const struct atsi_loaded *m, const char *key)
{
    struct atsi_meta v = {.struct_size = sizeof v};
    if (fx_ops->meta_find(m, key, &v) != ATSI_OK)
        fail_msg("key %s was not found", key);
    assert_int_equal(v.key.len, strlen(key));
    assert_memory_equal(v.key.ptr, key, v.key.len);
    return v;
}

static void check_scalars(const struct atsi_loaded *m)
{
    assert_int_equal(find(m, "t.u8").v.u, 200);
    assert_int_equal(find(m, "t.i8").v.i, -100);
    assert_int_equal(find(m, "t.u16").v.u, 60000);
    assert_int_equal(find(m, "t.i16").v.i, -30000);
    assert_int_equal(find(m, "t.i32").v.i, -2000000000);
    assert_int_equal(find(m, "t.bool").v.u, 1);
    assert_true(find(m, "t.u64").v.u == UINT64_MAX);
    assert_true(find(m, "t.i64").v.i == INT64_MIN);
    assert_true(find(m, "t.f64").v.f == 3.141592653589793);
    assert_true(find(m, "llama.rope.freq_base").v.f == 10000.5);
}

static void check_strings_and_arrays(const struct atsi_loaded *m)
{
    struct atsi_meta v = find(m, "general.name");
    assert_int_equal(v.type, ATSI_META_STRING);
    assert_int_equal(v.str.len, 6);
    assert_memory_equal(v.str.ptr, "a test", 6);
    assert_int_equal(find(m, "t.empty").str.len, 0);
    assert_int_equal(find(m, "t.none").count, 0);
    v = find(m, "tokenizer.ggml.tokens");
    assert_int_equal(v.elem_type, ATSI_META_STRING);
    assert_int_equal(v.count, 4);
    assert_int_equal(v.strs[1].len, 5);
    assert_memory_equal(v.strs[1].ptr, "hello", 5);
    assert_memory_equal(v.strs[2].ptr, "\xff\xfe", 2); /* no UTF-8, and none is demanded */
    assert_int_equal(v.strs[3].len, 0);
    v = find(m, "tokenizer.ggml.token_type");
    assert_int_equal(v.count, 4);
    assert_memory_equal(v.data, ((const int32_t[]){3, 1, 1, -5}), 16);
}

static void check_tensors(const struct gw *w, const struct atsi_loaded_info *info, uint32_t mode)
{
    static const uint64_t offset[] = {0, 128, 224}, bytes[] = {128, 68, 10}, row[] = {32, 34, 10};
    static const char *const names[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                        "output_norm.weight"};
    static const char *const types[] = {"F32", "Q8_0", "F16"};
    assert_int_equal(info->n_tensors, FX_N_TENSORS);
    for (uint32_t i = 0; i < FX_N_TENSORS; i++) {
        const struct atsi_tensor *t = info->tensors[i];
        assert_string_equal(t->name, names[i]);
        assert_string_equal(info->type_names[i], types[i]);
        assert_int_equal(t->row_bytes, row[i]);
        if (mode == 3) {
            assert_null(t->data);
            continue;
        }
        assert_memory_equal(t->data, w->p + gw_at(w, "data") + offset[i], bytes[i]);
        assert_int_equal((uintptr_t)t->data % 32, 0);
    }
    assert_int_equal(info->tensors[2]->n_dims, 1);
    assert_int_equal(info->tensors[2]->ne[0], 5);
    assert_int_equal(info->tensors[2]->ne[3], 1);
}

static void test_modes_agree(void **state)
{
    const char *path = fx_path("valid.gguf");
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gw w = {0};
        fx_model(&w, version);
        gw_save(&w, fx_model_end(&w), path); /* without the padding after the last tensor */
        assert_int_equal(fx_ops->probe(&fx_host, path, &fx_err), 1);
        for (uint32_t mode = 0; mode < N_MODES; mode++) {
            struct atsi_loaded *m;
            const struct atsi_loaded_info *info;
            if (open_mode(path, mode, &m) != ATSI_OK)
                fail_msg("mode %u: %s", mode, fx_err.msg);
            info = fx_ops->info(m);
            assert_string_equal(info->format, version == 2 ? "GGUF v2" : "GGUF v3");
            assert_string_equal(info->arch, "llama");
            assert_int_equal(info->file_kind, ATSI_FILE_MODEL);
            assert_int_equal(info->n_meta, FX_N_KV);
            assert_int_equal(info->n_files, 1);
            assert_int_equal(info->file_bytes, fx_model_end(&w));
            assert_int_equal(info->mapped_bytes, mode == 0 ? 128 + 68 + 10 : 0);
            assert_true((info->owned_bytes > 0) == (mode == 1 || mode == 2));
            check_scalars(m);
            check_strings_and_arrays(m);
            check_tensors(&w, info, mode);
            fx_ops->close(m);
        }
        gw_free(&w);
    }
}

static void test_meta_by_position(void **state)
{
    struct gw w = {0};
    struct atsi_loaded *m;
    struct atsi_meta v = {.struct_size = sizeof v};
    /* an older caller, whose struct ended after `key` */
    struct atsi_meta small = {.struct_size = offsetof(struct atsi_meta, v)};
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("valid.gguf"));
    assert_int_equal(fx_open(fx_path("valid.gguf"), ATSI_LOAD_MMAP, true, &m), ATSI_OK);
    assert_int_equal(fx_ops->meta_at(m, 3, &v), ATSI_OK);
    assert_memory_equal(v.key.ptr, "llama.block_count", v.key.len);
    assert_int_equal(v.v.u, 2);
    small.v.u = 77;
    assert_int_equal(fx_ops->meta_at(m, 3, &small), ATSI_OK);
    assert_int_equal(small.key.len, strlen("llama.block_count"));
    assert_int_equal(small.v.u, 77); /* beyond its size: untouched */
    assert_int_equal(fx_ops->meta_at(m, FX_N_KV, &v), ATSI_EINVAL);
    assert_int_equal(fx_ops->meta_find(m, "no.such.key", &v), ATSI_ENOENT);
    fx_ops->close(m);
    fx_ops->close(NULL);
    gw_free(&w);
}

/* Liberal where the reference is strict: any order of offsets, gaps, no padding needed at the end,
 * dimensions 0 and 4, another alignment. */
static void test_liberal_layout(void **state)
{
    struct gw w = {0};
    struct atsi_loaded *m;
    const struct atsi_loaded_info *info;
    (void)state;
    gw_header(&w, 3, 4, 2);
    gw_kv_str(&w, "general.architecture", "llama");
    gw_kv_int(&w, "general.alignment", ATSI_META_U32, 8);
    gw_tensor(&w, "late", 1, (const uint64_t[]){4}, ATSI_TYPE_F32, 64);
    gw_tensor(&w, "scalar", 0, NULL, ATSI_TYPE_F32, 40);
    gw_tensor(&w, "early", 4, (const uint64_t[]){2, 1, 2, 2}, ATSI_TYPE_F16, 0);
    gw_tensor(&w, "empty", 2, (const uint64_t[]){0, 7}, ATSI_TYPE_F32, 40);
    gw_pad(&w, 8);
    gw_label(&w, "data");
    gw_fill(&w, 80);
    gw_save(&w, w.n, fx_path("liberal.gguf"));
    for (uint32_t mode = 0; mode < 3; mode++) {
        if (fx_open(fx_path("liberal.gguf"), mode, false, &m) != ATSI_OK)
            fail_msg("%s", fx_err.msg);
        info = fx_ops->info(m);
        assert_memory_equal(info->tensors[0]->data, w.p + gw_at(&w, "data") + 64, 16);
        assert_memory_equal(info->tensors[1]->data, w.p + gw_at(&w, "data") + 40, 4);
        assert_int_equal(info->tensors[1]->ne[0], 1);
        assert_memory_equal(info->tensors[2]->data, w.p + gw_at(&w, "data"), 16);
        assert_int_equal(info->tensors[3]->row_bytes, 0);
        fx_ops->close(m);
    }
    gw_free(&w);
}

/* ---------------------------------------------------------------- kinds of files */
struct kind_case {
    const char *arch, *type; /* NULL: key absent */
    const char *extra_key;   /* a string key of value "lora" or "llama"; NULL: none */
    bool tensors;
    uint32_t kind;
    const char *says; /* part of the refusal of graph() */
};

static void write_kind(struct gw *w, const struct kind_case *c)
{
    uint64_t n_kv = (c->arch != NULL) + (c->type != NULL) + (c->extra_key != NULL);
    gw_header(w, 3, c->tensors ? 1 : 0, n_kv);
    if (c->arch != NULL)
        gw_kv_str(w, "general.architecture", c->arch);
    if (c->type != NULL)
        gw_kv_str(w, "general.type", c->type);
    if (c->extra_key != NULL)
        gw_kv_str(w, c->extra_key, "lora");
    if (c->tensors) {
        gw_tensor(w, "x", 1, (const uint64_t[]){4}, ATSI_TYPE_F32, 0);
        gw_pad(w, 32);
        gw_fill(w, 16);
    }
}

static void test_kinds(void **state)
{
    static const struct kind_case cases[] = {
        {"llama", NULL, "tokenizer.ggml.model", false, ATSI_FILE_VOCAB, "vocabulary"},
        {"llama", "model", "tokenizer.ggml.model", false, ATSI_FILE_VOCAB, "vocabulary"},
        {"clip", NULL, NULL, true, ATSI_FILE_MMPROJ, "mmproj"},
        {"clip", "mmproj", NULL, true, ATSI_FILE_MMPROJ, "mmproj"},
        {"llama", "adapter", "adapter.type", true, ATSI_FILE_ADAPTER, "adapter"},
        {"llama", NULL, "adapter.type", true, ATSI_FILE_ADAPTER, "adapter"},
        {"controlvector", NULL, NULL, true, ATSI_FILE_ADAPTER, "control vector"},
        {NULL, "imatrix", NULL, true, ATSI_FILE_OTHER, "importance matrix"},
        {NULL, "a\x1b[2Jb", NULL, true, ATSI_FILE_OTHER, "general.type 'a\\x1b[2Jb'"},
        {NULL, NULL, NULL, true, ATSI_FILE_OTHER, "general.architecture"},
        {"llama", NULL, NULL, false, ATSI_FILE_OTHER, "without tensors"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct atsi_graph *g = NULL;
        struct atsi_loaded *m;
        struct gw w = {0};
        write_kind(&w, &cases[i]);
        gw_save(&w, w.n, fx_path("kind.gguf"));
        assert_int_equal(fx_open(fx_path("kind.gguf"), ATSI_LOAD_MMAP, false, &m), ATSI_OK);
        assert_int_equal(fx_ops->info(m)->file_kind, cases[i].kind);
        assert_int_equal(fx_ops->graph(m, &g, &fx_err), ATSI_ENOTSUP);
        if (strstr(fx_err.msg, cases[i].says) == NULL || strstr(fx_err.msg, "kind.gguf") == NULL)
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, fx_err.msg, cases[i].says);
        fx_ops->close(m);
        gw_free(&w);
    }
}

/* ---------------------------------------------------------------- types without kernels */
static void test_unsupported_types(void **state)
{
    static const struct {
        uint32_t id;
        const char *shown, *says;
    } cases[] = {{16, "IQ2_XXS", "type IQ2_XXS is not supported"},
                 {4, "Q4_2", "type Q4_2 is not supported (retired"},
                 {33, "Q4_0_8_8", "retired"},
                 {9, "Q8_1", "for activations"},
                 {40, "NVFP4", "type NVFP4 is not supported; supported are F32 F16"},
                 {144, "IQ4_KS", "ik_llama.cpp"},
                 {300, "type 300", "type 300 is not supported (a private type of the ik_llama.cpp"},
                 {4711, "type 4711", "type 4711 is not supported (unknown"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gw w = {0};
        struct atsi_loaded *m;
        gw_header(&w, 3, 1, 1);
        gw_kv_str(&w, "general.architecture", "llama");
        gw_tensor(&w, "blk.0.x", 1, (const uint64_t[]){256}, cases[i].id, 0);
        gw_pad(&w, 32);
        gw_fill(&w, 1024);
        gw_save(&w, w.n, fx_path("type.gguf"));
        fx_refused(fx_path("type.gguf"), ATSI_ENOTSUP, cases[i].says);
        assert_non_null(strstr(fx_err.msg, "tensor blk.0.x: "));
        /* but it can be looked at */
        assert_int_equal(fx_open(fx_path("type.gguf"), ATSI_LOAD_MMAP, true, &m), ATSI_OK);
        assert_string_equal(fx_ops->info(m)->type_names[0], cases[i].shown);
        assert_int_equal(fx_ops->info(m)->tensors[0]->row_bytes, cases[i].id == 16   ? 66
                                                                 : cases[i].id == 9  ? 288
                                                                 : cases[i].id == 40 ? 144
                                                                                     : 0);
        fx_ops->close(m);
        gw_free(&w);
    }
}

/* ---------------------------------------------------------------- graph and constants */
static void test_graph(void **state)
{
    const struct atsi_graph *g = NULL, *again = NULL;
    const struct atsi_loaded_info *info;
    const struct atsi_tensor *const *tensors;
    struct gw w = {0};
    struct atsi_loaded *m;
    int built = fx_graphs_built, freed = fx_graphs_freed;
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("valid.gguf"));
    assert_int_equal(fx_open(fx_path("valid.gguf"), ATSI_LOAD_MMAP, false, &m), ATSI_OK);
    info = fx_ops->info(m);
    tensors = info->tensors;
    assert_int_equal(fx_ops->graph(m, &g, &fx_err), ATSI_OK);
    assert_int_equal(fx_ops->graph(m, &again, &fx_err), ATSI_OK);
    assert_ptr_equal(g, again);
    assert_int_equal(fx_graphs_built, built + 1);
    assert_int_equal(info->n_tensors, FX_N_TENSORS);
    assert_int_equal(info->n_tensors_all, FX_N_TENSORS + 1);
    assert_ptr_equal(info->tensors, tensors); /* borrowed pointers stay */
    assert_string_equal(tensors[FX_N_TENSORS]->name, "const.freqs");
    assert_string_equal(info->type_names[FX_N_TENSORS], "F32");
    assert_true(((const float *)tensors[FX_N_TENSORS]->data)[2] == 0.25f);
    assert_int_equal((uintptr_t)tensors[FX_N_TENSORS]->data % 64, 0);
    assert_int_equal(gguf_tensor_find(m, "const.freqs"), FX_N_TENSORS);
    fx_ops->close(m);
    assert_int_equal(fx_graphs_freed, freed + 1);
    /* without weights there is none */
    assert_int_equal(fx_open(fx_path("valid.gguf"), ATSI_LOAD_MMAP, true, &m), ATSI_OK);
    assert_int_equal(fx_ops->graph(m, &g, &fx_err), ATSI_ENOTSUP);
    assert_non_null(strstr(fx_err.msg, "without weights"));
    fx_ops->close(m);
    gw_free(&w);
}

static void test_graph_failure_names_file(void **state)
{
    const struct atsi_graph *g = NULL;
    struct atsi_loaded *m;
    struct gw w = {0};
    (void)state;
    write_kind(&w, &(const struct kind_case){"mamba", NULL, NULL, true, 0, NULL});
    gw_save(&w, w.n, fx_path("mamba.gguf"));
    assert_int_equal(fx_open(fx_path("mamba.gguf"), ATSI_LOAD_MMAP, false, &m), ATSI_OK);
    assert_int_equal(fx_ops->graph(m, &g, &fx_err), ATSI_ENOTSUP);
    assert_non_null(strstr(fx_err.msg, "mamba.gguf: architecture 'mamba'"));
    fx_err.msg[0] = '\0'; /* and says so again when asked again */
    assert_int_equal(fx_ops->graph(m, &g, &fx_err), ATSI_ENOTSUP);
    assert_non_null(strstr(fx_err.msg, "mamba.gguf: architecture 'mamba'"));
    fx_ops->close(m);
    gw_free(&w);
}

static void test_constants_refused(void **state)
{
    static const float one[64] = {1.0f};
    const uint64_t ne[4] = {4, 1, 1, 1}, odd[1] = {33}, huge[2] = {UINT64_MAX / 4, 8};
    struct atsi_loaded *m;
    struct gw w = {0};
    int st = 0, n = 0;
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("valid.gguf"));
    assert_int_equal(fx_open(fx_path("valid.gguf"), ATSI_LOAD_MMAP, false, &m), ATSI_OK);
    assert_int_equal(gguf_add_constant(m, "token_embd.weight", ATSI_TYPE_F32, 1, ne, one, &fx_err),
                     ATSI_EINVAL);
    assert_int_equal(gguf_add_constant(m, "c", 16, 1, ne, one, &fx_err), ATSI_EINVAL);
    assert_int_equal(gguf_add_constant(m, "c", ATSI_TYPE_Q8_0, 1, odd, one, &fx_err), ATSI_EINVAL);
    assert_int_equal(gguf_add_constant(m, "c", ATSI_TYPE_F32, 2, huge, one, &fx_err), ATSI_EINVAL);
    assert_int_equal(gguf_add_constant(m, "c", ATSI_TYPE_F32, 5, ne, one, &fx_err), ATSI_EINVAL);
    for (; st >= 0; n++) { /* up to the limit, then a clear refusal */
        char name[16];
        (void)snprintf(name, sizeof name, "c%d", n);
        st = gguf_add_constant(m, name, ATSI_TYPE_F32, 1, ne, one, &fx_err);
    }
    assert_int_equal(st, ATSI_EINVAL);
    assert_true(n > 200);
    assert_int_equal(gguf_tensor_find(m, "c7"), FX_N_TENSORS + 7);
    assert_int_equal(gguf_n_tensors(m), FX_N_TENSORS + (uint32_t)n - 1);
    fx_ops->close(m);
    gw_free(&w);
}

/* ---------------------------------------------------------------- progress, changing files */
struct watch {
    uint64_t last, total;
    int calls, stop_at;
    const char *path; /* truncated at the first call when not NULL */
    off_t new_size;
};

static int on_progress(void *ctx, uint64_t done, uint64_t total)
{
    struct watch *p = ctx;
    assert_true(done >= p->last && done <= total);
    p->last = done;
    p->total = total;
    if (p->calls++ == 0 && p->path != NULL)
        assert_int_equal(truncate(p->path, p->new_size), 0);
    return p->calls == p->stop_at;
}

static int open_watched(const char *path, uint32_t mode, struct watch *p, struct atsi_loaded **out)
{
    struct atsi_load_params lp = {
        .struct_size = sizeof lp, .mode = mode, .progress = on_progress, .progress_ctx = p};
    fx_err.struct_size = sizeof fx_err;
    *out = NULL;
    return fx_ops->open(&fx_host, path, &lp, out, &fx_err);
}

static void test_progress_and_cancel(void **state)
{
    const char *path = fx_path("valid.gguf");
    struct gw w = {0};
    struct atsi_loaded *m;
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, path);
    for (uint32_t mode = 0; mode < 3; mode++) {
        struct watch p = {0}, stop_first = {.stop_at = 1}, stop_second = {.stop_at = 2};
        assert_int_equal(open_watched(path, mode, &p, &m), ATSI_OK);
        assert_int_equal(p.last, p.total);
        assert_int_equal(p.total, fx_model_end(&w)); /* from the start of its page */
        fx_ops->close(m);
        assert_int_equal(open_watched(path, mode, &stop_first, &m), ATSI_EINTR);
        assert_int_equal(open_watched(path, mode, &stop_second, &m), ATSI_EINTR);
        assert_non_null(strstr(fx_err.msg, "cancelled"));
    }
    gw_free(&w);
}

static void test_changing_file(void **state)
{
    const char *path = fx_path("changing.gguf");
    struct gw w = {0};
    struct atsi_loaded *m;
    (void)state;
    fx_model(&w, 3);
    for (uint32_t mode = 0; mode < 3; mode++) {
        struct watch shrink = {.path = path, .new_size = 1000}, growing = {.path = path};
        growing.new_size = (off_t)w.n + 1;
        assert_true((size_t)shrink.new_size < gw_at(&w, "data") + 128);
        gw_save(&w, w.n, path);
        assert_int_equal(open_watched(path, mode, &shrink, &m), ATSI_EIO);
        assert_non_null(strstr(fx_err.msg, "changing.gguf"));
        assert_non_null(strstr(fx_err.msg, mode == 0 ? "now has 1000" : "shrank"));
        gw_save(&w, w.n, path);
        assert_int_equal(open_watched(path, mode, &growing, &m), ATSI_EIO);
        assert_non_null(strstr(fx_err.msg, "changed while it was opened"));
    }
    gw_free(&w);
}

/* Kernels may read a little past the last row: the page after the data must be readable. */
static void test_bytes_after_data(void **state)
{
    struct gw w = {0};
    struct atsi_loaded *m;
    (void)state;
    gw_header(&w, 3, 1, 1);
    gw_kv_str(&w, "general.architecture", "llama");
    gw_tensor(&w, "x", 1, (const uint64_t[]){2048}, ATSI_TYPE_F16, 4096 - 128);
    gw_pad(&w, 32);
    assert_int_equal(w.n, 128);
    gw_fill(&w, 8192 - 128); /* the tensor ends with the file, at the end of a page */
    gw_save(&w, w.n, fx_path("page.gguf"));
    for (uint32_t mode = 0; mode < 3; mode++) {
        const volatile unsigned char *end;
        if (fx_open(fx_path("page.gguf"), mode, false, &m) != ATSI_OK)
            fail_msg("%s", fx_err.msg);
        end = (const unsigned char *)fx_ops->info(m)->tensors[0]->data + 4096;
        for (int i = 0; i < 64; i++)
            assert_int_equal(end[i], 0);
        fx_ops->close(m);
    }
    gw_free(&w);
}

/* More entries and strings than any quadratic search would survive under the sanitizers. */
static void test_many_entries(void **state)
{
    struct gw w = {0};
    struct atsi_loaded *m;
    char key[32];
    const uint32_t n = 100000;
    (void)state;
    gw_header(&w, 3, n, n);
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(key, sizeof key, "key.%u", i);
        gw_str(&w, key, strlen(key));
        gw_int(&w, ATSI_META_U32, 4);
        gw_int(&w, i, 4);
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)snprintf(key, sizeof key, "tensor.%u", i);
        gw_str(&w, key, strlen(key));
        gw_int(&w, 0, 4); /* dimensions */
        gw_int(&w, ATSI_TYPE_F32, 4);
        gw_int(&w, (uint64_t)(n - 1 - i) * 32, 8);
    }
    gw_pad(&w, 32);
    gw_fill(&w, 4);
    w.cap = w.n; /* the rest of the data is a hole */
    gw_save(&w, w.n, fx_path("many.gguf"));
    assert_int_equal(truncate(fx_path("many.gguf"), (off_t)(w.n + (uint64_t)n * 32)), 0);
    if (fx_open(fx_path("many.gguf"), ATSI_LOAD_MMAP, true, &m) != ATSI_OK)
        fail_msg("%s", fx_err.msg);
    assert_int_equal(find(m, "key.99999").v.u, 99999);
    assert_int_equal(gguf_tensor_find(m, "tensor.4242"), 4242);
    fx_ops->close(m);
    gw_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes_agree),
        cmocka_unit_test(test_meta_by_position),
        cmocka_unit_test(test_liberal_layout),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_unsupported_types),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_graph_failure_names_file),
        cmocka_unit_test(test_constants_refused),
        cmocka_unit_test(test_progress_and_cancel),
        cmocka_unit_test(test_changing_file),
        cmocka_unit_test(test_bytes_after_data),
        cmocka_unit_test(test_many_entries),
    };
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
