/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts an open model together: kind of file, one tensor list over all shards, the index of names,
 * and, for models that are to be used, their data. */
#include "loaded.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "split.h"
#include "text.h"
#include "types.h"

/* ---------------------------------------------------------------- kind of file */
static bool meta_is(const struct atsi_loaded *m, const char *key, const char *value)
{
    struct atsi_meta v;
    return gguf_meta_find(m, key, &v) == ATSI_OK && v.type == ATSI_META_STRING &&
           v.str.len == strlen(value) && memcmp(v.str.ptr, value, strlen(value)) == 0;
}

static bool meta_has(const struct atsi_loaded *m, const char *key)
{
    struct atsi_meta v;
    return gguf_meta_find(m, key, &v) == ATSI_OK;
}

/* general.type says it in files since 2024; older ones show it by their keys. */
static uint32_t find_kind(const struct atsi_loaded *m)
{
    if (meta_is(m, "general.type", "adapter") || meta_has(m, "adapter.type") ||
        meta_is(m, "general.architecture", "controlvector"))
        return ATSI_FILE_ADAPTER;
    if (meta_is(m, "general.type", "mmproj") || meta_is(m, "general.architecture", "clip"))
        return ATSI_FILE_MMPROJ;
    if (meta_has(m, "general.type") && !meta_is(m, "general.type", "model"))
        return ATSI_FILE_OTHER;
    if (m->info.n_tensors == 0)
        return meta_has(m, "tokenizer.ggml.model") ? ATSI_FILE_VOCAB : ATSI_FILE_OTHER;
    return m->arch[0] != '\0' ? ATSI_FILE_MODEL : ATSI_FILE_OTHER;
}

const char *gguf_loaded_what(const struct atsi_loaded *m, char buf[160])
{
    struct atsi_meta v;
    char type[GGUF_SHOW] = "";
    if (gguf_meta_find(m, "general.type", &v) == ATSI_OK && v.type == ATSI_META_STRING)
        (void)gguf_show(v.str.ptr, v.str.len, type);
    switch (m->info.file_kind) {
    case ATSI_FILE_VOCAB:
        return "a vocabulary without weights (0 tensors)";
    case ATSI_FILE_MMPROJ:
        return "a multimodal projector (mmproj), which accompanies a model";
    case ATSI_FILE_ADAPTER:
        return "an adapter (LoRA or control vector), which changes a model";
    case ATSI_FILE_MODEL:
        return "a model";
    default:
        break;
    }
    if (strcmp(type, "imatrix") == 0)
        return "an importance matrix (imatrix) for quantizing a model";
    if (type[0] != '\0')
        (void)snprintf(buf, 160, "of general.type '%s'", type);
    else if (m->arch[0] == '\0')
        (void)snprintf(buf, 160, "a GGUF file without the key 'general.architecture'");
    else
        (void)snprintf(buf, 160, "a GGUF file without tensors and without a vocabulary");
    return buf;
}

static int read_arch(struct atsi_loaded *m, struct atsi_err *err)
{
    static const char key[] = "general.architecture";
    char shown[GGUF_SHOW];
    uint64_t bad;
    struct atsi_meta v;
    if (gguf_meta_find(m, key, &v) != ATSI_OK)
        return ATSI_OK;
    if (v.type != ATSI_META_STRING)
        return atsi_fail(err, ATSI_EFORMAT, "key '%s': type %s, but it has to be string", key,
                         gguf_value_type_name(v.type));
    if (v.str.len == 0 || v.str.len >= sizeof m->arch ||
        !gguf_is_printable(v.str.ptr, v.str.len, &bad))
        return atsi_fail(err, ATSI_EFORMAT,
                         "key '%s': \"%s\" is not a name of 1 to %zu printable ASCII bytes", key,
                         gguf_show(v.str.ptr, v.str.len, shown), sizeof m->arch - 1);
    memcpy(m->arch, v.str.ptr, (size_t)v.str.len);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- tensors */
static int allocate_lists(struct atsi_loaded *m, struct atsi_err *err)
{
    uint64_t n = 0, name_bytes = 1, n_unknown = 0;
    size_t room;
    for (uint32_t i = 0; i < m->n_shards; i++) {
        const struct gguf_head *h = &m->shards[i].head;
        n += h->n_records;
        for (uint32_t j = 0; j < h->n_records; j++) {
            name_bytes += h->records[j].name_len + 1u;
            n_unknown += h->records[j].sized ? 0 : 1;
        }
    }
    if (n > INT32_MAX)
        return atsi_fail(err, ATSI_EFORMAT, "%" PRIu64 " tensors, at most %d are accepted", n,
                         INT32_MAX);
    room = (size_t)n + GGUF_MAX_CONSTANTS;
    m->info.n_tensors = (uint32_t)n;
    m->file_tensors = calloc((size_t)n + 1, sizeof *m->file_tensors);
    m->names = malloc((size_t)name_bytes);
    m->unknown_types = malloc((size_t)n_unknown * 24 + 1);
    m->tensors = calloc(room, sizeof(void *));
    m->type_names = calloc(room, sizeof *m->type_names);
    m->index_names = calloc(room, sizeof *m->index_names);
    if (m->file_tensors == NULL || m->names == NULL || m->unknown_types == NULL ||
        m->tensors == NULL || m->type_names == NULL || m->index_names == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for %" PRIu64 " tensors", n);
    return ATSI_OK;
}

static void set_tensor(struct atsi_tensor *t, const struct gguf_record *r, const char *name)
{
    t->struct_size = sizeof *t;
    t->type = r->type;
    t->layout = ATSI_LAYOUT_ROWS;
    t->n_dims = r->n_dims;
    memcpy(t->ne, r->ne, sizeof t->ne);
    t->row_bytes = r->row_bytes;
    t->name = name;
}

static void list_tensors(struct atsi_loaded *m)
{
    char *name = m->names, *type_buf = m->unknown_types;
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->n_shards; i++) {
        const struct gguf_head *h = &m->shards[i].head;
        for (uint32_t j = 0; j < h->n_records; j++, at++) {
            const struct gguf_record *r = &h->records[j];
            memcpy(name, h->bytes + r->name_off, r->name_len);
            name[r->name_len] = '\0';
            set_tensor(&m->file_tensors[at], r, name);
            m->tensors[at] = &m->file_tensors[at];
            m->type_names[at] = gguf_type_name(r->type, type_buf);
            if (m->type_names[at] == type_buf)
                type_buf += 24;
            m->index_names[at].ptr = name;
            m->index_names[at].len = r->name_len;
            name += r->name_len + 1u;
        }
    }
    m->info.n_tensors_all = m->info.n_tensors;
}

static int index_tensors(struct atsi_loaded *m, struct atsi_err *err)
{
    char shown[GGUF_SHOW];
    uint32_t dup[2] = {0, 0};
    int st = gguf_index_open(&m->index, m->index_names, m->info.n_tensors,
                             m->info.n_tensors + GGUF_MAX_CONSTANTS, dup);
    if (st == ATSI_EINVAL)
        return atsi_fail(err, ATSI_EFORMAT,
                         "tensor '%s' occurs twice, as number %" PRIu32 " and %" PRIu32,
                         gguf_show(m->index_names[dup[0]].ptr, m->index_names[dup[0]].len, shown),
                         dup[0], dup[1]);
    return st == ATSI_OK ? st : atsi_fail(err, st, "no memory for the index of the tensors");
}

int gguf_loaded_check_types(const struct atsi_loaded *m, struct atsi_err *err)
{
    char shown[GGUF_SHOW];
    for (uint32_t i = 0; i < m->info.n_tensors; i++) {
        const struct atsi_tensor *t = m->tensors[i];
        if (atsi_type_info(t->type) == NULL)
            return gguf_context(err, gguf_type_refuse(t->type, err), "tensor %s",
                                gguf_show(t->name, strlen(t->name), shown));
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- data */
static void set_data(struct atsi_loaded *m, const struct atsi_load_params *params)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < m->n_shards; i++) {
        const struct gguf_shard *s = &m->shards[i];
        for (uint32_t j = 0; j < s->head.n_records; j++, at++) {
            const struct gguf_record *r = &s->head.records[j];
            if (s->memory.base != NULL)
                m->file_tensors[at].data = s->memory.base + r->offset;
            if (params->mode == ATSI_LOAD_MMAP)
                m->info.mapped_bytes += r->bytes;
        }
        if (params->mode != ATSI_LOAD_MMAP)
            m->info.owned_bytes += s->memory.map_bytes;
    }
}

static int load_data(struct atsi_loaded *m, const struct atsi_load_params *params,
                     struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH];
    int st = gguf_loaded_check_types(m, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "%s", gguf_show_path(m->shards[0].path, shown));
    st = gguf_data_load(m->shards, m->n_shards, params, m->host, err);
    if (st == ATSI_OK)
        set_data(m, params);
    return st;
}

/* After the last look at the files: still what they were? */
static int finish_files(struct atsi_loaded *m, struct atsi_err *err)
{
    for (uint32_t i = 0; i < m->n_shards; i++) {
        int st = gguf_shard_check_unchanged(&m->shards[i], err);
        if (st != ATSI_OK)
            return st;
        m->info.file_bytes += m->shards[i].file_bytes;
    }
    return ATSI_OK;
}

static void set_info(struct atsi_loaded *m)
{
    struct atsi_loaded_info *info = &m->info;
    info->struct_size = sizeof *info;
    (void)snprintf(m->format, sizeof m->format, "GGUF v%" PRIu32, m->shards[0].head.version);
    info->format = m->format;
    info->arch = m->arch;
    info->n_files = m->n_shards;
    info->n_meta = m->shards[0].head.n_kv;
    info->tensors = m->tensors;
    info->type_names = m->type_names;
    info->file_kind = find_kind(m);
}

static int assemble(struct atsi_loaded *m, struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH];
    int st = allocate_lists(m, err);
    if (st == ATSI_OK) {
        list_tensors(m);
        st = index_tensors(m, err);
    }
    if (st == ATSI_OK)
        st = read_arch(m, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "%s", gguf_show_path(m->shards[0].path, shown));
    set_info(m);
    return ATSI_OK;
}

int gguf_loaded_open(const struct atsi_host *host, const char *path,
                     const struct atsi_load_params *params, struct atsi_loaded **out,
                     struct atsi_err *err)
{
    struct atsi_loaded *m = calloc(1, sizeof *m);
    int st;
    if (m == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for a model");
    m->host = host;
    m->no_weights = params->no_weights;
    st = gguf_split_open(path, &m->shards, &m->n_shards, err);
    if (st == ATSI_OK)
        st = assemble(m, err);
    /* Files that are no models have no graph and need no data. */
    if (st == ATSI_OK && m->no_weights == 0 && m->info.file_kind == ATSI_FILE_MODEL)
        st = load_data(m, params, err);
    if (st == ATSI_OK)
        st = finish_files(m, err);
    if (st != ATSI_OK) {
        gguf_loaded_close(m);
        return st;
    }
    *out = m;
    return ATSI_OK;
}

void gguf_loaded_close(struct atsi_loaded *m)
{
    if (m == NULL)
        return;
    gguf_set_graph(m, NULL, NULL, NULL);
    for (uint32_t i = m->info.n_tensors; i < m->info.n_tensors_all; i++)
        free(m->constants[i - m->info.n_tensors]);
    gguf_index_close(&m->index);
    free(m->index_names);
    free(m->type_names);
    free(m->tensors);
    free(m->unknown_types);
    free(m->names);
    free(m->file_tensors);
    gguf_split_close(m->shards, m->n_shards);
    free(m);
}
