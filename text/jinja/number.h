/* SPDX-License-Identifier: Apache-2.0
 * Numbers and text: Python's repr of floats, int() and float() of strings, arithmetic.
 * Nothing here depends on the locale. */
#ifndef ATSI_TEXT_JINJA_NUMBER_H
#define ATSI_TEXT_JINJA_NUMBER_H

#include "text/jinja/str.h"

enum { ATSI_JFLOAT_SIZE = 40 }; /* bytes that a repr takes at most, NUL included */

/* repr(f): the shortest digits that give f again.  Returns out. */
const char *atsi_jfloat_repr(double f, char out[ATSI_JFLOAT_SIZE]);
/* Reads a decimal number ("1", "-1.5e3", "inf", "nan"; no spaces) that p[0..n) is as a whole. */
bool atsi_jfloat_parse(const char *p, size_t n, double *out);
/* snprintf of one double by "%.*" and `conversion` (e, f, g, E, F, G), '#' when `alternate`, with a
 * point in any locale; returns the length, or -1 when it does not fit. */
int atsi_jfloat_print(char *out, size_t size, char conversion, int precision, bool alternate,
                      double f);

/* int(text, base) of Python: 1 good, 0: no integer, -1: does not fit 64 bits. */
int atsi_jint_parse(const char *p, size_t n, int base, int64_t *out);
/* float(text) of Python. */
bool atsi_jfloat_from_text(const char *p, size_t n, double *out);

/* a OP b of numbers, strings and lists; op: + - * / % F (//) P (**). */
struct atsi_jv atsi_jv_arith(struct atsi_jr *r, char op, struct atsi_jv a, struct atsi_jv b);
/* -v (or +v). */
struct atsi_jv atsi_jv_negate(struct atsi_jr *r, struct atsi_jv v, bool minus);
/* round(v, digits). */
struct atsi_jv atsi_jv_round(struct atsi_jr *r, struct atsi_jv v, int64_t digits);

#endif
