/* SPDX-License-Identifier: Apache-2.0
 *
 * Executable graphs.  A launch keeps the program it was made with: an update serves later launches.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/cuda_host/graph.h"
#include "tests/cuda_host/stream.h"

struct node {
    struct ch_task task;
    uint32_t *deps, n_deps;
};

struct ch_program {
    uint32_t refs;
    uint64_t random;
    uint32_t n;
    struct node nodes[];
};

struct CUgraphExec_st {
    struct ch_program *program;
    struct ch_record *last; /* the end of the last launch */
};

static uint64_t n_programs;

void ch_program_drop(struct ch_program *p)
{
    if (!p || --p->refs)
        return;
    for (uint32_t i = 0; i < p->n; i++) {
        ch_task_drop(&p->nodes[i].task);
        free(p->nodes[i].deps);
    }
    free(p);
}

/* A copy that owns what it needs; a captured copy has no staged source.  0 on success. */
static int copy_task(struct ch_task *to, const struct ch_task *from)
{
    *to = *from;
    if (from->kind == CH_KERNEL) {
        struct ch_kernel *k = &to->u.kernel;
        size_t at = (size_t)((const char *)k->pointers - (const char *)k->args);
        k->args = malloc(k->args_size);
        if (!k->args)
            return -1;
        memcpy(k->args, from->u.kernel.args, k->args_size);
        k->pointers = (const void *const *)(const void *)((char *)k->args + at);
    }
    return 0;
}

static int copy_node(struct node *to, cudaGraphNode_t from)
{
    if (copy_task(&to->task, &from->task))
        return -1;
    to->n_deps = from->n_deps;
    to->deps = malloc((from->n_deps + 1) * sizeof *to->deps);
    if (!to->deps) {
        ch_task_drop(&to->task);
        return -1;
    }
    for (uint32_t i = 0; i < from->n_deps; i++)
        to->deps[i] = from->deps[i]->index;
    return 0;
}

static struct ch_program *program_new(cudaGraph_t g)
{
    struct ch_program *p = calloc(1, sizeof *p + g->n * sizeof p->nodes[0]);
    if (!p)
        return NULL;
    p->refs = 1;
    p->random = (uint64_t)ch_get(CH_SEED) * 31 + n_programs++;
    for (; p->n < g->n; p->n++)
        if (copy_node(&p->nodes[p->n], g->nodes[p->n])) {
            ch_program_drop(p);
            return NULL;
        }
    return p;
}

/* The nodes whose dependencies have run; how many. */
static uint32_t runnable(const struct ch_program *p, const char *ran, uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        int ready = !ran[i];
        for (uint32_t d = 0; ready && d < p->nodes[i].n_deps; d++)
            ready = ran[p->nodes[i].deps[d]];
        if (ready)
            list[n++] = i;
    }
    return n;
}

cudaError_t ch_program_run(struct ch_program *p)
{
    cudaError_t e = cudaSuccess;
    char *ran = calloc(p->n + 1, 1);
    uint32_t *list = malloc((p->n + 1) * sizeof *list);
    if (!ran || !list)
        e = cudaErrorMemoryAllocation;
    for (uint32_t done = 0; !e && done < p->n; done++) {
        uint32_t n = runnable(p, ran, list);
        uint32_t i = list[ch_random(&p->random) % n];
        e = ch_task_run(&p->nodes[i].task);
        ran[i] = 1;
    }
    free(ran);
    free(list);
    return e;
}

/* ---- Calls ---- */

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t graph)
{
    if (!out || !ch_handle_check(CH_GRAPH, graph, "cudaGraphInstantiate"))
        return cudaErrorInvalidValue;
    cudaGraphExec_t exec = calloc(1, sizeof *exec);
    if (!exec)
        return cudaErrorMemoryAllocation;
    exec->program = program_new(graph);
    if (!exec->program || ch_handle_add(CH_EXEC, exec)) {
        ch_program_drop(exec->program);
        free(exec);
        return cudaErrorMemoryAllocation;
    }
    *out = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    cudaError_t e = ch_enter("cudaGraphInstantiate", CH_ANY);
    if (!e && flags)
        e = cudaErrorNotSupported;
    if (e)
        return ch_leave("cudaGraphInstantiate", e);
    ch_lock();
    e = instantiate(exec, graph);
    ch_unlock();
    return ch_leave("cudaGraphInstantiate", e);
}

/* What keeps a program from being replaced by another. */
static enum cudaGraphExecUpdateResult differs(const struct ch_program *old,
                                              const struct ch_program *now, uint32_t *at)
{
    if (old->n != now->n)
        return cudaGraphExecUpdateErrorTopologyChanged;
    for (uint32_t i = 0; i < old->n; i++) {
        const struct node *a = &old->nodes[i], *b = &now->nodes[i];
        *at = i;
        if (a->task.kind != b->task.kind)
            return cudaGraphExecUpdateErrorNodeTypeChanged;
        if (a->n_deps != b->n_deps || memcmp(a->deps, b->deps, a->n_deps * sizeof *a->deps) != 0)
            return cudaGraphExecUpdateErrorTopologyChanged;
        if (a->task.kind == CH_COPY && a->task.u.copy.direction != b->task.u.copy.direction)
            return cudaGraphExecUpdateErrorParametersChanged;
    }
    return cudaGraphExecUpdateSuccess;
}

static cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph,
                          cudaGraphExecUpdateResultInfo *info)
{
    uint32_t at = 0;
    if (!ch_handle_check(CH_EXEC, exec, "cudaGraphExecUpdate") ||
        !ch_handle_check(CH_GRAPH, graph, "cudaGraphExecUpdate"))
        return cudaErrorInvalidValue;
    struct ch_program *p = program_new(graph);
    if (!p)
        return cudaErrorMemoryAllocation;
    enum cudaGraphExecUpdateResult result = differs(exec->program, p, &at);
    if (info) {
        memset(info, 0, sizeof *info);
        info->result = result;
        if (result != cudaGraphExecUpdateSuccess && graph->n)
            info->errorNode = graph->nodes[at];
    }
    if (result != cudaGraphExecUpdateSuccess) {
        ch_program_drop(p);
        return cudaErrorGraphExecUpdateFailure;
    }
    ch_program_drop(exec->program);
    exec->program = p;
    return cudaSuccess;
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    cudaError_t e = ch_enter("cudaGraphExecUpdate", CH_ANY);
    if (e)
        return ch_leave("cudaGraphExecUpdate", e);
    ch_lock();
    e = update(exec, graph, info);
    ch_unlock();
    return ch_leave("cudaGraphExecUpdate", e);
}

/* The task of a launch.  Lock held. */
static cudaError_t launch_task(cudaGraphExec_t exec, struct ch_task *t)
{
    if (!ch_handle_check(CH_EXEC, exec, "cudaGraphLaunch"))
        return cudaErrorInvalidValue;
    t->u.graph.at_end = ch_record_new(0);
    if (!t->u.graph.at_end)
        return cudaErrorMemoryAllocation;
    t->u.graph.after = exec->last;
    t->u.graph.program = exec->program;
    t->u.graph.program->refs++;
    exec->last = t->u.graph.at_end;
    exec->last->refs++;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t e = ch_enter("cudaGraphLaunch", CH_ANY);
    struct ch_task t = {.kind = CH_GRAPH_RUN};
    if (e)
        return ch_leave("cudaGraphLaunch", e);
    ch_lock();
    e = ch_handle_check(CH_STREAM, stream, "cudaGraphLaunch") ? launch_task(exec, &t)
                                                              : cudaErrorInvalidResourceHandle;
    ch_unlock();
    return ch_leave("cudaGraphLaunch", e ? e : ch_stream_add(stream, &t, "cudaGraphLaunch"));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t e = ch_enter("cudaGraphUpload", CH_ANY);
    if (e)
        return ch_leave("cudaGraphUpload", e);
    ch_lock();
    if (!ch_handle_check(CH_EXEC, exec, "cudaGraphUpload") ||
        !ch_handle_check(CH_STREAM, stream, "cudaGraphUpload"))
        e = cudaErrorInvalidValue;
    ch_unlock();
    return ch_leave("cudaGraphUpload", e);
}

static void exec_free(cudaGraphExec_t exec)
{
    ch_handle_remove(exec);
    ch_program_drop(exec->program);
    ch_record_drop(exec->last);
    free(exec);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    cudaError_t e = ch_enter("cudaGraphExecDestroy", CH_RELEASE);
    if (e)
        return ch_leave("cudaGraphExecDestroy", e);
    ch_lock();
    if (ch_handle_check(CH_EXEC, exec, "cudaGraphExecDestroy")) {
        exec_free(exec);
        e = ch_take_pending();
    } else {
        e = cudaErrorInvalidValue;
    }
    ch_unlock();
    return ch_leave("cudaGraphExecDestroy", e);
}

void ch_graphs_end(void)
{
    void *h;
    ch_lock();
    int lost = ch_rt.lost != cudaSuccess;
    while ((h = ch_handle_any(CH_EXEC))) {
        if (!lost)
            ch_report(CUDA_HOST_LEAK, "an executable graph was not destroyed");
        exec_free(h);
    }
    while ((h = ch_handle_any(CH_GRAPH))) {
        if (!lost)
            ch_report(CUDA_HOST_LEAK, "a graph was not destroyed");
        ch_handle_remove(h);
        ch_graph_free(h);
    }
    ch_unlock();
}
