/* SPDX-License-Identifier: Apache-2.0
 * What an accelerator did during a run, in the same words for real and simulated rounds. */
#include "cli/session.h"

#include <inttypes.h>

static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void put_phase(FILE *f, const char *name, const struct atsi_accel_phase *p)
{
    if (p->n_rounds == 0)
        return;
    (void)fprintf(f, "%-8s%6" PRIu64 " rounds  ", name, p->n_rounds);
    if (p->n_measured > 0)
        (void)fprintf(
            f,
            "CPU %.0f %%, compute stream %.0f %%, transfer stream %.0f %% of the time, "
            "exposed transfer %.1f %%",
            percent(p->busy_ns[0], p->measured_ns), percent(p->busy_ns[1], p->measured_ns),
            percent(p->busy_ns[2], p->measured_ns), percent(p->exposed_ns, p->measured_ns));
    if (p->n_measured > 0 && p->n_measured < p->n_rounds)
        (void)fprintf(f, " (of %" PRIu64 " rounds)", p->n_measured);
    if (p->n_predicted > 0 && p->predicted_ns > 0)
        (void)fprintf(f, "%spredicted %.3f ms a round, measured %.3f ms (%+.1f %%)",
                      p->n_measured > 0 ? "; " : "",
                      (double)p->predicted_ns / 1e6 / (double)p->n_predicted,
                      (double)p->observed_ns / 1e6 / (double)p->n_predicted,
                      percent(p->observed_ns, p->predicted_ns) - 100.0);
    (void)fputc('\n', f);
}

void cli_put_accel_stats(FILE *f, const struct atsi_accel_stats *s)
{
    char weights[32], activations[32], results[32], experts[32];
    put_phase(f, "prefill", &s->prefill);
    put_phase(f, "decode", &s->decode);
    (void)fprintf(f, "PCIe    weights %s, activations %s, results %s\n",
                  cli_bytes(s->weight_bytes, weights), cli_bytes(s->activation_bytes, activations),
                  cli_bytes(s->result_bytes, results));
    (void)fprintf(f, "plans   %" PRIu64 " made, %" PRIu64 " kept, %" PRIu64 " refused; costs %s\n",
                  s->n_made, s->n_kept, s->n_refused,
                  s->measured_costs != 0 ? "measured here" : "modelled");
    if (s->expert_hits + s->expert_misses > 0)
        (void)fprintf(f, "experts caches of %s, %.1f %% of %" PRIu64 " choices were there\n",
                      cli_bytes(s->expert_bytes, experts),
                      percent(s->expert_hits, s->expert_hits + s->expert_misses),
                      s->expert_hits + s->expert_misses);
    if (s->chunk_why != NULL)
        (void)fprintf(f, "rounds  %s\n", s->chunk_why);
    if (s->n_governed > 0)
        (void)fprintf(f, "re-planned %" PRIu64 " times, the last for %s\n", s->n_governed,
                      s->governed_why != NULL ? s->governed_why : "no reason given");
}

void cli_print_accel(const struct atsi_session *s)
{
    struct atsi_session_info info = {.struct_size = sizeof info};
    struct atsi_accel_stats stats = {.struct_size = sizeof stats};
    char weights[32];
    atsi_session_info(s, &info);
    atsi_session_accel_stats(s, &stats);
    if (stats.prefill.n_rounds + stats.decode.n_rounds == 0)
        return;
    if (info.accel[0] != '\0')
        (void)fprintf(stderr, "%s (%s): %u of %u items live there, weights %s\n", info.accel,
                      info.accel_detail, info.n_resident, info.n_items,
                      cli_bytes(info.accel_weights, weights));
    else
        (void)fprintf(stderr, "the accelerator was given up\n");
    cli_put_accel_stats(stderr, &stats);
}
