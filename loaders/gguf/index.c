/* SPDX-License-Identifier: Apache-2.0
 *
 * Open addressing over SipHash-1-3 (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input
 * PRF", 2012; one compression and three finalisation rounds). */
#include "index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static uint64_t rotl(uint64_t x, unsigned n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[1] = rotl(v[1], 13) ^ v[0];
    v[0] = rotl(v[0], 32);
    v[2] += v[3];
    v[3] = rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = rotl(v[1], 17) ^ v[2];
    v[2] = rotl(v[2], 32);
}

static uint64_t sip_hash(const uint64_t key[2], const char *p, uint64_t len)
{
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    uint64_t rest = len & 7, last = len << 56, word;
    const char *end = p + (len - rest);
    for (; p != end; p += 8) {
        memcpy(&word, p, sizeof word);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    for (uint64_t i = 0; i < rest; i++)
        last |= (uint64_t)(unsigned char)p[i] << (8 * i);
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Slot of the name, or the free slot where it belongs. */
static uint64_t slot_of(const struct gguf_index *ix, const char *name, uint64_t len)
{
    uint64_t mask = ix->n_slots - 1, at = sip_hash(ix->key, name, len) & mask;
    for (; ix->slots[at] != 0; at = (at + 1) & mask) {
        const struct atsi_str *s = &ix->names[ix->slots[at] - 1];
        if (s->len == len && memcmp(s->ptr, name, (size_t)len) == 0)
            break;
    }
    return at;
}

uint32_t gguf_index_add(struct gguf_index *ix, uint32_t at)
{
    uint64_t slot = slot_of(ix, ix->names[at].ptr, ix->names[at].len);
    if (ix->slots[slot] != 0)
        return ix->slots[slot] - 1;
    ix->slots[slot] = at + 1;
    return at;
}

int gguf_index_open(struct gguf_index *ix, const struct atsi_str *names, uint32_t n, uint32_t room,
                    uint32_t dup_out[2])
{
    uint64_t n_slots = 16;
    memset(ix, 0, sizeof *ix);
    while (n_slots < 2 * (uint64_t)room + 1)
        n_slots *= 2;
    ix->slots = calloc((size_t)n_slots, sizeof *ix->slots);
    if (ix->slots == NULL)
        return ATSI_ENOMEM;
    ix->n_slots = n_slots;
    ix->names = names;
    /* Without random bytes (a very early boot) the index still works, with a guessable key. */
    if (getrandom(ix->key, sizeof ix->key, GRND_NONBLOCK) != (ssize_t)sizeof ix->key)
        ix->key[0] = (uint64_t)(uintptr_t)ix->slots;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t other = gguf_index_add(ix, i);
        if (other != i) {
            dup_out[0] = other;
            dup_out[1] = i;
            return ATSI_EINVAL;
        }
    }
    return ATSI_OK;
}

void gguf_index_close(struct gguf_index *ix)
{
    free(ix->slots);
    memset(ix, 0, sizeof *ix);
}

int64_t gguf_index_find(const struct gguf_index *ix, const char *name, uint64_t len)
{
    uint64_t slot;
    if (ix->slots == NULL)
        return -1;
    slot = slot_of(ix, name, len);
    return ix->slots[slot] == 0 ? -1 : (int64_t)ix->slots[slot] - 1;
}
