/* SPDX-License-Identifier: Apache-2.0
 * Life and rounds of a session with an accelerator. */
#include "core/hybrid/inside.h"
#include "core/hybrid/live.h"

#include <stdlib.h>
#include <string.h>

/* Operations are measured one by one in the first rounds, then now and then: it costs barriers. */
#define MEASURE_FIRST 8u
#define MEASURE_EVERY 16u

/* ---------------------------------------------------------------- life */
static void report(const struct atsi_hybrid *h)
{
    const int32_t *placed = atsi_rounds_placement(h->rounds)->device;
    struct atsi_region_state r;
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->items->n; i++)
        n += placed[i] == ATSI_DEVICE_ACCEL;
    atsi_region_state(h->region, &r);
    atsi_hybrid_watch_placed(h, n);
    atsi_log(h->s->rt->log, ATSI_LOG_INFO, "session",
             "accelerator %s (%s): %u of %u items, weights %.1f MiB, slots %.1f MiB, caches %.1f "
             "MiB, activations %.1f MiB (%s)",
             h->a.name, h->a.props.name, n, h->items->n, (double)r.used / 1048576.0,
             (double)r.slots / 1048576.0, (double)h->state.bytes[ATSI_DEVICE_ACCEL] / 1048576.0,
             (double)h->values.bytes / 1048576.0, h->budget.why);
}

static bool is_off(const struct atsi_budget_conf *c)
{
    return c->vram.kind == ATSI_AMOUNT_OFF ||
           (c->vram.kind == ATSI_AMOUNT_BYTES && c->vram.bytes == 0) ||
           ((c->vram.kind == ATSI_AMOUNT_PERCENT || c->vram.kind == ATSI_AMOUNT_PERCENT_MODEL) &&
            c->vram.percent <= 0);
}

/* What the user asked for cannot be done, or is not wanted any more: no reason to go on without. */
static bool ends_session(int rc)
{
    return rc == ATSI_ECONF || rc == ATSI_ENOFIT || rc == ATSI_EINTR;
}

int atsi_hybrid_open(struct atsi_session *s, struct atsi_hybrid **out, struct atsi_err *err)
{
    struct atsi_hybrid *h = calloc(1, sizeof *h);
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    *out = NULL;
    if (h == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory opening a session");
    h->s = s;
    rc = atsi_budget_read(s->rt->conf, &h->conf, err);
    if (rc == ATSI_OK && !is_off(&h->conf))
        rc = atsi_accel_open(s, &h->a, err);
    if (rc != ATSI_OK || h->a.name == NULL) {
        free(h);
        return rc;
    }
    rc = atsi_hybrid_setup(h, &why);
    if (rc == ATSI_OK) {
        atsi_hybrid_watch(h);
        report(h);
        *out = h;
        return ATSI_OK;
    }
    if (ends_session(rc))
        (void)atsi_fail(err, rc, "%s", why.msg);
    else
        atsi_log(s->rt->log, ATSI_LOG_WARN, "session",
                 "accelerator %s: %s; everything is computed on the CPU", h->a.name, why.msg);
    atsi_hybrid_close(h);
    return ends_session(rc) ? rc : ATSI_OK;
}

void atsi_hybrid_close(struct atsi_hybrid *h)
{
    if (h == NULL)
        return;
    atsi_governor_close(h->governor);
    atsi_accel_stop(&h->a);
    atsi_hybrid_undo(h);
    atsi_costs_free(h->costs.table);
    atsi_accel_close(&h->a);
    free(h);
}

int atsi_hybrid_pack(struct atsi_hybrid *h, struct atsi_err *err)
{
    return atsi_session_start_packing(h->s, h->packable, err);
}

/* ---------------------------------------------------------------- another budget */
/* Copies what the session remembers, part after part. */
struct memory {
    unsigned char *at;
};

static int keep(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    struct memory *m = ctx;
    (void)err;
    memcpy(m->at, p, bytes);
    m->at += bytes;
    return ATSI_OK;
}

static int bring_back(void *ctx, void *p, size_t bytes, struct atsi_err *err)
{
    struct memory *m = ctx;
    (void)err;
    memcpy(p, m->at, bytes);
    m->at += bytes;
    return ATSI_OK;
}

static int each_part(struct atsi_session *s, enum atsi_rows how, unsigned char *data,
                     struct atsi_err *err)
{
    struct memory m = {data};
    int rc = ATSI_OK;
    for (uint32_t p = 0; p < atsi_session_n_parts(s) && rc == ATSI_OK; p++)
        rc = atsi_session_part_runs(s, p, atsi_session_part_first(s, p, s->rewind_low), s->n_past,
                                    how, how == ATSI_ROWS_READ ? keep : bring_back, &m, err);
    return rc;
}

static size_t past_bytes(const struct atsi_session *s)
{
    size_t all = 0, bytes;
    for (uint32_t p = 0; p < atsi_session_n_parts(s); p++)
        if (atsi_session_part_bytes(s, p, atsi_session_part_first(s, p, s->rewind_low), s->n_past,
                                    &bytes))
            all += bytes; /* less than the caches, which were summed without overflow */
    return all;
}

/* Everything is put together again under the new budget; the past comes with it. */
static int place_again(struct atsi_hybrid *h, struct atsi_err *err)
{
    struct atsi_session *s = h->s;
    unsigned char *past = malloc(past_bytes(s) + 1);
    int rc;
    if (past == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the caches of %u tokens", s->n_past);
    rc = each_part(s, ATSI_ROWS_READ, past, err);
    if (rc == ATSI_OK) {
        if (h->rounds != NULL)
            atsi_rounds_settle(h->rounds); /* no answer to the old question */
        atsi_accel_stop(&h->a);
        atsi_hybrid_undo(h);
        rc = atsi_accel_start(&h->a, err);
    }
    if (rc == ATSI_OK)
        rc = h->a.d.ops[ATSI_DEVICE_ACCEL]->props(h->a.d.be[ATSI_DEVICE_ACCEL], &h->a.props);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_setup(h, err);
    if (rc == ATSI_OK)
        rc = each_part(s, ATSI_ROWS_WRITE, past, err);
    if (rc == ATSI_OK)
        report(h);
    free(past);
    return rc;
}

static int follow_budget(struct atsi_hybrid *h, struct atsi_err *err)
{
    if (!atsi_live_take(h->s->live, h->s->rt, &h->conf))
        return ATSI_OK;
    if (is_off(&h->conf))
        return atsi_fail(err, ATSI_ENODEV, "memory.vram is 0 now");
    return place_again(h, err);
}

/* ---------------------------------------------------------------- rounds */
uint32_t atsi_hybrid_max_rows(const struct atsi_hybrid *h, bool all)
{
    return all ? h->values.out_rows : h->values.chunk;
}

/* Weights that were packed meanwhile are taken over between rounds, when no transfer reads them. */
static int begin_weights(struct atsi_hybrid *h, struct atsi_err *err)
{
    uint64_t version = h->version;
    int rc = ATSI_OK;
    if (h->begun && atsi_weights_waiting(h->weights)) {
        rc = atsi_exec_settle(atsi_rounds_exec(h->rounds), err);
        if (rc != ATSI_OK)
            return rc;
        atsi_weights_end(h->weights);
        h->begun = false;
    }
    if (!h->begun)
        version = atsi_weights_begin(h->weights);
    h->begun = true;
    if (version != h->version) {
        atsi_source_bind(h->source, h->region);
        if (h->pinned)
            atsi_hybrid_pin(h);
    }
    h->version = version;
    return rc;
}

static void fill_inputs(struct atsi_hybrid *h, const struct atsi_hybrid_round *r)
{
    const struct atsi_graph *g = h->s->g;
    int32_t *ids = h->values.all[ATSI_DEVICE_HOST][g->in_ids].data;
    int32_t *pos = h->values.all[ATSI_DEVICE_HOST][g->in_pos].data;
    memcpy(ids, r->ids, r->rows * sizeof *ids);
    for (uint32_t i = 0; i < r->rows; i++)
        pos[i] = (int32_t)(h->s->n_past + i);
}

int atsi_hybrid_round(struct atsi_hybrid *h, const struct atsi_hybrid_round *r,
                      struct atsi_err *err)
{
    uint32_t phase = r->rows == 1 ? ATSI_PHASE_DECODE : ATSI_PHASE_PREFILL;
    struct atsi_round_result res;
    bool measured;
    int rc = follow_budget(h, err);
    if (rc == ATSI_OK)
        rc = begin_weights(h, err);
    if (rc != ATSI_OK)
        return rc;
    atsi_values_set_rows(&h->values, r->rows, r->out_first, r->out_n);
    fill_inputs(h, r);
    atsi_source_begin(h->source, phase, h->s->n_past + r->rows);
    measured =
        h->s->spans != NULL || h->n_rounds < MEASURE_FIRST || h->n_rounds % MEASURE_EVERY == 0;
    atsi_exec_measure(atsi_rounds_exec(h->rounds), measured);
    rc = atsi_rounds_step(h->rounds, phase, r->rows, h->s->n_past, r->left, &res, err);
    atsi_values_all_read(&h->values);
    h->n_rounds++;
    if (rc != ATSI_OK)
        return rc;
    h->n_replans += !res.kept;
    atsi_governor_round(h->governor);
    atsi_hybrid_see(h, phase, r->rows, measured, &res);
    return ATSI_OK;
}

float *atsi_hybrid_logits(const struct atsi_hybrid *h, uint32_t i)
{
    const struct atsi_graph *g = h->s->g;
    if (h->values.all[ATSI_DEVICE_HOST] == NULL)
        return NULL;
    return (float *)h->values.all[ATSI_DEVICE_HOST][g->out_logits].data + (size_t)i * g->n_vocab;
}

/* ---------------------------------------------------------------- the past */
int atsi_hybrid_zero(struct atsi_hybrid *h, struct atsi_err *err)
{
    return atsi_state_zero(&h->state, err);
}

bool atsi_hybrid_is_broken(const struct atsi_hybrid *h)
{
    return h->state.broken;
}

bool atsi_hybrid_is_remote(const struct atsi_hybrid *h, uint32_t part)
{
    return atsi_state_is_remote(&h->state, part);
}

int atsi_hybrid_run_bytes(struct atsi_hybrid *h, void *p, size_t bytes, bool write, atsi_run_fn *fn,
                          void *ctx, struct atsi_err *err)
{
    return atsi_state_run(&h->state, p, bytes, write, fn, ctx, err);
}

/* ---------------------------------------------------------------- what it is like */
void atsi_hybrid_info(const struct atsi_hybrid *h, struct atsi_session_info *out)
{
    const int32_t *placed = atsi_rounds_placement(h->rounds)->device;
    struct atsi_rounds_counts counts;
    struct atsi_source_counts moved;
    struct atsi_region_state r;
    struct atsi_pin_state pins;
    atsi_region_state(h->region, &r);
    atsi_weights_pin_state(h->weights, &pins);
    atsi_rounds_counts(h->rounds, &counts);
    atsi_source_counts(h->source, &moved);
    out->accel = h->a.name;
    out->accel_detail = h->a.props.name;
    out->accel_weights = r.used;
    out->accel_slots = r.slots;
    out->accel_caches = h->state.bytes[ATSI_DEVICE_ACCEL];
    out->accel_compute = h->values.bytes;
    out->pinned_bytes = pins.pinned;
    out->n_items = h->items->n;
    for (uint32_t i = 0; i < h->items->n; i++)
        out->n_resident += placed[i] == ATSI_DEVICE_ACCEL;
    out->n_rounds = h->n_rounds;
    out->n_replans = h->n_replans;
    out->n_refused = counts.illegal + counts.failed + counts.late;
    out->n_transfers = moved.n_moves;
    out->transfer_bytes = moved.move_bytes;
    out->n_copies = moved.n_copies;
    out->copy_bytes = moved.copy_bytes;
}
