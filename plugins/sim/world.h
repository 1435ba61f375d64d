/* SPDX-License-Identifier: Apache-2.0
 *
 * A machine on a virtual clock.  Three lanes do modelled work: the host, a compute stream, a copy
 * engine; the clock moves only while the host works or waits.  Work on the stream and the engine is
 * queued, starts when the events it waits for have fired, and signals one.
 *
 * Two activities at a time share memory: while a transfer overlaps an operation of the host or a
 * copy on the stream, both run at that activity's contended speeds.  Load scripts slow lanes down
 * from given times on.
 */
#ifndef SIM_WORLD_H
#define SIM_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "atsinfer/plugin.h"

enum sim_lane { SIM_HOST = 0, SIM_STREAM, SIM_ENGINE, SIM_LANES };

struct sim_world;

struct atsi_event {
    struct sim_world *world;
    bool pending, fired;
    double at_ns;
};

/* What a task slows down with. */
enum sim_load { SIM_LOAD_CPU = 0, SIM_LOAD_GPU, SIM_LOAD_PCIE, SIM_LOADS };

struct sim_task {
    struct atsi_modelled m;
    enum sim_load load;
    struct atsi_event *const *wait; /* copied */
    uint32_t n_wait;
    struct atsi_event *signal; /* may be NULL */
    uint64_t *took_ns;         /* may be NULL: the time from its start to its end */
};

/* The world all opened backends share; created by the first, freed by the last. */
int sim_world_get(const struct atsi_host *host, struct sim_world **out, struct atsi_err *err);
void sim_world_put(struct sim_world *w);

double sim_world_now(const struct sim_world *w);
/* Queues a task on the stream or the engine.  ATSI_EINVAL: an event of another world, or one that
 * nothing will ever signal. */
int sim_world_queue(struct sim_world *w, enum sim_lane lane, const struct sim_task *t,
                    struct atsi_err *err);
/* The host does this task now; returns when it is over. */
int sim_world_work(struct sim_world *w, const struct sim_task *t, struct atsi_err *err);
/* The host waits.  ATSI_EINVAL: nothing will ever signal it. */
int sim_world_wait(struct sim_world *w, const struct atsi_event *ev, struct atsi_err *err);
/* Before an event is freed: tasks that have yet to begin keep what they need of it. */
void sim_world_forget(struct sim_world *w, const struct atsi_event *ev);
/* The host waits until a lane has nothing queued. */
int sim_world_drain(struct sim_world *w, enum sim_lane lane, struct atsi_err *err);

#endif
