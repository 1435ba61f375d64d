/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: Algorithm 1 on decode, and for backlog-co the placement for both phases where that
 * makes the expected request shorter.  Whatever is chosen is judged by the policy's own schedules.
 */
#include "sched/place.h"
#include "dp.h"
#include "sched/answer.h"
#include "sched/arena.h"
#include "sched/fit.h"

#include <string.h>

struct call {
    struct dp_settings s;
    struct sched_view decode, prefill;
    uint32_t n_tokens, n_chunks; /* of a request */
    uint8_t *b, *other, *rb;
    struct dp_caches caches;
    unsigned char *work;
    size_t room; /* bytes of work */
};

/* What a placement leads to. */
struct outcome {
    int64_t decode_ns, prefill_ns; /* one round of each */
    double request_ns;
};

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t work_bytes(uint32_t n)
{
    return most(sched_fit_room(n), most(dp_plan_scratch(n), sched_predict_scratch(n)));
}

size_t dp_place_scratch(uint32_t n)
{
    return 2 * sched_view_scratch(n) + 3 * SCHED_ROOM(uint8_t, n) + dp_caches_scratch(n) +
           work_bytes(n);
}

static int open_call(struct call *c, const struct atsi_problem *p, struct atsi_err *err)
{
    unsigned char *at = p->scratch;
    int rc = dp_settings_get(&c->s, err);
    if (rc == ATSI_OK)
        rc = sched_view_read(p, ATSI_PHASE_DECODE, at, &c->decode, err);
    if (rc != ATSI_OK)
        return rc;
    at += sched_view_scratch(p->n_items);
    rc = sched_view_read(p, ATSI_PHASE_PREFILL, at, &c->prefill, err);
    if (rc != ATSI_OK)
        return rc;
    at += sched_view_scratch(p->n_items);
    c->b = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->other = SCHED_TAKE(&at, uint8_t, p->n_items);
    c->rb = SCHED_TAKE(&at, uint8_t, p->n_items);
    dp_caches_find(p, &c->s, at, &c->caches);
    at += dp_caches_scratch(p->n_items);
    c->work = at;
    c->room = work_bytes(p->n_items);
    c->n_chunks = sched_problem_chunks(p);
    c->n_tokens = p->mix_generated > 0 || c->n_chunks > 0 ? p->mix_generated : 1;
    return ATSI_OK;
}

/* ---------------------------------------------------------------- judging */
static int64_t round_length(struct call *c, const struct sched_view *v, uint32_t phase,
                            const uint8_t *b)
{
    struct sched_chain ch = v->chain;
    ch.b = b;
    (void)dp_plan_make(&c->s, &ch, phase, NULL, c->work, c->rb);
    return sched_judge(&ch, c->rb, sched_predict_rounds(phase), NULL, c->work);
}

static struct outcome judge(struct call *c, const uint8_t *b)
{
    struct outcome o = {.decode_ns = round_length(c, &c->decode, ATSI_PHASE_DECODE, b),
                        .prefill_ns = round_length(c, &c->prefill, ATSI_PHASE_PREFILL, b)};
    o.request_ns = (double)o.decode_ns * c->n_tokens + (double)o.prefill_ns * c->n_chunks;
    return o;
}

/* ---------------------------------------------------------------- both phases */
static size_t coplace_needs(const void *ctx, int64_t unit)
{
    struct sched_coplace how = *(const struct sched_coplace *)ctx;
    how.unit = unit;
    return sched_coplace_scratch(&how);
}

/* c->other: a placement for both phases.  *found: 0 when pins do not fit in whole units of memory;
 * Algorithm 1 then has one that counts bytes. */
static int coplace(struct call *c, int *found, struct atsi_err *err)
{
    struct sched_coplace how = {.decode = &c->decode.chain,
                                .prefill = &c->prefill.chain,
                                .n_tokens = c->n_tokens,
                                .n_chunks = c->n_chunks,
                                .decode_rounds = dp_plan_rounds(ATSI_PHASE_DECODE),
                                .attn = c->decode.attn};
    struct atsi_err why = ATSI_ERR_INIT;
    struct sched_coplaced by_quick_search; /* judged anew with the policy's own schedules */
    int rc;
    how.unit = sched_fit_unit(c->s.unit, c->room, coplace_needs, &how);
    if (how.unit == 0)
        return atsi_fail(err, ATSI_EINVAL, "%zu bytes of scratch are too few for %u items", c->room,
                         c->decode.chain.n);
    rc = sched_coplace(&how, c->work, c->other, &by_quick_search, &why);
    *found = rc == ATSI_OK;
    return rc == ATSI_OK || rc == ATSI_ENOFIT ? ATSI_OK : atsi_fail(err, rc, "%s", why.msg);
}

/* ---------------------------------------------------------------- expert caches */
/* Instead of whole stacks on the accelerator, the experts used most of every layer, if that makes
 * the request shorter.  c->other: that placement.  True: it does. */
static int try_caches(struct call *c, const struct atsi_problem *in, struct outcome *best)
{
    struct outcome with;
    if (c->caches.n_groups == 0)
        return 0;
    memcpy(c->other, c->b, in->n_items);
    dp_caches_share(in, &c->caches, c->other);
    dp_caches_price(&c->caches, c->decode.op, in->n_items);
    with = judge(c, c->other);
    if (!c->s.always_cache && !(with.request_ns < best->request_ns))
        return 0;
    *best = with;
    memcpy(c->b, c->other, in->n_items);
    return 1;
}

int dp_place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    struct outcome best, other;
    struct call c;
    int both = 0, cached, rc;
    dp_settings_again();
    rc = open_call(&c, in, err);
    if (rc == ATSI_OK)
        rc = sched_view_check_pins(&c.decode, err);
    if (rc == ATSI_OK && c.s.algorithm == DP_BACKLOG_CO)
        rc = coplace(&c, &both, err);
    if (rc == ATSI_OK) /* after coplace(), which decides about attention itself */
        rc = sched_fit(&c.decode, c.s.unit, c.work, c.room, c.b, err);
    if (rc != ATSI_OK)
        return rc;
    best = judge(&c, c.b);
    if (both) {
        other = judge(&c, c.other);
        if (other.request_ns <= best.request_ns) {
            best = other;
            memcpy(c.b, c.other, in->n_items);
        }
    }
    cached = try_caches(&c, in, &best);
    out->predicted_decode_ns = (uint64_t)best.decode_ns;
    out->predicted_prefill_ns = (uint64_t)best.prefill_ns;
    rc = sched_write_placement(in, c.b, out, err);
    if (rc == ATSI_OK && cached)
        dp_caches_write(&c.caches, out);
    return rc;
}
