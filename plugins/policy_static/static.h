/* SPDX-License-Identifier: Apache-2.0
 * What the files of policy_static share. */
#ifndef ATSI_POLICY_STATIC_H
#define ATSI_POLICY_STATIC_H

#include "atsinfer/plugin.h"
#include "atsinfer/policy.h"

/* In the order of the parameter's choices. */
enum static_mode { STATIC_LAYER, STATIC_EXPERT, STATIC_STREAM, STATIC_DENSITY, STATIC_ALG1 };

/* Parameters, as settings.c describes them. */
struct static_settings {
    enum static_mode mode;
    int64_t n_gpu_layers, n_cpu_moe; /* -1: by budget */
    uint32_t stream_min;             /* 0: never */
    int overlap;
};

extern const struct atsi_param *const static_params[];

/* A runtime took the plugin up: its settings are read with the first question.  host NULL: gone. */
void static_settings_host(const struct atsi_host *host);
/* Placing anew: they may have changed (atsi_runtime_set). */
void static_settings_again(void);
/* Copies the settings.  ATSI_ECONF.  [any thread] */
int static_settings_get(struct static_settings *out, struct atsi_err *err);

extern const struct atsi_policy_ops static_policy_ops;

#endif
