/* SPDX-License-Identifier: Apache-2.0
 *
 * What one call of atsi_tokenize() works with: output, scratch, and the reason of a failure.
 */
#ifndef ATSI_TEXT_ENCODER_H
#define ATSI_TEXT_ENCODER_H

#include <stdatomic.h>

#include "text/buf.h"
#include "text/merge.h"
#include "text/vocab.h"

struct atsi_encoder {
    struct atsi_ids ids;                     /* the answer so far */
    struct atsi_merger merger;               /* symbols of the word at hand */
    struct atsi_bytes text, subject, mapped; /* rewritten fragments: repaired, normalized, for the
                                                expressions */
    struct atsi_err *err;
};

/* What is known about merging a token's own text, found out when first needed.  Threads may find it
 * out twice; they find the same, so relaxed order is enough. */
enum atsi_whole { ATSI_WHOLE_UNKNOWN = 0, ATSI_WHOLE_YES = 1, ATSI_WHOLE_NO = 2 };

static inline int atsi_encoder_no_memory(struct atsi_encoder *e)
{
    return atsi_fail(e->err, ATSI_ENOMEM, "tokenize: out of memory");
}

#endif
