/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for inih where it is missing (scripts/lean_build.sh): the one function that
 * core/conf_read.c calls, for the lines that it passes on ("[section]" or "key = value", each whole
 * and without blanks around).  Products are built with inih.
 */
#ifndef ATSI_LEAN_INI_H
#define ATSI_LEAN_INI_H

#include <stdio.h>
#include <string.h>

typedef char *(*ini_reader)(char *out, int size, void *stream);
typedef int (*ini_handler)(void *ctx, const char *section, const char *name, const char *value);

/* 0, or the number of the first line that is neither. */
static inline int ini_parse_stream(ini_reader reader, void *stream, ini_handler handler, void *ctx)
{
    char line[256], section[64] = "";
    int number = 0, wrong = 0;
    while (reader(line, (int)sizeof line, stream) != NULL) {
        char *end = strpbrk(line, line[0] == '[' ? "]" : " =");
        number++;
        if (end == NULL || (line[0] == '[' && (size_t)(end - line) > sizeof section)) {
            wrong = wrong == 0 ? number : wrong;
            continue;
        }
        *end = '\0';
        if (line[0] == '[')
            (void)snprintf(section, sizeof section, "%s", line + 1);
        else if (handler(ctx, section, line, ".") == 0 && wrong == 0)
            wrong = number;
    }
    return wrong;
}

#endif
