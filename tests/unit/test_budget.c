/* SPDX-License-Identifier: Apache-2.0
 * Budgets: from settings, a device and the sizes of a model to bytes per region, and what is said
 * when they do not do. */
#include "core/hybrid/budget.h"

#include "core/hybrid/region.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

static struct atsi_budget_conf conf_of(const char *vram, const char *temp)
{
    struct atsi_budget_conf c = {.margin_bytes = 100 * MIB, .max_slots = 2};
    assert_int_equal(atsi_amount_parse("memory.vram", vram, &c.vram, NULL), ATSI_OK);
    assert_int_equal(atsi_amount_parse("memory.temp", temp, &c.temp, NULL), ATSI_OK);
    return c;
}

/* Of a GPU: 4096 MiB, `free` of them free. */
static struct atsi_props gpu(uint64_t free_mib)
{
    return (struct atsi_props){.struct_size = sizeof(struct atsi_props),
                               .device_kind = ATSI_DEVICE_GPU,
                               .mem_total_bytes = 4096 * MIB,
                               .mem_free_bytes = free_mib * MIB,
                               .buf_align_bytes = 64};
}

static const struct atsi_budget_sizes sizes = {.weights = 5000 * MIB,
                                               .largest = 200 * MIB,
                                               .always = 2 * MIB,
                                               .compute = 90 * MIB,
                                               .caches = 300 * MIB,
                                               .n_wanted = 100};

static struct atsi_budget make(const char *vram, const char *temp, uint64_t free_mib)
{
    struct atsi_budget_conf c = conf_of(vram, temp);
    struct atsi_props props = gpu(free_mib);
    struct atsi_budget b;
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_budget_make(&c, &props, &sizes, &b, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    return b;
}

/* The parts are the whole. */
static void check_sum(const struct atsi_budget *b, uint64_t caches_apart)
{
    assert_int_equal(b->total, b->always + b->compute + b->workspace + b->overhead + b->slots +
                                   b->place + caches_apart);
}

static void test_kinds(void **state)
{
    struct atsi_budget b = make("auto", "auto", 3000);
    (void)state;
    assert_int_equal(b.total, 2900 * MIB); /* less the margin */
    check_sum(&b, 0);
    assert_true(b.caches_counted);
    assert_int_equal(b.workspace, 64 * MIB);
    assert_true(b.overhead >= 100 * ATSI_REGION_ALIGN);
    b = make("1GiB", "auto", 3000);
    assert_int_equal(b.total, 1024 * MIB);
    check_sum(&b, 0);
    b = make("50%", "auto", 3000);
    assert_int_equal(b.total, 2048 * MIB);
    /* No more than is free, and it says so. */
    b = make("4GiB", "auto", 3000);
    assert_int_equal(b.total, 3000 * MIB);
    assert_non_null(strstr(b.why, "3000.0 MiB are free"));
    b = make("80%", "auto", 1000);
    assert_int_equal(b.total, 1000 * MIB);
}

static void test_share_of_model(void **state)
{
    struct atsi_budget b = make("10%m", "auto", 3000);
    (void)state;
    assert_int_equal(b.slots + b.place, 500 * MIB);
    assert_false(b.caches_counted); /* caches have memory beside the share */
    check_sum(&b, 300 * MIB);
    /* All of the model and no slots, where there is room for that. */
    b = make("100%m", "auto", 4096);
    assert_true(b.slots + b.place < 4096 * MIB);
    assert_true(b.total <= 4096 * MIB);
}

static void test_nothing(void **state)
{
    static const char *const none[] = {"0", "0%", "0%m", "0GiB"};
    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        struct atsi_budget b = make(none[i], "auto", 3000);
        assert_true(b.off);
        assert_int_equal(b.total, 0);
    }
}

static void test_slots(void **state)
{
    struct atsi_budget b = make("2GiB", "auto", 3000);
    struct atsi_budget_conf c = conf_of("3500MiB", "auto");
    struct atsi_props props = gpu(4000);
    struct atsi_budget_sizes small = sizes;
    (void)state;
    /* Two of the largest weight, at most a quarter. */
    assert_int_equal(b.slots, 400 * MIB);
    assert_int_equal(b.tile, 200 * MIB);
    b = make("1GiB", "auto", 3000);
    assert_int_equal(b.slots, (b.slots + b.place) / 4 / ATSI_REGION_ALIGN * ATSI_REGION_ALIGN);
    assert_int_equal(b.tile, b.slots / 2);
    b = make("1GiB", "100MiB", 3000);
    assert_int_equal(b.slots, 100 * MIB);
    b = make("1GiB", "0", 3000);
    assert_int_equal(b.slots, 0);
    assert_int_equal(b.tile, 0);
    b = make("1GiB", "1TiB", 3000);
    assert_int_equal(b.place, 0);
    check_sum(&b, 0);
    /* Where everything is resident nothing moves. */
    small.weights = 1000 * MIB;
    assert_int_equal(atsi_budget_make(&c, &props, &small, &b, NULL), ATSI_OK);
    assert_int_equal(b.slots, 0);
    assert_int_equal(b.place, small.weights + small.caches);
    c.max_slots = 8;
    assert_int_equal(atsi_budget_make(&c, &props, &sizes, &b, NULL), ATSI_OK);
    assert_int_equal(b.tile, b.slots / 8);
}

static void test_unknown_device(void **state)
{
    struct atsi_budget_conf c = conf_of("auto", "auto");
    struct atsi_props props = {.struct_size = sizeof props, .device_kind = ATSI_DEVICE_CPU};
    struct atsi_budget b;
    (void)state;
    assert_int_equal(atsi_budget_make(&c, &props, &sizes, &b, NULL), ATSI_OK);
    assert_int_equal(b.place, sizes.weights + sizes.caches);
    assert_int_equal(b.workspace, 0);
    assert_false(atsi_budget_refresh(&b, &c, &props, &sizes, 0));
}

/* The fixed part alone is too much: the words name a size, and that size does. */
static void test_too_small(void **state)
{
    struct atsi_budget_conf c = conf_of("100MiB", "auto");
    struct atsi_props props = gpu(3000);
    struct atsi_budget b;
    struct atsi_err err = ATSI_ERR_INIT;
    const char *at;
    char size[32];
    (void)state;
    assert_int_equal(atsi_budget_make(&c, &props, &sizes, &b, &err), ATSI_ENOFIT);
    assert_non_null(strstr(err.msg, "activations 90.0"));
    assert_non_null(strstr(err.msg, "budget is 100.0 MiB"));
    at = strstr(err.msg, "; memory.vram = ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "; memory.vram = %31s", size), 1);
    c = conf_of(size, "auto");
    assert_int_equal(atsi_budget_make(&c, &props, &sizes, &b, &err), ATSI_OK);
    /* A full device is not one that does not know. */
    c = conf_of("auto", "auto");
    props = gpu(0);
    assert_int_equal(atsi_budget_make(&c, &props, &sizes, &b, &err), ATSI_ENOFIT);
}

/* Others took memory between the plan and the commitment. */
static void test_refresh(void **state)
{
    struct atsi_budget_conf c = conf_of("auto", "auto");
    struct atsi_props props = gpu(3000);
    struct atsi_budget b = make("auto", "auto", 3000), before = b;
    (void)state;
    assert_false(atsi_budget_refresh(&b, &c, &props, &sizes, 0));
    props = gpu(2000); /* and this session holds nothing yet */
    assert_true(atsi_budget_refresh(&b, &c, &props, &sizes, 0));
    assert_int_equal(b.total, 1900 * MIB);
    assert_int_equal(b.slots, before.slots); /* tiles were cut for them */
    check_sum(&b, 0);
    /* What this session holds is its own. */
    b = before;
    assert_false(atsi_budget_refresh(&b, &c, &props, &sizes, 1000 * MIB));
    props = gpu(300);
    assert_true(atsi_budget_refresh(&b, &c, &props, &sizes, 0));
    assert_int_equal(b.slots, 0); /* not half a slot */
    check_sum(&b, 0);
}

static void test_bad_amounts(void **state)
{
    static const char *const bad[] = {"101%", "-1%", "lots", "6 furlongs", "%", "5%x", ""};
    struct atsi_amount a;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(atsi_amount_parse("memory.vram", bad[i], &a, &err), ATSI_ECONF);
    assert_non_null(strstr(err.msg, "memory.vram"));
}

/* ---------------------------------------------------------------- items */
/* Four layers of two matrices of 100 MiB and a cache of 1 MiB per 64 positions. */
static struct atsi_items *make_items(void)
{
    struct atsi_items *it = atsi_items_new(12, 0, 0);
    assert_non_null(it);
    for (uint32_t i = 0; i < 12; i++) {
        bool cache = i % 3 == 1;
        it->items[i].pinned = -1;
        it->items[i].can_promote = !cache;
        it->items[i].name = "item";
        it->work[i].kind = cache ? ATSI_WORK_ATTENTION : ATSI_WORK_MATRIX;
        it->work[i].cell_bytes = cache ? MIB / 64 : 0;
        it->work[i].weight_bytes = cache ? 0 : 100 * MIB;
    }
    return it;
}

static void test_check(void **state)
{
    struct atsi_items *it = make_items();
    struct atsi_budget b = {
        .caches_counted = true, .place = 250 * MIB, .slots = 200 * MIB, .total = 500 * MIB};
    struct atsi_plan_memory m;
    struct atsi_err err = ATSI_ERR_INIT;
    unsigned ctx = 0;
    (void)state;
    assert_int_equal(atsi_budget_check(&b, it, 4096, 0, &m, &err), ATSI_OK);
    assert_int_equal(m.all_weights, 800 * MIB);
    assert_int_equal(m.cache, 4 * 64 * MIB);
    /* The host's limit. */
    assert_int_equal(atsi_budget_check(&b, it, 4096, 500 * MIB, &m, &err), ATSI_ENOFIT);
    assert_true(m.missing_ram > 0);
    assert_non_null(strstr(err.msg, "would do"));
    /* All caches on the accelerator: the context it names does, one more does not. */
    for (uint32_t i = 1; i < 12; i += 3)
        it->items[i].pinned = 1;
    assert_int_equal(atsi_budget_check(&b, it, 4096, 0, &m, &err), ATSI_ENOFIT);
    assert_non_null(strstr(err.msg, "pinned caches 256.0"));
    assert_non_null(strstr(err.msg, "memory.vram = 507MiB"));
    assert_int_equal(sscanf(strstr(err.msg, "(-c "), "(-c %u)", &ctx), 1);
    assert_int_equal(atsi_budget_check(&b, it, ctx, 0, &m, NULL), ATSI_OK);
    assert_int_equal(atsi_budget_check(&b, it, ctx + 1, 0, &m, NULL), ATSI_ENOFIT);
    /* A share of the model leaves caches aside. */
    b.caches_counted = false;
    assert_int_equal(atsi_budget_check(&b, it, 4096, 0, &m, &err), ATSI_OK);
    atsi_items_free(it);
}

/* ---------------------------------------------------------------- pinned memory */
static void test_pin(void **state)
{
    struct atsi_limits l = {.mem_available_bytes = 8000 * MIB, .cgroup_mem_bytes = UINT64_MAX};
    struct atsi_budget_conf c = {.max_slots = 2};
    char why[80];
    (void)state;
    assert_int_equal(atsi_budget_pin(&c, &l, UINT64_MAX, 0, NULL, 0), 4000 * MIB);
    assert_int_equal(atsi_budget_pin(&c, &l, 8 * MIB, 0, why, sizeof why), 8 * MIB);
    assert_non_null(strstr(why, "ulimit"));
    l.cgroup_mem_bytes = 2000 * MIB;
    assert_int_equal(atsi_budget_pin(&c, &l, UINT64_MAX, 0, why, sizeof why), 1000 * MIB);
    assert_non_null(strstr(why, "control group"));
    /* Whoever names a size gets a try. */
    assert_int_equal(atsi_amount_parse("memory.pin", "3GiB", &c.pin, NULL), ATSI_OK);
    assert_int_equal(atsi_budget_pin(&c, &l, 8 * MIB, 0, NULL, 0), 3072 * MIB);
    assert_int_equal(atsi_amount_parse("memory.pin", "50%m", &c.pin, NULL), ATSI_OK);
    assert_int_equal(atsi_budget_pin(&c, &l, 8 * MIB, 100 * MIB, NULL, 0), 50 * MIB);
    assert_int_equal(atsi_amount_parse("memory.pin", "off", &c.pin, NULL), ATSI_OK);
    assert_int_equal(atsi_budget_pin(&c, &l, UINT64_MAX, 0, NULL, 0), 0);
    assert_true(atsi_budget_memlock() > 0);
}

/* The settings arrive. */
static void test_read(void **state)
{
    const char *const overrides[] = {"memory.vram=30%m", "memory.temp=64MiB",
                                     "memory.pin=off",   "memory.vram_margin=2GiB",
                                     "memory.slots=5",   NULL};
    struct atsi_budget_conf b;
    struct atsi_conf *c = NULL;
    (void)state;
    assert_int_equal(setenv("XDG_CONFIG_HOME", "/nonexistent", 1), 0);
    assert_int_equal(atsi_conf_open(NULL, overrides, &c, NULL), ATSI_OK);
    assert_int_equal(atsi_budget_read(c, &b, NULL), ATSI_OK);
    assert_int_equal(b.vram.kind, ATSI_AMOUNT_PERCENT_MODEL);
    assert_true(b.vram.percent > 29.9 && b.vram.percent < 30.1);
    assert_int_equal(b.temp.bytes, 64 * MIB);
    assert_int_equal(b.pin.kind, ATSI_AMOUNT_OFF);
    assert_int_equal(b.margin_bytes, 2048 * MIB);
    assert_int_equal(b.max_slots, 5);
    atsi_conf_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),          cmocka_unit_test(test_share_of_model),
        cmocka_unit_test(test_nothing),        cmocka_unit_test(test_slots),
        cmocka_unit_test(test_unknown_device), cmocka_unit_test(test_too_small),
        cmocka_unit_test(test_refresh),        cmocka_unit_test(test_bad_amounts),
        cmocka_unit_test(test_check),          cmocka_unit_test(test_pin),
        cmocka_unit_test(test_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
