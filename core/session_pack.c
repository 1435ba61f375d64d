/* SPDX-License-Identifier: Apache-2.0
 *
 * A session on the CPU alone and the host views of its model: packed while rounds go on.
 */
#include "core/hybrid/pack.h"
#include "core/session.h"

#include <stdlib.h>
#include <string.h>

/* The view, unless another session packed it in a layout that this one's backend does not read: the
 * loader's tensor stays readable. */
static const struct atsi_tensor *choose(const struct atsi_session *s, struct atsi_op *op, int k,
                                        uint32_t tensor)
{
    const struct atsi_tensor *file = op->weight[k];
    op->weight[k] = atsi_weights_tensor(s->weights, tensor);
    if (op->weight[k]->layout == ATSI_LAYOUT_ROWS || s->be_ops->supports(s->be, op) == 1)
        return op->weight[k];
    return file;
}

static void look_at_views(struct atsi_session *s)
{
    (void)atsi_weights_begin(s->weights);
    for (uint32_t i = 0; i < s->g->n_nodes; i++)
        for (int k = 0; k < 2; k++)
            if (s->ops[i].weight[k] != NULL)
                s->ops[i].weight[k] = choose(s, &s->ops[i], k, (uint32_t)s->g->nodes[i]->weight[k]);
    atsi_weights_end(s->weights);
}

static int start_packing(struct atsi_session *s, uint32_t mode, struct atsi_err *err)
{
    uint32_t n = atsi_weights_count(s->weights);
    uint8_t *packable = malloc((size_t)n + 1);
    struct atsi_pack_params p = {.model = s->model,
                                 .weights = s->weights,
                                 .log = s->rt->log,
                                 .packable = packable,
                                 .mode = mode,
                                 .cache = atsi_conf_bool(s->rt->conf, "load.pack_cache")};
    int rc;
    if (packable == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a list of %u tensors", n);
    memset(packable, 1, n);
    atsi_pack_mark(s->be_ops, s->be, s->op_ptrs, s->g->n_nodes, s->weights, packable);
    rc = atsi_packer_open(&p, &s->packer, err);
    free(packable);
    return rc;
}

int atsi_session_open_views(struct atsi_session *s, struct atsi_err *err)
{
    uint32_t mode = atsi_pack_mode_read(s->rt->conf);
    int rc;
    if (mode == ATSI_PACK_OFF && s->model->weights == NULL)
        return ATSI_OK;
    rc = atsi_model_weights(s->model, &s->weights, err);
    if (rc != ATSI_OK)
        return rc;
    look_at_views(s);
    if (!atsi_weights_can_release(s->weights)) /* everything would be in memory twice */
        return ATSI_OK;
    return mode == ATSI_PACK_OFF ? ATSI_OK : start_packing(s, mode, err);
}

void atsi_session_close_views(struct atsi_session *s)
{
    atsi_packer_close(s->packer);
    s->packer = NULL;
}
