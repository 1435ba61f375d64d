/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory to measure with.  The pool is larger than the caches, or twice the model where that is
 * less; no more than a quarter of what is free.
 */
#include "core/round/measure_in.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define USUAL_POOL ((size_t)256 << 20)
#define LEAST_POOL ((size_t)1 << 20)
#define STAGING ((size_t)64 << 20)
#define LEAST_STAGING ((size_t)64 << 10)
#define SETTLE_MS 5000 /* that a failed device is waited for */

static uint32_t rows_of(const struct measure *m, uint32_t node)
{
    bool head = (m->g->nodes[node]->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
    return head && m->r->chunk > MEASURE_HEAD ? MEASURE_HEAD : m->r->chunk;
}

/* Largest needs of all operations, and the bytes of all weights. */
static int sum_needs(const struct measure *m, size_t needs[3], size_t *largest, size_t *weights)
{
    needs[0] = needs[1] = needs[2] = *largest = *weights = 0;
    for (uint32_t i = 0; i < m->g->n_nodes; i++) {
        const struct atsi_graph_node *n = m->g->nodes[i];
        struct atsi_cost_shape s;
        size_t one[3], span;
        if (!measure_op_needs(m, i, rows_of(m, i), one))
            return atsi_fail(m->err, ATSI_ENOFIT, "a round of %u tokens overflows memory",
                             m->r->chunk);
        for (int k = 0; k < 3; k++)
            needs[k] = one[k] > needs[k] ? one[k] : needs[k];
        atsi_cost_shape_of(m->g, m->tensors, i, ATSI_LAYOUT_ROWS, m->r->type_k, m->r->type_v, &s);
        span = measure_op_span(m, &s, i, 1, 0);
        if (n->kind == ATSI_OP_MATMUL || n->kind == ATSI_OP_MATMUL_ID)
            *weights += span;
        if (span > *largest)
            *largest = span;
    }
    return ATSI_OK;
}

static size_t last_cache(const struct measure *m)
{
    const struct atsi_topo *topo = m->r->rt->topo;
    return topo->n_caches > 0 ? (size_t)topo->caches[topo->n_caches - 1].bytes : 0;
}

static size_t pool_size(const struct measure *m, const struct measure_device *d, size_t largest,
                        size_t weights)
{
    struct atsi_props props = {.struct_size = sizeof props};
    size_t cap = (size_t)m->r->rt->topo->mem_available_bytes / 4, want = m->r->room_bytes;
    if (d->device == ATSI_DEVICE_ACCEL && d->ops->props(d->be, &props) == ATSI_OK &&
        props.mem_free_bytes != 0 && (cap == 0 || props.mem_free_bytes / 4 < cap))
        cap = (size_t)props.mem_free_bytes / 4;
    if (want == 0) {
        want = 4 * last_cache(m) > USUAL_POOL ? 4 * last_cache(m) : USUAL_POOL;
        want = 2 * weights < want ? 2 * weights : want;
    }
    if (want < largest + MEASURE_PAD && !m->only_room)
        want = largest + MEASURE_PAD;
    if (cap != 0 && want > cap)
        want = cap;
    return (want < LEAST_POOL ? LEAST_POOL : want) + MEASURE_PAD;
}

/* ---------------------------------------------------------------- contents */
int measure_wait(struct measure *m, struct measure_device *d)
{
    int rc = d->ops->event_wait(d->event, UINT64_C(1000000), m->err);
    d->pending = rc != ATSI_OK;
    return rc;
}

void measure_settle(const struct measure_device *d, struct atsi_event *ev)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    if (d->ops->event_wait(ev, 0, NULL) == ATSI_OK)
        return;
    for (int k = 0; k < SETTLE_MS && d->ops->event_query(ev) == 0; k++)
        (void)nanosleep(&pause, NULL); /* woken early: asked more often */
}

void measure_settle_all(struct measure *m)
{
    for (uint32_t v = 0; v < m->n_devices; v++) {
        if (m->dev[v].pending)
            measure_settle(&m->dev[v], m->dev[v].event);
        m->dev[v].pending = false;
    }
}

int measure_put(struct measure *m, struct measure_device *d, void *dst, const void *src, size_t n)
{
    const struct atsi_exec_devices *x = m->r->d;
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = &m->range, .signal = d->event};
    int rc;
    if (d->host_memory) {
        memcpy(dst, src, n);
        return ATSI_OK;
    }
    m->range = (struct atsi_range){.src = src, .dst = dst, .bytes = n};
    rc = x->tx_ops->copyv(x->tx, x->copy_engine, NULL, &req, m->err);
    d->pending = rc == ATSI_OK;
    return rc == ATSI_OK ? measure_wait(m, d) : rc;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 16;
}

/* Any type and layout: see measure_op.c. */
static void fill_pattern(unsigned char *to, size_t n)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++)
        to[i] = (unsigned char)(0x20U + next_random(&state) % 28U);
}

static void fill_floats(unsigned char *to, size_t n)
{
    uint32_t state = 54321;
    for (size_t i = 0; i + sizeof(float) <= n; i += sizeof(float)) {
        float x = (float)(next_random(&state) % 2001U) / 1000.0F - 1.0F;
        memcpy(to + i, &x, sizeof x);
    }
}

/* The same piece again and again: what it holds does not matter, only where it lies. */
static int put_all(struct measure *m, struct measure_device *d, unsigned char *to, size_t bytes)
{
    int rc = ATSI_OK;
    for (size_t at = 0; at < bytes && rc == ATSI_OK; at += m->staging_bytes) {
        size_t n = bytes - at < m->staging_bytes ? bytes - at : m->staging_bytes;
        rc = measure_put(m, d, to + at, m->staging, n);
        if (rc == ATSI_OK && m->r->cancel != NULL && *m->r->cancel != 0)
            rc = atsi_fail(m->err, ATSI_EINTR, "interrupted while measuring");
    }
    return rc;
}

static int fill_device(struct measure *m, struct measure_device *d)
{
    int rc;
    fill_floats(m->staging, m->staging_bytes);
    rc = put_all(m, d, d->act, d->act_bytes);
    fill_pattern(m->staging, m->staging_bytes);
    return rc == ATSI_OK ? put_all(m, d, d->pool, d->pool_bytes) : rc;
}

/* ---------------------------------------------------------------- life */
static int open_device(struct measure *m, uint32_t v, const size_t needs[3], size_t largest,
                       size_t weights)
{
    const struct atsi_exec_devices *x = m->r->d;
    struct measure_device *d = &m->dev[v];
    struct atsi_props props = {.struct_size = sizeof props};
    int rc;
    d->ops = x->ops[v];
    d->be = x->be[v];
    d->queue = x->queue[v];
    d->device = v;
    (void)snprintf(d->name, sizeof d->name, "%.60s", m->r->backend[v]);
    rc = d->ops->props(d->be, &props);
    if (rc != ATSI_OK)
        return atsi_fail(m->err, rc, "%s does not describe itself", d->name);
    d->host_memory = props.device_kind == ATSI_DEVICE_CPU;
    m->c->mem_bytes[v] =
        v == ATSI_DEVICE_HOST ? m->r->rt->topo->mem_total_bytes : props.mem_total_bytes;
    d->ids_bytes = needs[0];
    d->src_bytes = needs[1];
    d->act_bytes = needs[0] + 2 * needs[1] + needs[2] + MEASURE_PAD;
    d->pool_bytes = pool_size(m, d, largest, weights);
    rc = d->ops->event_open(d->be, &d->event, m->err);
    if (rc == ATSI_OK)
        rc = d->ops->buf_alloc(d->be, ATSI_MEM_DEVICE, d->act_bytes, &d->act_buf, m->err);
    if (rc == ATSI_OK)
        rc = d->ops->buf_alloc(d->be, ATSI_MEM_DEVICE, d->pool_bytes, &d->pool_buf, m->err);
    if (rc != ATSI_OK)
        return rc;
    d->act = d->ops->buf_ptr(d->act_buf);
    d->pool = d->ops->buf_ptr(d->pool_buf);
    return ATSI_OK;
}

/* Memory the accelerator reads directly, as much as it grants; without one, plain memory. */
static int open_staging(struct measure *m, size_t least)
{
    struct measure_device *d = &m->dev[m->n_devices - 1];
    size_t want = d->pool_bytes < STAGING ? d->pool_bytes : STAGING;
    enum atsi_mem kind = m->n_devices > 1 ? ATSI_MEM_PINNED : ATSI_MEM_DEVICE;
    int rc = ATSI_ENOMEM;
    if (least < LEAST_STAGING)
        least = LEAST_STAGING;
    for (want = want > least ? want : least; rc != ATSI_OK && want >= least; want /= 2) {
        rc = d->ops->buf_alloc(d->be, kind, want, &m->staging_buf, m->err);
        if (rc == ATSI_OK) {
            m->staging = d->ops->buf_ptr(m->staging_buf);
            m->staging_bytes = want;
        }
    }
    return rc;
}

int measure_open(struct measure *m)
{
    size_t needs[3], largest, weights;
    int rc = sum_needs(m, needs, &largest, &weights);
    for (uint32_t v = 0; v < m->n_devices && rc == ATSI_OK; v++)
        rc = open_device(m, v, needs, largest, weights);
    if (rc == ATSI_OK)
        rc = open_staging(m, needs[0]);
    for (uint32_t v = 0; v < m->n_devices && rc == ATSI_OK; v++)
        rc = fill_device(m, &m->dev[v]);
    return rc;
}

void measure_close(struct measure *m)
{
    measure_settle_all(m);
    if (m->staging_buf != NULL)
        m->dev[m->n_devices - 1].ops->buf_free(m->dev[m->n_devices - 1].be, m->staging_buf);
    for (uint32_t v = 0; v < m->n_devices; v++) {
        struct measure_device *d = &m->dev[v];
        if (d->ops == NULL)
            continue;
        if (d->pool_buf != NULL)
            d->ops->buf_free(d->be, d->pool_buf);
        if (d->act_buf != NULL)
            d->ops->buf_free(d->be, d->act_buf);
        if (d->event != NULL)
            d->ops->event_close(d->event);
    }
}
