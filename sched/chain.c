/* SPDX-License-Identifier: Apache-2.0
 *
 * What makes a chain and a plan well-formed.  Everything else in sched/ relies on it: indices are
 * in range, and no sum of times can overflow.
 */
#include "sched/chain.h"

#include <inttypes.h>

struct field {
    const char *name;
    size_t offset;
    int64_t max;
};

static const struct field fields[] = {
    {"s", offsetof(struct sched_op, s), SCHED_MAX_BYTES},
    {"tc", offsetof(struct sched_op, tc), SCHED_MAX_NS},
    {"tg", offsetof(struct sched_op, tg), SCHED_MAX_NS},
    {"c", offsetof(struct sched_op, c), SCHED_MAX_NS},
    {"w", offsetof(struct sched_op, w), SCHED_MAX_NS},
    {"cg", offsetof(struct sched_op, cg), SCHED_MAX_NS},
    {"gc", offsetof(struct sched_op, gc), SCHED_MAX_NS},
    {"evt", offsetof(struct sched_op, evt), SCHED_MAX_NS},
};

static int check_numbers(const struct sched_op *op, uint32_t i, struct atsi_err *err)
{
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        int64_t v = *(const int64_t *)(const void *)((const char *)op + fields[f].offset);
        if (v < 0 || v > fields[f].max)
            return atsi_fail(err, ATSI_EINVAL,
                             "operator %u: %s is %" PRId64 ", outside 0..%" PRId64, i,
                             fields[f].name, v, fields[f].max);
    }
    return ATSI_OK;
}

/* Written so that NaN fails. */
static int good_speed(double v)
{
    return v >= SCHED_MIN_SPEED && v <= 1.0;
}

static int check_op(const struct sched_chain *ch, uint32_t i, struct atsi_err *err)
{
    const struct sched_op *op = &ch->op[i];
    int rc = check_numbers(op, i, err);
    if (rc != ATSI_OK)
        return rc;
    if (!good_speed(op->km) || !good_speed(op->kx))
        return atsi_fail(err, ATSI_EINVAL,
                         "operator %u: contention speeds km %g, kx %g are outside %g..1", i, op->km,
                         op->kx, SCHED_MIN_SPEED);
    if (op->rel < -1 || (op->rel >= 0 && (uint32_t)op->rel >= i))
        return atsi_fail(err, ATSI_EINVAL,
                         "operator %u: rel is %d, which is neither -1 nor an earlier operator", i,
                         op->rel);
    if (op->role >= ch->n_classes)
        return atsi_fail(err, ATSI_EINVAL, "operator %u: slot class %u, but there are %u", i,
                         op->role, ch->n_classes);
    if (op->promo > 1 || op->is_exp > 1 || op->pinned < -1 || op->pinned > 1)
        return atsi_fail(err, ATSI_EINVAL,
                         "operator %u: promo %u, is_exp %u or pinned %d is out of range", i,
                         op->promo, op->is_exp, op->pinned);
    if (ch->b != NULL && ch->b[i] > 1)
        return atsi_fail(err, ATSI_EINVAL, "operator %u: b is %u, neither 0 nor 1", i, ch->b[i]);
    return ATSI_OK;
}

static int check_scalars(const struct sched_chain *ch, struct atsi_err *err)
{
    if (ch->n > SCHED_MAX_OPS)
        return atsi_fail(err, ATSI_EINVAL, "%u operators, at most %u are supported", ch->n,
                         SCHED_MAX_OPS);
    if (ch->n_classes < 1 || ch->n_classes > SCHED_MAX_CLASSES)
        return atsi_fail(err, ATSI_EINVAL, "%u slot classes, outside 1..%u", ch->n_classes,
                         SCHED_MAX_CLASSES);
    if (ch->rlat < 0 || ch->rlat > SCHED_MAX_NS || ch->out < 0 || ch->out > SCHED_MAX_NS ||
        ch->gap < 0 || ch->gap > SCHED_MAX_NS)
        return atsi_fail(err, ATSI_EINVAL,
                         "rlat %" PRId64 ", out %" PRId64 " or gap %" PRId64
                         " is outside 0..%" PRId64,
                         ch->rlat, ch->out, ch->gap, SCHED_MAX_NS);
    if (ch->budget < 0)
        return atsi_fail(err, ATSI_EINVAL, "the budget is negative: %" PRId64, ch->budget);
    if (!good_speed(ch->am) || !good_speed(ch->ax))
        return atsi_fail(err, ATSI_EINVAL, "contention speeds am %g, ax %g are outside %g..1",
                         ch->am, ch->ax, SCHED_MIN_SPEED);
    return ATSI_OK;
}

int sched_chain_check(const struct sched_chain *ch, struct atsi_err *err)
{
    int rc = check_scalars(ch, err);
    for (uint32_t q = 0; rc == ATSI_OK && q < ch->n_classes; q++)
        if (ch->depth[q] < 1)
            rc = atsi_fail(err, ATSI_EINVAL, "slot class %u has no slot", q);
    for (uint32_t i = 0; rc == ATSI_OK && i < ch->n; i++)
        rc = check_op(ch, i, err);
    return rc;
}

int sched_plan_check(const struct sched_chain *ch, const uint8_t *rb, struct atsi_err *err)
{
    for (uint32_t i = 0; i < ch->n; i++) {
        if (rb[i] > 1)
            return atsi_fail(err, ATSI_EINVAL, "operator %u runs on side %u, neither 0 nor 1", i,
                             rb[i]);
        if (ch->b[i] == SCHED_GPU && rb[i] != SCHED_GPU)
            return atsi_fail(err, ATSI_EINVAL, "operator %u lives on the GPU but runs on the CPU",
                             i);
        if (sched_promoted(ch, rb, i) && !ch->op[i].promo)
            return atsi_fail(
                err, ATSI_EINVAL,
                "operator %u lives on the CPU, runs on the GPU and may not be streamed", i);
    }
    return ATSI_OK;
}

int sched_contended(const struct sched_chain *ch)
{
    int slow = ch->am < 1.0 || ch->ax < 1.0;
    for (uint32_t i = 0; i < ch->n && !slow; i++)
        slow = ch->op[i].km < 1.0 || ch->op[i].kx < 1.0;
    return slow;
}
