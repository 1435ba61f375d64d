/* SPDX-License-Identifier: Apache-2.0
 *
 * Accesses to pages that cannot be touched.  In a kernel it is what an illegal address is on a
 * device: reported, the grid ends, and the context is lost.  Anywhere else it is a crash,
 * explained.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/memory.h"

enum { ALTERNATE_STACK = 128 << 10 };

static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
static struct sigaction before[3];

int ch_fault_stack(struct ch_worker *w)
{
    stack_t now, s = {.ss_size = ALTERNATE_STACK};
    if (sigaltstack(NULL, &now))
        return -1;
    if (!(now.ss_flags & SS_DISABLE) && now.ss_size >= ALTERNATE_STACK)
        return 0; /* a sanitizer's */
    s.ss_sp =
        mmap(NULL, ALTERNATE_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s.ss_sp == MAP_FAILED)
        return -1;
    w->signal_stack = s.ss_sp;
    w->signal_stack_before = now;
    return sigaltstack(&s, NULL);
}

void ch_fault_stack_free(struct ch_worker *w)
{
    if (!w->signal_stack)
        return;
    sigaltstack(&w->signal_stack_before, NULL);
    munmap(w->signal_stack, ALTERNATE_STACK);
    w->signal_stack = NULL;
}

/* Says what the running kernel touched. */
static void explain(struct ch_worker *w, int signal, const void *address)
{
    char who[200], what[200];
    int kind;
    ch_describe_thread(w, w->current, who, sizeof who);
    if (signal == SIGFPE) { /* a device would go on with some value */
        (void)snprintf(w->what, sizeof w->what, "%s: an integer is divided by zero", who);
        w->report = CUDA_HOST_MISUSE;
        return;
    }
    if (ch_fiber_overflow(w->fiber_of[w->current], address)) {
        (void)snprintf(w->what, sizeof w->what,
                       "%s: its stack is too small for its local variables", who);
        w->report = CUDA_HOST_OUT_OF_BOUNDS;
        return;
    }
    ch_lock();
    kind = ch_memory_explain(address, what, sizeof what);
    ch_unlock();
    uintptr_t shared = (uintptr_t)w->shared_map + w->shared_size, a = (uintptr_t)address;
    if (a >= shared && a < shared + 4096)
        (void)snprintf(what, sizeof what, "%zu bytes after the end of %zu bytes of shared memory",
                       (size_t)(a - shared), w->kernel->shared);
    (void)snprintf(w->what, sizeof w->what, "%s: illegal address %p, %s", who, address, what);
    w->report = kind < 0 ? CUDA_HOST_OUT_OF_BOUNDS : kind;
}

/* Lets the interrupted kernel go on in ch_block_fault(), on its own stack. */
static int land(ucontext_t *context)
{
#if defined(__x86_64__)
    greg_t *r = context->uc_mcontext.gregs;
    /* Below the red zone, as if called. */
    r[REG_RSP] = ((r[REG_RSP] - 256) & ~(greg_t)15) - 8;
    r[REG_RIP] = (greg_t)(uintptr_t)ch_block_fault;
    return 0;
#else
    (void)context;
    return -1;
#endif
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    struct ch_worker *w = ch_self.worker;
    const struct sigaction *next = &before[0];
    char text[200];
    for (size_t i = 1; i < sizeof signals / sizeof *signals; i++)
        if (signals[i] == signal)
            next = &before[i];
    if (w && w->kernel) {
        /* An address that is none at all faults without one. */
        explain(w, signal, info->si_addr);
        w->error = signal == SIGFPE ? cudaErrorLaunchFailure : cudaErrorIllegalAddress;
        if (!ch_fiber_overflow(w->fiber_of[w->current], info->si_addr) && !land(context))
            return;
        (void)fprintf(stderr, "cuda_host: %s\n", w->what);
        abort();
    }
    if (signal != SIGFPE && ch_memory_explain(info->si_addr, text, sizeof text) >= 0)
        (void)fprintf(stderr, "cuda_host: host code touches %p, %s\n", info->si_addr, text);
    if (next->sa_flags & SA_SIGINFO)
        next->sa_sigaction(signal, info, context);
    else
        sigaction(signal, next, NULL); /* and faults again */
}

/* Test frameworks set handlers of their own whenever they like: looked at before every grid. */
void ch_fault_install(void)
{
    struct sigaction a, now;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_fault;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&a.sa_mask);
    ch_lock();
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (sigaction(signals[i], NULL, &now) || now.sa_sigaction == on_fault)
            continue;
        before[i] = now;
        sigaction(signals[i], &a, NULL);
    }
    ch_unlock();
}

void ch_fault_remove(void)
{
    struct sigaction now;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (!sigaction(signals[i], NULL, &now) && now.sa_sigaction == on_fault)
            sigaction(signals[i], &before[i], NULL);
}
