/* SPDX-License-Identifier: Apache-2.0
 * Packing beside rounds: what is packed, that it is the same weights, that it can be stopped, and
 * the cache file. */
#include "core/hybrid/pack.h"
#include "panel/pack.h"
#include "tests/unit/memory_fixture.h"
#include "tests/unit/scratch.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 7, Q8 = 2, SMALL = 5 };

static struct mem_model model;
static struct atsi_weights *weights;
static uint8_t packable[MEM_TENSORS];

/* Rows that fill no panel, a stack, a type the device does not take, too few rows, several parts.
 */
static const struct mem_shape shapes[N] = {
    {ATSI_TYPE_Q4_0, {64, 40, 1}},    {ATSI_TYPE_Q4_K, {256, 48, 3}}, {ATSI_TYPE_Q8_0, {64, 32, 1}},
    {ATSI_TYPE_Q6_K, {512, 100, 1}},  {ATSI_TYPE_F32, {7, 33, 2}},    {ATSI_TYPE_F32, {64, 15, 1}},
    {ATSI_TYPE_Q4_0, {2048, 4096, 1}}};

static void open_weights(uint32_t seed)
{
    mem_model_open(&model, shapes, N, seed);
    assert_int_equal(atsi_weights_open(&model.m, &weights, NULL), ATSI_OK);
    memset(packable, 1, sizeof packable);
    packable[Q8] = 0;
}

static void close_weights(void)
{
    atsi_weights_close(weights);
    mem_model_close(&model);
}

static int open_model(void **state)
{
    int rc = scratch_enter(state);
    open_weights(11);
    mem_device_reset(1);
    return rc;
}

static int close_model(void **state)
{
    close_weights();
    return scratch_leave(state);
}

static struct atsi_pack_params params(uint32_t mode)
{
    return (struct atsi_pack_params){
        .model = &model.m, .weights = weights, .packable = packable, .mode = mode, .n_threads = 3};
}

/* Unpacked again it is the file's bytes; others are untouched. */
static void check_tensor(uint32_t i, bool packed)
{
    const struct atsi_tensor *t = atsi_weights_tensor(weights, i);
    const struct atsi_panel_matrix m = {t->type, t->ne[0], t->ne[1], t->ne[2]};
    uint64_t n = mem_bytes(&model, i);
    unsigned char *rows;
    assert_int_equal(t->layout, packed ? ATSI_LAYOUT_PANELS : ATSI_LAYOUT_ROWS);
    if (!packed) {
        assert_ptr_equal(t->data, mem_data(&model, i));
        return;
    }
    rows = malloc(n);
    assert_non_null(rows);
    atsi_panel_convert(&m, 0, atsi_panel_parts(&m), 1, t->data, rows);
    assert_memory_equal(rows, mem_data(&model, i), n);
    free(rows);
}

static void check_all(void)
{
    for (uint32_t i = 0; i < N; i++)
        check_tensor(i, i != Q8 && i != SMALL);
}

static void test_now(void **state)
{
    struct atsi_pack_params p = params(ATSI_PACK_NOW);
    struct atsi_packer *packer = NULL;
    struct atsi_pack_state s;
    uint64_t bytes = 0;
    (void)state;
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    check_all();
    atsi_packer_state(packer, &s);
    for (uint32_t i = 0; i < N; i++)
        bytes += i != Q8 && i != SMALL ? mem_bytes(&model, i) : 0;
    assert_int_equal(s.n_done, N - 2);
    assert_int_equal(s.done_bytes, bytes);
    assert_int_equal(s.bytes, bytes);
    assert_false(s.running);
    assert_int_equal(model.loaded.released, bytes); /* nothing stays in memory twice */
    atsi_packer_close(packer);
    check_all();
    /* There is nothing left to do. */
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    assert_null(packer);
}

static void test_off(void **state)
{
    struct atsi_pack_params p = params(ATSI_PACK_OFF);
    struct atsi_packer *packer = NULL;
    (void)state;
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    assert_null(packer);
    check_tensor(0, false);
}

/* In a round nothing changes; the next one has everything. */
static void test_background(void **state)
{
    struct atsi_pack_params p = params(ATSI_PACK_AUTO);
    struct atsi_packer *packer = NULL;
    (void)state;
    (void)atsi_weights_begin(weights);
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    assert_non_null(packer);
    while (!atsi_packer_wait(packer, 100))
        ;
    for (uint32_t i = 0; i < N; i++)
        check_tensor(i, false);
    atsi_weights_end(weights);
    (void)atsi_weights_begin(weights);
    check_all();
    atsi_weights_end(weights);
    atsi_packer_close(packer);
}

/* Closed at any moment: what is packed is whole, the rest as it was; somebody else may go on. */
static int stop_after(void *ctx, const struct atsi_pack_state *s)
{
    const uint32_t *n = ctx;
    return s->n_done >= *n;
}

static void test_stopped(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    (void)state;
    for (uint32_t n = 1; n < N - 2; n++) {
        struct atsi_pack_params p = params(ATSI_PACK_NOW);
        struct atsi_packer *packer = NULL;
        p.progress = stop_after;
        p.progress_ctx = &n;
        p.n_threads = 1;
        assert_int_equal(atsi_packer_open(&p, &packer, &err), ATSI_EINTR);
        assert_null(packer);
        for (uint32_t i = 0; i < N; i++)
            check_tensor(i, atsi_weights_tensor(weights, i)->layout == ATSI_LAYOUT_PANELS);
        p = params(ATSI_PACK_AUTO);
        assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
        atsi_packer_close(packer); /* perhaps before it began */
        for (uint32_t i = 0; i < N; i++)
            check_tensor(i, atsi_weights_tensor(weights, i)->layout == ATSI_LAYOUT_PANELS);
        close_weights();
        open_weights(11);
    }
}

/* Memory that is not there is not taken. */
static uint64_t little(void *ctx)
{
    return *(uint64_t *)ctx;
}

static void test_little_memory(void **state)
{
    struct atsi_pack_params p = params(ATSI_PACK_NOW);
    struct atsi_packer *packer = NULL;
    struct atsi_pack_state s;
    uint64_t left = ((uint64_t)256 << 20) + ((uint64_t)1 << 20);
    (void)state;
    p.available = little;
    p.available_ctx = &left;
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    atsi_packer_state(packer, &s);
    assert_int_equal(s.n_skipped, 1);
    assert_int_equal(s.n_done, N - 3);
    check_tensor(0, true);
    check_tensor(6, false); /* 4.5 MiB */
    atsi_packer_close(packer);
    assert_true(atsi_weights_announce(weights, 6));
}

/* Backends are asked, for every use of a tensor. */
static void test_mark(void **state)
{
    struct atsi_op ops[4];
    const struct atsi_op *list[4];
    (void)state;
    memset(packable, 1, sizeof packable);
    for (uint32_t i = 0; i < 4; i++) {
        ops[i] = (struct atsi_op){.struct_size = sizeof ops[i],
                                  .kind = ATSI_OP_MATMUL,
                                  .weight = {atsi_weights_tensor(weights, i == 3 ? SMALL : i)}};
        list[i] = &ops[i];
    }
    atsi_pack_mark(&mem_ops, mem_backend(), list, 4, weights, packable);
    assert_int_equal(packable[0], 1);
    assert_int_equal(packable[1], 1);
    assert_int_equal(packable[Q8], 0);    /* the device does not read it so */
    assert_int_equal(packable[SMALL], 0); /* no panel is full */
    assert_int_equal(packable[6], 0);     /* not used */
    packable[0] = 0;                      /* another backend's answer stays */
    atsi_pack_mark(&mem_ops, mem_backend(), list, 4, weights, packable);
    assert_int_equal(packable[0], 0);
}

/* ---------------------------------------------------------------- the cache file */
static const char *cache_file(void)
{
    static char path[512];
    struct dirent *e;
    DIR *d = opendir(scratch_path("cache/atsinfer/packed"));
    path[0] = '\0';
    while (d != NULL && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.') {
            assert_int_equal(path[0], '\0'); /* one file, no temporary ones */
            (void)snprintf(path, sizeof path, "%s/%s", scratch_path("cache/atsinfer/packed"),
                           e->d_name);
        }
    if (d != NULL)
        (void)closedir(d);
    return path;
}

/* Packs with a cache; returns how many tensors came from it. */
static uint32_t run_cached(void)
{
    struct atsi_pack_params p = params(ATSI_PACK_NOW);
    struct atsi_packer *packer = NULL;
    struct atsi_pack_state s;
    p.cache = true;
    assert_int_equal(atsi_packer_open(&p, &packer, NULL), ATSI_OK);
    atsi_packer_state(packer, &s);
    assert_int_equal(s.n_done, N - 2);
    atsi_packer_close(packer);
    check_all(); /* wherever they came from */
    return s.n_cached;
}

static void reopen(uint32_t seed)
{
    close_weights();
    open_weights(seed);
}

static void test_cache(void **state)
{
    (void)state;
    assert_string_equal(cache_file(), "");
    assert_int_equal(run_cached(), 0);
    assert_string_not_equal(cache_file(), "");
    reopen(11);
    assert_int_equal(run_cached(), N - 2);
    assert_int_equal(atsi_weights_home(weights, 0), ATSI_HOME_CACHE);
    /* Other weights of the same shapes have a file of their own, or are noticed. */
    reopen(12);
    assert_int_equal(run_cached(), 0);
}

static void flip(off_t at)
{
    int fd = open(cache_file(), O_RDWR | O_CLOEXEC);
    unsigned char c;
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &c, 1, at), 1);
    c ^= 0x10;
    assert_int_equal(pwrite(fd, &c, 1, at), 1);
    assert_int_equal(close(fd), 0);
}

/* Damage anywhere costs time, never a wrong weight, and is repaired. */
static void test_damaged_cache(void **state)
{
    struct stat st;
    (void)state;
    assert_int_equal(run_cached(), 0);
    assert_int_equal(stat(cache_file(), &st), 0);
    for (int k = 0; k < 24; k++) {
        off_t at = k < 8 ? 4096 + 100 * k : (st.st_size - 1) / 16 * (k - 8);
        reopen(11);
        flip(at);
        (void)run_cached();
        reopen(11);
        (void)run_cached();
    }
    for (off_t n = st.st_size - 1; n > 1; n /= 3) {
        reopen(11);
        assert_int_equal(truncate(cache_file(), n), 0);
        assert_int_equal(run_cached(), 0);
        reopen(11);
        assert_int_equal(run_cached(), N - 2);
    }
}

/* A folder that cannot be written to is no failure. */
static void test_no_cache_folder(void **state)
{
    (void)state;
    scratch_write("cache", "a file where the folder should be");
    assert_int_equal(run_cached(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_model, close_model)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_now),     TEST(test_off),           TEST(test_background),
        TEST(test_stopped), TEST(test_little_memory), TEST(test_mark),
        TEST(test_cache),   TEST(test_damaged_cache), TEST(test_no_cache_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
