/* SPDX-License-Identifier: Apache-2.0
 * The tokenizer object, for the files of text/ and their tests. */
#ifndef ATSI_TEXT_TOKENIZER_IMPL_H
#define ATSI_TEXT_TOKENIZER_IMPL_H

#include "text/bpe.h"
#include "text/pretok.h"
#include "text/special.h"
#include "text/spm.h"
#include "text/tokenizer.h"

struct atsi_tokenizer {
    struct atsi_vocab vocab;
    struct atsi_special special;
    struct atsi_bpe bpe;        /* of a BPE vocabulary */
    struct atsi_pretok *pretok; /* the same */
    struct atsi_spm spm;        /* of an SPM vocabulary */
    char model[64], pre[64];
    bool clean_up; /* whole-text decoding drops spaces before punctuation */
    bool nfc;      /* text is normalized before it is cut into words */
};

/* atsi_tokenize that also tells the number of merge steps: cost without a clock, for tests. */
int atsi_tokenize_counted(const struct atsi_tokenizer *t, const char *text, size_t len,
                          uint32_t flags, int32_t **ids_out, size_t *n_out, uint64_t *n_steps_out,
                          struct atsi_err *err);

/* Applies the clean-up rules of whole-text decoding to text[n] in place; returns the new length. */
size_t atsi_clean_up(char *text, size_t n);

#endif
