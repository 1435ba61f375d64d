/* SPDX-License-Identifier: Apache-2.0
 *
 * Typed reading of metadata keys.  Every function returns 1 when the key is there and right, 0 when
 * it is absent (outputs untouched), or ATSI_EFORMAT naming key and types.
 */
#ifndef ATSI_TEXT_VOCAB_META_H
#define ATSI_TEXT_VOCAB_META_H

#include "text/tokenizer.h"

/* Text of at most 63 bytes without NUL; longer or stranger text is an error. */
int atsi_meta_name(const struct atsi_meta_source *src, const char *key, char out[64],
                   struct atsi_err *err);
/* A whole number of any width. */
int atsi_meta_int(const struct atsi_meta_source *src, const char *key, int64_t *out,
                  struct atsi_err *err);
int atsi_meta_bool(const struct atsi_meta_source *src, const char *key, bool *out,
                   struct atsi_err *err);
/* An array of texts: out->strs, out->count. */
int atsi_meta_texts(const struct atsi_meta_source *src, const char *key, struct atsi_meta *out,
                    struct atsi_err *err);
/* An array of numbers, read with atsi_meta_number(); `whole` refuses floats. */
int atsi_meta_numbers(const struct atsi_meta_source *src, const char *key, bool whole,
                      struct atsi_meta *out, struct atsi_err *err);
/* Element i of such an array. */
double atsi_meta_number(const struct atsi_meta *array, uint64_t i);

#endif
