/* SPDX-License-Identifier: Apache-2.0
 * `atsinfer plan --json`: everything, under keys that stay. */
#include "cli/json.h"
#include "cli/plan.h"

#include <string.h>

static json_t *bytes(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *phase_json(const struct atsi_plan_phase *f, bool *ok)
{
    static const char *const lanes[3] = {"cpu", "gpu", "copy"};
    json_t *o = json_object(), *busy = json_object();
    cli_json_set(o, "round_ms", json_real(plan_ms(f->ns)), ok);
    cli_json_set(o, "tokens", json_integer(f->tokens), ok);
    cli_json_set(o, "context", json_integer(f->ctx), ok);
    cli_json_set(o, "predicted_ms", json_real(plan_ms(f->predicted_ns)), ok);
    cli_json_set(o, "bound_ms", json_real(plan_ms(f->bound_ns)), ok);
    cli_json_set(o, "exposed_ms", json_real(plan_ms(f->exposed_ns)), ok);
    for (int k = 0; k < 3; k++)
        cli_json_set(busy, lanes[k], json_real(plan_ms(f->busy_ns[k])), ok);
    cli_json_set(o, "busy_ms", busy, ok);
    cli_json_set(o, "promoted", json_integer(f->n_moves), ok);
    cli_json_set(o, "moved_bytes", bytes(f->moved_bytes), ok);
    cli_json_set(o, "dram_bytes", bytes(f->dram_bytes), ok);
    cli_json_set(o, "slots", json_integer(f->slots), ok);
    cli_json_set(o, "slot_bytes", bytes(f->slot_bytes), ok);
    cli_json_set(o, "limit", json_string(plan_limit(f->limit)), ok);
    cli_json_set(o, "limit_share", json_real((double)f->limit_permille / 1000.0), ok);
    return o;
}

static json_t *memory_json(const struct atsi_plan_memory *m, bool *ok)
{
    const struct {
        const char *key;
        uint64_t value;
    } v[] = {{"vram_budget", m->vram},
             {"resident_weights", m->weights},
             {"resident_caches", m->caches},
             {"slots", m->slots},
             {"left", m->left},
             {"host_weights", m->host_weights},
             {"host_caches", m->host_caches},
             {"ram_limit", m->ram},
             {"model_weights", m->all_weights},
             {"model_caches", m->cache},
             {"pinned_weights", m->pinned_weights},
             {"pinned_caches", m->pinned_caches},
             {"least_slots", m->least_slots},
             {"missing_vram", m->missing_vram},
             {"missing_ram", m->missing_ram},
             {"enough_vram", m->enough_vram},
             {"enough_ram", m->enough_ram},
             {"fits_context", m->fits_ctx},
             {"context_max", m->ctx_max}};
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++)
        cli_json_set(o, v[i].key, bytes(v[i].value), ok);
    return o;
}

/* [prefill, decode] as an object. */
static json_t *pair(json_t *prefill, json_t *decode, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "prefill", prefill, ok);
    cli_json_set(o, "decode", decode, ok);
    return o;
}

static json_t *us(const uint64_t ns[2], bool *ok)
{
    return pair(json_real((double)ns[0] / 1e3), json_real((double)ns[1] / 1e3), ok);
}

static void item_costs(json_t *o, const struct atsi_plan_item *it, bool *ok)
{
    cli_json_set(o, "touched_bytes", pair(bytes(it->touched[0]), bytes(it->touched[1]), ok), ok);
    cli_json_set(o, "flops", pair(json_real(it->flops[0]), json_real(it->flops[1]), ok), ok);
    cli_json_set(o, "cpu_us", us(it->cpu_ns, ok), ok);
    cli_json_set(o, "gpu_us", us(it->gpu_ns, ok), ok);
    cli_json_set(o, "transfer_us", us(it->transfer_ns, ok), ok);
    cli_json_set(o, "to_gpu_us", us(it->to_gpu_ns, ok), ok);
    cli_json_set(o, "to_cpu_us", us(it->to_cpu_ns, ok), ok);
    cli_json_set(o, "contended_cpu",
                 pair(json_real((double)it->slow_cpu[0] / 1e3),
                      json_real((double)it->slow_cpu[1] / 1e3), ok),
                 ok);
    cli_json_set(o, "contended_copy",
                 pair(json_real((double)it->slow_copy[0] / 1e3),
                      json_real((double)it->slow_copy[1] / 1e3), ok),
                 ok);
    cli_json_set(o, "us_gained_per_mib",
                 pair(json_real(it->density[0]), json_real(it->density[1]), ok), ok);
}

static json_t *item_json(const struct plan_show *v, const struct atsi_plan_item *it, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "name", cli_json_text(it->name), ok);
    cli_json_set(o, "role", json_string(plan_role(it->role)), ok);
    cli_json_set(o, "layer", json_integer(it->layer), ok);
    cli_json_set(o, "router", json_integer(it->router), ok);
    cli_json_set(o, "experts", json_integer(it->n_experts), ok);
    cli_json_set(o, "pinned", json_integer(it->pinned), ok);
    cli_json_set(o, "can_promote", json_boolean(it->can_promote != 0), ok);
    cli_json_set(o, "bytes", bytes(it->bytes), ok);
    item_costs(o, it, ok);
    if (!v->fits)
        return o;
    cli_json_set(o, "device", json_string(it->device != 0 ? "gpu" : "cpu"), ok);
    cli_json_set(o, "promoted",
                 pair(json_boolean(it->promoted[0] != 0), json_boolean(it->promoted[1] != 0), ok),
                 ok);
    cli_json_set(o, "slot", pair(json_integer(it->slot[0]), json_integer(it->slot[1]), ok), ok);
    cli_json_set(o, "after", pair(json_integer(it->after[0]), json_integer(it->after[1]), ok), ok);
    cli_json_set(o, "decision", json_string(plan_decision(it)), ok);
    cli_json_set(o, "reason", json_string(plan_reason(it->reason)), ok);
    return o;
}

static json_t *trial_json(const struct plan_trial *t, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "fits", json_boolean(t->status == ATSI_OK), ok);
    if (t->status != ATSI_OK) {
        cli_json_set(o, "why", cli_json_text(t->why), ok);
        return o;
    }
    cli_json_set(o, "ttft_ms", json_real(plan_ms(t->times.ttft_ns)), ok);
    cli_json_set(o, "tpot_ms", json_real(plan_ms(t->times.tpot_ns)), ok);
    cli_json_set(o, "resident_items", json_integer(t->times.n_resident), ok);
    return o;
}

static void trials(json_t *o, const struct plan_show *v, bool *ok)
{
    json_t *a, *more;
    uint32_t n = 0;
    if (v->more.tried) {
        more = trial_json(&v->more, ok);
        cli_json_set(more, "bytes", bytes(v->more_bytes), ok);
        cli_json_set(o, "more_vram", more, ok);
    }
    if (v->explain == NULL)
        return;
    a = json_array();
    for (uint32_t i = 0; i < v->sum->n_items; i++) {
        const struct atsi_plan_item *it = atsi_plan_item(v->report, i);
        json_t *e;
        if (!plan_explained(v, it))
            continue;
        e = json_object();
        cli_json_set(e, "item", json_integer(i), ok);
        cli_json_set(e, "name", cli_json_text(it->name), ok);
        if (n < PLAN_WHAT_IFS && v->other[n].tried)
            cli_json_set(e, it->device != 0 ? "on_cpu" : "on_gpu", trial_json(&v->other[n], ok),
                         ok);
        n++;
        cli_json_append(a, e, ok);
    }
    cli_json_set(o, "explain", a, ok);
}

int plan_print_json(const struct plan_show *v)
{
    const struct atsi_plan_summary *s = v->sum;
    json_t *o = json_object(), *a = json_array();
    bool ok = true;
    cli_json_set(o, "simulated", json_true(), &ok);
    cli_json_set(o, "fits", json_boolean(v->fits), &ok);
    cli_json_set(o, "model", cli_json_text(s->model), &ok);
    cli_json_set(o, "machine", cli_json_text(s->machine), &ok);
    cli_json_set(o, "policy", cli_json_text(s->policy), &ok);
    cli_json_set(o, "memory", memory_json(&s->memory, &ok), &ok);
    if (v->fits) {
        cli_json_set(o, "saved_plan", json_boolean(s->reused != 0), &ok);
        cli_json_set(o, "refused_answers", json_integer(s->refused), &ok);
        cli_json_set(o, "prompt", json_integer(s->prompt), &ok);
        cli_json_set(o, "generated", json_integer(s->generated), &ok);
        cli_json_set(o, "ttft_ms", json_real(plan_ms(s->ttft_ns)), &ok);
        cli_json_set(o, "tpot_ms", json_real(plan_ms(s->tpot_ns)), &ok);
        cli_json_set(o, "prefill", phase_json(&s->prefill, &ok), &ok);
        cli_json_set(o, "decode", phase_json(&s->decode, &ok), &ok);
        cli_json_set(o, "dram_bytes_per_second", bytes(s->machine_dram), &ok);
        cli_json_set(o, "resident_items", json_integer(s->n_resident), &ok);
        cli_json_set(o, "vram_binds", json_boolean(s->vram_binds != 0), &ok);
        trials(o, v, &ok);
    }
    for (uint32_t i = 0; i < s->n_items; i++)
        cli_json_append(a, item_json(v, atsi_plan_item(v->report, i), &ok), &ok);
    cli_json_set(o, "items", a, &ok);
    return cli_json_print(o, ok, v->fits ? CLI_OK : CLI_NO_FIT);
}
