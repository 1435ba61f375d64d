/* SPDX-License-Identifier: Apache-2.0
 *
 * The merge loop that SPM and byte-level BPE share: join the adjacent pair of lowest priority
 * number, leftmost first, until no pair has one.
 */
#ifndef ATSI_TEXT_MERGE_H
#define ATSI_TEXT_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ATSI_NO_MERGE UINT32_MAX

/* A piece of the text: bytes [start, start + len). */
struct atsi_sym {
    uint32_t start, len;
    uint32_t id;     /* of the vocabulary; what it means is the pair function's affair */
    uint32_t prio;   /* of joining this symbol with the next one, ATSI_NO_MERGE: cannot */
    uint32_t joined; /* id that joining gives */
    uint32_t prev, next;
};

/* Priority (0 is the most urgent) of joining two neighbours, and the id that results. */
typedef uint32_t atsi_pair_fn(const void *ctx, const struct atsi_sym *left,
                              const struct atsi_sym *right, uint32_t *joined_out);

/* Memory of the loop, kept between calls.  All-zero is a fresh one. */
struct atsi_merger {
    struct atsi_sym *syms; /* the caller fills [0, n): start, len, id; results are left here */
    size_t cap;
    uint64_t *heap;
    size_t cap_heap;
    uint64_t n_steps; /* pairs looked up and candidates examined since open: cost without a clock */
};

/* Makes room for n symbols; false when out of memory. */
bool atsi_merger_reserve(struct atsi_merger *m, size_t n);
void atsi_merger_close(struct atsi_merger *m);

/* Merges syms[0, n) and moves the result to the front; *n_out is its length.  O(n log n).  false
 * when out of memory. */
bool atsi_merge(struct atsi_merger *m, size_t n, atsi_pair_fn *pair, const void *ctx,
                size_t *n_out);

#endif
