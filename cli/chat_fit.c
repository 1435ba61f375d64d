/* SPDX-License-Identifier: Apache-2.0
 *
 * How many of the oldest turns have to go: measured (a render and a tokenization each) for few
 * candidates only, by bisection, as dropping more never makes a prompt longer.
 */
#include "cli/chat_fit.h"

uint32_t chat_reserve(uint32_t n_ctx, int64_t n_predict)
{
    uint32_t most = n_predict >= 0 ? n_ctx / 2 : n_ctx / 4, n = 1024;
    if (n_predict >= 0)
        n = n_predict < (int64_t)UINT32_MAX ? (uint32_t)n_predict : UINT32_MAX;
    if (n > most)
        n = most;
    return n > 0 ? n : 1;
}

/* The smallest drop in (low, high] with at most `most` tokens; `high` is known to have so few. */
static int bisect(struct chat_fit *f, size_t low, size_t high, size_t most)
{
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2, n;
        int rc = f->measure(f->ctx, mid, &n);
        if (rc != 0)
            return rc;
        if (n <= most) {
            high = mid;
            f->n_tokens = n;
        } else {
            low = mid;
        }
    }
    f->drop = high;
    return 0;
}

int chat_fit(struct chat_fit *f)
{
    uint64_t one = f->reserve, two = 2 * (uint64_t)f->reserve, most;
    size_t n;
    int rc;
    f->drop = 0;
    rc = f->measure(f->ctx, 0, &f->n_tokens);
    if (rc != 0 || f->n_tokens + one <= f->n_ctx)
        return rc;
    if (f->n_turns <= 1)
        return CHAT_FIT_TOO_LONG;
    rc = f->measure(f->ctx, f->n_turns - 1, &n);
    if (rc != 0)
        return rc;
    f->n_tokens = n;
    if (n + one > f->n_ctx)
        return CHAT_FIT_TOO_LONG;
    most = f->n_ctx - (n + two <= f->n_ctx ? two : one);
    return bisect(f, 0, f->n_turns - 1, (size_t)most);
}
