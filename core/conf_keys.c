/* SPDX-License-Identifier: Apache-2.0
 *
 * Every setting of the core: its kind, default, range and one sentence.  The shipped atsinfer.ini
 * is tested to list exactly these.
 */
#include "core/conf_keys.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct atsi_conf_key keys[] = {
    {"model.path", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Model file (GGUF), of a split model the first part; or hf:USER/REPO[:QUANT] or "
     "ollama:NAME[:TAG] of the local caches. Empty: the demo model."},
    {"model.ctx", ATSI_CONF_INT, "-1", -1, 2147483647, NULL,
     "Context in tokens. 0: the model's own; -1: the model's own, at most 8192."},
    {"backend.cpu", ATSI_CONF_TEXT, "auto", 0, 0, NULL,
     "CPU plugin: auto measures those that run here and keeps the fastest; or a name."},
    {"backend.accel", ATSI_CONF_TEXT, "auto", 0, 0, NULL,
     "Accelerator plugin: auto takes the first that has a device; none; or a name."},
    {"cpu.threads", ATSI_CONF_INT, "0", 0, 512, NULL,
     "Worker threads. 0: one per usable core; fewer where measured to be as fast."},
    {"cpu.threads_batch", ATSI_CONF_INT, "0", 0, 512, NULL,
     "Worker threads for prefill. 0: as cpu.threads."},
    {"cpu.cpus", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Logical CPUs workers may run on, as 0-3,8. Empty: all usable ones."},
    {"cpu.cores", ATSI_CONF_CHOICE, "p", 0, 0, "p|all",
     "p: performance cores only, all: every kind of core."},
    {"cpu.spin", ATSI_CONF_INT, "1000", 0, 1000000, NULL,
     "Microseconds a worker waits awake before it sleeps."},
    {"cpu.activations", ATSI_CONF_CHOICE, "auto", 0, 0, "auto|f32",
     "auto: rounded to 8 bits where the weight's type asks for it; f32: exact, slower."},
    {"cpu.caps_mask", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Instruction sets to use (avx2,fma) or not (-avx512f). Empty: all there are."},
    {"cpu.caps_file", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Recorded CPUID dump to take capabilities from, for tests."},
    {"cpu.topology", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "hwloc XML file or synthetic description to use as topology, for tests."},
    {"kv.type_k", ATSI_CONF_CHOICE, "f16", 0, 0, "f16|f32|q8_0", "Type of cached keys."},
    {"kv.type_v", ATSI_CONF_CHOICE, "f16", 0, 0, "f16|f32|q8_0", "Type of cached values."},
    {"kv.device", ATSI_CONF_CHOICE, "auto", 0, 0, "auto|cpu|accel",
     "Where KV caches and recurrent states live. auto: as the placement decides."},
    {"prefill.chunk", ATSI_CONF_INT, "0", 0, 65536, NULL,
     "Tokens of a prompt computed in one round. 0: chosen with an accelerator, else 512."},
    {"load.mode", ATSI_CONF_CHOICE, "mmap", 0, 0, "mmap|read|direct",
     "mmap: weights stay in the mapped file; read: copied; direct: copied past the page cache."},
    {"load.pack", ATSI_CONF_CHOICE, "auto", 0, 0, "auto|off|now",
     "Weights rearranged for the kernels: auto: in the background; now: before the first token."},
    {"load.pack_cache", ATSI_CONF_BOOL, "off", 0, 0, NULL,
     "Keep rearranged weights in $XDG_CACHE_HOME/atsinfer/packed, as large as the model."},
    {"memory.vram", ATSI_CONF_BUDGET, "auto", 0, 0, "auto",
     "Accelerator memory: auto, a size, N% of the device, N%m of the weights; 0: none of it."},
    {"memory.vram_margin", ATSI_CONF_SIZE, "1GiB", 0, 0, NULL,
     "Accelerator memory left to others by memory.vram = auto."},
    {"memory.temp", ATSI_CONF_BUDGET, "auto", 0, 0, "auto",
     "Accelerator memory for weights on the move, of that of memory.vram."},
    {"memory.slots", ATSI_CONF_INT, "2", 1, 16, NULL,
     "Slots that memory.temp is cut into, at most."},
    {"memory.pin", ATSI_CONF_BUDGET, "auto", 0, 0, "auto|off",
     "Host memory the accelerator reads directly. auto: half of the available, within ulimit -l."},
    {"transfer.engine", ATSI_CONF_TEXT, "auto", 0, 0, NULL,
     "Transfer plugin: auto takes the accelerator's own; or a name. copy_engine or copy_kernel: "
     "the channel weights move over."},
    {"transfer.dynamic", ATSI_CONF_BOOL, "on", 0, 0, NULL,
     "Weights move to the accelerator during a round. off: items run where they live."},
    {"exec.async", ATSI_CONF_BOOL, "on", 0, 0, NULL,
     "CPU, accelerator and transfers work at the same time. off: one after the other."},
    {"exec.pick", ATSI_CONF_BOOL, "on", 0, 0, NULL,
     "The accelerator picks the largest logits when no others are looked at. off: all are copied."},
    {"experts.cache", ATSI_CONF_CHOICE, "off", 0, 0, "auto|off",
     "Experts used most live on the accelerator, in slots. auto: as the placement decides."},
    {"experts.half_life", ATSI_CONF_INT, "128", 0, 1000000, NULL,
     "Tokens after which the use of an expert counts half. 0: nothing is forgotten."},
    {"experts.copy_share", ATSI_CONF_INT, "10", 0, 100, NULL,
     "Per cent of a round that copies of experts into their slots may take."},
    {"experts.statistics", ATSI_CONF_BOOL, "on", 0, 0, NULL,
     "Keep in $XDG_CACHE_HOME/atsinfer/experts how often each expert of a model is used."},
    {"policy.name", ATSI_CONF_TEXT, "policy_dp", 0, 0, NULL,
     "Policy plugin for placement and scheduling."},
    {"policy.place", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Another policy for placement. Empty: policy.name."},
    {"policy.schedule", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Another policy for scheduling. Empty: policy.name."},
    {"policy.fallback", ATSI_CONF_TEXT, "policy_static", 0, 0, NULL,
     "Policy used when an answer is invalid or late."},
    {"policy.mix", ATSI_CONF_TEXT, "2048:128", 0, 0, NULL,
     "Prompt and generated tokens that placement is balanced for."},
    {"policy.costs", ATSI_CONF_CHOICE, "measured", 0, 0, "measured|typical",
     "What items cost. measured: here, at first use of a model; typical: a middling desktop's."},
    {"policy.time_limit", ATSI_CONF_INT, "5000", 1, 10000000, NULL,
     "Microseconds a policy may take for one round."},
    {"policy.rule.*", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "REGEX = cpu or accel, for items by name; rules are tried by number."},
    {"power.mode", ATSI_CONF_CHOICE, "performance", 0, 0, "performance|balanced|quiet",
     "performance: all there is; balanced: short waits awake, none on battery; quiet: half the "
     "threads at low priority, no waits awake."},
    {"power.watch", ATSI_CONF_INT, "500", 0, 60000, NULL,
     "Milliseconds between looks at clocks, pressure and memory that others take, for new plans. "
     "0: never."},
    {"power.root", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Folder with proc/ and sys/ to look into instead of this machine's, for tests."},
    {"plugins.path", ATSI_CONF_TEXT, "", 0, 0, NULL,
     "Folders with more plugins, separated by colons. Ignored in a ./atsinfer.ini merely found."},
};

const struct atsi_conf_key *atsi_conf_keys(size_t *n_out)
{
    *n_out = sizeof keys / sizeof keys[0];
    return keys;
}

const char *atsi_conf_type_name(enum atsi_conf_type type)
{
    static const char *const names[] = {"bool", "int", "size", "budget", "choice", "float", "text"};
    return names[type];
}

void atsi_conf_range_text(const struct atsi_conf_key *key, char *buf, size_t size)
{
    buf[0] = '\0';
    if (key->choices != NULL)
        (void)snprintf(buf, size, "%s", key->choices);
    else if ((key->type == ATSI_CONF_INT || key->type == ATSI_CONF_FLOAT) && key->min < key->max)
        (void)snprintf(buf, size, "%.10g..%.10g", key->min, key->max);
}

bool atsi_conf_parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"on", "true", "1", "yes"};
    static const char *const no[] = {"off", "false", "0", "no"};
    for (int i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

bool atsi_conf_parse_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        double factor;
    } units[] = {{"", 1},         {"B", 1},      {"K", 0x1p10},   {"KiB", 0x1p10}, {"M", 0x1p20},
                 {"MiB", 0x1p20}, {"G", 0x1p30}, {"GiB", 0x1p30}, {"T", 0x1p40},   {"TiB", 0x1p40}};
    char *end;
    double x;
    errno = 0;
    x = strtod(text, &end);
    if (end == text || errno != 0 || !(x >= 0))
        return false;
    while (*end == ' ')
        end++;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcasecmp(end, units[i].suffix) == 0 && x * units[i].factor < 0x1p63) {
            *out = (uint64_t)(x * units[i].factor);
            return true;
        }
    return false;
}

static bool is_choice(const char *choices, const char *text)
{
    size_t len = strlen(text);
    for (const char *p = choices; p != NULL && *p != '\0';) {
        size_t n = strcspn(p, "|");
        if (n == len && strncmp(p, text, n) == 0)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

static bool is_percent(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    return end != text && x >= 0 && x <= 100 && (strcmp(end, "%") == 0 || strcmp(end, "%m") == 0);
}

static int check_number(const struct atsi_conf_key *key, const char *text, struct atsi_err *err)
{
    char *end;
    double x;
    errno = 0;
    x = key->type == ATSI_CONF_INT ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    if (end == text || *end != '\0' || errno == ERANGE || !isfinite(x))
        return atsi_fail(err, ATSI_ECONF, "\"%.64s\" is not %s", text,
                         key->type == ATSI_CONF_INT ? "a whole number" : "a number");
    if (key->min < key->max && (x < key->min || x > key->max))
        return atsi_fail(err, ATSI_ECONF, "%.64s is outside %.10g..%.10g", text, key->min,
                         key->max);
    return ATSI_OK;
}

int atsi_conf_check_value(const struct atsi_conf_key *key, const char *text, struct atsi_err *err)
{
    uint64_t size;
    bool truth;
    switch (key->type) {
    case ATSI_CONF_BOOL:
        if (!atsi_conf_parse_bool(text, &truth))
            return atsi_fail(err, ATSI_ECONF, "\"%.64s\" is not on or off", text);
        return ATSI_OK;
    case ATSI_CONF_INT:
    case ATSI_CONF_FLOAT:
        return check_number(key, text, err);
    case ATSI_CONF_SIZE:
        if (!atsi_conf_parse_size(text, &size))
            return atsi_fail(err, ATSI_ECONF, "\"%.64s\" is not a size such as 512MiB", text);
        return ATSI_OK;
    case ATSI_CONF_BUDGET:
        if (!is_choice(key->choices, text) && !is_percent(text) &&
            !atsi_conf_parse_size(text, &size))
            return atsi_fail(err, ATSI_ECONF,
                             "\"%.64s\" is not %s, a size such as 6GiB or a percentage", text,
                             key->choices);
        return ATSI_OK;
    case ATSI_CONF_CHOICE:
        if (!is_choice(key->choices, text))
            return atsi_fail(err, ATSI_ECONF, "\"%.64s\" is not one of %s", text, key->choices);
        return ATSI_OK;
    default:
        return ATSI_OK;
    }
}
