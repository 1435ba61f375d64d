/* SPDX-License-Identifier: Apache-2.0
 * JSON trees as values. */
#ifndef ATSI_TEXT_JINJA_FROM_JSON_H
#define ATSI_TEXT_JINJA_FROM_JSON_H

#include <jansson.h>

#include "text/jinja/data.h"

/* The value of a tree.  Its strings stay where they are: the tree must outlive the render. */
struct atsi_jv atsi_jv_from_json(struct atsi_jr *r, const json_t *json);

#endif
