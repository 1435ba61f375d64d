/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans of rounds, kept: a ring of the newest rounds, so that an hour of chat takes no more memory
 * than a minute.  trace_out.c writes them.
 */
#include "cli/trace.h"

#include "atsinfer/policy.h"
#include "cli/trace_in.h"

#include <stdlib.h>
#include <string.h>

struct cli_trace *cli_trace_new(bool simulated)
{
    struct cli_trace *t = calloc(1, sizeof *t);
    if (t != NULL) {
        t->ok = true;
        t->simulated = simulated;
    }
    return t;
}

static void free_process(struct trace_process *p)
{
    for (uint32_t i = 0; i < p->n_names; i++)
        free(p->names[i]);
    free(p->names);
    free(p->title);
}

void cli_trace_free(struct cli_trace *t)
{
    if (t == NULL)
        return;
    for (size_t i = t->first; i < t->n_rounds; i++)
        free(t->rounds[i].spans);
    free(t->rounds);
    free(t->open.spans);
    for (size_t i = 0; i < t->n_processes; i++)
        free_process(&t->processes[i]);
    free(t->processes);
    free(t);
}

/* Room for one more element; false, and the trace is no more, when memory is out. */
static bool grow(struct cli_trace *t, void **at, size_t n, size_t *room, size_t size)
{
    size_t more = *room * 2 + 16;
    void *grown;
    if (n < *room)
        return true;
    grown = realloc(*at, more * size);
    if (grown == NULL) {
        t->ok = false;
        return false;
    }
    *at = grown;
    *room = more;
    return true;
}

/* ---------------------------------------------------------------- the ring */
static void let_go(struct cli_trace *t)
{
    while (t->n_spans > CLI_TRACE_SPANS && t->n_rounds - t->first > 1) {
        struct trace_round *r = &t->rounds[t->first++];
        t->n_spans -= r->n;
        t->n_cut++;
        free(r->spans);
        r->spans = NULL;
    }
    if (t->first > 64 && t->first > t->n_rounds / 2) {
        memmove(t->rounds, t->rounds + t->first, (t->n_rounds - t->first) * sizeof *t->rounds);
        t->n_rounds -= t->first;
        t->first = 0;
    }
}

/* Measured ends and durations come from different clocks: where a slice would begin before the one
 * before it in its lane has ended, it begins there. */
static void align(struct trace_process *p, struct trace_round *r)
{
    for (size_t i = 0; i < r->n; i++) {
        struct trace_span *s = &r->spans[i];
        uint64_t *busy = &p->busy_until[s->lane];
        if (s->start_ns < *busy)
            s->start_ns = *busy;
        if (s->end_ns < s->start_ns)
            s->end_ns = s->start_ns;
        *busy = s->end_ns;
    }
}

void trace_end_round(struct cli_trace *t)
{
    struct trace_round r = t->open;
    if (r.n == 0)
        return;
    align(&t->processes[r.process], &r);
    if (!grow(t, (void **)&t->rounds, t->n_rounds, &t->room_rounds, sizeof *t->rounds))
        return;
    t->rounds[t->n_rounds++] = r;
    t->n_spans += r.n;
    t->open = (struct trace_round){.n = 0};
    let_go(t);
}

/* ---------------------------------------------------------------- spans */
void cli_trace_process(struct cli_trace *t, const char *name)
{
    struct trace_process *p;
    trace_end_round(t);
    if (!t->ok ||
        !grow(t, (void **)&t->processes, t->n_processes, &t->room_processes, sizeof *t->processes))
        return;
    p = &t->processes[t->n_processes];
    *p = (struct trace_process){.title = strdup(name)};
    if (p->title == NULL)
        t->ok = false;
    else
        t->n_processes++;
}

static void keep_name(struct cli_trace *t, uint32_t item, const char *name)
{
    struct trace_process *p = &t->processes[t->n_processes - 1];
    if (item >= p->n_names) {
        uint32_t n = item * 2 + 64;
        char **grown = realloc(p->names, n * sizeof *grown);
        if (grown == NULL) {
            t->ok = false;
            return;
        }
        memset(grown + p->n_names, 0, (n - p->n_names) * sizeof *grown);
        p->names = grown;
        p->n_names = n;
    }
    if (p->names[item] == NULL) {
        p->names[item] = strdup(name);
        t->ok = p->names[item] != NULL;
    }
}

void cli_trace_span(void *trace, const struct atsi_sim_span *s)
{
    struct cli_trace *t = trace;
    if (t->ok && t->n_processes == 0)
        cli_trace_process(t, "rounds");
    if (t->ok && s->event == ATSI_SIM_ROUND)
        trace_end_round(t);
    if (t->ok && s->event != ATSI_SIM_ROUND)
        keep_name(t, s->item, s->name);
    if (!t->ok || s->lane >= ATSI_SIM_N_LANES ||
        !grow(t, (void **)&t->open.spans, t->open.n, &t->open.room, sizeof *t->open.spans))
        return;
    t->open.process = (uint32_t)t->n_processes - 1;
    t->open.prefill = s->phase == ATSI_PHASE_PREFILL;
    t->open.spans[t->open.n++] = (struct trace_span){.event = s->event,
                                                     .lane = s->lane,
                                                     .item = s->item,
                                                     .tokens = s->tokens,
                                                     .layer = s->layer,
                                                     .slot = s->slot,
                                                     .start_ns = s->start_ns,
                                                     .end_ns = s->end_ns,
                                                     .bytes = s->bytes};
}

size_t cli_trace_rounds(const struct cli_trace *t)
{
    return t->n_rounds - t->first + (t->open.n > 0);
}

size_t cli_trace_cut(const struct cli_trace *t)
{
    return t->n_cut;
}
