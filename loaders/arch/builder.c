/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph under construction: tensors looked up by name and checked by shape, growing arrays of
 * values, nodes, KV caches and states.  An item begins with every operation that has a large
 * weight, a cache or a recurrent state; the small weightless ones belong to the item they precede.
 */
#include "loaders/arch/nodes.h"

#include <stdlib.h>
#include <string.h>

struct arch_graph {
    struct atsi_graph g;
    struct atsi_graph_value **values;
    struct atsi_graph_node **nodes;
    struct atsi_graph_kv **kv;
    struct atsi_graph_state **states;
    uint32_t room_values, room_nodes, room_kv, room_states;
};

static void graph_free(void *arg)
{
    struct arch_graph *a = arg;
    if (a == NULL)
        return;
    for (uint32_t i = 0; i < a->g.n_values; i++)
        free(a->values[i]); /* the name lies behind the struct */
    for (uint32_t i = 0; i < a->g.n_nodes; i++)
        free(a->nodes[i]);
    for (uint32_t i = 0; i < a->g.n_kv; i++)
        free(a->kv[i]);
    for (uint32_t i = 0; i < a->g.n_states; i++)
        free(a->states[i]); /* the name lies behind the struct */
    free(a->states);
    free(a->values);
    free(a->nodes);
    free(a->kv);
    free(a);
}

void arch_fail(struct arch_builder *b, int status, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    if (b->rc != ATSI_OK)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    b->rc = atsi_fail(b->err, status, "%s", msg);
}

int arch_builder_open(struct arch_builder *b, struct atsi_loaded *m, struct atsi_err *err)
{
    memset(b, 0, sizeof *b);
    b->m = m;
    b->err = err;
    b->layer = -1;
    b->n_file_tensors = gguf_n_tensors(m);
    b->graph = calloc(1, sizeof *b->graph);
    b->used = calloc((size_t)b->n_file_tensors + 1, 1);
    if (b->graph == NULL || b->used == NULL) {
        free(b->graph);
        free(b->used);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory building the graph");
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- tensors */
static void tensor_name(const struct arch_builder *b, const char *fmt, char out[96])
{
    /* Every format has at most one %d, the layer; checked by the callers' string literals. */
    const char *at = strstr(fmt, "%d");
    if (at == NULL)
        (void)snprintf(out, 96, "%s", fmt);
    else
        (void)snprintf(out, 96, "%.*s%d%s", (int)(at - fmt), fmt, b->layer, at + 2);
}

bool arch_has_tensor(const struct arch_builder *b, const char *fmt)
{
    char name[96];
    tensor_name(b, fmt, name);
    return gguf_tensor_find(b->m, name) >= 0;
}

static void shape_text(const uint64_t *ne, uint32_t n, char out[96])
{
    size_t at = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n && at < 80; i++)
        at += (size_t)snprintf(out + at, 96 - at, "%s%llu", i > 0 ? " x " : "",
                               (unsigned long long)ne[i]);
}

static bool same_shape(const struct atsi_tensor *t, struct arch_shape s)
{
    for (uint32_t i = 0; i < 4; i++) {
        uint64_t want = i < 3 && s.ne[i] != 0 ? s.ne[i] : 1;
        uint64_t have = i < t->n_dims ? t->ne[i] : 1;
        if (want != have)
            return false;
    }
    return true;
}

static uint32_t shape_dims(struct arch_shape s)
{
    uint32_t n = 0;
    while (n < 3 && s.ne[n] != 0)
        n++;
    return n;
}

int32_t arch_tensor_opt(struct arch_builder *b, const char *fmt, struct arch_shape shape)
{
    char name[96], want[96], have[96];
    int index;
    const struct atsi_tensor *t;
    if (b->rc != ATSI_OK)
        return -1;
    tensor_name(b, fmt, name);
    index = gguf_tensor_find(b->m, name);
    if (index < 0)
        return -1;
    t = gguf_tensor(b->m, index);
    if (!same_shape(t, shape)) {
        shape_text(shape.ne, shape_dims(shape), want);
        shape_text(t->ne, t->n_dims, have);
        arch_fail(b, ATSI_EFORMAT, "tensor %s: shape %s, but the hyperparameters ask for %s", name,
                  have, want);
        return -1;
    }
    if ((uint32_t)index < b->n_file_tensors)
        b->used[index] = 1;
    return index;
}

int32_t arch_tensor(struct arch_builder *b, const char *fmt, struct arch_shape shape)
{
    int32_t index = arch_tensor_opt(b, fmt, shape);
    char name[96];
    if (index < 0 && b->rc == ATSI_OK) {
        tensor_name(b, fmt, name);
        arch_fail(b, ATSI_EFORMAT, "tensor %s is missing (architecture %s needs it)", name,
                  gguf_arch(b->m));
    }
    return index;
}

void arch_skip(struct arch_builder *b, const char *prefix)
{
    for (uint32_t i = 0; i < b->n_file_tensors; i++)
        if (strncmp(gguf_tensor(b->m, (int)i)->name, prefix, strlen(prefix)) == 0)
            b->used[i] = 1;
}

int32_t arch_constant(struct arch_builder *b, const char *name, uint64_t n, const float *data)
{
    int index;
    if (b->rc != ATSI_OK)
        return -1;
    index = gguf_add_constant(b->m, name, ATSI_TYPE_F32, 1, &n, data, b->err);
    if (index < 0) {
        b->rc = index;
        return -1;
    }
    return index;
}

void arch_need_f32(struct arch_builder *b, int32_t w)
{
    const struct atsi_tensor *t;
    if (b->rc != ATSI_OK || w < 0)
        return;
    t = gguf_tensor(b->m, w);
    if (t->type != ATSI_TYPE_F32)
        arch_fail(b, ATSI_ENOTSUP, "tensor %s: type %s, but vectors must be F32", t->name,
                  atsi_type_info(t->type) != NULL ? atsi_type_info(t->type)->name : "?");
}

/* ---------------------------------------------------------------- growing the graph */
/* Room for one more pointer in a growing array. */
static bool room(struct arch_builder *b, void *array, uint32_t n, uint32_t *cap)
{
    void **at = array, *old, *grown;
    if (b->rc != ATSI_OK)
        return false;
    if (n < *cap)
        return true;
    *cap = *cap == 0 ? 256 : *cap * 2;
    memcpy(&old, at, sizeof old);
    grown = realloc(old, *cap * sizeof(void *)); /* on failure graph_free() still has the old one */
    if (grown == NULL) {
        arch_fail(b, ATSI_ENOMEM, "out of memory building the graph");
        return false;
    }
    memcpy(at, &grown, sizeof grown);
    /* cppcheck-suppress memleak; *array holds it now */
    return true;
}

static void layer_name(const struct arch_builder *b, const char *name, char *out, size_t size)
{
    if (b->layer >= 0)
        (void)snprintf(out, size, "%s-%d", name, b->layer);
    else
        (void)snprintf(out, size, "%s", name);
}

int32_t arch_value_add(struct arch_builder *b, const char *name, uint32_t type, uint64_t width)
{
    struct arch_graph *a = b->graph;
    struct atsi_graph_value *v;
    size_t size = sizeof *v + strlen(name) + 16;
    if (!room(b, &a->values, a->g.n_values, &a->room_values))
        return -1;
    v = calloc(1, size);
    if (v == NULL) {
        arch_fail(b, ATSI_ENOMEM, "out of memory building the graph");
        return -1;
    }
    layer_name(b, name, (char *)(v + 1), size - sizeof *v);
    *v = (struct atsi_graph_value){sizeof *v, type, width, (const char *)(v + 1)};
    a->values[a->g.n_values] = v;
    return (int32_t)a->g.n_values++;
}

static bool starts_item(uint32_t kind)
{
    return kind == ATSI_OP_EMBED || kind == ATSI_OP_MATMUL || kind == ATSI_OP_MATMUL_ID ||
           kind == ATSI_OP_ATTN || kind == ATSI_OP_DELTA_NET;
}

/* The choice of experts belongs to the router before it. */
struct atsi_graph_node *arch_node_add(struct arch_builder *b, uint32_t kind, int32_t dst)
{
    struct arch_graph *a = b->graph;
    struct atsi_graph_node *n;
    if (dst < 0 || !room(b, &a->nodes, a->g.n_nodes, &a->room_nodes))
        return NULL;
    n = calloc(1, sizeof *n);
    if (n == NULL) {
        arch_fail(b, ATSI_ENOMEM, "out of memory building the graph");
        return NULL;
    }
    *n = (struct atsi_graph_node){.struct_size = sizeof *n,
                                  .kind = kind,
                                  .flags = b->flags,
                                  .item = kind == ATSI_OP_TOPK ? b->n_items - 1 : b->n_items,
                                  .role = b->role,
                                  .layer = b->layer,
                                  .src = {-1, -1, -1, -1},
                                  .weight = {-1, -1},
                                  .dst = {dst, -1},
                                  .kv = -1,
                                  .state = -1};
    if (starts_item(kind))
        b->n_items++;
    a->nodes[a->g.n_nodes++] = n;
    return n;
}

/* A zeroed entry of one of the arrays of pointers; NULL after a failure. */
static void *add_entry(struct arch_builder *b, void *array, uint32_t *n, uint32_t *cap, size_t size)
{
    void *entry, **at;
    if (!room(b, array, *n, cap))
        return NULL;
    entry = calloc(1, size);
    if (entry == NULL) {
        arch_fail(b, ATSI_ENOMEM, "out of memory building the graph");
        return NULL;
    }
    memcpy(&at, array, sizeof at);
    memcpy((unsigned char *)at + *n * sizeof entry, &entry, sizeof entry);
    (*n)++;
    return entry;
}

int32_t arch_kv_add(struct arch_builder *b, uint32_t n_head_kv, uint32_t window)
{
    struct arch_graph *a = b->graph;
    struct atsi_graph_kv *kv =
        add_entry(b, &a->kv, &a->g.n_kv, &a->room_kv, sizeof(struct atsi_graph_kv));
    if (kv == NULL)
        return -1;
    *kv = (struct atsi_graph_kv){.struct_size = sizeof *kv,
                                 .n_head_kv = n_head_kv,
                                 .head_dim_k = b->hp.head_dim_k,
                                 .head_dim_v = b->hp.head_dim_v,
                                 .layer = b->layer,
                                 .window = window};
    return (int32_t)a->g.n_kv - 1;
}

int32_t arch_state_add(struct arch_builder *b, const char *name, struct arch_shape shape)
{
    struct arch_graph *a = b->graph;
    size_t size = sizeof(struct atsi_graph_state) + strlen(name) + 16;
    struct atsi_graph_state *s = add_entry(b, &a->states, &a->g.n_states, &a->room_states, size);
    if (s == NULL)
        return -1;
    layer_name(b, name, (char *)(s + 1), size - sizeof *s);
    *s = (struct atsi_graph_state){
        .struct_size = sizeof *s, .layer = b->layer, .name = (const char *)(s + 1)};
    for (int d = 0; d < 3; d++)
        s->ne[d] = shape.ne[d] != 0 ? shape.ne[d] : 1;
    return (int32_t)a->g.n_states - 1;
}

uint64_t arch_width(const struct arch_builder *b, int32_t v)
{
    return b->graph->values[v]->width;
}

uint64_t arch_ne(const struct arch_builder *b, int32_t w, uint32_t dim)
{
    const struct atsi_tensor *t = gguf_tensor(b->m, w);
    return dim < t->n_dims ? t->ne[dim] : 1;
}

bool arch_ready(struct arch_builder *b, int32_t x, int32_t y)
{
    if (b->rc == ATSI_OK && (x < 0 || y < 0))
        arch_fail(b, ATSI_EINVAL, "an operation of architecture %s lacks an input",
                  gguf_arch(b->m));
    return b->rc == ATSI_OK;
}

bool arch_fits(struct arch_builder *b, const char *name, int32_t x, uint64_t want)
{
    if (arch_width(b, x) != want)
        arch_fail(b, ATSI_EFORMAT, "%s: input of width %llu meets a weight of width %llu", name,
                  (unsigned long long)arch_width(b, x), (unsigned long long)want);
    return b->rc == ATSI_OK;
}

/* ---------------------------------------------------------------- the end */
/* A tensor nobody asked for changes the answer if it matters: better an error than wrong text. */
static void check_unused(struct arch_builder *b)
{
    for (uint32_t i = 0; i < b->n_file_tensors && b->rc == ATSI_OK; i++)
        if (b->used[i] == 0)
            arch_fail(
                b, ATSI_ENOTSUP,
                "tensor %s has no place in architecture %s as known here; a newer version may "
                "be needed",
                gguf_tensor(b->m, (int)i)->name, gguf_arch(b->m));
}

static uint64_t count_params(const struct arch_builder *b)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < b->n_file_tensors; i++) {
        const struct atsi_tensor *t = gguf_tensor(b->m, (int)i);
        uint64_t n = 1;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n *= t->ne[d]; /* the container checked that this fits */
        total += n;
    }
    return total;
}

int arch_builder_finish(struct arch_builder *b, int32_t in_ids, int32_t in_pos, int32_t logits)
{
    struct arch_graph *a = b->graph;
    check_unused(b);
    free(b->used);
    b->used = NULL;
    if (b->rc != ATSI_OK) {
        graph_free(a);
        return b->rc;
    }
    a->g.struct_size = sizeof a->g;
    a->g.values = (const struct atsi_graph_value *const *)a->values;
    a->g.nodes = (const struct atsi_graph_node *const *)a->nodes;
    a->g.kv = (const struct atsi_graph_kv *const *)a->kv;
    a->g.states = (const struct atsi_graph_state *const *)a->states;
    a->g.n_items = b->n_items;
    a->g.in_ids = in_ids;
    a->g.in_pos = in_pos;
    a->g.out_logits = logits;
    a->g.n_vocab = b->hp.n_vocab;
    a->g.n_embd = b->hp.n_embd;
    a->g.n_layer = b->hp.n_layer;
    a->g.n_ctx_train = b->hp.n_ctx_train;
    a->g.n_params = count_params(b);
    gguf_set_graph(b->m, &a->g, graph_free, a);
    return ATSI_OK;
}
