/* SPDX-License-Identifier: Apache-2.0
 * power.mode in numbers. */
#include "core/govern/power.h"

#include <string.h>

#define BALANCED_SPIN_NS UINT64_C(50000) /* longer than a barrier inside a round takes */
#define QUIET_NICE 10

enum atsi_power_mode atsi_power_mode(const struct atsi_conf *c)
{
    const char *mode = atsi_conf_get(c, "power.mode");
    if (strcmp(mode, "quiet") == 0)
        return ATSI_POWER_QUIET;
    return strcmp(mode, "balanced") == 0 ? ATSI_POWER_BALANCED : ATSI_POWER_PERFORMANCE;
}

uint64_t atsi_power_spin_ns(enum atsi_power_mode mode, uint64_t wanted_ns, bool on_battery)
{
    if (mode == ATSI_POWER_PERFORMANCE)
        return wanted_ns;
    if (mode == ATSI_POWER_QUIET || on_battery)
        return 0;
    return wanted_ns < BALANCED_SPIN_NS ? wanted_ns : BALANCED_SPIN_NS;
}

uint32_t atsi_power_threads(enum atsi_power_mode mode, uint32_t per_core)
{
    return mode == ATSI_POWER_QUIET && per_core > 1 ? (per_core + 1) / 2 : per_core;
}

int atsi_power_nice(enum atsi_power_mode mode)
{
    return mode == ATSI_POWER_QUIET ? QUIET_NICE : 0;
}

bool atsi_power_probes(enum atsi_power_mode mode)
{
    return mode != ATSI_POWER_QUIET;
}
