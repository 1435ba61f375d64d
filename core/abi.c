/* SPDX-License-Identifier: Apache-2.0
 *
 * Judging a plugin's descriptor before any of its functions is called: versions first, since
 * nothing else can be read without them, then sizes, names, tables and parameters.
 */
#include "core/abi.h"

#include <stdbool.h>
#include <string.h>

#include "atsinfer/loader.h"
#include "atsinfer/policy.h"

static bool is_name(const char *s)
{
    size_t n = s != NULL ? strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return n > 0 && n <= 48 && s[n] == '\0';
}

/* Required functions of a table, by offset; everything else may be NULL. */
struct table {
    const char *kind;
    size_t size; /* through the last required member */
    size_t n;
    size_t at[20];
};

#define AT(type, member) offsetof(type, member)
#define BACKEND(m) AT(struct atsi_backend_ops, m)
#define TRANSFER(m) AT(struct atsi_transfer_ops, m)
#define LOADER(m) AT(struct atsi_loader_ops, m)
#define POLICY(m) AT(struct atsi_policy_ops, m)

static const struct table tables[] = {
    {"?", 0, 0, {0}},
    {"backend",
     sizeof(struct atsi_backend_ops),
     16,
     {BACKEND(probe), BACKEND(open), BACKEND(close), BACKEND(props), BACKEND(supports),
      BACKEND(buf_alloc), BACKEND(buf_free), BACKEND(buf_ptr), BACKEND(queue_open),
      BACKEND(queue_close), BACKEND(event_open), BACKEND(event_close), BACKEND(run),
      BACKEND(event_wait), BACKEND(event_query), BACKEND(event_time)}},
    {"transfer",
     sizeof(struct atsi_transfer_ops),
     4,
     {TRANSFER(open), TRANSFER(close), TRANSFER(channels), TRANSFER(copyv)}},
    {"policy", sizeof(struct atsi_policy_ops), 2, {POLICY(scratch_bytes), POLICY(place)}},
    {"loader",
     sizeof(struct atsi_loader_ops),
     7,
     {LOADER(probe), LOADER(open), LOADER(close), LOADER(info), LOADER(meta_at), LOADER(meta_find),
      LOADER(graph)}},
};

/* A function pointer member, compared with NULL without knowing its type. */
static bool is_null(const void *table, size_t offset)
{
    void (*fn)(void);
    memcpy(&fn, (const char *)table + offset, sizeof fn);
    return fn == NULL;
}

static int check_component(const struct atsi_plugin *p, const struct atsi_component *c,
                           struct atsi_err *err)
{
    const struct table *t;
    uint32_t size;
    if (c->struct_size < sizeof *c)
        return atsi_fail(err, ATSI_EABI, "plugin %s: component of %u bytes, this core needs %zu",
                         p->name, c->struct_size, sizeof *c);
    if (c->kind < ATSI_KIND_BACKEND || c->kind > ATSI_KIND_LOADER)
        return atsi_fail(err, ATSI_EABI, "plugin %s: component of unknown kind %u", p->name,
                         c->kind);
    if (!is_name(c->name) || c->ops == NULL)
        return atsi_fail(err, ATSI_EINVAL, "plugin %s: component without a proper name or table",
                         p->name);
    t = &tables[c->kind];
    memcpy(&size, c->ops, sizeof size);
    if (size < t->size)
        return atsi_fail(err, ATSI_EABI, "plugin %s: %s table of %u bytes, this core needs %zu",
                         p->name, t->kind, size, t->size);
    for (size_t i = 0; i < t->n; i++)
        if (is_null(c->ops, t->at[i]))
            return atsi_fail(err, ATSI_EINVAL, "plugin %s: %s %s lacks required operation %zu",
                             p->name, t->kind, c->name, i + 1);
    return ATSI_OK;
}

static int check_param(const struct atsi_plugin *p, const struct atsi_param *q,
                       struct atsi_err *err)
{
    if (q->struct_size < sizeof *q)
        return atsi_fail(err, ATSI_EABI, "plugin %s: parameter of %u bytes, this core needs %zu",
                         p->name, q->struct_size, sizeof *q);
    if (!is_name(q->key) || q->def == NULL || q->help == NULL || q->type < ATSI_PARAM_BOOL ||
        q->type > ATSI_PARAM_TEXT)
        return atsi_fail(err, ATSI_EINVAL,
                         "plugin %s: parameter %.48s does not describe itself (key, type, default, "
                         "help)",
                         p->name, q->key != NULL ? q->key : "?");
    if (q->type == ATSI_PARAM_CHOICE && (q->choices == NULL || q->choices[0] == '\0'))
        return atsi_fail(err, ATSI_EINVAL, "plugin %s: parameter %s names no choices", p->name,
                         q->key);
    return ATSI_OK;
}

static int check_versions(const struct atsi_plugin *p, struct atsi_err *err)
{
    bool major = p->abi_major == ATSI_ABI_MAJOR;
    /* 0.x promises nothing from minor to minor. */
    bool minor = ATSI_ABI_MAJOR > 0 || p->abi_minor == ATSI_ABI_MINOR;
    if (major && minor)
        return ATSI_OK;
    return atsi_fail(err, ATSI_EABI,
                     "built for plugin interface %u.%u, this core speaks %u.%u; rebuild the plugin",
                     p->abi_major, p->abi_minor, ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
}

int atsi_abi_check(const struct atsi_plugin *p, struct atsi_err *err)
{
    int rc;
    /* The first four members are the same in every version there will be. */
    if (p->magic != ATSI_PLUGIN_MAGIC)
        return atsi_fail(err, ATSI_EABI, "not an atsinfer plugin: magic %08x, expected %08x",
                         p->magic, ATSI_PLUGIN_MAGIC);
    rc = check_versions(p, err);
    if (rc != ATSI_OK)
        return rc;
    if (p->struct_size < sizeof *p)
        return atsi_fail(err, ATSI_EABI, "descriptor of %u bytes, this core needs %zu",
                         p->struct_size, sizeof *p);
    if (!is_name(p->name) || p->version == NULL || p->license == NULL)
        return atsi_fail(err, ATSI_EINVAL, "descriptor without a proper name, version or license");
    if (p->components == NULL || p->components[0] == NULL)
        return atsi_fail(err, ATSI_EINVAL, "plugin %s offers nothing", p->name);
    for (size_t i = 0; p->components[i] != NULL && rc == ATSI_OK; i++)
        rc = check_component(p, p->components[i], err);
    for (size_t i = 0; p->params != NULL && p->params[i] != NULL && rc == ATSI_OK; i++)
        rc = check_param(p, p->params[i], err);
    return rc;
}
