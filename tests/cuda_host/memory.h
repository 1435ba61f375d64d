/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that the device can reach: its own, pinned host memory, registered host memory, mappings
 * of the driver's calls.  An allocation ends at a page that cannot be touched, as near as its
 * alignment of 256 bytes allows; what remains is a red zone.  Freed memory cannot be touched for a
 * while.  Device memory starts as CH_POISON.
 */
#ifndef CH_MEMORY_H
#define CH_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "tests/cuda_host/rt.h"

enum ch_memory_kind {
    CH_PAGEABLE, /* none of the others */
    CH_DEVICE,
    CH_PINNED_MEMORY, /* cudaHostAlloc */
    CH_REGISTERED,
    CH_MAPPED, /* cuMemMap: device memory */
};

/* All with the lock held. */

/* NULL without memory within the budget or the pin limit. */
void *ch_memory_new(enum ch_memory_kind kind, size_t size);
/* 0, or -1: no such allocation, which is reported under the name of the call. */
int ch_memory_delete(enum ch_memory_kind kind, const void *p, const char *call);
/* Counts against the budget.  0, or -1: more than is left. */
int ch_memory_charge(size_t bytes);
void ch_memory_discharge(size_t bytes);
/* Ranges that others made (CH_REGISTERED, CH_MAPPED).  0, or -1 without memory. */
int ch_memory_note(enum ch_memory_kind kind, const void *p, size_t size);
int ch_memory_forget(enum ch_memory_kind kind, const void *p);
/* Whether any part of [p, p + n) is known. */
int ch_memory_touches(const void *p, size_t n);

/* The kind of memory that all of [p, p + n) is; -1 if it starts in known memory and leaves it, or
 * is freed: `why` says so. */
int ch_memory_kind(const void *p, size_t n, char *why, size_t why_size);
static inline int ch_is_device(int kind)
{
    return kind == CH_DEVICE || kind == CH_MAPPED;
}
/* Where in the device memory [p, p + n) words lie that nobody ever wrote; -1: nowhere. */
int64_t ch_memory_unwritten(const void *p, size_t n);
/* What is at an address that could not be touched; CUDA_HOST_OUT_OF_BOUNDS or _AFTER_FREE, -1: not
 * near anything of ours. */
int ch_memory_explain(const void *address, char *text, size_t size);
/* Looks at all red zones. */
void ch_memory_check(void);

#endif
