/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that watches the machine while a session lives and asks it to plan again
 * (docs/power.md). It samples at a low rate; rounds pay one store each.
 */
#ifndef ATSI_CORE_GOVERN_GOVERNOR_H
#define ATSI_CORE_GOVERN_GOVERNOR_H

#include "core/govern/decide.h"
#include "core/log.h"

struct atsi_governor;

struct atsi_governor_params {
    uint32_t period_ms;
    const char *root;   /* "": this machine [borrowed] */
    const char *device; /* name of the accelerator */
    struct atsi_log *log;
    /* A decision other than nothing.  [the governor's thread] */
    void (*decided)(void *ctx, const struct atsi_govern_decision *d);
    /* The battery began or ceased to be used; may be NULL.  [the governor's thread] */
    void (*battery)(void *ctx, bool on_battery);
    void *ctx;
};

/* ATSI_ENOMEM. */
int atsi_governor_open(const struct atsi_governor_params *p, struct atsi_governor **out,
                       struct atsi_err *err);
void atsi_governor_close(struct atsi_governor *g); /* NULL is allowed */
/* A round was computed.  [session's thread] */
void atsi_governor_round(struct atsi_governor *g); /* NULL is allowed */
/* Weights were placed; `version` is counted here.  [session's thread] */
void atsi_governor_placed(struct atsi_governor *g, const struct atsi_govern_plan *plan);

#endif
