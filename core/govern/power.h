/* SPDX-License-Identifier: Apache-2.0
 * What power.mode stands for (docs/power.md). */
#ifndef ATSI_CORE_GOVERN_POWER_H
#define ATSI_CORE_GOVERN_POWER_H

#include "core/conf.h"

enum atsi_power_mode { ATSI_POWER_PERFORMANCE = 0, ATSI_POWER_BALANCED, ATSI_POWER_QUIET };

enum atsi_power_mode atsi_power_mode(const struct atsi_conf *c);
/* How long workers wait awake, of what cpu.spin says. */
uint64_t atsi_power_spin_ns(enum atsi_power_mode mode, uint64_t wanted_ns, bool on_battery);
/* Workers where cpu.threads leaves it open, of one per core. */
uint32_t atsi_power_threads(enum atsi_power_mode mode, uint32_t per_core);
/* Added to the nice value of workers. */
int atsi_power_nice(enum atsi_power_mode mode);
/* Whether idle devices may be measured between rounds. */
bool atsi_power_probes(enum atsi_power_mode mode);

#endif
