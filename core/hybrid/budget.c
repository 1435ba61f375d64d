/* SPDX-License-Identifier: Apache-2.0
 *
 * Budgets: settings to bytes per region.  All sums saturate: a size that overflows does not fit.
 */
#include "core/hybrid/budget.h"

#include "core/conf_keys.h"
#include "core/hybrid/region.h"
#include "core/round/needs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MIB 1048576.0
#define UNLIMITED (UINT64_MAX / 4)         /* of a device that does not know its memory */
#define SLOTS_MOST (UINT64_C(1) << 30)     /* temp = auto takes no more than this ... */
#define SLOTS_SHARE 4                      /* ... nor more than this part of what is left */
#define GPU_WORKSPACE (UINT64_C(64) << 20) /* matrix libraries and modules loaded on first use */

static uint64_t add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t percent_of(double percent, uint64_t whole)
{
    return percent >= 100 ? whole : (uint64_t)((double)whole * percent / 100.0);
}

/* ---------------------------------------------------------------- settings */
int atsi_amount_parse(const char *key, const char *text, struct atsi_amount *out,
                      struct atsi_err *err)
{
    char *end;
    *out = (struct atsi_amount){.kind = ATSI_AMOUNT_AUTO};
    if (strcmp(text, "auto") == 0)
        return ATSI_OK;
    out->kind = ATSI_AMOUNT_OFF;
    if (strcmp(text, "off") == 0)
        return ATSI_OK;
    out->percent = strtod(text, &end);
    if (end != text && (strcmp(end, "%") == 0 || strcmp(end, "%m") == 0)) {
        out->kind = end[1] == 'm' ? ATSI_AMOUNT_PERCENT_MODEL : ATSI_AMOUNT_PERCENT;
        if (out->percent >= 0 && out->percent <= 100)
            return ATSI_OK;
        return atsi_fail(err, ATSI_ECONF, "%s = %.64s: expected 0..100 per cent", key, text);
    }
    out->percent = 0;
    out->kind = ATSI_AMOUNT_BYTES;
    if (atsi_conf_parse_size(text, &out->bytes))
        return ATSI_OK;
    return atsi_fail(err, ATSI_ECONF, "%s = %.64s: expected auto, a size such as 6GiB, N%% or N%%m",
                     key, text);
}

int atsi_budget_read(const struct atsi_conf *c, struct atsi_budget_conf *out, struct atsi_err *err)
{
    int rc = atsi_amount_parse("memory.vram", atsi_conf_get(c, "memory.vram"), &out->vram, err);
    if (rc == ATSI_OK)
        rc = atsi_amount_parse("memory.temp", atsi_conf_get(c, "memory.temp"), &out->temp, err);
    if (rc == ATSI_OK)
        rc = atsi_amount_parse("memory.pin", atsi_conf_get(c, "memory.pin"), &out->pin, err);
    out->margin_bytes = atsi_conf_size(c, "memory.vram_margin");
    out->max_slots = (uint32_t)atsi_conf_int(c, "memory.slots");
    return rc;
}

/* ---------------------------------------------------------------- the device's memory */
static bool is_nothing(const struct atsi_amount *a)
{
    return a->kind == ATSI_AMOUNT_OFF || (a->kind == ATSI_AMOUNT_BYTES && a->bytes == 0) ||
           ((a->kind == ATSI_AMOUNT_PERCENT || a->kind == ATSI_AMOUNT_PERCENT_MODEL) &&
            a->percent <= 0);
}

bool atsi_budget_is_off(const struct atsi_budget_conf *c)
{
    return is_nothing(&c->vram);
}

static uint64_t fixed(const struct atsi_budget *b)
{
    return add(add(b->always, b->compute), add(b->workspace, b->overhead));
}

/* What may be taken of the device in all, before the share of the model that %m speaks of. */
static uint64_t find_total(const struct atsi_budget_conf *c, struct atsi_budget *b)
{
    uint64_t have = b->device_free != 0 ? b->device_free : UNLIMITED, want;
    switch (c->vram.kind) {
    case ATSI_AMOUNT_BYTES:
        want = c->vram.bytes;
        (void)snprintf(b->why, sizeof b->why, "memory.vram = %.1f MiB", (double)want / MIB);
        break;
    case ATSI_AMOUNT_PERCENT:
        want = b->device_total != 0 ? percent_of(c->vram.percent, b->device_total) : UNLIMITED;
        (void)snprintf(b->why, sizeof b->why, "memory.vram = %.4g%% of %.1f MiB", c->vram.percent,
                       (double)b->device_total / MIB);
        break;
    case ATSI_AMOUNT_PERCENT_MODEL:
        want = have;
        (void)snprintf(b->why, sizeof b->why, "memory.vram = %.4g%% of the weights",
                       c->vram.percent);
        break;
    default:
        want = less(have, b->device_free != 0 ? c->margin_bytes : 0);
        (void)snprintf(b->why, sizeof b->why, "%.1f MiB free, margin %.1f MiB", (double)have / MIB,
                       (double)c->margin_bytes / MIB);
        break;
    }
    if (want > have) {
        size_t n = strlen(b->why);
        (void)snprintf(b->why + n, sizeof b->why - n, ", of which %.1f MiB are free",
                       (double)have / MIB);
        want = have;
    }
    return want;
}

/* Of `room` for residents and slots, `want` of which would hold everything. */
static uint64_t find_slots(const struct atsi_budget_conf *c, const struct atsi_budget_sizes *s,
                           uint64_t room, uint64_t want)
{
    uint64_t bytes;
    switch (c->temp.kind) {
    case ATSI_AMOUNT_OFF:
        return 0;
    case ATSI_AMOUNT_BYTES:
        return least(c->temp.bytes, room);
    case ATSI_AMOUNT_PERCENT:
        return percent_of(c->temp.percent, room);
    case ATSI_AMOUNT_PERCENT_MODEL:
        return least(percent_of(c->temp.percent, s->weights), room);
    default:
        break;
    }
    if (room >= want)
        return 0; /* nothing ever has to move */
    bytes = s->largest > SLOTS_MOST / c->max_slots ? SLOTS_MOST : s->largest * c->max_slots;
    return least(bytes, room / SLOTS_SHARE);
}

static void divide(const struct atsi_budget_conf *c, const struct atsi_budget_sizes *s,
                   struct atsi_budget *b, uint64_t total)
{
    uint64_t room = less(total, fixed(b)), want = add(s->weights, s->caches);
    b->caches_counted = c->vram.kind != ATSI_AMOUNT_PERCENT_MODEL;
    if (!b->caches_counted) { /* caches have their memory; the share is of weights and slots */
        room = least(less(room, s->caches), percent_of(c->vram.percent, s->weights));
        want = s->weights;
    }
    b->slots = find_slots(c, s, room, want) / ATSI_REGION_ALIGN * ATSI_REGION_ALIGN;
    b->place = least(room - b->slots, want);
    b->tile = b->slots / (c->max_slots > 2 ? c->max_slots : 2);
    b->total = add(fixed(b), b->slots + b->place);
    if (!b->caches_counted)
        b->total = add(b->total, s->caches);
}

static void fill_fixed(const struct atsi_props *props, const struct atsi_budget_sizes *s,
                       struct atsi_budget *b)
{
    uint64_t align = ATSI_REGION_ALIGN;
    if (props->buf_align_bytes > align)
        align = props->buf_align_bytes;
    b->always = s->always;
    b->compute = s->compute;
    b->workspace = props->device_kind == ATSI_DEVICE_GPU ? GPU_WORKSPACE : 0;
    b->overhead = add(s->n_wanted * align, 2 * align + props->buf_pad_bytes);
}

int atsi_budget_make(const struct atsi_budget_conf *c, const struct atsi_props *props,
                     const struct atsi_budget_sizes *s, struct atsi_budget *out,
                     struct atsi_err *err)
{
    uint64_t total, need;
    *out = (struct atsi_budget){.device_total = props->mem_total_bytes,
                                .device_free = props->mem_free_bytes,
                                .max_slots = c->max_slots};
    if (is_nothing(&c->vram)) {
        out->off = true;
        (void)snprintf(out->why, sizeof out->why, "memory.vram = 0: no accelerator");
        return ATSI_OK;
    }
    if (props->mem_total_bytes != 0 && props->mem_free_bytes == 0)
        out->device_free = 1; /* full is not the same as unknown */
    fill_fixed(props, s, out);
    total = find_total(c, out);
    need = add(fixed(out), c->vram.kind == ATSI_AMOUNT_PERCENT_MODEL ? s->caches : 0);
    if (need > total)
        return atsi_fail(err, ATSI_ENOFIT,
                         "does not fit: the accelerator needs %.1f MiB (activations %.1f, small "
                         "weights %.1f, libraries %.1f, alignment %.1f, caches %.1f) before any "
                         "matrix, the budget is %.1f MiB (%s); memory.vram = %.0fMiB would do, 0 "
                         "uses none",
                         (double)need / MIB, (double)out->compute / MIB, (double)out->always / MIB,
                         (double)out->workspace / MIB, (double)out->overhead / MIB,
                         (double)(need - fixed(out)) / MIB, (double)total / MIB, out->why,
                         (double)need / MIB + 1);
    divide(c, s, out, total);
    return ATSI_OK;
}

bool atsi_budget_refresh(struct atsi_budget *b, const struct atsi_budget_conf *c,
                         const struct atsi_props *props, const struct atsi_budget_sizes *s,
                         uint64_t held)
{
    struct atsi_budget now = *b;
    uint64_t total, room;
    if (b->off || props->mem_total_bytes == 0)
        return false;
    now.device_free = add(props->mem_free_bytes, held);
    total = find_total(c, &now);
    if (total >= b->total)
        return false;
    room = less(total, add(fixed(b), b->caches_counted ? 0 : s->caches));
    if (room < b->slots) /* tiles were cut for slots of this size: all of them or none */
        b->slots = 0;
    b->place = least(b->place, room - b->slots);
    b->total = total;
    b->device_free = now.device_free;
    memcpy(b->why, now.why, sizeof b->why);
    return true;
}

/* ---------------------------------------------------------------- items against budgets */
/* Adds to the words of a refusal which setting would do. */
static void add_remedy(const struct atsi_budget *b, const struct atsi_plan_memory *m,
                       struct atsi_err *err)
{
    size_t n;
    bool first = true;
    if (err == NULL || err->struct_size < sizeof *err)
        return;
    n = strlen(err->msg);
    if (m->enough_vram > m->vram) {
        n += (size_t)snprintf(err->msg + n, sizeof err->msg - n, "; memory.vram = %.0fMiB",
                              (double)add(b->total, m->enough_vram - m->vram) / MIB + 1);
        first = false;
    }
    if (m->fits_ctx > 0 && n < sizeof err->msg)
        n += (size_t)snprintf(err->msg + n, sizeof err->msg - n, "%sa context of %u tokens (-c %u)",
                              first ? "; " : " or ", m->fits_ctx, m->fits_ctx);
    if (n < sizeof err->msg)
        (void)snprintf(err->msg + n, sizeof err->msg - n, "%s",
                       first && m->fits_ctx == 0 ? "; fewer pins or a smaller model would do"
                                                 : " would do");
}

int atsi_budget_check(const struct atsi_budget *b, const struct atsi_items *it, uint32_t ctx_max,
                      uint64_t ram_bytes, struct atsi_plan_memory *memory, struct atsi_err *err)
{
    struct atsi_needs_params p = {
        .vram = b->place + b->slots, .ram = ram_bytes, .ctx_max = ctx_max, .slots = b->slots > 0};
    int rc;
    atsi_needs_sum(it, &p, memory);
    if (!b->caches_counted && !b->off) {
        p.vram = add(p.vram, memory->cache);
        atsi_needs_sum(it, &p, memory);
    }
    memory->slots = b->slots;
    rc = atsi_needs_judge(it, &p, memory, err);
    if (rc != ATSI_OK)
        add_remedy(b, memory, err);
    return rc;
}

/* ---------------------------------------------------------------- the host's memory */
static bool may_lock_all(void)
{
    /* CAP_IPC_LOCK (14) lifts the limit (capabilities(7)); CapEff is hexadecimal. */
    char line[128];
    bool yes = false;
    FILE *f = fopen("/proc/self/status", "re");
    if (f == NULL)
        return false;
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "CapEff:", 7) == 0) {
            yes = (strtoull(line + 7, NULL, 16) >> 14 & 1) != 0;
            break;
        }
    (void)fclose(f); /* opened for reading */
    return yes;
}

uint64_t atsi_budget_memlock(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_MEMLOCK, &l) != 0 || l.rlim_cur == RLIM_INFINITY || may_lock_all())
        return UINT64_MAX;
    return l.rlim_cur;
}

uint64_t atsi_budget_pin(const struct atsi_budget_conf *c, const struct atsi_limits *limits,
                         uint64_t memlock, uint64_t weights, char *why, size_t why_size)
{
    uint64_t have = limits->mem_available_bytes, bytes = have / 2;
    const char *what = "half of the available memory";
    if (is_nothing(&c->pin)) {
        bytes = 0;
        what = "memory.pin = off";
    } else if (c->pin.kind != ATSI_AMOUNT_AUTO) {
        bytes = c->pin.kind == ATSI_AMOUNT_BYTES     ? c->pin.bytes
                : c->pin.kind == ATSI_AMOUNT_PERCENT ? percent_of(c->pin.percent, have)
                                                     : percent_of(c->pin.percent, weights);
        what = "memory.pin";
    } else if (limits->cgroup_mem_bytes / 2 < bytes) {
        bytes = limits->cgroup_mem_bytes / 2;
        what = "half of the control group's limit";
    }
    if (c->pin.kind == ATSI_AMOUNT_AUTO && memlock < bytes) {
        bytes = memlock;
        what = "ulimit -l (memory.pin = SIZE tries more)";
    }
    if (why != NULL)
        (void)snprintf(why, why_size, "%s", what);
    return bytes;
}
