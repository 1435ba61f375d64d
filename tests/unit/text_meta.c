/* SPDX-License-Identifier: Apache-2.0
 *
 * Metadata in memory, and small vocabularies made of it, for tests of the tokenizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text_meta.h"

static struct atsi_meta *slot(struct text_meta *m, const char *key)
{
    size_t i = 0;
    while (i < m->n && strcmp(m->entry[i].key.ptr, key) != 0)
        i++;
    assert_true(i < TEXT_META_KEYS);
    free(m->owned[i]);
    m->owned[i] = NULL;
    m->n += i == m->n;
    m->entry[i] = (struct atsi_meta){.struct_size = sizeof(struct atsi_meta),
                                     .key = {.ptr = key, .len = strlen(key)}};
    return &m->entry[i];
}

void text_meta_str(struct text_meta *m, const char *key, const char *value)
{
    struct atsi_meta *e = slot(m, key);
    e->type = ATSI_META_STRING;
    e->str = (struct atsi_str){value, strlen(value)};
}

void text_meta_u32(struct text_meta *m, const char *key, uint32_t value)
{
    struct atsi_meta *e = slot(m, key);
    e->type = ATSI_META_U32;
    e->v.u = value;
}

void text_meta_i32(struct text_meta *m, const char *key, int32_t value)
{
    struct atsi_meta *e = slot(m, key);
    e->type = ATSI_META_I32;
    e->v.i = value;
}

void text_meta_bool(struct text_meta *m, const char *key, bool value)
{
    struct atsi_meta *e = slot(m, key);
    e->type = ATSI_META_BOOL;
    e->v.u = value;
}

/* An array whose block of memory is a copy of `bytes` bytes at `data`. */
static void *array(struct text_meta *m, const char *key, uint32_t elem_type, size_t n,
                   const void *data, size_t bytes)
{
    struct atsi_meta *e = slot(m, key);
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    if (bytes > 0)
        memcpy(copy, data, bytes);
    e->type = ATSI_META_ARRAY;
    e->elem_type = elem_type;
    e->count = n;
    m->owned[e - m->entry] = copy;
    if (elem_type == ATSI_META_STRING)
        e->strs = copy;
    else
        e->data = copy;
    return copy;
}

void text_meta_strs(struct text_meta *m, const char *key, const struct atsi_str *strs, size_t n)
{
    (void)array(m, key, ATSI_META_STRING, n, strs, n * sizeof *strs);
}

void text_meta_texts(struct text_meta *m, const char *key, const char *const *texts, size_t n)
{
    struct atsi_str *strs = calloc(n + 1, sizeof *strs);
    assert_non_null(strs);
    for (size_t i = 0; i < n; i++)
        strs[i] = (struct atsi_str){texts[i], strlen(texts[i])};
    text_meta_strs(m, key, strs, n);
    free(strs);
}

void text_meta_i32s(struct text_meta *m, const char *key, const int32_t *values, size_t n)
{
    (void)array(m, key, ATSI_META_I32, n, values, n * sizeof *values);
}

void text_meta_f32s(struct text_meta *m, const char *key, const float *values, size_t n)
{
    (void)array(m, key, ATSI_META_F32, n, values, n * sizeof *values);
}

void text_meta_drop(struct text_meta *m, const char *key)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->entry[i].key.ptr, key) == 0) {
            free(m->owned[i]);
            m->n--;
            m->entry[i] = m->entry[m->n];
            m->owned[i] = m->owned[m->n];
            m->owned[m->n] = NULL;
            return;
        }
}

void text_meta_free(struct text_meta *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->owned[i]);
    *m = (struct text_meta){.n = 0};
}

static int find(const void *ctx, const char *key, struct atsi_meta *out)
{
    const struct text_meta *m = ctx;
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->entry[i].key.ptr, key) == 0) {
            *out = m->entry[i];
            return ATSI_OK;
        }
    return ATSI_ENOENT;
}

struct atsi_meta_source text_meta_source(const struct text_meta *m)
{
    return (struct atsi_meta_source){m, find};
}

/* Byte tokens and spellings live as long as the program. */
static const char *byte_token(unsigned b)
{
    static char text[256][8];
    (void)snprintf(text[b], sizeof text[b], "<0x%02X>", b);
    return text[b];
}

/* The byte alphabet, written down independently of the code under test. */
static const char *alphabet(unsigned b)
{
    static char text[256][4];
    unsigned cp = b, shift = 0;
    for (unsigned i = 0; i < b; i++)
        shift += i < 0x21 || (i > 0x7E && i < 0xA1) || i == 0xAD;
    if (b < 0x21 || (b > 0x7E && b < 0xA1) || b == 0xAD)
        cp = 0x100 + shift;
    if (cp < 0x80) {
        text[b][0] = (char)cp;
        text[b][1] = '\0';
    } else {
        text[b][0] = (char)(0xC0 | cp >> 6);
        text[b][1] = (char)(0x80 | (cp & 0x3F));
        text[b][2] = '\0';
    }
    return text[b];
}

static void put_table(struct text_meta *m, const struct text_token *tokens, size_t n, bool scores)
{
    const char **texts = calloc(n, sizeof *texts);
    int32_t *types = calloc(n, sizeof *types);
    float *values = calloc(n, sizeof *values);
    if (texts == NULL || types == NULL || values == NULL)
        abort();
    for (size_t i = 0; i < n; i++) {
        texts[i] = tokens[i].text;
        types[i] = tokens[i].type;
        values[i] = tokens[i].score;
    }
    text_meta_texts(m, "tokenizer.ggml.tokens", texts, n);
    text_meta_i32s(m, "tokenizer.ggml.token_type", types, n);
    if (scores)
        text_meta_f32s(m, "tokenizer.ggml.scores", values, n);
    free(texts);
    free(types);
    free(values);
}

void text_meta_spm(struct text_meta *m, const struct text_token *extra, size_t n)
{
    size_t total = TEXT_SPM_FIRST + n;
    struct text_token *all = calloc(total, sizeof *all);
    assert_non_null(all);
    all[0] = (struct text_token){"<unk>", 2, 0};
    all[1] = (struct text_token){"<s>", 3, 0};
    all[2] = (struct text_token){"</s>", 3, 0};
    for (unsigned b = 0; b < 256; b++)
        all[3 + b] = (struct text_token){byte_token(b), 6, 0};
    for (size_t i = 0; i < n; i++)
        all[TEXT_SPM_FIRST + i] = extra[i];
    text_meta_str(m, "tokenizer.ggml.model", "llama");
    put_table(m, all, total, true);
    free(all);
}

void text_meta_bpe(struct text_meta *m, const char *pre, const char *const *merges, size_t n_merges,
                   const struct text_token *extra, size_t n_extra)
{
    static char joined[64][64];
    size_t total = TEXT_BPE_FIRST + n_merges + n_extra;
    struct text_token *all = calloc(total, sizeof *all);
    assert_true(all != NULL && n_merges <= 64);
    for (unsigned b = 0; b < 256; b++)
        all[b] = (struct text_token){alphabet(b), 1, 0};
    for (size_t i = 0; i < n_merges; i++) {
        const char *space = strchr(merges[i] + 1, ' ');
        assert_non_null(space);
        (void)snprintf(joined[i], sizeof joined[i], "%.*s%s", (int)(space - merges[i]), merges[i],
                       space + 1);
        all[TEXT_BPE_FIRST + i] = (struct text_token){joined[i], 1, 0};
    }
    for (size_t i = 0; i < n_extra; i++)
        all[TEXT_BPE_FIRST + n_merges + i] = extra[i];
    text_meta_str(m, "tokenizer.ggml.model", "gpt2");
    text_meta_str(m, "tokenizer.ggml.pre", pre);
    text_meta_texts(m, "tokenizer.ggml.merges", merges, n_merges);
    put_table(m, all, total, false);
    free(all);
}

struct atsi_tokenizer *text_open(const struct text_meta *m)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_meta_source src = text_meta_source(m);
    struct atsi_tokenizer *t = NULL;
    if (atsi_tokenizer_open(&src, &t, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return t;
}

void text_expect(const struct atsi_tokenizer *t, const char *text, size_t n, uint32_t flags,
                 const int32_t *want, size_t n_want)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int32_t *ids;
    size_t n_ids;
    if (atsi_tokenize(t, text, n, flags, &ids, &n_ids, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < n_ids && i < n_want; i++)
        if (ids[i] != want[i])
            fail_msg("\"%.*s\": id %zu is %d, expected %d", (int)(n < 60 ? n : 60), text, i, ids[i],
                     want[i]);
    if (n_ids != n_want)
        fail_msg("\"%.*s\": %zu ids, expected %zu", (int)(n < 60 ? n : 60), text, n_ids, n_want);
    free(ids);
}
