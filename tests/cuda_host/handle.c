/* SPDX-License-Identifier: Apache-2.0
 *
 * Which streams, events and graphs exist: a stale handle is an error with a report, not a crash.
 */
#include <stdlib.h>

#include "tests/cuda_host/rt.h"

static struct {
    enum ch_handle_kind kind;
    void *handle;
} * handles;
static size_t n_handles, room;

int ch_handle_add(enum ch_handle_kind kind, void *handle)
{
    if (n_handles == room) {
        size_t more = room ? 2 * room : 64;
        void *p = realloc(handles, more * sizeof *handles);
        if (!p)
            return -1;
        handles = p;
        room = more;
    }
    handles[n_handles].kind = kind;
    handles[n_handles++].handle = handle;
    return 0;
}

void ch_handle_remove(void *handle)
{
    for (size_t i = 0; i < n_handles; i++)
        if (handles[i].handle == handle) {
            handles[i] = handles[--n_handles];
            break;
        }
    if (!n_handles) {
        free(handles);
        handles = NULL;
        room = 0;
    }
}

int ch_handle_is(enum ch_handle_kind kind, const void *handle)
{
    for (size_t i = 0; i < n_handles; i++)
        if (handles[i].handle == handle)
            return handles[i].kind == kind;
    return 0;
}

void *ch_handle_any(enum ch_handle_kind kind)
{
    for (size_t i = 0; i < n_handles; i++)
        if (handles[i].kind == kind)
            return handles[i].handle;
    return NULL;
}

uint32_t ch_handle_count(enum ch_handle_kind kind)
{
    uint32_t n = 0;
    for (size_t i = 0; i < n_handles; i++)
        n += handles[i].kind == kind;
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
