/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of policy_static.  They are known to the core only after the entry point has returned,
 * so they are read with the first question, and again before a placement.
 */
#include "static.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct atsi_param p_mode = {
    .struct_size = sizeof p_mode,
    .type = ATSI_PARAM_CHOICE,
    .key = "mode",
    .def = "expert",
    .choices = "layer|expert|stream|density|alg1",
    .help = "Placement: last whole layers; all but the experts of the first layers; layers, and "
            "the rest streamed every round; gain per byte; the paper's Algorithm 1."};
static const struct atsi_param p_gpu_layers = {
    .struct_size = sizeof p_gpu_layers,
    .type = ATSI_PARAM_INT,
    .key = "n_gpu_layers",
    .def = "-1",
    .choices = "-1..100000",
    .help = "Layer, expert, stream: at most so many last layers on the accelerator, the head "
            "counting as one; -1: as many as fit."};
static const struct atsi_param p_cpu_moe = {
    .struct_size = sizeof p_cpu_moe,
    .type = ATSI_PARAM_INT,
    .key = "n_cpu_moe",
    .def = "-1",
    .choices = "-1..100000",
    .help = "Layer, expert, stream: the experts of so many first layers stay on the host; -1: "
            "those that do not fit."};
static const struct atsi_param p_stream_min = {
    .struct_size = sizeof p_stream_min,
    .type = ATSI_PARAM_INT,
    .key = "prefill_stream_min",
    .def = "32",
    .choices = "0..1000000000",
    .unit = "tokens",
    .help = "Prefill rounds of so many tokens stream every weight of the host; 0: never."};
static const struct atsi_param p_overlap = {
    .struct_size = sizeof p_overlap,
    .type = ATSI_PARAM_CHOICE,
    .key = "overlap",
    .def = "auto",
    .choices = "auto|on|off",
    .help =
        "Whether a weight may be on its way while earlier operators run; auto: in mode stream."};
const struct atsi_param *const static_params[] = {&p_mode,       &p_gpu_layers, &p_cpu_moe,
                                                  &p_stream_min, &p_overlap,    NULL};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct atsi_host *the_host;
static struct static_settings settings;
static int known;

void static_settings_host(const struct atsi_host *host)
{
    (void)pthread_mutex_lock(&lock);
    the_host = host;
    known = 0;
    (void)pthread_mutex_unlock(&lock);
}

void static_settings_again(void)
{
    (void)pthread_mutex_lock(&lock);
    known = 0;
    (void)pthread_mutex_unlock(&lock);
}

static const char *text_of(const struct atsi_param *p)
{
    const char *text = NULL;
    if (the_host != NULL)
        text = the_host->param_get(the_host->ctx, "policy_static", p->key);
    return text != NULL ? text : p->def;
}

/* Place of the text among the choices. */
static int read_choice(const struct atsi_param *p, int *out, struct atsi_err *err)
{
    const char *text = text_of(p);
    size_t len = strlen(text), n;
    *out = 0;
    for (const char *at = p->choices;; at += n + 1, (*out)++) {
        n = strcspn(at, "|");
        if (n == len && memcmp(at, text, n) == 0)
            return ATSI_OK;
        if (at[n] == '\0')
            break;
    }
    return atsi_fail(err, ATSI_ECONF, "policy_static.%s: \"%.64s\" is not one of %s", p->key, text,
                     p->choices);
}

static int read_int(const struct atsi_param *p, int64_t *out, struct atsi_err *err)
{
    const char *text = text_of(p), *dots = strstr(p->choices, "..");
    char *end;
    *out = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && *out >= strtoll(p->choices, NULL, 10) &&
        *out <= strtoll(dots + 2, NULL, 10))
        return ATSI_OK;
    return atsi_fail(err, ATSI_ECONF, "policy_static.%s: \"%.64s\" is not within %s", p->key, text,
                     p->choices);
}

static int read_all(struct static_settings *s, struct atsi_err *err)
{
    int64_t min = 0;
    int mode = 0, overlap = 0, rc = read_choice(&p_mode, &mode, err);
    if (rc == ATSI_OK)
        rc = read_int(&p_gpu_layers, &s->n_gpu_layers, err);
    if (rc == ATSI_OK)
        rc = read_int(&p_cpu_moe, &s->n_cpu_moe, err);
    if (rc == ATSI_OK)
        rc = read_int(&p_stream_min, &min, err);
    if (rc == ATSI_OK)
        rc = read_choice(&p_overlap, &overlap, err);
    s->mode = (enum static_mode)mode;
    s->stream_min = (uint32_t)min;
    s->overlap = overlap == 0 ? s->mode == STATIC_STREAM : overlap == 1;
    return rc;
}

int static_settings_get(struct static_settings *out, struct atsi_err *err)
{
    int rc = ATSI_OK;
    (void)pthread_mutex_lock(&lock);
    if (!known)
        rc = read_all(&settings, err);
    known = rc == ATSI_OK;
    *out = settings;
    (void)pthread_mutex_unlock(&lock);
    return rc;
}
