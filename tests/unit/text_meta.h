/* SPDX-License-Identifier: Apache-2.0
 *
 * Metadata in memory, and small vocabularies made of it, for tests of the tokenizer.
 */
#ifndef ATSI_TESTS_TEXT_META_H
#define ATSI_TESTS_TEXT_META_H

#include "text/tokenizer.h"

#define TEXT_META_KEYS 32

struct text_meta {
    struct atsi_meta entry[TEXT_META_KEYS];
    void *owned[TEXT_META_KEYS]; /* arrays that text_meta_free releases */
    size_t n;
};

/* Setting a key again replaces it. */
void text_meta_str(struct text_meta *m, const char *key, const char *value);
void text_meta_u32(struct text_meta *m, const char *key, uint32_t value);
void text_meta_i32(struct text_meta *m, const char *key, int32_t value);
void text_meta_bool(struct text_meta *m, const char *key, bool value);
/* Arrays are copied; the texts themselves are borrowed. */
void text_meta_texts(struct text_meta *m, const char *key, const char *const *texts, size_t n);
void text_meta_strs(struct text_meta *m, const char *key, const struct atsi_str *strs, size_t n);
void text_meta_i32s(struct text_meta *m, const char *key, const int32_t *values, size_t n);
void text_meta_f32s(struct text_meta *m, const char *key, const float *values, size_t n);
void text_meta_drop(struct text_meta *m, const char *key);
void text_meta_free(struct text_meta *m);
struct atsi_meta_source text_meta_source(const struct text_meta *m);

/* A token of the tables below: score is for SPM. */
struct text_token {
    const char *text;
    int32_t type;
    float score;
};

/* An SPM vocabulary of <unk> <s> </s>, the 256 byte tokens (ids 3..258) and `extra` (from 259). */
#define TEXT_SPM_FIRST 259
void text_meta_spm(struct text_meta *m, const struct text_token *extra, size_t n);

/* A BPE vocabulary: the 256 bytes (id = value), one token a merge (from 256), then `extra`. */
#define TEXT_BPE_FIRST 256
void text_meta_bpe(struct text_meta *m, const char *pre, const char *const *merges, size_t n_merges,
                   const struct text_token *extra, size_t n_extra);

/* Opens a tokenizer and fails the test when that does not work. */
struct atsi_tokenizer *text_open(const struct text_meta *m);
/* Fails the test unless text[n] becomes exactly the ids of `want`. */
void text_expect(const struct atsi_tokenizer *t, const char *text, size_t n, uint32_t flags,
                 const int32_t *want, size_t n_want);
#define TEXT_EXPECT(t, text, flags, ...)                                                           \
    do {                                                                                           \
        const int32_t want_[] = {__VA_ARGS__};                                                     \
        text_expect(t, text, sizeof(text) - 1, flags, want_, sizeof want_ / sizeof want_[0]);      \
    } while (0)

#endif
