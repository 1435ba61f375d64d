/* SPDX-License-Identifier: Apache-2.0
 *
 * What `atsinfer kernels` times: products in both layouts with one row (decode, whose limit is
 * reading) and with 512 (prefill, whose limit is arithmetic), products with experts, attention, and
 * the small operations of a layer in the sizes of a model of some billion parameters.
 */
#include "cli/kernels_bench.h"

#include "cli/limits.h"

#include <math.h>
#include <string.h>

#define PREFILL 512u
#define EXPERTS 64u
#define EXPERTS_USED 8u
#define HEADS 32u
#define KV_HEADS 8u
#define HEAD_DIM 128u
#define WIDTH 4096u

struct site {
    const struct kernels_plan *plan;
    const struct kernels_table *limits;
    size_t cache_bytes, near_bytes; /* the last cache; the second ones of all workers together */
    kernels_case_fn *fn;
    void *ctx;
};

static void begin(struct kernels_case *c, const char *op, uint32_t kind, uint32_t rows,
                  uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->op = op;
    c->layout = "";
    c->memory = "cache";
    c->unit = "GB/s";
    c->type = ATSI_TYPE_F32;
    c->p.op.struct_size = sizeof c->p.op;
    c->p.op.kind = kind;
    c->p.op.n_rows = rows;
    c->p.random = seed;
}

static int finish(const struct site *s, struct kernels_case *c)
{
    int code =
        c->p.out_of_memory ? cli_fail(CLI_NO_FIT, "out of memory for %s", c->op) : s->fn(s->ctx, c);
    kernels_probe_close(&c->p);
    return cli_interrupted != 0 ? CLI_INTERRUPTED : code;
}

/* ---------------------------------------------------------------- products */
void kernels_case_advance(struct kernels_case *c)
{
    struct atsi_tensor *w = &c->weights[0];
    size_t each = (size_t)(w->row_bytes * w->ne[1]);
    if (c->n_copies > 1) {
        const unsigned char *base = c->p.t[c->p.n - 1].data; /* the stack is the last tensor */
        size_t at = (size_t)((const unsigned char *)w->data - base) + each;
        w->data = (unsigned char *)c->p.t[c->p.n - 1].data + (at < each * c->n_copies ? at : 0);
    }
    for (uint32_t i = 0; i < c->n_ids; i++)
        c->ids[i] = (int32_t)(((uint32_t)c->ids[i] + EXPERTS_USED) % c->n_expert);
}

static double math_limit(const struct kernels_table *t, uint32_t type)
{
    return limit_math_of(type) == LIMIT_INT8 ? t->int8_gmacs : t->fma_gmacs;
}

/* Weight {k, n} x n_copies in the layout, as the last tensor. */
static const struct atsi_tensor *stack(struct kernels_case *c, bool panels, struct kernels_shape sh,
                                       uint32_t n_copies)
{
    const struct atsi_tensor *w = kernels_tensor_copies(&c->p, c->type, sh.k, sh.n, n_copies);
    struct atsi_tensor *t = &c->p.t[c->p.n - 1];
    if (!panels)
        return w;
    w = kernels_packed(&c->p, w);
    kernels_tensor_drop(t);
    return w;
}

static int product(const struct site *s, uint32_t type, bool panels, struct kernels_shape sh,
                   uint32_t rows, bool streaming)
{
    struct kernels_case c;
    size_t bytes = (size_t)atsi_row_bytes(type, sh.k) * sh.n;
    begin(&c, "matmul", ATSI_OP_MATMUL, rows, s->plan->seed);
    c.type = type;
    c.typed = true;
    c.layout = panels ? "panels" : "rows";
    c.memory = streaming ? "streaming" : "cache";
    c.n_copies = streaming && bytes > 0 ? (uint32_t)(4 * s->cache_bytes / bytes) + 1 : 1;
    if (streaming && c.n_copies < 2)
        c.n_copies = 2;
    c.amount = rows == 1 ? (double)bytes : (double)sh.k * sh.n * rows;
    c.unit = rows == 1 ? "GB/s" : "GMAC/s";
    c.limit = rows == 1 ? s->limits->read_gbps : math_limit(s->limits, type);
    (void)snprintf(c.shape, sizeof c.shape, "%ux%u, %u token%s", sh.k, sh.n, rows,
                   rows == 1 ? "" : "s");
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, sh.k, rows, 1);
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, sh.n, rows, 1);
    c.weights[0] = *stack(&c, panels, sh, c.n_copies);
    c.weights[0].n_dims = 2;
    c.weights[0].ne[2] = 1;
    c.p.op.weight[0] = &c.weights[0];
    return finish(s, &c);
}

static int experts(const struct site *s, uint32_t type, bool panels, uint32_t rows)
{
    const struct kernels_shape sh = {2048, 768};
    double each = (double)atsi_row_bytes(type, sh.k) * sh.n;
    const struct atsi_tensor *ids;
    struct kernels_case c;
    begin(&c, "matmul_id", ATSI_OP_MATMUL_ID, rows, s->plan->seed);
    c.type = type;
    c.typed = true;
    c.layout = panels ? "panels" : "rows";
    c.memory = each * EXPERTS > 2 * (double)s->cache_bytes ? "streaming" : "cache";
    c.amount = rows == 1 ? each * EXPERTS_USED : (double)sh.k * sh.n * rows * EXPERTS_USED;
    c.unit = rows == 1 ? "GB/s" : "GMAC/s";
    c.limit = rows == 1 ? s->limits->read_gbps : math_limit(s->limits, type);
    (void)snprintf(c.shape, sizeof c.shape, "%ux%u, %u of %u, %u token%s", sh.k, sh.n, EXPERTS_USED,
                   EXPERTS, rows, rows == 1 ? "" : "s");
    c.p.op.p.moe.n_used = EXPERTS_USED;
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, sh.k, rows, 1);
    ids = kernels_integers(&c.p, EXPERTS_USED, rows, 1, (int32_t)EXPERTS, 0);
    c.p.op.src[1] = ids;
    c.ids = ids->data;
    c.n_ids = c.ids != NULL ? EXPERTS_USED * rows : 0;
    c.n_expert = EXPERTS;
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, (uint64_t)EXPERTS_USED * sh.n, rows, 1);
    c.p.op.weight[0] = stack(&c, panels, sh, EXPERTS);
    return finish(s, &c);
}

/* As many output rows as stay in the second caches, a multiple of two panels per worker. */
static struct kernels_shape near_shape(const struct site *s, uint32_t type, struct kernels_shape sh)
{
    uint32_t step = 32 * (s->limits->n_threads > 0 ? s->limits->n_threads : 1);
    uint64_t row = atsi_row_bytes(type, sh.k);
    uint64_t n = row > 0 ? s->near_bytes / 2 / row / step * step : 0;
    if (n < step)
        n = step;
    return (struct kernels_shape){sh.k, n < sh.n ? (uint32_t)n : sh.n};
}

/* All of one weight type and layout. */
static int products(const struct site *s, uint32_t type, bool panels)
{
    int code = CLI_OK;
    bool all = s->plan->op == NULL;
    for (uint32_t i = 0; i < s->plan->n_shapes && (all || strcmp(s->plan->op, "matmul") == 0);
         i++) {
        struct kernels_shape sh = s->plan->shapes[i];
        if (sh.k % atsi_type_info(type)->block_elems != 0)
            continue;
        code = product(s, type, panels, sh, 1, true);
        if (code == CLI_OK)
            code = product(s, type, panels, near_shape(s, type, sh), 1, false);
        if (code == CLI_OK)
            code = product(s, type, panels, sh, PREFILL, false);
        if (code != CLI_OK)
            return code;
    }
    if (code == CLI_OK && (all || strcmp(s->plan->op, "matmul_id") == 0))
        code = experts(s, type, panels, 1);
    if (code == CLI_OK && (all || strcmp(s->plan->op, "matmul_id") == 0))
        code = experts(s, type, panels, PREFILL);
    return code;
}

/* ---------------------------------------------------------------- without weights */
static int attention(const struct site *s, uint32_t type, uint32_t rows, uint32_t n_kv)
{
    const struct atsi_tensor *k, *v;
    struct kernels_case c;
    begin(&c, "attn", ATSI_OP_ATTN, rows, s->plan->seed);
    c.type = type;
    c.typed = true;
    (void)snprintf(c.shape, sizeof c.shape, "%u/%u heads of %u, %u token%s of %u", HEADS, KV_HEADS,
                   HEAD_DIM, rows, rows == 1 ? "" : "s", n_kv);
    c.p.op.p.attn.n_head = HEADS;
    c.p.op.p.attn.n_head_kv = KV_HEADS;
    c.p.op.p.attn.head_dim_k = c.p.op.p.attn.head_dim_v = HEAD_DIM;
    c.p.op.p.attn.n_kv = n_kv;
    c.p.op.p.attn.scale = 1 / sqrtf((float)HEAD_DIM);
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS * HEAD_DIM, rows, 1);
    c.p.op.src[1] = kernels_tensor(&c.p, ATSI_TYPE_F32, KV_HEADS * HEAD_DIM, rows, 1);
    c.p.op.src[2] = kernels_tensor(&c.p, ATSI_TYPE_F32, KV_HEADS * HEAD_DIM, rows, 1);
    c.p.op.src[3] = kernels_integers(&c.p, 1, rows, 1, (int32_t)n_kv, (int32_t)(n_kv - rows));
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS * HEAD_DIM, rows, 1);
    k = kernels_tensor(&c.p, type, HEAD_DIM, (uint64_t)KV_HEADS * n_kv, 1);
    v = kernels_tensor(&c.p, type, HEAD_DIM, (uint64_t)KV_HEADS * n_kv, 1);
    c.p.kv = (struct atsi_kv){sizeof c.p.kv, type, type,    KV_HEADS, HEAD_DIM,
                              HEAD_DIM,      n_kv, k->data, v->data};
    c.p.op.kv = &c.p.kv;
    c.amount = (double)(kernels_bytes_of(k) + kernels_bytes_of(v));
    c.memory = c.amount > 2 * (double)s->cache_bytes ? "streaming" : "cache";
    c.limit = s->limits->read_gbps;
    if (rows > 1) { /* scores and values of what each row sees */
        c.amount = 2.0 * HEADS * HEAD_DIM * rows * (n_kv - rows / 2.0);
        c.unit = "GMAC/s";
        c.limit = s->limits->fma_gmacs;
    }
    return finish(s, &c);
}

/* Bytes read and written per run; all of it stays in a cache. */
static void small(struct kernels_case *c, uint32_t width, uint32_t rows)
{
    c->amount = 0;
    for (uint32_t i = 0; i < c->p.n; i++)
        c->amount += (double)kernels_bytes_of(&c->p.t[i]);
    (void)snprintf(c->shape, sizeof c->shape, "%u, %u token%s", width, rows, rows == 1 ? "" : "s");
}

static int norm(const struct site *s, uint32_t rows)
{
    struct kernels_case c;
    begin(&c, "rms_norm", ATSI_OP_RMS_NORM, rows, s->plan->seed);
    c.p.op.p.norm.eps = 1e-6F;
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, WIDTH, rows, 1);
    c.p.op.weight[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, WIDTH, 1, 1);
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, WIDTH, rows, 1);
    small(&c, WIDTH, rows);
    return finish(s, &c);
}

static int rope(const struct site *s, uint32_t rows)
{
    struct kernels_case c;
    begin(&c, "rope", ATSI_OP_ROPE, rows, s->plan->seed);
    c.p.op.p.rope.n_head = HEADS;
    c.p.op.p.rope.head_dim = c.p.op.p.rope.n_rot = HEAD_DIM;
    c.p.op.p.rope.mode = ATSI_ROPE_HALVES;
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS * HEAD_DIM, rows, 1);
    c.p.op.src[1] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEAD_DIM, rows, 1);
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS * HEAD_DIM, rows, 1);
    small(&c, HEADS * HEAD_DIM, rows);
    return finish(s, &c);
}

static int swiglu(const struct site *s, uint32_t rows)
{
    struct kernels_case c;
    begin(&c, "swiglu", ATSI_OP_SWIGLU, rows, s->plan->seed);
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, WIDTH, rows, 1);
    c.p.op.src[1] = kernels_tensor(&c.p, ATSI_TYPE_F32, WIDTH, rows, 1);
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, WIDTH, rows, 1);
    small(&c, WIDTH, rows);
    return finish(s, &c);
}

static int topk(const struct site *s, uint32_t rows)
{
    const uint32_t n = 128;
    struct kernels_case c;
    begin(&c, "topk", ATSI_OP_TOPK, rows, s->plan->seed);
    c.p.op.p.moe.n_used = EXPERTS_USED;
    c.p.op.p.moe.gating = ATSI_GATING_SOFTMAX;
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, n, rows, 1);
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_I32, EXPERTS_USED, rows, 1);
    c.p.op.dst[1] = kernels_tensor(&c.p, ATSI_TYPE_F32, EXPERTS_USED, rows, 1);
    small(&c, n, rows);
    return finish(s, &c);
}

static int delta(const struct site *s, uint32_t rows)
{
    const uint32_t n_k = 16, d = HEAD_DIM;
    const struct atsi_tensor *rate;
    struct kernels_case c;
    begin(&c, "delta_net", ATSI_OP_DELTA_NET, rows, s->plan->seed);
    rate = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS, 1, 1);
    for (uint32_t h = 0; rate->data != NULL && h < HEADS; h++)
        ((float *)rate->data)[h] = -0.1F * (float)(h + 1);
    c.p.op.p.delta.n_head_k = n_k;
    c.p.op.p.delta.n_head_v = c.p.op.p.delta.run = HEADS;
    c.p.op.p.delta.dim_k = c.p.op.p.delta.dim_v = d;
    c.p.op.p.delta.alpha_offset = HEADS;
    c.p.op.p.delta.eps = 1e-6F;
    c.p.op.src[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, (2 * n_k + HEADS) * d, rows, 1);
    c.p.op.src[1] = c.p.op.src[2] = kernels_tensor(&c.p, ATSI_TYPE_F32, 2 * HEADS, rows, 1);
    c.p.op.weight[0] = rate;
    c.p.op.weight[1] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS, 1, 1);
    c.p.op.dst[0] = kernels_tensor(&c.p, ATSI_TYPE_F32, HEADS * d, rows, 1);
    kernels_state(&c.p, d, d, HEADS);
    c.amount = 3.0 * HEADS * d * d * rows; /* S^T k, S += k d^T, S^T q */
    c.unit = "GMAC/s";
    c.limit = s->limits->fma_gmacs;
    (void)snprintf(c.shape, sizeof c.shape, "%u heads of %u, %u token%s", HEADS, d, rows,
                   rows == 1 ? "" : "s");
    return finish(s, &c);
}

static int attention_all(const struct site *s, uint32_t rows)
{
    int code = attention(s, ATSI_TYPE_F16, rows, rows == 1 ? 16384 : 4096);
    return code == CLI_OK ? attention(s, ATSI_TYPE_Q8_0, rows, rows == 1 ? 16384 : 4096) : code;
}

static const struct {
    const char *op;
    int (*run)(const struct site *s, uint32_t rows);
} untyped[] = {
    {"attn", attention_all}, {"rms_norm", norm}, {"rope", rope},
    {"swiglu", swiglu},      {"topk", topk},     {"delta_net", delta},
};
#define N_UNTYPED (sizeof untyped / sizeof untyped[0])

bool kernels_case_known(const char *op)
{
    for (size_t i = 0; i < N_UNTYPED; i++)
        if (strcmp(op, untyped[i].op) == 0)
            return true;
    return strcmp(op, "matmul") == 0 || strcmp(op, "matmul_id") == 0;
}

int kernels_cases_each(const struct kernels_plan *plan, const struct kernels_table *limits,
                       size_t cache_bytes, size_t near_bytes, kernels_case_fn *fn, void *ctx)
{
    const struct site s = {plan, limits, cache_bytes, near_bytes, fn, ctx};
    int code = CLI_OK;
    for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
        for (int panels = 0; panels < 2 && plan->type[type] && code == CLI_OK; panels++)
            if (plan->layout == NULL || (strcmp(plan->layout, "panels") == 0) == (panels == 1))
                code = products(&s, type, panels == 1);
    for (size_t i = 0; i < N_UNTYPED && !plan->typed_only && code == CLI_OK; i++) {
        if (plan->op != NULL && strcmp(plan->op, untyped[i].op) != 0)
            continue;
        code = untyped[i].run(&s, 1);
        if (code == CLI_OK)
            code = untyped[i].run(&s, PREFILL);
    }
    return code;
}
