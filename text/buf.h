/* SPDX-License-Identifier: Apache-2.0
 * Growable arrays of bytes and of token ids.  All-zero is an empty one. */
#ifndef ATSI_TEXT_BUF_H
#define ATSI_TEXT_BUF_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct atsi_bytes {
    char *p;
    size_t n, cap;
};

struct atsi_ids {
    int32_t *p;
    size_t n, cap;
};

/* Room for `more` items of `item` bytes behind the `n` there are; false when out of memory. */
static inline bool atsi_grow(void **p, size_t n, size_t *cap, size_t more, size_t item)
{
    size_t want, bytes;
    void *q;
    if (*p != NULL && more <= *cap - n)
        return true;
    if (__builtin_add_overflow(n, more, &want))
        return false;
    if (want < *cap + *cap / 2)
        want = *cap + *cap / 2;
    if (want < 64)
        want = 64;
    if (__builtin_mul_overflow(want, item, &bytes))
        return false;
    q = realloc(*p, bytes);
    if (q == NULL)
        return false;
    *p = q;
    *cap = want;
    return true;
}

static inline bool atsi_bytes_reserve(struct atsi_bytes *b, size_t more)
{
    void *p = b->p;
    bool ok = atsi_grow(&p, b->n, &b->cap, more, 1);
    b->p = p;
    return ok;
}

static inline bool atsi_bytes_add(struct atsi_bytes *b, const char *p, size_t n)
{
    if (!atsi_bytes_reserve(b, n))
        return false;
    if (n > 0)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    return true;
}

static inline bool atsi_ids_reserve(struct atsi_ids *b, size_t more)
{
    void *p = b->p;
    bool ok = atsi_grow(&p, b->n, &b->cap, more, sizeof *b->p);
    b->p = p;
    return ok;
}

static inline bool atsi_ids_add(struct atsi_ids *b, int32_t id)
{
    if (b->n == b->cap && !atsi_ids_reserve(b, 1))
        return false;
    b->p[b->n++] = id;
    return true;
}

#endif
