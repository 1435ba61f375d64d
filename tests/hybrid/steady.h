/* SPDX-License-Identifier: Apache-2.0
 *
 * What a thread does beside computing: allocations, system calls, waits for locks.  Counted on the
 * thread that asks for it, between begin and end, and not while it is in a call of the simulated
 * CUDA runtime, which does all of this itself. */
#ifndef HYBRID_STEADY_H
#define HYBRID_STEADY_H

#include <stdbool.h>
#include <stdint.h>

struct steady_counts {
    uint32_t allocations; /* malloc, calloc, realloc, aligned_alloc, posix_memalign */
    uint32_t contended;   /* locks that another thread held */
    uint32_t waits;       /* system calls that wait for, or wake, another thread: futex, poll */
    uint32_t calls;       /* all others */
    long first_call;      /* number of the first of them; -1 */
    void *first_allocation[8]; /* where it was asked for */
};

/* Whether this build and machine can count. */
bool steady_can_count(void);
/* From now on system calls of this thread are seen, until it ends.  False: the kernel refuses. */
bool steady_watch(void);
/* inside: non-zero while calls are not ours. */
void steady_begin(int (*inside)(void));
void steady_end(struct steady_counts *out);

#endif
