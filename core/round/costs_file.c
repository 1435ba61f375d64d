/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of costs as text, one thing a line, checked as strictly as a stranger's file: every number
 * in range, every list in order, nothing twice, and a last line that says that nothing is missing.
 *
 *   atsinfer costs 1
 *   key NAME VALUE...
 *   chunk N                       took NS           mem HOST ACCEL
 *   launch HOST ACCEL             sync HOST ACCEL   split NS
 *   dram CPU_ALONE COPY_ALONE CPU_TOGETHER COPY_TOGETHER          (GB/s)
 *   copy CHANNEL BYTES NS LOW HIGH SAMPLES
 *   threads decode|prefill WORKERS NS LOW HIGH SAMPLES
 *   op host|accel KIND TYPE|- rows|panels D0 D1 ... D7
 *   time TOKENS CTX COLD LOW HIGH WARM SAMPLES                    (of the op above)
 *   end
 */
#include "core/round/costs.h"

#include "core/newfile.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define MAGIC "atsinfer costs "
#define VERSION 1
#define MOST_OPS 4096u
#define MOST_NS (UINT64_C(1) << 50) /* 13 days */
#define MOST_BYTES (UINT64_C(1) << 56)

static const char *const channel_names[ATSI_N_COPIES] = {"pinned", "pageable", "to_accel",
                                                         "to_host"};
static const char *const device_names[ATSI_N_DEVICES] = {"host", "accel"};
static const char *const phase_names[ATSI_N_COST_PHASES] = {"decode", "prefill"};
static const char *const layout_names[] = {"rows", "panels"};

const char *atsi_cost_channel_name(enum atsi_cost_channel channel)
{
    return channel_names[channel];
}

const char *atsi_cost_phase_name(enum atsi_cost_phase phase)
{
    return phase_names[phase];
}

/* ---------------------------------------------------------------- words of a line */
struct reader {
    const char *path;
    unsigned line;
    char *at; /* rest of the line */
    struct atsi_costs *c;
    struct atsi_cost_op *op; /* that times belong to; NULL: none yet */
    uint32_t seen;           /* one bit per single line that was there */
    bool ended;
    struct atsi_err *err;
    char text[512]; /* the line */
};

static int bad(const struct reader *r, const char *what)
{
    return atsi_fail(r->err, ATSI_EFORMAT, "%s:%u: %s", atsi_path_shown(r->path), r->line, what);
}

/* The next word, or NULL at the end of the line. */
static char *word(struct reader *r)
{
    char *start = r->at + strspn(r->at, " ");
    size_t n = strcspn(start, " ");
    if (n == 0)
        return NULL;
    r->at = start + n + (start[n] != '\0');
    start[n] = '\0';
    return start;
}

static int number(struct reader *r, uint64_t most, uint64_t *out)
{
    char *w = word(r), *end, what[120];
    unsigned long long v;
    errno = 0;
    v = w != NULL && w[0] >= '0' && w[0] <= '9' ? strtoull(w, &end, 10) : 0;
    if (w == NULL)
        return bad(r, "a number is missing");
    if (w[0] < '0' || w[0] > '9' || *end != '\0' || errno != 0 || v > most) {
        (void)snprintf(what, sizeof what, "\"%.40s\": expected a whole number up to %" PRIu64, w,
                       most);
        return bad(r, what);
    }
    *out = v;
    return ATSI_OK;
}

static int numbers(struct reader *r, uint64_t most, uint64_t *out, uint32_t n)
{
    int rc = ATSI_OK;
    for (uint32_t i = 0; i < n && rc == ATSI_OK; i++)
        rc = number(r, most, &out[i]);
    return rc;
}

static int number32(struct reader *r, uint32_t most, uint32_t *out)
{
    uint64_t v = 0;
    int rc = number(r, most, &v);
    *out = (uint32_t)v;
    return rc;
}

static int gbs(struct reader *r, double *out)
{
    char *w = word(r), *end = w;
    double v = w != NULL ? strtod(w, &end) : 0;
    if (w == NULL || end == w || *end != '\0' || !(v >= 0) || v > 1e6)
        return bad(r, "expected GB/s between 0 and 1000000");
    *out = v;
    return ATSI_OK;
}

static int one_of(struct reader *r, const char *const *list, uint32_t n, uint32_t *out)
{
    char *w = word(r), what[120];
    for (uint32_t i = 0; w != NULL && i < n; i++)
        if (strcmp(list[i], w) == 0) {
            *out = i;
            return ATSI_OK;
        }
    (void)snprintf(what, sizeof what, "\"%.40s\" is none of %s, %s%s", w != NULL ? w : "", list[0],
                   list[1], n > 2 ? ", ..." : "");
    return bad(r, what);
}

/* ---------------------------------------------------------------- lines */
static int read_key(struct reader *r)
{
    struct atsi_cost_key *k = &r->c->key[r->c->n_keys];
    char *name = word(r);
    if (name == NULL || strlen(name) >= sizeof k->name)
        return bad(r, "a key without a name");
    r->at += strspn(r->at, " ");
    if (atsi_costs_key(r->c, name)[0] != '\0')
        return bad(r, "the same key a second time");
    if (r->c->n_keys == ATSI_COST_KEYS)
        return bad(r, "too many keys");
    if (r->at[0] == '\0' || strlen(r->at) >= sizeof k->value)
        return bad(r, "a key's value is empty or too long");
    for (const char *c = r->at; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return bad(r, "a key's value holds a control character");
    (void)snprintf(k->name, sizeof k->name, "%s", name);
    (void)snprintf(k->value, sizeof k->value, "%s", r->at);
    r->at += strlen(r->at);
    r->c->n_keys++;
    return ATSI_OK;
}

/* Median, lowest, highest time and how many there were. */
static int samples(struct reader *r, uint64_t *ns, uint64_t *low_ns, uint64_t *high_ns, uint32_t *n)
{
    int rc = number(r, MOST_NS, ns);
    if (rc == ATSI_OK)
        rc = number(r, MOST_NS, low_ns);
    if (rc == ATSI_OK)
        rc = number(r, MOST_NS, high_ns);
    return rc == ATSI_OK ? number32(r, UINT32_MAX, n) : rc;
}

static int read_copy(struct reader *r)
{
    uint32_t channel = 0, n;
    struct atsi_cost_copy p = {0};
    int rc = one_of(r, channel_names, ATSI_N_COPIES, &channel);
    if (rc == ATSI_OK)
        rc = number(r, MOST_BYTES, &p.bytes);
    if (rc == ATSI_OK)
        rc = samples(r, &p.ns, &p.low_ns, &p.high_ns, &p.n);
    if (rc != ATSI_OK)
        return rc;
    n = r->c->n_copies[channel];
    if (n == ATSI_COPY_POINTS)
        return bad(r, "too many copies of one channel");
    if (p.bytes == 0 || p.ns == 0 || (n > 0 && p.bytes <= r->c->copies[channel][n - 1].bytes))
        return bad(r, "copies of a channel must ascend in bytes, with times above 0");
    r->c->copies[channel][n] = p;
    r->c->n_copies[channel]++;
    return ATSI_OK;
}

static int read_threads(struct reader *r)
{
    struct atsi_cost_threads p = {0};
    uint32_t phase = 0, n;
    int rc = one_of(r, phase_names, ATSI_N_COST_PHASES, &phase);
    if (rc == ATSI_OK)
        rc = number32(r, ATSI_MAX_WORKERS, &p.threads);
    if (rc == ATSI_OK)
        rc = samples(r, &p.ns, &p.low_ns, &p.high_ns, &p.n);
    if (rc != ATSI_OK)
        return rc;
    n = r->c->n_threads[phase];
    if (n == ATSI_COST_THREADS)
        return bad(r, "too many numbers of workers");
    if (p.threads == 0 || (n > 0 && p.threads <= r->c->threads[phase][n - 1].threads))
        return bad(r, "workers of a phase must ascend, from 1 on");
    if (p.low_ns == 0 || p.low_ns > p.ns || p.ns > p.high_ns)
        return bad(r, "the lowest time must be above 0, the median between it and the highest");
    r->c->threads[phase][n] = p;
    r->c->n_threads[phase]++;
    return ATSI_OK;
}

static int read_type(struct reader *r, uint32_t *out)
{
    char *w = word(r);
    *out = ATSI_TYPE_COUNT;
    if (w != NULL && strcmp(w, "-") == 0)
        return ATSI_OK;
    for (uint32_t t = 0; w != NULL && t < ATSI_TYPE_COUNT; t++)
        if (atsi_type_info(t) != NULL && strcmp(atsi_type_info(t)->name, w) == 0) {
            *out = t;
            return ATSI_OK;
        }
    return bad(r, "no such weight type");
}

static int read_op(struct reader *r)
{
    struct atsi_cost_shape s = {0};
    uint32_t device = 0;
    char *w;
    int rc = one_of(r, device_names, ATSI_N_DEVICES, &device);
    if (rc != ATSI_OK)
        return rc;
    w = word(r);
    s.kind = w != NULL ? atsi_cost_kind(w, strlen(w)) : 0;
    if (s.kind == 0)
        return bad(r, "no such operation");
    rc = read_type(r, &s.type);
    if (rc == ATSI_OK)
        rc = one_of(r, layout_names, 2, &s.layout);
    if (rc == ATSI_OK)
        rc = numbers(r, MOST_BYTES, s.dims, ATSI_SHAPE_DIMS);
    if (rc != ATSI_OK)
        return rc;
    if (atsi_costs_find(r->c, device, &s) != NULL)
        return bad(r, "the same operation a second time");
    if (r->c->n_ops == MOST_OPS)
        return bad(r, "too many operations");
    r->op = atsi_costs_add(r->c, device, &s);
    return r->op != NULL
               ? ATSI_OK
               : atsi_fail(r->err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(r->path));
}

static int read_time(struct reader *r)
{
    struct atsi_cost_time t = {0}, *last;
    uint64_t v[4] = {0};
    int rc;
    if (r->op == NULL)
        return bad(r, "a time that belongs to no operation");
    rc = number32(r, 1U << 24, &t.tokens);
    if (rc == ATSI_OK)
        rc = number32(r, INT32_MAX, &t.ctx);
    if (rc == ATSI_OK)
        rc = numbers(r, MOST_NS, v, 4);
    if (rc == ATSI_OK)
        rc = number32(r, UINT32_MAX, &t.n);
    if (rc != ATSI_OK)
        return rc;
    t.cold_ns = v[0];
    t.low_ns = v[1];
    t.high_ns = v[2];
    t.warm_ns = v[3];
    if (r->op->n == ATSI_COST_TIMES)
        return bad(r, "too many times of one operation");
    last = r->op->n > 0 ? &r->op->time[r->op->n - 1] : NULL;
    if (t.tokens == 0 || (t.cold_ns == 0 && t.warm_ns == 0) ||
        (last != NULL && (t.ctx < last->ctx || (t.ctx == last->ctx && t.tokens <= last->tokens))))
        return bad(r, "times of an operation must ascend by context, then tokens, and be above 0");
    r->op->time[r->op->n++] = t;
    return ATSI_OK;
}

/* Lines that are there once. */
static int read_single(struct reader *r, const char *what)
{
    static const char *const list[] = {"chunk", "took", "mem", "launch", "sync", "split", "dram"};
    struct atsi_costs *c = r->c;
    uint32_t k = 0;
    while (k < 7 && strcmp(list[k], what) != 0)
        k++;
    if (k == 7)
        return bad(r, "a line that begins with no word of this format");
    if ((r->seen & 1U << k) != 0)
        return bad(r, "this line a second time");
    r->seen |= 1U << k;
    switch (k) {
    case 0:
        return number32(r, 1U << 24, &c->chunk);
    case 1:
        return number(r, MOST_NS, &c->took_ns);
    case 2:
        return numbers(r, MOST_BYTES, c->mem_bytes, ATSI_N_DEVICES);
    case 3:
        return numbers(r, MOST_NS, c->launch_ns, ATSI_N_DEVICES);
    case 4:
        return numbers(r, MOST_NS, c->sync_ns, ATSI_N_DEVICES);
    case 5:
        return number(r, MOST_NS, &c->split_ns);
    default:
        for (int i = 0; i < 4; i++) {
            double *to[4] = {&c->memory.cpu_alone, &c->memory.copy_alone, &c->memory.cpu_together,
                             &c->memory.copy_together};
            int rc = gbs(r, to[i]);
            if (rc != ATSI_OK)
                return rc;
        }
        return ATSI_OK;
    }
}

static int read_line(struct reader *r)
{
    char *what = word(r);
    int rc = ATSI_OK;
    if (what == NULL || what[0] == '#')
        return ATSI_OK;
    if (r->ended)
        return bad(r, "a line behind the end");
    if (strcmp(what, "key") == 0)
        rc = read_key(r);
    else if (strcmp(what, "copy") == 0)
        rc = read_copy(r);
    else if (strcmp(what, "threads") == 0)
        rc = read_threads(r);
    else if (strcmp(what, "op") == 0)
        rc = read_op(r);
    else if (strcmp(what, "time") == 0)
        rc = read_time(r);
    else if (strcmp(what, "end") == 0)
        r->ended = true;
    else
        rc = read_single(r, what);
    if (rc == ATSI_OK && word(r) != NULL)
        rc = bad(r, "too many words");
    return rc;
}

/* ---------------------------------------------------------------- files */
static int check_whole(const struct reader *r)
{
    const char *path = atsi_path_shown(r->path);
    if (!r->ended)
        return atsi_fail(r->err, ATSI_EFORMAT, "%s: cut off: the line \"end\" is missing", path);
    if ((r->seen & 1U) == 0 || r->c->chunk == 0)
        return atsi_fail(r->err, ATSI_EFORMAT, "%s: the line \"chunk\" is missing", path);
    for (uint32_t i = 0; i < r->c->n_ops; i++)
        if (r->c->ops[i].n == 0)
            return atsi_fail(r->err, ATSI_EFORMAT, "%s: operation %u (%s) has no times", path, i,
                             atsi_cost_kind_name(r->c->ops[i].shape.kind));
    return ATSI_OK;
}

static int check_version(const struct reader *r, const char *line)
{
    char *end;
    unsigned long v;
    if (strncmp(line, MAGIC, sizeof MAGIC - 1) != 0)
        return bad(r, "this is no table of costs");
    v = strtoul(line + sizeof MAGIC - 1, &end, 10);
    if (end == line + sizeof MAGIC - 1 || *end != '\0')
        return bad(r, "this is no table of costs");
    if (v != VERSION)
        return atsi_fail(r->err, ATSI_ENOTSUP, "%s: a table of version %lu, expected %d",
                         atsi_path_shown(r->path), v, VERSION);
    return ATSI_OK;
}

static int read_lines(struct reader *r, FILE *f)
{
    char *text = r->text;
    int rc = ATSI_OK;
    while (rc == ATSI_OK && fgets(text, sizeof r->text, f) != NULL) {
        size_t n = strlen(text);
        r->line++;
        if (n == 0 || text[n - 1] != '\n')
            return bad(r, "a line is too long, cut off, or holds a zero byte");
        text[n - 1] = '\0';
        r->at = text;
        rc = r->line == 1 ? check_version(r, text) : read_line(r);
    }
    if (rc == ATSI_OK && ferror(f) != 0)
        return atsi_fail(r->err, ATSI_EIO, "%s: cannot be read", atsi_path_shown(r->path));
    if (rc == ATSI_OK && r->line == 0) {
        r->line = 1;
        return bad(r, "this is no table of costs");
    }
    return rc == ATSI_OK ? check_whole(r) : rc;
}

int atsi_costs_read(const char *path, struct atsi_costs **out, struct atsi_err *err)
{
    struct reader r = {.path = path, .c = atsi_costs_new(), .err = err};
    FILE *f = fopen(path, "re");
    int rc;
    *out = NULL;
    if (f == NULL)
        rc = atsi_fail(err, errno == ENOENT || errno == ENOTDIR ? ATSI_ENOENT : ATSI_EIO, "%s: %s",
                       atsi_path_shown(path), strerror(errno));
    else if (r.c == NULL)
        rc = atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(path));
    else
        rc = read_lines(&r, f);
    if (f != NULL)
        (void)fclose(f); /* only read from */
    if (rc != ATSI_OK) {
        atsi_costs_free(r.c);
        return rc;
    }
    *out = r.c;
    return ATSI_OK;
}

bool atsi_costs_is_table(const char *path)
{
    char head[sizeof MAGIC] = "";
    FILE *f = fopen(path, "re");
    bool is = f != NULL && fread(head, 1, sizeof MAGIC - 1, f) == sizeof MAGIC - 1 &&
              memcmp(head, MAGIC, sizeof MAGIC - 1) == 0;
    if (f != NULL)
        (void)fclose(f); /* only read from */
    return is;
}

static void print_op(FILE *f, const struct atsi_cost_op *op)
{
    const struct atsi_type_info *type = atsi_type_info(op->shape.type);
    (void)fprintf(f, "op %s %s %s %s", device_names[op->device],
                  atsi_cost_kind_name(op->shape.kind), type != NULL ? type->name : "-",
                  layout_names[op->shape.layout != ATSI_LAYOUT_ROWS]);
    for (uint32_t d = 0; d < ATSI_SHAPE_DIMS; d++)
        (void)fprintf(f, " %" PRIu64, op->shape.dims[d]);
    (void)fputc('\n', f);
    for (uint32_t i = 0; i < op->n; i++) {
        const struct atsi_cost_time *t = &op->time[i];
        (void)fprintf(f, "time %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n",
                      t->tokens, t->ctx, t->cold_ns, t->low_ns, t->high_ns, t->warm_ns, t->n);
    }
}

/* All but the key and how long it took. */
static void print_measured(FILE *f, const struct atsi_costs *c)
{
    const struct atsi_cost_memory *m = &c->memory;
    (void)fprintf(f, "chunk %u\nmem %" PRIu64 " %" PRIu64 "\n", c->chunk, c->mem_bytes[0],
                  c->mem_bytes[1]);
    (void)fprintf(f, "launch %" PRIu64 " %" PRIu64 "\nsync %" PRIu64 " %" PRIu64 "\n",
                  c->launch_ns[0], c->launch_ns[1], c->sync_ns[0], c->sync_ns[1]);
    (void)fprintf(f, "split %" PRIu64 "\ndram %.6g %.6g %.6g %.6g\n", c->split_ns, m->cpu_alone,
                  m->copy_alone, m->cpu_together, m->copy_together);
    for (uint32_t k = 0; k < ATSI_N_COPIES; k++)
        for (uint32_t i = 0; i < c->n_copies[k]; i++) {
            const struct atsi_cost_copy *p = &c->copies[k][i];
            (void)fprintf(f, "copy %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n",
                          channel_names[k], p->bytes, p->ns, p->low_ns, p->high_ns, p->n);
        }
    for (uint32_t k = 0; k < ATSI_N_COST_PHASES; k++)
        for (uint32_t i = 0; i < c->n_threads[k]; i++) {
            const struct atsi_cost_threads *p = &c->threads[k][i];
            (void)fprintf(f, "threads %s %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %u\n",
                          phase_names[k], p->threads, p->ns, p->low_ns, p->high_ns, p->n);
        }
    for (uint32_t i = 0; i < c->n_ops; i++)
        print_op(f, &c->ops[i]);
}

/* [owned by caller: free] */
static char *to_text(const struct atsi_costs *c, bool all, size_t *size)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, size);
    bool good;
    if (f == NULL)
        return NULL;
    if (all) {
        (void)fprintf(f, "%s%d\n", MAGIC, VERSION);
        for (uint32_t i = 0; i < c->n_keys; i++)
            (void)fprintf(f, "key %s %s\n", c->key[i].name, c->key[i].value);
        (void)fprintf(f, "took %" PRIu64 "\n", c->took_ns);
    }
    print_measured(f, c);
    if (all)
        (void)fputs("end\n", f);
    good = ferror(f) == 0;
    if (fclose(f) != 0 || !good) {
        free(text);
        return NULL;
    }
    return text;
}

int atsi_costs_write(const struct atsi_costs *c, const char *path, struct atsi_err *err)
{
    size_t size = 0;
    char *text = to_text(c, true, &size);
    int rc;
    if (text == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "%s: out of memory", atsi_path_shown(path));
    rc = atsi_newfile_put(path, text, size, err);
    free(text);
    return rc;
}

uint64_t atsi_costs_hash(const struct atsi_costs *c)
{
    size_t size = 0;
    char *text = to_text(c, false, &size);
    uint64_t h = text != NULL ? XXH3_64bits(text, size) : 0;
    free(text);
    return h;
}
