/* SPDX-License-Identifier: Apache-2.0
 * The loops that measure memory read all of it: one byte that is not zero shows, wherever it is. */
#include "cli/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BYTES ((size_t)16 * READ_LOOPS_ALIGN)

static void reads_all(const struct read_pattern *p, unsigned char *data)
{
    assert_true(read_loop_run(p, data, BYTES) == 0);
    for (size_t i = 0; i < BYTES; i += 61) {
        data[i] = 1;
        if (read_loop_run(p, data, BYTES) == 0)
            fail_msg("%u streams of %u bytes, %u ahead: byte %zu is not read", p->streams,
                     p->width_bytes, p->prefetch, i);
        data[i] = 0;
    }
}

static void test_every_byte(void **state)
{
    static const uint32_t widths[] = {16, 32, 64}, streams[] = {1, 2, 4}, ahead[] = {0, 1024};
    const uint64_t caps = atsi_cpu_caps_here();
    unsigned char *data = aligned_alloc(READ_LOOPS_ALIGN, BYTES);
    (void)state;
    assert_non_null(data);
    memset(data, 0, BYTES);
    assert_true(read_loop_possible(16, 0)); /* everywhere */
    assert_false(read_loop_possible(64, 0));
    for (int w = 0; w < 3; w++)
        for (int s = 0; s < 3 && read_loop_possible(widths[w], caps); s++)
            for (int a = 0; a < 2; a++) {
                const struct read_pattern p = {streams[s], widths[w], ahead[a], true};
                reads_all(&p, data);
            }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_byte)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
