/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets that change while a session lives: a request from any thread or a signal handler, taken
 * up by the session before its next round.
 */
#ifndef ATSI_CORE_HYBRID_LIVE_H
#define ATSI_CORE_HYBRID_LIVE_H

#include "core/hybrid/budget.h"

#include <pthread.h>
#include <stdatomic.h>

struct atsi_live_budget {
    atomic_bool reload, changed;
    pthread_mutex_t lock;
    struct atsi_amount vram; /* under the lock */
};

int atsi_live_open(struct atsi_live_budget *l, struct atsi_err *err);
void atsi_live_close(struct atsi_live_budget *l);
/* A new memory.vram ("auto", "6GiB", "80%", "30%m").  ATSI_ECONF.  [any thread] */
int atsi_live_set(struct atsi_live_budget *l, const char *vram, struct atsi_err *err);
/* The settings are to be read again.  [any thread, signal handlers too] */
void atsi_live_reload(struct atsi_live_budget *l);
/* Before a round: true when `c` was changed, so that the session places again.  Re-reads the files
 * of rt's configuration when asked to; what is wrong with them is logged and the budget stays.
 * [session's thread] */
bool atsi_live_take(struct atsi_live_budget *l, struct atsi_runtime *rt,
                    struct atsi_budget_conf *c);

#endif
