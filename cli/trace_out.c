/* SPDX-License-Identifier: Apache-2.0
 *
 * The drawing: a process per policy or session; a lane per resource, one for the link between them;
 * an arrow from each copy to what uses it; counters of the slots that are taken, from the start of
 * a transfer to the end of its item, of the bytes under way and of what the accelerator holds.
 */
#include "cli/file.h"
#include "cli/json.h"
#include "cli/trace_in.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LANE_LINK = ATSI_SIM_N_LANES, N_LANES };
enum use { USE_WEIGHT = 0, USE_ACTIVATION, USE_SLOT, N_USES };

/* Something begins (+1) or ends (-1). */
struct point {
    uint64_t ns, bytes;
    int change;
    enum use use;
};

struct out {
    FILE *f;
    bool first, ok;
    const struct cli_trace *t;
    const struct trace_process *process;
    uint32_t pid;
    uint64_t base_ns;
    uint64_t next_arrow;
    const struct trace_span **user; /* [n_names] of the round: the item's own span, or NULL */
    struct point *points;           /* of the process */
    size_t n_points;
};

/* ---------------------------------------------------------------- events */
static void put_text(struct out *o, const char *prefix, const char *text)
{
    char buf[200];
    json_t *v;
    (void)snprintf(buf, sizeof buf, "%s%s", prefix, text);
    v = cli_json_text(buf);
    if (v == NULL || json_dumpf(v, o->f, JSON_ENCODE_ANY) != 0)
        o->ok = false;
    json_decref(v);
}

/* The format counts microseconds. */
static void put_time(struct out *o, const char *key, uint64_t ns)
{
    (void)fprintf(o->f, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

/* Begins an event of a kind ("ph") on a lane; the caller closes it. */
static void begin(struct out *o, char kind, uint32_t lane, uint64_t ns)
{
    (void)fprintf(o->f, "%s{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u", o->first ? "\n" : ",\n", kind,
                  o->pid, lane);
    o->first = false;
    put_time(o, "ts", ns > o->base_ns ? ns - o->base_ns : 0);
    (void)fputs(",\"name\":", o->f);
}

static void label(struct out *o, const char *what, uint32_t lane, const char *text)
{
    begin(o, 'M', lane, 0);
    (void)fprintf(o->f, "\"%s\",\"args\":{\"name\":", what);
    put_text(o, "", text);
    (void)fputs("}}", o->f);
}

static void sort_index(struct out *o, const char *what, uint32_t lane, uint32_t index)
{
    begin(o, 'M', lane, 0);
    (void)fprintf(o->f, "\"%s\",\"args\":{\"sort_index\":%u}}", what, index);
}

static void counter(struct out *o, uint64_t ns, const char *name, const char *key, uint64_t value)
{
    begin(o, 'C', 0, ns);
    (void)fprintf(o->f, "\"%s\",\"args\":{\"%s\":%" PRIu64 "}}", name, key, value);
}

static const char *name_of(const struct out *o, uint32_t item)
{
    const char *name = item < o->process->n_names ? o->process->names[item] : NULL;
    return name != NULL ? name : "";
}

static void slice(struct out *o, const struct trace_round *r, const struct trace_span *s)
{
    begin(o, 'X', s->lane, s->start_ns);
    if (s->event == ATSI_SIM_ROUND)
        put_text(o, "", r->prefill ? "prefill" : "decode");
    else
        put_text(o, s->event == ATSI_SIM_COPY ? "to " : "", name_of(o, s->item));
    put_time(o, "dur", s->end_ns - s->start_ns);
    if (s->event == ATSI_SIM_ROUND)
        (void)fprintf(o->f, ",\"args\":{\"tokens\":%u}}", s->tokens);
    else
        (void)fprintf(o->f, ",\"args\":{\"item\":%u,\"layer\":%d,\"bytes\":%" PRIu64, s->item,
                      s->layer, s->bytes);
    if (s->event != ATSI_SIM_ROUND && s->slot >= 0)
        (void)fprintf(o->f, ",\"slot\":%d", s->slot);
    if (s->event != ATSI_SIM_ROUND)
        (void)fputs("}}", o->f);
}

/* From the last instant of a copy to the first of the item. */
static void arrow(struct out *o, const struct trace_span *from, const struct trace_span *to)
{
    const char *what = from->event == ATSI_SIM_MOVE ? "weight" : "activation";
    uint64_t at = from->end_ns > from->start_ns ? from->end_ns - 1 : from->start_ns;
    begin(o, 's', from->lane, at);
    (void)fprintf(o->f, "\"%s\",\"cat\":\"%s\",\"id\":%" PRIu64 "}", what, what, o->next_arrow);
    begin(o, 'f', to->lane, to->start_ns);
    (void)fprintf(o->f, "\"%s\",\"cat\":\"%s\",\"bp\":\"e\",\"id\":%" PRIu64 "}", what, what,
                  o->next_arrow++);
}

/* ---------------------------------------------------------------- what adds up */
static void add_use(struct out *o, enum use use, uint64_t from, uint64_t to, uint64_t bytes)
{
    o->points[o->n_points++] = (struct point){from, bytes, 1, use};
    o->points[o->n_points++] = (struct point){to, bytes, -1, use};
}

/* By time; what is given back at an instant can be taken at the same. */
static int earlier(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns < y->ns ? -1 : 1;
    return x->change - y->change;
}

static void link_slice(struct out *o, uint64_t from, uint64_t to, const int64_t n[N_USES])
{
    if (to <= from || n[USE_WEIGHT] + n[USE_ACTIVATION] == 0)
        return;
    begin(o, 'X', LANE_LINK, from);
    (void)fputs(n[USE_ACTIVATION] == 0 ? "\"weights\""
                : n[USE_WEIGHT] == 0   ? "\"activations\""
                                       : "\"weights and activations\"",
                o->f);
    put_time(o, "dur", to - from);
    (void)fputs("}", o->f);
}

/* The link's lane, and the counters of slots and of bytes under way. */
static void sweep(struct out *o)
{
    int64_t n[N_USES] = {0};
    uint64_t bytes = 0, last = 0;
    if (o->n_points > 0)
        qsort(o->points, o->n_points, sizeof *o->points, earlier);
    for (size_t i = 0; i < o->n_points;) {
        uint64_t ns = o->points[i].ns, before = bytes;
        int64_t slots = n[USE_SLOT];
        link_slice(o, last, ns, n);
        for (; i < o->n_points && o->points[i].ns == ns; i++) {
            const struct point *p = &o->points[i];
            n[p->use] += p->change;
            if (p->use != USE_SLOT)
                bytes = p->change > 0 ? bytes + p->bytes : bytes - p->bytes;
        }
        if (n[USE_SLOT] != slots)
            counter(o, ns, "slots in use", "slots", (uint64_t)n[USE_SLOT]);
        if (bytes != before)
            counter(o, ns, "bytes on the link", "bytes", bytes);
        last = ns;
    }
    o->n_points = 0;
}

/* ---------------------------------------------------------------- rounds */
static void copy_of(struct out *o, const struct trace_span *s)
{
    const struct trace_span *user = o->user[s->item];
    bool weight = s->event == ATSI_SIM_MOVE;
    add_use(o, weight ? USE_WEIGHT : USE_ACTIVATION, s->start_ns, s->end_ns, s->bytes);
    if (user == NULL)
        return;
    arrow(o, s, user);
    if (weight)
        add_use(o, USE_SLOT, s->start_ns, user->end_ns > s->start_ns ? user->end_ns : s->start_ns,
                0);
}

static void put_round(struct out *o, const struct trace_round *r)
{
    for (uint32_t i = 0; i < o->process->n_names; i++)
        o->user[i] = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const struct trace_span *s = &r->spans[i];
        if (s->event == ATSI_SIM_ROUND)
            counter(o, s->start_ns, "VRAM resident", "bytes", s->bytes);
        if (s->event == ATSI_SIM_ITEM)
            o->user[s->item] = s;
        slice(o, r, s);
    }
    for (size_t i = 0; i < r->n; i++)
        if (r->spans[i].event == ATSI_SIM_COPY || r->spans[i].event == ATSI_SIM_MOVE)
            copy_of(o, &r->spans[i]);
}

static size_t most_points(const struct cli_trace *t, size_t process)
{
    size_t n = 1;
    for (size_t i = t->first; i < t->n_rounds; i++)
        if (t->rounds[i].process == process)
            n += 4 * t->rounds[i].n; /* two uses of two points each */
    return n;
}

static void put_process(struct out *o, size_t process)
{
    static const char *const lanes[N_LANES] = {"rounds", "CPU", "compute stream", "transfer stream",
                                               "PCIe"};
    const struct cli_trace *t = o->t;
    o->process = &t->processes[process];
    o->pid = (uint32_t)process + 1;
    o->user = calloc((size_t)o->process->n_names + 1, sizeof(const struct trace_span *));
    o->points = calloc(most_points(t, process), sizeof *o->points);
    o->ok = o->ok && o->user != NULL && o->points != NULL;
    label(o, "process_name", 0, o->process->title);
    sort_index(o, "process_sort_index", 0, o->pid);
    for (uint32_t k = 0; k < N_LANES; k++) {
        label(o, "thread_name", k, lanes[k]);
        sort_index(o, "thread_sort_index", k, k);
    }
    for (size_t i = t->first; i < t->n_rounds && o->ok; i++)
        if (t->rounds[i].process == process)
            put_round(o, &t->rounds[i]);
    if (o->ok)
        sweep(o);
    free(o->user);
    free(o->points);
}

/* Real times are those since the machine was started. */
static uint64_t earliest(const struct cli_trace *t)
{
    uint64_t ns = UINT64_MAX;
    if (t->simulated)
        return 0;
    for (size_t i = t->first; i < t->n_rounds; i++)
        for (size_t k = 0; k < t->rounds[i].n; k++)
            if (t->rounds[i].spans[k].start_ns < ns)
                ns = t->rounds[i].spans[k].start_ns;
    return ns;
}

int cli_trace_write(struct cli_trace *t, const char *path)
{
    char *text = NULL;
    size_t len = 0;
    struct out o = {.first = true, .t = t};
    int code;
    trace_end_round(t);
    o.ok = t->ok;
    o.base_ns = earliest(t);
    o.f = open_memstream(&text, &len);
    if (o.f == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    (void)fprintf(o.f,
                  "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"simulated\":%s,\"rounds\":%zu,"
                  "\"older_rounds_left_out\":%zu},\n\"traceEvents\":[",
                  t->simulated ? "true" : "false", cli_trace_rounds(t), t->n_cut);
    for (size_t p = 0; p < t->n_processes && o.ok; p++)
        put_process(&o, p);
    (void)fputs("\n]}\n", o.f);
    if (fclose(o.f) != 0)
        o.ok = false;
    code = o.ok ? cli_write_file("--trace", path, text, len, true)
                : cli_fail(CLI_RUN_ERROR, "out of memory");
    free(text);
    return code;
}
