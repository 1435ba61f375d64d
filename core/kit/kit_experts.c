/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of swap_experts: caches of several sizes are kept as a session keeps them, by the policy's
 * answers.  Each question is asked twice, with another one in between and other bytes in the lent
 * arrays.
 */
#include "core/kit/kit.h"

#include "core/experts/books.h"

#include <stdlib.h>
#include <string.h>

enum { N_LAYERS = 2, ROUNDS = 60, QUICK_ROUNDS = 20 };

struct cache {
    uint32_t n_experts, n_used, n_slots;
    float half_life;
    uint64_t admit_ns, hit_ns, grant_ns; /* granted per round */
    bool filled;                         /* else it begins empty */
};

/* Of no slots, of one, of all but one, of all; nothing may come in; a copy or a hit is worth
 * nothing. */
static const struct cache caches[] = {
    {8, 2, 4, 64, 1000, 300, 1000, false},    {128, 8, 32, 256, 4000, 700, 16000, true},
    {64, 6, 1, 64, 1000, 300, 5000, false},   {16, 4, 0, 64, 1000, 300, 9000, false},
    {8, 2, 7, 0, 1000, 300, 2000, true},      {16, 4, 16, 64, 1000, 300, 4000, false},
    {60, 4, 20, 64, 1000, 300, 0, true},      {32, 8, 12, 16, 0, 300, 1000, false},
    {256, 8, 100, 1000, 1000, 0, 8000, true}, {64, 64, 32, 64, 1000, 5000, 20000, false},
};

struct table {
    struct atsi_kit_run *r;
    const struct cache *c;
    struct atsi_kit_lent lent[2]; /* admit, evict: ATSI_BOOKS_USED each */
    struct atsi_books *books;
    uint64_t seed, n_asked;
    char label[96];
};

/* ---------------------------------------------------------------- asking */
static uint64_t input_sum(const struct atsi_expert_cache *in)
{
    uint64_t h = atsi_kit_sum(ATSI_KIT_SUM_START, in, sizeof *in);
    h = atsi_kit_sum(h, in->used, in->n_used * sizeof *in->used);
    h = atsi_kit_sum(h, in->slot_of, in->n_experts * sizeof *in->slot_of);
    h = atsi_kit_sum(h, in->expert_of, in->n_slots * sizeof *in->expert_of);
    h = atsi_kit_sum(h, in->locked, in->n_slots * sizeof *in->locked);
    h = atsi_kit_sum(h, in->count, in->n_experts * sizeof *in->count);
    h = atsi_kit_sum(h, in->last, in->n_experts * sizeof *in->last);
    return atsi_kit_sum(h, in->score, in->n_experts * sizeof *in->score);
}

/* The arrays end where their guards begin. */
static int ask(struct table *t, const struct atsi_expert_cache *in, int junk,
               struct atsi_expert_swaps *out, struct atsi_err *err)
{
    int32_t *at[2];
    for (int k = 0; k < 2; k++) {
        memset(t->lent[k].at, junk, t->lent[k].bytes);
        at[k] = (int32_t *)(void *)t->lent[k].at + (ATSI_BOOKS_USED - in->max_swaps);
    }
    *out = (struct atsi_expert_swaps){.struct_size = sizeof *out, .admit = at[0], .evict = at[1]};
    t->n_asked++;
    return t->r->ops->swap_experts(in, out, err);
}

/* Something else, of which nothing may be left. */
static void ask_other(struct table *t)
{
    static const int32_t used[1] = {2}, slot_of[4] = {0, -1, -1, -1}, expert_of[2] = {0, -1};
    static const uint8_t locked[2] = {0, 0};
    static const uint64_t count[4] = {9, 0, 3, 0}, last[4] = {8, 0, 12, 0};
    static const float score[4] = {4, 0, 2, 0};
    const struct atsi_expert_cache in = {.struct_size = sizeof in,
                                         .n_layers = 1,
                                         .n_experts = 4,
                                         .n_slots = 2,
                                         .n_used = 1,
                                         .max_swaps = 1,
                                         .half_life = 8,
                                         .round = 12,
                                         .used = used,
                                         .slot_of = slot_of,
                                         .expert_of = expert_of,
                                         .locked = locked,
                                         .count = count,
                                         .last = last,
                                         .score = score,
                                         .admit_ns = 10,
                                         .hit_ns = 10};
    struct atsi_expert_swaps out;
    struct atsi_err err = ATSI_ERR_INIT;
    (void)ask(t, &in, 0x33, &out, &err); /* whatever it says to that */
}

static bool ask_checked(struct table *t, const struct atsi_expert_cache *in, int junk,
                        struct atsi_expert_swaps *out)
{
    uint64_t before = input_sum(in);
    struct atsi_err err = ATSI_ERR_INIT;
    if (ask(t, in, junk, out, &err) != ATSI_OK)
        return atsi_kit_bad(t->r, "failed: %s: %s", t->label,
                            err.msg[0] != '\0' ? err.msg : "no reason given");
    for (int k = 0; k < 2; k++)
        if (!atsi_kit_intact(&t->lent[k]))
            return atsi_kit_bad(t->r, "wrote outside %s, of %u experts: %s", t->lent[k].name,
                                in->max_swaps, t->label);
    if (input_sum(in) != before)
        return atsi_kit_bad(t->r, "wrote to its input: %s", t->label);
    if (atsi_swaps_check(in, out, &err) != ATSI_OK)
        return atsi_kit_bad(t->r, "illegal: %s: %s", t->label, err.msg);
    return true;
}

/* An atsi_swap_fn.  What was found stops the run; the policy's answer is taken otherwise. */
static int swap(void *ctx, const struct atsi_expert_cache *in, struct atsi_expert_swaps *out,
                struct atsi_err *err)
{
    struct table *t = ctx;
    struct atsi_expert_swaps again;
    atsi_kit_at(t->r, "%s", t->label);
    if (!ask_checked(t, in, 0xA5, &again))
        return atsi_fail(err, ATSI_EINVAL, "it was found wanting");
    out->n = again.n;
    memcpy(out->admit, again.admit, again.n * sizeof *out->admit);
    memcpy(out->evict, again.evict, again.n * sizeof *out->evict);
    ask_other(t);
    if (!ask_checked(t, in, 0x00, &again))
        return atsi_fail(err, ATSI_EINVAL, "it was found wanting");
    if (again.n == out->n && memcmp(out->admit, again.admit, again.n * sizeof *out->admit) == 0 &&
        memcmp(out->evict, again.evict, again.n * sizeof *out->evict) == 0)
        return ATSI_OK;
    (void)atsi_kit_bad(t->r, "the same question has got two different answers: %s", t->label);
    return atsi_fail(err, ATSI_EINVAL, "it was found wanting");
}

/* ---------------------------------------------------------------- rounds */
/* Distinct experts, the first ones more often. */
static void choose(struct table *t, int32_t *used)
{
    uint32_t n = t->c->n_experts;
    for (uint32_t k = 0; k < t->c->n_used;) {
        uint64_t x = atsi_kit_next(&t->seed);
        uint32_t e = (uint32_t)((x >> 8) % ((x & 3) != 0 && k + k < n / 2 ? n / 2 : n)), j = 0;
        while (j < k && used[j] != (int32_t)e)
            j++;
        if (j == k)
            used[k++] = (int32_t)e;
    }
}

/* Every second copy that is under way arrives. */
static void arrive(struct table *t, uint32_t layer)
{
    for (uint32_t s = 0; s < t->c->n_slots; s++)
        if (atsi_books_locked(t->books, layer, s) && (atsi_kit_next(&t->seed) >> 9 & 1) != 0)
            atsi_books_arrived(t->books, layer, s);
}

static bool play_round(struct table *t, uint32_t round)
{
    int32_t used[ATSI_BOOKS_USED], slot[ATSI_BOOKS_USED];
    const struct atsi_expert_swaps *swaps;
    struct atsi_err err = ATSI_ERR_INIT;
    atsi_books_grant(t->books, t->c->grant_ns);
    for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
        (void)snprintf(t->label, sizeof t->label,
                       "swap_experts: %u slots for %u experts, layer %u, round %u", t->c->n_slots,
                       t->c->n_experts, layer, round);
        arrive(t, layer);
        choose(t, used);
        atsi_books_look(t->books, layer, used, slot);
        if (atsi_books_choose(t->books, layer, used, &swaps, &err) != ATSI_OK)
            return false; /* what is wrong was noted */
    }
    return true;
}

static bool play(struct table *t)
{
    const struct atsi_books_layer layer = {.n_experts = t->c->n_experts,
                                           .n_used = t->c->n_used,
                                           .n_slots = t->c->n_slots,
                                           .admit_ns = t->c->admit_ns,
                                           .hit_ns = t->c->hit_ns};
    const struct atsi_books_layer layers[N_LAYERS] = {layer, layer};
    const struct atsi_books_params p = {.n_layers = N_LAYERS,
                                        .layers = layers,
                                        .half_life = t->c->half_life,
                                        .swap = swap,
                                        .swap_ctx = t};
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t rounds = t->r->quick ? QUICK_ROUNDS : ROUNDS;
    bool ok = true;
    if (atsi_books_open(&p, &t->books, &err) != ATSI_OK)
        return atsi_kit_bad(t->r, "%s", err.msg);
    for (uint32_t l = 0; l < N_LAYERS && t->c->filled; l++)
        atsi_books_fill(t->books, l);
    for (uint32_t k = 1; k <= rounds && ok; k++)
        ok = play_round(t, k);
    atsi_books_close(t->books);
    return ok;
}

bool atsi_kit_check_experts(struct atsi_kit_run *r)
{
    struct table t = {.r = r, .seed = 11};
    struct atsi_err err = ATSI_ERR_INIT;
    bool ok = true;
    if (!ATSI_HAS(r->ops, struct atsi_policy_ops, swap_experts))
        return atsi_kit_good(r, "it leaves caches of experts to the core");
    if (atsi_kit_lend(&t.lent[0], "swaps.admit", ATSI_BOOKS_USED * sizeof(int32_t), &err) !=
            ATSI_OK ||
        atsi_kit_lend(&t.lent[1], "swaps.evict", ATSI_BOOKS_USED * sizeof(int32_t), &err) !=
            ATSI_OK)
        ok = atsi_kit_bad(r, "%s", err.msg);
    for (size_t k = 0; k < sizeof caches / sizeof caches[0] && ok; k++) {
        t.c = &caches[k];
        ok = play(&t);
        r->note->n_cases++;
    }
    free(t.lent[0].base);
    free(t.lent[1].base);
    return ok &&
           atsi_kit_good(r, "%u caches, %llu questions, every answer legal and the same again",
                         r->note->n_cases, (unsigned long long)t.n_asked);
}
