/* SPDX-License-Identifier: Apache-2.0
 *
 * Spans of simulated rounds in the Trace Event Format, which chrome://tracing and ui.perfetto.dev
 * draw: a process per policy, a lane per resource, an arrow from each transfer to the item that
 * uses the weight, and a counter of the temporary slots that are taken, from the start of a
 * transfer to the end of its item.
 */
#include "cli/file.h"
#include "cli/json.h"
#include "cli/simulate.h"

#include <stdlib.h>
#include <string.h>

struct taken {
    uint64_t ns;
    int change; /* +1: a slot is taken, -1: it is free again */
};

struct sim_trace {
    json_t *events;
    bool ok; /* false: memory ran out */
    int pid;
    json_int_t next_arrow;
    /* Of the round that is being read. */
    struct atsi_sim_span *items; /* by item; struct_size 0: did not run */
    uint32_t n_items;
    struct taken *taken;
    size_t n_taken, room_taken;
};

struct sim_trace *sim_trace_new(void)
{
    struct sim_trace *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->ok = true;
    t->events = json_array();
    if (t->events == NULL) {
        free(t);
        return NULL;
    }
    return t;
}

void sim_trace_free(struct sim_trace *t)
{
    if (t == NULL)
        return;
    json_decref(t->events);
    free(t->items);
    free(t->taken);
    free(t);
}

/* ---------------------------------------------------------------- events */
/* An event of a kind ("ph") on a lane; the format counts microseconds. */
static json_t *event(struct sim_trace *t, const char *kind, uint32_t lane, const char *name,
                     uint64_t ns)
{
    json_t *e = json_object();
    cli_json_set(e, "ph", json_string(kind), &t->ok);
    cli_json_set(e, "pid", json_integer(t->pid), &t->ok);
    cli_json_set(e, "tid", json_integer(lane), &t->ok);
    cli_json_set(e, "name", cli_json_text(name), &t->ok);
    cli_json_set(e, "ts", json_real((double)ns / 1e3), &t->ok);
    return e;
}

static void label(struct sim_trace *t, const char *what, uint32_t lane, const char *key,
                  json_t *value)
{
    json_t *e = event(t, "M", lane, what, 0), *args = json_object();
    cli_json_set(args, key, value, &t->ok);
    cli_json_set(e, "args", args, &t->ok);
    cli_json_append(t->events, e, &t->ok);
}

static void slice(struct sim_trace *t, const struct atsi_sim_span *s)
{
    char name[160];
    json_t *e, *args = json_object();
    (void)snprintf(name, sizeof name, "%s%s", s->event == ATSI_SIM_COPY ? "to " : "", s->name);
    e = event(t, "X", s->lane, name, s->start_ns);
    cli_json_set(e, "dur", json_real((double)(s->end_ns - s->start_ns) / 1e3), &t->ok);
    if (s->event == ATSI_SIM_ROUND) {
        cli_json_set(args, "tokens", json_integer(s->tokens), &t->ok);
    } else {
        cli_json_set(args, "item", json_integer(s->item), &t->ok);
        cli_json_set(args, "layer", json_integer(s->layer), &t->ok);
        cli_json_set(args, "bytes", json_integer((json_int_t)s->bytes), &t->ok);
    }
    if (s->slot >= 0)
        cli_json_set(args, "slot", json_integer(s->slot), &t->ok);
    cli_json_set(e, "args", args, &t->ok);
    cli_json_append(t->events, e, &t->ok);
}

/* From the last instant of a transfer to the first of the item. */
static void arrow(struct sim_trace *t, const struct atsi_sim_span *from,
                  const struct atsi_sim_span *to)
{
    uint64_t at = from->end_ns > from->start_ns ? from->end_ns - 1 : from->start_ns;
    json_t *begin = event(t, "s", from->lane, "weight", at);
    json_t *end = event(t, "f", to->lane, "weight", to->start_ns);
    cli_json_set(begin, "cat", json_string("weight"), &t->ok);
    cli_json_set(begin, "id", json_integer(t->next_arrow), &t->ok);
    cli_json_set(end, "cat", json_string("weight"), &t->ok);
    cli_json_set(end, "id", json_integer(t->next_arrow++), &t->ok);
    cli_json_set(end, "bp", json_string("e"), &t->ok);
    cli_json_append(t->events, begin, &t->ok);
    cli_json_append(t->events, end, &t->ok);
}

/* ---------------------------------------------------------------- slots in use */
static void take(struct sim_trace *t, uint64_t ns, int change)
{
    if (t->n_taken == t->room_taken) {
        size_t room = t->room_taken * 2 + 64;
        struct taken *grown = realloc(t->taken, room * sizeof *grown);
        if (grown == NULL) {
            t->ok = false;
            return;
        }
        t->taken = grown;
        t->room_taken = room;
    }
    t->taken[t->n_taken++] = (struct taken){ns, change};
}

/* By time; what is freed at an instant can be taken at the same. */
static int earlier(const void *a, const void *b)
{
    const struct taken *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->change - y->change;
}

static void counter(struct sim_trace *t, uint64_t ns, int in_use)
{
    json_t *e = event(t, "C", 0, "slots in use", ns), *args = json_object();
    cli_json_set(args, "slots", json_integer(in_use), &t->ok);
    cli_json_set(e, "args", args, &t->ok);
    cli_json_append(t->events, e, &t->ok);
}

static void end_round(struct sim_trace *t)
{
    int in_use = 0;
    if (t->n_taken > 0)
        qsort(t->taken, t->n_taken, sizeof *t->taken, earlier);
    for (size_t i = 0; i < t->n_taken; i++) {
        in_use += t->taken[i].change;
        if (i + 1 == t->n_taken || t->taken[i + 1].ns != t->taken[i].ns)
            counter(t, t->taken[i].ns, in_use);
    }
    t->n_taken = 0;
    if (t->n_items > 0)
        memset(t->items, 0, t->n_items * sizeof *t->items);
}

/* ---------------------------------------------------------------- spans */
static void keep_item(struct sim_trace *t, const struct atsi_sim_span *s)
{
    if (s->item >= t->n_items) {
        uint32_t n = s->item * 2 + 64;
        struct atsi_sim_span *grown = realloc(t->items, n * sizeof *grown);
        if (grown == NULL) {
            t->ok = false;
            return;
        }
        memset(grown + t->n_items, 0, (n - t->n_items) * sizeof *grown);
        t->items = grown;
        t->n_items = n;
    }
    t->items[s->item] = *s;
}

void sim_trace_span(void *trace, const struct atsi_sim_span *s)
{
    struct sim_trace *t = trace;
    const struct atsi_sim_span *user;
    if (!t->ok)
        return;
    if (s->event == ATSI_SIM_ROUND)
        end_round(t);
    slice(t, s);
    if (s->event == ATSI_SIM_ITEM)
        keep_item(t, s);
    if (s->event != ATSI_SIM_MOVE || s->item >= t->n_items)
        return;
    user = &t->items[s->item];
    if (user->struct_size == 0)
        return;
    arrow(t, s, user);
    take(t, s->start_ns, 1);
    take(t, user->end_ns, -1);
}

void sim_trace_policy(struct sim_trace *t, const char *policy)
{
    static const char *const lanes[ATSI_SIM_N_LANES] = {"rounds", "CPU", "compute stream",
                                                        "transfer stream"};
    end_round(t);
    t->pid++;
    label(t, "process_name", 0, "name", cli_json_text(policy));
    label(t, "process_sort_index", 0, "sort_index", json_integer(t->pid));
    for (uint32_t k = 0; k < ATSI_SIM_N_LANES; k++) {
        label(t, "thread_name", k, "name", json_string(lanes[k]));
        label(t, "thread_sort_index", k, "sort_index", json_integer(k));
    }
}

int sim_trace_write(struct sim_trace *t, const char *path)
{
    json_t *o = json_object(), *note = json_object();
    char *text = NULL;
    int code;
    end_round(t);
    cli_json_set(note, "simulated", json_true(), &t->ok);
    cli_json_set(o, "displayTimeUnit", json_string("ms"), &t->ok);
    cli_json_set(o, "otherData", note, &t->ok);
    cli_json_set(o, "traceEvents", json_incref(t->events), &t->ok);
    if (t->ok)
        text = json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(15));
    code = text != NULL ? cli_write_file("--trace", path, text, strlen(text), true)
                        : cli_fail(CLI_RUN_ERROR, "out of memory");
    free(text);
    json_decref(o);
    return code;
}
