/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU and accelerator at once inside of a layer: what they compute independently of each other is
 * begun on the accelerator before the CPU begins its part, and the CPU waits for nothing but the
 * values that it reads.  Told by the order of calls, whatever they take.
 */
#include "tests/hybrid/hybrid_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hybrid/inside.h"

enum { N_CTX = 32, MAX_CALLS = 4000 };

enum what { RUN_HOST, RUN_ACCEL, TO_HOST, TO_ACCEL, WAIT_COPY, WAIT_OTHER };

struct call {
    enum what what;
    uint32_t first, last; /* items of a run */
};

static struct call calls[MAX_CALLS];
static uint32_t n_calls;
static const struct atsi_backend_ops *real[ATSI_N_DEVICES];
static const struct atsi_transfer_ops *real_tx;
static const struct atsi_event *copied; /* of the newest copy to the host */

static void note(struct call c)
{
    if (n_calls < MAX_CALLS)
        calls[n_calls++] = c;
}

static struct call run_of(enum what what, const struct atsi_split *split)
{
    struct call c = {what, UINT32_MAX, 0};
    for (uint32_t i = 0; i < split->n_ops; i++) {
        c.first = split->ops[i]->item < c.first ? split->ops[i]->item : c.first;
        c.last = split->ops[i]->item > c.last ? split->ops[i]->item : c.last;
    }
    return c;
}

static int run_host(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    if (split->n_ops > 0)
        note(run_of(RUN_HOST, split));
    return real[ATSI_DEVICE_HOST]->run(q, split, err);
}

static int run_accel(struct atsi_queue *q, const struct atsi_split *split, struct atsi_err *err)
{
    note(run_of(RUN_ACCEL, split));
    return real[ATSI_DEVICE_ACCEL]->run(q, split, err);
}

static int wait_accel(struct atsi_event *ev, uint64_t spin_ns, struct atsi_err *err)
{
    note((struct call){ev == copied ? WAIT_COPY : WAIT_OTHER, 0, 0});
    return real[ATSI_DEVICE_ACCEL]->event_wait(ev, spin_ns, err);
}

static const struct atsi_values *values;

/* Of activations: values have the same places in both arenas. */
static int copyv(struct atsi_transfer *tx, uint32_t channel, struct atsi_queue *q,
                 const struct atsi_copyv *req, struct atsi_err *err)
{
    const unsigned char *host = values->buf[ATSI_DEVICE_HOST] != NULL
                                    ? real[ATSI_DEVICE_ACCEL]->buf_ptr(values->buf[0])
                                    : NULL;
    const unsigned char *to = req->n_ranges > 0 ? req->ranges[0].dst : NULL;
    if (q != NULL && to >= host && to < host + values->bytes) {
        note((struct call){TO_HOST, 0, 0});
        copied = req->signal;
    } else if (q != NULL) {
        note((struct call){TO_ACCEL, 0, 0});
    }
    return real_tx->copyv(tx, channel, q, req, err);
}

/* ---------------------------------------------------------------- one decode round, watched */
struct watched {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
};

static void stand_between(struct atsi_hybrid *h)
{
    static struct atsi_backend_ops host, accel;
    static struct atsi_transfer_ops tx;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_rounds_params p = {.place = {.name = "policy_static"}, .dynamic = false};
    struct atsi_rounds_work w = {.source = {atsi_source_get(h->source), atsi_source_get(h->source)},
                                 .in_bytes = {h->in_bytes, h->in_bytes}};
    struct atsi_exec_devices d = h->a.d;
    p.place.ops = atsi_registry_find(h->s->rt->registry, ATSI_KIND_POLICY, "policy_static");
    real[0] = d.ops[0];
    real[1] = d.ops[1];
    real_tx = d.tx_ops;
    values = &h->values;
    host = *d.ops[0];
    host.run = run_host;
    accel = *d.ops[1];
    accel.run = run_accel;
    accel.event_wait = wait_accel;
    tx = *d.tx_ops;
    tx.copyv = copyv;
    d.ops[0] = &host;
    d.ops[1] = &accel;
    d.tx_ops = &tx;
    atsi_rounds_settle(h->rounds);
    atsi_rounds_close(h->rounds);
    h->rounds = NULL;
    if (atsi_rounds_open(h->question, &d, &w, &p, &h->rounds, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* The last token's logits are the CPU's. */
static void expect_answer(const struct hr_rows *have, const char *model, const int32_t *ids)
{
    struct atsi_runtime *rt = hr_cpu();
    struct atsi_model *m = hr_open(rt, hr_model(model));
    struct atsi_session *s = hr_session(m, N_CTX, 8);
    struct hr_rows first = hr_eval(s, ids, 3, false), want = hr_eval(s, ids + 3, 1, false);
    hr_same(&want, have, model);
    hr_free(&first);
    hr_free(&want);
    atsi_session_close(s);
    atsi_model_close(m);
    atsi_runtime_close(rt);
}

/* rule: what is on the CPU; a second one, and a setting, or NULL. */
static struct watched watch(const char *model, const char *rule, const char *second,
                            const char *setting)
{
    const char *settings[] = {rule,
                              "memory.vram=100MiB",
                              "policy.name=policy_static",
                              "plugin.policy_static.mode=layer",
                              "transfer.dynamic=off",
                              "load.pack=off",
                              second != NULL ? second : setting,
                              second != NULL ? setting : NULL,
                              NULL};
    struct watched w;
    struct hr_rows r;
    int32_t ids[4];
    w.rt = hr_runtime(settings);
    w.m = hr_open(w.rt, hr_model(model));
    w.s = hr_session(w.m, N_CTX, 8);
    if (w.s->hybrid == NULL)
        fail_msg("no accelerator\n%s", hr_log);
    hr_ids(ids, 4, hr_info(w.s).n_vocab);
    stand_between(w.s->hybrid);
    r = hr_eval(w.s, ids, 3, false);
    hr_free(&r);
    n_calls = 0;
    r = hr_eval(w.s, ids + 3, 1, false);
    assert_true(n_calls > 0 && n_calls < MAX_CALLS);
    assert_int_equal(hr_info(w.s).n_fallbacks, 0);
    expect_answer(&r, model, ids);
    hr_free(&r);
    return w;
}

static void end(struct watched *w)
{
    atsi_session_close(w->s);
    atsi_model_close(w->m);
    atsi_runtime_close(w->rt);
}

static uint32_t item_of(const struct watched *w, const char *name)
{
    const struct atsi_items *it = w->s->hybrid->items;
    for (uint32_t i = 0; i < it->n; i++)
        if (strcmp(it->items[i].name, name) == 0)
            return i;
    fail_msg("there is no item %s; the last but one is %s", name, it->items[it->n - 2].name);
    return 0;
}

/* The call that runs an item. */
static uint32_t call_of(uint32_t item, enum what what)
{
    for (uint32_t k = 0; k < n_calls; k++)
        if (calls[k].what == what && calls[k].first <= item && item <= calls[k].last)
            return k;
    fail_msg("item %u runs nowhere as expected", item);
    return 0;
}

/* `here` on the CPU: `there` on the accelerator was begun before, behind the copy that the CPU
 * waits for, and the CPU waits for nothing else since then. */
static void expect_together(const struct watched *w, const char *here, const char *there)
{
    uint32_t host = call_of(item_of(w, here), RUN_HOST);
    uint32_t accel = call_of(item_of(w, there), RUN_ACCEL), copy = accel;
    if (accel > host)
        fail_msg("%s is begun after %s", there, here);
    while (copy > 0 && calls[copy].what != TO_HOST)
        copy--;
    if (calls[copy].what != TO_HOST)
        fail_msg("nothing was copied to the CPU before %s", there);
    for (uint32_t k = copy + 1; k < host; k++)
        if (calls[k].what == TO_HOST || calls[k].what == WAIT_OTHER || calls[k].what == RUN_HOST)
            fail_msg("between the copy and %s: call %d", here, (int)calls[k].what);
}

/* `here` on the CPU: `there` on the accelerator was begun just before, and the CPU waits at most
 * for copies in front of it. */
static void expect_beside(const struct watched *w, const char *here, const char *there)
{
    uint32_t host = call_of(item_of(w, here), RUN_HOST);
    uint32_t accel = call_of(item_of(w, there), RUN_ACCEL);
    if (accel > host)
        fail_msg("%s is begun after %s", there, here);
    for (uint32_t k = accel + 1; k < host; k++)
        if (calls[k].what == TO_HOST || calls[k].what == WAIT_OTHER || calls[k].what == RUN_HOST)
            fail_msg("between %s and %s: call %d", there, here, (int)calls[k].what);
}

/* ---------------------------------------------------------------- tests */
static void test_shared_expert_beside_routed_ones(void **state)
{
    struct watched w = watch("qwen35moe", "policy.rule.1=_exps=cpu", NULL, NULL);
    (void)state;
    expect_together(&w, "blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_shexp.weight");
    end(&w);
}

static void test_keys_beside_queries(void **state)
{
    struct watched w = watch("qwen3", "policy.rule.1=blk\\.1\\.attn_k=cpu", NULL, NULL);
    (void)state;
    expect_together(&w, "blk.1.attn_k.weight", "blk.1.attn_q.weight");
    expect_together(&w, "blk.1.attn_k.weight", "blk.1.attn_v.weight");
    end(&w);
}

static void test_up_beside_gate(void **state)
{
    struct watched w = watch("qwen3", "policy.rule.1=blk\\.1\\.ffn_up=cpu", NULL, NULL);
    (void)state;
    expect_together(&w, "blk.1.ffn_up.weight", "blk.1.ffn_gate.weight");
    end(&w);
}

/* The first of what reads the norm is on the CPU: the norm is computed where its inputs are. */
static void test_gate_beside_up(void **state)
{
    struct watched w = watch("qwen3", "policy.rule.1=blk\\.1\\.ffn_gate=cpu", NULL, NULL);
    (void)state;
    expect_together(&w, "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight");
    end(&w);
}

static void test_queries_beside_keys(void **state)
{
    struct watched w = watch("qwen3", "policy.rule.1=blk\\.1\\.attn_q=cpu", NULL, NULL);
    (void)state;
    expect_together(&w, "blk.1.attn_q.weight", "blk.1.attn_k.weight");
    expect_together(&w, "blk.1.attn_q.weight", "blk.1.attn_v.weight");
    end(&w);
}

/* What is in front of the norm is on the CPU too: the norm goes over before gate is computed. */
static void test_gate_beside_up_behind_the_cpu(void **state)
{
    struct watched w =
        watch("qwen3", "policy.rule.1=blk\\.1\\.(attn_output|ffn_gate)=cpu", NULL, NULL);
    (void)state;
    expect_beside(&w, "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight");
    end(&w);
}

/* The other way round: the CPU has the norm, and does not wait for gate to get it back. */
static void test_up_beside_gate_behind_the_cpu(void **state)
{
    struct watched w =
        watch("qwen3", "policy.rule.1=blk\\.1\\.(attn_output|ffn_up)=cpu", NULL, NULL);
    (void)state;
    expect_beside(&w, "blk.1.ffn_up.weight", "blk.1.ffn_gate.weight");
    end(&w);
}

/* The sum that the norm needs besides is on the CPU: it goes over ahead. */
static void test_gate_beside_up_with_a_sum_on_the_cpu(void **state)
{
    struct watched w = watch("qwen3", "policy.rule.1=blk\\.1\\.(attn_q|ffn_gate)=cpu",
                             "policy.rule.2=blk\\.0\\.ffn_down=cpu", NULL);
    (void)state;
    expect_together(&w, "blk.1.ffn_gate.weight", "blk.1.ffn_up.weight");
    end(&w);
}

/* One matrix: rows of its tiles on both sides at once; the sum of products is the CPU's. */
static void test_tiles_of_one_matrix(void **state)
{
    struct watched w = watch("qwen3", "policy.rule.1=blk\\.1\\.ffn_gate\\.weight#1/2=cpu",
                             "memory.slots=2", "memory.temp=20KiB");
    (void)state;
    expect_together(&w, "blk.1.ffn_gate.weight#1/2", "blk.1.ffn_gate.weight#2/2");
    end(&w);
    w = watch("qwen3", "policy.rule.1=blk\\.1\\.ffn_up\\.weight#2/2=cpu", "memory.slots=2",
              "memory.temp=20KiB");
    expect_together(&w, "blk.1.ffn_up.weight#2/2", "blk.1.ffn_up.weight#1/2");
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles_of_one_matrix),
        cmocka_unit_test(test_gate_beside_up),
        cmocka_unit_test(test_queries_beside_keys),
        cmocka_unit_test(test_gate_beside_up_behind_the_cpu),
        cmocka_unit_test(test_up_beside_gate_behind_the_cpu),
        cmocka_unit_test(test_gate_beside_up_with_a_sum_on_the_cpu),
        cmocka_unit_test(test_shared_expert_beside_routed_ones),
        cmocka_unit_test(test_keys_beside_queries),
        cmocka_unit_test(test_up_beside_gate),
    };
    return cmocka_run_group_tests(tests, hr_enter, hr_leave);
}
