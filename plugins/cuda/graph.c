/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits as CUDA graphs.  A split that comes a second time is captured; from then on one launch
 * replays it: the key promises the same operations, shapes and addresses, and only positions may
 * grow.  When they have outgrown the bucket the attention was captured for, or the work space has
 * moved, the split is captured anew and the graph updated in place; a graph that cannot take the
 * update is built again.  What cannot be captured runs op by op, as without graphs.
 *
 * A replay looks at no operation but the first, the last and those of attention: rounds have
 * hundreds, and their host would be busy with nothing else.
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

static uint64_t mix_op(uint64_t h, const struct atsi_op *op)
{
    h = mix(h, (uint64_t)op->kind << 32 | op->n_rows);
    for (int t = 0; t < 4; t++)
        h = mix(h, op->src[t] != NULL ? (uintptr_t)op->src[t]->data : 1);
    for (int t = 0; t < 2; t++) {
        h = mix(h, op->weight[t] != NULL ? (uintptr_t)op->weight[t]->data : 1);
        h = mix(h, op->dst[t] != NULL ? (uintptr_t)op->dst[t]->data : 1);
    }
    return h;
}

/* The key vouches for everything but positions.  Both ends are looked at as well, which costs
 * nothing and tells most keys that do not keep their promise. */
uint64_t cuda_graph_digest(const struct cuda_graph *g, const struct atsi_split *split)
{
    uint64_t h = mix_op(mix(0, split->n_ops), split->ops[0]);
    h = mix_op(h, split->ops[split->n_ops - 1]);
    for (uint32_t i = 0; i < g->n_attention; i++)
        h = mix(h, cuda_kv_bucket(split->ops[g->attention[i]]->p.attn.n_kv));
    return h != 0 ? h : 1;
}

/* ---------------------------------------------------------------- the cache */
static uint32_t *bucket_of(struct cuda_graphs *g, uint64_t key)
{
    return &g->bucket[mix(0, key) & (g->n_buckets - 1)];
}

static struct cuda_graph *find(struct cuda_graphs *g, uint64_t key)
{
    uint32_t at = g->n_buckets > 0 ? *bucket_of(g, key) : 0;
    while (at != 0 && g->at[at - 1].key != key)
        at = g->at[at - 1].chain;
    return at != 0 ? &g->at[at - 1] : NULL;
}

static void link_in(struct cuda_graphs *g, struct cuda_graph *e)
{
    uint32_t *first = bucket_of(g, e->key);
    e->chain = *first;
    *first = (uint32_t)(e - g->at) + 1;
}

static void unlink_from(struct cuda_graphs *g, const struct cuda_graph *e)
{
    uint32_t *at = bucket_of(g, e->key);
    while (&g->at[*at - 1] != e)
        at = &g->at[*at - 1].chain;
    *at = e->chain;
}

static void drop_exec(struct atsi_backend *be, struct cuda_graph *g)
{
    if (g->exec != NULL)
        cuda_note(be, cudaGraphExecDestroy(g->exec), "destroying a graph");
    g->exec = NULL;
}

void cuda_graphs_clear(struct atsi_queue *q)
{
    for (uint32_t i = 0; i < q->graphs.n; i++) {
        drop_exec(q->be, &q->graphs.at[i]);
        free(q->graphs.at[i].attention);
    }
    free(q->graphs.at);
    free(q->graphs.bucket);
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

/* Room for more entries, and at least as many buckets.  Without memory it stays as it is. */
static void grow(struct cuda_graphs *g, uint32_t limit)
{
    uint32_t cap = g->cap == 0 ? 64 : 2 * g->cap, n = 64;
    struct cuda_graph *grown;
    uint32_t *bucket;
    if (cap > limit)
        cap = limit;
    while (n < cap)
        n *= 2;
    bucket = calloc(n, sizeof *bucket);
    grown = bucket != NULL ? realloc(g->at, cap * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(bucket);
        return;
    }
    free(g->bucket);
    g->bucket = bucket;
    g->n_buckets = n;
    g->at = grown;
    g->cap = cap;
    for (uint32_t i = 0; i < g->n; i++)
        link_in(g, &g->at[i]);
}

/* Where the split has attention; false: no memory. */
static bool note_attention(struct cuda_graph *e, const struct atsi_split *split)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < split->n_ops; i++)
        n += split->ops[i]->kind == ATSI_OP_ATTN;
    e->attention = malloc(((size_t)n + 1) * sizeof *e->attention);
    if (e->attention == NULL)
        return false;
    e->n_ops = split->n_ops;
    for (uint32_t i = 0; i < split->n_ops; i++)
        if (split->ops[i]->kind == ATSI_OP_ATTN)
            e->attention[e->n_attention++] = i;
    return true;
}

/* An entry for a key not seen before: a new one, or that of the least recently used graph. */
static struct cuda_graph *add(struct atsi_queue *q, uint64_t key)
{
    struct cuda_graphs *g = &q->graphs;
    struct cuda_graph *e;
    uint32_t *list = NULL; /* of the entry's last user; cuda_graph_of() frees it */
    if (g->n == g->cap && g->cap < q->be->set.graph_limit)
        grow(g, q->be->set.graph_limit);
    if (g->cap == 0)
        return NULL;
    if (g->n < g->cap) {
        e = &g->at[g->n++];
    } else {
        e = oldest(g);
        unlink_from(g, e);
        drop_exec(q->be, e);
        list = e->attention;
    }
    *e = (struct cuda_graph){.key = key, .attention = list};
    link_in(g, e);
    return e;
}

struct cuda_graph *cuda_graph_of(struct atsi_queue *q, const struct atsi_split *split)
{
    struct cuda_graph *g = find(&q->graphs, split->graph_key);
    if (g == NULL)
        g = add(q, split->graph_key);
    if (g == NULL)
        return NULL;
    g->used = ++q->graphs.tick;
    if (g->attention != NULL && g->n_ops == split->n_ops)
        return g;
    free(g->attention);
    g->attention = NULL;
    g->n_attention = 0;
    return note_attention(g, split) ? g : NULL;
}

/* ---------------------------------------------------------------- capture and replay */
static const void *scratch_of(const struct atsi_queue *q)
{
    return q->scratch != NULL ? cuda_buf_ptr(q->scratch) : NULL;
}

bool cuda_graph_ready(const struct atsi_queue *q, const struct cuda_graph *g, uint64_t digest)
{
    return g->exec != NULL && g->digest == digest && g->scratch == scratch_of(q);
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

int cuda_graph_run(struct atsi_queue *q, struct cuda_graph *g, const struct atsi_split *split,
                   uint64_t digest, bool *done, struct atsi_err *err)
{
    bool same = g->digest == digest && g->scratch == scratch_of(q);
    *done = false;
    if (g->refused)
        return ATSI_OK;
    if (g->exec == NULL || !same) {
        struct atsi_err why = ATSI_ERR_INIT;
        bool again = g->exec != NULL || same; /* a new entry's digest is 0 */
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
