/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the token table from metadata that may say anything.
 *
 * The byte alphabet of byte-level BPE (published with GPT-2): the 188 printable Latin-1 characters
 * stand for themselves, the other 68 byte values, in increasing order, are written U+0100..U+0143.
 */
#include "text/vocab.h"

#include <math.h>
#include <stdio.h>

#include "text/utf8.h"
#include "text/vocab_meta.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, a space inside SPM vocabularies */

static bool stands_for_itself(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/* The byte that a character of the alphabet stands for, -1 for any other character. */
static int alphabet_byte(uint32_t cp)
{
    if (cp < 0x100)
        return stands_for_itself(cp) ? (int)cp : -1;
    if (cp < 0x121) /* U+0100..U+0120: bytes 00..20 */
        return (int)(cp - 0x100);
    if (cp < 0x143) /* U+0121..U+0142: bytes 7F..A0 */
        return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}

bool atsi_bpe_alphabet_decode(const char *p, size_t n, struct atsi_bytes *out, bool *pure_out)
{
    *pure_out = true;
    if (!atsi_bytes_reserve(out, n))
        return false;
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t len = atsi_utf8_decode(p + i, n - i, &cp);
        int byte = len > 0 ? alphabet_byte(cp) : -1;
        if (byte >= 0) {
            out->p[out->n++] = (char)byte;
        } else {
            *pure_out = false;
            len = len > 0 ? len : 1;
            memcpy(out->p + out->n, p + i, len);
            out->n += len;
        }
        i += len;
    }
    return true;
}

static int no_memory(struct atsi_err *err)
{
    return atsi_fail(err, ATSI_ENOMEM, "vocabulary: out of memory");
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that an SPM byte token "<0xXX>" stands for, or -1. */
static int byte_token(const char *p, size_t n)
{
    int high, low;
    if (n != 6 || memcmp(p, "<0x", 3) != 0 || p[5] != '>')
        return -1;
    high = hex_digit(p[3]);
    low = hex_digit(p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

/* SPM: the mark back to a space, a byte token to its byte. */
static bool spm_raw(struct atsi_vocab *v, uint32_t id, const char *p, size_t n,
                    struct atsi_bytes *tmp)
{
    int byte = v->type[id] == ATSI_TOKEN_BYTE ? byte_token(p, n) : -1;
    tmp->n = 0;
    if (byte >= 0) {
        char c = (char)byte;
        return atsi_strlist_add(&v->raw, &c, 1);
    }
    if (!atsi_bytes_reserve(tmp, n))
        return false;
    for (size_t i = 0; i < n;) {
        bool mark = n - i >= 3 && memcmp(p + i, SPACE_MARK, 3) == 0;
        tmp->p[tmp->n++] = mark ? ' ' : p[i];
        i += mark ? 3 : 1;
    }
    return atsi_strlist_add(&v->raw, tmp->p, tmp->n);
}

/* Adds the bytes of token `id` and enters it into the map. */
static bool add_raw(struct atsi_vocab *v, uint32_t id, struct atsi_bytes *tmp)
{
    size_t n;
    const char *p = atsi_strlist_at(&v->text, id, &n);
    bool pure;
    if (v->kind == ATSI_VOCAB_SPM)
        return spm_raw(v, id, p, n, tmp) && atsi_strmap_put(&v->map, id);
    tmp->n = 0;
    return atsi_bpe_alphabet_decode(p, n, tmp, &pure) &&
           atsi_strlist_add(&v->raw, tmp->p, tmp->n) && (!pure || atsi_strmap_put(&v->map, id));
}

static int read_texts(struct atsi_vocab *v, const struct atsi_meta *tokens, struct atsi_err *err)
{
    uint64_t total = 0;
    for (uint64_t i = 0; i < tokens->count; i++)
        if (tokens->strs[i].len > UINT32_MAX || (total += tokens->strs[i].len + 20) > UINT32_MAX)
            return atsi_fail(err, ATSI_EFORMAT,
                             "tokenizer.ggml.tokens: more than %u bytes of text at entry %llu",
                             UINT32_MAX, (unsigned long long)i);
    if (!atsi_strlist_open(&v->text, tokens->count, total))
        return no_memory(err);
    for (uint64_t i = 0; i < tokens->count; i++) {
        const struct atsi_str *s = &tokens->strs[i];
        char empty[32];
        bool ok;
        if (s->len > 0) {
            ok = atsi_strlist_add(&v->text, s->ptr, s->len);
        } else { /* as the reference does, so that every token has a text */
            int n = snprintf(empty, sizeof empty, "[EMPTY_%llu]", (unsigned long long)i);
            ok = atsi_strlist_add(&v->text, empty, (size_t)n);
        }
        if (!ok)
            return no_memory(err);
    }
    return ATSI_OK;
}

/* An array that has to have one entry a token. */
static int numbers_per_token(const struct atsi_vocab *v, const struct atsi_meta_source *src,
                             const char *key, bool whole, struct atsi_meta *out,
                             struct atsi_err *err)
{
    int rc = atsi_meta_numbers(src, key, whole, out, err);
    if (rc == 1 && out->count != v->n)
        return atsi_fail(err, ATSI_EFORMAT, "%s has %llu entries, tokenizer.ggml.tokens has %u",
                         key, (unsigned long long)out->count, v->n);
    return rc;
}

static int read_types(struct atsi_vocab *v, const struct atsi_meta_source *src,
                      struct atsi_err *err)
{
    struct atsi_meta m;
    int rc = numbers_per_token(v, src, "tokenizer.ggml.token_type", true, &m, err);
    if (rc < 0)
        return rc;
    if (rc == 0) {
        memset(v->type, ATSI_TOKEN_NORMAL, v->n);
        return ATSI_OK;
    }
    for (uint32_t i = 0; i < v->n; i++) {
        double type = atsi_meta_number(&m, i);
        if (!(type >= ATSI_TOKEN_UNDEFINED && type <= ATSI_TOKEN_BYTE))
            return atsi_fail(err, ATSI_EFORMAT,
                             "tokenizer.ggml.token_type: entry %u is %.0f, outside 0..6", i, type);
        v->type[i] = (uint8_t)type;
    }
    return ATSI_OK;
}

/* Maps a score to an integer that is smaller the higher the score is. */
static uint32_t prio_of_score(double score)
{
    float f = isnan(score) ? -INFINITY : (float)score + 0.0f; /* + 0: -0 and 0 are one score */
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u; /* grows with f */
    return ~bits; /* never UINT32_MAX, which only a NaN could give */
}

static int read_scores(struct atsi_vocab *v, const struct atsi_meta_source *src,
                       struct atsi_err *err)
{
    struct atsi_meta m;
    int rc = numbers_per_token(v, src, "tokenizer.ggml.scores", false, &m, err);
    if (rc < 0)
        return rc;
    v->prio = malloc(v->n * sizeof *v->prio);
    if (v->prio == NULL)
        return no_memory(err);
    for (uint32_t i = 0; i < v->n; i++)
        v->prio[i] = prio_of_score(rc == 0 ? 0.0 : atsi_meta_number(&m, i));
    return ATSI_OK;
}

static int32_t find_id(const struct atsi_vocab *v, const char *p, size_t n)
{
    uint32_t id = atsi_strmap_find(&v->map, p, n);
    return id == ATSI_NO_SYM ? -1 : (int32_t)id;
}

/* SPM: "<0xXX>", else the token that is that byte.  BPE: the one-byte token. */
static void find_bytes(struct atsi_vocab *v)
{
    for (int b = 0; b < 256; b++) {
        char text[8], c = (char)b;
        (void)snprintf(text, sizeof text, "<0x%02X>", (unsigned)b);
        v->byte_id[b] = v->kind == ATSI_VOCAB_SPM ? find_id(v, text, 6) : -1;
        if (v->byte_id[b] < 0)
            v->byte_id[b] = find_id(v, &c, 1);
    }
}

static int build_map(struct atsi_vocab *v, struct atsi_err *err)
{
    const struct atsi_strlist *keys = v->kind == ATSI_VOCAB_SPM ? &v->text : &v->raw;
    struct atsi_bytes tmp = {.n = 0};
    bool ok = atsi_strlist_open(&v->raw, v->n, v->text.bytes.n) &&
              atsi_strmap_open(&v->map, keys, v->n + v->n / 8);
    for (uint32_t i = 0; ok && i < v->n; i++)
        ok = add_raw(v, i, &tmp);
    free(tmp.p);
    if (!ok)
        return no_memory(err);
    find_bytes(v);
    return ATSI_OK;
}

int atsi_vocab_open(struct atsi_vocab *v, const struct atsi_meta_source *src, struct atsi_err *err)
{
    struct atsi_meta tokens;
    int rc = atsi_meta_texts(src, "tokenizer.ggml.tokens", &tokens, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return atsi_fail(err, ATSI_ENOENT, "no vocabulary: tokenizer.ggml.tokens is missing");
    if (tokens.count == 0 || tokens.count > INT32_MAX / 2)
        return atsi_fail(err, ATSI_EFORMAT, "tokenizer.ggml.tokens: %llu entries, 1..%d expected",
                         (unsigned long long)tokens.count, INT32_MAX / 2);
    v->n = (uint32_t)tokens.count;
    v->type = malloc(v->n);
    v->flags = calloc(v->n, 1);
    if (v->type == NULL || v->flags == NULL)
        return no_memory(err);
    rc = read_texts(v, &tokens, err);
    if (rc == ATSI_OK)
        rc = read_types(v, src, err);
    if (rc == ATSI_OK && v->kind == ATSI_VOCAB_SPM)
        rc = read_scores(v, src, err);
    return rc == ATSI_OK ? build_map(v, err) : rc;
}

void atsi_vocab_close(struct atsi_vocab *v)
{
    atsi_strmap_close(&v->map);
    atsi_strlist_close(&v->raw);
    atsi_strlist_close(&v->text);
    free(v->type);
    free(v->flags);
    free(v->prio);
}
