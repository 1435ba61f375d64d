/* SPDX-License-Identifier: Apache-2.0
 *
 * Another budget while a session lives: only what differs is copied, and logits stay those of the
 * CPU alone. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hybrid/inside.h"
#include "core/hybrid/region_inside.h"
#include "tests/hybrid/hybrid_run.h"
#include "tests/unit/scratch.h"

enum { N_CTX = 96, CHUNK = 8 };

struct pair {
    struct atsi_runtime *rt[2]; /* the CPU alone; with the accelerator */
    struct atsi_model *m[2];
    struct atsi_session *s[2];
    int32_t ids[N_CTX];
    uint32_t past;
};

static void open_pair(struct pair *p, const char *model, const char *const *settings)
{
    memset(p, 0, sizeof *p);
    p->rt[0] = hr_cpu();
    p->rt[1] = hr_runtime(settings);
    for (int k = 0; k < 2; k++) {
        p->m[k] = hr_open(p->rt[k], hr_model(model));
        p->s[k] = hr_session(p->m[k], N_CTX, CHUNK);
    }
    if (p->s[1]->hybrid == NULL)
        fail_msg("no accelerator\n%s", hr_log);
    hr_ids(p->ids, N_CTX, hr_info(p->s[0]).n_vocab);
}

static void close_pair(struct pair *p)
{
    for (int k = 0; k < 2; k++) {
        atsi_session_close(p->s[k]);
        atsi_model_close(p->m[k]);
        atsi_runtime_close(p->rt[k]);
    }
}

static void go_on(struct pair *p, uint32_t n, const char *what)
{
    struct hr_rows rows[2];
    for (int k = 0; k < 2; k++)
        rows[k] = hr_eval(p->s[k], p->ids + p->past, n, n > 1);
    p->past += n;
    hr_same(&rows[0], &rows[1], what);
    for (int k = 0; k < 2; k++)
        hr_free(&rows[k]);
    if (p->s[1]->hybrid == NULL)
        fail_msg("%s: no accelerator any more\n%s", what, hr_log);
}

/* ---------------------------------------------------------------- what is copied */
static const struct atsi_transfer_ops *real_tx;
static struct atsi_transfer_ops counting;
static uint64_t copied; /* bytes that the region has asked for */

static int count_copy(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                      const struct atsi_copyv *req, struct atsi_err *err)
{
    for (uint32_t i = 0; i < req->n_ranges; i++)
        copied += req->ranges[i].bytes;
    return real_tx->copyv(tx, channel, q, req, err);
}

static void watch(struct atsi_region *r)
{
    if (r->p.tx_ops != &counting) {
        real_tx = r->p.tx_ops;
        counting = *real_tx;
        counting.copyv = count_copy;
        r->p.tx_ops = &counting;
    }
    copied = 0;
}

/* The residents as they are. */
struct shot {
    struct atsi_resident *all;
    uint32_t n;
};

static struct shot take_shot(const struct atsi_region *r)
{
    struct shot s = {malloc((r->n + 1) * sizeof *s.all), r->n};
    assert_non_null(s.all);
    memcpy(s.all, r->all, r->n * sizeof *s.all);
    return s;
}

static const struct atsi_resident *find(const struct shot *s, const struct atsi_piece *p)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->all[i].piece.tensor == p->tensor && s->all[i].piece.first_row == p->first_row &&
            s->all[i].piece.end_row == p->end_row)
            return &s->all[i];
    return NULL;
}

struct sums {
    uint64_t loaded, kept, elsewhere;
};

/* Bytes: new ones, old ones where they were, old ones at another place. */
static struct sums compare(const struct shot *was, const struct shot *is)
{
    struct sums s = {0};
    for (uint32_t i = 0; i < is->n; i++) {
        const struct atsi_resident *x = &is->all[i], *old = find(was, &x->piece);
        *(old == NULL ? &s.loaded : old->at == x->at ? &s.kept : &s.elsewhere) += x->bytes;
    }
    return s;
}

static struct sums change(struct pair *p, const char *vram, const char *what)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct shot was = take_shot(p->s[1]->hybrid->region), is;
    struct sums s;
    watch(p->s[1]->hybrid->region);
    assert_int_equal(atsi_session_set_budget(p->s[1], vram, &err), ATSI_OK);
    go_on(p, 1, what);
    is = take_shot(p->s[1]->hybrid->region);
    s = compare(&was, &is);
    if (copied != s.loaded + s.elsewhere)
        fail_msg("%s, %s: %llu bytes copied, %llu are new and %llu elsewhere\n%s", what, vram,
                 (unsigned long long)copied, (unsigned long long)s.loaded,
                 (unsigned long long)s.elsewhere, hr_log);
    free(was.all);
    free(is.all);
    return s;
}

static const char *const density[] = {"policy.name=policy_static",
                                      "plugin.policy_static.mode=density",
                                      "memory.vram=30%m",
                                      "memory.temp=0",
                                      "kv.device=cpu",
                                      NULL};

static void the_difference_is_copied(void **state)
{
    (void)state;
    for (uint32_t a = 0; am_tiny_names[a] != NULL; a++) {
        const char *name = am_tiny_names[a];
        struct sums s;
        struct pair p;
        open_pair(&p, name, density);
        go_on(&p, 20, name);
        s = change(&p, "70%m", name); /* what is there stays there */
        if (s.elsewhere != 0 || s.kept == 0 || s.loaded == 0)
            fail_msg("%s: grown: %llu bytes new, %llu kept, %llu elsewhere", name,
                     (unsigned long long)s.loaded, (unsigned long long)s.kept,
                     (unsigned long long)s.elsewhere);
        s = change(&p, "70.0001%m", name); /* nothing differs */
        assert_int_equal(copied, 0);
        assert_int_equal(s.loaded + s.elsewhere, 0);
        s = change(&p, "40%m", name); /* what lay behind the new end may move */
        if (s.kept == 0)
            fail_msg("%s: shrunk: nothing kept, %llu bytes elsewhere", name,
                     (unsigned long long)s.elsewhere);
        go_on(&p, 5, name);
        assert_null(strstr(hr_log, "anew"));
        close_pair(&p);
    }
}

/* With slots, tiles and caches that change devices too. */
static void every_policy_follows(void **state)
{
    static const char *const policies[][2] = {
        {"policy.name=policy_static", "plugin.policy_static.mode=layer"},
        {"policy.name=policy_static", "plugin.policy_static.mode=stream"},
        {"policy.name=policy_dp", "plugin.policy_dp.algorithm=backlog"}};
    static const char *const budgets[] = {"60%m", "15%m", "100%m", "1GiB", "5%m", "45%m"};
    uint64_t kept = 0;
    (void)state;
    for (uint32_t a = 0; am_tiny_names[a] != NULL; a++) {
        const char *const *policy = policies[a % 3];
        const char *settings[] = {policy[0], policy[1], "memory.vram=30%m", "memory.temp=20%m",
                                  NULL};
        struct pair p;
        open_pair(&p, am_tiny_names[a], settings);
        go_on(&p, 11, am_tiny_names[a]);
        for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
            kept += change(&p, budgets[b], am_tiny_names[a]).kept;
            go_on(&p, 1 + (uint32_t)b, am_tiny_names[a]);
        }
        assert_null(strstr(hr_log, "anew"));
        close_pair(&p);
    }
    assert_true(kept > 0);
}

/* Nothing is remembered yet: states are zero, wherever they are by then. */
static void before_the_first_token(void **state)
{
    static const char *const settings[] = {"policy.name=policy_static",
                                           "plugin.policy_static.mode=layer", "memory.vram=90%m",
                                           "memory.temp=0", NULL};
    (void)state;
    for (uint32_t a = 0; am_tiny_names[a] != NULL; a++) {
        struct pair p;
        open_pair(&p, am_tiny_names[a], settings);
        (void)change(&p, "30%m", am_tiny_names[a]);
        (void)change(&p, "80%m", am_tiny_names[a]);
        go_on(&p, 9, am_tiny_names[a]);
        close_pair(&p);
    }
}

/* Weights over the copy kernel, which reads pinned memory alone; then one thing after the other. */
static void so_do_other_ways(void **state)
{
    static const char *const ways[] = {"transfer.engine=copy_kernel", "exec.async=off",
                                       "transfer.dynamic=off", "memory.pin=off"};
    static const char *const budgets[] = {"80%m", "10%m", "50%m"};
    (void)state;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        const char *settings[] = {"policy.name=policy_static",
                                  "plugin.policy_static.mode=stream",
                                  "memory.vram=30%m",
                                  "memory.temp=15%m",
                                  ways[w],
                                  NULL};
        struct pair p;
        open_pair(&p, "gpt-oss", settings);
        go_on(&p, 10, ways[w]);
        for (size_t b = 0; b < sizeof budgets / sizeof budgets[0]; b++) {
            (void)change(&p, budgets[b], ways[w]);
            go_on(&p, 4, ways[w]);
        }
        assert_null(strstr(hr_log, "anew"));
        close_pair(&p);
    }
}

/* A signal, and an ini that says something else by now. */
static void on_signal(int sig)
{
    (void)sig;
    atsi_settings_changed();
}

static void the_ini_is_followed(void **state)
{
    static const char *const settings[] = {
        "policy.name=policy_static", "plugin.policy_static.mode=density", "memory.temp=0", NULL};
    struct sigaction sa = {.sa_handler = on_signal}, old;
    struct pair p;
    uint64_t before;
    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &sa, &old), 0);
    scratch_write("config/atsinfer/atsinfer.ini", "[memory]\nvram = 20%m\n");
    open_pair(&p, "llama", settings);
    go_on(&p, 9, "before");
    before = hr_info(p.s[1]).accel_weights;
    watch(p.s[1]->hybrid->region);
    scratch_write("config/atsinfer/atsinfer.ini", "[memory]\nvram = 80%m\n");
    go_on(&p, 1, "nobody said so");
    assert_int_equal(copied, 0);
    assert_int_equal(raise(SIGUSR1), 0);
    go_on(&p, 3, "after");
    assert_true(copied > 0 && hr_info(p.s[1]).accel_weights > before);
    assert_true(copied <= hr_info(p.s[1]).accel_weights - before);
    assert_int_equal(sigaction(SIGUSR1, &old, NULL), 0);
    scratch_write("config/atsinfer/atsinfer.ini", "");
    close_pair(&p);
}

static uint64_t on_device(const struct pair *p)
{
    struct atsi_session_info info = hr_info(p->s[1]);
    return info.accel_weights + info.accel_caches;
}

/* Others took the device's memory meanwhile: the budget counts what is free now, and what this
 * session holds. */
static void others_take_memory(void **state)
{
    static const char *const settings[] = {"policy.name=policy_static",
                                           "plugin.policy_static.mode=density",
                                           "memory.vram=20%m",
                                           "memory.temp=0",
                                           "plugin.twin.memory=71303168",
                                           NULL};
    const uint64_t libraries = 64U << 20, some = 40000; /* the reserve that every budget has */
    struct atsi_props props = {.struct_size = sizeof props};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_buf *taken = NULL;
    struct atsi_hybrid *h;
    uint64_t others, few;
    struct pair p;
    (void)state;
    if (strcmp(hr_accel(), "twin") != 0)
        skip();
    open_pair(&p, "llama", settings);
    go_on(&p, 9, "before");
    h = p.s[1]->hybrid;
    few = on_device(&p);
    assert_int_equal(h->a.d.ops[1]->props(h->a.d.be[1], &props), ATSI_OK);
    others = props.mem_free_bytes - libraries - some;
    if (atsi_accel_alloc(&h->a, ATSI_MEM_DEVICE, (size_t)others, &taken, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    (void)change(&p, "68MiB", "full");
    h = p.s[1]->hybrid;
    assert_true(h->budget.total <= props.mem_total_bytes - others);
    assert_true(on_device(&p) <= few + some);
    assert_null(strstr(hr_log, "anew"));
    atsi_accel_free(&h->a, taken);
    (void)change(&p, "67.9MiB", "free again");
    assert_true(on_device(&p) > few + some);
    assert_null(strstr(hr_log, "anew"));
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_difference_is_copied), cmocka_unit_test(every_policy_follows),
        cmocka_unit_test(before_the_first_token),   cmocka_unit_test(so_do_other_ways),
        cmocka_unit_test(the_ini_is_followed),      cmocka_unit_test(others_take_memory),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
