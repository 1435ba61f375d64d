/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounds-checked reader: the only code that trusts no length and lets others trust theirs.
 *
 * A length is always compared with what is left, never added to a position first, so that nothing
 * wraps around.  Memory grows with the bytes that were really read, never with a claimed count. */
#include "cursor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_READ_BYTES (UINT64_C(256) << 10)

void gguf_cursor_open_fd(struct gguf_cursor *c, int fd, uint64_t size)
{
    memset(c, 0, sizeof *c);
    c->fd = fd;
    c->size = size;
}

void gguf_cursor_open_mem(struct gguf_cursor *c, const void *mem, uint64_t size)
{
    memset(c, 0, sizeof *c);
    c->fd = -1;
    c->mem = mem;
    c->have = c->cap = c->size = size;
}

void gguf_cursor_close(struct gguf_cursor *c)
{
    free(c->owned);
    memset(c, 0, sizeof *c);
    c->fd = -1;
}

uint64_t gguf_cursor_remaining(const struct gguf_cursor *c)
{
    return c->size - c->pos;
}

/* Room for `want` bytes in all: doubling, but not beyond the file or the limit. */
static int grow(struct gguf_cursor *c, uint64_t want, struct atsi_err *err)
{
    uint64_t cap = c->cap < FIRST_READ_BYTES ? FIRST_READ_BYTES : c->cap * 2;
    uint64_t limit = c->size < GGUF_HEAD_MAX_BYTES ? c->size : GGUF_HEAD_MAX_BYTES;
    uint8_t *p;
    if (cap > limit)
        cap = limit;
    if (cap < want)
        cap = want;
    p = realloc(c->owned, (size_t)cap);
    if (p == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "no memory for %" PRIu64 " bytes of metadata", cap);
    c->owned = p;
    c->mem = p;
    c->cap = cap;
    return ATSI_OK;
}

/* Fills the buffer. */
static int fill(struct gguf_cursor *c, struct atsi_err *err)
{
    while (c->have < c->cap) {
        ssize_t n = pread(c->fd, c->owned + c->have, (size_t)(c->cap - c->have), (off_t)c->have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return atsi_fail(err, ATSI_EIO, "reading at byte %" PRIu64 " failed: %s", c->have,
                             strerror(errno));
        if (n == 0)
            return atsi_fail(err, ATSI_EIO,
                             "the file shrank while it was read: it had %" PRIu64
                             " bytes and now ends at byte %" PRIu64,
                             c->size, c->have);
        c->have += (uint64_t)n;
    }
    return ATSI_OK;
}

int gguf_cursor_need(struct gguf_cursor *c, uint64_t n, struct atsi_err *err)
{
    int st;
    if (n <= c->have - c->pos)
        return ATSI_OK;
    if (n > c->size - c->pos)
        return atsi_fail(err, ATSI_EFORMAT,
                         "%" PRIu64 " bytes are needed at byte %" PRIu64 ", but only %" PRIu64
                         " are left (truncated file?)",
                         n, c->pos, c->size - c->pos);
    /* c->fd >= 0 here: a memory cursor has all its bytes */
    if (c->pos + n > GGUF_HEAD_MAX_BYTES) /* both are at most the size of a file */
        return atsi_fail(err, ATSI_EFORMAT,
                         "the metadata reaches byte %" PRIu64 ", more than the %" PRIu64
                         " bytes that are accepted",
                         c->pos + n, GGUF_HEAD_MAX_BYTES);
    st = grow(c, c->pos + n, err);
    return st != ATSI_OK ? st : fill(c, err);
}

int gguf_cursor_skip(struct gguf_cursor *c, uint64_t n, struct atsi_err *err)
{
    int st = gguf_cursor_need(c, n, err);
    if (st == ATSI_OK)
        c->pos += n;
    return st;
}

uint64_t gguf_le(const uint8_t *p, uint32_t n)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

int gguf_cursor_u32(struct gguf_cursor *c, uint32_t *out, struct atsi_err *err)
{
    int st = gguf_cursor_need(c, 4, err);
    if (st != ATSI_OK)
        return st;
    *out = (uint32_t)gguf_le(c->mem + c->pos, 4);
    c->pos += 4;
    return ATSI_OK;
}

int gguf_cursor_u64(struct gguf_cursor *c, uint64_t *out, struct atsi_err *err)
{
    int st = gguf_cursor_need(c, 8, err);
    if (st != ATSI_OK)
        return st;
    *out = gguf_le(c->mem + c->pos, 8);
    c->pos += 8;
    return ATSI_OK;
}

int gguf_cursor_string(struct gguf_cursor *c, uint64_t max_bytes, uint64_t *off_out,
                       uint64_t *len_out, struct atsi_err *err)
{
    uint64_t len = 0;
    int st = gguf_cursor_u64(c, &len, err);
    if (st != ATSI_OK)
        return st;
    if (len > gguf_cursor_remaining(c))
        return atsi_fail(err, ATSI_EFORMAT,
                         "a string of %" PRIu64 " bytes begins at byte %" PRIu64
                         ", but only %" PRIu64 " are left",
                         len, c->pos, gguf_cursor_remaining(c));
    if (len > max_bytes)
        return atsi_fail(err, ATSI_EFORMAT,
                         "a string of %" PRIu64 " bytes at byte %" PRIu64
                         " is longer than the %" PRIu64 " that are accepted",
                         len, c->pos, max_bytes);
    *off_out = c->pos;
    *len_out = len;
    return gguf_cursor_skip(c, len, err);
}

int gguf_cursor_check_count(const struct gguf_cursor *c, uint64_t count, uint64_t min_bytes,
                            struct atsi_err *err)
{
    uint64_t fits = gguf_cursor_remaining(c) / min_bytes;
    if (count <= fits)
        return ATSI_OK;
    return atsi_fail(err, ATSI_EFORMAT,
                     "a count of %" PRIu64 " is impossible: the %" PRIu64
                     " bytes after byte %" PRIu64 " hold at most %" PRIu64 " (truncated file?)",
                     count, gguf_cursor_remaining(c), c->pos, fits);
}
