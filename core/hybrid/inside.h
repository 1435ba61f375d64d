/* SPDX-License-Identifier: Apache-2.0
 * The parts of a hybrid session: setup.c puts them together, hybrid.c runs rounds. */
#ifndef ATSI_CORE_HYBRID_INSIDE_H
#define ATSI_CORE_HYBRID_INSIDE_H

#include "core/hybrid/hybrid.h"
#include "core/hybrid/question.h"
#include "core/round/rounds.h"

struct atsi_hybrid {
    struct atsi_session *s;
    struct atsi_accel a;
    struct atsi_budget_conf conf;
    struct atsi_budget_sizes sizes;
    struct atsi_budget budget;
    struct atsi_items *items;
    struct atsi_values values;
    struct atsi_weights *weights; /* [borrowed from the model] */
    struct atsi_source *source;
    struct atsi_question *question;
    struct atsi_costs *costs; /* that it was made from; or NULL */
    struct atsi_rounds *rounds;
    struct atsi_region *region;
    struct atsi_state state;
    struct atsi_piece *wants;
    uint8_t *packable; /* [tensors] */
    double *in_bytes;  /* [n_items] not used by plans with a flow */
    bool pinned;       /* this session pinned the weights */
    bool begun;        /* inside atsi_weights_begin() .. end() */
    uint64_t version;  /* of the weights that operations are bound to */
    uint64_t n_rounds;
    uint32_t n_replans;
};

/* Everything but the devices, in the order things depend on each other; again with less when the
 * device has not as much memory as it said.  ATSI_ENOTSUP, ATSI_ENOMEM: not on this accelerator. */
int atsi_hybrid_setup(struct atsi_hybrid *h, struct atsi_err *err);
void atsi_hybrid_undo(struct atsi_hybrid *h);

#endif
