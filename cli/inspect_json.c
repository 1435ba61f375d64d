/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer inspect --json`: the same facts as one object.  Bytes that are no UTF-8 become U+FFFD;
 * arrays are cut to their first elements with their length beside them. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "text/utf8.h"

#define JSON_ELEMENTS 16 /* of an array */

/* jansson's setters take ownership and accept NULL values by failing; `ok` gathers the failures. */
static void set(json_t *o, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(o, key, value) != 0)
        *ok = false;
}

static void append(json_t *a, json_t *value, bool *ok)
{
    if (json_array_append_new(a, value) != 0)
        *ok = false;
}

static json_t *str_value(const struct atsi_str *s)
{
    struct atsi_bytes b = {0};
    json_t *out = NULL;
    if (atsi_utf8_repair(s->ptr, (size_t)s->len, false, &b))
        out = json_stringn(b.n > 0 ? b.p : "", b.n);
    free(b.p);
    return out;
}

static json_t *text_value(const char *text)
{
    const struct atsi_str s = {text, strlen(text)};
    return str_value(&s);
}

/* Numbers beyond JSON's integers (u64 above 2^63) and non-finite floats become text. */
static json_t *scalar_value(const struct atsi_meta *v)
{
    char text[32];
    json_t *real;
    int64_t i;
    if (v->type == ATSI_META_STRING)
        return str_value(&v->str);
    if (v->type == ATSI_META_BOOL)
        return json_boolean(v->v.u != 0);
    if (v->type == ATSI_META_F32 || v->type == ATSI_META_F64) {
        real = json_real(v->v.f); /* NULL when not finite */
        (void)snprintf(text, sizeof text, "%g", v->v.f);
        return real != NULL ? real : json_string(text);
    }
    if (inspect_integer(v, &i))
        return json_integer(i);
    (void)snprintf(text, sizeof text, "%" PRIu64, v->v.u);
    return json_string(text);
}

static json_t *array_value(const struct atsi_meta *v, bool *ok)
{
    json_t *o = json_object(), *first = json_array();
    char type[48];
    for (uint64_t i = 0; i < v->count && i < JSON_ELEMENTS; i++) {
        struct atsi_meta e = inspect_element(v, i);
        append(first, scalar_value(&e), ok);
    }
    set(o, "type", json_string(inspect_type_text(v, type)), ok);
    set(o, "count", json_integer((json_int_t)v->count), ok);
    set(o, "first", first, ok);
    return o;
}

static json_t *value_of(const struct atsi_meta *v, bool *ok)
{
    return v->type == ATSI_META_ARRAY ? array_value(v, ok) : scalar_value(v);
}

static void set_meta(const struct inspect_report *r, json_t *o, const char *name, const char *key,
                     bool *ok)
{
    struct atsi_meta v;
    if (inspect_meta(r, key, &v))
        set(o, name, value_of(&v, ok), ok);
}

/* Entries of the architecture (without its name in front), or all. */
static json_t *entries(const struct inspect_report *r, bool all, bool *ok)
{
    json_t *o = json_object();
    for (uint32_t i = 0; i < r->info->n_meta; i++) {
        struct atsi_meta v = {.struct_size = sizeof v};
        char *key;
        size_t skip = all ? 0 : strlen(r->info->arch) + 1;
        if (atsi_model_meta_at(r->model, i, &v) != ATSI_OK || (!all && !inspect_is_hparam(r, &v)))
            continue;
        key = strndup(v.key.ptr + skip, (size_t)v.key.len - skip); /* printable ASCII */
        if (key == NULL)
            *ok = false;
        else
            set(o, key, value_of(&v, ok), ok);
        free(key);
    }
    return o;
}

static json_t *tokenizer(const struct inspect_report *r, bool *ok)
{
    json_t *o = json_object(), *special = json_object();
    struct atsi_meta v;
    char key[64];
    set_meta(r, o, "model", "tokenizer.ggml.model", ok);
    set_meta(r, o, "pre", "tokenizer.ggml.pre", ok);
    if (inspect_meta(r, "tokenizer.ggml.tokens", &v) && v.type == ATSI_META_ARRAY)
        set(o, "n_tokens", json_integer((json_int_t)v.count), ok);
    if (inspect_meta(r, "tokenizer.ggml.merges", &v) && v.type == ATSI_META_ARRAY)
        set(o, "n_merges", json_integer((json_int_t)v.count), ok);
    for (uint32_t i = 0; inspect_special_tokens[i] != NULL; i++) {
        (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", inspect_special_tokens[i]);
        set_meta(r, special, inspect_special_tokens[i], key, ok);
    }
    set(o, "special", special, ok);
    set(o, "chat_template", json_boolean(inspect_meta(r, "tokenizer.chat_template", &v)), ok);
    return o;
}

static json_t *tallies(const struct inspect_tally *t, uint32_t n, bool *ok)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++) {
        json_t *o;
        if (t[i].n_tensors == 0)
            continue;
        o = json_object();
        set(o, "name", json_string(t[i].name), ok);
        set(o, "tensors", json_integer((json_int_t)t[i].n_tensors), ok);
        set(o, "elements", json_integer((json_int_t)t[i].n_elems), ok);
        set(o, "bytes", json_integer((json_int_t)t[i].n_bytes), ok);
        append(a, o, ok);
    }
    return a;
}

static json_t *memory(const struct inspect_report *r, bool *ok)
{
    const struct atsi_session_info *p = &r->plan;
    json_t *o = json_object();
    uint64_t buffers = p->compute_bytes + p->logits_bytes;
    char type[48];
    set(o, "weight_bytes", json_integer((json_int_t)r->n_bytes), ok);
    if (r->plan_status != ATSI_OK) {
        set(o, "error", text_value(r->plan_err.msg), ok);
        return o;
    }
    set(o, "context", json_integer(p->n_ctx), ok);
    set(o, "kv_type", json_string(inspect_kv_type(r, type)), ok);
    set(o, "kv_bytes", json_integer((json_int_t)p->kv_bytes), ok);
    set(o, "kv_bytes_per_token", json_integer((json_int_t)r->kv_per_token), ok);
    set(o, "state_bytes", json_integer((json_int_t)p->state_bytes), ok);
    set(o, "chunk", json_integer(p->chunk), ok);
    set(o, "buffer_bytes", json_integer((json_int_t)buffers), ok);
    return o;
}

static json_t *tensors(const struct inspect_report *r, bool *ok)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < r->info->n_tensors; i++) {
        const struct atsi_tensor *t = r->info->tensors[i];
        json_t *o = json_object(), *shape = json_array();
        for (uint32_t d = 0; d < t->n_dims; d++)
            append(shape, json_integer((json_int_t)t->ne[d]), ok);
        set(o, "name", text_value(t->name), ok);
        set(o, "type", json_string(r->info->type_names[i]), ok);
        set(o, "shape", shape, ok);
        set(o, "bytes", json_integer((json_int_t)inspect_tensor_bytes(t)), ok);
        append(a, o, ok);
    }
    return a;
}

static void set_summary(const struct inspect_report *r, json_t *o, bool *ok)
{
    set(o, "path", text_value(r->path), ok);
    set(o, "kind", json_string(r->kind), ok);
    set(o, "format", json_string(r->info->format), ok);
    set(o, "architecture", json_string(r->info->arch), ok);
    set_meta(r, o, "name", "general.name", ok);
    set_meta(r, o, "size_label", "general.size_label", ok);
    set(o, "quantization", json_string(r->quantization), ok);
    set(o, "files", json_integer(r->info->n_files), ok);
    set(o, "file_bytes", json_integer((json_int_t)r->info->file_bytes), ok);
    set(o, "n_meta", json_integer(r->info->n_meta), ok);
    set(o, "n_tensors", json_integer(r->info->n_tensors), ok);
    set(o, "parameters", json_integer((json_int_t)r->n_params), ok);
    set(o, "active_parameters", json_integer((json_int_t)r->n_active), ok);
    set(o, "tensor_bytes", json_integer((json_int_t)r->n_bytes), ok);
    set(o, "unsized_tensors", json_integer(r->n_unsized), ok);
}

bool inspect_print_json(const struct inspect_report *r)
{
    json_t *o = json_object();
    bool ok = o != NULL;
    set_summary(r, o, &ok);
    set(o, "hyperparameters", entries(r, false, &ok), &ok);
    set(o, "tokenizer", tokenizer(r, &ok), &ok);
    if (r->info->file_kind == ATSI_FILE_MODEL)
        set(o, "memory", memory(r, &ok), &ok);
    set(o, "by_type", tallies(r->types, r->n_types, &ok), &ok);
    set(o, "by_role", tallies(r->roles, INSPECT_N_ROLES, &ok), &ok);
    if (r->show_meta)
        set(o, "metadata", entries(r, true, &ok), &ok);
    if (r->show_tensors)
        set(o, "tensors", tensors(r, &ok), &ok);
    if (ok) {
        (void)json_dumpf(o, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        putchar('\n'); /* a failed write is found by cli_finish_stdout() */
    }
    json_decref(o);
    return ok;
}
