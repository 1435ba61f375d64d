/* SPDX-License-Identifier: Apache-2.0
 * The user's cache folder. */
#include "core/cache_dir.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Appends a folder's name and makes it; one that exists is the usual case. */
static bool enter(const char *name, bool make, char *out, size_t size)
{
    size_t at = strlen(out);
    int n = snprintf(out + at, size - at, "%s", name);
    if (n < 0 || (size_t)n >= size - at)
        return false;
    if (make)
        (void)mkdir(out, 0700);
    return true;
}

bool atsi_cache_path(const char *sub, const char *name, bool make, char *out, size_t size)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = base != NULL && base[0] == '/';
    if (size == 0 || (!own && (home == NULL || home[0] != '/')))
        return false;
    out[0] = '\0';
    if (!enter(own ? base : home, own && make, out, size) ||
        (!own && !enter("/.cache", make, out, size)) || !enter("/atsinfer", make, out, size))
        return false;
    if (sub[0] != '\0' && (!enter("/", false, out, size) || !enter(sub, make, out, size)))
        return false;
    return enter("/", false, out, size) && enter(name, false, out, size);
}
