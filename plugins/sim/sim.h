/* SPDX-License-Identifier: Apache-2.0
 * The tables of the plugin. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include "atsinfer/plugin.h"

extern const struct atsi_backend_ops sim_cpu_ops, sim_gpu_ops;
extern const struct atsi_transfer_ops sim_transfer_ops;

struct sim_world *sim_backend_world(const struct atsi_backend *be);

#endif
