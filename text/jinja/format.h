/* SPDX-License-Identifier: Apache-2.0
 * Formatting: "%s" % x and "{}".format(x). */
#ifndef ATSI_TEXT_JINJA_FORMAT_H
#define ATSI_TEXT_JINJA_FORMAT_H

#include "text/jinja/call.h"

/* format % value; a tuple gives several values, a dict named ones. */
struct atsi_jv atsi_jformat_percent(struct atsi_jr *r, struct atsi_jv format, struct atsi_jv value);
/* format.format(...). */
struct atsi_jv atsi_jformat_braces(struct atsi_jr *r, struct atsi_jv format,
                                   const struct atsi_jcall *c);

/* ---------------------------------------------------------------- between the two */
/* What stands behind "%" or ":". */
struct atsi_jspec {
    const char *fill; /* UTF-8 of one character */
    size_t fill_n;
    char align;     /* < > ^ =, or 0 */
    char sign;      /* + - or blank */
    bool alternate; /* # */
    bool zero;      /* 0 before the width */
    char group;     /* , or _, or 0 */
    size_t width;
    int precision; /* -1: none */
    char type;     /* 0: none */
};

/* Appends text with its padding; `align` counts when the spec has none. */
void atsi_jspec_put(struct atsi_jbuf *b, const struct atsi_jspec *spec, const char *lead,
                    const char *p, size_t n, size_t n_cp, char align);
/* Appends an integer by type d b o x X, or a float by type e f g (and capitals) or %; false: the
 * number does not fit (a failure was noted). */
bool atsi_jspec_int(struct atsi_jbuf *b, const struct atsi_jspec *spec, int64_t i);
bool atsi_jspec_float(struct atsi_jbuf *b, const struct atsi_jspec *spec, double f);

#endif
