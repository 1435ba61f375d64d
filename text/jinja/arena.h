/* SPDX-License-Identifier: Apache-2.0
 * Memory that is freed all at once: of a parsed template, or of one render. */
#ifndef ATSI_TEXT_JINJA_ARENA_H
#define ATSI_TEXT_JINJA_ARENA_H

#include <stdbool.h>
#include <stddef.h>

struct atsi_arena_chunk;

enum { ATSI_ARENA_GROWING = 4 };

/* Objects and characters live in chunks of their own, so that a string that was made last can often
 * grow where it is; a few long strings have room behind them, too.  All-zero but `limit` is an
 * empty arena. */
struct atsi_arena {
    struct atsi_arena_chunk *objects, *chars, *strings;
    struct atsi_arena_chunk *growing[ATSI_ARENA_GROWING]; /* of `strings`, the latest ones */
    unsigned n_growing;                                   /* how many there have been */
    size_t used;                                          /* bytes of all chunks */
    size_t limit;                                         /* no more than this */
    bool full; /* a request was refused because of the limit */
};

/* `n` zeroed bytes, aligned for any object; NULL when out of memory or over the limit. */
void *atsi_arena_alloc(struct atsi_arena *a, size_t n);
/* `n` items of `size` bytes, the same way; checks the product. */
void *atsi_arena_array(struct atsi_arena *a, size_t n, size_t size);
/* `n` bytes, not aligned and not cleared; never NULL for n = 0 unless out of memory. */
char *atsi_arena_chars(struct atsi_arena *a, size_t n);
/* `n` bytes with room for half as much behind them, for atsi_arena_extend(). */
char *atsi_arena_growable(struct atsi_arena *a, size_t n);
/* Makes the stretch of characters that ends at `end` longer by `more` where it is and returns the
 * new bytes; NULL when something lies behind it or there is no room. */
char *atsi_arena_extend(struct atsi_arena *a, const char *end, size_t more);
/* Gives the last `n` bytes before `end` back, when nothing lies behind them. */
void atsi_arena_shrink(struct atsi_arena *a, const char *end, size_t n);
void atsi_arena_free(struct atsi_arena *a);

#endif
