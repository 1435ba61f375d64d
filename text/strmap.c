/* SPDX-License-Identifier: Apache-2.0
 *
 * Strings in one block and an open-addressing hash map over them.
 *
 * Words of text are short, so the hash reads at most two overlapping machine words for up to 16
 * bytes; slots are 8 bytes, so a look-up touches one line of the table and one of the text.
 */
#include "text/strmap.h"

#include <sys/random.h>

#define MUL_A 0x9E3779B97F4A7C15u /* 2^64 / golden ratio */
#define MUL_B 0xD6E8FEB86659FD93u /* an odd constant with well spread bits */

bool atsi_strlist_open(struct atsi_strlist *l, size_t n, size_t bytes)
{
    *l = (struct atsi_strlist){.n = 0};
    l->off = calloc(n + 1, sizeof *l->off);
    if (l->off == NULL)
        return false;
    l->cap_off = n + 1;
    return atsi_bytes_reserve(&l->bytes, bytes + 1); /* + 1: never a NULL block */
}

void atsi_strlist_close(struct atsi_strlist *l)
{
    free(l->off);
    free(l->bytes.p);
    *l = (struct atsi_strlist){.n = 0};
}

bool atsi_strlist_add(struct atsi_strlist *l, const char *p, size_t n)
{
    void *off = l->off;
    if (n > UINT32_MAX - l->bytes.n || l->n >= ATSI_NO_SYM - 1)
        return false;
    if (!atsi_grow(&off, l->n + 1, &l->cap_off, 1, sizeof *l->off))
        return false;
    l->off = off;
    if (!atsi_bytes_add(&l->bytes, p, n))
        return false;
    l->off[++l->n] = (uint32_t)l->bytes.n;
    return true;
}

uint64_t atsi_hash_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = MUL_B; /* no randomness yet (early boot): still correct, merely foreseeable */
    return seed;
}

static uint64_t mix(uint64_t h, uint64_t w)
{
    h = (h ^ w) * MUL_A;
    return (h ^ h >> 29) * MUL_B;
}

static uint64_t load64(const char *p)
{
    uint64_t w;
    memcpy(&w, p, 8);
    return w;
}

static uint64_t load32(const char *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

static uint64_t hash(const char *p, size_t n, uint64_t seed)
{
    uint64_t h = seed + n;
    if (n >= 8) {
        for (size_t i = 0; i + 8 < n; i += 8)
            h = mix(h, load64(p + i));
        h = mix(h, load64(p + n - 8));
    } else if (n >= 4) {
        h = mix(h, load32(p) << 32 | load32(p + n - 4));
    } else if (n > 0) {
        h = mix(h, (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
                       (unsigned char)p[n - 1]);
    }
    return h ^ h >> 32;
}

static bool alloc_slots(struct atsi_strmap *m, size_t n_slots)
{
    m->slots = malloc(n_slots * sizeof *m->slots);
    if (m->slots == NULL)
        return false;
    memset(m->slots, 0xFF, n_slots * sizeof *m->slots); /* every id = ATSI_NO_SYM */
    m->mask = n_slots - 1;
    return true;
}

bool atsi_strmap_open(struct atsi_strmap *m, const struct atsi_strlist *list, size_t expect)
{
    size_t n_slots = 64;
    while (n_slots / 2 < expect)
        n_slots *= 2;
    *m = (struct atsi_strmap){.list = list, .seed = atsi_hash_seed()};
    return alloc_slots(m, n_slots);
}

void atsi_strmap_close(struct atsi_strmap *m)
{
    free(m->slots);
    m->slots = NULL;
}

/* The slot that holds p[n], or the free one where it belongs. */
static struct atsi_strmap_slot *slot_of(const struct atsi_strmap *m, const char *p, size_t n,
                                        uint64_t h)
{
    for (uint64_t i = h & m->mask;; i = (i + 1) & m->mask) {
        struct atsi_strmap_slot *s = &m->slots[i];
        size_t len;
        const char *q;
        if (s->id == ATSI_NO_SYM)
            return s;
        if (s->tag != (uint32_t)(h >> 32))
            continue;
        q = atsi_strlist_at(m->list, s->id, &len);
        if (len == n && memcmp(p, q, n) == 0)
            return s;
    }
}

uint64_t atsi_strmap_hash(const struct atsi_strmap *m, const char *p, size_t n)
{
    uint64_t h = hash(p, n, m->seed);
    __builtin_prefetch(&m->slots[h & m->mask]);
    return h;
}

uint32_t atsi_strmap_find_hashed(const struct atsi_strmap *m, const char *p, size_t n, uint64_t h)
{
    return n > m->max_len ? ATSI_NO_SYM : slot_of(m, p, n, h)->id;
}

uint32_t atsi_strmap_find(const struct atsi_strmap *m, const char *p, size_t n)
{
    return n > m->max_len ? ATSI_NO_SYM : slot_of(m, p, n, hash(p, n, m->seed))->id;
}

static bool rehash(struct atsi_strmap *m)
{
    struct atsi_strmap_slot *old = m->slots;
    uint64_t n_old = m->mask + 1;
    if (!alloc_slots(m, n_old * 2)) {
        m->slots = old;
        return false;
    }
    for (uint64_t i = 0; i < n_old; i++)
        if (old[i].id != ATSI_NO_SYM) {
            size_t n;
            const char *p = atsi_strlist_at(m->list, old[i].id, &n);
            *slot_of(m, p, n, hash(p, n, m->seed)) = old[i];
        }
    free(old);
    return true;
}

bool atsi_strmap_put(struct atsi_strmap *m, uint32_t id)
{
    size_t n;
    const char *p;
    struct atsi_strmap_slot *s;
    uint64_t h;
    if (2 * m->n > m->mask && !rehash(m))
        return false;
    p = atsi_strlist_at(m->list, id, &n);
    h = hash(p, n, m->seed);
    s = slot_of(m, p, n, h);
    m->n += s->id == ATSI_NO_SYM;
    *s = (struct atsi_strmap_slot){(uint32_t)(h >> 32), id};
    if (n > m->max_len)
        m->max_len = n;
    return true;
}
