/* SPDX-License-Identifier: Apache-2.0
 *
 * SPM: symbols of one character; the adjacent pair whose concatenation is the vocabulary text of
 * the highest score is joined, leftmost first; what is left and is no token becomes bytes.
 *
 * A pair across the boundary before a space can only be joined when some token holds such a
 * boundary.  Vocabularies of this kind normally have none (checked once), so text falls into
 * words that merge independently, and a word that is a token costs one look-up.
 */
#include "text/spm.h"

#include <stdio.h>

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */
#define MARK_BYTES 3u

static bool is_mark(const char *p, size_t n)
{
    return n >= MARK_BYTES && memcmp(p, SPACE_MARK, MARK_BYTES) == 0;
}

/* True when the text has a space mark that follows something else. */
static bool has_inner_space(const char *p, size_t n)
{
    for (size_t i = 1; i + MARK_BYTES <= n; i++)
        if (is_mark(p + i, n - i) && (i < MARK_BYTES || !is_mark(p + i - MARK_BYTES, MARK_BYTES)))
            return true;
    return false;
}

int atsi_spm_open(struct atsi_spm *s, const struct atsi_vocab *v, struct atsi_err *err)
{
    s->vocab = v;
    s->words_apart = true;
    s->whole = calloc(v->n, sizeof *s->whole);
    if (s->whole == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "vocabulary: out of memory");
    for (uint32_t i = 0; i < v->n && s->words_apart; i++) {
        size_t n;
        const char *p = atsi_strlist_at(&v->text, i, &n);
        s->words_apart = !has_inner_space(p, n);
    }
    return ATSI_OK;
}

void atsi_spm_close(struct atsi_spm *s)
{
    free(s->whole);
}

/* Replaces spaces by the mark. */
static bool mark_spaces(struct atsi_bytes *out, const char *text, size_t n, bool add_space)
{
    out->n = 0;
    if (add_space && !atsi_bytes_add(out, SPACE_MARK, MARK_BYTES))
        return false;
    while (n > 0) {
        const char *space = memchr(text, ' ', n);
        size_t run = space == NULL ? n : (size_t)(space - text);
        if (!atsi_bytes_add(out, text, run))
            return false;
        if (space == NULL)
            break;
        if (!atsi_bytes_add(out, SPACE_MARK, MARK_BYTES))
            return false;
        text += run + 1;
        n -= run + 1;
    }
    return true;
}

/* Length of the character at p by its lead byte alone, cut off at the end of the text, and before a
 * space, so that a stray lead byte does not turn a space into the mark's bytes. */
static size_t char_len(const char *p, size_t n)
{
    static const uint8_t by_nibble[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
    size_t len = by_nibble[(unsigned char)*p >> 4];
    len = len < n ? len : n;
    for (size_t i = 1; i < len; i++)
        if (is_mark(p + i, n - i))
            return i;
    return len;
}

/* Bytes up to where the next word begins. */
static size_t word_len(const struct atsi_spm *s, const char *p, size_t n)
{
    bool after_other = false;
    if (!s->words_apart)
        return n;
    for (size_t i = 0; i < n;) {
        bool mark = is_mark(p + i, n - i);
        if (mark && after_other)
            return i;
        after_other = !mark;
        i += char_len(p + i, n - i);
    }
    return n;
}

struct pair_ctx {
    const struct atsi_vocab *vocab;
    const char *text;
};

static uint32_t pair_prio(const void *ctx, const struct atsi_sym *left,
                          const struct atsi_sym *right, uint32_t *joined_out)
{
    const struct pair_ctx *c = ctx;
    uint32_t id =
        atsi_strmap_find(&c->vocab->map, c->text + left->start, (size_t)left->len + right->len);
    *joined_out = id;
    return id == ATSI_NO_SYM ? ATSI_NO_MERGE : c->vocab->prio[id];
}

/* Splits into characters; *n_out of them. */
static bool split_chars(const struct atsi_vocab *v, struct atsi_merger *m, const char *p, size_t n,
                        size_t *n_out)
{
    size_t n_syms = 0;
    if (!atsi_merger_reserve(m, n))
        return false;
    for (size_t i = 0; i < n;) {
        size_t len = char_len(p + i, n - i);
        m->syms[n_syms++] = (struct atsi_sym){.start = (uint32_t)i,
                                              .len = (uint32_t)len,
                                              .id = atsi_strmap_find(&v->map, p + i, len)};
        i += len;
    }
    *n_out = n_syms;
    return true;
}

/* A token's id; else the byte tokens of the text, and the unknown token where one is missing. */
static bool emit(const struct atsi_vocab *v, struct atsi_ids *ids, const struct atsi_sym *s,
                 const char *text)
{
    if (s->id != ATSI_NO_SYM)
        return atsi_ids_add(ids, (int32_t)s->id);
    for (uint32_t i = 0; i < s->len; i++) {
        int32_t id = v->byte_id[(unsigned char)text[s->start + i]];
        if (id < 0)
            id = v->unk;
        if (id >= 0 && !atsi_ids_add(ids, id))
            return false;
    }
    return true;
}

static int encode_word(const struct atsi_spm *s, struct atsi_encoder *e, const char *p, size_t n)
{
    const struct atsi_vocab *v = s->vocab;
    struct pair_ctx ctx = {v, p};
    uint32_t word = atsi_strmap_find(&v->map, p, n);
    size_t n_syms;
    if (word != ATSI_NO_SYM &&
        atomic_load_explicit(&s->whole[word], memory_order_relaxed) == ATSI_WHOLE_YES)
        return atsi_ids_add(&e->ids, (int32_t)word) ? ATSI_OK : atsi_encoder_no_memory(e);
    if (!split_chars(v, &e->merger, p, n, &n_syms) ||
        !atsi_merge(&e->merger, n_syms, pair_prio, &ctx, &n_syms))
        return atsi_encoder_no_memory(e);
    if (word != ATSI_NO_SYM)
        atomic_store_explicit(&s->whole[word],
                              n_syms == 1 && e->merger.syms[0].id == word ? ATSI_WHOLE_YES
                                                                          : ATSI_WHOLE_NO,
                              memory_order_relaxed);
    for (size_t i = 0; i < n_syms; i++)
        if (!emit(v, &e->ids, &e->merger.syms[i], p))
            return atsi_encoder_no_memory(e);
    return ATSI_OK;
}

int atsi_spm_fragment(const struct atsi_spm *s, struct atsi_encoder *e, const char *text, size_t n,
                      bool add_space)
{
    if (!mark_spaces(&e->mapped, text, n, add_space))
        return atsi_encoder_no_memory(e);
    if (e->mapped.n > INT32_MAX)
        return atsi_fail(e->err, ATSI_EINVAL,
                         "tokenize: %zu bytes of text in one piece, at most %d", e->mapped.n,
                         INT32_MAX);
    for (size_t i = 0; i < e->mapped.n;) {
        size_t len = word_len(s, e->mapped.p + i, e->mapped.n - i);
        int rc = encode_word(s, e, e->mapped.p + i, len);
        if (rc != ATSI_OK)
            return rc;
        i += len;
    }
    return ATSI_OK;
}
