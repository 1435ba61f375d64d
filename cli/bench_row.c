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
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

double bench_median(double *v, size_t n)
{
    if (n == 0)
        return 0;
    qsort(v, n, sizeof *v, ascending);
    return (v[(n - 1) / 2] + v[n / 2]) / 2;
}

/* Of the speeds. */
static double median_ts(const struct bench_row *r, double tokens)
{
    double *speeds = calloc((size_t)r->n_samples + 1, sizeof *speeds), median;
    if (speeds == NULL)
        return r->avg_ts;
    for (uint32_t i = 0; i < r->n_samples; i++)
        speeds[i] = tokens * 1e9 / (double)r->samples_ns[i];
    median = bench_median(speeds, r->n_samples);
    free(speeds);
    return median;
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
