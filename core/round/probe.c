/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes.  The accelerator and the copy engine work on while the next round begins; what is small
 * enough for the host is done at once.
 */
#include "core/round/probe.h"

#include "core/round/measure_in.h"

#include <stdlib.h>
#include <string.h>

#define SPAN_NS 100000U /* of the products of one probe, about */
#define MOST 8u
#define VALUES ((size_t)64 << 10)
#define WEIGHTS ((size_t)1 << 20)

struct atsi_prober {
    struct atsi_measure_request r;
    const struct atsi_costs *c;
    struct measure m;
    struct atsi_costs *unused;             /* what opening notes of the devices */
    struct measure_op *op[ATSI_N_DEVICES]; /* NULL: no product that fits */
    uint64_t op_ns[ATSI_N_DEVICES];        /* of one */
    struct atsi_range range;
    struct atsi_err err; /* of what is under way */
    uint32_t cls;
    bool under_way, over;
    uint64_t start_ns, seen_ns, profile_ns;
    struct atsi_probe hook;
};

/* ---------------------------------------------------------------- what is run */
/* The largest product that the device's memory here holds whole; else the smallest, in part. */
static int choose(struct atsi_prober *p, uint32_t v)
{
    struct measure *m = &p->m;
    const struct atsi_cost_op *best = NULL;
    uint32_t node = 0;
    size_t best_span = 0, room = m->dev[v].pool_bytes - MEASURE_PAD;
    int rc;
    for (uint32_t i = 0; i < m->g->n_nodes; i++) {
        struct atsi_cost_shape s;
        const struct atsi_cost_op *op;
        size_t span;
        bool fits, better;
        if (m->g->nodes[i]->kind != ATSI_OP_MATMUL)
            continue;
        atsi_cost_shape_of(m->g, m->tensors, i, ATSI_LAYOUT_ROWS, p->r.type_k, p->r.type_v, &s);
        op = atsi_costs_find(p->c, v, &s);
        if (op == NULL)
            continue;
        span = measure_op_span(m, &s, i, 1, 0);
        fits = span <= room;
        better = best == NULL || (fits ? best_span > room || span > best_span : span < best_span);
        if (better) {
            best = op;
            best_span = span;
            node = i;
        }
    }
    if (best == NULL)
        return ATSI_OK;
    p->op[v] = malloc(sizeof *p->op[v]);
    if (p->op[v] == NULL)
        return atsi_fail(m->err, ATSI_ENOMEM, "out of memory for probes");
    rc = measure_op_make(m, &m->dev[v], node, &best->shape, 1, 0, 0, p->op[v]);
    if (rc == ATSI_OK)
        p->op_ns[v] = (uint64_t)((double)atsi_cost_op_ns(best, 1, 0, true) / p->op[v]->scale + 0.5);
    if (rc == ATSI_OK && p->op_ns[v] > 0)
        return ATSI_OK;
    free(p->op[v]);
    p->op[v] = NULL;
    return rc > 0 ? ATSI_OK : rc;
}

static uint32_t repetitions(const struct atsi_prober *p, uint32_t v)
{
    uint64_t n = SPAN_NS / p->op_ns[v];
    return n < 1 ? 1 : n > MOST ? MOST : (uint32_t)n;
}

/* On the host: once to have the weight in the cache, then what counts. */
static int run_host(struct atsi_prober *p)
{
    struct measure_device *d = &p->m.dev[ATSI_DEVICE_HOST];
    struct measure_op *o = p->op[ATSI_DEVICE_HOST];
    uint64_t overhead = p->c->launch_ns[ATSI_DEVICE_HOST], ns = 0;
    int rc;
    measure_op_place(d, o, 1, true);
    rc = measure_run(&p->m, d, o, &ns);
    if (rc != ATSI_OK)
        return rc;
    measure_op_place(d, o, repetitions(p, ATSI_DEVICE_HOST), true);
    rc = measure_run(&p->m, d, o, &ns);
    p->profile_ns = o->n * p->op_ns[ATSI_DEVICE_HOST];
    p->seen_ns = ns > overhead ? ns - overhead : 1;
    p->over = true;
    return rc;
}

static int queue_products(struct atsi_prober *p)
{
    struct measure_device *d = &p->m.dev[ATSI_DEVICE_ACCEL];
    struct measure_op *o = p->op[ATSI_DEVICE_ACCEL];
    struct atsi_split split = {.struct_size = sizeof split, .signal = d->event};
    measure_op_place(d, o, repetitions(p, ATSI_DEVICE_ACCEL), true);
    split.n_ops = o->n;
    split.ops = o->ptr;
    p->profile_ns = o->n * p->op_ns[ATSI_DEVICE_ACCEL] + p->c->launch_ns[ATSI_DEVICE_ACCEL];
    p->start_ns = measure_now(&p->m);
    return d->ops->run(d->queue, &split, &p->err);
}

static int queue_copy(struct atsi_prober *p, bool values)
{
    const struct atsi_exec_devices *x = p->r.d;
    struct measure_device *d = &p->m.dev[ATSI_DEVICE_ACCEL];
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = &p->range, .signal = d->event};
    size_t n = values ? VALUES : WEIGHTS;
    if (n > p->m.staging_bytes)
        n = p->m.staging_bytes;
    p->range = (struct atsi_range){.src = p->m.staging, .dst = d->pool, .bytes = n};
    p->profile_ns = atsi_costs_copy_ns(p->c, values ? ATSI_COPY_TO_ACCEL : ATSI_COPY_PINNED, n);
    p->start_ns = measure_now(&p->m);
    return x->tx_ops->copyv(x->tx, values ? x->copy_kernel : x->copy_engine,
                            values ? x->queue[ATSI_DEVICE_ACCEL] : NULL, &req, &p->err);
}

/* ---------------------------------------------------------------- the hook */
static bool measures(const struct atsi_prober *p, uint32_t cls)
{
    switch (cls) {
    case ATSI_CLASS_CPU:
        return p->op[ATSI_DEVICE_HOST] != NULL;
    case ATSI_CLASS_GPU:
        return p->m.n_devices > 1 && p->op[ATSI_DEVICE_ACCEL] != NULL;
    case ATSI_CLASS_ACT:
        return p->m.n_devices > 1 && p->c->n_copies[ATSI_COPY_TO_ACCEL] > 0;
    default:
        return p->m.n_devices > 1 && p->c->n_copies[ATSI_COPY_PINNED] > 0;
    }
}

static int start(void *ctx, uint32_t cls, struct atsi_err *err)
{
    struct atsi_prober *p = ctx;
    int rc;
    if (!measures(p, cls))
        return 1;
    p->cls = cls;
    p->over = false;
    p->err = (struct atsi_err)ATSI_ERR_INIT;
    if (cls == ATSI_CLASS_CPU)
        rc = run_host(p);
    else
        rc = cls == ATSI_CLASS_GPU ? queue_products(p) : queue_copy(p, cls == ATSI_CLASS_ACT);
    p->under_way = rc == ATSI_OK && !p->over;
    return rc == ATSI_OK ? rc : atsi_fail(err, rc, "%s", p->err.msg);
}

static int take(void *ctx, uint64_t *seen_ns, uint64_t *profile_ns, struct atsi_err *err)
{
    struct atsi_prober *p = ctx;
    const struct measure_device *d = &p->m.dev[ATSI_DEVICE_ACCEL];
    uint64_t end = 0;
    int rc;
    if (!p->over) {
        rc = d->ops->event_query(d->event);
        if (rc == 0)
            return 0;
        p->under_way = false;
        if (rc > 0)
            rc = d->ops->event_time(d->event, &end);
        if (rc != ATSI_OK)
            return atsi_fail(err, rc, "%s: a probe failed", d->name);
        p->seen_ns = end > p->start_ns ? end - p->start_ns : 1;
    }
    *seen_ns = p->seen_ns;
    *profile_ns = p->profile_ns;
    return 1;
}

/* ---------------------------------------------------------------- life */
int atsi_prober_open(const struct atsi_measure_request *r, const struct atsi_costs *c,
                     struct atsi_prober **out, struct atsi_err *err)
{
    struct atsi_prober *p = calloc(1, sizeof *p);
    int rc;
    *out = NULL;
    if (p == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for probes");
    p->r = *r;
    p->r.chunk = p->r.ctx_max = 1;
    p->r.room_bytes = ATSI_PROBE_BYTES;
    p->c = c;
    p->unused = atsi_costs_new();
    p->hook = (struct atsi_probe){.ctx = p, .start = start, .take = take};
    p->err = (struct atsi_err)ATSI_ERR_INIT;
    p->m = (struct measure){.r = &p->r, .c = p->unused, .err = err, .only_room = true};
    rc = p->unused != NULL ? atsi_model_graph(r->model, &p->m.g, err)
                           : atsi_fail(err, ATSI_ENOMEM, "out of memory for probes");
    if (rc == ATSI_OK) {
        p->m.tensors = atsi_model_info(r->model)->tensors;
        p->m.n_devices = r->d->be[ATSI_DEVICE_ACCEL] != NULL ? 2 : 1;
        rc = measure_open(&p->m);
    }
    for (uint32_t v = 0; v < p->m.n_devices && rc == ATSI_OK; v++)
        rc = choose(p, v);
    if (rc != ATSI_OK) {
        atsi_prober_close(p);
        return rc;
    }
    p->m.err = &p->err;
    *out = p;
    return ATSI_OK;
}

void atsi_prober_close(struct atsi_prober *p)
{
    struct measure_device *d;
    if (p == NULL)
        return;
    d = &p->m.dev[ATSI_DEVICE_ACCEL];
    if (p->under_way)
        measure_settle(d, d->event);
    measure_close(&p->m);
    for (uint32_t v = 0; v < ATSI_N_DEVICES; v++)
        free(p->op[v]);
    atsi_costs_free(p->unused);
    free(p);
}

const struct atsi_probe *atsi_prober_hook(const struct atsi_prober *p)
{
    return &p->hook;
}
