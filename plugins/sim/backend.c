/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulated host and accelerator as backends: run() advances the virtual clock by the modelled
 * time of each operation instead of computing.  The host works synchronously, the accelerator's
 * stream is a queue.  Buffers are real memory, so that tables may live in them.
 */
#include "sim.h"
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 64u

struct atsi_backend {
    const struct atsi_host *host;
    struct sim_world *world;
    enum sim_lane lane;
};

struct atsi_queue {
    struct atsi_backend *be;
};

struct atsi_buf {
    void *data;
};

struct sim_world *sim_backend_world(const struct atsi_backend *be)
{
    return be->world;
}

static int probe(const struct atsi_host *host)
{
    (void)host;
    return 1;
}

static int open_lane(const struct atsi_host *host, int index, enum sim_lane lane,
                     struct atsi_backend **out, struct atsi_err *err)
{
    struct atsi_backend *be;
    int rc;
    *out = NULL;
    if (index != 0)
        return atsi_fail(err, ATSI_ENODEV, "sim: no device %d", index);
    be = calloc(1, sizeof *be);
    if (be == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
    be->host = host;
    be->lane = lane;
    rc = sim_world_get(host, &be->world, err);
    if (rc != ATSI_OK) {
        free(be);
        return rc;
    }
    *out = be;
    return ATSI_OK;
}

static int open_cpu(const struct atsi_host *host, int index, struct atsi_backend **out,
                    struct atsi_err *err)
{
    return open_lane(host, index, SIM_HOST, out, err);
}

static int open_gpu(const struct atsi_host *host, int index, struct atsi_backend **out,
                    struct atsi_err *err)
{
    return open_lane(host, index, SIM_STREAM, out, err);
}

static void close_backend(struct atsi_backend *be)
{
    if (be == NULL)
        return;
    (void)sim_world_drain(be->world, be->lane, NULL); /* what can never start is dropped */
    sim_world_put(be->world);
    free(be);
}

static int props(const struct atsi_backend *be, struct atsi_props *out)
{
    if (out->struct_size < sizeof *out)
        return ATSI_EINVAL;
    *out = (struct atsi_props){
        .struct_size = sizeof *out, .device_kind = ATSI_DEVICE_SIM, .buf_align_bytes = ALIGN};
    (void)snprintf(out->name, sizeof out->name, "%s", be->lane == SIM_HOST ? "sim_cpu" : "sim_gpu");
    (void)snprintf(out->detail, sizeof out->detail, "virtual clock");
    return ATSI_OK;
}

static int supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    (void)be;
    return op != NULL && op->struct_size >= sizeof *op && op->modelled != NULL ? 1 : 0;
}

static int buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err)
{
    struct atsi_buf *buf = calloc(1, sizeof *buf);
    (void)be;
    (void)mem;
    *out = NULL;
    if (buf == NULL || bytes > SIZE_MAX - ALIGN) {
        free(buf);
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory for %zu bytes", bytes);
    }
    buf->data = aligned_alloc(ALIGN, (bytes + ALIGN) / ALIGN * ALIGN);
    if (buf->data == NULL) {
        free(buf);
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory for %zu bytes", bytes);
    }
    *out = buf;
    return ATSI_OK;
}

static void buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    (void)be;
    if (buf == NULL)
        return;
    free(buf->data);
    free(buf);
}

static void *buf_ptr(const struct atsi_buf *buf)
{
    return buf->data;
}

static int queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
    (*out)->be = be;
    return ATSI_OK;
}

static void queue_close(struct atsi_queue *q)
{
    if (q != NULL)
        (void)sim_world_drain(q->be->world, q->be->lane, NULL);
    free(q);
}

static int event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
    (*out)->world = be->world;
    return ATSI_OK;
}

static void event_close(struct atsi_event *ev)
{
    if (ev != NULL && ev->pending)
        (void)sim_world_wait(ev->world, ev, NULL);
    if (ev != NULL)
        sim_world_forget(ev->world, ev);
    free(ev);
}

/* Operations become tasks, one each; an empty split is one of no length. */
static int run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    static const struct atsi_modelled nothing = {
        .struct_size = sizeof nothing, .contended_run = 1000, .contended_copy = 1000};
    struct atsi_backend *be = q->be;
    uint32_t n = split->n_ops > 0 ? split->n_ops : 1;
    for (uint32_t i = 0; i < split->n_ops; i++)
        if (supports(be, split->ops[i]) != 1)
            return atsi_fail(err, ATSI_ENOTSUP, "sim: operation %u has no modelled time",
                             split->ops[i]->kind);
    for (uint32_t i = 0; i < n; i++) {
        struct sim_task t = {.m = split->n_ops > 0 ? *split->ops[i]->modelled : nothing,
                             .load = be->lane == SIM_HOST ? SIM_LOAD_CPU : SIM_LOAD_GPU,
                             .wait = split->wait,
                             .n_wait = i == 0 ? split->n_wait : 0,
                             .signal = i + 1 == n ? split->signal : NULL,
                             .took_ns = split->op_ns != NULL && split->n_ops > 0 ? &split->op_ns[i]
                                                                                 : NULL};
        int rc = be->lane == SIM_HOST ? sim_world_work(be->world, &t, err)
                                      : sim_world_queue(be->world, be->lane, &t, err);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}

static int event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    (void)spin_ns;
    return sim_world_wait(ev->world, ev, err);
}

static int event_query(const struct atsi_event *ev)
{
    return ev->fired ? 1 : 0;
}

static int event_time(const struct atsi_event *ev, uint64_t *ns_out)
{
    if (!ev->fired)
        return ATSI_EINVAL;
    *ns_out = (uint64_t)llround(ev->at_ns);
    return ATSI_OK;
}

#define OPS(OPEN)                                                                                  \
    {                                                                                              \
        .struct_size = sizeof(struct atsi_backend_ops), .probe = probe, .open = (OPEN),            \
        .close = close_backend, .props = props, .supports = supports, .buf_alloc = buf_alloc,      \
        .buf_free = buf_free, .buf_ptr = buf_ptr, .queue_open = queue_open,                        \
        .queue_close = queue_close, .event_open = event_open, .event_close = event_close,          \
        .run = run, .event_wait = event_wait, .event_query = event_query, .event_time = event_time \
    }

const struct atsi_backend_ops sim_cpu_ops = OPS(open_cpu);
const struct atsi_backend_ops sim_gpu_ops = OPS(open_gpu);
