/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of costs in memory: entries, and times between the points that were measured.
 */
#include "core/round/costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NS 1e18 /* what extrapolation ends at; schedulers refuse far less */

struct atsi_costs *atsi_costs_new(void)
{
    return calloc(1, sizeof(struct atsi_costs));
}

void atsi_costs_free(struct atsi_costs *c)
{
    if (c == NULL)
        return;
    free(c->ops);
    free(c);
}

const char *atsi_costs_key(const struct atsi_costs *c, const char *name)
{
    for (uint32_t i = 0; i < c->n_keys; i++)
        if (strcmp(c->key[i].name, name) == 0)
            return c->key[i].value;
    return "";
}

static uint32_t type_named(const char *name, size_t len)
{
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++) {
        const struct atsi_type_info *ti = atsi_type_info(t);
        if (ti != NULL && strlen(ti->name) == len && memcmp(ti->name, name, len) == 0)
            return t;
    }
    return ATSI_TYPE_F16;
}

void atsi_costs_kv(const struct atsi_costs *c, uint32_t *type_k, uint32_t *type_v)
{
    const char *text = atsi_costs_key(c, "kv");
    size_t n = strcspn(text, " ");
    *type_k = type_named(text, n);
    text += n + strspn(text + n, " ");
    *type_v = type_named(text, strcspn(text, " "));
}

bool atsi_costs_has_accel(const struct atsi_costs *c)
{
    for (uint32_t i = 0; i < c->n_ops; i++)
        if (c->ops[i].device == ATSI_DEVICE_ACCEL)
            return true;
    return false;
}

static bool same_shape(const struct atsi_cost_shape *a, const struct atsi_cost_shape *b)
{
    return a->kind == b->kind && a->type == b->type && a->layout == b->layout &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

struct atsi_cost_op *atsi_costs_find(const struct atsi_costs *c, uint32_t device,
                                     const struct atsi_cost_shape *shape)
{
    for (uint32_t i = 0; i < c->n_ops; i++)
        if (c->ops[i].device == device && same_shape(&c->ops[i].shape, shape))
            return &c->ops[i];
    return NULL;
}

struct atsi_cost_op *atsi_costs_add(struct atsi_costs *c, uint32_t device,
                                    const struct atsi_cost_shape *shape)
{
    struct atsi_cost_op *op = atsi_costs_find(c, device, shape);
    if (op != NULL)
        return op;
    if (c->n_ops == c->room_ops) {
        uint32_t room = c->room_ops * 2 + 16;
        struct atsi_cost_op *grown = realloc(c->ops, room * sizeof *grown);
        if (grown == NULL)
            return NULL;
        c->ops = grown;
        c->room_ops = room;
    }
    op = &c->ops[c->n_ops++];
    *op = (struct atsi_cost_op){.device = device, .shape = *shape};
    return op;
}

/* ---------------------------------------------------------------- between the points */
static double time_of(const struct atsi_cost_time *t, bool warm)
{
    uint64_t ns = warm ? t->warm_ns : t->cold_ns;
    if (ns == 0)
        ns = warm ? t->cold_ns : t->warm_ns;
    return (double)ns;
}

/* Points [first, end) share a context and ascend in tokens: a power law between two of them. */
static double by_tokens(const struct atsi_cost_op *op, uint32_t first, uint32_t end, double tokens,
                        bool warm)
{
    double at = 0, ns = 0;
    for (uint32_t i = first; i < end; i++) {
        double next_at = op->time[i].tokens, next = fmax(ns, time_of(&op->time[i], warm));
        if (tokens <= next_at) {
            if (at <= 0 || ns <= 0)
                return next;
            return ns * pow(next / ns, log(tokens / at) / log(next_at / at));
        }
        at = next_at;
        ns = next;
    }
    return ns * tokens / at;
}

/* Positions that matter: a window hides the others. */
static double visible(const struct atsi_cost_op *op, uint32_t ctx)
{
    uint64_t window = op->shape.kind == ATSI_OP_ATTN ? op->shape.dims[4] : 0;
    return window != 0 && ctx > window ? (double)window : (double)ctx;
}

uint64_t atsi_cost_op_ns(const struct atsi_cost_op *op, uint32_t tokens, uint32_t ctx, bool warm)
{
    double want = visible(op, ctx), t = tokens > 0 ? tokens : 1;
    double at = 0, ns = 0, slope = 0;
    uint32_t groups = 0;
    for (uint32_t i = 0; i < op->n; groups++) {
        uint32_t end = i;
        double next_at = op->time[i].ctx, next;
        while (end < op->n && op->time[end].ctx == op->time[i].ctx)
            end++;
        next = fmax(ns, by_tokens(op, i, end, t, warm));
        slope = groups > 0 ? (next - ns) / (next_at - at) : 0;
        if (groups > 0 && want <= next_at)
            return (uint64_t)llround(fmin(ns + slope * (want - at), MOST_NS));
        at = next_at;
        ns = next;
        i = end;
    }
    if (want > at)
        ns += slope * (want - at);
    return (uint64_t)llround(fmin(ns, MOST_NS));
}

uint64_t atsi_costs_copy_ns(const struct atsi_costs *c, enum atsi_cost_channel channel,
                            uint64_t bytes)
{
    const struct atsi_cost_copy *p = c->copies[channel];
    double at = 0, ns = 0, rate = 0, want = (double)bytes;
    for (uint32_t i = 0; i < c->n_copies[channel]; i++) {
        double next_at = (double)p[i].bytes, next = fmax(ns, (double)p[i].ns);
        rate = i > 0 ? (next - ns) / (next_at - at) : next / next_at;
        if (want <= next_at)
            return (uint64_t)llround(i > 0 ? ns + rate * (want - at) : next);
        at = next_at;
        ns = next;
    }
    return (uint64_t)llround(fmin(ns + rate * (want - at), MOST_NS));
}
