/* SPDX-License-Identifier: Apache-2.0
 * One ini file to a series of (key, value, line). */
#ifndef ATSI_CORE_CONF_READ_H
#define ATSI_CORE_CONF_READ_H

#include "atsinfer/status.h"

/* "section.key"; non-zero stops and is returned by atsi_conf_read(). */
typedef int atsi_conf_line_fn(void *ctx, const char *key, const char *value, unsigned line);

/* Rules: `[section]`, `key = value`; a line whose first character is ; or # is a comment, and
 * nowhere else; blanks around keys and values are dropped, everything inside a value stays; no
 * continuation lines; no limit on the length of a value; a key twice in one file is an error.
 * ATSI_ENOENT: no such file (err is written); ATSI_EIO; ATSI_ECONF "FILE:LINE: ...". */
int atsi_conf_read(const char *path, atsi_conf_line_fn *fn, void *ctx, struct atsi_err *err);

#endif
