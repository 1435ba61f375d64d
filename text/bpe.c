/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-level BPE.
 *
 * Texts of the vocabulary and of the merges are turned into the bytes they stand for when they are
 * read, so that words of the input need no mapping.  Every text that a merge can meet has a symbol
 * number: the token's id, or a number behind the tokens.  A merge is then a pair of numbers, and
 * its rank is found in one probe of a hash table.
 *
 * Most words of a text are tokens.  Whether merging such a word gives that very token (nearly
 * always, but not by necessity) is remembered per token, so the common word costs one look-up.
 */
#include "text/bpe.h"

#include "text/vocab_meta.h"

#define MERGES "tokenizer.ggml.merges"

static uint64_t pair_hash(const struct atsi_bpe *b, uint32_t left, uint32_t right)
{
    uint64_t h = (((uint64_t)left << 32 | right) ^ b->seed) * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

/* The slot of the pair, or the free one where it belongs. */
static struct atsi_bpe_pair *pair_slot(const struct atsi_bpe *b, uint32_t left, uint32_t right)
{
    for (uint64_t i = pair_hash(b, left, right) & b->mask;; i = (i + 1) & b->mask) {
        struct atsi_bpe_pair *p = &b->pairs[i];
        if (p->rank == ATSI_NO_MERGE || (p->left == left && p->right == right))
            return p;
    }
}

static bool alloc_pairs(struct atsi_bpe *b, uint64_t n_merges)
{
    uint64_t n_slots = 64;
    while (n_slots < n_merges + n_merges / 2)
        n_slots *= 2;
    b->seed = atsi_hash_seed();
    b->mask = n_slots - 1;
    b->pairs = malloc(n_slots * sizeof *b->pairs);
    if (b->pairs == NULL)
        return false;
    for (uint64_t i = 0; i < n_slots; i++)
        b->pairs[i].rank = ATSI_NO_MERGE;
    return true;
}

/* Symbol of p[n] with hash h, which is added when there is none; ATSI_NO_SYM when out of memory. */
static uint32_t intern(struct atsi_vocab *v, const char *p, size_t n, uint64_t h)
{
    uint32_t sym = atsi_strmap_find_hashed(&v->map, p, n, h);
    if (sym != ATSI_NO_SYM)
        return sym;
    sym = (uint32_t)v->raw.n;
    if (!atsi_strlist_add(&v->raw, p, n) || !atsi_strmap_put(&v->map, sym))
        return ATSI_NO_SYM;
    return sym;
}

static int no_memory(struct atsi_err *err)
{
    return atsi_fail(err, ATSI_ENOMEM, MERGES ": out of memory");
}

/* A merge on its way into the table.  Its three texts are bytes [at, at + n_left + n_right) of the
 * batch's buffer and parts of that. */
struct merge {
    uint32_t rank;
    size_t at, n_left, n_right;
    uint64_t hash_left, hash_right, hash_joined;
    uint32_t left, right, joined;
};

enum { BATCH = 16 }; /* merges whose waits for memory overlap */

struct batch {
    struct merge m[BATCH];
    size_t n;
    struct atsi_bytes bytes;
};

/* Takes one entry "left right", split at the first space that is not its first byte. */
static int parse_merge(const struct atsi_bpe *b, struct batch *batch, uint32_t rank,
                       const struct atsi_str *s, struct atsi_err *err)
{
    const char *space = s->len > 1 ? memchr(s->ptr + 1, ' ', s->len - 1) : NULL, *p;
    struct merge *m = &batch->m[batch->n];
    bool pure_left, pure_right;
    if (space == NULL || space + 1 == s->ptr + s->len)
        return atsi_fail(err, ATSI_EFORMAT,
                         MERGES ": entry %u (%llu bytes) is not two texts with a space between",
                         rank, (unsigned long long)s->len);
    m->rank = rank;
    m->at = batch->bytes.n;
    if (!atsi_bpe_alphabet_decode(s->ptr, (size_t)(space - s->ptr), &batch->bytes, &pure_left))
        return no_memory(err);
    m->n_left = batch->bytes.n - m->at;
    if (!atsi_bpe_alphabet_decode(space + 1, (size_t)(s->ptr + s->len - space - 1), &batch->bytes,
                                  &pure_right))
        return no_memory(err);
    if (!pure_left || !pure_right) { /* no text is ever spelled so: the merge can never apply */
        batch->bytes.n = m->at;
        return ATSI_OK;
    }
    m->n_right = batch->bytes.n - m->at - m->n_left;
    p = batch->bytes.p + m->at;
    m->hash_left = atsi_strmap_hash(&b->vocab->map, p, m->n_left);
    m->hash_right = atsi_strmap_hash(&b->vocab->map, p + m->n_left, m->n_right);
    m->hash_joined = atsi_strmap_hash(&b->vocab->map, p, m->n_left + m->n_right);
    batch->n++;
    return ATSI_OK;
}

/* Finds the symbols of the batch's merges, then enters them. */
static bool enter_batch(struct atsi_bpe *b, struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        struct merge *m = &batch->m[i];
        const char *p = batch->bytes.p + m->at;
        m->left = intern(b->vocab, p, m->n_left, m->hash_left);
        m->right = intern(b->vocab, p + m->n_left, m->n_right, m->hash_right);
        m->joined = intern(b->vocab, p, m->n_left + m->n_right, m->hash_joined);
        if (m->left == ATSI_NO_SYM || m->right == ATSI_NO_SYM || m->joined == ATSI_NO_SYM)
            return false;
        __builtin_prefetch(&b->pairs[pair_hash(b, m->left, m->right) & b->mask]);
    }
    for (size_t i = 0; i < batch->n; i++) {
        const struct merge *m = &batch->m[i];
        struct atsi_bpe_pair *slot = pair_slot(b, m->left, m->right);
        if (slot->rank == ATSI_NO_MERGE) /* of two equal entries the first counts */
            *slot = (struct atsi_bpe_pair){m->left, m->right, m->rank, m->joined};
        if (m->joined < b->vocab->n)
            b->vocab->flags[m->joined] |= ATSI_TOKEN_MERGED;
    }
    batch->n = 0;
    batch->bytes.n = 0;
    return true;
}

static int read_merges(struct atsi_bpe *b, const struct atsi_meta_source *src, struct atsi_err *err)
{
    struct atsi_meta m;
    struct batch batch = {.n = 0};
    int rc = atsi_meta_texts(src, MERGES, &m, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return atsi_fail(err, ATSI_EFORMAT, MERGES " is missing, a gpt2 vocabulary needs it");
    if (m.count > INT32_MAX)
        return atsi_fail(err, ATSI_EFORMAT, MERGES ": %llu entries, at most %d expected",
                         (unsigned long long)m.count, INT32_MAX);
    if (!alloc_pairs(b, m.count))
        return no_memory(err);
    rc = ATSI_OK;
    for (uint64_t i = 0; rc == ATSI_OK && i < m.count; i++) {
        rc = parse_merge(b, &batch, (uint32_t)i, &m.strs[i], err);
        if (rc == ATSI_OK && (batch.n == BATCH || i + 1 == m.count) && !enter_batch(b, &batch))
            rc = no_memory(err);
    }
    free(batch.bytes.p);
    return rc;
}

int atsi_bpe_open(struct atsi_bpe *b, struct atsi_vocab *v, const struct atsi_meta_source *src,
                  struct atsi_err *err)
{
    int rc;
    b->vocab = v;
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        b->byte_sym[i] = intern(v, &c, 1, atsi_strmap_hash(&v->map, &c, 1));
        if (b->byte_sym[i] == ATSI_NO_SYM)
            return no_memory(err);
    }
    rc = read_merges(b, src, err);
    if (rc != ATSI_OK)
        return rc;
    b->whole = calloc(v->n, sizeof *b->whole);
    return b->whole == NULL ? no_memory(err) : ATSI_OK;
}

void atsi_bpe_close(struct atsi_bpe *b)
{
    free(b->pairs);
    free(b->whole);
}

static uint32_t pair_rank(const void *ctx, const struct atsi_sym *left,
                          const struct atsi_sym *right, uint32_t *joined_out)
{
    const struct atsi_bpe *b = ctx;
    const struct atsi_bpe_pair *p = pair_slot(b, left->id, right->id);
    *joined_out = p->joined;
    return p->rank;
}

/* A token's id, or of a symbol that is no token the ids of its bytes as far as there are any. */
static bool emit(const struct atsi_bpe *b, struct atsi_ids *ids, uint32_t sym)
{
    size_t n;
    const char *p;
    if (sym < b->vocab->n)
        return atsi_ids_add(ids, (int32_t)sym);
    p = atsi_strlist_at(&b->vocab->raw, sym, &n);
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->vocab->byte_id[(unsigned char)p[i]];
        if (id >= 0 && !atsi_ids_add(ids, id))
            return false;
    }
    return true;
}

int atsi_bpe_word(const struct atsi_bpe *b, struct atsi_encoder *e, const char *p, size_t n)
{
    uint32_t word = atsi_strmap_find(&b->vocab->map, p, n);
    bool is_token = word < b->vocab->n;
    struct atsi_sym *s;
    size_t n_syms;
    if (is_token && (b->ignore_merges ||
                     atomic_load_explicit(&b->whole[word], memory_order_relaxed) == ATSI_WHOLE_YES))
        return atsi_ids_add(&e->ids, (int32_t)word) ? ATSI_OK : atsi_encoder_no_memory(e);
    if (!atsi_merger_reserve(&e->merger, n))
        return atsi_encoder_no_memory(e);
    s = e->merger.syms;
    for (size_t i = 0; i < n; i++)
        s[i] = (struct atsi_sym){
            .start = (uint32_t)i, .len = 1, .id = b->byte_sym[(unsigned char)p[i]]};
    if (!atsi_merge(&e->merger, n, pair_rank, b, &n_syms))
        return atsi_encoder_no_memory(e);
    if (is_token)
        atomic_store_explicit(&b->whole[word],
                              n_syms == 1 && s[0].id == word ? ATSI_WHOLE_YES : ATSI_WHOLE_NO,
                              memory_order_relaxed);
    for (size_t i = 0; i < n_syms; i++)
        if (!emit(b, &e->ids, s[i].id))
            return atsi_encoder_no_memory(e);
    return ATSI_OK;
}
