/* SPDX-License-Identifier: Apache-2.0
 * The plugin of fixed placements. */
#include "static.h"

static const struct atsi_component policy = {sizeof policy, ATSI_KIND_POLICY, "policy_static",
                                             &static_policy_ops};
static const struct atsi_component *const components[] = {&policy, NULL};

static void fini(void)
{
    static_settings_host(NULL);
}

static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .name = "policy_static",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .params = static_params,
    .components = components,
    .fini = fini,
};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)why;
    static_settings_host(host);
    return &plugin;
}
