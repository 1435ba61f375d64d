/* SPDX-License-Identifier: Apache-2.0
 *
 * Measuring tables of costs on the reference backend and the test accelerator, with the demo
 * models: what a table holds, that it is kept and found again, why one is not, and the questions it
 * answers.  How long anything takes matters to no line of this file.
 */
#include "core/newfile.h"
#include "core/round/devices.h"
#include "core/round/measure.h"
#include "core/round/probe.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TWIN ATSI_BINARY_DIR "/tests/twin/atsinfer-twin.so"
#define DENSE ATSI_SOURCE_DIR "/demo/demo-dense-q4_k_m.gguf"
#define MOE ATSI_SOURCE_DIR "/demo/demo-moe-q4_k_m.gguf"

struct bench {
    struct atsi_runtime *rt;
    struct atsi_model *model;
    struct atsi_devices v;
    struct atsi_measure_request r;
    uint32_t told, total;
    volatile int cancel;
    uint32_t cancel_at; /* calls of progress; 0: never */
    char log[4096];
};

static void progress(void *ctx, const struct atsi_measure_progress *p)
{
    struct bench *b = ctx;
    assert_int_equal(p->done, b->told);
    assert_true(p->done < p->total);
    assert_true(p->what[0] != '\0');
    b->told++;
    b->total = p->total;
    if (b->cancel_at != 0 && b->told >= b->cancel_at)
        b->cancel = 1;
}

static void take_log(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    struct bench *b = ctx;
    size_t at = strlen(b->log);
    (void)level;
    (void)snprintf(b->log + at, sizeof b->log - at, "%s: %s\n", who, msg);
}

static void open_bench(struct bench *b, const char *model, const char *accel)
{
    static const char *const files[] = {TWIN, NULL};
    const char *const overrides[] = {"backend.cpu=cpu_ref", "cpu.threads=1", accel, NULL};
    struct atsi_runtime_params rp = {.struct_size = sizeof rp,
                                     .overrides = overrides,
                                     .plugin_files = files,
                                     .log = take_log,
                                     .log_ctx = b,
                                     .log_level = ATSI_LOG_INFO};
    struct atsi_model_params mp = {.struct_size = sizeof mp, .no_weights = ATSI_PLAN_ONLY};
    struct atsi_err err = ATSI_ERR_INIT;
    memset(b, 0, sizeof *b);
    if (atsi_runtime_open(&rp, &b->rt, &err) != ATSI_OK ||
        atsi_model_open(b->rt, model, &mp, &b->model, &err) != ATSI_OK ||
        atsi_devices_open(b->rt, &b->v, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    b->r = (struct atsi_measure_request){.rt = b->rt,
                                         .model = b->model,
                                         .d = &b->v.d,
                                         .backend = {b->v.backend[0], b->v.backend[1]},
                                         .transfer = b->v.transfer,
                                         .chunk = 8,
                                         .ctx_max = 64,
                                         .type_k = ATSI_TYPE_F16,
                                         .type_v = ATSI_TYPE_F16,
                                         .budget_ns = 1,
                                         .progress = progress,
                                         .progress_ctx = b,
                                         .cancel = &b->cancel};
}

static void close_bench(struct bench *b)
{
    atsi_devices_close(&b->v);
    atsi_model_close(b->model);
    atsi_runtime_close(b->rt);
}

static struct atsi_costs *measure(struct bench *b)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c;
    if (atsi_costs_measure(&b->r, &c, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return c;
}

/* ---------------------------------------------------------------- tables */
/* Every operation of the graph has an entry on a device, with times at one token and at a chunk. */
static void check_complete(const struct bench *b, const struct atsi_costs *c, uint32_t device)
{
    const struct atsi_tensor *const *tensors = atsi_model_info(b->model)->tensors;
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_graph *g;
    assert_int_equal(atsi_model_graph(b->model, &g, &err), ATSI_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct atsi_cost_shape s;
        const struct atsi_cost_op *op;
        atsi_cost_shape_of(g, tensors, i, ATSI_LAYOUT_ROWS, b->r.type_k, b->r.type_v, &s);
        op = atsi_costs_find(c, device, &s);
        if (op == NULL)
            fail_msg("device %u: node %u (%s) has no entry", device, i,
                     atsi_cost_kind_name(s.kind));
        assert_int_equal(op->time[0].tokens, 1);
        for (uint32_t k = 0; k < op->n; k++) {
            const struct atsi_cost_time *t = &op->time[k];
            assert_true(t->low_ns >= 1 && t->low_ns <= t->cold_ns && t->cold_ns <= t->high_ns);
            assert_true(t->n >= 1 && t->tokens <= b->r.chunk);
        }
        if (s.kind == ATSI_OP_ATTN) { /* with a past, too */
            assert_true(op->time[op->n - 1].ctx > 0);
            assert_true(op->time[op->n - 1].ctx + b->r.chunk <= b->r.ctx_max);
        }
    }
}

static void host_alone(void **state)
{
    struct bench b;
    struct atsi_costs *c;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=none");
    c = measure(&b);
    assert_int_equal(b.told, b.total);
    check_complete(&b, c, ATSI_DEVICE_HOST);
    assert_false(atsi_costs_has_accel(c));
    assert_int_equal(c->n_copies[ATSI_COPY_PINNED], 0);
    assert_true(c->memory.cpu_alone > 0);
    assert_true(c->memory.copy_alone == 0);
    assert_int_equal(c->chunk, 8);
    assert_string_equal(atsi_costs_key(c, "accel"), "none");
    assert_non_null(strstr(atsi_costs_key(c, "backend"), "cpu_ref"));
    atsi_costs_free(c);
    close_bench(&b);
}

static void with_accelerator(void **state)
{
    const char *const models[] = {DENSE, MOE};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct bench b;
        struct atsi_costs *c;
        open_bench(&b, models[k], "backend.accel=twin");
        c = measure(&b);
        assert_int_equal(b.told, b.total);
        check_complete(&b, c, ATSI_DEVICE_HOST);
        check_complete(&b, c, ATSI_DEVICE_ACCEL);
        for (uint32_t i = 0; i < ATSI_N_COPIES; i++) {
            assert_true(c->n_copies[i] > 0);
            assert_true(c->copies[i][0].ns > 0);
        }
        assert_true(c->memory.copy_alone > 0);
        assert_true(c->memory.cpu_together > 0);
        assert_true(strncmp(atsi_costs_key(c, "transfer"), "twin ", 5) == 0);
        atsi_costs_free(c);
        close_bench(&b);
    }
}

/* The session's thread is not left with another number of workers, and nothing is left behind. */
static void cancelled(void **state)
{
    struct bench b;
    struct atsi_costs *c = NULL;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=twin");
    for (uint32_t at = 1; at < 60; at += 14) {
        b.told = 0;
        b.cancel = 0;
        b.cancel_at = at;
        assert_int_equal(atsi_costs_measure(&b.r, &c, &err), ATSI_EINTR);
        assert_null(c);
        assert_int_equal(b.told, at);
        assert_non_null(strstr(err.msg, "interrupted"));
    }
    close_bench(&b);
}

/* A device that fails while it is measured is an error with its own words. */
static void failing_device(void **state)
{
    const char *const calls[] = {"alloc", "queue", "wait", "work"};
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct bench b;
        struct atsi_costs *c = NULL;
        struct atsi_err err = ATSI_ERR_INIT;
        char name[64];
        (void)snprintf(name, sizeof name, "%s", calls[k]);
        assert_int_equal(setenv("ATSINFER_PLUGIN_TWIN_FAIL_CALL", name, 1), 0);
        assert_int_equal(setenv("ATSINFER_PLUGIN_TWIN_FAIL_AT", k == 0 ? "2" : "9", 1), 0);
        assert_int_equal(setenv("ATSINFER_PLUGIN_TWIN_FAIL_FOR", "0", 1), 0);
        open_bench(&b, DENSE, "backend.accel=twin");
        assert_true(atsi_costs_measure(&b.r, &c, &err) < 0);
        assert_null(c);
        assert_non_null(strstr(err.msg, "failed, as asked"));
        close_bench(&b);
    }
    (void)unsetenv("ATSINFER_PLUGIN_TWIN_FAIL_CALL");
    (void)unsetenv("ATSINFER_PLUGIN_TWIN_FAIL_AT");
    (void)unsetenv("ATSINFER_PLUGIN_TWIN_FAIL_FOR");
}

/* ---------------------------------------------------------------- the cache */
static struct atsi_costs *obtain(struct bench *b, bool force)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c;
    b->told = 0;
    b->log[0] = '\0';
    if (atsi_costs_obtain(&b->r, force, &c, NULL, 0, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return c;
}

static void kept_and_found(void **state)
{
    struct bench b;
    struct atsi_costs *c, *again;
    char path[512];
    struct stat st;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=none");
    assert_int_equal(atsi_costs_path(&b.r, false, path, sizeof path, &err), ATSI_OK);
    assert_non_null(strstr(path, "/cache/atsinfer/profiles/"));
    assert_int_not_equal(stat(path, &st), 0);
    c = obtain(&b, false);
    assert_true(b.told > 0);
    assert_non_null(strstr(b.log, "first use"));
    assert_int_equal(stat(path, &st), 0);
    again = obtain(&b, false);
    assert_int_equal(b.told, 0);
    assert_true(atsi_costs_hash(c) == atsi_costs_hash(again));
    assert_int_equal(again->n_keys, c->n_keys);
    atsi_costs_free(again);
    again = obtain(&b, true); /* asked for */
    assert_true(b.told > 0);
    atsi_costs_free(again);
    atsi_costs_free(c);
    close_bench(&b);
}

/* Changes one line of the kept table. */
static void tamper(struct bench *b, const char *begin, const char *with)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char path[512], line[600], temp[520];
    FILE *in, *out;
    assert_int_equal(atsi_costs_path(&b->r, false, path, sizeof path, &err), ATSI_OK);
    (void)snprintf(temp, sizeof temp, "%s.new", path);
    in = fopen(path, "re");
    out = fopen(temp, "we");
    assert_non_null(in);
    assert_non_null(out);
    while (fgets(line, sizeof line, in) != NULL)
        (void)fputs(strncmp(line, begin, strlen(begin)) == 0 ? with : line, out);
    (void)fclose(in);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(rename(temp, path), 0);
}

static void stale(void **state)
{
    static const struct {
        const char *line, *with, *why;
    } cases[] = {
        {"key cpu ", "key cpu some other machine\n", "cpu was \"some other machine\", now \""},
        {"key threads ", "key threads 7 in decode, 7 in prefill\n", "threads was \"7 in"},
        {"key backend ", "key backend cpu_ref 0.0.9, build 0000000000000000\n", "0.0.9"},
        {"key memory ", "key memory 12 MiB\n", "memory was \"12 MiB\""},
        {"key host ", "", "host was \"not noted\""},
        {"key ctx ", "key ctx 3\n", "ctx was \"3\", now \"64\""},
        {"chunk ", "chunk 4\n", "rounds of up to 4 tokens, 8 are asked for"},
        {"atsinfer costs ", "atsinfer costs 99\n", "version 99, expected 1"},
        {"end", "", "cut off"},
    };
    struct bench b;
    struct atsi_costs *c;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=none");
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        c = obtain(&b, false);
        atsi_costs_free(c);
        tamper(&b, cases[k].line, cases[k].with);
        c = obtain(&b, false);
        if (b.told == 0 || strstr(b.log, cases[k].why) == NULL)
            fail_msg("%s: told %u times, said: %s", cases[k].with, b.told, b.log);
        atsi_costs_free(c);
    }
    close_bench(&b);
}

/* No place to keep it: measured all the same. */
static void no_cache(void **state)
{
    struct bench b;
    struct atsi_costs *c;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=none");
    assert_int_equal(setenv("XDG_CACHE_HOME", "/proc/nowhere", 1), 0);
    c = obtain(&b, false);
    assert_true(b.told > 0);
    assert_non_null(strstr(b.log, "not kept"));
    atsi_costs_free(c);
    close_bench(&b);
}

/* ---------------------------------------------------------------- questions */
static struct atsi_question_params question_params(void)
{
    struct atsi_question_params p = {.vram_bytes = 8U << 20,
                                     .temp_bytes = 2U << 20,
                                     .max_slots = 4,
                                     .mix_prompt = 64,
                                     .mix_generated = 8,
                                     .n_vocab = 1000};
    for (int f = 0; f < 2; f++)
        p.phase[f] = (struct atsi_conditions){.tokens = f == ATSI_PHASE_PREFILL ? 8 : 1,
                                              .ctx = f == ATSI_PHASE_PREFILL ? 0 : 32,
                                              .ctx_max = 64,
                                              .contention = true,
                                              .load_cpu = 1,
                                              .load_gpu = 1,
                                              .load_pcie = 1};
    return p;
}

static struct atsi_items *make_items(struct bench *b, uint64_t tile)
{
    const struct atsi_items_params ip = {
        .tile_bytes = tile, .type_k = ATSI_TYPE_F16, .type_v = ATSI_TYPE_F16};
    struct atsi_err err = ATSI_ERR_INIT;
    const struct atsi_graph *g;
    struct atsi_items *it;
    assert_int_equal(atsi_model_graph(b->model, &g, &err), ATSI_OK);
    assert_int_equal(atsi_items_from_graph(g, atsi_model_info(b->model)->tensors, &ip, &it, &err),
                     ATSI_OK);
    return it;
}

/* The result takes what copying it does: a row of logits, or the largest alone. */
static void check_result(const struct bench *b, const struct atsi_question *row,
                         struct atsi_items *it, const uint32_t *layout)
{
    struct atsi_question_params p = question_params();
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_question *q;
    assert_int_equal(row->p.result_ns, atsi_costs_copy_ns(row->costs, ATSI_COPY_TO_HOST, 4000));
    p.result_bytes = 320;
    if (atsi_question_from(&b->r, row->costs, it, layout, &p, NULL, &q, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(q->p.result_ns, atsi_costs_copy_ns(row->costs, ATSI_COPY_TO_HOST, 320));
    atsi_question_free(q);
}

static void asks(void **state)
{
    static const uint32_t layout[ATSI_N_DEVICES] = {ATSI_LAYOUT_PANELS, ATSI_LAYOUT_PANELS};
    const struct atsi_question_params p = question_params();
    const char *const models[] = {DENSE, MOE};
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct bench b;
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_question *q;
        struct atsi_costs *c;
        struct atsi_items *it;
        open_bench(&b, models[k], "backend.accel=twin");
        it = make_items(&b, 0);
        if (atsi_question_here(&b.r, it, layout, &p, NULL, &q, &c, &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        assert_ptr_equal(q->costs, c);
        for (uint32_t f = 0; f < 2; f++)
            for (uint32_t i = 0; i < it->n; i++) {
                const struct atsi_item_cost *cpu = &q->cost[f][i], *gpu = cpu + it->n;
                assert_true(cpu->run_ns > 0 && gpu->run_ns > 0);
                assert_true(cpu->in_ns > 0 && gpu->in_ns > 0);
                assert_true(cpu->contended_run >= 1 && cpu->contended_run <= 1000);
                assert_int_equal(gpu->contended_run, 1000);
                assert_true(it->items[i].can_promote != 0 || gpu->transfer_ns == 0);
                /* a prompt of eight tokens is no faster than one */
                assert_true(f == ATSI_PHASE_DECODE || cpu->run_ns >= q->cost[1][i].run_ns ||
                            it->work[i].kind == ATSI_WORK_ATTENTION);
            }
        check_result(&b, q, it, layout);
        atsi_question_free(q);
        atsi_costs_free(c);
        atsi_items_free(it);
        close_bench(&b);
    }
}

/* Tiles share their product by rows, and the last one has the rest of the item. */
static void tiles(void **state)
{
    static const uint32_t layout[ATSI_N_DEVICES] = {0};
    const struct atsi_question_params p = question_params();
    struct bench b;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_question *q[2];
    struct atsi_costs *c[2];
    struct atsi_items *it[2];
    uint64_t sum[2] = {0, 0}, tiled = 0;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=none");
    for (int k = 0; k < 2; k++) {
        it[k] = make_items(&b, k == 0 ? 0 : 32U << 10);
        if (atsi_question_here(&b.r, it[k], layout, &p, NULL, &q[k], &c[k], &err) != ATSI_OK)
            fail_msg("%s", err.msg);
        for (uint32_t i = 0; i < it[k]->n; i++) {
            sum[k] += q[k]->cost[1][i].run_ns;
            tiled += it[k]->places[i].end_row != 0;
        }
    }
    assert_true(tiled > 2);
    assert_true(sum[1] + it[1]->n >= sum[0] && sum[1] <= sum[0] + it[1]->n);
    for (int k = 0; k < 2; k++) {
        atsi_question_free(q[k]);
        atsi_costs_free(c[k]);
        atsi_items_free(it[k]);
    }
    close_bench(&b);
}

/* A table of another model has no times for this one's operations, and says which. */
static void another_model(void **state)
{
    const struct atsi_question_params p = question_params();
    struct bench dense, moe;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c;
    struct atsi_items *it;
    struct atsi_question *q = NULL;
    struct atsi_costs_model m = {.type_k = ATSI_TYPE_F16, .type_v = ATSI_TYPE_F16};
    (void)state;
    open_bench(&dense, DENSE, "backend.accel=none");
    open_bench(&moe, MOE, "backend.accel=none");
    c = measure(&dense);
    it = make_items(&moe, 0);
    m.tensors = atsi_model_info(moe.model)->tensors;
    assert_int_equal(atsi_model_graph(moe.model, &m.graph, &err), ATSI_OK);
    assert_int_equal(atsi_question_measured(it, c, &m, &p, NULL, &q, &err), ATSI_ENOENT);
    assert_null(q);
    assert_non_null(strstr(err.msg, "lack"));
    assert_non_null(strstr(err.msg, "profile -m MODEL --force"));
    atsi_items_free(it);
    atsi_costs_free(c);
    close_bench(&moe);
    close_bench(&dense);
}

/* ---------------------------------------------------------------- probes */
/* Each class gives a time sooner or later, against one that the table knows. */
static void probes(void **state)
{
    struct bench b;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c;
    struct atsi_prober *p;
    const struct atsi_probe *hook;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=twin");
    c = measure(&b);
    if (atsi_prober_open(&b.r, c, &p, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    hook = atsi_prober_hook(p);
    for (int round = 0; round < 3; round++)
        for (uint32_t k = 0; k < ATSI_N_CLASSES; k++) {
            uint64_t seen = 0, profile = 0;
            int got;
            assert_int_equal(hook->start(hook->ctx, k, &err), ATSI_OK);
            do
                got = hook->take(hook->ctx, &seen, &profile, &err);
            while (got == 0);
            assert_int_equal(got, 1);
            assert_true(seen > 0 && profile > 0);
        }
    assert_int_equal(hook->start(hook->ctx, ATSI_CLASS_XFER, &err), ATSI_OK);
    atsi_prober_close(p); /* with one under way */
    atsi_costs_free(c);
    close_bench(&b);
}

/* Without an accelerator its classes cannot be measured, which is no error. */
static void probes_of_the_host(void **state)
{
    struct bench b;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c;
    struct atsi_prober *p;
    const struct atsi_probe *hook;
    uint64_t seen, profile;
    (void)state;
    open_bench(&b, DENSE, "backend.accel=none");
    c = measure(&b);
    assert_int_equal(atsi_prober_open(&b.r, c, &p, &err), ATSI_OK);
    hook = atsi_prober_hook(p);
    assert_int_equal(hook->start(hook->ctx, ATSI_CLASS_GPU, &err), 1);
    assert_int_equal(hook->start(hook->ctx, ATSI_CLASS_ACT, &err), 1);
    assert_int_equal(hook->start(hook->ctx, ATSI_CLASS_XFER, &err), 1);
    assert_int_equal(hook->start(hook->ctx, ATSI_CLASS_CPU, &err), ATSI_OK);
    assert_int_equal(hook->take(hook->ctx, &seen, &profile, &err), 1);
    atsi_prober_close(p);
    atsi_costs_free(c);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(host_alone, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(with_accelerator, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(cancelled, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(failing_device, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(kept_and_found, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(stale, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(no_cache, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(asks, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(tiles, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(another_model, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(probes, scratch_enter, scratch_leave),
        cmocka_unit_test_setup_teardown(probes_of_the_host, scratch_enter, scratch_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
