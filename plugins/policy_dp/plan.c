/* SPDX-License-Identifier: Apache-2.0
 *
 * One round's promotions by the algorithm of the settings.  The paper's Algorithm 2 cannot promote
 * two operators in a row, so its system must have another rule where everything has to move: in
 * prefill "paper" promotes all that can be.
 */
#include "dp.h"
#include "sched/dynamic.h"

uint32_t dp_plan_rounds(uint32_t phase)
{
    return phase == ATSI_PHASE_DECODE ? 2 : 1;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t dp_plan_scratch(uint32_t n)
{
    size_t paper = most(sched_alg2_scratch(n), sched_alg2_repaired_scratch(n));
    return most(paper, sched_search_scratch(n, dp_plan_rounds(ATSI_PHASE_DECODE)));
}

static void promote_all(const struct sched_chain *ch, uint8_t *rb)
{
    for (uint32_t i = 0; i < ch->n; i++)
        rb[i] = ch->b[i] == SCHED_GPU || sched_is_free(ch, i);
}

static uint64_t search(const struct dp_settings *s, const struct sched_chain *ch, uint32_t phase,
                       const uint8_t *in_force, void *scratch, uint8_t *rb)
{
    const uint8_t *const extra[1] = {in_force};
    const struct sched_search how = {.rounds = dp_plan_rounds(phase),
                                     .evals = s->evals,
                                     .n_extra = in_force != NULL,
                                     .extra = extra};
    struct sched_found found;
    sched_search(ch, &how, scratch, rb, &found);
    return found.evals;
}

uint64_t dp_plan_make(const struct dp_settings *s, const struct sched_chain *ch, uint32_t phase,
                      const uint8_t *in_force, void *scratch, uint8_t *rb_out)
{
    if (s->algorithm == DP_BACKLOG || s->algorithm == DP_BACKLOG_CO)
        return search(s, ch, phase, in_force, scratch, rb_out);
    if (s->algorithm == DP_PAPER_LITERAL)
        (void)sched_alg2(ch, SCHED_ALG2_PRINTED, scratch, rb_out);
    else if (s->algorithm == DP_REPAIRED)
        (void)sched_alg2_repaired(ch, scratch, rb_out);
    else if (phase == ATSI_PHASE_DECODE)
        (void)sched_alg2(ch, SCHED_ALG2_CLIPPED, scratch, rb_out);
    else
        promote_all(ch, rb_out);
    return 2 * (uint64_t)ch->n; /* cells of the table */
}
