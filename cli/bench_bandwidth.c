/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer bench --bandwidth`: how fast memory is read, by pattern and number of threads.  Of each
 * number the best pattern is printed, then the plain loop and small pages, for what they cost; -v
 * prints every pattern.
 */
#include "cli/bench.h"
#include "cli/options.h"

#include <string.h>

struct table {
    bool csv, json, first;
    double most; /* GB/s of the best pattern of the current number of threads */
};

static void begin(const struct table *t)
{
    if (t->csv)
        (void)puts("threads,pattern,streams,width_bits,prefetch_bytes,page_bytes,best_gbps,"
                   "median_gbps,of_best");
    else if (t->json)
        (void)fputs("[", stdout);
    else
        (void)puts("| threads | pattern | GB/s, best | GB/s, median | of best |\n"
                   "| ---: | --- | ---: | ---: | ---: |");
}

static void row(struct table *t, uint32_t n_threads, const struct read_speed *s)
{
    const struct read_pattern *p = &s->pattern;
    unsigned page = p->huge_pages ? 2u << 20 : 4096u;
    char text[80];
    (void)read_pattern_text(p, text);
    if (t->csv)
        (void)printf("%u,\"%s\",%u,%u,%u,%u,%.2f,%.2f,%.3f\n", n_threads, text, p->streams,
                     8 * p->width_bytes, p->prefetch, page, s->best_gbps, s->median_gbps,
                     s->best_gbps / t->most);
    else if (t->json)
        (void)printf("%s\n  {\"threads\": %u, \"pattern\": \"%s\", \"streams\": %u, "
                     "\"width_bits\": %u, \"prefetch_bytes\": %u, \"page_bytes\": %u, "
                     "\"best_gbps\": %.2f, \"median_gbps\": %.2f, \"of_best\": %.3f}",
                     t->first ? "" : ",", n_threads, text, p->streams, 8 * p->width_bytes,
                     p->prefetch, page, s->best_gbps, s->median_gbps, s->best_gbps / t->most);
    else
        (void)printf("| %u | %s | %.1f | %.1f | %.0f %% |\n", n_threads, text, s->best_gbps,
                     s->median_gbps, 100 * s->best_gbps / t->most);
    t->first = false;
    (void)fflush(stdout);
}

/* The best one, the plain loop, and whatever ran on small pages. */
static bool worth_a_row(const struct read_speeds *s, uint32_t i)
{
    const struct read_pattern *p = &s->v[i].pattern;
    return i == 0 || cli_common.level >= ATSI_LOG_INFO || !p->huge_pages ||
           (p->streams == 1 && p->prefetch == 0 && p->width_bytes == s->v[0].pattern.width_bytes);
}

static int one_count(struct atsi_runtime *rt, const struct read_room *room, uint32_t n,
                     struct table *t)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct read_speeds s;
    int rc = atsi_runtime_set_threads(rt, n, &err), code;
    if (rc != ATSI_OK)
        return cli_fail(CLI_USAGE, "%s", err.msg);
    code = read_speeds_measure(rt, room, &s);
    if (code != CLI_OK)
        return code;
    t->most = s.v[0].best_gbps;
    for (uint32_t i = 0; i < s.n; i++)
        if (worth_a_row(&s, i))
            row(t, n, &s.v[i]);
    return CLI_OK;
}

int bench_bandwidth(struct atsi_runtime *rt, const uint32_t *threads, uint32_t n,
                    const char *format)
{
    struct table t = {
        .csv = strcmp(format, "csv") == 0, .json = strcmp(format, "json") == 0, .first = true};
    uint32_t all = atsi_runtime_workers(rt, NULL, 0);
    struct read_room room;
    int code;
    if (!t.csv && !t.json && strcmp(format, "md") != 0)
        return cli_fail(CLI_USAGE, "--bandwidth -o %s: expected md, csv or json", format);
    code = read_room_open(rt, false, &room);
    if (code != CLI_OK)
        return code;
    begin(&t);
    for (uint32_t i = 0; i < n && code == CLI_OK; i++)
        code = one_count(rt, &room, threads[i], &t);
    for (uint32_t k = 1; n == 0 && k < all && code == CLI_OK; k *= 2)
        code = one_count(rt, &room, k, &t);
    if (n == 0 && code == CLI_OK)
        code = one_count(rt, &room, all, &t);
    if (t.json)
        (void)fputs("\n]\n", stdout);
    read_room_close(&room);
    return cli_finish_stdout(code);
}
