/* SPDX-License-Identifier: Apache-2.0
 *
 * The merge loop.
 *
 * Few symbols (a word): scan for the best pair again and again, which is quadratic but touches one
 * or two cache lines.  Many symbols: a linked list and a binary heap of (priority, position) keys.
 * A key is valid while its symbol is alive and still has that priority: equal keys mean the same
 * pair, so nothing else needs to be stored, and a stale key is dropped when it comes up.
 */
#include "text/merge.h"

#include <stdlib.h>
#include <string.h>

#include "text/buf.h"

enum { SCAN_MAX = 24 }; /* symbols up to which scanning is used */

#define NO_SYM UINT32_MAX

bool atsi_merger_reserve(struct atsi_merger *m, size_t n)
{
    void *p = m->syms;
    bool ok = atsi_grow(&p, 0, &m->cap, n, sizeof *m->syms);
    m->syms = p;
    return ok;
}

void atsi_merger_close(struct atsi_merger *m)
{
    free(m->syms);
    free(m->heap);
    *m = (struct atsi_merger){.syms = NULL};
}

static void set_pair(struct atsi_merger *m, struct atsi_sym *left, const struct atsi_sym *right,
                     atsi_pair_fn *pair, const void *ctx)
{
    m->n_steps++;
    left->prio = pair(ctx, left, right, &left->joined);
}

static size_t merge_by_scan(struct atsi_merger *m, size_t n, atsi_pair_fn *pair, const void *ctx)
{
    struct atsi_sym *s = m->syms;
    for (size_t i = 0; i + 1 < n; i++)
        set_pair(m, &s[i], &s[i + 1], pair, ctx);
    s[n - 1].prio = ATSI_NO_MERGE;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (s[i].prio < s[best].prio)
                best = i;
        m->n_steps += n;
        if (s[best].prio == ATSI_NO_MERGE)
            return n;
        s[best].id = s[best].joined;
        s[best].len += s[best + 1].len;
        memmove(&s[best + 1], &s[best + 2], (n - best - 2) * sizeof *s);
        n--;
        s[best].prio = ATSI_NO_MERGE;
        if (best + 1 < n)
            set_pair(m, &s[best], &s[best + 1], pair, ctx);
        if (best > 0)
            set_pair(m, &s[best - 1], &s[best], pair, ctx);
    }
}

static void sift_down(uint64_t *heap, size_t n, size_t i)
{
    uint64_t key = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

static void push(uint64_t *heap, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

static uint64_t pop(uint64_t *heap, size_t *n)
{
    uint64_t top = heap[0];
    heap[0] = heap[--*n];
    if (*n > 0)
        sift_down(heap, *n, 0);
    return top;
}

static uint64_t key_of(const struct atsi_sym *s, uint32_t pos)
{
    return (uint64_t)s->prio << 32 | pos;
}

/* Links the symbols, looks up every pair and orders them. */
static size_t start_heap(struct atsi_merger *m, size_t n, atsi_pair_fn *pair, const void *ctx)
{
    struct atsi_sym *s = m->syms;
    size_t n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        s[i].prev = i == 0 ? NO_SYM : (uint32_t)(i - 1);
        s[i].next = i + 1 == n ? NO_SYM : (uint32_t)(i + 1);
        s[i].prio = ATSI_NO_MERGE;
        if (i + 1 < n)
            set_pair(m, &s[i], &s[i + 1], pair, ctx);
        if (s[i].prio != ATSI_NO_MERGE)
            m->heap[n_heap++] = key_of(&s[i], (uint32_t)i);
    }
    for (size_t i = n_heap / 2; i-- > 0;)
        sift_down(m->heap, n_heap, i);
    return n_heap;
}

/* Looks up the pair that begins at `pos` and queues it. */
static void requeue(struct atsi_merger *m, uint32_t pos, size_t *n_heap, atsi_pair_fn *pair,
                    const void *ctx)
{
    struct atsi_sym *s = &m->syms[pos];
    s->prio = ATSI_NO_MERGE;
    if (s->next != NO_SYM)
        set_pair(m, s, &m->syms[s->next], pair, ctx);
    if (s->prio != ATSI_NO_MERGE)
        push(m->heap, n_heap, key_of(s, pos));
}

static void join(struct atsi_sym *s, uint32_t pos)
{
    struct atsi_sym *left = &s[pos], *right = &s[left->next];
    left->id = left->joined;
    left->len += right->len;
    left->next = right->next;
    if (right->next != NO_SYM)
        s[right->next].prev = pos;
    right->len = 0; /* dead */
    right->prio = ATSI_NO_MERGE;
}

static size_t merge_by_heap(struct atsi_merger *m, size_t n, atsi_pair_fn *pair, const void *ctx)
{
    struct atsi_sym *s = m->syms;
    size_t n_heap = start_heap(m, n, pair, ctx), n_left = 0;
    while (n_heap > 0) {
        uint64_t key = pop(m->heap, &n_heap);
        uint32_t pos = (uint32_t)key;
        m->n_steps++;
        if (s[pos].prio != (uint32_t)(key >> 32))
            continue; /* stale; a dead symbol has no priority */
        join(s, pos);
        requeue(m, pos, &n_heap, pair, ctx);
        if (s[pos].prev != NO_SYM)
            requeue(m, s[pos].prev, &n_heap, pair, ctx);
    }
    for (uint32_t i = 0; i != NO_SYM; n_left++) {
        uint32_t next = s[i].next;
        s[n_left] = s[i];
        i = next;
    }
    return n_left;
}

bool atsi_merge(struct atsi_merger *m, size_t n, atsi_pair_fn *pair, const void *ctx, size_t *n_out)
{
    void *heap = m->heap;
    *n_out = n;
    if (n < 2)
        return true;
    if (n <= SCAN_MAX) {
        *n_out = merge_by_scan(m, n, pair, ctx);
        return true;
    }
    /* Every merge pops one key and queues at most two, and there are fewer than n merges. */
    if (n > SIZE_MAX / 2 || !atsi_grow(&heap, 0, &m->cap_heap, 2 * n, sizeof *m->heap))
        return false;
    m->heap = heap;
    *n_out = merge_by_heap(m, n, pair, ctx);
    return true;
}
