/* SPDX-License-Identifier: Apache-2.0
 *
 * A list of byte strings in one block, and a hash map from such strings to their numbers.
 *
 * The map holds numbers only; the strings stay in the list, which may grow while it is used.
 */
#ifndef ATSI_TEXT_STRMAP_H
#define ATSI_TEXT_STRMAP_H

#include "text/buf.h"

#define ATSI_NO_SYM UINT32_MAX

/* String i is bytes.p[off[i] .. off[i+1]). */
struct atsi_strlist {
    struct atsi_bytes bytes;
    uint32_t *off; /* n + 1 entries */
    size_t n, cap_off;
};

static inline const char *atsi_strlist_at(const struct atsi_strlist *l, uint32_t i, size_t *len_out)
{
    *len_out = l->off[i + 1] - l->off[i];
    return l->bytes.p + l->off[i];
}

/* Prepares an empty list for about n strings of `bytes` bytes; false when out of memory. */
bool atsi_strlist_open(struct atsi_strlist *l, size_t n, size_t bytes);
void atsi_strlist_close(struct atsi_strlist *l);
/* Appends one string; false when out of memory or beyond 4 GiB of text. */
bool atsi_strlist_add(struct atsi_strlist *l, const char *p, size_t n);

struct atsi_strmap_slot {
    uint32_t tag; /* upper half of the hash */
    uint32_t id;  /* ATSI_NO_SYM: free */
};

struct atsi_strmap {
    const struct atsi_strlist *list; /* [borrowed until close] */
    struct atsi_strmap_slot *slots;
    uint64_t mask; /* slots - 1, a power of two minus one */
    uint64_t seed; /* random: a hostile file cannot choose strings that collide */
    size_t n;
    size_t max_len; /* of the strings put in: longer ones are not even looked up */
};

/* A random number, for hashes that strangers must not foresee. */
uint64_t atsi_hash_seed(void);

/* Room for `expect` strings at first; false when out of memory. */
bool atsi_strmap_open(struct atsi_strmap *m, const struct atsi_strlist *list, size_t expect);
void atsi_strmap_close(struct atsi_strmap *m);
/* Number of the string p[n], ATSI_NO_SYM when it is not in. */
uint32_t atsi_strmap_find(const struct atsi_strmap *m, const char *p, size_t n);
/* The two halves of find, so that many look-ups can overlap their waits for memory: the hash, with
 * the slot's line requested, and the search. */
uint64_t atsi_strmap_hash(const struct atsi_strmap *m, const char *p, size_t n);
uint32_t atsi_strmap_find_hashed(const struct atsi_strmap *m, const char *p, size_t n, uint64_t h);
/* Puts in string `id` of the list; an equal one that is in already is replaced by it.  false: out
 * of memory. */
bool atsi_strmap_put(struct atsi_strmap *m, uint32_t id);

#endif
