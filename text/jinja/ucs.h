/* SPDX-License-Identifier: Apache-2.0
 * Characters as Python's str sees them: white space, line ends, letter case, printable. */
#ifndef ATSI_TEXT_JINJA_UCS_H
#define ATSI_TEXT_JINJA_UCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/jinja/str.h"

/* str.isspace() of one character. */
bool atsi_ucs_is_space(uint32_t cp);
/* Ends a line for str.splitlines(). */
bool atsi_ucs_is_line_end(uint32_t cp);
/* str.isprintable() of one character. */
bool atsi_ucs_is_printable(uint32_t cp);
/* \w of Python's re: letters, digits, marks of words, underscore. */
bool atsi_ucs_is_word(uint32_t cp);

/* For str.isalpha() and its relatives. */
bool atsi_ucs_is_alpha(uint32_t cp);
bool atsi_ucs_is_decimal(uint32_t cp);
bool atsi_ucs_is_numeric(uint32_t cp);
bool atsi_ucs_is_upper(uint32_t cp);
bool atsi_ucs_is_lower(uint32_t cp);
bool atsi_ucs_is_title(uint32_t cp);

enum atsi_ucs_case {
    ATSI_UCS_UPPER,   /* str.upper() */
    ATSI_UCS_LOWER,   /* str.lower() */
    ATSI_UCS_TITLE,   /* str.title(): each word */
    ATSI_UCS_CAPITAL, /* str.capitalize(): the first character in title case */
    ATSI_UCS_SWAP,    /* str.swapcase() */
};
/* s in another letter case. */
struct atsi_jv atsi_ucs_recase(struct atsi_jr *r, const struct atsi_jstr *s, enum atsi_ucs_case to);

/* Without white space, or with none of the characters of `chars`, at its ends. */
enum { ATSI_STRIP_LEFT = 1, ATSI_STRIP_RIGHT = 2 };
struct atsi_jv atsi_jv_strip(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jstr *chars,
                             unsigned sides);
/* Length of p[0..n) without white space at its end. */
size_t atsi_ucs_rstrip(const char *p, size_t n);

/* The character at p[*at], which is moved behind it. */
uint32_t atsi_ucs_next(const char *p, size_t n, size_t *at);
/* The character before p[*at], which is moved to it. */
uint32_t atsi_ucs_prev(const char *p, size_t *at);

#endif
