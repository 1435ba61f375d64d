/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the delta rule: one call, a call per row and calls of any lengths, all against the
 * recurrence in double.
 *
 * A column s of the state goes s := e^g s, d = beta (v - s.k), s := s + k d, and with |k| = 1,
 * 0 <= beta <= 1 and g <= 0 no step makes an error of s longer.  So errors add up, weakened by the
 * decay.  Of row t they are, with C the rows of a call, n = dk + C + 16, and all norms those of the
 * exact recurrence:
 *   W_t = e^g W_(t-1) + |d_t|, W_0 = |s_0|: what sums over keys, or over the rows of a chunk with
 *         their weights e^(G_t - G_i), G the running sum of g, are made of; a product with k or q
 *         and a sum over the chunk round n u of it,
 *   X_t = e^g (X_(t-1) + |g| W_(t-1)): each weight's share, as its argument rounds to
 *         |G_t - G_i| u.  G itself has to be good to that, which f32 is not when long and short
 *         decays mix,
 *   F_t = e^-87 (|s_0| + sum of |d|): weights that underflow,
 *   E_t = e^g E_(t-1) + u (n (W_t + |v_t|) + X_t) + F_t + (2 n) 2^-149
 * and the result is wrong by E_t + u (n W_t + X_t) + F_t, times the scale.  Where keys and queries
 * are unit vectors, sums over keys are exact and n = C + 16.
 */
#include "ck.h"

#include <math.h>
#include <string.h>

#define MAX_DIM 1024u

enum delta_kind {
    DELTA_RANDOM,
    DELTA_KEEP,     /* no decay, beta 1 */
    DELTA_FORGET,   /* every row forgets all before it */
    DELTA_MIXED,    /* long and short decays, beta 0 and 1 */
    DELTA_SAME_KEY, /* each row replaces what the one before stored */
    DELTA_UNIT,     /* the same with unit vectors as keys: tight bounds */
    DELTA_HUGE,
    DELTA_TINY, /* subnormal numbers */
    N_DELTA_KINDS
};
static const char *const kind_name[N_DELTA_KINDS] = {
    "random",  "no decay",     "full decay", "decays of all sizes",
    "one key", "unit vectors", "huge",       "subnormal"};

enum calls { ONE_CALL, EACH_ROW, ANY_ROWS };
static const char *const calls_name[] = {"one call", "a call per row", "calls of any length"};

struct delta_case {
    const struct cpu_kernels *k;
    uint32_t dk, dv, rows;
    enum delta_kind kind;
    enum calls calls;
};

/* Rows of v and out lie `stride` apart, the kernel's part at their end. */
struct delta_memory {
    size_t stride;
    uint32_t most_rows; /* of a call */
    struct ck_mem q, k, v, log_decay, beta, s, before, out, scratch;
};

static float *f32_of(const struct ck_mem *m)
{
    return (float *)(void *)m->data;
}

static float *part_of(const struct ck_mem *m, const struct delta_case *o,
                      const struct delta_memory *v, size_t t)
{
    return f32_of(m) + t * v->stride + (v->stride - o->dv);
}

/* ---------------------------------------------------------------- data */
static void unit_row(struct ck *c, const struct delta_case *o, float *x)
{
    double sum = 0;
    if (o->kind == DELTA_UNIT) { /* few different ones, so that they meet again */
        memset(x, 0, o->dk * sizeof *x);
        x[ck_random(c) % (o->dk < 7 ? o->dk : 7)] = ck_random(c) % 2 == 0 ? 1.0F : -1.0F;
        return;
    }
    for (uint32_t i = 0; i < o->dk; i++) {
        x[i] = ck_unit(c) + 1e-3F;
        sum += (double)x[i] * (double)x[i];
    }
    for (uint32_t i = 0; i < o->dk; i++)
        x[i] = (float)((double)x[i] / sqrt(sum));
}

static float decay_of(struct ck *c, enum delta_kind kind)
{
    static const float mixed[] = {0.0F, -1e-3F, -0.7F, -20.0F, -80.0F, -128.0F};
    switch (kind) {
    case DELTA_KEEP:
        return 0;
    case DELTA_FORGET:
        return -80.0F;
    case DELTA_MIXED:
    case DELTA_UNIT:
        return mixed[ck_random(c) % 3 + (ck_random(c) % 3 == 0 ? 3 : 0)];
    default:
        return -fabsf(ck_unit(c)) * 2;
    }
}

static float beta_of(struct ck *c, enum delta_kind kind)
{
    static const float ends[] = {0.0F, 1.0F, 0.5F};
    if (kind == DELTA_KEEP || kind == DELTA_SAME_KEY)
        return 1;
    return kind == DELTA_MIXED || kind == DELTA_UNIT ? ends[ck_random(c) % 3] : fabsf(ck_unit(c));
}

static void delta_fill(struct ck *c, const struct delta_case *o, struct delta_memory *m)
{
    float size = o->kind == DELTA_HUGE ? 1e30F : o->kind == DELTA_TINY ? 1e-41F : 1;
    bool from_zero = o->rows % 2 == 0;
    for (size_t t = 0; t < o->rows; t++) {
        unit_row(c, o, f32_of(&m->q) + t * o->dk);
        unit_row(c, o, f32_of(&m->k) + t * o->dk);
        if (o->kind == DELTA_SAME_KEY && t > 0)
            memcpy(f32_of(&m->k) + t * o->dk, f32_of(&m->k), o->dk * sizeof(float));
        for (uint32_t j = 0; j < o->dv; j++)
            part_of(&m->v, o, m, t)[j] = ck_unit(c) * size;
        f32_of(&m->log_decay)[t] = decay_of(c, o->kind);
        f32_of(&m->beta)[t] = beta_of(c, o->kind);
    }
    for (size_t i = 0; i < (size_t)o->dk * o->dv; i++)
        f32_of(&m->s)[i] = from_zero ? 0.0F : ck_unit(c) * size;
    memcpy(m->before.data, m->s.data, m->s.bytes);
    ck_mem_seal(&m->q);
    ck_mem_seal(&m->k);
    ck_mem_seal(&m->v);
    ck_mem_seal(&m->log_decay);
    ck_mem_seal(&m->beta);
}

static struct delta_memory delta_open(struct ck *c, const struct delta_case *o)
{
    size_t stride = o->dv + 3, wide = o->rows * stride * sizeof(float);
    size_t keys = (size_t)o->rows * o->dk * sizeof(float), row = o->rows * sizeof(float);
    size_t state = (size_t)o->dk * o->dv * sizeof(float);
    struct delta_memory m = {stride,
                             1,
                             ck_mem_open(keys, 4),
                             ck_mem_open(keys, 4),
                             ck_mem_open(wide, 4),
                             ck_mem_open(row, 4),
                             ck_mem_open(row, 4),
                             ck_mem_open(state, 4),
                             ck_mem_open(state, 4),
                             ck_mem_open(wide, 4),
                             ck_mem_open(CPU_DELTA_SCRATCH(o->dk, o->dv) * sizeof(float), 64)};
    delta_fill(c, o, &m);
    return m;
}

static void delta_close(struct ck *c, struct delta_memory *m)
{
    struct ck_mem *inputs[] = {&m->q, &m->k, &m->v, &m->log_decay, &m->beta};
    static const char *const name[] = {"queries", "keys", "values", "decays", "betas"};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        ck_mem_check(c, inputs[i], name[i]);
        ck_mem_close(inputs[i]);
    }
    ck_mem_around(c, &m->s, "state");
    ck_mem_around(c, &m->out, "out");
    ck_mem_around(c, &m->scratch, "scratch");
    ck_mem_close(&m->s);
    ck_mem_close(&m->before);
    ck_mem_close(&m->out);
    ck_mem_close(&m->scratch);
}

/* ---------------------------------------------------------------- running and comparing */
static void delta_calls(struct ck *c, const struct delta_case *o, struct delta_memory *m)
{
    struct cpu_delta_args a = {.dk = o->dk,
                               .dv = o->dv,
                               .scale = (float)(1 / sqrt((double)o->dk)),
                               .v_stride = m->stride,
                               .out_stride = m->stride,
                               .s = f32_of(&m->s),
                               .scratch = f32_of(&m->scratch)};
    for (uint32_t t = 0; t < o->rows; t += a.n_tok) {
        uint32_t n = o->calls == ONE_CALL   ? CPU_DELTA_ROWS
                     : o->calls == EACH_ROW ? 1
                                            : 1 + (uint32_t)(ck_random(c) % CPU_DELTA_ROWS);
        a.n_tok = o->rows - t < n ? o->rows - t : n;
        m->most_rows = a.n_tok > m->most_rows ? a.n_tok : m->most_rows;
        a.q = f32_of(&m->q) + (size_t)t * o->dk;
        a.k = f32_of(&m->k) + (size_t)t * o->dk;
        a.v = part_of(&m->v, o, m, t);
        a.out = part_of(&m->out, o, m, t);
        a.log_decay = f32_of(&m->log_decay) + t;
        a.beta = f32_of(&m->beta) + t;
        o->k->delta(&a);
    }
}

/* The exact recurrence of one column, and the bounds on its errors. */
struct column {
    double s[MAX_DIM], n;
    double w, x, f, e, total; /* total: |s_0| + sum of |d| */
};

static void column_start(const struct delta_case *o, const struct delta_memory *m, uint32_t j,
                         struct column *col)
{
    double sum = 0;
    for (uint32_t i = 0; i < o->dk; i++) {
        col->s[i] = (double)f32_of(&m->before)[(size_t)i * o->dv + j];
        sum += col->s[i] * col->s[i];
    }
    col->w = col->total = sqrt(sum);
    col->x = col->e = 0;
    col->n = m->most_rows + 16.0 + (o->kind == DELTA_UNIT ? 0 : o->dk);
}

/* Row t; returns the exact result. */
static double column_step(const struct delta_case *o, const struct delta_memory *m, size_t t,
                          uint32_t j, struct column *col)
{
    const float *q = f32_of(&m->q) + t * o->dk, *k = f32_of(&m->k) + t * o->dk;
    double g = (double)f32_of(&m->log_decay)[t], decay = exp(g), dot = 0, out = 0, d;
    double v = (double)part_of(&m->v, o, m, t)[j];
    for (uint32_t i = 0; i < o->dk; i++) {
        col->s[i] *= decay;
        dot += col->s[i] * (double)k[i];
    }
    d = (double)f32_of(&m->beta)[t] * (v - dot);
    for (uint32_t i = 0; i < o->dk; i++) {
        col->s[i] += (double)k[i] * d;
        out += col->s[i] * (double)q[i];
    }
    col->x = decay * (col->x + fabs(g) * col->w);
    col->w = decay * col->w + fabs(d);
    col->total += fabs(d);
    col->f = exp(-87.0) * col->total;
    col->e = decay * col->e + CK_U * (col->n * (col->w + fabs(v)) + col->x) + col->f +
             2 * col->n * CK_TINY;
    return out / sqrt((double)o->dk);
}

static void check_column(struct ck *c, const struct delta_case *o, const struct delta_memory *m,
                         uint32_t j, struct column *col)
{
    double scale = 1 / sqrt((double)o->dk);
    column_start(o, m, j, col);
    for (size_t t = 0; t < o->rows; t++) {
        double want = column_step(o, m, t, j, col);
        double wrong = col->e + CK_U * (col->n * col->w + col->x) + col->f;
        ck_near(c, t, j, part_of(&m->out, o, m, t)[j], want, scale * wrong + 2 * col->n * CK_TINY);
    }
    for (uint32_t i = 0; i < o->dk; i++)
        ck_near(c, o->rows + (size_t)i, j, f32_of(&m->s)[(size_t)i * o->dv + j], col->s[i], col->e);
}

static void check_gaps(struct ck *c, const struct delta_case *o, const struct delta_memory *m)
{
    for (size_t t = 0; t < o->rows; t++)
        for (size_t i = 0; i < m->stride - o->dv; i++)
            if (!ck_untouched(f32_of(&m->out) + t * m->stride + i)) {
                ck_fail(c, "wrote out [%zu] of another head", t);
                return;
            }
}

static void delta_case(struct ck *c, const void *arg)
{
    const struct delta_case *o = arg;
    struct delta_memory m = delta_open(c, o);
    struct column col = {.n = 0};
    delta_calls(c, o, &m);
    for (uint32_t j = 0; j < o->dv; j++)
        check_column(c, o, &m, j, &col);
    check_gaps(c, o, &m);
    delta_close(c, &m);
}

static void one_case(struct ck *c, const struct delta_case *o)
{
    ck_case(c, "delta dk=%u dv=%u rows=%u, %s, %s (state: elements from [%u])", o->dk, o->dv,
            o->rows, kind_name[o->kind], calls_name[o->calls], o->rows);
    ck_guarded(c, delta_case, o);
}

void ck_delta(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t dims[][2] = {{128, 128}, {64, 64}, {16, 16},  {1, 1},
                                       {3, 5},     {20, 33}, {33, 17},  {96, 40},
                                       {128, 1},   {1, 130}, {1024, 3}, {5, 1024}};
    static const uint32_t rows[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64};
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (uint32_t kind = 0; kind < N_DELTA_KINDS; kind++) {
            struct delta_case o = {k, dims[d][0], dims[d][1], 0, (enum delta_kind)kind, ONE_CALL};
            for (size_t r = kind % 2; r < sizeof rows / sizeof rows[0]; r += d < 3 ? 1 : 2) {
                o.rows = rows[r];
                one_case(c, &o);
            }
            o.rows = 40 + kind;
            o.calls = EACH_ROW;
            one_case(c, &o);
            o.rows = 150 + kind;
            o.calls = ANY_ROWS;
            one_case(c, &o);
        }
}
