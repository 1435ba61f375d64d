/* SPDX-License-Identifier: Apache-2.0
 *
 * How the rows of a batch's experts are dealt to workers: each to exactly one, in pieces of equal
 * cost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend.h"

enum { EXPERTS = 40, ROWS = 700, THREADS = 19 };

static uint32_t below(uint32_t n)
{
    static uint64_t state = 7;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* How often each row was dealt; the cost of what one worker has. */
static uint64_t deal(const uint64_t *cost, uint32_t n, size_t rows, uint32_t tid,
                     uint32_t n_threads, uint8_t dealt[EXPERTS][ROWS])
{
    uint64_t length = 0, mine = 0;
    struct cpu_cut c;
    for (uint32_t e = 0; e < n; e++)
        length += cost[e] * rows;
    c = cpu_cut_open(length, tid, n_threads);
    for (uint32_t e = 0; e < n; e++) {
        size_t first, end;
        if (!cpu_cut_next(&c, cost[e], rows, &first, &end))
            continue;
        assert_true(first < end && end <= rows);
        assert_int_equal(first % CPU_ROW_STEP, 0);
        for (size_t r = first; r < end; r++)
            dealt[e][r]++;
        mine += cost[e] * (end - first);
    }
    return mine;
}

static void every_row_has_one_worker(void **state)
{
    static uint8_t dealt[EXPERTS][ROWS];
    (void)state;
    for (int trial = 0; trial < 2000; trial++) {
        uint64_t cost[EXPERTS];
        const uint32_t n = 1 + below(EXPERTS), n_threads = 1 + below(THREADS);
        const size_t rows = 1 + below(trial % 2 == 0 ? 70 : ROWS);
        for (uint32_t e = 0; e < n; e++)
            cost[e] = below(3) == 0 ? 0 : 17 + below(100);
        memset(dealt, 0, sizeof dealt);
        for (uint32_t t = 0; t < n_threads; t++)
            (void)deal(cost, n, rows, t, n_threads, dealt);
        for (uint32_t e = 0; e < n; e++)
            for (size_t r = 0; r < rows; r++)
                assert_int_equal(dealt[e][r], cost[e] > 0);
    }
}

/* Nobody has more than a fair piece and the rows that a cut is rounded by, at either end. */
static void pieces_cost_the_same(void **state)
{
    static uint8_t dealt[EXPERTS][ROWS];
    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        uint64_t cost[EXPERTS], all = 0, most = 0;
        const uint32_t n_threads = 1 + below(THREADS);
        for (uint32_t e = 0; e < EXPERTS; e++) {
            cost[e] = below(4) == 0 ? 0 : 17 + below(100);
            all += cost[e] * ROWS;
            most = cost[e] > most ? cost[e] : most;
        }
        for (uint32_t t = 0; t < n_threads; t++)
            assert_true(deal(cost, EXPERTS, ROWS, t, n_threads, dealt) <=
                        all / n_threads + 1 + most * 2 * CPU_ROW_STEP);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_has_one_worker),
        cmocka_unit_test(pieces_cost_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
