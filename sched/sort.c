/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap sort: the C library's qsort() may allocate.
 */
#include "sched/sort.h"

/* Whether a comes after b in the sorted order. */
static int after(const double *key, uint32_t a, uint32_t b)
{
    if (key[a] != key[b])
        return key[a] < key[b];
    return a > b;
}

/* Lets x sink from `at` in the heap id[0..n), whose top is the last of the order. */
static void sink(uint32_t *id, const double *key, uint32_t n, uint32_t at, uint32_t x)
{
    uint32_t child;
    while ((child = 2 * at + 1) < n) {
        if (child + 1 < n && after(key, id[child + 1], id[child]))
            child++;
        if (!after(key, id[child], x))
            break;
        id[at] = id[child];
        at = child;
    }
    id[at] = x;
}

void sched_sort_falling(uint32_t *id, const double *key, uint32_t n)
{
    for (uint32_t at = n / 2; at-- > 0;)
        sink(id, key, n, at, id[at]);
    for (uint32_t end = n; end > 1;) {
        uint32_t x = id[--end];
        id[end] = id[0];
        sink(id, key, end, 0, x);
    }
}
