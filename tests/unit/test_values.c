/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement of graph values: what is alive together never shares memory, dead memory is used again,
 * and a malformed graph is refused before anything is computed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "core/values.h"

enum { MAX = 64 };

struct fixture {
    struct atsi_graph g;
    struct atsi_graph_value v[MAX];
    struct atsi_graph_node n[MAX];
    const struct atsi_graph_value *vp[MAX];
    const struct atsi_graph_node *np[MAX];
};

static void init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    for (int i = 0; i < MAX; i++) {
        f->vp[i] = &f->v[i];
        f->np[i] = &f->n[i];
        f->v[i] = (struct atsi_graph_value){sizeof f->v[i], ATSI_TYPE_F32, 16, "v"};
        f->n[i] = (struct atsi_graph_node){.struct_size = sizeof f->n[i],
                                           .kind = ATSI_OP_ADD,
                                           .src = {-1, -1, -1, -1},
                                           .weight = {-1, -1},
                                           .dst = {-1, -1},
                                           .kv = -1,
                                           .state = -1};
    }
    f->g.values = f->vp;
    f->g.nodes = f->np;
    f->g.n_values = 2; /* 0: ids, 1: positions */
    f->g.in_ids = 0;
    f->g.in_pos = 1;
}

static int32_t node(struct fixture *f, int32_t x, int32_t y, uint32_t flags)
{
    struct atsi_graph_node *n = &f->n[f->g.n_nodes++];
    n->src[0] = x;
    n->src[1] = y;
    n->flags = flags;
    n->dst[0] = (int32_t)f->g.n_values++;
    return n->dst[0];
}

/* A chain of `len` steps, each also reading the first value, and an output part of two nodes. */
static void chain(struct fixture *f, int len)
{
    int32_t first, x;
    init(f);
    first = x = node(f, 0, -1, 0);
    for (int i = 0; i < len; i++)
        x = node(f, x, i == len - 1 ? first : -1, 0);
    x = node(f, x, -1, ATSI_NODE_OUTPUT_ROWS);
    f->g.out_logits = node(f, x, -1, ATSI_NODE_OUTPUT_ROWS);
}

static int place(const struct fixture *f, struct atsi_value_place *p, size_t *bytes,
                 struct atsi_err *err)
{
    return atsi_values_place(&f->g, 8, 2, p, bytes, err);
}

static bool overlap(const struct atsi_value_place *a, const struct atsi_value_place *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Replays the graph: each node's inputs must still hold what their writers put there. */
static void replay(const struct fixture *f, const struct atsi_value_place *p, size_t bytes)
{
    int32_t *memory = calloc(bytes / 4 + 1, 4);
    assert_non_null(memory);
    memory[p[0].offset / 4] = 100;
    memory[p[1].offset / 4] = 101;
    for (uint32_t pass = 0; pass < 2;
         pass++) /* the output part runs again over the same main part */
        for (uint32_t i = 0; i < f->g.n_nodes; i++) {
            const struct atsi_graph_node *n = f->np[i];
            if (pass == 1 && (n->flags & ATSI_NODE_OUTPUT_ROWS) == 0)
                continue;
            for (int s = 0; s < 4; s++)
                if (n->src[s] >= 0)
                    assert_int_equal(memory[p[n->src[s]].offset / 4], 100 + n->src[s]);
            for (size_t b = 0; b < p[n->dst[0]].bytes / 4; b++)
                memory[p[n->dst[0]].offset / 4 + b] = 100 + n->dst[0];
        }
    free(memory);
}

static void values_alive_together_keep_apart(void **state)
{
    struct fixture f;
    struct atsi_value_place p[MAX];
    struct atsi_err err = ATSI_ERR_INIT;
    size_t bytes = 0;
    (void)state;
    init(&f);
    chain(&f, 20);
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_OK);
    for (uint32_t v = 0; v < f.g.n_values; v++) {
        assert_int_equal(p[v].offset % 64, 0);
        assert_true(p[v].offset + p[v].bytes <= bytes);
    }
    replay(&f, p, bytes);
    assert_true(overlap(&p[4], &p[6])); /* dead memory is used again */
    assert_true(bytes < 10 * p[3].bytes);
}

static void random_graphs_replay(void **state)
{
    struct atsi_value_place p[MAX];
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t r = 1;
    (void)state;
    for (int round = 0; round < 300; round++) {
        struct fixture f;
        size_t bytes = 0;
        init(&f);
        for (int i = 0; i < 40; i++) {
            int32_t n = (int32_t)f.g.n_values;
            r = r * 1664525u + 1013904223u;
            f.v[n].width = 1 + (r >> 8) % 200;
            (void)node(&f, (int32_t)((r >> 16) % (uint32_t)n), (int32_t)((r >> 4) % (uint32_t)n),
                       i >= 30 ? ATSI_NODE_OUTPUT_ROWS : 0);
        }
        f.g.out_logits = (int32_t)f.g.n_values - 1;
        assert_int_equal(place(&f, p, &bytes, &err), ATSI_OK);
        replay(&f, p, bytes);
    }
}

static void malformed_graphs_are_refused(void **state)
{
    struct fixture f;
    struct atsi_value_place p[MAX];
    struct atsi_err err = ATSI_ERR_INIT;
    size_t bytes;
    (void)state;
    init(&f);
    chain(&f, 3);
    f.n[2].src[1] = 5; /* written later */
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "before it is written"));
    chain(&f, 3);
    f.n[2].src[0] = 99;
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    chain(&f, 3);
    f.n[3].dst[0] = f.n[2].dst[0];
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "written already"));
    chain(&f, 3);
    f.n[1].kv = 0; /* there is none */
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    chain(&f, 3);
    f.n[1].kind = ATSI_OP_COUNT;
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    chain(&f, 3);
    f.n[5].flags = 0; /* all rows after an output node */
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    chain(&f, 3);
    f.g.out_logits = 1;
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_EINVAL);
    chain(&f, 3);
    f.v[3].width = UINT64_MAX / 2;
    assert_int_equal(place(&f, p, &bytes, &err), ATSI_ENOFIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_alive_together_keep_apart),
        cmocka_unit_test(random_graphs_replay),
        cmocka_unit_test(malformed_graphs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
