/* SPDX-License-Identifier: Apache-2.0
 * Tables of methods; each ends with a NULL name.  A method without a function is known to Python
 * but not supported here. */
#ifndef ATSI_TEXT_JINJA_METHODS_H
#define ATSI_TEXT_JINJA_METHODS_H

#include "text/jinja/call.h"
#include "text/jinja/iter.h"

extern const struct atsi_jbuiltin atsi_jmethods_str[];
/* Of lists, tuples, dicts, ranges, views, numbers, loops. */
extern const struct atsi_jbuiltin atsi_jmethods_data[];

/* str.isupper() (or islower()). */
struct atsi_jv atsi_jtext_is_case(struct atsi_jr *r, const struct atsi_jstr *s, bool upper);

#endif
