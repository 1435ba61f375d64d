/* SPDX-License-Identifier: Apache-2.0
 * Sorting without allocation. */
#ifndef ATSI_SCHED_SORT_H
#define ATSI_SCHED_SORT_H

#include <stdint.h>

/* Sorts id[0..n) by falling key[id], equal keys by rising id.  Keys must not be NaN. */
void sched_sort_falling(uint32_t *id, const double *key, uint32_t n);

#endif
