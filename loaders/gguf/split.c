/* SPDX-License-Identifier: Apache-2.0
 *
 * Split models.  Each shard is a complete GGUF file; the metadata of the model is in the first.
 *
 *     split.no             index of this shard, from 0 (the file names count from 1)
 *     split.count          number of shards; absent, 0 and 1 mean that the file is whole
 *     split.tensors.count  tensors of all shards together
 */
#include "split.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "text.h"

#define MAX_SHARDS 65535 /* split.count is a u16 */

/* An integer key of a shard's own metadata; absent: *inout stays. */
static int split_key(const struct gguf_head *head, const char *key, uint64_t max, uint64_t *inout,
                     struct atsi_err *err)
{
    struct atsi_meta v = {.struct_size = sizeof v};
    int64_t at = gguf_index_find(&head->key_index, key, strlen(key));
    if (at < 0)
        return ATSI_OK;
    (void)gguf_head_meta(head, (uint32_t)at, &v);
    switch (v.type) {
    case ATSI_META_I8:
    case ATSI_META_I16:
    case ATSI_META_I32:
    case ATSI_META_I64:
        if (v.v.i < 0)
            return atsi_fail(err, ATSI_EFORMAT, "key '%s': %" PRId64 " is outside 0..%" PRIu64, key,
                             v.v.i, max);
        break;
    case ATSI_META_U8:
    case ATSI_META_U16:
    case ATSI_META_U32:
    case ATSI_META_U64:
        break;
    default:
        return atsi_fail(err, ATSI_EFORMAT, "key '%s': type %s, but it has to be an integer", key,
                         gguf_value_type_name(v.type));
    }
    if (v.v.u > max)
        return atsi_fail(err, ATSI_EFORMAT, "key '%s': %" PRIu64 " is outside 0..%" PRIu64, key,
                         v.v.u, max);
    *inout = v.v.u;
    return ATSI_OK;
}

struct split {
    uint64_t no, count, n_tensors; /* n_tensors: UINT64_MAX when not said */
};

static int read_split(const struct gguf_shard *s, struct split *out, struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH];
    int st;
    out->no = 0;
    out->count = 1;
    out->n_tensors = UINT64_MAX;
    st = split_key(&s->head, "split.no", MAX_SHARDS, &out->no, err);
    if (st == ATSI_OK)
        st = split_key(&s->head, "split.count", MAX_SHARDS, &out->count, err);
    if (st == ATSI_OK)
        st = split_key(&s->head, "split.tensors.count", INT32_MAX, &out->n_tensors, err);
    if (st != ATSI_OK)
        return gguf_context(err, st, "%s", gguf_show_path(s->path, shown));
    if (out->count == 0)
        out->count = 1;
    if (out->no >= out->count)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: key 'split.no' is %" PRIu64 ", but key 'split.count' only %" PRIu64,
                         gguf_show_path(s->path, shown), out->no, out->count);
    return ATSI_OK;
}

/* Start of "-NNNNN-of-NNNNN.gguf" at the end of a path (each number of five digits or more), or
 * NULL. */
static const char *find_suffix(const char *path)
{
    static const char tail[] = ".gguf", middle[] = "-of-";
    const char *p = path + strlen(path), *q;
    if (p - path < (ptrdiff_t)sizeof tail - 1 || strcmp(p - (sizeof tail - 1), tail) != 0)
        return NULL;
    p -= sizeof tail - 1;
    for (q = p; q > path && q[-1] >= '0' && q[-1] <= '9'; q--)
        ;
    if (p - q < 5 || q - path < (ptrdiff_t)sizeof middle - 1 ||
        memcmp(q - (sizeof middle - 1), middle, sizeof middle - 1) != 0)
        return NULL;
    p = q - (sizeof middle - 1);
    for (q = p; q > path && q[-1] >= '0' && q[-1] <= '9'; q--)
        ;
    return p - q >= 5 && q > path && q[-1] == '-' ? q - 1 : NULL;
}

char *gguf_split_path(const char *path, uint32_t no, uint32_t count)
{
    const char *suffix = find_suffix(path);
    char *out = NULL;
    if (suffix == NULL || suffix - path > INT32_MAX)
        return NULL;
    if (asprintf(&out, "%.*s-%05" PRIu32 "-of-%05" PRIu32 ".gguf", (int)(suffix - path), path,
                 no + 1, count) < 0)
        return NULL;
    return out;
}

/* A shard other than the first was named: say which one to open. */
static int refuse_later(const char *path, const struct split *sp, struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH], first_shown[GGUF_SHOW_PATH];
    char *first = gguf_split_path(path, 0, (uint32_t)sp->count);
    int st = atsi_fail(
        err, ATSI_EINVAL,
        "%s: this is part %" PRIu64 " of %" PRIu64 " of a split model; open the first part%s%s",
        gguf_show_path(path, shown), sp->no + 1, sp->count, first != NULL ? ": " : "",
        first != NULL ? gguf_show_path(first, first_shown) : "");
    free(first);
    return st;
}

/* Looks for all companions before any is read. */
static int find_companions(const char *path, char **paths, uint32_t count, struct atsi_err *err)
{
    char shown[GGUF_SHOW_PATH], missing[GGUF_SHOW_PATH];
    for (uint32_t i = 1; i < count; i++) {
        paths[i] = gguf_split_path(path, i, count);
        if (paths[i] == NULL)
            return atsi_fail(err, find_suffix(path) == NULL ? ATSI_EFORMAT : ATSI_ENOMEM,
                             "%s: key 'split.count' is %" PRIu32
                             ", but the file name does not end in -00001-of-%05" PRIu32
                             ".gguf, so the other parts cannot be found",
                             gguf_show_path(path, shown), count, count);
        if (access(paths[i], F_OK) != 0)
            return atsi_fail(err, ATSI_ENOENT, "%s: part %" PRIu32 " of %" PRIu32 " is missing: %s",
                             gguf_show_path(paths[i], missing), i + 1, count, strerror(errno));
    }
    return ATSI_OK;
}

/* The shard says itself that it is number `no` of `count`. */
static int check_companion(const struct gguf_shard *s, uint32_t no, uint64_t count,
                           struct atsi_err *err)
{
    struct split sp;
    char shown[GGUF_SHOW_PATH];
    int st = read_split(s, &sp, err);
    if (st != ATSI_OK)
        return st;
    if (sp.no != no)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: key 'split.no' is %" PRIu64 ", but by its name it is %" PRIu32,
                         gguf_show_path(s->path, shown), sp.no, no);
    if (sp.count != count)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%s: key 'split.count' is %" PRIu64 ", but %" PRIu64 " in the first part",
                         gguf_show_path(s->path, shown), sp.count, count);
    return ATSI_OK;
}

static int check_total(const struct gguf_shard *shards, const struct split *sp,
                       struct atsi_err *err)
{
    uint64_t total = 0;
    char shown[GGUF_SHOW_PATH];
    for (uint64_t i = 0; i < sp->count; i++)
        total += shards[i].head.n_records;
    if (sp->n_tensors == UINT64_MAX || sp->n_tensors == total)
        return ATSI_OK;
    return atsi_fail(err, ATSI_EFORMAT,
                     "%s: key 'split.tensors.count' is %" PRIu64 ", but the %" PRIu64
                     " parts hold %" PRIu64 " tensors",
                     gguf_show_path(shards[0].path, shown), sp->n_tensors, sp->count, total);
}

/* Opens shards 1 .. count-1 behind the first. */
static int open_companions(const char *path, const struct split *sp, struct gguf_shard **shards,
                           uint32_t *n, struct atsi_err *err)
{
    uint32_t count = (uint32_t)sp->count;
    struct gguf_shard *grown;
    char **paths = calloc(count, sizeof *paths);
    int st;
    if (paths == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for %" PRIu32 " paths", count);
    st = find_companions(path, paths, count, err);
    if (st != ATSI_OK)
        goto done;
    grown = realloc(*shards, count * sizeof **shards);
    if (grown == NULL) {
        st = atsi_fail(err, ATSI_ENOMEM, "no memory for %" PRIu32 " parts", count);
        goto done;
    }
    *shards = grown;
    for (uint32_t i = 1; i < count; i++) {
        st = gguf_shard_open(&grown[i], paths[i], err);
        if (st != ATSI_OK)
            goto done;
        *n = i + 1;
        st = check_companion(&grown[i], i, count, err);
        if (st != ATSI_OK)
            goto done;
    }
    st = check_total(grown, sp, err);
done:
    for (uint32_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return st;
}

int gguf_split_open(const char *path, struct gguf_shard **shards_out, uint32_t *n_out,
                    struct atsi_err *err)
{
    struct gguf_shard *shards = calloc(1, sizeof *shards);
    struct split sp;
    uint32_t n = 0;
    int st;
    if (shards == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for a file");
    st = gguf_shard_open(&shards[0], path, err);
    if (st == ATSI_OK) {
        n = 1;
        st = read_split(&shards[0], &sp, err);
    }
    if (st == ATSI_OK && sp.no != 0)
        st = refuse_later(path, &sp, err);
    if (st == ATSI_OK && sp.count > 1)
        st = open_companions(path, &sp, &shards, &n, err);
    if (st != ATSI_OK) {
        gguf_split_close(shards, n);
        return st;
    }
    *shards_out = shards;
    *n_out = n;
    return ATSI_OK;
}

void gguf_split_close(struct gguf_shard *shards, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        gguf_shard_close(&shards[i]);
    free(shards);
}
