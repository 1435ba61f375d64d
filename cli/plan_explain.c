/* SPDX-License-Identifier: Apache-2.0
 * `atsinfer plan --explain PATTERN`: all that is known about some items, and what would change if
 * one were on the other side. */
#include "cli/plan.h"

#include <string.h>

static void print_work(const struct atsi_plan_item *it)
{
    static const char *const phase[2] = {"prefill", "decode"};
    for (int f = 1; f >= 0; f--)
        (void)printf(
            "  %-7s reads %.3f MiB, %.3f GFLOP; CPU %.1f us (activations %.1f), GPU %.1f us "
            "(activations %.1f); %.1f us gained per MiB\n",
            phase[f], plan_mib(it->touched[f]), it->flops[f] / 1e9, (double)it->cpu_ns[f] / 1e3,
            (double)it->to_cpu_ns[f] / 1e3, (double)it->gpu_ns[f] / 1e3,
            (double)it->to_gpu_ns[f] / 1e3, it->density[f]);
}

static void print_transfer(const struct plan_show *v, const struct atsi_plan_item *it, int f)
{
    const struct atsi_plan_phase *p = f == 0 ? &v->sum->prefill : &v->sum->decode;
    const char *phase = f == 0 ? "prefill" : "decode";
    if (it->can_promote == 0)
        (void)printf("  %-7s never streamed: not an item whose weight moves\n", phase);
    else if (it->touched[f] > p->slot_bytes)
        (void)printf("  %-7s not streamed: %.3f MiB do not fit a slot of %.3f MiB\n", phase,
                     plan_mib(it->touched[f]), plan_mib(p->slot_bytes));
    else
        (void)printf("  %-7s %s: fits a slot of %.3f MiB, transfer %.1f us; beside the CPU's reads "
                     "that runs at %.1f %%, the CPU at %.1f %%\n",
                     phase, it->promoted[f] != 0 ? "streamed" : "could be streamed",
                     plan_mib(p->slot_bytes), (double)it->transfer_ns[f] / 1e3,
                     (double)it->slow_copy[f] / 10.0, (double)it->slow_cpu[f] / 10.0);
    if (it->promoted[f] == 0)
        return;
    (void)printf("          in slot %d of %u, ", it->slot[f], p->slots);
    if (it->after[f] >= 0)
        (void)printf("after %s\n", atsi_plan_item(v->report, (uint32_t)it->after[f])->name);
    else
        (void)printf("as early as the slot%s allow%s\n",
                     it->router >= 0 && f == 1 ? " and the router" : "",
                     it->router >= 0 && f == 1 ? "" : "s");
}

static void print_trial(const struct plan_show *v, const struct atsi_plan_item *it,
                        const struct plan_trial *t)
{
    const char *where = it->device != 0 ? "host" : "GPU";
    if (!t->tried)
        return;
    if (t->status != ATSI_OK)
        (void)printf("  pinned to the %s: %s\n", where, t->why);
    else
        (void)printf(
            "  pinned to the %s: TPOT %.3f ms instead of %.3f (%+.3f), TTFT %.3f ms instead "
            "of %.3f (%+.3f)\n",
            where, plan_ms(t->times.tpot_ns), plan_ms(v->sum->tpot_ns),
            plan_ms(t->times.tpot_ns) - plan_ms(v->sum->tpot_ns), plan_ms(t->times.ttft_ns),
            plan_ms(v->sum->ttft_ns), plan_ms(t->times.ttft_ns) - plan_ms(v->sum->ttft_ns));
}

static void explain(const struct plan_show *v, const struct atsi_plan_item *it)
{
    (void)printf("\n%s: item %u, %s", it->name, it->index, plan_role(it->role));
    if (it->layer >= 0)
        (void)printf(", layer %d", it->layer);
    if (it->n_experts > 0)
        (void)printf(", %u experts", it->n_experts);
    (void)printf(", %.3f MiB resident\n  %s: %s\n", plan_mib(it->bytes), plan_decision(it),
                 plan_reason(it->reason));
    print_work(it);
    for (int f = 1; f >= 0; f--)
        print_transfer(v, it, f);
    if (it->router >= 0)
        (void)printf("  which experts are used is known after %s\n",
                     atsi_plan_item(v->report, (uint32_t)it->router)->name);
}

int plan_print_explain(const struct plan_show *v)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < v->sum->n_items; i++) {
        const struct atsi_plan_item *it = atsi_plan_item(v->report, i);
        if (!plan_explained(v, it))
            continue;
        explain(v, it);
        if (n < PLAN_WHAT_IFS)
            print_trial(v, it, &v->other[n]);
        n++;
    }
    if (n > PLAN_WHAT_IFS)
        (void)printf("\nthe other side was tried for the first %u of %u items\n", PLAN_WHAT_IFS, n);
    return CLI_OK;
}
