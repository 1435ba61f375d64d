/* SPDX-License-Identifier: Apache-2.0
 *
 * Malformed GGUF files: each is refused with the right status and a message that names the file and
 * the culprit, in every load mode, before anything is read beyond the file. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf_fixture.h"

#define KIB(n) (UINT64_C(n) << 10)

/* One field of the valid model overwritten. */
struct patch_case {
    const char *label;
    uint64_t value;
    uint32_t bytes;
    int status;
    const char *says;
};

static const struct patch_case patches[] = {
    /* header */
    {"magic", 0x47475546, 4, ATSI_EFORMAT, "not a GGUF file: it begins with \"FUGG\""},
    {"magic", 0x1b, 1, ATSI_EFORMAT, "\"\\x1bGUF\""},
    {"version", 0, 4, ATSI_ENOTSUP, "version 0"},
    {"version", 1, 4, ATSI_ENOTSUP, "version 1 (32-bit lengths"},
    {"version", 4, 4, ATSI_ENOTSUP, "version 4"},
    {"version", 0x03000000, 4, ATSI_ENOTSUP, "big-endian file (version reads as 0x03000000)"},
    {"version", 0x02000000, 4, ATSI_ENOTSUP, "big-endian"},
    {"n_tensors", UINT64_MAX, 8, ATSI_EFORMAT, "tensors: a count of 18446744073709551615"},
    {"n_tensors", UINT64_C(1) << 62, 8, ATSI_EFORMAT, "hold at most"},
    {"n_tensors", 1000, 8, ATSI_EFORMAT, "tensors: a count of 1000 is impossible"},
    {"n_tensors", 4, 8, ATSI_EFORMAT, "tensor 3 of 4"},
    {"n_kv", UINT64_MAX, 8, ATSI_EFORMAT, "metadata entries: a count of 18446744073709551615"},
    {"n_kv", UINT64_C(1) << 40, 8, ATSI_EFORMAT, "metadata entries: a count of 1099511627776"},
    {"n_kv", FX_N_KV + 1, 8, ATSI_EFORMAT, "tensor 0 of 3: name: a string of"},
    {"n_kv", 0, 8, ATSI_EFORMAT, "tensor 'general.architecture': 8 dimensions"},
    /* keys and values */
    {"kv/general.name", UINT64_MAX, 8, ATSI_EFORMAT,
     "metadata entry 1 of 21: key: a string of 184"},
    {"kv/general.name", UINT64_C(1) << 63, 8, ATSI_EFORMAT, "a string of 9223372036854775808"},
    {"kv/general.name", 0, 8, ATSI_EFORMAT, "metadata entry 1 of 21: the key is empty"},
    {"kv/general.name/type", 13, 4, ATSI_EFORMAT, "key 'general.name': value type 13"},
    {"kv/general.name/type", UINT32_MAX, 4, ATSI_EFORMAT, "value type 4294967295"},
    {"kv/general.name/value", UINT64_C(1) << 40, 8, ATSI_EFORMAT,
     "key 'general.name': a string of"},
    {"kv/general.name/value", UINT64_MAX - 8, 8, ATSI_EFORMAT, "18446744073709551607 bytes"},
    {"kv/tokenizer.ggml.tokens/elem_type", 9, 4, ATSI_EFORMAT,
     "key 'tokenizer.ggml.tokens': an array of arrays"},
    {"kv/tokenizer.ggml.tokens/elem_type", 13, 4, ATSI_EFORMAT, "element type 13"},
    {"kv/tokenizer.ggml.tokens/elem_type", UINT32_MAX, 4, ATSI_EFORMAT, "element type 4294967295"},
    {"kv/tokenizer.ggml.tokens/count", (UINT64_C(1) << 30) + 1, 8, ATSI_EFORMAT,
     "an array of 1073741825 elements, at most 1073741824"},
    {"kv/tokenizer.ggml.tokens/count", UINT64_C(1) << 29, 8, ATSI_EFORMAT,
     "key 'tokenizer.ggml.tokens': array of string: a count of 536870912 is impossible"},
    {"kv/tokenizer.ggml.tokens/count", UINT64_MAX, 8, ATSI_EFORMAT, "18446744073709551615"},
    {"kv/tokenizer.ggml.tokens/1", UINT64_C(1) << 50, 8, ATSI_EFORMAT,
     "key 'tokenizer.ggml.tokens': element 1 of 4: a string of"},
    {"kv/tokenizer.ggml.token_type/count", 1000000, 8, ATSI_EFORMAT, "array of i32: a count of"},
    {"kv/tokenizer.ggml.token_type/count", UINT64_C(0x4000000000000001), 8, ATSI_EFORMAT,
     "key 'tokenizer.ggml.token_type'"},
    /* alignment */
    {"kv/general.alignment/type", ATSI_META_I32, 4, ATSI_EFORMAT,
     "key 'general.alignment': type i32, but it has to be u32"},
    {"kv/general.alignment/type", ATSI_META_F32, 4, ATSI_EFORMAT, "type f32"},
    {"kv/general.alignment/value", 0, 4, ATSI_EFORMAT, "key 'general.alignment': 0 is not a power"},
    {"kv/general.alignment/value", 3, 4, ATSI_EFORMAT, "3 is not a power of two in 1..1048576"},
    {"kv/general.alignment/value", 48, 4, ATSI_EFORMAT, "48 is not a power of two"},
    {"kv/general.alignment/value", 1u << 21, 4, ATSI_EFORMAT, "2097152 is not"},
    {"kv/general.alignment/value", 0x80000000u, 4, ATSI_EFORMAT, "2147483648 is not"},
    {"kv/general.alignment/value", 64, 4, ATSI_EFORMAT,
     "tensor 'output_norm.weight': offset 224 is no multiple of the alignment 64"},
    {"kv/general.alignment/value", 1u << 20, 4, ATSI_EFORMAT, "begin at byte 1048576 of the file"},
    /* names and shapes */
    {"tensor/blk.0.attn_q.weight", UINT64_MAX, 8, ATSI_EFORMAT, "tensor 1 of 3: name: a string of"},
    {"tensor/blk.0.attn_q.weight", 0, 8, ATSI_EFORMAT, "tensor 1 of 3: the name is empty"},
    {"tensor/blk.0.attn_q.weight", 64, 8, ATSI_EFORMAT, "has 64 bytes, at most 63"},
    {"tensor/token_embd.weight/n_dims", 5, 4, ATSI_EFORMAT,
     "tensor 'token_embd.weight': 5 dimensions, at most 4"},
    {"tensor/token_embd.weight/n_dims", UINT32_MAX, 4, ATSI_EFORMAT, "4294967295 dimensions"},
    {"tensor/token_embd.weight/ne0", UINT64_C(1) << 63, 8, ATSI_EFORMAT,
     "tensor 'token_embd.weight': dimension 0 is 9223372036854775808, above"},
    {"tensor/token_embd.weight/ne1", UINT64_MAX, 8, ATSI_EFORMAT, "dimension 1 is 184467"},
    {"tensor/token_embd.weight/ne0", UINT64_C(1) << 62, 8, ATSI_EFORMAT,
     "the number of elements overflows 2^63-1 at dimension 1 of 4"},
    {"tensor/token_embd.weight/ne1", UINT64_C(1) << 61, 8, ATSI_EFORMAT,
     "overflows 2^63-1 at dimension 1 of 2305843009213693952"},
    {"tensor/token_embd.weight/ne0", UINT64_C(1) << 60, 8, ATSI_EFORMAT,
     "1152921504606846976 x 4 x 1 x 1 elements of F32 overflow 64 bits"},
    {"tensor/token_embd.weight/ne1", 5, 8, ATSI_EFORMAT,
     "tensor 'blk.0.attn_q.weight' begins at offset 128, inside tensor 'token_embd.weight' at "
     "0..160"},
    {"tensor/token_embd.weight/ne1", 1000, 8, ATSI_EFORMAT,
     "tensor 'token_embd.weight': its 32000 bytes end at byte"},
    {"tensor/blk.0.attn_q.weight/ne0", 33, 8, ATSI_EFORMAT,
     "tensor 'blk.0.attn_q.weight': rows of 33 elements are no multiple of the 32 of a Q8_0 block"},
    {"tensor/blk.0.attn_q.weight/ne0", 1, 8, ATSI_EFORMAT, "rows of 1 elements"},
    {"tensor/blk.0.attn_q.weight/ne1", 3, 8, ATSI_EFORMAT, "inside tensor 'blk.0.attn_q.weight'"},
    /* types */
    {"tensor/blk.0.attn_q.weight/type", ATSI_TYPE_Q6_K, 4, ATSI_EFORMAT,
     "rows of 32 elements are no multiple of the 256 of a Q6_K block"},
    {"tensor/output_norm.weight/type", 4711, 4, ATSI_ENOTSUP,
     "tensor output_norm.weight: type 4711"},
    {"tensor/output_norm.weight/type", UINT32_MAX, 4, ATSI_ENOTSUP, "type 4294967295 is not"},
    {"tensor/output_norm.weight/type", 36, 4, ATSI_ENOTSUP, "type IQ4_NL_4_4 is not supported"},
    /* offsets */
    {"tensor/blk.0.attn_q.weight/offset", 129, 8, ATSI_EFORMAT,
     "tensor 'blk.0.attn_q.weight': offset 129 is no multiple of the alignment 32"},
    {"tensor/blk.0.attn_q.weight/offset", UINT64_C(1) << 63, 8, ATSI_EFORMAT, "end at byte 92233"},
    {"tensor/blk.0.attn_q.weight/offset", UINT64_MAX - 31, 8, ATSI_EFORMAT,
     "offset 18446744073709551584 and size 68 overflow"},
    {"tensor/blk.0.attn_q.weight/offset", 0, 8, ATSI_EFORMAT, "inside tensor"},
    {"tensor/blk.0.attn_q.weight/offset", 96, 8, ATSI_EFORMAT, "begins at offset 96, inside"},
    {"tensor/blk.0.attn_q.weight/offset", 192, 8, ATSI_EFORMAT, "its 68 bytes end at byte"},
    {"tensor/output_norm.weight/offset", 256, 8, ATSI_EFORMAT,
     "tensor 'output_norm.weight': its 10 bytes end at byte"},
};

static void test_patched_fields(void **state)
{
    const char *path = fx_path("patched.gguf");
    (void)state;
    for (size_t i = 0; i < sizeof patches / sizeof patches[0]; i++) {
        const struct patch_case *c = &patches[i];
        struct gw w = {0};
        fx_model(&w, 3);
        gw_patch(&w, c->label, c->value, c->bytes);
        gw_save(&w, w.n, path);
        fx_refused(path, c->status, c->says);
        gw_free(&w);
    }
}

/* Cut after every single byte: always refused, never a crash, until the last tensor is whole. */
static void test_truncated_everywhere(void **state)
{
    const char *path = fx_path("truncated.gguf");
    struct gw w = {0};
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, path);
    for (size_t n = fx_model_end(&w) - 1; n > 0; n--) {
        assert_int_equal(truncate(path, (off_t)n), 0);
        fx_refused(path, ATSI_EFORMAT, "truncated.gguf");
        if (n < 24) /* the header */
            assert_non_null(strstr(fx_err.msg, "header"));
        if (n >= gw_at(&w, "data") + 224)
            assert_non_null(strstr(fx_err.msg, "tensor 'output_norm.weight': its 10 bytes end"));
    }
    gw_free(&w);
}

/* Every byte of the head set to several values: refused or accepted, but always orderly. */
static void test_every_byte_changed(void **state)
{
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    const char *path = fx_path("changed.gguf");
    struct gw w = {0};
    size_t accepted = 0, refused = 0;
    (void)state;
    fx_model(&w, 3);
    for (size_t at = 0; at < gw_at(&w, "directory_end"); at++) {
        uint8_t old = w.p[at];
        for (size_t v = 0; v < sizeof values; v++) {
            struct atsi_loaded *m;
            w.p[at] = values[v];
            gw_save(&w, w.n, path);
            if (fx_open(path, ATSI_LOAD_MMAP, false, &m) == ATSI_OK) {
                accepted++;
                fx_ops->close(m);
            } else {
                refused++;
                assert_non_null(strstr(fx_err.msg, "changed.gguf: "));
            }
        }
        w.p[at] = old;
    }
    assert_true(accepted > 100 && refused > 1000);
    gw_free(&w);
}

/* ---------------------------------------------------------------- files of their own */
/* Header, the given metadata written by `fill`, and one tensor of the given name. */
struct custom_case {
    const char *what;
    void (*fill)(struct gw *w);
    int status;
    const char *says;
};

static void one_tensor(struct gw *w, const char *name, size_t name_len, uint32_t type)
{
    gw_str(w, name, name_len);
    gw_int(w, 1, 4);
    gw_int(w, 32, 8);
    gw_int(w, type, 4);
    gw_int(w, 0, 8);
    gw_pad(w, 32);
    gw_fill(w, 256);
}

static void raw_key(struct gw *w, const char *key, size_t len)
{
    gw_header(w, 3, 0, 1);
    gw_str(w, key, len);
    gw_int(w, ATSI_META_U32, 4);
    gw_int(w, 5, 4);
}

static void key_with_nul(struct gw *w)
{
    raw_key(w, "a\0b", 3);
}

static void key_with_bad_utf8(struct gw *w)
{
    raw_key(w, "caf\xe9", 4);
}

static void key_with_escape(struct gw *w)
{
    raw_key(w, "\x1b]0;title\x07", 10);
}

static void key_too_long(struct gw *w)
{
    static char key[65536];
    memset(key, 'k', sizeof key);
    raw_key(w, key, sizeof key);
}

static void duplicate_key(struct gw *w)
{
    gw_header(w, 3, 0, 3);
    gw_kv_int(w, "twice", ATSI_META_U32, 1);
    gw_kv_int(w, "once", ATSI_META_U32, 1);
    gw_kv_str(w, "twice", "again");
}

static void duplicate_in_many(struct gw *w)
{
    gw_header(w, 3, 0, 50000);
    for (uint32_t i = 0; i < 50000; i++) {
        char key[32];
        int n = snprintf(key, sizeof key, "key.%u", i == 49999 ? 7 : i);
        gw_str(w, key, (size_t)n);
        gw_int(w, ATSI_META_U8, 4);
        gw_int(w, 1, 1);
    }
}

static void name_with(struct gw *w, const char *name, size_t len)
{
    gw_header(w, 3, 1, 1);
    gw_kv_str(w, "general.architecture", "llama");
    one_tensor(w, name, len, ATSI_TYPE_F32);
}

static void name_with_nul(struct gw *w)
{
    name_with(w, "blk\0.weight", 11);
}

static void name_with_newline(struct gw *w)
{
    name_with(w, "a\nb", 3);
}

static void name_with_bad_utf8(struct gw *w)
{
    name_with(w, "\xc3(", 2);
}

static void duplicate_tensor(struct gw *w)
{
    const uint64_t ne[1] = {4};
    gw_header(w, 3, 3, 1);
    gw_kv_str(w, "general.architecture", "llama");
    gw_tensor(w, "same", 1, ne, ATSI_TYPE_F32, 0);
    gw_tensor(w, "other", 1, ne, ATSI_TYPE_F32, 32);
    gw_tensor(w, "same", 1, ne, ATSI_TYPE_F32, 64);
    gw_pad(w, 32);
    gw_fill(w, 96);
}

static void arch_of(struct gw *w, const char *arch)
{
    gw_header(w, 3, 1, 1);
    gw_kv_str(w, "general.architecture", arch);
    one_tensor(w, "x", 1, ATSI_TYPE_F32);
}

static void arch_empty(struct gw *w)
{
    arch_of(w, "");
}

static void arch_unprintable(struct gw *w)
{
    arch_of(w, "lla\x1b[31mma");
}

static void arch_too_long(struct gw *w)
{
    arch_of(w, "0123456789012345678901234567890123456789012345678901234567890123456789");
}

static void arch_no_string(struct gw *w)
{
    gw_header(w, 3, 1, 1);
    gw_kv_int(w, "general.architecture", ATSI_META_U32, 3);
    one_tensor(w, "x", 1, ATSI_TYPE_F32);
}

/* Legal by the format, but kernels load f32 as four bytes and block scales as two.  The head takes
 * 135 + pad bytes before it is aligned. */
static void misaligned(struct gw *w, uint32_t alignment, uint32_t type, size_t pad)
{
    char name[16] = "xxxxxxxxxxxxxxx";
    gw_header(w, 3, 1, 2);
    gw_kv_str(w, "general.architecture", "llama");
    gw_kv_int(w, "general.alignment", ATSI_META_U32, alignment);
    one_tensor(w, name, 1 + pad, type);
}

static void misaligned_f32(struct gw *w)
{
    misaligned(w, 2, ATSI_TYPE_F32, 2);
}

static void misaligned_q8_0(struct gw *w)
{
    misaligned(w, 1, ATSI_TYPE_Q8_0, 0);
}

static void no_counts(struct gw *w)
{
    gw_bytes(w, "GGUF\3\0\0\0", 8);
}

static void three_bytes(struct gw *w)
{
    gw_bytes(w, "GGU", 3);
}

static void nothing(struct gw *w)
{
    (void)w;
}

static const struct custom_case customs[] = {
    {"NUL in a key", key_with_nul, ATSI_EFORMAT, "key \"a\\x00b\" has the byte 0x00 at position 1"},
    {"bad UTF-8 in a key", key_with_bad_utf8, ATSI_EFORMAT, "\"caf\\xe9\""},
    {"escape in a key", key_with_escape, ATSI_EFORMAT, "\\x1b]0;title\\x07"},
    {"long key", key_too_long, ATSI_EFORMAT, "a string of 65536 bytes"},
    {"duplicate key", duplicate_key, ATSI_EFORMAT,
     "key 'twice' occurs twice, as metadata entries 0 and 2"},
    {"duplicate in many", duplicate_in_many, ATSI_EFORMAT, "key 'key.7' occurs twice"},
    {"NUL in a name", name_with_nul, ATSI_EFORMAT, "\"blk\\x00.weight\""},
    {"newline in a name", name_with_newline, ATSI_EFORMAT, "\"a\\x0ab\" has the byte 0x0a"},
    {"bad UTF-8 in a name", name_with_bad_utf8, ATSI_EFORMAT, "\"\\xc3(\""},
    {"duplicate tensor", duplicate_tensor, ATSI_EFORMAT,
     "tensor 'same' occurs twice, as number 0 and 2"},
    {"empty architecture", arch_empty, ATSI_EFORMAT, "key 'general.architecture': \"\" is not"},
    {"unprintable architecture", arch_unprintable, ATSI_EFORMAT, "lla\\x1b[31mma"},
    {"long architecture", arch_too_long, ATSI_EFORMAT, "is not a name of 1 to 63"},
    {"architecture of type u32", arch_no_string, ATSI_EFORMAT, "type u32, but it has to be string"},
    {"f32 at 2", misaligned_f32, ATSI_EFORMAT, "F32 needs a multiple of 4"},
    {"q8_0 at 1", misaligned_q8_0, ATSI_EFORMAT, "Q8_0 needs a multiple of 2"},
    {"header only", no_counts, ATSI_EFORMAT, "header: 8 bytes are needed at byte 8"},
    {"three bytes", three_bytes, ATSI_EFORMAT, "only 3 are left"},
    {"empty", nothing, ATSI_EFORMAT, "the file is empty"},
};

static void test_custom_files(void **state)
{
    const char *path = fx_path("custom.gguf");
    (void)state;
    for (size_t i = 0; i < sizeof customs / sizeof customs[0]; i++) {
        struct gw w = {0};
        customs[i].fill(&w);
        gw_save(&w, w.n, path);
        fx_refused(path, customs[i].status, customs[i].says);
        gw_free(&w);
    }
}

/* Sparse files that are as long as they claim: the claim alone must not cost memory or time. */
static void test_sparse_giants(void **state)
{
    static const struct {
        uint64_t n_kv, string; /* entries; or length of one key's string value */
        const char *says;
    } cases[] = {
        {UINT64_C(1) << 30, 0, "metadata entry 0 of 1073741824: the key is empty"},
        {UINT64_C(1) << 33, 0, "at most 2147483647 of each"},
        {1, UINT64_C(300) << 20, "more than the 268435456 bytes that are accepted"},
        {1, UINT64_C(2) << 30, "longer than the 1073741824 that are accepted"},
    };
    const char *path = fx_path("sparse.gguf");
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gw w = {0};
        gw_header(&w, 3, 0, cases[i].n_kv);
        if (cases[i].string != 0) {
            gw_key(&w, "big", ATSI_META_STRING);
            gw_int(&w, cases[i].string, 8);
        }
        gw_save(&w, w.n, path);
        if (truncate(path, (off_t)(UINT64_C(1) << 40)) != 0)
            skip(); /* a file system with smaller files */
        fx_refused(path, ATSI_EFORMAT, cases[i].says);
        gw_free(&w);
    }
    assert_int_equal(unlink(path), 0);
}

/* ---------------------------------------------------------------- not a file */
static void test_not_a_file(void **state)
{
    const char *folder = fx_path("folder.gguf"), *fifo = fx_path("fifo.gguf"),
               *locked = fx_path("locked.gguf");
    struct gw w = {0};
    (void)state;
    fx_refused(fx_path("missing.gguf"), ATSI_ENOENT, "No such file");
    assert_int_equal(mkdir(folder, 0700), 0);
    fx_refused(folder, ATSI_EIO, "is a directory");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    fx_refused(fifo, ATSI_EIO, "is a FIFO"); /* and does not hang */
    fx_refused("/dev/null", ATSI_EIO, "is a device");
    fx_model(&w, 3);
    gw_save(&w, w.n, locked);
    assert_int_equal(chmod(locked, 0), 0);
    if (geteuid() != 0) /* root may read everything */
        fx_refused(locked, ATSI_EIO, "Permission denied");
    gw_free(&w);
}

static void test_probe(void **state)
{
    struct gw w = {0};
    (void)state;
    fx_err.struct_size = sizeof fx_err;
    gw_bytes(&w, "GGML", 4);
    gw_save(&w, 4, fx_path("other.bin"));
    assert_int_equal(fx_ops->probe(&fx_host, fx_path("other.bin"), &fx_err), 0);
    gw_save(&w, 2, fx_path("short.bin"));
    assert_int_equal(fx_ops->probe(&fx_host, fx_path("short.bin"), &fx_err), 0);
    gw_save(&w, 0, fx_path("empty.bin"));
    assert_int_equal(fx_ops->probe(&fx_host, fx_path("empty.bin"), &fx_err), ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "empty.bin: the file is empty"));
    assert_int_equal(fx_ops->probe(&fx_host, fx_path("none.bin"), &fx_err), ATSI_ENOENT);
    gw_free(&w);
}

static void test_bad_parameters(void **state)
{
    struct gw w = {0};
    struct atsi_loaded *m;
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("valid.gguf"));
    assert_int_equal(fx_open(fx_path("valid.gguf"), 3, false, &m), ATSI_EINVAL);
    assert_non_null(strstr(fx_err.msg, "load mode 3"));
    gw_free(&w);
}

/* A path of thousands of bytes leaves room for the reason. */
static void test_long_path(void **state)
{
    char path[3000];
    struct atsi_loaded *m;
    (void)state;
    memset(path, 'd', sizeof path);
    for (size_t i = 0; i < sizeof path; i += 200)
        path[i] = '/';
    path[sizeof path - 1] = '\0';
    assert_int_equal(fx_open(path, ATSI_LOAD_MMAP, false, &m), ATSI_ENOENT);
    assert_memory_equal(fx_err.msg, "...", 3);
    assert_non_null(strstr(fx_err.msg, "cannot be opened: No such file"));
    assert_int_equal(fx_open("/nonexistent/\x1b[2J\n.gguf", ATSI_LOAD_MMAP, false, &m),
                     ATSI_ENOENT);
    assert_non_null(strstr(fx_err.msg, "/nonexistent/\\x1b[2J\\x0a.gguf: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patched_fields),
        cmocka_unit_test(test_truncated_everywhere),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_custom_files),
        cmocka_unit_test(test_sparse_giants),
        cmocka_unit_test(test_not_a_file),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_bad_parameters),
        cmocka_unit_test(test_long_path),
    };
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
