/* SPDX-License-Identifier: Apache-2.0
 *
 * The event loop: at each instant at most one task a lane is active; the clock goes to the next
 * completion, eligibility or change of load at the speeds of the moment.
 */
#include "world.h"

#include "load.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A task that has less than this left is done: sums of many doubles. */
#define DONE_NS 1e-6

struct node {
    struct node *next;
    struct sim_task t;
    struct atsi_event **wait; /* NULL: gone, see known */
    double known;             /* when events that are gone let it begin */
    double left, lead_left;   /* of run_ns and lead_ns */
    double queued;
    double started; /* -1: not yet */
};

struct lane {
    struct node *head, *tail;
    double free_at; /* end of the last task */
};

struct sim_world {
    const struct atsi_host *host;
    uint32_t users;
    double now;
    struct lane lanes[SIM_LANES];
    struct sim_script *script;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_world *the_world;

/* ---------------------------------------------------------------- life */
int sim_world_get(const struct atsi_host *host, struct sim_world **out, struct atsi_err *err)
{
    int rc = ATSI_OK;
    *out = NULL;
    (void)pthread_mutex_lock(&lock);
    if (the_world == NULL) {
        struct sim_world *w = calloc(1, sizeof *w);
        const char *path = host->param_get(host->ctx, "sim", "load");
        if (w == NULL) {
            rc = atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
        } else {
            w->host = host;
            if (path != NULL && path[0] != '\0')
                rc = sim_script_read(path, &w->script, err);
        }
        if (rc == ATSI_OK)
            the_world = w;
        else
            free(w);
    } else if (the_world->host != host) {
        rc = atsi_fail(err, ATSI_ENODEV, "sim: the virtual clock belongs to another runtime");
    }
    if (rc == ATSI_OK && the_world != NULL) {
        the_world->users++;
        *out = the_world;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static void free_node(struct node *n)
{
    free(n->wait);
    free(n);
}

void sim_world_put(struct sim_world *w)
{
    if (w == NULL)
        return;
    (void)pthread_mutex_lock(&lock);
    if (--w->users == 0) {
        for (int l = 0; l < SIM_LANES; l++)
            while (w->lanes[l].head != NULL) {
                struct node *n = w->lanes[l].head;
                w->lanes[l].head = n->next;
                free_node(n);
            }
        sim_script_free(w->script);
        the_world = NULL;
        free(w);
    }
    (void)pthread_mutex_unlock(&lock);
}

double sim_world_now(const struct sim_world *w)
{
    return w->now;
}

/* ---------------------------------------------------------------- time */
/* When a fired event lets the task begin; the first one does so late. */
static double from_wait(const struct node *n, uint32_t i)
{
    return n->wait[i]->at_ns + (i == 0 ? (double)n->t.m.delay_ns : 0);
}

/* When the head of a lane may start its run, given what has fired; INFINITY: not known yet. */
static double eligible_at(const struct node *n)
{
    double at = fmax(n->known, n->queued + (double)n->t.m.hold_ns);
    for (uint32_t i = 0; i < n->t.n_wait; i++) {
        if (n->wait[i] == NULL)
            continue;
        if (!n->wait[i]->fired)
            return INFINITY;
        at = fmax(at, from_wait(n, i));
    }
    return at;
}

void sim_world_forget(struct sim_world *w, const struct atsi_event *ev)
{
    for (uint32_t l = 0; l < SIM_LANES; l++)
        for (struct node *n = w->lanes[l].head; n != NULL; n = n->next)
            for (uint32_t i = 0; i < n->t.n_wait; i++)
                if (n->wait[i] == ev) {
                    n->known = fmax(n->known, ev->fired ? from_wait(n, i) : INFINITY);
                    n->wait[i] = NULL;
                }
}

enum doing { IDLE = 0, LEADING, RUNNING };

static enum doing doing(const struct sim_world *w, const struct node *n)
{
    if (n == NULL)
        return IDLE;
    if (n->lead_left > DONE_NS)
        return LEADING;
    return eligible_at(n) <= w->now + DONE_NS ? RUNNING : IDLE;
}

static double slowed(const struct sim_world *w, const struct node *n)
{
    return w->script != NULL ? 1.0 / sim_script_at(w->script, w->now, n->t.load) : 1.0;
}

/* The activity that shares memory with a transfer: the host's work, else a copy on the stream. */
static const struct node *partner(const struct sim_world *w)
{
    const struct node *host = w->lanes[SIM_HOST].head, *stream = w->lanes[SIM_STREAM].head;
    if (doing(w, host) == RUNNING)
        return host;
    if (doing(w, stream) == RUNNING && stream->t.load == SIM_LOAD_PCIE)
        return stream;
    return NULL;
}

static double speed(const struct sim_world *w, int lane)
{
    const struct node *n = w->lanes[lane].head, *p;
    double s = slowed(w, n);
    if (doing(w, w->lanes[SIM_ENGINE].head) != RUNNING)
        return s;
    p = partner(w);
    if (p == NULL)
        return s;
    if (lane == SIM_ENGINE)
        return s * (double)p->t.m.contended_copy / 1000.0;
    return n == p ? s * (double)n->t.m.contended_run / 1000.0 : s;
}

/* The time until something changes by itself. */
static double next_change(const struct sim_world *w, const double *speeds)
{
    double step = w->script != NULL ? sim_script_next(w->script, w->now) - w->now : INFINITY;
    for (int l = 0; l < SIM_LANES; l++) {
        const struct node *n = w->lanes[l].head;
        switch (doing(w, n)) {
        case LEADING:
            step = fmin(step, n->lead_left / speeds[l]);
            break;
        case RUNNING:
            step = fmin(step, n->left / speeds[l]);
            break;
        case IDLE:
            if (n != NULL)
                step = fmin(step, eligible_at(n) - w->now);
            break;
        }
    }
    return fmax(step, 0.0);
}

static void finish(struct sim_world *w, int lane)
{
    struct lane *l = &w->lanes[lane];
    struct node *n = l->head;
    if (n->t.took_ns != NULL)
        *n->t.took_ns = (uint64_t)llround(w->now - n->started);
    if (n->t.signal != NULL) {
        n->t.signal->fired = true;
        n->t.signal->pending = false;
        n->t.signal->at_ns = w->now;
    }
    l->head = n->next;
    if (l->head == NULL)
        l->tail = NULL;
    free_node(n);
}

/* Everything of no length happens at once, then the clock goes on.  False when nothing can happen.
 */
static bool advance(struct sim_world *w)
{
    double speeds[SIM_LANES] = {1, 1, 1}, step;
    enum doing what[SIM_LANES];
    for (int l = 0; l < SIM_LANES; l++) {
        struct node *n = w->lanes[l].head;
        what[l] = doing(w, n);
        if (what[l] == RUNNING) {
            if (n->started < 0)
                n->started = w->now;
            if (n->left <= DONE_NS) {
                finish(w, l);
                return true;
            }
        }
    }
    for (int l = 0; l < SIM_LANES; l++)
        if (what[l] != IDLE)
            speeds[l] = what[l] == LEADING ? slowed(w, w->lanes[l].head) : speed(w, l);
    step = next_change(w, speeds);
    if (isinf(step))
        return false;
    for (int l = 0; l < SIM_LANES; l++) {
        struct node *n = w->lanes[l].head;
        if (what[l] == LEADING)
            n->lead_left -= step * speeds[l];
        else if (what[l] == RUNNING)
            n->left -= step * speeds[l];
    }
    w->now += step;
    return true;
}

/* ---------------------------------------------------------------- queueing */
static int check_events(const struct sim_world *w, const struct sim_task *t, struct atsi_err *err)
{
    for (uint32_t i = 0; i < t->n_wait; i++)
        if (t->wait[i]->world != w || (!t->wait[i]->fired && !t->wait[i]->pending))
            return atsi_fail(err, ATSI_EINVAL,
                             "sim: work waits for an event that nothing queued before it signals");
    if (t->signal != NULL && (t->signal->world != w || t->signal->pending))
        return atsi_fail(err, ATSI_EINVAL, "sim: work signals an event that is in use");
    return ATSI_OK;
}

static int append(struct sim_world *w, enum sim_lane lane, const struct sim_task *t,
                  struct atsi_err *err)
{
    struct lane *l = &w->lanes[lane];
    struct node *n;
    int rc = check_events(w, t, err);
    if (rc != ATSI_OK)
        return rc;
    n = calloc(1, sizeof *n);
    if (n != NULL && t->n_wait > 0)
        n->wait = calloc(t->n_wait, sizeof(struct atsi_event *));
    if (n == NULL || (t->n_wait > 0 && n->wait == NULL)) {
        free(n);
        return atsi_fail(err, ATSI_ENOMEM, "sim: out of memory");
    }
    n->t = *t;
    n->t.wait = NULL;
    for (uint32_t i = 0; i < t->n_wait; i++)
        n->wait[i] = t->wait[i];
    n->left = (double)t->m.run_ns;
    n->lead_left = (double)t->m.lead_ns;
    n->started = -1;
    n->queued = w->now;
    if (t->signal != NULL) {
        t->signal->fired = false;
        t->signal->pending = true;
    }
    if (l->tail != NULL)
        l->tail->next = n;
    else
        l->head = n;
    l->tail = n;
    return ATSI_OK;
}

int sim_world_queue(struct sim_world *w, enum sim_lane lane, const struct sim_task *t,
                    struct atsi_err *err)
{
    return append(w, lane, t, err);
}

int sim_world_drain(struct sim_world *w, enum sim_lane lane, struct atsi_err *err)
{
    while (w->lanes[lane].head != NULL)
        if (!advance(w))
            return atsi_fail(err, ATSI_EINVAL, "sim: queued work can never start");
    return ATSI_OK;
}

int sim_world_work(struct sim_world *w, const struct sim_task *t, struct atsi_err *err)
{
    int rc = append(w, SIM_HOST, t, err);
    return rc == ATSI_OK ? sim_world_drain(w, SIM_HOST, err) : rc;
}

int sim_world_wait(struct sim_world *w, const struct atsi_event *ev, struct atsi_err *err)
{
    if (!ev->fired && !ev->pending)
        return atsi_fail(err, ATSI_EINVAL, "sim: waiting for an event that nothing signals");
    while (!ev->fired)
        if (!advance(w))
            return atsi_fail(err, ATSI_EINVAL, "sim: the event waited for can never fire");
    return ATSI_OK;
}
