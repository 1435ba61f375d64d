/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a thread that it begins and waits for in groups (cp.async).  At random one lands when
 * it is begun, which shows a place that others still read, or when it is waited for, which shows a
 * missing wait.
 *
 * Built without ThreadSanitizer's instrumentation, as block.c is: the bytes are moved by the
 * kernel's own code (async.cuh), for its accesses to be seen.
 */
#include "tests/cuda_host/exec.h"

#include <stdlib.h>

#define FIRST_ROOM 32u

static struct ch_async_copies *mine(void)
{
    struct ch_worker *w = ch_self.worker;
    return &w->copies[w->current];
}

static int grow(struct ch_async_copies *c)
{
    uint32_t room = c->room != 0 ? 2 * c->room : FIRST_ROOM;
    struct ch_async_copy *list = realloc(c->list, room * sizeof *list);
    if (list == NULL)
        return -1;
    c->list = list;
    c->room = room;
    return 0;
}

static int lands_at_once(struct ch_worker *w)
{
    w->chance = w->chance * 1664525u + 1013904223u;
    return (int)(w->chance >> 31);
}

int ch_async_begin(void *to, const void *from, uint32_t bytes)
{
    struct ch_async_copies *c = mine();
    if (lands_at_once(ch_self.worker))
        return 1;
    ch_self.worker->copies_begun = 1;
    if (c->first == c->n)
        c->first = c->n = 0;
    if (c->n == c->room && grow(c) != 0)
        return 1; /* early is allowed */
    c->list[c->n++] = (struct ch_async_copy){to, from, bytes, c->groups};
    return 0;
}

void ch_async_commit(void)
{
    ch_self.worker->copies_begun = 1;
    mine()->groups++;
}

const struct ch_async_copy *ch_async_due(uint32_t n)
{
    struct ch_async_copies *c = mine();
    if (c->first == c->n || c->list[c->first].group + n >= c->groups)
        return NULL;
    return &c->list[c->first++];
}

void ch_async_reset(struct ch_worker *w)
{
    if (!w->copies_begun)
        return;
    w->copies_begun = 0;
    for (uint32_t i = 0; i < CH_MAX_THREADS; i++)
        w->copies[i].first = w->copies[i].n = w->copies[i].groups = 0;
}

void ch_async_free(struct ch_worker *w)
{
    for (uint32_t i = 0; i < CH_MAX_THREADS; i++)
        free(w->copies[i].list);
}
