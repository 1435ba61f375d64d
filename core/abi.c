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

/* So that [plugin.NAME] fits what an ini may name. */
#define MAX_NAME 40u

static bool is_name(const char *s)
{
    size_t n = s != NULL ? strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0;
    return n > 0 && n <= MAX_NAME && s[n] == '\0';
}

/* Required functions of each table; everything else may be NULL. */
struct required {
    size_t at; /* offset in the table */
    const char *name;
};

#define OP(type, member)                                                                           \
    {                                                                                              \
        offsetof(struct type, member), #member                                                     \
    }

static const struct required backend_ops[] = {
    OP(atsi_backend_ops, probe),
    OP(atsi_backend_ops, open),
    OP(atsi_backend_ops, close),
    OP(atsi_backend_ops, props),
    OP(atsi_backend_ops, supports),
    OP(atsi_backend_ops, buf_alloc),
    OP(atsi_backend_ops, buf_free),
    OP(atsi_backend_ops, buf_ptr),
    OP(atsi_backend_ops, queue_open),
    OP(atsi_backend_ops, queue_close),
    OP(atsi_backend_ops, event_open),
    OP(atsi_backend_ops, event_close),
    OP(atsi_backend_ops, run),
    OP(atsi_backend_ops, event_wait),
    OP(atsi_backend_ops, event_query),
    OP(atsi_backend_ops, event_time),
    {0, NULL},
};
static const struct required transfer_ops[] = {
    OP(atsi_transfer_ops, open),
    OP(atsi_transfer_ops, close),
    OP(atsi_transfer_ops, channels),
    OP(atsi_transfer_ops, copyv),
    {0, NULL},
};
static const struct required policy_ops[] = {
    OP(atsi_policy_ops, scratch_bytes),
    OP(atsi_policy_ops, place),
    {0, NULL},
};
static const struct required loader_ops[] = {
    OP(atsi_loader_ops, probe),   OP(atsi_loader_ops, open),
    OP(atsi_loader_ops, close),   OP(atsi_loader_ops, info),
    OP(atsi_loader_ops, meta_at), OP(atsi_loader_ops, meta_find),
    OP(atsi_loader_ops, graph),   {0, NULL},
};

static const struct {
    const char *kind;
    size_t size;
    const struct required *ops;
} tables[] = {
    [ATSI_KIND_BACKEND] = {"backend", sizeof(struct atsi_backend_ops), backend_ops},
    [ATSI_KIND_TRANSFER] = {"transfer", sizeof(struct atsi_transfer_ops), transfer_ops},
    [ATSI_KIND_POLICY] = {"policy", sizeof(struct atsi_policy_ops), policy_ops},
    [ATSI_KIND_LOADER] = {"loader", sizeof(struct atsi_loader_ops), loader_ops},
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
    const struct required *op;
    const char *kind;
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
    kind = tables[c->kind].kind;
    memcpy(&size, c->ops, sizeof size);
    if (size < tables[c->kind].size)
        return atsi_fail(err, ATSI_EABI, "plugin %s: %s table of %u bytes, this core needs %zu",
                         p->name, kind, size, tables[c->kind].size);
    for (op = tables[c->kind].ops; op->name != NULL; op++)
        if (is_null(c->ops, op->at))
            return atsi_fail(err, ATSI_EINVAL, "plugin %s: %s %s lacks the required operation %s",
                             p->name, kind, c->name, op->name);
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

static int check_contents(const struct atsi_plugin *p, struct atsi_err *err)
{
    int rc = ATSI_OK;
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

int atsi_abi_check(const struct atsi_plugin *p, struct atsi_err *err)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    /* The first four members are the same in every version there will be. */
    if (p->magic != ATSI_PLUGIN_MAGIC)
        return atsi_fail(err, ATSI_EABI,
                         "not an atsinfer plugin: magic %08x, expected %08x (this core speaks "
                         "plugin interface %u.%u)",
                         p->magic, ATSI_PLUGIN_MAGIC, ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
    rc = check_versions(p, err);
    if (rc != ATSI_OK)
        return rc;
    rc = check_contents(p, &why);
    if (rc == ATSI_OK)
        return rc;
    return atsi_fail(err, rc, "%s (built for plugin interface %u.%u, this core speaks %u.%u)",
                     why.msg, p->abi_major, p->abi_minor, ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
}
