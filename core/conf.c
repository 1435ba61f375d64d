/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings in force: known keys, of the core and of plugins, each with its value and where that
 * came from.  Each value is checked when it is set, with its origin in the message, so that later
 * reads cannot fail.
 */
#include "core/conf.h"

#include "core/conf_keys.h"
#include "core/conf_table.h"
#include "core/log.h"

#include <stdlib.h>
#include <string.h>

struct atsi_conf_held {
    struct atsi_conf_key key; /* strings borrowed from the core's table or a plugin's static data */
    char *name, *value, *origin; /* owned */
    char range[128];
};

/* A setting of a plugin that is not loaded yet. */
struct atsi_conf_pending {
    char *name, *value, *origin; /* owned */
    bool environment;            /* name is an environment variable's */
};

int atsi_conf_no_memory(struct atsi_err *err)
{
    return atsi_fail(err, ATSI_ENOMEM, "out of memory reading the configuration");
}

/* ---------------------------------------------------------------- known keys */
static struct atsi_conf_held *find(const struct atsi_conf *c, const char *name)
{
    for (size_t i = 0; i < c->n_entries; i++)
        if (strcmp(c->entries[i].name, name) == 0)
            return &c->entries[i];
    return NULL;
}

static void free_entry(struct atsi_conf_held *e)
{
    free(e->name);
    free(e->value);
    free(e->origin);
}

static int add_entry(struct atsi_conf *c, const struct atsi_conf_key *key, const char *name,
                     struct atsi_err *err)
{
    struct atsi_conf_held *grown = realloc(c->entries, (c->n_entries + 1) * sizeof *grown), *e;
    if (grown == NULL)
        return atsi_conf_no_memory(err);
    c->entries = grown;
    e = &grown[c->n_entries];
    *e = (struct atsi_conf_held){
        .key = *key, .name = strdup(name), .value = strdup(key->def), .origin = strdup("built-in")};
    atsi_conf_range_text(key, e->range, sizeof e->range);
    if (e->name == NULL || e->value == NULL || e->origin == NULL) {
        free_entry(e);
        return atsi_conf_no_memory(err);
    }
    c->n_entries++;
    return ATSI_OK;
}

int atsi_conf_defaults(struct atsi_conf *c, struct atsi_err *err)
{
    size_t n;
    const struct atsi_conf_key *keys = atsi_conf_keys(&n);
    int rc = ATSI_OK;
    for (size_t i = 0; i < n && rc == ATSI_OK; i++)
        rc = add_entry(c, &keys[i], keys[i].name, err);
    return rc;
}

/* "policy.rule.*" stands for policy.rule.N: the key's own entry is made on first use. */
static bool is_wildcard(const char *name)
{
    size_t n = strlen(name);
    return n > 2 && strcmp(name + n - 2, ".*") == 0;
}

static const struct atsi_conf_key *wildcard_of(const char *name)
{
    size_t n;
    const struct atsi_conf_key *keys = atsi_conf_keys(&n);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(keys[i].name) - 1;
        if (is_wildcard(keys[i].name) && strncmp(keys[i].name, name, len) == 0 &&
            name[len] != '\0' && strspn(name + len, "0123456789") == strlen(name + len) &&
            strlen(name + len) < 8)
            return &keys[i];
    }
    return NULL;
}

static int unknown_key(const struct atsi_conf *c, const char *name, const char *origin,
                       struct atsi_err *err)
{
    const char *best = NULL;
    uint32_t distance = 6;
    for (size_t i = 0; i < c->n_entries; i++) {
        uint32_t d = atsi_edit_distance(name, c->entries[i].name);
        if (d < distance) {
            distance = d;
            best = c->entries[i].name;
        }
    }
    if (best != NULL) {
        bool any = is_wildcard(best);
        return atsi_fail(err, ATSI_ECONF, "%s: unknown key %.80s; did you mean %.*s%s?", origin,
                         name, (int)(strlen(best) - (any ? 1 : 0)), best, any ? "N" : "");
    }
    return atsi_fail(err, ATSI_ECONF, "%s: unknown key %.80s; `atsinfer config` lists all keys",
                     origin, name);
}

static int store(struct atsi_conf_held *e, const char *value, const char *origin,
                 struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    char *v, *o;
    if (atsi_conf_check_value(&e->key, value, &why) != ATSI_OK)
        return atsi_fail(err, ATSI_ECONF, "%s: %s: %s", origin, e->name, why.msg);
    v = strdup(value);
    o = strdup(origin);
    if (v == NULL || o == NULL) {
        free(v);
        free(o);
        return atsi_conf_no_memory(err);
    }
    free(e->value);
    free(e->origin);
    e->value = v;
    e->origin = o;
    return ATSI_OK;
}

int atsi_conf_add_pending(struct atsi_conf *c, const char *name, const char *value,
                          const char *origin, bool environment, struct atsi_err *err)
{
    struct atsi_conf_pending *grown = realloc(c->pending, (c->n_pending + 1) * sizeof *grown), *p;
    if (grown == NULL)
        return atsi_conf_no_memory(err);
    c->pending = grown;
    p = &grown[c->n_pending];
    *p = (struct atsi_conf_pending){strdup(name), strdup(value), strdup(origin), environment};
    if (p->name == NULL || p->value == NULL || p->origin == NULL) {
        free(p->name);
        free(p->value);
        free(p->origin);
        return atsi_conf_no_memory(err);
    }
    c->n_pending++;
    return ATSI_OK;
}

/* plugins.path of a file nobody named: what a trusted source said before stays in force. */
static int ignore_path(struct atsi_conf *c, const char *value, const char *origin,
                       struct atsi_err *err)
{
    if (value[0] == '\0')
        return ATSI_OK;
    free(c->ignored_path);
    c->ignored_path = strdup(origin);
    return c->ignored_path != NULL ? ATSI_OK : atsi_conf_no_memory(err);
}

int atsi_conf_put(struct atsi_conf *c, const char *name, const char *value, const char *origin,
                  struct atsi_err *err)
{
    struct atsi_conf_held *e = find(c, name);
    const struct atsi_conf_key *wildcard;
    int rc;
    if (c->found_here && strcmp(name, "plugins.path") == 0)
        return ignore_path(c, value, origin, err);
    if (e == NULL && strncmp(name, "plugin.", 7) == 0)
        return atsi_conf_add_pending(c, name, value, origin, false, err);
    wildcard = e == NULL ? wildcard_of(name) : NULL;
    if (wildcard != NULL) {
        rc = add_entry(c, wildcard, name, err);
        if (rc != ATSI_OK)
            return rc;
        e = find(c, name);
    }
    if (e == NULL || is_wildcard(e->name))
        return unknown_key(c, name, origin, err);
    return store(e, value, origin, err);
}

int atsi_conf_set(struct atsi_conf *c, const char *key, const char *value, const char *origin,
                  struct atsi_err *err)
{
    if (find(c, key) == NULL && wildcard_of(key) == NULL)
        return unknown_key(c, key, origin, err);
    return atsi_conf_put(c, key, value, origin, err);
}

/* ---------------------------------------------------------------- names in the environment */
/* "cpu.threads" to "ATSINFER_CPU_THREADS". */
static void env_name(const char *key, char out[128])
{
    size_t at = (size_t)snprintf(out, 128, "ATSINFER_");
    for (; *key != '\0' && at + 1 < 128; key++)
        out[at++] = (char)(*key == '.' ? '_' : (*key >= 'a' && *key <= 'z' ? *key - 32 : *key));
    out[at] = '\0';
}

const char *atsi_conf_key_of_variable(const struct atsi_conf *c, const char *variable)
{
    char candidate[128];
    for (size_t i = 0; i < c->n_entries; i++) {
        env_name(c->entries[i].name, candidate);
        if (strcmp(candidate, variable) == 0)
            return c->entries[i].name;
    }
    return NULL;
}

/* The variable of a known key that is nearest to `name`; "" when none is near. */
static void nearest_variable(const struct atsi_conf *c, const char *name, char out[128])
{
    char candidate[128];
    uint32_t distance = 6;
    out[0] = '\0';
    for (size_t i = 0; i < c->n_entries; i++) {
        uint32_t d;
        env_name(c->entries[i].name, candidate);
        d = atsi_edit_distance(name, candidate);
        if (d < distance) {
            distance = d;
            memcpy(out, candidate, sizeof candidate);
        }
    }
}

int atsi_conf_unknown_variable(const struct atsi_conf *c, const char *variable,
                               struct atsi_err *err)
{
    char best[128];
    nearest_variable(c, variable, best);
    return atsi_fail(err, ATSI_ECONF, "environment %.80s: no such setting%s%s", variable,
                     best[0] != '\0' ? "; did you mean " : "", best);
}

/* ---------------------------------------------------------------- plugin parameters */
static enum atsi_conf_type param_type(uint32_t type)
{
    switch (type) {
    case ATSI_PARAM_BOOL:
        return ATSI_CONF_BOOL;
    case ATSI_PARAM_INT:
        return ATSI_CONF_INT;
    case ATSI_PARAM_FLOAT:
        return ATSI_CONF_FLOAT;
    case ATSI_PARAM_SIZE:
        return ATSI_CONF_SIZE;
    case ATSI_PARAM_CHOICE:
        return ATSI_CONF_CHOICE;
    default:
        return ATSI_CONF_TEXT;
    }
}

/* A parameter as a key of this file; "min..max" becomes numbers. */
static struct atsi_conf_key param_key(const struct atsi_param *p)
{
    struct atsi_conf_key key = {
        .name = p->key, .type = param_type(p->type), .def = p->def, .help = p->help};
    const char *dots = p->choices != NULL ? strstr(p->choices, "..") : NULL;
    if (key.type == ATSI_CONF_CHOICE) {
        key.choices = p->choices;
    } else if (dots != NULL) {
        key.min = strtod(p->choices, NULL);
        key.max = strtod(dots + 2, NULL);
    }
    return key;
}

/* Applies what was read earlier for a key that is known only now. */
static int apply_pending(struct atsi_conf *c, struct atsi_conf_held *e, struct atsi_err *err)
{
    char variable[128];
    env_name(e->name, variable);
    for (size_t i = 0; i < c->n_pending; i++) {
        struct atsi_conf_pending *p = &c->pending[i];
        if (strcmp(p->name, p->environment ? variable : e->name) == 0) {
            int rc = store(e, p->value, p->origin, err);
            if (rc != ATSI_OK)
                return rc;
        }
    }
    return ATSI_OK;
}

static int declare_one(struct atsi_conf *c, const char *plugin, const struct atsi_param *p,
                       struct atsi_err *err)
{
    struct atsi_conf_key key = param_key(p);
    char name[128];
    int rc;
    (void)snprintf(name, sizeof name, "plugin.%.48s.%.48s", plugin, p->key);
    if (find(c, name) != NULL)
        return atsi_fail(err, ATSI_EINVAL, "plugin %s declares %s twice", plugin, p->key);
    if (atsi_conf_check_value(&key, p->def, err) != ATSI_OK)
        return atsi_fail(err, ATSI_EINVAL, "plugin %s: the default of %s breaks its own range",
                         plugin, p->key);
    rc = add_entry(c, &key, name, err);
    return rc != ATSI_OK ? rc : apply_pending(c, find(c, name), err);
}

/* Forgets the entries from `n` on: their texts belong to a plugin that is about to be unloaded. */
static void drop_entries(struct atsi_conf *c, size_t n)
{
    while (c->n_entries > n)
        free_entry(&c->entries[--c->n_entries]);
}

int atsi_conf_declare(struct atsi_conf *c, const char *plugin,
                      const struct atsi_param *const *params, struct atsi_err *err)
{
    size_t before = c->n_entries;
    char **grown = realloc(c->plugins, (c->n_plugins + 1) * sizeof *grown);
    if (grown == NULL)
        return atsi_conf_no_memory(err);
    c->plugins = grown;
    grown[c->n_plugins] = strdup(plugin);
    if (grown[c->n_plugins] == NULL)
        return atsi_conf_no_memory(err);
    c->n_plugins++;
    for (; params != NULL && *params != NULL; params++) {
        int rc = declare_one(c, plugin, *params, err);
        if (rc != ATSI_OK) {
            drop_entries(c, before);
            free(c->plugins[--c->n_plugins]);
            return rc;
        }
    }
    return ATSI_OK;
}

static bool is_loaded(const struct atsi_conf *c, const char *name)
{
    for (size_t i = 0; i < c->n_plugins; i++) {
        size_t n = strlen(c->plugins[i]);
        if (strncmp(name + 7, c->plugins[i], n) == 0 && name[7 + n] == '.')
            return true;
    }
    return false;
}

/* Whether a variable looks like a mistyped one of a loaded plugin.  Names and keys hold underscores
 * themselves, so ATSINFER_PLUGIN_CUDA_HOST_X may belong to an absent plugin cuda_host although cuda
 * is loaded: only a near match is a mistake for certain. */
static bool is_mistyped_variable(const struct atsi_conf *c, const char *name)
{
    char best[128];
    nearest_variable(c, name, best);
    return strncmp(best, "ATSINFER_PLUGIN_", 16) == 0;
}

int atsi_conf_check_plugins(struct atsi_conf *c, struct atsi_log *log, struct atsi_err *err)
{
    for (size_t i = 0; i < c->n_pending; i++) {
        const struct atsi_conf_pending *p = &c->pending[i];
        char variable[128];
        bool known = false;
        for (size_t k = 0; k < c->n_entries && !known; k++) {
            env_name(c->entries[k].name, variable);
            known = strcmp(p->name, p->environment ? variable : c->entries[k].name) == 0;
        }
        if (known)
            continue;
        if (!p->environment && is_loaded(c, p->name))
            return unknown_key(c, p->name, p->origin, err);
        if (p->environment && is_mistyped_variable(c, p->name))
            return atsi_conf_unknown_variable(c, p->name, err);
        atsi_log(log, ATSI_LOG_WARN, "conf", "%s: %s belongs to no plugin that is loaded",
                 p->origin, p->name);
    }
    return ATSI_OK;
}

/* ---------------------------------------------------------------- reading */
const char *atsi_conf_get(const struct atsi_conf *c, const char *key)
{
    const struct atsi_conf_held *e = find(c, key);
    return e != NULL ? e->value : NULL;
}

const char *atsi_conf_origin(const struct atsi_conf *c, const char *key)
{
    const struct atsi_conf_held *e = find(c, key);
    return e != NULL ? e->origin : "";
}

int64_t atsi_conf_int(const struct atsi_conf *c, const char *key)
{
    const char *text = atsi_conf_get(c, key);
    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

bool atsi_conf_bool(const struct atsi_conf *c, const char *key)
{
    const char *text = atsi_conf_get(c, key);
    bool value = false;
    return text != NULL && atsi_conf_parse_bool(text, &value) && value;
}

uint64_t atsi_conf_size(const struct atsi_conf *c, const char *key)
{
    const char *text = atsi_conf_get(c, key);
    uint64_t value = 0;
    if (text != NULL && strcmp(text, "auto") == 0)
        return UINT64_MAX;
    return text != NULL && atsi_conf_parse_size(text, &value) ? value : 0;
}

int atsi_conf_each(const struct atsi_conf *c, int (*fn)(void *ctx, const struct atsi_conf_entry *e),
                   void *ctx)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        const struct atsi_conf_held *e = &c->entries[i];
        struct atsi_conf_entry out = {
            e->name,  e->value,   e->key.def, e->origin, atsi_conf_type_name(e->key.type),
            e->range, e->key.help};
        int rc = fn(ctx, &out);
        if (rc != 0)
            return rc;
    }
    return ATSI_OK;
}

const char *atsi_conf_ignored_plugin_path(const struct atsi_conf *c)
{
    return c->ignored_path;
}

/* ---------------------------------------------------------------- closing */
void atsi_conf_close(struct atsi_conf *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n_entries; i++)
        free_entry(&c->entries[i]);
    for (size_t i = 0; i < c->n_pending; i++) {
        free(c->pending[i].name);
        free(c->pending[i].value);
        free(c->pending[i].origin);
    }
    for (size_t i = 0; i < c->n_plugins; i++)
        free(c->plugins[i]);
    for (char **o = c->overrides; o != NULL && *o != NULL; o++)
        free(*o);
    free(c->overrides);
    free(c->config_path);
    free(c->plugins);
    free(c->pending);
    free(c->entries);
    free(c->ignored_path);
    free(c);
}
