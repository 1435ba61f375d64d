/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's largest product with more and more workers: with one token, whose weights come from
 * memory, and with many, which compute.  All numbers take turns, so that what disturbs the machine
 * for a while disturbs each of them, and the slowest of several samples says how much.
 */
#include "core/round/measure_in.h"

#include <stdlib.h>

#define SAMPLES 5u
#define LEAST_SAMPLES 3u            /* fewer choose nothing (knee.c) */
#define MOST_NS UINT64_C(700000000) /* of a phase, about */
#define SAMPLE_NS 300000U /* with all, a sample is no shorter, as far as repetitions allow */
#define TOKENS 64u        /* of many */
#define WORKER_ROWS 64u   /* of output, with many tokens */

static uint32_t counts(uint32_t all, uint32_t out[ATSI_COST_THREADS])
{
    static const uint32_t usual[] = {1,  2,  3,  4,  6,   8,   12,  16, 24,
                                     32, 48, 64, 96, 128, 192, 256, 384};
    uint32_t n = 0;
    for (uint32_t i = 0; i < sizeof usual / sizeof usual[0] && usual[i] < all; i++)
        out[n++] = usual[i];
    out[n++] = all;
    return n;
}

uint32_t measure_threads_steps(const struct measure *m)
{
    return m->r->rt->n_workers > 1 ? ATSI_N_COST_PHASES : 0;
}

/* The product with most weights that all tokens read; n_nodes: there is none. */
static uint32_t largest_product(const struct measure *m)
{
    uint32_t at = m->g->n_nodes;
    uint64_t most = 0;
    for (uint32_t i = 0; i < m->g->n_nodes; i++) {
        const struct atsi_graph_node *n = m->g->nodes[i];
        const struct atsi_tensor *w = n->weight[0] >= 0 ? m->tensors[n->weight[0]] : NULL;
        if (n->kind != ATSI_OP_MATMUL || (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0 || w == NULL ||
            w->row_bytes * w->ne[1] <= most)
            continue;
        most = w->row_bytes * w->ne[1];
        at = i;
    }
    return at;
}

/* In panels where the device takes them, as sessions have them.  1: it computes neither. */
static int make(struct measure *m, uint32_t node, uint32_t tokens, uint64_t rows,
                struct measure_op *o)
{
    int rc = 1;
    for (uint32_t layout = ATSI_LAYOUT_PANELS;; layout = ATSI_LAYOUT_ROWS) {
        struct atsi_cost_shape s;
        atsi_cost_shape_of(m->g, m->tensors, node, layout, m->r->type_k, m->r->type_v, &s);
        if (s.layout == layout)
            rc = measure_op_make(m, &m->dev[ATSI_DEVICE_HOST], node, &s, tokens, 0, rows, o);
        if (rc <= 0 || layout == ATSI_LAYOUT_ROWS)
            return rc;
    }
}

struct curve {
    uint32_t n, count[ATSI_COST_THREADS], n_samples;
    uint64_t ns[ATSI_COST_THREADS][SAMPLES];
};

/* One sample with every number of workers. */
static int pass(struct measure *m, struct measure_op *o, uint32_t reps, struct curve *c)
{
    struct measure_device *d = &m->dev[ATSI_DEVICE_HOST];
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < c->n && rc == ATSI_OK; i++) {
        uint64_t ns = 0;
        rc = atsi_pool_set_active(m->r->rt->pool, c->count[i], m->err);
        if (rc == ATSI_OK)
            measure_op_place(d, o, reps, false);
        if (rc == ATSI_OK)
            rc = measure_run(m, d, o, &ns);
        c->ns[i][c->n_samples] = ns / reps > 0 ? ns / reps : 1;
        if (rc == ATSI_OK && m->r->cancel != NULL && *m->r->cancel != 0)
            rc = atsi_fail(m->err, ATSI_EINTR, "interrupted while measuring");
    }
    c->n_samples += rc == ATSI_OK;
    return rc;
}

/* Repetitions of a sample, by what one takes with all workers, the last number. */
static uint32_t reps_for(uint64_t ns)
{
    uint64_t n = ns > 0 ? SAMPLE_NS / ns + 1 : MEASURE_REPS;
    return n < MEASURE_REPS ? (uint32_t)n : MEASURE_REPS;
}

static int sample(struct measure *m, struct measure_op *o, struct curve *c)
{
    uint64_t began, last = 0;
    uint32_t reps;
    int rc = pass(m, o, 1, c); /* to warm up, and to see how long it takes */
    reps = reps_for(c->ns[c->n - 1][0]);
    c->n_samples = 0;
    began = measure_now(m);
    while (rc == ATSI_OK && c->n_samples < SAMPLES) {
        uint64_t spent = measure_now(m) - began;
        if (c->n_samples > 0 && spent + last > (c->n_samples < LEAST_SAMPLES ? 4 : 1) * MOST_NS)
            break;
        rc = pass(m, o, reps, c);
        last = measure_now(m) - began - spent;
    }
    return rc;
}

static void keep(struct measure *m, uint32_t phase, struct curve *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct atsi_cost_threads *p = &m->c->threads[phase][i];
        p->threads = c->count[i];
        p->n = c->n_samples;
        measure_middle(c->ns[i], c->n_samples, &p->ns, &p->low_ns, &p->high_ns);
    }
    m->c->n_threads[phase] = c->n;
}

static int measure_phase(struct measure *m, uint32_t phase, uint32_t node, struct measure_op *o)
{
    const struct atsi_runtime *rt = m->r->rt;
    bool many = phase == ATSI_COST_PREFILL;
    uint32_t tokens = !many ? 1 : m->r->chunk < TOKENS ? m->r->chunk : TOKENS;
    struct curve c = {.n = 0};
    int rc = measure_tell(m, many ? "workers of prefill" : "workers of decode");
    c.n = counts(rt->n_workers, c.count);
    if (rc == ATSI_OK && node < m->g->n_nodes)
        rc = make(m, node, tokens, many ? (uint64_t)WORKER_ROWS * rt->n_workers : 0, o);
    else if (rc == ATSI_OK)
        rc = 1;
    if (rc > 0)
        return ATSI_OK; /* nothing to measure with */
    if (rc == ATSI_OK)
        rc = sample(m, o, &c);
    if (rc == ATSI_OK)
        keep(m, phase, &c);
    return rc;
}

int measure_threads(struct measure *m)
{
    const struct atsi_runtime *rt = m->r->rt;
    struct measure_op *o = rt->n_workers > 1 ? malloc(sizeof *o) : NULL;
    int rc = ATSI_OK;
    if (rt->n_workers > 1 && o == NULL)
        rc = atsi_fail(m->err, ATSI_ENOMEM, "out of memory measuring");
    for (uint32_t f = 0; f < ATSI_N_COST_PHASES && rc == ATSI_OK && o != NULL; f++)
        rc = measure_phase(m, f, largest_product(m), o);
    measure_settle_all(m);
    atsi_costs_threads(m->c, rt, m->threads);
    free(o);
    return rc;
}
