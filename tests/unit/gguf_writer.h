/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes GGUF files for tests, valid ones and, on purpose, others.
 *
 * Fields may be labelled ("kv/general.name/type"), so that a test can overwrite exactly one of them
 * in an otherwise valid file. */
#ifndef GGUF_WRITER_H
#define GGUF_WRITER_H

#include <stddef.h>
#include <stdint.h>

struct gw_label {
    char name[96];
    size_t at; /* offset of the field in the file */
};

/* Everything below aborts the test program when memory is out. */
struct gw {
    uint8_t *p;
    size_t n, cap;
    struct gw_label *labels;
    size_t n_labels, cap_labels;
};

void gw_free(struct gw *w);
void gw_label(struct gw *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Offset of a label; the test fails when there is none of that name. */
size_t gw_at(const struct gw *w, const char *label);

void gw_bytes(struct gw *w, const void *p, size_t n);
void gw_int(struct gw *w, uint64_t v, uint32_t bytes); /* little-endian */
void gw_str(struct gw *w, const void *p, size_t n);    /* u64 length, bytes */

/* magic, version, counts: labels "magic", "version", "n_tensors", "n_kv" */
void gw_header(struct gw *w, uint32_t version, uint64_t n_tensors, uint64_t n_kv);

/* A key and the type of its value: labels "kv/KEY", "kv/KEY/type", "kv/KEY/value". */
void gw_key(struct gw *w, const char *key, uint32_t type);
void gw_kv_int(struct gw *w, const char *key, uint32_t type, uint64_t v);
void gw_kv_f32(struct gw *w, const char *key, float v);
void gw_kv_str(struct gw *w, const char *key, const char *v);
/* Adds labels "kv/KEY/elem_type", "kv/KEY/count" and, for strings, "kv/KEY/0" and so on. */
void gw_kv_array_str(struct gw *w, const char *key, const char *const *v, uint64_t n);
void gw_kv_array_i32(struct gw *w, const char *key, const int32_t *v, uint64_t n);

/* labels "tensor/NAME", ".../n_dims", ".../ne0".., ".../type", ".../offset" */
void gw_tensor(struct gw *w, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
               uint64_t offset);
/* Zeros up to a multiple of `align`. */
void gw_pad(struct gw *w, size_t align);
/* n bytes that depend on their position. */
void gw_fill(struct gw *w, size_t n);

/* Overwrites a little-endian field. */
void gw_patch(struct gw *w, const char *label, uint64_t v, uint32_t bytes);
/* Writes the first n bytes to a file (replacing it). */
void gw_save(const struct gw *w, size_t n, const char *path);

#endif
