/* SPDX-License-Identifier: Apache-2.0
 *
 * Header and metadata of one GGUF file: read twice in the same order.  The first pass walks over
 * everything with the cursor and keeps offsets; the second, when the bytes no longer move, turns
 * them into pointers, finds duplicates and interprets general.alignment. */
#include "head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

#define KV_MIN_BYTES 14     /* length 8, key 1, type 4, value 1 */
#define RECORD_MIN_BYTES 25 /* length 8, name 1, n_dims 4, type 4, offset 8 */
#define KEY_MAX_BYTES 65535 /* the specification's limit */
#define STRING_MAX_BYTES (UINT64_C(1) << 30)
#define ARRAY_MAX_COUNT (UINT64_C(1) << 30)
#define DEFAULT_ALIGNMENT 32
#define MAX_ALIGNMENT (UINT64_C(1) << 20)

void *gguf_vector_grow(void *vec, uint32_t used, uint32_t *cap, size_t elem_bytes)
{
    uint32_t next = *cap < 64 ? 64 : *cap * 2;
    void *p;
    if (used < *cap)
        return vec;
    if (*cap > UINT32_MAX / 2)
        return NULL;
    p = realloc(vec, next * elem_bytes);
    if (p != NULL)
        *cap = next;
    return p;
}

/* ---------------------------------------------------------------- first pass */
static int check_version(uint32_t version, struct atsi_err *err)
{
    if (version == 2 || version == 3)
        return ATSI_OK;
    if ((version & 0xffffu) == 0 && version != 0)
        return atsi_fail(
            err, ATSI_ENOTSUP,
            "a big-endian file (version reads as 0x%08" PRIx32
            "): only little-endian files are supported; convert it with the byte order "
            "of this machine",
            version);
    if (version == 1)
        return atsi_fail(err, ATSI_ENOTSUP,
                         "GGUF version 1 (32-bit lengths, 2023) is not supported, only 2 and 3; "
                         "convert the model again");
    return atsi_fail(err, ATSI_ENOTSUP, "GGUF version %" PRIu32 " is not supported, only 2 and 3",
                     version);
}

static int parse_fixed(struct gguf_cursor *c, struct gguf_head *head, uint64_t *n_records,
                       uint64_t *n_kv, struct atsi_err *err)
{
    char shown[GGUF_SHOW];
    int st = gguf_cursor_need(c, 8, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "header");
    if (memcmp(c->mem, "GGUF", 4) != 0)
        return atsi_fail(err, ATSI_EFORMAT, "not a GGUF file: it begins with \"%s\"",
                         gguf_show(c->mem, 4, shown));
    c->pos = 4;
    st = gguf_cursor_u32(c, &head->version, err);
    if (st == ATSI_OK)
        st = check_version(head->version, err);
    if (st != ATSI_OK)
        return st;
    st = gguf_cursor_u64(c, n_records, err);
    if (st == ATSI_OK)
        st = gguf_cursor_u64(c, n_kv, err);
    return st == ATSI_OK ? st : gguf_context(err, st, "header");
}

/* Counts against the bytes there are, before anything is allocated. */
static int check_counts(const struct gguf_cursor *c, uint64_t n_records, uint64_t n_kv,
                        struct atsi_err *err)
{
    int st = gguf_cursor_check_count(c, n_kv, KV_MIN_BYTES, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "header: metadata entries");
    st = gguf_cursor_check_count(c, n_records, RECORD_MIN_BYTES, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "header: tensors");
    if (n_kv > INT32_MAX || n_records > INT32_MAX)
        return atsi_fail(err, ATSI_EFORMAT,
                         "header: %" PRIu64 " metadata entries and %" PRIu64
                         " tensors, at most %d of each are accepted",
                         n_kv, n_records, INT32_MAX);
    return ATSI_OK;
}

static int parse_key(struct gguf_cursor *c, uint64_t *off, uint64_t *len, struct atsi_err *err)
{
    char shown[GGUF_SHOW];
    uint64_t bad = 0;
    int st = gguf_cursor_string(c, KEY_MAX_BYTES, off, len, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "key");
    if (*len == 0)
        return atsi_fail(err, ATSI_EFORMAT, "the key is empty");
    if (!gguf_is_printable(c->mem + *off, *len, &bad))
        return atsi_fail(err, ATSI_EFORMAT,
                         "key \"%s\" has the byte 0x%02x at position %" PRIu64
                         "; keys are printable ASCII",
                         gguf_show(c->mem + *off, *len, shown), c->mem[*off + bad], bad);
    return ATSI_OK;
}

static int parse_array(struct gguf_cursor *c, struct gguf_kv *kv, struct atsi_err *err)
{
    uint32_t elem_bytes;
    int st = gguf_cursor_u32(c, &kv->elem_type, err);
    if (st == ATSI_OK)
        st = gguf_cursor_u64(c, &kv->count, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "array");
    if (kv->elem_type == ATSI_META_ARRAY)
        return atsi_fail(err, ATSI_EFORMAT, "an array of arrays is not supported");
    if (gguf_value_type_name(kv->elem_type) == NULL)
        return atsi_fail(err, ATSI_EFORMAT, "array element type %" PRIu32 " is not in 0..12",
                         kv->elem_type);
    if (kv->count > ARRAY_MAX_COUNT)
        return atsi_fail(err, ATSI_EFORMAT,
                         "an array of %" PRIu64 " elements, at most %" PRIu64 " are accepted",
                         kv->count, ARRAY_MAX_COUNT);
    elem_bytes = gguf_value_type_bytes(kv->elem_type);
    st = gguf_cursor_check_count(c, kv->count, elem_bytes != 0 ? elem_bytes : 8, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "array of %s", gguf_value_type_name(kv->elem_type));
    kv->value_off = c->pos;
    if (elem_bytes != 0)
        return gguf_cursor_skip(c, kv->count * elem_bytes, err); /* < 2^33: checked above */
    for (uint64_t i = 0; i < kv->count; i++) {
        uint64_t off, len;
        st = gguf_cursor_string(c, STRING_MAX_BYTES, &off, &len, err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "element %" PRIu64 " of %" PRIu64, i, kv->count);
    }
    return ATSI_OK;
}

static int parse_value(struct gguf_cursor *c, struct gguf_kv *kv, struct atsi_err *err)
{
    int st = gguf_cursor_u32(c, &kv->type, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "value type");
    if (gguf_value_type_name(kv->type) == NULL)
        return atsi_fail(err, ATSI_EFORMAT, "value type %" PRIu32 " is not in 0..12", kv->type);
    if (kv->type == ATSI_META_ARRAY)
        return parse_array(c, kv, err);
    if (kv->type == ATSI_META_STRING)
        return gguf_cursor_string(c, STRING_MAX_BYTES, &kv->value_off, &kv->count, err);
    kv->value_off = c->pos;
    return gguf_cursor_skip(c, gguf_value_type_bytes(kv->type), err);
}

static int parse_entries(struct gguf_cursor *c, struct gguf_head *head, uint64_t n_kv,
                         struct atsi_err *err)
{
    uint32_t cap = 0;
    for (uint32_t i = 0; i < n_kv; i++) {
        struct gguf_kv kv = {0}, *grown = gguf_vector_grow(head->kv, i, &cap, sizeof kv);
        char shown[GGUF_SHOW];
        int st;
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "no memory for metadata entry %" PRIu32, i);
        head->kv = grown;
        st = parse_key(c, &kv.key_off, &kv.key_len, err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "metadata entry %" PRIu32 " of %" PRIu64, i, n_kv);
        st = parse_value(c, &kv, err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "key '%s'",
                                gguf_show(c->mem + kv.key_off, kv.key_len, shown));
        grown[i] = kv;
        head->n_kv = i + 1;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- second pass */
/* Pointers to the strings of an array whose bytes were checked in the first pass. */
static int collect_strings(struct gguf_head *head, struct gguf_kv *kv, struct atsi_err *err)
{
    struct gguf_cursor c;
    gguf_cursor_open_mem(&c, head->bytes, head->n_bytes);
    c.pos = kv->value_off;
    kv->strs = malloc((size_t)(kv->count != 0 ? kv->count : 1) * sizeof *kv->strs);
    if (kv->strs == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for %" PRIu64 " strings", kv->count);
    for (uint64_t i = 0; i < kv->count; i++) {
        uint64_t off = 0, len = 0;
        int st = gguf_cursor_string(&c, STRING_MAX_BYTES, &off, &len, err);
        if (st != ATSI_OK)
            return st;
        kv->strs[i].ptr = (const char *)head->bytes + off;
        kv->strs[i].len = len;
    }
    return ATSI_OK;
}

/* Takes the bytes from the cursor, cut to what was used. */
static void take_bytes(struct gguf_cursor *c, struct gguf_head *head)
{
    head->n_bytes = c->pos;
    head->bytes = c->mem;
    if (c->owned != NULL) {
        uint8_t *p = realloc(c->owned, (size_t)c->pos);
        head->owned = p != NULL ? p : c->owned; /* shrinking may fail: keep the larger one */
        head->bytes = head->owned;
        c->owned = NULL;
        /* cppcheck-suppress memleak; head owns p */
    }
}

static int index_keys(struct gguf_head *head, struct atsi_err *err)
{
    char shown[GGUF_SHOW];
    uint32_t dup[2];
    int st;
    head->keys = malloc((size_t)(head->n_kv + 1) * sizeof *head->keys);
    if (head->keys == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for %" PRIu32 " keys", head->n_kv);
    for (uint32_t i = 0; i < head->n_kv; i++) {
        head->keys[i].ptr = (const char *)head->bytes + head->kv[i].key_off;
        head->keys[i].len = head->kv[i].key_len;
    }
    st = gguf_index_open(&head->key_index, head->keys, head->n_kv, head->n_kv, dup);
    if (st == ATSI_EINVAL)
        return atsi_fail(err, ATSI_EFORMAT,
                         "key '%s' occurs twice, as metadata entries %" PRIu32 " and %" PRIu32,
                         gguf_show(head->keys[dup[0]].ptr, head->keys[dup[0]].len, shown), dup[0],
                         dup[1]);
    return st == ATSI_OK ? st : atsi_fail(err, st, "no memory for the index of the keys");
}

static int read_alignment(struct gguf_head *head, struct atsi_err *err)
{
    static const char key[] = "general.alignment";
    struct atsi_meta v = {.struct_size = sizeof v};
    int64_t at = gguf_index_find(&head->key_index, key, sizeof key - 1);
    head->alignment = DEFAULT_ALIGNMENT;
    if (at < 0)
        return ATSI_OK;
    (void)gguf_head_meta(head, (uint32_t)at, &v);
    if (v.type != ATSI_META_U32)
        return atsi_fail(err, ATSI_EFORMAT, "key '%s': type %s, but it has to be u32", key,
                         gguf_value_type_name(v.type));
    if (v.v.u == 0 || (v.v.u & (v.v.u - 1)) != 0 || v.v.u > MAX_ALIGNMENT)
        return atsi_fail(err, ATSI_EFORMAT,
                         "key '%s': %" PRIu64 " is not a power of two in 1..%" PRIu64, key, v.v.u,
                         MAX_ALIGNMENT);
    head->alignment = v.v.u;
    return ATSI_OK;
}

static int interpret(struct gguf_cursor *c, struct gguf_head *head, struct atsi_err *err)
{
    int st;
    take_bytes(c, head);
    for (uint32_t i = 0; i < head->n_kv; i++) {
        struct gguf_kv *kv = &head->kv[i];
        if (kv->type == ATSI_META_ARRAY && kv->elem_type == ATSI_META_STRING) {
            st = collect_strings(head, kv, err);
            if (st != ATSI_OK)
                return st;
        }
    }
    st = index_keys(head, err);
    if (st == ATSI_OK)
        st = read_alignment(head, err);
    if (st == ATSI_OK && head->n_records > 0) /* n_bytes <= GGUF_HEAD_MAX_BYTES: cannot overflow */
        head->data_start = (head->n_bytes + head->alignment - 1) & ~(head->alignment - 1);
    return st;
}

int gguf_head_parse(struct gguf_cursor *c, struct gguf_head *head, struct atsi_err *err)
{
    uint64_t n_records = 0, n_kv = 0;
    int st;
    memset(head, 0, sizeof *head);
    st = parse_fixed(c, head, &n_records, &n_kv, err);
    if (st == ATSI_OK)
        st = check_counts(c, n_records, n_kv, err);
    if (st == ATSI_OK)
        st = parse_entries(c, head, n_kv, err);
    if (st == ATSI_OK)
        st = gguf_directory_parse(c, head, n_records, err);
    if (st == ATSI_OK)
        st = interpret(c, head, err);
    if (st != ATSI_OK)
        gguf_head_close(head);
    return st;
}

void gguf_head_close(struct gguf_head *head)
{
    for (uint32_t i = 0; i < head->n_kv; i++)
        free(head->kv[i].strs);
    free(head->kv);
    free(head->keys);
    gguf_index_close(&head->key_index);
    free(head->records);
    free(head->owned);
    memset(head, 0, sizeof *head);
}

/* ---------------------------------------------------------------- values */
static int64_t sign_extend(uint64_t v, uint32_t bytes)
{
    uint64_t sign = UINT64_C(1) << (8 * bytes - 1);
    return (int64_t)((v ^ sign) - sign);
}

void gguf_head_scalar(const void *elems, uint64_t index, struct atsi_meta *m)
{
    uint32_t bytes = gguf_value_type_bytes(m->type);
    uint64_t raw = gguf_le((const uint8_t *)elems + index * bytes, bytes);
    uint32_t low = (uint32_t)raw;
    float f;
    switch (m->type) {
    case ATSI_META_I8:
    case ATSI_META_I16:
    case ATSI_META_I32:
    case ATSI_META_I64:
        m->v.i = sign_extend(raw, bytes);
        break;
    case ATSI_META_F32:
        memcpy(&f, &low, sizeof f);
        m->v.f = f;
        break;
    case ATSI_META_F64:
        memcpy(&m->v.f, &raw, sizeof m->v.f);
        break;
    case ATSI_META_BOOL: /* any non-zero byte is true, as in the reference implementation */
        m->v.u = raw != 0;
        break;
    default:
        m->v.u = raw;
        break;
    }
}

int gguf_head_meta(const struct gguf_head *head, uint32_t index, struct atsi_meta *out)
{
    struct atsi_meta m = {0};
    const struct gguf_kv *kv;
    uint32_t size = out->struct_size;
    if (index >= head->n_kv)
        return ATSI_EINVAL;
    kv = &head->kv[index];
    m.type = kv->type;
    m.key = head->keys[index];
    if (kv->type == ATSI_META_ARRAY) {
        m.elem_type = kv->elem_type;
        m.count = kv->count;
        m.strs = kv->strs;
        m.data = kv->strs != NULL ? NULL : head->bytes + kv->value_off;
    } else if (kv->type == ATSI_META_STRING) {
        m.str.ptr = (const char *)head->bytes + kv->value_off;
        m.str.len = kv->count;
    } else {
        gguf_head_scalar(head->bytes + kv->value_off, 0, &m);
    }
    m.struct_size = size;
    memcpy(out, &m, size < sizeof m ? size : sizeof m);
    return ATSI_OK;
}
