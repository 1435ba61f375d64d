/* SPDX-License-Identifier: Apache-2.0
 * "Did you mean": how far apart two words are (Levenshtein distance, one row kept). */
#include "atsinfer/atsinfer.h"

#include <string.h>

#define MAX_WORD 63u

static uint32_t min3(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t m = a < b ? a : b;
    return m < c ? m : c;
}

uint32_t atsi_edit_distance(const char *a, const char *b)
{
    size_t na = strnlen(a, MAX_WORD + 1), nb = strnlen(b, MAX_WORD + 1);
    uint32_t row[MAX_WORD + 1];
    if (na > MAX_WORD || nb > MAX_WORD)
        return UINT32_MAX;
    for (size_t j = 0; j <= nb; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 1; i <= na; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i;
        for (size_t j = 1; j <= nb; j++) {
            uint32_t above = row[j];
            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[nb];
}
