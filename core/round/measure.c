/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring operations: each distinct one of the graph once per device and layout, at the points of
 * the grid.  A sample is a split of some repetitions, which between them walk over the pool; points
 * share the time there is, and small spread ends one early.
 */
#include "core/round/measure_in.h"

#include <stdlib.h>
#include <string.h>

#define USUAL_BUDGET UINT64_C(8000000000)
#define SAMPLES 15u
#define ENOUGH 5u         /* samples, when they agree within 3 % */
#define SAMPLE_NS 100000U /* a sample is no shorter, as far as repetitions allow */
#define LONG_NS 20000000U /* predicted so, an operation is measured in part */
#define WARM_TOKENS 4u    /* up to so many, weights in the cache are measured too */
#define LEAST_ROWS 64u    /* of output per worker, in part */

uint64_t measure_now(const struct measure *m)
{
    const struct atsi_host *host = &m->r->rt->host;
    return host->now_ns(host->ctx);
}

int measure_tell(struct measure *m, const char *what)
{
    struct atsi_measure_progress p = {.done = m->done, .total = m->total, .what = what};
    m->done++;
    if (m->r->progress != NULL)
        m->r->progress(m->r->progress_ctx, &p);
    if (m->r->cancel != NULL && *m->r->cancel != 0)
        return atsi_fail(m->err, ATSI_EINTR, "interrupted after measuring %u of %u times", p.done,
                         p.total);
    return ATSI_OK;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

void measure_middle(uint64_t *samples, uint32_t n, uint64_t *median, uint64_t *low, uint64_t *high)
{
    qsort(samples, n, sizeof samples[0], compare_u64);
    *median = samples[n / 2];
    *low = samples[0];
    *high = samples[n - 1];
}

int measure_run(struct measure *m, struct measure_device *d, struct measure_op *op, uint64_t *ns)
{
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = op->n, .ops = op->ptr, .signal = d->event};
    uint64_t start = measure_now(m);
    int rc = d->ops->run(d->queue, &split, m->err);
    d->pending = rc == ATSI_OK;
    if (rc == ATSI_OK)
        rc = measure_wait(m, d);
    *ns = measure_now(m) - start;
    return rc;
}

/* ---------------------------------------------------------------- one point */
struct samples {
    uint64_t median, low, high;
    uint32_t n;
};

/* Of one repetition, free of what launching and waiting cost. */
static uint64_t per_op(const struct measure_device *d, const struct measure_op *o, uint64_t ns)
{
    uint64_t net = ns > d->overhead_ns ? ns - d->overhead_ns : 0;
    double each = (double)(net > ns / 4 ? net : ns / 4) / o->n * o->scale;
    return each < 1 ? 1 : (uint64_t)(each + 0.5);
}

static int sample(struct measure *m, struct measure_device *d, struct measure_op *o, bool warm,
                  struct samples *out)
{
    uint64_t t[SAMPLES], ns = 0, spent = 0;
    uint32_t n = 1;
    int rc = ATSI_OK;
    *out = (struct samples){0};
    for (int k = 0; k < 2 && rc == ATSI_OK && ns < 20 * SAMPLE_NS; k++) { /* to warm up */
        measure_op_place(d, o, 1, warm);
        rc = measure_run(m, d, o, &ns);
    }
    if (ns < SAMPLE_NS)
        n = ns > 0 && SAMPLE_NS / ns < MEASURE_REPS ? (uint32_t)(SAMPLE_NS / ns) + 1 : MEASURE_REPS;
    while (rc == ATSI_OK && out->n < SAMPLES && (out->n < 3 || spent < m->share_ns)) {
        measure_op_place(d, o, n, warm);
        rc = measure_run(m, d, o, &ns);
        t[out->n++] = per_op(d, o, ns);
        spent += ns;
        if (out->n < ENOUGH)
            continue;
        measure_middle(t, out->n, &out->median, &out->low, &out->high);
        if ((out->high - out->low) * 32 < out->median)
            break;
    }
    if (rc == ATSI_OK)
        measure_middle(t, out->n, &out->median, &out->low, &out->high);
    return rc;
}

/* Rows of a weight to measure with, given what the whole is predicted to take. */
static uint64_t rows_for(const struct measure *m, const struct atsi_cost_shape *s,
                         uint64_t predicted)
{
    uint64_t least = (uint64_t)LEAST_ROWS * m->r->rt->n_workers, rows = s->dims[1];
    if ((s->kind != ATSI_OP_MATMUL && s->kind != ATSI_OP_MATMUL_ID) || predicted <= LONG_NS)
        return 0;
    rows = (uint64_t)((double)rows * (double)LONG_NS / (double)predicted) / 16 * 16;
    return rows > least ? rows : least;
}

struct point {
    uint32_t node, tokens, ctx;
    struct atsi_cost_shape shape;
};

static void name_point(const struct measure_device *d, const struct point *p, char *buf,
                       size_t size)
{
    const struct atsi_type_info *type = atsi_type_info(p->shape.type);
    (void)snprintf(buf, size, "%s: %s%s%s, %u token%s%s", d->name,
                   atsi_cost_kind_name(p->shape.kind), type != NULL ? " " : "",
                   type != NULL ? type->name : "", p->tokens, p->tokens > 1 ? "s" : "",
                   p->shape.layout != ATSI_LAYOUT_ROWS ? ", panels" : "");
}

static int use_workers(struct measure *m, uint32_t tokens)
{
    return atsi_pool_set_active(
        m->r->rt->pool, m->threads[tokens > 1 ? ATSI_COST_PREFILL : ATSI_COST_DECODE], m->err);
}

/* *op is an entry of the table; what an operation of a device has no room for is left out. */
static int measure_point(struct measure *m, struct measure_device *d, const struct point *p,
                         struct atsi_cost_op *op, struct measure_op *o)
{
    struct atsi_cost_time t = {.tokens = p->tokens, .ctx = p->ctx};
    struct samples cold, warm = {0};
    uint64_t predicted = op->n > 0 ? atsi_cost_op_ns(op, p->tokens, p->ctx, false) : 0;
    bool in_part = rows_for(m, &p->shape, 1U + LONG_NS) != 0;
    char what[120];
    int rc;
    name_point(d, p, what, sizeof what);
    rc = measure_tell(m, what);
    if (rc != ATSI_OK || (predicted > 4 * (uint64_t)LONG_NS && !in_part))
        return rc; /* what is known gives it well enough */
    rc = measure_op_make(m, d, p->node, &p->shape, p->tokens, p->ctx,
                         rows_for(m, &p->shape, predicted), o);
    if (rc > 0)
        return ATSI_OK;
    if (rc == ATSI_OK)
        rc = use_workers(m, p->tokens);
    if (rc == ATSI_OK)
        rc = sample(m, d, o, false, &cold);
    if (rc == ATSI_OK && o->span > 0 && p->tokens <= WARM_TOKENS)
        rc = sample(m, d, o, true, &warm);
    if (rc != ATSI_OK)
        return rc;
    t.cold_ns = cold.median;
    t.low_ns = cold.low;
    t.high_ns = cold.high;
    t.warm_ns = warm.median;
    t.n = cold.n;
    op->time[op->n++] = t;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- the grid */
static uint32_t token_grid(const struct measure *m, uint32_t node, uint32_t out[5])
{
    static const uint32_t usual[] = {1, 4, 16, 64};
    bool head = (m->g->nodes[node]->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
    uint32_t most = head && m->r->chunk > MEASURE_HEAD ? MEASURE_HEAD : m->r->chunk, n = 0;
    for (uint32_t k = 0; k < 4 && usual[k] < most; k++)
        out[n++] = usual[k];
    out[n++] = most;
    return n;
}

/* Contexts before a round of a chunk that the cache holds; of a window, no more than it shows. */
static uint32_t context_grid(const struct measure *m, const struct atsi_cost_shape *s,
                             uint32_t out[4])
{
    static const uint32_t usual[] = {1024, 4096, 16384};
    uint64_t room = m->r->ctx_max > m->r->chunk ? m->r->ctx_max - m->r->chunk : 0, window;
    uint32_t n = 0;
    out[n++] = 0;
    if (s->kind != ATSI_OP_ATTN)
        return n;
    window = s->dims[4];
    if (window != 0 && window < room)
        room = window;
    for (int k = 0; k < 3 && usual[k] < room; k++)
        out[n++] = usual[k];
    if (room > 0 && n < 4 && (n == 1 || room == window))
        out[n++] = (uint32_t)room;
    return n;
}

/* The points of an entry: measured with `o`, or without it counted. */
static int each_point(struct measure *m, struct measure_device *d, uint32_t node, uint32_t entry,
                      struct measure_op *o)
{
    struct point p = {.node = node, .shape = m->c->ops[entry].shape};
    uint32_t tokens[5], contexts[4], n_tokens = token_grid(m, node, tokens);
    uint32_t n_contexts = context_grid(m, &p.shape, contexts);
    int rc = ATSI_OK;
    for (uint32_t c = 0; c < n_contexts; c++)
        for (uint32_t k = 0; k < n_tokens && rc == ATSI_OK; k++) {
            p.tokens = tokens[k];
            p.ctx = contexts[c];
            if (o != NULL)
                rc = measure_point(m, d, &p, &m->c->ops[entry], o);
            else
                m->total++;
        }
    return rc;
}

/* One entry per node's shape and layout that the device computes; points are counted, or with `o`
 * measured.  Operations it does not compute get none. */
static int walk_graph(struct measure *m, struct measure_device *d, struct measure_op *o)
{
    struct measure_op *trial = malloc(sizeof *trial);
    int rc = ATSI_OK;
    if (trial == NULL)
        return atsi_fail(m->err, ATSI_ENOMEM, "out of memory measuring");
    for (uint32_t i = 0; i < m->g->n_nodes && rc == ATSI_OK; i++)
        for (uint32_t layout = 0; layout < 2 && rc == ATSI_OK; layout++) {
            struct atsi_cost_shape s;
            struct atsi_cost_op *op;
            int can;
            atsi_cost_shape_of(m->g, m->tensors, i, layout, m->r->type_k, m->r->type_v, &s);
            if (s.layout != layout)
                continue; /* has no weight that could be packed */
            op = atsi_costs_find(m->c, d->device, &s);
            if ((op == NULL) != (o == NULL) || (op != NULL && op->n > 0))
                continue;
            if (op == NULL) {
                can = measure_op_make(m, d, i, &s, 1, 0, 0, trial);
                if (can > 0)
                    continue;
                op = can == ATSI_OK ? atsi_costs_add(m->c, d->device, &s) : NULL;
                if (op == NULL)
                    rc = can != ATSI_OK ? can
                                        : atsi_fail(m->err, ATSI_ENOMEM, "out of memory for costs");
            }
            if (rc == ATSI_OK)
                rc = each_point(m, d, i, (uint32_t)(op - m->c->ops), o);
        }
    free(trial);
    return rc;
}

/* Entries for which no point could be measured say nothing. */
static void drop_empty(struct atsi_costs *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_ops; i++)
        if (c->ops[i].n > 0)
            c->ops[n++] = c->ops[i];
    c->n_ops = n;
}

static int measure_all(struct measure *m)
{
    struct measure_op *o = malloc(sizeof *o);
    int rc;
    if (o == NULL)
        return atsi_fail(m->err, ATSI_ENOMEM, "out of memory measuring");
    rc = measure_open(m);
    for (uint32_t v = 0; v < m->n_devices && rc == ATSI_OK; v++)
        rc = walk_graph(m, &m->dev[v], NULL);
    if (rc == ATSI_OK) {
        m->total += MEASURE_COPY_STEPS;
        m->share_ns = m->budget_ns / m->total;
        m->total += measure_threads_steps(m);
        rc = measure_threads(m);
    }
    if (rc == ATSI_OK)
        rc = measure_overheads(m);
    if (rc == ATSI_OK)
        rc = measure_copies(m);
    for (uint32_t v = 0; v < m->n_devices && rc == ATSI_OK; v++)
        rc = walk_graph(m, &m->dev[v], o);
    if (rc == ATSI_OK)
        rc = measure_bandwidth(m);
    measure_settle_all(m);
    free(o);
    return rc;
}

int atsi_costs_measure(const struct atsi_measure_request *r, struct atsi_costs **out,
                       struct atsi_err *err)
{
    struct measure m = {.r = r, .c = atsi_costs_new(), .err = err};
    uint32_t active = atsi_pool_active(r->rt->pool);
    int rc;
    *out = NULL;
    if (m.c == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a table of costs");
    if (r->chunk == 0)
        rc = atsi_fail(err, ATSI_EINVAL, "measuring rounds of no token");
    else
        rc = atsi_model_graph(r->model, &m.g, err);
    if (rc == ATSI_OK) {
        m.tensors = atsi_model_info(r->model)->tensors;
        m.n_devices = r->d->be[ATSI_DEVICE_ACCEL] != NULL ? 2 : 1;
        m.budget_ns = r->budget_ns != 0 ? r->budget_ns : USUAL_BUDGET;
        m.began_ns = measure_now(&m);
        m.c->chunk = r->chunk;
        rc = atsi_costs_key_make(r, m.c, err);
    }
    if (rc == ATSI_OK)
        rc = measure_all(&m);
    measure_close(&m);
    (void)atsi_pool_set_active(r->rt->pool, active, NULL);
    if (rc != ATSI_OK) {
        atsi_costs_free(m.c);
        return rc;
    }
    drop_empty(m.c);
    m.c->took_ns = measure_now(&m) - m.began_ns;
    *out = m.c;
    return ATSI_OK;
}
