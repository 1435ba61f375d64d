/* SPDX-License-Identifier: Apache-2.0
 *
 * Places in the arena.  New residents go into gaps, the largest first, each into the tightest gap.
 * When gaps are too small, the smallest of those that are there make room, twice as many at each
 * try; when that does not help, all are packed afresh.  So an arena that holds the sum of its
 * residents always holds them, however often they change.
 */
#include "core/hybrid/region_inside.h"

#include <stdlib.h>
#include <string.h>

struct gap {
    uint64_t at, bytes;
};

struct fit {
    struct atsi_region *r;
    uint32_t *by_size; /* [n] residents, largest first */
    uint64_t *try_at;  /* [n] places in this try */
    struct gap *gaps;  /* [n + 1] */
    uint32_t n_gaps;
};

/* qsort has no context of its own; arrays of {key, index} carry it. */
struct keyed {
    uint64_t key;
    uint32_t index;
};

static int compare_keys(const void *a, const void *b)
{
    const struct keyed *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Gaps between what has a place in this try. */
static void find_gaps(struct fit *f, struct keyed *sorted)
{
    const struct atsi_region *r = f->r;
    uint64_t end = 0;
    uint32_t n = 0;
    f->n_gaps = 0;
    for (uint32_t i = 0; i < r->n; i++)
        if (f->try_at[i] != ATSI_NOWHERE)
            sorted[n++] = (struct keyed){f->try_at[i], i};
    qsort(sorted, n, sizeof *sorted, compare_keys);
    for (uint32_t k = 0; k < n; k++) {
        if (sorted[k].key > end)
            f->gaps[f->n_gaps++] = (struct gap){end, sorted[k].key - end};
        end = sorted[k].key + r->all[sorted[k].index].room;
    }
    if (r->place > end)
        f->gaps[f->n_gaps++] = (struct gap){end, r->place - end};
}

static bool put(struct fit *f, uint32_t i)
{
    uint64_t room = f->r->all[i].room;
    struct gap *best = NULL;
    for (uint32_t g = 0; g < f->n_gaps; g++)
        if (f->gaps[g].bytes >= room && (best == NULL || f->gaps[g].bytes < best->bytes))
            best = &f->gaps[g];
    if (best == NULL)
        return false;
    f->try_at[i] = best->at;
    best->at += room;
    best->bytes -= room;
    return true;
}

/* Keeps what is placed but the `evict` smallest of it; false: gaps do not hold the rest. */
static bool try_keeping(struct fit *f, uint32_t evict, struct keyed *scratch)
{
    const struct atsi_region *r = f->r;
    for (uint32_t i = 0; i < r->n; i++)
        f->try_at[i] = r->all[i].at;
    for (uint32_t k = r->n; k-- > 0 && evict > 0;)
        if (r->all[f->by_size[k]].at != ATSI_NOWHERE) {
            f->try_at[f->by_size[k]] = ATSI_NOWHERE;
            evict--;
        }
    find_gaps(f, scratch);
    for (uint32_t k = 0; k < r->n; k++)
        if (f->try_at[f->by_size[k]] == ATSI_NOWHERE && !put(f, f->by_size[k]))
            return false;
    return true;
}

/* One behind the other, those that are there in their order, so that the first ones stay. */
static void pack_afresh(struct fit *f, struct keyed *scratch)
{
    const struct atsi_region *r = f->r;
    uint64_t at = 0;
    for (uint32_t i = 0; i < r->n; i++)
        scratch[i] = (struct keyed){r->all[i].at, i}; /* ATSI_NOWHERE is the largest */
    qsort(scratch, r->n, sizeof *scratch, compare_keys);
    for (uint32_t k = 0; k < r->n; k++) {
        f->try_at[scratch[k].index] = at;
        at += r->all[scratch[k].index].room;
    }
}

static uint32_t settle(struct fit *f)
{
    uint32_t moved = 0;
    for (uint32_t i = 0; i < f->r->n; i++) {
        struct atsi_resident *x = &f->r->all[i];
        if (x->at == f->try_at[i])
            continue;
        if (x->loaded) {
            x->loaded = false;
            moved++;
        }
        x->at = f->try_at[i];
        f->r->version++;
    }
    return moved;
}

int atsi_region_fit(struct atsi_region *r, uint32_t *moved_out, struct atsi_err *err)
{
    size_t n = (size_t)r->n + 1;
    struct fit f = {.r = r};
    struct keyed *scratch = malloc(n * sizeof *scratch);
    uint32_t placed = 0, evict = 0;
    int rc = ATSI_OK;
    f.by_size = malloc(n * sizeof *f.by_size);
    f.try_at = malloc(n * sizeof *f.try_at);
    f.gaps = malloc(n * sizeof *f.gaps);
    if (scratch == NULL || f.by_size == NULL || f.try_at == NULL || f.gaps == NULL) {
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory placing %u residents", r->n);
        goto out;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        scratch[i] = (struct keyed){UINT64_MAX - r->all[i].room, i};
        placed += r->all[i].at != ATSI_NOWHERE;
    }
    qsort(scratch, r->n, sizeof *scratch, compare_keys);
    for (uint32_t i = 0; i < r->n; i++)
        f.by_size[i] = scratch[i].index;
    while (!try_keeping(&f, evict, scratch)) {
        if (evict >= placed) {
            pack_afresh(&f, scratch);
            break;
        }
        evict = evict == 0 ? 1 : evict * 2;
    }
    *moved_out = settle(&f);
out:
    free(f.gaps);
    free(f.try_at);
    free(f.by_size);
    free(scratch);
    return rc;
}
