/* SPDX-License-Identifier: Apache-2.0
 * Ini files of numbers: machine profiles and model shapes, read into structs by a table. */
#ifndef ATSI_CORE_ROUND_NUMBER_FILE_H
#define ATSI_CORE_ROUND_NUMBER_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "atsinfer/status.h"

struct atsi_number_key {
    const char *name; /* without its section */
    size_t offset;    /* of a double, or of a char[96] for text */
    bool text, required;
    double def, min, max; /* of numbers */
};

/* Reads section [section] of an ini file into *out.  ATSI_ENOENT; ATSI_ECONF with file and line: an
 * unknown key (the nearest is named) or section, a value that is no number in range; a missing key.
 */
int atsi_number_file_read(const char *path, const char *section, const struct atsi_number_key *keys,
                          size_t n_keys, void *out, struct atsi_err *err);

#endif
