/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/fake_session.h"

#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 4, V_IDS = 0, V_POS, V_X, V_ATTN0, V_ATTN1, V_STATE0, V_STATE1, V_LOGITS };

bool fake_backend_fails;

static void must(bool ok, const char *what, const struct atsi_err *err)
{
    if (ok)
        return;
    (void)fprintf(stderr, "fake_session: %s: %s\n", what, err->msg);
    abort();
}

/* ---------------------------------------------------------------- hashing */
static uint32_t fnv(uint32_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 16777619u;
    return h;
}

/* WIDTH small integers, which f32 holds exactly. */
static void put_hash(float *out, uint32_t h)
{
    for (uint32_t i = 0; i < WIDTH; i++)
        out[i] = (float)(fnv(h, &i, sizeof i) & 0xffff);
}

static float *row(const struct atsi_tensor *t, uint32_t r)
{
    return (float *)t->data + (size_t)r * t->ne[0];
}

/* ---------------------------------------------------------------- the backend */
struct atsi_buf {
    void *p;
    size_t bytes;
};

static int buf_alloc(struct atsi_backend *be, enum atsi_mem mem, size_t bytes,
                     struct atsi_buf **out, struct atsi_err *err)
{
    (void)be;
    (void)mem;
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory");
    **out = (struct atsi_buf){malloc(bytes + 1), bytes};
    must((*out)->p != NULL, "buffer", err);
    memset((*out)->p, 0xa5, bytes); /* what was never written is recognised */
    return ATSI_OK;
}

static void buf_free(struct atsi_backend *be, struct atsi_buf *buf)
{
    (void)be;
    free(buf->p);
    free(buf);
}

static void *buf_ptr(const struct atsi_buf *buf)
{
    return buf->p;
}

static int supports(const struct atsi_backend *be, const struct atsi_op *op)
{
    (void)be;
    (void)op;
    return 1;
}

static void close_queue(struct atsi_queue *q)
{
    (void)q;
}

static void close_backend(struct atsi_backend *be)
{
    (void)be;
}

/* Address of a row of keys or values at a position. */
static unsigned char *kv_row(const struct atsi_kv *kv, bool keys, uint32_t head, uint32_t pos,
                             size_t *bytes)
{
    *bytes = keys ? atsi_row_bytes(kv->type_k, kv->head_dim_k)
                  : atsi_row_bytes(kv->type_v, kv->head_dim_v);
    return (unsigned char *)(keys ? kv->k : kv->v) +
           ((size_t)head * kv->n_ctx + pos % kv->n_ctx) * *bytes;
}

static void store(const struct atsi_op *op, uint32_t r, uint32_t pos)
{
    for (uint32_t i = 0; i < 2 * op->kv->n_head_kv; i++) {
        size_t bytes;
        unsigned char *to = kv_row(op->kv, i % 2 == 0, i / 2, pos, &bytes);
        uint32_t h = fnv(i + 1, row(op->src[1], r), WIDTH * sizeof(float));
        for (size_t b = 0; b < bytes; b++) {
            h = fnv(h, &b, sizeof b);
            to[b] = (unsigned char)(h >> 24);
        }
    }
}

static uint32_t look(const struct atsi_op *op, uint32_t pos)
{
    uint32_t window = op->p.attn.window, h = 1;
    uint32_t first = window != 0 && pos >= window ? pos - window + 1 : 0;
    for (uint32_t p = first; p <= pos; p++)
        for (uint32_t i = 0; i < 2 * op->kv->n_head_kv; i++) {
            size_t bytes;
            const unsigned char *at = kv_row(op->kv, i % 2 == 0, i / 2, p, &bytes);
            h = fnv(h, at, bytes);
        }
    return h;
}

static void run_attn(const struct atsi_op *op)
{
    const int32_t *pos = op->src[3]->data;
    for (uint32_t r = 0; r < op->n_rows; r++)
        store(op, r, (uint32_t)pos[r]);
    for (uint32_t r = 0; r < op->n_rows; r++)
        put_hash(row(op->dst[0], r), look(op, (uint32_t)pos[r]));
}

static void run_state(const struct atsi_op *op)
{
    uint64_t n = op->state->ne[0] * op->state->ne[1] * op->state->ne[2];
    float *st = op->state->data;
    for (uint32_t r = 0; r < op->n_rows; r++) {
        for (uint64_t i = 0; i < n; i++) {
            uint32_t h = fnv((uint32_t)i, &st[i], sizeof st[i]);
            st[i] = (float)(fnv(h, &row(op->src[0], r)[i % WIDTH], sizeof(float)) & 0xffff);
        }
        put_hash(row(op->dst[0], r), fnv(1, st, n * sizeof *st));
    }
}

static void run_embed(const struct atsi_op *op)
{
    const int32_t *ids = op->src[0]->data;
    for (uint32_t r = 0; r < op->n_rows; r++)
        put_hash(row(op->dst[0], r), (uint32_t)ids[r]);
}

static void run_logits(const struct atsi_op *op)
{
    for (uint32_t r = 0; r < op->n_rows; r++) {
        uint32_t h = 1;
        for (int k = 0; k < 4; k++)
            if (op->src[k] != NULL)
                h = fnv(h, row(op->src[k], r), WIDTH * sizeof(float));
        for (uint32_t i = 0; i < FAKE_VOCAB; i++)
            row(op->dst[0], r)[i] = (float)(fnv(h, &i, sizeof i) & 0xffffff);
    }
}

static int run(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    (void)q;
    for (uint32_t i = 0; i < split->n_ops; i++) {
        const struct atsi_op *op = split->ops[i];
        if (op->kind == ATSI_OP_EMBED)
            run_embed(op);
        else if (op->kind == ATSI_OP_ATTN)
            run_attn(op);
        else if (op->kind == ATSI_OP_ADD)
            run_logits(op);
        else
            run_state(op);
    }
    if (!fake_backend_fails)
        return ATSI_OK;
    fake_backend_fails = false;
    return atsi_fail(err, ATSI_EFAIL, "as asked");
}

static const struct atsi_backend_ops backend = {.struct_size = sizeof backend,
                                                .close = close_backend,
                                                .supports = supports,
                                                .buf_alloc = buf_alloc,
                                                .buf_free = buf_free,
                                                .buf_ptr = buf_ptr,
                                                .queue_close = close_queue,
                                                .run = run};

/* ---------------------------------------------------------------- the model */
static const struct atsi_loaded_info *loaded_info(const struct atsi_loaded *l)
{
    return &l->f->info;
}

static struct atsi_str str(const char *s)
{
    return (struct atsi_str){s, strlen(s)};
}

static _Thread_local struct atsi_str word_strs[2];

static int meta_at(const struct atsi_loaded *l, uint32_t i, struct atsi_meta *out)
{
    const struct fake_model *f = l->f;
    static const char *const keys[FAKE_META] = {"general.name", "fake.block_count",
                                                "tokenizer.tokens", "tokenizer.chat_template"};
    if (i >= FAKE_META)
        return ATSI_ENOENT;
    out->key = str(keys[i]);
    out->type = i == 1 ? ATSI_META_U32 : i == 2 ? ATSI_META_ARRAY : ATSI_META_STRING;
    if (i == 0 || i == 3)
        out->str = str(i == 0 ? f->name : f->template_text);
    out->v.u = i == 1 ? f->block_count : 0;
    if (i == 2) {
        word_strs[0] = str(f->words[0]);
        word_strs[1] = str(f->words[1]);
        out->elem_type = ATSI_META_STRING;
        out->count = 2;
        out->strs = word_strs;
    }
    return ATSI_OK;
}

static int meta_find(const struct atsi_loaded *l, const char *key, struct atsi_meta *out)
{
    for (uint32_t i = 0; i < FAKE_META; i++) {
        (void)meta_at(l, i, out);
        if (out->key.len == strlen(key) && memcmp(out->key.ptr, key, out->key.len) == 0)
            return ATSI_OK;
    }
    return ATSI_ENOENT;
}

static const struct atsi_loader_ops loader = {
    .struct_size = sizeof loader, .info = loaded_info, .meta_at = meta_at, .meta_find = meta_find};

static void node(struct fake_model *f, uint32_t kind, int32_t src, int32_t dst)
{
    struct atsi_graph_node *n = &f->nodes[f->g.n_nodes++];
    *n = (struct atsi_graph_node){.struct_size = sizeof *n,
                                  .kind = kind,
                                  .src = {src, -1, -1, -1},
                                  .weight = {-1, -1},
                                  .dst = {dst, -1},
                                  .kv = -1,
                                  .state = -1};
}

static void attention(struct fake_model *f, int32_t kv, int32_t dst)
{
    struct atsi_graph_node *n;
    node(f, ATSI_OP_ATTN, V_X, dst);
    n = &f->nodes[f->g.n_nodes - 1];
    n->src[1] = n->src[2] = V_X;
    n->src[3] = V_POS;
    n->kv = kv;
    n->p.attn.window = f->kv[kv].window;
}

static void fill_graph(struct fake_model *f, bool recurrent)
{
    node(f, ATSI_OP_EMBED, V_IDS, V_X);
    attention(f, 0, V_ATTN0);
    attention(f, 1, V_ATTN1);
    for (int i = 0; i < 2 && recurrent; i++) {
        node(f, i == 0 ? ATSI_OP_CONV : ATSI_OP_DELTA_NET, V_X, V_STATE0 + i);
        f->nodes[f->g.n_nodes - 1].state = i;
    }
    node(f, ATSI_OP_ADD, V_ATTN0, V_LOGITS);
    f->nodes[f->g.n_nodes - 1].flags = ATSI_NODE_OUTPUT_ROWS;
    f->nodes[f->g.n_nodes - 1].src[1] = V_ATTN1;
    if (recurrent) {
        f->nodes[f->g.n_nodes - 1].src[2] = V_STATE0;
        f->nodes[f->g.n_nodes - 1].src[3] = V_STATE1;
    }
}

static void fill_tensors(struct fake_model *f)
{
    static const char *const names[FAKE_TENSORS] = {"embed", "block", "head"};
    for (uint32_t i = 0; i < FAKE_TENSORS; i++) {
        for (uint32_t j = 0; j < 64; j++)
            f->weights[i][j] = (float)(i * 64 + j);
        f->tensors[i] = (struct atsi_tensor){.struct_size = sizeof f->tensors[i],
                                             .type = ATSI_TYPE_F32,
                                             .n_dims = 2,
                                             .ne = {8, 8, 1, 1},
                                             .row_bytes = 8 * sizeof(float),
                                             .data = f->weights[i],
                                             .name = names[i]};
        f->tensor_ptrs[i] = &f->tensors[i];
    }
    f->info = (struct atsi_loaded_info){.struct_size = sizeof f->info,
                                        .file_kind = ATSI_FILE_MODEL,
                                        .format = "fake",
                                        .arch = "fake",
                                        .n_meta = FAKE_META,
                                        .n_tensors = FAKE_TENSORS,
                                        .n_tensors_all = FAKE_TENSORS,
                                        .tensors = f->tensor_ptrs};
}

void fake_model_init(struct fake_model *f, struct atsi_runtime *rt, uint32_t window, bool recurrent)
{
    *f = (struct fake_model){.name = "Fake", .template_text = "t", .words = {"a", "b"}};
    f->block_count = 2;
    f->loaded.f = f;
    f->m = (struct atsi_model){.rt = rt, .ops = &loader, .loaded = &f->loaded};
    for (int i = 0; i < FAKE_VALUES; i++) {
        f->values[i] = (struct atsi_graph_value){sizeof f->values[i], ATSI_TYPE_F32, WIDTH, "v"};
        f->value_ptrs[i] = &f->values[i];
    }
    f->values[V_IDS].width = f->values[V_POS].width = 1;
    f->values[V_LOGITS].width = FAKE_VOCAB;
    f->kv[0] = (struct atsi_graph_kv){sizeof f->kv[0], 2, 32, 64, 0, 0};
    f->kv[1] = (struct atsi_graph_kv){sizeof f->kv[1], 1, 32, 32, 1, window};
    f->states[0] = (struct atsi_graph_state){sizeof f->states[0], 2, {5, 3, 1}, "conv"};
    f->states[1] = (struct atsi_graph_state){sizeof f->states[1], 2, {4, 4, 2}, "delta"};
    for (int i = 0; i < 2; i++) {
        f->kv_ptrs[i] = &f->kv[i];
        f->state_ptrs[i] = &f->states[i];
    }
    for (int i = 0; i < FAKE_NODES; i++)
        f->node_ptrs[i] = &f->nodes[i];
    f->g = (struct atsi_graph){.struct_size = sizeof f->g,
                               .n_values = FAKE_VALUES,
                               .n_kv = 2,
                               .n_items = 1,
                               .values = f->value_ptrs,
                               .nodes = f->node_ptrs,
                               .kv = f->kv_ptrs,
                               .in_ids = V_IDS,
                               .in_pos = V_POS,
                               .out_logits = V_LOGITS,
                               .n_vocab = FAKE_VOCAB,
                               .n_ctx_train = 4096,
                               .n_states = recurrent ? 2 : 0,
                               .states = f->state_ptrs};
    fill_graph(f, recurrent);
    fill_tensors(f);
}

struct atsi_runtime *fake_runtime(void)
{
    static const char *const overrides[] = {"cpu.threads=1", NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime_params p = {.struct_size = sizeof p, .overrides = overrides};
    struct atsi_runtime *rt = NULL;
    must(atsi_runtime_open(&p, &rt, &err) == ATSI_OK, "runtime", &err);
    return rt;
}

struct atsi_session *fake_session(struct fake_model *f, uint32_t n_ctx, uint32_t chunk,
                                  uint32_t type)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session_params p = {
        .struct_size = sizeof p, .n_ctx = n_ctx, .chunk = chunk, .type_k = type, .type_v = type};
    struct atsi_session *s = calloc(1, sizeof *s);
    must(s != NULL, "session", &err);
    s->rt = f->m.rt;
    s->model = &f->m;
    s->g = &f->g;
    s->be_ops = &backend;
    must(atsi_session_measure(s, &p, &err) == ATSI_OK, "measure", &err);
    must(atsi_session_build(s, &err) == ATSI_OK, "build", &err);
    return s;
}

bool fake_eval(struct atsi_session *s, uint32_t n, uint32_t seed)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_eval req = {.struct_size = sizeof req, .n = n};
    int32_t *ids = malloc((size_t)n * sizeof *ids + 1);
    bool ok;
    must(ids != NULL, "ids", &err);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((seed * 31u + (s->n_past + i) * 7u) % FAKE_VOCAB);
    req.ids = ids;
    ok = atsi_session_eval(s, &req, &err) == ATSI_OK;
    free(ids);
    return ok;
}
