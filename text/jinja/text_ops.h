/* SPDX-License-Identifier: Apache-2.0
 * Operations on text that methods and filters share: splitting, replacing, lines. */
#ifndef ATSI_TEXT_JINJA_TEXT_OPS_H
#define ATSI_TEXT_JINJA_TEXT_OPS_H

#include "text/jinja/data.h"

/* str.split / str.rsplit at `sep` (NULL: at white space), at most `max` times (negative: no limit).
 */
struct atsi_jv atsi_jtext_split(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *sep,
                                int64_t max, bool from_right);
/* str.splitlines. */
struct atsi_jv atsi_jtext_lines(struct atsi_jr *r, struct atsi_jv v, bool keep_ends);
/* str.replace, at most `max` times (negative: no limit); not safe. */
struct atsi_jv atsi_jtext_replace(struct atsi_jr *r, const struct atsi_jstr *s,
                                  const struct atsi_jstr *old, const struct atsi_jstr *by,
                                  int64_t max);
/* Byte offset of the first (last) `what` in [from, to) of s, or SIZE_MAX: not there, or failed. */
size_t atsi_jtext_find(struct atsi_jr *r, const struct atsi_jstr *s, size_t from, size_t to,
                       const struct atsi_jstr *what, bool last);
/* str.center / ljust / rjust: `side` is c, l or r. */
struct atsi_jv atsi_jtext_pad(struct atsi_jr *r, struct atsi_jv v, int64_t width,
                              const struct atsi_jstr *fill, char side);

#endif
