/* SPDX-License-Identifier: Apache-2.0
 *
 * One operation of a stream, which is also what a node of a graph holds.
 */
#ifndef CH_TASK_H
#define CH_TASK_H

#include "tests/cuda_host/rt.h"

enum ch_task_kind { CH_KERNEL, CH_COPY, CH_SET, CH_HOST, CH_RECORD, CH_WAIT, CH_GRAPH_RUN };

/* One cudaEventRecord(): done when its stream comes to it. */
struct ch_record {
    uint32_t refs;
    int done, timed;
    uint64_t at_ns;
    char sync; /* for ThreadSanitizer */
};

struct ch_program; /* of a graph, ready to run */

struct ch_copy {
    void *dst;
    const void *src;
    size_t width, rows, dst_pitch, src_pitch; /* one row: pitches do not matter */
    enum ch_direction direction;
    void *staged; /* the source, copied when the call was made; owned */
};

struct ch_task {
    enum ch_task_kind kind;
    union {
        struct ch_kernel kernel; /* owns args */
        struct ch_copy copy;
        struct {
            void *dst;
            int value;
            size_t n;
        } set;
        struct {
            cudaHostFn_t fn;
            void *user;
        } host;
        struct ch_record *record; /* counted */
        struct {
            struct ch_program *program;       /* counted */
            struct ch_record *after, *at_end; /* the launch before; this one; counted */
        } graph;
    } u;
};

/* What the task owns.  Lock held. */
void ch_task_drop(struct ch_task *t);
/* Runs it on the thread that calls; lock not held. */
cudaError_t ch_task_run(struct ch_task *t);
/* Instead of running it: those who wait for it go on. */
void ch_task_skip(struct ch_task *t);

/* Counts it and takes it as run, whatever it is.  Lock held. */
void ch_task_over(struct ch_task *t);

/* Says what directions and memory a copy has, and whether it may be.  Lock held. */
cudaError_t ch_copy_classify(struct ch_copy *c, enum cudaMemcpyKind kind, int *pageable,
                             const char *call);
cudaError_t ch_kernel_check(const struct ch_kernel *k);

/* Dynamic shared memory that a kernel may have: 48 KiB, or what it was allowed.  The functions take
 * the lock. */
cudaError_t ch_func_allow_shared(const void *func, size_t bytes, size_t most);
size_t ch_func_shared(const void *func);

struct ch_record *ch_record_new(int timed); /* one reference */
void ch_record_drop(struct ch_record *r);   /* lock held, NULL is nothing */

/* Every node, in an order that is random but for the dependencies. */
cudaError_t ch_program_run(struct ch_program *p);
void ch_program_drop(struct ch_program *p); /* lock held */

#endif
