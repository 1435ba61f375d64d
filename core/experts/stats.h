/* SPDX-License-Identifier: Apache-2.0
 *
 * How often each expert of a model was chosen lately, kept from one session to the next in the
 * user's cache folder.  Text: a line per layer.
 */
#ifndef ATSI_CORE_EXPERTS_STATS_H
#define ATSI_CORE_EXPERTS_STATS_H

#include "core/runtime.h"

struct atsi_expert_layer {
    uint32_t layer, n_experts;
    float *score; /* [n_experts] */
};

/* Zeroed: nothing is known. */
struct atsi_expert_stats {
    struct atsi_expert_layer *layers; /* [n] */
    uint32_t n;
};

/* Scores of a layer, all 0 when it is new; NULL: out of memory, or known with other experts. */
float *atsi_expert_stats_layer(struct atsi_expert_stats *s, uint32_t layer, uint32_t n_experts);
void atsi_expert_stats_free(struct atsi_expert_stats *s); /* zeroes it */

/* The file of a model.  ATSI_ENOTSUP: there is no cache folder. */
int atsi_expert_stats_path(const struct atsi_model *m, bool make, char *out, size_t size,
                           struct atsi_err *err);
/* s: zeroed.  ATSI_ENOENT; ATSI_EFORMAT: what is wrong, with the line; s is empty then. */
int atsi_expert_stats_read(struct atsi_expert_stats *s, const char *path, struct atsi_err *err);
int atsi_expert_stats_write(const struct atsi_expert_stats *s, const char *path,
                            struct atsi_err *err);

#endif
