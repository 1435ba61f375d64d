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
void atsi_hybrid_report(const struct atsi_hybrid *h)
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
    h->top = ATSI_PICK_USUAL;
    rc = atsi_live_budget(s->live, s->rt, &h->conf, err);
    if (rc == ATSI_OK && !atsi_budget_is_off(&h->conf))
        rc = atsi_accel_open(s, &h->a, err);
    if (rc != ATSI_OK || h->a.name == NULL) {
        free(h);
        return rc;
    }
    rc = atsi_hybrid_setup(h, &why);
    if (rc == ATSI_OK) {
        atsi_hybrid_watch(h);
        atsi_hybrid_report(h);
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
    atsi_hybrid_save_experts(h);
    atsi_costs_free(h->costs.table);
    atsi_accel_close(&h->a);
    free(h);
}

int atsi_hybrid_pack(struct atsi_hybrid *h, struct atsi_err *err)
{
    return atsi_session_start_packing(h->s, h->packable, err);
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
        if (rc == ATSI_OK && h->experts != NULL)
            rc = atsi_experts_settle(h->experts, err);
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

static bool is_measured(const struct atsi_hybrid *h, uint64_t round)
{
    return h->s->spans != NULL || round < MEASURE_FIRST || round % MEASURE_EVERY == 0;
}

/* Whoever asks for other logits than those that policies reckon with: answers from now on are for
 * what is copied now.  The plan in force stays, it is none the worse for it. */
static void follow_wishes(struct atsi_hybrid *h, const struct atsi_hybrid_round *r)
{
    if (r->unseen || r->top == h->top)
        return;
    h->top = r->top;
    h->question->p.result_ns =
        atsi_hybrid_result_ns(h->question, atsi_pick_bytes(atsi_source_pick(h->source), h->top));
}

int atsi_hybrid_round(struct atsi_hybrid *h, const struct atsi_hybrid_round *r,
                      struct atsi_err *err)
{
    uint32_t phase = r->rows == 1 ? ATSI_PHASE_DECODE : ATSI_PHASE_PREFILL;
    struct atsi_round_result res;
    bool measured;
    int rc = atsi_hybrid_follow_budget(h, err);
    if (rc == ATSI_OK)
        rc = begin_weights(h, err);
    if (rc != ATSI_OK)
        return rc;
    atsi_values_set_rows(&h->values, r->rows, r->out_first, r->out_n);
    fill_inputs(h, r);
    atsi_source_begin(h->source, phase, h->s->n_past + r->rows);
    follow_wishes(h, r);
    atsi_pick_begin(atsi_source_pick(h->source), r->unseen ? 1 : r->top);
    if (h->experts != NULL && phase == ATSI_PHASE_DECODE)
        rc = atsi_experts_begin(h->experts, h->last_round_ns, err);
    if (rc != ATSI_OK)
        return rc;
    measured = is_measured(h, h->n_rounds);
    atsi_exec_measure(atsi_rounds_exec(h->rounds), measured, is_measured(h, h->n_rounds + 1));
    rc = atsi_rounds_step(h->rounds, phase, r->rows, h->s->n_past, r->left, &res, err);
    atsi_values_all_read(&h->values);
    h->n_rounds++;
    if (rc != ATSI_OK)
        return rc;
    h->n_replans += !res.kept;
    if (phase == ATSI_PHASE_DECODE)
        h->last_round_ns = res.ns;
    atsi_governor_round(h->governor);
    atsi_hybrid_see(h, phase, r->rows, measured, &res);
    return ATSI_OK;
}

float *atsi_hybrid_logits(struct atsi_hybrid *h, uint32_t i)
{
    const struct atsi_graph *g = h->s->g;
    struct atsi_err why = ATSI_ERR_INIT;
    if (h->values.all[ATSI_DEVICE_HOST] == NULL)
        return NULL;
    if (h->source != NULL && atsi_source_fetch_logits(h->source, &why) != ATSI_OK) {
        h->state.broken = true;
        atsi_log(h->s->rt->log, ATSI_LOG_WARN, "session", "logits cannot be copied: %s", why.msg);
        return NULL;
    }
    return (float *)h->values.all[ATSI_DEVICE_HOST][g->out_logits].data + (size_t)i * g->n_vocab;
}

uint32_t atsi_hybrid_top(const struct atsi_hybrid *h, const int32_t **ids, float **logits)
{
    return h->source != NULL ? atsi_pick_result(atsi_source_pick(h->source), ids, logits) : 0;
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
    if (h->experts != NULL) {
        struct atsi_books_counts books;
        atsi_books_counts(atsi_experts_books(h->experts), &books);
        out->n_refused += books.refused;
    }
    out->n_transfers = moved.n_moves;
    out->transfer_bytes = moved.move_bytes;
    out->n_copies = moved.n_copies;
    out->copy_bytes = moved.copy_bytes;
}
