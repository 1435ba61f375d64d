/* SPDX-License-Identifier: Apache-2.0
 * Expert caches: memory, filling, life. */
#include "core/hybrid/experts_inside.h"

#include <stdlib.h>
#include <string.h>

#define SPIN_NS 20000u

static const struct atsi_backend_ops *accel_ops(const struct atsi_experts *x)
{
    return x->p.accel->d.ops[ATSI_DEVICE_ACCEL];
}

/* ---------------------------------------------------------------- what a group is */
static bool is_product(const struct atsi_graph_node *n)
{
    return n->kind == ATSI_OP_MATMUL_ID;
}

/* Finds nodes and values of the items [g->first, g->first + g->n); false: not of this form. */
static bool describe(const struct atsi_graph *g, const struct atsi_items *items,
                     const struct atsi_cache_group *of, struct atsi_expert_group *out)
{
    const struct atsi_item_place *places = items->places;
    const struct atsi_graph_node *router = g->nodes[places[of->router].main_node], *last = NULL;
    uint32_t end = places[of->first + of->n - 1].first_node + places[of->first + of->n - 1].n_nodes;
    uint32_t stacks = 0;
    out->first_node = places[of->first].first_node;
    out->n_nodes = end - out->first_node;
    out->ids = -1;
    out->x = router->src[0];
    if (out->n_nodes > ATSI_GROUP_NODES || of->n > ATSI_STACKS)
        return false;
    for (uint32_t k = out->first_node; k < end; k++) {
        const struct atsi_graph_node *n = g->nodes[k];
        if (!is_product(n) && n->kind != ATSI_OP_SWIGLU)
            return false;
        if (!is_product(n))
            continue;
        if (stacks == of->n || (out->ids >= 0 && n->src[1] != out->ids) || n->p.moe.n_used < 1)
            return false;
        out->ids = n->src[1];
        out->stack[stacks] = (struct atsi_stack){.item = of->first + stacks, .node = k};
        if (places[of->first + stacks].main_node != k || places[of->first + stacks].n_tiles > 1)
            return false;
        stacks++;
        last = n;
    }
    /* The first products read the router's input, the last node is a product. */
    if (stacks != of->n || last == NULL || g->nodes[end - 1] != last ||
        g->nodes[out->first_node]->src[0] != out->x)
        return false;
    out->y = last->dst[0];
    out->width = g->values[out->y]->width / last->p.moe.n_used;
    return true;
}

/* Groups as any placement may ask for: all stacks of a router. */
bool atsi_experts_can(const struct atsi_source *src, const struct atsi_items *items)
{
    bool any = false;
    for (uint32_t i = 0, end; i < items->n; i = end) {
        struct atsi_cache_group of = {.first = i, .n = 1};
        struct atsi_expert_group g = {0};
        end = i + 1;
        if (items->items[i].n_experts == 0 || items->items[i].router < 0)
            continue;
        while (end < items->n && items->items[end].n_experts > 0 &&
               items->items[end].router == items->items[i].router)
            end++;
        of.n = end - i;
        of.router = (uint32_t)items->items[i].router;
        if (items->work[i].n_used > ATSI_BOOKS_USED || !describe(src->g, items, &of, &g))
            return false;
        any = true;
    }
    return any;
}

/* ---------------------------------------------------------------- memory */
static uint64_t align(uint64_t bytes)
{
    return (bytes + ATSI_REGION_ALIGN - 1) / ATSI_REGION_ALIGN * ATSI_REGION_ALIGN;
}

/* Bytes of all slots; with `base`, addresses too. */
static uint64_t lay_out(struct atsi_experts *x, unsigned char *base)
{
    uint64_t at = 0;
    for (uint32_t k = 0; k < x->n; k++)
        for (uint32_t s = 0; s < x->all[k].g->n; s++) {
            struct atsi_stack *st = &x->all[k].stack[s];
            uint64_t n = x->all[k].g->n_slots;
            st->at = base != NULL ? base + at : NULL;
            at += align(st->matrix * n);
            st->bias_at = base != NULL ? base + at : NULL;
            at += align(st->bias * n);
        }
    return at;
}

static int take_memory(struct atsi_experts *x, struct atsi_err *err)
{
    uint64_t bytes = lay_out(x, NULL) + x->p.accel->props.buf_pad_bytes;
    int rc = atsi_accel_alloc(x->p.accel, ATSI_MEM_DEVICE, (size_t)bytes, &x->buf, err);
    if (rc != ATSI_OK)
        return rc;
    (void)lay_out(x, accel_ops(x)->buf_ptr(x->buf));
    x->bytes = bytes;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- filling */
static int add_ranges(struct atsi_experts *x, struct atsi_move_ranges *m, uint32_t *count,
                      const struct atsi_piece *p, uint64_t matrix, void *dst, struct atsi_err *err)
{
    uint32_t had = *count, room = m->room - had;
    uint32_t got = atsi_weights_ranges(x->p.weights, p, matrix, 1, dst,
                                       m->r != NULL ? m->r + had : NULL, room);
    if (got > room) {
        struct atsi_range *grown = realloc(m->r, ((size_t)had + got) * sizeof *grown);
        if (grown == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "out of memory for ranges of an expert");
        m->r = grown;
        m->room = had + got;
        (void)atsi_weights_ranges(x->p.weights, p, matrix, 1, dst, m->r + had, got);
    }
    *count += got;
    return ATSI_OK;
}

int atsi_experts_ranges(struct atsi_experts *x, struct atsi_expert_group *g, int32_t expert,
                        uint32_t slot, uint32_t *n_out, struct atsi_err *err)
{
    int rc = ATSI_OK;
    *n_out = 0;
    for (uint32_t s = 0; s < g->g->n && rc == ATSI_OK; s++) {
        const struct atsi_stack *st = &g->stack[s];
        const struct atsi_graph_node *n = x->p.source->g->nodes[st->node];
        struct atsi_piece whole = {.tensor = (uint32_t)n->weight[0]};
        rc = add_ranges(x, &g->move[slot], n_out, &whole, (uint64_t)expert,
                        st->at + slot * st->matrix, err);
        if (rc == ATSI_OK && st->bias > 0) {
            struct atsi_piece row = {(uint32_t)n->weight[1], (uint64_t)expert,
                                     (uint64_t)expert + 1};
            rc = add_ranges(x, &g->move[slot], n_out, &row, 0, st->bias_at + slot * st->bias, err);
        }
    }
    return rc;
}

static const struct atsi_tensor *host_matrix(const struct atsi_experts *x,
                                             const struct atsi_stack *st)
{
    return atsi_weights_tensor(x->p.weights, (uint32_t)x->p.source->g->nodes[st->node]->weight[0]);
}

static bool is_current(const struct atsi_experts *x, const struct atsi_expert_group *g)
{
    for (uint32_t s = 0; s < g->g->n; s++)
        if (g->stack[s].layout != host_matrix(x, &g->stack[s])->layout)
            return false;
    return g->filled;
}

/* Waits for the layer's copies, whose slots may then be written again. */
static int wait_arrivals(struct atsi_experts *x, uint32_t k, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t s = 0; x->all[k].arrival != NULL && s < x->groups[k].n_slots && rc == ATSI_OK;
         s++) {
        if (!atsi_books_locked(x->books, k, s))
            continue;
        rc = accel_ops(x)->event_wait(x->all[k].arrival[s], SPIN_NS, err);
        if (rc == ATSI_OK)
            atsi_books_arrived(x->books, k, s);
    }
    return rc;
}

/* All slots with the experts that the books expect most of. */
static int fill(struct atsi_experts *x, uint32_t k, struct atsi_err *err)
{
    struct atsi_expert_group *g = &x->all[k];
    const struct atsi_exec_devices *d = &x->p.accel->d;
    uint32_t last = UINT32_MAX;
    int rc = wait_arrivals(x, k, err);
    if (rc != ATSI_OK)
        return rc;
    atsi_books_empty(x->books, k);
    atsi_books_fill(x->books, k);
    for (uint32_t s = 0; s < g->g->n; s++)
        g->stack[s].layout = host_matrix(x, &g->stack[s])->layout;
    for (uint32_t s = 0; s < g->g->n_slots && rc == ATSI_OK; s++) {
        struct atsi_copyv req = {.struct_size = sizeof req, .signal = g->arrival[s]};
        int32_t e = atsi_books_expert(x->books, k, s);
        if (e < 0)
            continue;
        rc = atsi_experts_ranges(x, g, e, s, &req.n_ranges, err);
        req.ranges = g->move[s].r;
        if (rc == ATSI_OK)
            rc = d->tx_ops->copyv(d->tx, d->copy_engine, NULL, &req, err);
        last = rc == ATSI_OK ? s : last;
    }
    if (last != UINT32_MAX) { /* transfers of a channel end in order */
        int waited = accel_ops(x)->event_wait(g->arrival[last], SPIN_NS, err);
        rc = rc == ATSI_OK ? waited : rc;
    }
    g->filled = rc == ATSI_OK;
    return rc;
}

static int need_memory(struct atsi_experts *x)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    if (x->buf != NULL || x->no_memory)
        return x->no_memory ? ATSI_ENOMEM : ATSI_OK;
    rc = take_memory(x, &why);
    x->no_memory = rc != ATSI_OK;
    if (x->no_memory)
        atsi_log(x->p.log, ATSI_LOG_WARN, "experts", "no cache of experts: %s", why.msg);
    return rc;
}

int atsi_experts_begin(struct atsi_experts *x, uint64_t last_ns, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < x->n; k++)
        x->all[k].looked = false;
    if (need_memory(x) != ATSI_OK)
        return ATSI_OK;
    for (uint32_t k = 0; k < x->n && rc == ATSI_OK; k++)
        if (!is_current(x, &x->all[k]))
            rc = fill(x, k, err);
    atsi_books_grant(x->books, last_ns / 1000 * x->p.copy_permille / (x->n > 0 ? x->n : 1));
    return rc;
}

int atsi_experts_settle(struct atsi_experts *x, struct atsi_err *err)
{
    int rc = ATSI_OK;
    for (uint32_t k = 0; k < x->n && rc == ATSI_OK; k++)
        rc = wait_arrivals(x, k, err);
    return rc;
}

/* ---------------------------------------------------------------- life */
static int swap(void *ctx, const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                struct atsi_err *err)
{
    const struct atsi_experts *x = ctx;
    return x->policy.ops->swap_experts(in, out, err);
}

static void size_stacks(struct atsi_experts *x, struct atsi_expert_group *g)
{
    for (uint32_t s = 0; s < g->g->n; s++) {
        struct atsi_stack *st = &g->stack[s];
        const struct atsi_graph_node *n = x->p.source->g->nodes[st->node];
        struct atsi_piece whole = {.tensor = (uint32_t)n->weight[0]};
        st->matrix = atsi_piece_bytes(x->p.weights, &whole) / g->g->n_experts;
        st->bias = n->weight[1] < 0
                       ? 0
                       : atsi_weights_tensor(x->p.weights, (uint32_t)n->weight[1])->row_bytes;
    }
}

static struct atsi_tensor id_list(uint32_t n, void *data, const char *name)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = ATSI_TYPE_I32,
                                .n_dims = 2,
                                .ne = {n, 1, 1, 1},
                                .row_bytes = (uint64_t)n * 4,
                                .data = data,
                                .name = name};
}

static int open_group(struct atsi_experts *x, uint32_t k, struct atsi_err *err)
{
    struct atsi_expert_group *g = &x->all[k];
    uint32_t used = x->groups[k].n_used, slots = x->groups[k].n_slots;
    struct atsi_backend *be = x->p.accel->d.be[ATSI_DEVICE_ACCEL];
    int rc = ATSI_OK;
    x->group_at[g->g->first] = (int32_t)k;
    size_stacks(x, g);
    g->misses = calloc(used, sizeof *g->misses);
    g->rows = calloc(used * g->width, sizeof *g->rows);
    g->arrival = calloc((size_t)slots + 1, sizeof(struct atsi_event *));
    g->move = calloc((size_t)slots + 1, sizeof *g->move);
    if (g->misses == NULL || g->rows == NULL || g->arrival == NULL || g->move == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for caches of experts");
    g->miss_ids = id_list(used, g->misses, "experts on the host");
    g->hit_slots =
        id_list(used, (int32_t *)accel_ops(x)->buf_ptr(x->ids_buf) + (size_t)k * ATSI_BOOKS_USED,
                "experts in slots");
    rc = accel_ops(x)->event_open(be, &g->there, err);
    if (rc == ATSI_OK)
        rc = accel_ops(x)->event_open(be, &g->done, err);
    for (uint32_t s = 0; s < slots && rc == ATSI_OK; s++)
        rc = accel_ops(x)->event_open(be, &g->arrival[s], err);
    return rc;
}

static void open_idle(struct atsi_experts *x)
{
    x->idle_tensor = (struct atsi_tensor){.struct_size = sizeof x->idle_tensor,
                                          .type = ATSI_TYPE_F32,
                                          .n_dims = 2,
                                          .ne = {16, 1, 1, 1},
                                          .row_bytes = sizeof x->idle,
                                          .data = x->idle,
                                          .name = "nothing"};
    x->idle_op = (struct atsi_op){.struct_size = sizeof x->idle_op,
                                  .kind = ATSI_OP_ADD,
                                  .n_rows = 1,
                                  .src = {&x->idle_tensor, &x->idle_tensor},
                                  .dst = {&x->idle_tensor}};
}

/* Results that come to the host, of all groups. */
static int size_results(struct atsi_experts *x, struct atsi_err *err)
{
    for (uint32_t k = 0; k < x->n; k++) {
        struct atsi_expert_group *g = &x->all[k];
        g->g = &x->groups[k];
        if (!describe(x->p.source->g, x->p.items, g->g, g))
            return atsi_fail(err, ATSI_EINVAL, "%s: no cache can be made of these experts",
                             x->p.items->items[g->g->first].name);
        x->row_bytes += (size_t)g->g->n_used * g->width * sizeof(float);
    }
    return ATSI_OK;
}

/* Each group's share of the pinned memory: its ids lie behind all results. */
static void share_pinned(struct atsi_experts *x)
{
    unsigned char *at = accel_ops(x)->buf_ptr(x->pinned);
    int32_t *ids = (int32_t *)(void *)(at + x->row_bytes);
    for (uint32_t k = 0; k < x->n; k++) {
        struct atsi_expert_group *g = &x->all[k];
        g->back = (float *)(void *)at;
        at += (size_t)g->g->n_used * g->width * sizeof(float);
        g->slots = ids + (size_t)k * ATSI_BOOKS_USED;
    }
}

static int open_all(struct atsi_experts *x, struct atsi_err *err)
{
    const struct atsi_policy_ops *ops = x->policy.ops;
    bool asks = ops != NULL && ATSI_HAS(ops, struct atsi_policy_ops, swap_experts);
    size_t ids = (size_t)x->n * ATSI_BOOKS_USED * sizeof(int32_t);
    int rc;
    x->all = calloc((size_t)x->n + 1, sizeof *x->all);
    x->group_at = malloc(((size_t)x->p.items->n + 1) * sizeof *x->group_at);
    if (x->all == NULL || x->group_at == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for caches of experts");
    memset(x->group_at, 0xFF, x->p.items->n * sizeof *x->group_at);
    open_idle(x);
    rc = size_results(x, err);
    if (rc == ATSI_OK)
        rc = atsi_accel_alloc(x->p.accel, ATSI_MEM_PINNED, x->row_bytes + ids, &x->pinned, err);
    if (rc == ATSI_OK) {
        share_pinned(x);
        rc = atsi_accel_alloc(x->p.accel, ATSI_MEM_DEVICE, ids, &x->ids_buf, err);
    }
    if (rc == ATSI_OK)
        rc = atsi_cache_books(x->groups, x->n, x->p.half_life, asks ? swap : NULL, x, &x->books,
                              err);
    for (uint32_t k = 0; k < x->n && rc == ATSI_OK; k++)
        rc = open_group(x, k, err);
    return rc;
}

int atsi_experts_open(const struct atsi_experts_params *p, struct atsi_experts **out,
                      struct atsi_err *err)
{
    struct atsi_experts *x = calloc(1, sizeof *x);
    int rc;
    *out = NULL;
    if (x == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for caches of experts");
    x->p = *p;
    x->policy = *p->policy;
    x->p.policy = &x->policy;
    rc = atsi_cache_groups(p->question, p->place, &x->groups, &x->n, err);
    if (rc == ATSI_OK && x->n > 0)
        rc = open_all(x, err);
    if (rc != ATSI_OK || x->n == 0) {
        atsi_experts_close(x);
        return rc;
    }
    *out = x;
    return ATSI_OK;
}

static void close_group(struct atsi_experts *x, struct atsi_expert_group *g)
{
    const struct atsi_backend_ops *ops = accel_ops(x);
    for (uint32_t s = 0; g->g != NULL && s < g->g->n_slots; s++) {
        if (g->arrival != NULL && g->arrival[s] != NULL)
            ops->event_close(g->arrival[s]);
        if (g->move != NULL)
            free(g->move[s].r);
    }
    if (g->there != NULL)
        ops->event_close(g->there);
    if (g->done != NULL)
        ops->event_close(g->done);
    free(g->arrival);
    free(g->move);
    free(g->misses);
    free(g->rows);
}

void atsi_experts_close(struct atsi_experts *x)
{
    if (x == NULL)
        return;
    if (x->books != NULL && x->p.accel->d.queue[ATSI_DEVICE_ACCEL] != NULL)
        (void)atsi_experts_settle(x, NULL); /* a broken device does not write any more */
    for (uint32_t k = 0; x->all != NULL && k < x->n; k++)
        close_group(x, &x->all[k]);
    atsi_books_close(x->books);
    atsi_accel_free(x->p.accel, x->buf);
    atsi_accel_free(x->p.accel, x->ids_buf);
    atsi_accel_free(x->p.accel, x->pinned);
    free(x->all);
    free(x->groups);
    free(x->group_at);
    free(x);
}

const struct atsi_cache_group *atsi_experts_groups(const struct atsi_experts *x, uint32_t *n_out)
{
    *n_out = x->n;
    return x->groups;
}

struct atsi_books *atsi_experts_books(struct atsi_experts *x)
{
    return x->books;
}

uint64_t atsi_experts_bytes(const struct atsi_experts *x)
{
    return x->bytes;
}
