/* SPDX-License-Identifier: Apache-2.0
 *
 * The size of prefill rounds of a session whose settings leave it free.
 */
#include "core/round/chunk.h"
#include "core/hybrid/inside.h"

#include <stdio.h>

static int ask(void *ctx, uint32_t tokens, struct atsi_question **out, struct atsi_err *err)
{
    struct atsi_hybrid *h = ctx;
    struct atsi_hybrid_ask a;
    int rc = atsi_session_set_chunk(h->s, tokens, err);
    *out = NULL;
    if (rc == ATSI_OK)
        rc = atsi_hybrid_make_budget(h, err);
    a = atsi_hybrid_ask_of(h);
    return rc == ATSI_OK ? atsi_hybrid_question(&a, out, err) : rc;
}

static int choose(struct atsi_hybrid *h, struct atsi_chunk_choice *c, struct atsi_err *err)
{
    struct atsi_policy_use place;
    struct atsi_chunk_params p = {.place = &place, .most = h->s->n_ctx, .ctx = h, .ask = ask};
    int rc = atsi_hybrid_find_policy(h, "policy.place", true, &place, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_mix(h->s->rt->conf, &p.prompt, &p.generated, err);
    return rc == ATSI_OK ? atsi_chunk_choose(&p, c, err) : rc;
}

int atsi_hybrid_choose_chunk(struct atsi_hybrid *h, struct atsi_err *err)
{
    uint32_t was = h->s->chunk;
    struct atsi_chunk_choice c = {.tokens = was};
    int rc, back;
    if (!h->s->chunk_free || h->chunk_chosen)
        return ATSI_OK;
    h->chunk_chosen = true;
    rc = choose(h, &c, err);
    back = atsi_session_set_chunk(h->s, rc == ATSI_OK ? c.tokens : was, err);
    if (rc == ATSI_OK)
        rc = back;
    if (rc == ATSI_OK)
        rc = atsi_hybrid_make_budget(h, err);
    if (rc != ATSI_OK)
        return rc;
    (void)snprintf(h->s->chunk_why, sizeof h->s->chunk_why, "%s", c.why);
    h->s->accel_stats.chunk_why = h->s->chunk_why;
    atsi_log(h->s->rt->log, ATSI_LOG_INFO, "session", "prefill.chunk: %s", c.why);
    return c.tokens != was ? 1 : ATSI_OK;
}
