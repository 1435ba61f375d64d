/* SPDX-License-Identifier: Apache-2.0
 * Buffers, reserved ranges and registered host memory of the CUDA plugin. */
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

static void test_props(void **state)
{
    struct gpu *g = *state;
    struct atsi_props p = {.struct_size = sizeof p};
    assert_int_equal(g->ops->probe(&gpu_host), 1);
    assert_int_equal(g->ops->props(g->be, &p), ATSI_OK);
    assert_int_equal(p.device_kind, ATSI_DEVICE_GPU);
    assert_true(p.name[0] != '\0' && p.mem_total_bytes >= p.mem_free_bytes);
    assert_true(p.mem_free_bytes > 0 && p.buf_align_bytes >= 64);
    p.struct_size = 8;
    assert_int_equal(g->ops->props(g->be, &p), ATSI_EINVAL);
}

static void test_aligned(void **state)
{
    struct gpu *g = *state;
    struct atsi_props p = {.struct_size = sizeof p};
    size_t before = gpu_free_bytes(g);
    struct atsi_buf *buf[6];
    assert_int_equal(g->ops->props(g->be, &p), ATSI_OK);
    for (int i = 0; i < 6; i++) {
        buf[i] = gpu_alloc(g, i % 2 == 0 ? ATSI_MEM_DEVICE : ATSI_MEM_PINNED, (size_t)i * 777);
        assert_int_equal((uintptr_t)g->ops->buf_ptr(buf[i]) % p.buf_align_bytes, 0);
    }
    for (int i = 0; i < 6; i++)
        g->ops->buf_free(g->be, buf[i]);
    g->ops->buf_free(g->be, NULL);
    assert_int_equal(gpu_free_bytes(g), before);
}

static void test_out_of_memory(void **state)
{
    struct gpu *g = *state;
    struct atsi_buf *buf = (struct atsi_buf *)&buf;
    assert_int_equal(g->ops->buf_alloc(g->be, ATSI_MEM_DEVICE, (size_t)1 << 50, &buf, &g->err),
                     ATSI_ENOMEM);
    assert_null(buf);
    assert_non_null(strstr(g->err.msg, "1125899906842624 bytes"));
    assert_int_equal(g->ops->buf_alloc(g->be, (enum atsi_mem)9, 16, &buf, &g->err), ATSI_EINVAL);
    assert_int_equal(gpu_control->set("PINNED", "1m"), 0);
    assert_int_equal(g->ops->buf_alloc(g->be, ATSI_MEM_PINNED, 2 * MIB, &buf, &g->err),
                     ATSI_ENOMEM);
    g->ops->buf_free(g->be, gpu_alloc(g, ATSI_MEM_DEVICE, MIB)); /* all is well otherwise */
}

static void fill_and_check(struct gpu *g, struct atsi_buf *buf, size_t bytes, int value)
{
    unsigned char *want = malloc(bytes), *got = malloc(bytes);
    assert_true(want != NULL && got != NULL);
    memset(want, value, bytes);
    gpu_put(g, g->ops->buf_ptr(buf), want, bytes);
    gpu_get(g, got, g->ops->buf_ptr(buf), bytes);
    assert_memory_equal(got, want, bytes);
    free(want);
    free(got);
}

static void test_commit(void **state)
{
    struct gpu *g = *state;
    size_t before = gpu_free_bytes(g), some;
    unsigned char got[64], want[64];
    struct atsi_buf *buf;
    void *ptr;
    GPU_OK(g, g->ops->buf_reserve(g->be, 64 * MIB, &buf, &g->err));
    ptr = g->ops->buf_ptr(buf);
    assert_non_null(ptr);
    assert_int_equal(gpu_free_bytes(g), before); /* addresses only */
    GPU_OK(g, g->ops->buf_commit(g->be, buf, 3 * MIB, &g->err));
    some = gpu_free_bytes(g);
    assert_true(some <= before - 3 * MIB);
    fill_and_check(g, buf, 3 * MIB, 0x5a);
    GPU_OK(g, g->ops->buf_commit(g->be, buf, 40 * MIB, &g->err));
    assert_true(gpu_free_bytes(g) <= before - 40 * MIB);
    assert_ptr_equal(g->ops->buf_ptr(buf), ptr);
    GPU_OK(g, g->ops->buf_commit(g->be, buf, 3 * MIB, &g->err)); /* memory comes back */
    assert_int_equal(gpu_free_bytes(g), some);
    memset(want, 0x5a, sizeof want);
    gpu_get(g, got, (unsigned char *)ptr + 3 * MIB - sizeof got, sizeof got);
    assert_memory_equal(got, want, sizeof want); /* contents have stayed */
    GPU_OK(g, g->ops->buf_commit(g->be, buf, 0, &g->err));
    assert_int_equal(gpu_free_bytes(g), before);
    assert_int_equal(g->ops->buf_commit(g->be, buf, 65 * MIB, &g->err), ATSI_EINVAL);
    g->ops->buf_free(g->be, buf);
}

static void test_commit_too_much(void **state)
{
    struct gpu *g = *state;
    struct atsi_buf *buf;
    size_t less;
    GPU_OK(g, g->ops->buf_reserve(g->be, (size_t)8 << 30, &buf, &g->err));
    GPU_OK(g, g->ops->buf_commit(g->be, buf, 5 * MIB, &g->err));
    less = gpu_free_bytes(g);
    assert_int_equal(g->ops->buf_commit(g->be, buf, (size_t)4 << 30, &g->err), ATSI_ENOMEM);
    assert_int_equal(gpu_free_bytes(g), less); /* as before the failure */
    fill_and_check(g, buf, 5 * MIB, 0x33);
    g->ops->buf_free(g->be, buf);
}

/* A driver without virtual memory: whoever wants a range is told so, and allocates. */
static void test_without_vmm(void **state)
{
    struct gpu *g = *state;
    struct atsi_buf *buf;
    gpu_close(g);
    gpu_fail("cudaGetDriverEntryPointByVersion", 1, 801 /* cudaErrorNotSupported */, 0);
    assert_int_equal(gpu_open(g), ATSI_OK);
    assert_int_equal(g->ops->buf_reserve(g->be, 8 * MIB, &buf, &g->err), ATSI_ENOTSUP);
    assert_null(buf);
    buf = gpu_alloc(g, ATSI_MEM_DEVICE, 2 * MIB);
    fill_and_check(g, buf, 2 * MIB, 0x11);
    assert_int_equal(g->ops->buf_commit(g->be, buf, MIB, &g->err), ATSI_EINVAL); /* no range */
    g->ops->buf_free(g->be, buf);
}

/* Pinned now: of callers and of ours. */
static size_t pinned(void)
{
    struct cuda_host_stats s;
    gpu_control->stats(&s);
    return s.pinned_bytes;
}

static void test_register(void **state)
{
    struct gpu *g = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = pinned();
    unsigned char *m =
        mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(m, MAP_FAILED);
    /* Two tensors that share a page, and one across both. */
    GPU_OK(g, g->ops->host_register(g->be, m + 100, 2 * page, &g->err));
    assert_int_equal(pinned() - before, 3 * page);
    GPU_OK(g, g->ops->host_register(g->be, m + 2 * page + 500, 3 * page, &g->err));
    assert_int_equal(pinned() - before, 6 * page);
    GPU_OK(g, g->ops->host_register(g->be, m + page, 8 * page, &g->err));
    assert_int_equal(pinned() - before, 9 * page);
    g->ops->host_unregister(g->be, m + 100);
    assert_int_equal(pinned() - before, 9 * page); /* still used by the others */
    g->ops->host_unregister(g->be, m + page);
    g->ops->host_unregister(g->be, m + 2 * page + 500);
    assert_int_equal(pinned(), before);
    g->ops->host_unregister(g->be, m + 1); /* nobody's */
    GPU_OK(g, g->ops->host_register(g->be, m, page, &g->err));
    gpu_close(g); /* lets go of what callers forgot */
    assert_int_equal(munmap(m, 16 * page), 0);
}

static void test_register_limits(void **state)
{
    struct gpu *g = *state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), before = pinned();
    char limit[32];
    unsigned char *m =
        mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(m, MAP_FAILED);
    assert_int_equal(g->ops->host_register(g->be, NULL, 8, &g->err), ATSI_EINVAL);
    assert_int_equal(g->ops->host_register(g->be, m, 0, &g->err), ATSI_EINVAL);
    assert_int_equal(g->ops->host_register(g->be, m, SIZE_MAX, &g->err), ATSI_EINVAL);
    (void)snprintf(limit, sizeof limit, "%zu", before + 8 * page);
    assert_int_equal(gpu_control->set("PINNED", limit), 0);
    GPU_OK(g, g->ops->host_register(g->be, m, 4 * page, &g->err));
    /* Shares the last page, and needs more behind than there may be. */
    assert_int_equal(g->ops->host_register(g->be, m + 3 * page, 12 * page, &g->err), ATSI_ENOMEM);
    assert_int_equal(pinned() - before, 4 * page);
    gpu_fail("cudaHostRegister", 1, 1 /* cudaErrorInvalidValue */, 0);
    assert_int_equal(g->ops->host_register(g->be, m + 5 * page, page, &g->err), ATSI_ENOTSUP);
    assert_non_null(strstr(g->err.msg, "pinning"));
    assert_int_equal(pinned() - before, 4 * page);
    g->ops->host_unregister(g->be, m + 5 * page); /* never was */
    g->ops->host_unregister(g->be, m);
    assert_int_equal(pinned(), before);
    assert_int_equal(munmap(m, 16 * page), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_setup, gpu_teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_props),    TEST(test_aligned),         TEST(test_out_of_memory),
        TEST(test_commit),   TEST(test_commit_too_much), TEST(test_without_vmm),
        TEST(test_register), TEST(test_register_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
