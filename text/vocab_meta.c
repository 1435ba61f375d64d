/* SPDX-License-Identifier: Apache-2.0
 *
 * Typed reading of metadata keys: what is there is checked, what is absent is not an error here.
 */
#include "text/vocab_meta.h"

#include <string.h>

static const char *type_name(uint32_t type)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof names / sizeof names[0] ? names[type] : "an unknown type";
}

/* Bytes of one packed element; 0 for types without a fixed size. */
static size_t type_bytes(uint32_t type)
{
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static bool is_signed(uint32_t type)
{
    return type == ATSI_META_I8 || type == ATSI_META_I16 || type == ATSI_META_I32 ||
           type == ATSI_META_I64;
}

static bool is_float(uint32_t type)
{
    return type == ATSI_META_F32 || type == ATSI_META_F64;
}

static bool is_whole(uint32_t type)
{
    return type_bytes(type) != 0 && !is_float(type) && type != ATSI_META_BOOL;
}

static int find(const struct atsi_meta_source *src, const char *key, struct atsi_meta *out,
                struct atsi_err *err)
{
    int rc;
    *out = (struct atsi_meta){.struct_size = sizeof *out};
    rc = src->find(src->ctx, key, out);
    if (rc == ATSI_ENOENT)
        return 0;
    return rc == ATSI_OK ? 1 : atsi_fail(err, rc, "%s: the metadata cannot be read", key);
}

static int wrong_type(const char *key, const char *want, const struct atsi_meta *m,
                      struct atsi_err *err)
{
    if (m->type == ATSI_META_ARRAY)
        return atsi_fail(err, ATSI_EFORMAT, "%s: %s expected, the file has an array of %s", key,
                         want, type_name(m->elem_type));
    return atsi_fail(err, ATSI_EFORMAT, "%s: %s expected, the file has %s", key, want,
                     type_name(m->type));
}

int atsi_meta_name(const struct atsi_meta_source *src, const char *key, char out[64],
                   struct atsi_err *err)
{
    struct atsi_meta m;
    int rc = find(src, key, &m, err);
    if (rc <= 0)
        return rc;
    if (m.type != ATSI_META_STRING)
        return wrong_type(key, "a string", &m, err);
    if (m.str.len > 63)
        return atsi_fail(err, ATSI_EFORMAT, "%s: a name of at most 63 bytes expected, it has %llu",
                         key, (unsigned long long)m.str.len);
    for (uint64_t i = 0; i < m.str.len; i++)
        if ((unsigned char)m.str.ptr[i] < 0x20 || (unsigned char)m.str.ptr[i] == 0x7F)
            return atsi_fail(err, ATSI_EFORMAT, "%s: control character 0x%02x in a name", key,
                             (unsigned)(unsigned char)m.str.ptr[i]);
    if (m.str.len > 0)
        memcpy(out, m.str.ptr, m.str.len);
    out[m.str.len] = '\0';
    return 1;
}

int atsi_meta_int(const struct atsi_meta_source *src, const char *key, int64_t *out,
                  struct atsi_err *err)
{
    struct atsi_meta m;
    int rc = find(src, key, &m, err);
    if (rc <= 0)
        return rc;
    if (!is_whole(m.type))
        return wrong_type(key, "a whole number", &m, err);
    if (is_signed(m.type))
        *out = m.v.i;
    else
        *out = m.v.u > INT64_MAX ? INT64_MAX : (int64_t)m.v.u;
    return 1;
}

int atsi_meta_bool(const struct atsi_meta_source *src, const char *key, bool *out,
                   struct atsi_err *err)
{
    struct atsi_meta m;
    int rc = find(src, key, &m, err);
    if (rc <= 0)
        return rc;
    if (m.type != ATSI_META_BOOL)
        return wrong_type(key, "bool", &m, err);
    *out = m.v.u != 0;
    return 1;
}

int atsi_meta_texts(const struct atsi_meta_source *src, const char *key, struct atsi_meta *out,
                    struct atsi_err *err)
{
    int rc = find(src, key, out, err);
    if (rc <= 0)
        return rc;
    if (out->type != ATSI_META_ARRAY || out->elem_type != ATSI_META_STRING)
        return wrong_type(key, "an array of strings", out, err);
    return 1;
}

int atsi_meta_numbers(const struct atsi_meta_source *src, const char *key, bool whole,
                      struct atsi_meta *out, struct atsi_err *err)
{
    int rc = find(src, key, out, err);
    if (rc <= 0)
        return rc;
    if (out->type != ATSI_META_ARRAY ||
        !(is_whole(out->elem_type) || (!whole && is_float(out->elem_type))))
        return wrong_type(key, whole ? "an array of whole numbers" : "an array of numbers", out,
                          err);
    return 1;
}

double atsi_meta_number(const struct atsi_meta *array, uint64_t i)
{
    size_t bytes = type_bytes(array->elem_type);
    uint64_t raw = 0;
    memcpy(&raw, (const char *)array->data + i * bytes, bytes); /* little-endian, as this host */
    if (array->elem_type == ATSI_META_F32) {
        uint32_t low = (uint32_t)raw;
        float f;
        memcpy(&f, &low, sizeof f);
        return f;
    }
    if (array->elem_type == ATSI_META_F64) {
        double d;
        memcpy(&d, &raw, sizeof d);
        return d;
    }
    if (is_signed(array->elem_type)) { /* move the sign bit up, then back with its copies */
        unsigned shift = (unsigned)(64 - 8 * bytes);
        return (double)((int64_t)(raw << shift) >> shift);
    }
    return (double)raw;
}
