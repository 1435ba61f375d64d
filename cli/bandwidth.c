/* SPDX-License-Identifier: Apache-2.0
 *
 * The yardstick for decode: how fast the workers read memory when they do nothing else.  Every
 * worker reads its share in two streams, which hides more latency than one.
 */
#include "cli/bench.h"

#include <sys/mman.h>

#define BUFFER_BYTES ((size_t)512 << 20)
#define PASSES 4

struct reader {
    const uint64_t *data;
    size_t n;          /* words */
    uint64_t sink[64]; /* a result per worker keeps the loads alive */
};

static void read_share(void *arg, struct atsi_worker *w)
{
    struct reader *r = arg;
    size_t share = r->n / w->n_threads / 16 * 16, half = share / 2;
    const uint64_t *a = r->data + share * w->tid, *b = a + half;
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 4 <= half; i += 4)
        for (size_t k = 0; k < 4; k++) {
            s[k] ^= a[i + k];
            s[4 + k] ^= b[i + k];
        }
    r->sink[w->tid % 64] = s[0] ^ s[1] ^ s[2] ^ s[3] ^ s[4] ^ s[5] ^ s[6] ^ s[7];
}

double bench_read_bandwidth(const struct atsi_runtime *rt)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    struct reader r = {.n = BUFFER_BYTES / sizeof(uint64_t)};
    uint64_t best = UINT64_MAX;
    uint64_t *data;
    if (atsi_runtime_topo(rt)->mem_available_bytes < 2 * BUFFER_BYTES)
        return 0;
    data = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED)
        return 0;
    (void)madvise(data, BUFFER_BYTES, MADV_HUGEPAGE); /* a hint; small pages work too */
    for (size_t i = 0; i < r.n; i++)
        data[i] = i; /* never-written memory reads one shared page */
    r.data = data;
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t start = host->now_ns(host->ctx), ns;
        if (host->region(host->ctx, read_share, &r, 0) != ATSI_OK)
            break;
        ns = host->now_ns(host->ctx) - start;
        best = ns < best ? ns : best;
    }
    (void)munmap(data, BUFFER_BYTES);
    return best == UINT64_MAX ? 0 : (double)BUFFER_BYTES / (double)best;
}
