/* SPDX-License-Identifier: Apache-2.0
 * Building JSON answers with jansson: its setters take ownership and fail on a NULL value, so that
 * one flag gathers every failure of a whole tree. */
#ifndef ATSI_CLI_JSON_H
#define ATSI_CLI_JSON_H

#include <jansson.h>

#include "cli/cli.h"

static inline void cli_json_set(json_t *o, const char *key, json_t *value, bool *ok)
{
    if (json_object_set_new(o, key, value) != 0)
        *ok = false;
}

static inline void cli_json_append(json_t *a, json_t *value, bool *ok)
{
    if (json_array_append_new(a, value) != 0)
        *ok = false;
}

/* Text from files, plugins or the environment may be no UTF-8, which jansson refuses. */
static inline json_t *cli_json_text(const char *s)
{
    json_t *v = json_string(s);
    return v != NULL ? v : json_string("?");
}

/* Prints and frees the tree; `code` unless it could not be built or written. */
static inline int cli_json_print(json_t *o, bool ok, int code)
{
    if (!ok)
        code = cli_fail(CLI_RUN_ERROR, "out of memory");
    else if (json_dumpf(o, stdout, JSON_INDENT(2)) != 0 || putchar('\n') == EOF)
        code = CLI_RUN_ERROR; /* cli_finish_stdout() says why */
    json_decref(o);
    return code;
}

#endif
