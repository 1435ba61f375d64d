/* SPDX-License-Identifier: Apache-2.0
 * The user's folder for what can be made again: $XDG_CACHE_HOME/atsinfer, or ~/.cache/atsinfer. */
#ifndef ATSI_CORE_CACHE_DIR_H
#define ATSI_CORE_CACHE_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* Path of `name` there, in the folder `sub` ("" for none).  make: its folders are made where they
 * are missing.  False: neither variable names an absolute path, or `size` is too small. */
bool atsi_cache_path(const char *sub, const char *name, bool make, char *out, size_t size);

#endif
