/* SPDX-License-Identifier: Apache-2.0
 *
 * The data sections in memory: mapped read-only and used in place, or read into own memory.
 *
 * Either way a page of readable zeros follows the data, since vector kernels may load a little past
 * the end of the last row:
 *
 *     mmap         | page-aligned part of the file ............ | zero page |
 *     read, direct | page-aligned copy of the same bytes ...... | zero page |
 *
 * Both start at the page that holds the first data byte, so tensors have the same alignment in
 * every mode and direct reads have aligned positions. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "atsinfer/plugin.h"
#include "text.h"

#define STEP_BYTES (UINT64_C(16) << 20) /* between two calls of progress() */
#define HUGE_BYTES (UINT64_C(4) << 20)  /* from here on huge pages are asked for */

struct load {
    const struct atsi_load_params *params;
    const struct atsi_host *host;
    uint64_t done, total;
    uint64_t page;
    bool will_need; /* mmap: start reading ahead */
};

static int report(struct load *ld, uint64_t more, struct atsi_err *err)
{
    ld->done += more;
    if (ld->params->progress == NULL ||
        ld->params->progress(ld->params->progress_ctx, ld->done, ld->total) == 0)
        return ATSI_OK;
    return atsi_fail(err, ATSI_EINTR,
                     "loading was cancelled after %" PRIu64 " of %" PRIu64 " bytes", ld->done,
                     ld->total);
}

/* Bytes that can be used without swapping, or UINT64_MAX when the system does not tell. */
static uint64_t memory_available(void)
{
    uint64_t kib = 0, out = UINT64_MAX;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    if (f == NULL)
        return UINT64_MAX;
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1) { // NOLINT(cert-err34-c)
            out = kib * 1024;
            break;
        }
    }
    (void)fclose(f);
    return out;
}

/* Start of the page that holds the first data byte. */
static uint64_t first_page(const struct gguf_shard *s, uint64_t page)
{
    return s->memory.first / page * page;
}

/* ---------------------------------------------------------------- mmap */
/* Reserves room for the file part and the zero page, then puts the file over its beginning. */
static int map_file(struct gguf_shard *s, uint64_t page, struct atsi_err *err)
{
    struct gguf_memory *m = &s->memory;
    uint64_t start = first_page(s, page), bytes = m->last - start;
    uint8_t *p;
    m->map_bytes = (size_t)((bytes + page - 1) / page * page + GGUF_PAD_BYTES);
    p = mmap(NULL, m->map_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return atsi_fail(err, ATSI_ENOFIT, "no address space for %zu bytes: %s", m->map_bytes,
                         strerror(errno));
    m->map = p;
    m->mapped = true;
    m->base = p + (m->first - start);
    if (mmap(p, (size_t)bytes, PROT_READ, MAP_SHARED | MAP_FIXED, s->fd, (off_t)start) ==
        MAP_FAILED)
        return atsi_fail(err, ATSI_EIO,
                         "cannot be mapped: %s (load.mode = read works without mapping)",
                         strerror(errno));
    return ATSI_OK;
}

static int load_mmap(struct gguf_shard *s, struct load *ld, struct atsi_err *err)
{
    uint64_t start = first_page(s, ld->page), bytes = s->memory.last - start;
    int st = map_file(s, ld->page, err);
    for (uint64_t at = 0; at < bytes && st == ATSI_OK; at += STEP_BYTES) {
        uint64_t n = bytes - at < STEP_BYTES ? bytes - at : STEP_BYTES;
        if (ld->will_need) /* only a hint: a failure costs speed at most */
            (void)madvise((uint8_t *)s->memory.map + at, (size_t)n, MADV_WILLNEED);
        st = report(ld, n, err);
    }
    return st;
}

/* ---------------------------------------------------------------- read, direct */
static int allocate(struct gguf_shard *s, uint64_t page, struct atsi_err *err)
{
    struct gguf_memory *m = &s->memory;
    uint64_t start = first_page(s, page);
    void *p;
    m->map_bytes = (size_t)((m->last - start + page - 1) / page * page + GGUF_PAD_BYTES);
    p = mmap(NULL, m->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return atsi_fail(err, ATSI_ENOFIT, "no memory for %zu bytes of weights: %s", m->map_bytes,
                         strerror(errno));
    m->map = p;
    m->base = (uint8_t *)p + (m->first - start);
    if (m->map_bytes >= HUGE_BYTES)
        (void)madvise(p, m->map_bytes, MADV_HUGEPAGE); /* a hint */
    return ATSI_OK;
}

/* Switches the page cache off for the descriptor; false when the file system refuses. */
static bool set_direct(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0)
        return false;
    return fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

static void say_not_direct(const struct gguf_shard *s, const struct load *ld, const char *why)
{
    char shown[GGUF_SHOW_PATH];
    if (ld->host != NULL && ld->host->log != NULL)
        ld->host->log(ld->host->ctx, ATSI_LOG_WARN, "gguf",
                      "%s: direct reads are refused here (%s); reading through the page cache",
                      gguf_show_path(s->path, shown), why);
}

/* Reads up to n bytes at `at`.  A direct read may end at the end of the file only; whatever the
 * file system refuses otherwise is read again through the cache. */
static int read_step(struct gguf_shard *s, struct load *ld, bool *direct, uint8_t *to, uint64_t n,
                     uint64_t at, uint64_t *got, struct atsi_err *err)
{
    for (;;) {
        ssize_t r = pread(s->fd, to, (size_t)n, (off_t)at);
        if (r > 0) {
            *got = (uint64_t)r;
            return ATSI_OK;
        }
        if (r == 0)
            return atsi_fail(err, ATSI_EIO,
                             "the file shrank while it was read: it had %" PRIu64
                             " bytes and now ends at byte %" PRIu64,
                             s->file_bytes, at);
        if (errno == EINTR)
            continue;
        if (!*direct || errno != EINVAL)
            return atsi_fail(err, ATSI_EIO, "reading at byte %" PRIu64 " failed: %s", at,
                             strerror(errno));
        say_not_direct(s, ld, strerror(errno));
        *direct = false;
        if (!set_direct(s->fd, false))
            return atsi_fail(err, ATSI_EIO, "direct reading cannot be left: %s", strerror(errno));
    }
}

static int load_read(struct gguf_shard *s, struct load *ld, struct atsi_err *err)
{
    uint64_t start = first_page(s, ld->page), at = start;
    bool direct = false;
    int st = allocate(s, ld->page, err);
    if (st == ATSI_OK && ld->params->mode == ATSI_LOAD_DIRECT) {
        direct = set_direct(s->fd, true);
        if (!direct)
            say_not_direct(s, ld, strerror(errno));
    }
    while (st == ATSI_OK && at < s->memory.last) {
        uint64_t room = (s->memory.last - at + ld->page - 1) / ld->page * ld->page, got = 0;
        st = read_step(s, ld, &direct, (uint8_t *)s->memory.map + (at - start),
                       room < STEP_BYTES ? room : STEP_BYTES, at, &got, err);
        if (st != ATSI_OK)
            break;
        if (got > s->memory.last - at) /* the rest of the last page */
            got = s->memory.last - at;
        at += got;
        st = report(ld, got, err);
    }
    if (direct)
        (void)set_direct(s->fd, false);
    /* Weights are never written: let the processor hold everybody to it. */
    if (st == ATSI_OK && mprotect(s->memory.map, s->memory.map_bytes, PROT_READ) != 0)
        st = atsi_fail(err, ATSI_EIO, "memory cannot be protected: %s", strerror(errno));
    return st;
}

/* ---------------------------------------------------------------- all shards */
/* The part of the file that tensors use. */
static void set_extent(struct gguf_shard *s)
{
    struct gguf_memory *m = &s->memory;
    m->first = m->last = s->head.data_start;
    for (uint32_t i = 0; i < s->head.n_records; i++) {
        const struct gguf_record *r = &s->head.records[i];
        uint64_t end = s->head.data_start + r->offset + r->bytes; /* checked: within the file */
        if (end > m->last)
            m->last = end;
    }
}

static int check_memory(const struct load *ld, uint64_t available, struct atsi_err *err)
{
    if (ld->total <= available)
        return ATSI_OK;
    if (ld->params->mode == ATSI_LOAD_MMAP) {
        if (ld->host != NULL && ld->host->log != NULL)
            ld->host->log(ld->host->ctx, ATSI_LOG_WARN, "gguf",
                          "%" PRIu64 " bytes of weights, but only %" PRIu64
                          " bytes of memory are available: parts will be read from disk again and "
                          "again",
                          ld->total, available);
        return ATSI_OK;
    }
    return atsi_fail(err, ATSI_ENOFIT,
                     "%" PRIu64 " bytes of weights do not fit the %" PRIu64
                     " bytes of memory that are available (load.mode = mmap needs no copy)",
                     ld->total, available);
}

int gguf_data_load(struct gguf_shard *shards, uint32_t n_shards,
                   const struct atsi_load_params *params, const struct atsi_host *host,
                   struct atsi_err *err)
{
    struct load ld = {.params = params, .host = host, .page = GGUF_PAD_BYTES};
    uint64_t available = memory_available();
    long page = sysconf(_SC_PAGESIZE);
    char shown[GGUF_SHOW_PATH];
    int st;
    if (page > 0)
        ld.page = (uint64_t)page;
    for (uint32_t i = 0; i < n_shards; i++) {
        set_extent(&shards[i]);
        ld.total += shards[i].memory.last - first_page(&shards[i], ld.page);
    }
    ld.will_need = ld.total <= available;
    st = check_memory(&ld, available, err);
    if (st == ATSI_OK)
        st = report(&ld, 0, err);
    for (uint32_t i = 0; i < n_shards && st == ATSI_OK; i++) {
        struct gguf_shard *s = &shards[i];
        if (s->memory.first == s->memory.last)
            continue;
        st = params->mode == ATSI_LOAD_MMAP ? load_mmap(s, &ld, err) : load_read(s, &ld, err);
        if (st != ATSI_OK)
            st = gguf_context(err, st, "%s", gguf_show_path(s->path, shown));
    }
    return st;
}

/* ---------------------------------------------------------------- giving memory back */
/* Of a mapping the page cache keeps what it likes; of a copy the file takes the place. */
static void release_pages(const struct gguf_shard *s, uint64_t page, uint64_t at, uint64_t end)
{
    uint8_t *p = (uint8_t *)s->memory.map + at;
    if (s->memory.mapped)
        (void)madvise(p, (size_t)(end - at), MADV_DONTNEED); /* saves memory only */
    else
        (void)mmap(p, (size_t)(end - at), PROT_READ, MAP_SHARED | MAP_FIXED, s->fd,
                   (off_t)(first_page(s, page) + at)); /* likewise: the copy stays when it fails */
}

void gguf_data_release(struct gguf_shard *shards, uint32_t n_shards, const void *ptr, size_t bytes)
{
    long size = sysconf(_SC_PAGESIZE);
    uint64_t page = size > 0 ? (uint64_t)size : GGUF_PAD_BYTES;
    for (uint32_t i = 0; i < n_shards; i++) {
        const struct gguf_memory *m = &shards[i].memory;
        uintptr_t map = (uintptr_t)m->map, p = (uintptr_t)ptr;
        uint64_t at, end;
        if (m->map == NULL || p < map || p - map >= m->map_bytes ||
            bytes > m->map_bytes - (p - map))
            continue;
        at = (p - map + page - 1) / page * page;
        end = (p - map + bytes) / page * page;
        if (at < end)
            release_pages(&shards[i], page, at, end);
    }
}
