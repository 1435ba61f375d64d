/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of the convolution over time: its values, the state it leaves, and that neither depends on
 * how rows and channels were cut into calls.
 *
 * The sum of c products is wrong by c u sum|w x| at most; silu, whose slope is below 1.1, adds 8 u
 * of its own, and where exp leaves f32 (sum < -87) it may saturate.
 */
#include "ck.h"

#include <math.h>
#include <string.h>

#define MAX_TAPS 8u

struct conv_case {
    const struct cpu_kernels *k;
    uint32_t n_ch, n_tap, n_tok;
    enum ck_mode data;
    float stretch; /* of inputs */
};

/* Rows of `stride` floats, of which the last n_ch are the kernel's. */
struct conv_memory {
    size_t stride;
    struct ck_mem x, w, y, state, before; /* before: the state as it was */
};

static float *mine(const struct ck_mem *m, const struct conv_memory *v, uint32_t n_ch)
{
    return (float *)(void *)m->data + (v->stride - n_ch);
}

static struct conv_memory conv_open(struct ck *c, const struct conv_case *o)
{
    size_t stride = o->n_ch + 5, kept = o->n_tap - 1;
    struct conv_memory v = {stride,
                            ck_mem_open(o->n_tok * stride * sizeof(float), 4),
                            ck_mem_open((size_t)o->n_ch * o->n_tap * sizeof(float), 4),
                            ck_mem_open(o->n_tok * stride * sizeof(float), 4),
                            ck_mem_open(kept * stride * sizeof(float), 4),
                            ck_mem_open(kept * stride * sizeof(float), 4)};
    for (size_t t = 0; t < o->n_tok + kept; t++) {
        float *row = t < kept ? mine(&v.state, &v, o->n_ch) + t * stride
                              : mine(&v.x, &v, o->n_ch) + (t - kept) * stride;
        ck_fill_floats(c, o->data, row, o->n_ch);
        for (uint32_t ch = 0; ch < o->n_ch; ch++)
            row[ch] *= o->stretch;
    }
    ck_fill_floats(c, o->data, (float *)(void *)v.w.data, (size_t)o->n_ch * o->n_tap);
    memcpy(v.before.data, v.state.data, v.state.bytes);
    ck_mem_seal(&v.x);
    ck_mem_seal(&v.w);
    return v;
}

static void conv_close(struct ck *c, struct conv_memory *v)
{
    ck_mem_check(c, &v->x, "x");
    ck_mem_check(c, &v->w, "weights");
    ck_mem_around(c, &v->y, "y");
    ck_mem_around(c, &v->state, "state");
    ck_mem_close(&v->x);
    ck_mem_close(&v->w);
    ck_mem_close(&v->y);
    ck_mem_close(&v->state);
    ck_mem_close(&v->before);
}

/* Rows [t, t + n) and channels [ch, ch + n_ch) in one call. */
static void call(const struct conv_case *o, const struct conv_memory *v, uint32_t t, uint32_t n,
                 uint32_t ch, uint32_t n_ch)
{
    struct cpu_conv_args a = {.n_ch = n_ch,
                              .n_tap = o->n_tap,
                              .n_tok = n,
                              .x_stride = v->stride,
                              .x = mine(&v->x, v, o->n_ch) + t * v->stride + ch,
                              .w = (const float *)(void *)v->w.data + (size_t)ch * o->n_tap,
                              .y = mine(&v->y, v, o->n_ch) + t * v->stride + ch,
                              .state = mine(&v->state, v, o->n_ch) + ch};
    o->k->conv(&a);
}

/* Input number i, counted from the oldest row of the state. */
static float input(const struct conv_case *o, const struct conv_memory *v, size_t i, uint32_t ch)
{
    size_t kept = o->n_tap - 1;
    return i < kept ? mine(&v->before, v, o->n_ch)[i * v->stride + ch]
                    : mine(&v->x, v, o->n_ch)[(i - kept) * v->stride + ch];
}

static void check_value(struct ck *c, const struct conv_case *o, const struct conv_memory *v,
                        size_t t, uint32_t ch)
{
    const float *w = (const float *)(const void *)v->w.data + (size_t)ch * o->n_tap;
    double sum = 0, parts = 0, want, flat;
    for (uint32_t m = 0; m < o->n_tap; m++) {
        double p = (double)w[m] * (double)input(o, v, t + m, ch);
        sum += p;
        parts += fabs(p);
    }
    want = sum / (1 + exp(-sum));
    flat = sum < -87 ? fabs(sum) * exp(-87.0) : 0;
    ck_near(c, t, ch, mine(&v->y, v, o->n_ch)[t * v->stride + ch], want,
            CK_U * (1.1 * o->n_tap * parts + 8 * fabs(want)) + flat + 2 * o->n_tap * CK_TINY);
}

/* What lies between the rows belongs to other workers. */
static void check_gaps(struct ck *c, const struct conv_case *o, const struct conv_memory *v,
                       const struct ck_mem *m, const char *name)
{
    for (size_t i = 0; i < m->bytes / sizeof(float); i++)
        if (i % v->stride < v->stride - o->n_ch &&
            !ck_untouched((const float *)(const void *)m->data + i)) {
            ck_fail(c, "wrote %s [%zu][%zu], another worker's channel", name, i / v->stride,
                    i % v->stride);
            return;
        }
}

static void check_state(struct ck *c, const struct conv_case *o, const struct conv_memory *v)
{
    for (size_t i = 0; i + 1 < o->n_tap; i++)
        for (uint32_t ch = 0; ch < o->n_ch; ch++) {
            float got = mine(&v->state, v, o->n_ch)[i * v->stride + ch];
            float want = input(o, v, o->n_tok + i, ch);
            if (memcmp(&got, &want, sizeof got) != 0)
                ck_fail(c, "state [%zu][%u] = %a, want %a", i, ch, (double)got, (double)want);
        }
}

static void conv_case(struct ck *c, const void *arg)
{
    const struct conv_case *o = arg;
    struct conv_memory v = conv_open(c, o);
    call(o, &v, 0, o->n_tok, 0, o->n_ch);
    for (size_t t = 0; t < o->n_tok; t++)
        for (uint32_t ch = 0; ch < o->n_ch; ch++)
            check_value(c, o, &v, t, ch);
    check_state(c, o, &v);
    check_gaps(c, o, &v, &v.y, "y");
    check_gaps(c, o, &v, &v.state, "state");
    conv_close(c, &v);
}

/* Cut at every row, or at whole multiples of 16 channels: the same bits as in one call. */
static void conv_cut(struct ck *c, const void *arg)
{
    const struct conv_case *o = arg;
    struct conv_memory v = conv_open(c, o);
    struct ck_mem y = ck_mem_open(v.y.bytes, 4), state = ck_mem_open(v.state.bytes, 4);
    uint32_t ch = (uint32_t)(ck_random(c) % (o->n_ch / 16 + 1)) * 16;
    call(o, &v, 0, o->n_tok, 0, o->n_ch);
    memcpy(y.data, v.y.data, y.bytes);
    memcpy(state.data, v.state.data, state.bytes);
    for (uint32_t t = 0; t <= o->n_tok; t++) {
        memcpy(v.state.data, v.before.data, v.state.bytes);
        memset(v.y.data, 0xff, v.y.bytes);
        for (uint32_t part = 0; part < 4; part++) {
            uint32_t rows = part < 2 ? t : o->n_tok - t, n_ch = part % 2 == 0 ? ch : o->n_ch - ch;
            if (rows > 0 && n_ch > 0)
                call(o, &v, part < 2 ? 0 : t, rows, part % 2 == 0 ? 0 : ch, n_ch);
        }
        if (memcmp(y.data, v.y.data, y.bytes) != 0)
            ck_fail(c, "the result changes when cut at row %u, channel %u", t, ch);
        if (memcmp(state.data, v.state.data, state.bytes) != 0)
            ck_fail(c, "the state changes when cut at row %u, channel %u", t, ch);
    }
    ck_mem_close(&y);
    ck_mem_close(&state);
    conv_close(c, &v);
}

void ck_conv(struct ck *c, const struct cpu_kernels *k)
{
    static const uint32_t channels[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 257};
    static const uint32_t taps[] = {4, 2, 3, 4, 5, MAX_TAPS}, rows[] = {1, 2, 3, 4, 7, 17};
    static const float stretch[] = {1.0F, 1e-36F, 100.0F};
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++)
        for (size_t t = 0; t < sizeof taps / sizeof taps[0]; t++)
            for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
                struct conv_case o = {k,
                                      channels[i],
                                      taps[t],
                                      rows[r],
                                      (enum ck_mode)((i + t + r) % CK_N_MODES),
                                      stretch[(i + t) % 3]};
                ck_case(c, "conv channels=%u taps=%u rows=%u, %s times %g", o.n_ch, o.n_tap,
                        o.n_tok, ck_mode_name[o.data], (double)o.stretch);
                ck_guarded(c, conv_case, &o);
                ck_guarded(c, conv_cut, &o);
            }
}
