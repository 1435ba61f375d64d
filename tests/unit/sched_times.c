/* SPDX-License-Identifier: Apache-2.0
 *
 * How long scheduling takes and how good it is: the tables of docs/scheduling.md, "Cost and
 * quality".  Not a test, since every figure belongs to the machine it was measured on.
 *
 * usage: sched_times
 *
 * Times are the least of many calls, on one core and with warm caches.
 */
#include "sched_cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/round/plan.h"
#include "sched/answer.h"
#include "sched/dynamic.h"
#include "sched/place.h"
#include "sched/problem.h"
#include "sched/timeline.h"

enum { BUDGET_PM = 400, MAX_SLOTS = 8, PROMPT = 2048, GENERATED = 128 };
#define LARGE_BUDGET (INT64_C(24) << 30) /* at which Algorithm 1 is timed */

/* Stops with the message; there is nothing to clean up that the system does not. */
static void must(int ok, const char *what, const struct atsi_err *err)
{
    if (ok)
        return;
    (void)fprintf(stderr, "sched_times: %s%s%s\n", what, err != NULL ? ": " : "",
                  err != NULL ? err->msg : "");
    exit(1);
}

static void *room(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    must(p != NULL, "out of memory", NULL);
    memset(p, 0, bytes); /* or the first call's time is that of page faults */
    return p;
}

/* ---------------------------------------------------------------- time */
typedef void work_fn(void *ctx);

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Least time of a call in microseconds: a busy machine is not the algorithm's fault. */
static double least_us(work_fn *work, void *ctx)
{
    double best = HUGE_VAL, begin = seconds();
    for (int calls = 0; calls < 3 || (calls < 400 && seconds() - begin < 0.25); calls++) {
        double from = seconds(), took;
        work(ctx);
        took = seconds() - from;
        best = took < best ? took : best;
        if (took > 1)
            break;
    }
    return 1e6 * best;
}

/* ---------------------------------------------------------------- problems of a size */
/* The model with so many layers. */
static struct atsi_items *read_items(const char *model, uint32_t layers)
{
    char path[512], line[256], out_path[] = "/tmp/sched_times_XXXXXX";
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_items *items = NULL;
    FILE *in, *out;
    int fd = mkstemp(out_path);
    (void)snprintf(path, sizeof path, "%s/profiles/models/%s.ini", ATSI_SOURCE_DIR, model);
    in = fopen(path, "r");
    out = fd >= 0 ? fdopen(fd, "w") : NULL;
    must(in != NULL && out != NULL, path, NULL);
    while (fgets(line, sizeof line, in) != NULL)
        if (strncmp(line, "layers", 6) == 0)
            (void)fprintf(out, "layers = %u\n", layers);
        else
            (void)fputs(line, out);
    (void)fclose(in);
    must(fclose(out) == 0, out_path, NULL);
    must(atsi_items_from_shape(out_path, &items, &err) == ATSI_OK, out_path, &err);
    (void)unlink(out_path);
    return items;
}

static uint32_t count_items(const char *model, uint32_t layers)
{
    struct atsi_items *items = read_items(model, layers);
    uint32_t n = items->n;
    atsi_items_free(items);
    return n;
}

/* Layers with which the model has about n items. */
static uint32_t layers_for(const char *model, uint32_t n)
{
    uint32_t of_4 = count_items(model, 4), of_8 = count_items(model, 8), per = (of_8 - of_4) / 4;
    return 4 + (n + per / 2 - of_4) / per;
}

static uint64_t resident_bytes(const struct atsi_items *items)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < items->n; i++) {
        struct atsi_demand d;
        atsi_work_demand(&items->work[i], PROMPT, 0, PROMPT + GENERATED, &d);
        all += (uint64_t)d.resident_bytes;
    }
    return all;
}

/* A question, its decode on Algorithm 1's placement, a plan for it and memory for everything. */
struct bench {
    struct atsi_items *items;
    struct atsi_question *q;
    struct sched_view view[2]; /* by phase */
    void *memory[2], *work;
    uint8_t *b, *rb, *side;  /* [n]; side: placements that are timed */
    struct sched_op *scaled; /* [n] */
    struct atsi_answer *answer;
    struct atsi_plan *plan;
    double *in_bytes;
    /* what is timed */
    enum sched_timeline judge;
    uint32_t rounds, evals, width;
    double found_ns;
};

static void place(struct bench *s)
{
    const struct sched_alg1 how = {.unit = SCHED_UNIT};
    struct atsi_err err = ATSI_ERR_INIT;
    int64_t value;
    int rc = sched_alg1(&s->view[ATSI_PHASE_DECODE].chain, &how, s->work, s->b, &value, &err);
    must(rc == ATSI_OK, "placement", &err);
    for (int f = 0; f < 2; f++)
        s->view[f].chain.b = s->b;
}

/* Weights scaled so that 24 GiB are as scarce as the budget. */
static void scale(struct bench *s)
{
    const struct sched_chain *ch = &s->view[ATSI_PHASE_DECODE].chain;
    for (uint32_t i = 0; i < ch->n; i++) {
        s->scaled[i] = ch->op[i];
        s->scaled[i].s = (int64_t)((double)ch->op[i].s * (double)LARGE_BUDGET / (double)ch->budget);
    }
}

static struct sched_chain large_chain(const struct bench *s)
{
    struct sched_chain ch = s->view[ATSI_PHASE_DECODE].chain;
    ch.op = s->scaled;
    ch.budget = LARGE_BUDGET;
    return ch;
}

static size_t work_bytes(const struct bench *s)
{
    const struct sched_coplace both = {.decode = &s->view[ATSI_PHASE_DECODE].chain,
                                       .prefill = &s->view[ATSI_PHASE_PREFILL].chain,
                                       .decode_rounds = 2,
                                       .unit = SCHED_UNIT};
    const struct sched_chain large = large_chain(s);
    size_t bytes = sched_search_scratch(large.n, 2), more[2];
    more[0] = sched_alg1_scratch(&large, SCHED_UNIT);
    more[1] = sched_coplace_scratch(&both);
    for (int k = 0; k < 2; k++)
        bytes = more[k] > bytes ? more[k] : bytes;
    return bytes;
}

static struct bench bench_open(const char *model, uint32_t layers, int contention)
{
    struct bench s = {.items = read_items(model, layers)};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_machine m;
    struct atsi_conditions base = {.ctx_max = PROMPT + GENERATED,
                                   .contention = contention != 0,
                                   .load_cpu = 1,
                                   .load_gpu = 1,
                                   .load_pcie = 1};
    struct atsi_question_params p = {.phase = {base, base},
                                     .max_slots = MAX_SLOTS,
                                     .mix_prompt = PROMPT,
                                     .mix_generated = GENERATED,
                                     .n_vocab = 150000};
    uint32_t n = s.items->n;
    must(atsi_machine_read(ATSI_SOURCE_DIR "/profiles/machines/desktop-rtx4090.ini", &m, &err) ==
             ATSI_OK,
         "machine", &err);
    p.temp_bytes = (uint64_t)m.temp_mib << 20;
    p.vram_bytes = p.temp_bytes + resident_bytes(s.items) / 1000 * BUDGET_PM;
    p.phase[ATSI_PHASE_PREFILL].tokens = PROMPT;
    p.phase[ATSI_PHASE_DECODE].tokens = 1;
    p.phase[ATSI_PHASE_DECODE].ctx = PROMPT;
    must(atsi_question_model(s.items, &m, &p, &s.q, &err) == ATSI_OK, "question", &err);
    for (uint32_t f = 0; f < 2; f++) {
        s.memory[f] = room(sched_view_scratch(n));
        must(sched_view_read(&s.q->p, f, s.memory[f], &s.view[f], &err) == ATSI_OK, "view", &err);
    }
    s.b = room(n);
    s.rb = room(n);
    s.side = room(n);
    s.scaled = room(n * sizeof *s.scaled);
    scale(&s);
    s.work = room(work_bytes(&s));
    s.in_bytes = room(n * sizeof *s.in_bytes);
    must(atsi_answer_open(n, &s.answer, &err) == ATSI_OK, "answer", &err);
    must(atsi_plan_open(s.q, &s.plan, &err) == ATSI_OK, "plan", &err);
    place(&s);
    return s;
}

static void bench_close(struct bench *s)
{
    atsi_plan_close(s->plan);
    atsi_answer_close(s->answer);
    atsi_question_free(s->q);
    atsi_items_free(s->items);
    for (int f = 0; f < 2; f++)
        free(s->memory[f]);
    free(s->work);
    free(s->b);
    free(s->rb);
    free(s->side);
    free(s->scaled);
    free(s->in_bytes);
}

/* ---------------------------------------------------------------- what is timed */
static void run_paper(void *ctx)
{
    struct bench *s = ctx;
    (void)sched_alg2(&s->view[ATSI_PHASE_DECODE].chain, SCHED_ALG2_CLIPPED, s->work, s->rb);
}

static void run_repaired(void *ctx)
{
    struct bench *s = ctx;
    (void)sched_alg2_repaired(&s->view[ATSI_PHASE_DECODE].chain, s->work, s->rb);
}

static void run_search(void *ctx)
{
    struct bench *s = ctx;
    const struct sched_search how = {
        .judge = s->judge, .rounds = s->rounds, .evals = s->evals, .width = s->width};
    struct sched_found found;
    sched_search(&s->view[ATSI_PHASE_DECODE].chain, &how, s->work, s->rb, &found);
    s->found_ns = (double)found.ns;
}

static void run_alg1(void *ctx)
{
    struct bench *s = ctx;
    const struct sched_alg1 how = {.unit = SCHED_UNIT};
    const struct sched_chain large = large_chain(s);
    struct atsi_err err = ATSI_ERR_INIT;
    int64_t value;
    must(sched_alg1(&large, &how, s->work, s->side, &value, &err) == ATSI_OK, "Algorithm 1", &err);
}

static void run_both_phases(void *ctx)
{
    struct bench *s = ctx;
    const struct sched_coplace how = {.decode = &s->view[ATSI_PHASE_DECODE].chain,
                                      .prefill = &s->view[ATSI_PHASE_PREFILL].chain,
                                      .n_tokens = GENERATED,
                                      .n_chunks = 1,
                                      .decode_rounds = 2,
                                      .unit = SCHED_UNIT};
    struct atsi_err err = ATSI_ERR_INIT;
    struct sched_coplaced out;
    must(sched_coplace(&how, s->work, s->side, &out, &err) == ATSI_OK, "both phases", &err);
}

/* Checking an answer and building its plan. */
static void run_plan(void *ctx)
{
    struct bench *s = ctx;
    struct atsi_schedule *schedule = &s->answer->schedule;
    struct atsi_err err = ATSI_ERR_INIT;
    must(atsi_check_schedule(s->q, ATSI_PHASE_DECODE, s->answer->placed, schedule, &err) == ATSI_OK,
         "answer", &err);
    atsi_plan_build(s->plan, s->q, schedule, ATSI_PHASE_DECODE, s->in_bytes, 1);
}

static void write_answer(struct bench *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    must(sched_write_placement(&s->q->p, s->b, &s->answer->place, &err) == ATSI_OK, "placement",
         &err);
    sched_write_schedule(&s->view[ATSI_PHASE_DECODE].chain, s->rb, 0, &s->answer->schedule);
}

/* ---------------------------------------------------------------- tables */
/* The search as policies ask for it: *us its time, the return its distance in per cent to one that
 * keeps eight times as many labels and tries 20000 plans. */
static double search(struct bench *s, enum sched_timeline judge, uint32_t rounds, uint32_t evals,
                     double *us)
{
    double ns;
    s->judge = judge;
    s->rounds = rounds;
    s->evals = evals;
    s->width = 0;
    *us = least_us(run_search, s);
    ns = s->found_ns;
    s->evals = 20000;
    s->width = SCHED_MAX_WIDTH;
    run_search(s);
    return 100 * (ns / s->found_ns - 1);
}

static void row(const char *kind, const char *model, uint32_t n)
{
    uint32_t layers = layers_for(model, n);
    struct bench alone = bench_open(model, layers, 0), shared = bench_open(model, layers, 1);
    double us[3], gap[3];
    gap[0] = search(&alone, SCHED_JUDGE_FREE, 1, 100, &us[0]);
    gap[1] = search(&shared, SCHED_JUDGE_FLUID, 1, 80, &us[1]);
    gap[2] = search(&shared, SCHED_JUDGE_FLUID, 2, 80, &us[2]);
    write_answer(&shared);
    (void)printf("| %s, %u | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.1f | %.0f | %.2f | %.2f | "
                 "%.2f |\n",
                 kind, shared.items->n, least_us(run_paper, &shared),
                 least_us(run_repaired, &shared), us[0], us[1], us[2], least_us(run_plan, &shared),
                 least_us(run_alg1, &shared) / 1e3, least_us(run_both_phases, &shared) / 1e3,
                 gap[0], gap[1], gap[2]);
    (void)fflush(stdout);
    bench_close(&alone);
    bench_close(&shared);
}

static double steady(const struct sched_chain *ch, const uint8_t *rb, void *scratch)
{
    const struct sched_run run = {.rounds = 2, .follows = 1};
    return sched_fluid(ch, rb, &run, scratch);
}

static double steady_of(const struct sched_chain *ch, const uint8_t *rb, void *unused)
{
    static _Alignas(64) unsigned char scratch[4096];
    (void)unused; /* it is for one round */
    must(sched_timeline_scratch(ch->n, 2) <= sizeof scratch, "too many operators", NULL);
    return steady(ch, rb, scratch);
}

/* Random problems against the best of all plans. */
static void random_row(const char *name, uint32_t rounds, int contention)
{
    static struct sched_case c;
    static uint8_t rb[CASE_MAX], best[CASE_MAX];
    const struct sched_search how = {.rounds = rounds, .evals = 80};
    double sum = 0, most = 0;
    uint32_t n = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct sched_found found;
        double opt, gap;
        void *work;
        case_random(&c, seed, 6 + (uint32_t)(seed % 8), (enum case_kind)(seed / 8 % CASE_KINDS));
        if (contention)
            case_contend(&c, seed);
        work = room(sched_search_scratch(c.ch.n, 2));
        opt = case_optimum(&c,
                           rounds > 1   ? steady_of
                           : contention ? case_fluid
                                        : case_latency,
                           best);
        sched_search(&c.ch, &how, work, rb, &found);
        free(work);
        if (opt <= 0)
            continue;
        gap = 100 * ((double)found.ns / opt - 1);
        gap = gap > 0 ? gap : 0; /* found.ns is rounded */
        sum += gap;
        most = gap > most ? gap : most;
        n++;
    }
    (void)printf("| %s | %u | %.3f | %.1f |\n", name, n, sum / n, most);
}

int main(void)
{
    static const uint32_t sizes[] = {100, 300, 500, 1000};
    (void)printf("| shape, n | paper | repaired | backlog, free | backlog, contention | the same, "
                 "steady | plan | Algorithm 1, ms | both phases, ms | gap, free, %% | contention | "
                 "steady |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int k = 0; k < 4; k++)
        row("dense", "llama-3.1-70b-int4", sizes[k]);
    for (int k = 0; k < 4; k++)
        row("experts", "qwen3-30b-a3b-int4", sizes[k]);
    (void)printf("\n| random, 6 to 13 operators | n | mean gap, %% | most |\n|---|---|---|---|\n");
    random_row("free", 1, 0);
    random_row("contention", 1, 1);
    random_row("contention, steady", 2, 1);
    return 0;
}
