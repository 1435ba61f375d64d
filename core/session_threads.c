/* SPDX-License-Identifier: Apache-2.0
 *
 * How many workers a session's rounds have: what the settings say; where they leave it open, no
 * more than the measured costs of its model show to pay (round/knee.c).
 */
#include "core/round/devices.h"
#include "core/session.h"

#include <limits.h>

/* The table that `atsinfer profile -m` makes for this CPU without an accelerator; NULL: there is
 * none, or it is out of date.  Nothing is measured. */
static struct atsi_costs *kept_table(const struct atsi_session *s)
{
    const struct atsi_devices v = {.d = {.ops = {s->be_ops}, .be = {s->be}},
                                   .backend = {s->backend_name}};
    struct atsi_measure_request r;
    struct atsi_costs *key = atsi_costs_new(), *c = NULL;
    char path[PATH_MAX], why[700];
    int rc = key != NULL ? atsi_measure_usual(s->rt, s->model, &v, &r, NULL) : ATSI_ENOMEM;
    r.ctx_max = 0; /* workers depend on neither context nor chunk */
    if (rc == ATSI_OK)
        rc = atsi_costs_key_make(&r, key, NULL);
    if (rc == ATSI_OK)
        rc = atsi_costs_path(&r, false, path, sizeof path, NULL);
    if (rc == ATSI_OK)
        rc = atsi_costs_read(path, &c, NULL);
    if (rc == ATSI_OK && !atsi_costs_fit(c, key, why, sizeof why)) {
        atsi_log(s->rt->log, ATSI_LOG_DEBUG, "threads", "measured costs are out of date: %s", why);
        atsi_costs_free(c);
        c = NULL;
    }
    atsi_costs_free(key);
    return c;
}

static void say(const struct atsi_session *s)
{
    const struct atsi_runtime *rt = s->rt;
    if (s->knee[0] < rt->n_decode || s->knee[1] < rt->n_prefill)
        atsi_log(
            rt->log, ATSI_LOG_INFO, "threads",
            "%u of %u in decode, %u of %u in prefill: measured, more gain nothing (cpu.threads "
            "sets a number)",
            s->knee[0], rt->n_decode, s->knee[1], rt->n_prefill);
}

void atsi_session_take_threads(struct atsi_session *s, const struct atsi_costs *c)
{
    struct atsi_costs *kept = NULL;
    if (!s->rt->open_decode && !s->rt->open_prefill)
        return;
    if (c == NULL)
        c = kept = kept_table(s);
    if (c != NULL) {
        atsi_costs_threads(c, s->rt, s->knee);
        say(s);
    }
    atsi_costs_free(kept);
}

uint32_t atsi_session_threads(const struct atsi_session *s, uint32_t rows)
{
    const struct atsi_runtime *rt = s->rt;
    bool open = rows > 1 ? rt->open_prefill : rt->open_decode;
    uint32_t most = rows > 1 ? rt->n_prefill : rt->n_decode, knee = s->knee[rows > 1];
    return open && knee != 0 && knee < most ? knee : most;
}
