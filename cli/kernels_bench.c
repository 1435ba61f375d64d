/* SPDX-License-Identifier: Apache-2.0
 *
 * Timing the kernels of several backends.  Samples of one case go round all backends, so that a
 * machine that gets warm or busy treats them alike; medians are compared.
 */
#include "cli/kernels_bench.h"

#include "cli/limits.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 9
#define LEAST_SAMPLES 3
#define SAMPLE_NS UINT64_C(3000000)  /* a sample has as many runs as take this long */
#define SHARE_NS UINT64_C(250000000) /* of one backend in one case, beyond LEAST_SAMPLES */
#define REF_NS UINT64_C(60000000)    /* of the reference: it is hundreds of times slower */

struct timing {
    uint64_t ns[SAMPLES]; /* of one run each */
    uint32_t n, runs;
    uint64_t spent;
    bool in; /* takes part */
};

struct bench {
    struct kernels_field *f;
    struct kernels_table *t;
    const struct kernels_table *old;
    const char *format;
};

static int run_once(struct kernels_backend *b, struct kernels_case *c)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = kernels_run(b, &c->p.op, &err);
    kernels_case_advance(c);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}

static int sample(const struct atsi_host *host, struct kernels_backend *b, struct kernels_case *c,
                  uint32_t runs, uint64_t *ns)
{
    uint64_t start = host->now_ns(host->ctx);
    int code = CLI_OK;
    for (uint32_t i = 0; i < runs && code == CLI_OK; i++)
        code = run_once(b, c);
    *ns = (host->now_ns(host->ctx) - start) | 1;
    return code;
}

/* Warms up and finds how many runs a sample needs. */
static int prepare(const struct atsi_host *host, struct kernels_backend *b, struct kernels_case *c,
                   struct timing *t)
{
    uint64_t ns;
    int code;
    t->in = b->ops->supports(b->be, &c->p.op) == 1;
    if (!t->in)
        return CLI_OK;
    code = sample(host, b, c, 1, &ns); /* memory is touched, pages are there */
    if (code == CLI_OK)
        code = sample(host, b, c, 1, &ns);
    t->runs = ns < SAMPLE_NS ? (uint32_t)(SAMPLE_NS / ns) + 1 : 1;
    if (t->runs < c->n_copies && ns * c->n_copies < 20 * SAMPLE_NS)
        t->runs = c->n_copies; /* all of the memory, however fast it is */
    return code;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* ---------------------------------------------------------------- the reference */
/* ns of one run, from a part of the rows and of the tokens; 0: it does not compute this. */
static int time_reference(struct bench *b, struct kernels_case *c, double *ns)
{
    const struct atsi_host *host = atsi_runtime_host(b->f->rt);
    const struct atsi_op whole = c->p.op;
    struct atsi_tensor w = {0}, y = {0};
    double part = 1;
    uint64_t one, best = UINT64_MAX, spent = 0;
    int code = CLI_OK;
    *ns = 0;
    if (whole.kind == ATSI_OP_MATMUL && whole.weight[0]->ne[1] > 64) { /* its first rows */
        w = *whole.weight[0];
        y = *whole.dst[0];
        part = (double)w.ne[1] / 64;
        w.ne[1] = y.ne[0] = 64;
        y.row_bytes = 64 * sizeof(float);
        c->p.op.weight[0] = &w;
        c->p.op.dst[0] = &y;
    }
    if (whole.kind != ATSI_OP_ATTN && whole.kind != ATSI_OP_DELTA_NET && whole.n_rows > 4) {
        c->p.op.n_rows = 4;
        part *= whole.n_rows / 4.0;
    } else if (whole.n_rows > 1) {
        *ns = 0; /* of many rows it would take minutes */
        c->p.op = whole;
        return CLI_OK;
    }
    if (b->f->ref->ops->supports(b->f->ref->be, &c->p.op) == 1)
        for (int i = 0; i < 3 && spent < REF_NS && code == CLI_OK; i++) {
            struct atsi_err err = ATSI_ERR_INIT;
            uint64_t start = host->now_ns(host->ctx);
            int rc = kernels_run(b->f->ref, &c->p.op, &err);
            one = (host->now_ns(host->ctx) - start) | 1;
            code = rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
            best = one < best ? one : best;
            spent += one;
            *ns = (double)best * part;
        }
    c->p.op = whole;
    return code;
}

/* ---------------------------------------------------------------- one case */
static void make_row(const struct kernels_backend *be, const struct kernels_case *c,
                     struct timing *t, double ref_ns, struct kernels_row *r)
{
    const uint32_t middle = t->n / 2, first = t->n / 4, last = 3 * t->n / 4;
    double median;
    qsort(t->ns, t->n, sizeof t->ns[0], ascending);
    median = (double)t->ns[middle];
    memset(r, 0, sizeof *r);
    (void)snprintf(r->backend, sizeof r->backend, "%s", be->name);
    (void)snprintf(r->op, sizeof r->op, "%s", c->op);
    (void)snprintf(r->type, sizeof r->type, "%s", c->typed ? atsi_type_info(c->type)->name : "");
    (void)snprintf(r->layout, sizeof r->layout, "%s", c->layout);
    (void)snprintf(r->shape, sizeof r->shape, "%s", c->shape);
    (void)snprintf(r->memory, sizeof r->memory, "%s", c->memory);
    (void)snprintf(r->unit, sizeof r->unit, "%s", c->unit);
    r->ns = median / t->runs;
    r->speed = c->amount / r->ns;
    r->spread = (double)(t->ns[last] - t->ns[first]) / median;
    r->of_limit = c->limit > 0 ? r->speed / c->limit : 0;
    r->of_ref = ref_ns > 0 ? ref_ns / r->ns : 0;
}

static int rounds(struct bench *b, struct kernels_case *c, struct timing t[])
{
    const struct atsi_host *host = atsi_runtime_host(b->f->rt);
    int code = CLI_OK;
    for (int s = 0; s < SAMPLES; s++)
        for (uint32_t i = 0; i < b->f->n && code == CLI_OK; i++) {
            uint64_t ns;
            if (!t[i].in || (t[i].n >= LEAST_SAMPLES && t[i].spent > SHARE_NS))
                continue;
            if (cli_interrupted != 0)
                return CLI_INTERRUPTED;
            code = sample(host, b->f->backends[i], c, t[i].runs, &ns);
            t[i].ns[t[i].n++] = ns;
            t[i].spent += ns;
        }
    return code;
}

static int one_case(void *ctx, struct kernels_case *c)
{
    const struct atsi_host *host;
    struct bench *b = ctx;
    struct timing t[KERNELS_MAX_BACKENDS];
    double ref_ns = 0;
    int code = CLI_OK;
    memset(t, 0, sizeof t);
    host = atsi_runtime_host(b->f->rt);
    for (uint32_t i = 0; i < b->f->n && code == CLI_OK; i++)
        if (b->f->backends[i] != b->f->ref)
            code = prepare(host, b->f->backends[i], c, &t[i]);
    if (code == CLI_OK)
        code = rounds(b, c, t);
    if (code == CLI_OK)
        code = time_reference(b, c, &ref_ns);
    for (uint32_t i = 0; i < b->f->n && code == CLI_OK; i++) {
        struct kernels_row r;
        if (b->f->backends[i] == b->f->ref && ref_ns > 0)
            t[i] = (struct timing){.ns = {(uint64_t)ref_ns}, .n = 1, .runs = 1};
        if (t[i].n == 0)
            continue;
        make_row(b->f->backends[i], c, &t[i], ref_ns, &r);
        if (b->old != NULL)
            kernels_table_compare(b->old, &r);
        if (!kernels_table_add(b->t, &r))
            return cli_fail(CLI_RUN_ERROR, "out of memory");
        kernels_table_print(b->t, b->format, &r);
    }
    return code;
}

/* ---------------------------------------------------------------- all */
/* any: CPU backends are timed, so that their limits are worth measuring. */
static void set_limits(const struct atsi_runtime *rt, bool any, struct kernels_table *t)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    (void)snprintf(t->cpu, sizeof t->cpu, "%s", atsi_runtime_topo(rt)->cpu_model);
    t->n_threads = host->n_threads(host->ctx);
    if (!any)
        return;
    t->read_gbps = limit_read_gbps(rt);
    t->int8_gmacs = limit_gmacs(rt, LIMIT_INT8);
    t->fma_gmacs = limit_gmacs(rt, LIMIT_FMA);
    t->int8_name = limit_math_name(host->cpu_caps, LIMIT_INT8);
    t->fma_name = limit_math_name(host->cpu_caps, LIMIT_FMA);
}

static size_t cache_of_level(const struct atsi_topo *topo, uint32_t level)
{
    for (uint32_t i = topo->n_caches; i > 0; i--)
        if (level == 0 || topo->caches[i - 1].level == level)
            return (size_t)topo->caches[i - 1].bytes;
    return (size_t)1 << 20;
}

int kernels_bench(struct kernels_field *f, const struct kernels_plan *plan, const char *format,
                  const struct kernels_table *old, struct kernels_table *t)
{
    const struct atsi_topo *topo = atsi_runtime_topo(f->rt);
    struct bench b = {f, t, old, format};
    size_t last = cache_of_level(topo, 0);
    int code;
    set_limits(f->rt, f->n > 0, t);
    if (old != NULL && (strcmp(old->cpu, t->cpu) != 0 || old->n_threads != t->n_threads))
        cli_warn("--compare: that table is of %s with %u threads", old->cpu, old->n_threads);
    t->compared = old != NULL;
    kernels_table_begin(t, format);
    if (last > (size_t)topo->mem_available_bytes / 32) /* what memory allows */
        last = (size_t)topo->mem_available_bytes / 32;
    code = f->n == 0 ? CLI_OK
                     : kernels_cases_each(plan, t, last, cache_of_level(topo, 2) * t->n_threads,
                                          one_case, &b);
    for (uint32_t i = 0; i < f->n_there && code == CLI_OK; i++)
        code = kernels_bench_there(f->rt, f->there[i], plan, format, old, t);
    return code == CLI_OK ? kernels_table_end(t, format) : code;
}
