/* SPDX-License-Identifier: Apache-2.0
 *
 * Fibers: a few lines of assembly on x86-64 (ucontext is ten times slower: it saves the signal mask
 * by a system call), ucontext elsewhere.
 */
#include "tests/cuda_host/fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if CH_ASAN
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#endif

#if defined(__x86_64__)
/* Saves what a callee must keep, swaps the stack pointer.  The floating point control words are the
 * same in all fibers. */
__asm__(".text\n"
        ".p2align 4\n"
        ".hidden ch_fiber_swap\n"
        ".globl ch_fiber_swap\n"
        ".type ch_fiber_swap,@function\n"
        "ch_fiber_swap:\n"
        "  pushq %rbp\n"
        "  pushq %rbx\n"
        "  pushq %r12\n"
        "  pushq %r13\n"
        "  pushq %r14\n"
        "  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n"
        "  popq %r14\n"
        "  popq %r13\n"
        "  popq %r12\n"
        "  popq %rbx\n"
        "  popq %rbp\n"
        "  ret\n"
        ".size ch_fiber_swap,.-ch_fiber_swap\n"
        /* The first switch to a fiber ends here, with the fiber in rbx. */
        ".p2align 4\n"
        ".hidden ch_fiber_start\n"
        ".globl ch_fiber_start\n"
        ".type ch_fiber_start,@function\n"
        "ch_fiber_start:\n"
        "  movq %rbx, %rdi\n"
        "  call ch_fiber_main\n"
        "  ud2\n"
        ".size ch_fiber_start,.-ch_fiber_start\n");
void ch_fiber_start(void);
#else
#include <ucontext.h>
#endif

/* Of one thread of a block; unoptimised and instrumented frames are larger. */
enum { STACK_SIZE = CH_ASAN || CH_TSAN ? 256 << 10 : 128 << 10 };

void ch_fiber_main(struct ch_fiber *f);

/* Out of line and visible to the assembly only. */
__attribute__((used)) void ch_fiber_main(struct ch_fiber *f)
{
#if CH_ASAN
    __sanitizer_finish_switch_fiber(f->fake_stack, NULL, NULL);
#endif
    f->entry(f);
    abort();
}

int ch_fiber_adopt(struct ch_fiber *f)
{
    memset(f, 0, sizeof *f);
#if CH_ASAN
    pthread_attr_t attr;
    void *stack;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attr))
        return -1;
    int rc = pthread_attr_getstack(&attr, &stack, &size);
    pthread_attr_destroy(&attr);
    if (rc)
        return -1;
    f->stack = stack;
    f->stack_size = size;
#endif
#if CH_TSAN
    f->tsan = __tsan_get_current_fiber();
#endif
#if !defined(__x86_64__)
    f->sp = calloc(1, sizeof(ucontext_t));
    if (!f->sp)
        return -1;
#endif
    return 0;
}

void ch_fiber_release(struct ch_fiber *f)
{
#if !defined(__x86_64__)
    free(f->sp);
#endif
    memset(f, 0, sizeof *f);
}

#if defined(__x86_64__)
static int prepare(struct ch_fiber *f, unsigned order)
{
    uintptr_t top = (uintptr_t)f->stack + f->stack_size - order % 32 * 128;
    void **sp = (void **)(top & ~(uintptr_t)63);
    *--sp = NULL; /* two words: keep the stack aligned at the call */
    *--sp = NULL;
    *--sp = (void *)(uintptr_t)ch_fiber_start;
    *--sp = NULL; /* rbp */
    *--sp = f;    /* rbx */
    for (int i = 0; i < 4; i++)
        *--sp = NULL; /* r12 to r15 */
    f->sp = sp;
    return 0;
}
#else
static void start(unsigned high, unsigned low)
{
    ch_fiber_main((struct ch_fiber *)(((uintptr_t)high << 32) | low));
}

static int prepare(struct ch_fiber *f, unsigned order)
{
    ucontext_t *context = f->sp ? f->sp : calloc(1, sizeof *context);
    if (!context || getcontext(context))
        return -1;
    f->sp = context;
    context->uc_stack.ss_sp = f->stack;
    context->uc_stack.ss_size = f->stack_size - order % 32 * 128;
    context->uc_link = NULL;
    makecontext(context, (void (*)(void))start, 2, (unsigned)((uint64_t)(uintptr_t)f >> 32),
                (unsigned)(uintptr_t)f);
    return 0;
}
#endif

struct ch_fiber *ch_fiber_new(unsigned order, void (*entry)(struct ch_fiber *))
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ch_fiber *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->entry = entry;
    f->stack_size = STACK_SIZE;
    f->map_size = f->stack_size + page;
    f->map = mmap(NULL, f->map_size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->map == MAP_FAILED) {
        f->map = NULL;
        goto fail;
    }
    f->stack = (char *)f->map + page;
    if (mprotect(f->map, page, PROT_NONE) || ch_fiber_reset(f, order))
        goto fail;
    return f;
fail:
    ch_fiber_free(f);
    return NULL;
}

int ch_fiber_reset(struct ch_fiber *f, unsigned order)
{
#if CH_ASAN
    __asan_unpoison_memory_region(f->stack, f->stack_size);
    f->fake_stack = NULL;
#endif
#if CH_TSAN
    if (f->tsan)
        __tsan_destroy_fiber(f->tsan);
    f->tsan = __tsan_create_fiber(0);
    if (!f->tsan)
        return -1;
#endif
    return prepare(f, order);
}

void ch_fiber_free(struct ch_fiber *f)
{
#if CH_TSAN
    if (f->tsan)
        __tsan_destroy_fiber(f->tsan);
#endif
#if CH_ASAN
    if (f->map)
        __asan_unpoison_memory_region(f->stack, f->stack_size);
#endif
#if !defined(__x86_64__)
    free(f->sp);
#endif
    if (f->map)
        munmap(f->map, f->map_size);
    free(f);
}

#if !defined(__x86_64__)
void ch_fiber_swap(void **save, void *load)
{
    (void)swapcontext(*save, load);
}
#endif

int ch_fiber_overflow(const struct ch_fiber *f, const void *address)
{
    uintptr_t a = (uintptr_t)address, map = (uintptr_t)f->map;
    return f->map && a >= map && a < (uintptr_t)f->stack;
}
