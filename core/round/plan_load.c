/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading saved plans: a plan that is whole and was made for the same is used as it is; anything
 * else is refused, naming what is wrong or differs.
 */
#include "core/round/plan_file.h"

#include "core/conf_read.h"
#include "core/newfile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- values */
enum { N_LINES = 21 };

struct reading {
    const char *path;
    struct atsi_saved_plan *s;
    uint32_t n; /* items of the model at hand */
    uint64_t check;
    uint32_t seen; /* bits of lines[] */
    struct atsi_err *err;
};

static int bad(const struct reading *rd, const char *key, const char *value, const char *expected)
{
    return atsi_fail(rd->err, ATSI_ECONF, "%s: %s = \"%.40s\": expected %s",
                     atsi_path_shown(rd->path), key, value, expected);
}

/* Reads a number of base 10 or 16 and moves on; false: there is none, or it is above max. */
static bool number(const char **at, int base, uint64_t max, uint64_t *out)
{
    char *end;
    if (base == 10 ? (**at < '0' || **at > '9') : strspn(*at, "0123456789abcdef") == 0)
        return false;
    errno = 0;
    *out = strtoull(*at, &end, base);
    if (errno != 0 || *out > max)
        return false;
    *at = end;
    return true;
}

static bool skip(const char **at, char c)
{
    if (**at != c)
        return false;
    (*at)++;
    return true;
}

typedef int read_fn(struct reading *rd, const char *key, const char *value, void *out);

static int read_version(struct reading *rd, const char *key, const char *value, void *out)
{
    (void)out;
    return strcmp(value, ATSI_SAVED_VERSION) == 0
               ? ATSI_OK
               : bad(rd, key, value, "version " ATSI_SAVED_VERSION);
}

static int read_u64(struct reading *rd, const char *key, const char *value, void *out)
{
    const char *at = value;
    return number(&at, 10, UINT64_MAX, out) && *at == '\0' ? ATSI_OK
                                                           : bad(rd, key, value, "a number");
}

static int read_u32(struct reading *rd, const char *key, const char *value, void *out)
{
    const char *at = value;
    uint64_t v;
    if (!number(&at, 10, UINT32_MAX, &v) || *at != '\0')
        return bad(rd, key, value, "a number below 2^32");
    *(uint32_t *)out = (uint32_t)v;
    return ATSI_OK;
}

static int read_hash(struct reading *rd, const char *key, const char *value, void *out)
{
    const char *at = value;
    return number(&at, 16, UINT64_MAX, out) && at == value + 16 && *at == '\0'
               ? ATSI_OK
               : bad(rd, key, value, "16 hexadecimal digits");
}

static int read_label(struct reading *rd, const char *key, const char *value, void *out)
{
    if (value[0] == '\0' || strlen(value) >= 96)
        return bad(rd, key, value, "a name of 1..95 bytes");
    (void)snprintf(out, 96, "%s", value);
    return ATSI_OK;
}

/* "HASH NAME" into a hash and the label of the same thing. */
static int read_thing(struct reading *rd, const char *key, const char *value, uint64_t *hash,
                      char *label)
{
    const char *at = value;
    if (!number(&at, 16, UINT64_MAX, hash) || at != value + 16 || !skip(&at, ' '))
        return bad(rd, key, value, "16 hexadecimal digits and a name");
    return read_label(rd, key, at, label);
}

static int read_model(struct reading *rd, const char *key, const char *value, void *out)
{
    return read_thing(rd, key, value, out, rd->s->key.model);
}

static int read_machine(struct reading *rd, const char *key, const char *value, void *out)
{
    return read_thing(rd, key, value, out, rd->s->key.machine_name);
}

static int read_request(struct reading *rd, const char *key, const char *value, void *out)
{
    uint32_t *to = out;
    const char *at = value;
    uint64_t v;
    for (int k = 0; k < 3; k++) {
        if ((k > 0 && !skip(&at, ' ')) || !number(&at, 10, UINT32_MAX, &v))
            return bad(rd, key, value, "three numbers");
        to[k] = (uint32_t)v;
    }
    return *at == '\0' ? ATSI_OK : bad(rd, key, value, "three numbers");
}

static int read_devices(struct reading *rd, const char *key, const char *value, void *out)
{
    int32_t *device = out;
    size_t n = strlen(value);
    if (n != rd->n)
        return atsi_fail(rd->err, ATSI_ECONF, "%s: %s has %zu items, the model %" PRIu32,
                         atsi_path_shown(rd->path), key, n, rd->n);
    for (size_t i = 0; i < n; i++) {
        if (value[i] != '0' && value[i] != '1')
            return bad(rd, key, value + i, "digits 0 and 1");
        device[i] = value[i] - '0';
    }
    return ATSI_OK;
}

static int read_experts(struct reading *rd, const char *key, const char *value, void *out)
{
    uint32_t *slots = out;
    const char *at = value;
    uint64_t v;
    for (uint32_t i = 0; i < rd->n; i++) {
        if ((i > 0 && !skip(&at, ' ')) || !number(&at, 10, UINT32_MAX, &v))
            return bad(rd, key, at, "a number per item");
        slots[i] = (uint32_t)v;
    }
    return *at == '\0' ? ATSI_OK : bad(rd, key, at, "a number per item, and no more");
}

/* Slots and starts are judged with the schedule as a whole (check.c). */
static int read_transfers(struct reading *rd, const char *key, const char *value, void *out)
{
    struct atsi_schedule *s = out;
    const char *at = value;
    uint64_t n, item, slot, after;
    if (!number(&at, 10, rd->n, &n))
        return bad(rd, key, value, "at most one transfer per item");
    for (uint64_t k = 0; k < n; k++) {
        bool never;
        if (!skip(&at, ' ') || !number(&at, 10, rd->n - 1, &item) || !skip(&at, ':') ||
            !number(&at, 10, INT32_MAX, &slot) || !skip(&at, ':'))
            return bad(rd, key, at, "ITEM:SLOT:AFTER");
        never = skip(&at, '-');
        if (!number(&at, 10, INT32_MAX, &after) || (never && after != 1))
            return bad(rd, key, at, "ITEM:SLOT:AFTER");
        s->order[k] = (uint32_t)item;
        s->slot[item] = (int32_t)slot;
        s->after[item] = never ? -1 : (int32_t)after;
    }
    s->n_transfers = (uint32_t)n;
    return *at == '\0' ? ATSI_OK : bad(rd, key, at, "as many transfers as announced");
}

/* ---------------------------------------------------------------- lines */
static int take_line(void *ctx, const char *key, const char *value, unsigned line)
{
    struct reading *rd = ctx;
    struct atsi_saved_plan *s = rd->s;
    struct atsi_schedule *pre = &s->answer[0]->schedule, *dec = &s->answer[1]->schedule;
    const struct {
        const char *key;
        read_fn *read;
        void *out;
    } lines[N_LINES] = {{"plan.version", read_version, NULL},
                        {"plan.model", read_model, &s->key.items},
                        {"plan.machine", read_machine, &s->key.machine},
                        {"plan.policy", read_label, s->key.policy},
                        {"plan.vram", read_u64, &s->key.vram},
                        {"plan.ram", read_u64, &s->key.ram},
                        {"plan.slots", read_u32, &s->key.slots},
                        {"plan.ctx_max", read_u32, &s->key.ctx_max},
                        {"plan.chunk", read_u32, &s->key.chunk},
                        {"plan.contention", read_u32, &s->key.contention},
                        {"plan.sustained", read_u32, &s->key.sustained},
                        {"plan.made_for", read_request, s->made_for},
                        {"plan.items", read_u32, &s->n},
                        {"plan.placed", read_devices, s->answer[0]->placed},
                        {"plan.experts", read_experts, s->answer[0]->place.expert_slots},
                        {"prefill.predicted_ns", read_u64, &pre->predicted_ns},
                        {"prefill.device", read_devices, pre->device},
                        {"prefill.transfers", read_transfers, pre},
                        {"decode.predicted_ns", read_u64, &dec->predicted_ns},
                        {"decode.device", read_devices, dec->device},
                        {"decode.transfers", read_transfers, dec}};
    if (strcmp(key, "end.check") == 0)
        return read_hash(rd, key, value, &rd->check);
    for (uint32_t k = 0; k < N_LINES; k++)
        if (strcmp(key, lines[k].key) == 0) {
            rd->seen |= 1U << k;
            return lines[k].read(rd, key, value, lines[k].out);
        }
    return atsi_fail(rd->err, ATSI_ECONF, "%s:%u: \"%.60s\" does not belong in a saved plan",
                     atsi_path_shown(rd->path), line, key);
}

/* ---------------------------------------------------------------- is it for this? */
static int differs(const struct reading *rd, const char *what, const char *theirs, const char *ours)
{
    return atsi_fail(rd->err, ATSI_ECONF, "%s: made for another %s: %s, here %s",
                     atsi_path_shown(rd->path), what, theirs, ours);
}

static int check_key(const struct reading *rd, const struct atsi_plan_key *ours, bool any_policy)
{
    const struct atsi_plan_key *k = &rd->s->key;
    const struct {
        const char *what;
        uint64_t theirs, ours;
    } numbers[] = {{"VRAM budget in bytes", k->vram, ours->vram},
                   {"RAM limit in bytes", k->ram, ours->ram},
                   {"number of slots", k->slots, ours->slots},
                   {"context that caches are sized for", k->ctx_max, ours->ctx_max},
                   {"size of prefill rounds", k->chunk, ours->chunk},
                   {"setting of contention", k->contention, ours->contention},
                   {"setting of sustained", k->sustained, ours->sustained}};
    char theirs[140], mine[140];
    if (k->items != ours->items) {
        (void)snprintf(theirs, sizeof theirs, "%s (%016" PRIx64 ")", k->model, k->items);
        (void)snprintf(mine, sizeof mine, "%s (%016" PRIx64 ")", ours->model, ours->items);
        return differs(rd, "model", theirs, mine);
    }
    if (k->machine != ours->machine) {
        (void)snprintf(theirs, sizeof theirs, "%s (%016" PRIx64 ")", k->machine_name, k->machine);
        (void)snprintf(mine, sizeof mine, "%s (%016" PRIx64 ")", ours->machine_name, ours->machine);
        return differs(rd, "machine profile", theirs, mine);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (numbers[i].theirs != numbers[i].ours) {
            (void)snprintf(theirs, sizeof theirs, "%" PRIu64, numbers[i].theirs);
            (void)snprintf(mine, sizeof mine, "%" PRIu64, numbers[i].ours);
            return differs(rd, numbers[i].what, theirs, mine);
        }
    if (!any_policy && strcmp(k->policy, ours->policy) != 0)
        return differs(rd, "policy", k->policy, ours->policy);
    return ATSI_OK;
}

/* Nothing is missing, and the check sum is that of what was understood. */
static int check_whole(const struct reading *rd)
{
    uint64_t check = 0;
    char *text = NULL;
    size_t n = 0;
    int rc;
    if (rd->seen != (1U << N_LINES) - 1 || rd->s->n != rd->n)
        return atsi_fail(rd->err, ATSI_ECONF, "%s: incomplete: not a saved plan, or cut short",
                         atsi_path_shown(rd->path));
    rc = atsi_plan_text(rd->s, &text, &n, &check, rd->err);
    free(text);
    if (rc == ATSI_OK && check != rd->check)
        rc = atsi_fail(rd->err, ATSI_ECONF,
                       "%s: damaged or edited: its check is %016" PRIx64 ", its contents give "
                       "%016" PRIx64,
                       atsi_path_shown(rd->path), rd->check, check);
    return rc;
}

/* What a plan is for is looked at first: another model has other numbers of items. */
static int key_line(void *ctx, const char *key, const char *value, unsigned line)
{
    if (strcmp(key, "plan.model") == 0 || strcmp(key, "plan.version") == 0)
        return take_line(ctx, key, value, line);
    return ATSI_OK;
}

static int read_plan(struct reading *rd, const struct atsi_plan_key *ours, bool any_policy)
{
    struct atsi_plan_key *k = &rd->s->key;
    int rc = atsi_conf_read(rd->path, key_line, rd, rd->err);
    if (rc == ATSI_OK && (rd->seen & 2U) != 0 && k->items != ours->items)
        return check_key(rd, ours, any_policy);
    rd->seen = 0;
    if (rc == ATSI_OK)
        rc = atsi_conf_read(rd->path, take_line, rd, rd->err);
    if (rc == ATSI_OK)
        rc = check_whole(rd);
    return rc == ATSI_OK ? check_key(rd, ours, any_policy) : rc;
}

int atsi_plan_load(struct atsi_plan_report *r, const char *path, bool any_policy)
{
    struct atsi_saved_plan s = {.n = 0};
    struct reading rd = {.path = path, .s = &s, .n = r->run.items->n, .err = r->run.err};
    int rc = atsi_answer_open(rd.n, &s.answer[0], r->run.err);
    if (rc == ATSI_OK)
        rc = atsi_answer_open(rd.n, &s.answer[1], r->run.err);
    if (rc == ATSI_OK)
        rc = read_plan(&rd, &r->key, any_policy);
    if (rc != ATSI_OK) {
        atsi_answer_close(s.answer[0]);
        atsi_answer_close(s.answer[1]);
        return rc;
    }
    memcpy(s.answer[1]->placed, s.answer[0]->placed, rd.n * sizeof *s.answer[0]->placed);
    memcpy(r->answer, s.answer, sizeof s.answer);
    memcpy(r->made_for, s.made_for, sizeof s.made_for);
    r->key = s.key;
    return ATSI_OK;
}
