/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of costs without any measuring: times between the points, files that strangers wrote, the
 * roofline of a table, and contention as it was measured.
 */
#include "core/round/costs.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char table_text[] = "atsinfer costs 1\n"
                                 "key cpu Some CPU, capabilities 1.0\n"
                                 "key backend cpu_ref 0.1.0, build 0123\n"
                                 "key kv Q8_0 F32\n"
                                 "key ctx 2048\n"
                                 "# a comment\n"
                                 "\n"
                                 "chunk 64\n"
                                 "took 1234\n"
                                 "mem 1000000 8589934592\n"
                                 "launch 100 2000\n"
                                 "sync 0 5000\n"
                                 "split 3000\n"
                                 "dram 40 20 30 10\n"
                                 "copy pinned 1000 600 500 700 9\n"
                                 "copy pinned 100000 5550 5000 9000 9\n"
                                 "copy pageable 1000 900 900 900 3\n"
                                 "copy to_accel 4096 1000 1000 1000 3\n"
                                 "copy to_host 4096 9000 9000 9000 3\n"
                                 "threads decode 1 900 850 1000 5\n"
                                 "threads decode 2 460 450 500 5\n"
                                 "threads prefill 1 8000 7900 8100 3\n"
                                 "op host matmul Q4_K rows 256 1024 0 0 0 0 0 0\n"
                                 "time 1 0 1000 900 1100 500 15\n"
                                 "time 4 0 2000 1900 2100 0 15\n"
                                 "time 16 0 8000 7000 9000 0 15\n"
                                 "time 64 0 32000 30000 33000 0 15\n"
                                 "op accel matmul Q4_K panels 256 1024 0 0 0 0 0 0\n"
                                 "time 1 0 100 100 100 0 15\n"
                                 "time 64 0 640 640 640 0 15\n"
                                 "op host attn - rows 8 2 64 64 1500 1 1 0\n"
                                 "time 1 0 1000 1000 1000 0 5\n"
                                 "time 4 0 4000 4000 4000 0 5\n"
                                 "time 1 1000 3000 3000 3000 0 5\n"
                                 "time 1 2000 5000 5000 5000 0 5\n"
                                 "end\n";

static struct atsi_costs *read_text(const char *text)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c = NULL;
    scratch_write("table", text);
    if (atsi_costs_read(scratch_path("table"), &c, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return c;
}

static struct atsi_cost_op *find(const struct atsi_costs *c, uint32_t device, uint32_t kind)
{
    for (uint32_t i = 0; i < c->n_ops; i++)
        if (c->ops[i].device == device && c->ops[i].shape.kind == kind)
            return &c->ops[i];
    fail_msg("no operation %u on device %u", kind, device);
    return NULL;
}

/* ---------------------------------------------------------------- between the points */
static void tokens(void **state)
{
    struct atsi_costs *c = read_text(table_text);
    const struct atsi_cost_op *op = find(c, 0, ATSI_OP_MATMUL);
    uint64_t before = 0;
    (void)state;
    assert_int_equal(atsi_cost_op_ns(op, 1, 0, false), 1000);
    assert_int_equal(atsi_cost_op_ns(op, 4, 0, false), 2000);
    assert_int_equal(atsi_cost_op_ns(op, 2, 0, false), 1414); /* the power law: x sqrt(2) */
    assert_int_equal(atsi_cost_op_ns(op, 8, 0, false), 4000);
    assert_int_equal(atsi_cost_op_ns(op, 64, 0, false), 32000);
    assert_int_equal(atsi_cost_op_ns(op, 128, 0, false), 64000); /* the last rate */
    assert_int_equal(atsi_cost_op_ns(op, 1, 0, true), 500);
    assert_int_equal(atsi_cost_op_ns(op, 4, 0, true), 2000); /* not measured: as cold */
    for (uint32_t t = 1; t < 300; t++) {
        uint64_t ns = atsi_cost_op_ns(op, t, 0, false);
        assert_true(ns >= before);
        before = ns;
    }
    assert_true(atsi_cost_op_ns(op, UINT32_MAX, UINT32_MAX, false) > 0); /* and ends */
    atsi_costs_free(c);
}

static void contexts(void **state)
{
    struct atsi_costs *c = read_text(table_text);
    struct atsi_cost_op *op = find(c, 0, ATSI_OP_ATTN);
    (void)state;
    assert_int_equal(atsi_cost_op_ns(op, 1, 0, false), 1000);
    assert_int_equal(atsi_cost_op_ns(op, 1, 500, false), 2000);
    assert_int_equal(atsi_cost_op_ns(op, 1, 1000, false), 3000);
    assert_int_equal(atsi_cost_op_ns(op, 1, 1400, false), 3800);
    assert_int_equal(atsi_cost_op_ns(op, 1, 90000, false), 4000); /* a window of 1500 */
    op->shape.dims[4] = 0;
    assert_int_equal(atsi_cost_op_ns(op, 1, 4000, false), 9000);
    assert_int_equal(atsi_cost_op_ns(op, 4, 1000, false), 12000); /* by the last rate in tokens */
    atsi_costs_free(c);
}

/* Noise that makes more work look faster is levelled. */
static void levelled(void **state)
{
    struct atsi_costs *c = read_text(table_text);
    struct atsi_cost_op *op = find(c, 0, ATSI_OP_MATMUL);
    (void)state;
    op->time[1].cold_ns = 700;
    assert_int_equal(atsi_cost_op_ns(op, 4, 0, false), 1000);
    assert_int_equal(atsi_cost_op_ns(op, 3, 0, false), 1000);
    op = find(c, 0, ATSI_OP_ATTN);
    op->time[2].cold_ns = 10;
    assert_int_equal(atsi_cost_op_ns(op, 1, 1000, false), 1000);
    atsi_costs_free(c);
}

static void copies(void **state)
{
    struct atsi_costs *c = read_text(table_text);
    (void)state;
    assert_int_equal(atsi_costs_copy_ns(c, ATSI_COPY_PINNED, 1), 600); /* what is fixed */
    assert_int_equal(atsi_costs_copy_ns(c, ATSI_COPY_PINNED, 1000), 600);
    assert_int_equal(atsi_costs_copy_ns(c, ATSI_COPY_PINNED, 50500), 3075);
    assert_int_equal(atsi_costs_copy_ns(c, ATSI_COPY_PINNED, 199000), 10500);
    assert_int_equal(atsi_costs_copy_ns(c, ATSI_COPY_PAGEABLE, 2000), 1800);
    c->n_copies[ATSI_COPY_PAGEABLE] = 0;
    assert_int_equal(atsi_costs_copy_ns(c, ATSI_COPY_PAGEABLE, 2000), 0);
    atsi_costs_free(c);
}

/* ---------------------------------------------------------------- files */
static void written_and_read(void **state)
{
    struct atsi_costs *c = read_text(table_text), *again = NULL;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    assert_int_equal(c->n_ops, 3);
    assert_int_equal(c->chunk, 64);
    assert_int_equal(c->mem_bytes[1], UINT64_C(8589934592));
    assert_true(c->memory.copy_together == 10);
    assert_string_equal(atsi_costs_key(c, "cpu"), "Some CPU, capabilities 1.0");
    assert_string_equal(atsi_costs_key(c, "gpu"), "");
    assert_true(atsi_costs_has_accel(c));
    assert_int_equal(atsi_costs_write(c, scratch_path("again"), &err), ATSI_OK);
    assert_true(atsi_costs_is_table(scratch_path("again")));
    assert_int_equal(atsi_costs_read(scratch_path("again"), &again, &err), ATSI_OK);
    assert_true(atsi_costs_hash(c) == atsi_costs_hash(again));
    assert_int_equal(again->took_ns, 1234);
    assert_int_equal(again->n_keys, c->n_keys);
    for (uint32_t i = 0; i < c->n_ops; i++) {
        struct atsi_cost_op *op = atsi_costs_find(again, c->ops[i].device, &c->ops[i].shape);
        assert_non_null(op);
        assert_int_equal(op->n, c->ops[i].n);
        assert_memory_equal(op->time, c->ops[i].time, op->n * sizeof op->time[0]);
    }
    again->ops[0].time[0].cold_ns++;
    assert_true(atsi_costs_hash(c) != atsi_costs_hash(again));
    atsi_costs_free(again);
    atsi_costs_free(c);
    scratch_write("other", "[platform]\nname = x\n");
    assert_false(atsi_costs_is_table(scratch_path("other")));
    assert_false(atsi_costs_is_table(scratch_path("nowhere")));
}

/* The table with its n-th occurrence of a line replaced. */
static void write_changed(const char *line, const char *with)
{
    const char *at = strstr(table_text, line);
    char text[4096];
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - table_text), table_text, with,
                   at + strlen(line));
    scratch_write("bad", text);
}

static void strangers_files(void **state)
{
    static const struct {
        const char *line, *with, *words;
        int rc;
    } cases[] = {
        {"atsinfer costs 1\n", "hello\n", "bad:1: this is no table", ATSI_EFORMAT},
        {"atsinfer costs 1\n", "atsinfer costs one\n", "no table of costs", ATSI_EFORMAT},
        {"atsinfer costs 1\n", "atsinfer costs 2\n", "version 2, expected 1", ATSI_ENOTSUP},
        {"key cpu Some", "key cpu  \nkey x Some", "bad:2: a key's value is empty", ATSI_EFORMAT},
        {"key ctx", "key cpu", "bad:5: the same key a second time", ATSI_EFORMAT},
        {"key cpu Some", "key cpu \033[2JSome", "bad:2: a key's value holds a control character",
         ATSI_EFORMAT},
        {"key cpu", "key a_name_that_is_far_too_long", "a key without a name", ATSI_EFORMAT},
        {"chunk 64\n", "", "the line \"chunk\" is missing", ATSI_EFORMAT},
        {"chunk 64\n", "chunk 64\nchunk 64\n", "this line a second time", ATSI_EFORMAT},
        {"chunk 64\n", "chunk -1\n", "\"-1\": expected a whole number", ATSI_EFORMAT},
        {"chunk 64\n", "chunk 64 65\n", "too many words", ATSI_EFORMAT},
        {"chunk 64\n", "chunk 99999999999999999999999\n", "up to 16777216", ATSI_EFORMAT},
        {"chunk 64\n", "chunk 0x40\n", "expected a whole number", ATSI_EFORMAT},
        {"mem 1000000 8589934592\n", "mem 1\n", "a number is missing", ATSI_EFORMAT},
        {"dram 40 20", "dram nan 20", "expected GB/s", ATSI_EFORMAT},
        {"dram 40 20", "dram -1 20", "expected GB/s", ATSI_EFORMAT},
        {"threads decode 2", "threads decode 1", "must ascend", ATSI_EFORMAT},
        {"threads decode 1", "threads decode 0", "from 1 on", ATSI_EFORMAT},
        {"threads decode 2", "threads decode 513", "up to 512", ATSI_EFORMAT},
        {"threads decode 2", "threads answer 2", "none of decode, prefill", ATSI_EFORMAT},
        {"threads prefill 1 8000 7900", "threads prefill 1 7000 7900", "the median", ATSI_EFORMAT},
        {"took", "taken", "begins with no word of this format", ATSI_EFORMAT},
        {"copy pinned 100000", "copy pinned 999", "must ascend in bytes", ATSI_EFORMAT},
        {"copy pinned 1000 600", "copy pinned 1000 0", "times above 0", ATSI_EFORMAT},
        {"copy pinned 1000", "copy side 1000", "\"side\" is none of", ATSI_EFORMAT},
        {"op host matmul", "op gpu matmul", "\"gpu\" is none of host, accel", ATSI_EFORMAT},
        {"op host matmul", "op host matmull", "no such operation", ATSI_EFORMAT},
        {"matmul Q4_K rows", "matmul Q9_K rows", "no such weight type", ATSI_EFORMAT},
        {"matmul Q4_K rows", "matmul Q4_K tiles", "\"tiles\" is none of", ATSI_EFORMAT},
        {"op accel matmul Q4_K panels", "op host matmul Q4_K rows", "the same operation a second",
         ATSI_EFORMAT},
        {"time 4 0 2000", "time 1 0 2000", "must ascend by context", ATSI_EFORMAT},
        {"time 1 0 1000 900 1100 500", "time 0 0 1000 900 1100 500", "must ascend", ATSI_EFORMAT},
        {"time 1 0 1000 900 1100 500", "time 1 0 0 0 0 0", "be above 0", ATSI_EFORMAT},
        {"time 1 0 1000 900 1100 500", "time 1 0 99999999999999999", "up to", ATSI_EFORMAT},
        {"op host attn", "end\nop host attn", "a line behind the end", ATSI_EFORMAT},
        {"op host attn - rows 8 2 64 64 1500 1 1 0\n",
         "op host add - rows 1 0 0 0 0 0 0 0\nop host attn - rows 8 2 64 64 1500 1 1 0\n",
         "(add) has no times", ATSI_EFORMAT},
        {"op host matmul Q4_K rows 256 1024 0 0 0 0 0 0\n", "", "belongs to no operation",
         ATSI_EFORMAT},
        {"end\n", "", "cut off", ATSI_EFORMAT},
        {"end\n", "end", "too long, cut off", ATSI_EFORMAT},
    };
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct atsi_err err = ATSI_ERR_INIT;
        struct atsi_costs *c = NULL;
        int rc;
        write_changed(cases[k].line, cases[k].with);
        rc = atsi_costs_read(scratch_path("bad"), &c, &err);
        if (rc != cases[k].rc || strstr(err.msg, cases[k].words) == NULL)
            fail_msg("%s: %d: %s, expected \"%s\"", cases[k].with, rc, err.msg, cases[k].words);
        assert_null(c);
    }
}

/* Cut anywhere and with any byte changed: read or refused with words, never more. */
static void any_damage(void **state)
{
    const size_t n = sizeof table_text - 1;
    char *text = strdup(table_text);
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c;
    (void)state;
    assert_non_null(text);
    for (size_t cut = 0; cut < n; cut++) {
        scratch_write_bytes("bad", table_text, cut);
        assert_true(atsi_costs_read(scratch_path("bad"), &c, &err) < 0);
        assert_true(err.msg[0] != '\0');
    }
    for (size_t at = 0; at < n; at++) {
        const char junk[] = {'\0', '\n', ' ', '9', '-', (char)0xff};
        for (size_t k = 0; k < sizeof junk; k++) {
            text[at] = junk[k];
            scratch_write_bytes("bad", text, n);
            if (atsi_costs_read(scratch_path("bad"), &c, &err) == ATSI_OK) {
                for (uint32_t i = 0; i < c->n_ops; i++)
                    assert_true(atsi_cost_op_ns(&c->ops[i], 100000, 100000, false) > 0);
                atsi_costs_free(c);
            }
        }
        text[at] = table_text[at];
    }
    free(text);
}

static void no_file(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_costs *c = NULL;
    (void)state;
    assert_int_equal(atsi_costs_read(scratch_path("nowhere"), &c, &err), ATSI_ENOENT);
    assert_int_equal(atsi_costs_read(scratch_path("."), &c, &err), ATSI_EIO);
    scratch_write("empty", "");
    assert_int_equal(atsi_costs_read(scratch_path("empty"), &c, &err), ATSI_EFORMAT);
    assert_null(c);
}

/* ---------------------------------------------------------------- what follows from a table */
static void roofline(void **state)
{
    struct atsi_costs *c = read_text(table_text);
    struct atsi_machine m;
    uint32_t k, v;
    (void)state;
    atsi_costs_kv(c, &k, &v);
    assert_int_equal(k, ATSI_TYPE_Q8_0);
    assert_int_equal(v, ATSI_TYPE_F32);
    atsi_costs_machine(c, &m);
    assert_string_equal(m.name, "Some CPU, measured");
    assert_float_equal(m.cpu_gbs, 144.0 * 1024 / 1000, 1e-9); /* 1024 rows of 144 bytes in 1 us */
    assert_float_equal(m.cpu_gflops[ATSI_RATE_QUANT], 2.0 * 256 * 1024 * 64 / 32000, 1e-9);
    assert_float_equal(m.gpu_gbs, 1474.56, 1e-9);
    assert_float_equal(m.dram_gbs, 40, 1e-9);
    assert_float_equal(m.pcie_gbs, 99000.0 / 4950, 1e-9);
    assert_float_equal(m.xfer_us, 0.55, 1e-9);
    assert_float_equal(m.vram_mib, 8192, 1e-9);
    assert_float_equal(m.evt_us, 3, 1e-9);
    assert_float_equal(m.chunk, 64, 1e-9);
    assert_float_equal(m.ctx_max, 2048, 1e-9);
    atsi_costs_free(c);
}

/* Two items as fast as memory, one that computes: what each loses beside a transfer. */
static void contention(void **state)
{
    struct atsi_items *it = atsi_items_new(2, 0, 0);
    struct atsi_question_params p = {
        .vram_bytes = 1U << 30, .temp_bytes = 1U << 29, .max_slots = 4};
    const struct atsi_question_fixed fixed = {0};
    const uint32_t slow[ATSI_N_CLASSES] = {4000, 1000, 1000, 1000};
    struct atsi_question *q;
    (void)state;
    assert_non_null(it);
    q = atsi_question_new(it);
    assert_non_null(q);
    for (uint32_t i = 0; i < 2; i++) {
        it->work[i] = (struct atsi_work){.kind = ATSI_WORK_MATRIX,
                                         .type = ATSI_TYPE_Q8_0,
                                         .in = 1000,
                                         .out = 1000,
                                         .weight_bytes = 40000000};
        it->items[i].can_promote = 1;
    }
    for (int f = 0; f < 2; f++) {
        p.phase[f] = (struct atsi_conditions){.tokens = 1, .ctx_max = 1, .contention = true};
        for (uint32_t i = 0; i < 2; i++) {
            q->cost[f][i].run_ns = i == 0 ? 1000000 : 8000000; /* 40 GB/s; 5 GB/s */
            q->cost[f][2 + i] = (struct atsi_item_cost){
                .run_ns = 1000, .transfer_ns = 2000000, .contended_run = 1000}; /* 20 GB/s */
        }
    }
    q->together = 40; /* of 60 asked for: the CPU kept 30 of 40, the transfer 10 of 20 */
    q->run_lost = 0.25;
    q->copy_lost = 0.5;
    atsi_question_finish(q, &p, &fixed);
    assert_int_equal(q->cost[1][0].contended_run, 750);
    assert_int_equal(q->cost[1][0].contended_copy, 500);
    assert_int_equal(q->cost[1][1].contended_run, 1000); /* 25 GB/s are less than 40 */
    assert_int_equal(q->cost[1][1].contended_copy, 1000);
    atsi_question_slow(q, slow); /* the CPU reads 10 GB/s only: enough for both */
    assert_int_equal(q->now[1][0].contended_run, 1000);
    assert_int_equal(q->now[1][0].contended_copy, 1000);
    assert_int_equal(q->now[1][0].run_ns, 4000000);
    atsi_question_free(q);
    atsi_items_free(it);
}

/* ---------------------------------------------------------------- streaming */
/* 144 KiB cross in 7.923 us, a cut costs 3 us, the CPU takes 0.5 us a token. */
static void from_how_many_tokens_streaming_pays(void **state)
{
    struct atsi_costs *c = read_text(table_text);
    struct atsi_cost_stream s;
    (void)state;
    assert_true(atsi_costs_stream(c, 0, &s));
    assert_int_equal(s.bytes, 144 * 1024);
    assert_int_equal(s.copy_ns, 7923);
    assert_int_equal(s.tokens_hidden, 16);
    assert_int_equal(s.tokens_alone, 23);
    assert_false(atsi_costs_stream(c, 1, &s)); /* attention has no weight */
    c->chunk = 20;
    assert_true(atsi_costs_stream(c, 0, &s));
    assert_int_equal(s.tokens_hidden, 16);
    assert_int_equal(s.tokens_alone, 0); /* not up to there */
    c->n_copies[ATSI_COPY_PINNED] = 0;
    assert_true(atsi_costs_stream(c, 0, &s));
    assert_int_equal(s.tokens_hidden, 0);
    atsi_costs_free(c);
}

/* Of the output part, whose rows are few, and without an accelerator there is no such number. */
static void what_is_not_streamed(void **state)
{
    static const char head[] = "matmul Q4_K rows 256 1024 0 0";
    char text[sizeof table_text], *at;
    struct atsi_costs *c;
    struct atsi_cost_stream s;
    (void)state;
    memcpy(text, table_text, sizeof text);
    at = strstr(text, head);
    assert_non_null(at);
    at[sizeof head - 2] = '1';
    at = strstr(text, "matmul Q4_K panels 256 1024 0 0");
    assert_non_null(at);
    at[sizeof head] = '1';
    c = read_text(text);
    assert_false(atsi_costs_stream(c, 0, &s));
    atsi_costs_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_how_many_tokens_streaming_pays),
        cmocka_unit_test(what_is_not_streamed),
        cmocka_unit_test(tokens),
        cmocka_unit_test(contexts),
        cmocka_unit_test(levelled),
        cmocka_unit_test(copies),
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(strangers_files),
        cmocka_unit_test(any_damage),
        cmocka_unit_test(no_file),
        cmocka_unit_test(roofline),
        cmocka_unit_test(contention),
    };
    return cmocka_run_group_tests(tests, scratch_enter, scratch_leave);
}
