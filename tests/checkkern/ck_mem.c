/* SPDX-License-Identifier: Apache-2.0
 * Guarded memory, and catching what a wrong kernel may do to the process. */
#include "ck.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MARGIN 128u /* bytes watched in front of the data */

struct ck_mem ck_mem_open(size_t bytes, size_t align)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (bytes + align - 1) / align * align;
    struct ck_mem m = {.bytes = bytes};
    m.map_bytes = (room + MARGIN + page - 1) / page * page + page;
    m.map = mmap(NULL, m.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m.map == MAP_FAILED || mprotect((char *)m.map + m.map_bytes - page, page, PROT_NONE) != 0) {
        (void)fprintf(stderr, "checkkern: no memory for %zu bytes: %s\n", bytes, strerror(errno));
        exit(1);
    }
    m.data = (unsigned char *)m.map + m.map_bytes - page - room;
    memset(m.data - MARGIN, 0xff, room + MARGIN);
    return m;
}

void ck_mem_close(struct ck_mem *m)
{
    if (m->map != NULL)
        (void)munmap(m->map, m->map_bytes); /* a range that was mapped */
    memset(m, 0, sizeof *m);
}

/* FNV-1a over 8-byte words, good enough to see a changed byte. */
static uint64_t hash_of(const struct ck_mem *m)
{
    uint64_t h = UINT64_C(14695981039346656037), word;
    size_t i = 0;
    for (; i + 8 <= m->bytes; i += 8) {
        memcpy(&word, m->data + i, 8);
        h = (h ^ word) * UINT64_C(1099511628211);
    }
    for (; i < m->bytes; i++)
        h = (h ^ m->data[i]) * UINT64_C(1099511628211);
    return h;
}

void ck_mem_seal(struct ck_mem *m)
{
    m->hash = hash_of(m);
}

void ck_mem_check(struct ck *c, const struct ck_mem *m, const char *name)
{
    if (m->map != NULL && hash_of(m) != m->hash)
        ck_fail(c, "its input %s was changed", name);
}

void ck_mem_around(struct ck *c, const struct ck_mem *m, const char *name)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const unsigned char *end = (const unsigned char *)m->map + m->map_bytes - page;
    for (const unsigned char *p = m->data - MARGIN; p < end; p++)
        if ((p < m->data || p >= m->data + m->bytes) && *p != 0xff) {
            ck_fail(c, "wrote %s byte %td, outside its %zu bytes", name, p - m->data, m->bytes);
            return;
        }
}

bool ck_untouched(const float *y)
{
    uint32_t bits;
    memcpy(&bits, y, sizeof bits);
    return bits == UINT32_MAX;
}

/* ---------------------------------------------------------------- signals */
static sigjmp_buf back;
static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
    caught = sig;
    siglongjmp(back, 1);
}

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
#define N_SIGNALS (sizeof signals / sizeof signals[0])

/* Rounding and flush-to-zero control, without the sticky exception flags. */
static unsigned float_mode(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_stmxcsr() & ~0x3fU;
#else
    return 0;
#endif
}

void ck_guarded(struct ck *c, void (*fn)(struct ck *c, const void *arg), const void *arg)
{
    struct sigaction old[N_SIGNALS], action = {.sa_handler = on_signal, .sa_flags = SA_NODEFER};
    unsigned mode = float_mode();
    if (c->quiet && c->n_failed > 0)
        return; /* noticed */
    for (size_t i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i], &action, &old[i]); /* cannot fail: valid signals */
    if (sigsetjmp(back, 1) == 0)
        fn(c, arg);
    else
        ck_fail(c, "ended by %s", strsignal((int)caught));
    for (size_t i = 0; i < N_SIGNALS; i++)
        (void)sigaction(signals[i], &old[i], NULL);
    if (float_mode() != mode)
        ck_fail(c, "changed the floating-point environment");
}
