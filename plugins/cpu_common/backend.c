/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend table of a CPU plugin, written once over a kernel table.  A CPU works synchronously:
 * a queue holds nothing, and an event has fired by the time run() returns.
 */
#include "backend.h"

#include <stdlib.h>
#include <sys/mman.h>

struct atsi_queue {
    struct atsi_backend *be;
};

struct atsi_event {
    const struct atsi_host *host;
    bool fired;
    uint64_t ns;
};

struct atsi_buf {
    void *data;
    size_t size;
};

static const struct cpu_plugin_desc *desc; /* set once by entry(), before any other call */

void cpu_backend_describe(const struct cpu_plugin_desc *d)
{
    desc = d;
}

void cpu_share(const struct atsi_worker *w, size_t n, size_t step, size_t *first, size_t *end)
{
    size_t units = (n + step - 1) / step, each = units / w->n_threads, more = units % w->n_threads;
    size_t from = w->tid * each + (w->tid < more ? w->tid : more);
    size_t to = from + each + (w->tid < more ? 1 : 0);
    *first = from * step < n ? from * step : n;
    *end = to * step < n ? to * step : n;
}

static int cpu_probe(const struct atsi_host *host)
{
    return (host->cpu_caps & desc->caps) == desc->caps ? 1 : 0;
}

static bool knows_caches(const struct atsi_host *host)
{
    return host->struct_size >= offsetof(struct atsi_host, l2_bytes) + sizeof host->l2_bytes;
}

static int cpu_open(const struct atsi_host *host, int index, struct atsi_backend **out,
                    struct atsi_err *err)
{
    struct atsi_backend *be;
    *out = NULL;
    if (index != 0 || cpu_probe(host) != 1)
        return atsi_fail(err, ATSI_ENODEV, "%s: no device %d on this CPU", desc->name, index);
    be = calloc(1, sizeof *be);
    if (be == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", desc->name);
    be->host = host;
    be->name = desc->name;
    desc->kernels(host, &be->kernels);
    be->blocks =
        knows_caches(host) ? cpu_blocks_for(host->l1d_bytes, host->l2_bytes) : cpu_blocks_for(0, 0);
    *out = be;
    return ATSI_OK;
}

static void cpu_close(struct atsi_backend *be)
{
    if (be == NULL)
        return;
    free(be->steps.data);
    free(be->shared.data);
    free(be->parts.data);
    free(be);
}

/* Panels are worth packing when no type's product on them is left to the reference. */
static bool prefers_panels(const struct cpu_kernels *k)
{
    struct cpu_kernels ref;
    cpu_ref_kernels(&ref);
    for (uint32_t t = 0; t < ATSI_TYPE_COUNT; t++)
        if (ref.gemm_panel[t] != NULL && k->gemm_panel[t] == ref.gemm_panel[t])
            return false;
    return true;
}

static int cpu_props(const struct atsi_backend *be, struct atsi_props *out)
{
    if (out->struct_size < sizeof *out)
        return ATSI_EINVAL;
    *out = (struct atsi_props){.struct_size = sizeof *out,
                               .device_kind = ATSI_DEVICE_CPU,
                               .buf_align_bytes = CPU_ALIGN,
                               .buf_pad_bytes = 0,
                               .prefers_panels = prefers_panels(&be->kernels)};
    (void)snprintf(out->name, sizeof out->name, "%s", be->name);
    (void)snprintf(out->detail, sizeof out->detail, "%s%s%s", be->kernels.isa,
                   be->kernels.detail[0] != '\0' ? ", " : "", be->kernels.detail);
    return ATSI_OK;
}

static int cpu_backend_supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    return cpu_supports(&be->kernels, op);
}

/* Zeroed pages from the kernel: large buffers cost nothing until touched.  No huge pages: the KV
 * cache lies head by head, so its first few tokens would make nearly all of it resident. */
static int cpu_buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                         struct atsi_buf **out, struct atsi_err *err)
{
    struct atsi_buf *buf = NULL;
    size_t size = bytes + CPU_ALIGN;
    *out = NULL;
    if (mem != ATSI_MEM_DEVICE && mem != ATSI_MEM_PINNED)
        return atsi_fail(err, ATSI_EINVAL, "%s: unknown kind of memory %d", be->name, (int)mem);
    buf = calloc(1, sizeof *buf);
    if (buf == NULL || size < bytes) {
        free(buf);
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory for %zu bytes", be->name, bytes);
    }
    buf->data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    buf->size = size;
    if (buf->data == MAP_FAILED) {
        free(buf);
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory for %zu bytes", be->name, bytes);
    }
    *out = buf;
    return ATSI_OK;
}

static void cpu_buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    (void)be;
    if (buf == NULL)
        return;
    (void)munmap(buf->data, buf->size); /* cannot fail for a range that was mapped */
    free(buf);
}

static void *cpu_buf_ptr(const struct atsi_buf *buf)
{
    return buf->data;
}

static int cpu_queue_open(struct atsi_backend *be, struct atsi_queue **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", be->name);
    (*out)->be = be;
    return ATSI_OK;
}

static void cpu_queue_close(struct atsi_queue *q)
{
    free(q);
}

static int cpu_event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", be->name);
    (*out)->host = be->host;
    return ATSI_OK;
}

static void cpu_event_close(struct atsi_event *ev)
{
    free(ev);
}

/* Events of a synchronous device: waiting for one that no finished run signals would never end. */
static int cpu_run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    const struct atsi_host *host = q->be->host;
    int rc;
    for (uint32_t i = 0; i < split->n_wait; i++)
        if (!split->wait[i]->fired)
            return atsi_fail(err, ATSI_EINVAL, "%s: a split waits for an event that never fires",
                             q->be->name);
    rc = cpu_run_split(q->be, split, err);
    if (rc == ATSI_OK && split->signal != NULL) {
        split->signal->fired = true;
        split->signal->ns = host->now_ns(host->ctx);
    }
    return rc;
}

static int cpu_event_query(const struct atsi_event *ev)
{
    return ev->fired ? 1 : 0;
}

static int cpu_event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    (void)spin_ns;
    if (!ev->fired)
        return atsi_fail(err, ATSI_EINVAL, "waiting for an event that nothing signals");
    return ATSI_OK;
}

static int cpu_event_time(const struct atsi_event *ev, uint64_t *ns_out)
{
    if (!ev->fired)
        return ATSI_EINVAL;
    *ns_out = ev->ns;
    return ATSI_OK;
}

const struct atsi_backend_ops cpu_backend_ops = {
    .struct_size = sizeof(struct atsi_backend_ops),
    .probe = cpu_probe,
    .open = cpu_open,
    .close = cpu_close,
    .props = cpu_props,
    .supports = cpu_backend_supports,
    .buf_alloc = cpu_buf_alloc,
    .buf_free = cpu_buf_free,
    .buf_ptr = cpu_buf_ptr,
    .queue_open = cpu_queue_open,
    .queue_close = cpu_queue_close,
    .event_open = cpu_event_open,
    .event_close = cpu_event_close,
    .run = cpu_run,
    .event_wait = cpu_event_wait,
    .event_query = cpu_event_query,
    .event_time = cpu_event_time,
};
