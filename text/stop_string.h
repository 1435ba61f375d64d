/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop strings: finds the first of several byte strings in text that arrives in pieces, and holds
 * back what may be the beginning of one, so that no part of a stop string is ever shown.
 *
 * The result does not depend on how the text was cut: the search ends at the first byte at which
 * any stop string is complete; of those complete at the same byte, the longest counts.
 */
#ifndef ATSI_TEXT_STOP_STRING_H
#define ATSI_TEXT_STOP_STRING_H

#include "atsinfer/status.h"

#include <stdbool.h>
#include <stddef.h>

struct atsi_stop_text {
    const char *p; /* any bytes */
    size_t n;      /* at least 1 */
};

struct atsi_stops;

/* Copies the texts.  No text at all is allowed: then nothing is ever held back.  ATSI_EINVAL: an
 * empty text. */
int atsi_stops_open(const struct atsi_stop_text *texts, size_t n, struct atsi_stops **out,
                    struct atsi_err *err);
void atsi_stops_close(struct atsi_stops *s); /* NULL is allowed */
/* Begins a new text. */
void atsi_stops_reset(struct atsi_stops *s);

/* Appends text[len]; *shown gets the bytes that may be shown now.  [borrowed until the next call]
 * Returns 1 when a stop string is complete (*shown: what is left before it; later calls show
 * nothing and return 1), 0 when not, ATSI_ENOMEM. */
int atsi_stops_push(struct atsi_stops *s, const char *text, size_t len,
                    struct atsi_stop_text *shown, struct atsi_err *err);
/* At the end of a text: what was held back and turned out to be no stop string.  [borrowed until
 * the next call] */
struct atsi_stop_text atsi_stops_flush(struct atsi_stops *s);
/* Whether one of the stop strings is exactly text[n], say that of a token which is not shown. */
bool atsi_stops_has(const struct atsi_stops *s, const char *text, size_t n);

#endif
