/* SPDX-License-Identifier: Apache-2.0
 * Work for simulated devices. */
#include "core/round/model_source.h"

#include "core/round/costs.h"

#include <math.h>
#include <stdlib.h>

struct atsi_model_source {
    const struct atsi_question *q;
    const struct atsi_machine *m;
    struct atsi_conditions c;
    uint32_t n;
    struct atsi_modelled *time[ATSI_N_DEVICES]; /* [n] */
    struct atsi_op *op[ATSI_N_DEVICES];         /* [n] */
    const struct atsi_op **ptr[ATSI_N_DEVICES]; /* [n] */
    struct atsi_modelled *move;                 /* [n] */
    double *in_bytes;                           /* [n] */
    struct atsi_modelled copy, result, gap_time;
    struct atsi_op gap;
    struct atsi_exec_source source;
};

static int run(void *ctx, const struct atsi_plan *plan, uint32_t step, int32_t slot,
               struct atsi_split *split, struct atsi_err *err)
{
    struct atsi_model_source *s = ctx;
    const struct atsi_step *st = &plan->steps[step];
    (void)slot;
    (void)err;
    for (uint32_t i = st->first; i < st->first + st->n; i++)
        s->time[st->device][i].lead_ns = i == st->first && st->transfer >= 0 ? s->q->p.split_ns : 0;
    split->ops = s->ptr[st->device] + st->first;
    split->n_ops = st->n;
    return ATSI_OK;
}

static int move(void *ctx, uint32_t item, uint32_t slot, struct atsi_copyv *req,
                struct atsi_err *err)
{
    struct atsi_model_source *s = ctx;
    (void)slot;
    (void)err;
    req->modelled = &s->move[item];
    return ATSI_OK;
}

static double measured_copy(const struct atsi_costs *c, uint32_t device, uint64_t bytes,
                            bool blocking)
{
    uint64_t ns = atsi_costs_copy_ns(
        c, device == ATSI_DEVICE_HOST ? ATSI_COPY_TO_HOST : ATSI_COPY_TO_ACCEL, bytes);
    return (double)(ns + (blocking ? c->sync_ns[ATSI_DEVICE_ACCEL] : 0));
}

/* A launch (towards the host also a wait), and bytes at the copy kernel's rate. */
static int copy(void *ctx, const struct atsi_plan *plan, uint32_t step, struct atsi_copyv *req,
                struct atsi_err *err)
{
    struct atsi_model_source *s = ctx;
    const struct atsi_machine *m = s->m;
    const struct atsi_step *st = &plan->steps[step];
    double fixed = st->device == ATSI_DEVICE_HOST ? (s->c.blocking ? m->gc_base_us : m->gc_us)
                                                  : (s->c.blocking ? m->cg_base_us : m->cg_us);
    (void)err;
    s->copy.run_ns = (uint64_t)llround(
        s->q->costs != NULL ? measured_copy(s->q->costs, st->device, st->bytes, s->c.blocking)
                            : (double)st->bytes / m->ck_gbs + fixed * 1000.0);
    req->modelled = &s->copy;
    return ATSI_OK;
}

static int result(void *ctx, const struct atsi_plan *plan, struct atsi_copyv *req,
                  struct atsi_err *err)
{
    struct atsi_model_source *s = ctx;
    (void)plan;
    (void)err;
    req->modelled = &s->result;
    return ATSI_OK;
}

static void fill(struct atsi_model_source *s, const struct atsi_item_cost *cpu,
                 const struct atsi_item_cost *gpu)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct atsi_demand d;
        for (uint32_t v = 0; v < ATSI_N_DEVICES; v++) {
            const struct atsi_item_cost *c = v == ATSI_DEVICE_HOST ? &cpu[i] : &gpu[i];
            s->time[v][i] = (struct atsi_modelled){.struct_size = sizeof(struct atsi_modelled),
                                                   .contended_run = c->contended_run,
                                                   .contended_copy = c->contended_copy,
                                                   .run_ns = c->run_ns};
            s->op[v][i] = (struct atsi_op){.struct_size = sizeof(struct atsi_op),
                                           .item = i,
                                           .n_rows = 1,
                                           .modelled = &s->time[v][i]};
            s->ptr[v][i] = &s->op[v][i];
        }
        s->move[i] = (struct atsi_modelled){.struct_size = sizeof(struct atsi_modelled),
                                            .contended_run = 1000,
                                            .contended_copy = 1000,
                                            .run_ns = gpu[i].transfer_ns};
        atsi_work_demand(&s->q->items->work[i], s->c.tokens, s->c.ctx, s->c.ctx_max, &d);
        s->in_bytes[i] = d.in_bytes;
    }
}

static struct atsi_modelled plain(uint64_t ns, uint32_t together)
{
    return (struct atsi_modelled){.struct_size = sizeof(struct atsi_modelled),
                                  .contended_run = together,
                                  .contended_copy = together,
                                  .run_ns = ns};
}

int atsi_model_source_open(const struct atsi_question *q, const struct atsi_machine *m,
                           uint32_t phase, const struct atsi_conditions *c,
                           struct atsi_model_source **out, struct atsi_err *err)
{
    struct atsi_model_source *s = calloc(1, sizeof *s);
    size_t n = (size_t)q->items->n + 1;
    bool ok = s != NULL;
    *out = NULL;
    for (int v = 0; v < ATSI_N_DEVICES && ok; v++) {
        s->time[v] = calloc(n, sizeof *s->time[v]);
        s->op[v] = calloc(n, sizeof *s->op[v]);
        s->ptr[v] = calloc(n, sizeof(const struct atsi_op *));
        ok = s->time[v] != NULL && s->op[v] != NULL && s->ptr[v] != NULL;
    }
    if (ok) {
        s->move = calloc(n, sizeof *s->move);
        s->in_bytes = calloc(n, sizeof *s->in_bytes);
        ok = s->move != NULL && s->in_bytes != NULL;
    }
    if (!ok) {
        atsi_model_source_close(s);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory modelling %u items", q->items->n);
    }
    s->q = q;
    s->m = m;
    s->c = *c;
    s->n = q->items->n;
    fill(s, q->cost[phase], q->cost[phase] + s->n);
    s->copy = plain(0, q->p.contended_act);
    s->copy.contended_copy = q->p.contended_act_copy;
    s->result = plain(q->p.result_ns, 1000);
    s->gap_time = plain(q->p.gap_ns, 1000);
    s->gap = (struct atsi_op){.struct_size = sizeof s->gap, .n_rows = 1, .modelled = &s->gap_time};
    s->source = (struct atsi_exec_source){
        .ctx = s, .run = run, .move = move, .copy = copy, .result = result};
    *out = s;
    return ATSI_OK;
}

void atsi_model_source_close(struct atsi_model_source *s)
{
    if (s == NULL)
        return;
    for (int v = 0; v < ATSI_N_DEVICES; v++) {
        free(s->time[v]);
        free(s->op[v]);
        free(s->ptr[v]);
    }
    free(s->move);
    free(s->in_bytes);
    free(s);
}

const struct atsi_exec_source *atsi_model_source_get(const struct atsi_model_source *s)
{
    return &s->source;
}

const double *atsi_model_source_in_bytes(const struct atsi_model_source *s)
{
    return s->in_bytes;
}

const struct atsi_op *atsi_model_source_gap(const struct atsi_model_source *s)
{
    return &s->gap;
}
