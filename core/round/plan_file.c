/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing saved plans: an ini file with what the plan was made for, where every item lives, and the
 * transfers of both phases.
 */
#include "core/round/plan_file.h"

#include "core/newfile.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

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
    uint64_t measured = 0;
    if (x == NULL)
        return atsi_fail(r->run.err, ATSI_ENOMEM, "out of memory for a plan's fingerprint");
    if (r->run.costs != NULL)
        measured = atsi_costs_hash(r->run.costs);
    *k = (struct atsi_plan_key){
        .items = hash_items(x, r->run.items),
        .machine = XXH3_64bits(&r->run.machine, sizeof r->run.machine) ^ measured,
        .vram = atsi_sim_vram(&r->run),
        .ram = p->ram_bytes,
        .slots = p->max_slots,
        .ctx_max = p->ctx_max != 0 ? p->ctx_max : (uint32_t)r->run.machine.ctx_max,
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

static void put_plan(FILE *f, const struct atsi_saved_plan *s)
{
    const struct atsi_plan_key *k = &s->key;
    (void)fprintf(f,
                  "; a plan of atsinfer; see docs/plan.md\n[plan]\nversion = " ATSI_SAVED_VERSION
                  "\n"
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

int atsi_plan_text(const struct atsi_saved_plan *s, char **text_out, size_t *n_out,
                   uint64_t *check_out, struct atsi_err *err)
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
    struct atsi_saved_plan s = {
        .key = r->key, .n = r->run.items->n, .answer = {r->answer[0], r->answer[1]}};
    uint64_t check = 0;
    char *text = NULL;
    size_t n = 0;
    int rc;
    if (r->answer[0] == NULL || r->answer[1] == NULL)
        return atsi_fail(err, ATSI_EINVAL, "there is no plan to save: it does not fit");
    memcpy(s.made_for, r->made_for, sizeof s.made_for);
    rc = atsi_plan_text(&s, &text, &n, &check, err);
    if (rc != ATSI_OK)
        return rc;
    rc = atsi_newfile_put(path, text, n, err);
    free(text);
    return rc;
}
