/* SPDX-License-Identifier: Apache-2.0
 *
 * The yardstick for decode: how fast the workers read memory when they do nothing else.  No single
 * way to read is the fastest everywhere (streams, registers, prefetching and pages all matter), so
 * several are tried and the best one counts.
 */
#include "cli/limits.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ROOM_BYTES ((size_t)256 << 20) /* beyond any cache but the largest: see room_size() */
#define LEAST_BYTES ((size_t)32 << 20)
#define PASSES 5
#define QUICK_PATTERNS 4u /* that go on after the first pass */
#define HUGE_PAGE ((size_t)2 << 20)

/* ---------------------------------------------------------------- memory */
/* Four times the last cache, at most a quarter of what is free for each of both. */
static size_t room_size(const struct atsi_topo *topo)
{
    size_t cache = topo->n_caches > 0 ? (size_t)topo->caches[topo->n_caches - 1].bytes : 0;
    size_t want = 4 * cache > ROOM_BYTES ? 4 * cache : ROOM_BYTES;
    size_t most = (size_t)topo->mem_available_bytes / 4;
    want = want < most ? want : most;
    return want / HUGE_PAGE * HUGE_PAGE;
}

/* Written once: memory that was never written reads one shared page. */
static unsigned char *map_room(size_t bytes, int advice)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, bytes, advice); /* a hint */
    memset(p, 1, bytes);
    return p;
}

int read_room_open(const struct atsi_runtime *rt, bool quick, struct read_room *out)
{
    *out = (struct read_room){.bytes = room_size(atsi_runtime_topo(rt))};
    if (out->bytes >= LEAST_BYTES) {
        out->huge = map_room(out->bytes, MADV_HUGEPAGE);
        if (!quick)
            out->small = map_room(out->bytes, MADV_NOHUGEPAGE);
    }
    if (out->huge != NULL && (quick || out->small != NULL))
        return CLI_OK;
    read_room_close(out);
    return cli_fail(CLI_NO_FIT, "not enough free memory to measure how fast it is read");
}

void read_room_close(struct read_room *r)
{
    if (r->huge != NULL)
        (void)munmap(r->huge, r->bytes);
    if (r->small != NULL)
        (void)munmap(r->small, r->bytes);
    *r = (struct read_room){.bytes = 0};
}

/* ---------------------------------------------------------------- one pass */
struct reader {
    const struct read_pattern *pattern;
    const unsigned char *data;
    size_t bytes;
    uint64_t sink[64]; /* a result per worker keeps the loads alive */
};

static void read_share(void *arg, struct atsi_worker *w)
{
    struct reader *r = arg;
    size_t share = r->bytes / w->n_threads / READ_LOOPS_ALIGN * READ_LOOPS_ALIGN;
    r->sink[w->tid % 64] = read_loop_run(r->pattern, r->data + share * w->tid, share);
}

/* GB/s of one pass; 0: the workers cannot be started. */
static double pass(const struct atsi_host *host, const struct read_room *room,
                   const struct read_pattern *p)
{
    struct reader r = {
        .pattern = p, .data = p->huge_pages ? room->huge : room->small, .bytes = room->bytes};
    uint64_t start = host->now_ns(host->ctx);
    if (host->region(host->ctx, read_share, &r, 0) != ATSI_OK)
        return 0;
    return (double)r.bytes / (double)((host->now_ns(host->ctx) - start) | 1);
}

/* ---------------------------------------------------------------- all patterns */
static void list_patterns(uint64_t cpu_caps, bool small_pages, struct read_speeds *out)
{
    static const uint32_t widths[] = {64, 32, 16}, streams[] = {1, 2, 4};
    static const uint32_t ahead[] = {0, 1024, 2048};
    uint32_t widest = 16;
    out->n = 0;
    for (int w = 2; w >= 0; w--)
        widest = read_loop_possible(widths[w], cpu_caps) ? widths[w] : widest;
    for (int w = 0; w < 3; w++)
        for (int s = 0; s < 3 && read_loop_possible(widths[w], cpu_caps); s++)
            for (int a = 0; a < 3; a++)
                out->v[out->n++].pattern =
                    (struct read_pattern){streams[s], widths[w], ahead[a], true};
    for (int s = 0; s < 2 && small_pages; s++) /* the plain loop, and what is usually best */
        out->v[out->n++].pattern =
            (struct read_pattern){streams[s], widest, s == 0 ? 0 : 1024, false};
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static int fastest_first(const void *a, const void *b)
{
    const struct read_speed *x = a, *y = b;
    return (x->best_gbps < y->best_gbps) - (x->best_gbps > y->best_gbps);
}

/* n_passes through the first n patterns. */
static int measure(const struct atsi_host *host, const struct read_room *room, uint32_t n,
                   int n_passes, struct read_speeds *out)
{
    double gbps[LIMITS_MAX_PATTERNS][PASSES];
    for (int k = 0; k < n_passes; k++)
        for (uint32_t i = 0; i < n; i++) {
            gbps[i][k] = pass(host, room, &out->v[i].pattern);
            if (cli_interrupted != 0)
                return CLI_INTERRUPTED;
            if (gbps[i][k] <= 0)
                return cli_fail(CLI_RUN_ERROR, "the workers cannot be started");
        }
    for (uint32_t i = 0; i < n; i++) {
        qsort(gbps[i], (size_t)n_passes, sizeof gbps[i][0], ascending);
        if (gbps[i][n_passes - 1] > out->v[i].best_gbps)
            out->v[i].best_gbps = gbps[i][n_passes - 1];
        out->v[i].median_gbps = gbps[i][n_passes / 2];
    }
    return CLI_OK;
}

int read_speeds_measure(const struct atsi_runtime *rt, const struct read_room *room,
                        struct read_speeds *out)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    const bool quick = room->small == NULL;
    int code;
    memset(out, 0, sizeof *out);
    out->n_threads = host->n_threads(host->ctx);
    list_patterns(host->cpu_caps, !quick, out);
    code = measure(host, room, out->n, quick ? 1 : PASSES, out);
    qsort(out->v, out->n, sizeof out->v[0], fastest_first);
    if (code == CLI_OK && quick) {
        code = measure(host, room, out->n < QUICK_PATTERNS ? out->n : QUICK_PATTERNS, PASSES, out);
        qsort(out->v, out->n, sizeof out->v[0], fastest_first);
    }
    return code;
}

const char *read_pattern_text(const struct read_pattern *p, char buf[80])
{
    char ahead[32] = "no prefetch";
    if (p->prefetch > 0)
        (void)snprintf(ahead, sizeof ahead, "prefetch %u KiB", p->prefetch / 1024);
    (void)snprintf(buf, 80, "%u stream%s, %u-bit, %s, %s pages", p->streams,
                   p->streams == 1 ? "" : "s", 8 * p->width_bytes, ahead,
                   p->huge_pages ? "2 MiB" : "4 KiB");
    return buf;
}

/* ---------------------------------------------------------------- the fastest alone */
double read_yardstick_open(const struct atsi_runtime *rt, struct read_yardstick *out)
{
    struct read_speeds s = {.n = 0};
    int code = read_room_open(rt, true, &out->room);
    if (code == CLI_OK)
        code = read_speeds_measure(rt, &out->room, &s);
    if (code != CLI_OK) {
        read_room_close(&out->room);
        return 0;
    }
    out->pattern = s.v[0].pattern;
    return s.v[0].best_gbps;
}

double read_yardstick_pass(const struct atsi_runtime *rt, const struct read_yardstick *y)
{
    return y->room.huge != NULL ? pass(atsi_runtime_host(rt), &y->room, &y->pattern) : 0;
}

void read_yardstick_close(struct read_yardstick *y)
{
    read_room_close(&y->room);
}

double limit_read_gbps(const struct atsi_runtime *rt)
{
    struct read_yardstick y;
    double gbps = read_yardstick_open(rt, &y);
    read_yardstick_close(&y);
    return gbps;
}
