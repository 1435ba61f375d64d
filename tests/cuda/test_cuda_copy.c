/* SPDX-License-Identifier: Apache-2.0
 * The transfer engine of the CUDA plugin: both channels, every kind of host memory, order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda_fixture.h"

#define MIB ((size_t)1 << 20)

static void random_bytes(unsigned char *p, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        p[i] = (unsigned char)(seed >> 24);
    }
}

static struct cuda_host_stats stats(void)
{
    struct cuda_host_stats s;
    gpu_control->stats(&s);
    return s;
}

static void test_channels(void **state)
{
    struct gpu *g = *state;
    const struct atsi_channel *const *c;
    assert_int_equal(g->link_ops->channels(g->link, &c), 2);
    assert_string_equal(c[GPU_ENGINE]->name, "copy_engine");
    assert_int_equal(c[GPU_ENGINE]->uses_compute, 0);
    assert_string_equal(c[GPU_KERNEL]->name, "copy_kernel");
    assert_int_equal(c[GPU_KERNEL]->uses_compute, 1);
}

static void test_misuse(void **state)
{
    struct gpu *g = *state;
    struct atsi_buf *buf = gpu_alloc(g, ATSI_MEM_DEVICE, 64);
    unsigned char host[64] = {0};
    struct atsi_range r = {host, g->ops->buf_ptr(buf), 64};
    struct atsi_copyv req = {.struct_size = sizeof req, .n_ranges = 1, .ranges = &r};
    struct atsi_transfer *none = (struct atsi_transfer *)&none;
    assert_int_equal(g->link_ops->copyv(g->link, GPU_KERNEL, NULL, &req, &g->err), ATSI_EINVAL);
    assert_int_equal(g->link_ops->copyv(g->link, GPU_ENGINE, g->queue, &req, &g->err), ATSI_EINVAL);
    assert_int_equal(g->link_ops->copyv(g->link, 2, NULL, &req, &g->err), ATSI_EINVAL);
    req.struct_size = 16;
    assert_int_equal(g->link_ops->copyv(g->link, GPU_ENGINE, NULL, &req, &g->err), ATSI_EINVAL);
    assert_int_equal(g->link_ops->open(&gpu_host, NULL, NULL, &none, &g->err), ATSI_ENOTSUP);
    assert_null(none);
    g->ops->buf_free(g->be, buf);
}

/* Every alignment of both ends, lengths around every boundary, there and back, on both channels. */
static void odd_sizes(struct gpu *g, uint32_t channel)
{
    static const size_t sizes[] = {1, 3, 4, 15, 16, 17, 64, 255, 4096, 4097, 70001};
    size_t room = 70100;
    struct atsi_buf *host = gpu_alloc(g, ATSI_MEM_PINNED, room);
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, room);
    unsigned char *h = g->ops->buf_ptr(host), *d = g->ops->buf_ptr(dev), *got = malloc(room);
    assert_non_null(got);
    random_bytes(h, room, 7);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t at = 0; at < 17; at += 1 + (i > 7 ? 4 : 0)) {
            struct atsi_range there = {h + at, d + (at * 7) % 16 + 16, sizes[i]};
            struct atsi_range back = {there.dst, got, sizes[i]};
            GPU_OK(g, g->ops->fill(g->queue, d, 0xee, room, g->done, &g->err));
            gpu_wait(g, g->done);
            GPU_OK(g, gpu_copyv(g, channel, &there, 1, NULL, g->done));
            gpu_wait(g, g->done);
            gpu_get(g, got, back.src, sizes[i]);
            assert_memory_equal(got, h + at, sizes[i]);
            gpu_get(g, got, (unsigned char *)there.dst - 16, 16);
            for (int b = 0; b < 16; b++)
                assert_int_equal(got[b], 0xee); /* nothing in front */
            gpu_get(g, got, (unsigned char *)there.dst + sizes[i], 16);
            for (int b = 0; b < 16; b++)
                assert_int_equal(got[b], 0xee); /* nor behind */
        }
    free(got);
    g->ops->buf_free(g->be, host);
    g->ops->buf_free(g->be, dev);
}

static void test_odd_engine(void **state)
{
    odd_sizes(*state, GPU_ENGINE);
}

static void test_odd_kernel(void **state)
{
    odd_sizes(*state, GPU_KERNEL);
}

/* From pinned memory to the device and back by kernels, which take host memory at its address. */
static void test_kernel_both_ways(void **state)
{
    struct gpu *g = *state;
    size_t n = 3 * MIB + 5;
    struct atsi_buf *host = gpu_alloc(g, ATSI_MEM_PINNED, 2 * n);
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
    unsigned char *h = g->ops->buf_ptr(host);
    struct atsi_range there = {h, g->ops->buf_ptr(dev), n};
    struct atsi_range back = {there.dst, h + n, n};
    uint64_t copies;
    random_bytes(h, n, 3);
    memset(h + n, 0, n);
    copies = stats().copies[0] + stats().copies[1];
    GPU_OK(g, gpu_copyv(g, GPU_KERNEL, &there, 1, NULL, NULL));
    GPU_OK(g, gpu_copyv(g, GPU_KERNEL, &back, 1, NULL, g->done)); /* in order: no event needed */
    gpu_wait(g, g->done);
    assert_memory_equal(h, h + n, n);
    assert_int_equal(stats().copies[0] + stats().copies[1], copies); /* no copy engine */
    g->ops->buf_free(g->be, host);
    g->ops->buf_free(g->be, dev);
}

/* However much there is to copy, it leaves the multiprocessors to others. */
static void test_kernel_blocks(void **state)
{
    static const char *const settings[] = {NULL, "1", "3", "64"};
    static const uint64_t most[] = {8, 1, 3, 64};
    struct gpu *g = *state;
    size_t n = MIB;
    for (int i = 0; i < 4; i++) {
        struct cuda_host_stats before, after;
        struct atsi_buf *host, *dev;
        struct atsi_range r;
        gpu_close(g);
        gpu_set("copy_blocks", settings[i]);
        assert_int_equal(gpu_open(g), ATSI_OK);
        host = gpu_alloc(g, ATSI_MEM_PINNED, n);
        dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
        r = (struct atsi_range){g->ops->buf_ptr(host), g->ops->buf_ptr(dev), n};
        memset(g->ops->buf_ptr(host), 1, n);
        before = stats();
        GPU_OK(g, gpu_copyv(g, GPU_KERNEL, &r, 1, NULL, g->done));
        gpu_wait(g, g->done);
        after = stats();
        assert_int_equal(after.kernels - before.kernels, 1);
        assert_int_equal(after.blocks - before.blocks, most[i]);
        g->ops->buf_free(g->be, host);
        g->ops->buf_free(g->be, dev);
    }
}

/* More ranges than one launch takes; every second one continues its predecessor. */
static void many_ranges(struct gpu *g, uint32_t channel)
{
    enum { N = 333, EACH = 48 };
    static struct atsi_range ranges[N];
    size_t bytes = (size_t)N * EACH * 3;
    struct atsi_buf *host = gpu_alloc(g, ATSI_MEM_PINNED, bytes);
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, bytes);
    unsigned char *h = g->ops->buf_ptr(host), *d = g->ops->buf_ptr(dev), got[EACH];
    uint64_t before = stats().copies[0];
    random_bytes(h, bytes, 11);
    for (uint32_t i = 0; i < N; i++) {
        size_t at = (size_t)(i / 2 * 3 + i % 2) * EACH;
        ranges[i] = (struct atsi_range){h + at, d + at, i == 100 ? 0 : EACH};
    }
    GPU_OK(g, gpu_copyv(g, channel, ranges, N, NULL, g->done));
    gpu_wait(g, g->done);
    if (channel == GPU_ENGINE) /* pairs became one */
        assert_int_equal(stats().copies[0] - before, (N + 1) / 2);
    for (uint32_t i = 0; i < N; i += 7) {
        gpu_get(g, got, ranges[i].dst, ranges[i].bytes);
        assert_memory_equal(got, ranges[i].src, ranges[i].bytes);
    }
    g->ops->buf_free(g->be, host);
    g->ops->buf_free(g->be, dev);
}

static void test_many_engine(void **state)
{
    many_ranges(*state, GPU_ENGINE);
}

static void test_many_kernel(void **state)
{
    many_ranges(*state, GPU_KERNEL);
}

static void test_overlap(void **state)
{
    struct gpu *g = *state;
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, 4096);
    unsigned char *d = g->ops->buf_ptr(dev);
    static unsigned char host[4096], got[64];
    struct atsi_range twice[] = {
        {host, d + 256, 64}, {host + 64, d, 128}, {host + 512, d + 96, 64}};
    struct atsi_range circle[] = {{host, d + 1024, 64}, {d + 1080, host + 1024, 64}};
    struct atsi_range nowhere[] = {{host, d, 64}, {NULL, d + 64, 1}};
    struct atsi_range endless = {host, d, SIZE_MAX};
    struct atsi_range good[] = {{host + 64, d + 64, 64}, {host, d, 64}, {host, d + 128, 64}};
    GPU_OK(g, g->ops->fill(g->queue, d, 0xaa, 4096, g->done, &g->err));
    gpu_wait(g, g->done);
    for (uint32_t c = GPU_ENGINE; c <= GPU_KERNEL; c++) {
        assert_int_equal(gpu_copyv(g, c, twice, 3, NULL, NULL), ATSI_EINVAL);
        assert_non_null(strstr(g->err.msg, "ranges 1 and 2"));
        assert_int_equal(gpu_copyv(g, c, circle, 2, NULL, NULL), ATSI_EINVAL);
        assert_int_equal(gpu_copyv(g, c, nowhere, 2, NULL, NULL), ATSI_EINVAL);
        assert_int_equal(gpu_copyv(g, c, &endless, 1, NULL, NULL), ATSI_EINVAL);
    }
    gpu_get(g, got, d, sizeof got);
    for (size_t i = 0; i < sizeof got; i++)
        assert_int_equal(got[i], 0xaa);                          /* nothing was copied */
    GPU_OK(g, gpu_copyv(g, GPU_ENGINE, good, 3, NULL, g->done)); /* neighbours, shared sources */
    gpu_wait(g, g->done);
    g->ops->buf_free(g->be, dev);
}

/* ---------------------------------------------------------------- pageable memory */
static void there_and_back(struct gpu *g, unsigned char *host, size_t n)
{
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
    unsigned char *got = malloc(n);
    assert_non_null(got);
    gpu_put(g, g->ops->buf_ptr(dev), host, n);
    gpu_get(g, got, g->ops->buf_ptr(dev), n);
    assert_memory_equal(got, host, n);
    free(got);
    g->ops->buf_free(g->be, dev);
}

static void reopen_with_staging(struct gpu *g, const char *mib)
{
    gpu_close(g);
    gpu_set("staging", mib);
    assert_int_equal(gpu_open(g), ATSI_OK);
}

/* Several times the ring, in both directions, while streams are held up at random. */
static void test_ring(void **state)
{
    struct gpu *g = *state;
    size_t n = 5 * MIB + 12345;
    unsigned char *host = malloc(n);
    assert_non_null(host);
    random_bytes(host, n, 5);
    reopen_with_staging(g, "1");
    there_and_back(g, host, n);
    assert_int_equal(gpu_control->set("DELAY", "300"), 0);
    there_and_back(g, host, n);
    there_and_back(g, host, 1);
    assert_int_equal(gpu_control->set("DELAY", "0"), 0);
    assert_int_equal(stats().pageable_copies, 0); /* all by way of pinned memory */
    assert_int_equal(gpu_logged(NULL), 0);
    free(host);
}

/* The caller gets on with its work while the ring is filled and emptied. */
static void test_ring_does_not_block(void **state)
{
    struct gpu *g = *state;
    size_t n = 4 * MIB;
    unsigned char *host = malloc(n);
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
    struct atsi_range r = {host, g->ops->buf_ptr(dev), n};
    assert_non_null(host);
    memset(host, 1, n);
    g->ops->buf_free(g->be, dev);
    reopen_with_staging(g, "1");
    dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
    r.dst = g->ops->buf_ptr(dev);
    assert_int_equal(gpu_control->set("H2D", "4000000"), 0); /* 4 MB/s: a second */
    GPU_OK(g, gpu_copyv(g, GPU_ENGINE, &r, 1, NULL, g->done));
    assert_int_equal(g->ops->event_query(g->done), 0);
    gpu_wait(g, g->done);
    g->ops->buf_free(g->be, dev);
    free(host);
}

static void test_no_ring(void **state)
{
    struct gpu *g = *state;
    static unsigned char host[200000];
    random_bytes(host, sizeof host, 9);
    reopen_with_staging(g, "0"); /* none is wanted */
    there_and_back(g, host, sizeof host);
    assert_true(stats().pageable_copies >= 2);
    assert_int_equal(gpu_logged(NULL), 0);
    gpu_control->reset();
    reopen_with_staging(g, "4"); /* none can be had */
    assert_int_equal(gpu_control->set("PINNED", "1m"), 0);
    there_and_back(g, host, sizeof host);
    there_and_back(g, host, sizeof host);
    assert_true(stats().pageable_copies >= 4);
    assert_int_equal(gpu_logged(NULL), 1); /* said once */
}

/* Small activations of a backend that did not ask for pinned memory still take the copy kernel's
 * place in the queue. */
static void test_kernel_pageable(void **state)
{
    struct gpu *g = *state;
    unsigned char host[1000], got[1000] = {0};
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, sizeof host);
    struct atsi_range there = {host, g->ops->buf_ptr(dev), sizeof host};
    struct atsi_range back = {there.dst, got, sizeof got};
    random_bytes(host, sizeof host, 2);
    GPU_OK(g, gpu_copyv(g, GPU_KERNEL, &there, 1, NULL, NULL));
    GPU_OK(g, gpu_copyv(g, GPU_KERNEL, &back, 1, NULL, g->done));
    gpu_wait(g, g->done);
    assert_memory_equal(host, got, sizeof host);
    g->ops->buf_free(g->be, dev);
}

/* A range across two registrations, unregistered memory between and behind them. */
static void test_mixed_memory(void **state)
{
    struct gpu *g = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 9 * page;
    unsigned char *m = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *got = malloc(n);
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
    assert_true(m != MAP_FAILED && got != NULL);
    random_bytes(m, n, 21);
    GPU_OK(g, g->ops->host_register(g->be, m, 2 * page, &g->err));
    GPU_OK(g, g->ops->host_register(g->be, m + 2 * page, page, &g->err));
    GPU_OK(g, g->ops->host_register(g->be, m + 5 * page + 10, page, &g->err));
    for (uint32_t c = GPU_ENGINE; c <= GPU_KERNEL; c++) {
        struct atsi_range r = {m + 1, g->ops->buf_ptr(dev), n - 1};
        GPU_OK(g, g->ops->fill(g->queue, r.dst, 0, n, g->done, &g->err));
        gpu_wait(g, g->done);
        GPU_OK(g, gpu_copyv(g, c, &r, 1, NULL, g->done));
        gpu_wait(g, g->done);
        gpu_get(g, got, r.dst, n - 1);
        assert_memory_equal(got, m + 1, n - 1);
    }
    g->ops->host_unregister(g->be, m);
    g->ops->host_unregister(g->be, m + 2 * page);
    g->ops->host_unregister(g->be, m + 5 * page + 10);
    there_and_back(g, m, n); /* as pageable memory again */
    g->ops->buf_free(g->be, dev);
    free(got);
    assert_int_equal(munmap(m, n), 0);
}

/* ---------------------------------------------------------------- order */
/* Weights arrive by the engine, the queue waits for them; the next ones wait until they are used:
 * one slot, two events, random delays. */
static void test_slot_reuse(void **state)
{
    enum { ROUNDS = 30, N = 2048 };
    struct gpu *g = *state;
    static float weights[ROUNDS][N];
    float y[N];
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, 2 * sizeof y);
    float *slot = g->ops->buf_ptr(dev), *sum = slot + N;
    struct atsi_event *arrived, *used;
    struct gpu_add add;
    GPU_OK(g, g->ops->event_open(g->be, &arrived, &g->err));
    GPU_OK(g, g->ops->event_open(g->be, &used, &g->err));
    GPU_OK(g, g->ops->fill(g->queue, sum, 0, sizeof y, g->done, &g->err));
    gpu_add_make(&add, slot, sum, sum, N, 1);
    add.op.src[0] = &add.b; /* sum = sum + slot, in place */
    add.op.src[1] = &add.a;
    assert_int_equal(gpu_control->set("DELAY", "500"), 0);
    for (int i = 0; i < ROUNDS; i++) {
        struct atsi_range r = {weights[i], slot, sizeof y};
        for (int j = 0; j < N; j++)
            weights[i][j] = (float)(i + 1);
        GPU_OK(g, gpu_copyv(g, GPU_ENGINE, &r, 1, i > 0 ? used : NULL, arrived));
        GPU_OK(g, gpu_run(g, &add.op, 3, arrived, used));
    }
    gpu_wait(g, used);
    assert_int_equal(gpu_control->set("DELAY", "0"), 0);
    gpu_get(g, y, sum, sizeof y);
    for (int j = 0; j < N; j++)
        assert_int_equal((int)y[j], ROUNDS * (ROUNDS + 1) / 2);
    g->ops->event_close(arrived);
    g->ops->event_close(used);
    g->ops->buf_free(g->be, dev);
}

static void test_copy_ns(void **state)
{
    struct gpu *g = *state;
    size_t n = 2 * MIB;
    struct atsi_buf *host = gpu_alloc(g, ATSI_MEM_PINNED, n);
    struct atsi_buf *dev = gpu_alloc(g, ATSI_MEM_DEVICE, n);
    struct atsi_range r = {g->ops->buf_ptr(host), g->ops->buf_ptr(dev), n};
    uint64_t ns[2] = {0, 0};
    struct atsi_copyv req = {
        .struct_size = sizeof req, .n_ranges = 1, .ranges = &r, .copy_ns = &ns[0]};
    memset(g->ops->buf_ptr(host), 1, n);
    assert_int_equal(gpu_control->set("H2D", "200000000"), 0); /* 200 MB/s: 10 ms */
    GPU_OK(g, g->link_ops->copyv(g->link, GPU_ENGINE, NULL, &req, &g->err));
    req.copy_ns = &ns[1];
    req.signal = g->done;
    GPU_OK(g, g->link_ops->copyv(g->link, GPU_ENGINE, NULL, &req, &g->err));
    gpu_wait(g, g->done); /* the first had no signal, and is known all the same */
    for (int i = 0; i < 2; i++)
        assert_true(ns[i] >= 10000000);
    g->ops->buf_free(g->be, host);
    g->ops->buf_free(g->be, dev);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_setup, gpu_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_channels),
        TEST(test_misuse),
        TEST(test_odd_engine),
        TEST(test_odd_kernel),
        TEST(test_kernel_both_ways),
        TEST(test_kernel_blocks),
        TEST(test_many_engine),
        TEST(test_many_kernel),
        TEST(test_overlap),
        TEST(test_ring),
        TEST(test_ring_does_not_block),
        TEST(test_no_ring),
        TEST(test_kernel_pageable),
        TEST(test_mixed_memory),
        TEST(test_slot_reuse),
        TEST(test_copy_ns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
