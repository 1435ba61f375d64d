/* SPDX-License-Identifier: Apache-2.0
 *
 * Which streams, events and graphs exist: a stale handle is an error with a report, not a crash.
 */
#include <stdlib.h>

#include "tests/cuda_host/rt.h"

struct entry {
    enum ch_handle_kind kind; /* CH_NO_HANDLE: free */
    void *handle;
};

/* Open addressing: an entry lies at its home or, without a free place between, behind it. */
static struct entry *table;
static size_t n_handles, room; /* a power of two */

static size_t home_of(const void *handle)
{
    uint64_t h = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h >> 32) & (room - 1);
}

/* Its place, or the free one where it would be. */
static size_t place_of(const void *handle)
{
    size_t i = home_of(handle);
    while (table[i].kind != CH_NO_HANDLE && table[i].handle != handle)
        i = (i + 1) & (room - 1);
    return i;
}

static int grow(void)
{
    struct entry *old = table;
    size_t n = room;
    struct entry *more = calloc(n ? 2 * n : 64, sizeof *more);
    if (!more)
        return -1;
    table = more;
    room = n ? 2 * n : 64;
    for (size_t i = 0; i < n; i++)
        if (old[i].kind != CH_NO_HANDLE)
            table[place_of(old[i].handle)] = old[i];
    free(old);
    return 0;
}

int ch_handle_add(enum ch_handle_kind kind, void *handle)
{
    if (2 * (n_handles + 1) > room && grow())
        return -1;
    table[place_of(handle)] = (struct entry){kind, handle};
    n_handles++;
    return 0;
}

void ch_handle_remove(void *handle)
{
    size_t i, next;
    if (!n_handles || table[i = place_of(handle)].kind == CH_NO_HANDLE)
        return;
    table[i].kind = CH_NO_HANDLE;
    n_handles--;
    /* Those behind it may now be closer to their home. */
    for (next = (i + 1) & (room - 1); table[next].kind != CH_NO_HANDLE;
         next = (next + 1) & (room - 1)) {
        struct entry e = table[next];
        table[next].kind = CH_NO_HANDLE;
        table[place_of(e.handle)] = e;
    }
    if (!n_handles) {
        free(table);
        table = NULL;
        room = 0;
    }
}

int ch_handle_is(enum ch_handle_kind kind, const void *handle)
{
    return n_handles && table[place_of(handle)].kind == kind;
}

void *ch_handle_any(enum ch_handle_kind kind)
{
    for (size_t i = 0; i < room; i++)
        if (table[i].kind == kind)
            return table[i].handle;
    return NULL;
}

uint32_t ch_handle_count(enum ch_handle_kind kind)
{
    uint32_t n = 0;
    for (size_t i = 0; i < room; i++)
        n += table[i].kind == kind;
    return n;
}

int ch_handle_check(enum ch_handle_kind kind, const void *handle, const char *call)
{
    static const char *const names[] = {"handle", "stream", "event", "graph", "executable graph"};
    if (ch_handle_is(kind, handle))
        return 1;
    ch_report(handle ? CUDA_HOST_AFTER_FREE : CUDA_HOST_MISUSE,
              handle ? "%s: the %s does not exist (any more)"
                     : "%s: the default stream, or no %s, is given",
              call, names[kind]);
    return 0;
}
