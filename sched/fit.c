/* SPDX-License-Identifier: Apache-2.0
 * See fit.h. */
#include "sched/fit.h"

#include "sched/arena.h"
#include "sched/dynamic.h"
#include "sched/place.h"

#include <inttypes.h>

enum {
    UNITS = 1 << 17,
    CELLS_PER_BYTE = 4,  /* back pointers are two bits */
    PER_ITEM = 1024,     /* everything else placement keeps per operator */
    PER_CALL = 64 * 1024 /* and per call */
};

size_t sched_fit_room(uint32_t n)
{
    size_t table = (size_t)n * (UNITS / CELLS_PER_BYTE) + 2 * SCHED_ROOM(int64_t, UNITS + 1);
    size_t search = sched_search_scratch(n, 2);
    return (table > search ? table : search) + (size_t)n * PER_ITEM + PER_CALL;
}

int64_t sched_fit_unit(int64_t unit, size_t room, size_t (*needs)(const void *ctx, int64_t unit),
                       const void *ctx)
{
    for (; unit <= SCHED_MAX_BYTES; unit *= 2)
        if (needs(ctx, unit) <= room)
            return unit;
    return 0;
}

static size_t alg1_needs(const void *ctx, int64_t unit)
{
    return sched_alg1_scratch(ctx, unit);
}

void sched_fit_pin_attention(struct sched_view *v, int64_t unit)
{
    int64_t need = 0;
    for (uint32_t i = 0; i < v->chain.n; i++) {
        const struct sched_op *op = &v->op[i];
        int stays = op->pinned == SCHED_GPU || (v->attn[i] && op->pinned < 0);
        need += stays ? op->s / unit + (op->s % unit != 0) : 0;
    }
    if (need > v->chain.budget / unit)
        return;
    for (uint32_t i = 0; i < v->chain.n; i++)
        if (v->attn[i] && v->op[i].pinned < 0)
            v->op[i].pinned = SCHED_GPU;
}

int sched_fit(struct sched_view *v, int64_t unit, void *scratch, size_t room, uint8_t *b_out,
              struct atsi_err *err)
{
    struct sched_alg1 how = {.unit = sched_fit_unit(unit, room, alg1_needs, &v->chain)};
    struct atsi_err rounding = ATSI_ERR_INIT;
    int64_t value;
    int rc;
    if (how.unit == 0)
        return atsi_fail(err, ATSI_EINVAL, "%zu bytes of scratch are too few for %u items", room,
                         v->chain.n);
    sched_fit_pin_attention(v, how.unit);
    rc = sched_alg1(&v->chain, &how, scratch, b_out, &value, &rounding);
    if (rc == ATSI_ENOFIT)
        return sched_place_grain(&v->chain, SCHED_BY_DENSITY, 0, scratch, b_out, err);
    return rc == ATSI_OK ? rc : atsi_fail(err, rc, "%s", rounding.msg);
}
