/* SPDX-License-Identifier: Apache-2.0
 *
 * Saved plans: an ini file with what the plan was made for, where every item lives, and the
 * transfers of both phases.  It is written as a whole; a read one is used as it is or refused.
 */
#include "core/round/plan_report.h"

#include "core/conf_read.h"
#include "core/newfile.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define VERSION "1"

/* ---------------------------------------------------------------- what it is made for */
static void add_u64(XXH3_state_t *x, uint64_t v)
{
    (void)XXH3_64bits_update(x, &v, sizeof v); /* fails for NULL states only */
}

static void add_double(XXH3_state_t *x, double v)
{
    (void)XXH3_64bits_update(x, &v, sizeof v);
}

static void add_work(XXH3_state_t *x, const struct atsi_work *w)
{
    const uint64_t n[] = {w->kind,         w->type,       w->in,         w->out,    w->n_expert,
                          w->n_used,       w->own_inputs, w->last_only,  w->window, w->in_width,
                          w->weight_bytes, w->cell_bytes, w->state_bytes};
    (void)XXH3_64bits_update(x, n, sizeof n);
    add_double(x, w->flops_per_token);
    add_double(x, w->flops_per_pair);
}

static uint64_t hash_items(XXH3_state_t *x, const struct atsi_items *it)
{
    (void)XXH3_64bits_reset(x);
    add_u64(x, it->n);
    for (uint32_t i = 0; i < it->n; i++) {
        const struct atsi_item *item = &it->items[i];
        (void)XXH3_64bits_update(x, item->name, strlen(item->name) + 1);
        add_u64(x, item->role);
        add_u64(x, (uint64_t)(int64_t)item->layer);
        add_u64(x, (uint64_t)(int64_t)item->router);
        add_u64(x, item->can_promote);
        add_work(x, &it->work[i]);
    }
    for (uint32_t e = 0; e < it->n_edges; e++) {
        add_u64(x, (uint64_t)it->edges[e].from << 32 | it->edges[e].to);
        add_u64(x, it->edges[e].bytes);
    }
    return XXH3_64bits_digest(x);
}

/* One line of an ini file, without blanks at its ends. */
static void set_label(char out[96], const char *text)
{
    size_t n;
    while (*text == ' ')
        text++;
    (void)snprintf(out, 96, "%s", text[0] != '\0' ? text : "?");
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 32 || *c == 127)
            *c = '?';
    for (n = strlen(out); n > 1 && out[n - 1] == ' '; n--)
        out[n - 1] = '\0';
}

int atsi_plan_key_make(struct atsi_plan_report *r, const struct atsi_plan_params *p,
                       const char *policy)
{
    struct atsi_plan_key *k = &r->key;
    XXH3_state_t *x = XXH3_createState();
    if (x == NULL)
        return atsi_fail(r->run.err, ATSI_ENOMEM, "out of memory for a plan's fingerprint");
    *k = (struct atsi_plan_key){.items = hash_items(x, r->run.items),
                                .machine = XXH3_64bits(&r->run.machine, sizeof r->run.machine),
                                .vram = atsi_sim_vram(&r->run),
                                .ram = p->ram_bytes,
                                .slots = p->max_slots,
                                .ctx_max =
                                    p->ctx_max != 0 ? p->ctx_max : (uint32_t)r->run.machine.ctx_max,
                                .chunk = r->sim.chunk,
                                .contention = p->contention != 0,
                                .sustained = p->sustained != 0};
    set_label(k->model, r->run.items->model);
    set_label(k->machine_name, r->run.machine.name);
    set_label(k->policy, p->policy != NULL ? p->policy : policy);
    (void)XXH3_freeState(x);
    return ATSI_OK;
}

/* ---------------------------------------------------------------- writing */
/* A plan as a file holds it. */
struct saved {
    struct atsi_plan_key key;
    uint32_t made_for[3], n;
    struct atsi_answer *answer[2];
};

static void put_devices(FILE *f, const char *key, const int32_t *device, uint32_t n)
{
    (void)fprintf(f, "%s = ", key);
    for (uint32_t i = 0; i < n; i++)
        (void)fputc('0' + (int)device[i], f);
    (void)fputc('\n', f);
}

static void put_phase(FILE *f, const char *section, const struct atsi_schedule *s, uint32_t n)
{
    (void)fprintf(f, "[%s]\npredicted_ns = %" PRIu64 "\n", section, s->predicted_ns);
    put_devices(f, "device", s->device, n);
    (void)fprintf(f, "transfers = %" PRIu32, s->n_transfers);
    for (uint32_t k = 0; k < s->n_transfers; k++) {
        uint32_t i = s->order[k];
        (void)fprintf(f, " %" PRIu32 ":%" PRId32 ":%" PRId32, i, s->slot[i], s->after[i]);
    }
    (void)fputc('\n', f);
}

static void put_plan(FILE *f, const struct saved *s)
{
    const struct atsi_plan_key *k = &s->key;
    (void)fprintf(f,
                  "; a plan of atsinfer; see docs/plan.md\n[plan]\nversion = " VERSION "\n"
                  "model = %016" PRIx64 " %s\nmachine = %016" PRIx64 " %s\npolicy = %s\n"
                  "vram = %" PRIu64 "\nram = %" PRIu64 "\nslots = %" PRIu32 "\nctx_max = %" PRIu32
                  "\nchunk = %" PRIu32 "\ncontention = %" PRIu32 "\nsustained = %" PRIu32 "\n"
                  "made_for = %" PRIu32 " %" PRIu32 " %" PRIu32 "\nitems = %" PRIu32 "\n",
                  k->items, k->model, k->machine, k->machine_name, k->policy, k->vram, k->ram,
                  k->slots, k->ctx_max, k->chunk, k->contention, k->sustained, s->made_for[0],
                  s->made_for[1], s->made_for[2], s->n);
    put_devices(f, "placed", s->answer[0]->placed, s->n);
    (void)fprintf(f, "experts =");
    for (uint32_t i = 0; i < s->n; i++)
        (void)fprintf(f, " %" PRIu32, s->answer[0]->place.expert_slots[i]);
    (void)fputc('\n', f);
    put_phase(f, "prefill", &s->answer[0]->schedule, s->n);
    put_phase(f, "decode", &s->answer[1]->schedule, s->n);
}

/* The whole file.  [owned: free] */
static int write_text(const struct saved *s, char **text_out, size_t *n_out, uint64_t *check_out,
                      struct atsi_err *err)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    bool ok = f != NULL;
    *text_out = NULL;
    if (f != NULL) {
        put_plan(f, s);
        ok = fflush(f) == 0;
        *check_out = ok ? XXH3_64bits(text, n) : 0;
        (void)fprintf(f, "[end]\ncheck = %016" PRIx64 "\n", *check_out);
        ok = ferror(f) == 0 && ok;
        ok = fclose(f) == 0 && ok;
    }
    if (!ok) {
        free(text);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a saved plan");
    }
    *text_out = text;
    *n_out = n;
    return ATSI_OK;
}

int atsi_plan_save(const struct atsi_plan_report *r, const char *path, struct atsi_err *err)
{
    struct saved s = {.key = r->key, .n = r->run.items->n, .answer = {r->answer[0], r->answer[1]}};
    struct atsi_newfile file;
    uint64_t check;
    char *text;
    size_t n;
    int rc;
    if (r->answer[0] == NULL || r->answer[1] == NULL)
        return atsi_fail(err, ATSI_EINVAL, "there is no plan to save: it does not fit");
    memcpy(s.made_for, r->made_for, sizeof s.made_for);
    rc = write_text(&s, &text, &n, &check, err);
    if (rc != ATSI_OK)
        return rc;
    rc = atsi_newfile_open(&file, path, n, err);
    if (rc == ATSI_OK) {
        rc = atsi_newfile_write(&file, text, n, err);
        if (rc == ATSI_OK)
            rc = atsi_newfile_commit(&file, err);
        else
            atsi_newfile_abort(&file);
    }
    free(text);
    return rc;
}

/* ---------------------------------------------------------------- reading */
enum { N_LINES = 21 };

struct reading {
    const char *path;
    struct saved *s;
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
    return strcmp(value, VERSION) == 0 ? ATSI_OK : bad(rd, key, value, "version " VERSION);
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

static int take_line(void *ctx, const char *key, const char *value, unsigned line)
{
    struct reading *rd = ctx;
    struct saved *s = rd->s;
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
    uint64_t check;
    char *text;
    size_t n;
    int rc;
    if (rd->seen != (1U << N_LINES) - 1 || rd->s->n != rd->n)
        return atsi_fail(rd->err, ATSI_ECONF, "%s: incomplete: not a saved plan, or cut short",
                         atsi_path_shown(rd->path));
    rc = write_text(rd->s, &text, &n, &check, rd->err);
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
    struct saved s = {.n = 0};
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
