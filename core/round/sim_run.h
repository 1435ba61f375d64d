/* SPDX-License-Identifier: Apache-2.0
 *
 * What simulated requests and plans run on: the items of a model, a machine profile, the simulated
 * devices, the configured policies, and sessions of rounds over them.
 */
#ifndef ATSI_CORE_ROUND_SIM_RUN_H
#define ATSI_CORE_ROUND_SIM_RUN_H

#include "atsinfer/simulate.h"
#include "core/round/costs.h"
#include "core/round/model_source.h"
#include "core/round/rounds.h"
#include "core/runtime.h"

struct atsi_sim_run {
    struct atsi_runtime *rt;
    const struct atsi_sim_params *p;
    struct atsi_machine machine;
    struct atsi_costs *costs; /* measured; NULL: machine is a profile */
    struct atsi_model *model; /* of costs; else NULL */
    struct atsi_costs_model made_of;
    struct atsi_items *items;
    struct atsi_exec_devices d;
    struct atsi_rounds_params policies;
    struct atsi_sim_result *out; /* of atsi_simulate */
    uint64_t ram_bytes;          /* what may stay on the host; 0: all */
    uint64_t pinned_bytes;       /* of items that must live on the accelerator */
    uint64_t rows_bytes;         /* activations of prefill rounds, beyond those of the usual size */
    struct atsi_sim_experts *experts; /* decode rounds with expert caches; NULL: without */
    struct atsi_err *err;
};

/* One session of rounds over one question. */
struct atsi_sim_session {
    struct atsi_question *told, *truth;
    struct atsi_model_source *source[2];
    struct atsi_rounds *rounds;
};

/* ---- sim_machine.c */
/* A profile, a table, or ATSI_MACHINE_HERE.  The caller closes also after a failure. */
int atsi_sim_open_machine(struct atsi_sim_run *r);
void atsi_sim_close_machine(struct atsi_sim_run *r);
/* With the machine's costs. */
int atsi_sim_question(struct atsi_sim_run *r, const struct atsi_question_params *p,
                      struct atsi_question **out);

/* ---- sim_run.c */
/* Items of the shape file (.ini) or model file p->model.  [owned: atsi_items_free] */
int atsi_sim_open_items(struct atsi_sim_run *r);
/* The policies that the configuration names. */
int atsi_sim_find_policies(struct atsi_sim_run *r);
int atsi_sim_open_devices(struct atsi_sim_run *r);
void atsi_sim_close_devices(struct atsi_sim_run *r); /* half-opened ones too */

/* loaded: with the slowdowns of p. */
struct atsi_conditions atsi_sim_conditions(const struct atsi_sim_run *r, uint32_t phase,
                                           bool loaded);
/* What the accelerator may hold: weights, caches, slots. */
uint64_t atsi_sim_vram(const struct atsi_sim_run *r);
uint64_t atsi_sim_slot_memory(const struct atsi_sim_run *r);
/* slots: there is temporary memory; dynamic: weights may be promoted. */
int atsi_sim_open_session(struct atsi_sim_run *r, bool slots, bool dynamic,
                          struct atsi_sim_session *s);
/* The size of prefill rounds with which a request is shortest, of at most `most` tokens; from then
 * on the accelerator holds less by its activations.  Says why. */
int atsi_sim_choose_chunk(struct atsi_sim_run *r, uint32_t most, uint32_t *tokens);
void atsi_sim_close_session(struct atsi_sim_session *s); /* half-opened ones too */

#endif
