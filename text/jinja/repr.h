/* SPDX-License-Identifier: Apache-2.0
 * Values as text: str() and repr() of Python, and JSON. */
#ifndef ATSI_TEXT_JINJA_REPR_H
#define ATSI_TEXT_JINJA_REPR_H

#include "text/jinja/str.h"

/* str(v), which is what printing shows; a string stays as safe as it is. */
struct atsi_jv atsi_jv_to_text(struct atsi_jr *r, struct atsi_jv v);
/* repr(v). */
struct atsi_jv atsi_jv_repr(struct atsi_jr *r, struct atsi_jv v);

/* How JSON is written. */
struct atsi_jjson {
    const struct atsi_jstr *indent; /* of one level; NULL: all on one line */
    const struct atsi_jstr *item_separator, *key_separator;
    bool ascii, sort_keys;
};
/* json.dumps(v, ...). */
struct atsi_jv atsi_jv_to_json(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jjson *how);

#endif
