/* SPDX-License-Identifier: Apache-2.0
 * A table of known memory: what an address points into, by binary search. */
#include "cuda_plugin.h"

#include <stdlib.h>
#include <string.h>

uint32_t cuda_ranges_find(const struct cuda_ranges *t, uintptr_t from)
{
    uint32_t lo = 0, hi = t->n;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (t->at[mid].to <= from)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

int cuda_ranges_add(struct cuda_ranges *t, const void *ptr, size_t bytes, enum cuda_mem mem)
{
    uintptr_t from = (uintptr_t)ptr;
    uint32_t i = cuda_ranges_find(t, from);
    if (t->n == t->cap) {
        uint32_t cap = t->cap == 0 ? 16 : 2 * t->cap;
        struct cuda_range *grown = realloc(t->at, cap * sizeof *grown);
        if (grown == NULL)
            return ATSI_ENOMEM;
        t->at = grown;
        t->cap = cap;
    }
    memmove(&t->at[i + 1], &t->at[i], (t->n - i) * sizeof t->at[0]);
    t->at[i] = (struct cuda_range){from, from + bytes, mem};
    t->n++;
    return ATSI_OK;
}

void cuda_ranges_remove(struct cuda_ranges *t, const void *ptr)
{
    uint32_t i = cuda_ranges_find(t, (uintptr_t)ptr);
    if (i == t->n || t->at[i].from != (uintptr_t)ptr)
        return;
    t->n--;
    memmove(&t->at[i], &t->at[i + 1], (t->n - i) * sizeof t->at[0]);
}

enum cuda_mem cuda_ranges_kind(const struct cuda_ranges *t, const void *ptr, size_t *bytes)
{
    uintptr_t p = (uintptr_t)ptr;
    uint32_t i = cuda_ranges_find(t, p);
    bool inside = i < t->n && t->at[i].from <= p;
    size_t room = i == t->n ? SIZE_MAX : inside ? t->at[i].to - p : t->at[i].from - p;
    if (room < *bytes)
        *bytes = room;
    return inside ? t->at[i].mem : CUDA_MEM_PAGEABLE;
}
