/* SPDX-License-Identifier: Apache-2.0
 * Work for simulated devices: an operation per item that carries its modelled time. */
#ifndef ATSI_CORE_ROUND_MODEL_SOURCE_H
#define ATSI_CORE_ROUND_MODEL_SOURCE_H

#include "core/round/exec.h"

struct atsi_model_source;

/* Times of one phase under conditions `c` (the truth; what policies are told may differ). */
int atsi_model_source_open(const struct atsi_question *q, const struct atsi_machine *m,
                           uint32_t phase, const struct atsi_conditions *c,
                           struct atsi_model_source **out, struct atsi_err *err);
void atsi_model_source_close(struct atsi_model_source *s); /* NULL is allowed */
const struct atsi_exec_source *atsi_model_source_get(const struct atsi_model_source *s);
/* [n_items] bytes of activations that reach each item. */
const double *atsi_model_source_in_bytes(const struct atsi_model_source *s);
/* The host's work between two rounds. */
const struct atsi_op *atsi_model_source_gap(const struct atsi_model_source *s);

#endif
