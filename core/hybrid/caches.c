/* SPDX-License-Identifier: Apache-2.0
 *
 * Caches of experts in the life of a session: what is known of the model's choices goes into the
 * question, what is learned stays for the next placement and the next session.
 */
#include "core/hybrid/inside.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool is_kept(const struct atsi_hybrid *h)
{
    return atsi_conf_bool(h->s->rt->conf, "experts.statistics");
}

/* Once per session.  A file that cannot be used is said, and the cache begins cold. */
static void read_stats(struct atsi_hybrid *h)
{
    struct atsi_err why = ATSI_ERR_INIT;
    char path[PATH_MAX];
    int rc;
    if (h->stats_read || !is_kept(h))
        return;
    h->stats_read = true;
    rc = atsi_expert_stats_path(h->s->model, false, path, sizeof path, &why);
    if (rc == ATSI_OK)
        rc = atsi_expert_stats_read(&h->stats, path, &why);
    if (rc != ATSI_OK && rc != ATSI_ENOENT && rc != ATSI_ENOTSUP)
        atsi_log(h->s->rt->log, ATSI_LOG_WARN, "experts",
                 "statistics of experts are begun anew: %s", why.msg);
}

void atsi_hybrid_save_experts(struct atsi_hybrid *h)
{
    struct atsi_err why = ATSI_ERR_INIT;
    char path[PATH_MAX];
    int rc = ATSI_OK;
    if (h->stats.n > 0 && is_kept(h)) {
        rc = atsi_expert_stats_path(h->s->model, true, path, sizeof path, &why);
        if (rc == ATSI_OK)
            rc = atsi_expert_stats_write(&h->stats, path, &why);
    }
    if (rc != ATSI_OK && rc != ATSI_ENOTSUP)
        atsi_log(h->s->rt->log, ATSI_LOG_WARN, "experts", "statistics of experts are not kept: %s",
                 why.msg);
    atsi_expert_stats_free(&h->stats);
    free(h->uses);
    free(h->sorted);
    h->uses = NULL;
    h->sorted = NULL;
}

/* ---------------------------------------------------------------- before the placement */
static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* What is known of an item's layer; NULL: nothing. */
static const float *known(const struct atsi_hybrid *h, const struct atsi_item *it)
{
    for (uint32_t k = 0; k < h->stats.n; k++)
        if ((int32_t)h->stats.layers[k].layer == it->layer &&
            h->stats.layers[k].n_experts == it->n_experts)
            return h->stats.layers[k].score;
    return NULL;
}

static int sort_uses(struct atsi_hybrid *h, struct atsi_err *err)
{
    uint64_t total = 0, at = 0;
    for (uint32_t i = 0; i < h->items->n; i++)
        total += h->items->items[i].n_experts;
    free(h->uses);
    free(h->sorted);
    h->uses = calloc((size_t)h->items->n + 1, sizeof(const float *));
    h->sorted = calloc((size_t)total + 1, sizeof *h->sorted);
    if (h->uses == NULL || h->sorted == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for statistics of experts");
    for (uint32_t i = 0; i < h->items->n; i++) {
        const struct atsi_item *it = &h->items->items[i];
        const float *score = it->n_experts > 0 ? known(h, it) : NULL;
        if (score == NULL)
            continue;
        memcpy(h->sorted + at, score, it->n_experts * sizeof *score);
        qsort(h->sorted + at, it->n_experts, sizeof *score, falling);
        h->uses[i] = h->sorted + at;
        at += it->n_experts;
    }
    return ATSI_OK;
}

int atsi_hybrid_ask_experts(struct atsi_hybrid *h, struct atsi_err *err)
{
    int rc;
    h->question->p.expert_cache =
        strcmp(atsi_conf_get(h->s->rt->conf, "experts.cache"), "off") != 0 &&
        atsi_experts_can(h->source, h->items);
    if (h->question->p.expert_cache == 0)
        return ATSI_OK;
    read_stats(h);
    rc = sort_uses(h, err);
    if (rc == ATSI_OK)
        h->question->p.expert_uses = h->uses;
    return rc;
}

/* ---------------------------------------------------------------- after it */
static uint32_t layer_of(const struct atsi_hybrid *h, const struct atsi_cache_group *g)
{
    int32_t layer = h->items->items[g->first].layer;
    return layer >= 0 ? (uint32_t)layer : g->router;
}

static void copy_scores(struct atsi_hybrid *h, bool learn)
{
    uint32_t n;
    const struct atsi_cache_group *g = atsi_experts_groups(h->experts, &n);
    for (uint32_t k = 0; k < n; k++) {
        float *kept = atsi_expert_stats_layer(&h->stats, layer_of(h, &g[k]), g[k].n_experts);
        float *book = atsi_books_score(atsi_experts_books(h->experts), k);
        if (kept != NULL)
            memcpy(learn ? kept : book, learn ? book : kept, g[k].n_experts * sizeof *kept);
    }
}

static void say(const struct atsi_hybrid *h)
{
    uint64_t slots = 0, experts = 0, bytes = 0;
    uint32_t n;
    const struct atsi_cache_group *g = atsi_experts_groups(h->experts, &n);
    for (uint32_t k = 0; k < n; k++) {
        slots += g[k].n_slots;
        experts += g[k].n_experts;
        bytes += g[k].n_slots * g[k].bytes;
    }
    atsi_log(h->s->rt->log, ATSI_LOG_INFO, "experts",
             "slots for %llu of %llu experts in %u layers, %.1f MiB", (unsigned long long)slots,
             (unsigned long long)experts, n, (double)bytes / 1048576.0);
}

int atsi_hybrid_open_experts(struct atsi_hybrid *h, const struct atsi_policy_use *placed_by,
                             struct atsi_err *err)
{
    const struct atsi_conf *c = h->s->rt->conf;
    struct atsi_experts_params p = {.source = h->source,
                                    .accel = &h->a,
                                    .items = h->items,
                                    .values = &h->values,
                                    .weights = h->weights,
                                    .log = h->s->rt->log,
                                    .policy = placed_by,
                                    .question = h->question,
                                    .place = atsi_rounds_placement(h->rounds),
                                    .half_life = (float)atsi_conf_int(c, "experts.half_life"),
                                    .copy_permille =
                                        10 * (uint32_t)atsi_conf_int(c, "experts.copy_share")};
    const struct atsi_cache_group *groups;
    uint32_t n;
    int rc = h->question->p.expert_cache != 0 ? atsi_experts_open(&p, &h->experts, err) : ATSI_OK;
    if (rc != ATSI_OK || h->experts == NULL)
        return rc;
    h->books_seen = (struct atsi_books_counts){0};
    groups = atsi_experts_groups(h->experts, &n);
    rc = atsi_question_caches(h->question, groups, n, err);
    if (rc != ATSI_OK)
        return rc;
    copy_scores(h, false);
    atsi_source_use_experts(h->source, h->experts);
    say(h);
    return ATSI_OK;
}

void atsi_hybrid_close_experts(struct atsi_hybrid *h)
{
    if (h->experts == NULL)
        return;
    copy_scores(h, true);
    if (h->source != NULL)
        atsi_source_use_experts(h->source, NULL);
    atsi_experts_close(h->experts);
    h->experts = NULL;
}
