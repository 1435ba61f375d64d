/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines up to a length.  getline() takes as much memory as a line has bytes, and /dev/zero, or a
 * damaged file with a hole in it, is one line without an end.
 */
#include "core/line.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define FIRST_ROOM ((size_t)128)

/* Room for n bytes. */
static bool grow(char **text, size_t *room, size_t n)
{
    size_t more = *room < FIRST_ROOM ? FIRST_ROOM : *room;
    char *p;
    while (more < n)
        more *= 2;
    if (*text != NULL && more == *room)
        return true;
    p = realloc(*text, more);
    if (p == NULL) {
        errno = ENOMEM;
        return false;
    }
    *text = p;
    *room = more;
    return true;
}

ssize_t atsi_line_read(char **text, size_t *room, size_t most, FILE *f)
{
    size_t n = 0;
    int c = 0;
    while (n < most && c != '\n' && (c = getc_unlocked(f)) != EOF) {
        if (!grow(text, room, n + 2))
            return -1;
        (*text)[n++] = (char)c;
    }
    if (n == 0)
        return -1;
    (*text)[n] = '\0';
    return (ssize_t)n;
}
