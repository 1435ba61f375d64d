/* SPDX-License-Identifier: Apache-2.0
 *
 * Fingerprints of models.  Each tensor and each metadata entry is hashed alone (XXH3, 64 bits) and
 * the hashes are added, so that order does not count: a split file and a whole one are the same.
 */
#include "core/fingerprint.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "atsinfer/atsinfer.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "numbers are hashed as they lie in memory");

/* Reading a sample may cost one disk access each, so that a model of thousands of tensors is
 * sampled in part. */
#define SAMPLED_TENSORS 256u
#define SAMPLE_BYTES 64u

void atsi_label_copy(char *field, size_t size, const char *text, size_t len)
{
    memset(field, 0, size);
    for (size_t i = 0; i < len && i + 1 < size && text[i] != '\0'; i++)
        field[i] = text[i] >= 0x20 && text[i] < 0x7f ? text[i] : '?';
}

static void add_bytes(XXH3_state_t *x, const void *p, size_t n)
{
    (void)XXH3_64bits_update(x, p, n); /* fails for NULL states only */
}

static void add_u64(XXH3_state_t *x, uint64_t v)
{
    add_bytes(x, &v, sizeof v);
}

static void add_str(XXH3_state_t *x, const char *p, uint64_t len)
{
    add_u64(x, len);
    add_bytes(x, p, len);
}

/* ---------------------------------------------------------------- tensors */
static uint64_t tensor_hash(XXH3_state_t *x, const struct atsi_tensor *t)
{
    (void)XXH3_64bits_reset(x);
    add_str(x, t->name, strlen(t->name));
    add_u64(x, t->type);
    for (int d = 0; d < 4; d++)
        add_u64(x, t->ne[d]);
    return XXH3_64bits_digest(x);
}

/* The bytes in the middle of a tensor, with its name. */
static uint64_t sample_hash(XXH3_state_t *x, const struct atsi_tensor *t)
{
    uint64_t bytes = t->row_bytes * t->ne[1] * t->ne[2] * t->ne[3];
    uint64_t at = bytes / 2 / SAMPLE_BYTES * SAMPLE_BYTES;
    (void)XXH3_64bits_reset(x);
    add_str(x, t->name, strlen(t->name));
    add_bytes(x, (const unsigned char *)t->data + at,
              bytes - at < SAMPLE_BYTES ? bytes - at : SAMPLE_BYTES);
    return XXH3_64bits_digest(x);
}

/* Chosen by name, since order must not count. */
static bool is_sampled(const struct atsi_tensor *t, uint32_t n_tensors)
{
    uint32_t every = (n_tensors + SAMPLED_TENSORS - 1) / SAMPLED_TENSORS;
    return t->data != NULL && XXH3_64bits(t->name, strlen(t->name)) % every == 0;
}

static void hash_tensors(XXH3_state_t *x, const struct atsi_loaded_info *info,
                         struct atsi_fingerprint *out)
{
    out->tensors = out->weights = 0;
    for (uint32_t i = 0; i < info->n_tensors; i++) {
        const struct atsi_tensor *t = info->tensors[i];
        out->tensors += tensor_hash(x, t);
        if (is_sampled(t, info->n_tensors))
            out->weights += sample_hash(x, t);
    }
}

/* ---------------------------------------------------------------- metadata */
static bool starts_with(const struct atsi_str *s, const char *prefix, size_t len)
{
    return s->len >= len && memcmp(s->ptr, prefix, len) == 0;
}

/* Keys that shape the graph ("ARCH.") or the vocabulary ("tokenizer."); a chat template does
 * neither, and "general." and "split." describe the file. */
static bool counts(const struct atsi_str *key, const char *arch)
{
    static const char tokenizer[] = "tokenizer.", chat[] = "tokenizer.chat_template";
    size_t n = strlen(arch);
    if (starts_with(key, tokenizer, sizeof tokenizer - 1))
        return !starts_with(key, chat, sizeof chat - 1);
    return n > 0 && key->len > n && starts_with(key, arch, n) && key->ptr[n] == '.';
}

static uint64_t elem_bytes(uint32_t type)
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

static uint64_t meta_hash(XXH3_state_t *x, const struct atsi_meta *v)
{
    (void)XXH3_64bits_reset(x);
    add_str(x, v->key.ptr, v->key.len);
    add_u64(x, v->type);
    if (v->type == ATSI_META_STRING) {
        add_str(x, v->str.ptr, v->str.len);
    } else if (v->type != ATSI_META_ARRAY) {
        add_u64(x, v->v.u); /* all 64 bits are set, whatever the type */
    } else {
        add_u64(x, v->elem_type);
        add_u64(x, v->count);
        for (uint64_t i = 0; v->elem_type == ATSI_META_STRING && i < v->count; i++)
            add_str(x, v->strs[i].ptr, v->strs[i].len);
        if (v->elem_type != ATSI_META_STRING && v->count > 0)
            add_bytes(x, v->data, v->count * elem_bytes(v->elem_type));
    }
    return XXH3_64bits_digest(x);
}

static int hash_meta(XXH3_state_t *x, const struct atsi_model *m, struct atsi_fingerprint *out,
                     struct atsi_err *err)
{
    const struct atsi_loaded_info *info = atsi_model_info(m);
    out->meta = 0;
    for (uint32_t i = 0; i < info->n_meta; i++) {
        struct atsi_meta v = {.struct_size = sizeof v};
        int rc = atsi_model_meta_at(m, i, &v);
        if (rc != ATSI_OK)
            return atsi_fail(err, rc, "metadata entry %u of the model cannot be read", i);
        if (counts(&v.key, info->arch))
            out->meta += meta_hash(x, &v);
    }
    return ATSI_OK;
}

static void fill_labels(const struct atsi_model *m, struct atsi_fingerprint *out)
{
    struct atsi_meta name = {.struct_size = sizeof name};
    const struct atsi_loaded_info *info = atsi_model_info(m);
    atsi_label_copy(out->arch, sizeof out->arch, info->arch, strlen(info->arch));
    if (atsi_model_meta_find(m, "general.name", &name) == ATSI_OK && name.type == ATSI_META_STRING)
        atsi_label_copy(out->name, sizeof out->name, name.str.ptr, name.str.len);
    else
        atsi_label_copy(out->name, sizeof out->name, "", 0);
}

int atsi_model_fingerprint(const struct atsi_model *m, struct atsi_fingerprint *out,
                           struct atsi_err *err)
{
    XXH3_state_t *x = XXH3_createState();
    int rc;
    if (x == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a hash");
    hash_tensors(x, atsi_model_info(m), out);
    rc = hash_meta(x, m, out, err);
    fill_labels(m, out);
    (void)XXH3_freeState(x); /* always 0 */
    return rc;
}
