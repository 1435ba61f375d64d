/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots per layer: what the next slot of a layer is worth falls with every slot (uses come sorted),
 * so giving the next one to where it is worth most per byte is the best division, up to the last
 * slot that no longer fits (fractional knapsack).
 */
#include "sched/experts.h"

#include <math.h>

/* What is not known is taken to be a Zipf law with exponent 1/2, of which the first n of E have a
 * share of sqrt(n / E): milder than most models, but not even. */
static double share_of_first(const struct sched_cache_layer *l, uint32_t n)
{
    double sum = 0, seen = 0;
    if (l->uses == NULL)
        return sqrt((double)n / l->n_experts);
    for (uint32_t e = 0; e < l->n_experts; e++) {
        sum += (double)l->uses[e];
        seen += e < n ? (double)l->uses[e] : 0.0;
    }
    /* What was never seen may still come: one more round's worth of uses, evenly spread. */
    return (seen + (double)l->n_used * n / l->n_experts) / (sum + l->n_used);
}

double sched_experts_hits(const struct sched_cache_layer *l, uint32_t n_slots)
{
    return l->n_used * share_of_first(l, n_slots < l->n_experts ? n_slots : l->n_experts);
}

/* Time that the next slot saves per round and byte; negative: there is none. */
static double density(const struct sched_cache_layer *l)
{
    if (l->n_slots + 1 >= l->n_experts || l->bytes == 0)
        return -1;
    return (share_of_first(l, l->n_slots + 1) - share_of_first(l, l->n_slots)) * l->n_used *
           (double)l->hit_ns / (double)l->bytes;
}

/* Whether a's next slot comes before b's; alike layers take turns. */
static int comes_first(const struct sched_cache_layer *layers, uint32_t a, uint32_t b)
{
    double x = density(&layers[a]), y = density(&layers[b]);
    if (x > y || y > x)
        return x > y;
    if (layers[a].n_slots != layers[b].n_slots)
        return layers[a].n_slots < layers[b].n_slots;
    return a < b;
}

static void sift_down(const struct sched_cache_layer *layers, uint32_t *heap, uint32_t n,
                      uint32_t at)
{
    for (;;) {
        uint32_t first = at, moved;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < n; child++)
            if (comes_first(layers, heap[child], heap[first]))
                first = child;
        if (first == at)
            return;
        moved = heap[at];
        heap[at] = heap[first];
        heap[first] = moved;
        at = first;
    }
}

uint64_t sched_experts_share(struct sched_cache_layer *layers, uint32_t n, uint64_t budget,
                             uint32_t *heap)
{
    uint64_t left = budget;
    uint32_t in_heap = n;
    for (uint32_t i = 0; i < n; i++) {
        layers[i].n_slots = 0;
        heap[i] = i;
    }
    for (uint32_t i = n / 2; i-- > 0;)
        sift_down(layers, heap, n, i);
    while (in_heap > 0) {
        struct sched_cache_layer *l = &layers[heap[0]];
        if (density(l) < 0 || l->bytes > left) {
            heap[0] = heap[--in_heap];
        } else {
            l->n_slots++;
            left -= l->bytes;
        }
        sift_down(layers, heap, in_heap, 0);
    }
    return budget - left;
}
