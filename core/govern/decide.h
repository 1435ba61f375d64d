/* SPDX-License-Identifier: Apache-2.0
 *
 * When to plan again: a pure function of samples and time.
 *
 * A quantity is compared with what it was when the plan in force was made.  A new plan is asked for
 * when it has been beyond a threshold for several samples in a row and the last plan is not too
 * recent; the plan then belongs to the new value, so that the way back needs the same distance
 * again.  Plans in quick succession double the time to the next one.  Clocks and pressure count
 * only while rounds are being computed: an idle device lowers its clock, which means nothing.
 */
#ifndef ATSI_CORE_GOVERN_DECIDE_H
#define ATSI_CORE_GOVERN_DECIDE_H

#include "core/govern/sense.h"

/* A device that is so much slower or faster is another one to a policy: 1.2 in both directions. */
#define ATSI_GOVERN_CHANGE 1.2
#define ATSI_GOVERN_HOLD 3u                       /* samples in a row beyond it */
#define ATSI_GOVERN_HOLD_GROW 10u                 /* and of free memory before it is taken back */
#define ATSI_GOVERN_REST_NS UINT64_C(10000000000) /* between two plans, doubled up to */
#define ATSI_GOVERN_REST_MOST_NS UINT64_C(300000000000)

enum atsi_govern_axis {
    ATSI_AXIS_GPU_CLOCK = 0,
    ATSI_AXIS_CPU_CLOCK,
    ATSI_AXIS_CPU_WAIT,
    ATSI_N_AXES
};

/* What the session says of its plan. */
struct atsi_govern_plan {
    uint32_t version;  /* another number: weights were placed again */
    uint64_t margin;   /* bytes to leave to others */
    bool follows_free; /* the budget is what is free: others' use shrinks it */
    bool wants_more;   /* it would take more memory than it has */
};

struct atsi_govern_track {
    double planned, now; /* smoothed; planned 0: not seen yet */
    double last;         /* as it was read */
    uint32_t beyond;     /* samples in a row */
    uint32_t seen;       /* samples, while they are few: the first ones are the plan's */
};

struct atsi_govern {
    struct atsi_govern_track axis[ATSI_N_AXES];
    uint32_t squeezed, roomy; /* samples in a row: little memory free; much */
    uint64_t planned_used;    /* of the device, by all, after placing; 0: not seen yet */
    uint32_t version;         /* of the plan it belongs to */
    uint64_t rest_ns, last_ns;
    bool planned_once;
    double first[ATSI_N_AXES]; /* what loads are relative to */
};

enum atsi_govern_what {
    ATSI_GOVERN_NOTHING = 0,
    ATSI_GOVERN_COSTS, /* a device has another speed */
    ATSI_GOVERN_SHRINK,
    ATSI_GOVERN_GROW
};

struct atsi_govern_decision {
    enum atsi_govern_what what;
    double load_cpu, load_gpu; /* factors on times, against the first samples */
    char why[96];              /* "gpu clock 1980 -> 1200 MHz" */
};

void atsi_govern_begin(struct atsi_govern *g);
/* One sample.  busy: rounds were computed since the last one.  Decides for the values of now: they
 * are the plan's from then on. */
void atsi_govern_step(struct atsi_govern *g, const struct atsi_govern_plan *plan,
                      const struct atsi_sense *s, bool busy, uint64_t now_ns,
                      struct atsi_govern_decision *out);

#endif
