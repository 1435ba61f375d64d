/* SPDX-License-Identifier: Apache-2.0
 * The plugin of the dynamic programs: the paper's algorithms and the backlog scheduler. */
#include "dp.h"

static size_t scratch_bytes(uint32_t n)
{
    size_t place = dp_place_scratch(n), schedule = dp_schedule_scratch(n);
    return place > schedule ? place : schedule;
}

static const struct atsi_policy_ops ops = {.struct_size = sizeof ops,
                                           .scratch_bytes = scratch_bytes,
                                           .place = dp_place,
                                           .schedule = dp_schedule,
                                           .state_bytes = dp_schedule_state,
                                           .swap_experts = dp_swap_experts};
static const struct atsi_component policy = {sizeof policy, ATSI_KIND_POLICY, "policy_dp", &ops};
static const struct atsi_component *const components[] = {&policy, NULL};

static void fini(void)
{
    dp_settings_host(NULL);
}

static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .name = "policy_dp",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .params = dp_params,
    .components = components,
    .fini = fini,
};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)why;
    dp_settings_host(host);
    return &plugin;
}
