/* SPDX-License-Identifier: Apache-2.0
 * The delta rule's kernel against the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/kernel_trial.h"

extern const struct cuda_op cuda_op_delta_net;

struct shape {
    uint32_t n_k, n_v, dk, dv, tiled;
    uint32_t run, stride, beta, alpha, width; /* of the rates' rows */
};

static void open_delta(struct kt_op *o, const struct shape *s, uint32_t rows)
{
    struct atsi_tensor *rate;
    kt_open(o, ATSI_OP_DELTA_NET, rows);
    o->op.p.delta.n_head_k = s->n_k;
    o->op.p.delta.n_head_v = s->n_v;
    o->op.p.delta.dim_k = s->dk;
    o->op.p.delta.dim_v = s->dv;
    o->op.p.delta.tiled = s->tiled;
    o->op.p.delta.run = s->run;
    o->op.p.delta.stride = s->stride;
    o->op.p.delta.beta_offset = s->beta;
    o->op.p.delta.alpha_offset = s->alpha;
    o->op.p.delta.eps = 1e-6F;
    o->op.src[0] = kt_rows(o, 2 * (uint64_t)s->n_k * s->dk + (uint64_t)s->n_v * s->dv);
    o->op.src[1] = o->op.src[2] = kt_rows(o, s->width);
    kt_scale(o->op.src[1], 3);
    rate = kt_tensor(o, ATSI_TYPE_F32, s->n_v, 1, 1);
    for (uint32_t h = 0; h < s->n_v; h++)
        floats(rate)[h] = -0.02F * (float)(h * h);
    o->op.weight[0] = rate;
    o->op.weight[1] = kt_tensor(o, ATSI_TYPE_F32, s->n_v, 1, 1);
    kt_dst(o, 0, ATSI_TYPE_F32, (uint64_t)s->n_v * s->dv);
    kt_state(o, s->dv, s->dk, s->n_v);
}

static const struct shape shapes[] = {
    {2, 4, 128, 128, 0, 4, 0, 0, 4, 8}, {2, 4, 16, 16, 1, 2, 4, 0, 2, 8},
    {1, 3, 20, 33, 0, 3, 3, 3, 0, 6},   {3, 3, 1, 1, 0, 1, 2, 1, 0, 6},
    {1, 2, 129, 40, 1, 2, 0, 0, 2, 4},  {1, 1, 1024, 3, 0, 1, 1, 0, 1, 2},
    {2, 2, 64, 65, 0, 2, 0, 0, 2, 4},
};

static void test_delta(void **state)
{
    static const uint32_t rows[] = {1, 2, 17, 64};
    char what[120];
    kt_seed(20);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            struct kt_op o;
            open_delta(&o, &shapes[i], rows[r]);
            (void)snprintf(what, sizeof what, "delta rule, shape %zu, %u rows", i, rows[r]);
            kt_compare(*state, &cuda_op_delta_net, &o, 3e-5, what);
            kt_close(&o);
        }
}

/* Keys, queries and values far from one, rates at the ends of their ranges. */
static void test_delta_extremes(void **state)
{
    static const float sizes[] = {1e20F, 1e-9F, 1e-25F, 0}; /* norms below eps, too */
    kt_seed(21);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct kt_op o;
        open_delta(&o, &shapes[0], 20);
        kt_scale(o.op.src[0], sizes[i]);
        kt_scale(o.op.src[1], 100);
        floats(o.op.weight[0])[1] = -1e6F;
        if (sizes[i] < 1)
            kt_scale(o.op.state, 0);
        kt_compare(*state, &cuda_op_delta_net, &o, 1e-4, "delta rule with extremes");
        kt_close(&o);
    }
}

/* A call per row gives what one call gives, to the bit. */
static void test_delta_cut(void **state)
{
    const struct shape *s = &shapes[2];
    size_t in = (size_t)2 * s->n_k * s->dk + (size_t)s->n_v * s->dv, out = (size_t)s->n_v * s->dv;
    size_t kept = (size_t)s->n_v * s->dk * s->dv;
    struct kt_op o, one;
    struct kt_result all, r;
    kt_seed(22);
    open_delta(&o, s, 40);
    all = kt_device(*state, &cuda_op_delta_net, &o);
    open_delta(&one, s, 1);
    for (int i = 0; i < 2; i++)
        memcpy(one.op.weight[i]->data, o.op.weight[i]->data, s->n_v * sizeof(float));
    memcpy(one.op.state->data, o.op.state->data, kept * sizeof(float));
    for (size_t t = 0; t < 40; t++) {
        memcpy(one.op.src[0]->data, floats(o.op.src[0]) + t * in, in * sizeof(float));
        memcpy(one.op.src[1]->data, floats(o.op.src[1]) + t * s->width, s->width * sizeof(float));
        r = kt_device(*state, &cuda_op_delta_net, &one);
        kt_same(r.dst[0], (const float *)all.dst[0] + t * out, out, "a row of the delta rule");
        memcpy(one.op.state->data, r.state, kept * sizeof(float));
        kt_result_free(&r);
    }
    kt_same(one.op.state->data, all.state, kept, "the state of the delta rule");
    kt_result_free(&all);
    kt_close(&o);
    kt_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_delta),
        cmocka_unit_test(test_delta_extremes),
        cmocka_unit_test(test_delta_cut),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
