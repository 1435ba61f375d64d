/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between operations: launching a split and learning that it is over, cuts in the
 * accelerator's queue, copies by size, and what host memory gives to the CPU's kernels and to
 * weight transfers alone and at once.
 */
#include "core/round/measure_in.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 9u
#define CUTS 8u
#define WATCH_NS UINT64_C(100000000) /* of one of the bandwidths, at most */
#define WINDOWS 5u
#define IN_FLIGHT 8u                  /* copies queued, so that the engine never idles */
#define COPY_BYTES ((size_t)16 << 20) /* of one of them, at most */
#define READ_BYTES ((size_t)32 << 20) /* of one product, at most: meanwhile no copy is queued */

/* ---------------------------------------------------------------- launches */
/* The cheapest operation of the graph that the device computes; 1: none. */
static int small_op(struct measure *m, struct measure_device *d, struct measure_op *o)
{
    static const uint32_t kinds[] = {ATSI_OP_ADD, ATSI_OP_RMS_NORM, ATSI_OP_SWIGLU, ATSI_OP_MATMUL};
    int rc = 1;
    for (uint32_t k = 0; k < 4 && rc > 0; k++)
        for (uint32_t i = 0; i < m->g->n_nodes && rc > 0; i++) {
            struct atsi_cost_shape s;
            if (m->g->nodes[i]->kind != kinds[k])
                continue;
            atsi_cost_shape_of(m->g, m->tensors, i, ATSI_LAYOUT_ROWS, m->r->type_k, m->r->type_v,
                               &s);
            rc = measure_op_make(m, d, i, &s, 1, 0, kinds[k] == ATSI_OP_MATMUL ? 16 : 0, o);
        }
    return rc;
}

/* A split of n operations: the call, and all of it until the host knows. */
static int time_split(struct measure *m, struct measure_device *d, struct measure_op *o, uint32_t n,
                      uint64_t *call, uint64_t *all)
{
    uint64_t calls[SAMPLES], alls[SAMPLES], low, high;
    int rc = ATSI_OK;
    measure_op_place(d, o, n, true);
    for (uint32_t k = 0; k < SAMPLES && rc == ATSI_OK; k++) {
        struct atsi_split split = {
            .struct_size = sizeof split, .n_ops = n, .ops = o->ptr, .signal = d->event};
        uint64_t start = measure_now(m);
        rc = d->ops->run(d->queue, &split, m->err);
        calls[k] = measure_now(m) - start;
        d->pending = rc == ATSI_OK;
        if (rc == ATSI_OK)
            rc = measure_wait(m, d);
        alls[k] = measure_now(m) - start;
    }
    if (rc != ATSI_OK)
        return rc;
    measure_middle(calls, SAMPLES, call, &low, &high);
    measure_middle(alls, SAMPLES, all, &low, &high);
    return ATSI_OK;
}

/* The same operations in CUTS splits, each waiting for the one before. */
static int time_cuts(struct measure *m, struct measure_device *d, struct measure_op *o,
                     uint64_t *out)
{
    struct atsi_event *ev[CUTS] = {NULL};
    uint64_t t[SAMPLES], low, high;
    uint32_t queued = 0;
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < CUTS && rc == ATSI_OK; i++)
        rc = d->ops->event_open(d->be, &ev[i], m->err);
    measure_op_place(d, o, CUTS, true);
    for (uint32_t k = 0; k < SAMPLES && rc == ATSI_OK; k++) {
        uint64_t start = measure_now(m);
        for (uint32_t i = 0; i < CUTS && rc == ATSI_OK; i++) {
            struct atsi_split split = {.struct_size = sizeof split,
                                       .n_ops = 1,
                                       .ops = o->ptr + i,
                                       .n_wait = i > 0 ? 1 : 0,
                                       .wait = i > 0 ? &ev[i - 1] : NULL,
                                       .signal = ev[i]};
            rc = d->ops->run(d->queue, &split, m->err);
            queued = rc == ATSI_OK ? i + 1 : queued;
        }
        if (rc == ATSI_OK)
            rc = d->ops->event_wait(ev[CUTS - 1], UINT64_C(1000000), m->err);
        t[k] = measure_now(m) - start;
    }
    if (rc != ATSI_OK && queued > 0)
        measure_settle(d, ev[queued - 1]);
    for (uint32_t i = 0; i < CUTS; i++)
        if (ev[i] != NULL)
            d->ops->event_close(ev[i]);
    if (rc == ATSI_OK)
        measure_middle(t, SAMPLES, out, &low, &high);
    return rc;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static int device_overheads(struct measure *m, struct measure_device *d, struct measure_op *o)
{
    uint64_t call = 0, one = 0, many = 0, unused, each, cuts = 0, together = 0;
    int rc = small_op(m, d, o);
    if (rc > 0)
        return ATSI_OK; /* a device that computes nothing of this model */
    if (rc == ATSI_OK)
        rc = time_split(m, d, o, 1, &call, &one);
    if (rc == ATSI_OK)
        rc = time_split(m, d, o, MEASURE_REPS, &unused, &many);
    if (rc == ATSI_OK && d->device == ATSI_DEVICE_ACCEL)
        rc = time_split(m, d, o, CUTS, &unused, &together);
    if (rc == ATSI_OK && d->device == ATSI_DEVICE_ACCEL)
        rc = time_cuts(m, d, o, &cuts);
    if (rc != ATSI_OK)
        return rc;
    each = less(many, one) / (MEASURE_REPS - 1);
    d->overhead_ns = less(one, each);
    m->c->launch_ns[d->device] = call < d->overhead_ns ? call : d->overhead_ns;
    m->c->sync_ns[d->device] = d->overhead_ns - m->c->launch_ns[d->device];
    if (d->device == ATSI_DEVICE_ACCEL)
        m->c->split_ns = less(cuts, together) / (CUTS - 1);
    return ATSI_OK;
}

int measure_overheads(struct measure *m)
{
    struct measure_op *o = malloc(sizeof *o);
    int rc = o != NULL ? measure_tell(m, "launches")
                       : atsi_fail(m->err, ATSI_ENOMEM, "out of memory measuring");
    if (rc == ATSI_OK)
        rc = atsi_pool_set_active(m->r->rt->pool, m->threads[ATSI_COST_DECODE], m->err);
    for (uint32_t v = 0; v < m->n_devices && rc == ATSI_OK; v++)
        rc = device_overheads(m, &m->dev[v], o);
    measure_settle_all(m);
    free(o);
    return rc;
}

/* ---------------------------------------------------------------- copies */
/* One transfer, queued; its event is d->event unless another is given. */
static int queue_copy(struct measure *m, bool kernel, const void *src, void *dst, size_t bytes,
                      struct atsi_event *signal, struct atsi_range *range)
{
    const struct atsi_exec_devices *x = m->r->d;
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = range, .signal = signal};
    *range = (struct atsi_range){.src = src, .dst = dst, .bytes = bytes};
    return x->tx_ops->copyv(x->tx, kernel ? x->copy_kernel : x->copy_engine,
                            kernel ? x->queue[ATSI_DEVICE_ACCEL] : NULL, &req, m->err);
}

/* less_ns: of each time, not part of what the channel costs. */
static int time_copy(struct measure *m, enum atsi_cost_channel channel, bool kernel,
                     const void *src, void *dst, size_t bytes, uint64_t less_ns)
{
    struct measure_device *d = &m->dev[ATSI_DEVICE_ACCEL];
    struct atsi_cost_copy *p = &m->c->copies[channel][m->c->n_copies[channel]];
    uint64_t t[SAMPLES], spent = 0;
    uint32_t n = 0;
    int rc = ATSI_OK;
    for (int k = -1; k < (int)SAMPLES && rc == ATSI_OK && (n < 3 || spent < 2 * m->share_ns); k++) {
        uint64_t start = measure_now(m), ns;
        rc = queue_copy(m, kernel, src, dst, bytes, d->event, &m->range);
        d->pending = rc == ATSI_OK;
        if (rc == ATSI_OK)
            rc = measure_wait(m, d);
        ns = measure_now(m) - start;
        spent += ns;
        if (k < 0)
            continue; /* the first one warms up */
        t[n++] = less(ns, less_ns) > 0 ? less(ns, less_ns) : 1;
    }
    if (rc != ATSI_OK)
        return rc;
    p->bytes = bytes;
    p->n = n;
    measure_middle(t, n, &p->ns, &p->low_ns, &p->high_ns);
    m->c->n_copies[channel]++;
    return ATSI_OK;
}

static int weight_copies(struct measure *m, unsigned char *pageable, size_t most)
{
    static const size_t sizes[] = {64U << 10, 512U << 10, 4U << 20, 32U << 20};
    struct measure_device *d = &m->dev[ATSI_DEVICE_ACCEL];
    uint64_t sync = m->c->sync_ns[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    for (int k = 0; k < 4 && rc == ATSI_OK && (sizes[k] <= most || k == 0); k++) {
        size_t n = sizes[k] < most ? sizes[k] : most;
        rc = time_copy(m, ATSI_COPY_PINNED, false, m->staging, d->pool, n, sync);
        if (rc == ATSI_OK)
            rc = time_copy(m, ATSI_COPY_PAGEABLE, false, pageable, d->pool, n, sync);
    }
    return rc;
}

/* The way to the accelerator ends when its queue goes on, the way back when the host knows. */
static int value_copies(struct measure *m, size_t most)
{
    static const size_t sizes[] = {4U << 10, 64U << 10, 1U << 20, 8U << 20};
    struct measure_device *d = &m->dev[ATSI_DEVICE_ACCEL];
    uint64_t sync = m->c->sync_ns[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    for (int k = 0; k < 4 && rc == ATSI_OK && sizes[k] <= most; k++) {
        rc = time_copy(m, ATSI_COPY_TO_ACCEL, true, m->staging, d->pool, sizes[k], sync);
        if (rc == ATSI_OK)
            rc = time_copy(m, ATSI_COPY_TO_HOST, true, d->pool, m->staging, sizes[k], 0);
    }
    return rc;
}

int measure_copies(struct measure *m)
{
    struct measure_device *host = &m->dev[ATSI_DEVICE_HOST];
    size_t most;
    int rc = measure_tell(m, "copies");
    if (rc != ATSI_OK || m->n_devices < 2)
        return rc;
    most = m->staging_bytes < host->pool_bytes ? m->staging_bytes : host->pool_bytes;
    most = most < m->dev[1].pool_bytes ? most : m->dev[1].pool_bytes;
    rc = weight_copies(m, host->pool, most);
    return rc == ATSI_OK ? value_copies(m, most) : rc;
}

/* ---------------------------------------------------------------- memory */
/* Copies that go on: as soon as one is over, the next is queued. */
struct stream {
    struct measure *m;
    struct atsi_event *ev[IN_FLIGHT];
    struct atsi_range range[IN_FLIGHT];
    bool queued[IN_FLIGHT];
    size_t bytes; /* of one copy */
    uint32_t next;
    uint64_t copied; /* bytes of copies that are over */
};

static int stream_queue(struct stream *s, uint32_t k)
{
    struct measure *m = s->m;
    size_t from = s->next++ * s->bytes % (m->staging_bytes - s->bytes + 1) / 64 * 64;
    int rc =
        queue_copy(m, false, m->staging + from, m->dev[1].pool, s->bytes, s->ev[k], &s->range[k]);
    s->queued[k] = rc == ATSI_OK;
    return rc;
}

static int stream_keep(struct stream *s)
{
    const struct measure_device *d = &s->m->dev[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < IN_FLIGHT && rc == ATSI_OK; k++) {
        int over = d->ops->event_query(s->ev[k]);
        if (over < 0)
            return atsi_fail(s->m->err, over, "%s: a copy failed while bandwidth was measured",
                             d->name);
        if (over == 1) {
            s->copied += s->bytes;
            rc = stream_queue(s, k);
        }
    }
    return rc;
}

static int stream_open(struct measure *m, struct stream *s)
{
    const struct measure_device *d = &m->dev[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    *s = (struct stream){.m = m, .bytes = m->staging_bytes};
    if (s->bytes > COPY_BYTES)
        s->bytes = COPY_BYTES;
    if (s->bytes > d->pool_bytes)
        s->bytes = d->pool_bytes;
    for (uint32_t k = 0; k < IN_FLIGHT && rc == ATSI_OK; k++) {
        rc = d->ops->event_open(d->be, &s->ev[k], m->err);
        if (rc == ATSI_OK)
            rc = stream_queue(s, k);
    }
    return rc;
}

/* Waits for what is queued. */
static void stream_close(struct stream *s)
{
    const struct measure_device *d = &s->m->dev[ATSI_DEVICE_ACCEL];
    for (uint32_t k = 0; k < IN_FLIGHT; k++)
        if (s->ev[k] != NULL) {
            if (s->queued[k])
                measure_settle(d, s->ev[k]);
            d->ops->event_close(s->ev[k]);
        }
}

/* Products that walk over the pool (o NULL: none) and copies (s NULL: none) for a span of time, in
 * GB/s.  With copies, until at least one is over. */
static int window(struct measure *m, struct measure_op *o, struct stream *s, uint64_t span,
                  double *cpu, double *copy)
{
    struct measure_device *d = &m->dev[ATSI_DEVICE_HOST];
    uint64_t start = measure_now(m), copied = s != NULL ? s->copied : 0, ns = 0, unused;
    double read = 0;
    int rc = ATSI_OK;
    do {
        if (o != NULL) {
            measure_op_place(d, o, 1, false);
            rc = measure_run(m, d, o, &unused);
            read += (double)o->span;
        }
        if (rc == ATSI_OK && s != NULL)
            rc = stream_keep(s);
        ns = measure_now(m) - start;
        if (m->r->cancel != NULL && *m->r->cancel != 0)
            return atsi_fail(m->err, ATSI_EINTR, "interrupted while measuring bandwidths");
    } while (rc == ATSI_OK &&
             (ns < span || (s != NULL && s->copied == copied && ns < 10 * WATCH_NS)));
    ns = ns > 0 ? ns : 1;
    *cpu = read / (double)ns;
    *copy = s != NULL ? (double)(s->copied - copied) / (double)ns : 0;
    return rc;
}

static double middle(double v[WINDOWS])
{
    for (uint32_t i = 1; i < WINDOWS; i++)
        for (uint32_t j = i; j > 0 && v[j - 1] > v[j]; j--) {
            double t = v[j];
            v[j] = v[j - 1];
            v[j - 1] = t;
        }
    return v[WINDOWS / 2];
}

/* The medians of some windows: what else the machine does falls into few of them. */
static int watch(struct measure *m, struct measure_op *o, struct stream *s, double *cpu,
                 double *copy)
{
    uint64_t span = m->budget_ns / 30 < WATCH_NS ? m->budget_ns / 30 : WATCH_NS;
    double read[WINDOWS] = {0}, moved[WINDOWS] = {0};
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < WINDOWS && rc == ATSI_OK; k++)
        rc = window(m, o, s, span / WINDOWS, &read[k], &moved[k]);
    *cpu = middle(read);
    *copy = middle(moved);
    return rc;
}

/* The product whose weight is largest; 1: there is none. */
static int large_op(struct measure *m, struct measure_op *o)
{
    struct measure_device *d = &m->dev[ATSI_DEVICE_HOST];
    struct atsi_cost_shape s, best = {0};
    uint32_t at = UINT32_MAX;
    size_t most = 0;
    for (uint32_t i = 0; i < m->g->n_nodes; i++) {
        size_t span;
        if (m->g->nodes[i]->kind != ATSI_OP_MATMUL)
            continue;
        atsi_cost_shape_of(m->g, m->tensors, i, ATSI_LAYOUT_ROWS, m->r->type_k, m->r->type_v, &s);
        span = measure_op_span(m, &s, i, 1, 0);
        if (span > most && atsi_costs_find(m->c, ATSI_DEVICE_HOST, &s) != NULL) {
            most = span;
            best = s;
            at = i;
        }
    }
    if (at == UINT32_MAX)
        return 1;
    return measure_op_make(m, d, at, &best, 1, 0, (READ_BYTES * best.dims[1] / most + 15) / 16 * 16,
                           o);
}

static int with_copies(struct measure *m, struct measure_op *o)
{
    struct atsi_cost_memory *c = &m->c->memory;
    struct stream s;
    double none;
    int rc = stream_open(m, &s);
    if (rc == ATSI_OK)
        rc = watch(m, NULL, &s, &none, &c->copy_alone);
    if (rc == ATSI_OK)
        rc = watch(m, o, &s, &c->cpu_together, &c->copy_together);
    stream_close(&s);
    return rc;
}

int measure_bandwidth(struct measure *m)
{
    struct measure_op *o = malloc(sizeof *o);
    double none;
    int rc = o != NULL ? measure_tell(m, "memory")
                       : atsi_fail(m->err, ATSI_ENOMEM, "out of memory measuring");
    if (rc == ATSI_OK)
        rc = atsi_pool_set_active(m->r->rt->pool, m->threads[ATSI_COST_DECODE], m->err);
    if (rc == ATSI_OK) {
        rc = large_op(m, o);
        if (rc > 0) { /* nothing to read memory with */
            free(o);
            return ATSI_OK;
        }
    }
    if (rc == ATSI_OK)
        rc = watch(m, o, NULL, &m->c->memory.cpu_alone, &none);
    if (rc == ATSI_OK && m->n_devices > 1)
        rc = with_copies(m, o);
    measure_settle_all(m);
    free(o);
    return rc;
}
