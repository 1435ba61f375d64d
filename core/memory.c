/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory: large blocks come zeroed from the kernel (pages cost nothing until touched, huge
 * pages can be asked for), small ones from malloc; bump arenas over either.
 */
#include "core/memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LARGE ((size_t)4 << 20)
#define HUGE_PAGE ((size_t)2 << 20)

bool atsi_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool atsi_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Bytes really taken: a readable line behind the end, whole lines (or huge pages). */
static bool block_size(size_t bytes, size_t *out)
{
    size_t step = bytes >= LARGE ? HUGE_PAGE : ATSI_ALIGN;
    if (!atsi_add_size(bytes, ATSI_ALIGN + step - 1, out))
        return false;
    *out = *out / step * step;
    return true;
}

/* Maps one huge page more than needed and gives back what lies outside the aligned range. */
static void *map_aligned(size_t size)
{
    unsigned char *p, *aligned;
    size_t head, room;
    if (!atsi_add_size(size, HUGE_PAGE, &room))
        return NULL;
    p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    aligned = p + head;
    if (head > 0)
        (void)munmap(p, head);
    (void)munmap(aligned + size, HUGE_PAGE - head);
    (void)madvise(aligned, size, MADV_HUGEPAGE); /* a hint: small pages work too */
    return aligned;
}

void *atsi_mem_alloc(size_t bytes)
{
    size_t size;
    void *p;
    if (!block_size(bytes, &size))
        return NULL;
    if (bytes >= LARGE)
        return map_aligned(size);
    p = aligned_alloc(ATSI_ALIGN, size);
    return p != NULL ? memset(p, 0, size) : NULL;
}

void atsi_mem_free(void *p, size_t bytes)
{
    size_t size;
    if (p == NULL)
        return;
    if (bytes >= LARGE && block_size(bytes, &size))
        (void)munmap(p, size); /* cannot fail for what map_aligned() returned */
    else
        free(p);
}

int atsi_arena_open(struct atsi_arena *a, size_t bytes, struct atsi_err *err)
{
    *a = (struct atsi_arena){.base = atsi_mem_alloc(bytes), .size = bytes};
    if (a->base == NULL) {
        a->size = 0;
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for an arena of %zu bytes", bytes);
    }
    return ATSI_OK;
}

void atsi_arena_close(struct atsi_arena *a)
{
    atsi_mem_free(a->base, a->size);
    *a = (struct atsi_arena){0};
}

void *atsi_arena_take(struct atsi_arena *a, size_t bytes)
{
    size_t end;
    void *p = a->base + a->used;
    if (!atsi_add_size(bytes, ATSI_ALIGN - 1, &end))
        return NULL;
    end = end / ATSI_ALIGN * ATSI_ALIGN;
    if (bytes > a->size - a->used)
        return NULL;
    a->used = end > a->size - a->used ? a->size : a->used + end;
    return p;
}

void atsi_arena_reset(struct atsi_arena *a)
{
    a->used = 0;
}
