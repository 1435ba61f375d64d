/* SPDX-License-Identifier: Apache-2.0
 * Tables of costs for applications: atsinfer/profile.h. */
#include "core/newfile.h"
#include "core/round/devices.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct atsi_profile {
    struct atsi_costs *c;
    struct atsi_profile_summary summary;
    char path[PATH_MAX], why[700], without[508];
};

struct making {
    const struct atsi_profile_params *p;
    struct atsi_profile *out;
    struct atsi_devices v;
    struct atsi_model *model;
    struct atsi_measure_request r;
};

static void progress(void *ctx, const struct atsi_measure_progress *at)
{
    const struct making *m = ctx;
    m->p->progress(m->p->progress_ctx, at->done, at->total, at->what);
}

static int prepare(struct making *m, struct atsi_runtime *rt, struct atsi_err *err)
{
    const struct atsi_model_params mp = {.struct_size = sizeof mp, .no_weights = ATSI_PLAN_ONLY};
    const struct atsi_profile_params *p = m->p;
    int rc = atsi_model_open(rt, p->model, &mp, &m->model, err);
    if (rc == ATSI_OK)
        rc = atsi_devices_open(rt, &m->v, err);
    if (rc == ATSI_OK)
        rc = atsi_measure_usual(rt, m->model, &m->v, &m->r, err);
    if (rc != ATSI_OK)
        return rc;
    m->r.chunk = p->chunk != 0 ? p->chunk : m->r.chunk;
    m->r.ctx_max = p->ctx != 0 ? p->ctx : m->r.ctx_max;
    m->r.budget_ns = p->budget_ns;
    m->r.room_bytes = p->room_bytes;
    m->r.cancel = p->cancel;
    if (p->progress != NULL) {
        m->r.progress = progress;
        m->r.progress_ctx = m;
    }
    (void)snprintf(m->out->without, sizeof m->out->without, "%s", m->v.without);
    return ATSI_OK;
}

/* The kept table; whether it is current goes to why. */
static int take_kept(struct making *m, struct atsi_err *err)
{
    struct atsi_profile *out = m->out;
    struct atsi_costs *key = atsi_costs_new();
    int rc;
    if (key == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a table of costs");
    rc = atsi_costs_key_make(&m->r, key, err);
    if (rc == ATSI_OK)
        rc = atsi_costs_path(&m->r, false, out->path, sizeof out->path, err);
    if (rc == ATSI_OK)
        rc = atsi_costs_read(out->path, &out->c, err);
    if (rc == ATSI_ENOENT)
        rc = atsi_fail(err, rc, "nothing is measured yet for this model (it would be in %s)",
                       atsi_path_shown(out->path));
    if (rc == ATSI_OK) {
        key->chunk = m->r.chunk;
        (void)atsi_costs_fit(out->c, key, out->why, sizeof out->why);
    }
    atsi_costs_free(key);
    return rc;
}

static int take_current(struct making *m, struct atsi_err *err)
{
    struct atsi_profile *out = m->out;
    int rc = atsi_costs_obtain(&m->r, m->p->mode == ATSI_PROFILE_FORCE, &out->c, out->why,
                               sizeof out->why, err);
    out->summary.measured = out->why[0] != '\0';
    if (rc == ATSI_OK &&
        atsi_costs_path(&m->r, false, out->path, sizeof out->path, NULL) != ATSI_OK)
        out->path[0] = '\0';
    return rc;
}

static void sum_up(struct atsi_profile *p)
{
    const struct atsi_costs *c = p->c;
    struct atsi_profile_summary *s = &p->summary;
    s->struct_size = sizeof *s;
    s->n_keys = c->n_keys;
    s->n_ops = c->n_ops;
    for (uint32_t k = 0; k < ATSI_N_COPIES; k++)
        s->n_copies += c->n_copies[k];
    s->chunk = c->chunk;
    s->path = p->path;
    s->why = p->why;
    s->without = p->without;
    s->took_ns = c->took_ns;
    memcpy(s->launch_ns, c->launch_ns, sizeof s->launch_ns);
    memcpy(s->sync_ns, c->sync_ns, sizeof s->sync_ns);
    s->split_ns = c->split_ns;
    s->threads_decode = atsi_threads_knee(c->threads[0], c->n_threads[0]);
    s->threads_prefill = atsi_threads_knee(c->threads[1], c->n_threads[1]);
    s->cpu_alone = c->memory.cpu_alone;
    s->copy_alone = c->memory.copy_alone;
    s->cpu_together = c->memory.cpu_together;
    s->copy_together = c->memory.copy_together;
}

int atsi_profile_open(struct atsi_runtime *rt, const struct atsi_profile_params *p,
                      struct atsi_profile **out, struct atsi_err *err)
{
    struct making m = {.p = p, .out = calloc(1, sizeof *m.out)};
    int rc;
    *out = NULL;
    if (m.out == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for a profile");
    if (p->struct_size < sizeof *p || p->model == NULL || p->mode > ATSI_PROFILE_KEPT)
        rc = atsi_fail(err, ATSI_EINVAL, "a profile needs a model and one of three modes");
    else
        rc = prepare(&m, rt, err);
    if (rc == ATSI_OK)
        rc = p->mode == ATSI_PROFILE_KEPT ? take_kept(&m, err) : take_current(&m, err);
    atsi_devices_close(&m.v);
    atsi_model_close(m.model);
    if (rc != ATSI_OK) {
        atsi_profile_close(m.out);
        return rc;
    }
    sum_up(m.out);
    *out = m.out;
    return ATSI_OK;
}

void atsi_profile_close(struct atsi_profile *p)
{
    if (p == NULL)
        return;
    atsi_costs_free(p->c);
    free(p);
}

const struct atsi_profile_summary *atsi_profile_summary(const struct atsi_profile *p)
{
    return &p->summary;
}

bool atsi_profile_key(const struct atsi_profile *p, uint32_t index, const char **name,
                      const char **value)
{
    if (index >= p->c->n_keys)
        return false;
    *name = p->c->key[index].name;
    *value = p->c->key[index].value;
    return true;
}

bool atsi_profile_op(const struct atsi_profile *p, uint32_t index, struct atsi_profile_op *out)
{
    const struct atsi_cost_op *op = index < p->c->n_ops ? &p->c->ops[index] : NULL;
    const struct atsi_type_info *type;
    if (op == NULL)
        return false;
    type = atsi_type_info(op->shape.type);
    *out = (struct atsi_profile_op){.struct_size = sizeof *out,
                                    .accel = op->device == ATSI_DEVICE_ACCEL,
                                    .kind = atsi_cost_kind_name(op->shape.kind),
                                    .type = type != NULL ? type->name : "",
                                    .panels = op->shape.layout == ATSI_LAYOUT_PANELS,
                                    .n_times = op->n,
                                    .times = op->time};
    memcpy(out->dims, op->shape.dims, sizeof out->dims);
    return true;
}

bool atsi_profile_copy(const struct atsi_profile *p, uint32_t index, const char **channel,
                       struct atsi_cost_copy *out)
{
    for (uint32_t k = 0; k < ATSI_N_COPIES; k++) {
        if (index < p->c->n_copies[k]) {
            *channel = atsi_cost_channel_name((enum atsi_cost_channel)k);
            *out = p->c->copies[k][index];
            return true;
        }
        index -= p->c->n_copies[k];
    }
    return false;
}

bool atsi_profile_threads(const struct atsi_profile *p, uint32_t index, const char **phase,
                          struct atsi_cost_threads *out)
{
    for (uint32_t k = 0; k < ATSI_N_COST_PHASES; k++) {
        if (index < p->c->n_threads[k]) {
            *phase = atsi_cost_phase_name((enum atsi_cost_phase)k);
            *out = p->c->threads[k][index];
            return true;
        }
        index -= p->c->n_threads[k];
    }
    return false;
}

bool atsi_profile_stream(const struct atsi_profile *p, uint32_t index,
                         struct atsi_profile_stream *out)
{
    struct atsi_cost_stream s;
    if (!atsi_costs_stream(p->c, index, &s))
        return false;
    *out = (struct atsi_profile_stream){.struct_size = sizeof *out,
                                        .panels = s.here->shape.layout == ATSI_LAYOUT_PANELS,
                                        .kind = atsi_cost_kind_name(s.here->shape.kind),
                                        .type = atsi_type_info(s.here->shape.type)->name,
                                        .bytes = s.bytes,
                                        .copy_ns = s.copy_ns,
                                        .tokens_hidden = s.tokens_hidden,
                                        .tokens_alone = s.tokens_alone};
    memcpy(out->dims, s.here->shape.dims, sizeof out->dims);
    return true;
}
