/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of ours leave signals to those of the application, but for the ones that an access of
 * their own raises: where those are blocked no handler can say what happened.
 */
#ifndef ATSI_SIGNALS_H
#define ATSI_SIGNALS_H

#include <pthread.h>
#include <signal.h>

/* Blocks what threads started from now on leave to others; 0 or an errno.  atsi_signals_restore()
 * with the same `before` ends it. */
static inline int atsi_signals_block(sigset_t *before)
{
    sigset_t others;
    (void)sigfillset(&others);
    (void)sigdelset(&others, SIGBUS);
    (void)sigdelset(&others, SIGSEGV);
    (void)sigdelset(&others, SIGILL);
    (void)sigdelset(&others, SIGFPE);
    return pthread_sigmask(SIG_SETMASK, &others, before);
}

static inline void atsi_signals_restore(const sigset_t *before)
{
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

#endif
