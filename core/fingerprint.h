/* SPDX-License-Identifier: Apache-2.0
 * What tells one model from another: hashes of its tensors' shapes, of the settings and vocabulary
 * it was built from, and of a sample of its weights. */
#ifndef ATSI_CORE_FINGERPRINT_H
#define ATSI_CORE_FINGERPRINT_H

#include "core/runtime.h"

struct atsi_fingerprint {
    uint64_t tensors; /* names, types and shapes, in any order */
    uint64_t meta;    /* settings of the architecture and of the tokenizer, in any order */
    uint64_t weights; /* some bytes of up to about 256 tensors */
    char arch[32];    /* printable ASCII, NUL-padded: names for messages */
    char name[64];
};

/* Independent of the file's path and of how it is split.  ATSI_ENOMEM. */
int atsi_model_fingerprint(const struct atsi_model *m, struct atsi_fingerprint *out,
                           struct atsi_err *err);

/* Copies text of any origin into a NUL-padded field, '?' for what is not printable ASCII. */
void atsi_label_copy(char *field, size_t size, const char *text, size_t len);

#endif
