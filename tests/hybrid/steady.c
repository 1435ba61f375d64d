/* SPDX-License-Identifier: Apache-2.0
 *
 * Counting by interposition (allocations, locks) and by a seccomp filter on the thread (system
 * calls): every call raises SIGSYS, whose handler counts it and makes it from the one place the
 * filter lets through.
 */
#include "tests/hybrid/steady.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static __thread struct steady_counts counts;
static __thread int counting;
static __thread int (*is_inside)(void);

/* Whether what the thread does now is counted. */
static bool counts_now(void)
{
    return counting != 0 && is_inside() == 0;
}

void steady_begin(int (*inside)(void))
{
    memset(&counts, 0, sizeof counts);
    counts.first_call = -1;
    is_inside = inside;
    counting = 1;
}

void steady_end(struct steady_counts *out)
{
    counting = 0;
    *out = counts;
}

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                 \
    !defined(__SANITIZE_THREAD__) && !defined(STEADY_SANITIZED)
bool steady_can_count(void)
{
    return true;
}

/* ---------------------------------------------------------------- allocations */
#pragma GCC visibility push(default) /* libraries call them too */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

static void note_allocation(void)
{
    if (!counts_now() || counts.allocations++ > 0)
        return;
    counting = 0; /* backtrace() allocates at its first use */
    (void)backtrace(counts.first_allocation,
                    sizeof counts.first_allocation / sizeof counts.first_allocation[0]);
    counting = 1;
}

void *malloc(size_t n)
{
    note_allocation();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    note_allocation();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    note_allocation();
    return __libc_realloc(p, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    note_allocation();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    note_allocation();
    *out = __libc_memalign(align, n);
    return *out != NULL ? 0 : ENOMEM;
}

/* ---------------------------------------------------------------- locks */
int pthread_mutex_lock(pthread_mutex_t *m)
{
    static int (*real)(pthread_mutex_t *);
    int rc = pthread_mutex_trylock(m);
    if (rc != EBUSY)
        return rc;
    counts.contended += counts_now();
    if (real == NULL) {
        void *sym = dlsym(RTLD_NEXT, "pthread_mutex_lock");
        memcpy(&real, &sym, sizeof real);
    }
    return real(m);
}

#pragma GCC visibility pop

/* ---------------------------------------------------------------- system calls */
long steady_syscall(long n, long a, long b, long c, long d, long e, long f);
extern const char steady_syscall_end[];
__asm__(".text\n"
        ".globl steady_syscall\n"
        ".type steady_syscall, @function\n"
        "steady_syscall:\n"
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    mov %rdx, %rsi\n"
        "    mov %rcx, %rdx\n"
        "    mov %r8, %r10\n"
        "    mov %r9, %r8\n"
        "    mov 8(%rsp), %r9\n"
        "    syscall\n"
        ".globl steady_syscall_end\n"
        "steady_syscall_end:\n"
        "    ret\n"
        ".size steady_syscall, . - steady_syscall\n");

static void note_call(long n)
{
    if (!counts_now())
        return;
    if (n == SYS_futex || n == SYS_poll || n == SYS_ppoll) {
        counts.waits++;
        return;
    }
    if (counts.calls++ == 0)
        counts.first_call = n;
}

static void on_sigsys(int sig, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)sig;
    note_call(info->si_syscall);
    r[REG_RAX] = steady_syscall(info->si_syscall, r[REG_RDI], r[REG_RSI], r[REG_RDX], r[REG_R10],
                                r[REG_R8], r[REG_R9]);
}

bool steady_watch(void)
{
    const uintptr_t from = (uintptr_t)steady_syscall_end;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 4, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)from, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(from >> 32), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    const struct sock_fprog prog = {.len = sizeof code / sizeof code[0], .filter = code};
    struct sigaction act = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};
    return sigaction(SIGSYS, &act, NULL) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0;
}

#else /* sanitizers have an allocator and signal handlers of their own */
bool steady_can_count(void)
{
    return false;
}

bool steady_watch(void)
{
    return false;
}
#endif
