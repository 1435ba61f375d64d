/* SPDX-License-Identifier: Apache-2.0
 *
 * What graph builders ask of an open model: metadata with types and ranges checked, tensors by
 * name, constants, and the place of the graph. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loaded.h"
#include "text.h"

/* ---------------------------------------------------------------- metadata */
const char *gguf_arch(const struct atsi_loaded *m)
{
    return m->arch;
}

/* The key in full: a leading dot stands for the architecture. */
static const char *full_key(const struct atsi_loaded *m, const char *key, char buf[192])
{
    if (key[0] != '.')
        return key;
    (void)snprintf(buf, 192, "%s%s", m->arch, key);
    return buf;
}

int gguf_meta_find(const struct atsi_loaded *m, const char *key, struct atsi_meta *out)
{
    const struct gguf_head *head = &m->shards[0].head;
    char buf[192];
    const char *full = full_key(m, key, buf);
    int64_t at = gguf_index_find(&head->key_index, full, strlen(full));
    if (at < 0)
        return ATSI_ENOENT;
    out->struct_size = sizeof *out;
    return gguf_head_meta(head, (uint32_t)at, out);
}

/* 1: found; 0: absent and optional; negative: absent and required. */
static int look_up(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                   struct atsi_meta *v, struct atsi_err *err)
{
    char buf[192];
    memset(v, 0, sizeof *v);
    if (gguf_meta_find(m, key, v) == ATSI_OK)
        return 1;
    if (need == GGUF_OPTIONAL)
        return 0;
    return atsi_fail(err, ATSI_EFORMAT, "key '%s' is missing", full_key(m, key, buf));
}

/* "u32" or "array of string". */
static const char *type_text(const struct atsi_meta *v, char buf[32])
{
    if (v->type != ATSI_META_ARRAY)
        return gguf_value_type_name(v->type);
    (void)snprintf(buf, 32, "array of %s", gguf_value_type_name(v->elem_type));
    return buf;
}

static int wrong_type(const struct atsi_loaded *m, const char *key, const struct atsi_meta *v,
                      const char *wanted, struct atsi_err *err)
{
    char buf[192], type[32];
    return atsi_fail(err, ATSI_EFORMAT, "key '%s': type %s, but it has to be %s",
                     full_key(m, key, buf), type_text(v, type), wanted);
}

static bool is_signed(uint32_t type)
{
    return type == ATSI_META_I8 || type == ATSI_META_I16 || type == ATSI_META_I32 ||
           type == ATSI_META_I64;
}

static bool is_integer(uint32_t type)
{
    return is_signed(type) || type == ATSI_META_U8 || type == ATSI_META_U16 ||
           type == ATSI_META_U32 || type == ATSI_META_U64 || type == ATSI_META_BOOL;
}

/* An integer in min..max, from a scalar or an array element already widened in v->v. */
static int in_range(const struct atsi_loaded *m, const char *key, const struct atsi_meta *v,
                    uint32_t min, uint32_t max, uint32_t *out, struct atsi_err *err)
{
    char buf[192];
    if (is_signed(v->type) && (v->v.i < 0 || v->v.i < (int64_t)min || v->v.i > (int64_t)max))
        return atsi_fail(err, ATSI_EFORMAT,
                         "key '%s': %" PRId64 " is outside %" PRIu32 "..%" PRIu32,
                         full_key(m, key, buf), v->v.i, min, max);
    if (!is_signed(v->type) && (v->v.u < min || v->v.u > max))
        return atsi_fail(err, ATSI_EFORMAT,
                         "key '%s': %" PRIu64 " is outside %" PRIu32 "..%" PRIu32,
                         full_key(m, key, buf), v->v.u, min, max);
    *out = (uint32_t)v->v.u;
    return ATSI_OK;
}

int gguf_get_u32(const struct atsi_loaded *m, const char *key, enum gguf_need need, uint32_t min,
                 uint32_t max, uint32_t *inout, struct atsi_err *err)
{
    struct atsi_meta v;
    int st = look_up(m, key, need, &v, err);
    if (st <= 0)
        return st;
    if (!is_integer(v.type))
        return wrong_type(m, key, &v, "an integer", err);
    return in_range(m, key, &v, min, max, inout, err);
}

int gguf_get_f32(const struct atsi_loaded *m, const char *key, enum gguf_need need, float *inout,
                 struct atsi_err *err)
{
    struct atsi_meta v;
    char buf[192];
    float f;
    int st = look_up(m, key, need, &v, err);
    if (st <= 0)
        return st;
    if (v.type == ATSI_META_F32 || v.type == ATSI_META_F64)
        f = (float)v.v.f;
    else if (is_signed(v.type))
        f = (float)v.v.i;
    else if (is_integer(v.type) && v.type != ATSI_META_BOOL)
        f = (float)v.v.u;
    else
        return wrong_type(m, key, &v, "a number", err);
    if (!isfinite(f))
        return atsi_fail(err, ATSI_EFORMAT, "key '%s': %g is not a finite number",
                         full_key(m, key, buf), (double)f);
    *inout = f;
    return ATSI_OK;
}

int gguf_get_bool(const struct atsi_loaded *m, const char *key, enum gguf_need need, bool *inout,
                  struct atsi_err *err)
{
    uint32_t v = *inout ? 1 : 0;
    int st = gguf_get_u32(m, key, need, 0, 1, &v, err);
    if (st == ATSI_OK)
        *inout = v != 0;
    return st;
}

int gguf_get_str(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                 struct atsi_str *inout, struct atsi_err *err)
{
    struct atsi_meta v;
    int st = look_up(m, key, need, &v, err);
    if (st <= 0)
        return st;
    if (v.type != ATSI_META_STRING)
        return wrong_type(m, key, &v, "string", err);
    *inout = v.str;
    return ATSI_OK;
}

int gguf_get_u32_layers(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                        uint32_t min, uint32_t max, uint32_t n, uint32_t *inout,
                        struct atsi_err *err)
{
    struct atsi_meta v;
    char buf[192];
    uint32_t one = 0;
    int st = look_up(m, key, need, &v, err);
    if (st <= 0)
        return st;
    if (v.type != ATSI_META_ARRAY) {
        st = gguf_get_u32(m, key, need, min, max, &one, err);
        for (uint32_t i = 0; i < n && st == ATSI_OK; i++)
            inout[i] = one;
        return st;
    }
    if (!is_integer(v.elem_type))
        return wrong_type(m, key, &v, "an integer or an array of integers", err);
    if (v.count != n)
        return atsi_fail(err, ATSI_EFORMAT,
                         "key '%s': an array of %" PRIu64 " entries, but there are %" PRIu32
                         " layers",
                         full_key(m, key, buf), v.count, n);
    for (uint32_t i = 0; i < n; i++) {
        struct atsi_meta e = {.type = v.elem_type};
        gguf_head_scalar(v.data, i, &e);
        st = in_range(m, key, &e, min, max, &inout[i], err);
        if (st != ATSI_OK)
            return gguf_context(err, st, "layer %" PRIu32, i);
    }
    return ATSI_OK;
}

int gguf_get_array_len(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                       uint32_t elem_type, uint64_t *inout, struct atsi_err *err)
{
    struct atsi_meta v;
    char wanted[32];
    int st = look_up(m, key, need, &v, err);
    if (st <= 0)
        return st;
    if (v.type != ATSI_META_ARRAY || v.elem_type != elem_type) {
        (void)snprintf(wanted, sizeof wanted, "array of %s", gguf_value_type_name(elem_type));
        return wrong_type(m, key, &v, wanted, err);
    }
    *inout = v.count;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- tensors */
int gguf_tensor_find(const struct atsi_loaded *m, const char *name)
{
    return (int)gguf_index_find(&m->index, name, strlen(name)); /* at most INT32_MAX of them */
}

const struct atsi_tensor *gguf_tensor(const struct atsi_loaded *m, int index)
{
    return m->tensors[index];
}

uint32_t gguf_n_tensors(const struct atsi_loaded *m)
{
    return m->info.n_tensors_all;
}

/* Rows and bytes of a constant; ATSI_EINVAL when they are impossible. */
static int constant_size(uint32_t type, uint32_t n_dims, const uint64_t *ne, struct atsi_tensor *t,
                         size_t *bytes)
{
    uint64_t total;
    if (n_dims > 4)
        return ATSI_EINVAL;
    t->struct_size = sizeof *t;
    t->type = type;
    t->n_dims = n_dims;
    for (uint32_t i = 0; i < 4; i++)
        t->ne[i] = i < n_dims ? ne[i] : 1;
    t->row_bytes = t->ne[0] < UINT64_C(1) << 56 ? atsi_row_bytes(type, t->ne[0]) : 0;
    total = t->row_bytes;
    for (int i = 1; i < 4; i++)
        if (__builtin_mul_overflow(total, t->ne[i], &total))
            return ATSI_EINVAL;
    if (total == 0 || total > SIZE_MAX / 2)
        return ATSI_EINVAL;
    *bytes = (size_t)total;
    return ATSI_OK;
}

int gguf_add_constant(struct atsi_loaded *m, const char *name, uint32_t type, uint32_t n_dims,
                      const uint64_t *ne, const void *data, struct atsi_err *err)
{
    uint32_t at = m->info.n_tensors_all, n_constants = at - m->info.n_tensors;
    struct atsi_tensor t = {0};
    struct gguf_constant *c;
    size_t bytes = 0, room;
    if (n_constants == GGUF_MAX_CONSTANTS || strlen(name) >= sizeof c->name ||
        gguf_tensor_find(m, name) >= 0 || constant_size(type, n_dims, ne, &t, &bytes) != ATSI_OK)
        return atsi_fail(err, ATSI_EINVAL,
                         "constant '%s': its name, type %" PRIu32
                         " or shape is not possible, or there are %d already",
                         name, type, GGUF_MAX_CONSTANTS);
    room = (sizeof *c + bytes + 64 + 63) / 64 * 64; /* 64 readable bytes follow the data */
    c = aligned_alloc(64, room);
    if (c == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for constant '%s' of %zu bytes", name, bytes);
    memset(c, 0, room);
    (void)snprintf(c->name, sizeof c->name, "%s", name);
    memcpy(c->data, data, bytes);
    c->tensor = t;
    c->tensor.name = c->name;
    c->tensor.data = c->data;
    m->constants[n_constants] = c;
    m->tensors[at] = &c->tensor;
    m->type_names[at] = atsi_type_info(type)->name;
    m->index_names[at].ptr = c->name;
    m->index_names[at].len = strlen(c->name);
    (void)gguf_index_add(&m->index, at);
    m->info.n_tensors_all = at + 1;
    m->info.owned_bytes += bytes;
    return (int)at;
}

/* ---------------------------------------------------------------- graph, log */
void gguf_set_graph(struct atsi_loaded *m, const struct atsi_graph *g, void (*free_fn)(void *),
                    void *free_arg)
{
    if (m->graph_free != NULL)
        m->graph_free(m->graph_free_arg);
    m->graph = g;
    m->graph_free = free_fn;
    m->graph_free_arg = free_arg;
}

void gguf_log(const struct atsi_loaded *m, enum atsi_log_level level, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    if (m->host == NULL || m->host->log == NULL)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    m->host->log(m->host->ctx, level, "gguf", "%s", text);
}
