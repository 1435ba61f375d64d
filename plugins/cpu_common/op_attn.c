/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over the KV cache: keys and values of the new rows are stored first, then tiles (tokens
 * of one KV head's query heads) are dealt out.  Where tiles are few for the workers, their chunks
 * of positions are dealt out instead and joined afterwards: the same bits.
 *
 * The cache is a ring: position p lies in cell p % n_ctx.  The positions a tile sees are
 * neighbours, so they lie in one run of cells, or in two when the ring begins anew among them.
 */
#include "attn_walk.h"
#include "backend.h"

/* Tiles per worker from which on an uneven deal does not matter. */
#define TILES_EACH 8u

/* How an attention is cut. */
struct cut {
    uint32_t heads;     /* query heads of a tile, neighbours of one KV head */
    uint32_t parts;     /* of a KV head's query heads */
    uint32_t tokens;    /* of a tile, at most */
    uint32_t n_tiles;   /* in all */
    uint32_t n_chunks;  /* of a tile, at most */
    bool by_chunk;      /* workers share a tile */
    size_t part_floats; /* of a tile's chunk */
};

static struct cut cut_of(const struct atsi_op *op, uint32_t n_threads)
{
    struct cut c;
    uint32_t group = op->p.attn.n_head / op->p.attn.n_head_kv, w = op->p.attn.window;
    uint32_t seen = op->p.attn.n_kv;
    c.parts = (group + CPU_ATTN_ROWS - 1) / CPU_ATTN_ROWS;
    c.heads = (group + c.parts - 1) / c.parts;
    c.parts = (group + c.heads - 1) / c.heads;
    c.tokens = CPU_ATTN_ROWS / c.heads;
    c.tokens = c.tokens < op->n_rows ? c.tokens : op->n_rows;
    c.n_tiles = (op->n_rows + c.tokens - 1) / c.tokens * op->p.attn.n_head_kv * c.parts;
    if (w != 0 && w - 1 < seen - c.tokens) /* n_rows <= n_kv */
        seen = w - 1 + c.tokens;
    c.n_chunks = (seen + CPU_ATTN_CELLS - 2) / CPU_ATTN_CELLS + 1;
    c.by_chunk = c.n_chunks > 2 && c.n_tiles % n_threads != 0 && c.n_tiles / TILES_EACH < n_threads;
    c.part_floats = cpu_attn_part(c.heads * c.tokens, op->kv->head_dim_v);
    return c;
}

size_t cpu_attn_shared(const struct atsi_op *op, uint32_t n_threads)
{
    struct cut c = cut_of(op, n_threads);
    return c.by_chunk ? c.n_tiles * (size_t)c.n_chunks * c.part_floats * sizeof(float) : 0;
}

size_t cpu_attn_scratch(const struct atsi_op *op, uint32_t n_threads)
{
    struct cut c = cut_of(op, n_threads);
    return cpu_round_up(
        cpu_attend_scratch(c.heads * c.tokens, op->kv->head_dim_k, op->kv->head_dim_v) *
            sizeof(float),
        CPU_ALIGN);
}

static uint32_t position(const struct atsi_op *op, uint32_t t)
{
    return (uint32_t)((const int32_t *)op->src[3]->data)[t]; /* checked before the region */
}

static unsigned char *cell(const struct atsi_kv *kv, bool keys, uint32_t head, uint32_t at)
{
    size_t row =
        atsi_row_bytes(keys ? kv->type_k : kv->type_v, keys ? kv->head_dim_k : kv->head_dim_v);
    unsigned char *base = keys ? kv->k : kv->v;
    return base + ((size_t)head * kv->n_ctx + at) * row;
}

static void store_row(const struct cpu_worker *w, const struct atsi_op *op, uint32_t t,
                      uint32_t head, bool keys)
{
    const struct atsi_kv *kv = op->kv;
    const struct atsi_tensor *x = keys ? op->src[1] : op->src[2];
    uint32_t dim = keys ? kv->head_dim_k : kv->head_dim_v, type = keys ? kv->type_k : kv->type_v;
    const float *from = (const float *)x->data + t * x->ne[0] + (size_t)head * dim;
    void *to = cell(kv, keys, head, position(op, t) % kv->n_ctx);
    if (type == ATSI_TYPE_F16)
        w->kernels->store_f16(from, to, dim);
    else if (type == ATSI_TYPE_Q8_0)
        w->kernels->store_q8_0(from, to, dim);
    else
        memcpy(to, from, dim * sizeof(float));
}

/* Tile i: tokens fastest, so that a head's cache stays close while its tokens are worked on. */
static struct cpu_attn_args tile_args(const struct atsi_op *op, const struct cut *c, uint32_t i)
{
    const struct atsi_kv *kv = op->kv;
    uint32_t per_head = (op->n_rows + c->tokens - 1) / c->tokens, t = i % per_head * c->tokens;
    uint32_t group = op->p.attn.n_head / op->p.attn.n_head_kv, w = op->p.attn.window;
    uint32_t kv_head = i / per_head / c->parts, h = i / per_head % c->parts * c->heads;
    uint32_t n = op->n_rows - t < c->tokens ? op->n_rows - t : c->tokens;
    uint32_t first_end = position(op, t) + 1, end = position(op, t) + n;
    uint32_t begin = w != 0 && first_end > w ? first_end - w : 0;
    uint32_t at = begin % kv->n_ctx, room = kv->n_ctx - at;
    size_t head = (size_t)kv_head * group + h;
    return (struct cpu_attn_args){
        .n_tok = n,
        .n_head = group - h < c->heads ? group - h : c->heads,
        .dk = kv->head_dim_k,
        .dv = kv->head_dim_v,
        .start = begin,
        .n_kv = end - begin,
        .n_first = end - begin < room ? end - begin : room,
        .window = w,
        .type_k = kv->type_k,
        .type_v = kv->type_v,
        .scale = op->p.attn.scale,
        .q = (const float *)op->src[0]->data + t * op->src[0]->ne[0] + head * kv->head_dim_k,
        .q_stride = op->src[0]->ne[0],
        .k = cell(kv, true, kv_head, at),
        .v = cell(kv, false, kv_head, at),
        .k2 = cell(kv, true, kv_head, 0),
        .v2 = cell(kv, false, kv_head, 0),
        .sink = op->weight[0] != NULL ? (const float *)op->weight[0]->data + head : NULL,
        .out = (float *)op->dst[0]->data + t * op->dst[0]->ne[0] + head * kv->head_dim_v,
        .out_stride = op->dst[0]->ne[0]};
}

/* A tile's chunks go to different workers, in turns over all tiles. */
static void by_chunk(struct cpu_worker *w, const struct atsi_op *op, const struct cut *c)
{
    float *parts = w->run->be->parts.data;
    size_t each = c->n_chunks * c->part_floats;
    size_t first, end;
    cpu_share(w->w, (size_t)c->n_tiles * c->n_chunks, 1, &first, &end);
    for (size_t u = first; u < end; u++) {
        struct cpu_attn_args a = tile_args(op, c, (uint32_t)(u / c->n_chunks));
        uint32_t i = (uint32_t)(u % c->n_chunks);
        if (i < cpu_attn_chunks(a.start, a.n_kv))
            cpu_attn_chunk(w->kernels, &a, i,
                           parts + u / c->n_chunks * each +
                               i * cpu_attn_part(a.n_tok * a.n_head, a.dv),
                           (float *)(void *)w->free);
    }
    w->w->barrier(w->w);
    for (size_t t = w->w->tid; t < c->n_tiles; t += w->w->n_threads) {
        struct cpu_attn_args a = tile_args(op, c, (uint32_t)t);
        cpu_attn_join(&a, parts + t * each, (float *)(void *)w->free);
    }
}

void cpu_op_attn(struct cpu_worker *w, const struct atsi_op *op)
{
    struct cut c = cut_of(op, w->w->n_threads);
    size_t heads = op->p.attn.n_head_kv, units = op->n_rows * heads;
    for (size_t u = w->w->tid; u < units; u += w->w->n_threads) {
        store_row(w, op, (uint32_t)(u / heads), (uint32_t)(u % heads), true);
        store_row(w, op, (uint32_t)(u / heads), (uint32_t)(u % heads), false);
    }
    w->w->barrier(w->w);
    if (c.by_chunk) {
        by_chunk(w, op, &c);
        return;
    }
    for (uint32_t i = w->w->tid; i < c.n_tiles; i += w->w->n_threads) {
        struct cpu_attn_args a = tile_args(op, &c, i);
        cpu_attend(w->kernels, &a, (float *)(void *)w->free);
    }
}
