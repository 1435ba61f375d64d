/* SPDX-License-Identifier: Apache-2.0
 *
 * A loader turns a file into metadata, tensors and an op graph (plugin kind ATSI_KIND_LOADER).
 *
 * Everything a loader returns stays valid, unchanged, until its close().  Files come from
 * strangers: no length, count, offset or shape may be trusted before it is checked.
 */
#ifndef ATSINFER_LOADER_H
#define ATSINFER_LOADER_H

#include <stddef.h>

#include "atsinfer/graph.h"
#include "atsinfer/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct atsi_host;
struct atsi_loaded; /* an open file: defined by the loader */

/* Value types, numbered as in GGUF. */
enum atsi_meta_type {
    ATSI_META_U8 = 0,
    ATSI_META_I8 = 1,
    ATSI_META_U16 = 2,
    ATSI_META_I16 = 3,
    ATSI_META_U32 = 4,
    ATSI_META_I32 = 5,
    ATSI_META_F32 = 6,
    ATSI_META_BOOL = 7,
    ATSI_META_STRING = 8,
    ATSI_META_ARRAY = 9,
    ATSI_META_U64 = 10,
    ATSI_META_I64 = 11,
    ATSI_META_F64 = 12
};

/* Bytes that need not be NUL-terminated and may contain NUL. */
struct atsi_str {
    const char *ptr;
    uint64_t len;
};

/* One metadata entry.  Scalars: `v`.  Strings: `str`.  Arrays: elem_type, count and either `strs`
 * (elem_type STRING) or `data`, count packed little-endian elements of any alignment. */
struct atsi_meta {
    uint32_t struct_size;
    uint32_t type;      /* enum atsi_meta_type */
    uint32_t elem_type; /* of an array */
    uint64_t count;
    struct atsi_str key;
    union {
        uint64_t u; /* unsigned kinds and BOOL (0 or 1) */
        int64_t i;  /* signed kinds */
        double f;   /* F32, F64 */
    } v;
    struct atsi_str str;
    const struct atsi_str *strs;
    const void *data;
};

enum atsi_file_kind {
    ATSI_FILE_MODEL = 1, /* has a graph */
    ATSI_FILE_VOCAB,     /* tokenizer only */
    ATSI_FILE_MMPROJ,
    ATSI_FILE_ADAPTER, /* LoRA */
    ATSI_FILE_OTHER
};

enum atsi_load_mode { ATSI_LOAD_MMAP = 0, ATSI_LOAD_READ = 1, ATSI_LOAD_DIRECT = 2 };

#define ATSI_NO_WEIGHTS 1u /* and no graph */
#define ATSI_PLAN_ONLY 2u  /* with a graph: to be measured, not to be run */

struct atsi_load_params {
    uint32_t struct_size;
    uint32_t mode; /* enum atsi_load_mode */
    /* ATSI_NO_WEIGHTS or ATSI_PLAN_ONLY: metadata and tensor directory only, data pointers of the
     * file's tensors are NULL; 0: everything */
    uint32_t no_weights;
    /* May be NULL.  Called from time to time on the calling thread; non-zero cancels (ATSI_EINTR).
     */
    int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes);
    void *progress_ctx;
};

struct atsi_loaded_info {
    uint32_t struct_size;
    uint32_t file_kind; /* enum atsi_file_kind */
    const char *format; /* "GGUF v3" */
    const char *arch;   /* "qwen3", or "" */
    uint32_t n_files;   /* shards */
    uint32_t n_meta;
    uint32_t n_tensors; /* of the files; graph constants follow them in `tensors` */
    uint32_t n_tensors_all;
    const struct atsi_tensor *const *tensors;
    uint64_t file_bytes;   /* all shards */
    uint64_t mapped_bytes; /* weights used in place in a mapping */
    uint64_t owned_bytes;  /* weights copied to the loader's own memory */
    /* n_tensors_all names: the type of each tensor as the file's format calls it, also of types
     * that atsi_type_info() does not know ("IQ2_XXS", "type 4711").  Such tensors occur only with
     * no_weights; their row_bytes is 0 when the format's block size is not known either. */
    const char *const *type_names;
};

struct atsi_loader_ops {
    uint32_t struct_size;
    /* 1 when the first bytes at `path` are this loader's format, 0 when not, or ATSI_E*. */
    int (*probe)(const struct atsi_host *host, const char *path, struct atsi_err *err);
    int (*open)(const struct atsi_host *host, const char *path,
                const struct atsi_load_params *params, struct atsi_loaded **out,
                struct atsi_err *err);
    void (*close)(struct atsi_loaded *m); /* NULL is allowed */
    /* [borrowed until close] */
    const struct atsi_loaded_info *(*info)(const struct atsi_loaded *m);
    /* Entry by position, 0..n_meta-1.  out->struct_size set by the caller. */
    int (*meta_at)(const struct atsi_loaded *m, uint32_t index, struct atsi_meta *out);
    /* Entry by key.  ATSI_ENOENT when absent (err is not written then). */
    int (*meta_find)(const struct atsi_loaded *m, const char *key, struct atsi_meta *out);
    /* The op graph.  ATSI_ENOTSUP for files without one, naming what the file is.
     * [borrowed until close] */
    int (*graph)(struct atsi_loaded *m, const struct atsi_graph **out, struct atsi_err *err);
    /* May be NULL.  [ptr, ptr + bytes), a file tensor's data, is not needed at present: memory that
     * only it keeps busy is given back.  The tensor stays readable and unchanged, from the file
     * again.  [any thread] */
    void (*release)(struct atsi_loaded *m, const void *ptr, size_t bytes);
};

#ifdef __cplusplus
}
#endif
#endif
