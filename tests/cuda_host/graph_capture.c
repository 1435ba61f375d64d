/* SPDX-License-Identifier: Apache-2.0
 *
 * Capturing: operations of a stream, and of those that join it by waiting for its events, become
 * nodes of a graph.
 */
#include <pthread.h>
#include <stdlib.h>

#include "tests/cuda_host/graph.h"
#include "tests/cuda_host/stream.h"

struct ch_capture {
    struct ch_capture *next;
    uint32_t refs; /* streams and events */
    cudaGraph_t graph;
    cudaStream_t origin;
    enum cudaStreamCaptureMode mode;
    pthread_t owner;
    int over;
    int spoilt;
    cudaStream_t *streams; /* that take part */
    uint32_t n_streams, room;
};

static struct ch_capture *captures; /* that are not over */

/* ---- Graphs ---- */

cudaGraphNode_t ch_graph_add(cudaGraph_t g, const struct ch_task *t, const cudaGraphNode_t *deps,
                             uint32_t n_deps)
{
    if (g->n == g->room) {
        uint32_t more = g->room ? 2 * g->room : 32;
        cudaGraphNode_t *p = realloc(g->nodes, more * sizeof *p);
        if (!p)
            return NULL;
        g->nodes = p;
        g->room = more;
    }
    cudaGraphNode_t node = malloc(sizeof *node + n_deps * sizeof *deps);
    if (!node)
        return NULL;
    node->task = *t;
    node->index = g->n;
    node->n_deps = n_deps;
    for (uint32_t i = 0; i < n_deps; i++)
        node->deps[i] = deps[i];
    g->nodes[g->n++] = node;
    return node;
}

void ch_graph_free(cudaGraph_t g)
{
    for (uint32_t i = 0; g && i < g->n; i++) {
        ch_task_drop(&g->nodes[i]->task);
        free(g->nodes[i]);
    }
    if (g)
        free(g->nodes);
    free(g);
}

/* ---- Captures ---- */

static void drop_capture(struct ch_capture *c)
{
    if (--c->refs)
        return;
    free(c->streams);
    free(c);
}

void ch_capture_spoil(struct ch_capture *c)
{
    if (!c->over)
        c->spoilt = 1;
}

static int is_mine(const struct ch_capture *c)
{
    return pthread_equal(c->owner, pthread_self());
}

cudaError_t ch_capture_forbids(const char *call)
{
    cudaError_t e = cudaSuccess;
    for (struct ch_capture *c = captures; c; c = c->next) {
        if (c->mode == cudaStreamCaptureModeRelaxed ||
            (c->mode == cudaStreamCaptureModeThreadLocal && !is_mine(c)))
            continue;
        ch_report(CUDA_HOST_MISUSE, "%s is called while a stream is captured, which spoils it",
                  call);
        c->spoilt = 1;
        e = cudaErrorStreamCaptureUnsupported;
    }
    return e;
}

cudaError_t ch_capture_forbids_on(cudaStream_t stream, const char *call)
{
    if (!stream->capture)
        return ch_capture_forbids(call);
    ch_report(CUDA_HOST_MISUSE, "%s of a stream that is captured", call);
    stream->capture->spoilt = 1;
    return cudaErrorStreamCaptureUnsupported;
}

static int join(struct ch_capture *c, cudaStream_t stream)
{
    if (c->n_streams == c->room) {
        uint32_t more = c->room ? 2 * c->room : 4;
        cudaStream_t *p = realloc(c->streams, more * sizeof *p);
        if (!p)
            return -1;
        c->streams = p;
        c->room = more;
    }
    c->streams[c->n_streams++] = stream;
    c->refs++;
    stream->capture = c;
    stream->n_last = 0;
    return 0;
}

/* Adds to the nodes that the next one of the stream depends on. */
static int depend(cudaStream_t s, const cudaGraphNode_t *nodes, uint32_t n)
{
    if (s->n_last + n > s->room_last) {
        cudaGraphNode_t *p = realloc(s->last, (s->n_last + n) * sizeof *p);
        if (!p)
            return -1;
        s->last = p;
        s->room_last = s->n_last + n;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t known = 0;
        while (known < s->n_last && s->last[known] != nodes[i])
            known++;
        if (known == s->n_last)
            s->last[s->n_last++] = nodes[i];
    }
    return 0;
}

cudaError_t ch_capture_task(cudaStream_t stream, struct ch_task *t)
{
    struct ch_capture *c = stream->capture;
    cudaGraphNode_t node = NULL;
    cudaError_t e = cudaErrorStreamCaptureInvalidated;
    if (c->spoilt)
        goto fail;
    e = cudaErrorStreamCaptureUnsupported;
    if (t->kind == CH_GRAPH_RUN) /* child graphs are not simulated */
        goto fail;
    e = cudaErrorMemoryAllocation;
    if (depend(stream, NULL, 0))
        goto fail;
    node = ch_graph_add(c->graph, t, stream->last, stream->n_last);
    if (!node)
        goto fail;
    stream->n_last = 0;
    if (depend(stream, &node, 1)) {
        c->spoilt = 1;
        return cudaErrorMemoryAllocation; /* the node owns the task */
    }
    return cudaSuccess;
fail:
    c->spoilt = 1;
    ch_task_drop(t);
    return e;
}

void ch_event_forget_capture(cudaEvent_t event)
{
    if (event->capture)
        drop_capture(event->capture);
    event->capture = NULL;
    free(event->nodes);
    event->nodes = NULL;
    event->n_nodes = 0;
}

cudaError_t ch_capture_record(cudaStream_t stream, cudaEvent_t event)
{
    struct ch_capture *c = stream->capture;
    if (c->spoilt)
        return cudaErrorStreamCaptureInvalidated;
    cudaGraphNode_t *nodes = malloc((stream->n_last + 1) * sizeof *nodes);
    if (!nodes)
        return cudaErrorMemoryAllocation;
    for (uint32_t i = 0; i < stream->n_last; i++)
        nodes[i] = stream->last[i];
    ch_event_forget_capture(event);
    ch_record_drop(event->record);
    event->record = NULL;
    event->nodes = nodes;
    event->n_nodes = stream->n_last;
    event->capture = c;
    c->refs++;
    return cudaSuccess;
}

cudaError_t ch_capture_wait(cudaStream_t stream, cudaEvent_t event)
{
    struct ch_capture *mine = stream->capture, *theirs = event->capture;
    if ((mine && mine->spoilt) || (theirs && !theirs->over && theirs->spoilt))
        return cudaErrorStreamCaptureInvalidated;
    if (!theirs) {
        ch_report(CUDA_HOST_MISUSE, "a captured stream is to wait for an event of no capture: %s",
                  event->record ? "recorded outside" : "never recorded");
        mine->spoilt = 1;
        return cudaErrorStreamCaptureIsolation;
    }
    if (theirs->over) {
        if (mine)
            mine->spoilt = 1;
        return cudaErrorCapturedEvent;
    }
    if (mine && mine != theirs) {
        mine->spoilt = theirs->spoilt = 1;
        return cudaErrorStreamCaptureMerge;
    }
    if (!mine && join(theirs, stream))
        return cudaErrorMemoryAllocation;
    return depend(stream, event->nodes, event->n_nodes) ? cudaErrorMemoryAllocation : cudaSuccess;
}

static void leave_all(struct ch_capture *c)
{
    struct ch_capture **at = &captures;
    while (*at && *at != c)
        at = &(*at)->next;
    if (*at)
        *at = c->next;
    c->over = 1;
    for (uint32_t i = 0; i < c->n_streams; i++) {
        c->streams[i]->capture = NULL;
        c->streams[i]->n_last = 0;
    }
    c->refs -= c->n_streams - 1;
    c->n_streams = 0;
    drop_capture(c);
}

void ch_capture_leave(cudaStream_t stream)
{
    struct ch_capture *c = stream->capture;
    if (!c)
        return;
    if (!ch_rt.lost) /* then nothing could end the capture */
        ch_report(CUDA_HOST_MISUSE, "a stream is destroyed while it is captured");
    ch_graph_free(c->graph);
    c->graph = NULL;
    leave_all(c);
}

/* ---- Calls ---- */

static cudaError_t begin(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    if (!ch_handle_check(CH_STREAM, stream, "cudaStreamBeginCapture"))
        return cudaErrorInvalidResourceHandle;
    if (stream->capture)
        return cudaErrorIllegalState;
    struct ch_capture *c = calloc(1, sizeof *c);
    cudaGraph_t g = calloc(1, sizeof *g);
    if (!c || !g || join(c, stream)) {
        free(c);
        free(g);
        return cudaErrorMemoryAllocation;
    }
    c->graph = g;
    c->origin = stream;
    c->mode = mode;
    c->owner = pthread_self();
    c->next = captures;
    captures = c;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    cudaError_t e = ch_enter("cudaStreamBeginCapture", CH_ANY);
    if (e)
        return ch_leave("cudaStreamBeginCapture", e);
    ch_lock();
    e = begin(stream, mode);
    ch_unlock();
    return ch_leave("cudaStreamBeginCapture", e);
}

/* Whether all that was captured comes before the last operation of the first stream. */
static int all_joined(const struct ch_capture *c)
{
    cudaGraph_t g = c->graph;
    int joined = 1;
    char *reached = calloc(g->n + 1, 1);
    if (!reached)
        return 0;
    for (uint32_t i = 0; i < c->origin->n_last; i++)
        reached[c->origin->last[i]->index] = 1;
    for (uint32_t i = g->n; i-- > 0;) {
        joined &= reached[i];
        for (uint32_t d = 0; reached[i] && d < g->nodes[i]->n_deps; d++)
            reached[g->nodes[i]->deps[d]->index] = 1;
    }
    free(reached);
    return joined;
}

static cudaError_t end(cudaStream_t stream, cudaGraph_t *out)
{
    cudaError_t e = cudaSuccess;
    *out = NULL;
    if (!ch_handle_check(CH_STREAM, stream, "cudaStreamEndCapture"))
        return cudaErrorInvalidResourceHandle;
    struct ch_capture *c = stream->capture;
    if (!c)
        return cudaErrorIllegalState;
    if (c->origin != stream)
        e = cudaErrorStreamCaptureUnmatched;
    else if (c->mode != cudaStreamCaptureModeRelaxed && !is_mine(c))
        return cudaErrorStreamCaptureWrongThread;
    else if (c->spoilt)
        e = cudaErrorStreamCaptureInvalidated;
    else if (!all_joined(c))
        e = cudaErrorStreamCaptureUnjoined;
    else if (ch_handle_add(CH_GRAPH, c->graph))
        e = cudaErrorMemoryAllocation;
    if (e)
        ch_graph_free(c->graph);
    else
        *out = c->graph;
    c->graph = NULL;
    leave_all(c);
    return e;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    cudaError_t e = ch_enter("cudaStreamEndCapture", CH_RELEASE);
    if (e)
        return ch_leave("cudaStreamEndCapture", e);
    ch_lock();
    e = end(stream, graph);
    if (!e && ch_rt.pending) { /* made to fail: there is no graph then */
        ch_handle_remove(*graph);
        ch_graph_free(*graph);
        *graph = NULL;
        e = ch_take_pending();
    }
    ch_unlock();
    return ch_leave("cudaStreamEndCapture", e);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    cudaError_t e = ch_enter("cudaStreamIsCapturing", CH_ANY);
    if (e)
        return ch_leave("cudaStreamIsCapturing", e);
    ch_lock();
    if (!ch_handle_check(CH_STREAM, stream, "cudaStreamIsCapturing"))
        e = cudaErrorInvalidResourceHandle;
    else
        *status = !stream->capture          ? cudaStreamCaptureStatusNone
                  : stream->capture->spoilt ? cudaStreamCaptureStatusInvalidated
                                            : cudaStreamCaptureStatusActive;
    ch_unlock();
    return ch_leave("cudaStreamIsCapturing", e);
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    cudaError_t e = ch_enter("cudaGraphGetNodes", CH_ANY);
    if (e)
        return ch_leave("cudaGraphGetNodes", e);
    ch_lock();
    if (!ch_handle_check(CH_GRAPH, graph, "cudaGraphGetNodes")) {
        e = cudaErrorInvalidValue;
    } else {
        for (size_t i = 0; nodes && i < *n; i++)
            nodes[i] = i < graph->n ? graph->nodes[i] : NULL;
        if (!nodes || *n > graph->n)
            *n = graph->n;
    }
    ch_unlock();
    return ch_leave("cudaGraphGetNodes", e);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    cudaError_t e = ch_enter("cudaGraphDestroy", CH_RELEASE);
    if (e)
        return ch_leave("cudaGraphDestroy", e);
    ch_lock();
    if (ch_handle_check(CH_GRAPH, graph, "cudaGraphDestroy")) {
        ch_handle_remove(graph);
        ch_graph_free(graph);
        e = ch_take_pending();
    } else {
        e = cudaErrorInvalidValue;
    }
    ch_unlock();
    return ch_leave("cudaGraphDestroy", e);
}
