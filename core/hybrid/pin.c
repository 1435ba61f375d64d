/* SPDX-License-Identifier: Apache-2.0
 *
 * The ladder of pinned memory: registered with the device, tensors that move most first, page by
 * page next to what is registered already; what the device refuses is left to the transfer engine's
 * staging or to pageable copies.
 *
 *     tensor      |      a       |   b   |          c             |
 *     pages     |    |    |    |    |    |    |    |    |    |    |    |
 *     a first   |      block 1      |
 *     then c    |      block 1      |    |         block 2             |    (b's last page is c's)
 */
#include "core/hybrid/weights_inside.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_MOST ((uint64_t)256 << 20) /* one registration: a refusal loses no more than this */
#define BLOCK_LEAST ((uint64_t)1 << 20)  /* smaller ones are not tried again by halves */
#define MIB 1048576.0

struct span {
    unsigned char *start, *end;
};

/* Whole pages around a tensor's bytes. */
static struct span pages_of(const struct atsi_weight *t)
{
    uintptr_t at = (uintptr_t)t->tensor.data, off = at % ATSI_PAGE;
    uint64_t bytes = (t->bytes + off + ATSI_PAGE - 1) / ATSI_PAGE * ATSI_PAGE;
    unsigned char *start = (unsigned char *)t->tensor.data - off;
    return (struct span){start, start + bytes};
}

/* ---------------------------------------------------------------- blocks */
uint32_t atsi_pin_block_at(const struct atsi_weights *w, const unsigned char *at)
{
    uint32_t lo = 0, hi = w->pins.n_blocks;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (w->pins.blocks[mid].start + w->pins.blocks[mid].bytes <= at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

bool atsi_pin_touches(const struct atsi_weights *w, const void *p, uint64_t bytes)
{
    uint32_t b = atsi_pin_block_at(w, p);
    return b < w->pins.n_blocks && w->pins.blocks[b].start < (const unsigned char *)p + bytes;
}

static bool insert_block(struct atsi_weights *w, unsigned char *start, uint64_t bytes)
{
    struct atsi_pins *p = &w->pins;
    uint32_t at = atsi_pin_block_at(w, start);
    if (p->n_blocks == p->room) {
        uint32_t room = p->room * 2 + 64;
        struct atsi_pin_block *grown = realloc(p->blocks, room * sizeof *grown);
        if (grown == NULL)
            return false;
        p->blocks = grown;
        p->room = room;
    }
    memmove(p->blocks + at + 1, p->blocks + at, (p->n_blocks - at) * sizeof *p->blocks);
    p->blocks[at] = (struct atsi_pin_block){start, bytes};
    p->n_blocks++;
    p->bytes += bytes;
    return true;
}

static void remove_block(struct atsi_weights *w, uint32_t b)
{
    struct atsi_pins *p = &w->pins;
    p->ops->host_unregister(p->be, p->blocks[b].start);
    p->bytes -= p->blocks[b].bytes;
    p->n_blocks--;
    memmove(p->blocks + b, p->blocks + b + 1, (p->n_blocks - b) * sizeof *p->blocks);
}

/* Registers [start, start + bytes), which no block touches, by halves when it is refused.  False:
 * nothing more is to be had of this kind of memory. */
static bool register_pages(struct atsi_weights *w, unsigned char *start, uint64_t bytes, bool file)
{
    struct atsi_pins *p = &w->pins;
    while (bytes > 0) {
        uint64_t n = bytes < BLOCK_MOST ? bytes : BLOCK_MOST;
        struct atsi_err err = ATSI_ERR_INIT;
        int rc = p->ops->host_register(p->be, start, (size_t)n, &err);
        while (rc == ATSI_ENOMEM && n > BLOCK_LEAST) {
            p->refused++;
            n = n / 2 / ATSI_PAGE * ATSI_PAGE;
            rc = p->ops->host_register(p->be, start, (size_t)n, &err);
        }
        if (rc != ATSI_OK) {
            p->refused++;
            if (rc == ATSI_ENOTSUP && file)
                p->files_refused = true;
            else
                p->full = true;
            atsi_log(w->model->rt->log, ATSI_LOG_DEBUG, "memory", "not pinned: %s", err.msg);
            return false;
        }
        if (!insert_block(w, start, n)) {
            p->ops->host_unregister(p->be, start);
            p->full = true;
            return false;
        }
        start += n;
        bytes -= n;
    }
    return true;
}

/* ---------------------------------------------------------------- one tensor */
/* Calls for each gap between blocks in the tensor's pages: those that are not pinned yet. */
static uint64_t next_gap(const struct atsi_weights *w, unsigned char **at, unsigned char *end)
{
    uint32_t b = atsi_pin_block_at(w, *at);
    const struct atsi_pin_block *k = b < w->pins.n_blocks ? &w->pins.blocks[b] : NULL;
    while (k != NULL && k->start <= *at) { /* stand behind it */
        *at = k->start + k->bytes;
        b++;
        k = b < w->pins.n_blocks ? &w->pins.blocks[b] : NULL;
    }
    if (*at >= end)
        return 0;
    return (uint64_t)((k != NULL && k->start < end ? k->start : end) - *at);
}

static uint64_t unpinned(const struct atsi_weights *w, const struct atsi_weight *t)
{
    struct span s = pages_of(t);
    uint64_t sum = 0, n;
    while ((n = next_gap(w, &s.start, s.end)) > 0) {
        sum += n;
        s.start += n;
    }
    return sum;
}

static bool pin_tensor(struct atsi_weights *w, const struct atsi_weight *t)
{
    struct span s = pages_of(t);
    uint64_t n;
    while ((n = next_gap(w, &s.start, s.end)) > 0) {
        if (!register_pages(w, s.start, n, t->home != ATSI_HOME_PACKED))
            return false;
        s.start += n;
    }
    return true;
}

static bool may_pin(const struct atsi_weights *w, const struct atsi_weight *t)
{
    return t->home != ATSI_HOME_NONE && t->bytes > 0 && !t->coming && !t->next.waits &&
           (!w->pins.files_refused || t->home == ATSI_HOME_PACKED);
}

/* Down the ranking, up to the budget. */
static void pin_ranked(struct atsi_weights *w)
{
    struct atsi_pins *p = &w->pins;
    for (uint32_t k = 0; k < p->n_ranked && !p->full; k++) {
        const struct atsi_weight *t = &w->all[p->ranked[k]];
        uint64_t need = may_pin(w, t) ? unpinned(w, t) : 0;
        if (need > 0 && need <= p->budget - p->bytes)
            (void)pin_tensor(w, t);
    }
}

/* ---------------------------------------------------------------- another ranking */
static bool touches(const struct atsi_weight *t, const struct atsi_pin_block *b)
{
    struct span s = pages_of(t);
    return s.start < b->start + b->bytes && s.end > b->start;
}

/* Ranked tensors that the budget reaches. */
static uint32_t reached(const struct atsi_weights *w)
{
    const struct atsi_pins *p = &w->pins;
    uint64_t sum = 0;
    uint32_t k = 0;
    for (; k < p->n_ranked; k++) {
        const struct atsi_weight *t = &w->all[p->ranked[k]];
        if (may_pin(w, t) && t->bytes > p->budget - sum)
            break;
        sum += may_pin(w, t) ? t->bytes : 0;
    }
    return k;
}

/* Unregisters blocks of none of those, then, last ones first, what whole pages cost too much. */
static void drop_unranked(struct atsi_weights *w)
{
    struct atsi_pins *p = &w->pins;
    uint32_t kept = reached(w);
    for (uint32_t b = p->n_blocks; b-- > 0;) {
        bool wanted = false;
        for (uint32_t k = 0; k < kept && !wanted; k++)
            wanted =
                may_pin(w, &w->all[p->ranked[k]]) && touches(&w->all[p->ranked[k]], &p->blocks[b]);
        if (!wanted)
            remove_block(w, b);
    }
    while (p->bytes > p->budget && kept-- > 0)
        for (uint32_t b = p->n_blocks; b-- > 0;)
            if (touches(&w->all[p->ranked[kept]], &p->blocks[b]))
                remove_block(w, b);
}

/* What was replaced while it was pinned can go now. */
static void release_stale(struct atsi_weights *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->all[i].unreleased)
            atsi_weight_release(w, &w->all[i]);
}

static void sum_up(const struct atsi_weights *w, struct atsi_pin_state *out)
{
    const struct atsi_pins *p = &w->pins;
    *out = (struct atsi_pin_state){.budget = p->budget, .pinned = p->bytes, .refused = p->refused};
    for (uint32_t k = 0; k < p->n_ranked; k++) {
        const struct atsi_weight *t = &w->all[p->ranked[k]];
        out->wanted += t->bytes;
        out->n_pinned += t->home != ATSI_HOME_NONE && unpinned(w, t) == 0;
    }
}

/* Once: how far the ladder was climbed, and why no further. */
static void say(struct atsi_weights *w)
{
    struct atsi_pins *p = &w->pins;
    struct atsi_pin_state s;
    uint32_t coming = 0;
    for (uint32_t k = 0; k < p->n_ranked; k++)
        coming += w->all[p->ranked[k]].coming;
    if (p->said || p->n_ranked == 0 || coming > 0)
        return;
    p->said = true;
    sum_up(w, &s);
    atsi_log(w->model->rt->log, ATSI_LOG_INFO, "memory",
             "%u of %u weights that may move are pinned (%.1f of %.1f MiB, limit %.1f MiB)%s; the "
             "rest is copied through buffers of the transfer engine",
             s.n_pinned, p->n_ranked, (double)s.pinned / MIB, (double)s.wanted / MIB,
             (double)s.budget / MIB,
             p->full            ? "; the device registers no more"
             : p->files_refused ? "; the device does not register mapped files"
                                : "");
}

/* ---------------------------------------------------------------- the interface */
static bool keep_ranking(struct atsi_weights *w, const uint32_t *ranked, uint32_t n)
{
    uint32_t *copy = malloc(((size_t)n + 1) * sizeof *copy), k = 0;
    if (copy == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (ranked[i] < w->n)
            copy[k++] = ranked[i];
    free(w->pins.ranked);
    w->pins.ranked = copy;
    w->pins.n_ranked = k;
    return true;
}

void atsi_weights_pin(struct atsi_weights *w, const struct atsi_backend_ops *ops,
                      struct atsi_backend *be, const uint32_t *ranked, uint32_t n, uint64_t budget)
{
    struct atsi_pins *p = &w->pins;
    bool can = ATSI_HAS(ops, struct atsi_backend_ops, host_register) &&
               ATSI_HAS(ops, struct atsi_backend_ops, host_unregister);
    (void)pthread_mutex_lock(&w->lock->mutex);
    if (can && (p->ops == NULL || p->be == be) && keep_ranking(w, ranked, n)) {
        p->ops = ops;
        p->be = be;
        p->budget = budget;
        p->full = p->files_refused = false;
        drop_unranked(w);
        release_stale(w);
        if (p->budget > p->bytes)
            pin_ranked(w);
        say(w);
    }
    (void)pthread_mutex_unlock(&w->lock->mutex);
}

void atsi_pins_close(struct atsi_weights *w)
{
    struct atsi_pins *p = &w->pins;
    while (p->n_blocks > 0)
        remove_block(w, p->n_blocks - 1);
    free(p->blocks);
    free(p->ranked);
    *p = (struct atsi_pins){0};
}

void atsi_weights_unpin(struct atsi_weights *w)
{
    (void)pthread_mutex_lock(&w->lock->mutex);
    atsi_pins_close(w);
    release_stale(w);
    (void)pthread_mutex_unlock(&w->lock->mutex);
}

void atsi_weights_pin_state(const struct atsi_weights *w, struct atsi_pin_state *out)
{
    (void)pthread_mutex_lock(&w->lock->mutex);
    sum_up(w, out);
    (void)pthread_mutex_unlock(&w->lock->mutex);
}
