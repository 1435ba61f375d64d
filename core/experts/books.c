/* SPDX-License-Identifier: Apache-2.0
 * The books of an expert cache. */
#include "core/experts/books.h"

#include "sched/experts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A use so old is forgotten; also keeps scores out of the range of denormal numbers. */
#define FORGOTTEN 1e-6F

struct layer {
    struct atsi_books_layer p;
    int32_t *slot_of, *expert_of; /* [n_experts], [n_slots] */
    uint8_t *locked;              /* [n_slots] */
    uint64_t *count, *last;       /* [n_experts] */
    float *score;                 /* [n_experts] */
    uint64_t round;
    uint64_t granted_ns; /* that transfers may take */
};

struct atsi_books {
    uint32_t n_layers;
    struct layer *layers;
    float half_life, fade; /* fade: what is left of a score after a round */
    atsi_swap_fn *swap;
    void *swap_ctx;
    int32_t admit[ATSI_BOOKS_USED], evict[ATSI_BOOKS_USED];
    struct atsi_expert_swaps swaps;
    struct atsi_books_counts counts;
};

/* ---------------------------------------------------------------- life */
static int open_layer(struct layer *l, const struct atsi_books_layer *p, uint32_t number,
                      struct atsi_err *err)
{
    l->p = *p;
    if (p->n_experts == 0 || p->n_used == 0 || p->n_used > p->n_experts ||
        p->n_used > ATSI_BOOKS_USED)
        return atsi_fail(err, ATSI_EINVAL, "expert cache, layer %u: %u of %u experts are used",
                         number, p->n_used, p->n_experts);
    l->slot_of = malloc((size_t)p->n_experts * sizeof *l->slot_of);
    l->expert_of = malloc(((size_t)p->n_slots + 1) * sizeof *l->expert_of);
    l->locked = calloc((size_t)p->n_slots + 1, 1);
    l->count = calloc(p->n_experts, sizeof *l->count);
    l->last = calloc(p->n_experts, sizeof *l->last);
    l->score = calloc(p->n_experts, sizeof *l->score);
    if (l->slot_of == NULL || l->expert_of == NULL || l->locked == NULL || l->count == NULL ||
        l->last == NULL || l->score == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for an expert cache of %u slots",
                         p->n_slots);
    return ATSI_OK;
}

int atsi_books_open(const struct atsi_books_params *p, struct atsi_books **out,
                    struct atsi_err *err)
{
    struct atsi_books *b = calloc(1, sizeof *b);
    int rc = ATSI_OK;
    *out = NULL;
    if (b != NULL)
        b->layers = calloc((size_t)p->n_layers + 1, sizeof *b->layers);
    if (b == NULL || b->layers == NULL) {
        free(b);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for an expert cache");
    }
    b->n_layers = p->n_layers;
    b->half_life = p->half_life;
    b->fade = p->half_life > 0 ? exp2f(-1.0F / p->half_life) : 1.0F;
    b->swap = p->swap;
    b->swap_ctx = p->swap_ctx;
    b->swaps = (struct atsi_expert_swaps){
        .struct_size = sizeof b->swaps, .admit = b->admit, .evict = b->evict};
    for (uint32_t l = 0; l < p->n_layers && rc == ATSI_OK; l++) {
        rc = open_layer(&b->layers[l], &p->layers[l], l, err);
        if (rc == ATSI_OK)
            atsi_books_empty(b, l);
    }
    if (rc != ATSI_OK) {
        atsi_books_close(b);
        return rc;
    }
    *out = b;
    return ATSI_OK;
}

void atsi_books_close(struct atsi_books *b)
{
    if (b == NULL)
        return;
    for (uint32_t k = 0; k < b->n_layers; k++) {
        struct layer *l = &b->layers[k];
        free(l->slot_of);
        free(l->expert_of);
        free(l->locked);
        free(l->count);
        free(l->last);
        free(l->score);
    }
    free(b->layers);
    free(b);
}

/* ---------------------------------------------------------------- rounds */
static void fade(const struct atsi_books *b, struct layer *l)
{
    for (uint32_t e = 0; e < l->p.n_experts; e++) {
        float s = l->score[e] * b->fade;
        l->score[e] = s < FORGOTTEN ? 0.0F : s;
    }
}

void atsi_books_look(struct atsi_books *b, uint32_t layer, const int32_t *used, int32_t *slot_out)
{
    struct layer *l = &b->layers[layer];
    l->round++;
    fade(b, l);
    for (uint32_t k = 0; k < l->p.n_used; k++) {
        int32_t e = used[k], s = l->slot_of[e];
        slot_out[k] = s >= 0 && l->locked[s] == 0 ? s : -1;
        b->counts.hits += slot_out[k] >= 0;
        b->counts.misses += slot_out[k] < 0;
        l->count[e]++;
        l->last[e] = l->round;
        l->score[e] += 1.0F;
    }
}

static void put(struct layer *l, int32_t expert, int32_t slot)
{
    if (l->expert_of[slot] >= 0)
        l->slot_of[l->expert_of[slot]] = -1;
    l->expert_of[slot] = expert;
    l->slot_of[expert] = slot;
}

static int ask(struct atsi_books *b, const struct atsi_expert_cache *in, struct atsi_err *err)
{
    int rc;
    b->swaps.n = 0;
    if (b->swap == NULL) {
        sched_experts_fade(in, &b->swaps);
        return ATSI_OK;
    }
    rc = b->swap(b->swap_ctx, in, &b->swaps, err);
    return rc == ATSI_OK ? atsi_swaps_check(in, &b->swaps, err) : rc;
}

void atsi_books_grant(struct atsi_books *b, uint64_t ns)
{
    for (uint32_t k = 0; k < b->n_layers; k++) {
        struct layer *l = &b->layers[k];
        uint64_t most = 2 * (l->p.admit_ns > ns ? l->p.admit_ns : ns);
        l->granted_ns = l->granted_ns + ns < most ? l->granted_ns + ns : most;
    }
}

static uint32_t max_swaps(const struct layer *l)
{
    uint64_t n = l->granted_ns / (l->p.admit_ns > 0 ? l->p.admit_ns : 1);
    return n < ATSI_BOOKS_USED ? (uint32_t)n : ATSI_BOOKS_USED;
}

int atsi_books_choose(struct atsi_books *b, uint32_t layer, const int32_t *used,
                      const struct atsi_expert_swaps **out, struct atsi_err *err)
{
    struct layer *l = &b->layers[layer];
    const struct atsi_expert_cache in = {.struct_size = sizeof in,
                                         .layer = layer,
                                         .n_layers = b->n_layers,
                                         .n_experts = l->p.n_experts,
                                         .n_slots = l->p.n_slots,
                                         .n_used = l->p.n_used,
                                         .max_swaps = max_swaps(l),
                                         .half_life = b->half_life,
                                         .round = l->round,
                                         .used = used,
                                         .slot_of = l->slot_of,
                                         .expert_of = l->expert_of,
                                         .locked = l->locked,
                                         .count = l->count,
                                         .last = l->last,
                                         .score = l->score,
                                         .admit_ns = l->p.admit_ns,
                                         .hit_ns = l->p.hit_ns};
    int rc = ask(b, &in, err);
    *out = &b->swaps;
    if (rc != ATSI_OK) {
        b->swaps.n = 0;
        b->counts.refused++;
        return rc;
    }
    for (uint32_t k = 0; k < b->swaps.n; k++) {
        put(l, b->admit[k], b->evict[k]);
        l->locked[b->evict[k]] = 1;
    }
    b->counts.swaps += b->swaps.n;
    l->granted_ns -= b->swaps.n * l->p.admit_ns;
    return ATSI_OK;
}

void atsi_books_arrived(struct atsi_books *b, uint32_t layer, uint32_t slot)
{
    b->layers[layer].locked[slot] = 0;
}

void atsi_books_empty(struct atsi_books *b, uint32_t layer)
{
    struct layer *l = &b->layers[layer];
    for (uint32_t e = 0; e < l->p.n_experts; e++)
        l->slot_of[e] = -1;
    for (uint32_t s = 0; s < l->p.n_slots; s++)
        l->expert_of[s] = -1;
    memset(l->locked, 0, l->p.n_slots);
}

void atsi_books_fill(struct atsi_books *b, uint32_t layer)
{
    struct layer *l = &b->layers[layer];
    for (uint32_t s = 0; s < l->p.n_slots; s++) {
        int32_t best = -1;
        for (uint32_t e = 0; e < l->p.n_experts && l->expert_of[s] < 0; e++)
            if (l->slot_of[e] < 0 && (best < 0 || l->score[e] > l->score[best]))
                best = (int32_t)e;
        if (best >= 0)
            put(l, best, (int32_t)s);
    }
}

bool atsi_books_locked(const struct atsi_books *b, uint32_t layer, uint32_t slot)
{
    return b->layers[layer].locked[slot] != 0;
}

int32_t atsi_books_expert(const struct atsi_books *b, uint32_t layer, uint32_t slot)
{
    return b->layers[layer].expert_of[slot];
}

void atsi_books_counts(const struct atsi_books *b, struct atsi_books_counts *out)
{
    *out = b->counts;
}

float *atsi_books_score(struct atsi_books *b, uint32_t layer)
{
    return b->layers[layer].score;
}

uint64_t atsi_books_rounds(const struct atsi_books *b, uint32_t layer)
{
    return b->layers[layer].round;
}
