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

int atsi_session_start_packing(struct atsi_session *s, const uint8_t *packable,
                               struct atsi_err *err)
{
    struct atsi_pack_params p = {.model = s->model,
                                 .log = s->rt->log,
                                 .packable = packable,
                                 .mode = atsi_pack_mode_read(s->rt->conf),
                                 .cache = atsi_conf_bool(s->rt->conf, "load.pack_cache")};
    int rc = ATSI_OK;
    if (p.mode == ATSI_PACK_AUTO && s->props.prefers_panels == 0)
        return ATSI_OK;
    rc = atsi_model_weights(s->model, &p.weights, err);
    if (rc != ATSI_OK || !atsi_weights_can_release(p.weights)) /* all would be in memory twice */
        return rc;
    return atsi_packer_open(&p, &s->packer, err);
}

static int pack_own(struct atsi_session *s, struct atsi_err *err)
{
    uint32_t n = atsi_weights_count(s->weights);
    uint8_t *packable = malloc((size_t)n + 1);
    int rc;
    if (packable == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a list of %u tensors", n);
    memset(packable, 1, n);
    atsi_pack_mark(s->be_ops, s->be, s->op_ptrs, s->g->n_nodes, s->weights, packable);
    rc = atsi_session_start_packing(s, packable, err);
    free(packable);
    return rc;
}

int atsi_session_open_views(struct atsi_session *s, struct atsi_err *err)
{
    bool off = atsi_pack_mode_read(s->rt->conf) == ATSI_PACK_OFF;
    int rc;
    if (s->ops == NULL || (off && s->model->weights == NULL))
        return ATSI_OK;
    rc = atsi_model_weights(s->model, &s->weights, err);
    if (rc != ATSI_OK)
        return rc;
    look_at_views(s);
    return off || s->packer != NULL ? ATSI_OK : pack_own(s, err);
}

int atsi_session_settle(struct atsi_session *s, const volatile int *cancel, struct atsi_err *err)
{
    struct atsi_pack_state state;
    for (;;) {
        if (s->packer == NULL || atsi_packer_wait(s->packer, 50))
            return ATSI_OK;
        if (cancel != NULL && *cancel != 0) {
            atsi_packer_state(s->packer, &state);
            return atsi_fail(err, ATSI_EINTR, "interrupted after %u of %u matrices were packed",
                             state.n_done, state.n_tensors);
        }
    }
}

void atsi_session_close_views(struct atsi_session *s)
{
    atsi_packer_close(s->packer);
    s->packer = NULL;
}
