/* SPDX-License-Identifier: Apache-2.0
 * The device's memory and the pinned memory it can read; every address belongs to one of them or
 * is refused. */
#include "twin.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct twin_block {
    struct twin_block *next;
    unsigned char *from;
    size_t bytes; /* usable now */
    enum twin_mem mem;
};

struct atsi_buf {
    struct twin_block block;
    size_t mapped; /* 0: a registration of memory that is not ours */
};

enum twin_mem twin_memory_of(struct atsi_backend *be, const void *p, size_t bytes)
{
    struct twin_shared *s = twin_shared(be);
    const unsigned char *from = p;
    enum twin_mem mem = TWIN_UNKNOWN;
    (void)pthread_mutex_lock(&s->lock);
    for (const struct twin_block *b = s->blocks; b != NULL && mem == TWIN_UNKNOWN; b = b->next)
        if (from >= b->from && bytes <= b->bytes && from <= b->from + (b->bytes - bytes))
            mem = b->mem;
    (void)pthread_mutex_unlock(&s->lock);
    return mem;
}

/* Counts bytes against a limit; the lock is held. */
static bool take(uint64_t *used, uint64_t limit, size_t bytes)
{
    if (limit != 0 && (bytes > limit || *used > limit - bytes))
        return false;
    *used += bytes;
    return true;
}

static int enter(struct atsi_backend *be, struct atsi_buf *buf, size_t count, struct atsi_err *err)
{
    struct twin_shared *s = twin_shared(be);
    bool pinned = buf->block.mem == TWIN_PINNED, ok;
    (void)pthread_mutex_lock(&s->lock);
    ok = pinned ? take(&s->pinned, s->pin_limit, count) : take(&s->used, s->limit, count);
    if (ok) {
        buf->block.next = s->blocks;
        s->blocks = &buf->block;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return ok ? ATSI_OK
              : atsi_fail(err, ATSI_ENOMEM, "twin: out of %s memory for %zu bytes",
                          pinned ? "pinned" : "device", count);
}

static void leave(struct atsi_backend *be, struct atsi_buf *buf)
{
    struct twin_shared *s = twin_shared(be);
    (void)pthread_mutex_lock(&s->lock);
    for (struct twin_block **at = &s->blocks; *at != NULL; at = &(*at)->next)
        if (*at == &buf->block) {
            *at = buf->block.next;
            break;
        }
    *(buf->block.mem == TWIN_PINNED ? &s->pinned : &s->used) -= buf->block.bytes;
    (void)pthread_mutex_unlock(&s->lock);
}

static int map(struct atsi_buf *buf, size_t bytes, int prot, struct atsi_err *err)
{
    void *p = mmap(NULL, bytes + 1, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory for %zu bytes", bytes);
    buf->block.from = p;
    buf->mapped = bytes + 1;
    return ATSI_OK;
}

int twin_buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes, struct atsi_buf **out,
                   struct atsi_err *err)
{
    bool device = mem == ATSI_MEM_DEVICE;
    struct atsi_buf *buf = calloc(1, sizeof *buf);
    int rc = twin_call(twin_shared(be)->host, device ? TWIN_ALLOC : TWIN_PIN, err);
    *out = NULL;
    if (buf == NULL)
        rc = atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    if (rc == ATSI_OK)
        rc = map(buf, bytes, PROT_READ | PROT_WRITE, err);
    if (rc == ATSI_OK) {
        buf->block.bytes = bytes;
        buf->block.mem = device ? TWIN_DEVICE : TWIN_PINNED;
        memset(buf->block.from, 0xff, bytes); /* NaNs */
        rc = enter(be, buf, bytes, err);
        if (rc != ATSI_OK)
            (void)munmap(buf->block.from, buf->mapped);
    }
    if (rc != ATSI_OK) {
        free(buf);
        return rc;
    }
    *out = buf;
    return ATSI_OK;
}

void twin_buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    if (buf == NULL)
        return;
    leave(be, buf);
    if (buf->mapped != 0)
        (void)munmap(buf->block.from, buf->mapped);
    free(buf);
}

void *twin_buf_ptr(const struct atsi_buf *buf)
{
    return buf->block.from;
}

int twin_buf_reserve(struct atsi_backend *be, size_t bytes, struct atsi_buf **out,
                     struct atsi_err *err)
{
    struct atsi_buf *buf = calloc(1, sizeof *buf);
    int rc = twin_call(twin_shared(be)->host, TWIN_ALLOC, err);
    *out = NULL;
    if (buf == NULL)
        rc = atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    if (rc == ATSI_OK)
        rc = map(buf, bytes, PROT_NONE, err);
    if (rc != ATSI_OK) {
        free(buf);
        return rc;
    }
    buf->block.mem = TWIN_DEVICE;
    (void)enter(be, buf, 0, err); /* of nothing: cannot fail */
    *out = buf;
    return ATSI_OK;
}

/* Pages that go lose their contents; those that come are NaNs. */
static int resize(struct atsi_buf *buf, size_t bytes)
{
    size_t page = 4096, had = (buf->block.bytes + page - 1) / page * page;
    size_t want = (bytes + page - 1) / page * page;
    if (want > had) {
        if (mprotect(buf->block.from + had, want - had, PROT_READ | PROT_WRITE) != 0)
            return ATSI_ENOMEM;
        memset(buf->block.from + had, 0xff, want - had);
    } else if (want < had) {
        (void)madvise(buf->block.from + want, had - want, MADV_DONTNEED);
        (void)mprotect(buf->block.from + want, had - want, PROT_NONE);
    }
    return ATSI_OK;
}

int twin_buf_commit(struct atsi_backend *be, struct atsi_buf *buf, size_t bytes,
                    struct atsi_err *err)
{
    struct twin_shared *s = twin_shared(be);
    int rc = twin_call(s->host, TWIN_ALLOC, err);
    if (rc != ATSI_OK)
        return rc;
    (void)pthread_mutex_lock(&s->lock);
    if (bytes > buf->block.bytes && !take(&s->used, s->limit, bytes - buf->block.bytes))
        rc = ATSI_ENOMEM;
    else if (resize(buf, bytes) != ATSI_OK)
        rc = ATSI_ENOMEM;
    else if (bytes < buf->block.bytes)
        s->used -= buf->block.bytes - bytes;
    if (rc == ATSI_OK)
        buf->block.bytes = bytes;
    (void)pthread_mutex_unlock(&s->lock);
    return rc == ATSI_OK ? ATSI_OK
                         : atsi_fail(err, rc, "twin: out of device memory for %zu bytes", bytes);
}

int twin_host_register(struct atsi_backend *be, void *ptr, size_t bytes, struct atsi_err *err)
{
    struct atsi_buf *buf = calloc(1, sizeof *buf);
    int rc = twin_call(twin_shared(be)->host, TWIN_PIN, err);
    if (buf == NULL)
        rc = atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    if (rc == ATSI_OK) {
        buf->block = (struct twin_block){NULL, ptr, bytes, TWIN_PINNED};
        rc = enter(be, buf, bytes, err);
    }
    if (rc != ATSI_OK)
        free(buf);
    return rc;
}

void twin_host_unregister(struct atsi_backend *be, void *ptr)
{
    struct twin_shared *s = twin_shared(be);
    struct twin_block *found;
    (void)pthread_mutex_lock(&s->lock);
    found = s->blocks;
    while (found != NULL && (found->from != ptr || ((struct atsi_buf *)(void *)found)->mapped != 0))
        found = found->next;
    (void)pthread_mutex_unlock(&s->lock);
    if (found != NULL)
        twin_buf_free(be, (struct atsi_buf *)(void *)found);
}
