/* SPDX-License-Identifier: Apache-2.0
 *
 * From "NAME[:MODE]" or the file of a plugin to a runtime in which that policy is loaded and set.
 */
#include "cli/policy.h"

#include "cli/options.h"

#include <string.h>

struct search {
    const char *file, *plugin; /* one of them */
    const char *policy, *key;  /* out: its policy; the parameter that a mode sets */
    char why[256];
};

static bool is_mode(const struct atsi_param *p)
{
    return strcmp(p->key, "mode") == 0 || strcmp(p->key, "algorithm") == 0;
}

static int look(void *ctx, const struct atsi_plugin_info *info)
{
    struct search *s = ctx;
    const struct atsi_plugin *p = info->plugin;
    if (s->file != NULL ? strcmp(info->path, s->file) != 0 : strcmp(info->name, s->plugin) != 0)
        return 0;
    if (p == NULL) {
        (void)snprintf(s->why, sizeof s->why, "%.240s", info->why);
        return 0;
    }
    for (size_t i = 0; p->components[i] != NULL && s->policy == NULL; i++)
        if (p->components[i]->kind == ATSI_KIND_POLICY)
            s->policy = p->components[i]->name;
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL && s->key == NULL; i++)
        if (is_mode(p->params[i]))
            s->key = p->params[i]->key;
    return s->policy != NULL;
}

/* The runtime again, with the mode as a setting. */
static int set_mode(const struct search *s, const char *mode, struct atsi_runtime **rt)
{
    char key[128];
    if (s->key == NULL)
        return cli_fail(CLI_USAGE,
                        "policy %s has no modes: it has neither a parameter \"mode\" nor "
                        "\"algorithm\"",
                        s->plugin);
    (void)snprintf(key, sizeof key, "plugin.%s.%s", s->plugin, s->key);
    if (!cli_override(key, mode))
        return CLI_USAGE;
    atsi_runtime_close(*rt);
    *rt = NULL;
    return cli_runtime(rt);
}

int policy_open(const char *spec, struct atsi_runtime **rt, char name_out[64])
{
    struct search s = {.why = ""};
    const char *colon = strchr(spec, ':');
    size_t len = strlen(spec);
    char plugin[64];
    int code;
    if (strchr(spec, '/') != NULL || (len > 3 && strcmp(spec + len - 3, ".so") == 0)) {
        s.file = spec;
        colon = NULL;
        if (cli_common.n_plugins == CLI_MAX_PLUGINS)
            return cli_fail(CLI_USAGE, "--plugin: more than %d files", CLI_MAX_PLUGINS);
        cli_common.plugins[cli_common.n_plugins++] = spec;
    } else {
        if (colon != NULL)
            len = (size_t)(colon - spec);
        if (len == 0 || len >= sizeof plugin)
            return cli_fail(CLI_USAGE, "\"%.60s\" is no policy", spec);
        (void)snprintf(plugin, sizeof plugin, "%.*s", (int)len, spec);
        s.plugin = plugin;
    }
    code = cli_runtime(rt);
    if (code != CLI_OK)
        return code;
    (void)atsi_runtime_plugins_each(*rt, look, &s);
    if (s.policy == NULL)
        return cli_fail(CLI_USAGE, "%s: %s", spec,
                        s.why[0] != '\0' ? s.why
                        : s.file != NULL
                            ? "the plugin offers no policy"
                            : "there is no such policy; `atsinfer plugins` lists them");
    (void)snprintf(name_out, 64, "%s", s.policy);
    return colon != NULL ? set_mode(&s, colon + 1, rt) : CLI_OK;
}
