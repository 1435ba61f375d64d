/* SPDX-License-Identifier: Apache-2.0
 * Choosing the size of prefill rounds. */
#include "core/round/chunk.h"

#include <string.h>

#define GAIN 50u /* a request that is shorter by one in so many is worth larger rounds */

/* What the policy predicts with this question; rc of the policy. */
static int predict(const struct atsi_policy_use *use, struct atsi_question *q,
                   struct atsi_chunk_trial *t, struct atsi_err *err)
{
    const struct atsi_policy_ops *ops = use->ops;
    struct atsi_answer *a = NULL;
    int rc = atsi_answer_open(q->items->n, &a, err);
    if (rc == ATSI_OK && ops->scratch_bytes != NULL)
        rc = atsi_question_scratch(q, ops->scratch_bytes(q->items->n), err);
    if (rc == ATSI_OK)
        rc = ops->place(&q->p, &a->place, err);
    if (rc == ATSI_OK)
        rc = atsi_check_placement(q, &a->place, err);
    if (rc == ATSI_OK) {
        t->round_ns = a->place.predicted_prefill_ns;
        t->decode_ns = a->place.predicted_decode_ns;
    }
    atsi_answer_close(a);
    return rc;
}

/* ATSI_OK, an error of ask(), or 1: the policy predicts nothing. */
static int try_size(const struct atsi_chunk_params *p, uint32_t tokens, struct atsi_chunk_trial *t,
                    struct atsi_err *err)
{
    static const uint32_t undisturbed[ATSI_N_CLASSES] = {1000, 1000, 1000, 1000};
    struct atsi_err why = ATSI_ERR_INIT;
    struct atsi_question *q = NULL;
    uint64_t rounds = ((uint64_t)p->prompt + tokens - 1) / tokens;
    int rc = p->ask(p->ctx, tokens, &q, err);
    *t = (struct atsi_chunk_trial){.tokens = tokens};
    if (rc != ATSI_OK)
        return rc;
    atsi_question_slow(q, undisturbed);
    rc = predict(p->place, q, t, &why);
    atsi_question_free(q);
    if (rc != ATSI_OK || t->round_ns == 0 || t->round_ns > UINT64_MAX / 2 / (rounds + 1) ||
        t->decode_ns > UINT64_MAX / 2 / ((uint64_t)p->generated + 1))
        return 1;
    t->request_ns = rounds * t->round_ns + p->generated * t->decode_ns;
    return ATSI_OK;
}

static void explain(const struct atsi_chunk_params *p, struct atsi_chunk_choice *c, bool fits)
{
    size_t n;
    (void)snprintf(c->why, sizeof c->why, "%u tokens a round; a request of %u + %u tokens takes",
                   c->tokens, p->prompt, p->generated);
    for (uint32_t i = 0; i < c->n; i++) {
        n = strlen(c->why);
        (void)snprintf(c->why + n, sizeof c->why - n, "%s %.3f s with %u", i > 0 ? "," : "",
                       (double)c->trial[i].request_ns / 1e9, c->trial[i].tokens);
    }
    n = strlen(c->why);
    if (!fits)
        (void)snprintf(c->why + n, sizeof c->why - n, "; larger ones leave too little memory");
}

int atsi_chunk_choose(const struct atsi_chunk_params *p, struct atsi_chunk_choice *out,
                      struct atsi_err *err)
{
    uint32_t most = p->most < ATSI_CHUNK_MOST ? p->most : ATSI_CHUNK_MOST;
    uint32_t tokens = most < ATSI_CHUNK_USUAL ? most : ATSI_CHUNK_USUAL;
    uint64_t best = 0;
    bool fits = true;
    *out = (struct atsi_chunk_choice){.tokens = tokens};
    (void)snprintf(out->why, sizeof out->why, "%u tokens a round: policy %s predicts nothing",
                   tokens, p->place->name);
    if (p->place->ops == NULL || p->place->ops->place == NULL)
        return ATSI_OK;
    while (out->n < ATSI_CHUNK_TRIALS) {
        struct atsi_chunk_trial *t = &out->trial[out->n];
        struct atsi_err why = ATSI_ERR_INIT;
        int rc = try_size(p, tokens, t, out->n == 0 ? err : &why);
        fits = rc != ATSI_ENOFIT && rc != ATSI_ENOMEM;
        if (out->n == 0 && rc != ATSI_OK)
            return rc < 0 ? rc : ATSI_OK;
        if (rc != ATSI_OK)
            break;
        out->n++;
        if (best != 0 && t->request_ns + best / GAIN > best)
            break;
        best = t->request_ns;
        out->tokens = tokens;
        if (tokens >= most || tokens >= p->prompt)
            break;
        tokens = tokens < most / 2 ? 2 * tokens : most;
    }
    explain(p, out, fits);
    return ATSI_OK;
}

uint64_t atsi_chunk_row_bytes(const struct atsi_items *it)
{
    uint64_t most = 0, sum = 0;
    for (uint32_t i = 0; i < it->n; i++) {
        const struct atsi_work *w = &it->work[i];
        uint64_t used = w->n_expert > 0 && w->n_used > 0 ? w->n_used : 1;
        if (i > 0 && it->items[i].layer != it->items[i - 1].layer)
            sum = 0;
        if (w->last_only)
            continue;
        sum += 4 * (w->in * (w->own_inputs ? used : 1) + w->out * used + w->in_width);
        if (sum > most)
            most = sum;
    }
    return most;
}
