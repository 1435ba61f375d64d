/* SPDX-License-Identifier: Apache-2.0
 * Truth, equality, order and membership, as Python has them. */
#ifndef ATSI_TEXT_JINJA_COMPARE_H
#define ATSI_TEXT_JINJA_COMPARE_H

#include "text/jinja/data.h"

/* bool(v). */
bool atsi_jv_truth(struct atsi_jv v);
/* a == b: 1, 0, or -1: failed. */
int atsi_jv_equal(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b);
/* a < b: 1, 0, or -1: failed (these types have no order). */
int atsi_jv_less(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b);
/* a <= b, the same way (with NaN it is not the opposite of b < a). */
int atsi_jv_less_equal(struct atsi_jr *r, struct atsi_jv a, struct atsi_jv b);
/* `item in whole`: 1, 0, or -1: failed. */
int atsi_jv_contains(struct atsi_jr *r, struct atsi_jv whole, struct atsi_jv item);

/* Notes that an undefined value was used where it cannot be; a FAIL value. */
struct atsi_jv atsi_jv_undefined_error(struct atsi_jr *r, struct atsi_jv v);

/* Sorts v[0..n), keeping the order of equals; key[i] belongs to v[i] (key == v is allowed).  false:
 * failed. */
bool atsi_jv_sort(struct atsi_jr *r, struct atsi_jv *v, struct atsi_jv *key, size_t n,
                  bool reverse);

#endif
