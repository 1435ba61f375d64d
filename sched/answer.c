/* SPDX-License-Identifier: Apache-2.0
 * See answer.h. */
#include "sched/answer.h"

#include "sched/arena.h"
#include "sched/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int sched_write_placement(const struct atsi_problem *p, const uint8_t *b,
                          struct atsi_placement *out, struct atsi_err *err)
{
    uint64_t used = 0; /* items are at most 2^14, of at most 2^48 bytes */
    for (uint32_t i = 0; i < p->n_items; i++) {
        out->device[i] = b[i];
        out->expert_slots[i] = b[i] == SCHED_GPU ? p->items[i]->n_experts : 0;
        used += b[i] == SCHED_CPU ? p->items[i]->resident_bytes : 0;
    }
    if (used > p->budget_bytes[0])
        return atsi_fail(err, ATSI_ENOFIT,
                         "%" PRIu64 " bytes are left for the CPU, its budget is %" PRIu64 " bytes",
                         used, p->budget_bytes[0]);
    return ATSI_OK;
}

void sched_write_schedule(const struct sched_chain *ch, const uint8_t *rb, int serial,
                          struct atsi_schedule *out)
{
    uint32_t next[SCHED_MAX_CLASSES] = {0};
    out->keep = 0;
    out->n_transfers = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        uint16_t q = ch->op[i].role;
        out->device[i] = rb[i];
        out->after[i] = out->slot[i] = -1;
        if (!sched_promoted(ch, rb, i))
            continue;
        out->order[out->n_transfers++] = i;
        out->slot[i] = (int32_t)next[q];
        next[q] = next[q] + 1 < ch->depth[q] ? next[q] + 1 : 0;
        if (serial)
            out->after[i] = (int32_t)i - 1;
    }
}

/* ---------------------------------------------------------------- predictions */
size_t sched_judge_scratch(uint32_t n, uint32_t rounds)
{
    return sched_timeline_scratch(n, rounds);
}

static int64_t run_length(const struct sched_chain *ch, const uint8_t *rb,
                          const struct sched_run *run, void *scratch)
{
    if (sched_contended(ch))
        return llround(sched_fluid(ch, rb, run, scratch));
    return sched_latency(ch, rb, run, scratch);
}

int64_t sched_judge(const struct sched_chain *ch, const uint8_t *rb, uint32_t rounds,
                    const int32_t *after, void *scratch)
{
    const struct sched_run run = {.rounds = rounds, .after = after, .follows = rounds > 1};
    return run_length(ch, rb, &run, scratch);
}

uint32_t sched_predict_rounds(uint32_t phase)
{
    return phase == ATSI_PHASE_DECODE ? 3 : 1;
}

size_t sched_predict_scratch(uint32_t n)
{
    return SCHED_ROOM(struct sched_span, n) +
           sched_judge_scratch(n, sched_predict_rounds(ATSI_PHASE_DECODE));
}

void sched_predict(const struct sched_chain *ch, const uint8_t *rb, uint32_t phase, void *scratch,
                   struct atsi_schedule *out)
{
    int spans = out->start_ns != NULL && out->end_ns != NULL;
    unsigned char *at = scratch;
    struct sched_span *span = SCHED_TAKE(&at, struct sched_span, ch->n);
    const struct sched_run run = {.rounds = sched_predict_rounds(phase),
                                  .follows = phase == ATSI_PHASE_DECODE,
                                  .after = out->after,
                                  .op_span = spans ? span : NULL};
    out->predicted_ns = (uint64_t)run_length(ch, rb, &run, at);
    for (uint32_t i = 0; spans && i < ch->n; i++) {
        out->start_ns[i] = (uint64_t)span[i].start;
        out->end_ns[i] = (uint64_t)span[i].end;
    }
}

/* ---------------------------------------------------------------- stamps */
/* FNV-1a, a word at a time. */
static uint64_t hash_devices(const int32_t *device, uint32_t n)
{
    uint64_t h = UINT64_C(0xCBF29CE484222325);
    for (uint32_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)device[i]) * UINT64_C(0x100000001B3);
    return h;
}

void sched_stamp_set(struct sched_stamp *st, const struct atsi_round *in)
{
    *st = (struct sched_stamp){.answered_ns = in->now_ns,
                               .placed_hash = hash_devices(in->placed, in->problem->n_items),
                               .n_tokens = in->n_tokens,
                               .valid = 1};
}

int sched_stamp_holds(const struct sched_stamp *st, const struct atsi_round *in)
{
    return st->valid && in->in_force != NULL && in->planned_ns == st->answered_ns &&
           in->n_tokens == st->n_tokens &&
           hash_devices(in->placed, in->problem->n_items) == st->placed_hash;
}
