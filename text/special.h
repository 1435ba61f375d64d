/* SPDX-License-Identifier: Apache-2.0
 * Finds special tokens that are written out in text. */
#ifndef ATSI_TEXT_SPECIAL_H
#define ATSI_TEXT_SPECIAL_H

#include "text/vocab.h"

struct atsi_special {
    const struct atsi_vocab *vocab; /* [borrowed] */
    uint32_t *sorted;               /* ids of special tokens in order of their texts */
    uint32_t n;
    uint32_t first[257]; /* those that begin with byte b: sorted[first[b] .. first[b + 1]) */
};

/* A special token in the text: bytes [start, start + len). */
struct atsi_match {
    size_t start;
    uint32_t len;
    uint32_t id;
};

struct atsi_matches {
    struct atsi_match *p;
    size_t n, cap;
};

int atsi_special_open(struct atsi_special *s, const struct atsi_vocab *v, struct atsi_err *err);
void atsi_special_close(struct atsi_special *s);
/* The special tokens of text[n] in order: longer texts first, then leftmost, never overlapping.
 * User-defined tokens always; control and unknown ones when `all`.  false: out of memory.  `out` is
 * appended to; [owned by caller: free(out->p)] */
bool atsi_special_find(const struct atsi_special *s, const char *text, size_t n, bool all,
                       struct atsi_matches *out);

#endif
