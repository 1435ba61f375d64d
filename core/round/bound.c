/* SPDX-License-Identifier: Apache-2.0
 * The lower bound of a placement, through the chain that schedulers see. */
#include "core/round/problem.h"

#include "sched/place.h"
#include "sched/problem.h"

#include <stdlib.h>

int atsi_question_bound(struct atsi_question *q, uint32_t phase, const int32_t *placed,
                        int64_t *ns_out, struct atsi_err *err)
{
    uint32_t n = q->items->n;
    size_t view = (sched_view_scratch(n) + 63) / 64 * 64,
           rest = (sched_bound_scratch(n) + 63) / 64 * 64;
    unsigned char *memory = aligned_alloc(64, view + rest + 64);
    uint8_t *sides = calloc((size_t)n + 1, 1);
    struct sched_view v;
    int rc = ATSI_OK;
    *ns_out = 0;
    if (memory == NULL || sides == NULL)
        rc = atsi_fail(err, ATSI_ENOMEM, "out of memory for the bound of %u items", n);
    if (rc == ATSI_OK)
        rc = sched_view_read(&q->p, phase, memory, &v, err);
    if (rc == ATSI_OK)
        rc = sched_read_sides(&q->p, placed, sides, err);
    if (rc == ATSI_OK) {
        v.chain.b = sides;
        *ns_out = sched_bound(&v.chain, memory + view);
    }
    free(sides);
    free(memory);
    return rc;
}
