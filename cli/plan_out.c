/* SPDX-License-Identifier: Apache-2.0
 * The text of `atsinfer plan`: items by layer, memory by region, predictions and what limits them.
 */
#include "cli/plan.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- items */
/* "layers 0-3, 7: 5 alike" of a row and those like it. */
static void print_heading(const struct plan_show *v, uint32_t k)
{
    const struct plan_row *row = &v->rows[k];
    const char *comma = "";
    if (atsi_plan_item(v->report, row->first)->layer < 0) {
        (void)printf("\noutside the layers\n");
        return;
    }
    (void)printf("\nlayer%s ", row->same > 1 ? "s" : "");
    for (uint32_t j = k; j < v->n_rows; j++) {
        uint32_t end = j;
        if (v->rows[j].like != k)
            continue;
        while (end + 1 < v->n_rows && v->rows[end + 1].like == k)
            end++;
        (void)printf("%s%d", comma, atsi_plan_item(v->report, v->rows[j].first)->layer);
        if (end > j)
            (void)printf("-%d", atsi_plan_item(v->report, v->rows[end].first)->layer);
        comma = ", ";
        j = end;
    }
    if (row->same > 1)
        (void)printf(" (%u alike)", row->same);
    (void)printf("\n");
}

static void print_item(const struct atsi_plan_item *it)
{
    char name[64];
    plan_short_name(it, name);
    (void)printf("  %-20s %9.2f %10.1f %9.1f %10.2f %9.2f %9.1f  %s: %s\n", name,
                 plan_mib(it->bytes), (double)it->cpu_ns[1] / 1e3, (double)it->gpu_ns[1] / 1e3,
                 plan_ms(it->cpu_ns[0]), plan_ms(it->gpu_ns[0]), it->density[1], plan_decision(it),
                 plan_reason(it->reason));
}

static void print_items(const struct plan_show *v)
{
    (void)printf("  %-20s %9s %10s %9s %10s %9s %9s  %s\n  %-20s %9s %10s %9s %10s %9s %9s\n",
                 "item", "MiB", "decode CPU", "GPU us", "prefill CPU", "GPU ms", "us/MiB",
                 "decision: why", "", "", "us", "", "ms", "", "gained");
    for (uint32_t k = 0; k < v->n_rows; k++) {
        if (v->rows[k].like != k)
            continue;
        print_heading(v, k);
        for (uint32_t i = 0; i < v->rows[k].n; i++)
            print_item(atsi_plan_item(v->report, v->rows[k].first + i));
    }
}

/* ---------------------------------------------------------------- memory */
static void print_region(const char *name, uint64_t bytes, uint64_t whole, const char *note)
{
    (void)printf("  %-28s %11.1f MiB %6.1f %%%s\n", name, plan_mib(bytes),
                 plan_percent(bytes, whole), note);
}

static void print_memory(const struct plan_show *v)
{
    const struct atsi_plan_memory *m = &v->sum->memory;
    char slots[120];
    (void)snprintf(slots, sizeof slots, "   prefill %u of %.1f MiB, decode %u of %.1f MiB",
                   v->sum->prefill.slots, plan_mib(v->sum->prefill.slot_bytes),
                   v->sum->decode.slots, plan_mib(v->sum->decode.slot_bytes));
    (void)printf("\nGPU memory: budget %.1f MiB\n", plan_mib(m->vram));
    print_region("resident weights", m->weights, m->vram, "");
    print_region("KV caches and states", m->caches, m->vram, "");
    print_region("temporary slots", m->slots, m->vram, slots);
    print_region("left over", m->left, m->vram, "");
    (void)printf("host memory: weights %.1f MiB, KV caches and states %.1f MiB",
                 plan_mib(m->host_weights), plan_mib(m->host_caches));
    if (m->ram != 0)
        (void)printf(", limit %.1f MiB", plan_mib(m->ram));
    (void)printf("\n");
}

/* ---------------------------------------------------------------- predictions */
static void print_phase(const char *name, const struct plan_show *v,
                        const struct atsi_plan_phase *f)
{
    double dram = v->sum->machine_dram > 0 && f->ns > 0
                      ? 100e9 * (double)f->dram_bytes / (double)v->sum->machine_dram / (double)f->ns
                      : 0.0;
    (void)printf("%s: a round of %u token%s %.3f ms", name, f->tokens, f->tokens == 1 ? "" : "s",
                 plan_ms(f->ns));
    if (f->predicted_ns > 0)
        (void)printf(" (the policy predicts %.3f", plan_ms(f->predicted_ns));
    if (f->bound_ns > 0)
        (void)printf("%s no plan on this placement is below %.3f", f->predicted_ns > 0 ? ";" : " (",
                     plan_ms(f->bound_ns));
    (void)printf("%s\n", f->predicted_ns > 0 || f->bound_ns > 0 ? ")" : "");
    (void)printf(
        "  CPU %.0f %%, GPU %.0f %%, copies %.0f %% of the time, host memory %.0f %% of its "
        "bandwidth\n",
        plan_percent(f->busy_ns[0], f->ns), plan_percent(f->busy_ns[1], f->ns),
        plan_percent(f->busy_ns[2], f->ns), dram);
    (void)printf("  %u weights promoted, %.1f MiB; the GPU waits %.3f ms for them\n", f->n_moves,
                 plan_mib(f->moved_bytes), plan_ms(f->exposed_ns));
    (void)printf("  limited by %s, %.1f %% of the round\n", plan_limit(f->limit),
                 (double)f->limit_permille / 10.0);
}

static void print_more(const struct plan_show *v)
{
    const struct plan_trial *t = &v->more;
    double tpot, ttft;
    if (!t->tried)
        return;
    (void)printf("%.0f MiB more GPU memory: ", plan_mib(v->more_bytes));
    if (t->status != ATSI_OK) {
        (void)printf("not planned: %s\n", t->why);
        return;
    }
    tpot = plan_ms(t->times.tpot_ns) - plan_ms(v->sum->tpot_ns);
    ttft = plan_ms(t->times.ttft_ns) - plan_ms(v->sum->ttft_ns);
    (void)printf(
        "TPOT %+.3f ms (%+.1f %%), TTFT %+.3f ms (%+.1f %%), %u items there instead of %u\n", tpot,
        100.0 * tpot / fmax(plan_ms(v->sum->tpot_ns), 1e-9), ttft,
        100.0 * ttft / fmax(plan_ms(v->sum->ttft_ns), 1e-9), t->times.n_resident,
        v->sum->n_resident);
}

static void print_prediction(const struct plan_show *v)
{
    const struct atsi_plan_summary *s = v->sum;
    (void)printf("\nTTFT %.3f s: a prompt of %u tokens in rounds of %u\n"
                 "TPOT %.3f ms: %.2f tokens per second at %u positions\n\n",
                 (double)s->ttft_ns / 1e9, s->prompt, s->prefill.tokens, plan_ms(s->tpot_ns),
                 s->tpot_ns > 0 ? 1e9 / (double)s->tpot_ns : 0.0, s->decode.ctx);
    print_phase("prefill", v, &s->prefill);
    print_phase("decode", v, &s->decode);
    (void)printf("the GPU's memory budget %s\n",
                 s->vram_binds != 0 ? "binds: not all items that gain there have room"
                                    : "does not bind");
    print_more(v);
    if (s->refused > 0)
        (void)printf("%u answers of policies were refused; what is shown is the fallback's\n",
                     s->refused);
}

int plan_print(const struct plan_show *v)
{
    const struct atsi_plan_summary *s = v->sum;
    (void)printf("Planned %s: %s on %s, policy %s%s, %u items\n\n",
                 s->measured != 0 ? "with measured costs, rounds are simulated"
                                  : "on a modelled machine, nothing is measured",
                 s->model, s->machine, s->policy, s->reused != 0 ? " (a saved plan)" : "",
                 s->n_items);
    print_items(v);
    print_memory(v);
    print_prediction(v);
    return CLI_OK;
}

/* ---------------------------------------------------------------- what does not fit */
static void print_changes(const struct atsi_plan_memory *m)
{
    bool pins = m->missing_vram > 0 && m->missing_ram == 0 &&
                m->pinned_weights + m->pinned_caches >= m->missing_vram;
    bool any = m->enough_vram > m->vram || m->enough_ram > m->ram || m->fits_ctx > 0 || pins;
    (void)printf("\n%s\n", any ? "any one of these would fit:"
                               : "no change of one budget or of the context alone would do");
    if (m->enough_vram > m->vram)
        (void)printf("  --vram %.0fMiB, %.0f MiB more\n", ceil(plan_mib(m->enough_vram)),
                     ceil(plan_mib(m->enough_vram - m->vram)));
    if (m->enough_ram > m->ram)
        (void)printf("  --ram %.0fMiB, %.0f MiB more\n", ceil(plan_mib(m->enough_ram)),
                     ceil(plan_mib(m->enough_ram - m->ram)));
    if (m->fits_ctx > 0)
        (void)printf("  -c %u: smaller caches (now for %u positions)\n", m->fits_ctx, m->ctx_max);
    if (pins)
        (void)printf("  fewer pins to the GPU, by %.0f MiB\n", ceil(plan_mib(m->missing_vram)));
}

int plan_print_no_fit(const struct plan_show *v)
{
    const struct atsi_plan_memory *m = &v->sum->memory;
    bool tight = m->missing_vram > 0;
    uint64_t slots = tight ? m->least_slots : m->slots;
    (void)printf("%s on %s does not fit\n\n", v->sum->model, v->sum->machine);
    (void)printf("%-44s %12s %12s\n", "", "needs MiB", "budget MiB");
    (void)printf("%-44s %12.1f\n", "GPU: weights pinned there", plan_mib(m->pinned_weights));
    (void)printf("%-44s %12.1f\n", "GPU: KV caches and states pinned there",
                 plan_mib(m->pinned_caches));
    (void)printf("%-44s %12.1f\n",
                 tight ? "GPU: two slots of the smallest weight" : "GPU: temporary slots",
                 plan_mib(slots));
    (void)printf("%-44s %12.1f %12.1f\n", "GPU together",
                 plan_mib(m->pinned_weights + m->pinned_caches + slots), plan_mib(m->vram));
    (void)printf("%-44s %12.1f\n", "model: weights", plan_mib(m->all_weights));
    (void)printf("%-44s %12.1f\n", "model: KV caches and states", plan_mib(m->cache));
    if (m->ram != 0)
        (void)printf("%-44s %12.1f %12.1f\n", "GPU and host together",
                     plan_mib(m->all_weights + m->cache + slots), plan_mib(m->vram + m->ram));
    print_changes(m);
    return CLI_NO_FIT;
}
