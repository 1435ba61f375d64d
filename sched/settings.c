/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the parameters of a policy, once for all of its threads.  The core has checked each value
 * when it was set; they are checked again here because the host may be another one.
 */
#include "sched/settings.h"

#include <stdlib.h>
#include <string.h>

void sched_settings_host(struct sched_settings *s, const struct atsi_host *host)
{
    (void)pthread_mutex_lock(&s->lock);
    s->host = host;
    s->known = 0;
    (void)pthread_mutex_unlock(&s->lock);
}

void sched_settings_again(struct sched_settings *s)
{
    (void)pthread_mutex_lock(&s->lock);
    s->known = 0;
    (void)pthread_mutex_unlock(&s->lock);
}

int sched_settings_get(struct sched_settings *s, void *out, struct atsi_err *err)
{
    int rc = ATSI_OK;
    (void)pthread_mutex_lock(&s->lock);
    if (!s->known)
        rc = s->read(s, s->kept, err);
    s->known = rc == ATSI_OK;
    memcpy(out, s->kept, s->size);
    (void)pthread_mutex_unlock(&s->lock);
    return rc;
}

static const char *text_of(const struct sched_settings *s, const struct atsi_param *p)
{
    const char *text = NULL;
    if (s->host != NULL)
        text = s->host->param_get(s->host->ctx, s->plugin, p->key);
    return text != NULL ? text : p->def;
}

int sched_settings_choice(const struct sched_settings *s, const struct atsi_param *p, int *out,
                          struct atsi_err *err)
{
    const char *text = text_of(s, p);
    size_t len = strlen(text), n;
    *out = 0;
    for (const char *at = p->choices;; at += n + 1, (*out)++) {
        n = strcspn(at, "|");
        if (n == len && memcmp(at, text, n) == 0)
            return ATSI_OK;
        if (at[n] == '\0')
            break;
    }
    return atsi_fail(err, ATSI_ECONF, "%s.%s: \"%.64s\" is not one of %s", s->plugin, p->key, text,
                     p->choices);
}

int sched_settings_number(const struct sched_settings *s, const struct atsi_param *p, double *out,
                          struct atsi_err *err)
{
    const char *text = text_of(s, p), *dots = strstr(p->choices, "..");
    char *end;
    *out = p->type == ATSI_PARAM_INT ? (double)strtoll(text, &end, 10) : strtod(text, &end);
    if (end != text && *end == '\0' && *out >= strtod(p->choices, NULL) &&
        *out <= strtod(dots + 2, NULL))
        return ATSI_OK;
    return atsi_fail(err, ATSI_ECONF, "%s.%s: \"%.64s\" is not within %s", s->plugin, p->key, text,
                     p->choices);
}
