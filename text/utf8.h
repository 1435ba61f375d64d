/* SPDX-License-Identifier: Apache-2.0
 * UTF-8 (RFC 3629): decoding, validation, and repair of text that is none. */
#ifndef ATSI_TEXT_UTF8_H
#define ATSI_TEXT_UTF8_H

#include "text/buf.h"

#define ATSI_UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Bytes (1..4) of the character that p[0..n) begins with and its code point; 0 when it begins with
 * none.  Surrogates U+D800..DFFF in their three-byte form are decoded: callers that must not see
 * them check for themselves. */
size_t atsi_utf8_decode(const char *p, size_t n, uint32_t *cp_out);
/* Writes cp (<= U+10FFFF) to out and returns the number of bytes. */
size_t atsi_utf8_encode(uint32_t cp, char out[4]);

/* Length of the longest prefix that is valid UTF-8 without surrogates. */
size_t atsi_utf8_valid_prefix(const char *p, size_t n);
/* Length of the prefix that is ASCII. */
size_t atsi_utf8_ascii_prefix(const char *p, size_t n);
/* Number of bytes (0..3) at the end that begin a character which further bytes could complete. */
size_t atsi_utf8_open_tail(const char *p, size_t n);

/* Appends text[n] to out with every byte that belongs to no character replaced by U+FFFD.
 * Surrogates are kept when `keep_surrogates`, else they become one U+FFFD each (same length).
 * false: out of memory. */
bool atsi_utf8_repair(const char *text, size_t n, bool keep_surrogates, struct atsi_bytes *out);

#endif
