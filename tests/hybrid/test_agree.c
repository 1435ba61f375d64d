/* SPDX-License-Identifier: Apache-2.0
 *
 * What is simulated is what is done: the plans of a session's rounds, of every policy and of none
 * (random ones), are run once more on the simulated devices, and in each round the same splits,
 * copies and weights reach host, stream and copy engine in the same order, in the same slots,
 * behind the same events.  ATSI_AGREE_SEEDS sets how many random cases (20). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hybrid/inside.h"
#include "core/round/sim_run.h"
#include "tests/hybrid/hybrid_run.h"
#include "tests/hybrid/spy.h"

enum { N_CTX = 64, CHUNK = 4, MAX_ROUNDS = 64 };

#define MIB (1024.0 * 1024.0)

/* Nobody samples in a simulation: its results are whole rows of logits. */
static const char whole[] = "exec.pick=off";

/* What is asked of a session: tokens at once. */
static const uint32_t evals[] = {11, 1, 1, 1, 1, 1, 6, 1, 1, 1, 8, 1};

struct asked {
    uint32_t tokens, ctx, left;
};

/* As sessions cut them (rounds of the kind that are to come, after a single token some more). */
static uint32_t list_rounds(struct asked *out)
{
    uint32_t n = 0, past = 0;
    for (size_t e = 0; e < sizeof evals / sizeof evals[0]; e++)
        for (uint32_t done = 0, rows; done < evals[e]; done += rows) {
            rows = evals[e] - done < CHUNK ? evals[e] - done : CHUNK;
            out[n++] =
                (struct asked){rows, past, evals[e] - done == 1 ? 64 : (evals[e] - done) / rows};
            past += rows;
        }
    return n;
}

/* ---------------------------------------------------------------- the session */
struct done {
    struct atsi_runtime *rt;
    struct atsi_model *model;
    struct atsi_session *s;
    struct spy *spy;
    struct hr_rows last; /* logits of the last token */
};

static struct atsi_policy_use find_policy(const struct atsi_runtime *rt)
{
    struct atsi_policy_use use = {.name = atsi_conf_get(rt->conf, "policy.name")};
    use.ops = atsi_registry_find(rt->registry, ATSI_KIND_POLICY, use.name);
    assert_non_null(use.ops);
    return use;
}

/* The session's rounds begin again, with a spy before their devices; each waits for its answer. */
static void watch(struct done *d)
{
    struct atsi_hybrid *h = d->s->hybrid;
    struct spy_params sp = {
        .n_items = h->items->n, .region = h->region, .slot_bytes = h->question->slot_bytes};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_rounds_params p = {
        .place = find_policy(d->rt), .schedule = find_policy(d->rt), .dynamic = true, .lazy = true};
    struct atsi_rounds_work w = {.in_bytes = {h->in_bytes, h->in_bytes}};
    int32_t *placed = malloc(h->items->n * sizeof *placed);
    assert_non_null(placed);
    memcpy(placed, atsi_rounds_placement(h->rounds)->device, h->items->n * sizeof *placed);
    atsi_rounds_settle(h->rounds);
    atsi_rounds_close(h->rounds);
    h->rounds = NULL;
    d->spy = spy_open(&sp, &h->a.d);
    for (uint32_t f = 0; f < 2; f++)
        w.source[f] = spy_source(d->spy, f, atsi_source_get(h->source));
    if (atsi_rounds_open(h->question, &h->a.d, &w, &p, &h->rounds, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_memory_equal(placed, atsi_rounds_placement(h->rounds)->device,
                        h->items->n * sizeof *placed);
    free(placed);
}

static void run_session(const char *model, const char *const *settings, struct done *d,
                        const char *what)
{
    int32_t ids[N_CTX];
    uint32_t past = 0;
    memset(d, 0, sizeof *d);
    d->rt = hr_runtime(settings);
    d->model = hr_open(d->rt, hr_model(model));
    d->s = hr_session(d->model, N_CTX, CHUNK);
    if (d->s->hybrid == NULL)
        fail_msg("%s: no accelerator\n%s", what, hr_log);
    watch(d);
    hr_ids(ids, N_CTX, hr_info(d->s).n_vocab);
    for (size_t e = 0; e < sizeof evals / sizeof evals[0]; e++) {
        hr_free(&d->last);
        d->last = hr_eval(d->s, ids + past, evals[e], false);
        past += evals[e];
    }
    if (hr_info(d->s).n_fallbacks != 0 || hr_info(d->s).n_refused != 0)
        fail_msg("%s: refused, or without the accelerator\n%s", what, hr_log);
}

static void close_session(struct done *d)
{
    spy_use(d->spy);
    atsi_session_close(d->s);
    spy_close(d->spy);
    atsi_model_close(d->model);
    atsi_runtime_close(d->rt);
    hr_free(&d->last);
}

/* ---------------------------------------------------------------- the simulation */
/* A policy that answers what was done. */
static const struct spy_round *replayed;
static const int32_t *replayed_place;

static int place_again(const struct atsi_problem *in, struct atsi_placement *out,
                       struct atsi_err *err)
{
    (void)err;
    memcpy(out->device, replayed_place, in->n_items * sizeof *out->device);
    return ATSI_OK;
}

static int answer_again(const struct atsi_round *in, struct atsi_schedule *out,
                        struct atsi_err *err)
{
    size_t n = in->problem->n_items;
    (void)err;
    assert_int_equal(in->phase, replayed->phase);
    out->n_transfers = replayed->n_transfers;
    memcpy(out->device, replayed->device, n * sizeof *out->device);
    memcpy(out->after, replayed->after, n * sizeof *out->after);
    memcpy(out->slot, replayed->slot, n * sizeof *out->slot);
    memcpy(out->order, replayed->order, replayed->n_transfers * sizeof *out->order);
    return ATSI_OK;
}

static const struct atsi_policy_ops again = {
    .struct_size = sizeof again, .place = place_again, .schedule = answer_again};

/* Slots as the session has them, every weight that it moved small enough for them. */
static void same_slots(struct atsi_question *q, const struct atsi_question *as)
{
    for (uint32_t f = 0; f < 2; f++) {
        q->slot_depth[f] = as->slot_depth[f];
        for (uint32_t i = 0; i < q->items->n; i++) {
            struct atsi_item_cost *c = &q->cost[f][q->items->n + i];
            struct atsi_item_cost *now = &q->now[f][q->items->n + i];
            if (c->transfer_ns == 0)
                c->transfer_ns = now->transfer_ns = 1000;
        }
    }
}

static void same_items(const struct atsi_items *a, const struct atsi_items *b)
{
    assert_int_equal(a->n, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        assert_string_equal(a->items[i].name, b->items[i].name);
        assert_int_equal(a->items[i].router, b->items[i].router);
    }
}

/* Tiles are cut as the session did it: not at all where its devices do not take them. */
static bool is_cut(const struct atsi_items *it)
{
    for (uint32_t i = 0; i < it->n; i++)
        if (it->places[i].n_tiles > 1)
            return true;
    return false;
}

static struct spy *simulate(const struct done *d, struct atsi_sim_run *r,
                            struct atsi_sim_session *s, struct atsi_err *err)
{
    const struct atsi_hybrid *h = d->s->hybrid;
    struct spy_params sp = {.n_items = h->items->n};
    struct atsi_rounds_work w = {0};
    struct atsi_rounds_params p;
    struct spy *spy;
    int rc = atsi_sim_open_machine(r);
    r->machine.temp_mib = is_cut(h->items) ? 2.0 * (double)h->budget.tile / MIB : 0;
    if (rc == ATSI_OK)
        rc = atsi_sim_open_items(r);
    if (rc == ATSI_OK)
        same_items(h->items, r->items);
    r->machine.temp_mib = 64;
    r->policies.place = r->policies.schedule = (struct atsi_policy_use){"again", &again};
    if (rc == ATSI_OK)
        rc = atsi_sim_open_devices(r);
    if (rc == ATSI_OK)
        rc = atsi_sim_open_session(r, true, true, s);
    if (rc != ATSI_OK)
        fail_msg("%s", err->msg);
    same_slots(s->told, h->question);
    p = r->policies;
    p.dynamic = true;
    atsi_rounds_close(s->rounds);
    s->rounds = NULL;
    spy = spy_open(&sp, &r->d);
    for (uint32_t f = 0; f < 2; f++) {
        w.source[f] = spy_source(spy, f, atsi_model_source_get(s->source[f]));
        w.in_bytes[f] = atsi_model_source_in_bytes(s->source[f]);
    }
    if (atsi_rounds_open(s->told, &r->d, &w, &p, &s->rounds, err) != ATSI_OK)
        fail_msg("%s", err->msg);
    return spy;
}

static void step(struct atsi_sim_session *s, const struct asked *a, const char *what)
{
    uint32_t phase = a->tokens == 1 ? ATSI_PHASE_DECODE : ATSI_PHASE_PREFILL;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_round_result res;
    struct atsi_rounds_counts n;
    if (atsi_rounds_step(s->rounds, phase, a->tokens, a->ctx, a->left, &res, &err) != ATSI_OK)
        fail_msg("%s: %s", what, err.msg);
    atsi_rounds_counts(s->rounds, &n);
    if (n.illegal != 0 || n.failed != 0)
        fail_msg("%s: the simulation refuses the plan of round %u", what, n.rounds);
}

/* ---------------------------------------------------------------- both */
static void say_difference(const char *a, const char *b, const char *what, uint32_t round,
                           const char *lane)
{
    uint32_t line = 1;
    while (*a != '\0' && *b != '\0') {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0)
            break;
        a += n + (a[n] != '\0');
        b += m + (b[m] != '\0');
        line++;
    }
    fail_msg("%s: round %u, %s, line %u:\n  the session:    %.*s\n  the simulation: %.*s", what,
             round, lane, line, (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
}

static void compare(const struct spy *a, const struct spy *b, const char *what)
{
    static const char *const lanes[SPY_LANES] = {"host", "stream", "copy engine"};
    assert_int_equal(spy_n_rounds(a), spy_n_rounds(b));
    for (uint32_t k = 0; k < spy_n_rounds(a); k++)
        for (uint32_t l = 0; l < SPY_LANES; l++) {
            const char *x = spy_round(a, k)->lane[l], *y = spy_round(b, k)->lane[l];
            if (strcmp(x, y) != 0)
                say_difference(x, y, what, k, lanes[l]);
        }
}

struct sums {
    uint32_t rounds, moves, splits;
};

static uint32_t lines(const char *text)
{
    uint32_t n = 0;
    for (; *text != '\0'; text++)
        n += *text == '\n';
    return n;
}

static void sum_up(const struct spy *s, struct sums *sums)
{
    sums->rounds += spy_n_rounds(s);
    for (uint32_t k = 0; k < spy_n_rounds(s); k++) {
        sums->moves += lines(spy_round(s, k)->lane[SPY_ENGINE]);
        sums->splits +=
            lines(spy_round(s, k)->lane[SPY_HOST]) + lines(spy_round(s, k)->lane[SPY_STREAM]);
    }
}

static void agree(const char *model, const char *const *settings, const char *what,
                  struct sums *sums)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct asked asked[MAX_ROUNDS];
    uint32_t n = list_rounds(asked);
    struct done d;
    const struct atsi_sim_params p = {.struct_size = sizeof p,
                                      .machine =
                                          ATSI_SOURCE_DIR "/profiles/machines/laptop-rtx3060.ini",
                                      .model = hr_model(model),
                                      .chunk = CHUNK,
                                      .rounds = 1,
                                      .prompt = 8,
                                      .generated = 8,
                                      .vram_bytes = UINT64_C(1) << 30,
                                      .max_slots = 8,
                                      .contention = 1,
                                      .load_cpu = 1,
                                      .load_gpu = 1,
                                      .load_pcie = 1};
    struct atsi_sim_session s = {0};
    struct spy *spies[2];
    struct atsi_sim_run r;
    run_session(model, settings, &d, what);
    spies[0] = d.spy;
    r = (struct atsi_sim_run){.rt = d.rt, .p = &p, .err = &err};
    if (spy_n_rounds(d.spy) != n)
        fail_msg("%s: %u rounds instead of %u", what, spy_n_rounds(d.spy), n);
    replayed = spy_round(d.spy, 0);
    replayed_place = atsi_rounds_placement(d.s->hybrid->rounds)->device;
    spies[1] = simulate(&d, &r, &s, &err);
    for (uint32_t k = 0; k < n; k++) {
        replayed = spy_round(d.spy, k);
        step(&s, &asked[k], what);
    }
    compare(spies[0], spies[1], what);
    sum_up(spies[0], sums);
    atsi_sim_close_session(&s);
    atsi_sim_close_devices(&r);
    atsi_items_free(r.items);
    atsi_sim_close_machine(&r);
    spy_close(spies[1]);
    close_session(&d);
}

/* ---------------------------------------------------------------- plans */
static void policies_agree(void **state)
{
    static const char *const policies[][2] = {
        {"policy.name=policy_static", "plugin.policy_static.mode=layer"},
        {"policy.name=policy_static", "plugin.policy_static.mode=expert"},
        {"policy.name=policy_static", "plugin.policy_static.mode=stream"},
        {"policy.name=policy_static", "plugin.policy_static.mode=density"},
        {"policy.name=policy_dp", "plugin.policy_dp.algorithm=paper"},
        {"policy.name=policy_dp", "plugin.policy_dp.algorithm=backlog"}};
    static const char *const budgets[] = {"memory.vram=20%m", "memory.vram=60%m"};
    struct sums sums = {0};
    (void)state;
    for (uint32_t a = 0; am_tiny_names[a] != NULL; a++)
        for (size_t k = 0; k < sizeof policies / sizeof policies[0]; k++) {
            const char *settings[] = {policies[k][0],    policies[k][1], budgets[(a + k) % 2],
                                      "memory.temp=40%", whole,          NULL};
            char what[160];
            (void)snprintf(what, sizeof what, "%s, %s, %s", am_tiny_names[a], policies[k][1],
                           settings[2]);
            agree(am_tiny_names[a], settings, what, &sums);
        }
    print_message("%u rounds, %u splits and copies, %u weights moved\n", sums.rounds, sums.splits,
                  sums.moves);
    assert_true(sums.moves > 0);
}

static void random_plans_agree(void **state)
{
    const char *seeds = getenv("ATSI_AGREE_SEEDS");
    uint32_t n = seeds != NULL ? (uint32_t)strtoul(seeds, NULL, 10) : 20, n_names = 0;
    struct sums sums = {0};
    (void)state;
    while (am_tiny_names[n_names] != NULL)
        n_names++;
    for (uint32_t k = 0; k < n; k++) {
        const char *model = am_tiny_names[k % n_names];
        char plan[64], vram[64], slots[64], what[200];
        const char *settings[] = {"policy.name=twin_random", plan,  vram, slots, "memory.temp=50%",
                                  "plugin.twin.delay_us=20", whole, NULL};
        (void)snprintf(plan, sizeof plan, "plugin.twin.plan_seed=%u", 100 + k);
        (void)snprintf(vram, sizeof vram, "memory.vram=%u%%m", 10 + k * 37 % 80);
        (void)snprintf(slots, sizeof slots, "memory.slots=%u", 1 + k % 6);
        (void)snprintf(what, sizeof what, "%s, %s, %s, %s", model, plan, vram, slots);
        agree(model, settings, what, &sums);
    }
    print_message("%u rounds, %u splits and copies, %u weights moved\n", sums.rounds, sums.splits,
                  sums.moves);
    assert_true(sums.moves > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_agree),
        cmocka_unit_test(random_plans_agree),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
