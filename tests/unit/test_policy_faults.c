/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds on simulated devices under policies that answer illegally, late or not at all: the answer
 * is refused with its reason and counted, policy_static answers instead, and the rounds go on.
 */
#include "core/round/model_source.h"
#include "core/round/rounds.h"
#include "plugins/sim/sim.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dlfcn.h>

static const char machine_text[] =
    "[platform]\nname = test\nvram_mib = 600\nreserve_mib = 100\ntemp_mib = 40\ncpu_gbs = 40\n"
    "cpu_gbs_sustained = 30\ndram_gbs = 46\ncpu_gflops_q4 = 600\ncpu_gflops_fp16 = 300\n"
    "cpu_gflops_mxfp4 = 500\ngpu_gbs = 270\ngpu_tflops_q4 = 20\ngpu_tflops_fp16 = 20\n"
    "gpu_tflops_mxfp4 = 20\npcie_gbs = 23\nck_gbs = 12\ncg_us = 8\ngc_us = 16\nchunk = 64\n";
static const char model_text[] = "[model]\nname = dense\nformat = q4\nlayers = 6\nhidden = 2048\n"
                                 "heads = 16\nkv_heads = 4\nhead_dim = 128\nffn = 6144\n"
                                 "vocab = 32000\nattn_bpw = 4.5\nffn_bpw = 4.5\nhead_bpw = 6.5\n";
enum { ROUNDS = 3 };

/* ---------------------------------------------------------------- plugins */
static const char *no_param(void *ctx, const char *plugin, const char *key)
{
    (void)ctx;
    (void)plugin;
    (void)key;
    return NULL;
}

static struct atsi_host host = {.struct_size = sizeof host, .param_get = no_param};

static struct atsi_policy_use load(const char *folder, const char *name)
{
    atsi_plugin_entry_fn *entry;
    const struct atsi_plugin *p;
    const char *why = NULL;
    char path[512];
    void *handle, *symbol;
    (void)snprintf(path, sizeof path, ATSI_BINARY_DIR "/%s/atsinfer-%s.so", folder, name);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays until the end */
    if (handle == NULL)
        fail_msg("%s", dlerror());
    symbol = dlsym(handle, ATSI_PLUGIN_ENTRY);
    assert_non_null(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    p = entry(&host, &why);
    assert_non_null(p);
    return (struct atsi_policy_use){.name = p->components[0]->name, .ops = p->components[0]->ops};
}

/* ---------------------------------------------------------------- rounds */
struct bench {
    struct atsi_machine machine;
    struct atsi_items *items;
    struct atsi_question *q;
    struct atsi_model_source *source[2];
    struct atsi_exec_devices d;
    struct atsi_rounds *rounds;
    char said[4096];
};

static void note(void *ctx, const char *text)
{
    struct bench *b = ctx;
    size_t n = strlen(b->said);
    (void)snprintf(b->said + n, sizeof b->said - n, "%s\n", text);
}

static void open_devices(struct bench *b)
{
    b->d = (struct atsi_exec_devices){
        .host = &host, .ops = {&sim_cpu_ops, &sim_gpu_ops}, .tx_ops = &sim_transfer_ops};
    for (int v = 0; v < 2; v++) {
        assert_int_equal(b->d.ops[v]->open(&host, 0, &b->d.be[v], NULL), ATSI_OK);
        assert_int_equal(b->d.ops[v]->queue_open(b->d.be[v], &b->d.queue[v], NULL), ATSI_OK);
    }
    assert_int_equal(b->d.tx_ops->open(&host, b->d.be[0], b->d.be[1], &b->d.tx, NULL), ATSI_OK);
    assert_int_equal(atsi_exec_channels(&b->d, NULL), ATSI_OK);
}

static void open_question(struct bench *b, struct atsi_rounds_work *work)
{
    struct atsi_conditions base = {
        .tokens = 1, .ctx = 128, .ctx_max = 512, .load_cpu = 1, .load_gpu = 1, .load_pcie = 1};
    struct atsi_question_params p = {.phase = {base, base},
                                     .temp_bytes = 40U << 20,
                                     .vram_bytes = 100U << 20,
                                     .max_slots = 3,
                                     .mix_prompt = 64,
                                     .mix_generated = 16,
                                     .n_vocab = 32000};
    p.phase[ATSI_PHASE_PREFILL].tokens = 64;
    scratch_write("machine.ini", machine_text);
    scratch_write("model.ini", model_text);
    assert_int_equal(atsi_machine_read(scratch_path("machine.ini"), &b->machine, NULL), ATSI_OK);
    assert_int_equal(atsi_items_from_shape(scratch_path("model.ini"), &b->items, NULL), ATSI_OK);
    b->items->items[3].pinned = ATSI_DEVICE_HOST; /* for a policy that ignores rules */
    assert_int_equal(atsi_question_model(b->items, &b->machine, &p, &b->q, NULL), ATSI_OK);
    for (uint32_t f = 0; f < 2; f++) {
        assert_int_equal(
            atsi_model_source_open(b->q, &b->machine, f, &p.phase[f], &b->source[f], NULL),
            ATSI_OK);
        work->source[f] = atsi_model_source_get(b->source[f]);
        work->in_bytes[f] = atsi_model_source_in_bytes(b->source[f]);
    }
}

static void open_bench(struct bench *b, struct atsi_policy_use policy, uint64_t limit_ns)
{
    struct atsi_rounds_params params = {.place = policy,
                                        .schedule = policy,
                                        .fallback = load("lib/atsinfer", "policy_static"),
                                        .time_limit_ns = limit_ns,
                                        .dynamic = true,
                                        .say = note,
                                        .say_ctx = b};
    struct atsi_rounds_work work;
    struct atsi_err err = ATSI_ERR_INIT;
    memset(b, 0, sizeof *b);
    open_question(b, &work);
    open_devices(b);
    if (atsi_rounds_open(b->q, &b->d, &work, &params, &b->rounds, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static void close_bench(struct bench *b)
{
    atsi_rounds_close(b->rounds);
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

/* One round of prefill, some of decode. */
static void play(struct bench *b, struct atsi_rounds_counts *counts)
{
    struct atsi_round_result res;
    struct atsi_err err = ATSI_ERR_INIT;
    for (uint32_t k = 0; k <= ROUNDS; k++) {
        uint32_t phase = k == 0 ? ATSI_PHASE_PREFILL : ATSI_PHASE_DECODE;
        if (atsi_rounds_step(b->rounds, phase, k == 0 ? 64 : 1, 128, 10, &res, &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        assert_true(res.ns > 0);
    }
    atsi_rounds_counts(b->rounds, counts);
    assert_int_equal(counts->rounds, ROUNDS + 1);
}

/* Placement and schedules are those of policy_static. */
static void same_as_static(struct bench *b)
{
    static struct bench other;
    struct atsi_rounds_counts counts;
    uint32_t n = b->items->n;
    open_bench(&other, load("lib/atsinfer", "policy_static"), 0);
    play(&other, &counts);
    assert_int_equal(counts.illegal + counts.failed + counts.late, 0);
    assert_memory_equal(atsi_rounds_placement(b->rounds)->device,
                        atsi_rounds_placement(other.rounds)->device, n * sizeof(int32_t));
    for (uint32_t f = 0; f < 2; f++)
        assert_memory_equal(atsi_rounds_schedule(b->rounds, f)->device,
                            atsi_rounds_schedule(other.rounds, f)->device, n * sizeof(int32_t));
    close_bench(&other);
}

/* In decode policy_static promotes nothing; in prefill all that can move. */
static void runs_under_fallback(struct bench *b)
{
    const int32_t *placed = atsi_rounds_placement(b->rounds)->device;
    const struct atsi_schedule *decode = atsi_rounds_schedule(b->rounds, ATSI_PHASE_DECODE);
    assert_int_equal(decode->n_transfers, 0);
    assert_memory_equal(decode->device, placed, b->items->n * sizeof *placed);
    assert_true(atsi_rounds_schedule(b->rounds, ATSI_PHASE_PREFILL)->n_transfers > 0);
}

/* ---------------------------------------------------------------- tests */
static void test_good(void **state)
{
    static struct bench b;
    struct atsi_rounds_counts n;
    (void)state;
    open_bench(&b, load("tests/policies", "good"), 0);
    play(&b, &n);
    assert_int_equal(n.illegal + n.failed + n.late, 0);
    assert_string_equal(b.said, "");
    assert_int_equal(n.schedules, ROUNDS + 1);
    assert_true(atsi_rounds_schedule(b.rounds, ATSI_PHASE_DECODE)->n_transfers > 0);
    close_bench(&b);
}

static void test_illegal_placements(void **state)
{
    static const char *const fault[][2] = {
        {"over_budget", "policy over_budget: illegal answer to place: over budget: device 1 holds"},
        {"ignores_rules", "policy ignores_rules: illegal answer to place: item 3 (L0.attn): placed "
                          "on device 1, a rule asks for 0"}};
    (void)state;
    for (int k = 0; k < 2; k++) {
        static struct bench b;
        struct atsi_rounds_counts n;
        struct atsi_policy_use use = load("tests/policies", fault[k][0]);
        open_bench(&b, use, 0);
        atsi_rounds_counts(b.rounds, &n);
        assert_int_equal(n.illegal, 1);
        if (strstr(b.said, fault[k][1]) == NULL)
            fail_msg("%s", b.said);
        play(&b, &n);
        assert_int_equal(n.illegal, 1); /* its schedules are legal */
        close_bench(&b);
    }
}

/* A policy whose schedule never counts. */
static void refused(const char *name, uint64_t limit_ns, const char *words, uint32_t illegal,
                    uint32_t failed, uint32_t late)
{
    static struct bench b;
    struct atsi_rounds_counts n;
    open_bench(&b, load("tests/policies", name), limit_ns);
    play(&b, &n);
    if (strstr(b.said, words) == NULL)
        fail_msg("%s: %s", name, b.said);
    assert_int_equal(n.illegal, illegal);
    assert_int_equal(n.failed, failed);
    assert_int_equal(n.late, late);
    runs_under_fallback(&b);
    close_bench(&b);
}

static void test_illegal_schedules(void **state)
{
    (void)state;
    refused("wrong_device", 0,
            "policy wrong_device: illegal answer to schedule: item 48 (L6.head): device 7, there "
            "are 2",
            ROUNDS + 1, 0, 0);
    refused("order", 0,
            "policy order: illegal answer to schedule: transfer order blocks: slot 0 is refilled",
            ROUNDS + 1, 0, 0);
}

static void test_failures(void **state)
{
    (void)state;
    refused("fails", 0, "policy fails failed to schedule: no idea about 49 items", 0, ROUNDS + 1,
            0);
}

/* It sleeps for longer than its limit.  The fallback answers too late as well, if this machine is
 * busy enough; so its answers are not looked at here, but the policy's are never taken. */
static void test_late(void **state)
{
    static struct bench b;
    struct atsi_rounds_counts n;
    (void)state;
    open_bench(&b, load("tests/policies", "slow"), 1000000);
    play(&b, &n);
    assert_non_null(strstr(b.said, "policy slow: late answer to schedule: "));
    assert_non_null(strstr(b.said, " ms, policy.time_limit is 1.000 ms"));
    assert_true(n.late >= ROUNDS + 1);
    assert_int_equal(n.illegal + n.failed, 0);
    assert_int_equal(atsi_rounds_schedule(b.rounds, ATSI_PHASE_DECODE)->n_transfers, 0);
    close_bench(&b);
}

/* It keeps a plan before there is one: refused once per phase, then the fallback's plan is kept. */
static void test_keeps_nothing(void **state)
{
    static struct bench b;
    struct atsi_rounds_counts n;
    (void)state;
    open_bench(&b, load("tests/policies", "keeps"), 0);
    play(&b, &n);
    assert_non_null(strstr(b.said, "policy keeps: illegal answer to schedule: keeps a plan, but "
                                   "none is in force"));
    assert_int_equal(n.illegal, 2);
    assert_int_equal(n.kept, ROUNDS - 1);
    runs_under_fallback(&b);
    close_bench(&b);
}

/* Placement and schedules refused: everything is as if policy_static had been asked alone. */
static void test_fallback_is_policy_static(void **state)
{
    static struct bench b;
    struct atsi_rounds_counts n;
    static struct atsi_policy_ops both;
    struct atsi_policy_use use = {.name = "both", .ops = &both};
    (void)state;
    both = *load("tests/policies", "over_budget").ops;
    both.schedule = load("tests/policies", "fails").ops->schedule;
    open_bench(&b, use, 0);
    play(&b, &n);
    assert_int_equal(n.illegal, 1);
    assert_int_equal(n.failed, ROUNDS + 1);
    same_as_static(&b);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_illegal_placements),
        cmocka_unit_test(test_illegal_schedules),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_keeps_nothing),
        cmocka_unit_test(test_fallback_is_policy_static),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
