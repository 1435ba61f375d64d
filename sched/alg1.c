/* SPDX-License-Identifier: Apache-2.0
 *
 * The paper's Algorithm 1: a knapsack over a chain, in which neighbours on different sides cost a
 * switch.  V[side][m] is the best value of the operators so far with the last one on `side` and at
 * most m units used.  For models with experts either all other weights fit the GPU and experts
 * share what is left, or experts stay on the CPU.  docs/scheduling.md, "Algorithm 1".
 */
#include "sched/arena.h"
#include "sched/place.h"

#include <inttypes.h>
#include <string.h>

#define IMPOSSIBLE (-(INT64_C(1) << 61))

/* One operator of the knapsack. */
struct item {
    int64_t r, c;
    int64_t q;    /* units */
    uint32_t i;   /* in the chain */
    int32_t side; /* fixed, or -1 */
};

struct knapsack {
    struct item *item; /* [n] */
    uint32_t n;
    int64_t cap;
    int64_t *cpu, *gpu; /* [cap+1] V */
    uint64_t *back;     /* [n][row]: two bits per cell, whether CPU (1) or GPU (2) changed sides */
    size_t row;
};

enum { CELLS = 32, FROM_GPU = 1, FROM_CPU = 2 };

static int64_t units(int64_t bytes, int64_t unit)
{
    return bytes / unit + (bytes % unit != 0);
}

/* Cells low .. high of one row of back pointers, in place from the top: a cell reads itself and the
 * one q below it. */
static uint64_t fill(struct knapsack *k, const struct item *it, int64_t c, int64_t low,
                     int64_t high)
{
    uint64_t bits = 0;
    for (int64_t m = high; m >= low; m--) {
        int64_t stay = k->cpu[m], leave = k->gpu[m] - c, in = IMPOSSIBLE;
        uint64_t from = leave > stay ? FROM_GPU : 0;
        if (m >= it->q) {
            int64_t enter = k->cpu[m - it->q] - c, on = k->gpu[m - it->q];
            from |= enter > on ? FROM_CPU : 0;
            in = (enter > on ? enter : on) + it->r;
        }
        k->cpu[m] = it->side == SCHED_GPU ? IMPOSSIBLE : leave > stay ? leave : stay;
        k->gpu[m] = it->side == SCHED_CPU ? IMPOSSIBLE : in;
        bits = bits << 2 | from;
    }
    return bits;
}

/* V after all items.  Cells that even the largest rest of the items cannot lift to `cap` are left.
 */
static void forward(struct knapsack *k)
{
    int64_t rest = 0;
    for (uint32_t i = 0; i < k->n; i++)
        rest += k->item[i].q;
    for (int64_t m = 0; m <= k->cap; m++) {
        k->cpu[m] = 0;
        k->gpu[m] = IMPOSSIBLE;
    }
    for (uint32_t i = 0; i < k->n; i++) {
        const struct item *it = &k->item[i];
        int64_t low;
        rest -= it->q;
        low = k->cap > rest ? k->cap - rest : 0;
        for (int64_t w = k->cap / CELLS; w >= low / CELLS; w--) {
            int64_t high = w * CELLS + CELLS - 1;
            k->back[k->row * i + (size_t)w] =
                fill(k, it, i > 0 ? it->c : 0, w * CELLS, high < k->cap ? high : k->cap);
        }
    }
}

static void walk_back(const struct knapsack *k, uint8_t *b)
{
    int64_t m = k->cap;
    int side = k->gpu[m] > k->cpu[m] ? SCHED_GPU : SCHED_CPU;
    for (uint32_t i = k->n; i-- > 0;) {
        uint64_t from = k->back[k->row * i + (size_t)(m / CELLS)] >> (2 * (m % CELLS));
        b[k->item[i].i] = (uint8_t)side;
        if (side == SCHED_GPU) {
            m -= k->item[i].q;
            side = from & FROM_CPU ? SCHED_CPU : SCHED_GPU;
        } else {
            side = from & FROM_GPU ? SCHED_GPU : SCHED_CPU;
        }
    }
}

static int64_t gain(const struct sched_chain *ch, const struct sched_alg1 *how, uint32_t i)
{
    return how->r != NULL ? how->r[i] : ch->op[i].tc - ch->op[i].tg;
}

static int64_t price(const struct sched_chain *ch, const struct sched_alg1 *how, uint32_t i)
{
    return how->c != NULL ? how->c[i] : ch->op[i].c;
}

int64_t sched_alg1_value(const struct sched_chain *ch, const struct sched_alg1 *how,
                         const uint8_t *b)
{
    int64_t v = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        v += b[i] == SCHED_GPU ? gain(ch, how, i) : 0;
        v -= i > 0 && b[i] != b[i - 1] ? price(ch, how, i) : 0;
    }
    return v;
}

/* What the branch for experts fixes. */
struct branch {
    int64_t left;  /* units for the free operators */
    int64_t fixed; /* units taken by operators that are fixed to the GPU here */
    int has_exp, all_fit;
};

static struct branch choose_branch(const struct sched_chain *ch, int64_t unit)
{
    struct branch br = {.left = ch->budget / unit};
    for (uint32_t i = 0; i < ch->n; i++) {
        br.has_exp |= ch->op[i].is_exp;
        if (!ch->op[i].is_exp && ch->op[i].pinned != SCHED_CPU)
            br.fixed += units(ch->op[i].s, unit);
    }
    br.all_fit = br.has_exp && br.fixed <= br.left;
    if (br.all_fit)
        br.left -= br.fixed;
    return br;
}

/* Operator i in the knapsack; 0: it is fixed and, solving the subsequence, left out. */
static int make_item(const struct sched_chain *ch, const struct sched_alg1 *how,
                     const struct branch *br, uint32_t i, struct item *it)
{
    const struct sched_op *op = &ch->op[i];
    int settled = br->has_exp && (br->all_fit ? !op->is_exp : op->is_exp);
    *it = (struct item){.r = gain(ch, how, i), .c = price(ch, how, i), .i = i, .side = op->pinned};
    it->q = units(op->s, how->unit);
    if (settled && op->pinned < 0)
        it->side = br->all_fit ? SCHED_GPU : SCHED_CPU;
    if (br->all_fit && !op->is_exp && it->side == SCHED_GPU)
        it->q = 0; /* its room is taken already */
    return !(settled && how->subsequence);
}

static void make_items(const struct sched_chain *ch, const struct sched_alg1 *how,
                       const struct branch *br, struct knapsack *k, uint8_t *b)
{
    int64_t all = 0;
    for (uint32_t i = 0; i < ch->n; i++) {
        struct item *it = &k->item[k->n];
        if (make_item(ch, how, br, i, it)) {
            all += it->q;
            k->n++;
        } else {
            b[i] = it->side == SCHED_GPU;
        }
    }
    k->cap = br->left < all ? br->left : all; /* room for more than all is of no use */
}

static size_t row_words(int64_t cap)
{
    return (size_t)(cap / CELLS + 1);
}

size_t sched_alg1_scratch(const struct sched_chain *ch, int64_t unit)
{
    int64_t cap = ch->budget / unit, all = 0;
    for (uint32_t i = 0; i < ch->n; i++)
        all += units(ch->op[i].s, unit);
    cap = cap < all ? cap : all;
    if (cap > SCHED_MAX_UNITS)
        return SIZE_MAX;
    return SCHED_ROOM(struct item, ch->n) + 2 * SCHED_ROOM(int64_t, cap + 1) +
           SCHED_ROOM(uint64_t, ch->n * row_words(cap));
}

int sched_alg1(const struct sched_chain *ch, const struct sched_alg1 *how, void *scratch,
               uint8_t *b_out, int64_t *value_out, struct atsi_err *err)
{
    struct branch br = choose_branch(ch, how->unit);
    struct knapsack k = {0};
    unsigned char *at = scratch;
    k.item = SCHED_TAKE(&at, struct item, ch->n);
    make_items(ch, how, &br, &k, b_out);
    if (k.cap > SCHED_MAX_UNITS)
        return atsi_fail(err, ATSI_EINVAL,
                         "a budget of %" PRId64 " units of %" PRId64 " bytes; at most %" PRId64
                         " are supported, take a larger unit",
                         k.cap, how->unit, SCHED_MAX_UNITS);
    k.cpu = SCHED_TAKE(&at, int64_t, k.cap + 1);
    k.gpu = SCHED_TAKE(&at, int64_t, k.cap + 1);
    k.back = (uint64_t *)(void *)at;
    k.row = row_words(k.cap);
    forward(&k);
    if (k.cpu[k.cap] < IMPOSSIBLE / 2 && k.gpu[k.cap] < IMPOSSIBLE / 2)
        return atsi_fail(err, ATSI_ENOFIT,
                         "the operators pinned to the GPU do not fit the budget of %" PRId64
                         " bytes",
                         ch->budget);
    walk_back(&k, b_out);
    *value_out = sched_alg1_value(ch, how, b_out);
    return ATSI_OK;
}
