/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer kernels --check`: every operation of a backend on small tensors, against the reference
 * backend.  tests/checkkern is the thorough check of every kernel, with bounds per element; this
 * one is for users, on their machine, through the same interface that models use.  Weights are
 * tried in both layouts.
 */
#include "cli/kernels_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEADS 6u
#define KV_HEADS 2u
#define USED 3u
#define EXPERTS 5u
#define CELLS 40u
#define TAPS 4u

/* ---------------------------------------------------------------- the operations */
static void build_matmul(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    uint32_t out = 16 * rows % 67 + 13;
    p->op.src[0] = kernels_tensor(p, ATSI_TYPE_F32, k, rows, 1);
    p->op.weight[0] = kernels_tensor(p, type, k, out, 1);
    p->op.weight[1] = kernels_tensor(p, ATSI_TYPE_F32, out, 1, 1);
    p->op.dst[0] = kernels_tensor(p, ATSI_TYPE_F32, out, rows, 1);
}

static void build_exact(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    build_matmul(p, type, k, rows);
    p->op.flags = ATSI_OP_EXACT;
}

static void build_experts(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.moe.n_used = USED;
    p->op.src[0] = kernels_tensor(p, ATSI_TYPE_F32, k, rows, 1);
    p->op.src[1] = kernels_integers(p, USED, rows, 7, EXPERTS, 0);
    p->op.weight[0] = kernels_tensor(p, type, k, 33, EXPERTS);
    p->op.dst[0] = kernels_tensor(p, ATSI_TYPE_F32, (uint64_t)USED * 33, rows, 1);
}

static void build_embed(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.src[0] = kernels_integers(p, 1, rows, 5, 17, 0);
    p->op.weight[0] = kernels_tensor(p, type, k, 17, 1);
    p->op.dst[0] = kernels_tensor(p, ATSI_TYPE_F32, k, rows, 1);
}

static void build_matmul_packed(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    build_matmul(p, type, k, rows);
    p->op.weight[0] = kernels_packed(p, p->op.weight[0]);
}

static void build_exact_packed(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    build_exact(p, type, k, rows);
    p->op.weight[0] = kernels_packed(p, p->op.weight[0]);
}

static void build_experts_packed(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    build_experts(p, type, k, rows);
    p->op.weight[0] = kernels_packed(p, p->op.weight[0]);
}

static void build_embed_packed(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    build_embed(p, type, k, rows);
    p->op.weight[0] = kernels_packed(p, p->op.weight[0]);
}

static void build_norm(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.norm.eps = 1e-5F;
    p->op.src[0] = kernels_tensor(p, type, k + 1, rows, 1);
    p->op.weight[0] = kernels_tensor(p, type, k + 1, 1, 1);
    p->op.dst[0] = kernels_tensor(p, type, k + 1, rows, 1);
}

/* Parts of a row with other things between them. */
static void build_norm_parts(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.norm.eps = 1e-6F;
    p->op.p.norm.stride = k / 2;
    p->op.src[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 2), rows, 1);
    p->op.weight[0] = kernels_tensor(p, type, k / 4, 1, 1);
    p->op.dst[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 4), rows, 1);
}

static void build_rope(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.rope.n_head = HEADS;
    p->op.p.rope.head_dim = k / 4;
    p->op.p.rope.n_rot = k / 4 - 6;
    p->op.p.rope.mode = rows % 2 == 0 ? ATSI_ROPE_PAIRS : ATSI_ROPE_HALVES;
    p->op.src[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 4), rows, 1);
    p->op.src[1] = kernels_tensor(p, type, k / 4 - 6, rows, 1);
    p->op.dst[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 4), rows, 1);
}

static void build_rope_table(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.rope.magnitude = 1;
    p->op.src[0] = kernels_integers(p, 1, rows, 100003, 1000000, 0);
    p->op.weight[0] = kernels_tensor(p, type, k / 8, 1, 1);
    p->op.dst[0] = kernels_tensor(p, type, k / 4, rows, 1);
}

/* The last `rows` of n_kv positions, over a cache of CELLS that holds random numbers. */
static void attention(struct kernels_probe *p, uint32_t cache, uint32_t dim, uint32_t rows,
                      uint32_t n_kv)
{
    const struct atsi_tensor *keys, *values;
    p->op.p.attn.n_head = HEADS;
    p->op.p.attn.n_head_kv = KV_HEADS;
    p->op.p.attn.head_dim_k = p->op.p.attn.head_dim_v = dim;
    p->op.p.attn.n_kv = n_kv;
    p->op.p.attn.scale = 1 / sqrtf((float)dim);
    p->op.src[0] = kernels_tensor(p, ATSI_TYPE_F32, (uint64_t)HEADS * dim, rows, 1);
    p->op.src[1] = kernels_tensor(p, ATSI_TYPE_F32, (uint64_t)KV_HEADS * dim, rows, 1);
    p->op.src[2] = kernels_tensor(p, ATSI_TYPE_F32, (uint64_t)KV_HEADS * dim, rows, 1);
    p->op.src[3] = kernels_integers(p, 1, rows, 1, (int32_t)CELLS, (int32_t)(n_kv - rows));
    p->op.dst[0] = kernels_tensor(p, ATSI_TYPE_F32, (uint64_t)HEADS * dim, rows, 1);
    keys = kernels_tensor(p, cache, dim, (uint64_t)KV_HEADS * CELLS, 1);
    values = kernels_tensor(p, cache, dim, (uint64_t)KV_HEADS * CELLS, 1);
    p->kv = (struct atsi_kv){sizeof p->kv, cache, cache,      KV_HEADS,    dim,
                             dim,          CELLS, keys->data, values->data};
    p->op.kv = &p->kv;
}

static void build_attn(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    (void)type;
    attention(p, rows % 2 == 0 ? ATSI_TYPE_F32 : ATSI_TYPE_F16, k / 4, rows, CELLS);
}

static void build_attn_q8_0(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    (void)type;
    attention(p, ATSI_TYPE_Q8_0, k / 4, rows, CELLS);
}

/* Sinks, and a window over a ring that begins anew inside it. */
static void build_attn_window(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    attention(p, ATSI_TYPE_F16, k / 4, rows, 2 * CELLS + 7);
    p->op.p.attn.window = CELLS + 1 - rows;
    p->op.weight[0] = kernels_tensor(p, type, HEADS, 1, 1);
}

static void build_pair(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.src[0] = kernels_tensor(p, type, k + 5, rows, 1);
    p->op.src[1] = kernels_tensor(p, type, k + 5, rows, 1);
    p->op.dst[0] = kernels_tensor(p, type, k + 5, rows, 1);
}

/* Gate and up one behind the other, for each of USED experts. */
static void build_clamped(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.glu.kind = ATSI_GLU_CLAMPED;
    p->op.p.glu.n_group = USED;
    p->op.p.glu.alpha = 1.702F;
    p->op.p.glu.limit = 0.7F;
    p->op.src[0] = kernels_tensor(p, type, 2 * (uint64_t)USED * (k + 5), rows, 1);
    p->op.dst[0] = kernels_tensor(p, type, (uint64_t)USED * (k + 5), rows, 1);
}

static void build_gate(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.gate.scalar = rows % 2;
    p->op.p.gate.run = k / 4;
    p->op.p.gate.stride = k / 2;
    p->op.p.gate.offset = k / 4;
    p->op.src[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 4), rows, 1);
    p->op.src[1] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 2), rows, 1);
    p->op.dst[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k / 4), rows, 1);
}

static void build_regroup(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.regroup.n_group = HEADS;
    p->op.p.regroup.stride = k;
    p->op.p.regroup.n_seg = 2;
    p->op.p.regroup.offset[0] = k / 2;
    p->op.p.regroup.len[0] = k / 2;
    p->op.p.regroup.len[1] = k / 2 - 3;
    p->op.src[0] = kernels_tensor(p, type, (uint64_t)HEADS * k, rows, 1);
    p->op.dst[0] = kernels_tensor(p, type, (uint64_t)HEADS * (k - 3), rows, 1);
}

static void build_conv(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.src[0] = kernels_tensor(p, type, k + 5, rows, 1);
    p->op.weight[0] = kernels_tensor(p, type, TAPS, k + 5, 1);
    p->op.dst[0] = kernels_tensor(p, type, k + 5, rows, 1);
    kernels_state(p, k + 5, TAPS - 1, 1);
}

static void build_delta(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    uint32_t dk = k / 4, dv = k / 4 - 3;
    const struct atsi_tensor *rate = kernels_tensor(p, type, HEADS, 1, 1);
    p->op.p.delta.n_head_k = KV_HEADS;
    p->op.p.delta.n_head_v = p->op.p.delta.run = HEADS;
    p->op.p.delta.dim_k = dk;
    p->op.p.delta.dim_v = dv;
    p->op.p.delta.tiled = rows % 2;
    p->op.p.delta.alpha_offset = HEADS;
    p->op.p.delta.eps = 1e-6F;
    p->op.src[0] =
        kernels_tensor(p, type, 2 * (uint64_t)KV_HEADS * dk + (uint64_t)HEADS * dv, rows, 1);
    p->op.src[1] = p->op.src[2] = kernels_tensor(p, type, 2 * (uint64_t)HEADS, rows, 1);
    for (uint32_t h = 0; rate->data != NULL && h < HEADS; h++)
        ((float *)rate->data)[h] = -0.1F * (float)(h + 1);
    p->op.weight[0] = rate;
    p->op.weight[1] = kernels_tensor(p, type, HEADS, 1, 1);
    p->op.dst[0] = kernels_tensor(p, type, (uint64_t)HEADS * dv, rows, 1);
    kernels_state(p, dv, dk, HEADS);
}

static void build_topk(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.moe.n_used = USED;
    p->op.p.moe.gating = rows % 3; /* every kind */
    p->op.src[0] = kernels_tensor(p, type, k / 2 + 3, rows, 1);
    p->op.dst[0] = kernels_tensor(p, ATSI_TYPE_I32, USED, rows, 1);
    p->op.dst[1] = kernels_tensor(p, type, USED, rows, 1);
}

/* The largest of a vocabulary. */
static void build_top_logits(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    uint32_t used = rows == 1 ? 1 : k / 8;
    p->op.p.moe.n_used = used;
    p->op.p.moe.gating = ATSI_GATING_NONE;
    p->op.src[0] = kernels_tensor(p, type, (uint64_t)8 * k + 8003, rows, 1);
    p->op.dst[0] = kernels_tensor(p, ATSI_TYPE_I32, used, rows, 1);
    p->op.dst[1] = kernels_tensor(p, type, used, rows, 1);
}

static void build_moe_sum(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows)
{
    p->op.p.moe.n_used = USED;
    p->op.src[0] = kernels_tensor(p, type, (uint64_t)USED * (k + 3), rows, 1);
    p->op.src[1] = kernels_tensor(p, type, USED, rows, 1);
    p->op.dst[0] = kernels_tensor(p, type, k + 3, rows, 1);
}

/* limit: largest difference allowed, in units of the result's rms.  Products differ by the order of
 * their f32 additions, the others by single roundings; copies of numbers must be equal. */
static const struct check {
    const char *op;
    uint32_t kind;
    bool typed; /* for each weight type */
    double limit;
    void (*build)(struct kernels_probe *p, uint32_t type, uint32_t k, uint32_t rows);
} checks[] = {
    {"matmul", ATSI_OP_MATMUL, true, 1e-4, build_matmul},
    {"matmul_exact", ATSI_OP_MATMUL, true, 1e-4, build_exact},
    {"matmul_id", ATSI_OP_MATMUL_ID, true, 1e-4, build_experts},
    {"embed", ATSI_OP_EMBED, true, 0, build_embed},
    {"matmul_panel", ATSI_OP_MATMUL, true, 1e-4, build_matmul_packed},
    {"exact_panel", ATSI_OP_MATMUL, true, 1e-4, build_exact_packed},
    {"id_panel", ATSI_OP_MATMUL_ID, true, 1e-4, build_experts_packed},
    {"embed_panel", ATSI_OP_EMBED, true, 0, build_embed_packed},
    {"rms_norm", ATSI_OP_RMS_NORM, false, 1e-5, build_norm},
    {"norm_parts", ATSI_OP_RMS_NORM, false, 1e-5, build_norm_parts},
    {"rope_table", ATSI_OP_ROPE_TABLE, false, 1e-5, build_rope_table},
    {"rope", ATSI_OP_ROPE, false, 1e-5, build_rope},
    {"attn", ATSI_OP_ATTN, false, 1e-4, build_attn},
    {"attn_q8_0", ATSI_OP_ATTN, false, 1e-4, build_attn_q8_0},
    {"attn_window", ATSI_OP_ATTN, false, 1e-4, build_attn_window},
    {"swiglu", ATSI_OP_SWIGLU, false, 1e-5, build_pair},
    {"clamped", ATSI_OP_SWIGLU, false, 1e-5, build_clamped},
    {"gate", ATSI_OP_GATE, false, 1e-5, build_gate},
    {"regroup", ATSI_OP_REGROUP, false, 0, build_regroup},
    {"add", ATSI_OP_ADD, false, 0, build_pair},
    {"topk", ATSI_OP_TOPK, false, 1e-5, build_topk},
    {"top_logits", ATSI_OP_TOPK, false, 0, build_top_logits},
    {"moe_sum", ATSI_OP_MOE_SUM, false, 1e-5, build_moe_sum},
    {"conv", ATSI_OP_CONV, false, 1e-5, build_conv},
    {"delta_net", ATSI_OP_DELTA_NET, false, 1e-4, build_delta},
};
#define N_CHECKS (sizeof checks / sizeof checks[0])

/* ---------------------------------------------------------------- comparing */
/* Largest difference over the rms of the reference; infinite when a number is missing or NaN. */
static double difference(const struct atsi_tensor *got, const void *want)
{
    size_t n = kernels_bytes_of(got) / 4;
    double worst = 0, sq = 0;
    if (got->type == ATSI_TYPE_I32)
        return memcmp(got->data, want, n * 4) == 0 ? 0 : (double)INFINITY;
    for (size_t i = 0; i < n; i++) {
        double a = (double)((const float *)got->data)[i], b = (double)((const float *)want)[i];
        if (!(fabs(a - b) <= worst))
            worst = isnan(a - b) ? (double)INFINITY : fabs(a - b);
        sq += b * b;
    }
    return worst > 0 ? worst / sqrt(sq / (double)n + 1e-30) : 0;
}

#define N_OUTPUTS 3

/* The results, and the state; NULL: the op has none. */
static const struct atsi_tensor *output(const struct kernels_probe *p, int i)
{
    return i < 2 ? p->op.dst[i] : p->op.state;
}

static int run_probe(struct kernels_backend *b, const struct kernels_probe *p, struct atsi_err *err)
{
    const struct atsi_op *op = &p->op;
    for (int i = 0; i < 2; i++)
        if (op->dst[i] != NULL) /* NaN: what is not written shows */
            memset(op->dst[i]->data, 0xff, kernels_bytes_of(op->dst[i]));
    if (op->state != NULL)
        memcpy(op->state->data, p->state_start, kernels_bytes_of(op->state));
    return kernels_run(b, op, err);
}

/* The op on both backends. */
static int compare(struct kernels_backend *b, struct kernels_backend *ref,
                   const struct kernels_probe *p, double *worst, struct atsi_err *err)
{
    void *want[N_OUTPUTS] = {NULL};
    int rc = run_probe(ref, p, err);
    for (int i = 0; i < N_OUTPUTS && rc == ATSI_OK; i++) {
        const struct atsi_tensor *out = output(p, i);
        if (out == NULL)
            continue;
        want[i] = malloc(kernels_bytes_of(out));
        if (want[i] == NULL)
            rc = atsi_fail(err, ATSI_ENOMEM, "out of memory");
        else
            memcpy(want[i], out->data, kernels_bytes_of(out));
    }
    if (rc == ATSI_OK)
        rc = run_probe(b, p, err);
    for (int i = 0; i < N_OUTPUTS; i++) {
        if (rc == ATSI_OK && want[i] != NULL)
            *worst = fmax(*worst, difference(output(p, i), want[i]));
        free(want[i]);
    }
    return rc;
}

/* All shapes of one operation; 1 in *n_out for each that was compared. */
static int check_one(struct kernels_backend *b, struct kernels_backend *ref, const struct check *c,
                     uint32_t type, uint64_t seed, double *worst, uint32_t *n_out)
{
    static const uint32_t ks[] = {256, 512, 768, 2304}, rows[] = {1, 2, 3, 16, 37};
    struct atsi_err err = ATSI_ERR_INIT;
    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++) {
            struct kernels_probe p = {.op = {.struct_size = sizeof p.op, .kind = c->kind},
                                      .random = seed};
            int rc;
            p.op.n_rows = rows[j];
            c->build(&p, type, ks[i], rows[j]);
            if (p.out_of_memory)
                rc = atsi_fail(&err, ATSI_ENOMEM, "out of memory");
            else if (b->ops->supports(b->be, &p.op) != 1)
                rc = ATSI_OK; /* the core gives such work to another backend */
            else
                rc = compare(b, ref, &p, worst, &err);
            *n_out += rc == ATSI_OK && b->ops->supports(b->be, &p.op) == 1 ? 1 : 0;
            kernels_probe_close(&p);
            if (rc != ATSI_OK)
                return cli_fail_status(rc, &err);
        }
    return CLI_OK;
}

static bool print_result(const struct kernels_backend *b, const struct check *c, uint32_t type,
                         double worst, uint32_t n)
{
    const char *name = c->typed ? atsi_type_info(type)->name : "";
    bool good = worst <= c->limit;
    if (n == 0)
        (void)printf("%-12s %-13s %-7s not supported\n", b->name, c->op, name);
    else
        (void)printf(
            "%-12s %-13s %-7s %3u shapes, largest difference %.1e of rms (limit %.0e)  %s\n",
            b->name, c->op, name, n, worst, c->limit, good ? "ok" : "WRONG");
    (void)fflush(stdout);
    return good;
}

bool kernels_check_known(const char *op)
{
    for (size_t i = 0; i < N_CHECKS; i++)
        if (strcmp(op, checks[i].op) == 0)
            return true;
    return false;
}

int kernels_check(struct kernels_backend *b, struct kernels_backend *ref,
                  const struct kernels_wanted *wanted, bool *wrong)
{
    for (size_t i = 0; i < N_CHECKS; i++) {
        const struct check *c = &checks[i];
        if (wanted->op != NULL && strcmp(wanted->op, c->op) != 0)
            continue;
        for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++) {
            double worst = 0;
            uint32_t n = 0;
            int code;
            if (c->typed ? !wanted->type[type] : type != ATSI_TYPE_F32 || wanted->typed_only)
                continue;
            if (cli_interrupted != 0)
                return CLI_INTERRUPTED;
            code = check_one(b, ref, c, type, wanted->seed, &worst, &n);
            if (code != CLI_OK)
                return code;
            if (!print_result(b, c, type, worst, n))
                *wrong = true;
        }
    }
    return CLI_OK;
}
