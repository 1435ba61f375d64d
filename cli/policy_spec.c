/* SPDX-License-Identifier: Apache-2.0
 * Policies and sizes as `simulate` and `plan` take them on the command line. */
#include "cli/policy_spec.h"

#include "atsinfer/simulate.h"
#include "cli/options.h"

#include <stdlib.h>
#include <string.h>

/* Short names of what the two policy plugins can do. */
static const struct {
    const char *name, *plugin, *key;
} known[] = {
    {"layer", "policy_static", "mode"},          {"expert", "policy_static", "mode"},
    {"stream", "policy_static", "mode"},         {"density", "policy_static", "mode"},
    {"alg1", "policy_static", "mode"},           {"paper", "policy_dp", "algorithm"},
    {"paper-literal", "policy_dp", "algorithm"}, {"repaired", "policy_dp", "algorithm"},
    {"backlog", "policy_dp", "algorithm"},       {"backlog-co", "policy_dp", "algorithm"},
};

int cli_policy_spec(const char *spec, uint32_t *mode_out)
{
    char name[64], setting[128];
    const char *slash = strchr(spec, '/'), *colon = strchr(spec, ':');
    size_t n = slash != NULL ? (size_t)(slash - spec) : strlen(spec);
    const char *key = NULL, *plugin = NULL, *mode;
    if (n == 0 || n >= sizeof name)
        return cli_fail(CLI_USAGE, "--policy: \"%.60s\" is no policy", spec);
    (void)snprintf(name, sizeof name, "%.*s", (int)n, spec);
    *mode_out = ATSI_SIM_FULL;
    if (slash != NULL && strcmp(slash, "/static") == 0)
        *mode_out = ATSI_SIM_STATIC;
    else if (slash != NULL && strcmp(slash, "/sync") == 0)
        *mode_out = ATSI_SIM_SYNC;
    else if (slash != NULL)
        return cli_fail(CLI_USAGE, "--policy %.60s: expected /static or /sync", spec);
    mode = name;
    if (colon != NULL && (size_t)(colon - spec) < n) {
        name[colon - spec] = '\0';
        mode = name + (colon - spec) + 1;
        plugin = name;
        key = strcmp(name, "policy_static") == 0 ? "mode" : "algorithm";
    }
    for (size_t i = 0; plugin == NULL && i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0) {
            plugin = known[i].plugin;
            key = known[i].key;
        }
    if (plugin == NULL)
        plugin = name;
    if (!cli_override("policy.name", plugin))
        return CLI_USAGE;
    if (key == NULL)
        return CLI_OK;
    (void)snprintf(setting, sizeof setting, "plugin.%s.%s", plugin, key);
    if (!cli_override(setting, mode))
        return CLI_USAGE;
    if (strcmp(plugin, "policy_static") == 0 &&
        !cli_override("plugin.policy_static.overlap", *mode_out == ATSI_SIM_SYNC ? "off" : "on"))
        return CLI_USAGE;
    return CLI_OK;
}
