/* SPDX-License-Identifier: Apache-2.0
 * Who watches the machine for a session with an accelerator, and what is said to it. */
#include "core/hybrid/inside.h"
#include "core/hybrid/live.h"

#define ROUNDED ((uint64_t)16 << 20) /* budgets end at whole slots and alignments */

static void decided(void *ctx, const struct atsi_govern_decision *d)
{
    atsi_live_decide(ctx, d);
}

static void battery(void *ctx, bool on_battery)
{
    atsi_live_battery(ctx, on_battery);
}

void atsi_hybrid_watch(struct atsi_hybrid *h)
{
    const struct atsi_conf *c = h->s->rt->conf;
    struct atsi_governor_params p = {.period_ms = (uint32_t)atsi_conf_int(c, "power.watch"),
                                     .root = atsi_conf_get(c, "power.root"),
                                     .device = h->a.props.name,
                                     .log = h->s->rt->log,
                                     .decided = decided,
                                     .battery = battery,
                                     .ctx = h->s->live};
    struct atsi_err why = ATSI_ERR_INIT;
    if (p.period_ms == 0)
        return;
    if (atsi_governor_open(&p, &h->governor, &why) != ATSI_OK)
        atsi_log(h->s->rt->log, ATSI_LOG_WARN, "power", "nothing is watched: %s", why.msg);
}

static uint64_t percent_of(double percent, uint64_t bytes)
{
    return (uint64_t)(percent / 100 * (double)bytes);
}

/* Less than the settings say. */
static bool is_short(const struct atsi_hybrid *h)
{
    const struct atsi_amount *vram = &h->conf.vram;
    const struct atsi_budget *b = &h->budget;
    switch (vram->kind) {
    case ATSI_AMOUNT_BYTES:
        return b->total + ROUNDED < vram->bytes;
    case ATSI_AMOUNT_PERCENT:
        return b->total + ROUNDED < percent_of(vram->percent, b->device_total);
    case ATSI_AMOUNT_PERCENT_MODEL:
        return b->place + b->slots + ROUNDED < percent_of(vram->percent, h->sizes.weights);
    default:
        return true;
    }
}

void atsi_hybrid_watch_placed(const struct atsi_hybrid *h, uint32_t n)
{
    const struct atsi_govern_plan plan = {.margin = h->conf.margin_bytes,
                                          .follows_free = h->conf.vram.kind == ATSI_AMOUNT_AUTO,
                                          .wants_more = n < h->items->n && is_short(h)};
    if (h->governor != NULL)
        atsi_governor_placed(h->governor, &plan);
}
