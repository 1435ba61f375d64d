/* SPDX-License-Identifier: Apache-2.0
 * Whether the ranges of a transfer may be copied in any order: nothing is written twice, and
 * nothing that is read is written. */
#include "transfer.h"

#include <stdlib.h>

static uintptr_t end_of(const void *ptr, size_t bytes)
{
    return (uintptr_t)ptr + bytes;
}

static int by_dst(const void *a, const void *b)
{
    const struct atsi_range *x = *(const struct atsi_range *const *)a;
    const struct atsi_range *y = *(const struct atsi_range *const *)b;
    return (uintptr_t)x->dst < (uintptr_t)y->dst ? -1 : (uintptr_t)x->dst > (uintptr_t)y->dst;
}

/* The first of the ranges, ascending and apart by now, whose destination ends behind `at`. */
static uint32_t first_behind(const struct atsi_range *const *order, uint32_t n, uintptr_t at)
{
    uint32_t lo = 0, hi = n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (end_of(order[mid]->dst, order[mid]->bytes) <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static int check_memory(const struct atsi_range *r, uint32_t i, struct atsi_err *err)
{
    if (r->src == NULL || r->dst == NULL || cuda_add_overflows((uintptr_t)r->src, r->bytes) ||
        cuda_add_overflows((uintptr_t)r->dst, r->bytes))
        return atsi_fail(err, ATSI_EINVAL,
                         CUDA_PLUGIN_NAME ": range %u of a copy: %zu bytes at no proper address", i,
                         r->bytes);
    return ATSI_OK;
}

static int overlap(const struct atsi_range *a, const struct atsi_range *ranges, const char *what,
                   const struct atsi_range *b, struct atsi_err *err)
{
    return atsi_fail(err, ATSI_EINVAL,
                     CUDA_PLUGIN_NAME ": ranges %td and %td of a copy overlap: %s", a - ranges,
                     b - ranges, what);
}

int cuda_copy_check(const struct atsi_range *ranges, uint32_t n, const struct atsi_range **order,
                    struct atsi_err *err)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        int rc;
        if (ranges[i].bytes == 0)
            continue;
        rc = check_memory(&ranges[i], i, err);
        if (rc != ATSI_OK)
            return rc;
        order[used++] = &ranges[i];
    }
    qsort((void *)order, used, sizeof(void *), by_dst);
    for (uint32_t i = 1; i < used; i++)
        if (end_of(order[i - 1]->dst, order[i - 1]->bytes) > (uintptr_t)order[i]->dst)
            return overlap(order[i - 1], ranges, "both write the same bytes", order[i], err);
    for (uint32_t i = 0; i < used; i++) {
        const struct atsi_range *r = order[i];
        uint32_t at = first_behind(order, used, (uintptr_t)r->src);
        if (at < used && (uintptr_t)order[at]->dst < end_of(r->src, r->bytes))
            return overlap(r, ranges, "one reads what the other writes", order[at], err);
    }
    return ATSI_OK;
}
