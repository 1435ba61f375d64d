/* SPDX-License-Identifier: Apache-2.0
 * The thresholds, the counting and the words of re-planning. */
#include "core/govern/decide.h"

#include <math.h>
#include <stdio.h>

#define SMOOTH 0.5       /* weight of a new sample */
#define MOST_WAIT 0.75   /* a share of waiting beyond this says no more */
#define GROW_PART 20u    /* others must have given back 1/20 of the device before it is taken */
#define SHRINK_PART 100u /* and have taken 1/100 before memory is left to them */
#define LOAD_MOST 8.0

void atsi_govern_begin(struct atsi_govern *g)
{
    *g = (struct atsi_govern){.rest_ns = ATSI_GOVERN_REST_NS};
}

/* ---------------------------------------------------------------- axes */
static bool read_axis(const struct atsi_sense *s, uint32_t axis, double *speed)
{
    switch (axis) {
    case ATSI_AXIS_GPU_CLOCK:
        *speed = s->gpu_mhz;
        return (s->has & ATSI_HAS_GPU_CLOCK) != 0;
    case ATSI_AXIS_CPU_CLOCK:
        *speed = s->cpu_mhz;
        return (s->has & ATSI_HAS_CPU_CLOCK) != 0;
    default: /* what is left of the CPUs */
        *speed = 1 - fmin(s->cpu_wait, MOST_WAIT);
        return (s->has & ATSI_HAS_PRESSURE) != 0;
    }
}

static bool is_other(double now, double planned)
{
    return now > planned * ATSI_GOVERN_CHANGE || now < planned / ATSI_GOVERN_CHANGE;
}

/* A change counts as long as it is there: what is smoothed trails behind a dip that is over. */
static void follow(struct atsi_govern *g, const struct atsi_sense *s)
{
    for (uint32_t i = 0; i < ATSI_N_AXES; i++) {
        struct atsi_govern_track *t = &g->axis[i];
        double speed;
        if (!read_axis(s, i, &speed) || !(speed > 0))
            continue;
        if (t->seen < ATSI_GOVERN_HOLD) { /* a clock that is still rising belongs to no plan */
            t->seen++;
            t->planned = t->now = g->first[i] = speed;
        }
        t->now += SMOOTH * (speed - t->now);
        t->last = speed;
        t->beyond = is_other(t->now, t->planned) && is_other(speed, t->planned) ? t->beyond + 1 : 0;
    }
}

static void say_axis(const struct atsi_govern *g, uint32_t axis, struct atsi_govern_decision *out)
{
    const struct atsi_govern_track *t = &g->axis[axis];
    if (axis == ATSI_AXIS_CPU_WAIT)
        (void)snprintf(out->why, sizeof out->why, "others use the CPUs %.0f -> %.0f %% of the time",
                       100 * (1 - t->planned), 100 * (1 - t->now));
    else
        (void)snprintf(out->why, sizeof out->why, "%s clock %.0f -> %.0f MHz",
                       axis == ATSI_AXIS_GPU_CLOCK ? "gpu" : "cpu", t->planned, t->now);
}

static double load(const struct atsi_govern *g, uint32_t axis)
{
    const struct atsi_govern_track *t = &g->axis[axis];
    double x = t->now > 0 ? g->first[axis] / t->now : 1;
    return fmin(fmax(x, 1 / LOAD_MOST), LOAD_MOST);
}

/* ---------------------------------------------------------------- memory */
static void count_memory(struct atsi_govern *g, const struct atsi_govern_plan *plan,
                         const struct atsi_sense *s)
{
    uint64_t free_bytes = s->gpu_total - s->gpu_used, taken, given;
    if ((s->has & ATSI_HAS_GPU_MEMORY) == 0)
        return;
    if (g->planned_used == 0 || g->version != plan->version) {
        g->version = plan->version;
        g->planned_used = s->gpu_used;
        g->squeezed = g->roomy = 0;
    }
    taken = s->gpu_used > g->planned_used ? s->gpu_used - g->planned_used : 0;
    given = g->planned_used > s->gpu_used ? g->planned_used - s->gpu_used : 0;
    g->squeezed =
        plan->follows_free && free_bytes < plan->margin / 2 && taken > s->gpu_total / SHRINK_PART
            ? g->squeezed + 1
            : 0;
    g->roomy = plan->wants_more && free_bytes > plan->margin && given > s->gpu_total / GROW_PART
                   ? g->roomy + 1
                   : 0;
}

static void say_memory(const struct atsi_govern *g, const struct atsi_sense *s,
                       struct atsi_govern_decision *out)
{
    double change = ((double)s->gpu_used - (double)g->planned_used) / 1048576.0;
    if (out->what == ATSI_GOVERN_SHRINK)
        (void)snprintf(out->why, sizeof out->why,
                       "others take %.0f MiB more of the accelerator's memory", fmax(change, 0));
    else
        (void)snprintf(out->why, sizeof out->why, "%.0f MiB of the accelerator's memory are free",
                       (double)(s->gpu_total - s->gpu_used) / 1048576.0);
}

/* ---------------------------------------------------------------- deciding */
static bool rested(const struct atsi_govern *g, uint64_t now_ns)
{
    return !g->planned_once || now_ns - g->last_ns >= g->rest_ns;
}

/* The plan is of now; one soon after another makes the next one wait longer. */
static void settle(struct atsi_govern *g, uint64_t now_ns)
{
    bool soon = g->planned_once && now_ns - g->last_ns < 4 * g->rest_ns;
    g->rest_ns = soon ? 2 * g->rest_ns : ATSI_GOVERN_REST_NS;
    if (g->rest_ns > ATSI_GOVERN_REST_MOST_NS)
        g->rest_ns = ATSI_GOVERN_REST_MOST_NS;
    g->last_ns = now_ns;
    g->planned_once = true;
    for (uint32_t i = 0; i < ATSI_N_AXES; i++) {
        g->axis[i].planned = g->axis[i].now;
        g->axis[i].beyond = 0;
    }
    g->squeezed = g->roomy = 0;
}

void atsi_govern_step(struct atsi_govern *g, const struct atsi_govern_plan *plan,
                      const struct atsi_sense *s, bool busy, uint64_t now_ns,
                      struct atsi_govern_decision *out)
{
    *out = (struct atsi_govern_decision){.what = ATSI_GOVERN_NOTHING};
    if (busy)
        follow(g, s);
    count_memory(g, plan, s);
    if (!rested(g, now_ns))
        return;
    if (g->squeezed >= ATSI_GOVERN_HOLD)
        out->what = ATSI_GOVERN_SHRINK;
    else if (g->roomy >= ATSI_GOVERN_HOLD_GROW)
        out->what = ATSI_GOVERN_GROW;
    if (out->what != ATSI_GOVERN_NOTHING)
        say_memory(g, s, out);
    for (uint32_t i = 0; i < ATSI_N_AXES && out->what == ATSI_GOVERN_NOTHING; i++)
        if (busy && g->axis[i].beyond >= ATSI_GOVERN_HOLD) {
            out->what = ATSI_GOVERN_COSTS;
            g->axis[i].now = g->axis[i].last; /* where it has got to, not the way there */
            say_axis(g, i, out);
        }
    if (out->what == ATSI_GOVERN_NOTHING)
        return;
    out->load_gpu = load(g, ATSI_AXIS_GPU_CLOCK);
    out->load_cpu = load(g, ATSI_AXIS_CPU_CLOCK) * load(g, ATSI_AXIS_CPU_WAIT);
    settle(g, now_ns);
}
