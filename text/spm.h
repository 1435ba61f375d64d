/* SPDX-License-Identifier: Apache-2.0
 * SentencePiece-style BPE with byte fallback: the encoding of one fragment. */
#ifndef ATSI_TEXT_SPM_H
#define ATSI_TEXT_SPM_H

#include "text/encoder.h"

struct atsi_spm {
    const struct atsi_vocab *vocab; /* [borrowed] */
    _Atomic unsigned char *whole;   /* enum atsi_whole of each token */
    bool words_apart;               /* no token has a space after something else: spaces separate */
};

int atsi_spm_open(struct atsi_spm *s, const struct atsi_vocab *v, struct atsi_err *err);
void atsi_spm_close(struct atsi_spm *s);
/* Appends the ids of text[n], with one space put in front when `add_space`. */
int atsi_spm_fragment(const struct atsi_spm *s, struct atsi_encoder *e, const char *text, size_t n,
                      bool add_space);

#endif
