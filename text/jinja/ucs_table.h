/* SPDX-License-Identifier: Apache-2.0
 * Tables of letter case; each is sorted. */
#ifndef ATSI_TEXT_JINJA_UCS_TABLE_H
#define ATSI_TEXT_JINJA_UCS_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* A character whose upper or title case is up to three characters; 0 ends them. */
struct atsi_ucs_special {
    uint16_t cp, upper[3], title[3];
};
extern const struct atsi_ucs_special atsi_ucs_special[];
extern const size_t atsi_ucs_n_special;

struct atsi_ucs_range {
    uint32_t first, last;
};
/* Lower case (upper case) though the category is not Ll (Lu). */
extern const struct atsi_ucs_range atsi_ucs_other_lower[], atsi_ucs_other_upper[];
extern const size_t atsi_ucs_n_other_lower, atsi_ucs_n_other_upper;

#endif
