/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/memory_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE ((uint64_t)4096)

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    (void)fprintf(stderr, "memory_fixture: %s\n", what);
    abort();
}

/* ---------------------------------------------------------------- the model */
static const struct atsi_loaded_info *info_of(const struct atsi_loaded *m)
{
    return &m->info;
}

static int graph_of(struct atsi_loaded *m, const struct atsi_graph **out, struct atsi_err *err)
{
    (void)err;
    *out = &m->g;
    return ATSI_OK;
}

static int no_meta_at(const struct atsi_loaded *m, uint32_t i, struct atsi_meta *out)
{
    (void)m;
    (void)i;
    (void)out;
    return ATSI_ENOENT;
}

static int no_meta(const struct atsi_loaded *m, const char *key, struct atsi_meta *out)
{
    (void)m;
    (void)key;
    (void)out;
    return ATSI_ENOENT;
}

static void release(struct atsi_loaded *m, const void *ptr, size_t bytes)
{
    must((const unsigned char *)ptr >= m->data &&
             (const unsigned char *)ptr + bytes <= m->data + m->bytes,
         "released what is not the model's");
    m->released += bytes;
}

static const struct atsi_loader_ops loader = {.struct_size = sizeof loader,
                                              .info = info_of,
                                              .meta_at = no_meta_at,
                                              .meta_find = no_meta,
                                              .graph = graph_of,
                                              .release = release};

static uint64_t now_ns(void *ctx)
{
    struct timespec ts;
    (void)ctx;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void make_tensor(struct atsi_loaded *l, uint32_t i, const struct mem_shape *s)
{
    struct atsi_tensor *t = &l->tensors[i];
    (void)snprintf(l->names[i], sizeof l->names[i], "w%u", i);
    *t = (struct atsi_tensor){.struct_size = sizeof *t,
                              .type = s->type,
                              .n_dims = s->ne[2] > 1 ? 3 : 2,
                              .ne = {s->ne[0], s->ne[1], s->ne[2] > 0 ? s->ne[2] : 1, 1},
                              .row_bytes = atsi_row_bytes(s->type, s->ne[0]),
                              .name = l->names[i]};
    l->ptrs[i] = t;
    l->nodes[i] =
        (struct atsi_graph_node){.struct_size = sizeof l->nodes[i],
                                 .kind = t->n_dims == 3 ? ATSI_OP_MATMUL_ID : ATSI_OP_MATMUL,
                                 .item = i,
                                 .weight = {(int32_t)i, -1},
                                 .kv = -1,
                                 .state = -1};
    l->node_ptrs[i] = &l->nodes[i];
}

void mem_model_open(struct mem_model *m, const struct mem_shape *shapes, uint32_t n, uint32_t seed)
{
    struct atsi_loaded *l = &m->loaded;
    uint64_t at = 0;
    must(n <= MEM_TENSORS, "too many tensors");
    memset(m, 0, sizeof *m);
    m->rt.host.now_ns = now_ns;
    m->rt.n_workers = 0; /* no CPUs to pin to */
    m->m = (struct atsi_model){.rt = &m->rt, .ops = &loader, .loaded = l};
    l->info = (struct atsi_loaded_info){.struct_size = sizeof l->info,
                                        .arch = "test",
                                        .n_tensors = n,
                                        .n_tensors_all = n,
                                        .tensors = l->ptrs};
    l->g = (struct atsi_graph){
        .struct_size = sizeof l->g, .n_nodes = n, .n_items = n, .nodes = l->node_ptrs};
    for (uint32_t i = 0; i < n; i++) {
        make_tensor(l, i, &shapes[i]);
        at += (mem_bytes(m, i) + 31) / 32 * 32;
    }
    l->bytes = (size_t)((at + 2 * PAGE - 1) / PAGE * PAGE);
    l->data = mmap(NULL, l->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(l->data != MAP_FAILED, "no memory");
    for (size_t i = 0; i < l->bytes; i++) {
        seed = seed * 1664525u + 1013904223u;
        l->data[i] = (unsigned char)(seed >> 24);
    }
    for (uint32_t i = 0, off = 0; i < n; i++) {
        l->tensors[i].data = l->data + off;
        off += (uint32_t)((mem_bytes(m, i) + 31) / 32 * 32);
    }
    must(mprotect(l->data, l->bytes, PROT_READ) == 0, "mprotect");
}

void mem_model_close(struct mem_model *m)
{
    (void)munmap(m->loaded.data, m->loaded.bytes);
}

uint64_t mem_bytes(const struct mem_model *m, uint32_t tensor)
{
    const struct atsi_tensor *t = &m->loaded.tensors[tensor];
    return t->row_bytes * t->ne[1] * t->ne[2];
}

const unsigned char *mem_data(const struct mem_model *m, uint32_t tensor)
{
    return m->loaded.tensors[tensor].data;
}

/* ---------------------------------------------------------------- the device */
struct atsi_backend {
    int unused;
};

struct atsi_buf {
    unsigned char *p;
    uint64_t bytes, committed;
    bool reserved;
};

/* What was queued and not waited for. */
struct atsi_event {
    const struct atsi_range *ranges;
    uint32_t n_ranges;
    bool pending;
};

struct mem_device mem_dev;
static struct atsi_backend backend;
static struct atsi_buf *the_buf; /* the one arena of a test */

void mem_device_reset(uint64_t total)
{
    mem_dev = (struct mem_device){.total = total, .can_reserve = true, .pin_limit = UINT64_MAX};
}

struct atsi_backend *mem_backend(void)
{
    return &backend;
}

struct atsi_transfer *mem_transfer(void)
{
    return (struct atsi_transfer *)(void *)&backend;
}

static int props(const struct atsi_backend *be, struct atsi_props *out)
{
    (void)be;
    out->device_kind = ATSI_DEVICE_GPU;
    out->mem_total_bytes = mem_dev.total;
    out->mem_free_bytes = mem_dev.total - mem_dev.used;
    out->buf_align_bytes = 64;
    out->buf_pad_bytes = 128;
    return ATSI_OK;
}

static int take(uint64_t bytes, struct atsi_err *err)
{
    if (bytes > mem_dev.total - mem_dev.used)
        return atsi_fail(err, ATSI_ENOMEM, "device: %llu bytes wanted, %llu free",
                         (unsigned long long)bytes,
                         (unsigned long long)(mem_dev.total - mem_dev.used));
    mem_dev.used += bytes;
    return ATSI_OK;
}

static struct atsi_buf *new_buf(size_t bytes, bool reserved)
{
    struct atsi_buf *b = calloc(1, sizeof *b);
    must(b != NULL, "no memory");
    b->bytes = (bytes + PAGE - 1) / PAGE * PAGE;
    b->reserved = reserved;
    b->p = mmap(NULL, b->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(b->p != MAP_FAILED, "no memory");
    the_buf = b;
    return b;
}

static int buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err)
{
    int rc = take(bytes, err);
    (void)be;
    (void)mem;
    if (rc != ATSI_OK)
        return rc;
    *out = new_buf(bytes, false);
    (*out)->committed = bytes;
    return ATSI_OK;
}

static int buf_reserve(struct atsi_backend *be, size_t bytes, struct atsi_buf **out,
                       struct atsi_err *err)
{
    (void)be;
    if (!mem_dev.can_reserve)
        return atsi_fail(err, ATSI_ENOTSUP, "device: no ranges of addresses");
    *out = new_buf(bytes, true);
    return ATSI_OK;
}

static int buf_commit(struct atsi_backend *be, struct atsi_buf *buf, size_t bytes,
                      struct atsi_err *err)
{
    (void)be;
    must(buf->reserved && bytes <= buf->bytes, "commit beyond the reserved range");
    if (bytes > buf->committed) {
        int rc = take(bytes - buf->committed, err);
        if (rc != ATSI_OK)
            return rc;
    } else {
        mem_dev.used -= buf->committed - bytes;
        memset(buf->p + bytes, 0, buf->bytes - bytes); /* what goes is lost */
    }
    buf->committed = bytes;
    return ATSI_OK;
}

static void buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    (void)be;
    mem_dev.used -= buf->committed;
    (void)munmap(buf->p, buf->bytes);
    free(buf);
    the_buf = NULL;
}

static void *buf_ptr(const struct atsi_buf *buf)
{
    return buf->p;
}

static int event_open(struct atsi_backend *be, struct atsi_event **out, struct atsi_err *err)
{
    (void)be;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? ATSI_OK : atsi_fail(err, ATSI_ENOMEM, "out of memory");
}

static void event_close(struct atsi_event *ev)
{
    must(ev == NULL || !ev->pending, "an event was closed while something signals it");
    free(ev);
}

static int event_wait(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    (void)spin_ns;
    if (!ev->pending)
        return ATSI_OK;
    ev->pending = false;
    mem_dev.in_flight--;
    if (mem_dev.fail_wait > 0 && --mem_dev.fail_wait == 0)
        return atsi_fail(err, ATSI_ENOMEM, "device: the copy ran out of memory");
    for (uint32_t i = 0; i < ev->n_ranges; i++)
        memcpy(ev->ranges[i].dst, ev->ranges[i].src, ev->ranges[i].bytes);
    return ATSI_OK;
}

static int host_register(struct atsi_backend *be, void *ptr, size_t bytes, struct atsi_err *err)
{
    unsigned char *p = ptr;
    (void)be;
    must((uintptr_t)p % PAGE == 0 && bytes % PAGE == 0 && bytes > 0, "not whole pages");
    for (uint32_t i = 0; i < mem_dev.n_blocks; i++)
        must(p >= mem_dev.blocks[i].p + mem_dev.blocks[i].bytes || p + bytes <= mem_dev.blocks[i].p,
             "registered twice");
    if (mem_dev.pins_nothing)
        return atsi_fail(err, ATSI_ENOTSUP, "device: not this memory");
    if (bytes > mem_dev.pin_limit - mem_dev.pinned)
        return atsi_fail(err, ATSI_ENOMEM, "device: pin limit");
    must(mem_dev.n_blocks < MEM_BLOCKS, "too many blocks for this test");
    mem_dev.blocks[mem_dev.n_blocks].p = p;
    mem_dev.blocks[mem_dev.n_blocks++].bytes = bytes;
    mem_dev.pinned += bytes;
    return ATSI_OK;
}

static void host_unregister(struct atsi_backend *be, void *ptr)
{
    (void)be;
    for (uint32_t i = 0; i < mem_dev.n_blocks; i++)
        if (mem_dev.blocks[i].p == ptr) {
            mem_dev.pinned -= mem_dev.blocks[i].bytes;
            mem_dev.blocks[i] = mem_dev.blocks[--mem_dev.n_blocks];
            return;
        }
    must(false, "what was not registered was unregistered");
}

static int supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    (void)be;
    /* Everything as panels but Q8_0. */
    return op->weight[0] == NULL || op->weight[0]->layout == ATSI_LAYOUT_ROWS ||
           op->weight[0]->type != ATSI_TYPE_Q8_0;
}

const struct atsi_backend_ops mem_ops = {.struct_size = sizeof mem_ops,
                                         .props = props,
                                         .supports = supports,
                                         .buf_alloc = buf_alloc,
                                         .buf_free = buf_free,
                                         .buf_ptr = buf_ptr,
                                         .event_open = event_open,
                                         .event_close = event_close,
                                         .event_wait = event_wait,
                                         .host_register = host_register,
                                         .host_unregister = host_unregister,
                                         .buf_reserve = buf_reserve,
                                         .buf_commit = buf_commit};

/* ---------------------------------------------------------------- transfers */
static void check_range(const struct atsi_range *r)
{
    const unsigned char *p = r->src;
    unsigned char *to = r->dst;
    must(r->bytes > 0 && to >= the_buf->p && to + r->bytes <= the_buf->p + the_buf->committed,
         "a copy to memory that is not committed");
    for (uint32_t i = 0; i < mem_dev.n_blocks; i++) {
        const unsigned char *b = mem_dev.blocks[i].p, *e = b + mem_dev.blocks[i].bytes;
        must((p >= b && p + r->bytes <= e) || p + r->bytes <= b || p >= e,
             "a copy that is pinned in part");
    }
}

static int copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                 const struct atsi_copyv *req, struct atsi_err *err)
{
    (void)tx;
    (void)channel;
    (void)q;
    must(!req->signal->pending, "an event is used twice");
    if (mem_dev.fail_copy > 0 && --mem_dev.fail_copy == 0)
        return atsi_fail(err, ATSI_ENOMEM, "device: no memory to queue a copy");
    for (uint32_t i = 0; i < req->n_ranges; i++)
        check_range(&req->ranges[i]);
    *req->signal = (struct atsi_event){req->ranges, req->n_ranges, true};
    mem_dev.n_copies++;
    mem_dev.in_flight++;
    if (mem_dev.in_flight > mem_dev.most_in_flight)
        mem_dev.most_in_flight = mem_dev.in_flight;
    return ATSI_OK;
}

const struct atsi_transfer_ops mem_tx_ops = {.struct_size = sizeof mem_tx_ops, .copyv = copyv};
