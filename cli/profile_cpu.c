/* SPDX-License-Identifier: Apache-2.0
 *
 * What the CPU's kernels do here: products of the model's weight types with one row, which read
 * memory, and with a chunk of rows, which compute; the same after some time of load; and products
 * so small that only their fixed cost is left.
 */
#include "cli/options.h"
#include "cli/profile.h"

#include <stdlib.h>

#define DIM 4096u
#define CHUNK_ROWS 512u
#define CHUNK_OUT 1024u
#define LIMIT_NS UINT64_C(2000000000) /* of one figure */
#define SMALL_RUNS 1000u

uint32_t profile_group(uint32_t type)
{
    switch (type) {
    case ATSI_TYPE_F32:
    case ATSI_TYPE_F16:
    case ATSI_TYPE_BF16:
        return PROFILE_FLOAT;
    case ATSI_TYPE_MXFP4:
        return PROFILE_MXFP4;
    default:
        return PROFILE_QUANT;
    }
}

static int failed(int rc, const struct atsi_err *err)
{
    return cli_interrupted != 0 ? CLI_INTERRUPTED : cli_fail_status(rc, err);
}

/* Rows of output such that the weights of one product stay within p->bytes. */
static uint32_t rows_out(const struct profile *p, uint32_t type, uint32_t most)
{
    uint64_t row = atsi_row_bytes(type, DIM), n = row > 0 ? p->bytes / row / 16 * 16 : 0;
    return n < 16 ? 16 : n > most ? most : (uint32_t)n;
}

static size_t weight_bytes(const struct kernels_product *g)
{
    return (size_t)atsi_row_bytes(g->type, g->k) * g->n_out;
}

/* Amount per nanosecond, from times per product. */
static struct profile_figure rate(double amount, const struct kernels_times *t)
{
    return (struct profile_figure){.value = amount / t->median_ns,
                                   .low = amount / t->worst_ns,
                                   .high = amount / t->best_ns,
                                   .n = t->n};
}

static void tell(const char *what, const struct profile_figure *f, const char *unit)
{
    if (cli_common.level < ATSI_LOG_WARN)
        return;
    (void)fprintf(stderr, "%-44s %9.2f %s (%.2f to %.2f)\n", what, f->value, unit, f->low, f->high);
}

int profile_gemv_open(const struct profile *p, uint32_t type, struct kernels_product *out)
{
    uint32_t n_out = rows_out(p, type, DIM);
    uint64_t each = (uint64_t)atsi_row_bytes(type, DIM) * n_out;
    uint64_t copies = each > 0 ? (p->bytes + each - 1) / each : 1;
    *out = (struct kernels_product){.n_copies = 0};
    if (copies <= UINT32_MAX &&
        kernels_product_open(out, type, DIM, n_out, 1, (uint32_t)copies, 1) == ATSI_OK)
        return CLI_OK;
    return cli_fail(CLI_NO_FIT, "out of memory for %.0f MiB to measure with; see --size",
                    (double)each * (double)copies / 1048576.0);
}

static int time_gemv(struct profile *p, uint32_t type, struct profile_figure *out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct kernels_product g;
    struct kernels_times t;
    int rc, code = profile_gemv_open(p, type, &g);
    if (code != CLI_OK)
        return code;
    rc = kernels_product_time(p->rt, &p->backend, &g, g.n_copies, LIMIT_NS, &t, &err);
    if (rc == ATSI_OK)
        *out = rate((double)weight_bytes(&g), &t);
    kernels_product_close(&g);
    return rc == ATSI_OK ? CLI_OK : failed(rc, &err);
}

static int time_gemm(struct profile *p, uint32_t type, struct profile_figure *out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct kernels_product g;
    struct kernels_times t;
    uint32_t n_out = rows_out(p, type, CHUNK_OUT);
    int rc;
    if (kernels_product_open(&g, type, DIM, n_out, CHUNK_ROWS, 1, 1) != ATSI_OK)
        return cli_fail(CLI_NO_FIT, "out of memory for a product of %u rows", CHUNK_ROWS);
    rc = kernels_product_time(p->rt, &p->backend, &g, 1, LIMIT_NS, &t, &err);
    if (rc == ATSI_OK)
        *out = rate(2.0 * DIM * n_out * CHUNK_ROWS, &t);
    kernels_product_close(&g);
    return rc == ATSI_OK ? CLI_OK : failed(rc, &err);
}

/* Times add up, so rates combine by shares of the bytes or operations as harmonic means. */
struct blend {
    double weight, value, low, high;
    uint32_t n;
};

static void blend_in(struct blend *b, double weight, const struct profile_figure *f)
{
    b->weight += weight;
    b->value += weight / f->value;
    b->low += weight / f->low;
    b->high += weight / f->high;
    b->n = b->n == 0 || f->n < b->n ? f->n : b->n;
}

static struct profile_figure blended(const struct blend *b)
{
    return (struct profile_figure){b->weight / b->value, b->weight / b->low, b->weight / b->high,
                                   b->n};
}

static int time_type(struct profile *p, uint32_t k)
{
    const char *name = atsi_type_info(p->types[k].type)->name;
    char what[64];
    int code = time_gemv(p, p->types[k].type, &p->types[k].gbs);
    if (code != CLI_OK)
        return code;
    (void)snprintf(what, sizeof what, "%s, one token", name);
    tell(what, &p->types[k].gbs, "GB/s");
    code = time_gemm(p, p->types[k].type, &p->types[k].gflops);
    if (code != CLI_OK)
        return code;
    (void)snprintf(what, sizeof what, "%s, %u tokens", name, CHUNK_ROWS);
    tell(what, &p->types[k].gflops, "GFLOP/s");
    return cli_interrupted != 0 ? CLI_INTERRUPTED : CLI_OK;
}

/* A group of formats that the model has nothing of, by its most usual type. */
static int time_group(struct profile *p, uint32_t group)
{
    static const uint32_t usual[PROFILE_GROUPS] = {ATSI_TYPE_Q4_K, ATSI_TYPE_F16, ATSI_TYPE_MXFP4};
    char what[64];
    int code = time_gemm(p, usual[group], &p->gflops[group]);
    if (code != CLI_OK)
        return code;
    p->group_type[group] = usual[group];
    (void)snprintf(what, sizeof what, "%s, %u tokens", atsi_type_info(usual[group])->name,
                   CHUNK_ROWS);
    tell(what, &p->gflops[group], "GFLOP/s");
    return cli_interrupted != 0 ? CLI_INTERRUPTED : CLI_OK;
}

int profile_types(struct profile *p)
{
    struct blend bytes = {0}, work[PROFILE_GROUPS] = {{0}};
    int code = CLI_OK;
    for (uint32_t k = 0; k < p->n_types && code == CLI_OK; k++) {
        const struct atsi_type_info *ti = atsi_type_info(p->types[k].type);
        code = time_type(p, k);
        if (code != CLI_OK)
            return code;
        blend_in(&bytes, p->types[k].share, &p->types[k].gbs);
        blend_in(&work[profile_group(p->types[k].type)], /* operations go with elements */
                 p->types[k].share * ti->block_elems / ti->block_bytes, &p->types[k].gflops);
    }
    p->gbs = blended(&bytes);
    for (uint32_t g = 0; g < PROFILE_GROUPS && code == CLI_OK; g++) {
        p->group_type[g] = ATSI_TYPE_COUNT;
        if (work[g].n > 0)
            p->gflops[g] = blended(&work[g]);
        else
            code = time_group(p, g);
    }
    return code;
}

/* The type most bytes are of. */
static uint32_t main_type(const struct profile *p)
{
    uint32_t best = 0;
    for (uint32_t k = 1; k < p->n_types; k++)
        if (p->types[k].share > p->types[best].share)
            best = k;
    return best;
}

/* Keeps the machine busy for p->load_s seconds, then measures the main type once more; the other
 * types are taken to lose the same share. */
int profile_sustained(struct profile *p)
{
    const struct atsi_host *host = atsi_runtime_host(p->rt);
    struct atsi_err err = ATSI_ERR_INIT;
    const struct profile_type *t = &p->types[main_type(p)];
    uint64_t until = host->now_ns(host->ctx) + p->load_s * UINT64_C(1000000000);
    struct kernels_product g;
    struct kernels_times times;
    struct profile_figure warm;
    int rc = ATSI_OK, code = profile_gemv_open(p, t->type, &g);
    double factor;
    if (code != CLI_OK)
        return code;
    while (rc == ATSI_OK && cli_interrupted == 0 && host->now_ns(host->ctx) < until)
        rc = kernels_product_run(&p->backend, &g, &err);
    if (rc == ATSI_OK && cli_interrupted == 0)
        rc = kernels_product_time(p->rt, &p->backend, &g, g.n_copies, LIMIT_NS, &times, &err);
    if (rc == ATSI_OK && cli_interrupted == 0) {
        warm = rate((double)weight_bytes(&g), &times);
        factor = p->gbs.value / t->gbs.value;
        p->sustained = (struct profile_figure){warm.value * factor, warm.low * factor,
                                               warm.high * factor, warm.n};
        tell("all types, one token, under load", &p->sustained, "GB/s");
    }
    kernels_product_close(&g);
    if (cli_interrupted != 0)
        return CLI_INTERRUPTED;
    return rc == ATSI_OK ? CLI_OK : failed(rc, &err);
}

int profile_small(struct profile *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct kernels_product g;
    struct kernels_times t;
    int rc;
    if (kernels_product_open(&g, ATSI_TYPE_F32, 64, 16, 1, 1, 1) != ATSI_OK)
        return cli_fail(CLI_NO_FIT, "out of memory");
    rc = kernels_product_time(p->rt, &p->backend, &g, SMALL_RUNS, LIMIT_NS, &t, &err);
    kernels_product_close(&g);
    if (rc != ATSI_OK)
        return failed(rc, &err);
    p->op_us = (struct profile_figure){t.median_ns / 1e3, t.best_ns / 1e3, t.worst_ns / 1e3, t.n};
    tell("a small operation", &p->op_us, "us");
    return cli_interrupted != 0 ? CLI_INTERRUPTED : CLI_OK;
}
