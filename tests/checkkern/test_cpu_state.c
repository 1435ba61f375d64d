/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations that keep something from call to call: attention over ring caches with windows and
 * sinks, the convolution and the delta rule.  Single calls on random shapes and any number of
 * workers against straightforward evaluation, to the bit; whole texts cut into calls at any place;
 * and everything that must be refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn_walk.h"
#include "op_trial.h"

/* ---------------------------------------------------------------- attention */
enum { PAST = 40, MAX_ROWS = 17, MAX_DIM = 96 };

/* One head's keys or values by position, as the cache holds them: rounded to its type. */
static void store(uint32_t type, const float *x, unsigned char *row, uint32_t dim)
{
    if (type == ATSI_TYPE_F16)
        k.store_f16(x, (uint16_t *)(void *)row, dim);
    else if (type == ATSI_TYPE_Q8_0)
        k.store_q8_0(x, row, dim);
    else
        memcpy(row, x, dim * sizeof *x);
}

/* All positions of a head in a row, first the past, then the new rows; the past that some row sees
 * goes to the ring as well, whose other cells hold NaN. */
static unsigned char *history(const struct trial *t, bool keys, uint32_t head, uint32_t first)
{
    uint32_t type = keys ? t->kv.type_k : t->kv.type_v;
    uint32_t dim = keys ? t->kv.head_dim_k : t->kv.head_dim_v;
    const struct atsi_tensor *x = t->op.src[keys ? 1 : 2];
    size_t row = (size_t)atsi_row_bytes(type, dim);
    unsigned char *all = malloc((first + t->rows) * row + 1);
    unsigned char *ring = (unsigned char *)(keys ? t->kv.k : t->kv.v) + head * t->kv.n_ctx * row;
    uint32_t seen = t->op.p.attn.window != 0 ? t->op.p.attn.window - 1 : first;
    float past[MAX_DIM];
    assert_non_null(all);
    for (uint32_t p = 0; p < first; p++) {
        for (uint32_t i = 0; i < dim; i++)
            past[i] = (float)below(2001) / 1000.0F - 1.0F;
        store(type, past, all + p * row, dim);
        if (p + seen >= first)
            memcpy(ring + p % t->kv.n_ctx * row, all + p * row, row);
    }
    for (uint32_t r = 0; r < t->rows; r++)
        store(type, floats(x) + (size_t)r * x->ne[0] + (size_t)head * dim, all + (first + r) * row,
              dim);
    return all;
}

/* Query head h of row r over the rows it sees, which lie one after the other. */
static void attend(const struct trial *t, const unsigned char *keys, const unsigned char *values,
                   uint32_t first, uint32_t r, uint32_t h)
{
    uint32_t dk = t->kv.head_dim_k, dv = t->kv.head_dim_v, heads = t->op.p.attn.n_head;
    uint32_t end = first + r + 1, w = t->op.p.attn.window, begin = w != 0 && w < end ? end - w : 0;
    struct cpu_attn_args a = {.n_tok = 1,
                              .n_head = 1,
                              .dk = dk,
                              .dv = dv,
                              .start = begin,
                              .n_kv = end - begin,
                              .n_first = end - begin,
                              .type_k = t->kv.type_k,
                              .type_v = t->kv.type_v,
                              .scale = t->op.p.attn.scale,
                              .q = floats(t->op.src[0]) + ((size_t)r * heads + h) * dk,
                              .k = keys + begin * atsi_row_bytes(t->kv.type_k, dk),
                              .v = values + begin * atsi_row_bytes(t->kv.type_v, dv),
                              .out = t->want[0] + ((size_t)r * heads + h) * dv};
    float *scratch = aligned_alloc(64, (cpu_attend_scratch(1, dk, dv) + 15) / 16 * 64);
    assert_non_null(scratch);
    if (t->op.weight[0] != NULL)
        a.sink = floats(t->op.weight[0]) + h;
    cpu_attend(&k, &a, scratch);
    free(scratch);
}

static uint32_t cache_type(uint32_t *dim)
{
    static const uint32_t types[] = {ATSI_TYPE_F16, ATSI_TYPE_F32, ATSI_TYPE_Q8_0};
    uint32_t type = types[below(3)];
    *dim = type == ATSI_TYPE_Q8_0 ? 32 * (1 + below(3)) : 1 + below(MAX_DIM);
    return type;
}

/* As many cells as are needed, or more; a window of any length, or none. */
static void cache_of(struct trial *t, uint32_t hkv, uint32_t first)
{
    uint32_t dk, dv, type_k = cache_type(&dk), type_v = cache_type(&dv);
    uint32_t window = below(3) == 0 ? 0 : 1 + below(PAST), cells = first + t->rows;
    struct atsi_tensor *keys, *values;
    if (window != 0 && window + t->rows - 1 < cells)
        cells = window + t->rows - 1;
    cells += below(2) * below(10);
    keys = trial_tensor(t, type_k, dk, (uint64_t)hkv * cells, 1);
    values = trial_tensor(t, type_v, dv, (uint64_t)hkv * cells, 1);
    memset(keys->data, 0xff, (size_t)keys->row_bytes * hkv * cells);
    memset(values->data, 0xff, (size_t)values->row_bytes * hkv * cells);
    t->kv = (struct atsi_kv){sizeof t->kv, type_k, type_v,     hkv,         dk,
                             dv,           cells,  keys->data, values->data};
    t->op.kv = &t->kv;
    t->op.p.attn.window = window;
    t->op.p.attn.n_head_kv = hkv;
    t->op.p.attn.head_dim_k = dk;
    t->op.p.attn.head_dim_v = dv;
}

static void attn(struct trial *t, uint32_t type)
{
    uint32_t hkv = 1 + below(3), group = 1 + below(4), heads = hkv * group;
    uint32_t first = below(PAST + 1);
    struct atsi_tensor *pos = trial_tensor(t, ATSI_TYPE_I32, 1, t->rows + 1, 1);
    cache_of(t, hkv, first);
    t->op.p.attn.n_head = heads;
    t->op.p.attn.n_kv = first + t->rows;
    t->op.p.attn.scale = 0.3F;
    t->op.src[0] = trial_rows(t, (uint64_t)heads * t->kv.head_dim_k);
    t->op.src[1] = trial_rows(t, (uint64_t)hkv * t->kv.head_dim_k);
    t->op.src[2] = trial_rows(t, (uint64_t)hkv * t->kv.head_dim_v);
    t->op.src[3] = pos;
    t->op.weight[0] = below(2) == 0 ? trial_tensor(t, type, heads, 1, 1) : NULL;
    for (uint32_t r = 0; r < t->rows; r++)
        ints(pos)[r] = (int32_t)(first + r);
    (void)trial_result(t, 0, ATSI_TYPE_F32, (uint64_t)heads * t->kv.head_dim_v);
    for (uint32_t j = 0; j < hkv; j++) {
        unsigned char *keys = history(t, true, j, first), *values = history(t, false, j, first);
        for (uint32_t r = 0; r < t->rows; r++)
            for (uint32_t h = j * group; h < (j + 1) * group; h++)
                attend(t, keys, values, first, r, h);
        free(keys);
        free(values);
    }
}

static void refuse_cache(struct fixture *f, const struct trial *t, struct atsi_kv kv,
                         const char *how)
{
    struct atsi_op bad = t->op;
    bad.kv = &kv;
    bad.p.attn.head_dim_k = kv.head_dim_k; /* agree: the cache itself is wrong */
    bad.p.attn.head_dim_v = kv.head_dim_v;
    trial_refused(f, t, &bad, how);
}

static void break_cache(struct fixture *f, const struct trial *t)
{
    struct atsi_kv kv = t->kv;
    uint32_t rows = t->rows, n = t->op.p.attn.n_kv, w = t->op.p.attn.window;
    kv.n_ctx = (w != 0 && w + rows - 1 < n ? w + rows - 1 : n) - 1;
    refuse_cache(f, t, kv, "a cell too few");
    kv = t->kv;
    kv.type_k = ATSI_TYPE_BF16;
    refuse_cache(f, t, kv, "keys of another type");
    kv = t->kv;
    kv.type_v = ATSI_TYPE_Q4_0;
    refuse_cache(f, t, kv, "values of another type");
    kv = t->kv;
    kv.type_k = ATSI_TYPE_Q8_0;
    if (kv.head_dim_k % 32 != 0)
        refuse_cache(f, t, kv, "keys of a part of a block");
    kv = t->kv;
    kv.head_dim_v = 0;
    refuse_cache(f, t, kv, "heads of nothing");
    kv = t->kv;
    kv.n_head_kv++;
    refuse_cache(f, t, kv, "a cache of more heads");
}

static void break_attn(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    break_cache(f, t);
    bad.p.attn.n_kv = 0;
    trial_refused(f, t, &bad, "no positions");
    bad.p.attn.n_kv = (uint32_t)INT32_MAX + 1;
    trial_refused(f, t, &bad, "more positions than numbers");
    bad = t->op;
    bad.p.attn.window = 0;
    bad.p.attn.n_kv = t->kv.n_ctx + 1;
    trial_refused(f, t, &bad, "more positions than cells");
    bad.p.attn.window = t->kv.n_ctx + 2 - t->rows;
    trial_refused(f, t, &bad, "a window beyond the cells");
    bad = t->op;
    bad.p.attn.head_dim_k++;
    trial_refused(f, t, &bad, "other heads than the cache");
    bad = t->op;
    bad.p.attn.n_head_kv++;
    trial_refused(f, t, &bad, "more heads than the cache");
    bad = t->op;
    bad.p.attn.n_head = bad.p.attn.n_head_kv = 0;
    trial_refused(f, t, &bad, "no heads");
    bad = t->op;
    bad.kv = NULL;
    trial_refused(f, t, &bad, "no cache");
}

/* ---------------------------------------------------------------- convolution */
/* What came in `back` rows before row r: of this call, or of the state. */
static float came_in(const struct trial *t, size_t r, uint32_t back, size_t ch)
{
    size_t c = t->op.src[0]->ne[0], kept = t->op.state->ne[1];
    return back <= r ? floats(t->op.src[0])[(r - back) * c + ch]
                     : floats(t->op.state)[(kept + r - back) * c + ch];
}

static void conv(struct trial *t, uint32_t type)
{
    uint32_t c = 1 + below(100), taps = 2 + below(5);
    struct atsi_tensor *x = trial_tensor(t, type, c, t->rows + 1, 1);
    struct atsi_tensor *w = trial_tensor(t, type, taps, c, 1);
    t->op.src[0] = x;
    t->op.weight[0] = w;
    (void)trial_state(t, c, taps - 1, 1);
    (void)trial_result(t, 0, ATSI_TYPE_F32, c);
    for (size_t r = 0; r < t->rows; r++)
        for (size_t ch = 0; ch < c; ch++) {
            float sum = 0;
            for (uint32_t m = 0; m < taps; m++)
                sum += floats(w)[ch * taps + m] * came_in(t, r, taps - 1 - m, ch);
            t->want[0][r * c + ch] = sum / (1.0F + expf(-sum));
        }
    for (uint32_t i = 0; i + 1 < taps; i++)
        for (size_t ch = 0; ch < c; ch++)
            t->want_kept[i * c + ch] = came_in(t, t->rows - 1, taps - 2 - i, ch);
}

static void break_conv(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor w = *t->op.weight[0], state = *t->op.state;
    bad.weight[0] = &w;
    w.ne[0] = 1;
    w.row_bytes = 4;
    trial_refused(f, t, &bad, "a single tap");
    state.ne[1] = 0;
    bad.state = &state;
    trial_refused(f, t, &bad, "a single tap and nothing kept");
    bad.state = t->op.state;
    w = *t->op.weight[0];
    w.ne[1]++;
    trial_refused(f, t, &bad, "weights of more channels");
}

/* ---------------------------------------------------------------- delta rule */
static float rate(const struct trial *t, int src, size_t row, uint32_t h, uint32_t offset)
{
    const struct atsi_tensor *x = t->op.src[src];
    return floats(x)[row * x->ne[0] + h / t->op.p.delta.run * t->op.p.delta.stride + offset +
                     h % t->op.p.delta.run];
}

/* One row of value head h, with the recurrence's own single steps. */
static void delta_row(struct trial *t, size_t row, uint32_t h)
{
    uint32_t dk = t->op.p.delta.dim_k, dv = t->op.p.delta.dim_v;
    uint32_t hk = t->op.p.delta.n_head_k, hv = t->op.p.delta.n_head_v;
    uint32_t j = t->op.p.delta.tiled != 0 ? h % hk : h / (hv / hk);
    const float *x = floats(t->op.src[0]) + row * t->op.src[0]->ne[0];
    static float q[64], key[64], scratch[CPU_DELTA_SCRATCH(64, 64)];
    double a =
        (double)rate(t, 2, row, h, t->op.p.delta.alpha_offset) + (double)floats(t->op.weight[1])[h];
    double b = (double)rate(t, 1, row, h, t->op.p.delta.beta_offset);
    double g = (double)floats(t->op.weight[0])[h] * (a > 20 ? a : log1p(exp(a)));
    float decay = (float)g, beta = (float)(1 / (1 + exp(-b)));
    struct cpu_delta_args args = {.n_tok = 1,
                                  .dk = dk,
                                  .dv = dv,
                                  .scale = (float)(1 / sqrt((double)dk)),
                                  .q = q,
                                  .k = key,
                                  .v = x + (size_t)2 * hk * dk + (size_t)h * dv,
                                  .log_decay = &decay,
                                  .beta = &beta,
                                  .s = t->want_kept + (size_t)h * dk * dv,
                                  .out = t->want[0] + (row * hv + h) * dv,
                                  .scratch = scratch};
    k.l2_norm(x + (size_t)j * dk, q, dk, t->op.p.delta.eps);
    k.l2_norm(x + ((size_t)hk + j) * dk, key, dk, t->op.p.delta.eps);
    k.delta(&args);
}

/* Rates of all heads in a row, or in runs with other things between them; of both kinds in one
 * tensor, or in two. */
static void rates_of(struct trial *t, uint32_t hk, uint32_t hv)
{
    bool plain = below(2) == 0, shared = below(2) == 0;
    uint32_t run = plain ? hv : hv / hk, stride = plain ? 0 : 2 * run + below(3);
    uint64_t width = plain ? (uint64_t)(shared ? 2 : 1) * hv : (uint64_t)(hv / run) * stride;
    struct atsi_tensor *b = trial_rows(t, width + below(2));
    struct atsi_tensor *a = shared ? b : trial_rows(t, width + below(3));
    t->op.p.delta.run = run;
    t->op.p.delta.stride = stride;
    t->op.p.delta.beta_offset = 0;
    t->op.p.delta.alpha_offset = shared ? run : 0;
    t->op.src[1] = b;
    t->op.src[2] = a;
    for (size_t i = 0; i < (size_t)a->ne[0] * t->rows; i++)
        floats(a)[i] *= 30; /* softplus on both sides of its bend */
}

static void delta(struct trial *t, uint32_t type)
{
    static const uint32_t many[] = {63, 64, 65, 128, 129, 150};
    uint32_t hk = 1 + below(3), hv = hk * (1 + below(3));
    uint32_t dk = 1 + below(40), dv = 1 + below(40);
    if (t->rows == 17)
        t->op.n_rows = t->rows = many[below(6)]; /* up to three calls of the kernel */
    t->op.p.delta.n_head_k = hk;
    t->op.p.delta.n_head_v = hv;
    t->op.p.delta.dim_k = dk;
    t->op.p.delta.dim_v = dv;
    t->op.p.delta.tiled = below(2);
    t->op.p.delta.eps = 1e-6F;
    t->op.src[0] = trial_rows(t, (uint64_t)2 * hk * dk + (uint64_t)hv * dv);
    rates_of(t, hk, hv);
    t->op.weight[0] = trial_tensor(t, type, hv, 1, 1);
    t->op.weight[1] = trial_tensor(t, type, hv, 1, 1);
    for (uint32_t h = 0; h < hv; h++)
        floats(t->op.weight[0])[h] = -fabsf(floats(t->op.weight[0])[h]);
    (void)trial_state(t, dv, dk, hv);
    (void)trial_result(t, 0, ATSI_TYPE_F32, (uint64_t)hv * dv);
    for (uint32_t h = 0; h < hv; h++)
        for (size_t r = 0; r < t->rows; r++)
            delta_row(t, r, h);
}

static void break_delta_rates(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor narrow = *t->op.src[1];
    bad.p.delta.run = 0;
    trial_refused(f, t, &bad, "no run");
    bad = t->op;
    bad.p.delta.beta_offset = (uint32_t)t->op.src[1]->ne[0];
    trial_refused(f, t, &bad, "betas beyond the row");
    bad = t->op;
    bad.p.delta.alpha_offset = UINT32_MAX;
    trial_refused(f, t, &bad, "the largest offset");
    bad = t->op;
    bad.p.delta.stride = UINT32_MAX;
    if (t->op.p.delta.n_head_v > t->op.p.delta.run)
        trial_refused(f, t, &bad, "the largest stride");
    if (t->op.p.delta.n_head_v < 4)
        return;
    /* All but one head in a run, the last one in another that begins at its second element. */
    bad = t->op;
    bad.p.delta.run = t->op.p.delta.n_head_v - 1;
    bad.p.delta.stride = 1;
    bad.p.delta.beta_offset = bad.p.delta.alpha_offset = 0;
    narrow.ne[0] = bad.p.delta.run - 1;
    narrow.row_bytes = narrow.ne[0] * 4;
    bad.src[1] = bad.src[2] = &narrow;
    trial_refused(f, t, &bad, "a first run beyond the row");
}

static void break_delta(struct fixture *f, const struct trial *t)
{
    struct atsi_op bad = t->op;
    struct atsi_tensor x = *t->op.src[0];
    break_delta_rates(f, t);
    bad.p.delta.n_head_k = 0;
    trial_refused(f, t, &bad, "no key heads");
    bad.p.delta.n_head_k = t->op.p.delta.n_head_v + 1;
    x.ne[0] += (uint64_t)2 * (bad.p.delta.n_head_k - t->op.p.delta.n_head_k) * bad.p.delta.dim_k;
    x.row_bytes = x.ne[0] * 4;
    bad.src[0] = &x; /* agrees */
    trial_refused(f, t, &bad, "more key heads than value heads");
    bad = t->op;
    bad.p.delta.n_head_v = 0;
    trial_refused(f, t, &bad, "no value heads");
    bad = t->op;
    bad.p.delta.dim_k++;
    trial_refused(f, t, &bad, "longer keys");
    bad.p.delta.dim_k = 0;
    trial_refused(f, t, &bad, "keys of nothing");
    bad = t->op;
    bad.p.delta.dim_v = 0;
    trial_refused(f, t, &bad, "values of nothing");
    bad = t->op;
    bad.p.delta.tiled = 2;
    trial_refused(f, t, &bad, "an unknown order of heads");
    bad = t->op;
    bad.p.delta.eps = 0;
    trial_refused(f, t, &bad, "no eps");
    bad.p.delta.eps = NAN;
    trial_refused(f, t, &bad, "eps that is no number");
    bad.p.delta.eps = INFINITY;
    trial_refused(f, t, &bad, "an infinite eps");
}

/* Heads that no kernel has scratch for, in tensors that agree with them. */
static void heads_are_not_longer_than_kernels_take(void **state)
{
    enum { LONG = 1025 };
    struct fixture f;
    (void)state;
    fixture_open(&f, 1);
    for (int keys = 0; keys < 2; keys++)
        for (uint32_t longer = 0; longer < 2; longer++) {
            uint32_t n = LONG - 1 + longer, dk = keys != 0 ? n : 2, dv = keys != 0 ? 2 : n;
            struct atsi_tensor x = tensor_new(ATSI_TYPE_F32, (uint64_t)2 * dk + dv, 1, 1);
            struct atsi_tensor one = tensor_new(ATSI_TYPE_F32, 1, 1, 1);
            struct atsi_tensor s = tensor_new(ATSI_TYPE_F32, dv, dk, 1);
            struct atsi_tensor y = tensor_new(ATSI_TYPE_F32, dv, 1, 1);
            struct atsi_op op = {.struct_size = sizeof op,
                                 .kind = ATSI_OP_DELTA_NET,
                                 .n_rows = 1,
                                 .src = {&x, &one, &one},
                                 .weight = {&one, &one},
                                 .dst = {&y},
                                 .state = &s};
            op.p.delta.n_head_k = op.p.delta.n_head_v = op.p.delta.run = 1;
            op.p.delta.dim_k = dk;
            op.p.delta.dim_v = dv;
            op.p.delta.eps = 1e-6F;
            assert_int_equal(cpu_backend_ops.supports(f.be, &op), longer != 0 ? 0 : 1);
            tensor_free(&x);
            tensor_free(&one);
            tensor_free(&s);
            tensor_free(&y);
        }
    fixture_close(&f);
}

/* ---------------------------------------------------------------- single calls */
static const struct trial_kind kinds[] = {
    {ATSI_OP_ATTN, false, attn, break_attn},
    {ATSI_OP_CONV, false, conv, break_conv},
    {ATSI_OP_DELTA_NET, false, delta, break_delta},
};
#define N_KINDS (sizeof kinds / sizeof kinds[0])
enum { ATTN, CONV, DELTA };

static void each_call_is_its_formula(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        trial_seed(seed);
        trials_run(kinds, N_KINDS);
    }
}

static void what_disagrees_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        trial_seed(seed);
        trials_break(kinds, N_KINDS);
    }
}

/* What shows only in the data: the run fails, says what it met, and changes nothing. */
static void fails(struct fixture *f, const struct trial *t, const char *words)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_op *op = &t->op;
    assert_int_equal(fixture_run(f, &op, 1, &err), ATSI_EINVAL);
    if (strstr(err.msg, words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", err.msg, words);
    for (size_t i = 0; i < (size_t)op->dst[0]->ne[0]; i++)
        assert_int_equal(ints(op->dst[0])[i], -1);
}

static void bad_numbers_are_reported(void **state)
{
    static const float rates[] = {0.5F, INFINITY, NAN};
    struct fixture f;
    struct trial t;
    (void)state;
    trial_seed(1);
    fixture_open(&f, 2);
    trial_open(&t, &kinds[DELTA], ATSI_TYPE_F32, 3);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        floats(t.op.weight[0])[t.op.p.delta.n_head_v - 1] = rates[i];
        fails(&f, &t, "decay rates are negative or 0");
    }
    trial_close(&t);
    trial_open(&t, &kinds[CONV], ATSI_TYPE_F32, 3);
    {
        struct atsi_tensor none = *t.op.state;
        none.data = NULL;
        t.op.state = &none;
        fails(&f, &t, "without data");
    }
    trial_close(&t);
    trial_open(&t, &kinds[ATTN], ATSI_TYPE_F32, 3);
    ints(t.op.src[3])[2]++;
    fails(&f, &t, "ascend by one");
    for (uint32_t r = 0; r < t.rows; r++)
        ints(t.op.src[3])[r] = (int32_t)(t.op.p.attn.n_kv - 2 + r);
    fails(&f, &t, "are in use");
    for (uint32_t r = 0; r < t.rows; r++)
        ints(t.op.src[3])[r] = (int32_t)r - 1;
    fails(&f, &t, "position -1");
    trial_close(&t);
    fixture_close(&f);
}

/* ---------------------------------------------------------------- whole texts */
enum { TEXT = 60, HEADS = 4, KV_HEADS = 2, DIM = 32, WINDOW = 9, CHANNELS = 70, TAPS = 4 };
enum { DELTA_WIDTH = 2 * 2 * 20 + 4 * 24 };

/* Three operations over one text, each with what it keeps. */
struct text {
    struct atsi_tensor q, kx, v, pos, sink, keys, values, a;
    struct atsi_tensor x, w, last, c;
    struct atsi_tensor u, ba, rates, bias, s, d;
};

static void text_open(struct text *t, uint32_t type, uint32_t cells)
{
    trial_seed(17);
    t->q = tensor_new(ATSI_TYPE_F32, HEADS * DIM, TEXT, 1);
    t->kx = tensor_new(ATSI_TYPE_F32, KV_HEADS * DIM, TEXT, 1);
    t->v = tensor_new(ATSI_TYPE_F32, KV_HEADS * DIM, TEXT, 1);
    t->pos = tensor_new(ATSI_TYPE_I32, 1, TEXT, 1);
    t->sink = tensor_new(ATSI_TYPE_F32, HEADS, 1, 1);
    t->a = tensor_new(ATSI_TYPE_F32, HEADS * DIM, TEXT, 1);
    t->x = tensor_new(ATSI_TYPE_F32, CHANNELS, TEXT, 1);
    t->w = tensor_new(ATSI_TYPE_F32, TAPS, CHANNELS, 1);
    t->c = tensor_new(ATSI_TYPE_F32, CHANNELS, TEXT, 1);
    t->u = tensor_new(ATSI_TYPE_F32, DELTA_WIDTH, TEXT, 1);
    t->ba = tensor_new(ATSI_TYPE_F32, 8, TEXT, 1);
    t->rates = tensor_new(ATSI_TYPE_F32, 4, 1, 1);
    t->bias = tensor_new(ATSI_TYPE_F32, 4, 1, 1);
    t->d = tensor_new(ATSI_TYPE_F32, 4 * 24, TEXT, 1);
    t->last = tensor_new(ATSI_TYPE_F32, CHANNELS, TAPS - 1, 1);
    t->s = tensor_new(ATSI_TYPE_F32, 24, 20, 4);
    t->keys = tensor_new(type, DIM, (uint64_t)KV_HEADS * cells, 1);
    t->values = tensor_new(type, DIM, (uint64_t)KV_HEADS * cells, 1);
    memset(t->last.data, 0, (size_t)t->last.row_bytes * (TAPS - 1));
    memset(t->s.data, 0, (size_t)t->s.row_bytes * 20 * 4);
    for (int i = 0; i < 4; i++)
        floats(&t->rates)[i] = -fabsf(floats(&t->rates)[i]);
    for (int i = 0; i < TEXT; i++)
        ints(&t->pos)[i] = i;
}

static void text_close(struct text *t)
{
    struct atsi_tensor *all[] = {&t->q,      &t->kx, &t->v,     &t->pos,  &t->sink, &t->keys,
                                 &t->values, &t->a,  &t->x,     &t->w,    &t->last, &t->c,
                                 &t->u,      &t->ba, &t->rates, &t->bias, &t->s,    &t->d};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

/* Rows [at, at + n) of an activation. */
static struct atsi_tensor rows_of(const struct atsi_tensor *t, uint32_t at, uint32_t n)
{
    struct atsi_tensor part = *t;
    part.data = (unsigned char *)t->data + at * t->row_bytes;
    part.ne[1] = n;
    return part;
}

static void run(struct fixture *f, const struct atsi_op *op)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (fixture_run(f, &op, 1, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static void text_attn(struct fixture *f, struct text *t, uint32_t cells, uint32_t at, uint32_t n)
{
    struct atsi_tensor q = rows_of(&t->q, at, n), kx = rows_of(&t->kx, at, n);
    struct atsi_tensor v = rows_of(&t->v, at, n), pos = rows_of(&t->pos, at, n);
    struct atsi_tensor y = rows_of(&t->a, at, n);
    struct atsi_kv kv = {sizeof kv, t->keys.type, t->values.type, KV_HEADS,      DIM,
                         DIM,       cells,        t->keys.data,   t->values.data};
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_ATTN,
                         .n_rows = n,
                         .src = {&q, &kx, &v, &pos},
                         .weight = {&t->sink},
                         .dst = {&y},
                         .kv = &kv};
    op.p.attn.n_head = HEADS;
    op.p.attn.n_head_kv = KV_HEADS;
    op.p.attn.head_dim_k = op.p.attn.head_dim_v = DIM;
    op.p.attn.n_kv = at + n;
    op.p.attn.scale = 0.2F;
    op.p.attn.window = WINDOW;
    run(f, &op);
}

static void text_conv(struct fixture *f, struct text *t, uint32_t at, uint32_t n)
{
    struct atsi_tensor x = rows_of(&t->x, at, n), y = rows_of(&t->c, at, n);
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_CONV,
                         .n_rows = n,
                         .src = {&x},
                         .weight = {&t->w},
                         .dst = {&y},
                         .state = &t->last};
    run(f, &op);
}

static void text_delta(struct fixture *f, struct text *t, uint32_t at, uint32_t n)
{
    struct atsi_tensor u = rows_of(&t->u, at, n), ba = rows_of(&t->ba, at, n);
    struct atsi_tensor y = rows_of(&t->d, at, n);
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_DELTA_NET,
                         .n_rows = n,
                         .src = {&u, &ba, &ba},
                         .weight = {&t->rates, &t->bias},
                         .dst = {&y},
                         .state = &t->s};
    op.p.delta.n_head_k = 2;
    op.p.delta.n_head_v = 4;
    op.p.delta.dim_k = 20;
    op.p.delta.dim_v = 24;
    op.p.delta.run = 2;
    op.p.delta.stride = 4;
    op.p.delta.alpha_offset = 2;
    op.p.delta.eps = 1e-6F;
    run(f, &op);
}

static void same(const struct atsi_tensor *a, const struct atsi_tensor *b)
{
    assert_memory_equal(a->data, b->data, (size_t)(a->row_bytes * a->ne[1] * a->ne[2]));
}

/* Calls of `chunk` rows, after a first one of `first`, on a ring of no more cells than they need,
 * against one call on a cache of all positions. */
static void cut_anywhere(uint32_t type, uint32_t workers, uint32_t first, uint32_t chunk)
{
    uint32_t cells = WINDOW + (chunk > first ? chunk : first) - 1;
    struct text whole, parts;
    struct fixture f;
    fixture_open(&f, workers);
    text_open(&whole, type, TEXT);
    text_attn(&f, &whole, TEXT, 0, TEXT);
    text_conv(&f, &whole, 0, TEXT);
    text_delta(&f, &whole, 0, TEXT);
    text_open(&parts, type, cells);
    for (uint32_t at = 0, n = first; at < TEXT; at += n, n = chunk) {
        if (n > TEXT - at)
            n = TEXT - at;
        text_attn(&f, &parts, cells, at, n);
        text_conv(&f, &parts, at, n);
        text_delta(&f, &parts, at, n);
    }
    same(&whole.a, &parts.a);
    same(&whole.c, &parts.c);
    same(&whole.last, &parts.last);
    same(&whole.d, &parts.d); /* the reference goes row by row */
    same(&whole.s, &parts.s);
    text_close(&whole);
    text_close(&parts);
    fixture_close(&f);
}

static void a_text_may_be_cut_anywhere(void **state)
{
    static const uint32_t types[] = {ATSI_TYPE_F16, ATSI_TYPE_F32, ATSI_TYPE_Q8_0};
    (void)state;
    for (uint32_t first = 1; first <= 12; first++)
        for (uint32_t chunk = 1; chunk <= 21; chunk += 4)
            cut_anywhere(types[(first + chunk) % 3], 1 + (first + chunk) % 4, first, chunk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_is_its_formula),
        cmocka_unit_test(what_disagrees_is_refused_and_changes_nothing),
        cmocka_unit_test(heads_are_not_longer_than_kernels_take),
        cmocka_unit_test(bad_numbers_are_reported),
        cmocka_unit_test(a_text_may_be_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
