/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits as CUDA graphs.  A split that comes a second time is captured; from then on one launch
 * replays it for as long as nothing a launch depends on has changed, which a digest of its ops
 * tells.  When it has (more positions than the bucket the attention was captured for, other
 * addresses), the split is captured anew and the graph updated in place; a graph that cannot take
 * the update is built again.  What cannot be captured runs op by op, as without graphs.
 */
#include "cuda_plugin.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- digest */
static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 32);
}

static uint64_t mix_tensor(uint64_t h, const struct atsi_tensor *t)
{
    if (t == NULL)
        return mix(h, 1);
    h = mix(h, (uint64_t)t->type << 32 | t->layout << 8 | t->n_dims);
    for (int i = 0; i < 4; i++)
        h = mix(h, t->ne[i]);
    h = mix(h, t->row_bytes);
    return mix(h, (uintptr_t)t->data);
}

static uint64_t mix_kv(uint64_t h, const struct atsi_kv *kv)
{
    if (kv == NULL)
        return mix(h, 2);
    h = mix(h, (uint64_t)kv->type_k << 32 | kv->type_v);
    h = mix(h, (uint64_t)kv->n_head_kv << 32 | kv->n_ctx);
    h = mix(h, (uint64_t)kv->head_dim_k << 32 | kv->head_dim_v);
    h = mix(h, (uintptr_t)kv->k);
    return mix(h, (uintptr_t)kv->v);
}

static uint64_t mix_params(uint64_t h, const struct atsi_op *op)
{
    union atsi_op_params p = op->p;
    uint32_t word[2];
    if (op->kind == ATSI_OP_ATTN)
        p.attn.n_kv = cuda_kv_bucket(p.attn.n_kv);
    for (size_t i = 0; i + sizeof word <= sizeof p; i += sizeof word) {
        memcpy(word, (const unsigned char *)&p + i, sizeof word);
        h = mix(h, (uint64_t)word[0] << 32 | word[1]);
    }
    return h;
}

uint64_t cuda_split_digest(const struct atsi_split *split)
{
    uint64_t h = mix(0, split->n_ops);
    for (uint32_t i = 0; i < split->n_ops; i++) {
        const struct atsi_op *op = split->ops[i];
        h = mix(h, (uint64_t)op->kind << 32 | op->n_rows);
        h = mix(h, op->flags);
        for (int t = 0; t < 4; t++)
            h = mix_tensor(h, op->src[t]);
        for (int t = 0; t < 2; t++) {
            h = mix_tensor(h, op->weight[t]);
            h = mix_tensor(h, op->dst[t]);
        }
        h = mix_tensor(h, op->state);
        h = mix_params(mix_kv(h, op->kv), op);
    }
    return h != 0 ? h : 1;
}

/* ---------------------------------------------------------------- the cache */
static struct cuda_graph *find(struct cuda_graphs *g, uint64_t key)
{
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t at = (g->hint + i) % g->n;
        if (g->at[at].key == key) {
            g->hint = at + 1;
            return &g->at[at];
        }
    }
    return NULL;
}

static void drop_exec(struct atsi_backend *be, struct cuda_graph *g)
{
    if (g->exec != NULL)
        cuda_note(be, cudaGraphExecDestroy(g->exec), "destroying a graph");
    g->exec = NULL;
}

void cuda_graphs_clear(struct atsi_queue *q)
{
    for (uint32_t i = 0; i < q->graphs.n; i++)
        drop_exec(q->be, &q->graphs.at[i]);
    free(q->graphs.at);
    q->graphs = (struct cuda_graphs){0};
}

static struct cuda_graph *oldest(struct cuda_graphs *g)
{
    struct cuda_graph *least = &g->at[0];
    for (uint32_t i = 1; i < g->n; i++)
        if (g->at[i].used < least->used)
            least = &g->at[i];
    return least;
}

/* An entry for a key not seen before: a new one, or that of the least recently used graph.  NULL
 * without memory: the split runs without a graph. */
static struct cuda_graph *add(struct atsi_queue *q, uint64_t key)
{
    struct cuda_graphs *g = &q->graphs;
    struct cuda_graph *e;
    if (g->n == g->cap && g->cap < q->be->set.graph_limit) {
        uint32_t cap = g->cap == 0 ? 64 : 2 * g->cap;
        struct cuda_graph *grown;
        if (cap > q->be->set.graph_limit)
            cap = q->be->set.graph_limit;
        grown = realloc(g->at, cap * sizeof *grown);
        if (grown != NULL) {
            g->at = grown;
            g->cap = cap;
        }
    }
    if (g->cap == 0)
        return NULL;
    if (g->n < g->cap) {
        e = &g->at[g->n++];
    } else {
        e = oldest(g);
        drop_exec(q->be, e);
    }
    *e = (struct cuda_graph){.key = key};
    return e;
}

/* ---------------------------------------------------------------- capture and replay */
static const void *scratch_of(const struct atsi_queue *q)
{
    return q->scratch != NULL ? cuda_buf_ptr(q->scratch) : NULL;
}

bool cuda_graph_ready(const struct atsi_queue *q, uint64_t key, uint64_t digest)
{
    const struct cuda_graphs *g = &q->graphs;
    for (uint32_t i = 0; i < g->n; i++) {
        const struct cuda_graph *e = &g->at[(g->hint + i) % g->n];
        if (e->key == key)
            return e->exec != NULL && e->digest == digest && e->scratch == scratch_of(q);
    }
    return false;
}

/* The split as a graph; the stream is out of capture mode whatever happens. */
static int capture(struct atsi_queue *q, const struct atsi_split *split, cudaGraph_t *out,
                   struct atsi_err *err)
{
    struct atsi_backend *be = q->be;
    cudaError_t e;
    int rc = cuda_check(be, cudaStreamBeginCapture(q->stream, cudaStreamCaptureModeThreadLocal),
                        err, "beginning a capture");
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    rc = cuda_launch_ops(q, split, NULL, err);
    e = cudaStreamEndCapture(q->stream, out);
    if (rc == ATSI_OK)
        rc = cuda_check(be, e, err, "ending a capture");
    else
        cuda_note(be, e, "ending a capture");
    if (rc != ATSI_OK && *out != NULL) {
        cuda_note(be, cudaGraphDestroy(*out), "destroying a graph");
        *out = NULL;
    }
    return rc;
}

/* Brings entry->exec up to what was captured. */
static int instantiate(struct atsi_backend *be, struct cuda_graph *g, cudaGraph_t graph,
                       struct atsi_err *err)
{
    if (g->exec != NULL) {
        cudaGraphExecUpdateResultInfo info;
        cudaError_t e = cudaGraphExecUpdate(g->exec, graph, &info);
        if (e == cudaSuccess)
            return ATSI_OK;
        if (e != cudaErrorGraphExecUpdateFailure)
            return cuda_check(be, e, err, "updating a graph");
        (void)cudaGetLastError(); /* another shape: a new one */
        drop_exec(be, g);
    }
    return cuda_check(be, cudaGraphInstantiate(&g->exec, graph, 0), err, "building a graph");
}

static int rebuild(struct atsi_queue *q, struct cuda_graph *g, const struct atsi_split *split,
                   struct atsi_err *err)
{
    cudaGraph_t graph;
    int rc = capture(q, split, &graph, err);
    if (rc == ATSI_OK) {
        rc = instantiate(q->be, g, graph, err);
        cuda_note(q->be, cudaGraphDestroy(graph), "destroying a graph");
    }
    if (rc != ATSI_OK)
        drop_exec(q->be, g);
    return rc;
}

/* A graph is a gain, not a need: only a lost device is a failure here. */
static int without_graph(struct atsi_queue *q, struct cuda_graph *g, int rc, struct atsi_err *err,
                         const struct atsi_err *why)
{
    if (rc == ATSI_ELOST)
        return atsi_fail(err, rc, "%s", why->msg);
    g->refused = true;
    q->be->host->log(q->be->host->ctx, ATSI_LOG_WARN, CUDA_PLUGIN_NAME,
                     "a split runs without a graph: %s", why->msg);
    return ATSI_OK;
}

int cuda_graph_run(struct atsi_queue *q, const struct atsi_split *split, uint64_t digest,
                   bool *done, struct atsi_err *err)
{
    struct cuda_graph *g = find(&q->graphs, split->graph_key);
    bool same, known = g != NULL;
    *done = false;
    if (g == NULL)
        g = add(q, split->graph_key);
    if (g == NULL)
        return ATSI_OK;
    g->used = ++q->graphs.tick;
    same = g->digest == digest && g->scratch == scratch_of(q);
    if (g->refused)
        return ATSI_OK;
    if (g->exec == NULL || !same) {
        struct atsi_err why = ATSI_ERR_INIT;
        bool again = g->exec != NULL || (known && same);
        int rc = again ? rebuild(q, g, split, &why) : ATSI_OK;
        g->digest = digest;
        g->scratch = scratch_of(q);
        if (rc != ATSI_OK)
            return without_graph(q, g, rc, err, &why);
        if (!again)
            return ATSI_OK;
    }
    *done = true;
    return cuda_check(q->be, cudaGraphLaunch(g->exec, q->stream), err,
                      "launching a graph of %u operations up to %s of %s", split->n_ops,
                      cuda_op_name(split->ops[split->n_ops - 1]->kind),
                      cuda_op_tensor(split->ops[split->n_ops - 1]));
}
