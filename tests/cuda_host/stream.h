/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams: a queue of operations and a thread that runs them, in order, at the same time as those
 * of other streams.  A stream that is being captured collects nodes instead (graph.c).
 */
#ifndef CH_STREAM_H
#define CH_STREAM_H

#include "tests/cuda_host/task.h"

struct ch_op {
    struct ch_op *next;
    uint64_t number; /* of all operations */
    struct ch_task task;
};

struct ch_capture;

struct CUstream_st {
    struct CUstream_st *next; /* of all, with those that are destroyed and not yet idle */
    pthread_t thread;
    pthread_cond_t work;
    struct ch_op *head, **tail;
    uint64_t queued, done; /* operations */
    unsigned flags;
    int priority;
    int quit, ended;
    uint64_t random;             /* of its delays */
    char submit_sync, done_sync; /* for ThreadSanitizer */
    /* Of a capture: the nodes that the next one depends on. */
    struct ch_capture *capture;
    cudaGraphNode_t *last;
    uint32_t n_last, room_last;
};

/* `stream` takes `t` over, whatever the result: runs it in its turn, or captures it. */
cudaError_t ch_stream_add(cudaStream_t stream, struct ch_task *t, const char *call);
/* Waits until what is queued now has run.  Lock held. */
void ch_stream_wait(cudaStream_t stream);
void ch_streams_wait_all(void);
void ch_streams_wait_blocking(void); /* those that the default stream waits for */
/* Whether any stream is being captured in a way that forbids `call` to this thread: then those
 * captures are spoilt, and the error is returned.  Lock held. */
cudaError_t ch_capture_forbids(const char *call);
cudaError_t ch_capture_forbids_on(cudaStream_t stream, const char *call);

struct CUevent_st {
    unsigned flags;
    struct ch_record *record; /* the last; NULL: never recorded */
    /* Recorded in a capture: the nodes to wait for. */
    struct ch_capture *capture;
    cudaGraphNode_t *nodes;
    uint32_t n_nodes;
};

/* graph.c.  Lock held. */
cudaError_t ch_capture_task(cudaStream_t stream, struct ch_task *t);
cudaError_t ch_capture_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t ch_capture_wait(cudaStream_t stream, cudaEvent_t event);
void ch_capture_spoil(struct ch_capture *c);
void ch_capture_leave(cudaStream_t stream); /* the stream is destroyed */
void ch_event_forget_capture(cudaEvent_t event);

#endif
