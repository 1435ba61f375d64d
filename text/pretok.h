/* SPDX-License-Identifier: Apache-2.0
 *
 * Pre-tokenizers: the expressions that cut text into words before BPE merges, by the name in
 * tokenizer.ggml.pre, and their execution by PCRE2.
 */
#ifndef ATSI_TEXT_PRETOK_H
#define ATSI_TEXT_PRETOK_H

#include <stdbool.h>
#include <stddef.h>

#include "atsinfer/status.h"

#define ATSI_PRETOK_MAX 6 /* expressions of one pre-tokenizer */

#define ATSI_PRE_IGNORE_MERGES 1u /* a word that is a token is taken whole */
#define ATSI_PRE_ADD_BOS 2u       /* default of add_bos_token */
#define ATSI_PRE_CLEAN_UP 4u      /* whole-text decoding drops spaces before punctuation */
#define ATSI_PRE_NFC 8u           /* the publisher normalizes text to NFC first */

/* One row of the table (pretok_table.c): expressions applied one after the other, each to every
 * piece that the ones before it left. */
struct atsi_pretok_kind {
    const char *names; /* separated by spaces */
    const char *expr[ATSI_PRETOK_MAX + 1];
    unsigned flags;
};

/* Row of a name, NULL for an unknown one. */
const struct atsi_pretok_kind *atsi_pretok_find(const char *name);

struct atsi_pretok;     /* compiled expressions; immutable */
struct atsi_pretok_run; /* what one call needs to execute them */

/* ATSI_ENOMEM, ATSI_EFAIL (an expression that PCRE2 refuses). */
int atsi_pretok_open(const struct atsi_pretok_kind *kind, struct atsi_pretok **out,
                     struct atsi_err *err);
void atsi_pretok_close(struct atsi_pretok *p); /* NULL is allowed */

int atsi_pretok_run_open(const struct atsi_pretok *p, size_t text_len, struct atsi_pretok_run **out,
                         struct atsi_err *err);
void atsi_pretok_run_close(struct atsi_pretok_run *r); /* NULL is allowed */

/* Receives a word: bytes [start, start + len) of the text; non-zero stops and is returned. */
typedef int atsi_word_fn(void *ctx, size_t start, size_t len);
/* Cuts valid UTF-8 text[n] into words, in order and without gaps.  ATSI_EFAIL: PCRE2 gave up. */
int atsi_pretok_split(const struct atsi_pretok *p, struct atsi_pretok_run *r, const char *text,
                      size_t n, atsi_word_fn *fn, void *ctx, struct atsi_err *err);

#endif
