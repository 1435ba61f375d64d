/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing the products of a backend with memory of its own.  Weights stay there; one split has the
 * products of many, as a round has, because a single one takes no longer than its launch.
 */
#include "cli/kernels_bench.h"

#include "atsinfer/panel.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 9
#define BYTES ((size_t)512 << 20) /* of weights: more than caches of devices hold */
#define MOST_COPIES 64u
#define SLOW_NS UINT64_C(300000000) /* a sample of an emulated device; then fewer */

struct there {
    const struct atsi_runtime *rt;
    struct kernels_backend *b;
    const struct kernels_table *old;
    const char *format;
    struct kernels_table *t;
};

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sorted nanoseconds of a split of all products. */
static int sample(const struct there *w, struct kernels_product *p, uint64_t ns[SAMPLES],
                  uint32_t *n, struct atsi_err *err)
{
    const struct atsi_host *host = atsi_runtime_host(w->rt);
    int rc = ATSI_OK;
    *n = 0;
    for (int s = -1; s < SAMPLES && rc == ATSI_OK && cli_interrupted == 0; s++) {
        uint64_t start = host->now_ns(host->ctx), took;
        rc = kernels_product_run_all(w->b, p, err);
        if (rc == ATSI_OK)
            rc = kernels_wait(w->b, err);
        took = host->now_ns(host->ctx) - start;
        if (s >= 0) /* the first one warms up */
            ns[(*n)++] = took;
        if (took > SLOW_NS && s >= 0)
            break;
    }
    qsort(ns, *n, sizeof ns[0], ascending);
    return rc;
}

static int add_row(const struct there *w, const struct kernels_product *p, const uint64_t *ns,
                   uint32_t n)
{
    const uint32_t middle = n / 2, first = n / 4, last = 3 * n / 4;
    struct kernels_row r = {.ns = (double)ns[middle] / p->n_copies};
    bool bytes = p->rows <= 16;
    double work = (double)p->k * p->n_out * p->rows;
    (void)snprintf(r.backend, sizeof r.backend, "%s", w->b->name);
    (void)snprintf(r.op, sizeof r.op, "matmul");
    (void)snprintf(r.type, sizeof r.type, "%s", atsi_type_info(p->type)->name);
    (void)snprintf(r.layout, sizeof r.layout, "%s", p->panels ? "panels" : "rows");
    (void)snprintf(r.shape, sizeof r.shape, "%ux%u, %u token%s", p->k, p->n_out, p->rows,
                   p->rows == 1 ? "" : "s");
    (void)snprintf(r.memory, sizeof r.memory, "streaming");
    (void)snprintf(r.unit, sizeof r.unit, bytes ? "GB/s" : "GMAC/s");
    if (bytes)
        work = (double)atsi_row_bytes(p->type, p->k) * p->n_out;
    r.speed = work / r.ns;
    r.spread = (double)(ns[last] - ns[first]) / (double)ns[middle];
    if (w->old != NULL)
        kernels_table_compare(w->old, &r);
    if (!kernels_table_add(w->t, &r))
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    kernels_table_print(w->t, w->format, &r);
    return CLI_OK;
}

/* One type, layout and number of tokens. */
static int one(const struct there *w, uint32_t type, const struct kernels_shape *shape,
               uint32_t tokens, bool panels, uint64_t seed)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct kernels_product p;
    size_t bytes = (size_t)atsi_row_bytes(type, shape->k) * shape->n;
    uint32_t n, copies = 1;
    uint64_t ns[SAMPLES] = {0};
    int rc;
    if (bytes == 0)
        return CLI_OK; /* no whole blocks of this type in a row */
    if (bytes < BYTES)
        copies = (uint32_t)(BYTES / bytes);
    rc = kernels_product_open(&p, type, shape->k, shape->n, tokens,
                              copies < MOST_COPIES ? copies : MOST_COPIES, seed);
    if (rc == ATSI_OK && panels)
        rc = kernels_product_pack(&p);
    if (rc != ATSI_OK)
        return cli_fail(CLI_NO_FIT, "out of memory");
    if (kernels_product_supported(w->b, &p) == 1) {
        rc = sample(w, &p, ns, &n, &err);
        if (rc == ATSI_OK && n > 0)
            rc = add_row(w, &p, ns, n);
        else if (rc != ATSI_OK)
            rc = cli_fail_status(rc, &err);
    }
    kernels_product_close(&p);
    return rc == CLI_OK && cli_interrupted != 0 ? CLI_INTERRUPTED : rc;
}

static bool layout_wanted(const struct kernels_plan *plan, bool panels, uint32_t type, uint32_t k)
{
    if (panels && atsi_panel_bytes(type, k) == 0)
        return false;
    return plan->layout == NULL || strcmp(plan->layout, panels ? "panels" : "rows") == 0;
}

int kernels_bench_there(const struct atsi_runtime *rt, struct kernels_backend *b,
                        const struct kernels_plan *plan, const char *format,
                        const struct kernels_table *old, struct kernels_table *t)
{
    static const uint32_t tokens[] = {1, 8, 512};
    const struct there w = {rt, b, old, format, t};
    int code = CLI_OK;
    if (plan->op != NULL && strcmp(plan->op, "matmul") != 0)
        return CLI_OK;
    for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
        for (uint32_t s = 0; s < plan->n_shapes && plan->type[type]; s++)
            for (int panels = 0; panels < 2; panels++)
                for (size_t i = 0; i < sizeof tokens / sizeof tokens[0] && code == CLI_OK; i++)
                    if (layout_wanted(plan, panels != 0, type, plan->shapes[s].k))
                        code = one(&w, type, &plan->shapes[s], tokens[i], panels != 0, plan->seed);
    return code;
}
