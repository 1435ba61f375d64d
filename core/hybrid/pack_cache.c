/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing the file of packed weights.
 */
#include "core/hybrid/pack_cache.h"

#include "core/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define PAGE ((uint64_t)4096)
#define VERSION 1u

static const char magic[8] = {'A', 'T', 'S', 'I', 'P', 'N', 'L', 'S'};

struct head {
    char magic[8];
    uint32_t version, reserved;
    uint64_t n, table, file_bytes; /* table: offset */
    uint64_t tensors, meta, weights;
};

_Static_assert(sizeof(struct head) == 64, "the head has no holes");
_Static_assert(sizeof(struct atsi_pack_entry) == 72, "nor have the entries");

uint64_t atsi_pack_hash(const void *part, size_t bytes, uint64_t offset)
{
    return XXH3_64bits_withSeed(part, bytes, offset);
}

static uint64_t check_of(const struct head *h, const struct atsi_pack_entry *table)
{
    uint64_t sums[2] = {XXH3_64bits(h, sizeof *h), XXH3_64bits(table, h->n * sizeof *table)};
    return XXH3_64bits(sums, sizeof sums);
}

/* ---------------------------------------------------------------- where */
static int make_folder(char *path, size_t len, struct atsi_err *err)
{
    for (size_t i = 1; i < len; i++) {
        bool bad;
        if (path[i] != '/')
            continue;
        path[i] = '\0';
        bad = mkdir(path, 0700) != 0 && errno != EEXIST && errno != EROFS && errno != EACCES;
        if (bad)
            return atsi_fail(err, ATSI_EIO, "%s: %s", atsi_path_shown(path), strerror(errno));
        path[i] = '/';
    }
    return ATSI_OK;
}

static int find_path(struct atsi_pack_cache *c, struct atsi_err *err)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const uint64_t key[3] = {c->of.tensors, c->of.meta, c->of.weights};
    bool own = base != NULL && base[0] == '/';
    int n;
    if (!own && (home == NULL || home[0] != '/'))
        return atsi_fail(err, ATSI_EIO, "neither XDG_CACHE_HOME nor HOME names a folder");
    n = snprintf(c->path, sizeof c->path, "%s%s/atsinfer/packed/%s-%016" PRIx64 ".panels",
                 own ? base : home, own ? "" : "/.cache",
                 c->of.arch[0] != '\0' ? c->of.arch : "model",
                 (uint64_t)XXH3_64bits(key, sizeof key));
    if (n < 0 || (size_t)n >= sizeof c->path)
        return atsi_fail(err, ATSI_EIO, "the path of the cache folder is too long");
    return make_folder(c->path, (size_t)n, err);
}

/* ---------------------------------------------------------------- reading */
static int refuse(struct atsi_err *err, const struct atsi_pack_cache *c, const char *why)
{
    return atsi_fail(err, ATSI_EFORMAT, "%s: %s", atsi_path_shown(c->path), why);
}

static int check_head(struct atsi_pack_cache *c, struct atsi_err *err)
{
    struct head h;
    uint64_t bytes = c->map_bytes, check;
    if (bytes < 2 * PAGE)
        return refuse(err, c, "cut short");
    memcpy(&h, c->map, sizeof h);
    if (memcmp(h.magic, magic, sizeof magic) != 0 || h.version != VERSION)
        return refuse(err, c, "not a file of packed weights, or of another version");
    if (h.file_bytes != bytes || h.table % PAGE != 0 || h.table >= bytes ||
        h.n != (bytes - h.table - sizeof check) / sizeof(struct atsi_pack_entry) ||
        (bytes - h.table - sizeof check) % sizeof(struct atsi_pack_entry) != 0)
        return refuse(err, c, "cut short or damaged");
    if (h.tensors != c->of.tensors || h.meta != c->of.meta || h.weights != c->of.weights)
        return refuse(err, c, "of another model");
    c->table = (const struct atsi_pack_entry *)(const void *)(c->map + h.table);
    c->n = h.n;
    memcpy(&check, c->map + bytes - sizeof check, sizeof check);
    if (check != check_of(&h, c->table))
        return refuse(err, c, "damaged: its check does not agree with its table");
    for (uint64_t i = 0; i < c->n; i++)
        if (c->table[i].offset % PAGE != 0 || c->table[i].offset > h.table ||
            c->table[i].bytes > h.table - c->table[i].offset)
            return refuse(err, c, "damaged: a tensor lies outside the file");
    return ATSI_OK;
}

static int map_file(struct atsi_pack_cache *c, struct atsi_err *err)
{
    int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc = ATSI_OK;
    struct stat st;
    void *p;
    if (fd < 0)
        return atsi_fail(err, ATSI_ENOENT, "%s: %s", atsi_path_shown(c->path), strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size < (off_t)(2 * PAGE)) {
        rc = refuse(err, c, "cut short, or no regular file");
    } else {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            rc = atsi_fail(err, ATSI_EIO, "%s: %s", atsi_path_shown(c->path), strerror(errno));
        } else {
            c->map = p;
            c->map_bytes = (size_t)st.st_size;
            (void)madvise(p, c->map_bytes, MADV_HUGEPAGE); /* hints */
            rc = check_head(c, err);
        }
    }
    (void)close(fd); /* opened for reading */
    return rc;
}

int atsi_pack_cache_open(struct atsi_pack_cache *c, const struct atsi_model *m,
                         struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    memset(c, 0, sizeof *c);
    rc = atsi_model_fingerprint(m, &c->of, err);
    if (rc == ATSI_OK)
        rc = find_path(c, err);
    if (rc != ATSI_OK)
        return rc;
    rc = map_file(c, &why);
    if (rc != ATSI_OK) {
        if (rc != ATSI_ENOENT)
            atsi_log(m->rt->log, ATSI_LOG_WARN, "memory", "%s; it is written again", why.msg);
        atsi_pack_cache_close(c);
    }
    return ATSI_OK;
}

void atsi_pack_cache_close(struct atsi_pack_cache *c)
{
    if (c->map != NULL)
        (void)munmap(c->map, c->map_bytes); /* cannot fail for what mmap returned */
    c->map = NULL;
    c->table = NULL;
    c->n = 0;
}

static uint64_t name_hash(const struct atsi_tensor *t)
{
    return XXH3_64bits(t->name, strlen(t->name));
}

static uint64_t tensor_bytes(const struct atsi_tensor *t)
{
    return t->row_bytes * t->ne[1] * t->ne[2] * t->ne[3]; /* of a loaded tensor: no overflow */
}

const struct atsi_pack_entry *atsi_pack_cache_find(const struct atsi_pack_cache *c,
                                                   const struct atsi_tensor *t)
{
    uint64_t name = name_hash(t);
    for (uint64_t i = 0; i < c->n; i++) {
        const struct atsi_pack_entry *e = &c->table[i];
        if (e->name_hash == name && e->type == t->type && e->bytes == tensor_bytes(t) &&
            memcmp(e->ne, t->ne, sizeof e->ne) == 0)
            return e;
    }
    return NULL;
}

/* ---------------------------------------------------------------- writing */
static uint64_t pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

static int write_zeros(struct atsi_newfile *f, uint64_t n, struct atsi_err *err)
{
    static const unsigned char zeros[PAGE];
    int rc = ATSI_OK;
    for (; n > 0 && rc == ATSI_OK; n -= n < PAGE ? n : PAGE)
        rc = atsi_newfile_write(f, zeros, (size_t)(n < PAGE ? n : PAGE), err);
    return rc;
}

static int write_tensor(struct atsi_newfile *f, const struct atsi_tensor *t,
                        struct atsi_pack_entry *e, const atomic_bool *stop, struct atsi_err *err)
{
    const unsigned char *p = t->data;
    int rc = ATSI_OK;
    e->hash = 0;
    for (uint64_t at = 0; at < e->bytes && rc == ATSI_OK; at += ATSI_PACK_PART) {
        size_t n = e->bytes - at < ATSI_PACK_PART ? (size_t)(e->bytes - at) : ATSI_PACK_PART;
        if (atomic_load(stop))
            return atsi_fail(err, ATSI_EINTR, "stopped");
        e->hash += atsi_pack_hash(p + at, n, at);
        rc = atsi_newfile_write(f, p + at, n, err);
    }
    return rc == ATSI_OK ? write_zeros(f, pages(e->bytes) - e->bytes, err) : rc;
}

static void fill_table(const struct atsi_tensor *const *tensors, uint32_t n, struct head *h,
                       struct atsi_pack_entry *table)
{
    uint64_t at = PAGE;
    for (uint32_t i = 0; i < n; i++) {
        const struct atsi_tensor *t = tensors[i];
        table[i] = (struct atsi_pack_entry){
            .name_hash = name_hash(t), .offset = at, .bytes = tensor_bytes(t), .type = t->type};
        memcpy(table[i].ne, t->ne, sizeof table[i].ne);
        at += pages(table[i].bytes);
    }
    h->table = at + PAGE;
    h->file_bytes = h->table + n * sizeof *table + sizeof(uint64_t);
}

int atsi_pack_cache_write(const struct atsi_pack_cache *c, const struct atsi_tensor *const *tensors,
                          uint32_t n, const atomic_bool *stop, struct atsi_err *err)
{
    struct head h = {.version = VERSION,
                     .n = n,
                     .tensors = c->of.tensors,
                     .meta = c->of.meta,
                     .weights = c->of.weights};
    struct atsi_pack_entry *table = calloc((size_t)n + 1, sizeof *table);
    struct atsi_newfile f;
    uint64_t check;
    int rc;
    if (table == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a table of %u tensors", n);
    memcpy(h.magic, magic, sizeof magic);
    fill_table(tensors, n, &h, table);
    rc = atsi_newfile_open(&f, c->path, h.file_bytes, err);
    if (rc != ATSI_OK) {
        free(table);
        return rc;
    }
    rc = atsi_newfile_write(&f, &h, sizeof h, err);
    if (rc == ATSI_OK)
        rc = write_zeros(&f, PAGE - sizeof h, err);
    for (uint32_t i = 0; i < n && rc == ATSI_OK; i++)
        rc = write_tensor(&f, tensors[i], &table[i], stop, err);
    if (rc == ATSI_OK)
        rc = write_zeros(&f, PAGE, err);
    if (rc == ATSI_OK)
        rc = atsi_newfile_write(&f, table, n * sizeof *table, err);
    check = check_of(&h, table);
    if (rc == ATSI_OK)
        rc = atsi_newfile_write(&f, &check, sizeof check, err);
    if (rc == ATSI_OK)
        rc = atsi_newfile_commit(&f, err);
    else
        atsi_newfile_abort(&f);
    free(table);
    return rc;
}
