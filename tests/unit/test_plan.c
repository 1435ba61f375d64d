/* SPDX-License-Identifier: Apache-2.0
 *
 * Plan reports: sums are those of the items, the same question gives the same plan, saved plans are
 * used as they are or refused by name, and what does not fit says what would.
 */
#include "atsinfer/plan.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DATA ATSI_SOURCE_DIR "/tests/data/sched/"
#define MIB (1ULL << 20)
#define TEXT_ROOM (1U << 18)

static struct atsi_runtime *rt;

static struct atsi_plan_params params(const char *shape)
{
    return (struct atsi_plan_params){.struct_size = sizeof(struct atsi_plan_params),
                                     .machine = DATA "plan-machine.ini",
                                     .model = shape,
                                     .prompt = 1024,
                                     .generated = 64,
                                     .ctx = 1024,
                                     .max_slots = 8,
                                     .contention = 1};
}

static int open_runtime(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime_params p = {.struct_size = sizeof p};
    int bad = scratch_enter(state);
    if (bad != 0)
        return bad;
    if (atsi_runtime_open(&p, &rt, &err) != ATSI_OK)
        (void)fprintf(stderr, "%s\n", err.msg);
    return rt == NULL;
}

static int close_runtime(void **state)
{
    atsi_runtime_close(rt);
    return scratch_leave(state);
}

static struct atsi_plan_report *make(const struct atsi_plan_params *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_plan_report *r = NULL;
    if (atsi_plan_make(rt, p, &r, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return r;
}

static void refused(const struct atsi_plan_params *p, int status, const char *words)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_plan_report *r = NULL;
    int rc = atsi_plan_make(rt, p, &r, &err);
    if (rc != status || strstr(err.msg, words) == NULL)
        fail_msg("got %d \"%s\", expected %d \"%s\"", rc, err.msg, status, words);
    assert_true((r != NULL) == (status == ATSI_ENOFIT));
    atsi_plan_free(r);
}

/* [borrowed until the next call] */
static char *saved_text(const char *name)
{
    static char text[TEXT_ROOM];
    FILE *f = fopen(scratch_path(name), "r");
    size_t n;
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_int_equal(fclose(f), 0);
    return text;
}

static void save(const struct atsi_plan_report *r, const char *name)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_plan_save(r, scratch_path(name), &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* ---------------------------------------------------------------- sums */
/* Independently of the core: what the items say, added up. */
static void check_sums(const struct atsi_plan_report *r)
{
    const struct atsi_plan_summary *s = atsi_plan_summary(r);
    const struct atsi_plan_memory *m = &s->memory;
    uint64_t there = 0, here = 0;
    uint32_t n_there = 0, moves[2] = {0};
    for (uint32_t i = 0; i < s->n_items; i++) {
        const struct atsi_plan_item *it = atsi_plan_item(r, i);
        assert_int_equal(it->index, i);
        *(it->device != 0 ? &there : &here) += it->bytes;
        n_there += it->device != 0;
        for (int f = 0; f < 2; f++) {
            moves[f] += it->promoted[f];
            assert_true(it->promoted[f] == 0 || (it->device == 0 && it->transfer_ns[f] > 0));
            assert_true((it->slot[f] >= 0) == (it->promoted[f] != 0));
        }
    }
    assert_null(atsi_plan_item(r, s->n_items));
    assert_int_equal(there, m->weights + m->caches);
    assert_int_equal(here, m->host_weights + m->host_caches);
    assert_int_equal(there + here, m->all_weights + m->cache);
    assert_int_equal(m->vram, m->weights + m->caches + m->slots + m->left);
    assert_int_equal(n_there, s->n_resident);
    assert_int_equal(moves[0], s->prefill.n_moves);
    assert_int_equal(moves[1], s->decode.n_moves);
    assert_true(s->decode.slots * s->decode.slot_bytes <= m->slots);
}

static void check_times(const struct atsi_plan_report *r)
{
    const struct atsi_plan_summary *s = atsi_plan_summary(r);
    assert_int_equal(s->ttft_ns,
                     (s->prompt + s->prefill.tokens - 1) / s->prefill.tokens * s->prefill.ns);
    assert_int_equal(s->tpot_ns, s->decode.ns);
    assert_true(s->decode.ns >= s->decode.bound_ns && s->decode.bound_ns > 0);
    assert_true(s->prefill.ns >= s->prefill.bound_ns && s->prefill.bound_ns > 0);
    assert_true(s->decode.limit != ATSI_PLAN_NOTHING && s->decode.limit_permille <= 1000);
    assert_int_equal(s->refused, 0);
}

static void test_sums(void **state)
{
    static const char *const shapes[2] = {DATA "plan-dense.ini", DATA "plan-experts.ini"};
    static const uint64_t vram[3] = {150 * MIB, 300 * MIB, 4096 * MIB};
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int j = 0; j < 3; j++) {
            struct atsi_plan_params p = params(shapes[k]);
            struct atsi_plan_report *r;
            p.vram_bytes = vram[j];
            r = make(&p);
            check_sums(r);
            check_times(r);
            assert_int_equal(atsi_plan_summary(r)->vram_binds, j < 2);
            atsi_plan_free(r);
        }
}

/* ---------------------------------------------------------------- variations */
static void test_more_memory(void **state)
{
    struct atsi_plan_params p = params(DATA "plan-dense.ini"), bigger;
    struct atsi_plan_change change = {.struct_size = sizeof change, .item = -1};
    struct atsi_plan_times t;
    struct atsi_plan_report *r, *other;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    p.vram_bytes = 200 * MIB;
    r = make(&p);
    change.more_vram = 200 * MIB;
    assert_int_equal(atsi_plan_try(r, &change, &t, &err), ATSI_OK);
    assert_true(t.tpot_ns < atsi_plan_summary(r)->tpot_ns);
    /* The same as planning with that much. */
    bigger = p;
    bigger.vram_bytes = 400 * MIB;
    other = make(&bigger);
    assert_int_equal(t.tpot_ns, atsi_plan_summary(other)->tpot_ns);
    assert_int_equal(t.ttft_ns, atsi_plan_summary(other)->ttft_ns);
    assert_int_equal(t.n_resident, atsi_plan_summary(other)->n_resident);
    /* And nothing stays changed. */
    change.more_vram = 0;
    assert_int_equal(atsi_plan_try(r, &change, &t, &err), ATSI_OK);
    assert_int_equal(t.tpot_ns, atsi_plan_summary(r)->tpot_ns);
    atsi_plan_free(other);
    atsi_plan_free(r);
}

static void test_other_side(void **state)
{
    struct atsi_plan_params p = params(DATA "plan-dense.ini"), pinned;
    const struct atsi_plan_pin pin = {"L5.down", 0};
    struct atsi_plan_change change = {.struct_size = sizeof change, .device = 0};
    struct atsi_plan_times t;
    struct atsi_plan_report *r, *other;
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t i = 0;
    (void)state;
    p.vram_bytes = 4096 * MIB; /* all of it on the accelerator */
    r = make(&p);
    while (strcmp(atsi_plan_item(r, i)->name, "L5.down") != 0)
        i++;
    assert_int_equal(atsi_plan_item(r, i)->device, 1);
    change.item = (int32_t)i;
    assert_int_equal(atsi_plan_try(r, &change, &t, &err), ATSI_OK);
    assert_true(t.tpot_ns > atsi_plan_summary(r)->tpot_ns);
    pinned = p;
    pinned.pins = &pin;
    pinned.n_pins = 1;
    other = make(&pinned);
    assert_int_equal(atsi_plan_item(other, i)->device, 0);
    assert_int_equal(atsi_plan_item(other, i)->reason, ATSI_PLAN_PINNED);
    assert_int_equal(t.tpot_ns, atsi_plan_summary(other)->tpot_ns);
    change.item = 100000;
    assert_int_equal(atsi_plan_try(r, &change, &t, &err), ATSI_EINVAL);
    atsi_plan_free(other);
    atsi_plan_free(r);
}

/* ---------------------------------------------------------------- saved plans */
static void test_round_trip(void **state)
{
    struct atsi_plan_params p = params(DATA "plan-experts.ini");
    struct atsi_plan_report *a, *b, *c;
    char *first;
    (void)state;
    p.vram_bytes = 200 * MIB;
    a = make(&p);
    b = make(&p);
    save(a, "a.plan");
    save(b, "b.plan");
    first = strdup(saved_text("a.plan"));
    assert_non_null(first);
    assert_string_equal(first, saved_text("b.plan")); /* deterministic */
    p.use = scratch_path("a.plan");
    c = make(&p);
    save(c, "c.plan");
    assert_string_equal(first, saved_text("c.plan"));
    assert_int_equal(atsi_plan_summary(c)->reused, 1);
    assert_int_equal(atsi_plan_summary(c)->tpot_ns, atsi_plan_summary(a)->tpot_ns);
    assert_int_equal(atsi_plan_summary(c)->ttft_ns, atsi_plan_summary(a)->ttft_ns);
    check_sums(c);
    for (uint32_t i = 0; i < atsi_plan_summary(a)->n_items; i++)
        assert_memory_equal(atsi_plan_item(a, i)->slot, atsi_plan_item(c, i)->slot, 8);
    atsi_plan_free(c);
    /* It holds for another request of the same model, and stays what it was. */
    p.ctx = 3000;
    p.prompt = 2048;
    c = make(&p);
    save(c, "c.plan");
    assert_string_equal(first, saved_text("c.plan"));
    assert_int_equal(atsi_plan_summary(c)->decode.predicted_ns, 0);
    atsi_plan_free(c);
    atsi_plan_free(b);
    atsi_plan_free(a);
    free(first);
}

static void test_foreign_plans(void **state)
{
    struct atsi_plan_params p = params(DATA "plan-dense.ini"), other;
    const struct atsi_plan_pin pin = {"L*.q", 0};
    struct atsi_plan_report *r;
    (void)state;
    p.vram_bytes = 300 * MIB;
    p.policy = "alpha";
    r = make(&p);
    save(r, "dense.plan");
    atsi_plan_free(r);
    p.use = scratch_path("dense.plan");
    other = p;
    other.model = DATA "plan-experts.ini";
    refused(&other, ATSI_ECONF, "made for another model: Tiny dense");
    other = p;
    other.vram_bytes = 301 * MIB;
    refused(&other, ATSI_ECONF, "made for another VRAM budget");
    other = p;
    other.ram_bytes = 4096 * MIB;
    refused(&other, ATSI_ECONF, "made for another RAM limit");
    other = p;
    other.chunk = 128;
    refused(&other, ATSI_ECONF, "size of prefill rounds: 256, here 128");
    other = p;
    other.policy = "beta";
    refused(&other, ATSI_ECONF, "made for another policy: alpha, here beta");
    other = p;
    other.n_pins = 1;
    other.pins = &pin;
    refused(&other, ATSI_ECONF, "a rule asks for 0");
    scratch_write("m.ini", "[platform]\nname = Other\nvram_mib = 640\ncpu_gbs = 40\n"
                           "cpu_gbs_sustained = 40\ndram_gbs = 50\ncpu_gflops_q4 = 400\n"
                           "cpu_gflops_fp16 = 300\ncpu_gflops_mxfp4 = 400\ngpu_gbs = 400\n"
                           "gpu_tflops_q4 = 20\ngpu_tflops_fp16 = 20\ngpu_tflops_mxfp4 = 20\n"
                           "pcie_gbs = 16\nck_gbs = 8\nchunk = 256\n");
    other = p;
    other.machine = scratch_path("m.ini");
    refused(&other, ATSI_ECONF, "made for another machine profile: Test box");
    p.policy = NULL; /* any */
    atsi_plan_free(make(&p));
}

/* `text` with the first `from` replaced, saved and used. */
static void edited(struct atsi_plan_params *p, const char *text, const char *from, const char *to,
                   const char *words)
{
    const char *at = strstr(text, from);
    char *changed;
    assert_non_null(at);
    assert_true(asprintf(&changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    scratch_write("edited.plan", changed);
    free(changed);
    p->use = scratch_path("edited.plan");
    refused(p, ATSI_ECONF, words);
}

static void test_hostile_plans(void **state)
{
    struct atsi_plan_params p = params(DATA "plan-dense.ini");
    struct atsi_plan_report *r;
    char *text;
    (void)state;
    p.vram_bytes = 300 * MIB;
    r = make(&p);
    save(r, "good.plan");
    atsi_plan_free(r);
    text = strdup(saved_text("good.plan"));
    assert_non_null(text);
    edited(&p, text, "version = 1", "version = 2", "expected version 1");
    edited(&p, text, "placed = ", "placed = 1", "items, the model 97");
    edited(&p, text, "device = ", "device = 7", "items, the model 97");
    edited(&p, text, "items = 97", "items = 4000000000", "incomplete");
    edited(&p, text, "items = 97", "items = 99999999999999999999", "expected a number");
    edited(&p, text, "experts = 0", "experts = 1", "damaged or edited");
    edited(&p, text, "experts = 0", "experts = -1", "expected a number per item");
    edited(&p, text, "transfers = ", "transfers = 9", "expected");
    edited(&p, text, "predicted_ns = ", "predicted_ns = 1", "damaged or edited");
    edited(&p, text, "[decode]", "[nonsense]", "does not belong in a saved plan");
    edited(&p, text, "vram = ", "vrom = ", "does not belong in a saved plan");
    edited(&p, text, "check = ", "check = g", "expected 16 hexadecimal digits");
    for (size_t n = strlen(text) - 1; n > 0; n = n * 2 / 3) {
        text[n - 1] = '\0';
        scratch_write("edited.plan", text);
        p.use = scratch_path("edited.plan");
        refused(&p, ATSI_ECONF, "edited.plan");
    }
    free(text);
    p.use = scratch_path("nowhere.plan");
    refused(&p, ATSI_ENOENT, "nowhere.plan");
}

/* ---------------------------------------------------------------- what does not fit */
static void test_no_fit(void **state)
{
    const struct atsi_plan_pin pins[2] = {{"*.attn", 1}, {"*.gate", 1}};
    struct atsi_plan_params p = params(DATA "plan-dense.ini");
    struct atsi_plan_report *r = NULL;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_plan_memory m;
    (void)state;
    p.vram_bytes = 200 * MIB;
    p.pins = pins;
    p.n_pins = 2;
    assert_int_equal(atsi_plan_make(rt, &p, &r, &err), ATSI_ENOFIT);
    m = atsi_plan_summary(r)->memory;
    assert_int_equal(m.pinned_weights, 12 * 16 * MIB);
    assert_int_equal(m.pinned_caches, 12 * 8 * MIB);
    assert_int_equal(m.vram + m.missing_vram, m.pinned_weights + m.pinned_caches + m.least_slots);
    assert_int_equal(atsi_plan_save(r, "x.plan", &err), ATSI_EINVAL);
    atsi_plan_free(r);
    /* The budget it names does fit, a byte less does not. */
    p.vram_bytes = m.enough_vram - 1;
    refused(&p, ATSI_ENOFIT, "must hold 290.0 MiB");
    p.vram_bytes = m.enough_vram;
    atsi_plan_free(make(&p));
    /* So does the context it names. */
    p.vram_bytes = 200 * MIB;
    assert_true(m.fits_ctx > 0 && m.fits_ctx < m.ctx_max);
    p.ctx = p.ctx_max = m.fits_ctx;
    atsi_plan_free(make(&p));
    p.ctx_max = m.fits_ctx + 1;
    refused(&p, ATSI_ENOFIT, "does not fit");
}

static void test_little_ram(void **state)
{
    struct atsi_plan_params p = params(DATA "plan-dense.ini");
    struct atsi_plan_report *r = NULL;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_plan_memory m;
    (void)state;
    p.vram_bytes = 300 * MIB;
    p.ram_bytes = 100 * MIB;
    assert_int_equal(atsi_plan_make(rt, &p, &r, &err), ATSI_ENOFIT);
    m = atsi_plan_summary(r)->memory;
    atsi_plan_free(r);
    assert_int_equal(m.missing_vram, 0);
    assert_true(m.missing_ram > 0 && m.enough_ram >= m.ram + m.missing_ram);
    assert_true(m.enough_vram >= m.vram + m.missing_ram);
    p.vram_bytes = m.enough_vram;
    atsi_plan_free(make(&p));
    p.vram_bytes = 300 * MIB;
    p.ram_bytes = m.enough_ram;
    r = make(&p);
    assert_true(atsi_plan_summary(r)->memory.host_weights <= p.ram_bytes);
    atsi_plan_free(r);
}

static void test_bad_arguments(void **state)
{
    const struct atsi_plan_pin nobody = {"L*.nose", 1}, nowhere = {"L*.q", 2};
    struct atsi_plan_params p = params(DATA "plan-dense.ini");
    (void)state;
    p.n_pins = 1;
    p.pins = &nobody;
    refused(&p, ATSI_ECONF, "no item has such a name");
    p.pins = &nowhere;
    refused(&p, ATSI_EINVAL, "device 2");
    p.n_pins = 0;
    p.ctx = 5000;
    refused(&p, ATSI_ECONF, "sized for 4096");
    p.ctx = 10;
    p.prompt = 0;
    refused(&p, ATSI_EINVAL, "a prompt");
    p = params("nowhere.ini");
    refused(&p, ATSI_ENOENT, "nowhere.ini");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),          cmocka_unit_test(test_more_memory),
        cmocka_unit_test(test_other_side),    cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_foreign_plans), cmocka_unit_test(test_hostile_plans),
        cmocka_unit_test(test_no_fit),        cmocka_unit_test(test_little_ram),
        cmocka_unit_test(test_bad_arguments),
    };
    return cmocka_run_group_tests(tests, open_runtime, close_runtime);
}
