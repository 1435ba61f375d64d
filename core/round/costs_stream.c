/* SPDX-License-Identifier: Apache-2.0
 *
 * From how many tokens on streaming a weight beats multiplying it on the CPU, by a table of
 * measured costs.  Sessions have no such threshold: they price every item for the round at hand.
 * This is what those prices come down to, for people.
 */
#include "core/round/costs.h"

#include <string.h>

/* The same product on the accelerator, in whatever layout it was measured there. */
static const struct atsi_cost_op *find_there(const struct atsi_costs *c,
                                             const struct atsi_cost_op *here)
{
    for (uint32_t i = 0; i < c->n_ops; i++) {
        const struct atsi_cost_op *op = &c->ops[i];
        if (op->device == ATSI_DEVICE_ACCEL && op->shape.kind == here->shape.kind &&
            op->shape.type == here->shape.type &&
            memcmp(op->shape.dims, here->shape.dims, sizeof op->shape.dims) == 0)
            return op;
    }
    return NULL;
}

/* A product of whole rounds: the output part sees few rows of each. */
static bool may_stream(const struct atsi_cost_op *op)
{
    return op->device == ATSI_DEVICE_HOST &&
           (op->shape.kind == ATSI_OP_MATMUL_ID ||
            (op->shape.kind == ATSI_OP_MATMUL && op->shape.dims[3] == 0));
}

static uint64_t weight_bytes(const struct atsi_cost_shape *s)
{
    uint64_t stack = s->kind == ATSI_OP_MATMUL_ID ? s->dims[2] : 1;
    return atsi_row_bytes(s->type, s->dims[0]) * s->dims[1] * stack;
}

/* Time on the accelerator, the cut in its queue included. */
static uint64_t streamed_ns(const struct atsi_cost_stream *s, uint64_t split_ns, uint32_t tokens,
                            bool hidden)
{
    uint64_t there = split_ns + atsi_cost_op_ns(s->there, tokens, 0, false);
    if (!hidden)
        return s->copy_ns + there;
    return s->copy_ns > there ? s->copy_ns : there;
}

/* The least number of tokens from which on it is never slower; 0: it is with the most tokens. */
static uint32_t threshold(const struct atsi_costs *c, const struct atsi_cost_stream *s, bool hidden)
{
    uint32_t tokens = c->chunk;
    while (tokens > 0 && streamed_ns(s, c->split_ns, tokens, hidden) <=
                             atsi_cost_op_ns(s->here, tokens, 0, false))
        tokens--;
    return tokens == c->chunk ? 0 : tokens + 1;
}

bool atsi_costs_stream(const struct atsi_costs *c, uint32_t index, struct atsi_cost_stream *out)
{
    for (uint32_t i = 0; i < c->n_ops; i++) {
        const struct atsi_cost_op *op = &c->ops[i];
        const struct atsi_cost_op *there = may_stream(op) ? find_there(c, op) : NULL;
        if (there == NULL || index-- > 0)
            continue;
        *out = (struct atsi_cost_stream){
            .here = op, .there = there, .bytes = weight_bytes(&op->shape)};
        out->copy_ns = atsi_costs_copy_ns(c, ATSI_COPY_PINNED, out->bytes);
        out->tokens_hidden = out->copy_ns > 0 ? threshold(c, out, true) : 0;
        out->tokens_alone = out->copy_ns > 0 ? threshold(c, out, false) : 0;
        return true;
    }
    return false;
}
