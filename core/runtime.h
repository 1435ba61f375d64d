/* SPDX-License-Identifier: Apache-2.0
 * The runtime's parts, for the other files of the engine. */
#ifndef ATSI_CORE_RUNTIME_H
#define ATSI_CORE_RUNTIME_H

#include "core/conf.h"
#include "core/cpu_caps.h"
#include "core/log.h"
#include "core/pool.h"
#include "core/registry.h"
#include "core/topo.h"

struct atsi_weights;

#define ATSI_MAX_WORKERS 512u

struct atsi_runtime {
    struct atsi_log *log;
    struct atsi_conf *conf;
    struct atsi_topo *topo;
    struct atsi_pool *pool;
    struct atsi_registry *registry;
    struct atsi_cpu_caps cpu;
    struct atsi_host host;
    uint32_t n_workers, n_decode, n_prefill; /* workers: all; used by decode and prefill rounds */
    bool open_decode, open_prefill; /* nobody said how many: those are the most, fewer may do */
    uint32_t cpus[ATSI_MAX_WORKERS];
};

struct atsi_model {
    struct atsi_runtime *rt; /* [borrowed] */
    const struct atsi_loader_ops *ops;
    struct atsi_loaded *loaded;
    struct atsi_weights *weights; /* host views, made for the first session that asks; or NULL */
    bool pins_taken;              /* a session pinned them for its accelerator */
};

/* The host views of a model's tensors, shared by its sessions: made now if need be.  ATSI_ENOMEM.
 * [borrowed until the model is closed]  [one thread per model at a time] */
int atsi_model_weights(struct atsi_model *m, struct atsi_weights **out, struct atsi_err *err);
/* One session at a time may pin weights: false when another one does. */
bool atsi_model_take_pins(struct atsi_model *m);
void atsi_model_give_pins(struct atsi_model *m);

#endif
