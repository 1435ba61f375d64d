/* SPDX-License-Identifier: Apache-2.0
 * See ck_vectors.h. */
#include "ck_vectors.h"

#include <string.h>

/* Lengths: empty, vector widths and their neighbours, primes, model widths. */
static const uint32_t lengths[] = {0,   1,   2,   3,   7,   8,   9,    15,   16,   17,   23,
                                   31,  32,  33,  47,  63,  64,  65,   80,   96,   127,  128,
                                   129, 255, 256, 257, 509, 896, 1024, 2880, 4096, 4099, 14336};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

struct ck_vectors ck_vectors_open(struct ck *c, const struct ck_op_case *o, size_t na, size_t nb,
                                  size_t ny)
{
    struct ck_vectors v = {ck_mem_open(na * sizeof(float), 4),
                           ck_mem_open(nb * sizeof(float), 4),
                           ck_mem_open(ny * sizeof(float), 4),
                           NULL,
                           NULL,
                           NULL};
    v.x = (const float *)(void *)v.a.data;
    v.z = (const float *)(void *)v.b.data;
    v.out = (float *)(void *)v.y.data;
    ck_fill_floats(c, o->data, (float *)(void *)v.a.data, na);
    ck_fill_floats(c, o->data == CK_ZERO_X ? CK_RANDOM : o->data, (float *)(void *)v.b.data, nb);
    if (o->in_place)
        memcpy(v.out, v.x, ny * sizeof(float));
    ck_mem_seal(&v.a);
    ck_mem_seal(&v.b);
    return v;
}

void ck_vectors_close(struct ck *c, struct ck_vectors *v)
{
    ck_mem_check(c, &v->a, "first operand");
    ck_mem_check(c, &v->b, "second operand");
    ck_mem_around(c, &v->y, "y");
    ck_mem_close(&v->a);
    ck_mem_close(&v->b);
    ck_mem_close(&v->y);
}

const float *ck_source(const struct ck_vectors *v, const struct ck_op_case *o)
{
    return o->in_place ? v->out : v->x;
}

void ck_vectors_scale(struct ck_vectors *v, const struct ck_op_case *o, float first, float step)
{
    for (uint32_t i = 0; i < o->n; i++) {
        ((float *)(void *)v->a.data)[i] *= first + (float)(i % 257) * step;
        v->out[i] = o->in_place ? v->x[i] : v->out[i];
    }
    ck_mem_seal(&v->a);
}

void ck_over_lengths(struct ck *c, const struct cpu_kernels *k, const char *name,
                     void (*fn)(struct ck *c, const void *arg), bool in_place_too)
{
    for (size_t i = 0; i < N_LENGTHS; i++)
        for (int mode = 0; mode < CK_N_MODES; mode++)
            for (int place = 0; place <= (in_place_too ? 1 : 0); place++) {
                struct ck_op_case o = {
                    .k = k, .n = lengths[i], .data = (enum ck_mode)mode, .in_place = place != 0};
                ck_case(c, "%s n=%u%s, %s", name, o.n, place != 0 ? " in place" : "",
                        ck_mode_name[mode]);
                ck_guarded(c, fn, &o);
            }
}

void ck_vectors_scale_second(struct ck_vectors *v, const struct ck_op_case *o, float by)
{
    for (uint32_t i = 0; i < o->n; i++)
        ((float *)(void *)v->b.data)[i] *= by;
    ck_mem_seal(&v->b);
}

void ck_pair_cut(struct ck *c, const struct ck_op_case *o, ck_pair_fn *fn)
{
    struct ck_vectors v = ck_vectors_open(c, o, o->n, o->n, o->n);
    struct ck_mem whole = ck_mem_open(o->n * sizeof(float), 4);
    uint32_t cut = (uint32_t)(ck_random(c) % (o->n / 16 + 1)) * 16;
    fn(o->k, v.x, v.z, (float *)(void *)whole.data, o->n);
    fn(o->k, v.x, v.z, v.out, cut);
    fn(o->k, v.x + cut, v.z + cut, v.out + cut, o->n - cut);
    if (memcmp(whole.data, v.y.data, o->n * sizeof(float)) != 0)
        ck_fail(c, "the result changes when cut at %u", cut);
    ck_mem_close(&whole);
    ck_vectors_close(c, &v);
}
