/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of a policy as values.  They are known to the core only after the plugin's entry
 * point has returned, so they are read with the first question, and again before a placement.
 */
#ifndef ATSI_SCHED_SETTINGS_H
#define ATSI_SCHED_SETTINGS_H

#include "atsinfer/plugin.h"

#include <pthread.h>

struct sched_settings {
    const char *plugin; /* whose parameters they are */
    /* Reads all of them to `kept`, with the functions below. */
    int (*read)(const struct sched_settings *s, void *kept, struct atsi_err *err);
    void *kept;  /* the policy's own struct; only while `lock` is held */
    size_t size; /* of it */
    pthread_mutex_t lock;
    const struct atsi_host *host;
    int known; /* kept is what the host says */
};

/* A runtime took the plugin up: its settings are read with the first question.  host NULL: gone. */
void sched_settings_host(struct sched_settings *s, const struct atsi_host *host);
/* Placing anew: they may have changed (atsi_runtime_set). */
void sched_settings_again(struct sched_settings *s);
/* Copies what is kept, after reading it if need be.  ATSI_ECONF.  [any thread] */
int sched_settings_get(struct sched_settings *s, void *out, struct atsi_err *err);

/* ---- for `read`; ATSI_ECONF names the parameter, its text and what is expected */
/* Place of the value among the choices. */
int sched_settings_choice(const struct sched_settings *s, const struct atsi_param *p, int *out,
                          struct atsi_err *err);
/* A value of type INT or FLOAT, whose choices are "MIN..MAX". */
int sched_settings_number(const struct sched_settings *s, const struct atsi_param *p, double *out,
                          struct atsi_err *err);

#endif
