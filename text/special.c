/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds special tokens that are written out in text.
 *
 * The rule: take the token texts from the longest to the shortest and cut each out of what is left
 * of the text, from left to right.  Vocabularies have hundreds of special tokens, so instead of one
 * pass a token there is one pass over the text that finds every occurrence of every token (the
 * sorted texts are narrowed down byte by byte); only occurrences that overlap are then put in the
 * order of the rule.
 */
#include "text/special.h"

/* Texts beyond this make the search for them slow and are no markers anybody would write. */
#define LONGEST 256u

static const char *text_of(const struct atsi_special *s, uint32_t i, size_t *len_out)
{
    return atsi_strlist_at(&s->vocab->text, s->sorted[i], len_out);
}

static size_t len_of(const struct atsi_special *s, uint32_t i)
{
    size_t n;
    (void)text_of(s, i, &n);
    return n;
}

static int compare_ids(const void *a, const void *b, void *ctx)
{
    const struct atsi_special *s = ctx;
    const struct atsi_vocab *v = s->vocab;
    uint32_t id_a = *(const uint32_t *)a, id_b = *(const uint32_t *)b;
    size_t n_a, n_b;
    const char *p_a = atsi_strlist_at(&v->text, id_a, &n_a);
    const char *p_b = atsi_strlist_at(&v->text, id_b, &n_b);
    int order = memcmp(p_a, p_b, n_a < n_b ? n_a : n_b);
    if (order != 0)
        return order;
    if (n_a != n_b)
        return n_a < n_b ? -1 : 1;
    return id_a < id_b ? -1 : id_a > id_b;
}

static bool is_special(uint8_t type)
{
    return type == ATSI_TOKEN_CONTROL || type == ATSI_TOKEN_USER || type == ATSI_TOKEN_UNKNOWN;
}

/* Counts the special tokens and refuses absurd ones. */
static int count_special(struct atsi_special *s, const struct atsi_vocab *v, struct atsi_err *err)
{
    for (uint32_t i = 0; i < v->n; i++) {
        size_t n;
        if (!is_special(v->type[i]))
            continue;
        (void)atsi_strlist_at(&v->text, i, &n);
        if (n > LONGEST)
            return atsi_fail(err, ATSI_EFORMAT,
                             "tokenizer.ggml.tokens: entry %u is a special token of %zu bytes, at "
                             "most %u expected",
                             i, n, LONGEST);
        s->n++;
    }
    return ATSI_OK;
}

int atsi_special_open(struct atsi_special *s, const struct atsi_vocab *v, struct atsi_err *err)
{
    size_t n;
    int rc;
    s->vocab = v;
    rc = count_special(s, v, err);
    if (rc != ATSI_OK)
        return rc;
    s->sorted = calloc((size_t)s->n + 1, sizeof *s->sorted);
    if (s->sorted == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "vocabulary: out of memory");
    s->n = 0;
    for (uint32_t i = 0; i < v->n; i++)
        if (is_special(v->type[i]))
            s->sorted[s->n++] = i;
    qsort_r(s->sorted, s->n, sizeof *s->sorted, compare_ids, s);
    for (uint32_t i = 0; i < s->n; i++)
        s->first[(unsigned char)*text_of(s, i, &n) + 1]++;
    for (size_t b = 1; b < 257; b++)
        s->first[b] += s->first[b - 1];
    return ATSI_OK;
}

void atsi_special_close(struct atsi_special *s)
{
    free(s->sorted);
}

/* Byte `depth` of entry i, which is longer than that. */
static unsigned char byte_at(const struct atsi_special *s, uint32_t i, size_t depth)
{
    size_t n;
    return (unsigned char)text_of(s, i, &n)[depth];
}

/* First entry of [lo, hi) whose byte at `depth` is >= b; all are longer than depth. */
static uint32_t lower_bound(const struct atsi_special *s, uint32_t lo, uint32_t hi, size_t depth,
                            unsigned b)
{
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (byte_at(s, mid, depth) < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool add_match(struct atsi_matches *out, size_t start, size_t len, uint32_t id)
{
    void *p = out->p;
    if (!atsi_grow(&p, out->n, &out->cap, 1, sizeof *out->p))
        return false;
    out->p = p;
    out->p[out->n++] = (struct atsi_match){start, (uint32_t)len, id};
    return true;
}

/* True when entry i is all at text + at; its first `depth` bytes are known to be. */
static bool rest_matches(const struct atsi_special *s, uint32_t i, size_t depth, const char *text,
                         size_t n, size_t at)
{
    size_t len;
    const char *p = text_of(s, i, &len);
    return len <= n - at && memcmp(p + depth, text + at + depth, len - depth) == 0;
}

static bool is_wanted(const struct atsi_special *s, uint32_t i, bool all)
{
    return all || s->vocab->type[s->sorted[i]] == ATSI_TOKEN_USER;
}

/* Adds every token whose text stands at text + at. */
static bool match_at(const struct atsi_special *s, const char *text, size_t n, size_t at, bool all,
                     struct atsi_matches *out)
{
    uint32_t lo = s->first[(unsigned char)text[at]], hi = s->first[(unsigned char)text[at] + 1];
    for (size_t depth = 1; lo < hi; depth++) {
        uint32_t best = ATSI_NO_SYM;
        if (hi - lo == 1) /* the usual end: one token is left */
            return !is_wanted(s, lo, all) || !rest_matches(s, lo, depth, text, n, at) ||
                   add_match(out, at, len_of(s, lo), s->sorted[lo]);
        for (; lo < hi && len_of(s, lo) == depth; lo++)
            if (is_wanted(s, lo, all))
                best = s->sorted[lo]; /* of equal texts the last id counts */
        if (best != ATSI_NO_SYM && !add_match(out, at, depth, best))
            return false;
        if (at + depth == n)
            break;
        lo = lower_bound(s, lo, hi, depth, (unsigned char)text[at + depth]);
        hi = lower_bound(s, lo, hi, depth, (unsigned)(unsigned char)text[at + depth] + 1);
    }
    return true;
}

/* The order in which tokens are cut out. */
static int by_rule(const void *a, const void *b)
{
    const struct atsi_match *x = a, *y = b;
    if (x->len != y->len)
        return x->len > y->len ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->start < y->start ? -1 : x->start > y->start;
}

static int by_start(const void *a, const void *b)
{
    const struct atsi_match *x = a, *y = b;
    return x->start < y->start ? -1 : x->start > y->start;
}

static bool any_overlap(const struct atsi_matches *m)
{
    for (size_t i = 1; i < m->n; i++)
        if (m->p[i].start < m->p[i - 1].start + m->p[i - 1].len)
            return true;
    return false;
}

/* Applies the rule to overlapping matches.  What was taken before is at least as long as the
 * match at hand, so an overlap covers its first or its last byte. */
static bool resolve(struct atsi_matches *m, size_t n)
{
    unsigned char *taken = calloc(n + 1, 1);
    size_t kept = 0;
    if (taken == NULL)
        return false;
    qsort(m->p, m->n, sizeof *m->p, by_rule);
    for (size_t i = 0; i < m->n; i++) {
        struct atsi_match x = m->p[i];
        if (taken[x.start] != 0 || taken[x.start + x.len - 1] != 0)
            continue;
        memset(taken + x.start, 1, x.len);
        m->p[kept++] = x;
    }
    m->n = kept;
    qsort(m->p, m->n, sizeof *m->p, by_start);
    free(taken);
    return true;
}

bool atsi_special_find(const struct atsi_special *s, const char *text, size_t n, bool all,
                       struct atsi_matches *out)
{
    if (s->n == 0)
        return true;
    for (size_t i = 0; i < n; i++) {
        unsigned char b = (unsigned char)text[i];
        if (s->first[b] != s->first[b + 1] && !match_at(s, text, n, i, all, out))
            return false;
    }
    return !any_overlap(out) || resolve(out, n);
}
