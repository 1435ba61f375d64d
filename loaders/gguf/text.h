/* SPDX-License-Identifier: Apache-2.0
 *
 * Words for messages: foreign bytes made safe to show, and context put in front of an error. */
#ifndef GGUF_TEXT_H
#define GGUF_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "atsinfer/status.h"

#define GGUF_SHOW 80       /* bytes of a shown key, name or value */
#define GGUF_SHOW_PATH 200 /* bytes of a shown path */

/* Printable ASCII as it is, every other byte and the backslash as \xNN; cut with "..." to what
 * fits.  Returns buf. */
const char *gguf_show(const void *ptr, uint64_t len, char buf[GGUF_SHOW]);

/* A path given by the user: only control characters are escaped; a long one keeps its end.
 * Returns buf. */
const char *gguf_show_path(const char *path, char buf[GGUF_SHOW_PATH]);

/* True when all bytes are printable ASCII (space included); else *bad_out is the first other. */
bool gguf_is_printable(const void *ptr, uint64_t len, uint64_t *bad_out);

/* Puts "CONTEXT: " in front of err->msg (cutting its end when it grows too long) and returns
 * `status`. */
int gguf_context(struct atsi_err *err, int status, const char *fmt, ...) ATSI_PRINTF(3, 4);

/* "u32", "string", ... of a metadata value type; "type 77" is not made: unknown gives NULL. */
const char *gguf_value_type_name(uint32_t type);
/* Bytes of one packed element of a value type; 0 for string, array and unknown types. */
uint32_t gguf_value_type_bytes(uint32_t type);

#endif
