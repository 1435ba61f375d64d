/* SPDX-License-Identifier: Apache-2.0
 *
 * What a worker has of its caches.  Hardware threads share those of their core, and some machines
 * share the second one between cores; a cache that other CPUs could use too, but no worker does, is
 * a worker's own.
 */
#include "core/topo.h"

#include <stdlib.h>

/* Which of the topology's CPUs have a worker. */
static void mark(const struct atsi_topo *t, const uint32_t *cpus, uint32_t n, uint8_t *marked)
{
    for (uint32_t c = 0; c < t->n_cpus; c++)
        for (uint32_t i = 0; i < n && marked[c] == 0; i++)
            marked[c] = t->cpus[c].os_index == cpus[i];
}

/* Other CPUs with a worker on the cache of CPU `of`. */
static uint32_t others(const struct atsi_topo *t, const uint8_t *marked, uint32_t level,
                       uint32_t of)
{
    uint32_t n = 0, first = t->cpu_caches[of].first_cpu[level - 1];
    for (uint32_t c = 0; c < t->n_cpus; c++)
        n += c != of && marked[c] != 0 && t->cpu_caches[c].bytes[level - 1] != 0 &&
             t->cpu_caches[c].first_cpu[level - 1] == first;
    return n;
}

uint64_t atsi_topo_share(const struct atsi_topo *t, const uint32_t *cpus, uint32_t n,
                         uint32_t level)
{
    uint8_t *marked = t->cpu_caches != NULL ? calloc((size_t)t->n_cpus + 1, 1) : NULL;
    uint64_t least = UINT64_MAX;
    if (marked == NULL)
        return 0;
    mark(t, cpus, n, marked);
    for (uint32_t c = 0; c < t->n_cpus; c++) {
        uint64_t share = t->cpu_caches[c].bytes[level - 1];
        if (marked[c] == 0)
            continue;
        if (share != 0)
            share /= 1 + others(t, marked, level, c);
        least = share < least ? share : least;
    }
    free(marked);
    return least != UINT64_MAX ? least : 0;
}
