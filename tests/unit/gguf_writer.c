/* SPDX-License-Identifier: Apache-2.0
 * The writer behind the GGUF tests. */
#include "gguf_writer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "atsinfer/loader.h"

static void die(const char *what)
{
    (void)fprintf(stderr, "gguf_writer: %s\n", what);
    abort();
}

void gw_free(struct gw *w)
{
    free(w->p);
    free(w->labels);
    memset(w, 0, sizeof *w);
}

void gw_label(struct gw *w, const char *fmt, ...)
{
    va_list ap;
    if (w->n_labels == w->cap_labels) {
        w->cap_labels = w->cap_labels * 2 + 64;
        w->labels = realloc(w->labels, w->cap_labels * sizeof *w->labels);
        if (w->labels == NULL)
            die("out of memory");
    }
    va_start(ap, fmt);
    (void)vsnprintf(w->labels[w->n_labels].name, sizeof w->labels[0].name, fmt, ap);
    va_end(ap);
    w->labels[w->n_labels++].at = w->n;
}

size_t gw_at(const struct gw *w, const char *label)
{
    for (size_t i = 0; i < w->n_labels; i++)
        if (strcmp(w->labels[i].name, label) == 0)
            return w->labels[i].at;
    die(label);
    return 0;
}

void gw_bytes(struct gw *w, const void *p, size_t n)
{
    if (w->cap - w->n < n) {
        w->cap = w->cap * 2 + n + 256;
        w->p = realloc(w->p, w->cap);
        if (w->p == NULL)
            die("out of memory");
    }
    if (n > 0)
        memcpy(w->p + w->n, p, n);
    w->n += n;
}

void gw_int(struct gw *w, uint64_t v, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        uint8_t b = (uint8_t)(v >> (8 * i));
        gw_bytes(w, &b, 1);
    }
}

void gw_str(struct gw *w, const void *p, size_t n)
{
    gw_int(w, n, 8);
    gw_bytes(w, p, n);
}

void gw_header(struct gw *w, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    gw_label(w, "magic");
    gw_bytes(w, "GGUF", 4);
    gw_label(w, "version");
    gw_int(w, version, 4);
    gw_label(w, "n_tensors");
    gw_int(w, n_tensors, 8);
    gw_label(w, "n_kv");
    gw_int(w, n_kv, 8);
}

void gw_key(struct gw *w, const char *key, uint32_t type)
{
    gw_label(w, "kv/%s", key);
    gw_str(w, key, strlen(key));
    gw_label(w, "kv/%s/type", key);
    gw_int(w, type, 4);
    gw_label(w, "kv/%s/value", key);
}

static uint32_t bytes_of(uint32_t type)
{
    switch (type) {
    case ATSI_META_U8:
    case ATSI_META_I8:
    case ATSI_META_BOOL:
        return 1;
    case ATSI_META_U16:
    case ATSI_META_I16:
        return 2;
    case ATSI_META_U64:
    case ATSI_META_I64:
    case ATSI_META_F64:
        return 8;
    default:
        return 4;
    }
}

void gw_kv_int(struct gw *w, const char *key, uint32_t type, uint64_t v)
{
    gw_key(w, key, type);
    gw_int(w, v, bytes_of(type));
}

void gw_kv_f32(struct gw *w, const char *key, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    gw_kv_int(w, key, ATSI_META_F32, bits);
}

void gw_kv_str(struct gw *w, const char *key, const char *v)
{
    gw_key(w, key, ATSI_META_STRING);
    gw_str(w, v, strlen(v));
}

static void array_head(struct gw *w, const char *key, uint32_t elem_type, uint64_t n)
{
    gw_key(w, key, ATSI_META_ARRAY);
    gw_label(w, "kv/%s/elem_type", key);
    gw_int(w, elem_type, 4);
    gw_label(w, "kv/%s/count", key);
    gw_int(w, n, 8);
}

void gw_kv_array_str(struct gw *w, const char *key, const char *const *v, uint64_t n)
{
    array_head(w, key, ATSI_META_STRING, n);
    for (uint64_t i = 0; i < n; i++) {
        gw_label(w, "kv/%s/%u", key, (unsigned)i);
        gw_str(w, v[i], strlen(v[i]));
    }
}

void gw_kv_array_i32(struct gw *w, const char *key, const int32_t *v, uint64_t n)
{
    array_head(w, key, ATSI_META_I32, n);
    for (uint64_t i = 0; i < n; i++)
        gw_int(w, (uint32_t)v[i], 4);
}

void gw_tensor(struct gw *w, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
               uint64_t offset)
{
    gw_label(w, "tensor/%s", name);
    gw_str(w, name, strlen(name));
    gw_label(w, "tensor/%s/n_dims", name);
    gw_int(w, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++) {
        gw_label(w, "tensor/%s/ne%u", name, (unsigned)i);
        gw_int(w, ne[i], 8);
    }
    gw_label(w, "tensor/%s/type", name);
    gw_int(w, type, 4);
    gw_label(w, "tensor/%s/offset", name);
    gw_int(w, offset, 8);
}

void gw_pad(struct gw *w, size_t align)
{
    while (w->n % align != 0)
        gw_int(w, 0, 1);
}

void gw_fill(struct gw *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gw_int(w, (i * 37 + 11) & 0xff, 1);
}

void gw_patch(struct gw *w, const char *label, uint64_t v, uint32_t bytes)
{
    size_t at = gw_at(w, label);
    for (uint32_t i = 0; i < bytes; i++)
        w->p[at + i] = (uint8_t)(v >> (8 * i));
}

void gw_save(const struct gw *w, size_t n, const char *path)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL || (n > 0 && fwrite(w->p, 1, n, f) != n) || fclose(f) != 0)
        die("cannot write a test file");
}
