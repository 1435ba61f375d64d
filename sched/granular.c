/* SPDX-License-Identifier: Apache-2.0
 *
 * Placements in coarse grains: whole layers, all but the experts, and single operators by gain per
 * byte.  What others do, and what Algorithm 1 is compared with.
 */
#include "sched/arena.h"
#include "sched/place.h"
#include "sched/sort.h"

#include <inttypes.h>

struct grains {
    const struct sched_chain *ch;
    const int8_t *pin; /* [n] */
    uint8_t *b;
    int64_t left;
};

/* Which operators a group is made of. */
enum part { ALL, EXPERTS };

static int in_group(const struct grains *g, uint32_t i, int32_t layer, enum part part)
{
    const struct sched_op *op = &g->ch->op[i];
    return op->layer == layer && g->pin[i] < 0 && (part == ALL || op->is_exp);
}

/* Puts a group on the GPU as a whole; 0: it does not fit. */
static int take_group(struct grains *g, int32_t layer, enum part part)
{
    int64_t need = 0;
    for (uint32_t i = 0; i < g->ch->n; i++)
        need += in_group(g, i, layer, part) ? g->ch->op[i].s : 0;
    if (need > g->left)
        return 0;
    g->left -= need;
    for (uint32_t i = 0; i < g->ch->n; i++)
        if (in_group(g, i, layer, part))
            g->b[i] = SCHED_GPU;
    return 1;
}

/* The largest layer below `bound` that occurs, -1 when there is none. */
static int32_t layer_below(const struct sched_chain *ch, int64_t bound)
{
    int32_t best = -1;
    for (uint32_t i = 0; i < ch->n; i++)
        if (ch->op[i].layer > best && ch->op[i].layer < bound)
            best = ch->op[i].layer;
    return best;
}

static void take_layers(struct grains *g, enum part part)
{
    int32_t layer = layer_below(g->ch, INT64_MAX);
    while (take_group(g, layer, part) && layer >= 0)
        layer = layer_below(g->ch, layer);
}

static void by_expert(struct grains *g)
{
    const struct sched_chain *ch = g->ch;
    int64_t others = 0;
    int has_exp = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        has_exp |= ch->op[i].is_exp;
        others += !ch->op[i].is_exp && g->pin[i] < 0 ? ch->op[i].s : 0;
    }
    if (!has_exp || others > g->left) {
        take_layers(g, ALL);
        return;
    }
    g->left -= others;
    for (uint32_t i = 0; i < ch->n; i++)
        if (!ch->op[i].is_exp && g->pin[i] < 0)
            g->b[i] = SCHED_GPU;
    take_layers(g, EXPERTS);
}

static void by_density(struct grains *g, double *key, uint32_t *id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->ch->n; i++) {
        const struct sched_op *op = &g->ch->op[i];
        key[i] = (double)(op->tc - op->tg) / (double)(op->s > 0 ? op->s : 1);
        if (g->pin[i] < 0 && key[i] > 0)
            id[n++] = i;
    }
    sched_sort_falling(id, key, n);
    for (uint32_t k = 0; k < n; k++)
        if (g->ch->op[id[k]].s <= g->left) {
            g->left -= g->ch->op[id[k]].s;
            g->b[id[k]] = SCHED_GPU;
        }
}

size_t sched_grain_scratch(uint32_t n)
{
    return SCHED_ROOM(int8_t, n) + SCHED_ROOM(double, n) + SCHED_ROOM(uint32_t, n);
}

int sched_place_grain(const struct sched_chain *ch, enum sched_grain grain, int ignore_pins,
                      void *scratch, uint8_t *b_out, struct atsi_err *err)
{
    unsigned char *at = scratch;
    int8_t *pin = SCHED_TAKE(&at, int8_t, ch->n);
    struct grains g = {.ch = ch, .pin = pin, .b = b_out, .left = ch->budget};
    double *key = SCHED_TAKE(&at, double, ch->n);
    uint32_t *id = SCHED_TAKE(&at, uint32_t, ch->n);
    for (uint32_t i = 0; i < ch->n; i++) {
        pin[i] = ignore_pins ? -1 : ch->op[i].pinned;
        b_out[i] = pin[i] == SCHED_GPU;
        g.left -= b_out[i] ? ch->op[i].s : 0;
    }
    if (g.left < 0)
        return atsi_fail(err, ATSI_ENOFIT,
                         "the operators pinned to the GPU take %" PRId64
                         " bytes, the budget is %" PRId64,
                         ch->budget - g.left, ch->budget);
    if (grain == SCHED_BY_LAYER)
        take_layers(&g, ALL);
    else if (grain == SCHED_BY_EXPERT)
        by_expert(&g);
    else
        by_density(&g, key, id);
    return ATSI_OK;
}
