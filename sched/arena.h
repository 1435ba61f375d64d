/* SPDX-License-Identifier: Apache-2.0
 * Cutting the caller's scratch into arrays.  Every array starts on a cache line; SCHED_ROOM() gives
 * the bytes one takes, so that a *_scratch() function is the sum over what its algorithm takes. */
#ifndef ATSI_SCHED_ARENA_H
#define ATSI_SCHED_ARENA_H

#include <stddef.h>

enum { SCHED_LINE = 64 };

#define SCHED_ROOM(type, count)                                                                    \
    (((size_t)(count) * sizeof(type) + SCHED_LINE - 1) / SCHED_LINE * SCHED_LINE)
/* Takes `count` elements off the front of *at (64-byte aligned). */
#define SCHED_TAKE(at, type, count) ((type *)sched_take((at), SCHED_ROOM(type, (count))))

static inline void *sched_take(unsigned char **at, size_t bytes)
{
    void *p = *at;
    *at += bytes;
    return p;
}

#endif
