/* SPDX-License-Identifier: Apache-2.0
 *
 * The executor on the simulated machine against the timeline that schedulers predict with: the same
 * plan must take the same time, round after round, with and without contention.
 */
#include "core/round/model_source.h"
#include "core/round/rounds.h"
#include "plugins/sim/sim.h"
#include "sched/problem.h"
#include "sched/timeline.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---------------------------------------------------------------- a machine and a model */
static const char machine_text[] =
    "[platform]\nname = test\nvram_mib = 600\nreserve_mib = 100\n"
    "temp_mib = 40\ncpu_gbs = 40\ncpu_gbs_sustained = 30\n"
    "dram_gbs = 46\ncpu_gflops_q4 = 600\ncpu_gflops_fp16 = 300\n"
    "cpu_gflops_mxfp4 = 500\ncpu_op_us = 8\ngpu_gbs = 270\n"
    "gpu_tflops_q4 = 20\ngpu_tflops_fp16 = 20\ngpu_tflops_mxfp4 = 20\n"
    "gpu_op_us = 6\npcie_gbs = 23\nxfer_us = 10\nck_gbs = 12\n"
    "cg_us = 8\ngc_us = 16\ncg_base_us = 30\ngc_base_us = 45\n"
    "evt_us = 4\nrlat_us = 15\ngap_us = 300\nchunk = 64\n";
static const char dense_text[] = "[model]\nname = dense\nformat = q4\nlayers = 6\nhidden = 2048\n"
                                 "heads = 16\nkv_heads = 4\nhead_dim = 128\nffn = 6144\n"
                                 "vocab = 32000\nattn_bpw = 4.5\nffn_bpw = 4.5\nhead_bpw = 6.5\n";
static const char moe_text[] = "[model]\nname = moe\nformat = q4\nlayers = 6\nhidden = 2048\n"
                               "heads = 16\nkv_heads = 4\nhead_dim = 128\nexperts = 32\ntopk = 4\n"
                               "expert_ffn = 1024\nvocab = 32000\nattn_bpw = 4.5\nffn_bpw = 4.5\n"
                               "head_bpw = 6.5\n";

static const char *no_param(void *ctx, const char *plugin, const char *key)
{
    (void)ctx;
    (void)plugin;
    (void)key;
    return "";
}

struct bench {
    struct atsi_host host;
    struct atsi_machine machine;
    struct atsi_items *items;
    struct atsi_question *q;
    struct atsi_model_source *source[2];
    struct atsi_exec_devices d;
    uint64_t seed;
};

static uint32_t draw(struct bench *b, uint32_t n)
{
    b->seed = b->seed * 6364136223846793005U + 1442695040888963407U;
    return (uint32_t)(b->seed >> 33) % n;
}

static void open_bench(struct bench *b, const char *shape, bool contention)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_question_params p = {.temp_bytes = 40U << 20,
                                     .vram_bytes = 500U << 20,
                                     .max_slots = 3,
                                     .mix_prompt = 64,
                                     .mix_generated = 16,
                                     .n_vocab = 32000};
    memset(b, 0, sizeof *b);
    b->host = (struct atsi_host){.struct_size = sizeof b->host, .param_get = no_param};
    scratch_write("machine.ini", machine_text);
    assert_int_equal(atsi_machine_read(scratch_path("machine.ini"), &b->machine, &err), ATSI_OK);
    scratch_write("model.ini", shape);
    assert_int_equal(atsi_items_from_shape(scratch_path("model.ini"), &b->items, &err), ATSI_OK);
    for (int f = 0; f < 2; f++)
        p.phase[f] = (struct atsi_conditions){.tokens = f == ATSI_PHASE_PREFILL ? 64 : 1,
                                              .ctx = f == ATSI_PHASE_PREFILL ? 0 : 128,
                                              .ctx_max = 512,
                                              .contention = contention,
                                              .load_cpu = 1,
                                              .load_gpu = 1,
                                              .load_pcie = 1};
    assert_int_equal(atsi_question_model(b->items, &b->machine, &p, &b->q, &err), ATSI_OK);
    for (uint32_t f = 0; f < 2; f++)
        assert_int_equal(
            atsi_model_source_open(b->q, &b->machine, f, &p.phase[f], &b->source[f], &err),
            ATSI_OK);
    b->d.host = &b->host;
    b->d.ops[0] = &sim_cpu_ops;
    b->d.ops[1] = &sim_gpu_ops;
    b->d.tx_ops = &sim_transfer_ops;
    for (int v = 0; v < 2; v++) {
        assert_int_equal(b->d.ops[v]->open(&b->host, 0, &b->d.be[v], &err), ATSI_OK);
        assert_int_equal(b->d.ops[v]->queue_open(b->d.be[v], &b->d.queue[v], &err), ATSI_OK);
    }
    assert_int_equal(b->d.tx_ops->open(&b->host, b->d.be[0], b->d.be[1], &b->d.tx, &err), ATSI_OK);
    assert_int_equal(atsi_exec_channels(&b->d, &err), ATSI_OK);
}

static void close_bench(struct bench *b)
{
    b->d.tx_ops->close(b->d.tx);
    for (int v = 0; v < 2; v++) {
        b->d.ops[v]->queue_close(b->d.queue[v]);
        b->d.ops[v]->close(b->d.be[v]);
    }
    for (int f = 0; f < 2; f++)
        atsi_model_source_close(b->source[f]);
    atsi_question_free(b->q);
    atsi_items_free(b->items);
}

/* ---------------------------------------------------------------- one plan, both ways */
static void random_answer(struct bench *b, uint32_t phase, struct atsi_answer *a)
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

static double predicted(struct bench *b, uint32_t phase, const struct atsi_answer *a,
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

static double executed(struct bench *b, uint32_t phase, const struct atsi_answer *a,
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
    struct bench b;
    struct atsi_answer *a;
    open_bench(&b, shape, contention);
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
    close_bench(&b);
}

static void dense_alone(void **state)
{
    (void)state;
    same_time(dense_text, false);
}

static void dense_contended(void **state)
{
    (void)state;
    same_time(dense_text, true);
}

static void moe_alone(void **state)
{
    (void)state;
    same_time(moe_text, false);
}

static void moe_contended(void **state)
{
    (void)state;
    same_time(moe_text, true);
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
