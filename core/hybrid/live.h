/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets that change while a session lives: a request from any thread or a signal handler, taken
 * up by the session before its next round.
 */
#ifndef ATSI_CORE_HYBRID_LIVE_H
#define ATSI_CORE_HYBRID_LIVE_H

#include "core/govern/decide.h"
#include "core/hybrid/budget.h"

struct atsi_live_budget;
struct atsi_runtime;

int atsi_live_open(struct atsi_live_budget **out, struct atsi_err *err);
void atsi_live_close(struct atsi_live_budget *l); /* NULL is allowed */
/* The budget in force: as it was taken last, or rt's settings.  ATSI_ECONF.  [session's thread] */
int atsi_live_budget(const struct atsi_live_budget *l, const struct atsi_runtime *rt,
                     struct atsi_budget_conf *out, struct atsi_err *err);
/* A new memory.vram ("auto", "6GiB", "80%", "30%m"), until the settings are read again.
 * ATSI_ECONF.  [any thread] */
int atsi_live_set(struct atsi_live_budget *l, const char *vram, struct atsi_err *err);
/* The governor wants a new plan, for costs that have changed by its loads.  [any thread] */
void atsi_live_decide(struct atsi_live_budget *l, const struct atsi_govern_decision *d);
/* The battery began or ceased to be used.  [any thread] */
void atsi_live_battery(struct atsi_live_budget *l, bool on_battery);
/* Before a round: true when *c was changed, so that the session places again.  After
 * atsi_settings_changed() the files of rt's configuration are read again; what is wrong with them
 * is logged and the budget stays.  [session's thread] */
bool atsi_live_take(struct atsi_live_budget *l, const struct atsi_runtime *rt,
                    struct atsi_budget_conf *c);

/* What the governor made the session do. */
struct atsi_live_governed {
    double load_cpu, load_gpu; /* factors on measured times */
    uint32_t n;                /* plans */
    char why[96];              /* the last one */
};
/* As of the last take.  [session's thread] */
const struct atsi_live_governed *atsi_live_governed(const struct atsi_live_budget *l);

#endif
