/* SPDX-License-Identifier: Apache-2.0
 * Caches and states on the device that uses them. */
#include "core/hybrid/state.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define BOUNCE_BYTES ((size_t)1 << 20)
#define SPIN_NS 20000u

/* ---------------------------------------------------------------- where */
/* The part of the past that a node uses; -1: none. */
static int32_t part_of(const struct atsi_graph *g, uint32_t node)
{
    const struct atsi_graph_node *n = g->nodes[node];
    return n->kv >= 0 ? n->kv : n->state >= 0 ? (int32_t)g->n_kv + n->state : -1;
}

static void find_devices(struct atsi_state *st, const struct atsi_items *it, const int32_t *placed)
{
    for (uint32_t i = 0; i < it->n; i++)
        for (uint32_t k = 0; k < it->places[i].n_nodes; k++) {
            int32_t part = part_of(st->s->g, it->places[i].first_node + k);
            if (part >= 0)
                st->device[part] = (uint8_t)placed[i];
        }
}

bool atsi_state_fits(const struct atsi_state *st, const struct atsi_items *it,
                     const int32_t *placed)
{
    for (uint32_t i = 0; i < it->n; i++)
        for (uint32_t k = 0; k < it->places[i].n_nodes; k++) {
            int32_t part = part_of(st->s->g, it->places[i].first_node + k);
            if (part >= 0 && st->device[part] != placed[i])
                return false;
        }
    return true;
}

/* Sizes were summed without overflow when the session was measured. */
static size_t kv_part(const struct atsi_session *s, uint32_t i, bool keys)
{
    size_t bytes = 0;
    (void)atsi_kv_part_bytes(s, s->g->kv[i], keys, &bytes);
    return bytes;
}

static size_t state_part(const struct atsi_session *s, uint32_t i)
{
    size_t bytes = 0;
    (void)atsi_state_bytes(s->g->states[i], &bytes);
    return bytes;
}

static void sum(struct atsi_state *st)
{
    const struct atsi_graph *g = st->s->g;
    st->bytes[0] = st->bytes[1] = 0;
    for (uint32_t i = 0; i < g->n_kv; i++)
        st->bytes[st->device[i]] += kv_part(st->s, i, true) + kv_part(st->s, i, false);
    for (uint32_t i = 0; i < g->n_states; i++)
        st->bytes[st->device[g->n_kv + i]] += state_part(st->s, i);
}

static void set_kv(struct atsi_session *s, uint32_t i, unsigned char *at)
{
    const struct atsi_graph_kv *kv = s->g->kv[i];
    s->kv[i] = (struct atsi_kv){.struct_size = sizeof s->kv[i],
                                .type_k = s->type_k,
                                .type_v = s->type_v,
                                .n_head_kv = kv->n_head_kv,
                                .head_dim_k = kv->head_dim_k,
                                .head_dim_v = kv->head_dim_v,
                                .n_ctx = atsi_kv_cells(s, kv),
                                .k = at,
                                .v = at != NULL ? at + kv_part(s, i, true) : NULL};
}

static void set_state(struct atsi_session *s, uint32_t i, unsigned char *at)
{
    const struct atsi_graph_state *g = s->g->states[i];
    s->states[i] = (struct atsi_tensor){.struct_size = sizeof s->states[i],
                                        .type = ATSI_TYPE_F32,
                                        .layout = ATSI_LAYOUT_ROWS,
                                        .n_dims = 3,
                                        .ne = {g->ne[0], g->ne[1], g->ne[2], 1},
                                        .row_bytes = g->ne[0] * sizeof(float),
                                        .data = at,
                                        .name = g->name};
}

void atsi_state_describe(struct atsi_session *s)
{
    for (uint32_t i = 0; i < s->g->n_kv; i++)
        set_kv(s, i, NULL);
    for (uint32_t i = 0; i < s->g->n_states; i++)
        set_state(s, i, NULL);
}

static void lay_out(struct atsi_state *st)
{
    struct atsi_session *s = st->s;
    const struct atsi_backend_ops *ops = st->a->d.ops[ATSI_DEVICE_ACCEL];
    unsigned char *at[ATSI_N_DEVICES] = {st->host != NULL ? s->be_ops->buf_ptr(st->host) : NULL,
                                         st->accel != NULL ? ops->buf_ptr(st->accel) : NULL};
    for (uint32_t i = 0; i < s->g->n_kv; i++) {
        uint8_t d = st->device[i];
        set_kv(s, i, at[d]);
        at[d] += kv_part(s, i, true) + kv_part(s, i, false);
    }
    for (uint32_t i = 0; i < s->g->n_states; i++) {
        uint8_t d = st->device[s->g->n_kv + i];
        set_state(s, i, at[d]);
        at[d] += state_part(s, i);
    }
}

/* ---------------------------------------------------------------- life */
int atsi_state_open(struct atsi_state *st, struct atsi_session *s, struct atsi_accel *a,
                    const struct atsi_items *it, const int32_t *placed, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = a->d.ops[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    *st = (struct atsi_state){.s = s, .a = a};
    st->device = calloc((size_t)s->g->n_kv + s->g->n_states + 1, 1);
    if (st->device == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the tables of %u caches", s->g->n_kv);
    find_devices(st, it, placed);
    sum(st);
    if (st->bytes[ATSI_DEVICE_HOST] > 0)
        rc = s->be_ops->buf_alloc(s->be, ATSI_MEM_DEVICE, st->bytes[ATSI_DEVICE_HOST], &st->host,
                                  err);
    if (rc == ATSI_OK && st->bytes[ATSI_DEVICE_ACCEL] > 0) {
        rc = atsi_accel_alloc(a, ATSI_MEM_DEVICE, st->bytes[ATSI_DEVICE_ACCEL], &st->accel, err);
        if (rc == ATSI_OK)
            rc = atsi_accel_alloc(a, ATSI_MEM_PINNED, BOUNCE_BYTES, &st->bounce, err);
        if (rc == ATSI_OK)
            rc = ops->event_open(a->d.be[ATSI_DEVICE_ACCEL], &st->event, err);
    }
    if (rc == ATSI_OK)
        lay_out(st);
    return rc;
}

void atsi_state_close(struct atsi_state *st)
{
    if (st->a != NULL) {
        const struct atsi_backend_ops *ops = st->a->d.ops[ATSI_DEVICE_ACCEL];
        if (st->event != NULL)
            ops->event_close(st->event);
        atsi_accel_free(st->a, st->bounce);
        atsi_accel_free(st->a, st->accel);
        if (st->host != NULL)
            st->s->be_ops->buf_free(st->s->be, st->host);
    }
    free(st->device);
    *st = (struct atsi_state){0};
}

/* ---------------------------------------------------------------- bytes */
bool atsi_state_is_remote(const struct atsi_state *st, uint32_t part)
{
    return st->device[part] != ATSI_DEVICE_HOST;
}

static int copy(struct atsi_state *st, void *dst, const void *src, size_t bytes,
                struct atsi_err *err)
{
    int rc = atsi_accel_copy(st->a, st->event, dst, src, bytes, err);
    st->broken = st->broken || rc != ATSI_OK;
    return rc;
}

int atsi_state_run(struct atsi_state *st, void *p, size_t bytes, bool write, atsi_run_fn *fn,
                   void *ctx, struct atsi_err *err)
{
    unsigned char *bounce = st->a->d.ops[ATSI_DEVICE_ACCEL]->buf_ptr(st->bounce);
    int rc = ATSI_OK;
    for (size_t done = 0, n; done < bytes && rc == ATSI_OK; done += n) {
        unsigned char *at = (unsigned char *)p + done;
        n = bytes - done < BOUNCE_BYTES ? bytes - done : BOUNCE_BYTES;
        if (!write)
            rc = copy(st, bounce, at, n, err);
        if (rc == ATSI_OK)
            rc = fn(ctx, bounce, n, err);
        if (rc == ATSI_OK && write)
            rc = copy(st, at, bounce, n, err);
    }
    return rc;
}

static int zero_run(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    (void)ctx;
    (void)err;
    memset(p, 0, bytes);
    return ATSI_OK;
}

static int zero_remote(struct atsi_state *st, void *p, size_t bytes, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = st->a->d.ops[ATSI_DEVICE_ACCEL];
    int rc;
    if (!ATSI_HAS(ops, struct atsi_backend_ops, fill))
        return atsi_state_run(st, p, bytes, true, zero_run, NULL, err);
    rc = ops->fill(st->a->d.queue[ATSI_DEVICE_ACCEL], p, 0, bytes, st->event, err);
    if (rc == ATSI_OK)
        rc = ops->event_wait(st->event, SPIN_NS, err);
    st->broken = st->broken || rc != ATSI_OK;
    return rc;
}

int atsi_state_zero(struct atsi_state *st, struct atsi_err *err)
{
    const struct atsi_session *s = st->s;
    for (uint32_t i = 0; i < s->g->n_states; i++) {
        const struct atsi_tensor *t = &s->states[i];
        size_t bytes = (size_t)(t->row_bytes * t->ne[1] * t->ne[2]);
        int rc = ATSI_OK;
        if (atsi_state_is_remote(st, s->g->n_kv + i))
            rc = zero_remote(st, t->data, bytes, err);
        else
            memset(t->data, 0, bytes);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}
