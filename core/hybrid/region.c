/* SPDX-License-Identifier: Apache-2.0
 *
 * The device arena: its memory, its slots, and where residents lie in it.  region_load.c brings
 * their bytes.
 */
#include "core/hybrid/region_inside.h"

#include <stdlib.h>
#include <string.h>

#define MOST (UINT64_C(1) << 60) /* sums of sizes below it do not overflow */

static uint64_t align_up(const struct atsi_region *r, uint64_t bytes)
{
    return (bytes + r->align - 1) / r->align * r->align;
}

/* ---------------------------------------------------------------- memory */
static uint64_t tail(const struct atsi_region *r)
{
    return r->pad; /* readable behind the last resident */
}

/* Grows or shrinks what is committed; false sizes leave everything as it was. */
static int commit(struct atsi_region *r, uint64_t slots, uint64_t place, struct atsi_err *err)
{
    uint64_t bytes = slots + place + tail(r);
    int rc = ATSI_OK;
    if (slots > MOST || place > MOST || bytes > r->reserved)
        return atsi_fail(err, ATSI_ENOMEM,
                         "%llu bytes on the accelerator asked for, %llu were reserved at the start",
                         (unsigned long long)bytes, (unsigned long long)r->reserved);
    if (r->can_shrink && bytes != r->committed)
        rc = r->p.ops->buf_commit(r->p.be, r->buf, (size_t)bytes, err);
    if (rc == ATSI_OK && r->can_shrink)
        r->committed = bytes;
    if (rc == ATSI_OK) {
        r->slots = slots;
        r->place = place;
    }
    return rc;
}

/* A range of addresses where the device has them, else all the memory at once. */
static int open_memory(struct atsi_region *r, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = r->p.ops;
    uint64_t now = r->p.slots_bytes + r->p.place_bytes + tail(r);
    int rc = ATSI_ENOTSUP;
    r->reserved = r->p.reserve_bytes > now - tail(r) ? r->p.reserve_bytes + tail(r) : now;
    if (ATSI_HAS(ops, struct atsi_backend_ops, buf_reserve) &&
        ATSI_HAS(ops, struct atsi_backend_ops, buf_commit))
        rc = ops->buf_reserve(r->p.be, (size_t)r->reserved, &r->buf, err);
    r->can_shrink = rc == ATSI_OK;
    if (rc != ATSI_OK) {
        r->reserved = now;
        rc = ops->buf_alloc(r->p.be, ATSI_MEM_DEVICE, (size_t)now, &r->buf, err);
        r->committed = rc == ATSI_OK ? now : 0;
    }
    if (rc != ATSI_OK) {
        r->buf = NULL;
        return rc;
    }
    r->base = ops->buf_ptr(r->buf);
    return commit(r, r->p.slots_bytes, r->p.place_bytes, err);
}

int atsi_region_open(const struct atsi_region_params *p, struct atsi_region **out,
                     struct atsi_err *err)
{
    struct atsi_props props = {.struct_size = sizeof props};
    struct atsi_region *r = calloc(1, sizeof *r);
    int rc;
    *out = NULL;
    if (r == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the region of an accelerator");
    r->p = *p;
    r->version = 1;
    r->align = ATSI_REGION_ALIGN;
    rc = p->ops->props(p->be, &props);
    if (rc != ATSI_OK)
        (void)atsi_fail(err, rc, "the accelerator does not say what it is");
    else if (p->slots_bytes > MOST || p->place_bytes > MOST || p->reserve_bytes > MOST)
        rc = atsi_fail(err, ATSI_ENOMEM, "no accelerator has %llu bytes",
                       (unsigned long long)p->place_bytes);
    if (rc == ATSI_OK) {
        if (props.buf_align_bytes > r->align)
            r->align = props.buf_align_bytes;
        r->pad = props.buf_pad_bytes;
        r->p.slots_bytes = align_up(r, p->slots_bytes);
        r->p.place_bytes = align_up(r, p->place_bytes);
        rc = open_memory(r, err);
    }
    if (rc == ATSI_OK)
        rc = atsi_region_open_lanes(r, err);
    if (rc != ATSI_OK) {
        atsi_region_close(r);
        return rc;
    }
    *out = r;
    return ATSI_OK;
}

void atsi_region_close(struct atsi_region *r)
{
    if (r == NULL)
        return;
    atsi_region_close_lanes(r);
    if (r->buf != NULL)
        r->p.ops->buf_free(r->p.be, r->buf);
    free(r->all);
    free(r);
}

/* ---------------------------------------------------------------- residents */
static bool same_piece(const struct atsi_piece *a, const struct atsi_piece *b)
{
    return a->tensor == b->tensor && a->first_row == b->first_row && a->end_row == b->end_row;
}

static struct atsi_resident *find(const struct atsi_region *r, const struct atsi_piece *p)
{
    for (uint32_t i = 0; i < r->n; i++)
        if (same_piece(&r->all[i].piece, p))
            return &r->all[i];
    return NULL;
}

bool atsi_region_find(const struct atsi_region *r, const struct atsi_piece *p,
                      struct atsi_tensor *out)
{
    const struct atsi_resident *x = find(r, p);
    if (x == NULL || !x->loaded)
        return false;
    *out = atsi_weights_view(r->p.weights, p, r->base + x->at);
    out->layout = x->layout;
    return true;
}

uint64_t atsi_region_need(const struct atsi_region *r, const struct atsi_piece *wants, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += align_up(r, atsi_piece_bytes(r->p.weights, &wants[i]));
    return sum;
}

uint64_t atsi_region_version(const struct atsi_region *r)
{
    return r->version;
}

static void drop(struct atsi_region *r, uint32_t i)
{
    r->used -= r->all[i].room;
    r->all[i] = r->all[--r->n];
    r->version++;
}

static uint32_t drop_unwanted(struct atsi_region *r, const struct atsi_piece *wants, uint32_t n)
{
    uint32_t dropped = 0;
    for (uint32_t i = r->n; i-- > 0;) {
        bool wanted = false;
        for (uint32_t k = 0; k < n && !wanted; k++)
            wanted = same_piece(&r->all[i].piece, &wants[k]);
        if (!wanted) {
            drop(r, i);
            dropped++;
        }
    }
    return dropped;
}

/* Adds those that are not there yet, without a place. */
static int add_wants(struct atsi_region *r, const struct atsi_piece *wants, uint32_t n,
                     struct atsi_err *err)
{
    struct atsi_resident *grown = realloc(r->all, ((size_t)r->n + n + 1) * sizeof *grown);
    if (grown == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a table of %u residents", n);
    r->all = grown;
    for (uint32_t k = 0; k < n; k++) {
        uint64_t bytes = atsi_piece_bytes(r->p.weights, &wants[k]);
        if (find(r, &wants[k]) != NULL)
            continue;
        if (bytes == 0)
            return atsi_fail(err, ATSI_EINVAL,
                             "tensor %u, rows %llu to %llu: there is no such piece",
                             wants[k].tensor, (unsigned long long)wants[k].first_row,
                             (unsigned long long)wants[k].end_row);
        r->all[r->n] = (struct atsi_resident){
            .piece = wants[k], .bytes = bytes, .room = align_up(r, bytes), .at = ATSI_NOWHERE};
        r->used += r->all[r->n].room;
        r->n++;
    }
    return ATSI_OK;
}

static void forget_unplaced(struct atsi_region *r)
{
    for (uint32_t i = r->n; i-- > 0;)
        if (!r->all[i].loaded)
            drop(r, i);
}

int atsi_region_place(struct atsi_region *r, const struct atsi_piece *wants, uint32_t n,
                      int (*progress)(void *ctx, uint64_t done_bytes, uint64_t total_bytes),
                      void *ctx, struct atsi_region_change *change, struct atsi_err *err)
{
    struct atsi_region_change sums = {0};
    int rc;
    (void)atsi_weights_begin(r->p.weights); /* views stay what they are until all is loaded */
    sums.dropped = drop_unwanted(r, wants, n);
    sums.kept = r->n;
    rc = add_wants(r, wants, n, err);
    if (rc == ATSI_OK && r->used > r->place)
        rc = atsi_fail(err, ATSI_ENOMEM,
                       "%u residents need %llu bytes of the accelerator, its region has %llu", r->n,
                       (unsigned long long)r->used, (unsigned long long)r->place);
    if (rc == ATSI_OK)
        rc = atsi_region_fit(r, &sums.moved, err);
    if (rc == ATSI_OK) {
        sums.kept -= sums.moved;
        rc = atsi_region_load(r, progress, ctx, &sums, err);
    }
    atsi_weights_end(r->p.weights);
    forget_unplaced(r);
    if (change != NULL)
        *change = sums;
    return rc;
}

/* ---------------------------------------------------------------- slots */
int atsi_region_cut_slots(struct atsi_region *r, uint32_t phase, uint32_t n, uint64_t bytes,
                          struct atsi_err *err)
{
    uint64_t step = align_up(r, bytes);
    if (phase > 1)
        return atsi_fail(err, ATSI_EINVAL, "there is no phase %u", phase);
    if (n > 0 && step > r->slots / n)
        return atsi_fail(err, ATSI_ENOMEM,
                         "%u slots of %llu bytes do not fit the %llu bytes for slots", n,
                         (unsigned long long)step, (unsigned long long)r->slots);
    if (r->n_slots[phase] != n || r->slot_step[phase] != step)
        r->version++;
    r->n_slots[phase] = n;
    r->slot_step[phase] = step;
    return ATSI_OK;
}

void *atsi_region_slot(const struct atsi_region *r, uint32_t phase, uint32_t slot)
{
    if (phase > 1 || slot >= r->n_slots[phase])
        return NULL;
    return r->base + r->place + slot * r->slot_step[phase];
}

/* ---------------------------------------------------------------- live budget */
int atsi_region_resize(struct atsi_region *r, uint64_t slots_bytes, uint64_t place_bytes,
                       struct atsi_err *err)
{
    uint64_t slots = slots_bytes > MOST ? slots_bytes : align_up(r, slots_bytes);
    uint64_t place = place_bytes > MOST ? place_bytes : align_up(r, place_bytes);
    bool moved = slots != r->slots || place != r->place;
    int rc = commit(r, slots, place, err);
    if (rc != ATSI_OK)
        return rc;
    for (uint32_t i = r->n; i-- > 0;)
        if (r->all[i].at + r->all[i].room > place)
            drop(r, i);
    if (moved) {
        memset(r->n_slots, 0, sizeof r->n_slots);
        memset(r->slot_step, 0, sizeof r->slot_step);
        r->version++;
    }
    return ATSI_OK;
}

void atsi_region_state(const struct atsi_region *r, struct atsi_region_state *out)
{
    *out = (struct atsi_region_state){.reserved = r->reserved,
                                      .committed = r->committed,
                                      .slots = r->slots,
                                      .place = r->place,
                                      .used = r->used,
                                      .n_residents = r->n,
                                      .can_shrink = r->can_shrink};
}
