/* SPDX-License-Identifier: Apache-2.0
 * Activations on two devices. */
#include "core/hybrid/values.h"

#include <stdlib.h>
#include <string.h>

#define SPIN_NS 20000u

static struct atsi_tensor tensor_of(const struct atsi_graph_value *v, uint32_t rows, void *data)
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

int atsi_values_measure(const struct atsi_graph *g, uint32_t chunk, uint32_t out_rows,
                        size_t *bytes_out, struct atsi_err *err)
{
    struct atsi_value_place *places = calloc((size_t)g->n_values + 1, sizeof *places);
    int rc;
    if (places == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory placing %u values", g->n_values);
    rc = atsi_values_place(g, chunk, out_rows, places, bytes_out, err);
    free(places);
    return rc;
}

int atsi_values_open(struct atsi_values *v, const struct atsi_graph *g, const struct atsi_accel *a,
                     uint32_t chunk, uint32_t out_rows, struct atsi_err *err)
{
    static const enum atsi_mem kind[ATSI_N_DEVICES] = {ATSI_MEM_PINNED, ATSI_MEM_DEVICE};
    size_t n = (size_t)g->n_values + 1;
    int rc;
    v->g = g;
    v->a = a;
    v->chunk = chunk;
    v->out_rows = out_rows;
    v->places = calloc(n, sizeof *v->places);
    for (int d = 0; d < ATSI_N_DEVICES; d++) {
        v->all[d] = calloc(n, sizeof *v->all[d]);
        v->view[d] = calloc(n, sizeof *v->view[d]);
        if (v->places == NULL || v->all[d] == NULL || v->view[d] == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u values", g->n_values);
    }
    rc = atsi_values_place(g, chunk, out_rows, v->places, &v->bytes, err);
    for (int d = 0; d < ATSI_N_DEVICES && rc == ATSI_OK; d++) {
        unsigned char *base;
        rc = atsi_accel_alloc(a, kind[d], v->bytes, &v->buf[d], err);
        if (rc != ATSI_OK || v->buf[d] == NULL)
            break;
        base = a->d.ops[ATSI_DEVICE_ACCEL]->buf_ptr(v->buf[d]);
        for (uint32_t i = 0; i < g->n_values; i++) {
            uint32_t rows = v->places[i].output_rows ? out_rows : chunk;
            v->all[d][i] = tensor_of(g->values[i], rows, base + v->places[i].offset);
            v->view[d][i] = v->all[d][i];
        }
    }
    return rc;
}

void atsi_values_close(struct atsi_values *v)
{
    for (int d = 0; d < ATSI_N_DEVICES; d++) {
        if (v->a != NULL)
            atsi_accel_free(v->a, v->buf[d]);
        free(v->all[d]);
        free(v->view[d]);
    }
    free(v->places);
    free(v->pending);
    *v = (struct atsi_values){0};
}

/* ---------------------------------------------------------------- rows */
void atsi_values_most_rows(struct atsi_values *v)
{
    v->rows = v->out_n = 0; /* none is set */
    for (int d = 0; d < ATSI_N_DEVICES; d++)
        for (uint32_t i = 0; i < v->g->n_values; i++) {
            v->all[d][i].ne[1] = v->places[i].output_rows ? v->out_rows : v->chunk;
            v->view[d][i] = v->all[d][i];
        }
}

void atsi_values_set_rows(struct atsi_values *v, uint32_t rows, uint32_t out_first, uint32_t out_n)
{
    if (v->rows == rows && v->out_first == out_first && v->out_n == out_n)
        return; /* as in the round before */
    v->rows = rows;
    v->out_first = out_first;
    v->out_n = out_n;
    for (int d = 0; d < ATSI_N_DEVICES; d++)
        for (uint32_t i = 0; i < v->g->n_values; i++) {
            struct atsi_tensor *all = &v->all[d][i], *view = &v->view[d][i];
            if (v->places[i].output_rows) {
                all->ne[1] = out_n;
                continue;
            }
            all->ne[1] = rows;
            view->ne[1] = out_n;
            view->data = (unsigned char *)all->data + (size_t)out_first * all->row_bytes;
        }
}

const struct atsi_tensor *atsi_values_seen(const struct atsi_values *v, uint32_t device,
                                           int32_t value, bool by_output)
{
    if (value < 0)
        return NULL;
    return by_output && !v->places[value].output_rows ? &v->view[device][value]
                                                      : &v->all[device][value];
}

/* ---------------------------------------------------------------- copies */
uint32_t atsi_values_ranges(const struct atsi_values *v, const struct atsi_flow_piece *p,
                            uint32_t to, struct atsi_range *out, uint32_t room)
{
    const struct atsi_tensor *dst = &v->all[to][p->value], *src = &v->all[1 - to][p->value];
    uint32_t rows = v->places[p->value].output_rows ? v->out_n : v->rows;
    size_t row = dst->row_bytes, at = (size_t)p->first * 4, n = (size_t)(p->end - p->first) * 4;
    uint32_t count = n == row ? 1 : rows;
    if (n == row)
        n *= rows;
    for (uint32_t r = 0; r < count && r < room; r++)
        out[r] = (struct atsi_range){.src = (const unsigned char *)src->data + at + r * row,
                                     .dst = (unsigned char *)dst->data + at + r * row,
                                     .bytes = n};
    return count;
}

int atsi_values_note_read(struct atsi_values *v, const struct atsi_range *r, uint32_t n,
                          struct atsi_event *event, struct atsi_err *err)
{
    if (v->n_pending + n > v->room) {
        uint32_t room = 2 * (v->n_pending + n);
        struct atsi_pending *grown = realloc(v->pending, room * sizeof *grown);
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u copies", room);
        v->pending = grown;
        v->room = room;
    }
    for (uint32_t i = 0; i < n; i++)
        v->pending[v->n_pending++] =
            (struct atsi_pending){(uintptr_t)r[i].src, (uintptr_t)r[i].src + r[i].bytes, event};
    return ATSI_OK;
}

void atsi_values_all_read(struct atsi_values *v)
{
    v->n_pending = 0;
}

int atsi_values_about_to_write(struct atsi_values *v, const void *from, size_t bytes,
                               struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = v->a->d.ops[ATSI_DEVICE_ACCEL];
    uintptr_t at = (uintptr_t)from;
    for (uint32_t i = v->n_pending; i-- > 0;) {
        const struct atsi_pending *p = &v->pending[i];
        int rc;
        if (at >= p->to || p->from >= at + bytes)
            continue;
        rc = ops->event_wait(p->event, SPIN_NS, err);
        if (rc != ATSI_OK)
            return rc;
        /* The queue is in order: what was queued before is over too. */
        memmove(v->pending, v->pending + i + 1, (v->n_pending - i - 1) * sizeof *v->pending);
        v->n_pending -= i + 1;
        return ATSI_OK;
    }
    return ATSI_OK;
}
