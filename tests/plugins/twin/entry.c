/* SPDX-License-Identifier: Apache-2.0
 *
 * Descriptor and settings of the test accelerator.
 *
 * fail_call and fail_at: the call of that kind (0: of any kind) with that number fails, counted
 * from 1 since the plugin was loaded or fail_at changed; fail_as says with what.  All later ones
 * fail too when fail_for is 0, else so many in all.
 */
#include "twin.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NUMBER(KEY, DEF, UNIT, HELP)                                                               \
    {                                                                                              \
        sizeof(struct atsi_param), ATSI_PARAM_INT, KEY, DEF, "0..1000000000000", UNIT, HELP        \
    }

static const struct atsi_param devices = NUMBER("devices", "1", NULL, "Devices that are there.");
static const struct atsi_param memory = NUMBER("memory", "0", "bytes", "Device memory; 0: any.");
static const struct atsi_param pin_limit =
    NUMBER("pin_limit", "0", "bytes", "Pinned memory; 0: any.");
static const struct atsi_param seed = NUMBER("seed", "1", NULL, "Of the delays.");
static const struct atsi_param delay = NUMBER("delay_us", "0", "us", "Longest delay of a task.");
static const struct atsi_param plan_seed = NUMBER("plan_seed", "1", NULL, "Of random plans.");
static const struct atsi_param fail_at = NUMBER("fail_at", "0", NULL, "Call that fails; 0: none.");
static const struct atsi_param fail_for =
    NUMBER("fail_for", "1", NULL, "Calls that fail; 0: all from then on.");
static const struct atsi_param fail_call = {sizeof fail_call,
                                            ATSI_PARAM_CHOICE,
                                            "fail_call",
                                            "any",
                                            "any|open|alloc|pin|object|queue|wait|work",
                                            NULL,
                                            "Kind of call that fails."};
static const struct atsi_param fail_as = {
    sizeof fail_as, ATSI_PARAM_CHOICE, "fail_as", "io", "io|memory|lost", NULL, "How it fails."};
static const struct atsi_param *const params[] = {&devices, &memory,    &pin_limit, &seed,
                                                  &delay,   &fail_at,   &fail_for,  &fail_call,
                                                  &fail_as, &plan_seed, NULL};

uint64_t twin_number(const struct atsi_host *host, const char *key)
{
    const char *text = host->param_get(host->ctx, "twin", key);
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

static _Atomic uint64_t calls;

static bool concerns(const struct atsi_host *host, enum twin_call call)
{
    static const char *const names[TWIN_N_CALLS] = {"open",  "alloc", "pin", "object",
                                                    "queue", "wait",  "work"};
    const char *kind = host->param_get(host->ctx, "twin", "fail_call");
    return kind == NULL || strcmp(kind, "any") == 0 || strcmp(kind, names[call]) == 0;
}

int twin_call(const struct atsi_host *host, enum twin_call call, struct atsi_err *err)
{
    uint64_t at = twin_number(host, "fail_at"), n = twin_number(host, "fail_for"), mine;
    const char *as = host->param_get(host->ctx, "twin", "fail_as");
    if (at == 0 || !concerns(host, call))
        return ATSI_OK;
    mine = atomic_fetch_add(&calls, 1) + 1;
    if (mine < at || (n != 0 && mine >= at + n))
        return ATSI_OK;
    if (as != NULL && strcmp(as, "memory") == 0)
        return atsi_fail(err, ATSI_ENOMEM, "twin: out of memory, as asked");
    if (as != NULL && strcmp(as, "lost") == 0)
        return atsi_fail(err, ATSI_ENODEV, "twin: the device is lost, as asked");
    return atsi_fail(err, ATSI_EIO, "twin: failed, as asked");
}

static const struct atsi_component backend = {sizeof backend, ATSI_KIND_BACKEND, "twin",
                                              &twin_backend_ops};
static const struct atsi_component transfer = {sizeof transfer, ATSI_KIND_TRANSFER, "twin",
                                               &twin_transfer_ops};
static const struct atsi_component policy = {sizeof policy, ATSI_KIND_POLICY, "twin_random",
                                             &twin_random_ops};
static const struct atsi_component *const components[] = {&backend, &transfer, &policy, NULL};

static const struct atsi_plugin plugin = {
    .struct_size = sizeof plugin,
    .magic = ATSI_PLUGIN_MAGIC,
    .abi_major = ATSI_ABI_MAJOR,
    .abi_minor = ATSI_ABI_MINOR,
    .name = "twin",
    .version = "0.1.0",
    .license = "Apache-2.0",
    .params = params,
    .components = components,
};

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)why;
    twin_random_open(host);
    atomic_store(&calls, 0);
    return &plugin;
}
