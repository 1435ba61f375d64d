/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the reading of a GGUF head: header, metadata, tensor directory.  Whatever is accepted is
 * then walked over completely, so that a pointer or length beyond the input cannot hide. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "loaders/gguf/head.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_bytes(const void *p, uint64_t n)
{
    const uint8_t *b = p;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += b[i];
    return sum;
}

static uint64_t walk_value(const struct atsi_meta *v)
{
    uint64_t sum = sum_bytes(v->key.ptr, v->key.len);
    if (v->type == ATSI_META_STRING)
        return sum + sum_bytes(v->str.ptr, v->str.len);
    if (v->type != ATSI_META_ARRAY)
        return sum;
    for (uint64_t i = 0; i < v->count; i++) {
        struct atsi_meta e = {.type = v->elem_type};
        if (v->elem_type == ATSI_META_STRING) {
            sum += sum_bytes(v->strs[i].ptr, v->strs[i].len);
        } else {
            gguf_head_scalar(v->data, i, &e);
            sum += e.v.u;
        }
    }
    return sum;
}

/* The promises of gguf_directory_check(). */
static void check_ranges(const struct gguf_head *head, uint64_t size)
{
    for (uint32_t i = 0; i < head->n_records; i++) {
        const struct gguf_record *r = &head->records[i];
        if (head->data_start + r->offset + r->bytes > size || r->name_len == 0 ||
            r->name_off + r->name_len > head->n_bytes)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct gguf_cursor c;
    struct gguf_head head;
    volatile uint64_t sink = 0;
    int st;
    gguf_cursor_open_mem(&c, data, size);
    st = gguf_head_parse(&c, &head, &err);
    if (st != ATSI_OK) {
        if (err.msg[0] == '\0' || strlen(err.msg) >= sizeof err.msg)
            abort();
        return 0;
    }
    if (gguf_directory_check(&head, size, &err) == ATSI_OK)
        check_ranges(&head, size);
    for (uint32_t i = 0; i < head.n_kv; i++) {
        struct atsi_meta v = {.struct_size = sizeof v};
        if (gguf_head_meta(&head, i, &v) != ATSI_OK ||
            gguf_index_find(&head.key_index, v.key.ptr, v.key.len) != (int64_t)i)
            abort();
        sink = sink + walk_value(&v);
    }
    gguf_head_close(&head);
    return 0;
}
