/* SPDX-License-Identifier: Apache-2.0
 * Unicode Normalization Form C, in linear time. */
#ifndef ATSI_TEXT_NFC_H
#define ATSI_TEXT_NFC_H

#include "text/buf.h"

/* Bytes at the start of text[n] that NFC certainly leaves alone, up to a boundary at which the rest
 * can be normalized by itself.  n when nothing has to be done.  Bytes that are no UTF-8 (lone
 * surrogates) are left alone. */
size_t atsi_nfc_done(const char *text, size_t n);
/* Appends the NFC of text[n] to out; false: out of memory. */
bool atsi_nfc(const char *text, size_t n, struct atsi_bytes *out);

#endif
