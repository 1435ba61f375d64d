/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for xxHash where it is missing (scripts/lean_build.sh): the functions that core/ calls,
 * over another hash of 64 bits.  Sums differ from xxHash's, so files made by such a build
 * (sessions, packed weights, measured costs) are its own: others refuse them, and it refuses
 * theirs.  Products are built with xxHash.
 *
 * Words of 8 bytes are folded in by multiplication to 128 bits, the length last.
 */
#ifndef ATSI_LEAN_XXHASH_H
#define ATSI_LEAN_XXHASH_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t XXH64_hash_t;

typedef struct {
    uint64_t sum, length;
    unsigned char held[8]; /* bytes that do not make a word yet */
} XXH3_state_t;

static inline uint64_t lean_hash_fold(uint64_t sum, uint64_t word)
{
    __extension__ typedef unsigned __int128 wide;
    wide p = (wide)(sum ^ word ^ UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xd6e8feb86659fd93);
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static inline int XXH3_64bits_reset(XXH3_state_t *s)
{
    *s = (XXH3_state_t){.sum = UINT64_C(0x2545f4914f6cdd1d)};
    return 0;
}

static inline int XXH3_64bits_update(XXH3_state_t *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t word;
    size_t have = s->length % 8;
    s->length += n;
    for (; n > 0 && have > 0; n--) {
        s->held[have] = *p++;
        have = (have + 1) % 8;
        if (have == 0) {
            memcpy(&word, s->held, 8);
            s->sum = lean_hash_fold(s->sum, word);
        }
    }
    for (; n >= 8; n -= 8, p += 8) {
        memcpy(&word, p, 8);
        s->sum = lean_hash_fold(s->sum, word);
    }
    if (n > 0)
        memcpy(s->held, p, n);
    return 0;
}

static inline uint64_t XXH3_64bits_digest(const XXH3_state_t *s)
{
    uint64_t word = 0;
    memcpy(&word, s->held, s->length % 8);
    return lean_hash_fold(lean_hash_fold(s->sum, word), s->length);
}

static inline XXH3_state_t *XXH3_createState(void)
{
    XXH3_state_t *s = malloc(sizeof *s);
    if (s != NULL)
        (void)XXH3_64bits_reset(s);
    return s;
}

static inline int XXH3_freeState(XXH3_state_t *s)
{
    free(s);
    return 0;
}

static inline uint64_t XXH3_64bits_withSeed(const void *data, size_t n, uint64_t seed)
{
    XXH3_state_t s;
    (void)XXH3_64bits_reset(&s);
    s.sum = lean_hash_fold(s.sum, seed);
    (void)XXH3_64bits_update(&s, data, n);
    return XXH3_64bits_digest(&s);
}

static inline uint64_t XXH3_64bits(const void *data, size_t n)
{
    return XXH3_64bits_withSeed(data, n, 0);
}

#endif
