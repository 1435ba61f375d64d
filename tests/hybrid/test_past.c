/* SPDX-License-Identifier: Apache-2.0
 *
 * The past of a session with an accelerator: cutting it, checkpoints, files, wherever its caches
 * and states live.  What comes next is what the CPU alone gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hybrid/hybrid_run.h"
#include "tests/unit/scratch.h"

enum { N_CTX = 80, CHUNK = 8, N_FIRST = 37, N_MORE = 5 };

static const char *const everything[] = {"memory.vram=100%m", "policy.name=policy_static",
                                         "plugin.policy_static.mode=layer", NULL};
static const char *const half[] = {"memory.vram=50%m", "policy.name=policy_static",
                                   "plugin.policy_static.mode=layer", NULL};
static const char *const on_host[] = {"memory.vram=60%m", "kv.device=cpu", NULL};
static const char *const *const ways[] = {everything, half, on_host};
enum { N_WAYS = sizeof ways / sizeof ways[0] };

struct pair {
    struct atsi_runtime *rt[2];
    struct atsi_model *m[2];
    struct atsi_session *s[2]; /* the CPU alone, and with the accelerator */
    int32_t ids[N_CTX];
    bool kv_on_host;
};

static void open_pair(struct pair *p, const char *name, const char *const *settings)
{
    p->rt[0] = hr_cpu();
    p->rt[1] = hr_runtime(settings);
    for (int k = 0; k < 2; k++) {
        p->m[k] = hr_open(p->rt[k], hr_model(name));
        p->s[k] = hr_session(p->m[k], N_CTX, CHUNK);
    }
    if (strcmp(hr_info(p->s[1]).accel, hr_accel()) != 0)
        fail_msg("%s: no accelerator\n%s", name, hr_log);
    p->kv_on_host = settings == on_host;
    if (!p->kv_on_host)
        assert_true(hr_info(p->s[1]).accel_caches > 0);
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

/* n tokens from ids[from] on, in both. */
static void go_on(struct pair *p, uint32_t from, uint32_t n, const char *what)
{
    struct hr_rows a = hr_eval(p->s[0], p->ids + from, n, false);
    struct hr_rows b = hr_eval(p->s[1], p->ids + from, n, false);
    hr_same(&a, &b, what);
    hr_free(&a);
    hr_free(&b);
}

static void each(void (*fn)(struct pair *p, const char *name))
{
    for (const char *const *name = am_tiny_names; *name != NULL; name++)
        for (int w = 0; w < N_WAYS; w++) {
            struct pair p;
            open_pair(&p, *name, ways[w]);
            fn(&p, *name);
            assert_int_equal(hr_info(p.s[1]).n_fallbacks, 0);
            close_pair(&p);
        }
}

/* ---------------------------------------------------------------- cutting */
static void cut(struct pair *p, const char *name)
{
    struct atsi_err err = ATSI_ERR_INIT;
    go_on(p, 0, N_FIRST, name);
    for (uint32_t at = N_FIRST - 1; at > 0; at = at * 2 / 3) {
        uint32_t point = atsi_session_rewind_point(p->s[0], at);
        assert_int_equal(point, atsi_session_rewind_point(p->s[1], at));
        for (int k = 0; k < 2; k++)
            assert_int_equal(atsi_session_truncate(p->s[k], point, &err), ATSI_OK);
        go_on(p, 3, N_MORE, name);
    }
    for (int k = 0; k < 2; k++)
        assert_int_equal(atsi_session_truncate(p->s[k], 0, &err), ATSI_OK);
    go_on(p, 1, N_FIRST, name);
}

static void a_past_is_cut(void **state)
{
    (void)state;
    each(cut);
}

/* ---------------------------------------------------------------- checkpoints */
static void go_back(struct pair *p, const char *name)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_checkpoint *cp[2];
    go_on(p, 0, N_FIRST, name);
    for (int k = 0; k < 2; k++)
        assert_int_equal(atsi_session_checkpoint(p->s[k], &cp[k], &err), ATSI_OK);
    assert_int_equal(atsi_checkpoint_bytes(cp[0]), atsi_checkpoint_bytes(cp[1]));
    for (uint32_t again = 0; again < 2; again++) {
        go_on(p, 40, N_MORE + again * 3, name);
        for (int k = 0; k < 2; k++)
            if (atsi_session_restore(p->s[k], cp[k], &err) != ATSI_OK)
                fail_msg("%s: %s", name, err.msg);
    }
    go_on(p, 50, N_MORE, name);
    for (int k = 0; k < 2; k++)
        atsi_checkpoint_free(cp[k]);
}

static void checkpoints_lead_back(void **state)
{
    (void)state;
    each(go_back);
}

/* ---------------------------------------------------------------- files */
static void save(const struct atsi_session *s, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    if (atsi_session_save(s, path, "user", 4, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

static void load(struct atsi_session *s, const char *path)
{
    struct atsi_err err = ATSI_ERR_INIT;
    void *user = NULL;
    size_t n = 0;
    if (atsi_session_load(s, path, &user, &n, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
    assert_int_equal(n, 4);
    free(user);
}

static void assert_same_file(const char *a, const char *b)
{
    FILE *f = fopen(a, "rb"), *g = fopen(b, "rb");
    int x, y;
    assert_non_null(f);
    assert_non_null(g);
    do {
        x = fgetc(f);
        y = fgetc(g);
        assert_int_equal(x, y);
    } while (x != EOF);
    (void)fclose(f);
    (void)fclose(g);
}

/* Files of both kinds of session are the same (to the bit where kernels are), and each is loaded by
 * the other. */
static void exchange(struct pair *p, const char *name)
{
    char path[2][200];
    for (int k = 0; k < 2; k++)
        (void)snprintf(path[k], sizeof path[k], "%s", scratch_path(k == 0 ? "cpu.s" : "both.s"));
    go_on(p, 0, N_FIRST, name);
    for (int k = 0; k < 2; k++)
        save(p->s[k], path[k]);
    if (strcmp(hr_accel(), "twin") == 0)
        assert_same_file(path[0], path[1]);
    go_on(p, 60, N_MORE, name);
    for (int k = 0; k < 2; k++)
        load(p->s[k], path[1 - k]);
    go_on(p, 50, N_MORE, name);
}

static void files_are_exchanged(void **state)
{
    (void)state;
    each(exchange);
}

/* ---------------------------------------------------------------- another budget */
static void change(struct pair *p, const char *name)
{
    static const char *const budgets[] = {"20%m", "100%m", "60%m", "5%m"};
    struct atsi_err err = ATSI_ERR_INIT;
    go_on(p, 0, N_FIRST, name);
    for (uint32_t b = 0; b < 4; b++) {
        uint64_t before = hr_info(p->s[1]).accel_weights;
        assert_int_equal(atsi_session_set_budget(p->s[1], budgets[b], &err), ATSI_OK);
        go_on(p, 40, N_MORE, name);
        if (b == 1) /* with caches on the host the policy may find nothing worth it */
            assert_true(hr_info(p->s[1]).accel_weights > before || p->kv_on_host);
        if (strcmp(hr_info(p->s[1]).accel, hr_accel()) != 0)
            fail_msg("%s: no accelerator any more\n%s", budgets[b], hr_log);
    }
}

static void budgets_change_on_the_way(void **state)
{
    (void)state;
    each(change);
}

static void a_budget_of_nothing_ends_it(void **state)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct pair p;
    (void)state;
    open_pair(&p, "qwen35moe", half);
    go_on(&p, 0, N_FIRST, "before");
    assert_int_equal(atsi_session_set_budget(p.s[1], "0", &err), ATSI_OK);
    for (int k = 0; k < 2; k++) /* states are computed again, in chunks from the start */
        assert_int_equal(atsi_session_truncate(p.s[k], 0, &err), ATSI_OK);
    go_on(&p, 0, N_FIRST, "after");
    assert_string_equal(hr_info(p.s[1]).accel, "");
    assert_int_equal(hr_info(p.s[1]).n_fallbacks, 1);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_past_is_cut),
        cmocka_unit_test(checkpoints_lead_back),
        cmocka_unit_test(files_are_exchanged),
        cmocka_unit_test(budgets_change_on_the_way),
        cmocka_unit_test(a_budget_of_nothing_ends_it),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
