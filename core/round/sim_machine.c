/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine that is simulated: a profile, a table of measured costs, or this machine, whose table
 * is measured when there is none.
 */
#include "core/round/devices.h"
#include "core/round/sim_run.h"

#include <string.h>

static bool is_shape(const char *path)
{
    size_t n = strlen(path);
    return n > 4 && strcmp(path + n - 4, ".ini") == 0;
}

/* The table of this machine and model. */
static int measure_here(struct atsi_sim_run *r)
{
    struct atsi_measure_request req;
    struct atsi_devices v;
    int rc = atsi_devices_open(r->rt, &v, r->err);
    if (rc == ATSI_OK)
        rc = atsi_measure_usual(r->rt, r->model, &v, &req, r->err);
    if (rc == ATSI_OK) {
        if (r->p->chunk > req.chunk)
            req.chunk = r->p->chunk;
        rc = atsi_costs_obtain(&req, false, &r->costs, NULL, 0, r->err);
    }
    atsi_devices_close(&v);
    return rc;
}

/* A table belongs to a model, whose graph stays open for it. */
static int open_model(struct atsi_sim_run *r)
{
    const struct atsi_model_params mp = {.struct_size = sizeof mp, .no_weights = ATSI_PLAN_ONLY};
    int rc;
    if (is_shape(r->p->model))
        return atsi_fail(r->err, ATSI_ECONF,
                         "measured costs belong to a model file: give -m MODEL instead of a shape, "
                         "or a machine profile");
    rc = atsi_model_open(r->rt, r->p->model, &mp, &r->model, r->err);
    return rc == ATSI_OK ? atsi_model_graph(r->model, &r->made_of.graph, r->err) : rc;
}

int atsi_sim_open_machine(struct atsi_sim_run *r)
{
    bool here = strcmp(r->p->machine, ATSI_MACHINE_HERE) == 0;
    int rc;
    if (!here && !atsi_costs_is_table(r->p->machine))
        return atsi_machine_read(r->p->machine, &r->machine, r->err);
    rc = open_model(r);
    if (rc == ATSI_OK)
        rc = here ? measure_here(r) : atsi_costs_read(r->p->machine, &r->costs, r->err);
    if (rc != ATSI_OK)
        return rc;
    atsi_costs_machine(r->costs, &r->machine);
    atsi_costs_kv(r->costs, &r->made_of.type_k, &r->made_of.type_v);
    r->made_of.tensors = atsi_model_info(r->model)->tensors;
    r->made_of.layout[ATSI_DEVICE_HOST] = ATSI_LAYOUT_PANELS; /* where they were measured so */
    r->made_of.layout[ATSI_DEVICE_ACCEL] = ATSI_LAYOUT_PANELS;
    return ATSI_OK;
}

void atsi_sim_close_machine(struct atsi_sim_run *r)
{
    atsi_costs_free(r->costs);
    atsi_model_close(r->model);
    r->costs = NULL;
    r->model = NULL;
}

int atsi_sim_question(struct atsi_sim_run *r, const struct atsi_question_params *p,
                      struct atsi_question **out)
{
    if (r->costs == NULL)
        return atsi_question_model(r->items, &r->machine, p, out, r->err);
    return atsi_question_measured(r->items, r->costs, &r->made_of, p, NULL, out, r->err);
}
