/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of a GGUF file before its data: header, metadata entries, tensor directory.
 *
 *     "GGUF" | version u32 | n_tensors u64 | n_kv u64 | n_kv entries | n_tensors records | padding
 *     entry:  key string | value type u32 | value
 *     record: name string | n_dims u32 | n_dims x u64 | type u32 | offset u64
 */
#ifndef GGUF_HEAD_H
#define GGUF_HEAD_H

#include <stdbool.h>

#include "atsinfer/loader.h"
#include "cursor.h"
#include "index.h"

/* A metadata entry: where its parts are in the head bytes. */
struct gguf_kv {
    uint64_t key_off, key_len;
    uint32_t type, elem_type; /* enum atsi_meta_type */
    uint64_t count;           /* elements of an array, bytes of a string */
    uint64_t value_off;       /* first byte of the value (elements, characters) */
    struct atsi_str *strs;    /* of a string array; [owned] */
};

struct gguf_record {
    uint64_t name_off; /* in the head bytes */
    uint32_t name_len; /* 1 .. 63 */
    uint32_t n_dims, type;
    uint64_t ne[4];  /* missing dimensions are 1 */
    uint64_t offset; /* from data_start */
    /* set by gguf_directory_check() */
    bool sized; /* the type's block size is known */
    uint64_t row_bytes, bytes;
};

struct gguf_head {
    uint32_t version;
    uint32_t n_kv, n_records;
    const uint8_t *bytes; /* of the file, 0 .. n_bytes-1; see gguf_head_parse() */
    uint8_t *owned;       /* the same when they are ours, else NULL */
    uint64_t n_bytes;
    struct gguf_kv *kv;
    struct atsi_str *keys; /* n_kv, pointing into `bytes` */
    struct gguf_index key_index;
    struct gguf_record *records;
    uint64_t alignment;
    uint64_t data_start; /* 0 when there are no records */
};

/* Reads and checks everything but the tensors' ranges.  Takes the buffer of an fd cursor over;
 * borrows the memory of a memory cursor until close.  On failure `head` is closed. */
int gguf_head_parse(struct gguf_cursor *c, struct gguf_head *head, struct atsi_err *err);
void gguf_head_close(struct gguf_head *head);
/* Sizes of all records, and whether their ranges are aligned, inside a file of file_bytes and
 * apart from each other. */
int gguf_directory_check(struct gguf_head *head, uint64_t file_bytes, struct atsi_err *err);
/* Reads the records at the position of c (used by gguf_head_parse). */
int gguf_directory_parse(struct gguf_cursor *c, struct gguf_head *head, uint64_t n_records,
                         struct atsi_err *err);
/* Fills *out (up to out->struct_size bytes) from entry `index`. */
int gguf_head_meta(const struct gguf_head *head, uint32_t index, struct atsi_meta *out);
/* Fills m->v with element `index` of packed elements of type m->type (a number or bool). */
void gguf_head_scalar(const void *elems, uint64_t index, struct atsi_meta *m);
/* The vector with room for one more element (it grows with what was really read), or NULL with the
 * old one intact when memory is out. */
void *gguf_vector_grow(void *vec, uint32_t used, uint32_t *cap, size_t elem_bytes);

#endif
