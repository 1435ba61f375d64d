/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of attention.  To first order, with s the exact scores (the sink is one more, exact) and p
 * the exact weights of a query head:
 *   a score is wrong by   es = (dk + 3) u |scale| max sum|q k|     (dot product, then the scale)
 *   exp(s - max) by       ew = es + 2 u max|s| + 4 u               (its argument; exp within 2 ulp)
 *   a weight by           2 ew + (n_kv + 3) u                      (its own and the sum's error)
 *   the result by         (2 ew + (4 n_kv + 18) u) sum p |v|       (the value sum; another n_kv u
 *                                                                  each for a maximum per chunk)
 * and by n_kv e^-87 max|v| where exp underflows.
 */
#include "attn_walk.h"
#include "ck.h"

#include <math.h>
#include <string.h>

#define MAX_CELLS 511

enum sink { NO_SINK, SINK_BELOW, SINK_AMONG, SINK_ABOVE, N_SINKS };
static const char *const sink_name[N_SINKS] = {"no sink", "sinks below", "sinks", "sinks above"};

struct attn_case {
    const struct cpu_kernels *k;
    uint32_t n_tok, n_q, dk, dv, n_kv, n_first, type_k, type_v;
    uint32_t start, window; /* start: position of the first cell */
    float stretch; /* of queries: how peaked the weights are; < 0: every score far below zero */
    enum sink sink;
};

/* The cache's rows one after the other, and as they lie in a ring. */
struct attn_memory {
    struct ck_mem q, sink, k, v, part[4], out, score; /* part: k, v, k2, v2 */
};

static double cache_at(uint32_t type, const unsigned char *rows, size_t i)
{
    struct atsi_block_q8_0 b;
    uint16_t h;
    float f;
    switch (type) {
    case ATSI_TYPE_Q8_0: /* rows are whole blocks, so they follow without gap */
        memcpy(&b, rows + i / 32 * sizeof b, sizeof b);
        return (double)atsi_f16_to_f32(b.d) * b.qs[i % 32];
    case ATSI_TYPE_F16:
        memcpy(&h, rows + 2 * i, 2);
        return (double)atsi_f16_to_f32(h);
    default:
        memcpy(&f, rows + 4 * i, 4);
        return (double)f;
    }
}

/* ---------------------------------------------------------------- what is right */
/* Cells that row r (token r / n_q) sees. */
static struct cpu_attn_seen seen_by(const struct attn_case *a, uint32_t r)
{
    struct cpu_attn_seen s = {0, a->n_kv - (a->n_tok - 1 - r / a->n_q)};
    if (a->window != 0 && s.to > a->window)
        s.from = s.to - a->window;
    return s;
}

/* Scores of one row into s; returns the bound on a score's error. */
static double exact_scores(const struct attn_case *a, const struct attn_memory *m, uint32_t h,
                           double *s, double *max_out, double *abs_out)
{
    const struct cpu_attn_seen seen = seen_by(a, h);
    double most = 0;
    for (uint32_t p = seen.from; p < seen.to; p++) {
        double dot = 0, sum = 0;
        for (uint32_t i = 0; i < a->dk; i++) {
            double x = (double)((const float *)(const void *)m->q.data)[(size_t)h * a->dk + i] *
                       cache_at(a->type_k, m->k.data, (size_t)p * a->dk + i);
            dot += x;
            sum += fabs(x);
        }
        s[p] = dot / sqrt((double)a->dk);
        *max_out = fmax(*max_out, s[p]);
        *abs_out = fmax(*abs_out, fabs(s[p]));
        most = fmax(most, sum / sqrt((double)a->dk));
    }
    return (a->dk + 3) * CK_U * most;
}

/* Exact weights of one row into p; returns the bound on their relative error. */
static double exact_weights(const struct attn_case *a, const struct attn_memory *m, uint32_t h,
                            double *p)
{
    const struct cpu_attn_seen seen = seen_by(a, h);
    double max = -INFINITY, most = 0, sum = 0, es;
    if (a->sink != NO_SINK) {
        max = (double)((const float *)(const void *)m->sink.data)[h % a->n_q];
        most = fabs(max);
    }
    es = exact_scores(a, m, h, p, &max, &most);
    if (a->sink != NO_SINK)
        sum = exp((double)((const float *)(const void *)m->sink.data)[h % a->n_q] - max);
    for (uint32_t i = seen.from; i < seen.to; i++) {
        p[i] = exp(p[i] - max);
        sum += p[i];
    }
    for (uint32_t i = seen.from; i < seen.to; i++)
        p[i] /= sum;
    return expm1(2 * (es + 2 * CK_U * most + 4 * CK_U) + (4.0 * a->n_kv + 18) * CK_U);
}

static void check_row(struct ck *c, const struct attn_case *a, const struct attn_memory *m,
                      uint32_t h, double *p)
{
    const struct cpu_attn_seen seen = seen_by(a, h);
    const float *out = (const float *)(const void *)m->out.data + (size_t)h * a->dv;
    double rel = exact_weights(a, m, h, p);
    for (uint32_t i = 0; i < a->dv; i++) {
        double want = 0, parts = 0, largest = 0;
        for (uint32_t r = seen.from; r < seen.to; r++) {
            double v = cache_at(a->type_v, m->v.data, (size_t)r * a->dv + i);
            want += p[r] * v;
            parts += p[r] * fabs(v);
            largest = fmax(largest, fabs(v));
        }
        ck_near(c, h, i, out[i], want, rel * parts + a->n_kv * exp(-87.0) * largest);
    }
}

/* ---------------------------------------------------------------- data */
static void fill_queries(struct ck *c, const struct attn_case *a, struct ck_mem *q)
{
    for (size_t i = 0; i < (size_t)a->n_tok * a->n_q * a->dk; i++) {
        float x = ck_unit(c);
        ((float *)(void *)q->data)[i] = a->stretch * (a->stretch < 0 ? fabsf(x) + 0.5F : x);
    }
    ck_mem_seal(q);
}

/* Keys without sign: with negative queries no score is near zero, so a softmax that takes zero for
 * a cell (padding, a wrong start of the maximum) finds nothing but underflow. */
static void make_positive(uint32_t type, unsigned char *rows, size_t n)
{
    size_t size = type == ATSI_TYPE_F16 ? 2 : 4;
    if (type != ATSI_TYPE_Q8_0) {
        for (size_t i = 0; i < n; i++)
            rows[i * size + size - 1] &= 0x7f;
        return;
    }
    for (size_t b = 0; b < n / 32; b++) { /* scale and codes */
        unsigned char *block = rows + b * sizeof(struct atsi_block_q8_0);
        for (size_t i = 1; i < sizeof(struct atsi_block_q8_0); i++)
            block[i] &= 0x7f;
    }
}

/* Sinks where the scores are, or so far from them that one side has no weight left. */
static void fill_sinks(struct ck *c, const struct attn_case *a, const struct attn_memory *m,
                       double *s)
{
    for (uint32_t h = 0; h < a->n_q; h++) {
        double max = -INFINITY, most = 0;
        (void)exact_scores(a, m, h, s, &max, &most);
        max += a->sink == SINK_ABOVE ? 200 : a->sink == SINK_BELOW ? -200 : (double)ck_unit(c);
        ((float *)(void *)m->sink.data)[h] = (float)max;
    }
}

static size_t row_bytes(const struct attn_case *a, bool keys)
{
    return (size_t)atsi_row_bytes(keys ? a->type_k : a->type_v, keys ? a->dk : a->dv);
}

static struct attn_memory open_memory(struct ck *c, const struct attn_case *a, double *s)
{
    uint32_t rows = a->n_tok * a->n_q;
    size_t q = (size_t)rows * sizeof(float), rk = row_bytes(a, true), rv = row_bytes(a, false);
    struct attn_memory m = {
        ck_mem_open(q * a->dk, 4),
        ck_mem_open(a->n_q * sizeof(float), 4),
        ck_mem_open(a->n_kv * rk, 4),
        ck_mem_open(a->n_kv * rv, 4),
        {ck_mem_open(a->n_first * rk, 2), ck_mem_open(a->n_first * rv, 2),
         ck_mem_open((a->n_kv - a->n_first) * rk, 2), ck_mem_open((a->n_kv - a->n_first) * rv, 2)},
        ck_mem_open(q * a->dv, 4),
        ck_mem_open(cpu_attend_scratch(rows, a->dk, a->dv) * sizeof(float), 64)};
    fill_queries(c, a, &m.q);
    ck_fill_weights(c, a->type_k, CK_RANDOM, m.k.data, (size_t)a->n_kv * a->dk);
    if (a->stretch < 0)
        make_positive(a->type_k, m.k.data, (size_t)a->n_kv * a->dk);
    ck_fill_weights(c, a->type_v, a->n_kv % 2 != 0 ? CK_OUTLIERS : CK_RANDOM, m.v.data,
                    (size_t)a->n_kv * a->dv);
    if (a->sink != NO_SINK)
        fill_sinks(c, a, &m, s);
    ck_mem_seal(&m.sink);
    for (int i = 0; i < 4; i++) {
        const struct ck_mem *from = i % 2 == 0 ? &m.k : &m.v;
        size_t skip = i < 2 ? 0 : from->bytes - m.part[i].bytes;
        memcpy(m.part[i].data, from->data + skip, m.part[i].bytes);
        ck_mem_seal(&m.part[i]);
    }
    return m;
}

static void close_memory(struct ck *c, struct attn_memory *m)
{
    static const char *const part[] = {"keys", "values", "keys behind the turn",
                                       "values behind the turn"};
    ck_mem_check(c, &m->q, "queries");
    ck_mem_check(c, &m->sink, "sinks");
    for (int i = 0; i < 4; i++) {
        ck_mem_check(c, &m->part[i], part[i]);
        ck_mem_close(&m->part[i]);
    }
    ck_mem_around(c, &m->out, "out");
    ck_mem_around(c, &m->score, "score");
    ck_mem_close(&m->q);
    ck_mem_close(&m->sink);
    ck_mem_close(&m->k);
    ck_mem_close(&m->v);
    ck_mem_close(&m->out);
    ck_mem_close(&m->score);
}

/* The second part is no address at all where it must not be read. */
static struct cpu_attn_args args_of(const struct attn_case *a, const struct attn_memory *m)
{
    bool two = a->n_first < a->n_kv;
    return (struct cpu_attn_args){.n_tok = a->n_tok,
                                  .n_head = a->n_q,
                                  .start = a->start,
                                  .window = a->window,
                                  .dk = a->dk,
                                  .dv = a->dv,
                                  .n_kv = a->n_kv,
                                  .n_first = a->n_first,
                                  .type_k = a->type_k,
                                  .type_v = a->type_v,
                                  .scale = (float)(1 / sqrt((double)a->dk)),
                                  .q = (const float *)(void *)m->q.data,
                                  .q_stride = (size_t)a->n_q * a->dk,
                                  .k = m->part[0].data,
                                  .v = m->part[1].data,
                                  .k2 = two ? m->part[2].data : NULL,
                                  .v2 = two ? m->part[3].data : NULL,
                                  .sink = a->sink != NO_SINK ? (float *)(void *)m->sink.data : NULL,
                                  .out = (float *)(void *)m->out.data,
                                  .out_stride = (size_t)a->n_q * a->dv};
}

/* ---------------------------------------------------------------- cases */
static void attn_case(struct ck *c, const void *arg)
{
    const struct attn_case *a = arg;
    double s[MAX_CELLS]; /* not from the heap: a kernel may end in a signal */
    struct attn_memory m = open_memory(c, a, s);
    struct cpu_attn_args args = args_of(a, &m);
    cpu_attend(a->k, &args, (float *)(void *)m.score.data);
    for (uint32_t r = 0; r < a->n_tok * a->n_q; r++)
        check_row(c, a, &m, r, s);
    close_memory(c, &m);
}

/* Token t and head h alone: what lies beyond its cells must not matter. */
static void alone(const struct attn_case *a, const struct attn_memory *m, uint32_t t, uint32_t h,
                  float *out)
{
    const struct cpu_attn_seen seen = seen_by(a, t * a->n_q);
    struct cpu_attn_args args = args_of(a, m);
    args.n_tok = args.n_head = 1;
    args.q += t * args.q_stride + (size_t)h * a->dk;
    args.sink += args.sink != NULL ? h : 0;
    args.out = out;
    args.start += seen.from;
    args.n_kv = seen.to - seen.from;
    args.k = (const unsigned char *)args.k + seen.from * row_bytes(a, true);
    args.v = (const unsigned char *)args.v + seen.from * row_bytes(a, false);
    args.n_first = args.n_kv;
    cpu_attend(a->k, &args, (float *)(void *)m->score.data);
}

/* A row's result is the same bits whatever rows are beside it. */
static void company_case(struct ck *c, const void *arg)
{
    const struct attn_case *a = arg;
    double s[MAX_CELLS];
    float one[256];
    struct attn_memory m = open_memory(c, a, s);
    struct cpu_attn_args args = args_of(a, &m);
    cpu_attend(a->k, &args, (float *)(void *)m.score.data);
    for (uint32_t r = 0; r < a->n_tok * a->n_q; r++) {
        alone(a, &m, r / a->n_q, r % a->n_q, one);
        if (memcmp(one, m.out.data + (size_t)r * a->dv * sizeof(float), a->dv * sizeof(float)) != 0)
            ck_fail(c, "head %u of token %u is another number when computed alone", r % a->n_q,
                    r / a->n_q);
    }
    close_memory(c, &m);
}

/* Where the ring begins anew must not show in a single bit. */
static void ring_case(struct ck *c, const void *arg)
{
    struct attn_case a = *(const struct attn_case *)arg;
    uint64_t random = c->random;
    double s[MAX_CELLS];
    float want[16 * 256];
    for (a.n_first = a.n_kv; a.n_first > 0; a.n_first--) {
        struct attn_memory m;
        struct cpu_attn_args args;
        c->random = random; /* the same data */
        m = open_memory(c, &a, s);
        args = args_of(&a, &m);
        cpu_attend(a.k, &args, (float *)(void *)m.score.data);
        if (a.n_first == a.n_kv)
            memcpy(want, m.out.data, m.out.bytes);
        else if (memcmp(want, m.out.data, m.out.bytes) != 0)
            ck_fail(c, "the result changes when the ring begins anew after %u cells", a.n_first);
        close_memory(c, &m);
    }
}

static const uint32_t cache_types[] = {ATSI_TYPE_F16, ATSI_TYPE_F32, ATSI_TYPE_Q8_0};

static bool possible(const struct attn_case *a)
{
    return atsi_row_bytes(a->type_k, a->dk) != 0 && atsi_row_bytes(a->type_v, a->dv) != 0;
}

static void name_case(struct ck *c, const struct attn_case *a, const char *name)
{
    ck_case(c,
            "%s tokens=%u heads=%u dk=%u dv=%u cells=%u+%u from %u, window %u k %s v %s, "
            "queries of %g, %s",
            name, a->n_tok, a->n_q, a->dk, a->dv, a->n_first, a->n_kv - a->n_first, a->start,
            a->window, atsi_type_info(a->type_k)->name, atsi_type_info(a->type_v)->name,
            (double)a->stretch, sink_name[a->sink]);
}

static const uint32_t heads[] = {1, 2, 3, 4, 5, 7, 8, 16};
static const float stretch[] = {0.5F, 4.0F, 60.0F, -2000.0F};

static void rings(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t dims[][2] = {{64, 64}, {32, 96}, {20, 33}};
    static const uint32_t cells[] = {2, 3, 5, 8, 13, 17, 34};
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t n = 0; n < sizeof cells / sizeof cells[0]; n++)
            for (uint32_t types = 0; types < 9; types++) {
                struct attn_case a = {.k = k,
                                      .n_tok = 1,
                                      .start = types % 2 != 0 ? 251 : 0,
                                      .n_q = heads[(d + n + types) % 8],
                                      .dk = dims[d][0],
                                      .dv = dims[d][1],
                                      .n_kv = cells[n],
                                      .n_first = cells[n],
                                      .type_k = cache_types[types % 3],
                                      .type_v = cache_types[types / 3],
                                      .stretch = stretch[types % 2],
                                      .sink = (enum sink)((n + types) % N_SINKS)};
                if (!possible(&a))
                    continue;
                name_case(c, &a, "ring");
                ck_guarded(c, ring_case, &a);
            }
}

/* Tokens side by side, over one chunk and more, with windows shorter and longer than what is there.
 */
static void companies(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t dims[][2] = {{64, 64}, {32, 96}, {20, 33}, {128, 128}};
    static const uint32_t cells[] = {1, 4, 31, 97, 300};
    static const uint32_t starts[] = {0, 3, 255, 480};
    size_t i = 0;
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t n = 0; n < sizeof cells / sizeof cells[0]; n++)
            for (uint32_t types = 0; types < 9; types++, i++) {
                struct attn_case a = {.k = k,
                                      .n_tok = 1 + (uint32_t)(i * 7 % 23),
                                      .n_q = heads[i % 5],
                                      .dk = dims[d][0],
                                      .dv = dims[d][1],
                                      .n_kv = cells[n],
                                      .n_first = cells[n],
                                      .start = starts[i % 4],
                                      .type_k = cache_types[types % 3],
                                      .type_v = cache_types[types / 3],
                                      .stretch = stretch[i % 3],
                                      .sink = (enum sink)(i / 2 % N_SINKS)};
                a.n_tok = a.n_tok < CPU_ATTN_ROWS / a.n_q ? a.n_tok : CPU_ATTN_ROWS / a.n_q;
                a.n_tok = a.n_tok < a.n_kv ? a.n_tok : a.n_kv;
                a.window = i % 3 == 0 ? 0 : 1 + (uint32_t)(i * 13 % 40) * (1 + (uint32_t)(i % 7));
                if (!possible(&a))
                    continue;
                if (a.window != 0 && a.n_kv > a.window + a.n_tok - 1)
                    a.n_kv = a.n_first = a.window + a.n_tok - 1;
                name_case(c, &a, "alone");
                ck_guarded(c, company_case, &a);
                name_case(c, &a, "tokens");
                ck_guarded(c, attn_case, &a);
            }
}

void ck_attn(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t dims[][2] = {{8, 8},     {16, 16},   {20, 20}, {32, 32},
                                       {64, 64},   {80, 80},   {96, 96}, {128, 128},
                                       {192, 128}, {256, 256}, {33, 17}, {64, 128}};
    static const uint32_t cells[] = {1,  2,  3,  5,  7,  8,   9,   15,
                                     16, 17, 31, 33, 64, 100, 257, MAX_CELLS};
    size_t i = 0;
    for (size_t d = 0; d < sizeof dims / sizeof dims[0]; d++)
        for (size_t n = 0; n < sizeof cells / sizeof cells[0]; n++)
            for (uint32_t types = 0; types < 9; types++, i++) {
                struct attn_case a = {.k = k,
                                      .n_tok = 1,
                                      .start = i % 4 != 0 ? (uint32_t)i % 259 : 0,
                                      .n_q = heads[i % 8],
                                      .dk = dims[d][0],
                                      .dv = dims[d][1],
                                      .n_kv = cells[n],
                                      .n_first = i % 3 == 0 ? 1 + (uint32_t)i % cells[n] : cells[n],
                                      .type_k = cache_types[types % 3],
                                      .type_v = cache_types[types / 3],
                                      .stretch = stretch[i / 3 % 4],
                                      .sink = (enum sink)(i / 2 % N_SINKS)};
                if (!possible(&a))
                    continue;
                name_case(c, &a, "attn");
                ck_guarded(c, attn_case, &a);
            }
    rings(c, k);
    companies(c, k);
}
