/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends with memory of their own: an operation whose tensors are in host memory runs on copies
 * in the device's, and its results come back.  The way there and back is the transfer engine that
 * comes with the backend under the same name.
 */
#include "cli/kernels_op.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN 256u

/* ---------------------------------------------------------------- the way there */
int kernels_link_open(const struct atsi_runtime *rt, struct kernels_backend *b,
                      struct atsi_err *err)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    int rc, n;
    b->host_ops = atsi_runtime_component(rt, ATSI_KIND_BACKEND, "cpu_ref");
    b->link_ops = atsi_runtime_component(rt, ATSI_KIND_TRANSFER, b->name);
    if (b->host_ops == NULL || b->link_ops == NULL)
        return atsi_fail(err, ATSI_ECONF, "no %s here for backend %s",
                         b->host_ops == NULL ? "backend cpu_ref" : "transfer engine", b->name);
    rc = b->host_ops->open(host, 0, &b->host_be, err);
    if (rc == ATSI_OK)
        rc = b->link_ops->open(host, b->host_be, b->be, &b->link, err);
    if (rc == ATSI_OK)
        rc = b->ops->event_open(b->be, &b->done, err);
    if (rc != ATSI_OK)
        return rc;
    n = b->link_ops->channels(b->link, &b->channels);
    b->channel = 0;
    while ((int)b->channel < n && b->channels[b->channel]->uses_compute != 0)
        b->channel++;
    if ((int)b->channel >= n)
        return atsi_fail(err, ATSI_ENOTSUP, "transfer engine %s has no copy engine", b->name);
    return ATSI_OK;
}

void kernels_link_close(struct kernels_backend *b)
{
    if (b->link_ops != NULL)
        b->link_ops->close(b->link);
    if (b->host_be != NULL)
        b->host_ops->close(b->host_be);
    if (b->done != NULL)
        b->ops->event_close(b->done);
}

int kernels_wait(struct kernels_backend *b, struct atsi_err *err)
{
    return b->done != NULL ? b->ops->event_wait(b->done, 0, err) : ATSI_OK;
}

int kernels_copy(struct kernels_backend *b, void *dst, const void *src, size_t bytes,
                 struct atsi_err *err)
{
    const struct atsi_range range = {.src = src, .dst = dst, .bytes = bytes};
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = &range, .signal = b->done};
    int rc = b->link_ops->copyv(b->link, b->channel, NULL, &req, err);
    return rc == ATSI_OK ? kernels_wait(b, err) : rc;
}

/* ---------------------------------------------------------------- an operation over there */
#define MAX_PIECES 11 /* four sources, two weights, two results, keys, values, a state */
#define MAX_TENSORS 9

struct piece {
    void *data; /* in host memory */
    size_t bytes, at;
    bool back; /* written by the operation */
};

struct remote {
    struct atsi_op op;
    struct atsi_tensor t[MAX_TENSORS];
    struct atsi_kv kv;
    struct piece piece[MAX_PIECES];
    uint32_t n_tensors, n_pieces;
    size_t bytes;
};

/* Where `data` lies behind the start of the device's memory; the same place for the same data. */
static size_t place(struct remote *r, void *data, size_t bytes, bool back)
{
    struct piece *p;
    for (uint32_t i = 0; i < r->n_pieces; i++)
        if (r->piece[i].data == data) {
            r->piece[i].back = r->piece[i].back || back;
            return r->piece[i].at;
        }
    p = &r->piece[r->n_pieces++];
    *p = (struct piece){.data = data, .bytes = bytes, .at = r->bytes, .back = back};
    r->bytes += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p->at;
}

static void *spot(unsigned char *base, size_t at)
{
    return base != NULL ? base + at : NULL;
}

static const struct atsi_tensor *move(struct remote *r, unsigned char *base,
                                      const struct atsi_tensor *t, bool back)
{
    struct atsi_tensor *there;
    if (t == NULL)
        return NULL;
    there = &r->t[r->n_tensors++];
    *there = *t;
    there->data = spot(base, place(r, t->data, (size_t)(t->row_bytes * t->ne[1] * t->ne[2]), back));
    return there;
}

static size_t cache_bytes(const struct atsi_kv *kv, uint32_t type, uint32_t dim)
{
    return (size_t)(atsi_row_bytes(type, dim) * kv->n_head_kv * kv->n_ctx);
}

/* The operation with its tensors at `base`; once with NULL, to learn the size. */
static void build(struct remote *r, unsigned char *base, const struct atsi_op *op)
{
    r->n_tensors = r->n_pieces = 0;
    r->bytes = 0;
    r->op = *op;
    for (int i = 0; i < 4; i++)
        r->op.src[i] = move(r, base, op->src[i], false);
    for (int i = 0; i < 2; i++) {
        r->op.weight[i] = move(r, base, op->weight[i], false);
        r->op.dst[i] = move(r, base, op->dst[i], true);
    }
    r->op.state = move(r, base, op->state, true);
    if (op->kv != NULL) {
        size_t k = cache_bytes(op->kv, op->kv->type_k, op->kv->head_dim_k);
        size_t v = cache_bytes(op->kv, op->kv->type_v, op->kv->head_dim_v);
        r->kv = *op->kv;
        r->kv.k = spot(base, place(r, op->kv->k, k, true));
        r->kv.v = spot(base, place(r, op->kv->v, v, true));
        r->op.kv = &r->kv;
    }
}

static int copy_pieces(struct kernels_backend *b, const struct remote *r, unsigned char *base,
                       bool back, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < r->n_pieces && rc == ATSI_OK; i++) {
        const struct piece *p = &r->piece[i];
        if (!back)
            rc = kernels_copy(b, base + p->at, p->data, p->bytes, err);
        else if (p->back)
            rc = kernels_copy(b, p->data, base + p->at, p->bytes, err);
    }
    return rc;
}

static int run_there(struct kernels_backend *b, const struct atsi_op *op, struct atsi_err *err)
{
    struct remote r;
    struct atsi_buf *buf;
    unsigned char *base;
    int rc;
    build(&r, NULL, op);
    rc = b->ops->buf_alloc(b->be, ATSI_MEM_DEVICE, r.bytes, &buf, err);
    if (rc != ATSI_OK)
        return rc;
    base = b->ops->buf_ptr(buf);
    build(&r, base, op);
    rc = copy_pieces(b, &r, base, false, err);
    if (rc == ATSI_OK) {
        const struct atsi_op *ops = &r.op;
        struct atsi_split split = {
            .struct_size = sizeof split, .n_ops = 1, .ops = &ops, .signal = b->done};
        rc = b->ops->run(b->queue, &split, err);
    }
    if (rc == ATSI_OK)
        rc = kernels_wait(b, err);
    if (rc == ATSI_OK)
        rc = copy_pieces(b, &r, base, true, err);
    b->ops->buf_free(b->be, buf);
    return rc;
}

int kernels_run(struct kernels_backend *b, const struct atsi_op *op, struct atsi_err *err)
{
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 1, .ops = &op};
    return b->link != NULL ? run_there(b, op, err) : b->ops->run(b->queue, &split, err);
}
