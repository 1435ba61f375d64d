/* SPDX-License-Identifier: Apache-2.0
 * Lines of text files, which may be anybody's: none is read further than it may be long. */
#ifndef ATSI_CORE_LINE_H
#define ATSI_CORE_LINE_H

#include <stdio.h>
#include <sys/types.h>

/* As getline(), up to `most` bytes: a line that is longer comes back cut off, without its '\n'.
 * *text [owned by caller: free()] and *room grow as needed.  Returns the length; -1: the end, or
 * errno is ENOMEM, or ferror(f). */
ssize_t atsi_line_read(char **text, size_t *room, size_t most, FILE *f);

#endif
