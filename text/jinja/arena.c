/* SPDX-License-Identifier: Apache-2.0
 *
 * The arena: chunks in two lists, the newest first; only the newest is filled further.
 */
#include "text/jinja/arena.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct atsi_arena_chunk {
    struct atsi_arena_chunk *next;
    size_t n, cap;
    alignas(max_align_t) char bytes[];
};

enum { CHUNK_MIN = 4 << 10, CHUNK_MAX = 256 << 10 }; /* bytes */

/* A chunk with room for `n`; sizes double, so that a short render takes little. */
static struct atsi_arena_chunk *add_chunk(struct atsi_arena *a, struct atsi_arena_chunk **list,
                                          size_t n)
{
    size_t cap = *list == NULL ? CHUNK_MIN : 2 * (*list)->cap, total;
    struct atsi_arena_chunk *c;
    if (cap > CHUNK_MAX)
        cap = CHUNK_MAX;
    if (cap < n || list == &a->strings)
        cap = n;
    if (__builtin_add_overflow(cap, sizeof *c, &total) || total > a->limit - a->used) {
        a->full = true;
        return NULL;
    }
    c = malloc(total);
    if (c == NULL)
        return NULL;
    c->n = 0;
    c->cap = cap;
    c->next = *list;
    *list = c;
    a->used += total;
    return c;
}

void *atsi_arena_alloc(struct atsi_arena *a, size_t n)
{
    struct atsi_arena_chunk *c = a->objects;
    void *p;
    if (n > SIZE_MAX - alignof(max_align_t)) {
        a->full = true;
        return NULL;
    }
    n = (n + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
    if (c == NULL || n > c->cap - c->n)
        c = add_chunk(a, &a->objects, n);
    if (c == NULL)
        return NULL;
    p = c->bytes + c->n;
    c->n += n;
    return memset(p, 0, n);
}

void *atsi_arena_array(struct atsi_arena *a, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        a->full = true;
        return NULL;
    }
    return atsi_arena_alloc(a, bytes);
}

char *atsi_arena_chars(struct atsi_arena *a, size_t n)
{
    struct atsi_arena_chunk *c = a->chars;
    char *p;
    if (c == NULL || n > c->cap - c->n)
        c = add_chunk(a, &a->chars, n);
    if (c == NULL)
        return NULL;
    p = c->bytes + c->n;
    c->n += n;
    return p;
}

char *atsi_arena_growable(struct atsi_arena *a, size_t n)
{
    struct atsi_arena_chunk *c;
    size_t room = n / 2;
    if (n > a->limit / 2 || n + room > (a->limit - a->used) / 2)
        room = 0; /* memory runs short: what is left is not for room */
    c = add_chunk(a, &a->strings, n + room);
    if (c == NULL)
        return NULL;
    c->n = n;
    a->growing[a->n_growing++ % ATSI_ARENA_GROWING] = c;
    return c->bytes;
}

static char *extend_in(struct atsi_arena_chunk *c, const char *end, size_t more)
{
    char *p;
    if (c == NULL || end != c->bytes + c->n || more > c->cap - c->n)
        return NULL;
    p = c->bytes + c->n;
    c->n += more;
    return p;
}

char *atsi_arena_extend(struct atsi_arena *a, const char *end, size_t more)
{
    char *p = extend_in(a->chars, end, more);
    for (size_t i = 0; p == NULL && i < ATSI_ARENA_GROWING; i++)
        p = extend_in(a->growing[i], end, more);
    return p;
}

void atsi_arena_shrink(struct atsi_arena *a, const char *end, size_t n)
{
    struct atsi_arena_chunk *c = a->chars;
    if (c != NULL && end == c->bytes + c->n && n <= c->n)
        c->n -= n;
}

static void free_chunks(struct atsi_arena_chunk *c)
{
    while (c != NULL) {
        struct atsi_arena_chunk *next = c->next;
        free(c);
        c = next;
    }
}

void atsi_arena_free(struct atsi_arena *a)
{
    free_chunks(a->objects);
    free_chunks(a->chars);
    free_chunks(a->strings);
    memset(a->growing, 0, sizeof a->growing);
    a->objects = a->chars = a->strings = NULL;
    a->used = 0;
}
