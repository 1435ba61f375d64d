/* SPDX-License-Identifier: Apache-2.0
 * Byte-level BPE: merge ranks by pairs of symbol ids, and the encoding of one word. */
#ifndef ATSI_TEXT_BPE_H
#define ATSI_TEXT_BPE_H

#include "text/encoder.h"

struct atsi_bpe_pair {
    uint32_t left, right;
    uint32_t rank;   /* index in tokenizer.ggml.merges; ATSI_NO_MERGE: free slot */
    uint32_t joined; /* symbol that results */
};

struct atsi_bpe {
    struct atsi_vocab *vocab; /* [borrowed]  symbols are added to it while merges are read */
    struct atsi_bpe_pair *pairs;
    uint64_t mask, seed;
    uint32_t byte_sym[256];
    _Atomic unsigned char *whole; /* enum atsi_whole of each token */
    bool ignore_merges;           /* a word that is a token is taken whole */
};

/* Reads tokenizer.ggml.merges.  ATSI_EFORMAT naming the entry, ATSI_ENOMEM. */
int atsi_bpe_open(struct atsi_bpe *b, struct atsi_vocab *v, const struct atsi_meta_source *src,
                  struct atsi_err *err);
void atsi_bpe_close(struct atsi_bpe *b);
/* Appends the ids of one word of a pre-tokenizer. */
int atsi_bpe_word(const struct atsi_bpe *b, struct atsi_encoder *e, const char *p, size_t n);

#endif
