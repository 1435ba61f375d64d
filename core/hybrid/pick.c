/* SPDX-License-Identifier: Apache-2.0
 * The largest logits, picked on the accelerator. */
#include "core/hybrid/pick.h"

/* More than any sampler keeps; a longer list saves little of the row. */
#define MOST 2048u

/* ---------------------------------------------------------------- life */
static struct atsi_tensor list_of(uint32_t type, uint32_t n, void *data, const char *name)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = type,
                                .layout = ATSI_LAYOUT_ROWS,
                                .n_dims = 2,
                                .ne = {n, 1, 1, 1},
                                .row_bytes = (uint64_t)n * 4,
                                .data = data,
                                .name = name};
}

/* Ids and logits lie one behind the other: one range brings both. */
static void set_number(struct atsi_pick *p, uint32_t n)
{
    unsigned char *at = p->a->d.ops[ATSI_DEVICE_ACCEL]->buf_ptr(p->there);
    p->ids = list_of(ATSI_TYPE_I32, n, at, "ids of the largest logits");
    p->logits = list_of(ATSI_TYPE_F32, n, at + (size_t)n * 4, "largest logits");
    p->op.p.moe.n_used = n;
}

static bool is_taken(struct atsi_pick *p, uint32_t n)
{
    const struct atsi_exec_devices *d = &p->a->d;
    if (n == p->taken || n == p->refused)
        return n == p->taken;
    set_number(p, n);
    if (d->ops[ATSI_DEVICE_ACCEL]->supports(d->be[ATSI_DEVICE_ACCEL], &p->op) == 1)
        p->taken = n;
    else
        p->refused = n;
    return n == p->taken;
}

int atsi_pick_open(struct atsi_pick *p, const struct atsi_conf *conf, struct atsi_accel *a,
                   const struct atsi_values *v, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = a->d.ops[ATSI_DEVICE_ACCEL];
    uint32_t half = v->g->n_vocab / 2; /* of as many, list and row are of one size */
    uint32_t room = half < MOST ? half : MOST;
    int rc;
    p->a = a;
    p->v = v;
    if (!atsi_conf_bool(conf, "exec.pick") || room == 0)
        return ATSI_OK;
    p->op = (struct atsi_op){.struct_size = sizeof p->op,
                             .kind = ATSI_OP_TOPK,
                             .n_rows = 1,
                             .src = {&v->all[ATSI_DEVICE_ACCEL][v->g->out_logits]},
                             .dst = {&p->ids, &p->logits},
                             .p.moe.gating = ATSI_GATING_NONE};
    p->list[0] = &p->op;
    rc = atsi_accel_alloc(a, ATSI_MEM_DEVICE, (size_t)room * 8, &p->there, err);
    if (rc == ATSI_OK)
        rc = atsi_accel_alloc(a, ATSI_MEM_PINNED, (size_t)room * 8, &p->here, err);
    if (rc == ATSI_OK)
        rc = ops->event_open(a->d.be[ATSI_DEVICE_ACCEL], &p->event, err);
    if (rc == ATSI_OK)
        p->room = room;
    return rc;
}

void atsi_pick_close(struct atsi_pick *p)
{
    if (p->event != NULL)
        p->a->d.ops[ATSI_DEVICE_ACCEL]->event_close(p->event);
    if (p->a != NULL) {
        atsi_accel_free(p->a, p->here);
        atsi_accel_free(p->a, p->there);
    }
    *p = (struct atsi_pick){0};
}

/* ---------------------------------------------------------------- rounds */
size_t atsi_pick_bytes(struct atsi_pick *p, uint32_t want)
{
    if (want > 0 && want <= p->room && is_taken(p, want))
        return (size_t)want * 8;
    return (size_t)p->v->g->n_vocab * sizeof(float);
}

void atsi_pick_begin(struct atsi_pick *p, uint32_t want)
{
    p->want = want <= p->room ? want : 0;
    p->n = 0;
}

bool atsi_pick_wanted(struct atsi_pick *p)
{
    return p->want > 0 && p->v->out_n == 1 && is_taken(p, p->want);
}

/* Other memory, other key: graphs are kept from one of these to the next. */
static uint64_t key_of(const struct atsi_pick *p)
{
    const uint64_t words[] = {(uintptr_t)p->ids.data, (uintptr_t)p->op.src[0]->data, p->want};
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        h = (h ^ words[i]) * UINT64_C(1099511628211); /* FNV-1a, by words */
    return h | 1U;
}

int atsi_pick_queue(struct atsi_pick *p, struct atsi_copyv *req, struct atsi_err *err)
{
    const struct atsi_exec_devices *d = &p->a->d;
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 1, .ops = p->list};
    int rc;
    if (p->op.p.moe.n_used != p->want)
        set_number(p, p->want);
    split.graph_key = key_of(p);
    rc = d->ops[ATSI_DEVICE_ACCEL]->run(d->queue[ATSI_DEVICE_ACCEL], &split, err);
    if (rc != ATSI_OK)
        return rc;
    p->n = p->want;
    p->row_here = false;
    p->range = (struct atsi_range){p->ids.data, d->ops[ATSI_DEVICE_ACCEL]->buf_ptr(p->here),
                                   (size_t)p->n * 8};
    req->ranges = &p->range;
    req->n_ranges = 1;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- results */
uint32_t atsi_pick_result(const struct atsi_pick *p, const int32_t **ids, float **logits)
{
    unsigned char *at = p->n > 0 ? p->a->d.ops[ATSI_DEVICE_ACCEL]->buf_ptr(p->here) : NULL;
    *ids = (const int32_t *)(void *)at;
    *logits = p->n > 0 ? (float *)(void *)(at + (size_t)p->n * 4) : NULL;
    return p->n;
}

int atsi_pick_fetch_row(struct atsi_pick *p, size_t *bytes, struct atsi_err *err)
{
    const int32_t value = p->n > 0 ? p->v->g->out_logits : 0;
    const struct atsi_tensor *to = &p->v->all[ATSI_DEVICE_HOST][value];
    int rc;
    *bytes = 0;
    if (p->n == 0 || p->row_here)
        return ATSI_OK;
    rc = atsi_accel_copy(p->a, p->event, to->data, p->v->all[ATSI_DEVICE_ACCEL][value].data,
                         (size_t)to->row_bytes, err);
    p->row_here = rc == ATSI_OK;
    if (rc == ATSI_OK)
        *bytes = (size_t)to->row_bytes;
    return rc;
}
