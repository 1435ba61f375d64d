/* SPDX-License-Identifier: Apache-2.0
 * Dates as text, with English names in any locale. */
#ifndef ATSI_TEXT_JINJA_STRFTIME_H
#define ATSI_TEXT_JINJA_STRFTIME_H

#include "text/jinja/str.h"

/* The format of strftime() in the C locale, with the flags - _ 0 ^ # of glibc.  A directive that
 * depends on more than the date (time zone, locale) is not supported. */
struct atsi_jv atsi_jstrftime(struct atsi_jr *r, const struct atsi_jstr *format,
                              const struct tm *now);
/* Computes the day of the week and of the year from the date; false: there is no such date. */
bool atsi_jdate_complete(struct tm *t);

#endif
