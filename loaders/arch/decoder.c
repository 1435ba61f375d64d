/* SPDX-License-Identifier: Apache-2.0
 *
 * The skeleton:  h = x + P(Mixer(N(x))),  x' = h + P'(FFN(N(h))),  logits = W N(x), where P and P'
 * are further norms or nothing.
 */
#include "loaders/arch/decoder.h"

#include "loaders/arch/rope.h"

int32_t arch_project(struct arch_builder *b, const char *value, const char *tensor,
                     const char *bias, int32_t x, uint64_t in, uint64_t out)
{
    int32_t w = arch_tensor(b, tensor, SHAPE(in, out));
    return arch_matmul(b, value, x, w, bias != NULL ? arch_tensor_opt(b, bias, SHAPE(out)) : -1);
}

void arch_output_rows(struct arch_builder *b)
{
    if (b->layer == (int32_t)b->hp.n_layer - 1)
        b->flags |= ATSI_NODE_OUTPUT_ROWS;
}

static int32_t norm(struct arch_builder *b, const char *value, const char *tensor, int32_t x)
{
    return arch_rms_norm(b, value, x, arch_tensor(b, tensor, SHAPE(b->hp.n_embd)));
}

static int32_t layer(struct arch_context *c, int32_t x)
{
    struct arch_builder *b = &c->b;
    const struct arch_decoder *d = c->d;
    int32_t h = norm(b, "attn_norm", "blk.%d.attn_norm.weight", x);
    h = b->hp.recurrent[b->layer] != 0 ? d->linear(b, h) : arch_attention(c, h);
    if (d->post_attn_norm != NULL)
        h = norm(b, "post_attn_norm", d->post_attn_norm, h);
    x = arch_add(b, d->residual_value, h, x);
    h = arch_ffn(c, norm(b, d->ffn_norm_value, d->ffn_norm, x));
    if (d->post_ffn_norm != NULL)
        h = norm(b, "post_mlp_norm", d->post_ffn_norm, h);
    return arch_add(b, "l_out", h, x);
}

static int32_t head(struct arch_context *c, int32_t x, int32_t embedding)
{
    struct arch_builder *b = &c->b;
    uint64_t d = b->hp.n_embd, v = b->hp.n_vocab;
    int32_t w = c->d->own_head ? arch_tensor(b, "output.weight", SHAPE(d, v))
                               : arch_tensor_opt(b, "output.weight", SHAPE(d, v));
    int32_t bias = c->d->output_bias ? arch_tensor_opt(b, "output.bias", SHAPE(v)) : -1;
    b->role = ATSI_ROLE_HEAD;
    return arch_matmul(b, "result_output", norm(b, "result_norm", "output_norm.weight", x),
                       w >= 0 ? w : embedding, bias);
}

/* Tensors of next-token-prediction blocks, and per-layer copies of the frequencies some old files
 * carry, take no part in plain generation. */
static void skip_known(struct arch_builder *b)
{
    char prefix[32];
    for (uint32_t i = 0; i < b->hp.n_layer; i++) {
        (void)snprintf(prefix, sizeof prefix, "blk.%u.attn_rot_embd", i);
        arch_skip(b, prefix);
    }
    for (uint32_t i = b->hp.n_layer; i < b->hp.n_block; i++) {
        (void)snprintf(prefix, sizeof prefix, "blk.%u.", i);
        arch_skip(b, prefix);
    }
}

int arch_build_decoder(struct atsi_loaded *m, const struct arch_decoder *d, struct atsi_err *err)
{
    struct arch_context c = {.d = d};
    struct arch_builder *b = &c.b;
    int32_t ids, embedding, x;
    int rc = arch_builder_open(b, m, err);
    if (rc != ATSI_OK)
        return rc;
    arch_read_hparams(b);
    b->hp.rope_mode = d->rope_mode;
    if (d->read != NULL && b->rc == ATSI_OK)
        d->read(b);
    skip_known(b);
    ids = arch_input(b, "ids");
    c.pos = arch_input(b, "positions");
    embedding = arch_tensor(b, "token_embd.weight", SHAPE(b->hp.n_embd, b->hp.n_vocab));
    b->role = ATSI_ROLE_EMBED;
    x = arch_embed(b, "embd", ids, embedding);
    arch_rope_setup(b, c.pos, &c.rope_table);
    for (b->layer = 0; b->layer < (int32_t)b->hp.n_layer && b->rc == ATSI_OK; b->layer++)
        x = layer(&c, x);
    b->layer = -1;
    x = head(&c, x, embedding);
    return arch_builder_finish(b, ids, c.pos, x);
}
