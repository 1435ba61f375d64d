/* SPDX-License-Identifier: Apache-2.0
 *
 * Where settings come from: defaults, then files, the environment and the command line in order,
 * each later one winning.
 */
#include "core/conf_read.h"
#include "core/conf_table.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

extern char **environ;

/* ---------------------------------------------------------------- files */
struct file_context {
    struct atsi_conf *c;
    const char *path;
    struct atsi_err *err;
};

static int take_line(void *ctx, const char *key, const char *value, unsigned line)
{
    struct file_context *f = ctx;
    char origin[PATH_MAX + 16];
    (void)snprintf(origin, sizeof origin, "%s:%u", f->path, line);
    return atsi_conf_put(f->c, key, value, origin, f->err);
}

static int read_file(struct atsi_conf *c, const char *path, bool must, struct atsi_err *err)
{
    struct file_context f = {c, path, err};
    int rc = atsi_conf_read(path, take_line, &f, err);
    if (rc == ATSI_ENOENT && !must)
        return ATSI_OK;
    return rc == ATSI_ENOENT || rc == ATSI_EIO ? ATSI_ECONF : rc; /* the message is written */
}

static int read_files(struct atsi_conf *c, const char *named, struct atsi_err *err)
{
    const char *base = secure_getenv("XDG_CONFIG_HOME"), *home = secure_getenv("HOME");
    char path[PATH_MAX];
    int n = -1, rc = read_file(c, "/etc/atsinfer/atsinfer.ini", false, err);
    if (base != NULL && base[0] == '/')
        n = snprintf(path, sizeof path, "%s/atsinfer/atsinfer.ini", base);
    else if (home != NULL && home[0] == '/')
        n = snprintf(path, sizeof path, "%s/.config/atsinfer/atsinfer.ini", home);
    if (rc == ATSI_OK && n > 0 && (size_t)n < sizeof path)
        rc = read_file(c, path, false, err);
    if (rc != ATSI_OK)
        return rc;
    if (named != NULL)
        return read_file(c, named, true, err);
    c->found_here = true;
    rc = read_file(c, "./atsinfer.ini", false, err);
    c->found_here = false;
    return rc;
}

/* ---------------------------------------------------------------- environment and command line */
static int env_one(struct atsi_conf *c, const char *name, const char *value, struct atsi_err *err)
{
    char origin[160], rule_key[128];
    const char *key;
    static const char rule[] = "ATSINFER_POLICY_RULE_";
    (void)snprintf(origin, sizeof origin, "environment %.120s", name);
    if (strcmp(name, "ATSINFER_PLUGIN_PATH") == 0)
        return ATSI_OK; /* the registry's own */
    if (strncmp(name, rule, sizeof rule - 1) == 0) {
        (void)snprintf(rule_key, sizeof rule_key, "policy.rule.%.32s", name + sizeof rule - 1);
        return atsi_conf_put(c, rule_key, value, origin, err);
    }
    key = atsi_conf_key_of_variable(c, name);
    if (key != NULL)
        return atsi_conf_put(c, key, value, origin, err);
    if (strncmp(name, "ATSINFER_PLUGIN_", 16) == 0)
        return atsi_conf_add_pending(c, name, value, origin, true, err);
    return atsi_conf_unknown_variable(c, name, err);
}

static int read_environment(struct atsi_conf *c, struct atsi_err *err)
{
    if (getauxval(AT_SECURE) != 0) /* a setuid program does not trust its caller's variables */
        return ATSI_OK;
    for (char **e = environ; *e != NULL; e++) {
        const char *equals = strchr(*e, '=');
        char name[128];
        int rc;
        if (equals == NULL || strncmp(*e, "ATSINFER_", 9) != 0)
            continue;
        if ((size_t)(equals - *e) >= sizeof name)
            return atsi_fail(err, ATSI_ECONF, "environment %.80s...: no such setting", *e);
        (void)snprintf(name, sizeof name, "%.*s", (int)(equals - *e), *e);
        rc = env_one(c, name, equals + 1, err);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}

static int read_overrides(struct atsi_conf *c, const char *const *overrides, struct atsi_err *err)
{
    for (; overrides != NULL && *overrides != NULL; overrides++) {
        const char *equals = strchr(*overrides, '=');
        char name[128];
        int rc;
        if (equals == NULL || equals == *overrides || (size_t)(equals - *overrides) >= sizeof name)
            return atsi_fail(err, ATSI_ECONF, "command line: \"%.80s\": expected SECTION.KEY=VALUE",
                             *overrides);
        (void)snprintf(name, sizeof name, "%.*s", (int)(equals - *overrides), *overrides);
        rc = atsi_conf_put(c, name, equals + 1, "command line", err);
        if (rc != ATSI_OK)
            return rc;
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- opening */
static int keep_sources(struct atsi_conf *c, const char *config_path, const char *const *overrides,
                        struct atsi_err *err)
{
    size_t n = 0;
    while (overrides != NULL && overrides[n] != NULL)
        n++;
    c->overrides = calloc(n + 1, sizeof *c->overrides);
    if (c->overrides == NULL)
        return atsi_conf_no_memory(err);
    for (size_t i = 0; i < n; i++)
        if ((c->overrides[i] = strdup(overrides[i])) == NULL)
            return atsi_conf_no_memory(err);
    c->config_path = config_path != NULL ? strdup(config_path) : NULL;
    return config_path == NULL || c->config_path != NULL ? ATSI_OK : atsi_conf_no_memory(err);
}

int atsi_conf_open(const char *config_path, const char *const *overrides, struct atsi_conf **out,
                   struct atsi_err *err)
{
    struct atsi_conf *c = calloc(1, sizeof *c);
    int rc;
    *out = NULL;
    if (c == NULL)
        return atsi_conf_no_memory(err);
    rc = atsi_conf_defaults(c, err);
    if (rc == ATSI_OK)
        rc = read_files(c, config_path, err);
    if (rc == ATSI_OK)
        rc = read_environment(c, err);
    if (rc == ATSI_OK)
        rc = read_overrides(c, overrides, err);
    if (rc == ATSI_OK)
        rc = keep_sources(c, config_path, overrides, err);
    if (rc != ATSI_OK) {
        atsi_conf_close(c);
        return rc;
    }
    *out = c;
    return ATSI_OK;
}

int atsi_conf_reopen(const struct atsi_conf *c, struct atsi_conf **out, struct atsi_err *err)
{
    return atsi_conf_open(c->config_path, (const char *const *)c->overrides, out, err);
}
