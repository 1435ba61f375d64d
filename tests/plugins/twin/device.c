/* SPDX-License-Identifier: Apache-2.0
 * The device's table. */
#include "twin.h"

#include <stdlib.h>
#include <string.h>

struct atsi_backend {
    struct twin_shared shared;
};

struct atsi_queue {
    struct atsi_backend *be;
    struct twin_queue *q;
};

struct twin_shared *twin_shared(const struct atsi_backend *be)
{
    return (struct twin_shared *)(uintptr_t)&be->shared;
}

struct twin_queue *twin_queue_of(struct atsi_queue *q)
{
    return q->q;
}

static int probe(const struct atsi_host *host)
{
    return (int)twin_number(host, "devices");
}

static int open_device(const struct atsi_host *host, int index, struct atsi_backend **out,
                       struct atsi_err *err)
{
    struct atsi_backend *be;
    int rc = twin_call(host, TWIN_OPEN, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    if (index < 0 || index >= probe(host))
        return atsi_fail(err, ATSI_ENODEV, "twin: there is no device %d", index);
    be = calloc(1, sizeof *be);
    if (be != NULL)
        be->shared.compute = twin_compute_open(host);
    if (be == NULL || be->shared.compute == NULL) {
        free(be);
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    }
    be->shared.host = host;
    be->shared.limit = twin_number(host, "memory");
    be->shared.pin_limit = twin_number(host, "pin_limit");
    be->shared.random = twin_number(host, "seed");
    be->shared.delay_us = twin_number(host, "delay_us");
    (void)pthread_mutex_init(&be->shared.lock, NULL); /* neither fails on Linux */
    (void)pthread_cond_init(&be->shared.changed, NULL);
    *out = be;
    return ATSI_OK;
}

static void close_device(struct atsi_backend *be)
{
    if (be == NULL)
        return;
    twin_compute_close(be->shared.compute);
    (void)pthread_cond_destroy(&be->shared.changed);
    (void)pthread_mutex_destroy(&be->shared.lock);
    free(be);
}

static int props(const struct atsi_backend *be, struct atsi_props *out)
{
    struct twin_shared *s = twin_shared(be);
    if (out->struct_size < sizeof *out)
        return ATSI_EINVAL;
    *out = (struct atsi_props){.struct_size = sizeof *out,
                               .device_kind = ATSI_DEVICE_GPU,
                               .name = "twin",
                               .detail = "reference kernels behind queues",
                               .buf_align_bytes = 64,
                               .buf_pad_bytes = 64};
    (void)pthread_mutex_lock(&s->lock);
    out->mem_total_bytes = s->limit;
    out->mem_free_bytes = s->limit - s->used;
    (void)pthread_mutex_unlock(&s->lock);
    return ATSI_OK;
}

static int supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    return twin_compute_supports(twin_shared(be)->compute, op);
}

static int queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err)
{
    struct atsi_queue *q = calloc(1, sizeof *q);
    int rc;
    *out = NULL;
    if (q == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    q->be = be;
    rc = twin_queue_open(be, &q->q, err);
    if (rc != ATSI_OK) {
        free(q);
        return rc;
    }
    *out = q;
    return ATSI_OK;
}

static void queue_close(struct atsi_queue *q)
{
    if (q == NULL)
        return;
    twin_queue_close(q->q);
    free(q);
}

/* ---------------------------------------------------------------- splits */
/* An operation with the tensors it names: the caller's may change once run() is back. */
struct op_copy {
    struct atsi_op op;
    struct atsi_tensor src[4], weight[2], dst[2], state;
    struct atsi_kv kv;
};

struct split_task {
    struct twin_task task;
    struct atsi_backend *be;
    uint64_t *op_ns;
    uint32_t n;
    const struct atsi_op **ptrs;
    struct op_copy ops[];
};

static const struct atsi_tensor *keep(const struct atsi_tensor *from, struct atsi_tensor *to)
{
    if (from == NULL)
        return NULL;
    *to = *from;
    return to;
}

static void copy_op(struct op_copy *c, const struct atsi_op *op)
{
    c->op = *op;
    for (int k = 0; k < 4; k++)
        c->op.src[k] = keep(op->src[k], &c->src[k]);
    for (int k = 0; k < 2; k++) {
        c->op.weight[k] = keep(op->weight[k], &c->weight[k]);
        c->op.dst[k] = keep(op->dst[k], &c->dst[k]);
    }
    c->op.state = keep(op->state, &c->state);
    if (op->kv != NULL) {
        c->kv = *op->kv;
        c->op.kv = &c->kv;
    }
}

static bool here(struct atsi_backend *be, const struct atsi_tensor *t, uint64_t rows)
{
    uint64_t n = 1;
    if (t == NULL)
        return true;
    for (uint32_t d = 2; d < t->n_dims; d++)
        n *= t->ne[d];
    return rows == 0 || twin_memory_of(be, t->data,
                                       (size_t)((rows * n - 1) * t->row_bytes +
                                                atsi_row_bytes(t->type, t->ne[0]))) != TWIN_UNKNOWN;
}

static int check_op(struct atsi_backend *be, const struct atsi_op *op, struct atsi_err *err)
{
    bool ok = true;
    if (supports(be, op) != 1)
        return atsi_fail(err, ATSI_ENOTSUP, "twin: operation %u with these shapes is not supported",
                         op->kind);
    for (int k = 0; k < 4; k++)
        ok = ok && here(be, op->src[k], op->n_rows);
    for (int k = 0; k < 2; k++)
        ok = ok && here(be, op->dst[k], op->n_rows) &&
             here(be, op->weight[k], op->weight[k] != NULL ? op->weight[k]->ne[1] : 0);
    ok = ok && here(be, op->state, op->state != NULL ? op->state->ne[1] : 0);
    if (op->kv != NULL)
        ok = ok && twin_memory_of(be, op->kv->k, 1) == TWIN_DEVICE &&
             twin_memory_of(be, op->kv->v, 1) == TWIN_DEVICE;
    return ok ? ATSI_OK
              : atsi_fail(err, ATSI_EINVAL, "twin: %s: a tensor lies where the device cannot read",
                          op->dst[0] != NULL ? op->dst[0]->name : "?");
}

static int work(struct twin_task *t, struct atsi_err *err)
{
    struct split_task *s = (struct split_task *)(void *)t;
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = s->n, .ops = s->ptrs, .op_ns = s->op_ns};
    return twin_compute_run(twin_shared(s->be)->compute, &split, err);
}

static void done(struct twin_task *t)
{
    struct split_task *s = (struct split_task *)(void *)t;
    free((void *)s->ptrs);
    free(s);
}

static int run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    struct split_task *s;
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < split->n_ops && rc == ATSI_OK; i++)
        rc = check_op(q->be, split->ops[i], err);
    if (rc != ATSI_OK)
        return rc;
    s = calloc(1, sizeof *s + split->n_ops * sizeof s->ops[0]);
    if (s != NULL)
        s->ptrs = calloc((size_t)split->n_ops + 1, sizeof(const struct atsi_op *));
    if (s == NULL || s->ptrs == NULL) {
        free(s);
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    }
    s->task.fn = work;
    s->task.done = done;
    s->be = q->be;
    s->op_ns = split->op_ns;
    s->n = split->n_ops;
    for (uint32_t i = 0; i < s->n; i++) {
        copy_op(&s->ops[i], split->ops[i]);
        s->ptrs[i] = &s->ops[i].op;
    }
    rc = twin_queue_add(q->q, &s->task, split->wait, split->n_wait, split->signal, err);
    if (rc != ATSI_OK)
        done(&s->task);
    return rc;
}

/* ---------------------------------------------------------------- fills */
struct fill_task {
    struct twin_task task;
    void *dst;
    int value;
    size_t bytes;
};

static int fill_work(struct twin_task *t, struct atsi_err *err)
{
    struct fill_task *f = (struct fill_task *)(void *)t;
    (void)err;
    memset(f->dst, f->value, f->bytes);
    return ATSI_OK;
}

static void fill_done(struct twin_task *t)
{
    free(t);
}

static int fill(struct atsi_queue *q, void *dst, int value, size_t bytes, struct atsi_event *signal,
                struct atsi_err *err)
{
    struct fill_task *f;
    int rc;
    if (twin_memory_of(q->be, dst, bytes) != TWIN_DEVICE)
        return atsi_fail(err, ATSI_EINVAL, "twin: a fill of memory that is not the device's");
    f = calloc(1, sizeof *f);
    if (f == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory");
    *f = (struct fill_task){{.fn = fill_work, .done = fill_done}, dst, value, bytes};
    rc = twin_queue_add(q->q, &f->task, NULL, 0, signal, err);
    if (rc != ATSI_OK)
        free(f);
    return rc;
}

const struct atsi_backend_ops twin_backend_ops = {.struct_size = sizeof(struct atsi_backend_ops),
                                                  .probe = probe,
                                                  .open = open_device,
                                                  .close = close_device,
                                                  .props = props,
                                                  .supports = supports,
                                                  .buf_alloc = twin_buf_alloc,
                                                  .buf_free = twin_buf_free,
                                                  .buf_ptr = twin_buf_ptr,
                                                  .queue_open = queue_open,
                                                  .queue_close = queue_close,
                                                  .event_open = twin_event_open,
                                                  .event_close = twin_event_close,
                                                  .run = run,
                                                  .event_wait = twin_event_wait,
                                                  .event_query = twin_event_query,
                                                  .event_time = twin_event_time,
                                                  .fill = fill,
                                                  .host_register = twin_host_register,
                                                  .host_unregister = twin_host_unregister,
                                                  .buf_reserve = twin_buf_reserve,
                                                  .buf_commit = twin_buf_commit};
