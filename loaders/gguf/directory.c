/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensor directory: shapes, sizes and ranges of what the data section holds.
 *
 * Rules beyond the reference implementation's are marked; it demands tensors in file order without
 * gaps, here any order is fine as long as ranges are aligned, inside the file and disjoint. */
#include "head.h"

#include <inttypes.h>
#include <stdlib.h>

#include "atsinfer/quant.h"
#include "text.h"
#include "types.h"

#define NAME_MAX_BYTES 63 /* the reference stores names in 64 bytes */

static int parse_name(struct gguf_cursor *c, struct gguf_record *r, struct atsi_err *err)
{
    char shown[GGUF_SHOW];
    uint64_t len = 0, bad = 0;
    int st = gguf_cursor_string(c, UINT64_MAX, &r->name_off, &len, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "name");
    if (len == 0)
        return atsi_fail(err, ATSI_EFORMAT, "the name is empty");
    if (len > NAME_MAX_BYTES)
        return atsi_fail(err, ATSI_EFORMAT,
                         "the name \"%s\" has %" PRIu64 " bytes, at most %d are allowed",
                         gguf_show(c->mem + r->name_off, len, shown), len, NAME_MAX_BYTES);
    if (!gguf_is_printable(c->mem + r->name_off, len, &bad))
        return atsi_fail(err, ATSI_EFORMAT,
                         "the name \"%s\" has the byte 0x%02x at position %" PRIu64
                         "; names are printable ASCII",
                         gguf_show(c->mem + r->name_off, len, shown), c->mem[r->name_off + bad],
                         bad);
    r->name_len = (uint32_t)len;
    return ATSI_OK;
}

static int parse_shape(struct gguf_cursor *c, struct gguf_record *r, struct atsi_err *err)
{
    uint64_t elems = 1;
    int st = gguf_cursor_u32(c, &r->n_dims, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "number of dimensions");
    if (r->n_dims > 4)
        return atsi_fail(err, ATSI_EFORMAT, "%" PRIu32 " dimensions, at most 4 are possible",
                         r->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        r->ne[i] = 1;
        if (i >= r->n_dims)
            continue;
        st = gguf_cursor_u64(c, &r->ne[i], err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "dimension %" PRIu32, i);
        if (r->ne[i] > INT64_MAX)
            return atsi_fail(err, ATSI_EFORMAT,
                             "dimension %" PRIu32 " is %" PRIu64 ", above 2^63-1", i, r->ne[i]);
        if (__builtin_mul_overflow(elems, r->ne[i], &elems) || elems > INT64_MAX)
            return atsi_fail(err, ATSI_EFORMAT,
                             "the number of elements overflows 2^63-1 at dimension %" PRIu32
                             " of %" PRIu64,
                             i, r->ne[i]);
    }
    return ATSI_OK;
}

static int parse_record(struct gguf_cursor *c, struct gguf_record *r, struct atsi_err *err)
{
    int st = parse_shape(c, r, err);
    if (st != ATSI_OK)
        return st;
    st = gguf_cursor_u32(c, &r->type, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "type");
    st = gguf_cursor_u64(c, &r->offset, err);
    return st == ATSI_OK ? st : gguf_context(err, st, "offset");
}

int gguf_directory_parse(struct gguf_cursor *c, struct gguf_head *head, uint64_t n_records,
                         struct atsi_err *err)
{
    uint32_t cap = 0;
    for (uint32_t i = 0; i < n_records; i++) {
        struct gguf_record r = {0};
        char shown[GGUF_SHOW];
        void *grown = gguf_vector_grow(head->records, i, &cap, sizeof r);
        int st;
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "no memory for tensor %" PRIu32, i);
        head->records = grown;
        st = parse_name(c, &r, err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "tensor %" PRIu32 " of %" PRIu64, i, n_records);
        st = parse_record(c, &r, err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "tensor '%s'",
                                gguf_show(c->mem + r.name_off, r.name_len, shown));
        head->records[i] = r;
        head->n_records = i + 1;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- sizes and ranges */
struct block {
    uint64_t elems, bytes;
};

static struct block block_of(uint32_t type)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    const struct gguf_type *t = gguf_type_find(type);
    if (ti != NULL)
        return (struct block){ti->block_elems, ti->block_bytes};
    if (t != NULL)
        return (struct block){t->block_elems, t->block_bytes};
    return (struct block){0, 0};
}

/* row_bytes = ne0 / block elements * block bytes; bytes = row_bytes * ne1 * ne2 * ne3. */
static int compute_size(struct gguf_record *r, struct atsi_err *err)
{
    struct block b = block_of(r->type);
    char name[24];
    if (b.elems == 0) /* a type without known size: shown by inspect, refused for use */
        return ATSI_OK;
    if (r->ne[0] % b.elems != 0)
        return atsi_fail(err, ATSI_EFORMAT,
                         "rows of %" PRIu64 " elements are no multiple of the %" PRIu64
                         " of a %s block",
                         r->ne[0], b.elems, gguf_type_name(r->type, name));
    if (__builtin_mul_overflow(r->ne[0] / b.elems, b.bytes, &r->row_bytes))
        goto overflow;
    r->bytes = r->row_bytes;
    for (int i = 1; i < 4; i++)
        if (__builtin_mul_overflow(r->bytes, r->ne[i], &r->bytes))
            goto overflow;
    if (r->bytes > SIZE_MAX)
        goto overflow;
    r->sized = true;
    return ATSI_OK;
overflow:
    return atsi_fail(err, ATSI_EFORMAT,
                     "%" PRIu64 " x %" PRIu64 " x %" PRIu64 " x %" PRIu64
                     " elements of %s overflow 64 bits of size",
                     r->ne[0], r->ne[1], r->ne[2], r->ne[3], gguf_type_name(r->type, name));
}

/* What kernels need of the address when the bytes are used in place: f32 and i32 are loaded as 4
 * bytes, the scales of blocks as 2.  Not a rule of the format: a file may set general.alignment to
 * 1, but none that works elsewhere does. */
static uint64_t kernel_alignment(uint32_t type)
{
    return type == ATSI_TYPE_F32 || type == ATSI_TYPE_I32 ? 4 : 2;
}

static int check_range(const struct gguf_head *head, const struct gguf_record *r,
                       uint64_t file_bytes, struct atsi_err *err)
{
    uint64_t start, end, need = kernel_alignment(r->type);
    char name[24];
    if (r->offset % head->alignment != 0)
        return atsi_fail(err, ATSI_EFORMAT,
                         "offset %" PRIu64 " is no multiple of the alignment %" PRIu64, r->offset,
                         head->alignment);
    if (__builtin_add_overflow(head->data_start, r->offset, &start) ||
        __builtin_add_overflow(start, r->bytes, &end))
        return atsi_fail(err, ATSI_EFORMAT,
                         "offset %" PRIu64 " and size %" PRIu64 " overflow 64 bits", r->offset,
                         r->bytes);
    if (end > file_bytes)
        return atsi_fail(err, ATSI_EFORMAT,
                         "its %" PRIu64 " bytes end at byte %" PRIu64
                         " of the file, which has only %" PRIu64 " (truncated file?)",
                         r->bytes, end, file_bytes);
    if (atsi_type_info(r->type) != NULL && start % need != 0)
        return atsi_fail(err, ATSI_EFORMAT,
                         "its data begin at byte %" PRIu64
                         " of the file, but %s needs a multiple of "
                         "%" PRIu64,
                         start, gguf_type_name(r->type, name), need);
    return ATSI_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct gguf_record *x = *(const struct gguf_record *const *)a;
    const struct gguf_record *y = *(const struct gguf_record *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

static int check_overlap(const struct gguf_head *head, struct atsi_err *err)
{
    const struct gguf_record **order = malloc((size_t)(head->n_records + 1) * sizeof(void *));
    char a[GGUF_SHOW], b[GGUF_SHOW];
    int st = ATSI_OK;
    if (order == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory to sort %" PRIu32 " tensors",
                         head->n_records);
    for (uint32_t i = 0; i < head->n_records; i++)
        order[i] = &head->records[i];
    qsort(order, head->n_records, sizeof(void *), by_offset);
    for (uint32_t i = 1; i < head->n_records && st == ATSI_OK; i++) {
        const struct gguf_record *x = order[i - 1], *y = order[i];
        if (x->offset + x->bytes > y->offset) /* within the file: cannot overflow */
            st = atsi_fail(err, ATSI_EFORMAT,
                           "tensor '%s' begins at offset %" PRIu64
                           ", inside tensor '%s' at %" PRIu64 "..%" PRIu64,
                           gguf_show(head->bytes + y->name_off, y->name_len, a), y->offset,
                           gguf_show(head->bytes + x->name_off, x->name_len, b), x->offset,
                           x->offset + x->bytes);
    }
    free(order);
    return st;
}

int gguf_directory_check(struct gguf_head *head, uint64_t file_bytes, struct atsi_err *err)
{
    if (head->n_records > 0 && head->data_start > file_bytes)
        return atsi_fail(err, ATSI_EFORMAT,
                         "the data of the tensors begin at byte %" PRIu64
                         " of the file, which has only %" PRIu64 " (truncated file?)",
                         head->data_start, file_bytes);
    for (uint32_t i = 0; i < head->n_records; i++) {
        struct gguf_record *r = &head->records[i];
        char shown[GGUF_SHOW];
        int st = compute_size(r, err);
        if (st == ATSI_OK)
            st = check_range(head, r, file_bytes, err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "tensor '%s'",
                                gguf_show(head->bytes + r->name_off, r->name_len, shown));
    }
    return check_overlap(head, err);
}
