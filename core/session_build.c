/* SPDX-License-Identifier: Apache-2.0
 *
 * From a graph to the ops of a round: one tensor per value, one op per node, built once.  A round
 * only changes row counts, so a decode step allocates nothing.
 */
#include "core/session.h"

#include <stdlib.h>
#include <string.h>

static struct atsi_tensor value_tensor(const struct atsi_graph_value *v, uint32_t rows, void *data)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = v->type,
                                .layout = ATSI_LAYOUT_ROWS,
                                .n_dims = 2,
                                .ne = {v->width, rows, 1, 1},
                                .row_bytes = v->width * 4,
                                .data = data,
                                .name = v->name};
}

static const struct atsi_tensor *source(const struct atsi_session *s, int32_t v, bool output)
{
    if (v < 0)
        return NULL;
    return output && !s->places[v].output_rows ? &s->views[v] : &s->values[v];
}

static int build_op(struct atsi_session *s, uint32_t i, bool exact, struct atsi_err *err)
{
    const struct atsi_graph_node *n = s->g->nodes[i];
    const struct atsi_loaded_info *info = atsi_model_info(s->model);
    bool output = (n->flags & ATSI_NODE_OUTPUT_ROWS) != 0;
    struct atsi_op *op = &s->ops[i];
    *op = (struct atsi_op){.struct_size = sizeof *op,
                           .kind = n->kind,
                           .flags = exact ? ATSI_OP_EXACT : 0,
                           .n_rows = output ? s->out_rows : s->chunk,
                           .item = n->item,
                           .kv = n->kv >= 0 ? &s->kv[n->kv] : NULL,
                           .p = n->p,
                           .state = n->state >= 0 ? &s->states[n->state] : NULL};
    for (int k = 0; k < 4; k++)
        op->src[k] = source(s, n->src[k], output);
    for (int k = 0; k < 2; k++) {
        op->dst[k] = n->dst[k] >= 0 ? &s->values[n->dst[k]] : NULL;
        if (n->weight[k] >= 0 && (uint32_t)n->weight[k] >= info->n_tensors_all)
            return atsi_fail(err, ATSI_EINVAL, "graph node %u: weight %d, %u tensors", i,
                             n->weight[k], info->n_tensors_all);
        op->weight[k] = n->weight[k] >= 0 ? info->tensors[n->weight[k]] : NULL;
        if (op->weight[k] != NULL && op->weight[k]->data == NULL)
            return atsi_fail(err, ATSI_EINVAL,
                             "tensor %s: the model was opened without weights, to plan only",
                             op->weight[k]->name);
    }
    if (n->kind == ATSI_OP_ATTN)
        op->p.attn.n_kv = s->n_ctx;
    if (s->be_ops->supports(s->be, op) != 1)
        return atsi_fail(
            err, ATSI_ENOTSUP, "backend %s cannot compute %s (operation %u%s%s, weight type %s)",
            s->backend_name, op->dst[0] != NULL ? op->dst[0]->name : "?", op->kind,
            op->weight[0] != NULL ? " with " : "", op->weight[0] != NULL ? op->weight[0]->name : "",
            op->weight[0] != NULL && atsi_type_info(op->weight[0]->type) != NULL
                ? atsi_type_info(op->weight[0]->type)->name
                : "none");
    s->op_ptrs[i] = op;
    return ATSI_OK;
}

static void place_kv(struct atsi_session *s)
{
    unsigned char *at = s->be_ops->buf_ptr(s->kv_buf);
    for (uint32_t i = 0; i < s->g->n_kv; i++) {
        const struct atsi_graph_kv *kv = s->g->kv[i];
        void *part[2];
        for (int v = 0; v < 2; v++) {
            size_t bytes = 0;
            part[v] = at;
            (void)atsi_kv_part_bytes(s, kv, v == 0, &bytes); /* summed without overflow before */
            at += bytes;
        }
        s->kv[i] = (struct atsi_kv){.struct_size = sizeof s->kv[i],
                                    .type_k = s->type_k,
                                    .type_v = s->type_v,
                                    .n_head_kv = kv->n_head_kv,
                                    .head_dim_k = kv->head_dim_k,
                                    .head_dim_v = kv->head_dim_v,
                                    .n_ctx = atsi_kv_cells(s, kv),
                                    .k = part[0],
                                    .v = part[1]};
    }
}

static void place_states(struct atsi_session *s)
{
    unsigned char *at = s->be_ops->buf_ptr(s->state_buf);
    for (uint32_t i = 0; i < s->g->n_states; i++) {
        const struct atsi_graph_state *st = s->g->states[i];
        size_t bytes = 0;
        s->states[i] = (struct atsi_tensor){.struct_size = sizeof s->states[i],
                                            .type = ATSI_TYPE_F32,
                                            .layout = ATSI_LAYOUT_ROWS,
                                            .n_dims = 3,
                                            .ne = {st->ne[0], st->ne[1], st->ne[2], 1},
                                            .row_bytes = st->ne[0] * sizeof(float),
                                            .data = at,
                                            .name = st->name};
        (void)atsi_state_bytes(st, &bytes); /* summed without overflow before */
        at += bytes;
    }
}

int atsi_session_tables(struct atsi_session *s, struct atsi_err *err)
{
    const struct atsi_graph *g = s->g;
    if (s->tokens != NULL)
        return ATSI_OK;
    s->kv = calloc((size_t)g->n_kv + 1, sizeof *s->kv);
    s->states = calloc((size_t)g->n_states + 1, sizeof *s->states);
    s->tokens = calloc(s->n_ctx, sizeof *s->tokens);
    if (s->kv == NULL || s->states == NULL || s->tokens == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the tables of %u positions",
                         s->n_ctx);
    return ATSI_OK;
}

static int alloc_tables(struct atsi_session *s, struct atsi_err *err)
{
    const struct atsi_graph *g = s->g;
    int rc = atsi_session_tables(s, err);
    if (rc != ATSI_OK)
        return rc;
    s->values = calloc(g->n_values, sizeof *s->values);
    s->views = calloc(g->n_values, sizeof *s->views);
    s->ops = calloc((size_t)g->n_nodes + 1, sizeof *s->ops);
    s->op_ptrs = calloc((size_t)g->n_nodes + 1, sizeof(const struct atsi_op *));
    if (s->values == NULL || s->views == NULL || s->ops == NULL || s->op_ptrs == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the tables of %u operations",
                         g->n_nodes);
    return ATSI_OK;
}

static int alloc_buffers(struct atsi_session *s, struct atsi_err *err)
{
    int rc = s->be_ops->buf_alloc(s->be, ATSI_MEM_DEVICE, s->arena_bytes, &s->arena_buf, err);
    if (rc == ATSI_OK)
        rc = s->be_ops->buf_alloc(s->be, ATSI_MEM_DEVICE, s->kv_bytes, &s->kv_buf, err);
    if (rc == ATSI_OK && s->state_bytes > 0)
        rc = s->be_ops->buf_alloc(s->be, ATSI_MEM_DEVICE, s->state_bytes, &s->state_buf, err);
    return rc;
}

int atsi_session_build(struct atsi_session *s, struct atsi_err *err)
{
    const struct atsi_graph *g = s->g;
    bool exact = strcmp(atsi_conf_get(s->rt->conf, "cpu.activations"), "f32") == 0;
    unsigned char *base;
    int rc = alloc_tables(s, err);
    if (rc == ATSI_OK)
        rc = alloc_buffers(s, err);
    if (rc != ATSI_OK)
        return rc;
    place_kv(s);
    if (s->state_bytes > 0)
        place_states(s);
    atsi_session_reset(s);
    base = s->be_ops->buf_ptr(s->arena_buf);
    for (uint32_t v = 0; v < g->n_values; v++) {
        uint32_t rows = s->places[v].output_rows ? s->out_rows : s->chunk;
        s->values[v] = value_tensor(g->values[v], rows, base + s->places[v].offset);
        s->views[v] = s->values[v];
    }
    s->n_main = 0;
    while (s->n_main < g->n_nodes && (g->nodes[s->n_main]->flags & ATSI_NODE_OUTPUT_ROWS) == 0)
        s->n_main++;
    for (uint32_t i = 0; i < g->n_nodes && rc == ATSI_OK; i++)
        rc = build_op(s, i, exact, err);
    return rc;
}

void atsi_session_unbuild_work(struct atsi_session *s)
{
    if (s->arena_buf != NULL)
        s->be_ops->buf_free(s->be, s->arena_buf);
    if (s->kv_buf != NULL)
        s->be_ops->buf_free(s->be, s->kv_buf);
    if (s->state_buf != NULL)
        s->be_ops->buf_free(s->be, s->state_buf);
    free(s->op_ptrs);
    free(s->ops);
    free(s->views);
    free(s->values);
    s->arena_buf = s->kv_buf = s->state_buf = NULL;
    s->op_ptrs = NULL;
    s->ops = NULL;
    s->views = s->values = NULL;
    s->weights = NULL; /* of the model */
}

void atsi_session_unbuild(struct atsi_session *s)
{
    atsi_session_unbuild_work(s);
    free(s->tokens);
    free(s->states);
    free(s->kv);
    free(s->places);
}

void atsi_session_set_rows(struct atsi_session *s, uint32_t rows)
{
    for (uint32_t v = 0; v < s->g->n_values; v++)
        if (!s->places[v].output_rows)
            s->values[v].ne[1] = rows;
    for (uint32_t i = 0; i < s->n_main; i++) {
        s->ops[i].n_rows = rows;
        if (s->ops[i].kind == ATSI_OP_ATTN)
            s->ops[i].p.attn.n_kv = s->n_past + rows;
    }
}

void atsi_session_set_output(struct atsi_session *s, uint32_t first, uint32_t n)
{
    for (uint32_t v = 0; v < s->g->n_values; v++)
        if (s->places[v].output_rows) {
            s->values[v].ne[1] = n;
        } else {
            s->views[v].ne[1] = n;
            s->views[v].data =
                (unsigned char *)s->values[v].data + (size_t)first * s->values[v].row_bytes;
        }
    for (uint32_t i = s->n_main; i < s->g->n_nodes; i++)
        s->ops[i].n_rows = n;
}
