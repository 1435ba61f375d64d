/* SPDX-License-Identifier: Apache-2.0
 *
 * One row of `atsinfer bench`: the name of its test and what its samples amount to.
 */
#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>

const char *bench_test_name(uint32_t n_prompt, uint32_t n_gen, uint32_t n_depth, char buf[64])
{
    int n = n_gen == 0 ? snprintf(buf, 64, "pp%u", n_prompt) : snprintf(buf, 64, "tg%u", n_gen);
    if (n_depth > 0)
        (void)snprintf(buf + n, 64 - (size_t)n, " @ d%u", n_depth);
    return buf;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Of the speeds; of an even number the middle of both. */
static double median_ts(const struct bench_row *r, double tokens)
{
    const size_t n = r->n_samples, low = (n - 1) / 2, high = n / 2;
    uint64_t *sorted = calloc(n + 1, sizeof *sorted);
    double ts;
    if (sorted == NULL)
        return r->avg_ts;
    for (size_t i = 0; i < n; i++)
        sorted[i] = r->samples_ns[i];
    qsort(sorted, n, sizeof *sorted, ascending);
    ts = (tokens / (double)sorted[high] + tokens / (double)sorted[low]) / 2 * 1e9;
    free(sorted);
    return ts;
}

void bench_statistics(struct bench_row *r)
{
    double tokens = (double)(r->n_gen > 0 ? r->n_gen : r->n_prompt), n = (double)r->n_samples;
    double sum_ns = 0, sum_ts = 0, var_ns = 0, var_ts = 0;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        sum_ns += (double)r->samples_ns[i];
        sum_ts += tokens * 1e9 / (double)r->samples_ns[i];
    }
    r->avg_ns = sum_ns / n;
    r->avg_ts = sum_ts / n;
    for (uint32_t i = 0; i < r->n_samples; i++) {
        double d_ns = (double)r->samples_ns[i] - r->avg_ns;
        double d_ts = tokens * 1e9 / (double)r->samples_ns[i] - r->avg_ts;
        var_ns += d_ns * d_ns;
        var_ts += d_ts * d_ts;
    }
    r->stddev_ns = n > 1 ? sqrt(var_ns / (n - 1)) : 0;
    r->stddev_ts = n > 1 ? sqrt(var_ts / (n - 1)) : 0;
    r->median_ts = median_ts(r, tokens);
    r->ttft_ms = r->n_gen == 0 ? r->avg_ns / 1e6 : 0;
}
