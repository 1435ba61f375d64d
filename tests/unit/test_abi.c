/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin interface as memory: every public struct lies as pinned in tests/abi/pins.h, and
 * descriptors that differ are refused with words that say what differs.
 */
#include "core/abi.h"

#include "atsinfer/atsinfer.h"
#include "atsinfer/conform.h"
#include "atsinfer/panel.h"
#include "atsinfer/plan.h"
#include "atsinfer/policy.h"
#include "atsinfer/profile.h"
#include "atsinfer/routing.h"
#include "atsinfer/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---------------------------------------------------------------- pins */
struct pin {
    const char *what;
    size_t now, pinned;
};

#define PIN_VERSION(major, minor)                                                                  \
    {"ATSI_ABI_MAJOR", ATSI_ABI_MAJOR, major}, {"ATSI_ABI_MINOR", ATSI_ABI_MINOR, minor},
#define PIN_SIZE(type, bytes) {"size of " #type, sizeof(type), bytes},
#define PIN(type, member, offset) {#type "." #member, offsetof(struct type, member), offset},

static const struct pin pins[] = {
#include "tests/abi/pins.h"
};

static void layout(void **state)
{
    size_t wrong = 0;
    (void)state;
    for (size_t i = 0; i < sizeof pins / sizeof pins[0]; i++)
        if (pins[i].now != pins[i].pinned) {
            print_error("%s: pinned %zu, now %zu\n", pins[i].what, pins[i].pinned, pins[i].now);
            wrong++;
        }
    if (wrong > 0)
        fail_msg("interface changed: raise ATSI_ABI_MINOR and pin anew (tests/abi/pins.h): %zu of "
                 "%u.%u differ",
                 wrong, ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
}

/* ---------------------------------------------------------------- a plugin to spoil */
static size_t scratch_bytes(uint32_t n_items)
{
    return n_items;
}

static int place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    (void)in;
    (void)out;
    (void)err;
    return ATSI_OK;
}

struct parts {
    struct atsi_policy_ops ops;
    struct atsi_component component;
    const struct atsi_component *components[2];
    struct atsi_param param;
    const struct atsi_param *params[2];
    struct atsi_plugin plugin;
};

static void make(struct parts *p)
{
    *p = (struct parts){
        .ops = {.struct_size = sizeof p->ops, .scratch_bytes = scratch_bytes, .place = place},
        .component = {sizeof p->component, ATSI_KIND_POLICY, "mine", &p->ops},
        .components = {&p->component, NULL},
        .param = {sizeof p->param, ATSI_PARAM_INT, "level", "3", "0..9", NULL, "How much."},
        .params = {&p->param, NULL},
        .plugin = {.struct_size = sizeof p->plugin,
                   .magic = ATSI_PLUGIN_MAGIC,
                   .abi_major = ATSI_ABI_MAJOR,
                   .abi_minor = ATSI_ABI_MINOR,
                   .name = "mine",
                   .version = "1",
                   .license = "MIT"},
    };
    p->plugin.params = p->params;
    p->plugin.components = p->components;
}

static void good(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct parts p;
    (void)state;
    make(&p);
    assert_int_equal(atsi_abi_check(&p.plugin, &err), ATSI_OK);
    p.plugin.params = NULL;
    assert_int_equal(atsi_abi_check(&p.plugin, &err), ATSI_OK);
    p.plugin.name = "a234567890123456789012345678901234567890"; /* 40 is the longest */
    assert_int_equal(atsi_abi_check(&p.plugin, &err), ATSI_OK);
    /* A newer peer has more members; what is known is where it was. */
    p.plugin.struct_size += 64;
    p.component.struct_size += 64;
    p.ops.struct_size += 64;
    assert_int_equal(atsi_abi_check(&p.plugin, &err), ATSI_OK);
}

static void spoil(struct parts *p, int how)
{
    switch (how) {
    case 0:
        p->plugin.magic = 0x4d4f4f42;
        break;
    case 1:
        p->plugin.abi_major = 7;
        break;
    case 2:
        p->plugin.abi_minor = 99;
        break;
    case 3:
        p->plugin.struct_size = 32;
        break;
    case 4:
        p->plugin.name = NULL;
        break;
    case 5:
        p->plugin.name = "a name with blanks";
        break;
    case 6:
        p->plugin.name = "a2345678901234567890123456789012345678901";
        break;
    case 7:
        p->plugin.license = NULL;
        break;
    case 8:
        p->plugin.components = NULL;
        break;
    case 9:
        p->components[0] = NULL;
        break;
    case 10:
        p->component.struct_size = 8;
        break;
    case 11:
        p->component.kind = 0;
        break;
    case 12:
        p->component.kind = 5;
        break;
    case 13:
        p->component.name = "Mine";
        break;
    case 14:
        p->component.ops = NULL;
        break;
    case 15:
        p->ops.struct_size = 8;
        break;
    case 16:
        p->ops.place = NULL;
        break;
    case 17:
        p->param.struct_size = 8;
        break;
    case 18:
        p->param.key = "";
        break;
    case 19:
        p->param.def = NULL;
        break;
    case 20:
        p->param.type = 0;
        break;
    case 21:
        p->param.type = ATSI_PARAM_TEXT + 1;
        break;
    case 22:
        p->param.type = ATSI_PARAM_CHOICE, p->param.choices = NULL;
        break;
    case 23:
        p->param.help = NULL;
        break;
    case 24:
        p->plugin.version = NULL;
        break;
    case 25:
        p->component.name = NULL;
        break;
    case 26:
        p->param.key = NULL;
        break;
    default:
        p->param.type = ATSI_PARAM_CHOICE, p->param.choices = "";
        break;
    }
}

static void refusals(void **state)
{
    static const struct {
        int status;
        const char *words;
    } cases[] = {
        {ATSI_EABI, "magic 4d4f4f42, expected 49535441"},
        {ATSI_EABI, "built for plugin interface 7."},
        {ATSI_EABI, ".99, this core speaks"},
        {ATSI_EABI, "descriptor of 32 bytes, this core needs"},
        {ATSI_EINVAL, "proper name"},
        {ATSI_EINVAL, "proper name"},
        {ATSI_EINVAL, "proper name"},
        {ATSI_EINVAL, "license"},
        {ATSI_EINVAL, "plugin mine offers nothing"},
        {ATSI_EINVAL, "plugin mine offers nothing"},
        {ATSI_EABI, "component of 8 bytes, this core needs"},
        {ATSI_EABI, "unknown kind 0"},
        {ATSI_EABI, "unknown kind 5"},
        {ATSI_EINVAL, "component without a proper name or table"},
        {ATSI_EINVAL, "component without a proper name or table"},
        {ATSI_EABI, "policy table of 8 bytes, this core needs"},
        {ATSI_EINVAL, "policy mine lacks the required operation place"},
        {ATSI_EABI, "parameter of 8 bytes, this core needs"},
        {ATSI_EINVAL, "does not describe itself"},
        {ATSI_EINVAL, "parameter level does not describe itself"},
        {ATSI_EINVAL, "parameter level does not describe itself"},
        {ATSI_EINVAL, "parameter level does not describe itself"},
        {ATSI_EINVAL, "parameter level names no choices"},
        {ATSI_EINVAL, "parameter level does not describe itself"},
        {ATSI_EINVAL, "version"},
        {ATSI_EINVAL, "component without a proper name or table"},
        {ATSI_EINVAL, "parameter ? does not describe itself"},
        {ATSI_EINVAL, "parameter level names no choices"},
    };
    (void)state;
    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]); i++) {
        struct atsi_err err = ATSI_ERR_INIT;
        char version[32];
        struct parts p;
        int rc;
        make(&p);
        spoil(&p, i);
        rc = atsi_abi_check(&p.plugin, &err);
        if (rc != cases[i].status || strstr(err.msg, cases[i].words) == NULL)
            fail_msg("case %d: status %d \"%s\", expected %d \"%s\"", i, rc, err.msg,
                     cases[i].status, cases[i].words);
        /* Whatever is wrong, the reader learns which interface this core speaks. */
        (void)snprintf(version, sizeof version, "%u.%u", ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
        if (strstr(err.msg, "this core speaks") == NULL ||
            strstr(strstr(err.msg, "this core speaks"), version) == NULL)
            fail_msg("case %d: \"%s\" does not say that this core speaks %s", i, err.msg, version);
    }
}

/* ---------------------------------------------------------------- tables of functions */
enum { MAX_OPS = 17 };

static const struct table {
    uint32_t kind, n_optional; /* optional ones come last */
    size_t size;
    const char *names[MAX_OPS];
} tables[] = {
    {ATSI_KIND_BACKEND,
     5,
     sizeof(struct atsi_backend_ops),
     {"probe", "open", "close", "props", "supports", "buf_alloc", "buf_free", "buf_ptr",
      "queue_open", "queue_close", "event_open", "event_close", "run", "event_wait", "event_query",
      "event_time"}},
    {ATSI_KIND_TRANSFER,
     0,
     sizeof(struct atsi_transfer_ops),
     {"open", "close", "channels", "copyv"}},
    {ATSI_KIND_POLICY, 3, sizeof(struct atsi_policy_ops), {"scratch_bytes", "place"}},
    {ATSI_KIND_LOADER,
     1,
     sizeof(struct atsi_loader_ops),
     {"probe", "open", "close", "info", "meta_at", "meta_find", "graph"}},
};

/* Any table: its size, then functions.  Only compared with NULL. */
struct ops_image {
    uint32_t struct_size;
    void (*fn[MAX_OPS])(void);
};

static void never_called(void)
{
    fail();
}

/* The check's answer to a table that lacks function number `missing`. */
static int check_table(const struct table *t, size_t missing, struct atsi_err *err)
{
    struct ops_image ops = {.struct_size = (uint32_t)t->size};
    struct parts p;
    make(&p);
    for (size_t i = 0; t->names[i] != NULL; i++)
        ops.fn[i] = i != missing ? never_called : NULL;
    p.component.kind = t->kind;
    p.component.ops = &ops;
    return atsi_abi_check(&p.plugin, err);
}

/* Every required function is asked for by name; the optional ones are missing throughout. */
static void required_operations(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof tables / sizeof tables[0]; k++) {
        const struct table *t = &tables[k];
        size_t n = 0;
        for (; t->names[n] != NULL; n++) {
            struct atsi_err err = ATSI_ERR_INIT;
            char words[64];
            assert_int_equal(check_table(t, n, &err), ATSI_EINVAL);
            (void)snprintf(words, sizeof words, "required operation %s", t->names[n]);
            assert_non_null(strstr(err.msg, words));
        }
        assert_int_equal(check_table(t, n, NULL), ATSI_OK);
        assert_int_equal(offsetof(struct ops_image, fn) + (n + t->n_optional) * sizeof(void *),
                         t->size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout),
        cmocka_unit_test(good),
        cmocka_unit_test(refusals),
        cmocka_unit_test(required_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
