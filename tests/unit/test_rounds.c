/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor on the simulated machine against the timeline that schedulers predict with: the same
 * plan must take the same time, round after round, with and without contention.
 */
#include "core/round/rounds.h"
#include "sched/problem.h"
#include "sched/timeline.h"
#include "tests/unit/scratch.h"
#include "tests/unit/sim_bench.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t draw(struct sim_bench *b, uint32_t n)
{
    b->seed = b->seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(b->seed >> 33) % n;
}

/* ---------------------------------------------------------------- one plan, both ways */
static void random_answer(struct sim_bench *b, uint32_t phase, struct atsi_answer *a)
{
    const struct atsi_item_cost *gpu = b->q->cost[phase] + b->items->n;
    struct atsi_schedule *s = &a->schedule;
    uint32_t some = 1 + draw(b, 6);
    s->n_transfers = 0;
    for (uint32_t i = 0; i < b->items->n; i++) {
        a->placed[i] = draw(b, 3) == 0 ? 1 : 0;
        s->device[i] = a->placed[i];
        s->after[i] = s->slot[i] = -1;
        if (a->placed[i] == 0 && gpu[i].transfer_ns > 0 && draw(b, 6) < some) {
            s->device[i] = 1;
            s->slot[i] = (int32_t)(s->n_transfers % b->q->slot_depth[phase]);
            s->order[s->n_transfers++] = i;
        }
    }
}

static double predicted(struct sim_bench *b, uint32_t phase, const struct atsi_answer *a,
                        uint32_t rounds)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t n = b->items->n;
    void *view = aligned_alloc(64, (sched_view_scratch(n) + 63) / 64 * 64);
    void *work = aligned_alloc(64, (sched_timeline_scratch(n, rounds) + 63) / 64 * 64);
    uint8_t *home = calloc(n, 1), *side = calloc(n, 1);
    struct sched_run run = {.rounds = rounds};
    struct sched_view v;
    double ns;
    assert_non_null(view);
    assert_non_null(work);
    assert_int_equal(sched_view_read(&b->q->p, phase, view, &v, &err), ATSI_OK);
    assert_int_equal(sched_read_sides(&b->q->p, a->placed, home, &err), ATSI_OK);
    assert_int_equal(sched_read_sides(&b->q->p, a->schedule.device, side, &err), ATSI_OK);
    v.chain.b = home;
    assert_int_equal(sched_plan_check(&v.chain, side, &err), ATSI_OK);
    ns = sched_fluid(&v.chain, side, &run, work);
    free(side);
    free(home);
    free(work);
    free(view);
    return ns;
}

static double executed(struct sim_bench *b, uint32_t phase, const struct atsi_answer *a,
                       uint32_t rounds)
{
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_record *rec;
    struct atsi_plan *plan;
    struct atsi_exec *x;
    uint64_t before = 0, after = 0;
    assert_int_equal(atsi_check_schedule(b->q, phase, a->placed, &a->schedule, &err), ATSI_OK);
    assert_int_equal(atsi_plan_open(b->q, &plan, &err), ATSI_OK);
    assert_int_equal(atsi_exec_open(b->q, &b->d, &x, &err), ATSI_OK);
    atsi_plan_build(plan, b->q, &a->schedule, phase, atsi_model_source_in_bytes(b->source[phase]),
                    1);
    for (uint32_t r = 0; r < rounds; r++) {
        assert_int_equal(atsi_exec_now(x, &before, &err), ATSI_OK);
        if (r > 0 && phase == ATSI_PHASE_DECODE)
            assert_int_equal(atsi_exec_host(x, atsi_model_source_gap(b->source[phase]), &err),
                             ATSI_OK);
        if (atsi_exec_round(x, plan, atsi_model_source_get(b->source[phase]), r + 1 < rounds, &rec,
                            &err) != ATSI_OK)
            fail_msg("round %u: %s", r, err.msg);
    }
    assert_int_equal(atsi_exec_now(x, &after, &err), ATSI_OK);
    atsi_exec_close(x);
    atsi_plan_close(plan);
    return (double)(after - before);
}

static void same_time(const char *shape, bool contention)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct sim_bench b;
    struct atsi_answer *a;
    sim_bench_open(&b, shape, contention);
    assert_int_equal(atsi_answer_open(b.items->n, &a, &err), ATSI_OK);
    for (uint32_t k = 0; k < 300; k++) {
        uint32_t phase = k % 2, rounds = phase == ATSI_PHASE_DECODE ? 1 + k / 2 % 4 : 1;
        double want, got;
        b.seed = k;
        random_answer(&b, phase, a);
        want = predicted(&b, phase, a, rounds);
        got = executed(&b, phase, a, rounds);
        if (got < want - 3 || got > want + 3)
            fail_msg(
                "%s, plan %u, %u rounds, %u transfers in %u slots: executed %.0f ns, predicted "
                "%.0f ns",
                contention ? "contention" : "alone", k, rounds, a->schedule.n_transfers,
                b.q->slot_depth[phase], got, want);
    }
    atsi_answer_close(a);
    sim_bench_close(&b);
}

static void dense_alone(void **state)
{
    (void)state;
    same_time(sim_bench_dense, false);
}

static void dense_contended(void **state)
{
    (void)state;
    same_time(sim_bench_dense, true);
}

static void moe_alone(void **state)
{
    (void)state;
    same_time(sim_bench_moe, false);
}

static void moe_contended(void **state)
{
    (void)state;
    same_time(sim_bench_moe, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dense_alone),
        cmocka_unit_test(dense_contended),
        cmocka_unit_test(moe_alone),
        cmocka_unit_test(moe_contended),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
